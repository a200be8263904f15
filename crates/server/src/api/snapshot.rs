//! Snapshots of what sessions work on.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The last snapshot of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSnapshot {
    /// Its id.
    pub id: Uuid,
    /// The last entry of the log when it was made.
    pub seq: u64,
    /// The turn that the conversation was at.
    pub turn: u32,
    /// When it was made.
    #[schema(format = DateTime)]
    pub at: String,
    /// How many files the workspace had.
    pub files: u64,
    /// How large they were together.
    pub bytes: u64,
}

/// Why files were not captured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotFailure {
    /// What went wrong.
    pub message: String,
    /// How often it was tried since it last succeeded.
    pub attempts: u32,
    /// When it was tried last.
    #[schema(format = DateTime)]
    pub at: String,
}

/// A snapshot of what a session works on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Its id.
    pub id: Uuid,
    /// The last entry of the log when it was made.
    pub seq: u64,
    /// The turn that the conversation was at.
    pub turn: u32,
    /// When it was made.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// How many files the workspace had.
    pub files: u64,
    /// How large they were together.
    pub bytes: u64,
    /// How much of all that was captured was in no snapshot before.
    pub new_bytes: u64,
    /// How many files were read, or looked at, after everything was allowed to move again.
    pub unfrozen: u64,
    /// How many files changed each time they were read, or between the moment it is of and when they were read.
    pub unstable: u64,
    /// Of how many files it cannot be said that they are what they were at that moment: those that are `unstable`, or
    /// all, if they were captured after the machine was restarted and there was nothing to hold them against.
    #[serde(default)]
    pub unverified: u64,
    /// Where it lies.
    pub location: SnapshotLocation,
}

/// Where a snapshot lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotLocation {
    /// On the machine of the server.
    pub local: bool,
    /// In the cloud.
    pub cloud: bool,
}

/// A session's snapshots, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshots {
    /// The snapshots.
    pub snapshots: Vec<Snapshot>,
}
