//! What no snapshot needs goes, and what one needs stays, whoever captures and collects when.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use ash_snapshot::objects::{MemoryObjects, Objects};
use ash_snapshot::{Collected, Others, Repository, SnapshotError, State, Verify};

use crate::compare::{capture, in_memory, picture, restored, try_capture};
use crate::stores::Odd;

const NO_TIME: Duration = Duration::ZERO;

fn assert_whole(repository: &Repository) {
    let verify = Verify { threads: 2, max_entries: 1_000_000, progress: &|_| true };
    let verified = repository.verify(&verify).unwrap();
    assert!(verified.is_whole(), "{verified:?}");
}

#[test]
fn what_is_forgotten_goes_and_the_rest_stays() {
    let (tree, repository) = (tempfile::tempdir().unwrap(), in_memory());
    let mut taken = Vec::new();
    let mut state = State::default();
    for turn in 0..5 {
        fs::write(tree.path().join("file"), format!("turn {turn}")).unwrap();
        fs::write(tree.path().join(format!("of {turn}")), "more").unwrap();
        let snapshot = capture(&repository, tree.path(), &mut state).snapshot;
        taken.push((snapshot, picture(tree.path())));
    }
    let nothing = repository.gc(Others::AreAway).unwrap();
    assert_eq!(nothing, Collected { kept: 5, ..Collected::default() });
    let forgotten = repository.keep_last(2).unwrap();
    assert_eq!(forgotten, taken[..3].iter().map(|(snapshot, _)| snapshot.id).collect::<Vec<_>>());
    // The first has the chunk that all of them share.
    let collected = repository.gc(Others::AreAway).unwrap();
    assert_eq!((collected.kept, collected.removed, collected.waiting), (3, 2, 0));
    assert!(collected.removed_bytes > 0);
    for (snapshot, as_it_was) in &taken[3..] {
        assert_eq!(&restored(&repository, snapshot), as_it_was);
    }
    assert!(matches!(repository.forget(taken[0].0.id), Err(SnapshotError::Missing(_))));
    assert_whole(&repository);
    // Its chunks were known, and are not any more.
    fs::write(tree.path().join("file"), "turn 0").unwrap();
    let again = capture(&repository, tree.path(), &mut state).snapshot;
    assert_eq!(restored(&repository, &again), picture(tree.path()));
}

#[test]
fn nothing_is_removed_before_its_time() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("file"), "text").unwrap();
    let repository = in_memory();
    let snapshot = capture(&repository, tree.path(), &mut State::default()).snapshot;
    repository.forget(snapshot.id).unwrap();
    for _ in 0..5 {
        let collected = repository.gc(Others::MayCapture).unwrap();
        assert_eq!((collected.removed, collected.kept), (0, 1), "it is kept for who relies on it");
    }
}

#[test]
fn removal_takes_a_mark_and_the_time_after_it() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("file"), "text").unwrap();
    let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
    let repository = Repository::with_grace(Odd::shared(&objects), NO_TIME).unwrap();
    let unhurried = Repository::open(Odd::shared(&objects)).unwrap();
    let snapshot = capture(&unhurried, tree.path(), &mut State::default()).snapshot;
    repository.forget(snapshot.id).unwrap();
    let marks = || objects.list("gc/").unwrap().len();
    // With no time at all nothing is marked: each step has a share of it.
    repository.gc(Others::MayCapture).unwrap();
    repository.gc(Others::MayCapture).unwrap();
    assert_eq!((marks(), objects.list("packs/").unwrap().len()), (0, 1));
    let pack = objects.list("packs/").unwrap()[0].name.rsplit('/').next().unwrap().to_owned();
    // As if marked long ago.
    objects.put(&format!("gc/{pack}.1000"), b"").unwrap();
    // A capture does not rely on it, and stores its own.
    let again = capture(&unhurried, tree.path(), &mut State::default()).snapshot;
    assert!(again.new_bytes > 0);
    assert_eq!(objects.list("packs/").unwrap().len(), 2);
    // It is needed again, for it has chunks that are needed: the mark goes.
    let collected = repository.gc(Others::MayCapture).unwrap();
    assert_eq!((collected.kept, collected.removed, marks()), (2, 0, 0));
    // Marked, and not needed: it goes, and its mark with it.
    repository.forget(again.id).unwrap();
    repository.gc(Others::MayCapture).unwrap();
    objects.put(&format!("gc/{pack}.1000"), b"").unwrap();
    let collected = repository.gc(Others::MayCapture).unwrap();
    assert_eq!((collected.removed, collected.waiting, marks()), (1, 1, 0));
}

#[test]
fn nothing_is_collected_while_something_cannot_be_read() {
    let store = tempfile::tempdir().unwrap();
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("file"), "text").unwrap();
    let repository = crate::compare::on_disk(store.path());
    let damaged = capture(&repository, tree.path(), &mut State::default()).snapshot;
    fs::write(tree.path().join("file"), "other text").unwrap();
    let other = capture(&repository, tree.path(), &mut State::default()).snapshot;
    repository.forget(other.id).unwrap();
    let record = store.path().join(format!("snapshots/{}", damaged.id));
    fs::write(&record, "damaged").unwrap();
    let refused = repository.gc(Others::AreAway).unwrap_err();
    assert!(refused.to_string().contains(&damaged.id.to_string()), "{refused}");
    repository.forget(damaged.id).unwrap();
    assert_eq!(repository.gc(Others::AreAway).unwrap().removed, 2);
}

#[test]
fn a_capture_whose_reliance_was_collected_fails_and_leaves_no_snapshot() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("file"), "text").unwrap();
    let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
    let hurried = Repository::with_grace(Odd::shared(&objects), NO_TIME).unwrap();
    let refused = try_capture(&hurried, tree.path(), &mut State::default()).unwrap_err();
    assert!(matches!(refused, SnapshotError::Collected), "{refused}");
    assert_eq!(hurried.snapshots().unwrap(), []);
}
