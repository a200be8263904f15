//! The log as lists: what happened in a session, and what its sandbox says about itself.

use ash_core::entry::Entry;
use ash_core::id::SessionId;
use ash_core::number::{Cursor, Seq};
use ash_core::session::LogEntry;
use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::app::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{PathId, Query, Room, range, sequence};
use super::messages::{named_id, uuid_of};
use super::openapi::{Always, Invalid, Missing};
use super::view;
use crate::api;

/// How many entries are looked at in one read.
const READ: u32 = 500;

/// The types of the original. A client of it takes no others for a list of events.
const OF_THE_ORIGINAL: [&str; 7] =
    ["text", "tool_start", "tool_result", "reasoning", "error", "turn_complete", "lifecycle"];

/// What is asked for to have events of every type.
const ALL: &str = "all";

/// How many lines of what a sandbox says are shown.
const MAX_LOG_LINES: usize = 10_000;

/// Which part of a log.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// How many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only those after this entry.
    #[param(minimum = 0, maximum = 9_223_372_036_854_775_807_u64)]
    after: Option<u64>,
    /// Only those of this type; `all`: of every type; nothing: of those that the original has, `text`, `tool_start`,
    /// `tool_result`, `reasoning`, `error`, `turn_complete` and `lifecycle`. A type that there is not has no events.
    #[serde(rename = "type")]
    #[param(max_length = 100)]
    kind: Option<String>,
}

/// List what happened in a session
#[utoipa::path(
    get, path = "/api/sessions/{id}/events", tag = "messages", operation_id = "listEvents",
    params(("id" = uuid::Uuid, Path, description = "The session"), EventsQuery),
    responses((status = 200, description = "The entries, in order", body = api::Events), Always, Invalid, Missing),
)]
pub(super) async fn events(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    Query(query): Query<EventsQuery>,
) -> Result<JsonAnswer<api::Events>, ApiError> {
    let limit = range("limit", query.limit.unwrap_or(200), 1, 1_000)? as usize;
    super::extract::length("type", query.kind.as_deref().unwrap_or_default(), 100)?;
    let epoch = app.session(&caller, id).await?.session.log_epoch();
    let mut after = Seq::new(sequence("after", query.after)?);
    let mut events = Vec::new();
    let mut room = Room::default();
    while room.is_left() {
        let page = app.engine().store().events_after(id, after, READ).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for logged in &page {
            let (kind, data) = view::event(id, &logged.entry);
            let wanted = match query.kind.as_deref() {
                None => OF_THE_ORIGINAL.contains(&&*kind),
                Some(ALL) => true,
                Some(wanted) => wanted == kind,
            };
            if wanted && events.len() < limit && room.is_left() {
                room.take(data.len());
                let cursor = Cursor { epoch, seq: logged.seq }.to_string();
                events.push(api::Event {
                    id: named_id(&["event", &id.to_string(), &cursor]),
                    cursor,
                    session_id: uuid_of(id),
                    tenant_id: caller.tenant.to_string(),
                    kind: kind.into_owned(),
                    data: Some(data),
                    sequence: logged.seq.get(),
                    created_at: api::rfc3339(logged.at),
                });
            }
        }
        if events.len() >= limit {
            break;
        }
    }
    Ok(JsonAnswer(api::Events { events, has_more: !room.is_left() }))
}

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogsQuery {
    /// Only those after this one.
    #[param(minimum = -1)]
    after: Option<i64>,
}

/// List what a session's sandbox says about itself
#[utoipa::path(
    get, path = "/api/sessions/{id}/logs", tag = "sessions", operation_id = "listLogs",
    params(("id" = uuid::Uuid, Path, description = "The session"), LogsQuery),
    responses((status = 200, description = "The lines, in order", body = api::Logs), Always, Invalid, Missing),
)]
pub(super) async fn logs(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    Query(query): Query<LogsQuery>,
) -> Result<JsonAnswer<api::Logs>, ApiError> {
    let after = range("after", query.after.unwrap_or(-1), -1, i64::MAX)?;
    let stored = app.session(&caller, id).await?;
    let mut lines = Vec::new();
    let mut read = Seq::ZERO;
    loop {
        let page = app.engine().store().events_after(id, read, READ).await?;
        let Some(last) = page.last() else { break };
        read = last.seq;
        lines.extend(page.iter().filter_map(system_line));
    }
    let now = api::rfc3339(stored.session.last_active());
    let said = app.engine().logs(&caller.tenant, id).await?;
    lines.extend(said.lines().map(|line| ("stderr", line.to_owned(), now.clone())));
    let left_out = lines.len().saturating_sub(MAX_LOG_LINES);
    let numbered = lines.into_iter().enumerate().skip(left_out);
    let logs = numbered.map(|(index, (level, text, ts))| api::Log {
        index: index as u64,
        level: level.to_owned(),
        text,
        ts,
    });
    let logs = logs.filter(|log| i64::try_from(log.index).is_ok_and(|index| index > after));
    Ok(JsonAnswer(api::Logs { logs: logs.collect(), source: "sandbox".to_owned() }))
}

/// What an entry says about the sandbox, in a line.
fn system_line(logged: &LogEntry) -> Option<(&'static str, String, String)> {
    let text = match &logged.entry {
        Entry::SessionActive { incarnation } => format!("Sandbox {incarnation} is up"),
        Entry::SessionResumed { path, incarnation, .. } => {
            format!("Session resumed {} in sandbox {incarnation}", path.as_str())
        }
        Entry::SessionPaused { reason } => format!("Session paused ({reason:?})").to_lowercase(),
        Entry::SessionStopped => "Session stopped".to_owned(),
        Entry::SessionFailed { failure } => format!("Session failed: {}", failure.message),
        Entry::SessionEnded { .. } => "Session ended".to_owned(),
        Entry::ContextLost { reason, .. } => format!("Context lost: {reason}"),
        Entry::SessionCreated
        | Entry::SessionWaking
        | Entry::SessionForked { .. }
        | Entry::SessionImported { .. }
        | Entry::Rewound { .. }
        | Entry::Prompt { .. }
        | Entry::RunStarted { .. }
        | Entry::Phase { .. }
        | Entry::RunRetry { .. }
        | Entry::RunCancelling { .. }
        | Entry::TextDelta { .. }
        | Entry::ThinkingDelta { .. }
        | Entry::Message { .. }
        | Entry::Output { .. }
        | Entry::PermissionRequest { .. }
        | Entry::PermissionDecided { .. }
        | Entry::PermissionAnswered { .. }
        | Entry::ReportTooLarge { .. }
        | Entry::RunError { .. }
        | Entry::RunEnded { .. }
        | Entry::ReportsLost { .. } => return None,
    };
    Some(("system", text, api::rfc3339(logged.at)))
}
