//! Sessions on the wire.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::object;
use super::snapshot::{SessionSnapshot, SnapshotFailure};

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// A sandbox is on its way.
    Starting,
    /// Prompts are worked on.
    Active,
    /// At rest.
    Paused,
    /// Put to rest by a person, without a sandbox.
    Stopped,
    /// Over, for ever.
    Ended,
    /// Something broke; a resume brings it back.
    Error,
}

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// It waits for a prompt.
    Idle,
    /// It works on one.
    Running,
    /// It is frozen.
    Frozen,
    /// Its conversation and its files are on their way back to an earlier point.
    Rewinding,
}

/// What went wrong with a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionError {
    /// A stable name.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
    /// When.
    #[schema(format = DateTime)]
    pub at: String,
}

/// One conversation with its workspace and its log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Its id.
    pub id: Uuid,
    /// Whose it is.
    pub tenant_id: String,
    /// The agent it talks to.
    pub agent_name: String,
    /// The version of that agent, for ever.
    pub agent_version: u32,
    /// Its sandbox: the same as its id. `incarnation` tells one from the next.
    pub sandbox_id: Uuid,
    /// Where it stands.
    pub status: SessionStatus,
    /// When it was created.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When something last happened that counts as use.
    #[schema(format = DateTime)]
    pub last_active_at: String,
    /// The machine it runs on, if it is another than the server's.
    #[schema(required)]
    pub runner_id: Option<String>,
    /// The session it was forked from.
    #[schema(required)]
    pub parent_session_id: Option<Uuid>,
    /// The model it runs on, if not the agent's.
    #[schema(required)]
    pub model: Option<String>,
    /// The options it was created with. Values of variables are not shown.
    pub config: BTreeMap<String, Value>,
    /// What people call it.
    #[schema(required)]
    pub title: Option<String>,
    /// Whatever its owner wants to remember.
    pub metadata: BTreeMap<String, String>,
    /// What its live sandbox does, or that it is being rewound; null otherwise.
    #[schema(required)]
    pub activity: Option<Activity>,
    /// How many sandboxes it has had.
    pub incarnation: u32,
    /// Why it was paused, while it is.
    #[schema(required)]
    pub pause_reason: Option<String>,
    /// What broke, while it is in error.
    #[schema(required)]
    pub error: Option<SessionError>,
    /// The last entry of its log.
    pub last_seq: u64,
    /// Which history of the log this is: stands before the number in event ids.
    pub log_epoch: u32,
    /// How many turns its conversation has.
    pub turns: u32,
    /// How many prompts wait behind the running one.
    pub queued: u32,
    /// How many permission questions of its agent wait for an answer.
    #[serde(default)]
    #[schema(required)]
    pub open_permissions: u32,
    /// When it ends by itself.
    #[schema(required, format = DateTime)]
    pub expires_at: Option<String>,
    /// The last snapshot of its files.
    #[schema(required)]
    pub snapshot: Option<SessionSnapshot>,
    /// Whether its files may have changed since: they are being captured, or will be in a moment.
    #[serde(default)]
    #[schema(required)]
    pub snapshot_pending: bool,
    /// What went wrong with the last capture of its files, until one succeeds.
    #[schema(required)]
    pub snapshot_error: Option<SnapshotFailure>,
    /// The entry of the log at which the files were captured that are in the cloud.
    #[schema(required)]
    pub cloud_seq: Option<u64>,
    /// Why it is not in the cloud as it is, if it was tried, until it is.
    #[serde(default)]
    #[schema(required)]
    pub cloud_error: Option<CloudFailure>,
    /// What keeps its sandbox from the rest of the machine, or would keep the one that it gets.
    pub isolation: String,
}

/// Why a session is not in the cloud as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CloudFailure {
    /// What went wrong.
    pub message: String,
    /// When.
    #[schema(format = DateTime)]
    pub at: String,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SessionBody {
    /// The session.
    pub session: Session,
}

/// A page of sessions, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sessions {
    /// The sessions.
    pub sessions: Vec<Session>,
    /// Where the next page begins; null on the last one.
    #[schema(required)]
    pub next_cursor: Option<String>,
    /// How many there are in all, if asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub total: Option<u64>,
}

/// How a tool call is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum PermissionMode {
    /// Every call is allowed: the sandbox is what holds.
    BypassPermissions,
    /// The agent's own settings decide.
    PermissionsByAgent,
    /// A person is asked before something is changed.
    Default,
    /// A person is asked, but not about changed files.
    AcceptEdits,
    /// Nothing is changed, and nobody is asked.
    Plan,
}

impl PermissionMode {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BypassPermissions => "bypassPermissions",
            Self::PermissionsByAgent => "permissionsByAgent",
            Self::Default => "default",
            Self::AcceptEdits => "acceptEdits",
            Self::Plan => "plan",
        }
    }
}

/// A session to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreateSession {
    /// The agent to talk to.
    #[schema(min_length = 1, max_length = 255)]
    pub agent: String,
    /// The credential that its model requests are made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub credential_id: Option<String>,
    /// Further credentials: at most one for the model, and any number for other hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 20)]
    pub credential_ids: Vec<String>,
    /// Variables for its tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = super::schema::variables)]
    pub extra_env: Option<BTreeMap<String, String>>,
    /// Another model than the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 100)]
    pub model: Option<String>,
    /// MCP servers by name, beside the agent's.
    #[serde(
        default,
        deserialize_with = "object::by_name",
        skip_serializing_if = "Option::is_none"
    )]
    pub mcp_servers: Option<BTreeMap<String, McpServer>>,
    /// What the agent is told beside its own instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 1_000_000, pattern = "\\S")]
    pub system_prompt: Option<String>,
    /// How tool calls are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// After how long a question that nobody answers is answered with no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 604_800_000)]
    pub permission_timeout_ms: Option<u64>,
    /// Only these tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// None of these tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disallowed_tools: Option<Vec<String>>,
    /// Beta features of the model's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub betas: Option<Vec<String>>,
    /// Sub-agents by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagents: Option<BTreeMap<String, Value>>,
    /// The sub-agent to begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub initial_agent: Option<String>,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 500)]
    pub title: Option<String>,
    /// Whatever its owner wants to remember.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// After how long without use it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1000, maximum = 31_536_000_000_u64)]
    pub idle_timeout_ms: Option<u64>,
    /// After how long it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1000, maximum = 31_536_000_000_u64)]
    pub ttl_ms: Option<u64>,
    /// What all its runs together may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub budget_usd: Option<f64>,
    /// How many tokens all its runs together may use, those from and to the cache included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000_000_000_u64)]
    pub budget_tokens: Option<u64>,
}

/// An MCP server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self")]
pub struct McpServer {
    /// Where it is, if it is remote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The program, if it is local.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What the program is called with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Variables for the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
}

super::schema::only_objects!(McpServer);

/// Options of a session that can be changed. Those that are not named stay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateConfig {
    /// Another model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 100)]
    pub model: Option<String>,
    /// How tool calls are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// After how long a question that nobody answers is answered with no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 604_800_000)]
    pub permission_timeout_ms: Option<u64>,
    /// Only these tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// None of these tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disallowed_tools: Option<Vec<String>>,
    /// Beta features of the model's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub betas: Option<Vec<String>>,
    /// Sub-agents by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagents: Option<BTreeMap<String, Value>>,
    /// The sub-agent to begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub initial_agent: Option<String>,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 500)]
    pub title: Option<String>,
    /// Whatever its owner wants to remember: replaces what was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// What becomes of a run that goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WhenRunning {
    /// It is frozen where it is.
    #[default]
    Freeze,
    /// It is cancelled first.
    Interrupt,
    /// The pause is refused.
    Reject,
}

/// How to pause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PauseSession {
    /// What becomes of a run that goes on.
    #[serde(default)]
    pub if_running: WhenRunning,
}

/// What to interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterruptSession {
    /// Which run, if not the one that goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Uuid>,
}

/// How to bring a session back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResumeSession {
    /// Rather fail than begin with a fresh workspace.
    #[serde(default)]
    pub require_state: bool,
    /// Begin with whatever can be had now, and be it a fresh workspace, though its files are said to be in the cloud.
    #[serde(default)]
    pub allow_fresh: bool,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResumeReceipt {
    /// `warm`: the same sandbox. `cold`: a new one. `noop`: nothing had to be done.
    pub path: String,
    /// Where the workspace came from.
    #[schema(required)]
    pub source: Option<String>,
    /// What became of the workspace.
    pub workspace: String,
    /// The snapshot it came from.
    #[schema(required)]
    pub snapshot_id: Option<String>,
    /// The entry that the snapshot was made at.
    #[schema(required)]
    pub snapshot_seq: Option<u64>,
    /// Whether the snapshot is not the last one, because later ones are lost. Left out if it is.
    #[serde(default, skip_serializing_if = "is_false")]
    pub outdated: bool,
    /// How many paths of the snapshot could not be read any more, and are missing. Left out if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// How many files of the workspace are newer than the snapshot and could not be held against it, after the machine
    /// was restarted; all of them, if there was no good snapshot. Left out if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unverified: u64,
    /// The last entry of the log when it came back.
    pub last_seq: u64,
    /// How many files the workspace has, if they were counted.
    #[schema(required)]
    pub files: Option<u64>,
    /// How many bytes they have.
    #[schema(required)]
    pub bytes: Option<u64>,
    /// What the agent itself remembers.
    pub conversation: ConversationReceipt,
    /// The run that was cut, if one was.
    #[schema(required)]
    pub interrupted_run: Option<Uuid>,
    /// How long it took.
    pub duration_ms: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What an agent itself remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConversationReceipt {
    /// `intact`, `rebuilt` from the log, `lost`, or `none`: there is nothing to remember yet.
    pub native: String,
    /// How many turns it remembers.
    pub turns: u32,
    /// How many turns the log has.
    pub turns_in_log: u32,
}

/// A session that was brought back, and what of it came back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Resumed {
    /// The session.
    pub session: Session,
    /// The receipt.
    pub resume: ResumeReceipt,
}
