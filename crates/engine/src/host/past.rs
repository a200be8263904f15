//! What a host may ask about a session that it starts, and what it says of its files before.

use std::fmt;

use ash_core::failure::Failure;
use ash_core::id::SnapshotId;
use ash_core::lineage::Lineage;
use ash_core::number::Seq;
use ash_core::session::LogEntry;
use ash_store::{Place, StoredSnapshot};
use async_trait::async_trait;

use super::HostError;

/// The log of a session and its snapshots, for a host that has to make an agent's record anew, or has to bring files
/// back. Most starts never ask.
#[async_trait]
pub trait Past: fmt::Debug + Send + Sync {
    /// Which turns the conversation is made of.
    async fn lineage(&self) -> Result<Lineage, HostError>;

    /// The entries after one, in order: some of them, and none only at the end.
    async fn entries_after(&self, after: Seq) -> Result<Vec<LogEntry>, HostError>;

    /// The snapshots that files may be brought back from, the best first: the last one, the last good one, and
    /// earlier ones of the same branch, latest first.
    async fn snapshots(&self) -> Result<Vec<StoredSnapshot>, HostError>;

    /// Takes note that a snapshot is not whole there any more.
    async fn lost(&self, snapshot: SnapshotId, place: Place);
}

/// What a start of a session would find of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// They are in place.
    InPlace,
    /// A snapshot has them, or some of them, on this machine.
    Stored,
    /// Nothing.
    Nothing,
}

/// Why nobody can say what a start would find.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// The host could not look.
    #[error(transparent)]
    Host(#[from] HostError),
    /// They are somewhere, and cannot be had.
    #[error("{}", .0.message)]
    Failed(Failure),
}
