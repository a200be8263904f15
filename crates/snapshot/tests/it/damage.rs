//! What is damaged costs the files that need it, and no more; and is named.

use std::fs;
use std::path::{Path, PathBuf};

use ash_snapshot::{
    Capture, Damaged, Others, Progress, Repository, Restore, Root, Snapshot, SnapshotError, State,
    Verified, Verify,
};

use crate::compare::{capture, on_disk, picture, restored, settle, whole};

fn verify(repository: &Repository) -> Verified {
    let verify = Verify { threads: 2, max_entries: 1_000_000, progress: &|_| true };
    repository.verify(&verify).unwrap()
}

fn packs(store: &Path) -> Vec<PathBuf> {
    let shards = fs::read_dir(store.join("packs")).unwrap();
    let packs = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    packs.map(|pack| pack.unwrap().path()).collect()
}

struct World {
    tree: tempfile::TempDir,
    store: tempfile::TempDir,
    first: Snapshot,
    second: Snapshot,
    /// The pack of each.
    packs: [PathBuf; 2],
}

/// Two snapshots: the second has all of the first, and files that are in a pack of their own.
fn world() -> World {
    let (tree, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| tree.path().join(name);
    fs::create_dir_all(at("old")).unwrap();
    fs::write(at("old/one"), "one").unwrap();
    fs::write(at("old/two"), "two".repeat(100_000)).unwrap();
    let repository = on_disk(store.path());
    let first = capture(&repository, tree.path(), &mut State::default()).snapshot;
    let old = packs(store.path());
    fs::create_dir_all(at("new")).unwrap();
    fs::write(at("new/three"), noise(3)).unwrap();
    fs::hard_link(at("new/three"), at("new/also")).unwrap();
    let second = capture(&repository, tree.path(), &mut State::default()).snapshot;
    let new = packs(store.path()).into_iter().find(|pack| !old.contains(pack)).unwrap();
    World { tree, store, first, second, packs: [old[0].clone(), new] }
}

fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..300_000).map(|_| next()).collect()
}

/// Changes a byte of a file.
fn damage(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x40;
    fs::write(path, bytes).unwrap();
}

fn paths(verified: &Verified, snapshot: &Snapshot) -> Vec<String> {
    let damaged = verified.damaged.iter().filter(|damaged| damaged.id == snapshot.id);
    let paths = damaged.flat_map(|damaged| &damaged.paths);
    paths.map(|(root, path)| format!("{root}/{}", String::from_utf8_lossy(path))).collect()
}

#[test]
fn what_is_whole_is_said_to_be() {
    let world = world();
    let verified = verify(&on_disk(world.store.path()));
    assert!(verified.is_whole(), "{verified:?}");
    assert_eq!((verified.packs, verified.snapshots), (2, 2));
}

#[test]
fn a_damaged_frame_costs_the_files_that_are_in_it() {
    let world = world();
    // The noise is stored first, as it is, and is cut into several chunks of one frame.
    damage(&world.packs[1], 1000);
    let repository = on_disk(world.store.path());
    let verified = verify(&repository);
    assert_eq!(verified.damaged_packs.len(), 1, "{verified:?}");
    assert!(
        verified.damaged_packs[0]
            .0
            .ends_with(world.packs[1].file_name().unwrap().to_str().unwrap())
    );
    assert_eq!(paths(&verified, &world.first), Vec::<String>::new());
    let damaged = paths(&verified, &world.second);
    assert_eq!(damaged, ["workspace/new/also", "workspace/new/three"]);

    assert_eq!(restored(&repository, &world.first).len(), 3);
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("restored");
    let tree = world.second.root("workspace").unwrap();
    assert!(repository.restore(&whole(tree, &target)).is_err());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "all of it, or nothing");
    let lenient = Restore { damaged: Damaged::LeaveOut, ..whole(tree, &target) };
    let restored = repository.restore(&lenient).unwrap();
    assert_eq!(restored.left_out, [b"new/also".to_vec(), b"new/three".to_vec()]);
    assert_eq!(restored.files, 2);
    let mut rest = picture(world.tree.path());
    rest.retain(|path, _| path.parent() != Some(Path::new("new")));
    assert!(picture(&target) == rest);
    let alone = place.path().join("alone");
    let alone = Restore { path: b"new/three", damaged: Damaged::LeaveOut, ..whole(tree, &alone) };
    assert!(repository.restore(&alone).is_err(), "there is nothing else");
}

#[test]
fn what_was_found_damaged_is_stored_again_by_who_reads_it() {
    let world = world();
    damage(&world.packs[1], 1000);
    let repository = on_disk(world.store.path());
    // Nobody knows yet: it is there, by its name.
    let third = capture(&repository, world.tree.path(), &mut State::default()).snapshot;
    assert_eq!(third.new_bytes, 0);
    let verified = verify(&repository);
    assert_eq!(repository.distrust(&verified).unwrap(), 1);
    assert_eq!(repository.distrust(&verified).unwrap(), 0, "it is known");
    let fourth = capture(&repository, world.tree.path(), &mut State::default()).snapshot;
    assert!(fourth.new_bytes >= 300_000);
    for snapshot in [&world.first, &world.second, &third, &fourth] {
        let expected = if snapshot.id == world.first.id { 3 } else { 6 };
        assert_eq!(restored(&repository, snapshot).len(), expected);
    }
    assert_eq!(restored(&repository, &world.second), picture(world.tree.path()));
    // All that is needed of it is elsewhere.
    let collected = repository.gc(Others::AreAway).unwrap();
    assert!(collected.removed >= 1, "{collected:?}");
    assert!(verify(&repository).is_whole());
}

/// What is remembered of a tree that is captured now, whole.
fn remembered(repository: &Repository, world: &World) -> State {
    settle(world.tree.path());
    let mut state = State::default();
    capture(repository, world.tree.path(), &mut state);
    state
}

fn watched(
    repository: &Repository,
    tree: &Path,
    state: &mut State,
    progress: &(dyn Fn(Progress) -> bool + Sync),
) -> ash_snapshot::Result<Snapshot> {
    let roots = [Root { name: "workspace", path: tree, excluded: &[] }];
    let capture = Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: None,
        threads: 2,
        progress,
    };
    repository.capture(&capture, state).map(|captured| captured.snapshot)
}

#[test]
fn what_is_remembered_of_a_damaged_snapshot_is_not_relied_on() {
    for is_gone in [false, true] {
        let world = world();
        let repository = on_disk(world.store.path());
        let mut state = remembered(&repository, &world);
        if is_gone {
            fs::remove_file(&world.packs[1]).unwrap();
        } else {
            damage(&world.packs[1], 1000);
        }
        let verified = verify(&repository);
        // Nobody knows yet, and who captures while it is found out relies on it.
        let between = capture(&repository, world.tree.path(), &mut state).snapshot;
        assert_eq!(between.new_bytes, 0);
        repository.distrust(&verified).unwrap();
        let after = capture(&repository, world.tree.path(), &mut state).snapshot;
        assert!(after.new_bytes >= 300_000, "{is_gone}: {}", after.new_bytes);
        assert_eq!(restored(&repository, &after), picture(world.tree.path()));
        let verified = verify(&repository);
        assert_eq!(verified.damaged, [], "{is_gone}");
        // From now on it is.
        let read = std::sync::atomic::AtomicU64::new(0);
        let progress = |progress: Progress| {
            read.fetch_max(progress.files, std::sync::atomic::Ordering::Relaxed);
            true
        };
        watched(&repository, world.tree.path(), &mut state, &progress).unwrap();
        assert_eq!(read.into_inner(), 0, "{is_gone}: nothing is read");
    }
}

#[test]
fn a_capture_that_relies_on_what_is_found_damaged_meanwhile_is_none() {
    let world = world();
    let repository = on_disk(world.store.path());
    let mut state = remembered(&repository, &world);
    damage(&world.packs[1], 1000);
    let verified = verify(&repository);
    fs::write(world.tree.path().join("later"), "later").unwrap();
    let progress = |_: Progress| repository.distrust(&verified).is_ok();
    let before = repository.snapshots().unwrap();
    let refused = watched(&repository, world.tree.path(), &mut state, &progress).unwrap_err();
    assert!(matches!(refused, SnapshotError::Collected), "{refused}");
    assert_eq!(repository.snapshots().unwrap(), before);
    let after = capture(&repository, world.tree.path(), &mut state).snapshot;
    assert_eq!(restored(&repository, &after), picture(world.tree.path()));
}

#[test]
fn to_forget_a_snapshot_leaves_nothing_that_says_it_was_damaged() {
    let world = world();
    damage(&world.packs[1], 1000);
    let repository = on_disk(world.store.path());
    repository.distrust(&verify(&repository)).unwrap();
    let marks = world.store.path().join("distrusted");
    let named = || fs::read_dir(&marks).unwrap().map(|mark| mark.unwrap().file_name());
    assert_eq!(named().collect::<Vec<_>>(), [world.second.id.to_string().as_str()]);
    repository.forget(world.second.id).unwrap();
    assert_eq!(named().count(), 0);
}

#[test]
fn a_pack_that_is_gone_or_cut_costs_no_more_than_is_in_it() {
    for cut in [None, Some(0), Some(100)] {
        let world = world();
        match cut {
            None => fs::remove_file(&world.packs[1]).unwrap(),
            Some(length) => {
                fs::File::options()
                    .write(true)
                    .open(&world.packs[1])
                    .and_then(|file| file.set_len(length))
                    .unwrap();
            }
        }
        let repository = on_disk(world.store.path());
        let verified = verify(&repository);
        assert_eq!(verified.damaged_packs.len(), usize::from(cut.is_some()));
        assert_eq!(paths(&verified, &world.first), Vec::<String>::new());
        assert_eq!(paths(&verified, &world.second), ["workspace/"], "the root was in it");
        assert_eq!(restored(&repository, &world.first).len(), 3);
        // What is captured from now on is whole: what was lost is stored again.
        let third = capture(&repository, world.tree.path(), &mut State::default()).snapshot;
        assert_eq!(restored(&repository, &third), picture(world.tree.path()));
        // And with it the one that was damaged, for it has the same chunks.
        assert_eq!(restored(&repository, &world.second), picture(world.tree.path()));
    }
}

#[test]
fn a_damaged_record_is_named() {
    let world = world();
    damage(&world.store.path().join(format!("snapshots/{}", world.first.id)), 30);
    let verified = verify(&on_disk(world.store.path()));
    assert_eq!(verified.damaged.len(), 1);
    assert_eq!(verified.damaged[0].id, world.first.id);
    assert!(verified.damaged[0].record.is_some());
}

#[test]
fn whatever_byte_of_a_pack_is_changed_is_found() {
    let world = world();
    let pack = &world.packs[0];
    let bytes = fs::read(pack).unwrap();
    for at in 0..bytes.len() {
        damage(pack, at);
        let verified = verify(&on_disk(world.store.path()));
        assert_eq!(verified.damaged_packs.len(), 1, "byte {at}");
        fs::write(pack, &bytes).unwrap();
    }
}

#[test]
fn what_is_in_two_packs_is_read_from_the_one_that_is_whole() {
    let world = world();
    // As two captures at a time leave it: both know nothing of the other.
    let other = tempfile::tempdir().unwrap();
    capture(&on_disk(other.path()), world.tree.path(), &mut State::default());
    for pack in packs(other.path()) {
        let shard =
            world.store.path().join("packs").join(pack.parent().unwrap().file_name().unwrap());
        fs::create_dir_all(&shard).unwrap();
        fs::copy(&pack, shard.join(pack.file_name().unwrap())).unwrap();
    }
    damage(&world.packs[1], 1000);
    let repository = on_disk(world.store.path());
    assert_eq!(restored(&repository, &world.second), picture(world.tree.path()));
    let verified = verify(&repository);
    assert_eq!((verified.damaged_packs.len(), verified.damaged.len()), (1, 0));
}

#[test]
fn no_copy_is_removed_in_favour_of_one_that_was_found_damaged() {
    let world = world();
    let other = tempfile::tempdir().unwrap();
    capture(&on_disk(other.path()), world.tree.path(), &mut State::default());
    for pack in packs(other.path()) {
        let shard =
            world.store.path().join("packs").join(pack.parent().unwrap().file_name().unwrap());
        fs::create_dir_all(&shard).unwrap();
        let copy = shard.join(pack.file_name().unwrap());
        fs::copy(&pack, &copy).unwrap();
        // It is the latest.
        damage(&copy, 1000);
    }
    let repository = on_disk(world.store.path());
    let verified = verify(&repository);
    assert_eq!(repository.distrust(&verified).unwrap(), 1);
    let collected = repository.gc(Others::AreAway).unwrap();
    assert_eq!(collected.removed, 1, "{collected:?}");
    assert!(verify(&repository).is_whole());
    assert_eq!(restored(&repository, &world.second), picture(world.tree.path()));
}

#[test]
fn a_damaged_pack_that_is_needed_keeps_its_mark() {
    let (tree, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(tree.path().join("file"), &noise(1)[..60_000]).unwrap();
    let repository = on_disk(store.path());
    let taken = capture(&repository, tree.path(), &mut State::default()).snapshot;
    let pack = packs(store.path()).remove(0);
    damage(&pack, 1000);
    let repository = on_disk(store.path());
    assert_eq!(repository.distrust(&verify(&repository)).unwrap(), 1);
    for _ in 0..2 {
        repository.gc(Others::AreAway).unwrap();
        assert!(pack.exists(), "nothing else has what can be read of it");
        assert_eq!(repository.distrust(&verify(&repository)).unwrap(), 0, "it is known");
    }
    let again = capture(&repository, tree.path(), &mut State::default()).snapshot;
    assert!(again.new_bytes >= 60_000, "nobody relies on it");
    repository.gc(Others::AreAway).unwrap();
    assert!(!pack.exists());
    assert!(verify(&repository).is_whole());
    assert_eq!(restored(&repository, &taken), picture(tree.path()));
}

#[test]
fn a_snapshot_that_lost_something_is_named_by_collections_and_no_hindrance_once_forgotten() {
    let world = world();
    fs::remove_file(&world.packs[1]).unwrap();
    let repository = on_disk(world.store.path());
    let refused = repository.gc(Others::AreAway).unwrap_err();
    let SnapshotError::Unreadable { id, reason } = &refused else { panic!("{refused}") };
    assert_eq!((*id, reason.contains("is not there")), (world.second.id, true), "{reason}");
    repository.forget(world.second.id).unwrap();
    assert_eq!(repository.gc(Others::MayCapture).unwrap().kept, 1);
    assert_eq!(restored(&repository, &world.first).len(), 3);
}

#[test]
fn no_snapshot_is_forgotten_for_one_whose_record_is_damaged() {
    let world = world();
    damage(&world.store.path().join(format!("snapshots/{}", world.second.id)), 30);
    let repository = on_disk(world.store.path());
    let count = || repository.snapshots().unwrap().len();
    for others in [Others::AreAway, Others::MayCapture] {
        let refused = repository.keep_last(1, others).unwrap_err().to_string();
        assert!(refused.contains(&world.second.id.to_string()), "{refused}");
        assert_eq!(count(), 2);
    }
    repository.remove(world.second.id).unwrap();
    assert!(matches!(repository.remove(world.second.id), Err(SnapshotError::Missing(_))));
    assert_eq!(repository.keep_last(1, Others::AreAway).unwrap(), []);
    assert_eq!(repository.keep_last(0, Others::AreAway).unwrap(), [world.first.id]);
    assert_eq!(count(), 0);
    let kept = fs::read_dir(world.store.path().join("forgotten"));
    assert_eq!(kept.map_or(0, Iterator::count), 0, "it takes no space");
}

#[test]
fn a_pack_that_tells_nothing_goes_when_all_that_is_needed_is_elsewhere() {
    let world = world();
    let length = fs::metadata(&world.packs[1]).unwrap().len();
    let file = fs::File::options().write(true).open(&world.packs[1]).unwrap();
    file.set_len(length - 5).unwrap();
    let repository = on_disk(world.store.path());
    repository.forget(world.second.id).unwrap();
    // It may be read another time: nobody has said that it is damaged.
    let collected = repository.gc(Others::AreAway).unwrap();
    assert_eq!((collected.unreadable, collected.removed), (1, 0), "{collected:?}");
    assert_eq!(repository.distrust(&verify(&repository)).unwrap(), 1);
    // Others may rely on it until a grace period has passed.
    let collected = repository.gc(Others::MayCapture).unwrap();
    assert_eq!((collected.unreadable, collected.waiting), (0, 1), "{collected:?}");
    assert!(world.packs[1].exists());
    let collected = repository.gc(Others::AreAway).unwrap();
    assert_eq!((collected.unreadable, collected.removed), (0, 1), "{collected:?}");
    assert!(!world.packs[1].exists());
    assert!(verify(&repository).is_whole());
    assert_eq!(restored(&repository, &world.first).len(), 3);
}

#[test]
fn a_pack_that_tells_nothing_stays_while_something_is_nowhere_else() {
    let (tree, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(tree.path().join("file"), noise(1)).unwrap();
    let repository = on_disk(store.path());
    capture(&repository, tree.path(), &mut State::default());
    let first = packs(store.path());
    // Of this one only the contents of a file are gone: its trees are in a pack of their own.
    fs::write(tree.path().join("other"), "other").unwrap();
    let second = capture(&repository, tree.path(), &mut State::default()).snapshot;
    for id in repository.snapshots().unwrap().into_iter().filter(|id| *id != second.id) {
        repository.forget(id).unwrap();
    }
    let length = fs::metadata(&first[0]).unwrap().len();
    fs::File::options().write(true).open(&first[0]).unwrap().set_len(length - 5).unwrap();
    let repository = on_disk(store.path());
    assert_eq!(repository.distrust(&verify(&repository)).unwrap(), 1);
    // A list may be among what it had: then nothing is removed at all.
    if let Ok(collected) = repository.gc(Others::AreAway) {
        assert_eq!((collected.unreadable, collected.removed), (1, 0), "{collected:?}");
    }
    assert!(first[0].exists(), "somebody may mend it");
    // Who captures anew stores again what it had.
    capture(&repository, tree.path(), &mut State::default());
    let collected = repository.gc(Others::AreAway).unwrap();
    assert_eq!(collected.unreadable, 0, "{collected:?}");
    assert!(!first[0].exists() && verify(&repository).is_whole());
    assert_eq!(restored(&repository, &second), picture(tree.path()));
}

#[test]
fn a_copy_from_elsewhere_mends_whatever_is_damaged_here() {
    let damages: [fn(&Path); 3] = [
        |pack| fs::remove_file(pack).unwrap(),
        |pack| damage(pack, fs::read(pack).unwrap().len() / 2),
        |pack| {
            let bytes = fs::read(pack).unwrap();
            fs::write(pack, &bytes[..bytes.len() / 2]).unwrap();
        },
    ];
    for make in damages {
        let world = world();
        let (there, id) = (tempfile::tempdir().unwrap(), world.second.id);
        let copy = |from: &Repository, to: &Repository| {
            let (max_entries, threads) = (1_000_000, 2);
            to.replicate(&ash_snapshot::Replicate {
                from,
                snapshot: id,
                max_entries,
                threads,
                progress: &|_| true,
            })
        };
        let here = on_disk(world.store.path());
        let whole_one = on_disk(there.path());
        copy(&here, &whole_one).unwrap();
        world.packs.iter().for_each(|pack| make(pack));
        let before = on_disk(world.store.path());
        copy(&whole_one, &before).unwrap();
        let target = there.path().join("target");
        let tree = world.second.root("workspace").unwrap();
        assert!(before.restore(&whole(tree, &target)).is_err(), "nobody doubted it");
        before.distrust_snapshot(id).unwrap();
        copy(&whole_one, &before).unwrap();
        before.restore(&whole(tree, &target)).unwrap();
        assert!(picture(&target) == picture(world.tree.path()));
    }
}
