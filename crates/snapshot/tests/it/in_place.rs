//! A directory that is there becomes what a snapshot says, whatever it was and whoever stops it when.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use ash_snapshot::{
    Effect, InPlace, Mended, Mending, Newer, Repository, Root, Snapshot, SnapshotError, SnapshotId,
    State, Trust,
};
use proptest::prelude::*;

use crate::compare::{Picture, capture, in_memory, on_disk, picture, settle};
use crate::states::counted;
use crate::trees::{Change, apply, change};

pub(crate) fn in_place<'a>(snapshot: &'a Snapshot, tree: &'a Path, trust: Trust) -> InPlace<'a> {
    InPlace {
        snapshot,
        root: Root { name: "workspace", path: tree, excluded: &[] },
        trust,
        newer: Newer::Replace,
        effect: Effect::Write,
        owner: None,
        max_entries: 1_000_000,
        max_bytes: u64::MAX,
        threads: 2,
        progress: &|_| true,
    }
}

pub(crate) fn mend(
    repository: &Repository,
    snapshot: &Snapshot,
    tree: &Path,
    trust: Trust,
) -> Mended {
    let in_place = in_place(snapshot, tree, trust);
    repository.restore_in_place(&in_place, &State::default()).unwrap()
}

/// Gives everything in a tree a time long ago, so that whatever is written from now on looks different.
pub(crate) fn age(tree: &Path) {
    let mut paths: Vec<PathBuf> = picture(tree).into_keys().collect();
    paths.reverse();
    for (number, path) in paths.iter().enumerate() {
        let path = tree.join(path);
        if path.is_symlink() {
            continue;
        }
        let then = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + number as u64);
        File::open(path).unwrap().set_modified(then).unwrap();
    }
}

pub(crate) fn changes(path: &[(Vec<u8>, Mending)]) -> Vec<(String, Mending)> {
    let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    path.iter().map(|(path, how)| (shown(path), *how)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_directory_is_it_becomes_what_the_snapshot_says(
        first in prop::collection::vec(change(), 1..24),
        then in prop::collection::vec(change(), 0..16),
        trust in prop::sample::select(vec![Trust::Looks, Trust::Bytes]),
        remembers: bool,
        stops in prop::collection::vec(1..30_u64, 0..4),
    ) {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        fs::create_dir(&tree).unwrap();
        first.iter().for_each(|change| apply(&tree, change));
        age(&tree);
        settle(&tree);
        let repository = in_memory();
        let mut state = State::default();
        let snapshot = capture(&repository, &tree, &mut state).snapshot;
        let as_it_was = picture(&tree);
        then.iter().for_each(|change| apply(&tree, change));
        let state = if remembers { state } else { State::default() };

        // What it says that it would do is what it does.
        let before = picture(&tree);
        let wanted = in_place(&snapshot, &tree, trust);
        let report = InPlace { effect: Effect::Report, ..wanted.clone() };
        let reported = repository.restore_in_place(&report, &state).unwrap();
        prop_assert_eq!(picture(&tree), before);
        for stop in &stops {
            let steps = AtomicU64::new(0);
            let stopped = InPlace {
                progress: &|_| steps.fetch_add(1, Ordering::Relaxed) + 1 < *stop,
                ..wanted.clone()
            };
            // As one leaves it that was killed.
            fs::create_dir_all(tree.join(".ash-restore-0/t0")).unwrap();
            let _stopped_or_done = repository.restore_in_place(&stopped, &state);
        }
        let mended = repository.restore_in_place(&wanted, &state).unwrap();
        prop_assert_eq!(picture(&tree), as_it_was);
        if stops.is_empty() {
            let done = |mended: Mended| {
                Mended { state: State::default(), took: ash_snapshot::MendTook::default(), ..mended }
            };
            prop_assert_eq!(done(mended.clone()), done(reported));
        }
        let again = repository.restore_in_place(&wanted, &mended.state).unwrap();
        prop_assert_eq!((again.written, again.removed), (0, 0));

        // The next capture knows it.
        let (next, read) = counted(&repository, &tree, &mut mended.state.clone());
        prop_assert_eq!(&next.snapshot.roots, &snapshot.roots);
        prop_assert_eq!(next.snapshot.new_bytes, 0);
        if trust == Trust::Bytes || (remembers && stops.is_empty()) {
            prop_assert_eq!(read, 0, "{:?}", mended);
        }
    }
}

/// A tree with things of every kind, and another that it is to become.
fn two_trees(tree: &Path) {
    for directory in ["stays/deep", "goes/deep/er", "becomes a file", "new/below"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    for file in ["stays/one", "stays/deep/two", "new/below/three", "becomes a directory", "linked"]
    {
        fs::write(tree.join(file), file.repeat(500)).unwrap();
    }
    fs::hard_link(tree.join("linked"), tree.join("stays/also")).unwrap();
    symlink("stays", tree.join("link")).unwrap();
    age(tree);
}

fn change_it(tree: &Path) {
    fs::remove_dir_all(tree.join("new")).unwrap();
    fs::remove_dir_all(tree.join("becomes a file")).unwrap();
    fs::write(tree.join("becomes a file"), "a file").unwrap();
    fs::remove_file(tree.join("becomes a directory")).unwrap();
    fs::create_dir_all(tree.join("becomes a directory/deep")).unwrap();
    fs::write(tree.join("becomes a directory/deep/file"), "text").unwrap();
    fs::write(tree.join("goes/deep/er/file"), "text").unwrap();
    fs::write(tree.join("stays/one"), "other").unwrap();
    fs::remove_file(tree.join("stays/also")).unwrap();
    fs::write(tree.join("stays/also"), "a file of its own").unwrap();
    fs::remove_file(tree.join("link")).unwrap();
    symlink("/etc", tree.join("link")).unwrap();
    fs::set_permissions(tree.join("stays/deep"), fs::Permissions::from_mode(0o500)).unwrap();
}

const PLACE: &str = "ASH_SNAPSHOT_IN_PLACE";
const POINT: &str = "ASH_SNAPSHOT_IN_PLACE_POINT";

/// Not a test: the process that dies. It does nothing unless it is told to.
#[test]
fn the_process_that_dies() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let point: u64 = std::env::var_os(POINT).unwrap().to_str().unwrap().parse().unwrap();
    let place = Path::new(&place);
    let repository = on_disk(&place.join("store"));
    let id: SnapshotId = fs::read_to_string(place.join("id")).unwrap().parse().unwrap();
    let snapshot = repository.snapshot(id).unwrap();
    let tree = place.join("tree");
    let steps = AtomicU64::new(0);
    let dying = InPlace {
        threads: 1,
        progress: &|_| {
            if steps.fetch_add(1, Ordering::Relaxed) == point {
                std::process::abort();
            }
            true
        },
        ..in_place(&snapshot, &tree, Trust::Looks)
    };
    repository.restore_in_place(&dying, &State::default()).unwrap();
}

#[test]
fn killed_at_any_step_it_is_finished_by_the_next_one() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    two_trees(&tree);
    let repository = on_disk(&place.path().join("store"));
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    fs::write(place.path().join("id"), snapshot.id.to_string()).unwrap();
    let as_it_was = picture(&tree);
    let mut left_aside = 0;
    for point in 0.. {
        change_it(&tree);
        let mut dying = Command::new(std::env::current_exe().unwrap());
        dying.args(["--exact", "in_place::the_process_that_dies", "--test-threads=1", "-q"]);
        dying.env(PLACE, place.path()).env(POINT, point.to_string());
        dying.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let ended = dying.status().unwrap().success();
        left_aside += aside(&tree);
        let before = whole_or_old(&tree, &as_it_was);
        mend(&repository, &snapshot, &tree, Trust::Looks);
        assert_eq!(picture(&tree), as_it_was, "killed at step {point}");
        assert!(before, "killed at step {point}: half a file");
        assert_eq!(aside(&tree), 0);
        if ended {
            assert!(point > 20 && left_aside > 10, "only {point} steps");
            return;
        }
    }
}

fn aside(tree: &Path) -> usize {
    let names = fs::read_dir(tree).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".ash-restore-")).count()
}

/// Whether each file is as it was or as it is to be.
fn whole_or_old(tree: &Path, as_it_was: &Picture) -> bool {
    as_it_was.keys().all(|path| {
        let Ok(bytes) = fs::read(tree.join(path)) else { return true };
        let name = path.to_str().unwrap().repeat(500).into_bytes();
        let linked = "linked".repeat(500).into_bytes();
        let old: [&[u8]; 3] = [b"a file", b"other", b"a file of its own"];
        bytes == name || bytes == linked || old.contains(&&bytes[..])
    })
}

#[test]
fn a_torn_file_is_mended_by_who_reads_its_bytes() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("small"), "text").unwrap();
    fs::write(tree.join("middling"), "a line of text\n".repeat(20_000)).unwrap();
    fs::write(tree.join("large"), noise(20 << 20)).unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(30 << 20).unwrap();
    age(&tree);
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    let as_it_was = picture(&tree);
    for (name, at) in [("small", 1), ("middling", 200_000), ("large", 17 << 20), ("sparse", 9)] {
        use std::os::unix::fs::FileExt as _;
        let file = File::options().write(true).open(tree.join(name)).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.write_at(if name == "sparse" { &[7] } else { &[0] }, at).unwrap();
        file.set_modified(modified).unwrap();
    }
    let torn = picture(&tree);
    assert_eq!(mend(&repository, &snapshot, &tree, Trust::Looks).written, 0, "they look right");
    assert!(picture(&tree) == torn);
    let report = InPlace { effect: Effect::Report, ..in_place(&snapshot, &tree, Trust::Bytes) };
    let reported = repository.restore_in_place(&report, &State::default()).unwrap();
    assert!(picture(&tree) == torn, "it is only said");
    let mended = mend(&repository, &snapshot, &tree, Trust::Bytes);
    assert!(picture(&tree) == as_it_was);
    assert_eq!((mended.repaired, mended.written, mended.same, mended.removed), (4, 4, 0, 0));
    assert_eq!(mended.bytes_written, snapshot.bytes());
    assert!(mended.bytes_read > 17 << 20);
    let repaired =
        ["large", "middling", "small", "sparse"].map(|name| (name.to_owned(), Mending::Repaired));
    assert_eq!(changes(&mended.changes), repaired);
    assert_eq!(changes(&reported.changes), repaired);
    let again = mend(&repository, &snapshot, &tree, Trust::Bytes);
    let holes = 30 << 20;
    assert_eq!((again.same, again.bytes_read), (4, snapshot.bytes() - holes));
    assert!(fs::metadata(tree.join("sparse")).unwrap().blocks() < 100, "holes stay holes");
}

fn noise(length: usize) -> Vec<u8> {
    let mut seed = 1_u64;
    let next = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u8
    };
    (0..length).map(next).collect()
}

#[test]
fn what_is_excluded_and_what_cannot_be_captured_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join("cache")).unwrap();
    fs::write(tree.join("cache/in the snapshot"), "text").unwrap();
    fs::write(tree.join("file"), "text").unwrap();
    fs::hard_link(tree.join("cache/in the snapshot"), tree.join("link")).unwrap();
    fs::hard_link(tree.join("link"), tree.join("link too")).unwrap();
    age(&tree);
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    fs::remove_dir_all(tree.join("cache")).unwrap();
    fs::remove_file(tree.join("link")).unwrap();
    fs::remove_file(tree.join("link too")).unwrap();
    fs::create_dir_all(tree.join("unwanted/deep/cache")).unwrap();
    fs::write(tree.join("unwanted/deep/cache/file"), "kept").unwrap();
    fs::write(tree.join("unwanted/deep/file"), "not kept").unwrap();
    fs::create_dir_all(tree.join("unwanted/other")).unwrap();
    fs::write(tree.join("file"), "other text").unwrap();
    for name in ["fifo", "unwanted/other/fifo"] {
        rustix::fs::mkfifoat(rustix::fs::CWD, tree.join(name), 0o600.into()).unwrap();
    }
    let excluded = [b"cache".to_vec(), b"unwanted/deep/cache".to_vec()];
    let root = Root { name: "workspace", path: &tree, excluded: &excluded };
    let wanted = InPlace { root, ..in_place(&snapshot, &tree, Trust::Looks) };
    let mended = repository.restore_in_place(&wanted, &State::default()).unwrap();
    assert_eq!((mended.written, mended.removed, mended.left), (3, 2, 2));
    assert_eq!(fs::read(tree.join("unwanted/deep/cache/file")).unwrap(), b"kept");
    assert!(!tree.join("unwanted/deep/file").exists() && !tree.join("unwanted/other").exists());
    assert!(tree.join("fifo").exists(), "who knows who waits there");
    assert!(!tree.join("cache").exists(), "what is excluded is not restored");
    // Its first name is excluded: the next one has the bytes.
    let numbers = ["link", "link too"].map(|name| fs::metadata(tree.join(name)).unwrap().ino());
    assert_eq!(numbers[0], numbers[1]);
    assert_eq!(fs::read(tree.join("link")).unwrap(), b"text");

    // A snapshot that has a file where something excluded is.
    fs::remove_file(tree.join("file")).unwrap();
    fs::create_dir_all(tree.join("file/cache")).unwrap();
    let excluded = [b"file/cache".to_vec()];
    let root = Root { name: "workspace", path: &tree, excluded: &excluded };
    let wanted = InPlace { root, ..in_place(&snapshot, &tree, Trust::Looks) };
    let before = picture(&tree);
    let refused = repository.restore_in_place(&wanted, &State::default()).unwrap_err();
    assert!(refused.to_string().contains("file"), "{refused}");
    assert_eq!(picture(&tree), before);
}

#[test]
fn a_pipe_where_the_snapshot_has_something_goes() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join("directory")).unwrap();
    fs::write(tree.join("file"), "text").unwrap();
    age(&tree);
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    let as_it_was = picture(&tree);
    fs::remove_file(tree.join("file")).unwrap();
    fs::remove_dir(tree.join("directory")).unwrap();
    for name in ["file", "directory"] {
        rustix::fs::mkfifoat(rustix::fs::CWD, tree.join(name), 0o600.into()).unwrap();
    }
    mend(&repository, &snapshot, &tree, Trust::Looks);
    assert_eq!(picture(&tree), as_it_was);
    assert!(tree.join("file").is_file());
}

#[test]
fn files_with_names_elsewhere_are_not_written_to() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let shared = place.path().join("shared");
    fs::write(&shared, "shared").unwrap();
    fs::hard_link(&shared, tree.join("file")).unwrap();
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    let same = mend(&repository, &snapshot, &tree, Trust::Bytes);
    assert_eq!((same.same, same.written), (1, 0), "a name elsewhere is no difference");
    fs::write(&shared, "changed for all").unwrap();
    mend(&repository, &snapshot, &tree, Trust::Bytes);
    assert_eq!(fs::read(tree.join("file")).unwrap(), b"shared");
    assert_eq!(fs::read(&shared).unwrap(), b"changed for all");
}

#[test]
fn links_in_place_of_directories_are_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    let outside = place.path().join("outside");
    fs::create_dir_all(tree.join("directory/below")).unwrap();
    fs::write(tree.join("directory/below/file"), "text").unwrap();
    fs::create_dir_all(outside.join("below")).unwrap();
    fs::write(outside.join("below/file"), "not to be touched").unwrap();
    fs::write(outside.join("below/other"), "not to be touched").unwrap();
    age(&tree);
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    let (as_it_was, beyond) = (picture(&tree), picture(&outside));
    fs::remove_dir_all(tree.join("directory")).unwrap();
    symlink(&outside, tree.join("directory")).unwrap();
    mend(&repository, &snapshot, &tree, Trust::Looks);
    assert_eq!((picture(&tree), picture(&outside)), (as_it_was.clone(), beyond.clone()));

    // Planted after each step, while it runs.
    for at in 0..12 {
        fs::write(tree.join("directory/below/file"), format!("other {at}")).unwrap();
        fs::write(tree.join("directory/below/unwanted"), "text").unwrap();
        let steps = AtomicU64::new(0);
        let planted = InPlace {
            threads: 1,
            progress: &|_| {
                if steps.fetch_add(1, Ordering::Relaxed) == at {
                    fs::rename(tree.join("directory"), tree.join(format!("moved {at}"))).unwrap();
                    symlink(&outside, tree.join("directory")).unwrap();
                }
                true
            },
            ..in_place(&snapshot, &tree, Trust::Bytes)
        };
        // It fails, or was done with the directory already.
        let _whatever = repository.restore_in_place(&planted, &State::default());
        assert_eq!(picture(&outside), beyond, "planted at step {at}");
        mend(&repository, &snapshot, &tree, Trust::Looks);
        assert_eq!((picture(&tree), picture(&outside)), (as_it_was.clone(), beyond.clone()));
    }
}

#[test]
fn nothing_is_touched_if_the_store_is_damaged() {
    let place = tempfile::tempdir().unwrap();
    let (tree, store) = (place.path().join("tree"), place.path().join("store"));
    fs::create_dir(&tree).unwrap();
    let repository = on_disk(&store);
    fs::write(tree.join("first"), noise(100_000)).unwrap();
    capture(&repository, &tree, &mut State::default());
    fs::write(tree.join("second"), noise(90_000)).unwrap();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    for change in [Change::Write("first".into(), vec![1]), Change::Remove("second".into())] {
        apply(&tree, &change);
    }
    let packs = || {
        fs::read_dir(store.join("packs"))
            .unwrap()
            .flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap())
    };
    for pack in packs() {
        let pack = pack.unwrap().path();
        let mut bytes = fs::read(&pack).unwrap();
        bytes[5000] ^= 1;
        fs::write(pack, bytes).unwrap();
    }
    let before = picture(&tree);
    let wanted = in_place(&snapshot, &tree, Trust::Looks);
    let refused = on_disk(&store).restore_in_place(&wanted, &State::default()).unwrap_err();
    assert!(matches!(refused, SnapshotError::Damaged { .. }), "{refused}");
    assert_eq!(picture(&tree), before);
}

#[test]
fn two_trees_are_remembered_together() {
    let place = tempfile::tempdir().unwrap();
    let (one, other) = (place.path().join("one"), place.path().join("other"));
    for tree in [&one, &other] {
        fs::create_dir(tree).unwrap();
        fs::write(tree.join("file"), tree.to_str().unwrap()).unwrap();
        age(tree);
    }
    let repository = in_memory();
    let roots = [("workspace", &one), ("home", &other)];
    let roots = roots.map(|(name, path)| Root { name, path, excluded: &[] });
    let read = AtomicU64::new(0);
    let capture = ash_snapshot::Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: None,
        threads: 1,
        progress: &|_| {
            read.fetch_add(1, Ordering::Relaxed);
            true
        },
    };
    let snapshot = repository.capture(&capture, &mut State::default()).unwrap().snapshot;
    assert_eq!(read.swap(0, Ordering::Relaxed), 2);
    let [first, second] = roots.clone().map(|root| {
        let wanted = InPlace { root, ..in_place(&snapshot, &one, Trust::Bytes) };
        repository.restore_in_place(&wanted, &State::default()).unwrap().state
    });
    let mut state = first.and(second);
    repository.capture(&capture, &mut state).unwrap();
    assert_eq!(read.into_inner(), 0);
}
