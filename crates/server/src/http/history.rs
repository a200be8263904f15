//! Points of a session's history: begin another one there, go back there, and compare two of them.

use ash_core::id::{SessionId, SnapshotId};
use ash_core::number::Turn;
use ash_engine::{Against, ChangedFile, Comparison, Effective, HowChanged, Point, TextDiff};
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::app::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, MaybeJson, PathId, PathIds, Query, length};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::openapi::{Always, Conflict, Expired, Invalid, Missing, TooLarge};
use crate::api;

/// Fork a session
///
/// A new session begins where this one was: with its conversation and its files as of a snapshot, or the end of a turn;
/// without either, as they are now. It is `paused`. This one is not touched, and may go on meanwhile.
#[utoipa::path(
    post, path = "/api/sessions/{id}/fork", tag = "sessions", operation_id = "forkSession",
    params(("id" = uuid::Uuid, Path, description = "The session"), Repeatable),
    request_body = Option<api::ForkSession>,
    responses(
        (status = 201, description = "The new session, paused", body = api::SessionBody),
        Always, Invalid, Missing, Conflict, Expired, TooLarge,
    ),
)]
pub(super) async fn fork(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    key: IdempotencyKey,
    MaybeJson(body): MaybeJson<api::ForkSession>,
) -> Result<(StatusCode, JsonAnswer<api::SessionBody>), ApiError> {
    let asked = serde_json::to_vec(&body).map_err(ApiError::internal)?;
    let idempotency = key.of(&caller.tenant, *blake3::hash(&asked).as_bytes());
    let at = point(body.snapshot_id, body.turn)?.unwrap_or(Point::Latest);
    let made = app.engine().fork(&caller.tenant, id, at, idempotency).await?;
    app.look_for_unplaced(made.record.id).await?;
    Ok((StatusCode::CREATED, JsonAnswer(api::SessionBody { session: app.view(&made).await? })))
}

/// Rewind a session
///
/// Its conversation and its files become what they were when a snapshot was made, or at the end of a turn. What is there
/// is captured first: nothing is lost, and a rewind can be rewound. A session that was active is active again.
#[utoipa::path(
    post, path = "/api/sessions/{id}/rewind", tag = "sessions", operation_id = "rewindSession",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    request_body = api::RewindSession,
    responses(
        (status = 200, description = "The session, and what became of its files", body = api::Rewound),
        Always, Invalid, Missing, Conflict, Expired, TooLarge,
    ),
)]
pub(super) async fn rewind(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    JsonBody { value: body, .. }: JsonBody<api::RewindSession>,
) -> Result<JsonAnswer<api::Rewound>, ApiError> {
    let to = point(body.snapshot_id, body.turn)?
        .ok_or_else(|| ApiError::invalid("One of snapshotId and turn is needed"))?;
    let effective = if body.dry_run { Effective::No } else { Effective::Yes };
    let rewound = app.engine().rewind(&caller.tenant, id, to, effective).await?;
    let Comparison { added, modified, removed, .. } = rewound.changes;
    let changes = api::ChangeCounts { added, modified, removed };
    let (session, unverified) = (app.view(&rewound.session).await?, rewound.unverified);
    Ok(JsonAnswer(api::Rewound { session, changes, unverified }))
}

/// The point of history that a request names, if it names one.
fn point(snapshot: Option<uuid::Uuid>, turn: Option<u32>) -> Result<Option<Point>, ApiError> {
    match (snapshot, turn) {
        (Some(_), Some(_)) => {
            Err(ApiError::invalid("Only one of snapshotId and turn can be given"))
        }
        (Some(id), None) => Ok(Some(Point::Snapshot(SnapshotId::from_uuid(id)))),
        (None, Some(turn)) => Ok(Some(Point::Turn(Turn::new(turn)))),
        (None, None) => Ok(None),
    }
}

/// What a snapshot is compared with.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// Another snapshot of the session, `empty`, or `current` for the last one. If nothing is said, the one that it
    /// followed: of the same turn, or of the turn before it on its branch.
    #[param(pattern = "^(empty|current|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$")]
    against: Option<String>,
    /// Only what lies at or beneath this path of the workspace.
    #[param(max_length = 4096)]
    path: Option<String>,
}

/// Compare the files of two snapshots
///
/// Says how the other one became this one. At most 1000 files are named; of text up to 256 KiB the lines that differ are
/// shown, as `patch` reads them.
#[utoipa::path(
    get, path = "/api/sessions/{id}/snapshots/{snapshot}/diff", tag = "sessions",
    operation_id = "diffSnapshots",
    params(
        ("id" = uuid::Uuid, Path, description = "The session"),
        ("snapshot" = uuid::Uuid, Path, description = "The snapshot"),
        DiffQuery,
    ),
    responses(
        (status = 200, description = "What differs", body = api::SnapshotDiff),
        Always, Invalid, Missing, Expired,
    ),
)]
pub(super) async fn diff(
    State(app): State<App>,
    caller: Caller,
    PathIds(id, snapshot): PathIds<SessionId, SnapshotId>,
    Query(query): Query<DiffQuery>,
) -> Result<JsonAnswer<api::SnapshotDiff>, ApiError> {
    let against = match query.against.as_deref() {
        None => Against::Previous,
        Some("empty") => Against::Empty,
        Some("current") => Against::Current,
        Some(id) => Against::Snapshot(id.parse().map_err(|_| {
            ApiError::invalid("against is neither the id of a snapshot nor empty nor current")
        })?),
    };
    if let Some(path) = &query.path {
        length("path", path, 4_096)?;
    }
    let compared = app.engine().compare(&caller.tenant, id, snapshot, against, query.path).await?;
    let Comparison { added, modified, removed, files, left_out } = compared.changes;
    Ok(JsonAnswer(api::SnapshotDiff {
        snapshot_id: compared.after.captured.id.as_uuid(),
        against: compared.before.map(|before| before.captured.id.as_uuid()),
        changes: api::ChangeCounts { added, modified, removed },
        files: files.into_iter().map(file_view).collect(),
        left_out,
    }))
}

fn file_view(file: ChangedFile) -> api::FileDiff {
    let ChangedFile { path, how, size_before, size_after, text } = file;
    let (diff, omitted) = match text {
        TextDiff::Lines(lines) => (Some(lines), None),
        TextDiff::Binary => (None, Some(api::Omitted::Binary)),
        TextDiff::TooLarge => (None, Some(api::Omitted::TooLarge)),
    };
    let change = match how {
        HowChanged::Added => api::FileChange::Added,
        HowChanged::Modified => api::FileChange::Modified,
        HowChanged::Removed => api::FileChange::Removed,
    };
    api::FileDiff { path, change, size_before, size_after, diff, omitted }
}
