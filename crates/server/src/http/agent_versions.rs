//! Versions of agents: made, named, changed, and chosen for new sessions.
//!
//! What a session was made with never changes. What people call version 2 can come to consist of something else; the store
//! keeps the two apart, and this shows them as one.

use std::str::FromStr;

use ash_core::id::{AgentId, AgentName};
use ash_core::json::Json;
use ash_core::number::AgentVersion;
use ash_engine::agent::Definition;
use ash_store::{LabelledVersion, NewLabel, StoreError, VersionChange, VersionLabel};
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::de::IgnoredAny;
use uuid::Uuid;

use super::agents::{Addition, add, changed, earlier};
use super::app::App;
use super::auth::Caller;
use super::checks::check_prompt;
use super::code::Code;
use super::error::ApiError;
use super::extract::{JsonBody, MaybeJson, PathId, PathIds, length, range};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::messages::named_id;
use super::openapi::{Always, Conflict, Invalid, Missing, TooLarge};
use crate::agents::{definition_of, prompt_of};
use crate::api::{
    self, AgentVersionBody, AgentVersions, CloneFrom, NewAgentVersion, UpdateAgentVersion,
    VersionActivated, VersionDeleted,
};

/// The largest body: instructions, and what is said about them.
const MAX_VERSION: usize = 16 * 1024 * 1024;

/// How many files a version can be said to know things from.
const MAX_KNOWLEDGE: usize = 1_000;

/// What is said of one that can be none.
const NO_SUCH: &str = "Version not found: a version is named by its number, from 1, or by its id";

/// A version, as a path or a body names it.
pub(super) enum Which {
    /// By its number.
    Number(u32),
    /// By its id.
    Id(Uuid),
}

impl FromStr for Which {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text
            .parse()
            .ok()
            .filter(|number| digits && (1..=i32::MAX.cast_unsigned()).contains(number));
        number.map(Self::Number).ok_or(NO_SUCH)
    }
}

impl Which {
    fn is(&self, version: &LabelledVersion) -> bool {
        match self {
            Self::Number(number) => version.number.get() == *number,
            Self::Id(id) => id_of(version.agent.id, version.number) == *id,
        }
    }
}

/// The id of a version: made from what tells it from all others, so it need not be kept.
fn id_of(agent: AgentId, number: AgentVersion) -> Uuid {
    named_id(&["agent version", &agent.to_string(), &number.to_string()])
}

/// List the versions of an agent, newest first
#[utoipa::path(
    get, path = "/api/agents/{name}/versions", tag = "agents", operation_id = "listAgentVersions",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$")),
    responses((status = 200, description = "The versions", body = AgentVersions), Always, Invalid, Missing),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
) -> Result<JsonAnswer<AgentVersions>, ApiError> {
    let versions = app.store().agent_versions(&caller.tenant, &name).await?;
    let shown = versions.iter().map(|version| view(&app, version));
    Ok(JsonAnswer(AgentVersions { versions: shown.collect::<Result<_, _>>()? }))
}

/// Add a version of an agent
///
/// It has the files of the version that it is made from, and its instructions unless it brings others. New
/// sessions get it once it is activated.
#[utoipa::path(
    post, path = "/api/agents/{name}/versions", tag = "agents", operation_id = "createAgentVersion",
    params(("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$"), Repeatable),
    request_body = NewAgentVersion,
    responses((status = 201, description = "The version", body = AgentVersionBody), Always, Invalid, Missing, Conflict, TooLarge),
)]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    PathId(name): PathId<AgentName>,
    key: IdempotencyKey,
    JsonBody { value: body, digest, .. }: JsonBody<NewAgentVersion, MAX_VERSION>,
) -> Result<(StatusCode, JsonAnswer<AgentVersionBody>), ApiError> {
    let label = label_of(body.name, body.release_notes, body.knowledge_files)?;
    check_prompt(body.system_prompt.as_deref())?;
    let idempotency = key.of(&caller.tenant, digest);
    let made = match earlier(&app, &caller, &name, idempotency.as_ref()).await? {
        Some(made) => made,
        None => {
            let _turn = app.change_settings().await;
            let base = base_of(&app, &caller, &name, body.clone_from, label.knowledge.is_none());
            let (base, knowledge) = base.await?;
            let label = VersionLabel { knowledge: label.knowledge.or(knowledge), ..label };
            let definition = instructed(&app, base, body.system_prompt).await?;
            let label = NewLabel { label, is_draft: true };
            let addition = Addition { definition, settings: None, label };
            add(&app, &caller, &name, addition, idempotency.as_ref()).await?
        }
    };
    let made = find(&app, &caller, &name, &Which::Number(made.version.get())).await?;
    let version = view(&app, &made)?;
    Ok((StatusCode::CREATED, JsonAnswer(AgentVersionBody { version })))
}

/// What a new version is made from.
async fn base_of(
    app: &App,
    caller: &Caller,
    name: &AgentName,
    from: Option<CloneFrom>,
    with_knowledge: bool,
) -> Result<(Definition, Option<Vec<String>>), ApiError> {
    let Some(from) = from else {
        let active = app.store().agent(&caller.tenant, name).await?;
        return Ok((definition_of(&active).map_err(ApiError::internal)?, None));
    };
    let text = match from {
        CloneFrom::Number(number) => number.to_string(),
        CloneFrom::Text(text) => text,
    };
    let shown: String = text.chars().take(64).collect();
    let nowhere = || ApiError::invalid(format!("Source version {shown} not found"));
    let which: Which = text.parse().map_err(|_| nowhere())?;
    let versions = app.store().agent_versions(&caller.tenant, name).await?;
    let found = versions.into_iter().find(|version| which.is(version)).ok_or_else(nowhere)?;
    let definition = definition_of(&found.agent).map_err(ApiError::internal)?;
    Ok((definition, found.label.knowledge.filter(|_| with_knowledge)))
}

/// The same with other instructions, if there are any.
async fn instructed(
    app: &App,
    base: Definition,
    prompt: Option<String>,
) -> Result<Definition, ApiError> {
    let Some(prompt) = prompt else { return Ok(base) };
    let instructions = ("CLAUDE.md".to_owned(), prompt.into_bytes()).into();
    let source = base.source.clone();
    let changed = changed(app, base, vec![instructions], Vec::new()).await?;
    Ok(Definition { source, ..changed })
}

fn label_of(
    name: Option<String>,
    notes: Option<String>,
    knowledge: Option<Vec<String>>,
) -> Result<VersionLabel, ApiError> {
    length("name", name.as_deref().unwrap_or_default(), 255)?;
    if name.as_deref() == Some("") {
        return Err(ApiError::invalid("name is empty"));
    }
    length("releaseNotes", notes.as_deref().unwrap_or_default(), 10_000)?;
    let files = knowledge.as_deref().unwrap_or_default();
    range("the number of knowledgeFiles", files.len(), 0, MAX_KNOWLEDGE)?;
    files.iter().try_for_each(|file| length("a path in knowledgeFiles", file, 4_096))?;
    Ok(VersionLabel { name, notes, knowledge })
}

/// Look at a version of an agent
#[utoipa::path(
    get, path = "/api/agents/{name}/versions/{version}", tag = "agents", operation_id = "getAgentVersion",
    params(
        ("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$"),
        ("version" = String, Path, description = "The version: its number, or its id", min_length = 1, max_length = 36, pattern = "^([1-9][0-9]{0,8}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$"),
    ),
    responses((status = 200, description = "The version", body = AgentVersionBody), Always, Invalid, Missing),
)]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    PathIds(name, which): PathIds<AgentName, Which>,
) -> Result<JsonAnswer<AgentVersionBody>, ApiError> {
    let found = find(&app, &caller, &name, &which).await?;
    Ok(JsonAnswer(AgentVersionBody { version: view(&app, &found)? }))
}

/// Change a version of an agent
///
/// Sessions keep what they were made with.
#[utoipa::path(
    patch, path = "/api/agents/{name}/versions/{version}", tag = "agents", operation_id = "updateAgentVersion",
    params(
        ("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$"),
        ("version" = String, Path, description = "The version: its number, or its id", min_length = 1, max_length = 36, pattern = "^([1-9][0-9]{0,8}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$"),
    ),
    request_body = UpdateAgentVersion,
    responses((status = 200, description = "The version", body = AgentVersionBody), Always, Invalid, Missing, TooLarge),
)]
pub(super) async fn update(
    State(app): State<App>,
    caller: Caller,
    PathIds(name, which): PathIds<AgentName, Which>,
    JsonBody { value: body, .. }: JsonBody<UpdateAgentVersion, MAX_VERSION>,
) -> Result<JsonAnswer<AgentVersionBody>, ApiError> {
    let label = label_of(body.name, body.release_notes, body.knowledge_files)?;
    check_prompt(body.system_prompt.as_deref())?;
    let _turn = app.change_settings().await;
    let found = find(&app, &caller, &name, &which).await?;
    let definition = match body.system_prompt {
        Some(prompt) => {
            let base = definition_of(&found.agent).map_err(ApiError::internal)?;
            let before = base.digest.clone();
            let after = instructed(&app, base, Some(prompt)).await?;
            // The same instructions once more are no other content.
            Some(after).filter(|after| after.digest != before)
        }
        None => None,
    };
    let definition = definition.as_ref().map(Json::of).transpose().map_err(ApiError::internal)?;
    let change = VersionChange::Amend { label, definition };
    let changed = apply(&app, &caller, &name, found.number, &change).await?;
    Ok(JsonAnswer(AgentVersionBody { version: view(&app, &changed)? }))
}

/// Delete a version of an agent
///
/// Sessions keep what they were made with. The active version stays.
#[utoipa::path(
    delete, path = "/api/agents/{name}/versions/{version}", tag = "agents", operation_id = "deleteAgentVersion",
    params(
        ("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$"),
        ("version" = String, Path, description = "The version: its number, or its id", min_length = 1, max_length = 36, pattern = "^([1-9][0-9]{0,8}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$"),
    ),
    responses((status = 200, description = "It is gone", body = VersionDeleted), Always, Invalid, Missing, Conflict),
)]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    PathIds(name, which): PathIds<AgentName, Which>,
) -> Result<JsonAnswer<VersionDeleted>, ApiError> {
    let number = find(&app, &caller, &name, &which).await?.number;
    apply(&app, &caller, &name, number, &VersionChange::Delete).await?;
    Ok(JsonAnswer(VersionDeleted { deleted: true, version_number: number.get() }))
}

/// Give a version of an agent to new sessions
#[utoipa::path(
    post, path = "/api/agents/{name}/versions/{version}/activate", tag = "agents", operation_id = "activateAgentVersion",
    params(
        ("name" = String, Path, description = "The agent", min_length = 1, max_length = 255, pattern = "^[a-zA-Z0-9_-]+$"),
        ("version" = String, Path, description = "The version: its number, or its id", min_length = 1, max_length = 36, pattern = "^([1-9][0-9]{0,8}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$"),
    ),
    responses((status = 200, description = "It is active", body = VersionActivated), Always, Invalid, Missing),
)]
pub(super) async fn activate(
    State(app): State<App>,
    caller: Caller,
    PathIds(name, which): PathIds<AgentName, Which>,
    MaybeJson(IgnoredAny): MaybeJson<IgnoredAny>,
) -> Result<JsonAnswer<VersionActivated>, ApiError> {
    let number = find(&app, &caller, &name, &which).await?.number;
    apply(&app, &caller, &name, number, &VersionChange::Activate).await?;
    app.engine().prewarm();
    Ok(JsonAnswer(VersionActivated { activated: true, version_number: number.get() }))
}

async fn find(
    app: &App,
    caller: &Caller,
    name: &AgentName,
    which: &Which,
) -> Result<LabelledVersion, ApiError> {
    let versions = app.store().agent_versions(&caller.tenant, name).await?;
    let found = versions.into_iter().find(|version| which.is(version));
    found.ok_or_else(|| ApiError::not_found("Version not found"))
}

async fn apply(
    app: &App,
    caller: &Caller,
    name: &AgentName,
    number: AgentVersion,
    change: &VersionChange,
) -> Result<LabelledVersion, ApiError> {
    let changed = app.store().change_version(&caller.tenant, name, number, change, app.now());
    match changed.await {
        Ok(changed) => Ok(changed),
        Err(StoreError::InUse(_)) => {
            let message = format!("Version {number} is active: activate another one first");
            Err(ApiError::new(StatusCode::CONFLICT, Code::VERSION_ACTIVE, message))
        }
        // It was there a moment ago.
        Err(StoreError::NotFound("agent version")) => Err(ApiError::not_found("Version not found")),
        Err(error) => Err(error.into()),
    }
}

fn view(app: &App, version: &LabelledVersion) -> Result<api::AgentVersion, ApiError> {
    let LabelledVersion { agent, number, label, is_active, created_at, changed_at } = version;
    let definition = definition_of(agent).map_err(ApiError::internal)?;
    Ok(api::AgentVersion {
        id: id_of(agent.id, *number),
        tenant_id: agent.tenant.to_string(),
        version_number: number.get(),
        name: label.name.clone().unwrap_or_else(|| format!("v{number}")),
        agent_name: agent.name.to_string(),
        is_active: *is_active,
        release_notes: label.notes.clone(),
        knowledge_files: label.knowledge.clone(),
        created_by: None,
        agent_version: agent.version.get(),
        system_prompt: prompt_of(app.library(), &definition),
        digest: definition.digest.clone(),
        files: definition.files,
        bytes: definition.bytes,
        created_at: api::rfc3339(*created_at),
        updated_at: api::rfc3339(*changed_at),
    })
}
