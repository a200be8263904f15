//! Everything stands still, and for how long.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Freeze;
use crate::error::{Result, SnapshotError};

/// Everything stands still, until the budget is spent and somebody watches, or this is dropped.
pub(super) struct Frozen<'a> {
    freeze: &'a dyn Freeze,
    since: Instant,
    budget: Duration,
    end: Mutex<Option<End>>,
}

/// How it ended.
struct End {
    after: Duration,
    thawed: io::Result<()>,
}

impl<'a> Frozen<'a> {
    pub(super) fn begin(freeze: &'a dyn Freeze, budget: Duration) -> Result<Self> {
        freeze.freeze().map_err(SnapshotError::tree("freeze the writers of", ""))?;
        Ok(Self { freeze, since: Instant::now(), budget, end: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Option<End>> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_spent(&self) -> bool {
        self.since.elapsed() >= self.budget
    }

    /// Whether everything goes on already.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_some()
    }

    /// Lets everything go on, if the budget is spent.
    pub(super) fn watch(&self) {
        if self.is_spent() {
            self.thaw();
        }
    }

    /// Lets everything go on, once.
    fn thaw(&self) {
        self.lock().get_or_insert_with(|| {
            let thawed = self.freeze.thaw();
            End { after: self.since.elapsed(), thawed }
        });
    }

    /// Returns how long it took.
    pub(super) fn end(self) -> Result<Duration> {
        self.thaw();
        let End { after, thawed } = self.lock().take().expect("it was thawed just now");
        // Nobody thaws a second time.
        *self.lock() = Some(End { after, thawed: Ok(()) });
        thawed.map_err(SnapshotError::tree("thaw the writers of", ""))?;
        Ok(after)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // Where it was not before, the capture has failed already, with an error that says more.
        self.thaw();
    }
}
