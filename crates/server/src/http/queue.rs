//! The queue: prompts that are worked on when there is room.

use ash_core::id::{AgentName, QueueItemId, SessionId};
use ash_core::json::Json;
use ash_core::queue::QueueStatus;
use ash_core::refusal::Refusal;
use ash_core::session::Status;
use ash_engine::{Accepted, Desk, Idempotency, Undone};
use ash_store::{KeyHash, NewQueueItem, QueueError, QueueItem, Receipt, StoreError, Withdrawal};
use async_trait::async_trait;
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::app::App;
use super::auth::Caller;
use super::code::Code;
use super::error::{ApiError, SOON};
use super::extract::{JsonBody, PathId, Query, length, range};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::messages::{self, uuid_of};
use super::openapi::{Always, Conflict, Invalid, Missing, Over, TooLarge};
use super::sessions;
use crate::api::{
    self, MAX_TEXT_CHARS, QueueCounts, QueueItemBody, QueueItemStatus, QueueItems, QueueStats,
};

/// How many items of a tenant may wait.
const MAX_OPEN: u64 = 10_000;

/// The highest priority, and the most retries.
const MAX_PRIORITY: u32 = i32::MAX.cast_unsigned();
const MAX_RETRIES: u32 = 100;

/// How often an item is tried again, unless told otherwise.
const RETRIES: u32 = 3;

/// How many items a list shows, unless told otherwise, and at the most.
const PAGE: u32 = 50;
const MAX_PAGE: u32 = 500;

/// The largest body: a prompt of as many characters as there may be, escaped.
const MAX_BODY: usize = 8 * 1024 * 1024;

/// Add a prompt to the queue
///
/// It is worked on when there is room, by priority, then by age; in the session that it names, or in a new one. If a
/// failure cuts it, it is tried again in the same session.
#[utoipa::path(
    post, path = "/api/queue", tag = "queue", operation_id = "enqueue",
    params(Repeatable),
    request_body = api::NewQueueItem,
    responses((status = 201, description = "The item", body = QueueItemBody), Always, Invalid, Missing, Conflict, Over, TooLarge),
)]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    key: IdempotencyKey,
    JsonBody { value: body, digest, .. }: JsonBody<api::NewQueueItem, MAX_BODY>,
) -> Result<(StatusCode, JsonAnswer<QueueItemBody>), ApiError> {
    if body.prompt.trim().is_empty() {
        return Err(ApiError::invalid("prompt is empty"));
    }
    length("prompt", &body.prompt, MAX_TEXT_CHARS)?;
    if body.agent_name.is_empty() {
        return Err(ApiError::invalid("agentName is empty"));
    }
    length("agentName", &body.agent_name, 255)?;
    let priority = range("priority", body.priority.unwrap_or(0), 0, MAX_PRIORITY)?;
    let max_retries = range("maxRetries", body.max_retries.unwrap_or(RETRIES), 0, MAX_RETRIES)?;
    let idempotency = key.of(&caller.tenant, digest);
    if let Some(earlier) = added_before(&app, &caller, idempotency.as_ref()).await? {
        return Ok(shown_new(&earlier));
    }
    let agent = agent_of(&app, &caller, &body).await?;
    if app.store().queue_counts(&caller.tenant).await?.open() >= MAX_OPEN {
        let message = format!("{MAX_OPEN} prompts wait in the queue, which is as many as may");
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, Refusal::QueueFull, message);
        return Err(error.later(SOON));
    }
    let new = NewQueueItem {
        id: app.make(QueueItemId::from_parts),
        tenant: caller.tenant.clone(),
        agent_name: agent,
        session: body.session_id.map(SessionId::from_uuid),
        prompt: body.prompt,
        priority,
        max_retries,
        created_at: app.now(),
    };
    let receipt = match &idempotency {
        Some(Idempotency { key, body_digest }) => Some(Receipt {
            key: key.clone(),
            body_digest: *body_digest,
            answer: Json::of(&new.id).map_err(ApiError::internal)?,
            at: app.now(),
        }),
        None => None,
    };
    match app.store().create_queue_item(&new, receipt.as_ref()).await {
        Ok(()) => {}
        // The same request was carried out between our look and our write.
        Err(StoreError::Exists("receipt")) => {
            let earlier = added_before(&app, &caller, idempotency.as_ref()).await?;
            let earlier = earlier.ok_or_else(|| ApiError::internal("a receipt came and went"))?;
            return Ok(shown_new(&earlier));
        }
        Err(error) => return Err(error.into()),
    }
    app.engine().tell_queue();
    Ok(shown_new(&new.item()))
}

/// The agent of a new item, which has to be there, and be its session's.
async fn agent_of(
    app: &App,
    caller: &Caller,
    body: &api::NewQueueItem,
) -> Result<AgentName, ApiError> {
    let missing = || sessions::no_such_agent(&body.agent_name);
    let agent: AgentName = body.agent_name.parse().map_err(|_| missing())?;
    match app.store().agent(&caller.tenant, &agent).await {
        Ok(_) => {}
        Err(StoreError::NotFound(_)) => return Err(missing()),
        Err(error) => return Err(error.into()),
    }
    if let Some(session) = body.session_id {
        let stored = app.session(caller, SessionId::from_uuid(session)).await?;
        if stored.record.agent_name != agent {
            let whose = &stored.record.agent_name;
            return Err(ApiError::invalid(format!("The session is one of agent \"{whose}\"")));
        }
        if stored.session.status() == Status::Ended {
            return Err(Refusal::Ended.into());
        }
    }
    Ok(agent)
}

/// The item that an earlier request with the same key added.
async fn added_before(
    app: &App,
    caller: &Caller,
    idempotency: Option<&Idempotency>,
) -> Result<Option<QueueItem>, ApiError> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    let Some(answer) = app.engine().receipt_of(idempotency).await? else { return Ok(None) };
    let id: QueueItemId = serde_json::from_str(answer.get()).map_err(ApiError::internal)?;
    Ok(Some(app.store().queue_item(&caller.tenant, id).await?))
}

fn shown_new(item: &QueueItem) -> (StatusCode, JsonAnswer<QueueItemBody>) {
    (StatusCode::CREATED, JsonAnswer(QueueItemBody { item: view(item) }))
}

/// Which items a list shows.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only those that stand so.
    status: Option<QueueItemStatus>,
    /// How many.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// Where the page begins: `nextCursor` of the one before.
    cursor: Option<uuid::Uuid>,
}

/// List the items of the queue, newest first
#[utoipa::path(
    get, path = "/api/queue", tag = "queue", operation_id = "listQueueItems", params(ListQuery),
    responses((status = 200, description = "A page", body = QueueItems), Always, Invalid),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<JsonAnswer<QueueItems>, ApiError> {
    let limit = range("limit", query.limit.unwrap_or(PAGE), 1, MAX_PAGE)?;
    let status = query.status.map(status_of);
    let after = query.cursor.map(QueueItemId::from_uuid);
    let found = app.store().queue_items(&caller.tenant, status, after, limit).await?;
    // What is shown may be less than was asked for, if it is large.
    let next = match found.last().map(|last| last.new.id) {
        Some(last) => {
            let more = app.store().queue_items(&caller.tenant, status, Some(last), 1).await?;
            (!more.is_empty()).then(|| last.to_string())
        }
        None => None,
    };
    Ok(JsonAnswer(QueueItems { items: found.iter().map(view).collect(), next_cursor: next }))
}

/// Count the items of the queue
#[utoipa::path(
    get, path = "/api/queue/stats", tag = "queue", operation_id = "getQueueStats",
    responses((status = 200, description = "How many stand how", body = QueueStats), Always),
)]
pub(super) async fn stats(
    State(app): State<App>,
    caller: Caller,
) -> Result<JsonAnswer<QueueStats>, ApiError> {
    let counts = app.store().queue_counts(&caller.tenant).await?;
    let stats = QueueCounts {
        pending: counts.pending,
        processing: counts.processing,
        completed: counts.completed,
        failed: counts.failed,
        cancelled: counts.cancelled,
    };
    Ok(JsonAnswer(QueueStats { stats }))
}

/// Look at an item of the queue
#[utoipa::path(
    get, path = "/api/queue/{id}", tag = "queue", operation_id = "getQueueItem",
    params(("id" = uuid::Uuid, Path, description = "The item")),
    responses((status = 200, description = "The item", body = QueueItemBody), Always, Invalid, Missing),
)]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<QueueItemId>,
) -> Result<JsonAnswer<QueueItemBody>, ApiError> {
    let item = app.store().queue_item(&caller.tenant, id).await?;
    Ok(JsonAnswer(QueueItemBody { item: view(&item) }))
}

/// Withdraw an item of the queue
///
/// Only while it is `pending`. To end one that is worked on, interrupt its session.
#[utoipa::path(
    delete, path = "/api/queue/{id}", tag = "queue", operation_id = "cancelQueueItem",
    params(("id" = uuid::Uuid, Path, description = "The item")),
    responses((status = 200, description = "The item, cancelled", body = QueueItemBody), Always, Invalid, Missing),
)]
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<QueueItemId>,
) -> Result<JsonAnswer<QueueItemBody>, ApiError> {
    match app.store().withdraw_queue_item(&caller.tenant, id, app.now()).await? {
        Withdrawal::Done(item) => Ok(JsonAnswer(QueueItemBody { item: view(&item) })),
        Withdrawal::TooLate(item) => {
            let message = format!("Cannot cancel item with status \"{}\"", item.status.as_str());
            Err(ApiError::new(StatusCode::BAD_REQUEST, Code::NOT_PENDING, message))
        }
    }
}

fn view(item: &QueueItem) -> api::QueueItem {
    let new = &item.new;
    api::QueueItem {
        id: uuid_of(new.id),
        tenant_id: new.tenant.to_string(),
        session_id: new.session.map(uuid_of),
        agent_name: new.agent_name.to_string(),
        prompt: new.prompt.clone(),
        status: status_view(item.status),
        priority: new.priority,
        retry_count: item.retry_count,
        max_retries: new.max_retries,
        error: item.error.as_ref().map(|error| error.message.clone()),
        error_code: item.error.as_ref().map(|error| error.code.clone()),
        run_id: item.run.map(uuid_of),
        result: item.result.clone(),
        stop_reason: item.stop_reason.clone(),
        created_at: api::rfc3339(new.created_at),
        started_at: item.started_at.map(api::rfc3339),
        completed_at: item.completed_at.map(api::rfc3339),
    }
}

const fn status_view(status: QueueStatus) -> QueueItemStatus {
    match status {
        QueueStatus::Pending => QueueItemStatus::Pending,
        QueueStatus::Processing => QueueItemStatus::Processing,
        QueueStatus::Completed => QueueItemStatus::Completed,
        QueueStatus::Failed => QueueItemStatus::Failed,
        QueueStatus::Cancelled => QueueItemStatus::Cancelled,
    }
}

const fn status_of(status: QueueItemStatus) -> QueueStatus {
    match status {
        QueueItemStatus::Pending => QueueStatus::Pending,
        QueueItemStatus::Processing => QueueStatus::Processing,
        QueueItemStatus::Completed => QueueStatus::Completed,
        QueueItemStatus::Failed => QueueStatus::Failed,
        QueueItemStatus::Cancelled => QueueStatus::Cancelled,
    }
}

/// Sends what is in the queue, as whoever added it would.
pub(crate) struct QueueDesk(pub(crate) App);

#[async_trait]
impl Desk for QueueDesk {
    async fn open(&self, item: &QueueItem, idempotency: Idempotency) -> Result<SessionId, Undone> {
        let body = json!({
            "agent": item.new.agent_name.as_str(),
            "metadata": { "queueItemId": item.new.id.to_string() },
        });
        let body = serde_json::from_value(body).map_err(ApiError::internal)?;
        let opened = sessions::open(&self.0, &on_behalf(item), body, Some(idempotency)).await?;
        Ok(opened.record.id)
    }

    async fn send(
        &self,
        item: &QueueItem,
        session: SessionId,
        idempotency: Idempotency,
    ) -> Result<Accepted, Undone> {
        let (app, caller) = (&self.0, on_behalf(item));
        if let Some(accepted) = app.accepted_before(Some(&idempotency)).await? {
            return Ok(accepted);
        }
        let stored = app.session(&caller, session).await?;
        // One that is broken, by an attempt before this one perhaps, is brought back. What a person put to rest is not.
        let wake = stored.session.status() == Status::Error;
        let body = json!({ "content": item.new.prompt, "wake": wake });
        let bytes = serde_json::to_vec(&body).map_err(ApiError::internal)?;
        let body = serde_json::from_value(body).map_err(ApiError::internal)?;
        let sent = messages::accept(app, &caller, &stored, &body, &bytes, Some(idempotency)).await;
        Ok(sent?)
    }
}

fn on_behalf(item: &QueueItem) -> Caller {
    Caller { tenant: item.new.tenant.clone(), key: KeyHash([0; 32]) }
}

/// What a client would have been told.
impl From<ApiError> for Undone {
    fn from(error: ApiError) -> Self {
        if let Some(cause) = &error.cause {
            tracing::warn!(
                error = &**cause as &dyn std::error::Error,
                "an item of the queue failed"
            );
        }
        if [Code::DRAINING, Code::UNAVAILABLE].contains(&error.code) {
            return Self::Open;
        }
        // A broken session is woken: this one was put to rest by a person, after its item was taken.
        if error.code.as_str() == Refusal::NotActive(Status::Paused).code() {
            return Self::Resting;
        }
        let may_help = error.is_retryable() || error.status.is_server_error();
        let (code, message) = (error.code.to_string(), error.message.into_owned());
        Self::Failed { error: QueueError { code, message }, may_help }
    }
}
