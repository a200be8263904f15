//! Sessions in the cloud: what is there, and making it this server's.

use ash_core::id::SessionId;
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::app::App;
use super::auth::Caller;
use super::bundles::{not_imported, understanding};
use super::error::ApiError;
use super::extract::{PathId, Query, range};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::openapi::{Always, Conflict, Invalid, Missing, Unusable};
use crate::api::{self, CloudSession, CloudSessions, ImportedSession};

/// How many sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct CloudQuery {
    /// How many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// List the sessions that are in the cloud, newest first
///
/// Whichever server has brought them there.
#[utoipa::path(
    get, path = "/api/cloud/sessions", tag = "sessions", operation_id = "listCloudSessions",
    params(CloudQuery),
    responses((status = 200, description = "The sessions", body = CloudSessions), Always, Invalid, Missing),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<CloudQuery>,
) -> Result<JsonAnswer<CloudSessions>, ApiError> {
    let limit = range("limit", query.limit.unwrap_or(100), 1, 1_000)?;
    let (sessions, unreadable) = app.engine().sessions_in_cloud(&caller.tenant, limit).await?;
    let url = app.engine().cloud().map(|cloud| cloud.url().to_owned()).unwrap_or_default();
    let sessions = sessions.into_iter().map(view).collect();
    let unreadable = unreadable.into_iter().map(|session| session.as_uuid()).collect();
    Ok(JsonAnswer(CloudSessions { url, sessions, unreadable }))
}

/// Make a session that is in the cloud one of this server
///
/// It is `paused`, with its log, its runs and its snapshots; a resume brings its files. It keeps its id, unless there is
/// such a session here. Its agent is made here, unless it is there. Whoever had it before should not go on with it. What cannot
/// be read there is done without, if it can be, and is named in `warnings`.
#[utoipa::path(
    post, path = "/api/cloud/sessions/{id}/import", tag = "sessions", operation_id = "importCloudSession",
    params(("id" = uuid::Uuid, Path, description = "The session, as it is called in the cloud"), Repeatable),
    responses(
        (status = 201, description = "The session", body = ImportedSession),
        Always, Invalid, Missing, Conflict, Unusable,
    ),
)]
pub(super) async fn import(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    key: IdempotencyKey,
) -> Result<(StatusCode, JsonAnswer<ImportedSession>), ApiError> {
    // The path says it all.
    let idempotency = key.of(&caller.tenant, *blake3::hash(b"").as_bytes());
    let understand = understanding(&app);
    let imported = app.engine().import_from_cloud(&caller.tenant, id, &*understand, idempotency);
    let imported = imported.await.map_err(ApiError::from).inspect_err(|error| {
        not_imported(&caller, &format!("session {id} of the cloud"), error);
    })?;
    let ash_engine::Imported { session, warnings } = imported;
    app.look_for_unplaced(session.record.id).await?;
    let session = app.view(&session).await?;
    Ok((StatusCode::CREATED, JsonAnswer(ImportedSession { session, warnings })))
}

fn view(found: ash_engine::CloudSession) -> CloudSession {
    let ash_engine::CloudSession { session, agent_name, title, turns, status, seq, snapshot, at } =
        found;
    CloudSession {
        session_id: session.as_uuid(),
        agent_name: agent_name.to_string(),
        title,
        turns,
        status,
        seq: seq.get(),
        snapshot_id: snapshot.as_uuid(),
        at: api::rfc3339(at),
    }
}
