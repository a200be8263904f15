//! How things are removed: one, or a directory with everything in it.
//!
//! A tree can be deeper than paths are long and than there are descriptors. So whatever directory is not empty
//! is first moved up, to right beneath the one that goes: nothing is ever deeper than one level, and three
//! descriptors are enough. If it is cut short, what is left is still beneath that one, and can be removed again.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::FileError;
use super::beneath::{Tree, kind_of, look_in};
use super::path::FilePath;
use super::write::unused_name;

/// How many entries are removed at the most: whoever is inside can make others meanwhile.
const MAX_REMOVED: u64 = 20_000_000;

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

impl Tree {
    /// Removes a file, or a link, and not what that leads to. Directories are not removed.
    pub fn remove(&self, path: &FilePath) -> Result<(), FileError> {
        let dir = self.parent_of(path)?;
        let stat = look_in(dir.as_fd(), path.name())?.ok_or(FileError::NotFound)?;
        if kind_of(&stat) == FileType::Directory {
            return Err(FileError::NotAFile);
        }
        Ok(unlinkat(&dir, path.name(), AtFlags::empty())?)
    }

    /// The same, and a directory with everything in it, however deep.
    pub fn remove_all(&self, path: &FilePath) -> Result<(), FileError> {
        match self.remove(path) {
            Err(FileError::NotAFile) => {}
            removed => return removed,
        }
        let dir = self.parent_of(path)?;
        let top = open_up(dir.as_fd(), path.name())?;
        let mut left = MAX_REMOVED;
        loop {
            empty(&top, &mut left)?;
            match unlinkat(&dir, path.name(), AtFlags::REMOVEDIR) {
                // Somebody has put something into it meanwhile.
                Err(Errno::NOTEMPTY | Errno::EXIST) => spend(&mut left)?,
                removed => return Ok(removed?),
            }
        }
    }

    /// The directory that something is in.
    fn parent_of(&self, path: &FilePath) -> Result<OwnedFd, FileError> {
        match self.open_directory(&path.parent()) {
            Err(FileError::NotADirectory) => Err(FileError::NotFound),
            dir => dir,
        }
    }
}

/// Removes what is in a directory. What is moved up meanwhile may be passed over, so that there is another
/// round until one finds nothing.
fn empty(top: &OwnedFd, left: &mut u64) -> Result<(), FileError> {
    loop {
        let mut found_any = false;
        for entry in Dir::read_from(top)? {
            let entry = entry?;
            let name = entry.file_name();
            if !is_itself(name) {
                found_any = true;
                spend(left)?;
                gone(remove_entry(top.as_fd(), name, |child| flatten(top, child, left)))?;
            }
        }
        if !found_any {
            return Ok(());
        }
    }
}

/// Removes what is in a directory right beneath the top, and moves up which directories are not empty.
fn flatten(top: &OwnedFd, dir: &OwnedFd, left: &mut u64) -> Result<(), FileError> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if !is_itself(name) {
            spend(left)?;
            gone(remove_entry(dir.as_fd(), name, |_| {
                Ok(renameat(dir, name, top, unused_name()?.as_str())?)
            }))?;
        }
    }
    Ok(())
}

/// Removes one entry; a directory that is not empty after something was done about it.
fn remove_entry(
    dir: BorrowedFd<'_>,
    name: &CStr,
    make_empty: impl FnOnce(&OwnedFd) -> Result<(), FileError>,
) -> Result<(), FileError> {
    let stat = look_in(dir, name.to_bytes())?.ok_or(FileError::NotFound)?;
    if kind_of(&stat) != FileType::Directory {
        return Ok(unlinkat(dir, name, AtFlags::empty())?);
    }
    match unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => {}
        removed => return Ok(removed?),
    }
    make_empty(&open_up(dir, name.to_bytes())?)?;
    match unlinkat(dir, name, AtFlags::REMOVEDIR) {
        // It is another round's, or was moved.
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Opens a directory. Where the agent has the server's own user it can have locked us out of one, so it is
/// opened to us again.
fn open_up(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, FileError> {
    if rustix::process::geteuid().is_root() {
        return Ok(openat(parent, name, DIRECTORY, Mode::empty())?);
    }
    let place = openat(parent, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        rustix::fs::chmod(itself.as_str(), mode | Mode::RWXU)?;
    }
    Ok(rustix::fs::open(itself.as_str(), DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())?)
}

/// What went away by itself is gone too.
fn gone(removed: Result<(), FileError>) -> Result<(), FileError> {
    match removed {
        Err(FileError::NotFound | FileError::NotADirectory | FileError::NotAFile) => Ok(()),
        removed => removed,
    }
}

fn is_itself(name: &CStr) -> bool {
    name == c"." || name == c".."
}

fn spend(left: &mut u64) -> Result<(), FileError> {
    let busy = || FileError::Busy;
    *left = left.checked_sub(1).ok_or_else(busy)?;
    Ok(())
}
