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
mod known;
mod large;
mod make;
mod plan;
mod remove;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RenameFlags, renameat_with, syncfs};

use crate::capture::Progress;
use crate::content::Content;
use crate::error::{Result, SnapshotError};
use crate::repository::Repository;
use crate::snapshot::Tree;
use crate::tree::{Entry, Kind};

pub use in_place::{Effect, InPlace, Mended, Mending, Trust};
use make::{Making, settle};
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
    /// How many bytes there may be at the most.
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
        self.refresh()?;
        if restore.path.is_empty() {
            let Tree { tree, mode, modified, .. } = *restore.tree;
            let meta = Meta { mode, modified, attributes: Vec::new() };
            return self.directory(restore, tree, &meta, above, name);
        }
        let entry = self.entry_at(restore.tree, restore.path)?;
        let Entry { kind, mode, modified, attributes, .. } = entry.clone();
        let meta = Meta { mode, modified, attributes };
        match kind {
            Kind::Directory(content) => self.directory(restore, content, &meta, above, name),
            Kind::File(_) | Kind::Symlink(_) | Kind::HardLink(_) => {
                let place = Place::make(above)?;
                let making = Making::of(self, restore, place.directory.as_fd());
                let restored = making.alone(entry)?;
                place.appear_alone(name, restore)?;
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
        let place = Place::make(above)?;
        let making = Making::of(self, restore, place.directory.as_fd());
        let restored = making.all(content)?;
        place.appear(name, restore, root)?;
        Ok(restored)
    }
}

/// A directory that is not where it should be yet. Dropped, it is gone.
struct Place {
    above: PathBuf,
    path: PathBuf,
    directory: OwnedFd,
    appeared: bool,
}

impl Place {
    fn make(above: &Path) -> Result<Self> {
        let path = above.join(format!(".ash-restore-{}", uuid::Uuid::now_v7()));
        let failed = |attempted| SnapshotError::tree(attempted, path.clone());
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed("make"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        let directory = opened.map_err(|error| failed("open")(error.into()))?;
        Ok(Self { above: above.to_owned(), path, directory, appeared: false })
    }

    /// Gives it its name, now that everything is in it.
    fn appear(mut self, name: &OsStr, restore: &Restore<'_>, root: &Meta) -> Result<()> {
        let failed = |attempted| SnapshotError::tree(attempted, restore.target);
        let done = || -> io::Result<()> {
            settle(self.directory.as_fd(), root, restore.owner)?;
            Ok(syncfs(&self.directory)?)
        };
        done().map_err(failed("finish"))?;
        let above = File::open(&self.above).map_err(failed("open the directory above"))?;
        let from = self.path.file_name().unwrap_or_default();
        self.appeared = name_it(above.as_fd(), from, &above, name, restore)?;
        above.sync_all().map_err(failed("sync the directory above"))
    }

    /// Gives the one thing that is in it its name. The directory is gone then.
    fn appear_alone(self, name: &OsStr, restore: &Restore<'_>) -> Result<()> {
        let failed = |attempted| SnapshotError::tree(attempted, restore.target);
        syncfs(&self.directory).map_err(|error| failed("finish")(error.into()))?;
        let above = File::open(&self.above).map_err(failed("open the directory above"))?;
        name_it(self.directory.as_fd(), OsStr::new(make::ALONE), &above, name, restore)?;
        above.sync_all().map_err(failed("sync the directory above"))
    }
}

/// Renames, unless there is something of that name already.
fn name_it(
    from: BorrowedFd<'_>,
    old: &OsStr,
    above: &File,
    new: &OsStr,
    restore: &Restore<'_>,
) -> Result<bool> {
    match renameat_with(from, old, above, new, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::EXIST) => Err(SnapshotError::Exists(restore.target.to_owned())),
        Err(error) => Err(SnapshotError::tree("name", restore.target)(error.into())),
    }
}
impl Drop for Place {
    fn drop(&mut self) {
        if !self.appeared {
            // What cannot be removed is found by its name.
            let _left_behind = fs::remove_dir_all(&self.path);
        }
    }
}
