//! Whatever a tree is and becomes: what is restored is what was captured.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use ash_snapshot::State;
use proptest::prelude::*;

use crate::compare::{capture, in_memory, picture, restored};

/// Something that is done to a tree. Names are few, so that things meet.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write(PathBuf, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Remove(PathBuf),
    Link(PathBuf, PathBuf),
    Symlink(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
    Mode(PathBuf, u32),
    Attribute(PathBuf, u8),
}

fn path() -> impl Strategy<Value = PathBuf> {
    let name = prop::sample::select(vec!["a", "b", "c.lock", ".git"]);
    prop::collection::vec(name, 1..4).prop_map(|parts| parts.iter().collect())
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..200),
        1 => (any::<u8>(), 60_000..300_000_usize).prop_map(|(seed, length)| {
            (0..length).map(|at| ((at * at) >> 3) as u8 ^ seed).collect()
        }),
    ]
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (path(), bytes()).prop_map(|(path, bytes)| Change::Write(path, bytes)),
        1 => (path(), bytes()).prop_map(|(path, bytes)| Change::Append(path, bytes)),
        2 => path().prop_map(Change::Remove),
        2 => (path(), path()).prop_map(|(from, to)| Change::Link(from, to)),
        1 => (path(), path()).prop_map(|(from, to)| Change::Symlink(from, to)),
        2 => (path(), path()).prop_map(|(from, to)| Change::Rename(from, to)),
        1 => (path(), prop::sample::select(vec![0o600, 0o755, 0o444, 0o711]))
            .prop_map(|(path, mode)| Change::Mode(path, mode)),
        1 => (path(), 0..3_u8).prop_map(|(path, value)| Change::Attribute(path, value)),
    ]
}

/// Does something to a tree, if that can be done.
pub(crate) fn apply(root: &Path, change: &Change) {
    let made = |path: &Path| {
        let path = root.join(path);
        // Only what lies in real directories.
        let parent = path.parent().unwrap();
        fs::create_dir_all(parent).ok()?;
        let inside = parent.canonicalize().ok()?.starts_with(root.canonicalize().ok()?);
        inside.then_some(path)
    };
    let done = match change {
        Change::Write(path, bytes) => made(path).map(|path| fs::write(path, bytes)),
        Change::Append(path, bytes) => made(path).map(|path| {
            use std::io::Write as _;
            fs::File::options().append(true).open(path)?.write_all(bytes)
        }),
        Change::Remove(path) => {
            made(path).map(|path| fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)))
        }
        Change::Link(from, to) => {
            made(from).zip(made(to)).map(|(from, to)| fs::hard_link(from, to))
        }
        Change::Symlink(target, at) => made(at).map(|at| symlink(target, at)),
        Change::Rename(from, to) => made(from).zip(made(to)).map(|(from, to)| fs::rename(from, to)),
        Change::Mode(path, mode) => made(path).map(|path| {
            let mode = if path.is_dir() { mode | 0o700 } else { *mode };
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
        }),
        Change::Attribute(path, value) => made(path).map(|path| {
            if path.is_symlink() {
                return Ok(());
            }
            let none = rustix::fs::XattrFlags::empty();
            match value {
                0 => rustix::fs::removexattr(path, "user.a")?,
                value => rustix::fs::setxattr(path, "user.a", &[*value], none)?,
            }
            Ok(())
        }),
    };
    // What cannot be done is not done.
    drop(done);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_is_restored_is_what_was_captured(
        turns in prop::collection::vec(prop::collection::vec(change(), 1..12), 1..5),
    ) {
        let tree = tempfile::tempdir().unwrap();
        let repository = in_memory();
        let mut state = State::default();
        let mut taken = Vec::new();
        for changes in turns {
            changes.iter().for_each(|change| apply(tree.path(), change));
            let captured = capture(&repository, tree.path(), &mut state).snapshot;
            // Whoever knows nothing finds the same.
            let fresh = capture(&repository, tree.path(), &mut State::default()).snapshot;
            prop_assert_eq!(&captured.roots, &fresh.roots);
            prop_assert_eq!(fresh.new_bytes, 0);
            // And whoever looks again stores nothing.
            let again = capture(&repository, tree.path(), &mut state).snapshot;
            prop_assert_eq!(&captured.roots, &again.roots);
            prop_assert_eq!((again.new_bytes, again.stored_bytes), (0, 0));
            taken.push((captured, picture(tree.path())));
        }
        for (snapshot, as_it_was) in taken {
            prop_assert_eq!(restored(&repository, &snapshot), as_it_was);
        }
    }
}
