//! What a restore in place does not take for granted.

use std::fs;

use ash_snapshot::{Mending, State, Trust};

use crate::compare::{capture, in_memory, settle};
use crate::in_place::{age, changes, in_place, mend};

#[test]
fn what_could_not_be_read_then_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "a").unwrap();
    let repository = in_memory();
    let mut snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    fs::write(tree.join("precious"), "in no snapshot").unwrap();
    fs::write(tree.join("other"), "made since").unwrap();
    snapshot.skipped.unreadable = 1;
    snapshot.unreadable = vec!["workspace/precious".to_owned()];
    let mended = mend(&repository, &snapshot, &tree, Trust::Looks);
    assert_eq!(changes(&mended.changes), [("other".to_owned(), Mending::Removed)]);
    assert!(tree.join("precious").exists());
    // If it is not said what it was, it may be anything.
    fs::write(tree.join("other"), "made since").unwrap();
    snapshot.skipped.unreadable = 2;
    let mended = mend(&repository, &snapshot, &tree, Trust::Looks);
    assert_eq!((mended.removed, mended.left), (0, 1));
    assert!(tree.join("other").exists());
}

#[test]
fn a_file_that_was_touched_is_read_whatever_it_looks_like() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("p"), "version 1.0.1").unwrap();
    age(&tree);
    settle(&tree);
    let repository = in_memory();
    let mut state = State::default();
    let snapshot = capture(&repository, &tree, &mut state).snapshot;
    fs::write(tree.join("p"), "version 6.6.6").unwrap();
    age(&tree);
    let wanted = in_place(&snapshot, &tree, Trust::Looks);
    repository.restore_in_place(&wanted, &state).unwrap();
    assert_eq!(fs::read_to_string(tree.join("p")).unwrap(), "version 1.0.1");
}
