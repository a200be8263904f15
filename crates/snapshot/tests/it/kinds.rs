//! Files of every kind that an agent makes.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use ash_snapshot::State;

use crate::compare::{capture, in_memory, on_disk, picture, restored};

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

#[test]
fn a_tree_of_thousands_of_levels_comes_back() {
    let tree = tempfile::tempdir().unwrap();
    let mut at = rustix::fs::open(
        tree.path(),
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::PATH,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    for _ in 0..3_000 {
        rustix::fs::mkdirat(&at, "level", 0o700.into()).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::PATH;
        at = rustix::fs::openat(&at, "level", flags, rustix::fs::Mode::empty()).unwrap();
    }
    let repository = in_memory();
    let first = capture(&repository, tree.path(), &mut State::default()).snapshot;
    assert_eq!(first.root("workspace").unwrap().directories, 3_000);
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("deep");
    crate::compare::restore(&repository, &first, &target).unwrap();
    let second = capture(&repository, &target, &mut State::default()).snapshot;
    assert_eq!(first.roots[0].tree, second.roots[0].tree);
}
