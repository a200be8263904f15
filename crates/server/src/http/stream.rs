//! Following a session: everything after a cursor, then whatever comes.

use ash_core::id::SessionId;
use ash_core::number::{Cursor, LogEpoch, Seq};
use ash_engine::FollowFrom;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::app::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{PathId, Query};
use super::openapi::{Always, Invalid, Missing};
use super::sse::{self, Detail, Shown};
use crate::api;

/// When a stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Until {
    /// When the session has nothing to do.
    Idle,
}

/// From where to follow.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FollowQuery {
    /// Only what comes after this: a sequence, or an event id. `Last-Event-ID` goes before it.
    #[param(pattern = "^[0-9]{1,19}(-[0-9]{1,19})?$")]
    after: Option<String>,
    /// When to stop; never, unless told.
    #[param(inline)]
    until: Option<Until>,
}

/// Where the client was, as browsers say it.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its shape is wanted")]
struct LastSeen {
    /// The last event that was seen; an empty one says nothing.
    #[param(
        rename = "Last-Event-ID",
        nullable = false,
        pattern = "^([0-9]{1,19}(-[0-9]{1,19})?)?$"
    )]
    last: Option<String>,
}

/// Follow a session
///
/// Replays the log after `Last-Event-ID` or `after`, or from its beginning, and goes on with what comes.
/// If the log does not hold what comes after the cursor, the first event is `gap`.
#[utoipa::path(
    get, path = "/api/sessions/{id}/stream", tag = "messages", operation_id = "followSession",
    params(
        ("id" = uuid::Uuid, Path, description = "The session"),
        LastSeen, FollowQuery,
    ),
    responses((status = 200, description = "The log, as it grows", body = api::Frame, content_type = "text/event-stream"), Always, Invalid, Missing),
)]
pub(super) async fn follow(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    headers: HeaderMap,
    Query(query): Query<FollowQuery>,
) -> Result<Response, ApiError> {
    let last = headers.get("last-event-id").filter(|value| !value.is_empty());
    let from = match last {
        Some(last) => {
            let text = last.to_str().unwrap_or_default();
            start_at(text).ok_or_else(|| bad_cursor("Last-Event-ID"))?
        }
        None => match &query.after {
            Some(after) => start_at(after).ok_or_else(|| bad_cursor("after"))?,
            None => FollowFrom::Start,
        },
    };
    let shown = match query.until {
        Some(Until::Idle) => Shown::UntilIdle,
        None => Shown::Everything,
    };
    let follower = app.engine().follow(&caller.tenant, id, from).await?;
    Ok(sse::stream(app, caller, follower, id, (shown, Detail::Logged), Vec::new()))
}

/// A sequence, or an epoch and a sequence. More than a log can ever hold is beyond its end, and an epoch
/// that none can have is another one: told so, and not refused.
fn start_at(text: &str) -> Option<FollowFrom> {
    let number = |digits: &str| {
        let fine =
            (1..=19).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        fine.then(|| digits.parse::<u64>().unwrap_or(u64::MAX))
    };
    match text.split_once('-') {
        Some((epoch, seq)) => {
            let epoch = u32::try_from(number(epoch)?).unwrap_or(u32::MAX);
            let (epoch, seq) = (LogEpoch::new(epoch), Seq::new(number(seq)?));
            Some(FollowFrom::Cursor(Cursor { epoch, seq }))
        }
        None => number(text).map(|seq| FollowFrom::After(Seq::new(seq))),
    }
}

fn bad_cursor(name: &str) -> ApiError {
    ApiError::invalid(format!("{name} is neither a sequence nor an event id"))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_cursor_is_a_sequence_or_an_event_id_and_nothing_else() {
        let cursor = |epoch, seq| {
            FollowFrom::Cursor(Cursor { epoch: LogEpoch::new(epoch), seq: Seq::new(seq) })
        };
        assert_eq!(start_at("17"), Some(FollowFrom::After(Seq::new(17))));
        assert_eq!(start_at("3-17"), Some(cursor(3, 17)));
        assert_eq!(start_at("9999999999-17"), Some(cursor(u32::MAX, 17)));
        for bad in ["", "-", "3-", "-3", "+3", "3-+1", "1-2-3", " 3", "x", "99999999999999999999"] {
            assert_eq!(start_at(bad), None, "{bad:?}");
        }
    }
}
