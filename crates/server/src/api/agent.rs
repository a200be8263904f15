//! Agents on the wire.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::object;

/// A file of an agent, sent along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self")]
pub struct AgentFile {
    /// Where, relative to the agent's directory.
    #[schema(min_length = 1, max_length = 4096)]
    pub path: String,
    /// The content in base64.
    #[schema(content_encoding = "base64")]
    pub content: String,
    /// Whether it can be run. If it is not said, a file that begins with `#!` can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<bool>,
}

super::schema::only_objects!(AgentFile);

/// An agent to be deployed: from a directory of the server's machine, from files that are sent along,
/// or from instructions alone. One of the three.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployAgent {
    /// Its name: letters, digits, `_` and `-`.
    #[schema(min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")]
    pub name: String,
    /// A directory of the server's machine. It is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 4096)]
    pub path: Option<String>,
    /// Its files.
    #[serde(
        default,
        deserialize_with = "object::maybe_list",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(max_items = 10_000)]
    pub files: Option<Vec<AgentFile>>,
    /// Its instructions: becomes `CLAUDE.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1_000_000)]
    pub system_prompt: Option<String>,
    /// Variables for the tools of all its sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = super::schema::variables)]
    pub env: Option<BTreeMap<String, String>>,
}

/// What to change about an agent. What is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UpdateAgent {
    /// Variables for the tools of all its sessions: replaces those that were there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = super::schema::variables)]
    pub env: Option<BTreeMap<String, String>>,
    /// Free settings: merged over those that were there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<BTreeMap<String, Value>>,
}

/// A deployed agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant_id: String,
    /// Its latest version.
    pub version: u32,
    /// Where it was deployed from, or where its files are.
    pub path: String,
    /// Names of its variables; the values are never shown.
    pub env: BTreeMap<String, String>,
    /// What runs it.
    pub runtime: String,
    /// Why none of its sessions can be started now, if none can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The model it runs on, if it says so.
    #[schema(required)]
    pub model: Option<String>,
    /// How many files it has.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// When it was first deployed.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it was last changed.
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// One agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentBody {
    /// The agent.
    pub agent: Agent,
}

/// A tenant's agents, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Agents {
    /// The agents.
    pub agents: Vec<Agent>,
}

/// An agent that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentDeleted {
    /// Always true.
    pub ok: bool,
}

/// One version of an agent: what was deployed, for ever.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentVersion {
    /// Which version.
    pub version_number: u32,
    /// The agent's name.
    pub agent_name: String,
    /// Whether new sessions get this one.
    pub is_active: bool,
    /// A digest of its files: the same files have the same.
    pub digest: String,
    /// Its instructions.
    pub system_prompt: String,
    /// How many files it has.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// When it was deployed.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// One version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentVersionBody {
    /// The version.
    pub version: AgentVersion,
}

/// The versions of an agent, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentVersions {
    /// The versions.
    pub versions: Vec<AgentVersion>,
}

/// A file of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentFileInfo {
    /// Where.
    pub path: String,
    /// How many bytes it has.
    pub size: u64,
}

/// The files of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentFiles {
    /// The files, by path.
    pub files: Vec<AgentFileInfo>,
}

/// A file of an agent, with its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentFileContent {
    /// Where.
    pub path: String,
    /// The content; what is no text is shown as far as it is.
    pub content: String,
    /// How many bytes it has.
    pub size: u64,
}
