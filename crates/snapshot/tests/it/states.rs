//! What is remembered from capture to capture, also by another process.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use ash_snapshot::{Capture, Captured, Repository, Root, State};

use crate::compare::{capture, in_memory, on_disk, picture, restored, settle};

/// Captures a tree; also says how many files were read.
pub(crate) fn counted(repository: &Repository, tree: &Path, state: &mut State) -> (Captured, u64) {
    let read = Mutex::new(0);
    let roots = [Root { name: "workspace", path: tree, excluded: &[] }];
    let capture = Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: None,
        threads: 1,
        progress: &|progress| {
            *read.lock().unwrap() = progress.files;
            true
        },
    };
    let captured = repository.capture(&capture, state).unwrap();
    let read = *read.lock().unwrap();
    (captured, read)
}

/// Files that were not written just now: their stamps can be relied on.
fn settled_tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir_all(tree.path().join("some/where")).unwrap();
    for number in 0..20 {
        fs::write(tree.path().join(format!("some/where/{number}")), format!("{number}")).unwrap();
    }
    std::os::unix::fs::symlink("some", tree.path().join("link")).unwrap();
    fs::hard_link(tree.path().join("some/where/3"), tree.path().join("three")).unwrap();
    // A stamp that is younger than a tick of the clock is not relied on.
    settle(tree.path());
    tree
}

#[test]
fn another_process_reads_only_what_changed() {
    let (tree, store) = (settled_tree(), tempfile::tempdir().unwrap());
    let saved = store.path().join("state");
    let mut state = State::load(&saved);
    let (first, read) = counted(&on_disk(store.path()), tree.path(), &mut state);
    assert_eq!(read, 20);
    state.save(&saved).unwrap();

    let again = on_disk(store.path());
    let mut state = State::load(&saved);
    let (second, read) = counted(&again, tree.path(), &mut state);
    assert_eq!((read, second.snapshot.stored_bytes), (0, 0));
    assert_eq!(second.snapshot.roots, first.snapshot.roots);

    fs::write(tree.path().join("some/where/7"), "changed").unwrap();
    let (third, read) = counted(&again, tree.path(), &mut state);
    assert_eq!(read, 1);
    assert_eq!(restored(&again, &third.snapshot), picture(tree.path()));
    let left = fs::read_dir(store.path()).unwrap().filter(|entry| {
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("state.")
    });
    assert_eq!(left.count(), 0, "nothing is left aside");
}

#[test]
fn a_damaged_state_counts_as_none() {
    let (tree, store) = (settled_tree(), tempfile::tempdir().unwrap());
    let repository = on_disk(store.path());
    let saved = store.path().join("state");
    let mut state = State::default();
    capture(&repository, tree.path(), &mut state);
    state.save(&saved).unwrap();
    let whole = fs::read(&saved).unwrap();
    assert_eq!(State::load(&saved), state);
    for at in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&saved, damaged).unwrap();
        assert_eq!(State::load(&saved), State::default(), "byte {at}");
    }
    fs::write(&saved, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(State::load(&saved), State::default());
    assert_eq!(State::load(&store.path().join("nothing")), State::default());
    assert_eq!(State::load(store.path()), State::default());
}

#[test]
fn a_state_is_of_one_repository_and_one_directory() {
    let tree = settled_tree();
    let one = in_memory();
    let mut state = State::default();
    let first = capture(&one, tree.path(), &mut state).snapshot;

    // Of another repository: nothing in it can be relied on there.
    let other = in_memory();
    let (elsewhere, read) = counted(&other, tree.path(), &mut state.clone());
    assert_eq!(read, 20);
    assert_eq!(restored(&other, &elsewhere.snapshot), picture(tree.path()));

    // The same directory by another name.
    let place = tempfile::tempdir().unwrap();
    let above = tree.path().parent().unwrap().join(".").join(tree.path().file_name().unwrap());
    let (_, read) = counted(&one, &above, &mut state);
    assert_eq!(read, 0);

    // The same files somewhere else, with the same numbers.
    let moved = place.path().join("moved");
    fs::create_dir(&moved).unwrap();
    fs::rename(tree.path().join("some"), moved.join("some")).unwrap();
    let (_, read) = counted(&one, &moved, &mut state.clone());
    assert_eq!(read, 20);

    // The snapshot that it is from was forgotten: what is in it may be collected.
    one.forget(first.id).unwrap();
    let ids = one.snapshots().unwrap();
    ids.into_iter().for_each(|id| one.forget(id).unwrap());
    fs::rename(moved.join("some"), tree.path().join("some")).unwrap();
    let (_, read) = counted(&one, tree.path(), &mut state);
    assert_eq!(read, 20);
}

#[test]
fn where_nothing_has_changed_the_last_snapshot_is_as_good() {
    let (tree, repository) = (settled_tree(), in_memory());
    let roots = [Root { name: "workspace", path: tree.path(), excluded: &[] }];
    let mut state = State::default();
    let mut again = |unless_like| {
        let capture = Capture {
            roots: &roots,
            source: None,
            parent: None,
            label: None,
            unless_like,
            freeze: None,
            threads: 1,
            progress: &|_| true,
        };
        repository.capture(&capture, &mut state).unwrap()
    };
    let first = again(None);
    let like = Some(first.snapshot.id);
    let second = again(like);
    assert_eq!((second.is_new, second.snapshot.id), (false, first.snapshot.id));
    fs::write(tree.path().join("some/where/3"), "other").unwrap();
    let third = again(like);
    assert!(third.is_new && third.snapshot.id != first.snapshot.id);
    fs::write(tree.path().join("some/where/3"), "3").unwrap();
    assert!(again(like).is_new, "a time has changed");
    let gone = again(None).snapshot.id;
    repository.forget(gone).unwrap();
    assert!(again(Some(gone)).is_new, "what is not there is as good as nothing");
    assert_eq!(repository.snapshots().unwrap().len(), 4);
}
