//! What every runtime is given.

use std::net::SocketAddr;
use std::path::PathBuf;

use ash_protocol::Limits;
use serde_json::value::RawValue;

use crate::builtin::model::Patience;
use crate::exec::Env;
use crate::questions::Questions;

/// What the session and its agent say, and what is around them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the agent works.
    pub workspace: PathBuf,
    /// Where it keeps what is its own.
    pub home: PathBuf,
    /// What tools find in their environment.
    pub env: Env,
    /// What they were to find there and do not.
    pub refused_variables: Vec<String>,
    /// Which model to ask.
    pub model: String,
    /// What must not be exceeded.
    pub limits: Limits,
    /// What the session adds to what the agent is told about itself.
    pub system_prompt: Option<String>,
    /// What a program of the original is told in this sandbox besides.
    pub remark: Option<String>,
    /// The session's own MCP servers, by name.
    pub mcp_servers: Option<Box<RawValue>>,
    /// Tools that may be used: of the builtin agent the only ones, of Claude Code those that need no question.
    pub allowed_tools: Vec<String>,
    /// Tools that may not be used in any case.
    pub disallowed_tools: Vec<String>,
    /// What the agent asks about before it does it; nothing: it never asks.
    pub permission_mode: Option<String>,
    /// Where it asks.
    pub questions: Questions,
    /// Where the model's requests go: plain HTTP to the server's proxy, which adds the key.
    pub endpoint: SocketAddr,
    /// How long the builtin agent waits for the model, and how often it tries.
    pub patience: Patience,
}
