//! Prompts: accepted once, worked on to exactly one end, and told as they go.

use std::str::FromStr;
use std::time::Duration;

use ash_core::id::SessionId;
use ash_core::json::Json;
use ash_core::number::{Cursor, Seq};
use ash_core::session::{IfBusy, Wake};
use ash_engine::agent::Runtime;
use ash_engine::{Accepted, FollowFrom, Idempotency, SendPrompt};
use ash_store::StoredSession;
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::IntoParams;

use super::app::App;
use super::auth::Caller;
use super::checks::{
    MAX_VARIABLE, check_block, check_model, check_permission_timeout, check_tools,
};
use super::error::ApiError;
use super::extract::{JsonBody, PathId, Query, Room, length, range, sequence};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::openapi::{Always, Conflict, Invalid, Missing, TooLarge};
use super::sse::{self, Detail, Shown};
use super::view::{self, Frame};
use crate::api::{self, Content, MAX_BLOCKS, MAX_TEXT_CHARS, SendMessage};
use crate::sessions::Tools;

/// The largest message, with its pictures and documents.
const MAX_MESSAGE: usize = 50 * 1024 * 1024;

/// How the caller wants to be answered.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its shape is wanted")]
struct Wish {
    /// `respond-async` answers at once.
    #[param(rename = "Prefer", nullable = false)]
    prefer: Option<String>,
}

/// Send a message
///
/// Answers with an event stream that ends with `done`; or, with `detach` or `Prefer: respond-async`, at
/// once. A client that goes away does not stop the run. While a run goes on, a message waits for its
/// turn. A message that is repeated with its idempotency key is told from its beginning.
#[utoipa::path(
    post, path = "/api/sessions/{id}/messages", tag = "messages", operation_id = "sendMessage",
    params(
        ("id" = uuid::Uuid, Path, description = "The session"),
        Repeatable, Wish,
    ),
    request_body = SendMessage,
    responses(
        (status = 200, description = "The run, as it happens", body = api::Frame, content_type = "text/event-stream"),
        (status = 202, description = "The run, which nobody watches", body = api::Sent),
        (status = 402, description = "The session's budget is spent", body = api::Problem),
        Always, Invalid, Missing, Conflict, TooLarge,
    ),
)]
pub(super) async fn send(
    State(app): State<App>,
    caller: Caller,
    PathId(Addressed(id)): PathId<Addressed>,
    key: IdempotencyKey,
    headers: HeaderMap,
    JsonBody { value: body, digest, bytes }: JsonBody<SendMessage, MAX_MESSAGE>,
) -> Result<Response, ApiError> {
    let received = std::time::Instant::now();
    check(&body)?;
    let stored = app.session(&caller, id).await?;
    let idempotency = key.of(&caller.tenant, digest);
    let accepted = match app.accepted_before(idempotency.as_ref()).await? {
        Some(accepted) => accepted,
        None => accept(&app, &caller, &stored, &body, &bytes, idempotency).await?,
    };
    if body.detach || wants_no_stream(&headers) {
        let sent = api::Sent { run_id: uuid_of(accepted.run), seq: accepted.seq.get() };
        return Ok((StatusCode::ACCEPTED, JsonAnswer(sent)).into_response());
    }
    let detail = detail(&stored, &body)?;
    let answer = watch(&app, &caller, id, accepted, detail).await;
    metrics::histogram!("ash_message_overhead_seconds").record(received.elapsed());
    answer
}

/// Whether pieces are told, and whether as the model's API tells them. A program of the runtime `legacy` does so itself.
fn detail(stored: &StoredSession, body: &SendMessage) -> Result<Detail, ApiError> {
    match body.include_partial_messages {
        None => return Ok(Detail::Logged),
        Some(false) => return Ok(Detail::Whole),
        Some(true) => {}
    }
    let tools = Tools::of(&stored.record.settings.config).map_err(ApiError::internal)?;
    let is_told = tools.runtime == Some(Runtime::Legacy);
    Ok(if is_told { Detail::Logged } else { Detail::StreamEvents })
}

/// The session that a message is for. Clients of the original expect that one whose id cannot be is not found.
pub(super) struct Addressed(SessionId);

impl FromStr for Addressed {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        text.parse().map(Self).map_err(|_| "Session not found")
    }
}

/// Hands a prompt to the engine.
pub(super) async fn accept(
    app: &App,
    caller: &Caller,
    stored: &StoredSession,
    body: &SendMessage,
    bytes: &[u8],
    idempotency: Option<Idempotency>,
) -> Result<Accepted, ApiError> {
    let budget = app.budget_left(caller, stored).await?;
    let prompt = SendPrompt {
        content: prompt(app, stored, body, bytes, budget).await?,
        if_busy: match body.if_busy {
            api::IfBusy::Queue => IfBusy::Queue,
            api::IfBusy::Reject => IfBusy::Reject,
        },
        wake: if body.wake { Wake::Any } else { Wake::SystemPaused },
        timeout: match body.timeout_ms {
            Some(milliseconds) => Some(Duration::from_millis(milliseconds)),
            None => app.turn_timeout(stored).await?,
        },
    };
    let id = stored.record.id;
    app.place_attachments(stored, prompt.wake).await;
    Ok(app.engine().prompt(&caller.tenant, id, prompt, idempotency).await?)
}

/// Tells a run from its first event to its last.
async fn watch(
    app: &App,
    caller: &Caller,
    id: SessionId,
    accepted: Accepted,
    detail: Detail,
) -> Result<Response, ApiError> {
    let from = FollowFrom::After(accepted.seq);
    let follower = app.engine().follow(&caller.tenant, id, from).await?;
    let mut prelude = vec![Frame::session_start(id, accepted.run)];
    let stored = app.session(caller, id).await?;
    let position = stored.session.queued_runs().position(|queued| queued.id == accepted.run);
    if let Some(position) = position {
        prelude.push(Frame::run_queued(accepted.run, position + 1));
    }
    let shown = (Shown::Run(accepted.run), detail);
    Ok(sse::stream(app.clone(), caller.clone(), follower, id, shown, prelude))
}

fn wants_no_stream(headers: &HeaderMap) -> bool {
    let preferences = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    preferences.flat_map(|value| value.split([',', ';'])).any(|one| one.trim() == "respond-async")
}

/// What the agent is given: what was said, as it came, and the options of the run.
async fn prompt(
    app: &App,
    stored: &StoredSession,
    body: &SendMessage,
    bytes: &[u8],
    budget: Option<f64>,
) -> Result<Json, ApiError> {
    #[derive(Deserialize)]
    struct AsItCame {
        content: Box<RawValue>,
    }
    let AsItCame { content } = serde_json::from_slice(bytes).map_err(ApiError::internal)?;
    let tools = Tools::of(&stored.record.settings.config).map_err(ApiError::internal)?;
    // The proxy keeps a session's budget. Claude Code would have to be started for each run to be told of it.
    let budget = budget.filter(|_| tools.runtime != Some(Runtime::Claude));
    let max_budget = match (body.max_budget_usd, budget) {
        (Some(asked), Some(left)) => Some(asked.min(left)),
        (asked, left) => asked.or(left),
    };
    let model = body.model.as_ref().or(stored.record.settings.model.as_ref());
    let mut options = serde_json::Map::new();
    let mut option = |name: &str, value: serde_json::Value| {
        if !value.is_null() {
            options.insert(name.to_owned(), value);
        }
    };
    option("model", json!(model));
    option("maxTurns", json!(body.max_turns));
    option("maxBudgetUsd", json!(max_budget));
    option("effort", json!(body.effort));
    option("thinking", json!(body.thinking));
    option("outputFormat", json!(body.output_format));
    let mode = match body.permission_mode.or(tools.permission_mode) {
        Some(mode) => Some(app.permission_mode(stored, mode).await?),
        None => None,
    };
    option("permissionMode", json!(mode));
    let timeout = body.permission_timeout_ms.or(tools.permission_timeout_ms);
    option("permissionTimeoutMs", json!(timeout));
    option("allowedTools", json!(body.allowed_tools.as_ref().or(tools.allowed_tools.as_ref())));
    let forbidden = body.disallowed_tools.as_ref().or(tools.disallowed_tools.as_ref());
    option("disallowedTools", json!(forbidden));
    if tools.runtime == Some(Runtime::Legacy) {
        option("includePartialMessages", json!(body.include_partial_messages));
    }
    // The builtin agent knows nothing of these, and is not told.
    if tools.runtime != Some(Runtime::Builtin) {
        option("betas", json!(tools.betas));
        option("subagents", json!(tools.subagents));
        option("initialAgent", json!(tools.initial_agent));
    }
    if options.is_empty() {
        return Json::parse(content.get().to_owned()).map_err(ApiError::internal);
    }
    #[derive(serde::Serialize)]
    struct Prompt {
        content: Box<RawValue>,
        #[serde(flatten)]
        options: serde_json::Map<String, serde_json::Value>,
    }
    Json::of(&Prompt { content, options }).map_err(ApiError::internal)
}

fn check(body: &SendMessage) -> Result<(), ApiError> {
    match &body.content {
        Content::Text(text) if text.trim().is_empty() => {
            return Err(ApiError::invalid("content is empty"));
        }
        Content::Text(text) => length("content", text, MAX_TEXT_CHARS)?,
        Content::Blocks(blocks) => {
            range("the number of blocks in content", blocks.len(), 1, MAX_BLOCKS)?;
            blocks.iter().enumerate().try_for_each(|(number, block)| check_block(number, block))?;
        }
    }
    check_model(body.model.as_deref())?;
    check_permission_timeout(body.permission_timeout_ms)?;
    check_tools(body.allowed_tools.as_deref(), body.disallowed_tools.as_deref())?;
    let shape = serde_json::to_vec(&body.output_format).map_err(ApiError::internal)?.len();
    range("the size of outputFormat", shape, 0, MAX_VARIABLE)?;
    body.max_turns.map(|turns| range("maxTurns", turns, 1, 1_000_000)).transpose()?;
    body.max_budget_usd.map(|usd| range("maxBudgetUsd", usd, 0.0, 1_000_000.0)).transpose()?;
    if let Some(api::Thinking::Enabled { budget_tokens: Some(tokens) }) = body.thinking {
        range("thinking.budgetTokens", tokens, 1_024, 1_000_000)?;
    }
    body.timeout_ms.map(|ms| range("timeoutMs", ms, 1_000, 604_800_000)).transpose()?;
    Ok(())
}

/// Which part of a conversation.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct MessagesQuery {
    /// How many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only those after this entry of the log.
    #[param(minimum = 0, maximum = 9_223_372_036_854_775_807_u64)]
    after: Option<u64>,
}

/// List the messages of a conversation
///
/// What the session was rewound from is not among them, nor is what was sent before a rewind or a fork and never begun;
/// its events have it all.
#[utoipa::path(
    get, path = "/api/sessions/{id}/messages", tag = "messages", operation_id = "listMessages",
    params(("id" = uuid::Uuid, Path, description = "The session"), MessagesQuery),
    responses((status = 200, description = "The messages, in order", body = api::Messages), Always, Invalid, Missing),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    Query(query): Query<MessagesQuery>,
) -> Result<JsonAnswer<api::Messages>, ApiError> {
    let limit = range("limit", query.limit.unwrap_or(100), 1, 1_000)?;
    let stored = app.session(&caller, id).await?;
    let epoch = stored.session.log_epoch();
    let branch = app.engine().branch(&stored.session).await?;
    let mut after = Seq::new(sequence("after", query.after)?);
    let mut messages = Vec::new();
    let mut room = Room::default();
    // The store reads a page at a time, which may be less than was asked for. One more than is wanted says whether there
    // are more.
    let has_more = 'all: loop {
        let rest = limit - u32::try_from(messages.len()).unwrap_or(limit);
        let page = app.engine().store().messages_after(id, after, rest + 1).await?;
        let Some(last) = page.last() else { break false };
        after = last.seq;
        for logged in
            page.iter().filter(|logged| branch.has(logged) && view::is_said(&logged.entry))
        {
            if messages.len() == limit as usize || !room.is_left() {
                break 'all true;
            }
            let content = view::message_content(id, &logged.entry);
            room.take(content.len());
            let cursor = Cursor { epoch, seq: logged.seq }.to_string();
            messages.push(api::Message {
                id: named_id(&["message", &id.to_string(), &cursor]),
                cursor,
                session_id: uuid_of(id),
                tenant_id: caller.tenant.to_string(),
                role: logged.entry.role().map_or("system", |role| role.as_str()).to_owned(),
                content,
                sequence: logged.seq.get(),
                created_at: api::rfc3339(logged.at),
            });
        }
    };
    Ok(JsonAnswer(api::Messages { messages, has_more }))
}

/// The id of something that is known by other things: always the same for the same ones. It need not be kept.
pub(super) fn named_id(parts: &[&str]) -> uuid::Uuid {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update(b"\n");
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// An id of ours as the wire has it.
pub(super) fn uuid_of(id: impl std::fmt::Display) -> uuid::Uuid {
    id.to_string().parse().expect("every id of ours is a UUID")
}
