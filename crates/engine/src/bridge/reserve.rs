//! Room on the disk that is kept for the server's own records.
//!
//! What makes room has to be recorded first, and a disk that sandboxes have filled to the last byte has no room for that
//! either. So some is taken while there is plenty, by a file that nobody reads, and given up when it is needed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::FallocateFlags;

use super::inner::Inner;

/// How much is kept.
pub(super) const RESERVE: u64 = 16 * 1024 * 1024;

/// So many times as much has to be free before it is taken.
const PLENTY: u64 = 8;

const NAME: &str = "reserve";

impl Inner {
    /// Takes the room, if there is plenty and it is not taken.
    pub(super) fn keep_reserve(&self) {
        let path = self.options.data.join(NAME);
        let is_there = fs::metadata(&path).is_ok_and(|found| found.len() >= RESERVE);
        let has_plenty = self.free_bytes().is_some_and(|free| free >= PLENTY * RESERVE);
        if is_there || !has_plenty {
            return;
        }
        let taken = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let taken = taken.and_then(|file| {
            // Holes would keep nothing.
            rustix::fs::fallocate(file, FallocateFlags::empty(), 0, RESERVE)
                .map_err(io::Error::from)
        });
        if let Err(error) = taken {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "no room on the disk is kept for records");
            let _nothing_is_kept = fs::remove_file(&path);
        }
    }

    /// Gives the room up, if the disk is full.
    pub(super) fn use_reserve(&self) {
        if self.free_bytes().is_none_or(|free| free >= RESERVE / 2) {
            return;
        }
        if fs::remove_file(self.options.data.join(NAME)).is_ok() {
            tracing::warn!("the disk is full: room that was kept for records is given up");
        }
    }
}
