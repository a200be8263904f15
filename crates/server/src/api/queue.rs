//! The queue on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A prompt to be worked on when there is room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewQueueItem {
    /// The agent that is to work on it.
    #[schema(min_length = 1, max_length = 255)]
    pub agent_name: String,
    /// What is said.
    #[schema(min_length = 1, max_length = 500_000, pattern = "\\S")]
    pub prompt: String,
    /// The session that it is for; nothing: a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Uuid>,
    /// What has more comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 2_147_483_647)]
    pub priority: Option<u32>,
    /// How often it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub max_retries: Option<u32>,
}

/// Where an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueueItemStatus {
    /// It waits: for room, or to be tried again.
    Pending,
    /// It is worked on.
    Processing,
    /// It was done.
    Completed,
    /// It could not be done.
    Failed,
    /// It was withdrawn, or somebody ended its run.
    Cancelled,
}

impl QueueItemStatus {
    /// The name of this status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A prompt in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueItem {
    /// Its id.
    pub id: Uuid,
    /// Whose it is.
    pub tenant_id: String,
    /// Its session, once there is one.
    pub session_id: Option<Uuid>,
    /// The agent that works on it.
    pub agent_name: String,
    /// What is said.
    pub prompt: String,
    /// Where it stands.
    pub status: QueueItemStatus,
    /// What has more comes first.
    pub priority: u32,
    /// How often it was tried again.
    pub retry_count: u32,
    /// How often it is tried again at the most.
    pub max_retries: u32,
    /// What went wrong last, in a sentence.
    pub error: Option<String>,
    /// The stable name of what went wrong last.
    pub error_code: Option<String>,
    /// The run of its latest attempt, once that was sent.
    pub run_id: Option<Uuid>,
    /// What the agent said last, if it was completed: at most 64 KB.
    pub result: Option<String>,
    /// Why its run ended, if it was completed.
    pub stop_reason: Option<String>,
    /// When it was added.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it was first worked on.
    #[schema(format = DateTime)]
    pub started_at: Option<String>,
    /// When it was over.
    #[schema(format = DateTime)]
    pub completed_at: Option<String>,
}

/// A prompt in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueItemBody {
    /// The item.
    pub item: QueueItem,
}

/// A page of the queue, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueItems {
    /// The items.
    pub items: Vec<QueueItem>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// How many items stand how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueCounts {
    /// Those that wait.
    pub pending: u64,
    /// Those that are worked on.
    pub processing: u64,
    /// Those that were done.
    pub completed: u64,
    /// Those that could not be done.
    pub failed: u64,
    /// Those that were withdrawn.
    pub cancelled: u64,
}

/// How many items stand how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueStats {
    /// The figures.
    pub stats: QueueCounts,
}
