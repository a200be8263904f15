//! Restore: from a snapshot to a directory that appears as a whole, or not at all.
//!
//! Nothing in a snapshot is trusted. Everything is made in a new directory of its own beside the
//! place where it is to appear, each name in a directory that was opened without following anything;
//! every chunk is compared with its id. When all of it is durable, the directory is given its name.

mod apply;
mod bytes;
mod compare;
mod flush;
mod in_place;
mod keep;
mod known;
mod large;
mod links;
mod make;
mod place;
mod plan;
mod remove;
mod space;

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::capture::Progress;
use crate::content::Content;
use crate::error::{Result, SnapshotError};
use crate::repository::Repository;
use crate::snapshot::Tree;
use crate::tree::{Entry, Kind};

pub use in_place::{Effect, InPlace, MendTook, Mended, Mending, Newer, Trust};
use make::Making;
use place::Place;
pub(crate) use place::is_aside;
use plan::Meta;

/// What to restore, and where.
#[derive(Clone)]
pub struct Restore<'a> {
    /// Which tree of a snapshot.
    pub tree: &'a Tree,
    /// Which path of the tree, from its root; all of it, if empty.
    pub path: &'a [u8],
    /// What becomes of files that cannot be read back.
    pub damaged: Damaged,
    /// Where it is to appear. Nothing may be there; the directory above must be.
    pub target: &'a Path,
    /// Whose it is to be, by their numbers; whoever restores it, if nobody is named.
    pub owner: Option<(u32, u32)>,
    /// How many names there may be at the most.
    pub max_entries: u64,
    /// How many bytes there may be at the most. More than the file system has space for is refused anyway,
    /// before any file is made; bytes in holes need none.
    pub max_bytes: u64,
    /// How many threads work.
    pub threads: usize,
    /// Is told from time to time how far it is, by several threads; answers whether to go on.
    pub progress: &'a (dyn Fn(Progress) -> bool + Sync),
}

/// What becomes of files that are damaged in the store, or not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// Nothing is restored.
    Refuse,
    /// They are left out, and named.
    LeaveOut,
}

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Paths that were left out because they, or all that is in them, are damaged; a directory that is
    /// named is there and empty.
    pub left_out: Vec<Vec<u8>>,
    /// Hard links that became files of their own: a file system lets one file have only so many names.
    pub copied: u64,
    /// Where the time went.
    pub took: RestoreTook,
}

/// Where the time of a restore went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreTook {
    /// Looking what is in the store.
    pub look: Duration,
    /// Reading and making directories.
    pub trees: Duration,
    /// Writing files.
    pub files: Duration,
    /// Making hard links, and giving directories their modes and times.
    pub finish: Duration,
    /// Making it durable, and giving it its name.
    pub sync: Duration,
}

impl Repository {
    /// Restores a tree, or what is at one path of it.
    pub fn restore(&self, restore: &Restore<'_>) -> Result<Restored> {
        let target = restore.target;
        if fs::symlink_metadata(target).is_ok() {
            return Err(SnapshotError::Exists(target.to_owned()));
        }
        let (above, name) = match (target.parent(), target.file_name()) {
            (Some(above), Some(name)) if above.as_os_str().is_empty() => (Path::new("."), name),
            (Some(above), Some(name)) => (above, name),
            (None, _) | (_, None) => return Err(SnapshotError::Exists(target.to_owned())),
        };
        let begin = Instant::now();
        self.refresh()?;
        let look = begin.elapsed();
        let mut restored = self.restore_at(restore, above, name)?;
        restored.took.look = look;
        Ok(restored)
    }

    fn restore_at(&self, restore: &Restore<'_>, above: &Path, name: &OsStr) -> Result<Restored> {
        if restore.path.is_empty() {
            let Tree { tree, mode, modified, ref attributes, .. } = *restore.tree;
            let meta = Meta { mode, modified, attributes: attributes.clone() };
            return self.directory(restore, tree, &meta, above, name);
        }
        let entry = self.entry_at(restore.tree, restore.path)?;
        let Entry { kind, mode, modified, attributes, .. } = entry.clone();
        let meta = Meta { mode, modified, attributes };
        match kind {
            Kind::Directory(content) => self.directory(restore, content, &meta, above, name),
            Kind::File(_) | Kind::Symlink(_) | Kind::HardLink(_) => {
                let place = Place::make(above, name)?;
                let making = Making::of(self, restore, place.directory.as_fd());
                let mut restored = making.alone(entry)?;
                let begin = Instant::now();
                place.appear_alone(name, restore)?;
                restored.took.sync = begin.elapsed();
                Ok(restored)
            }
        }
    }

    fn directory(
        &self,
        restore: &Restore<'_>,
        content: Content,
        root: &Meta,
        above: &Path,
        name: &OsStr,
    ) -> Result<Restored> {
        let place = Place::make(above, name)?;
        let making = Making::of(self, restore, place.directory.as_fd());
        let mut restored = making.all(content)?;
        let begin = Instant::now();
        place.appear(name, restore, root)?;
        restored.took.sync = begin.elapsed();
        Ok(restored)
    }
}
