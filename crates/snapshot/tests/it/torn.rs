//! A tree that a power cut left is put right, and what is newer than the snapshot stays.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ash_snapshot::{Effect, InPlace, Mended, Mending, Newer, Repository, Snapshot, State, Trust};

use crate::compare::{capture, in_memory, picture};
use crate::in_place::{age, changes, in_place};

fn keeping<'a>(snapshot: &'a Snapshot, tree: &'a Path) -> InPlace<'a> {
    InPlace { newer: Newer::Keep, ..in_place(snapshot, tree, Trust::Bytes) }
}

fn mend(repository: &Repository, snapshot: &Snapshot, tree: &Path) -> Mended {
    repository.restore_in_place(&keeping(snapshot, tree), &State::default()).unwrap()
}

/// Changes the bytes of a file, and nothing that can be seen of it.
fn tear(path: &Path) {
    let then = fs::metadata(path).unwrap();
    let mut bytes = fs::read(path).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0);
    fs::write(path, bytes).unwrap();
    fs::File::open(path).unwrap().set_modified(then.modified().unwrap()).unwrap();
}

fn tree(place: &Path) -> std::path::PathBuf {
    let tree = place.join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    for name in ["same", "torn", "missing", "newer", "deep/er/torn", "deep/er/missing", "linked"] {
        fs::write(tree.join(name), format!("this is {name}, as it was captured")).unwrap();
    }
    fs::hard_link(tree.join("linked"), tree.join("deep/link")).unwrap();
    symlink("same", tree.join("pointer")).unwrap();
    fs::set_permissions(tree.join("deep/er"), fs::Permissions::from_mode(0o750)).unwrap();
    age(&tree);
    tree
}

#[test]
fn what_is_torn_or_missing_comes_back_and_what_is_newer_stays() {
    let place = tempfile::tempdir().unwrap();
    let tree = tree(place.path());
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    tear(&tree.join("torn"));
    tear(&tree.join("deep/er/torn"));
    tear(&tree.join("linked"));
    fs::remove_file(tree.join("missing")).unwrap();
    fs::remove_file(tree.join("deep/er/missing")).unwrap();
    fs::remove_file(tree.join("pointer")).unwrap();
    fs::write(tree.join("newer"), "written since").unwrap();
    fs::create_dir(tree.join("extra")).unwrap();
    fs::write(tree.join("extra/one"), "1").unwrap();
    fs::write(tree.join("extra/two"), "2").unwrap();
    let seen = fs::metadata(tree.join("extra")).unwrap().mtime_nsec();

    let report = InPlace { effect: Effect::Report, ..keeping(&snapshot, &tree) };
    let told = repository.restore_in_place(&report, &State::default()).unwrap();
    assert!(!tree.join("missing").exists(), "nothing is done");
    let mended = mend(&repository, &snapshot, &tree);
    assert_eq!(told.changes, mended.changes);
    let expected = [
        ("deep/er/missing", Mending::Written),
        ("deep/er/torn", Mending::Repaired),
        ("deep/link", Mending::Repaired),
        ("linked", Mending::Written),
        ("missing", Mending::Written),
        ("pointer", Mending::Written),
        ("torn", Mending::Repaired),
    ];
    assert_eq!(changes(&mended.changes), expected.map(|(path, how)| (path.to_owned(), how)));
    assert_eq!((mended.written, mended.repaired, mended.removed, mended.kept), (7, 3, 0, 3));
    for name in ["same", "torn", "missing", "deep/er/torn", "deep/er/missing", "linked"] {
        let content = fs::read_to_string(tree.join(name)).unwrap();
        assert_eq!(content, format!("this is {name}, as it was captured"));
    }
    let number = |name| fs::metadata(tree.join(name)).unwrap().ino();
    assert_eq!(number("linked"), number("deep/link"));
    assert_eq!(fs::read_to_string(tree.join("newer")).unwrap(), "written since");
    assert_eq!(fs::read_to_string(tree.join("extra/two")).unwrap(), "2");
    assert_eq!(fs::metadata(tree.join("extra")).unwrap().mtime_nsec(), seen);
    let mode = fs::metadata(tree.join("deep/er")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o750);

    let again = mend(&repository, &snapshot, &tree);
    assert_eq!((again.written, again.kept), (0, 3), "{:?}", again.changes);
}

#[test]
fn what_has_become_something_else_stays_with_all_that_is_in_it() {
    let place = tempfile::tempdir().unwrap();
    let tree = tree(place.path());
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    fs::remove_dir_all(tree.join("deep")).unwrap();
    symlink("/etc", tree.join("deep")).unwrap();
    fs::remove_file(tree.join("missing")).unwrap();
    fs::create_dir(tree.join("missing")).unwrap();
    fs::write(tree.join("missing/inside"), "kept").unwrap();
    let before = picture(&tree);
    let mended = mend(&repository, &snapshot, &tree);
    // The link, the file in the directory, and a file whose first name is behind the link.
    assert_eq!((mended.written, mended.kept), (0, 3), "{:?}", changes(&mended.changes));
    assert_eq!(picture(&tree), before);
}

#[test]
fn a_repair_that_is_stopped_anywhere_is_made_by_the_next_one() {
    let place = tempfile::tempdir().unwrap();
    let tree = tree(place.path());
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    let whole = picture(&tree);
    for stop in 1..12 {
        tear(&tree.join("torn"));
        tear(&tree.join("deep/er/torn"));
        fs::remove_file(tree.join("missing")).unwrap();
        let steps = AtomicU64::new(0);
        let dying = InPlace {
            progress: &|_| steps.fetch_add(1, Ordering::Relaxed) + 1 < stop,
            threads: 1,
            ..keeping(&snapshot, &tree)
        };
        let _stopped_or_not = repository.restore_in_place(&dying, &State::default());
        // What a process that is killed leaves.
        fs::create_dir(tree.join(".ash-restore-01890a5d-ac96-774b-bcce-b302099a8057")).unwrap();
        mend(&repository, &snapshot, &tree);
        assert_eq!(picture(&tree), whole, "stopped at {stop}");
    }
}
