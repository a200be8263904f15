//! Files of every kind that an agent makes.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use ash_snapshot::{Capture, Root, SnapshotError, State};

use crate::compare::{capture, in_memory, on_disk, picture, restore, restored, try_capture};

#[test]
fn files_of_every_kind_come_back() {
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    fs::create_dir_all(at(".git/objects/ab")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("Cargo.lock"), "locked").unwrap();
    fs::write(at(".git/objects/ab/cdef"), [0, 1, 2, 255]).unwrap();
    fs::write(at("nothing"), "").unwrap();
    fs::write(at("script"), "#!/bin/sh").unwrap();
    fs::set_permissions(at("script"), Permissions::from_mode(0o755)).unwrap();
    fs::write(at("secret"), "s").unwrap();
    fs::set_permissions(at("secret"), Permissions::from_mode(0o400)).unwrap();
    fs::set_permissions(at("empty"), Permissions::from_mode(0o1777)).unwrap();
    fs::write(tree.path().join(OsStr::from_bytes(b"not \xff UTF-8 \n")), "x").unwrap();
    fs::write(at(&"long".repeat(63)), "y").unwrap();
    symlink("Cargo.lock", at("link")).unwrap();
    symlink("/etc/passwd", at("out")).unwrap();
    symlink("nowhere/at all", at("dangling")).unwrap();
    symlink(".git", at("to a directory")).unwrap();
    fs::hard_link(at("Cargo.lock"), at(".git/also")).unwrap();
    fs::hard_link(at("Cargo.lock"), at("zz")).unwrap();
    fs::write(at("middling"), "a line that repeats, with its number\n".repeat(40_000)).unwrap();
    let mut sparse = File::create(at("sparse")).unwrap();
    sparse.seek(SeekFrom::Start(20 << 20)).unwrap();
    sparse.write_all(b"in the middle").unwrap();
    sparse.set_len(64 << 20).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    let fifo = rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o600.into());
    fifo.unwrap();
    rustix::fs::setxattr(at("script"), "user.origin", b"here", rustix::fs::XattrFlags::empty())
        .unwrap();

    let store = tempfile::tempdir().unwrap();
    let repository = on_disk(store.path());
    let captured = capture(&repository, tree.path(), &mut State::default()).snapshot;
    assert_eq!((captured.skipped.sockets, captured.skipped.fifos), (1, 1));
    assert_eq!(captured.unstable, Vec::<String>::new());
    let root = captured.root("workspace").unwrap();
    assert_eq!((root.files, root.directories, root.links), (9, 4, 6));
    assert!(captured.stored_bytes < 200_000, "{} bytes", captured.stored_bytes);

    // By another process, as it were.
    let again = on_disk(store.path());
    let mut before = picture(tree.path());
    assert_eq!(restored(&again, &again.snapshot(captured.id).unwrap()), before);
    before.clear();

    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("again");
    crate::compare::restore(&again, &captured, &target).unwrap();
    let mut value = [0; 16];
    let length =
        rustix::fs::getxattr(target.join("script"), "user.origin", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"here");
    let sparse = fs::metadata(target.join("sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 4 << 20, "holes stay holes");
}

#[test]
fn a_large_file_whose_pages_change_costs_those_pages() {
    let tree = tempfile::tempdir().unwrap();
    let path = tree.path().join("database");
    let mut bytes: Vec<u8> = Vec::with_capacity(32 << 20);
    let mut seed = 1_u64;
    while bytes.len() < 32 << 20 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bytes.extend_from_slice(&seed.to_le_bytes());
    }
    fs::write(&path, &bytes).unwrap();
    let repository = in_memory();
    let mut state = State::default();
    let first = capture(&repository, tree.path(), &mut state).snapshot;
    // One page of a hundred.
    for page in (0..bytes.len() / 4096).step_by(100) {
        bytes[page * 4096 + 7] ^= 0xff;
    }
    fs::write(&path, &bytes).unwrap();
    let second = capture(&repository, tree.path(), &mut state).snapshot;
    let share = second.stored_bytes as f64 / bytes.len() as f64;
    assert!(share < 0.05, "{share}");
    // A line is put in at the front: everything moves.
    bytes.splice(0..0, *b"a line\n");
    fs::write(&path, &bytes).unwrap();
    let third = capture(&repository, tree.path(), &mut state).snapshot;
    let share = third.stored_bytes as f64 / bytes.len() as f64;
    assert!(share < 0.2, "{share}");
    assert_eq!(restored(&repository, &third), picture(tree.path()));
    assert_ne!(restored(&repository, &first), restored(&repository, &second));
}

/// Makes so many directories, each in the one before.
fn deep(tree: &std::path::Path, name: &str, levels: usize) {
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::PATH;
    let mut at = rustix::fs::open(tree, flags, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, name, 0o700.into()).unwrap();
        at = rustix::fs::openat(&at, name, flags, rustix::fs::Mode::empty()).unwrap();
    }
}

#[test]
fn trees_so_deep_that_their_paths_are_too_much_are_captured_as_far_as_they_go() {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..20 {
        let chain = tree.path().join(number.to_string());
        fs::create_dir(&chain).unwrap();
        deep(&chain, &"long".repeat(25), 320);
    }
    fs::write(tree.path().join("y"), "text").unwrap();
    let repository = in_memory();
    let captured = capture(&repository, tree.path(), &mut State::default()).snapshot;
    let root = captured.root("workspace").unwrap();
    assert!((3_500..6_400).contains(&root.directories), "{} directories", root.directories);
    let left_out = captured.skipped.unreadable;
    assert!(left_out > 0 && captured.unreadable.len() as u64 == left_out, "{left_out}");
    assert_eq!((root.files, captured.unstable.len()), (1, 0));
}

#[test]
fn a_tree_of_thousands_of_levels_comes_back() {
    let tree = tempfile::tempdir().unwrap();
    deep(tree.path(), "level", 4_000);
    let repository = in_memory();
    let first = capture(&repository, tree.path(), &mut State::default()).snapshot;
    assert_eq!(first.root("workspace").unwrap().directories, 4_000);
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("deep");
    crate::compare::restore(&repository, &first, &target).unwrap();
    let second = capture(&repository, &target, &mut State::default()).snapshot;
    assert_eq!(first.roots[0].tree, second.roots[0].tree);
}

#[test]
fn a_worker_that_panics_keeps_nobody_waiting() {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..2_000 {
        fs::write(tree.path().join(number.to_string()), "text").unwrap();
    }
    let roots = [Root { name: "workspace", path: tree.path(), excluded: &[] }];
    let capture = Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: None,
        threads: 1,
        progress: &|_| panic!("as a bug would"),
    };
    let captured = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drop(in_memory().capture(&capture, &mut State::default()));
    }));
    assert!(captured.is_err());
}

const MOUNTED: &str = "ASH_SNAPSHOT_MOUNTED";

/// Not a test: looks at a tree that something is mounted in, in a world of its own.
#[test]
fn the_process_that_mounts() {
    let Some(tree) = std::env::var_os(MOUNTED) else { return };
    let tree = std::path::Path::new(&tree);
    let mount = |args: &[&str], at: &str| {
        let mut mount = std::process::Command::new("mount");
        assert!(mount.args(args).arg(tree.join(at)).status().unwrap().success());
    };
    let bound = tree.join("plain");
    mount(&["-t", "tmpfs", "none"], "mounted");
    // The same device, and yet another mount.
    mount(&["--bind", bound.to_str().unwrap()], "bound");
    mount(&["--bind", bound.join("file").to_str().unwrap()], "file");
    fs::write(tree.join("mounted/inside"), "not ours").unwrap();

    let repository = in_memory();
    let captured = capture(&repository, tree, &mut State::default()).snapshot;
    assert_eq!((captured.skipped.mounts, captured.unstable.len()), (3, 0));
    let root = captured.root("workspace").unwrap();
    assert_eq!((root.files, root.directories), (1, 3), "two of them empty");
    // Restored over, it stays as it is.
    fs::write(tree.join("new"), "text").unwrap();
    let in_place = ash_snapshot::InPlace {
        snapshot: &captured,
        root: Root { name: "workspace", path: tree, excluded: &[] },
        trust: ash_snapshot::Trust::Looks,
        newer: ash_snapshot::Newer::Replace,
        effect: ash_snapshot::Effect::Write,
        owner: None,
        max_entries: 1000,
        max_bytes: 1000,
        threads: 2,
        progress: &|_| true,
    };
    let mended = repository.restore_in_place(&in_place, &State::default()).unwrap();
    assert_eq!((mended.removed, mended.written, mended.left), (1, 0, 3));
    assert_eq!(fs::read(tree.join("mounted/inside")).unwrap(), b"not ours");
    assert_eq!(fs::read(tree.join("bound/file")).unwrap(), b"text");
    fs::write(tree.join("seen"), "").unwrap();
}

#[test]
fn what_is_mounted_in_a_tree_is_not_captured_and_not_touched() {
    let tree = tempfile::tempdir().unwrap();
    for directory in ["mounted", "bound", "plain"] {
        fs::create_dir(tree.path().join(directory)).unwrap();
    }
    fs::write(tree.path().join("plain/file"), "text").unwrap();
    fs::write(tree.path().join("file"), "covered").unwrap();
    let unshared = std::process::Command::new("unshare").args(["-rm", "true"]).status();
    if !unshared.is_ok_and(|status| status.success()) {
        println!("not tried: this machine lets nobody mount anything");
        return;
    }
    let mut mounting = std::process::Command::new("unshare");
    mounting.arg("-rm").arg(std::env::current_exe().unwrap());
    mounting.args(["--exact", "kinds::the_process_that_mounts", "--test-threads=1"]);
    let output = mounting.env(MOUNTED, tree.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(tree.path().join("seen").exists());
}

#[test]
fn the_time_of_the_tree_itself_comes_back_and_nobody_runs_as_root() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("program"), "runs as its owner").unwrap();
    fs::set_permissions(tree.join("program"), Permissions::from_mode(0o4755)).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_890);
    File::open(&tree).unwrap().set_modified(then).unwrap();
    let repository = in_memory();
    let snapshot = capture(&repository, &tree, &mut State::default()).snapshot;
    let target = place.path().join("target");
    restore(&repository, &snapshot, &target).unwrap();
    assert_eq!(fs::metadata(&target).unwrap().mtime(), 1_234_567_890);
    let program = fs::metadata(target.join("program")).unwrap();
    let kept = if program.uid() == 0 { 0o755 } else { 0o4755 };
    assert_eq!(program.mode() & 0o7777, kept);
}

#[test]
fn a_link_in_place_of_a_tree_is_not_captured() {
    let place = tempfile::tempdir().unwrap();
    let [tree, foreign] = ["tree", "foreign"].map(|name| place.path().join(name));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("ours"), "ours").unwrap();
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("theirs"), "theirs").unwrap();
    let repository = in_memory();
    let mut state = State::default();
    capture(&repository, &tree, &mut state);
    fs::rename(&tree, place.path().join("moved")).unwrap();
    symlink(&foreign, &tree).unwrap();
    let refused = try_capture(&repository, &tree, &mut state).unwrap_err();
    assert!(matches!(refused, SnapshotError::Tree { attempted: "open", .. }), "{refused:?}");

    // A file is no tree either.
    fs::remove_file(&tree).unwrap();
    fs::write(&tree, "a file").unwrap();
    assert!(try_capture(&repository, &tree, &mut state).is_err());
    assert_eq!(repository.snapshots().unwrap().len(), 1);
    // A link above the tree is part of the way to it.
    let (above, real) = (place.path().join("above"), place.path().canonicalize().unwrap());
    symlink(&real, &above).unwrap();
    let again = capture(&repository, &above.join("moved"), &mut State::default()).snapshot;
    assert_eq!(again.roots[0].files, 1);
}
