//! The files of a workspace that is not there any more, as a snapshot has them.
//!
//! Lists need only the snapshot's directories. What is to be read is put for a moment where nobody else finds it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ash_core::time::Timestamp;
use ash_snapshot::{Damaged, Entry, Kind, Modified, Repository, Restore, SnapshotError};

use super::beneath::Tree;
use super::list::{Directories, Listed, Listing, MAX_DIRECTORIES, Scope};
use super::path::FilePath;
use super::{FileError, MAX_FILES, MAX_HELD_BYTES, MAX_SEEN, OpenFile};

/// How much of a snapshot is put somewhere to be packed, at the most: what a bundle leaves out is among it.
const MAX_RESTORED_BYTES: u64 = 16 * 1024 * 1024 * 1024;

/// The files of a snapshot.
#[derive(Clone)]
pub struct Stored {
    repository: Repository,
    tree: ash_snapshot::Tree,
    /// A directory for what is needed for a moment.
    scratch: PathBuf,
}

/// A directory that is gone when it is dropped. What cannot be removed is at the next start.
struct Moment(PathBuf);

impl Drop for Moment {
    fn drop(&mut self) {
        let _later = fs::remove_dir_all(&self.0);
    }
}

impl Stored {
    pub(crate) fn new(repository: Repository, tree: ash_snapshot::Tree, scratch: PathBuf) -> Self {
        Self { repository, tree, scratch }
    }

    /// The ordinary files beneath a directory, or a file alone.
    pub fn list(&self, under: &FilePath, scope: Scope) -> Result<Listing, FileError> {
        if !under.is_root() {
            let entry = self.entry(under.as_bytes())?;
            match &entry.kind {
                Kind::Directory(_) => {}
                Kind::File(_) | Kind::HardLink(_) => {
                    let files = vec![self.listed(under.clone(), &entry)?];
                    return Ok(Listing { files, truncated: false });
                }
                Kind::Symlink(_) => return Err(FileError::NotAFile),
            }
        }
        let mut listing = Listing::default();
        let mut links = BTreeMap::new();
        let mut held = 0;
        let walked = self.walk(under, |path, below, entry| {
            if below.split(|&byte| byte == b'/').any(|name| scope.leaves_out(name)) {
                return Ok(());
            }
            let Ok(path) = FilePath::file(path) else {
                listing.truncated = true;
                return Ok(());
            };
            held += path.as_bytes().len();
            if listing.files.len() + links.len() >= MAX_FILES || held > MAX_HELD_BYTES {
                return Err(SnapshotError::Cancelled);
            }
            match &entry.kind {
                Kind::File(_) => listing.files.push(listed(path, entry)),
                Kind::HardLink(target) => drop(links.insert(path, target.clone())),
                Kind::Directory(_) | Kind::Symlink(_) => {}
            }
            Ok(())
        })?;
        listing.truncated |= !walked;
        for (path, target) in links {
            listing.files.push(listed(path, &self.entry(&target)?));
        }
        listing.files.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(listing)
    }

    /// The directories right beneath a directory; of a file there are none.
    pub fn directories(&self, under: &FilePath) -> Result<Directories, FileError> {
        let mut found = Directories::default();
        let walked = self.walk(under, |path, below, entry| {
            if below.contains(&b'/') || !matches!(entry.kind, Kind::Directory(_)) {
                return Ok(());
            }
            if found.paths.len() >= MAX_DIRECTORIES {
                return Err(SnapshotError::Cancelled);
            }
            found.paths.extend(FilePath::file(path));
            Ok(())
        })?;
        found.are_more = !walked;
        found.paths.sort_unstable();
        Ok(found)
    }

    /// Opens an ordinary file for reading, if it is no larger than wanted.
    pub fn read(&self, path: &FilePath, most: u64) -> Result<OpenFile, FileError> {
        let entry = self.entry(path.as_bytes())?;
        let target = match &entry.kind {
            Kind::HardLink(target) => target.clone(),
            Kind::File(_) => path.as_bytes().to_owned(),
            Kind::Directory(_) | Kind::Symlink(_) => return Err(FileError::NotAFile),
        };
        let Listed { size, modified, .. } = self.listed(path.clone(), &entry)?;
        if size > most {
            return Err(FileError::TooLarge { size, most });
        }
        let moment = self.moment()?;
        let place = moment.0.join("file");
        self.restore(&target, &place, most)?;
        Ok(OpenFile { file: File::open(place)?, size, modified })
    }

    /// Packs everything into a file without a name. Returns it with its size.
    pub fn pack(&self) -> Result<(File, u64), FileError> {
        let moment = self.moment()?;
        let place = moment.0.join("tree");
        self.restore(b"", &place, MAX_RESTORED_BYTES)?;
        Tree::open(&place)?.pack()
    }

    fn entry(&self, path: &[u8]) -> Result<Entry, FileError> {
        self.repository.entry(&self.tree, path).map_err(lost)
    }

    /// An entry that is a file, or another name of one.
    fn listed(&self, path: FilePath, entry: &Entry) -> Result<Listed, FileError> {
        match &entry.kind {
            Kind::HardLink(target) => Ok(listed(path, &self.entry(target)?)),
            Kind::File(_) | Kind::Directory(_) | Kind::Symlink(_) => Ok(listed(path, entry)),
        }
    }

    /// Visits what is beneath a directory: each with its path, and its path from there. Says whether that was all.
    fn walk(
        &self,
        under: &FilePath,
        mut each: impl FnMut(&[u8], &[u8], &Entry) -> Result<(), SnapshotError>,
    ) -> Result<bool, FileError> {
        let walked = self.repository.walk(&self.tree, MAX_SEEN as u64, &mut |path, entry| {
            let below = match path.strip_prefix(under.as_bytes()) {
                Some(below) if under.is_root() => Some(below),
                Some(below) => below.strip_prefix(b"/"),
                None => None,
            };
            below.map_or(Ok(()), |below| each(path, below, entry))
        });
        match walked {
            Ok(()) => Ok(true),
            Err(SnapshotError::Cancelled | SnapshotError::TooMuch { .. }) => Ok(false),
            Err(error) => Err(lost(error)),
        }
    }

    fn restore(&self, path: &[u8], target: &Path, max_bytes: u64) -> Result<(), FileError> {
        let restored = self.repository.restore(&Restore {
            tree: &self.tree,
            path,
            damaged: Damaged::Refuse,
            target,
            owner: None,
            max_entries: MAX_SEEN as u64,
            max_bytes,
            threads: 1,
            progress: &|_| true,
        });
        match restored {
            Ok(_) => Ok(()),
            Err(SnapshotError::TooMuch { .. }) => Err(FileError::TooMuch(
                "its snapshot is larger than what is put somewhere for that",
            )),
            Err(error) => Err(lost(error)),
        }
    }

    fn moment(&self) -> Result<Moment, FileError> {
        let name = format!("view-{}", ash_snapshot::SnapshotId::new());
        let path = self.scratch.join(name);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(Moment(path))
    }
}

fn listed(path: FilePath, entry: &Entry) -> Listed {
    let Modified { seconds, nanoseconds } = entry.modified;
    let millis = seconds.saturating_mul(1000).saturating_add(i64::from(nanoseconds / 1_000_000));
    let modified = Timestamp::from_millis(millis);
    Listed { path, size: entry.size(), modified, executable: entry.mode & 0o100 != 0 }
}

/// A path that is not in a snapshot is not found; whatever else is wrong is not the caller's doing.
fn lost(error: SnapshotError) -> FileError {
    match error {
        SnapshotError::Missing(what) if what.contains(" in the tree ") => FileError::NotFound,
        SnapshotError::Tree { source, .. } => source.into(),
        SnapshotError::Store { .. }
        | SnapshotError::Damaged { .. }
        | SnapshotError::Unreadable { .. }
        | SnapshotError::Missing(_)
        | SnapshotError::Format(_)
        | SnapshotError::Exists(_)
        | SnapshotError::TooMuch { .. }
        | SnapshotError::Collected
        | SnapshotError::Cancelled => FileError::Unavailable(io::Error::other(error)),
    }
}
