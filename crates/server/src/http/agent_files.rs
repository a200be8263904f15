//! The files of agents. Each change makes the next version, which is active then; sessions keep theirs.

use ash_core::id::AgentName;
use ash_engine::Idempotency;
use ash_engine::agent::{ReadError, SentFile};
use ash_store::{Agent, NewLabel};
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::agents::{Addition, MAX_AGENT, add, changed, decoded, earlier};
use super::app::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, PathId, PathIds, Query, range};
use super::files::encoded;
use super::idempotency::{IdempotencyKey, Repeatable};
use super::media::media_type;
use super::openapi::{Always, Conflict, Invalid, Missing, TooLarge};
use crate::agents::definition_of;
use crate::api::{
    self, AgentFileContent, AgentFileDeleted, AgentFileInfo, AgentFiles, AgentFilesWritten,
    WriteAgentFiles,
};

/// The largest file whose content is shown as JSON.
const MAX_SHOWN: u64 = 1024 * 1024;

/// List the files of an agent
#[utoipa::path(
    get, path = "/api/agents/{name}/files", tag = "agents", operation_id = "listAgentFiles",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")),
    responses((status = 200, description = "The files of its active version", body = AgentFiles), Always, Invalid, Missing),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
) -> Result<JsonAnswer<AgentFiles>, ApiError> {
    let agent = app.store().agent(&caller.tenant, &name).await?;
    let definition = definition_of(&agent).map_err(ApiError::internal)?;
    let library = app.library().clone();
    let listed = tokio::task::spawn_blocking(move || library.list(&definition)).await;
    let listed = listed.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
    let files = listed.into_iter().map(|file| AgentFileInfo {
        path: file.path,
        size: file.size,
        modified_at: api::rfc3339(file.modified),
    });
    Ok(JsonAnswer(AgentFiles { files: files.collect() }))
}

/// As what a file of an agent is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum AgentFileFormat {
    /// As text in JSON, at most 1 MB.
    #[default]
    Json,
    /// As it is.
    Raw,
}

/// How to read a file of an agent.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ReadQuery {
    /// As what it is sent: `json`, unless told otherwise.
    #[serde(default)]
    #[param(inline, nullable = false)]
    format: Option<AgentFileFormat>,
}

/// Read a file of an agent
#[utoipa::path(
    get, path = "/api/agents/{name}/files/{*path}", tag = "agents", operation_id = "getAgentFile",
    params(
        ("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$"),
        ("path" = String, Path, description = "The file", min_length = 1),
        ReadQuery,
    ),
    responses(
        (
            status = 200, description = "The file",
            headers(("Content-Disposition" = String, description = "Its name, if it is sent as it is")),
            content((AgentFileContent = "application/json"), (String = "*/*")),
        ),
        Always, Invalid, Missing,
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    PathIds(name, path): PathIds<AgentName, String>,
    Query(query): Query<ReadQuery>,
) -> Result<Response, ApiError> {
    let agent = app.store().agent(&caller.tenant, &name).await?;
    let content = content_of(&app, &agent, &path).await?;
    let size = content.len() as u64;
    match query.format.unwrap_or_default() {
        AgentFileFormat::Json if size > MAX_SHOWN => {
            Err(ApiError::invalid(format!("File too large ({size} bytes, max {MAX_SHOWN})")))
        }
        AgentFileFormat::Json => {
            let content = String::from_utf8_lossy(&content).into_owned();
            Ok(JsonAnswer(AgentFileContent { path, content, size }).into_response())
        }
        AgentFileFormat::Raw => {
            let name = path.rsplit('/').next().unwrap_or_default();
            let disposition = format!("attachment; filename*=UTF-8''{}", encoded(name));
            let headers = [
                (header::CONTENT_TYPE, media_type(name).to_owned()),
                (header::CONTENT_DISPOSITION, disposition),
            ];
            Ok((headers, content).into_response())
        }
    }
}

/// What is in a file of a version.
async fn content_of(app: &App, agent: &Agent, path: &str) -> Result<Vec<u8>, ApiError> {
    let definition = definition_of(agent).map_err(ApiError::internal)?;
    let library = app.library().clone();
    let wanted = path.to_owned();
    let read = tokio::task::spawn_blocking(move || library.read(&definition, &wanted)).await;
    read.map_err(ApiError::internal)?.map_err(|error| match error {
        ReadError::NotFound { .. } => ApiError::not_found("File not found"),
        ReadError::BadPath { .. } => ApiError::invalid("Invalid file path"),
        ReadError::NotAFile { .. } => ApiError::invalid("Path is not a file"),
        ReadError::Unavailable { .. } => ApiError::internal(error),
    })
}

/// Put files into an agent
///
/// All of them or none. It makes the next version, which is active then.
#[utoipa::path(
    post, path = "/api/agents/{name}/files", tag = "agents", operation_id = "writeAgentFiles",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$"), Repeatable),
    request_body = WriteAgentFiles,
    responses((status = 200, description = "They are there", body = AgentFilesWritten), Always, Invalid, Missing, Conflict, TooLarge),
)]
pub(super) async fn write(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
    key: IdempotencyKey,
    JsonBody { value: body, digest, .. }: JsonBody<WriteAgentFiles, MAX_AGENT>,
) -> Result<JsonAnswer<AgentFilesWritten>, ApiError> {
    let written = range("the number of files", body.files.len(), 1, 10_000)? as u64;
    let idempotency = key.of(&caller.tenant, digest);
    let made = match earlier(&app, &caller, &name, idempotency.as_ref()).await? {
        Some(made) => made,
        None => {
            let put = decoded(body.files)?;
            change(&app, &caller, &name, put, Vec::new(), idempotency.as_ref()).await?
        }
    };
    Ok(JsonAnswer(AgentFilesWritten { written, version: made.version.get() }))
}

/// Take a file out of an agent
///
/// It makes the next version, which is active then. `CLAUDE.md` stays.
#[utoipa::path(
    delete, path = "/api/agents/{name}/files/{*path}", tag = "agents", operation_id = "deleteAgentFile",
    params(
        ("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$"),
        ("path" = String, Path, description = "The file", min_length = 1),
    ),
    responses((status = 200, description = "It is gone", body = AgentFileDeleted), Always, Invalid, Missing),
)]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    PathIds(name, path): PathIds<AgentName, String>,
) -> Result<JsonAnswer<AgentFileDeleted>, ApiError> {
    let made = change(&app, &caller, &name, Vec::new(), vec![path.clone()], None).await?;
    Ok(JsonAnswer(AgentFileDeleted { path, deleted: true, version: made.version.get() }))
}

/// Makes the next version of the active one, with some files changed.
async fn change(
    app: &App,
    caller: &Caller,
    name: &AgentName,
    put: Vec<SentFile>,
    removed: Vec<String>,
    idempotency: Option<&Idempotency>,
) -> Result<Agent, ApiError> {
    // Two changes at once would each be made to the same version, and one of them be lost.
    let _turn = app.change_settings().await;
    let active = app.store().agent(&caller.tenant, name).await?;
    for path in &removed {
        content_of(app, &active, path).await?;
    }
    let base = definition_of(&active).map_err(ApiError::internal)?;
    let definition = changed(app, base, put, removed).await?;
    let addition = Addition { definition, settings: None, label: NewLabel::default() };
    let made = add(app, caller, name, addition, idempotency).await?;
    app.engine().prewarm();
    Ok(made)
}
