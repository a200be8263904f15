//! A directory in front of a store: it saves requests, and nothing in it is trusted.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use ash_snapshot::objects::{CachedObjects, MemoryObjects, Objects, Put};
use ash_snapshot::{Others, Repository, State};
use proptest::prelude::*;

use crate::compare::{capture, picture, restored};
use crate::stores::{Answer, Call, Odd};

/// A store that counts what is read of it.
struct Counted {
    store: Arc<dyn Objects>,
    reads: Arc<AtomicU64>,
}

impl Counted {
    fn new() -> Self {
        Self { store: Arc::new(MemoryObjects::default()), reads: Arc::default() }
    }

    /// A cache in front of it, like that of one more process.
    fn cached(&self, dir: &Path, most: u64) -> CachedObjects {
        let reads = Arc::clone(&self.reads);
        let counting = Odd::new(&self.store, move |call, _| {
            if call == Call::Get {
                reads.fetch_add(1, Ordering::Relaxed);
            }
            Answer::Right
        });
        CachedObjects::open(counting, "here", dir, most).unwrap()
    }

    fn reads(&self) -> u64 {
        self.reads.swap(0, Ordering::Relaxed)
    }
}

/// Every file in a directory that is no lock.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(entries(&path));
        } else if path.file_name().unwrap() != "lock" {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn held(dir: &Path) -> u64 {
    entries(dir).iter().map(|path| path.metadata().unwrap().len()).sum()
}

#[test]
fn what_was_put_or_read_is_read_of_the_store_once() {
    let (dir, counted) = (tempfile::tempdir().unwrap(), Counted::new());
    let cached = counted.cached(dir.path(), 1 << 20);
    cached.put("packs/aa/put", b"what was put").unwrap();
    counted.store.put("packs/aa/read", b"what is only there").unwrap();
    for _ in 0..2 {
        assert_eq!(cached.get_range("packs/aa/put", 5, 3).unwrap(), b"was");
        assert_eq!(cached.get_end("packs/aa/put", 3).unwrap(), (b"put".to_vec(), 12));
        assert_eq!(counted.reads(), 0);
    }
    cached.get_range("packs/aa/read", 5, 2).unwrap();
    cached.get_end("packs/aa/read", 5).unwrap();
    cached.get("packs/aa/read", 99).unwrap();
    assert_eq!(counted.reads(), 3);
    // Also by another process, and parts of what is there as a whole.
    let other = counted.cached(dir.path(), 1 << 20);
    assert_eq!(other.get_range("packs/aa/read", 5, 2).unwrap(), b"is");
    assert_eq!(other.get_end("packs/aa/read", 5).unwrap(), (b"there".to_vec(), 18));
    assert_eq!(other.get_end("packs/aa/read", 2).unwrap(), (b"re".to_vec(), 18));
    assert_eq!(other.get("packs/aa/read", 99).unwrap(), b"what is only there");
    assert!(other.get("packs/aa/read", 3).is_err());
    assert_eq!(counted.reads(), 0);
    // Those of another store are others.
    let elsewhere = Odd::shared(&(Arc::new(MemoryObjects::default()) as Arc<dyn Objects>));
    let elsewhere = CachedObjects::open(elsewhere, "elsewhere", dir.path(), 1 << 20).unwrap();
    assert!(elsewhere.get("packs/aa/read", 99).is_err());
}

#[test]
fn only_packs_are_kept_because_collections_ask_whether_the_rest_is_there() {
    let (dir, counted) = (tempfile::tempdir().unwrap(), Counted::new());
    let cached = counted.cached(dir.path(), 1 << 20);
    for name in ["snapshots/one", "forgotten/one.1", "gc/one.1", "format"] {
        cached.put(name, b"one").unwrap();
        cached.get(name, 9).unwrap();
        counted.store.delete(name).unwrap();
        assert!(cached.get(name, 9).is_err(), "{name}");
    }
    assert_eq!(entries(dir.path()), Vec::<PathBuf>::new());
}

#[test]
fn what_this_process_has_deleted_is_gone() {
    let (dir, counted) = (tempfile::tempdir().unwrap(), Counted::new());
    let cached = counted.cached(dir.path(), 1 << 20);
    cached.put("packs/aa/one", b"one").unwrap();
    let kept = entries(dir.path());
    let saved = fs::read(&kept[0]).unwrap();
    cached.delete("packs/aa/one").unwrap();
    // Another process that was reading it keeps it once more.
    fs::create_dir_all(kept[0].parent().unwrap()).unwrap();
    fs::write(&kept[0], saved).unwrap();
    assert!(cached.get("packs/aa/one", 9).is_err());
    assert!(cached.get_range("packs/aa/one", 0, 1).is_err());
    assert!(cached.get_end("packs/aa/one", 1).is_err());
    assert_eq!(cached.put("packs/aa/one", b"another").unwrap(), Put::Created);
    assert_eq!(cached.get("packs/aa/one", 9).unwrap(), b"another");
}

#[test]
fn it_holds_no_more_than_it_may_and_what_was_used_last_stays() {
    let (dir, counted) = (tempfile::tempdir().unwrap(), Counted::new());
    let most = 100_000;
    let cached = counted.cached(dir.path(), most);
    let other = counted.cached(dir.path(), most);
    cached.put("packs/aa/used", &[1; 9000]).unwrap();
    for number in 0..60 {
        let name = format!("packs/aa/{number}");
        if number % 2 == 0 { &cached } else { &other }.put(&name, &[2; 5000]).unwrap();
        cached.get("packs/aa/used", 9000).unwrap();
        // What others write is noticed before it is an eighth.
        assert!(held(dir.path()) <= most + most / 8 * 2, "{} are held", held(dir.path()));
    }
    assert_eq!(counted.reads(), 0, "what is used stays");
    cached.get("packs/aa/59", 5000).unwrap();
    assert_eq!(counted.reads(), 0);
    cached.get("packs/aa/0", 5000).unwrap();
    assert_eq!(counted.reads(), 1, "what was used first is gone");
    // What leaves no room for others is not kept.
    cached.put("packs/aa/huge", &[3; 90_000]).unwrap();
    cached.get("packs/aa/59", 5000).unwrap();
    assert_eq!(counted.reads(), 0);
}

#[test]
fn a_directory_that_cannot_be_written_costs_requests_only() {
    let (dir, counted) = (tempfile::tempdir().unwrap(), Counted::new());
    let cached = counted.cached(dir.path(), 1 << 20);
    fs::remove_dir_all(dir.path()).unwrap();
    fs::write(dir.path(), "no directory any more").unwrap();
    cached.put("packs/aa/one", b"one").unwrap();
    let mut new = cached.begin().unwrap();
    new.write(b"two").unwrap();
    assert_eq!(new.finish("packs/aa/two").unwrap(), Put::Created);
    for name in ["packs/aa/one", "packs/aa/two"] {
        assert_eq!(cached.get(name, 9).unwrap().len(), 3);
    }
    assert_eq!(cached.list("packs/").unwrap().len(), 2);
    cached.delete("packs/aa/one").unwrap();
    assert_eq!(counted.reads(), 2);
    fs::remove_file(dir.path()).unwrap();
    fs::create_dir(dir.path()).unwrap();
}

proptest! {
    #[test]
    fn whatever_becomes_of_an_entry_the_right_bytes_come(
        length in 1_usize..200_000,
        offset in 0_u64..200_000,
        asked in 1_u64..200_000,
        at in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let (dir, counted) = (tempfile::tempdir().unwrap(), Counted::new());
        let bytes: Vec<u8> = (0..length).map(|at| (at * at / 7) as u8).collect();
        counted.store.put("packs/aa/one", &bytes).unwrap();
        let cached = counted.cached(dir.path(), 10 << 20);
        let within = |at: u64| usize::try_from(at).unwrap().min(length);
        let range = bytes[within(offset)..within(offset + asked)].to_vec();
        let end = bytes[length - within(asked)..].to_vec();
        let right = || -> Result<(), TestCaseError> {
            prop_assert_eq!(&cached.get_range("packs/aa/one", offset, asked).unwrap(), &range);
            prop_assert_eq!(
                &cached.get_end("packs/aa/one", asked).unwrap(),
                &(end.clone(), length as u64)
            );
            prop_assert_eq!(&cached.get("packs/aa/one", 1 << 20).unwrap(), &bytes);
            Ok(())
        };
        right()?;
        for path in entries(dir.path()) {
            let mut entry = fs::read(&path).unwrap();
            let at = at.index(entry.len());
            if cut {
                entry.truncate(at);
            } else {
                entry[at] ^= 16;
            }
            fs::write(&path, entry).unwrap();
        }
        right()?;
        counted.reads();
        right()?;
        prop_assert_eq!(counted.reads(), 0, "it is kept once more");
    }
}

#[test]
fn trees_come_back_through_a_cache_that_others_destroy() {
    let (dir, counted) = (tempfile::tempdir().unwrap(), Counted::new());
    let tree = tempfile::tempdir().unwrap();
    for file in 0..20 {
        let text = format!("file {file}\n").repeat(5000);
        fs::write(tree.path().join(file.to_string()), text).unwrap();
    }
    let repository = Repository::open(Box::new(counted.cached(dir.path(), 8 << 20))).unwrap();
    let taken = capture(&repository, tree.path(), &mut State::default()).snapshot;
    counted.reads();
    assert_eq!(restored(&repository, &taken), picture(tree.path()));
    assert_eq!(counted.reads(), 0, "all of it was put through here");
    for path in entries(dir.path()) {
        fs::write(path, "nonsense").unwrap();
    }
    assert_eq!(restored(&repository, &taken), picture(tree.path()));
    assert!(counted.reads() > 0);
    repository.forget(taken.id).unwrap();
    repository.gc(Others::AreAway).unwrap();
    let packs = entries(dir.path());
    assert_eq!(packs, Vec::<PathBuf>::new(), "what is collected is not kept");
}

#[test]
fn what_a_store_answered_wrongly_once_is_asked_again_and_not_kept() {
    let store: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("one"), "one".repeat(30_000)).unwrap();
    fs::write(tree.path().join("two"), "two").unwrap();
    let repository = Repository::open(Odd::shared(&store)).unwrap();
    let taken = capture(&repository, tree.path(), &mut State::default()).snapshot;
    for point in 0.. {
        let (dir, seen) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&seen);
        let lying = Odd::new(&store, move |call, name| {
            let is_it = call == Call::Get && name.starts_with("packs/");
            let lies = is_it && counted.fetch_add(1, Ordering::Relaxed) == point;
            if lies { Answer::Wrong } else { Answer::Right }
        });
        let cached = CachedObjects::open(lying, "here", dir.path(), 8 << 20).unwrap();
        let repository = Repository::open(Box::new(cached)).unwrap();
        assert_eq!(restored(&repository, &taken), picture(tree.path()), "read {point}");
        let right = CachedObjects::open(Odd::shared(&store), "here", dir.path(), 8 << 20).unwrap();
        let other = Repository::open(Box::new(right)).unwrap();
        assert_eq!(restored(&other, &taken), picture(tree.path()), "read {point}, kept");
        if seen.load(Ordering::Relaxed) <= point {
            assert!(point > 2, "{point} reads");
            break;
        }
    }
}

#[test]
fn nothing_is_removed_for_a_copy_that_only_the_cache_has() {
    // A pack is written in three parts at least: how it begins, a frame, and its end.
    for wrong in 0..3 {
        let (dir, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
        let until = Arc::new(AtomicI64::new(-1));
        let left = Arc::clone(&until);
        let lying = Odd::new(&store, move |call, _| {
            let lies = call == Call::Write && left.fetch_sub(1, Ordering::Relaxed) == 0;
            if lies { Answer::Miswritten } else { Answer::Right }
        });
        let cached = CachedObjects::open(lying, "here", dir.path(), 8 << 20).unwrap();
        let repository = Repository::open(Box::new(cached)).unwrap();
        fs::write(tree.path().join("stays"), "stays").unwrap();
        let noise = |seed: u8| {
            let mut noise = vec![0; 50_000];
            blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut noise);
            noise
        };
        fs::write(tree.path().join("changes"), noise(1)).unwrap();
        let first = capture(&repository, tree.path(), &mut State::default()).snapshot;
        fs::write(tree.path().join("changes"), noise(2)).unwrap();
        let second = capture(&repository, tree.path(), &mut State::default()).snapshot;
        repository.remove(first.id).unwrap();
        until.store(wrong, Ordering::Relaxed);
        repository.gc(Others::AreAway).unwrap_err();
        let direct = || Repository::open(Odd::shared(&store)).unwrap();
        assert_eq!(restored(&direct(), &second), picture(tree.path()), "part {wrong}");
        // The same process knows better the next time.
        let collected = repository.gc(Others::AreAway).unwrap();
        assert_eq!(collected.rewritten, 1, "part {wrong}: {collected:?}");
        assert_eq!(restored(&direct(), &second), picture(tree.path()), "part {wrong}, later");
    }
}

#[test]
fn what_is_being_written_is_not_evicted_and_its_directory_stays() {
    let dir = tempfile::tempdir().unwrap();
    let counted = Counted::new();
    let cached = counted.cached(dir.path(), 8_000);
    let begun = cached.begin().unwrap();
    let name = |number: u32| format!("packs/aa/{number:064}");
    for number in 0..20 {
        cached.put(&name(number), &[1; 1_900]).unwrap();
    }
    assert!(held(dir.path()) <= 8_000, "some were evicted");
    assert_eq!(entries(&dir.path().join("tmp")).len(), 1, "and not the one that was begun");
    drop(begun);
    // Also if somebody removes all of it, it is used again.
    fs::remove_dir_all(dir.path()).unwrap();
    cached.put(&name(20), &[2; 1_900]).unwrap();
    counted.reads();
    assert_eq!(cached.get(&name(20), 5_000).unwrap(), [2; 1_900]);
    assert_eq!(counted.reads(), 0, "it is kept");
}
