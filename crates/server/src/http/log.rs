//! The log as lists: what happened in a session, and what its sandbox says about itself.

use ash_core::entry::Entry;
use ash_core::id::{RunId, SessionId};
use ash_core::number::{Cursor, Seq};
use ash_core::time::Timestamp;
use ash_engine::{LogLine, Logs};
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
use super::view::timeline::{self, REASONING};
use crate::api;

/// How many entries are looked at in one read.
const READ: u32 = 500;

/// The types of the original. A client of it takes no others for a list of events.
const OF_THE_ORIGINAL: [&str; 8] = [
    "text",
    "tool_start",
    "tool_result",
    REASONING,
    "error",
    "turn_complete",
    "lifecycle",
    "mcp_status",
];

/// What is asked for to have events of every type.
const ALL: &str = "all";

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
    /// `tool_result`, `reasoning`, `error`, `turn_complete`, `lifecycle` and `mcp_status`. A type that there is not has
    /// no events. What an agent thinks in one go is one event, but for `all`, which tells the pieces.
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
    let wanted = |kind: &str| match query.kind.as_deref() {
        None => OF_THE_ORIGINAL.contains(&kind),
        Some(ALL) => true,
        Some(wanted) => wanted == kind,
    };
    let shown = |seq: Seq, at: Timestamp, kind: &str, data: String| {
        let cursor = Cursor { epoch, seq }.to_string();
        api::Event {
            id: named_id(&["event", &id.to_string(), &cursor]),
            cursor,
            session_id: uuid_of(id),
            tenant_id: caller.tenant.to_string(),
            kind: kind.to_owned(),
            data: Some(data),
            sequence: seq.get(),
            created_at: api::rfc3339(at),
        }
    };
    let thought_of = |Thought { run, text, seq, at }: Thought| {
        shown(seq, at, REASONING, timeline::reasoning(run, &text))
    };
    let gathers = query.kind.as_deref() != Some(ALL) && wanted(REASONING);
    let mut after = Seq::new(sequence("after", query.after)?);
    let mut events = Vec::new();
    let mut thought: Option<Thought> = None;
    let mut room = Room::default();
    let has_more = 'all: loop {
        let page = app.engine().store().events_after(id, after, READ).await?;
        let Some(last) = page.last() else { break false };
        after = last.seq;
        for logged in &page {
            if gathers && let Entry::ThinkingDelta { run, delta } = &logged.entry {
                if thought.as_ref().is_some_and(|thought| thought.run != *run) {
                    events.extend(thought.take().map(thought_of));
                }
                if !room.is_left() || (thought.is_none() && events.len() == limit) {
                    break 'all true;
                }
                room.take(delta.len());
                let begun = thought.take().map(|thought| thought.text).unwrap_or_default();
                let text = begun + delta;
                thought = Some(Thought { run: *run, text, seq: logged.seq, at: logged.at });
                continue;
            }
            events.extend(thought.take().map(thought_of));
            let (kind, data) = timeline::event(id, &logged.entry);
            if !wanted(&kind) {
                continue;
            }
            if events.len() == limit || !room.is_left() {
                break 'all true;
            }
            room.take(data.len());
            events.push(shown(logged.seq, logged.at, &kind, data));
        }
    };
    events.extend(thought.map(thought_of));
    Ok(JsonAnswer(api::Events { events, has_more }))
}

/// What an agent thinks in one go. The log has it in the pieces in which it came.
struct Thought {
    run: RunId,
    text: String,
    /// Where its last piece is.
    seq: Seq,
    at: Timestamp,
}

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LogsQuery {
    /// Only those after the one with this `index`. Numbers go on when the sandbox is another one.
    #[param(minimum = -1)]
    after: Option<i64>,
}

/// List what a session's sandboxes say about themselves
///
/// With when they came and went. A line keeps its `index`, and later ones have higher ones, also after the session was
/// paused, stopped and resumed: whoever asks for those after the last that they have misses none, or is told by `gap`.
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
    let logs = app.engine().logs(&caller.tenant, id).await?;
    let gap = gap(after, &logs);
    let is_wanted =
        |line: &LogLine| gap.is_some() || i64::try_from(line.index).is_ok_and(|at| at > after);
    let lines = logs.lines.into_iter().filter(is_wanted).map(|line| api::Log {
        index: line.index,
        level: line.level,
        text: line.text,
        ts: api::rfc3339(line.at),
    });
    Ok(JsonAnswer(api::Logs { logs: lines.collect(), source: "sandbox".to_owned(), gap }))
}

/// Where a reader stands who was told lines through `after`, if what comes next was lost to them.
fn gap(after: i64, logs: &Logs) -> Option<api::LogGap> {
    let after = u64::try_from(after).ok()?;
    let last = logs.lines.last().map(|line| line.index);
    let first = logs.lines.first().map_or(logs.first, |line| line.index);
    let reason = if last.map_or(logs.first, |last| last + 1) <= after {
        api::LogGapReason::BeyondEnd
    } else if after + 1 >= first {
        return None;
    } else if after < logs.first {
        api::LogGapReason::OtherEpoch
    } else {
        api::LogGapReason::LeftOut
    };
    Some(api::LogGap { after, next: first, reason })
}
