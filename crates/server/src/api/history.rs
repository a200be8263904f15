//! Points of a session's history.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Session;

/// Where a new session begins. Without anything, where the other one is now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkSession {
    /// When this snapshot was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<Uuid>,
    /// At the end of this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
}

/// Where a session goes back to: one of the first two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RewindSession {
    /// To when this snapshot was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<Uuid>,
    /// To the end of this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
}

/// How many files differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeCounts {
    /// So many are there that were not.
    pub added: u64,
    /// So many are others than they were.
    pub modified: u64,
    /// So many are gone.
    pub removed: u64,
}

/// A session that went back, and what became of its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rewound {
    /// The session.
    pub session: Session,
    /// What became of its files, or would.
    pub changes: ChangeCounts,
    /// Of how many files it cannot be said that they are what they were at that point.
    #[serde(default)]
    pub unverified: u64,
}

/// How the files of two snapshots differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotDiff {
    /// The snapshot.
    pub snapshot_id: Uuid,
    /// The one that it is compared with; none, if that is an empty workspace.
    #[schema(required)]
    pub against: Option<Uuid>,
    /// How many files differ.
    pub changes: ChangeCounts,
    /// The files, by path.
    pub files: Vec<FileDiff>,
    /// How many more differ than are named.
    pub left_out: u64,
}

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileDiff {
    /// Its path in the workspace.
    pub path: String,
    /// What became of it.
    pub change: FileChange,
    /// How large it was, if it was there.
    #[schema(required)]
    pub size_before: Option<u64>,
    /// How large it is, if it is there.
    #[schema(required)]
    pub size_after: Option<u64>,
    /// The lines that differ, as `patch` reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Why they are not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<Omitted>,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// It is new.
    Added,
    /// It is another.
    Modified,
    /// It is gone.
    Removed,
}

/// Why the lines of a file are not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Omitted {
    /// It is no text.
    Binary,
    /// It is larger than is shown, or too much was shown already.
    TooLarge,
}
