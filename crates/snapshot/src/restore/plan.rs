//! What is to be made of a tree, within bounds.

use std::collections::HashSet;

use super::Restore;
use crate::content::Content;
use crate::error::{Result, SnapshotError};
use crate::file::Attributes;
use crate::tree::{Entry, Kind, Modified};

/// How many bytes of names and attributes are held in memory at the most: enough for some million files.
pub(super) const MAX_HELD: u64 = 1024 * 1024 * 1024;

/// A file to make.
pub(super) struct ToMake {
    pub(super) path: Vec<u8>,
    pub(super) content: Content,
    pub(super) meta: Meta,
}

/// What something is given when its contents are there.
#[derive(Clone)]
pub(super) struct Meta {
    pub(super) mode: u32,
    pub(super) modified: Modified,
    pub(super) attributes: Attributes,
}

/// Everything that is to be made, but for what was made while it was found.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) files: Vec<ToMake>,
    pub(super) directories: Vec<(Vec<u8>, Meta)>,
    pub(super) links: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) entries: u64,
    pub(super) bytes: u64,
    /// How many bytes of paths, targets and attributes are held.
    pub(super) held: u64,
}

impl Plan {
    /// Takes account of an entry, before anything is made of it.
    pub(super) fn count(
        &mut self,
        entry: &Entry,
        above: usize,
        restore: &Restore<'_>,
    ) -> Result<()> {
        self.entries += 1;
        let attributes = entry.attributes.iter().map(|(name, value)| name.len() + value.len());
        let target = match &entry.kind {
            Kind::File(_) | Kind::Directory(_) | Kind::Symlink(_) => 0,
            Kind::HardLink(target) => target.len(),
        };
        self.held += (above + 1 + entry.name.len() + target) as u64;
        self.held += attributes.sum::<usize>() as u64;
        if self.held > MAX_HELD {
            return Err(SnapshotError::TooMuch { what: "bytes of names", most: MAX_HELD });
        }
        if let Kind::File(content) = &entry.kind {
            self.count_bytes(content.size, restore)?;
        }
        if self.entries > restore.max_entries {
            return Err(SnapshotError::TooMuch { what: "names", most: restore.max_entries });
        }
        Ok(())
    }

    /// Takes account of the bytes of a file.
    pub(super) fn count_bytes(&mut self, size: u64, restore: &Restore<'_>) -> Result<()> {
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > restore.max_bytes {
            return Err(SnapshotError::TooMuch { what: "bytes", most: restore.max_bytes });
        }
        Ok(())
    }
}

/// What has to be done to a directory that is there.
#[derive(Default)]
pub(super) struct Changes {
    /// Directories to make, those above first.
    pub(super) directories: Vec<Vec<u8>>,
    pub(super) files: Vec<ToMake>,
    pub(super) symlinks: Vec<(Vec<u8>, Vec<u8>, Meta)>,
    /// Further names of files, and the files.
    pub(super) links: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) removals: Vec<Vec<u8>>,
    /// Directories in which something is done although their owner may not, and their modes.
    pub(super) locked: Vec<(Vec<u8>, u32)>,
    /// What directories are given in the end, those above first.
    pub(super) settle: Vec<(Vec<u8>, Meta)>,
    /// Files that are left because of their looks alone.
    pub(super) doubtful: HashSet<Vec<u8>>,
}
