//! Keys, credentials and usage on the wire.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Something is done, and there is nothing to tell about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// Always true.
    pub ok: bool,
}

/// An API key to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewApiKey {
    /// What its owner calls it.
    #[serde(default)]
    #[schema(max_length = 255)]
    pub label: String,
    /// Whose it is, if not the caller's. Only the server's own tenant may say so; a tenant that is
    /// not there yet is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")]
    pub tenant_id: Option<String>,
}

/// A new API key. Its secret is shown this once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyMade {
    /// Its id.
    pub id: Uuid,
    /// The secret.
    pub key: String,
    /// Whose it is.
    pub tenant_id: String,
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    /// Its id; `env` for the one in the server's environment.
    pub id: String,
    /// What its owner calls it.
    pub label: String,
    /// The first characters of the secret.
    pub key_prefix: String,
    /// When it was made; empty for the one in the environment.
    pub created_at: String,
}

/// A tenant's API keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiKeys {
    /// The keys, oldest first.
    pub keys: Vec<ApiKey>,
}

/// Which service a credential is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CredentialType {
    /// The Anthropic API.
    Anthropic,
    /// The `OpenAI` API.
    Openai,
    /// Amazon Bedrock.
    Bedrock,
    /// Anything else.
    Custom,
}

/// A credential to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewCredential {
    /// Which service it is for.
    #[serde(rename = "type")]
    pub kind: CredentialType,
    /// The secret. Of a `bedrock` one: JSON with `accessKeyId`, `secretAccessKey`, `region`, and `sessionToken` if there is one.
    #[schema(min_length = 1, max_length = 16_384, pattern = "^[ -~]+$")]
    pub key: String,
    /// What its owner calls it.
    #[serde(default, alias = "name", skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub label: Option<String>,
    /// Of a `custom` one: the header that carries it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub header: Option<String>,
    /// Of a `custom` one: the only host that it is sent to, with a port if that is not 443.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 300)]
    pub host: Option<String>,
}

/// A credential, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    /// Its id.
    pub id: Uuid,
    /// Which service it is for.
    #[serde(rename = "type")]
    pub kind: CredentialType,
    /// What its owner calls it.
    pub label: String,
    /// The header that carries it, if it is for a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The host that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Always true: one that is removed is gone.
    pub active: bool,
    /// Why no session can use it, if none can: creating one with it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// When it was added.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it was last used.
    #[schema(required, format = DateTime)]
    pub last_used_at: Option<String>,
}

/// One credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialBody {
    /// The credential.
    pub credential: Credential,
}

/// A tenant's credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Credentials {
    /// The credentials, oldest first.
    pub credentials: Vec<Credential>,
}

/// One figure of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageEvent {
    /// Its id, always the same for what is counted of a run.
    pub id: Uuid,
    /// Of which session.
    pub session_id: Uuid,
    /// Of which agent.
    pub agent_name: String,
    /// Whose.
    pub tenant_id: String,
    /// What is counted: `message`, `input_tokens`, `output_tokens`, `cache_creation_tokens`,
    /// `cache_read_tokens`, `tool_call` or `compute_seconds`.
    pub event_type: String,
    /// How many.
    pub value: u64,
    /// When the run was over.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// What runs consumed, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageEvents {
    /// The figures.
    pub events: Vec<UsageEvent>,
}

/// What runs consumed together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Tokens sent to the model.
    pub total_input_tokens: u64,
    /// Tokens the model wrote.
    pub total_output_tokens: u64,
    /// Tokens written to the prompt cache.
    pub total_cache_creation_tokens: u64,
    /// Tokens read from the prompt cache.
    pub total_cache_read_tokens: u64,
    /// Tools called.
    pub total_tool_calls: u64,
    /// Prompts worked on.
    pub total_messages: u64,
    /// How long agents worked.
    pub total_compute_seconds: u64,
    /// What it cost, in US dollars.
    pub total_cost_usd: f64,
}

/// The sum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageStats {
    /// The figures.
    pub stats: Stats,
}

/// A tenant's account in figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Analytics {
    /// Its agents.
    pub agents: AnalyticsAgents,
    /// Its sessions.
    pub sessions: AnalyticsSessions,
    /// What its runs consumed.
    pub usage: Stats,
    /// Always empty: this server makes no evaluations.
    pub evals: AnalyticsEvals,
}

/// Agents in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnalyticsAgents {
    /// How many there are.
    pub total: u64,
}

/// Sessions in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnalyticsSessions {
    /// How many there are.
    pub total: u64,
    /// How many stand so; a status that none has is left out.
    pub by_status: BTreeMap<String, u64>,
}

/// Evaluations in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnalyticsEvals {
    /// Always 0.
    pub total_runs: u64,
    /// Always empty.
    pub by_status: BTreeMap<String, u64>,
}

/// A key to be made for a tenant by whoever runs the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewTenantKey {
    /// Whose it becomes. A tenant that is not there yet is made.
    #[schema(min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")]
    pub tenant_id: String,
    /// What it is called; `platform-` and the tenant, if nobody says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255)]
    pub label: Option<String>,
}

/// The machines that run sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runners {
    /// Other machines: always none.
    pub runners: Vec<String>,
    /// How many other machines there are.
    pub count: u64,
    /// Whether the server runs sandboxes itself: always.
    pub has_local: bool,
}
