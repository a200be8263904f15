//! Makes what was written durable while more is being written, so that little is left to wait for at
//! the end.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::syncfs;

/// How many bytes are written until it is worth while.
const WORTH_WHILE: u64 = 16 * 1024 * 1024;

/// How much is written and not durable.
#[derive(Default)]
pub(super) struct Flushing {
    shared: Mutex<Shared>,
    more: Condvar,
}

#[derive(Default)]
struct Shared {
    written: u64,
    ended: bool,
    failed: Option<io::Error>,
}

impl Flushing {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes more were written.
    pub(super) fn add(&self, bytes: u64) {
        let mut shared = self.lock();
        shared.written += bytes;
        if shared.written >= WORTH_WHILE {
            self.more.notify_one();
        }
    }

    /// Does something, and flushes meanwhile. A failure that is told here is not told a second time
    /// by the system.
    pub(super) fn during<T>(&self, at: BorrowedFd<'_>, work: impl FnOnce() -> T) -> io::Result<T> {
        let done = std::thread::scope(|scope| {
            scope.spawn(|| self.flush(at));
            let _ended = Ended(self);
            work()
        });
        match self.lock().failed.take() {
            Some(failed) => Err(failed),
            None => Ok(done),
        }
    }

    fn flush(&self, at: BorrowedFd<'_>) {
        let mut shared = self.lock();
        while !shared.ended && shared.failed.is_none() {
            if shared.written < WORTH_WHILE {
                shared = self.more.wait(shared).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            shared.written = 0;
            drop(shared);
            let flushed = syncfs(at);
            shared = self.lock();
            shared.failed = flushed.err().map(io::Error::from);
        }
    }
}

/// Ends the flushing when it is dropped, whatever happened.
struct Ended<'a>(&'a Flushing);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.more.notify_one();
    }
}
