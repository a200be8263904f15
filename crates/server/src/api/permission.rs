//! Permission questions on the wire.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// What a person says to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Behavior {
    /// It may be done.
    Allow,
    /// It may not be done.
    Deny,
}

/// A question that an agent asks before it does something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// Its id.
    pub id: Uuid,
    /// The run that waits for the answer.
    pub run_id: Uuid,
    /// The entry of the log that asks it.
    pub seq: u64,
    /// What the agent wants to use.
    pub tool: String,
    /// What for.
    pub input: Value,
    /// When it was asked.
    #[schema(format = DateTime)]
    pub asked_at: String,
    /// What a person has said to it, if the agent has not taken that yet.
    #[schema(required)]
    pub decided: Option<Behavior>,
}

/// The questions of a session that are open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Permissions {
    /// The questions, in the order in which they were asked.
    pub permissions: Vec<Permission>,
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DecidePermission {
    /// Whether it may be done.
    pub behavior: Behavior,
    /// What to do it with, instead of what the agent wanted to. With `allow` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<BTreeMap<String, Value>>,
    /// Why not, for the agent. With `deny` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 10_000)]
    pub message: Option<String>,
}

/// An answer that is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PermissionDecided {
    /// The question.
    pub id: Uuid,
    /// What was said.
    pub behavior: Behavior,
}
