//! The edges of what trees hold: links out of what is restored, holes, and more than can be kept.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ash_snapshot::objects::{MemoryObjects, Objects};
use ash_snapshot::{Repository, Restore, Root, State, Trust};

use crate::compare::{capture, in_memory, picture, restored, whole};
use crate::in_place::{in_place, mend};
use crate::stores::{Answer, Call, Odd};

/// A repository that counts how often something is read from its packs.
fn counting() -> (Repository, Arc<AtomicU64>) {
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let below: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
    let store = Odd::new(&below, move |call, name| {
        if call == Call::Get && name.starts_with("packs/") {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        Answer::Right
    });
    (Repository::open(store).unwrap(), reads)
}

/// A tree in which every file of one directory has a further name in another.
fn linked(tree: &Path, files: usize) {
    for number in 0..files {
        let directory = tree.join(format!("first/{}", number % 10));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(number.to_string()), number.to_string()).unwrap();
    }
    fs::create_dir(tree.join("later")).unwrap();
    for number in 0..files {
        let first = tree.join(format!("first/{}/{number}", number % 10));
        fs::hard_link(first, tree.join(format!("later/{number}"))).unwrap();
    }
}

#[test]
fn links_out_of_what_is_restored_are_found_in_one_pass() {
    let reads_of = |files: usize| {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        linked(&tree, files);
        let (repository, reads) = counting();
        let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
        reads.store(0, Ordering::Relaxed);
        let target = place.path().join("later");
        let later = Restore { path: b"later", ..whole(&snapshot.roots[0], &target) };
        assert_eq!(repository.restore(&later).unwrap().files, files as u64);
        let alone = reads.swap(0, Ordering::Relaxed);
        for number in 0..files {
            let text = fs::read_to_string(target.join(number.to_string())).unwrap();
            assert_eq!(text, number.to_string());
        }
        // And in place, where the first names are left alone.
        let beside = place.path().join("beside");
        fs::create_dir(&beside).unwrap();
        let excluded = [b"first".to_vec()];
        let root = Root { name: "workspace", path: &beside, excluded: &excluded };
        let wanted = in_place(&snapshot, &beside, Trust::Looks);
        let wanted = ash_snapshot::InPlace { root, ..wanted };
        let mended = repository.restore_in_place(&wanted, &State::default()).unwrap();
        assert_eq!(mended.written, files as u64 + 1);
        (alone, reads.load(Ordering::Relaxed))
    };
    let (alone, beside) = reads_of(400);
    // Each thread opens the few frames there are.
    assert!(alone < 20 && beside < 20, "{alone} and {beside} reads for 400 links");
}

#[test]
fn bytes_of_files_that_links_lead_to_count() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    linked(&tree, 10);
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    let target = place.path().join("later");
    let later = Restore { path: b"later", ..whole(&snapshot.roots[0], &target) };
    let refused = repository.restore(&Restore { max_bytes: 9, ..later.clone() }).unwrap_err();
    assert!(matches!(refused, ash_snapshot::SnapshotError::TooMuch { .. }), "{refused}");
    repository.restore(&Restore { max_bytes: 10, ..later }).unwrap();
}

/// A file with a hole in its middle.
fn sparse(path: &Path, bytes: u64) {
    let file = File::create(path).unwrap();
    file.set_len(bytes).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"end", bytes - 3).unwrap();
}

#[test]
fn a_comparison_does_not_read_holes() {
    let tree = tempfile::tempdir().unwrap();
    sparse(&tree.path().join("sparse"), 64 << 20);
    let repository = in_memory();
    let snapshot = capture(&repository, tree.path(), &mut State::default()).snapshot;
    let mended = mend(&repository, &snapshot, tree.path(), Trust::Bytes);
    assert_eq!((mended.same, mended.written), (1, 0));
    assert!(mended.bytes_read <= 2 << 20, "{} bytes were read", mended.bytes_read);
    // What was written into the hole is found.
    let found = fs::metadata(tree.path().join("sparse")).unwrap().modified().unwrap();
    let file = File::options().write(true).open(tree.path().join("sparse")).unwrap();
    file.write_all_at(b"x", 33 << 20).unwrap();
    file.set_modified(found).unwrap();
    let mended = mend(&repository, &snapshot, tree.path(), Trust::Bytes);
    assert_eq!((mended.written, mended.repaired), (1, 1));
    // And zeros that were are no difference.
    let file = File::options().write(true).open(tree.path().join("sparse")).unwrap();
    file.write_all_at(&[0; 8192], 20 << 20).unwrap();
    file.set_modified(found).unwrap();
    let mended = mend(&repository, &snapshot, tree.path(), Trust::Bytes);
    assert_eq!((mended.same, mended.written), (1, 0));
    assert!(mended.bytes_read <= 8 << 20, "{} bytes were read", mended.bytes_read);
}

#[test]
fn holes_of_small_files_come_back_as_holes() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    sparse(&tree.join("small"), 1 << 20);
    sparse(&tree.join("middling"), 8 << 20);
    // A hole that no window of a large file lies in.
    let large = File::create(tree.join("large")).unwrap();
    for (at, byte) in (0..12_u64).zip(1..) {
        large.write_all_at(&[byte; 100_000], (at << 20) + 500_000).unwrap();
    }
    fs::write(tree.join("zeros"), vec![0; 3 << 20]).unwrap();
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    assert!(restored(&repository, &snapshot) == picture(&tree));
    let target = place.path().join("target");
    crate::compare::restore(&repository, &snapshot, &target).unwrap();
    let blocks = |name: &str| fs::metadata(target.join(name)).unwrap().blocks() * 512;
    for (name, most) in [("small", 512 << 10), ("middling", 1 << 20), ("large", 4 << 20)] {
        assert!(blocks(name) <= most, "{name} has {} bytes", blocks(name));
    }
    assert_eq!(blocks("zeros"), 0, "what is nothing but zeros needs no space");
}

/// A store with a snapshot in it, and a repository that looks at it through something that may fail.
fn failing(
    fails: impl Fn(Call, &str) -> bool + Send + Sync + 'static,
) -> (ash_snapshot::Snapshot, Repository, Arc<dyn Objects>) {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("a"), "text").unwrap();
    let below: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
    let repository = Repository::open(Odd::shared(&below)).unwrap();
    let snapshot = capture(&repository, tree.path(), &mut State::default()).snapshot;
    let store = Odd::new(&below, move |call, name| match fails(call, name) {
        // As a disk does.
        true => Answer::Fail(rustix::io::Errno::IO.into()),
        false => Answer::Right,
    });
    (snapshot, Repository::open(store).unwrap(), below)
}

#[test]
fn a_record_that_cannot_be_read_now_is_not_forgotten() {
    let (snapshot, repository, below) =
        failing(|call, name| call == Call::Get && name.starts_with("snapshots/"));
    let refused = repository.forget(snapshot.id).unwrap_err();
    assert!(matches!(refused, ash_snapshot::SnapshotError::Store { .. }), "{refused}");
    let again = Repository::open(Odd::shared(&below)).unwrap();
    assert_eq!(again.snapshot(snapshot.id).unwrap(), snapshot);
}

fn verify(repository: &Repository) -> ash_snapshot::Result<ash_snapshot::Verified> {
    let verify = ash_snapshot::Verify { max_entries: 1000, threads: 2, progress: &|_| true };
    repository.verify(&verify)
}

#[test]
fn a_disk_that_fails_is_no_damage_of_a_pack() {
    let opened = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&opened);
    // It is opened, and then nothing can be read any more.
    let (_, repository, _) = failing(move |call, name| {
        let after = call == Call::List && name == "snapshots/";
        count.fetch_add(u64::from(after), Ordering::Relaxed);
        call == Call::Get && count.load(Ordering::Relaxed) > 0
    });
    let failed = verify(&repository).unwrap_err();
    assert!(matches!(failed, ash_snapshot::SnapshotError::Store { .. }), "{failed}");
}

#[test]
fn a_pack_that_alone_cannot_be_read_is_damaged() {
    let (_, repository, _) = failing(|call, name| call == Call::Get && name.starts_with("packs/"));
    let verified = verify(&repository).unwrap();
    assert_eq!((verified.damaged_packs.len(), verified.damaged.len()), (1, 1));
}

#[test]
fn a_failure_that_passes_is_no_damage() {
    let failures = Arc::new(AtomicU64::new(0));
    let (_, repository, _) = failing(move |call, name| {
        // Once when the index is read, and not again.
        call == Call::Get
            && name.starts_with("packs/")
            && failures.fetch_add(1, Ordering::Relaxed) == 1
    });
    assert!(verify(&repository).is_err());
    assert!(verify(&repository).unwrap().is_whole());
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

fn value_of(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0; 8192];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    Some(value[..length].to_vec())
}

#[test]
fn attributes_of_the_root_come_back() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    set(&tree, "user.kept", b"any \xff bytes");
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    assert_eq!(repository.snapshot(snapshot.id).unwrap(), snapshot);
    let target = place.path().join("target");
    crate::compare::restore(&repository, &snapshot, &target).unwrap();
    assert_eq!(value_of(&target, "user.kept").unwrap(), b"any \xff bytes");
    // And in place, where there may be others.
    set(&target, "user.kept", b"other");
    set(&target, "user.new", b"new");
    mend(&repository, &snapshot, &target, Trust::Looks);
    assert_eq!(value_of(&target, "user.kept").unwrap(), b"any \xff bytes");
    assert_eq!(value_of(&target, "user.new"), None);
}

#[test]
fn attributes_that_are_not_kept_are_counted_and_named_by_every_capture() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join("directory")).unwrap();
    fs::write(tree.join("file"), "text").unwrap();
    fs::write(tree.join("plain"), "text").unwrap();
    set(&tree.join("plain"), "user.kept", b"kept");
    // Two too many of them: as many as fit in a block of the smallest file system.
    for number in 0..66 {
        set(&tree.join("file"), &format!("user.{number:02}"), b"");
    }
    // Somebody else may read it.
    let list = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x01\0\0\0\
        \x04\0\x04\0\xff\xff\xff\xff\x10\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
    let set_list = rustix::fs::setxattr(
        tree.join("directory"),
        "system.posix_acl_access",
        list,
        rustix::fs::XattrFlags::empty(),
    );
    let lists = u64::from(set_list.is_ok());
    crate::compare::settle(&tree);
    let repository = in_memory();
    let mut state = State::default();
    for _ in 0..2 {
        let snapshot = capture(&repository, &tree, &mut state).snapshot;
        assert_eq!(snapshot.skipped.attributes, 2 + lists);
        let mut named = vec!["workspace/directory", "workspace/file"];
        if lists == 0 {
            println!("this file system has no access control lists");
            named.remove(0);
        }
        assert_eq!(snapshot.stripped, named);
    }
    // Without them nothing is named any more.
    fs::remove_file(tree.join("file")).unwrap();
    fs::remove_dir(tree.join("directory")).unwrap();
    let snapshot = capture(&repository, &tree, &mut state).snapshot;
    assert_eq!((snapshot.skipped.attributes, snapshot.stripped.len()), (0, 0));
}

/// Writes down what it is asked, and what was there then.
#[derive(Default)]
struct Asked {
    asked: std::sync::Mutex<Vec<&'static str>>,
}

impl ash_snapshot::Freeze for Asked {
    fn freeze(&self) -> std::io::Result<()> {
        self.asked.lock().unwrap().push("freeze");
        Ok(())
    }

    fn thaw(&self) -> std::io::Result<()> {
        self.asked.lock().unwrap().push("thaw");
        Ok(())
    }
}

fn frozen_for(budget: std::time::Duration, tree: &Path) -> (ash_snapshot::Captured, Asked) {
    let asked = Asked::default();
    let roots = [Root { name: "workspace", path: tree, excluded: &[] }];
    let capture = ash_snapshot::Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: Some((&asked, budget)),
        threads: 2,
        progress: &|_| true,
    };
    let captured = in_memory().capture(&capture, &mut State::default()).unwrap();
    (captured, asked)
}

#[test]
fn the_freeze_budget_bounds_the_scan_and_the_record_says_so() {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..600 {
        fs::write(tree.path().join(number.to_string()), "text").unwrap();
    }
    let (captured, asked) = frozen_for(std::time::Duration::ZERO, tree.path());
    assert_eq!(*asked.asked.lock().unwrap(), ["freeze", "thaw"]);
    let snapshot = captured.snapshot;
    assert_eq!((snapshot.unfrozen_scan, snapshot.unfrozen, snapshot.files()), (true, 600, 600));
    // Within the budget nothing is said.
    let (captured, asked) = frozen_for(std::time::Duration::from_secs(600), tree.path());
    assert_eq!(*asked.asked.lock().unwrap(), ["freeze", "thaw"]);
    let snapshot = captured.snapshot;
    assert_eq!((snapshot.unfrozen_scan, snapshot.unfrozen), (false, 0));
}
