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
    let forgotten = repository.keep_last(2, Others::AreAway).unwrap();
    assert_eq!(forgotten, taken[..3].iter().map(|(snapshot, _)| snapshot.id).collect::<Vec<_>>());
    // The first has the chunk that all of them share: it is in a new pack now.
    let collected = repository.gc(Others::AreAway).unwrap();
    assert_eq!((collected.kept, collected.removed, collected.waiting), (3, 3, 0));
    assert_eq!(collected.rewritten, 1);
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
    // It has chunks that are needed, and another has them too: it goes, and its mark with it.
    let collected = repository.gc(Others::MayCapture).unwrap();
    assert_eq!((collected.kept, collected.removed, marks()), (1, 1, 0));
    assert_eq!(restored(&unhurried, &again), picture(tree.path()));
}

#[test]
fn a_marked_pack_that_is_needed_stays_until_its_chunks_are_elsewhere() {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("file"), "text").unwrap();
    let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
    let repository = Repository::open(Odd::shared(&objects)).unwrap();
    let snapshot = capture(&repository, tree.path(), &mut State::default()).snapshot;
    let pack = objects.list("packs/").unwrap()[0].name.rsplit('/').next().unwrap().to_owned();
    objects.put(&format!("gc/{pack}.1000"), b"").unwrap();
    let collected = repository.gc(Others::MayCapture).unwrap();
    assert_eq!((collected.kept, collected.removed, collected.rewritten), (1, 0, 0), "it is young");
    assert_eq!(objects.list("gc/").unwrap().len(), 1, "a mark stays");
    // By who need not wait: what is needed is written anew, and the pack goes.
    let hurried = Repository::with_grace(Odd::shared(&objects), NO_TIME).unwrap();
    let collected = hurried.gc(Others::MayCapture).unwrap();
    assert_eq!((collected.kept, collected.removed, collected.rewritten), (1, 1, 1));
    assert!(objects.list("gc/").unwrap().is_empty());
    let other = Repository::open(Odd::shared(&objects)).unwrap();
    assert_eq!(restored(&other, &snapshot), picture(tree.path()));
    assert_whole(&other);
}

/// How many bytes packs have.
fn stored(objects: &Arc<dyn Objects>) -> u64 {
    objects.list("packs/").unwrap().iter().map(|listed| listed.size).sum()
}

#[test]
fn after_many_turns_the_store_is_not_much_larger_than_what_is_needed() {
    let tree = tempfile::tempdir().unwrap();
    let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
    let repository = Repository::open(Odd::shared(&objects)).unwrap();
    let mut state = State::default();
    let mut taken = Vec::new();
    let noise = |seed: u64| -> Vec<u8> {
        let mut state = seed * 2 + 1;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        };
        (0..4_000).map(next).collect()
    };
    for turn in 0..60_u64 {
        // Each turn changes some of forty files; all of them at the start.
        for file in (0..40).filter(|file| turn == 0 || (file * 7 + turn) % 9 == 0) {
            fs::write(tree.path().join(format!("{file}")), noise(turn * 100 + file)).unwrap();
        }
        let snapshot = capture(&repository, tree.path(), &mut state).snapshot;
        taken.push((snapshot, picture(tree.path())));
        if turn % 10 == 9 {
            repository.keep_last(3, Others::AreAway).unwrap();
            repository.gc(Others::AreAway).unwrap();
            let live = &taken[taken.len() - 3..];
            let fresh: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
            let anew = Repository::open(Odd::shared(&fresh)).unwrap();
            for (snapshot, as_it_was) in live {
                assert_eq!(&restored(&repository, snapshot), as_it_was);
                let place = tempfile::tempdir().unwrap();
                let target = place.path().join("t");
                crate::compare::restore(&repository, snapshot, &target).unwrap();
                capture(&anew, &target, &mut State::default());
            }
            // Of what stays in a pack, less than three fifths are not needed.
            let (is, needs) = (stored(&objects), stored(&fresh));
            assert!(is < needs * 5 / 2, "turn {turn}: {is} bytes for {needs}");
            assert!(turn < 30 || is < needs * 8 / 5, "turn {turn}: {is} bytes for {needs}");
        }
    }
    assert_whole(&repository);
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
