//! Files appear whole or not at all: written without a name, or under one that means nothing where the file system wants
//! one, then given theirs. Who dies while a file arrives leaves nothing.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, linkat, openat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::beneath::{Tree, kind_of, look_in};
use super::path::FilePath;
use super::{FileError, TEMPORARY};

/// Whether a file can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executable {
    /// It can.
    Yes,
    /// It cannot.
    No,
    /// If the file that it replaces can.
    AsBefore,
}

impl Tree {
    /// Writes a file, and the directories above it. Returns how many bytes it has.
    ///
    /// A file that is there is replaced: whoever has it open keeps the old one, and other names of it
    /// do too.
    pub fn write(
        &self,
        path: &FilePath,
        executable: Executable,
        content: &mut dyn Read,
    ) -> Result<u64, FileError> {
        let dir = self.make_directory(&path.parent())?;
        let before = match look_in(dir.as_fd(), path.name())? {
            Some(stat) if kind_of(&stat) != FileType::RegularFile => {
                return Err(FileError::NotAFile);
            }
            Some(stat) => stat.st_mode & 0o777,
            None => 0o644,
        };
        let mode = match executable {
            Executable::Yes => before | 0o111,
            Executable::No => before & !0o111,
            Executable::AsBefore => before,
        };
        let temporary = Temporary::name(dir.as_fd())?;
        let (mut file, has_name) = temporary.make()?;
        let size = io::copy(content, &mut file)?;
        file.flush()?;
        self.give(file.as_fd())?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        if !has_name {
            temporary.give_to(&file)?;
        }
        temporary.becomes(path.name())?;
        Ok(size)
    }

    /// Makes a link, in place of another one or of a file.
    pub(super) fn link(&self, path: &FilePath, target: &[u8]) -> Result<(), FileError> {
        let dir = self.make_directory(&path.parent())?;
        let temporary = Temporary::name(dir.as_fd())?;
        symlinkat(target, &dir, temporary.name.as_str())?;
        self.give_link(dir.as_fd(), &temporary.name)?;
        temporary.becomes(path.name())
    }
}

/// A name that means nothing, and that nobody has.
pub(super) fn unused_name() -> Result<String, FileError> {
    let mut random = [0; 12];
    getrandom::fill(&mut random).map_err(|error| FileError::Unavailable(error.into()))?;
    let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{TEMPORARY}{random}"))
}

/// A name in a directory that means nothing. What has it is removed, unless it becomes something.
struct Temporary<'a> {
    dir: BorrowedFd<'a>,
    name: String,
    is_kept: bool,
}

impl<'a> Temporary<'a> {
    fn name(dir: BorrowedFd<'a>) -> Result<Self, FileError> {
        Ok(Self { dir, name: unused_name()?, is_kept: false })
    }

    /// Makes a file, which has no name yet where the file system can do that. Says whether it has this one.
    fn make(&self) -> Result<(File, bool), FileError> {
        let (flags, mode) = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::from_raw_mode(0o600));
        match openat(self.dir, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => return Ok((file.into(), false)),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        Ok((openat(self.dir, self.name.as_str(), flags, mode)?.into(), true))
    }

    /// Gives the name to a file that has none.
    fn give_to(&self, file: &File) -> Result<(), FileError> {
        let file = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, file, self.dir, self.name.as_str(), AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }

    fn becomes(mut self, name: &[u8]) -> Result<(), FileError> {
        renameat(self.dir, self.name.as_str(), self.dir, name)?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            // It may not have come to be, or somebody inside removed it.
            let _gone = unlinkat(self.dir, self.name.as_str(), AtFlags::empty());
        }
    }
}
