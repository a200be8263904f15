//! How far work is that several threads do.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ash_snapshot::Progress;

use super::stop::Stop;
use crate::cli::bar::Bar;
use crate::cli::output::Screen;

/// Tells how far something is, from several threads; and stops it when a signal came.
pub(super) struct Telling<'a> {
    bar: Mutex<Bar>,
    stop: &'a Stop,
}

impl<'a> Telling<'a> {
    pub(super) fn new(
        screen: &Screen,
        stop: &'a Stop,
        doing: &'static str,
        what: &'static str,
    ) -> Self {
        Self { bar: Mutex::new(Bar::new(screen, doing, what)), stop }
    }

    /// Answers whether to go on.
    pub(super) fn progress(&self, progress: Progress) -> bool {
        // Whoever finds it taken has nothing newer to say.
        if let Ok(mut bar) = self.bar.try_lock() {
            bar.update(progress);
        }
        self.stop.signal().is_none()
    }

    /// Makes room for the result.
    pub(super) fn end(self) {
        self.lock().wipe();
    }

    fn lock(&self) -> MutexGuard<'_, Bar> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
