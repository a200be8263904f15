//! Agents: deployed from a directory, from files or from instructions alone; immutable from then on.

use ash_core::id::{AgentId, AgentName, TenantId};
use ash_core::json::Json;
use ash_core::number::AgentVersion;
use ash_engine::agent::{DeployError, ReadError, SentFile};
use ash_store::{Agent, NewAgentVersion, Receipt, StoreError};
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

use super::app::App;
use super::auth::Caller;
use super::checks::check_env;
use super::code::Code;
use super::error::ApiError;
use super::extract::{JsonBody, PathId, PathIds, length};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::openapi::{Always, Conflict, Invalid, Missing, TooLarge};
use crate::agents::{AgentSettings, Definition, definition_of, prompt_of, view};
use crate::api::{
    self, AgentBody, AgentDeleted, AgentFileContent, AgentFileInfo, AgentFiles, AgentVersionBody,
    AgentVersions, Agents, DeployAgent, UpdateAgent,
};

/// The largest agent on the wire: its files in base64.
const MAX_AGENT: usize = 96 * 1024 * 1024;

/// The largest file whose content is shown.
const MAX_SHOWN: u64 = 1024 * 1024;

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
    if let Some(idempotency) = &idempotency
        && let Some(earlier) = app.engine().receipt_of(idempotency).await?
    {
        return deployed_before(&app, &caller, &name, &earlier).await;
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
    let receipt = match &idempotency {
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
    };
    let agent = match app.store().deploy_agent(&version).await {
        Ok(agent) => agent,
        Err(StoreError::Exists("receipt")) => {
            let idempotency = idempotency.as_ref().expect("there is a receipt only with a key");
            let earlier = app.engine().receipt_of(idempotency).await?;
            let earlier = earlier.ok_or_else(|| ApiError::internal("a receipt came and went"))?;
            return deployed_before(&app, &caller, &name, &earlier).await;
        }
        Err(error) => return Err(error.into()),
    };
    app.engine().prewarm();
    Ok((StatusCode::CREATED, JsonAnswer(shown(&app, &agent)?)))
}

/// The answer to a request that was carried out before.
async fn deployed_before(
    app: &App,
    caller: &Caller,
    name: &AgentName,
    earlier: &Json,
) -> Result<(StatusCode, JsonAnswer<AgentBody>), ApiError> {
    #[derive(Deserialize)]
    struct Earlier {
        agent: AgentId,
        version: AgentVersion,
    }
    let earlier = serde_json::from_str(earlier.get()).map_err(ApiError::internal)?;
    let Earlier { agent: id, version } = earlier;
    let agent = app.store().agent_version(&caller.tenant, name, version).await?;
    if agent.id != id {
        return Err(ApiError::not_found("The agent that was deployed then was deleted"));
    }
    Ok((StatusCode::CREATED, JsonAnswer(shown(app, &agent)?)))
}

/// Puts an agent's files into the library.
async fn capture(app: &App, caller: &Caller, body: DeployAgent) -> Result<Definition, ApiError> {
    let library = app.library().clone();
    let DeployAgent { path, files, system_prompt, .. } = body;
    length("systemPrompt", system_prompt.as_deref().unwrap_or_default(), 1_000_000)?;
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
            let mut contents = Vec::new();
            for api::AgentFile { path, content, executable } in files.unwrap_or_default() {
                let content = BASE64_STANDARD.decode(content.trim()).map_err(|error| {
                    let path: String = path.chars().take(200).collect();
                    ApiError::invalid(format!("The content of {path:?} is not base64: {error}"))
                })?;
                contents.push(SentFile { path, content, executable });
            }
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
    check_env(body.env.as_ref())?;
    let _turn = app.change_settings().await;
    let agent = app.store().agent(&caller.tenant, &name).await?;
    let mut settings = settings_of(&app, &agent)?;
    if let Some(env) = body.env {
        settings.env = env;
    }
    settings.config.extend(body.config.unwrap_or_default());
    let sealed = settings.seal(app.sealer()).map_err(ApiError::internal)?;
    let agent = app.store().configure_agent(&caller.tenant, &name, &sealed, app.now()).await?;
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

/// List the versions of an agent, newest first
#[utoipa::path(
    get, path = "/api/agents/{name}/versions", tag = "agents", operation_id = "listAgentVersions",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")),
    responses((status = 200, description = "The versions", body = AgentVersions), Always, Invalid, Missing),
)]
pub(super) async fn versions(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
) -> Result<JsonAnswer<AgentVersions>, ApiError> {
    let versions = app.store().agent_versions(&caller.tenant, &name).await?;
    let latest = versions.first().map(|agent| agent.version);
    let shown = versions.iter().map(|agent| version_view(&app, agent, latest));
    Ok(JsonAnswer(AgentVersions { versions: shown.collect::<Result<_, _>>()? }))
}

/// The number of a version, as a path has it.
pub(super) struct Number(u32);

impl std::str::FromStr for Number {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text
            .parse()
            .ok()
            .filter(|number| digits && (1..=i32::MAX.cast_unsigned()).contains(number));
        number.map(Self).ok_or("a version that is not a number from 1")
    }
}

/// Look at a version of an agent
#[utoipa::path(
    get, path = "/api/agents/{name}/versions/{version}", tag = "agents", operation_id = "getAgentVersion",
    params(
        ("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$"),
        ("version" = u32, Path, description = "The version", minimum = 1, maximum = 2_147_483_647),
    ),
    responses((status = 200, description = "The version", body = AgentVersionBody), Always, Invalid, Missing),
)]
pub(super) async fn version(
    State(app): State<App>,
    caller: Caller,
    PathIds(name, Number(number)): PathIds<AgentName, Number>,
) -> Result<JsonAnswer<AgentVersionBody>, ApiError> {
    let version = AgentVersion::new(number);
    let agent = app.store().agent_version(&caller.tenant, &name, version).await?;
    let latest = app.store().agent(&caller.tenant, &name).await?.version;
    let version = version_view(&app, &agent, Some(latest))?;
    Ok(JsonAnswer(AgentVersionBody { version }))
}

/// List the files of an agent
#[utoipa::path(
    get, path = "/api/agents/{name}/files", tag = "agents", operation_id = "listAgentFiles",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")),
    responses((status = 200, description = "The files of its latest version", body = AgentFiles), Always, Invalid, Missing),
)]
pub(super) async fn files(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
) -> Result<JsonAnswer<AgentFiles>, ApiError> {
    let agent = app.store().agent(&caller.tenant, &name).await?;
    let definition = definition_of(&agent).map_err(ApiError::internal)?;
    let library = app.library().clone();
    let listed = tokio::task::spawn_blocking(move || library.list(&definition)).await;
    let listed = listed.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
    let files = listed.into_iter().map(|file| AgentFileInfo { path: file.path, size: file.size });
    Ok(JsonAnswer(AgentFiles { files: files.collect() }))
}

/// Read a file of an agent
#[utoipa::path(
    get, path = "/api/agents/{name}/files/{*path}", tag = "agents", operation_id = "getAgentFile",
    params(
        ("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$"),
        ("path" = String, Path, description = "The file", min_length = 1),
    ),
    responses((status = 200, description = "The file", body = AgentFileContent), Always, Invalid, Missing),
)]
pub(super) async fn file(
    State(app): State<App>,
    caller: Caller,
    PathIds(name, path): PathIds<AgentName, String>,
) -> Result<JsonAnswer<AgentFileContent>, ApiError> {
    let agent = app.store().agent(&caller.tenant, &name).await?;
    let definition = definition_of(&agent).map_err(ApiError::internal)?;
    let library = app.library().clone();
    let wanted = path.clone();
    let read = tokio::task::spawn_blocking(move || library.read(&definition, &wanted)).await;
    let content = read.map_err(ApiError::internal)?.map_err(|error| match error {
        ReadError::NotFound { .. } => ApiError::not_found("File not found"),
        ReadError::BadPath { .. } => ApiError::invalid("Invalid file path"),
        ReadError::NotAFile { .. } => ApiError::invalid("Path is not a file"),
        ReadError::Unavailable { .. } => ApiError::internal(error),
    })?;
    let size = content.len() as u64;
    if size > MAX_SHOWN {
        return Err(ApiError::invalid(format!("File too large ({size} bytes)")));
    }
    let content = String::from_utf8_lossy(&content).into_owned();
    Ok(JsonAnswer(AgentFileContent { path, content, size }))
}

fn settings_of(app: &App, agent: &Agent) -> Result<AgentSettings, ApiError> {
    AgentSettings::open(&agent.settings, app.sealer()).map_err(ApiError::internal)
}

fn shown(app: &App, agent: &Agent) -> Result<AgentBody, ApiError> {
    view(agent, app.library(), &app.parts().runtimes)
        .map(|agent| AgentBody { agent })
        .map_err(ApiError::internal)
}

fn version_view(
    app: &App,
    agent: &Agent,
    latest: Option<AgentVersion>,
) -> Result<api::AgentVersion, ApiError> {
    let definition = definition_of(agent).map_err(ApiError::internal)?;
    Ok(api::AgentVersion {
        version_number: agent.version.get(),
        agent_name: agent.name.to_string(),
        is_active: Some(agent.version) == latest,
        system_prompt: prompt_of(app.library(), &definition),
        digest: definition.digest.clone(),
        files: definition.files,
        bytes: definition.bytes,
        created_at: api::rfc3339(agent.updated_at),
    })
}
