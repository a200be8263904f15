//! What sandboxes ask of others, on the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a session's sandbox asked of others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Egress {
    /// The latest requests, newest first.
    pub requests: Vec<EgressRequest>,
    /// What the session has spent, as the server has counted it.
    pub spent: Spent,
}

/// What a session has spent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spent {
    /// In US dollars.
    pub cost_usd: f64,
    /// In tokens of every kind, those from and to the cache included.
    pub tokens: u64,
}

/// A request of a sandbox. Its body, its headers and its query are not kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressRequest {
    /// When it came.
    #[schema(format = DateTime)]
    pub at: String,
    /// What it was for: `model`, `connect` or `http`.
    pub kind: String,
    /// Its method.
    pub method: String,
    /// Where it was to go; `model` for the model's provider.
    pub host: String,
    /// The path of a request to the model.
    #[schema(required)]
    pub path: Option<String>,
    /// What was answered; nothing, if nobody answered.
    #[schema(required)]
    pub status: Option<u16>,
    /// Why it was not passed on, if it was not: one of the error codes.
    #[schema(required)]
    pub refusal: Option<String>,
    /// How many bytes of it came.
    pub bytes_up: u64,
    /// How many bytes were answered.
    pub bytes_down: u64,
    /// After how many milliseconds the answer began.
    #[schema(required)]
    pub first_byte_ms: Option<f64>,
    /// After how many milliseconds all was over.
    pub total_ms: f64,
}
