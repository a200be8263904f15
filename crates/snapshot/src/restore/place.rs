//! Where something is made before it has its name: a directory beside the target.
//!
//! Whoever makes one holds a lock on it (`flock`), which the kernel lets go of when they die, however they do. So one
//! that can be locked was left behind, and the next restore to the same target removes it. A lock file would say less:
//! it is there as well when nobody is.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, open, renameat_with, statat,
    syncfs,
};
use rustix::io::Errno;
use uuid::Uuid;

use super::Restore;
use super::make::{self, settle};
use super::plan::Meta;
use super::remove::remove_tree;
use crate::error::{Result, SnapshotError};
use crate::id::Id;

/// What directories are called in which something is made; then come some digits of the target's name, if they are
/// beside it, and an id.
pub(super) const ASIDE: &str = ".ash-restore-";

/// How often a directory may be removed by somebody before it is locked.
const ATTEMPTS: usize = 8;

/// Whether a name is one of ours: nobody wants to keep what is called so.
pub(crate) fn is_aside(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(ASIDE.as_bytes()) else { return false };
    let Ok(rest) = std::str::from_utf8(rest) else { return false };
    let id = match rest.split_at_checked(HASH_DIGITS + 1) {
        Some((hash, id)) if hash.ends_with('-') && id.len() == ID_DIGITS => id,
        Some(_) | None => rest,
    };
    id.len() == ID_DIGITS && Uuid::try_parse(id).is_ok()
}

/// How many digits of the hash of a target's name are used.
const HASH_DIGITS: usize = 16;

/// How long an id is with its hyphens.
const ID_DIGITS: usize = 36;

/// How the directories begin in which something is made for a target of this name.
fn beginning(name: &OsStr) -> String {
    let hash = Id::of(name.as_bytes()).to_string();
    format!("{ASIDE}{}-", &hash[..HASH_DIGITS])
}

/// A directory that is not where it should be yet. Dropped, it is gone.
pub(super) struct Place {
    above: PathBuf,
    path: PathBuf,
    /// It is locked for as long as it is open.
    pub(super) directory: OwnedFd,
    appeared: bool,
}

impl Place {
    /// Makes one for a target of this name. What others left behind who died making the same is removed.
    pub(super) fn make(above: &Path, name: &OsStr) -> Result<Self> {
        let beginning = beginning(name);
        remove_left(above, &beginning);
        let mut attempts = 0;
        loop {
            let path = above.join(format!("{beginning}{}", Uuid::now_v7()));
            let failed = |attempted| SnapshotError::tree(attempted, path.clone());
            fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed("make"))?;
            attempts += 1;
            match hold(&path) {
                Ok(Held::ByUs(directory)) => {
                    return Ok(Self { above: above.to_owned(), path, directory, appeared: false });
                }
                // Somebody took it for one that was left behind.
                Ok(Held::ByOthers | Held::Gone) if attempts < ATTEMPTS => {}
                Ok(Held::ByOthers | Held::Gone) => {
                    return Err(failed("keep")(io::ErrorKind::ResourceBusy.into()));
                }
                Err(error) => return Err(failed("open")(error)),
            }
        }
    }

    /// Gives it its name, now that everything is in it.
    pub(super) fn appear(mut self, name: &OsStr, restore: &Restore<'_>, root: &Meta) -> Result<()> {
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
    pub(super) fn appear_alone(self, name: &OsStr, restore: &Restore<'_>) -> Result<()> {
        let failed = |attempted| SnapshotError::tree(attempted, restore.target);
        syncfs(&self.directory).map_err(|error| failed("finish")(error.into()))?;
        let above = File::open(&self.above).map_err(failed("open the directory above"))?;
        name_it(self.directory.as_fd(), OsStr::new(make::ALONE), &above, name, restore)?;
        above.sync_all().map_err(failed("sync the directory above"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.appeared {
            // What cannot be removed is found by its name.
            let _left_behind = remove(&self.path);
        }
    }
}

/// Who holds a directory.
enum Held {
    ByUs(OwnedFd),
    ByOthers,
    Gone,
}

/// Opens a directory and locks it.
fn hold(path: &Path) -> io::Result<Held> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Held::Gone),
        opened => opened?,
    };
    // Where a file system has no locks, nobody can tell what is left behind, and nobody removes it.
    let locked = flock(&directory, FlockOperation::NonBlockingLockExclusive);
    if locked == Err(Errno::WOULDBLOCK) {
        return Ok(Held::ByOthers);
    }
    // It may have been removed before it was locked.
    let ours = fstat(&directory)?;
    match statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino) => {
            Ok(Held::ByUs(directory))
        }
        Ok(_) | Err(_) => Ok(Held::Gone),
    }
}

/// Removes directories that begin so and that nobody holds. What cannot be removed is no reason not to restore.
fn remove_left(above: &Path, beginning: &str) {
    let Ok(entries) = fs::read_dir(above) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if !name.as_bytes().starts_with(beginning.as_bytes()) || !is_aside(name.as_bytes()) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(directory) = open(entry.path(), flags, Mode::empty()) else { continue };
        if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _left_behind = remove(&entry.path());
        }
    }
}

/// Removes a directory, whatever modes there are below.
fn remove(path: &Path) -> io::Result<()> {
    let above = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    remove_tree(File::open(above)?.as_fd(), name.as_bytes())
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
        Err(Errno::EXIST) => Err(SnapshotError::Exists(restore.target.to_owned())),
        Err(error) => Err(SnapshotError::tree("name", restore.target)(error.into())),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_what_is_ours_is_called_so() {
        let id = Uuid::now_v7();
        let beside = format!("{}{id}", beginning(OsStr::new("target")));
        assert!(is_aside(beside.as_bytes()));
        assert!(is_aside(format!("{ASIDE}{id}").as_bytes()));
        for name in [".ash-restore-", ".ash-restore-0", ".ash-restore-notes", "x", ""] {
            assert!(!is_aside(name.as_bytes()), "{name}");
        }
        assert!(!is_aside(format!("{ASIDE}{id}.txt").as_bytes()));
        assert!(!is_aside(format!("{beside}0").as_bytes()));
    }

    #[test]
    fn what_somebody_left_is_removed_and_what_somebody_holds_is_not() {
        let above = tempfile::tempdir().unwrap();
        let target = OsStr::new("target");
        let left = above.path().join(format!("{}{}", beginning(target), Uuid::now_v7()));
        let of_another = format!("{}{}", beginning(OsStr::new("other")), Uuid::now_v7());
        let of_another = above.path().join(of_another);
        for left in [&left, &of_another] {
            fs::create_dir_all(left.join("a/b")).unwrap();
        }
        fs::set_permissions(left.join("a"), std::os::unix::fs::PermissionsExt::from_mode(0o0))
            .unwrap();
        let first = Place::make(above.path(), target).unwrap();
        assert!(!left.exists() && of_another.exists());
        let second = Place::make(above.path(), target).unwrap();
        assert!(first.path.is_dir() && second.path.is_dir(), "the first is still at work");
        let held = first.path.clone();
        drop(first);
        assert!(!held.exists());
    }
}
