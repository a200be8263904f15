//! The options of a session: as they are asked for, kept, and shown.
//!
//! What may hold a secret (variables, and MCP servers with theirs) is sealed before it is stored, and
//! its values are never shown. `Options` is the open form; it cannot be printed.

use std::collections::BTreeMap;
use std::fmt;

use ash_core::entry::ResumePath;
use ash_core::id::{CredentialId, RunId, SessionId};
use ash_core::json::Json;
use ash_core::number::Seq;
use ash_core::resume::{Conversation, Receipt};
use ash_core::session::{Sandbox, State, Status};
use ash_core::snapshot::Snapshot;
use ash_engine::CloudFailure;
use ash_engine::agent::Runtime;
use ash_store::StoredSession;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{self, McpServer, PermissionMode};
use crate::secret::Sealer;

/// What sealed options are bound to.
const CONTEXT: &str = "session options";

/// What is shown instead of a value.
pub(crate) const HIDDEN: &str = "***";

/// The options of a session.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Options {
    /// What runs it, since it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runtime: Option<Runtime>,
    /// For the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) credential_id: Option<CredentialId>,
    /// For other hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) credential_ids: Vec<CredentialId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system_prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permission_mode: Option<PermissionMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permission_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allowed_tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disallowed_tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) betas: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subagents: Option<BTreeMap<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) initial_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget_usd: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) budget_tokens: Option<u64>,
    /// Sealed when stored.
    #[serde(skip)]
    pub(crate) secrets: Secrets,
}

/// The credentials of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attached {
    /// For the model.
    pub(crate) model: Option<CredentialId>,
    /// For other hosts.
    pub(crate) hosts: Vec<CredentialId>,
}

/// What may hold a secret.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Secrets {
    pub(crate) extra_env: BTreeMap<String, String>,
    pub(crate) mcp_servers: BTreeMap<String, McpServer>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Options(..)")
    }
}

/// Options as they are stored.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(flatten)]
    options: Options,
    /// What may be shown of the secrets.
    #[serde(default)]
    shown: Shown,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Shown {
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_env: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp_servers: Option<BTreeMap<String, McpServer>>,
}

/// The tools that a session's agent may use, what it asks about, and the agents it has of its own. They change from one
/// run to the next, so each prompt carries them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Tools {
    pub(crate) runtime: Option<Runtime>,
    pub(crate) permission_mode: Option<PermissionMode>,
    pub(crate) permission_timeout_ms: Option<u64>,
    pub(crate) allowed_tools: Option<Vec<String>>,
    pub(crate) disallowed_tools: Option<Vec<String>>,
    pub(crate) betas: Option<Vec<String>>,
    pub(crate) subagents: Option<BTreeMap<String, Value>>,
    pub(crate) initial_agent: Option<String>,
}

impl Tools {
    pub(crate) fn of(config: &Json) -> Result<Self, OptionsError> {
        serde_json::from_str(config.get()).map_err(OptionsError::Damaged)
    }
}

/// Why stored options could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptionsError {
    #[error("the stored options of the session are damaged")]
    Damaged(#[source] serde_json::Error),
    #[error("the stored secrets of the session could not be opened: {0}")]
    Sealed(String),
}

impl Options {
    pub(crate) fn of(body: &api::CreateSession, runtime: Runtime, credentials: Attached) -> Self {
        Self {
            runtime: Some(runtime),
            credential_id: credentials.model,
            credential_ids: credentials.hosts,
            system_prompt: body.system_prompt.clone(),
            permission_mode: body.permission_mode,
            permission_timeout_ms: body.permission_timeout_ms,
            allowed_tools: body.allowed_tools.clone(),
            disallowed_tools: body.disallowed_tools.clone(),
            betas: body.betas.clone(),
            subagents: body.subagents.clone(),
            initial_agent: body.initial_agent.clone(),
            idle_timeout_ms: body.idle_timeout_ms,
            ttl_ms: body.ttl_ms,
            budget_usd: body.budget_usd,
            budget_tokens: body.budget_tokens,
            secrets: Secrets {
                extra_env: body.extra_env.clone().unwrap_or_default(),
                mcp_servers: body.mcp_servers.clone().unwrap_or_default(),
            },
        }
    }

    /// Takes over what is named.
    pub(crate) fn update(&mut self, body: &api::UpdateConfig) {
        fn take<T: Clone>(into: &mut Option<T>, from: &Option<T>) {
            if from.is_some() {
                into.clone_from(from);
            }
        }
        take(&mut self.permission_mode, &body.permission_mode);
        take(&mut self.permission_timeout_ms, &body.permission_timeout_ms);
        take(&mut self.allowed_tools, &body.allowed_tools);
        take(&mut self.disallowed_tools, &body.disallowed_tools);
        take(&mut self.betas, &body.betas);
        take(&mut self.subagents, &body.subagents);
        take(&mut self.initial_agent, &body.initial_agent);
    }

    pub(crate) fn seal(&self, sealer: &Sealer) -> Result<Json, OptionsError> {
        let hidden = |env: &BTreeMap<String, String>| {
            env.keys().map(|name| (name.clone(), HIDDEN.to_owned())).collect()
        };
        let Secrets { extra_env, mcp_servers } = &self.secrets;
        let mcp_shown = mcp_servers.iter().map(|(name, server)| {
            let args = server.args.as_ref().map(|args| vec![HIDDEN.to_owned(); args.len()]);
            let url = server.url.as_deref().map(without_secrets);
            let env = server.env.as_ref().map(hidden);
            (name.clone(), McpServer { url, command: server.command.clone(), args, env })
        });
        let sealed = if self.secrets == Secrets::default() {
            None
        } else {
            let plain = serde_json::to_vec(&self.secrets).map_err(OptionsError::Damaged)?;
            Some(BASE64_STANDARD.encode(sealer.seal(&plain, CONTEXT)))
        };
        let shown = Shown {
            extra_env: (!extra_env.is_empty()).then(|| hidden(extra_env)),
            mcp_servers: (!mcp_servers.is_empty()).then(|| mcp_shown.collect()),
        };
        let stored = Stored { options: self.clone(), shown, sealed };
        Json::of(&stored).map_err(OptionsError::Damaged)
    }

    pub(crate) fn open(config: &Json, sealer: &Sealer) -> Result<Self, OptionsError> {
        let Stored { mut options, sealed, .. } =
            serde_json::from_str(config.get()).map_err(OptionsError::Damaged)?;
        if let Some(sealed) = sealed {
            let not_open = |error: &dyn fmt::Display| OptionsError::Sealed(error.to_string());
            let sealed = BASE64_STANDARD.decode(sealed).map_err(|error| not_open(&error))?;
            let plain = sealer.open(&sealed, CONTEXT).map_err(|error| not_open(&error))?;
            options.secrets = serde_json::from_slice(&plain).map_err(OptionsError::Damaged)?;
        }
        Ok(options)
    }
}

/// An address without whatever lets somebody in.
fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = host.rsplit('@').next().unwrap_or_default();
            format!("{scheme}://{host}/{path}")
        }
        None => HIDDEN.to_owned(),
    }
}

/// Options as they are shown: without any value of a variable.
fn config_view(config: &Json) -> BTreeMap<String, Value> {
    let Ok(Value::Object(mut stored)) = serde_json::from_str(config.get()) else {
        return BTreeMap::new();
    };
    stored.remove("sealed");
    if let Some(Value::Object(shown)) = stored.remove("shown") {
        stored.extend(shown);
    }
    stored.into_iter().collect()
}

/// What is known of a session in the cloud.
#[derive(Debug, Default)]
pub(crate) struct InCloud {
    /// Where its log ended when the files were captured that are there.
    pub(crate) seq: Option<Seq>,
    /// Why it is not there as it is.
    pub(crate) failure: Option<CloudFailure>,
}

/// A session as the wire has it.
pub(crate) fn session_view(
    stored: &StoredSession,
    in_cloud: InCloud,
    isolation: &str,
) -> api::Session {
    let StoredSession { record, session } = stored;
    let id = session.id().as_uuid();
    let (pause_reason, error) = match session.state() {
        State::Paused { reason, .. } => (Some(name_of(reason)), None),
        State::Error { failure, at } => (
            None,
            Some(api::SessionError {
                code: failure.code.as_str().to_owned(),
                message: failure.message.clone(),
                at: api::rfc3339(*at),
            }),
        ),
        State::Starting { .. } | State::Active | State::Stopped | State::Ended => (None, None),
    };
    let activity = match session.sandbox() {
        _ if session.rewinding().is_some() => Some(api::Activity::Rewinding),
        Sandbox::Live | Sandbox::Thawing { .. } if session.current_run().is_some() => {
            Some(api::Activity::Running)
        }
        Sandbox::Live | Sandbox::Thawing { .. } => Some(api::Activity::Idle),
        Sandbox::Freezing { .. } | Sandbox::Frozen { .. } => Some(api::Activity::Frozen),
        Sandbox::None | Sandbox::Starting { .. } | Sandbox::Stopping { .. } => None,
    };
    api::Session {
        id,
        tenant_id: record.tenant.to_string(),
        agent_name: record.agent_name.to_string(),
        agent_version: record.agent_version.get(),
        sandbox_id: id,
        status: status_view(session.status()),
        created_at: api::rfc3339(record.created_at),
        last_active_at: api::rfc3339(session.last_active()),
        runner_id: None,
        parent_session_id: record.parent.map(SessionId::as_uuid),
        model: record.settings.model.clone(),
        config: config_view(&record.settings.config),
        title: record.settings.title.clone(),
        metadata: record.settings.metadata.clone(),
        activity,
        incarnation: session.incarnation().get(),
        pause_reason,
        error,
        last_seq: session.last_seq().get(),
        log_epoch: session.log_epoch().get(),
        turns: session.lineage().turns(),
        queued: u32::try_from(session.queued_runs().len()).unwrap_or(u32::MAX),
        open_permissions: u32::try_from(session.questions().open().len()).unwrap_or(u32::MAX),
        expires_at: session.expires_at().map(api::rfc3339),
        snapshot: session.persistence().last().map(snapshot_view),
        snapshot_pending: session.is_yet_to_be_captured(),
        snapshot_error: session.persistence().failed().map(|failed| api::SnapshotFailure {
            message: failed.message.clone(),
            attempts: failed.attempts,
            at: api::rfc3339(failed.at),
        }),
        cloud_seq: in_cloud.seq.map(Seq::get),
        cloud_error: in_cloud.failure.map(|failure| api::CloudFailure {
            message: failure.message,
            at: api::rfc3339(failure.at),
        }),
        isolation: isolation.to_owned(),
    }
}

pub(crate) fn snapshot_view(snapshot: &Snapshot) -> api::SessionSnapshot {
    let Snapshot { captured, seq, turn, at, .. } = snapshot;
    api::SessionSnapshot {
        id: captured.id.as_uuid(),
        seq: seq.get(),
        turn: turn.get(),
        at: api::rfc3339(*at),
        files: captured.files,
        bytes: captured.bytes,
    }
}

fn status_view(status: Status) -> api::SessionStatus {
    match status {
        Status::Starting => api::SessionStatus::Starting,
        Status::Active => api::SessionStatus::Active,
        Status::Paused => api::SessionStatus::Paused,
        Status::Stopped => api::SessionStatus::Stopped,
        Status::Error => api::SessionStatus::Error,
        Status::Ended => api::SessionStatus::Ended,
    }
}

/// What came back, as the wire has it. Nothing had to be done if there is no receipt.
pub(crate) fn receipt_view(
    stored: &StoredSession,
    receipt: Option<&Receipt>,
) -> api::ResumeReceipt {
    let Some(receipt) = receipt else {
        return api::ResumeReceipt {
            path: "noop".to_owned(),
            source: None,
            workspace: "kept".to_owned(),
            snapshot_id: None,
            snapshot_seq: None,
            outdated: false,
            left_out: 0,
            unverified: 0,
            last_seq: stored.session.last_seq().get(),
            files: None,
            bytes: None,
            conversation: conversation_view(stored.session.conversation()),
            interrupted_run: None,
            duration_ms: 0.0,
        };
    };
    receipt_of(receipt)
}

/// What came back, as the wire has it.
#[expect(clippy::cast_precision_loss, reason = "no resume takes as long as a float cannot hold")]
pub(crate) fn receipt_of(receipt: &Receipt) -> api::ResumeReceipt {
    let counted = |count: u64| match receipt.path {
        ResumePath::Warm => None,
        ResumePath::Cold => Some(count),
    };
    api::ResumeReceipt {
        path: receipt.path.as_str().to_owned(),
        source: receipt.source.map(|source| source.as_str().to_owned()),
        workspace: receipt.workspace.as_str().to_owned(),
        snapshot_id: receipt.snapshot.map(|from| from.id.to_string()),
        snapshot_seq: receipt.snapshot.map(|from| from.seq.get()),
        outdated: receipt.snapshot.is_some_and(|from| from.outdated),
        left_out: receipt.snapshot.map_or(0, |from| from.left_out),
        unverified: receipt.snapshot.map_or(receipt.unverified, |from| from.unverified),
        last_seq: receipt.last_seq.get(),
        files: counted(receipt.files),
        bytes: counted(receipt.bytes),
        conversation: conversation_view(receipt.conversation),
        interrupted_run: receipt.interrupted_run.map(RunId::as_uuid),
        duration_ms: receipt.duration_micros as f64 / 1_000.0,
    }
}

fn conversation_view(known: Conversation) -> api::ConversationReceipt {
    let Conversation { native, turns, turns_in_log } = known;
    api::ConversationReceipt { native: native.as_str().to_owned(), turns, turns_in_log }
}

/// The name that an enum of the domain is stored by.
fn name_of<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => name,
        Ok(_) | Err(_) => String::new(),
    }
}
