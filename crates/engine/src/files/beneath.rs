//! The root, and how things beneath it are opened.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ash_core::time::Timestamp;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;

use super::path::FilePath;
use super::{FileError, OpenFile};

/// How often a resolution that was disturbed by a rename elsewhere is tried again.
const DISTURBED_RETRIES: usize = 32;

/// The files beneath a directory.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    /// Whose new files are to be, if they can be given away.
    owner: Option<(Uid, Gid)>,
    /// Where something can lie for a moment that nobody inside sees.
    pub(super) beside: PathBuf,
}

impl Tree {
    /// The tree beneath a directory. New files belong to whoever owns the directory, if we may give
    /// them away.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&root)?;
        let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        let owner = rustix::process::geteuid().is_root().then_some(owner);
        Ok(Self { root, owner, beside: path.parent().unwrap_or(path).to_owned() })
    }

    /// Opens an ordinary file for reading, if it is no larger than wanted. What is none is never
    /// opened.
    pub fn read(&self, path: &FilePath, most: u64) -> Result<OpenFile, FileError> {
        let dir = match self.open_directory(&path.parent()) {
            Err(FileError::NotADirectory) => return Err(self.why_not(path)),
            dir => dir?,
        };
        read_in(dir.as_fd(), path.name(), most)
    }

    /// Why a path leads nowhere on which something is no directory: a link, or there is no such file.
    fn why_not(&self, path: &FilePath) -> FileError {
        let way = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(mut here) = self.open_directory(&FilePath::ROOT) else { return FileError::NotFound };
        for name in path.names() {
            let Ok(next) = rustix::fs::openat(&here, name, way, Mode::empty()) else { break };
            here = next;
        }
        let kind = rustix::fs::fstat(&here).map(|stat| kind_of(&stat));
        if kind == Ok(FileType::Symlink) { FileError::NotAFile } else { FileError::NotFound }
    }

    /// What lies at a path, itself and not what it leads to; nothing: nothing does.
    pub(super) fn look(&self, path: &FilePath) -> Result<Option<Stat>, FileError> {
        let parent = match self.open_directory(&path.parent()) {
            Err(FileError::NotFound) => return Ok(None),
            parent => parent?,
        };
        look_in(parent.as_fd(), path.name())
    }

    /// A directory, to name things in.
    pub(super) fn open_directory(&self, path: &FilePath) -> Result<OwnedFd, FileError> {
        self.open_at(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)
    }

    /// Opens something beneath the root, and no link on the way. With `PATH` and `NOFOLLOW`, a link
    /// at the end is opened as itself.
    pub(super) fn open_at(&self, path: &FilePath, flags: OFlags) -> Result<OwnedFd, FileError> {
        let flags = flags | OFlags::CLOEXEC;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..DISTURBED_RETRIES {
            let opened =
                rustix::fs::openat2(&self.root, path.as_path(), flags, Mode::empty(), resolve);
            match opened {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // Some filters of system calls say "not permitted" of what they do not know.
                Err(Errno::NOSYS | Errno::PERM) => return self.step(path, flags),
                opened => return Ok(opened?),
            }
        }
        Err(FileError::Unavailable(Errno::AGAIN.into()))
    }

    /// The same without `openat2`: a name at a time.
    fn step(&self, path: &FilePath, flags: OFlags) -> Result<OwnedFd, FileError> {
        if path.is_root() {
            return Ok(rustix::fs::openat(&self.root, ".", flags, Mode::empty())?);
        }
        let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut here = rustix::fs::openat(&self.root, ".", way, Mode::empty())?;
        let mut names = path.names().peekable();
        while let Some(name) = names.next() {
            let flags = if names.peek().is_some() { way } else { flags | OFlags::NOFOLLOW };
            here = rustix::fs::openat(&here, name, flags, Mode::empty())?;
        }
        Ok(here)
    }

    /// Gives something that we made to whoever owns the root.
    pub(super) fn give(&self, made: BorrowedFd<'_>) -> Result<(), FileError> {
        if let Some((user, group)) = self.owner {
            rustix::fs::fchown(made, Some(user), Some(group))?;
        }
        Ok(())
    }

    /// Gives a link that we made to whoever owns the root.
    pub(super) fn give_link(&self, dir: BorrowedFd<'_>, name: &str) -> Result<(), FileError> {
        if let Some((user, group)) = self.owner {
            let itself = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(dir, name, Some(user), Some(group), itself)?;
        }
        Ok(())
    }

    /// Makes a directory and those above it, and opens it.
    pub(super) fn make_directory(&self, path: &FilePath) -> Result<OwnedFd, FileError> {
        match self.open_directory(path) {
            Err(FileError::NotFound) => {}
            opened => return opened,
        }
        let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut here = self.open_directory(&FilePath::ROOT)?;
        for name in path.names() {
            here = match rustix::fs::openat(&here, name, way, Mode::empty()) {
                Err(Errno::NOENT) => self.make_one(here.as_fd(), name)?,
                opened => opened?,
            };
        }
        Ok(here)
    }

    fn make_one(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o755)) {
            // Somebody was faster, and it is theirs.
            Err(Errno::EXIST) => return Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?),
            made => made?,
        }
        let made = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        // Whatever the umask says.
        rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
        self.give(made.as_fd())?;
        Ok(made)
    }
}

/// Opens an ordinary file in a directory for reading.
pub(super) fn read_in(dir: BorrowedFd<'_>, name: &[u8], most: u64) -> Result<OpenFile, FileError> {
    require_file(&look_in(dir, name)?.ok_or(FileError::NotFound)?)?;
    // It may have been replaced since. Not blocking, a FIFO opens at once, and is then refused.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    require_file(&stat)?;
    let size = size_of(&stat);
    if size > most {
        return Err(FileError::TooLarge { size, most });
    }
    Ok(OpenFile { file: File::from(file), size, modified: modified(&stat) })
}

/// What lies in a directory under a name; nothing: nothing does.
pub(super) fn look_in(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Stat>, FileError> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        stat => Ok(Some(stat?)),
    }
}

pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub(super) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

pub(super) fn modified(stat: &Stat) -> Timestamp {
    let millis = i64::try_from(stat.st_mtime_nsec).unwrap_or_default() / 1_000_000;
    Timestamp::from_millis(stat.st_mtime.saturating_mul(1_000).saturating_add(millis))
}

fn require_file(stat: &Stat) -> Result<(), FileError> {
    if kind_of(stat) == FileType::RegularFile { Ok(()) } else { Err(FileError::NotAFile) }
}

#[cfg(test)]
mod test {
    use super::*;

    /// The way for kernels and filters without `openat2` is as strict.
    #[test]
    fn without_openat2_no_link_is_followed_either() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("sub/file"), "inside").unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        for (link, target) in [("out", "../secret"), ("up", ".."), ("in", "sub")] {
            std::os::unix::fs::symlink(target, root.join(link)).unwrap();
        }
        let tree = Tree::open(&root).unwrap();
        let step = |name: &str, flags| tree.step(&FilePath::file(name.as_bytes()).unwrap(), flags);
        assert!(step("sub/file", OFlags::RDONLY).is_ok());
        for name in ["out", "up/secret", "in/file", "up", "in"] {
            assert!(step(name, OFlags::RDONLY).is_err(), "{name}");
        }
        assert!(tree.step(&FilePath::ROOT, OFlags::RDONLY).is_ok());
    }
}
