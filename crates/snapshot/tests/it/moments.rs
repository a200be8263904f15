//! Which moment a snapshot is of: what changes while it is taken is in it as it was, or is named.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use ash_snapshot::{Capture, Freeze, Progress, Repository, Root, Snapshot, State};
use rustix::fs::XattrFlags;

use crate::compare::{capture, in_memory, picture, restore, restored};

const MIB: u64 = 1024 * 1024;

/// More than is read while everything stands still.
const TOO_MUCH: u64 = 65 * MIB;

/// Nobody stands still; this is done as soon as everything may go on.
struct Then<F>(F);

impl<F: Fn() + Sync> Freeze for Then<F> {
    fn freeze(&self) -> io::Result<()> {
        Ok(())
    }

    fn thaw(&self) -> io::Result<()> {
        (self.0)();
        Ok(())
    }
}

fn try_capture(
    repository: &Repository,
    tree: &Path,
    freeze: Option<&dyn Freeze>,
    progress: &(dyn Fn(Progress) -> bool + Sync),
) -> Snapshot {
    let roots = [Root { name: "workspace", path: tree, excluded: &[] }];
    let capture = Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: freeze.map(|freeze| (freeze, Duration::from_secs(600))),
        threads: 2,
        progress,
    };
    repository.capture(&capture, &mut State::default()).unwrap().snapshot
}

/// Captures a tree, and does this between what is done while everything stands still and the rest.
fn capture_then(repository: &Repository, tree: &Path, then: impl Fn() + Sync) -> Snapshot {
    try_capture(repository, tree, Some(&Then(then)), &|_| true)
}

/// Makes a file that is mostly a hole, with a text in the middle.
fn sparse(path: &Path, size: u64, text: &str) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(text.as_bytes(), size / 2).unwrap();
}

/// The text in the middle.
fn text_of(path: &Path, length: usize) -> String {
    let file = File::open(path).unwrap();
    let mut text = vec![0; length];
    file.read_exact_at(&mut text, file.metadata().unwrap().len() / 2).unwrap();
    String::from_utf8(text).unwrap()
}

/// Puts another file in the place of one, as editors do.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

fn noise(length: u64) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(6_364_136_223_846_793_005) >> 41) as u8).collect()
}

#[test]
fn all_of_a_freeze_is_of_its_moment_also_files_that_are_large() {
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    let mark = |value: &[u8]| {
        rustix::fs::setxattr(at("marked"), "user.a", value, XattrFlags::empty()).unwrap();
    };
    fs::write(at("data.db"), noise(9 * MIB)).unwrap();
    fs::write(at("data.db-wal"), "log").unwrap();
    sparse(&at("holes"), 20 * MIB + 17, "text");
    symlink("before", at("link")).unwrap();
    fs::create_dir(at("marked")).unwrap();
    mark(b"before");
    let repository = in_memory();
    let quiet = capture(&repository, tree.path(), &mut State::default()).snapshot;
    let before = picture(tree.path());
    let frozen = capture_then(&repository, tree.path(), || {
        fs::write(at("data.db"), noise(9 * MIB + 1)).unwrap();
        fs::write(at("data.db-wal"), "").unwrap();
        sparse(&at("holes"), 20 * MIB, "else");
        fs::remove_file(at("link")).unwrap();
        symlink("after", at("link")).unwrap();
        mark(b"after");
    });
    assert!(restored(&repository, &frozen) == before, "something is of a later moment");
    assert_eq!((frozen.unfrozen, &frozen.unstable[..]), (0, &[][..]));
    assert_eq!(frozen.roots[0].tree, quiet.roots[0].tree, "it is stored alike");
    assert_eq!(frozen.new_bytes, 0);
}

#[test]
fn files_too_large_for_a_freeze_are_counted() {
    let tree = tempfile::tempdir().unwrap();
    sparse(&tree.path().join("huge"), TOO_MUCH, "text");
    fs::write(tree.path().join("small"), "small").unwrap();
    let snapshot = capture_then(&in_memory(), tree.path(), || {});
    assert_eq!(snapshot.unfrozen, 1);
    // And so are those that there is no room for any more.
    sparse(&tree.path().join("huge"), 40 * MIB, "text");
    sparse(&tree.path().join("other"), 40 * MIB, "text");
    let snapshot = capture_then(&in_memory(), tree.path(), || {});
    assert_eq!(snapshot.unfrozen, 1);
}

#[test]
fn links_that_are_replaced_while_files_are_read_are_what_they_were() {
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    fs::write(at("file"), "file").unwrap();
    symlink("one", at("to-a-file")).unwrap();
    symlink("two", at("to-a-directory")).unwrap();
    let before = picture(tree.path());
    let once = Once::new();
    let repository = in_memory();
    let snapshot = try_capture(&repository, tree.path(), None, &|_| {
        once.call_once(|| {
            replace(&at("to-a-file"), "a file");
            fs::remove_file(at("to-a-directory")).unwrap();
            fs::create_dir(at("to-a-directory")).unwrap();
        });
        true
    });
    assert!(once.is_completed());
    assert!(restored(&repository, &snapshot) == before);
    assert_eq!(snapshot.unstable, Vec::<String>::new());
}

#[test]
fn a_name_keeps_its_file_when_the_first_name_of_it_gets_another() {
    let place = tempfile::tempdir().unwrap();
    let (tree, target) = (place.path().join("tree"), place.path().join("target"));
    fs::create_dir_all(tree.join("below")).unwrap();
    sparse(&tree.join("a"), TOO_MUCH, "text");
    for name in ["b", "below/c", "d"] {
        fs::hard_link(tree.join("a"), tree.join(name)).unwrap();
    }
    let repository = in_memory();
    // The second name gets another file, too: it is the third that still has it.
    let snapshot = capture_then(&repository, &tree, || {
        replace(&tree.join("a"), "another");
        replace(&tree.join("b"), "a third");
    });
    restore(&repository, &snapshot, &target).unwrap();
    assert_eq!(fs::read_to_string(target.join("a")).unwrap(), "another");
    assert_eq!(fs::read_to_string(target.join("b")).unwrap(), "a third");
    for name in ["below/c", "d"] {
        assert_eq!(fs::metadata(target.join(name)).unwrap().len(), TOO_MUCH);
        assert_eq!(text_of(&target.join(name), 4), "text");
    }
    let mut unstable = snapshot.unstable.clone();
    unstable.sort();
    assert_eq!(unstable, ["workspace/a", "workspace/b"], "these are of a later moment");
    assert_eq!(snapshot.unreadable, Vec::<String>::new());
    let tree = snapshot.root("workspace").unwrap();
    assert_eq!((tree.files, tree.links), (3, 1), "what is one file is stored as one");
}

#[test]
fn a_name_keeps_its_file_when_the_first_name_of_it_is_removed() {
    let place = tempfile::tempdir().unwrap();
    let (tree, target) = (place.path().join("tree"), place.path().join("target"));
    fs::create_dir(&tree).unwrap();
    sparse(&tree.join(".tmp1"), TOO_MUCH, "text");
    fs::hard_link(tree.join(".tmp1"), tree.join("name")).unwrap();
    let repository = in_memory();
    let snapshot =
        capture_then(&repository, &tree, || fs::remove_file(tree.join(".tmp1")).unwrap());
    restore(&repository, &snapshot, &target).unwrap();
    assert_eq!(text_of(&target.join("name"), 4), "text");
    assert!(!target.join(".tmp1").exists());
    assert_eq!((&snapshot.unreadable[..], snapshot.skipped.unreadable), (&[][..], 0));
    assert_eq!(snapshot.unstable, ["workspace/.tmp1"]);
}

#[test]
fn a_file_that_was_changed_before_it_was_read_is_named() {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for name in ["same", "other", "moved"] {
        sparse(&tree.join(name), TOO_MUCH, "text");
    }
    let repository = in_memory();
    let snapshot = capture_then(&repository, &tree, || {
        // In place, and it is as long as it was.
        let file = fs::OpenOptions::new().write(true).open(tree.join("other")).unwrap();
        file.write_all_at(b"next", 0).unwrap();
        fs::set_permissions(tree.join("moved"), fs::Permissions::from_mode(0o600)).unwrap();
    });
    assert_eq!(snapshot.unstable, ["workspace/other"]);
}
