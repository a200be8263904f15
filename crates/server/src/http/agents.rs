//! Agents: deployed from a directory, from files or from instructions alone; immutable from then on.

use std::collections::BTreeMap;

use ash_core::id::{AgentId, AgentName, TenantId};
use ash_core::json::Json;
use ash_core::number::AgentVersion;
use ash_engine::Idempotency;
use ash_engine::agent::{DeployError, SentFile};
use ash_store::{Agent, NewAgentVersion, NewLabel, Receipt, StoreError};
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::app::App;
use super::auth::Caller;
use super::base64::decode;
use super::checks::check_env;
use super::checks::check_prompt;
use super::code::Code;
use super::error::ApiError;
use super::extract::{JsonBody, PathId, length, range};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::openapi::{Always, Conflict, Invalid, Missing, TooLarge};
use crate::agents::{AgentSettings, Definition, MAX_PREWARM, PREWARM_COUNT, view};
use crate::api::{self, AgentBody, AgentConfig, AgentDeleted, Agents, DeployAgent, UpdateAgent};

/// The largest agent on the wire: its files in base64.
pub(super) const MAX_AGENT: usize = 96 * 1024 * 1024;

/// Deploy an agent
///
/// Under a name that is taken, the next version of that agent. Sessions keep the version they began
/// with.
#[utoipa::path(
    post, path = "/api/agents", tag = "agents", operation_id = "deployAgent",
    params(Repeatable),
    request_body = DeployAgent,
    responses((status = 201, description = "The agent", body = AgentBody), Always, Invalid, Missing, Conflict, TooLarge),
)]
pub(super) async fn deploy(
    State(app): State<App>,
    caller: Caller,
    key: IdempotencyKey,
    JsonBody { value: body, digest, .. }: JsonBody<DeployAgent, MAX_AGENT>,
) -> Result<(StatusCode, JsonAnswer<AgentBody>), ApiError> {
    let name: AgentName = body.name.parse().map_err(|_| {
        ApiError::invalid("name must have 1 to 255 letters, digits, hyphens and underscores")
    })?;
    check_env(body.env.as_ref())?;
    let idempotency = key.of(&caller.tenant, digest);
    if let Some(agent) = earlier(&app, &caller, &name, idempotency.as_ref()).await? {
        return Ok((StatusCode::CREATED, JsonAnswer(shown(&app, &agent)?)));
    }
    let _turn = app.change_settings().await;
    let settings = match body.env.clone() {
        Some(env) => {
            let mut settings = match app.store().agent(&caller.tenant, &name).await {
                Ok(agent) => settings_of(&app, &agent)?,
                Err(StoreError::NotFound(_)) => AgentSettings::default(),
                Err(error) => return Err(error.into()),
            };
            settings.env = env;
            Some(settings.seal(app.sealer()).map_err(ApiError::internal)?)
        }
        None => None,
    };
    let definition = capture(&app, &caller, body).await?;
    let addition = Addition { definition, settings, label: NewLabel::default() };
    let agent = add(&app, &caller, &name, addition, idempotency.as_ref()).await?;
    app.engine().prewarm();
    Ok((StatusCode::CREATED, JsonAnswer(shown(&app, &agent)?)))
}

/// A version to be added.
pub(super) struct Addition {
    pub(super) definition: Definition,
    /// Replaces what the agent is set to.
    pub(super) settings: Option<Json>,
    pub(super) label: NewLabel,
}

/// Adds a version, or finds the one that the same request has added meanwhile.
pub(super) async fn add(
    app: &App,
    caller: &Caller,
    name: &AgentName,
    Addition { definition, settings, label }: Addition,
    idempotency: Option<&Idempotency>,
) -> Result<Agent, ApiError> {
    let receipt = match idempotency {
        Some(idempotency) => Some(Receipt {
            key: idempotency.key.clone(),
            body_digest: idempotency.body_digest,
            // The store puts the version there, which nobody knows before.
            answer: Json::of(&()).map_err(ApiError::internal)?,
            at: app.now(),
        }),
        None => None,
    };
    let version = NewAgentVersion {
        id: app.make(AgentId::from_parts),
        tenant: caller.tenant.clone(),
        name: name.clone(),
        definition: Json::of(&definition).map_err(ApiError::internal)?,
        at: app.now(),
        receipt,
        settings,
        label,
    };
    match app.store().deploy_agent(&version).await {
        Ok(agent) => Ok(agent),
        Err(StoreError::Exists("receipt")) => {
            let earlier = earlier(app, caller, name, idempotency).await?;
            earlier.ok_or_else(|| ApiError::internal("a receipt came and went"))
        }
        Err(error) => Err(error.into()),
    }
}

/// The version that an earlier request with the same key has added.
pub(super) async fn earlier(
    app: &App,
    caller: &Caller,
    name: &AgentName,
    idempotency: Option<&Idempotency>,
) -> Result<Option<Agent>, ApiError> {
    #[derive(Deserialize)]
    struct Earlier {
        agent: AgentId,
        version: AgentVersion,
    }
    let Some(idempotency) = idempotency else { return Ok(None) };
    let Some(earlier) = app.engine().receipt_of(idempotency).await? else { return Ok(None) };
    let earlier = serde_json::from_str(earlier.get()).map_err(ApiError::internal)?;
    let Earlier { agent: id, version } = earlier;
    let agent = app.store().agent_version(&caller.tenant, name, version).await?;
    if agent.id != id {
        return Err(ApiError::not_found("The agent that was deployed then was deleted"));
    }
    Ok(Some(agent))
}

/// Files as they were sent, out of their base64.
pub(super) fn decoded(files: Vec<api::AgentFile>) -> Result<Vec<SentFile>, ApiError> {
    let decode = |api::AgentFile { path, content, executable }| {
        let content = decode(&content).map_err(|why| {
            let path: String = path.chars().take(200).collect();
            ApiError::invalid(format!("The content of {path:?} is not base64: {why}"))
        })?;
        Ok(SentFile { path, content, executable })
    };
    files.into_iter().map(decode).collect()
}

/// Captures a version once more, with some files changed.
pub(super) async fn changed(
    app: &App,
    base: Definition,
    put: Vec<SentFile>,
    removed: Vec<String>,
) -> Result<Definition, ApiError> {
    let library = app.library().clone();
    let capture = move || library.capture_changed(&base, put, &removed);
    let captured = tokio::task::spawn_blocking(capture).await;
    captured.map_err(ApiError::internal)?.map_err(not_deployed)
}

/// Puts an agent's files into the library.
async fn capture(app: &App, caller: &Caller, body: DeployAgent) -> Result<Definition, ApiError> {
    let library = app.library().clone();
    let DeployAgent { path, files, system_prompt, .. } = body;
    // An empty one beside something else is a form's field that nobody filled in.
    let is_left_out = |prompt: &String| prompt.is_empty() && (path.is_some() || files.is_some());
    let system_prompt = system_prompt.filter(|prompt| !is_left_out(prompt));
    check_prompt(system_prompt.as_deref())?;
    let captured = match (path, files, system_prompt) {
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
            return Err(ApiError::invalid("path goes neither with files nor with systemPrompt"));
        }
        (Some(path), None, None) => {
            if caller.tenant != TenantId::default_tenant() {
                let message = "Only the server's own tenant may deploy a directory of its machine";
                return Err(ApiError::new(StatusCode::FORBIDDEN, Code::PATH_NOT_ALLOWED, message));
            }
            length("path", &path, 4_096)?;
            tokio::task::spawn_blocking(move || library.capture_path(path.as_ref())).await
        }
        (None, None, None) => {
            return Err(ApiError::invalid("path, files or systemPrompt is missing"));
        }
        (None, files, prompt) => {
            let mut contents = decoded(files.unwrap_or_default())?;
            if let Some(prompt) = prompt {
                contents.retain(|file: &SentFile| file.path != "CLAUDE.md");
                contents.push(("CLAUDE.md".to_owned(), prompt.into_bytes()).into());
            }
            tokio::task::spawn_blocking(move || library.capture_files(contents)).await
        }
    };
    captured.map_err(ApiError::internal)?.map_err(not_deployed)
}

fn not_deployed(error: DeployError) -> ApiError {
    let status = match &error {
        DeployError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        DeployError::TooManyFiles { .. } | DeployError::TooLarge { .. } => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        DeployError::NoInstructions
        | DeployError::NotADirectory { .. }
        | DeployError::Unreadable { .. }
        | DeployError::BadPath { .. }
        | DeployError::SpecialFile { .. }
        | DeployError::BadLink { .. }
        | DeployError::Manifest { .. } => StatusCode::BAD_REQUEST,
    };
    let refused = ApiError::new(status, &error, error.to_string());
    if error.is_transient() { refused.later(1) } else { refused }
}

/// List agents
#[utoipa::path(
    get, path = "/api/agents", tag = "agents", operation_id = "listAgents",
    responses((status = 200, description = "The agents, by name", body = Agents), Always),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<JsonAnswer<Agents>, ApiError> {
    let agents = app.store().agents(&caller.tenant).await?;
    let agents = agents.iter().map(|agent| shown(&app, agent).map(|body| body.agent));
    Ok(JsonAnswer(Agents { agents: agents.collect::<Result<_, _>>()? }))
}

/// Look at an agent
#[utoipa::path(
    get, path = "/api/agents/{name}", tag = "agents", operation_id = "getAgent",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")),
    responses((status = 200, description = "The agent", body = AgentBody), Always, Invalid, Missing),
)]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
) -> Result<JsonAnswer<AgentBody>, ApiError> {
    let agent = app.store().agent(&caller.tenant, &name).await?;
    Ok(JsonAnswer(shown(&app, &agent)?))
}

/// Change an agent's variables and settings
///
/// Sandboxes that start from now on have them.
#[utoipa::path(
    patch, path = "/api/agents/{name}", tag = "agents", operation_id = "updateAgent",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")),
    request_body = UpdateAgent,
    responses((status = 200, description = "The agent", body = AgentBody), Always, Invalid, Missing, TooLarge),
)]
pub(super) async fn update(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
    JsonBody { value: body, .. }: JsonBody<UpdateAgent>,
) -> Result<JsonAnswer<AgentBody>, ApiError> {
    let (agent, _) = set(&app, &caller, &name, body.env, body.config).await?;
    Ok(JsonAnswer(shown(&app, &agent)?))
}

/// Delete an agent
///
/// Its sessions are ended, and hidden at once.
#[utoipa::path(
    delete, path = "/api/agents/{name}", tag = "agents", operation_id = "deleteAgent",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")),
    responses((status = 200, description = "It is gone", body = AgentDeleted), Always, Invalid, Missing),
)]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
) -> Result<JsonAnswer<AgentDeleted>, ApiError> {
    app.engine().delete_agent(&caller.tenant, &name).await?;
    Ok(JsonAnswer(AgentDeleted { ok: true }))
}

/// Read the free settings of an agent
#[utoipa::path(
    get, path = "/api/agents/{name}/config", tag = "agents", operation_id = "getAgentConfig",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")),
    responses((status = 200, description = "The settings", body = AgentConfig), Always, Invalid, Missing),
)]
pub(super) async fn config(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
) -> Result<JsonAnswer<AgentConfig>, ApiError> {
    let agent = app.store().agent(&caller.tenant, &name).await?;
    Ok(JsonAnswer(AgentConfig { config: settings_of(&app, &agent)?.config }))
}

/// Change the free settings of an agent
///
/// Those that are named are replaced, the others stay. The body is the settings, or an object with nothing but them as
/// `config`. `preWarmCount` goes before `prewarm` of `ash.toml`.
#[utoipa::path(
    patch, path = "/api/agents/{name}/config", tag = "agents", operation_id = "updateAgentConfig",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")),
    request_body = BTreeMap<String, serde_json::Value>,
    responses((status = 200, description = "All settings", body = AgentConfig), Always, Invalid, Missing, TooLarge),
)]
pub(super) async fn configure(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
    JsonBody { value: mut body, .. }: JsonBody<BTreeMap<String, Value>>,
) -> Result<JsonAnswer<AgentConfig>, ApiError> {
    if body.len() == 1
        && let Some(Value::Object(inner)) = body.get("config")
    {
        body = inner.clone().into_iter().collect();
    }
    let config = set(&app, &caller, &name, None, Some(body)).await?.1;
    Ok(JsonAnswer(AgentConfig { config }))
}

/// How many bytes the free settings of an agent may have together, as JSON.
const MAX_CONFIG: usize = 262_144;

/// Changes what an agent is set to.
async fn set(
    app: &App,
    caller: &Caller,
    name: &AgentName,
    env: Option<BTreeMap<String, String>>,
    config: Option<BTreeMap<String, Value>>,
) -> Result<(Agent, BTreeMap<String, Value>), ApiError> {
    check_env(env.as_ref())?;
    if let Some(count) = config.as_ref().and_then(|config| config.get(PREWARM_COUNT)) {
        let fine = count.is_null() || count.as_u64().is_some_and(|count| count <= MAX_PREWARM);
        if !fine {
            let message = format!("{PREWARM_COUNT} must be a whole number from 0 to {MAX_PREWARM}");
            return Err(ApiError::invalid(message));
        }
    }
    let _turn = app.change_settings().await;
    let agent = app.store().agent(&caller.tenant, name).await?;
    let mut settings = settings_of(app, &agent)?;
    if let Some(env) = env {
        settings.env = env;
    }
    settings.config.extend(config.unwrap_or_default());
    let size = serde_json::to_vec(&settings.config).map_err(ApiError::internal)?.len();
    range("the size of config", size, 0, MAX_CONFIG)?;
    let sealed = settings.seal(app.sealer()).map_err(ApiError::internal)?;
    let agent = app.store().configure_agent(&caller.tenant, name, &sealed, app.now()).await?;
    app.engine().prewarm();
    Ok((agent, settings.config))
}

fn settings_of(app: &App, agent: &Agent) -> Result<AgentSettings, ApiError> {
    AgentSettings::open(&agent.settings, app.sealer()).map_err(ApiError::internal)
}

fn shown(app: &App, agent: &Agent) -> Result<AgentBody, ApiError> {
    view(agent, app.library(), &app.parts().runtimes)
        .map(|agent| AgentBody { agent })
        .map_err(ApiError::internal)
}
