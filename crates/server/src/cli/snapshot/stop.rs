//! Ctrl-C and SIGTERM: work ends at the next step, and leaves nothing half done behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::Context as _;
use ash_snapshot::SnapshotError;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::cli::exit::Mistake;

/// Listens for the signals that end a command.
pub(super) struct Stop {
    /// Which came, or 0.
    told: Arc<AtomicI32>,
    /// Who listens: a thread of its own. It ends with this.
    _listening: (JoinSet<()>, Runtime),
}

impl Stop {
    /// From now on the first signal is only taken note of. A second one ends the process at once: a store may take
    /// its time to answer.
    pub(super) fn listen() -> anyhow::Result<Self> {
        let failed = "could not listen for signals";
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_io()
            .build()
            .context(failed)?;
        let (mut interrupt, mut terminate) = {
            let _entered = runtime.enter();
            let listen = |kind| signal(kind).context(failed);
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
        };
        let told = Arc::new(AtomicI32::new(0));
        let mut listening = JoinSet::new();
        let tell = Arc::clone(&told);
        let listen = async move {
            loop {
                let kind = tokio::select! {
                    _ = interrupt.recv() => SignalKind::interrupt(),
                    _ = terminate.recv() => SignalKind::terminate(),
                };
                if tell.swap(kind.as_raw_value(), Ordering::Relaxed) != 0 {
                    std::process::exit(128 + kind.as_raw_value());
                }
            }
        };
        listening.spawn_on(listen, runtime.handle());
        Ok(Self { told, _listening: (listening, runtime) })
    }

    /// The signal that came, if one did.
    pub(super) fn signal(&self) -> Option<i32> {
        Some(self.told.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// What came of work that a signal may have stopped.
    pub(super) fn of<T>(&self, done: Result<T, SnapshotError>) -> Result<T, anyhow::Error> {
        match (done, self.signal()) {
            (Err(SnapshotError::Cancelled), Some(signal)) => Err(Mistake::Stopped(signal).into()),
            (done, _) => done.map_err(super::of),
        }
    }
}
