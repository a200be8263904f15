//! Whether there is space for what is to be made, before any of it is.

use std::collections::HashMap;

use rustix::fs::fstatvfs;

use super::make::Making;
use super::plan::ToMake;
use crate::chunks::Chunks;
use crate::content::{Content, Item};
use crate::error::{Result, SnapshotError};
use crate::repository::Repository;
use crate::verify::ContentKey;

impl Making<'_> {
    /// Refuses files that the file system has no space for. A few bytes of a store can name more than all disks
    /// have: nobody should write until the disk is full to find out.
    pub(super) fn check_space(&self, files: &[ToMake]) -> Result<()> {
        // One that does not say is found out about.
        let Ok(found) = fstatvfs(self.root) else { return Ok(()) };
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if found.f_blocks == 0 || !is_more(self.repository, files, free) {
            return Ok(());
        }
        Err(SnapshotError::TooMuch { what: "bytes, and there is no space for more", most: free })
    }
}

/// Whether files have more bytes than this, without those in holes.
fn is_more(repository: &Repository, files: &[ToMake], most: u64) -> bool {
    let sizes = files.iter().map(|file| file.content.size);
    if sizes.fold(0, u64::saturating_add) <= most {
        return false;
    }
    // Only then it is worth while to look for holes.
    let mut looking = Looking { chunks: Chunks::of(repository), known: HashMap::new() };
    let mut bytes = 0_u64;
    files.iter().any(|file| {
        bytes = bytes.saturating_add(looking.bytes(file.content));
        bytes > most
    })
}

struct Looking<'a> {
    chunks: Chunks<'a>,
    /// Lists that were looked into: each once, however often it is named.
    known: HashMap<ContentKey, u64>,
}

impl Looking<'_> {
    /// How many bytes a content has beside its runs of zeros.
    fn bytes(&mut self, content: Content) -> u64 {
        if content.depth == 0 {
            return content.size;
        }
        if let Some(bytes) = self.known.get(&content.key()) {
            return *bytes;
        }
        let bytes = match self.chunks.list(content) {
            Ok(items) => items.into_iter().fold(0, |sum: u64, item| match item {
                Item::Zeros(_) => sum,
                Item::Bytes(below) => sum.saturating_add(self.bytes(below)),
            }),
            // Whoever reads it finds out what is wrong, and writes nothing of it.
            Err(_) => 0,
        };
        self.known.insert(content.key(), bytes);
        bytes
    }
}
