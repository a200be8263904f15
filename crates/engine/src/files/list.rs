//! What is there.

use std::os::fd::AsFd as _;

use rustix::fs::{Dir, OFlags, Stat};

use ash_core::time::Timestamp;

use super::beneath::{Tree, look_in, modified, size_of};
use super::path::FilePath;
use super::walk::{Go, Kind};
use super::{FileError, MAX_FILES, MAX_HELD_BYTES, MAX_SEEN, TEMPORARY};

/// What nobody wants to see in a list: large, noisy, and made by tools.
const NEVER: [&[u8]; 4] = [b"node_modules", b".git", b"__pycache__", b".DS_Store"];

/// How names end that are of no use to somebody else.
const NEVER_ENDING: [&[u8]; 3] = [b".sock", b".lock", b".pid"];

/// What is left out of a short list: caches and the like.
pub(super) const CACHES: [&[u8]; 8] =
    [b".cache", b".npm", b".pnpm-store", b".yarn", b".venv", b"venv", b".tmp", b"tmp"];

/// How much of a tree is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of it.
    Everything,
    /// All but what tools keep for themselves, such as `.git` and `node_modules`.
    Usual,
    /// Without caches and temporary directories too.
    WithoutCaches,
}

/// A file in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where.
    pub path: FilePath,
    /// How many bytes it has.
    pub size: u64,
    /// When it was last changed.
    pub modified: Timestamp,
    /// Whether its owner can run it.
    pub executable: bool,
}

/// The ordinary files of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The files, by path.
    pub files: Vec<Listed>,
    /// Whether some were left out: because there are too many, they lie too deep, or a directory
    /// could not be read.
    pub truncated: bool,
}

/// The directories right beneath another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directories {
    /// Where they are, in order.
    pub paths: Vec<FilePath>,
    /// Whether there are others.
    pub are_more: bool,
}

/// How many directories are named at the most.
pub(super) const MAX_DIRECTORIES: usize = 10_000;

impl Scope {
    pub(super) fn leaves_out(self, name: &[u8]) -> bool {
        let never =
            || NEVER.contains(&name) || NEVER_ENDING.iter().any(|ending| name.ends_with(ending));
        match self {
            Self::Everything => false,
            Self::Usual => never(),
            Self::WithoutCaches => never() || CACHES.contains(&name),
        }
    }
}

impl Tree {
    /// The ordinary files beneath a directory, or a file alone. Links are not followed, nor shown.
    pub fn list(&self, under: &FilePath, scope: Scope) -> Result<Listing, FileError> {
        if !under.is_root() {
            let stat = self.look(under)?.ok_or(FileError::NotFound)?;
            match Kind::of(&stat) {
                Some(Kind::File) => {
                    let files = vec![listed(under.clone(), &stat)];
                    return Ok(Listing { files, truncated: false });
                }
                Some(Kind::Directory) => {}
                Some(Kind::Link) | None => return Err(FileError::NotAFile),
            }
        }
        let mut files = Vec::new();
        let mut held = 0;
        let missed = self.walk(
            under,
            |name| scope.leaves_out(name),
            |found| {
                if found.kind != Kind::File {
                    return Ok(Go::On);
                }
                held += found.path.as_bytes().len();
                if files.len() >= MAX_FILES || held > MAX_HELD_BYTES {
                    return Ok(Go::Stop);
                }
                files.push(listed(found.path, &found.stat));
                Ok(Go::On)
            },
        )?;
        files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(Listing { files, truncated: missed.beyond || missed.denied })
    }
}

impl Tree {
    /// The directories right beneath a directory; of a file there are none.
    pub fn directories(&self, under: &FilePath) -> Result<Directories, FileError> {
        let mut found = Directories::default();
        let dir = match self.open_at(under, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW) {
            Err(FileError::NotADirectory) => return Ok(found),
            dir => dir?,
        };
        for (seen, entry) in Dir::read_from(&dir)?.enumerate() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if seen >= MAX_SEEN || found.paths.len() >= MAX_DIRECTORIES {
                found.are_more = true;
                break;
            }
            if matches!(name, b"." | b"..") || name.starts_with(TEMPORARY.as_bytes()) {
                continue;
            }
            let stat = look_in(dir.as_fd(), name)?;
            if stat.is_some_and(|stat| Kind::of(&stat) == Some(Kind::Directory)) {
                found.paths.extend(under.with(name));
            }
        }
        found.paths.sort_unstable();
        Ok(found)
    }
}

fn listed(path: FilePath, stat: &Stat) -> Listed {
    let executable = stat.st_mode & 0o100 != 0;
    Listed { path, size: size_of(stat), modified: modified(stat), executable }
}
