//! Through a tree, that may change on the way, within bounds.
//!
//! Each directory is opened beneath the root by its whole path, one at a time: one that is moved or
//! replaced meanwhile leads nowhere else, and a deep tree takes no descriptors.

use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{Dir, FileType, OFlags, Stat};

use super::beneath::{Tree, kind_of, look_in};
use super::path::FilePath;
use super::{FileError, MAX_HELD_BYTES, MAX_SEEN, MAX_STEPS, TEMPORARY};

/// Something that was found.
pub(super) struct Found<'a> {
    pub(super) path: FilePath,
    pub(super) kind: Kind,
    pub(super) stat: Stat,
    /// The directory it is in.
    pub(super) dir: BorrowedFd<'a>,
}

/// What is of interest in a tree. FIFOs, sockets and devices are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Link,
}

/// What was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missed {
    /// There is more than is looked at, or it lies too deep.
    pub(super) beyond: bool,
    /// A directory could not be read.
    pub(super) denied: bool,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Go {
    On,
    /// There is enough.
    Stop,
}

impl Tree {
    /// Visits everything beneath a directory but what is to be left out, by its name. A directory
    /// comes before what is in it.
    pub(super) fn walk(
        &self,
        under: &FilePath,
        left_out: impl Fn(&[u8]) -> bool,
        mut visit: impl FnMut(Found<'_>) -> Result<Go, FileError>,
    ) -> Result<Missed, FileError> {
        let mut missed = Missed::default();
        let (mut seen, mut steps, mut held) = (0_usize, 0_usize, 0_usize);
        let mut waiting = vec![under.clone()];
        while let Some(path) = waiting.pop() {
            held -= path.as_bytes().len().min(held);
            steps += path.names().count();
            if steps > MAX_STEPS {
                missed.beyond = true;
                return Ok(missed);
            }
            let dir =
                match self.open_at(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW) {
                    Ok(opened) => opened,
                    Err(FileError::Denied) => {
                        missed.denied = true;
                        continue;
                    }
                    Err(error) if error.is_raced() && path != *under => continue,
                    Err(error) => return Err(error),
                };
            for entry in Dir::read_from(&dir)? {
                let entry = match entry.map_err(FileError::from) {
                    // It was removed while it was read.
                    Err(error) if error.is_raced() => break,
                    entry => entry?,
                };
                let name = entry.file_name().to_bytes();
                if matches!(name, b"." | b"..") {
                    continue;
                }
                seen += 1;
                if seen > MAX_SEEN {
                    missed.beyond = true;
                    return Ok(missed);
                }
                if left_out(name) || name.starts_with(TEMPORARY.as_bytes()) {
                    continue;
                }
                let stat = match look_in(dir.as_fd(), name) {
                    Err(FileError::Denied) => {
                        missed.denied = true;
                        break;
                    }
                    stat => stat?,
                };
                let Some(stat) = stat else { continue };
                let Some(kind) = Kind::of(&stat) else { continue };
                let Some(found) = path.with(name) else {
                    missed.beyond = true;
                    continue;
                };
                if kind == Kind::Directory {
                    held += found.as_bytes().len();
                    if held > MAX_HELD_BYTES {
                        missed.beyond = true;
                        return Ok(missed);
                    }
                    waiting.push(found.clone());
                }
                let found = Found { path: found, kind, stat, dir: dir.as_fd() };
                if visit(found)? == Go::Stop {
                    missed.beyond = true;
                    return Ok(missed);
                }
            }
        }
        Ok(missed)
    }
}

impl Kind {
    pub(super) fn of(stat: &Stat) -> Option<Self> {
        let kind = kind_of(stat);
        if kind == FileType::RegularFile {
            Some(Self::File)
        } else if kind == FileType::Directory {
            Some(Self::Directory)
        } else if kind == FileType::Symlink {
            Some(Self::Link)
        } else {
            None
        }
    }
}
