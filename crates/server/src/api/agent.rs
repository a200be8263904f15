//! Agents on the wire.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
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
    #[schema(min_length = 1, max_length = 1_000_000, pattern = "\\S")]
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
    /// The version that new sessions get.
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

/// One version of an agent. Sessions keep what they were made with, whatever becomes of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentVersion {
    /// Its id.
    pub id: Uuid,
    /// Whose it is.
    pub tenant_id: String,
    /// Which version.
    pub version_number: u32,
    /// What people call it: `v` and its number, if nobody says so.
    pub name: String,
    /// The agent's name.
    pub agent_name: String,
    /// Whether new sessions get this one.
    pub is_active: bool,
    /// What is new in it.
    #[schema(required)]
    pub release_notes: Option<String>,
    /// The files that it knows things from, as somebody has listed them.
    #[schema(required)]
    pub knowledge_files: Option<Vec<String>>,
    /// Always null: nobody is recorded.
    #[schema(required)]
    pub created_by: Option<String>,
    /// What it consists of, by number: `agentVersion` of the sessions that are made with it now.
    pub agent_version: u32,
    /// A digest of its files: the same files have the same.
    pub digest: String,
    /// Its instructions.
    pub system_prompt: String,
    /// How many files it has.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// When it was added.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it was added, or last changed.
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// A version of an agent to be added. New sessions get it once it is activated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewAgentVersion {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub name: Option<String>,
    /// Its instructions: becomes `CLAUDE.md`. If they are not given, those of the version it is made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 1_000_000, pattern = "\\S")]
    pub system_prompt: Option<String>,
    /// What is new in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 10_000)]
    pub release_notes: Option<String>,
    /// The files that it knows things from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub knowledge_files: Option<Vec<String>>,
    /// The version it is made from, by number or by id; if none is named, the active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_from: Option<CloneFrom>,
}

/// A version, by its number or by its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum CloneFrom {
    /// Its number.
    Number(u32),
    /// Its id, or its number as a text.
    Text(String),
}

impl<'de> Deserialize<'de> for CloneFrom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrId;

        impl Visitor<'_> for NumberOrId {
            type Value = CloneFrom;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number of a version, or its id")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<CloneFrom, E> {
                let wrong = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
                u32::try_from(number).map(CloneFrom::Number).map_err(wrong)
            }

            fn visit_str<E>(self, text: &str) -> Result<CloneFrom, E> {
                Ok(CloneFrom::Text(text.to_owned()))
            }
        }

        deserializer.deserialize_any(NumberOrId)
    }
}

/// What to change about a version. What is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateAgentVersion {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub name: Option<String>,
    /// Its instructions. Sessions keep those they were made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 1_000_000, pattern = "\\S")]
    pub system_prompt: Option<String>,
    /// What is new in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 10_000)]
    pub release_notes: Option<String>,
    /// The files that it knows things from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1000)]
    pub knowledge_files: Option<Vec<String>>,
}

/// A version that new sessions get from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionActivated {
    /// Always true.
    pub activated: bool,
    /// Which version.
    pub version_number: u32,
}

/// A version that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionDeleted {
    /// Always true.
    pub deleted: bool,
    /// Which version.
    pub version_number: u32,
}

/// The free settings of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentConfig {
    /// The settings. `preWarmCount` is how many sandboxes wait for its sessions; the rest is for programs that run
    /// agents.
    pub config: BTreeMap<String, Value>,
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
    /// When it was captured.
    #[schema(format = DateTime)]
    pub modified_at: String,
}

/// Files to be put into an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriteAgentFiles {
    /// The files. One that is there is replaced.
    #[serde(deserialize_with = "object::list")]
    #[schema(min_items = 1, max_items = 10_000)]
    pub files: Vec<AgentFile>,
}

/// Files that were put into an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentFilesWritten {
    /// How many.
    pub written: u64,
    /// The version that has them, which is active now.
    pub version: u32,
}

/// A file that is not in an agent any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentFileDeleted {
    /// Where it was.
    pub path: String,
    /// Always true.
    pub deleted: bool,
    /// The version without it, which is active now.
    pub version: u32,
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
