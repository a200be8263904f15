//! What a capture remembers of a tree for the next one: how every file looked, and what was in it.
//!
//! It belongs to this machine and these directories. Without it a capture reads every file again,
//! and stores nothing that is stored already.

mod saved;

#[cfg(test)]
pub(crate) use saved::decode_body;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::fs::{Statx, StatxFlags};

use crate::content::Content;
use crate::snapshot::SnapshotId;
use crate::tree::Modified;

/// What is asked of the file system about a file.
pub(crate) const ASKED: StatxFlags = StatxFlags::BASIC_STATS;

/// How a file looked. If it looks the same again, nothing in it has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) device: (u32, u32),
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) modified: Modified,
    pub(crate) changed: Modified,
}

impl Stamp {
    /// That of nothing.
    pub(crate) const NONE: Self = Self {
        device: (0, 0),
        inode: 0,
        size: 0,
        mode: 0,
        links: 0,
        modified: Modified { seconds: 0, nanoseconds: 0 },
        changed: Modified { seconds: 0, nanoseconds: 0 },
    };

    pub(crate) fn of(found: &Statx) -> Self {
        let time = |time: rustix::fs::StatxTimestamp| Modified {
            seconds: time.tv_sec,
            nanoseconds: time.tv_nsec,
        };
        Self {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            size: found.stx_size,
            mode: u32::from(found.stx_mode),
            links: found.stx_nlink,
            modified: time(found.stx_mtime),
            changed: time(found.stx_ctime),
        }
    }

    /// The permission bits and those beside them.
    pub(crate) fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    pub(crate) fn file_type(&self) -> rustix::fs::FileType {
        rustix::fs::FileType::from_raw_mode(self.mode)
    }

    /// Whether it is the same file with the same content, by its looks. What became of its names, its mode or its
    /// attributes is nothing to that.
    pub(crate) fn has_content_of(&self, other: &Self) -> bool {
        self.file() == other.file() && (self.size, self.modified) == (other.size, other.modified)
    }

    /// The same file, wherever its names are.
    pub(crate) fn file(&self) -> ((u32, u32), u64) {
        (self.device, self.inode)
    }
}

/// What is remembered of the trees of a capture.
///
/// It holds for the repository that has the snapshot it was left by, for as long as it has it, and for
/// directories that are where they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// What all of it is in.
    pub(crate) snapshot: Option<SnapshotId>,
    pub(crate) roots: BTreeMap<String, KnownRoot>,
}

/// A root, and where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownRoot {
    pub(crate) path: PathBuf,
    pub(crate) tree: KnownTree,
}

impl State {
    /// What is known of one tree that is in a snapshot: its name, where it is, and what is in it.
    pub(crate) fn of(
        snapshot: SnapshotId,
        (name, path): (String, PathBuf),
        tree: KnownTree,
    ) -> Self {
        let roots = BTreeMap::from([(name, KnownRoot { path, tree })]);
        Self { snapshot: Some(snapshot), roots }
    }

    /// What is remembered of both, if all of it is in one snapshot; otherwise what this one remembers.
    pub fn and(mut self, other: Self) -> Self {
        if self.snapshot == other.snapshot {
            self.roots.extend(other.roots);
        }
        self
    }

    /// What is known of the tree of that name, if it is the one at this path.
    pub(crate) fn tree(&self, name: &str, path: &Path) -> Option<&KnownTree> {
        let root = self.roots.get(name).filter(|root| root.path == path)?;
        Some(&root.tree)
    }
}

/// The directories of a tree; the first is its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownTree {
    pub(crate) directories: Vec<KnownDirectory>,
}

/// A directory, as it was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownDirectory {
    /// By name.
    pub(crate) entries: Vec<Known>,
    /// What its encoding is stored as.
    pub(crate) tree: Content,
}

/// An entry of a directory, as it was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) name: Box<[u8]>,
    pub(crate) stamp: Stamp,
    /// Whether the stamp can be relied on: it was not that of a file that was being written.
    pub(crate) settled: bool,
    pub(crate) kind: KnownKind,
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What an entry was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnownKind {
    File(Content),
    /// Which of the directories.
    Directory(usize),
    Symlink(Box<[u8]>),
    HardLink(Box<[u8]>),
}
