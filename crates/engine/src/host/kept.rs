//! What is captured of a session's files, and what goes.

use ash_core::id::{SnapshotId, TenantId};
use ash_core::snapshot::{Captured, PersistOutcome, Snapshot};
use tokio::sync::oneshot;

use super::SandboxRef;

/// What is to be captured.
#[derive(Clone, Copy, Debug)]
pub struct Persist<'a> {
    /// The sandbox that works on it, or the last one that did.
    pub sandbox: SandboxRef,
    /// Whose it is.
    pub tenant: &'a TenantId,
    /// A snapshot that is as good, if nothing has changed since.
    pub unless_like: Option<SnapshotId>,
    /// Not if nothing but the bridge runs in the sandbox.
    pub only_if_busy: bool,
    /// The last snapshot of files that could be relied on: if these cannot be, they are put right by it first.
    pub proven: Option<&'a Snapshot>,
}

/// What came of a capture that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persisted {
    /// There is a snapshot.
    Captured(Captured),
    /// The files could not be relied on, and some were not what they should be.
    PutRight {
        /// What they were.
        as_found: Captured,
        /// What they are.
        captured: Captured,
    },
    /// Nothing has changed, or nothing runs that could have changed it.
    Unchanged,
    /// There are no files where the session's should be.
    Gone,
}

impl Persisted {
    /// The same, as a session is told of it.
    pub(crate) fn outcome(self) -> PersistOutcome {
        match self {
            Self::Captured(captured) => PersistOutcome::Captured(captured),
            Self::PutRight { as_found, captured } => {
                PersistOutcome::PutRight { as_found, captured }
            }
            Self::Unchanged => PersistOutcome::Unchanged,
            Self::Gone => PersistOutcome::Gone,
        }
    }
}

/// Files that are to be removed.
#[derive(Clone, Copy, Debug)]
pub struct PutAway<'a> {
    /// The last sandbox that worked on them.
    pub sandbox: SandboxRef,
    /// Whose they are.
    pub tenant: &'a TenantId,
    /// What has them too.
    pub snapshot: SnapshotId,
}

/// What became of files that were to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// They are gone, or were not there.
    Gone,
    /// Somebody wants them, or works with them.
    Wanted,
    /// They are not as in the snapshot.
    Changed,
    /// The snapshot cannot be read whole.
    Unsaved,
}

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// How many snapshots were forgotten.
    pub forgotten: u64,
    /// How many bytes were removed, of snapshots that were forgotten before.
    pub removed_bytes: u64,
}

/// Held for as long as a sandbox stands still, or is about to, for a capture. What is to be done with it next
/// waits for that.
#[derive(Debug)]
pub struct StandStill(oneshot::Sender<()>);

impl StandStill {
    /// One, and what waits for its end.
    pub(crate) fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    /// Everything moves again.
    pub fn is_over(self) {
        // Whoever waited may have gone.
        let _nobody_waits = self.0.send(());
    }
}
