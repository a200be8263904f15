//! Sessions: make, look at, change, put to rest, bring back, end.

use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::{Failure, FailureCode};
use ash_core::id::{AgentName, SessionId};
use ash_core::refusal::Refusal;
use ash_core::session::{IfRunning, State as Standing, Status};
use ash_engine::{EngineError, Idempotency, RequireState};
use ash_store::{PageRequest, SessionFilter, Settings, StoredSession};
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::IntoParams;

use super::app::App;
use super::auth::Caller;
use super::checks::{check, check_reachable, check_update};
use super::code::Code;
use super::error::{ApiError, SOON, start_failed};
use super::extract::{JsonBody, MaybeJson, PathId, Query, length, range};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::openapi::{Always, Conflict, Invalid, Missing, TooLarge};
use crate::agents::definition_of;
use crate::api::{self, CreateSession, SessionBody, Sessions, UpdateConfig};
use crate::runtime::CannotRun;
use crate::sessions::{Options, receipt_view};

/// How many sessions a list shows unless told otherwise, and at the most.
const PAGE: u32 = 1_000;

/// How many sessions a list can leave out.
const MAX_OFFSET: u32 = i32::MAX.cast_unsigned();

/// Make a session
///
/// Answers when its agent is up: the session is `active`.
#[utoipa::path(
    post, path = "/api/sessions", tag = "sessions", operation_id = "createSession",
    request_body = CreateSession,
    params(Repeatable),
    responses((status = 201, description = "The session", body = SessionBody), (status = 422, description = "The agent cannot be run here, or a script of it failed", body = api::Problem), Always, Invalid, Missing, Conflict, TooLarge),
)]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    key: IdempotencyKey,
    JsonBody { value: body, digest, .. }: JsonBody<CreateSession>,
) -> Result<(StatusCode, JsonAnswer<SessionBody>), ApiError> {
    check(&body)?;
    let created = open(&app, &caller, body, key.of(&caller.tenant, digest)).await?;
    made(&app, &caller, &created).await
}

/// Makes a session, which starts then.
pub(super) async fn open(
    app: &App,
    caller: &Caller,
    body: CreateSession,
    idempotency: Option<Idempotency>,
) -> Result<Arc<StoredSession>, ApiError> {
    let agent: AgentName = body.agent.parse().map_err(|_| no_such_agent(&body.agent))?;
    let no_agent = |error| {
        if let EngineError::NotFound("agent") = error {
            return no_such_agent(agent.as_str());
        }
        if let EngineError::Failed(failure) = &error {
            return could_not_create(failure);
        }
        error.into()
    };
    if let Some(earlier) = app.created_before(caller, idempotency.as_ref()).await? {
        return Ok(earlier);
    }
    let deployed = app.store().agent(&caller.tenant, &agent).await;
    let deployed = deployed.map_err(|error| no_agent(error.into()))?;
    let runtimes = &app.parts().runtimes;
    let definition = definition_of(&deployed).map_err(ApiError::internal)?;
    let runtime = runtimes.of_new(&definition);
    check_reachable(runtime, body.mcp_servers.as_ref())?;
    runtimes.programs(runtime, &definition).await.map_err(cannot_run)?;
    let credentials = app.credentials(&caller.tenant, &body).await?;
    let options = Options::of(&body, runtime, credentials);
    let settings = Settings {
        title: body.title,
        model: body.model,
        metadata: body.metadata.unwrap_or_default(),
        config: app.seal_options(&options)?,
    };
    let create = ash_engine::CreateSession {
        tenant: caller.tenant.clone(),
        agent: agent.clone(),
        settings,
        time_to_live: body.ttl_ms.map(Duration::from_millis).or(app.session_ttl()),
        idle_timeout: body.idle_timeout_ms.map(Duration::from_millis),
    };
    app.engine().create_session(create, idempotency).await.map_err(no_agent)
}

/// Answers with a session once it has started.
async fn made(
    app: &App,
    caller: &Caller,
    made: &StoredSession,
) -> Result<(StatusCode, JsonAnswer<SessionBody>), ApiError> {
    if let Standing::Error { .. } = made.session.state() {
        // An earlier request with the same key made it, and it could not start then. What failed is
        // tried again, and not only told again.
        app.engine().resume(&caller.tenant, made.record.id, RequireState::No).await?;
    }
    let settled = app.engine().settled(&caller.tenant, made.record.id).await?;
    if let Standing::Error { failure, .. } = settled.session.state() {
        return Err(could_not_create(failure));
    }
    Ok((StatusCode::CREATED, shown(app, &settled).await?))
}

/// No session is made of an agent that nothing here can run.
fn cannot_run(why: CannotRun) -> ApiError {
    let message = why.to_string();
    match why {
        CannotRun::Unavailable(_) => {
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, Code::RUNTIME_UNAVAILABLE, message)
        }
        CannotRun::Missing(_) | CannotRun::NoBridge(_) => {
            start_failed(FailureCode::RuntimeMissing, &message)
        }
    }
}

fn could_not_create(failure: &Failure) -> ApiError {
    // Clients of the original know it by its words.
    if failure.code == FailureCode::SandboxCapacity {
        return start_failed(failure.code, &failure.message);
    }
    start_failed(failure.code, &format!("Failed to create session: {}", failure.message))
}

pub(super) fn no_such_agent(name: &str) -> ApiError {
    let mut shown: String = name.chars().take(64).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    ApiError::not_found(format!("Agent \"{shown}\" not found"))
}

/// Which sessions a list shows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only those of this agent.
    #[param(min_length = 1, max_length = 255)]
    agent: Option<String>,
    /// Only those that stand so.
    status: Option<api::SessionStatus>,
    /// Only those whose id begins so.
    #[param(min_length = 1, max_length = 36, pattern = "^[0-9a-f-]+$")]
    id_prefix: Option<String>,
    /// How many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// How many to leave out.
    #[param(minimum = 0, maximum = 2_147_483_647)]
    offset: Option<u32>,
    /// Where the page begins: `nextCursor` of the one before.
    cursor: Option<uuid::Uuid>,
    /// Whether to count all of them.
    include_total: Option<bool>,
}

/// List sessions, newest first
#[utoipa::path(
    get, path = "/api/sessions", tag = "sessions", operation_id = "listSessions", params(ListQuery),
    responses((status = 200, description = "A page", body = Sessions), Always, Invalid),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<JsonAnswer<Sessions>, ApiError> {
    let limit = range("limit", query.limit.unwrap_or(PAGE), 1, PAGE)?;
    let offset = range("offset", query.offset.unwrap_or(0), 0, MAX_OFFSET)?;
    length("agent", query.agent.as_deref().unwrap_or_default(), 255)?;
    let empty = Sessions { sessions: Vec::new(), next_cursor: None, total: None };
    let agent = match query.agent.as_deref() {
        Some("") => return Err(ApiError::invalid("agent is empty")),
        // A name that no agent can have is one that no session has.
        Some(name) => match name.parse() {
            Ok(name) => Some(name),
            Err(_) => {
                return Ok(JsonAnswer(Sessions {
                    total: query.include_total.and(Some(0)),
                    ..empty
                }));
            }
        },
        None => None,
    };
    let id_prefix = query.id_prefix.map(|prefix| {
        let fine = (1..=36).contains(&prefix.len())
            && prefix.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
        fine.then_some(prefix)
            .ok_or_else(|| ApiError::invalid("idPrefix is not the beginning of an id"))
    });
    let filter = SessionFilter {
        agent,
        status: query.status.map(status_of),
        id_prefix: id_prefix.transpose()?,
    };
    let after = query.cursor.map(|cursor| cursor.to_string().parse::<SessionId>());
    let after = after.transpose().map_err(|_| ApiError::invalid("cursor is not one of ours"))?;
    let page = PageRequest { after, offset, limit: limit + 1 };
    let store = app.engine().store();
    let mut found = store.sessions(&caller.tenant, &filter, &page).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let total = match query.include_total {
        Some(true) => Some(store.count_sessions(&caller.tenant, &filter).await?),
        Some(false) | None => None,
    };
    let last = found.last().filter(|_| more);
    Ok(JsonAnswer(Sessions {
        next_cursor: last.map(|last| last.record.id.to_string()),
        sessions: app.views(&found).await?,
        total,
    }))
}

/// Look at a session
#[utoipa::path(
    get, path = "/api/sessions/{id}", tag = "sessions", operation_id = "getSession",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    responses((status = 200, description = "The session", body = SessionBody), Always, Invalid, Missing),
)]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
) -> Result<JsonAnswer<SessionBody>, ApiError> {
    shown(&app, &app.session(&caller, id).await?).await
}

/// Change a session's options
///
/// The model, the tools and what is asked about change with the next message; the rest with the next sandbox.
#[utoipa::path(
    patch, path = "/api/sessions/{id}/config", tag = "sessions", operation_id = "configureSession",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    request_body = UpdateConfig,
    responses((status = 200, description = "The session", body = SessionBody), Always, Invalid, Missing, TooLarge),
)]
pub(super) async fn configure(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    JsonBody { value: body, .. }: JsonBody<UpdateConfig>,
) -> Result<JsonAnswer<SessionBody>, ApiError> {
    check_update(&body)?;
    // What cannot be read now cannot be read then either.
    let stored = app.session(&caller, id).await?;
    app.open_options(&stored.record.settings.config)?;
    if stored.session.status() == Status::Ended {
        return Err(cannot("change", EngineError::Refused(Refusal::Ended)));
    }
    let sealer = app.sealer().clone();
    let change = move |settings: &mut Settings| {
        let changed = Options::open(&settings.config, &sealer).and_then(|mut options| {
            options.update(&body);
            options.seal(&sealer)
        });
        settings.config = changed.unwrap_or_else(|_| settings.config.clone());
        settings.model = body.model.or(settings.model.take());
        settings.title = body.title.or(settings.title.take());
        settings.metadata = body.metadata.unwrap_or_else(|| std::mem::take(&mut settings.metadata));
    };
    app.engine().configure(&caller.tenant, id, change).await?;
    shown(&app, &app.session(&caller, id).await?).await
}

/// Pause a session
///
/// Its sandbox is frozen where it is, in the middle of a turn too.
#[utoipa::path(
    post, path = "/api/sessions/{id}/pause", tag = "sessions", operation_id = "pauseSession",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    request_body = Option<api::PauseSession>,
    responses((status = 200, description = "The session, paused", body = SessionBody), Always, Invalid, Missing, Conflict, TooLarge),
)]
pub(super) async fn pause(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    MaybeJson(body): MaybeJson<api::PauseSession>,
) -> Result<JsonAnswer<SessionBody>, ApiError> {
    let if_running = match body.if_running {
        api::WhenRunning::Freeze => IfRunning::Freeze,
        api::WhenRunning::Interrupt => IfRunning::Interrupt,
        api::WhenRunning::Reject => IfRunning::Reject,
    };
    let paused = app.engine().pause(&caller.tenant, id, if_running).await;
    paused.map_err(|error| cannot("pause", error))?;
    shown(&app, &app.session(&caller, id).await?).await
}

/// Bring a session back
///
/// The answer says what of it came back. An active session is left as it is.
#[utoipa::path(
    post, path = "/api/sessions/{id}/resume", tag = "sessions", operation_id = "resumeSession",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    request_body = Option<api::ResumeSession>,
    responses(
        (status = 200, description = "The session, and what came back", body = api::Resumed),
        (status = 410, description = "The session has ended", body = api::Problem),
        (status = 422, description = "The program that runs its agent is not on this server, or a script of the agent failed", body = api::Problem),
        Always, Invalid, Missing, Conflict, TooLarge,
    ),
)]
pub(super) async fn resume(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    MaybeJson(body): MaybeJson<api::ResumeSession>,
) -> Result<JsonAnswer<api::Resumed>, ApiError> {
    let require = match (body.require_state, body.allow_fresh) {
        (true, true) => {
            return Err(ApiError::invalid("requireState and allowFresh exclude each other"));
        }
        (true, false) => RequireState::Yes,
        (false, true) => RequireState::Never,
        (false, false) => RequireState::No,
    };
    let resumed = app.engine().resume(&caller.tenant, id, require).await.map_err(not_back)?;
    let resume = receipt_view(&resumed.session, resumed.receipt.as_ref());
    Ok(JsonAnswer(api::Resumed { session: app.view(&resumed.session).await?, resume }))
}

/// Why a session did not come back.
fn not_back(error: EngineError) -> ApiError {
    if let EngineError::Failed(failure) = &error {
        let message = format!("Failed to resume session: {}", failure.message);
        return start_failed(failure.code, &message);
    }
    // It was on its way, and somebody asked for something else: whoever still wants it asks again.
    if let EngineError::Refused(refusal @ Refusal::NotActive(status)) = error {
        let message = format!("The session was {status} before it was back");
        return ApiError::new(StatusCode::CONFLICT, refusal, message).later(SOON);
    }
    error.into()
}

/// Stop a session
///
/// A run that goes on is cancelled and the sandbox destroyed. A resume brings the session back.
#[utoipa::path(
    post, path = "/api/sessions/{id}/stop", tag = "sessions", operation_id = "stopSession",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    responses((status = 200, description = "The session, stopped", body = SessionBody), Always, Invalid, Missing),
)]
pub(super) async fn stop(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    MaybeJson(IgnoredAny): MaybeJson<IgnoredAny>,
) -> Result<JsonAnswer<SessionBody>, ApiError> {
    app.engine().stop(&caller.tenant, id).await.map_err(|error| cannot("stop", error))?;
    shown(&app, &app.session(&caller, id).await?).await
}

/// Interrupt a run
///
/// The one that goes on, or the one that is named, also if it still waits. Answers when it is over.
#[utoipa::path(
    post, path = "/api/sessions/{id}/interrupt", tag = "sessions", operation_id = "interruptSession",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    request_body = Option<api::InterruptSession>,
    responses((status = 200, description = "The run, cancelled", body = api::RunBody), Always, Invalid, Missing, TooLarge),
)]
pub(super) async fn interrupt(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    MaybeJson(body): MaybeJson<api::InterruptSession>,
) -> Result<JsonAnswer<api::RunBody>, ApiError> {
    let run = body.run_id.map(|run| run.to_string().parse()).transpose();
    let run = run.map_err(|_| ApiError::not_found("Run not found"))?;
    let run = app.engine().interrupt(&caller.tenant, id, run).await?;
    Ok(JsonAnswer(api::RunBody { run: super::runs::run_view(&run) }))
}

/// End a session for ever
///
/// Ending one that has ended changes nothing.
#[utoipa::path(
    delete, path = "/api/sessions/{id}", tag = "sessions", operation_id = "endSession",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    responses((status = 200, description = "The session, ended", body = SessionBody), Always, Invalid, Missing),
)]
pub(super) async fn end(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
) -> Result<JsonAnswer<SessionBody>, ApiError> {
    match app.engine().end(&caller.tenant, id).await {
        Ok(_) | Err(EngineError::Refused(Refusal::Ended)) => {}
        Err(error) => return Err(error.into()),
    }
    shown(&app, &app.session(&caller, id).await?).await
}

async fn shown(
    app: &App,
    stored: &Arc<StoredSession>,
) -> Result<JsonAnswer<SessionBody>, ApiError> {
    Ok(JsonAnswer(SessionBody { session: app.view(stored).await? }))
}

/// The original's sentence for a request that the session's state does not allow.
fn cannot(what: &str, error: EngineError) -> ApiError {
    let EngineError::Refused(refusal) = error else { return error.into() };
    let standing = match refusal {
        Refusal::NotActive(status) => status,
        Refusal::Ended => Status::Ended,
        Refusal::RunInProgress
        | Refusal::QueueFull
        | Refusal::NoSuchRun
        | Refusal::NoSuchTurn
        | Refusal::NoSuchQuestion
        | Refusal::QuestionDecided
        | Refusal::QuestionClosed(_)
        | Refusal::BeingRewound => return refusal.into(),
    };
    let message = format!("Cannot {what} session with status \"{standing}\"");
    let is_over = standing == Status::Ended;
    let code = if is_over { Refusal::Ended } else { Refusal::NotActive(standing) };
    ApiError::new(StatusCode::BAD_REQUEST, code, message)
}

fn status_of(status: api::SessionStatus) -> Status {
    match status {
        api::SessionStatus::Starting => Status::Starting,
        api::SessionStatus::Active => Status::Active,
        api::SessionStatus::Paused => Status::Paused,
        api::SessionStatus::Stopped => Status::Stopped,
        api::SessionStatus::Ended => Status::Ended,
        api::SessionStatus::Error => Status::Error,
    }
}
