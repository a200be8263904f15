//! A snapshot that was copied to another repository is the same there, for the price of what was not.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ash_snapshot::objects::{MemoryObjects, Objects};
use ash_snapshot::{
    Others, Replicate, Replicated, Repository, SnapshotError, SnapshotId, State, Verify,
};

use crate::compare::{capture, in_memory, picture, restored};
use crate::stores::{Answer, Call, Odd};

fn copy(to: &Repository, from: &Repository, id: SnapshotId) -> ash_snapshot::Result<Replicated> {
    let max_entries = 1_000_000;
    to.replicate(&Replicate { from, snapshot: id, max_entries, threads: 2, progress: &|_| true })
}

/// A tree with everything that is cut in its own way.
fn grow(tree: &Path) {
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    fs::write(tree.join("deep/er/small"), "text").unwrap();
    fs::write(tree.join("deep/er/same"), "text").unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    std::os::unix::fs::symlink("deep/er", tree.join("link")).unwrap();
    fs::hard_link(tree.join("deep/er/small"), tree.join("hard")).unwrap();
    fs::write(tree.join("middling"), noise(300_000, 1)).unwrap();
    let mut large = noise(9 << 20, 2);
    large[1 << 20..5 << 20].fill(0);
    fs::write(tree.join("large"), large).unwrap();
}

fn noise(length: usize, seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length.div_ceil(8)).flat_map(|_| next()).take(length).collect()
}

fn assert_whole(repository: &Repository) {
    let verify = Verify { threads: 2, max_entries: 1_000_000, progress: &|_| true };
    let verified = repository.verify(&verify).unwrap();
    assert!(verified.is_whole(), "{verified:?}");
}

#[test]
fn a_copy_is_what_the_original_is_and_the_next_one_costs_what_changed() {
    let tree = tempfile::tempdir().unwrap();
    grow(tree.path());
    let (here, there) = (in_memory(), in_memory());
    let mut state = State::default();
    let first = capture(&here, tree.path(), &mut state).snapshot;
    let copied = copy(&there, &here, first.id).unwrap();
    assert!(copied.is_new && copied.copied_bytes > 5 << 20);
    assert_eq!(there.snapshot(first.id).unwrap(), first);
    assert_eq!(restored(&there, &first), picture(tree.path()));
    assert_whole(&there);

    fs::write(tree.path().join("deep/er/new"), "some more").unwrap();
    let second = capture(&here, tree.path(), &mut state).snapshot;
    let copied = copy(&there, &here, second.id).unwrap();
    assert!(copied.copied_bytes < 2_000, "{}", copied.copied_bytes);
    assert_eq!(restored(&there, &second), picture(tree.path()));

    let again = copy(&there, &here, second.id).unwrap();
    assert_eq!((again.is_new, again.copied_bytes, again.snapshot), (false, 0, second.clone()));

    // And the way back, to where some of it is still.
    let anew = in_memory();
    assert_eq!(copy(&anew, &there, first.id).unwrap().snapshot, first);
    let back = copy(&anew, &there, second.id).unwrap();
    assert!(back.is_new && back.copied_bytes < 2_000);
    assert_eq!(restored(&anew, &second), picture(tree.path()));
    assert_whole(&anew);
}

#[test]
fn what_is_in_a_pack_that_is_about_to_go_is_copied_all_the_same() {
    let tree = tempfile::tempdir().unwrap();
    grow(tree.path());
    let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
    let here = in_memory();
    let there = Repository::open(Odd::shared(&objects)).unwrap();
    let first = capture(&here, tree.path(), &mut State::default()).snapshot;
    copy(&there, &here, first.id).unwrap();
    there.forget(first.id).unwrap();
    for pack in objects.list("packs/").unwrap() {
        let id = pack.name.rsplit('/').next().unwrap().to_owned();
        objects.put(&format!("gc/{id}.1"), b"").unwrap();
    }
    let copied = copy(&there, &here, first.id).unwrap();
    assert!(copied.is_new && copied.copied_bytes > 5 << 20);
    there.gc(Others::AreAway).unwrap();
    assert_eq!(restored(&there, &first), picture(tree.path()));
    assert_whole(&there);
}

#[test]
fn nothing_that_is_damaged_is_copied_and_nothing_half_is_listed() {
    let tree = tempfile::tempdir().unwrap();
    grow(tree.path());
    let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
    let first = {
        let here = Repository::open(Odd::shared(&objects)).unwrap();
        capture(&here, tree.path(), &mut State::default()).snapshot
    };
    let frames = |call, name: &str| {
        let is_pack = call == Call::Get && name.starts_with("packs/");
        if is_pack { Answer::Wrong } else { Answer::Right }
    };
    let damaged = Repository::open(Odd::new(&objects, frames)).unwrap();
    let there = in_memory();
    let error = copy(&there, &damaged, first.id).unwrap_err();
    let is_refused = matches!(error, SnapshotError::Damaged { .. } | SnapshotError::Missing(_));
    assert!(is_refused, "{error}");
    assert_eq!(there.snapshots().unwrap(), []);
    assert!(matches!(copy(&there, &in_memory(), first.id).unwrap_err(), SnapshotError::Missing(_)));
}

#[test]
fn a_tree_with_more_names_than_allowed_is_not_copied() {
    let tree = tempfile::tempdir().unwrap();
    grow(tree.path());
    let (here, there) = (in_memory(), in_memory());
    let id = capture(&here, tree.path(), &mut State::default()).snapshot.id;
    let copy =
        Replicate { from: &here, snapshot: id, max_entries: 3, threads: 1, progress: &|_| true };
    assert!(matches!(there.replicate(&copy).unwrap_err(), SnapshotError::TooMuch { .. }));
    assert_eq!(there.snapshots().unwrap(), []);
}

#[test]
fn wherever_a_copy_is_cut_the_next_one_finishes_it_and_nothing_half_is_listed() {
    let tree = tempfile::tempdir().unwrap();
    grow(tree.path());
    let here = in_memory();
    let first = capture(&here, tree.path(), &mut State::default()).snapshot;
    for done in [false, true] {
        for point in 0.. {
            let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
            drop(Repository::open(Odd::shared(&objects)).unwrap());
            let calls = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&calls);
            let cut = move |_: Call, _: &str| {
                if counted.fetch_add(1, Ordering::Relaxed) != point {
                    return Answer::Right;
                }
                let cut = io::Error::from(io::ErrorKind::ConnectionReset);
                if done { Answer::DoneButFail(cut) } else { Answer::Fail(cut) }
            };
            let first_try = Repository::open(Odd::new(&objects, cut))
                .and_then(|there| copy(&there, &here, first.id));
            let there = Repository::open(Odd::shared(&objects)).unwrap();
            for id in there.snapshots().unwrap() {
                // Whoever was told that it failed may find that it did not.
                assert_eq!(restored(&there, &there.snapshot(id).unwrap()), picture(tree.path()));
            }
            let copied = copy(&there, &here, first.id).unwrap();
            assert_eq!(restored(&there, &copied.snapshot), picture(tree.path()));
            assert_whole(&there);
            if first_try.is_ok() && calls.load(Ordering::Relaxed) <= point {
                assert!(point > 8, "only {point} calls were made");
                break;
            }
        }
    }
}

#[test]
fn a_record_that_is_torn_is_put_again_and_one_of_a_later_version_is_left_alone() {
    let tree = tempfile::tempdir().unwrap();
    grow(tree.path());
    let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
    let (here, there) = (in_memory(), Repository::open(Odd::shared(&objects)).unwrap());
    let first = capture(&here, tree.path(), &mut State::default()).snapshot;
    copy(&there, &here, first.id).unwrap();
    let name = format!("snapshots/{}", first.id);
    let whole = objects.get(&name, 1 << 20).unwrap();
    for torn in [&whole[..whole.len() / 2], b""] {
        objects.delete(&name).unwrap();
        objects.put(&name, torn).unwrap();
        let copied = copy(&there, &here, first.id).unwrap();
        assert!(copied.is_new && copied.stored_bytes == 0, "{copied:?}");
        assert_eq!(objects.get(&name, 1 << 20).unwrap(), whole);
    }
    assert_whole(&there);
    // What somebody has put who knows more is whole.
    let line = whole.iter().rposition(|&byte| byte == b'\n').unwrap();
    let later = String::from_utf8(whole[..line].to_vec()).unwrap();
    let later = later.replacen("\"version\":1", "\"version\":9", 1);
    let sealed = format!("{later}\n{}", blake3::hash(later.as_bytes()).to_hex());
    objects.delete(&name).unwrap();
    objects.put(&name, sealed.as_bytes()).unwrap();
    let refused = copy(&there, &here, first.id);
    assert!(matches!(refused, Err(SnapshotError::Damaged { .. })), "{refused:?}");
    assert_eq!(objects.get(&name, 1 << 20).unwrap(), sealed.as_bytes());
}
