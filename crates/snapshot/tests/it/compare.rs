//! Whether two trees are the same, as far as snapshots keep them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use ash_snapshot::objects::{LocalObjects, MemoryObjects};
use ash_snapshot::{Capture, Captured, Damaged, Repository, Restore, Root, Snapshot, State};

/// What is at each path.
pub(crate) type Picture = BTreeMap<PathBuf, Thing>;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thing {
    what: What,
    mode: u32,
    modified: (i64, i64),
    attributes: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// Its bytes, and the first of its names.
    File(Vec<u8>, PathBuf),
    Directory,
    Symlink(PathBuf),
}

/// Looks at a whole tree, with its own eyes.
pub(crate) fn picture(root: &Path) -> Picture {
    let mut picture = Picture::new();
    let mut names = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(root.join(&path)).unwrap() {
            let below = path.join(entry.unwrap().file_name());
            let found = fs::symlink_metadata(root.join(&below)).unwrap();
            let kind = found.file_type();
            let what = if kind.is_dir() {
                waiting.push(below.clone());
                What::Directory
            } else if kind.is_symlink() {
                What::Symlink(fs::read_link(root.join(&below)).unwrap())
            } else if kind.is_file() {
                names.entry(found.ino()).or_insert_with(Vec::new).push(below.clone());
                What::File(fs::read(root.join(&below)).unwrap(), PathBuf::new())
            } else {
                assert!(kind.is_socket() || kind.is_fifo() || kind.is_char_device());
                continue;
            };
            let mode = if kind.is_symlink() { 0 } else { found.mode() & 0o7777 };
            let modified = (found.mtime(), found.mtime_nsec());
            let attributes =
                if kind.is_symlink() { BTreeMap::new() } else { attributes(&root.join(&below)) };
            picture.insert(below, Thing { what, mode, modified, attributes });
        }
    }
    for mut names in names.into_values() {
        names.sort();
        for name in &names {
            if let Some(Thing { what: What::File(_, first), .. }) = picture.get_mut(name) {
                first.clone_from(&names[0]);
            }
        }
    }
    picture
}

fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = [0; 4096];
    let length = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|&byte| byte == 0);
    let names = names.map(|name| String::from_utf8(name.to_vec()).unwrap());
    let attributes = names.filter(|name| name.starts_with("user.")).map(|name| {
        let mut value = [0; 4096];
        let length = rustix::fs::getxattr(path, &name, &mut value[..]).unwrap();
        (name, value[..length].to_vec())
    });
    attributes.collect()
}

/// Returns when what was written before cannot change any more without another stamp.
pub(crate) fn settle(tree: &Path) {
    let probe = tempfile::tempdir_in(tree.parent().unwrap()).unwrap();
    let now = |name: &str| {
        fs::write(probe.path().join(name), "").unwrap();
        let found = fs::metadata(probe.path().join(name)).unwrap();
        i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec())
    };
    let begin = now("first");
    // By the clock that stamps are made with: two ticks of the coarsest one, and more.
    while now("later") < begin + 45_000_000 {
        std::thread::yield_now();
    }
}

pub(crate) fn in_memory() -> Repository {
    Repository::open(Box::new(MemoryObjects::default())).unwrap()
}

pub(crate) fn on_disk(path: &Path) -> Repository {
    Repository::open(Box::new(LocalObjects::open(path).unwrap())).unwrap()
}

pub(crate) fn capture(repository: &Repository, tree: &Path, state: &mut State) -> Captured {
    try_capture(repository, tree, state).unwrap()
}

pub(crate) fn try_capture(
    repository: &Repository,
    tree: &Path,
    state: &mut State,
) -> ash_snapshot::Result<Captured> {
    let roots = [Root { name: "workspace", path: tree, excluded: &[] }];
    let capture = Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: None,
        threads: 2,
        progress: &|_| true,
    };
    repository.capture(&capture, state)
}

pub(crate) fn restore(
    repository: &Repository,
    snapshot: &Snapshot,
    target: &Path,
) -> ash_snapshot::Result<()> {
    let restore = whole(snapshot.root("workspace")?, target);
    repository.restore(&restore).map(|_| ())
}

/// All of a tree.
pub(crate) fn whole<'a>(tree: &'a ash_snapshot::Tree, target: &'a Path) -> Restore<'a> {
    Restore {
        tree,
        path: b"",
        damaged: Damaged::Refuse,
        target,
        owner: None,
        max_entries: 1_000_000,
        max_bytes: u64::MAX,
        threads: 2,
        progress: &|_| true,
    }
}

/// Restores a snapshot somewhere, and looks at it.
pub(crate) fn restored(repository: &Repository, snapshot: &Snapshot) -> Picture {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("restored");
    restore(repository, snapshot, &target).unwrap();
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing is left beside it");
    picture(&target)
}
