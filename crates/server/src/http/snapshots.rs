//! Snapshots of what sessions work on.

use ash_core::id::SessionId;
use ash_store::StoredSnapshot;
use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::app::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{PathId, Query, range};
use super::openapi::{Always, Invalid, Missing};
use crate::api;

/// How many snapshots.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SnapshotsQuery {
    /// How many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// List the snapshots of a session's files, newest first
#[utoipa::path(
    get, path = "/api/sessions/{id}/snapshots", tag = "sessions", operation_id = "listSnapshots",
    params(("id" = uuid::Uuid, Path, description = "The session"), SnapshotsQuery),
    responses(
        (status = 200, description = "The snapshots", body = api::Snapshots), Always, Invalid, Missing
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    Query(query): Query<SnapshotsQuery>,
) -> Result<JsonAnswer<api::Snapshots>, ApiError> {
    let limit = range("limit", query.limit.unwrap_or(100), 1, 1_000)?;
    app.session(&caller, id).await?;
    let snapshots = app.engine().store().snapshots(id, limit).await?;
    Ok(JsonAnswer(api::Snapshots { snapshots: snapshots.iter().map(snapshot_view).collect() }))
}

fn snapshot_view(stored: &StoredSnapshot) -> api::Snapshot {
    let StoredSnapshot { snapshot, places } = stored;
    api::Snapshot {
        id: snapshot.captured.id.as_uuid(),
        seq: snapshot.seq.get(),
        turn: snapshot.turn.get(),
        created_at: api::rfc3339(snapshot.at),
        files: snapshot.captured.files,
        bytes: snapshot.captured.bytes,
        new_bytes: snapshot.captured.new_bytes,
        unfrozen: snapshot.captured.unfrozen,
        unstable: snapshot.captured.unstable,
        unverified: snapshot.unverified(),
        location: api::SnapshotLocation { local: places.local, cloud: places.cloud },
    }
}
