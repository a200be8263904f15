//! Room on the disk that is kept for the server's own records.
//!
//! What makes room has to be recorded first, and a disk that sandboxes have filled to the last byte has no room for that
//! either. So some is taken while there is plenty, by files that nobody reads, and given up when it is needed: one when
//! the disk is found to be full. A sandbox that goes on writing takes that as well. So if the disk is still full some
//! seconds later, the sandbox whose files take most is ended, and then the other one is given up.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use tokio::time::Instant;

use super::inner::Inner;

/// How much each of them keeps, at the most and at the least.
pub(super) const RESERVE: u64 = 16 * 1024 * 1024;
const LEAST: u64 = 1024 * 1024;

/// Which part of a small disk each of them keeps.
const SHARE: u64 = 16;

/// So many times as much has to be free before it is taken.
const PLENTY: u64 = 8;

const NAME: &str = "reserve";

/// The one that is given up last.
const LAST: &str = "reserve.last";

/// For how long a disk is full, after room was given up, until a sandbox is ended for it.
const STILL_FULL: Duration = Duration::from_secs(5);

/// Gives up room that was kept on a disk that is full, for a server that starts. Says whether there was any.
pub fn give_up_reserve(data: &Path) -> bool {
    let is_full = Disk::of(data).is_some_and(|disk| disk.is_full());
    let given_up =
        is_full && [NAME, LAST].iter().any(|name| fs::remove_file(data.join(name)).is_ok());
    if given_up {
        tracing::warn!("the disk is full: room that was kept for records is given up");
    }
    given_up
}

/// The disk that the data are on.
pub(super) struct Disk {
    pub(super) free: u64,
    /// How much of it each of the two keeps.
    reserve: u64,
}

impl Disk {
    pub(super) fn of(data: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(data).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let reserve = (bytes(found.f_blocks) / SHARE).min(RESERVE);
        Some(Self { free: bytes(found.f_bavail), reserve })
    }

    const fn is_full(&self) -> bool {
        self.free < self.reserve / 2
    }

    const fn has_plenty(&self) -> bool {
        self.reserve >= LEAST && self.free / PLENTY >= self.reserve
    }
}

impl Inner {
    /// Takes the room, if there is plenty and it is not taken.
    pub(super) fn keep_reserve(&self) {
        for name in [NAME, LAST] {
            if let Some(disk) = Disk::of(&self.options.data).filter(Disk::has_plenty) {
                self.keep(name, disk.reserve);
            }
        }
    }

    fn keep(&self, name: &str, wanted: u64) {
        let path = self.options.data.join(name);
        if fs::metadata(&path).is_ok_and(|found| found.len() >= wanted) {
            return;
        }
        let taken = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let taken = taken.and_then(|file| {
            // Holes would keep nothing.
            rustix::fs::fallocate(file, FallocateFlags::empty(), 0, wanted).map_err(io::Error::from)
        });
        if let Err(error) = taken {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "no room on the disk is kept for records");
            let _nothing_is_kept = fs::remove_file(&path);
        }
    }

    /// Gives the room up, if the disk is full.
    pub(super) fn use_reserve(self: &Arc<Self>) {
        if Disk::of(&self.options.data).is_none_or(|disk| !disk.is_full()) {
            self.state().full_since = None;
            return;
        }
        if fs::remove_file(self.options.data.join(NAME)).is_ok() {
            tracing::warn!("the disk is full: room that was kept for records is given up");
            self.state().full_since = Some(Instant::now());
            return;
        }
        // Where there is nothing more to give up, ending a sandbox would not help whoever records.
        if fs::metadata(self.options.data.join(LAST)).is_err() || !self.is_full_for_long() {
            return;
        }
        let host = Arc::clone(self);
        self.tasks.spawn(async move {
            host.end_fullest(RESERVE).await;
            if fs::remove_file(host.options.data.join(LAST)).is_ok() {
                tracing::warn!("the disk is still full: the last room for records is given up");
            }
            let mut state = host.state();
            (state.full_since, state.makes_room) = (None, false);
        });
    }

    /// Whether the disk has been full for long, and nobody makes room yet.
    fn is_full_for_long(&self) -> bool {
        let mut state = self.state();
        let since = *state.full_since.get_or_insert_with(Instant::now);
        since.elapsed() >= STILL_FULL && !std::mem::replace(&mut state.makes_room, true)
    }
}
