//! Walking a directory of this machine. Nobody has promised to leave it alone meanwhile.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, openat, readlinkat, statat};
use rustix::io::Errno;

use super::error::DeployError;
use super::paths;
use super::staging::{Executable, Staging};

/// What is left out wherever it is: history and what others have built.
pub const LEFT_OUT: [&str; 2] = [".git", "node_modules"];

/// What is not copied.
#[derive(Clone, Copy)]
pub(super) struct Without<'a> {
    /// Whatever has one of these names.
    pub(super) names: &'a [&'a str],
    /// Files and links at these paths.
    pub(super) paths: &'a BTreeSet<String>,
}

/// Copies a directory. A link in its own path is followed, none in what is beneath it.
pub(super) fn capture(
    path: &Path,
    staging: &mut Staging,
    without: Without<'_>,
) -> Result<(), DeployError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOTDIR => DeployError::NotADirectory { path: path.to_owned() },
        other => unreadable(path, other),
    })?;
    Walk { top: path, staging, without }.directory(root, "")
}

struct Walk<'a> {
    top: &'a Path,
    staging: &'a mut Staging,
    without: Without<'a>,
}

impl Walk<'_> {
    /// Copies what is in a directory. As deep as a path may be, so is this, and no deeper.
    fn directory(&mut self, directory: OwnedFd, path: &str) -> Result<(), DeployError> {
        let place = self.place(path);
        let names = Dir::read_from(&directory).map_err(|error| unreadable(&place, error))?;
        for entry in names {
            let entry = entry.map_err(|error| unreadable(&place, error))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(text) = name.to_str() else {
                let shown = name.to_string_lossy();
                let path = if path.is_empty() { shown.into() } else { format!("{path}/{shown}") };
                return Err(DeployError::BadPath { path, reason: "it is not UTF-8" });
            };
            if self.without.names.contains(&text) {
                continue;
            }
            let path = if path.is_empty() { text.to_owned() } else { format!("{path}/{text}") };
            if let Some(reason) = paths::fault(&path) {
                return Err(DeployError::BadPath { path, reason });
            }
            self.entry(&directory, name, &path)?;
        }
        Ok(())
    }

    fn entry(&mut self, directory: &OwnedFd, name: &CStr, path: &str) -> Result<(), DeployError> {
        let place = self.place(path);
        let unreadable = |error| unreadable(&place, error);
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(unreadable)?;
        match kind(stat.st_mode) {
            Some(Kind::File | Kind::Link) if self.without.paths.contains(path) => Ok(()),
            Some(Kind::Directory) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let inner = openat(directory, name, flags, Mode::empty()).map_err(unreadable)?;
                self.directory(inner, path)
            }
            Some(Kind::File) => {
                // It may be something else by now. Not blocking, a FIFO opens at once.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
                let flags = flags | OFlags::CLOEXEC;
                let file = openat(directory, name, flags, Mode::empty()).map_err(unreadable)?;
                let mode = fstat(&file).map_err(unreadable)?.st_mode;
                if kind(mode) != Some(Kind::File) {
                    return Err(DeployError::SpecialFile { path: path.to_owned() });
                }
                let executable = if mode & 0o111 == 0 { Executable::No } else { Executable::Yes };
                self.staging.add_file(path, executable, &mut File::from(file), &place)
            }
            Some(Kind::Link) => {
                let target = readlinkat(directory, name, Vec::new()).map_err(unreadable)?;
                self.staging.add_link(path, text_of(path, target)?)
            }
            None => Err(DeployError::SpecialFile { path: path.to_owned() }),
        }
    }

    /// Where it is on this machine, to be told.
    fn place(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.top.to_owned() } else { self.top.join(path) }
    }
}

/// The kinds of things that are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Link,
}

fn kind(mode: u32) -> Option<Kind> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is not captured")]
    match FileType::from_raw_mode(mode) {
        FileType::Directory => Some(Kind::Directory),
        FileType::RegularFile => Some(Kind::File),
        FileType::Symlink => Some(Kind::Link),
        _ => None,
    }
}

fn text_of(path: &str, target: CString) -> Result<String, DeployError> {
    target.into_string().map_err(|error| DeployError::BadLink {
        path: path.to_owned(),
        target: error.into_cstring().to_string_lossy().into_owned(),
        reason: "is not UTF-8",
    })
}

fn unreadable(path: &Path, error: Errno) -> DeployError {
    DeployError::Unreadable { path: path.to_owned(), source: io::Error::from(error) }
}
