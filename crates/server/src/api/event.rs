//! The log on the wire, as lists.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// One entry of a session's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its id, always the same.
    pub id: Uuid,
    /// Its place in event streams: the log's epoch and the sequence.
    pub cursor: String,
    /// Of which session.
    pub session_id: Uuid,
    /// Whose.
    pub tenant_id: String,
    /// What kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its fields, as a text of JSON.
    #[schema(required)]
    pub data: Option<String>,
    /// Its place in the log.
    pub sequence: u64,
    /// When it happened.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// A part of a session's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Events {
    /// The entries, in order.
    pub events: Vec<Event>,
    /// Whether there are more behind the last one. A list can be cut, because it is long, though fewer came than were
    /// asked for: go on `after` the last `sequence`.
    #[serde(default)]
    #[schema(required)]
    pub has_more: bool,
}

/// One frame of an event stream. `docs/events.md` tells which there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Frame {
    /// Its id: the log's epoch and the sequence; none, if it is not in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, pattern = "^[0-9]+-[0-9]+$")]
    pub id: Option<String>,
    /// Its name.
    #[schema(pattern = "^[a-zA-Z0-9_-]+$")]
    pub event: String,
    /// Its fields, as a text of JSON on one line.
    pub data: String,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Its id, always the same.
    pub id: Uuid,
    /// Its place in event streams: the log's epoch and the sequence.
    pub cursor: String,
    /// Of which session.
    pub session_id: Uuid,
    /// Whose.
    pub tenant_id: String,
    /// `user` or `assistant`.
    pub role: String,
    /// The message, as a text of JSON.
    pub content: String,
    /// Its place in the log.
    pub sequence: u64,
    /// When it was said.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// A part of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Messages {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// Whether there are more behind the last one. A list can be cut, because it is long, though fewer came than were
    /// asked for: go on `after` the last `sequence`.
    #[serde(default)]
    #[schema(required)]
    pub has_more: bool,
}

/// A line of what a sandbox says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Log {
    /// Its place. It stays the same, and later lines have higher ones.
    pub index: u64,
    /// `stdout`, `stderr` or `system`.
    pub level: String,
    /// The line.
    pub text: String,
    /// When.
    #[schema(format = DateTime)]
    pub ts: String,
}

/// What a sandbox says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    /// The lines, in order.
    pub logs: Vec<Log>,
    /// Always `sandbox`.
    pub source: String,
    /// Where lines are missing that came after those asked for; nothing, if none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<LogGap>,
}

/// That lines are missing before the first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogGap {
    /// After which one lines were asked for.
    pub after: u64,
    /// From which number on there are some.
    pub next: u64,
    /// Why those before it are missing.
    pub reason: LogGapReason,
}

/// Why lines are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogGapReason {
    /// There are too many to keep all.
    LeftOut,
    /// They are of another history of the session: it was imported, and its lines stayed behind.
    OtherEpoch,
    /// No line has had such a high number.
    BeyondEnd,
}
