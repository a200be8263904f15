//! The directories of all agents, by the digest of what is in them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ash_core::time::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Stat, flock, readlinkat, statat};
use rustix::io::Errno;

use super::capture::{self, Without};
use super::error::{DeployError, ReadError};
use super::links::{self, Lead, Node};
use super::outline::{MAX_BYTES, Outline};
use super::paths;
use super::staging::{Captured, Executable, Staging, TEMPORARY, read_file};
use super::{Definition, FileInfo, Source};

/// Where captured directories are kept: `data/agents`. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Library {
    path: PathBuf,
}

/// A file that came by itself, without a directory of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentFile {
    /// Where it goes, from the top of the agent's directory.
    pub path: String,
    /// What is in it.
    pub content: Vec<u8>,
    /// Whether it can be run; if nobody says so, it can if it begins with `#!`.
    pub executable: Option<bool>,
}

impl From<(String, Vec<u8>)> for SentFile {
    fn from((path, content): (String, Vec<u8>)) -> Self {
        Self { path, content, executable: None }
    }
}

impl Library {
    /// Opens the library in a directory, which is made if it is not there. Captures that a crash
    /// cut short are removed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let is_temporary =
                entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes());
            if is_temporary {
                remove_unused(&entry.path())?;
            }
        }
        Ok(Self { path })
    }

    /// Captures a directory of this machine. `.git` and `node_modules` are left out.
    pub fn capture_path(&self, path: &Path) -> Result<Definition, DeployError> {
        let mut staging = Staging::begin(&self.path)?;
        let without = Without { names: &capture::LEFT_OUT, paths: &BTreeSet::new() };
        capture::capture(path, &mut staging, without)?;
        let captured = staging.finish(&self.path)?;
        Ok(definition(captured, Source::Path(path.to_string_lossy().into_owned())))
    }

    /// Captures files that came one by one.
    pub fn capture_files(&self, files: Vec<SentFile>) -> Result<Definition, DeployError> {
        // All that can be told beforehand is: nothing is written for a list that will be refused.
        let mut outline = Outline::default();
        for file in &files {
            outline.take(&file.path)?;
            outline.weigh(file.content.len())?;
        }
        let mut staging = Staging::begin(&self.path)?;
        add(&mut staging, files)?;
        let captured = staging.finish(&self.path)?;
        Ok(definition(captured, Source::Files))
    }

    /// Captures a directory once more that was captured before: with files put in place of those that were there, and
    /// without others. What it was made from stays as it is.
    pub fn capture_changed(
        &self,
        base: &Definition,
        put: Vec<SentFile>,
        removed: &[String],
    ) -> Result<Definition, DeployError> {
        let mut staging = Staging::begin(&self.path)?;
        let paths = put.iter().map(|file| &file.path).chain(removed).cloned().collect();
        let without = Without { names: &[], paths: &paths };
        capture::capture(&self.directory(base), &mut staging, without).map_err(not_there)?;
        add(&mut staging, put)?;
        let captured = staging.finish(&self.path)?;
        Ok(definition(captured, Source::Files))
    }

    /// Where a captured directory is.
    pub fn directory(&self, definition: &Definition) -> PathBuf {
        self.path.join(&definition.digest)
    }

    /// Every file of a captured directory, by path. A link to a file is listed as a file.
    pub fn list(&self, definition: &Definition) -> io::Result<Vec<FileInfo>> {
        let root = File::open(self.directory(definition))?;
        let mut found = Vec::new();
        list_directory(&root, &paths::open_directory(&root, "")?, "", &mut found)?;
        found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// What is in a file of a captured directory.
    pub fn read(&self, definition: &Definition, path: &str) -> Result<Vec<u8>, ReadError> {
        let owned = || path.to_owned();
        let unavailable = |source| ReadError::Unavailable { path: owned(), source };
        if let Some(reason) = paths::fault(path) {
            return Err(ReadError::BadPath { path: owned(), reason });
        }
        let root = File::open(self.directory(definition)).map_err(unavailable)?;
        let lead = links::follow(path, |path| look(&root, path));
        match lead.map_err(|error| unavailable(error.into()))? {
            Lead::File(real) => read_file(&root, &real, MAX_BYTES).map_err(unavailable),
            Lead::Directory(_) => Err(ReadError::NotAFile { path: owned() }),
            Lead::Nothing | Lead::Outside | Lead::Circle => {
                Err(ReadError::NotFound { path: owned() })
            }
        }
    }
}

fn add(staging: &mut Staging, files: Vec<SentFile>) -> Result<(), DeployError> {
    for SentFile { path, content, executable } in files {
        let can_run = executable.unwrap_or_else(|| content.starts_with(b"#!"));
        let executable = if can_run { Executable::Yes } else { Executable::No };
        staging.add_file(&path, executable, &mut content.as_slice(), Path::new(&path))?;
    }
    Ok(())
}

/// What is in the library and cannot be read is nothing that a caller could have done better.
fn not_there(error: DeployError) -> DeployError {
    match error {
        DeployError::Unreadable { source, .. } => DeployError::Unavailable(source),
        DeployError::NotADirectory { .. } => {
            DeployError::Unavailable(io::ErrorKind::NotADirectory.into())
        }
        DeployError::NoInstructions
        | DeployError::BadPath { .. }
        | DeployError::SpecialFile { .. }
        | DeployError::BadLink { .. }
        | DeployError::TooManyFiles { .. }
        | DeployError::TooLarge { .. }
        | DeployError::Manifest { .. }
        | DeployError::Unavailable(_) => error,
    }
}

fn definition(captured: Captured, source: Source) -> Definition {
    let Captured { digest, files, bytes, manifest } = captured;
    Definition { digest, files, bytes, manifest, source }
}

/// Removes what a capture left behind. What somebody is capturing into at this moment is locked, and
/// is passed over; what another server has removed or named meanwhile is not there any more.
fn remove_unused(path: &Path) -> io::Result<()> {
    let removed = File::open(path).and_then(|root| {
        match flock(&root, FlockOperation::NonBlockingLockExclusive) {
            // The lock is held until all is removed.
            Ok(()) => fs::remove_dir_all(path),
            Err(Errno::WOULDBLOCK) => Ok(()),
            Err(error) => Err(error.into()),
        }
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// What lies at a path without links in it.
fn look(root: &File, path: &str) -> Result<Node, Errno> {
    let (parent, name) = paths::split(path);
    let stat = paths::open_directory(root, parent)
        .and_then(|parent| Ok((statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?, parent)));
    let (stat, parent) = match stat {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Node::Missing),
        Err(error) => return Err(error),
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else was ever captured")]
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(Node::Directory),
        FileType::RegularFile => Ok(Node::File),
        FileType::Symlink => {
            let target = readlinkat(&parent, name, Vec::new())?;
            Ok(Node::Link(target.into_string().map_err(|_| Errno::ILSEQ)?))
        }
        _ => Ok(Node::Missing),
    }
}

fn list_directory(
    root: &File,
    directory: &OwnedFd,
    above: &str,
    found: &mut Vec<FileInfo>,
) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { return Err(Errno::ILSEQ.into()) };
        if name == "." || name == ".." {
            continue;
        }
        let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
        match look(root, &path)? {
            Node::Directory => {
                list_directory(root, &paths::open_directory(directory, name)?, &path, found)?;
            }
            Node::File | Node::Link(_) => {
                // A link is as large and as old as what it leads to.
                if let Lead::File(real) = links::follow(&path, |path| look(root, path))? {
                    let (parent, name) = paths::split(&real);
                    let parent = paths::open_directory(root, parent)?;
                    let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    found.push(file_info(path, &stat));
                }
            }
            Node::Missing => {}
        }
    }
    Ok(())
}

fn file_info(path: String, stat: &Stat) -> FileInfo {
    let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    let millis = stat.st_mtime.saturating_mul(1000).saturating_add(nanos / 1_000_000);
    FileInfo {
        path,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: Timestamp::from_millis(millis),
    }
}
