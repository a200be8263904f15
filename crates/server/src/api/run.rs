//! Runs on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// What a run consumed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens sent to the model.
    pub input_tokens: u64,
    /// Tokens the model wrote.
    pub output_tokens: u64,
    /// Tokens written to the prompt cache.
    pub cache_creation_tokens: u64,
    /// Tokens read from the prompt cache.
    pub cache_read_tokens: u64,
    /// Tools called.
    pub tool_calls: u64,
    /// What it cost, in US dollars.
    pub cost_usd: f64,
}

/// Why a run was cut or could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunError {
    /// A stable name.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
}

/// The execution of one prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id.
    pub id: Uuid,
    /// Of which session.
    pub session_id: Uuid,
    /// `queued`, `running`, `completed`, `cancelled`, `interrupted` or `failed`.
    pub status: String,
    /// What it does or last did: `streaming_llm`, `executing_tools` or `delegating_coder`.
    #[schema(required)]
    pub phase: Option<String>,
    /// How often the model was asked.
    pub round: u32,
    /// Its ordinal, once it has started.
    #[schema(required)]
    pub turn: Option<u32>,
    /// The turn it continues.
    #[schema(required)]
    pub parent_turn: Option<u32>,
    /// Why it ended, once it has.
    #[schema(required)]
    pub stop_reason: Option<String>,
    /// What went wrong, if something did.
    #[schema(required)]
    pub error: Option<RunError>,
    /// What it consumed.
    pub usage: Usage,
    /// The entry of the log that holds its prompt.
    pub prompt_seq: u64,
    /// When its prompt was accepted.
    #[schema(format = DateTime)]
    pub accepted_at: String,
    /// When the agent was given its prompt.
    #[schema(required, format = DateTime)]
    pub started_at: Option<String>,
    /// When it was over.
    #[schema(required, format = DateTime)]
    pub ended_at: Option<String>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunBody {
    /// The run.
    pub run: Run,
}

/// A session's runs, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Runs {
    /// The runs.
    pub runs: Vec<Run>,
}
