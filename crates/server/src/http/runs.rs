//! Runs: what became of each prompt.

use ash_core::id::{RunId, SessionId};
use ash_store::RunRecord;
use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::app::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{PathId, PathIds, Query, range};
use super::messages::uuid_of;
use super::openapi::{Always, Invalid, Missing};
use super::view::usage_of;
use crate::api;

/// How many runs.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RunsQuery {
    /// How many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// List a session's runs, newest first
#[utoipa::path(
    get, path = "/api/sessions/{id}/runs", tag = "runs", operation_id = "listRuns",
    params(("id" = uuid::Uuid, Path, description = "The session"), RunsQuery),
    responses((status = 200, description = "The runs", body = api::Runs), Always, Invalid, Missing),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    Query(query): Query<RunsQuery>,
) -> Result<JsonAnswer<api::Runs>, ApiError> {
    let limit = range("limit", query.limit.unwrap_or(100), 1, 1_000)?;
    app.session(&caller, id).await?;
    let runs = app.engine().store().runs(id, limit).await?;
    Ok(JsonAnswer(api::Runs { runs: runs.iter().map(run_view).collect() }))
}

/// Look at a run
#[utoipa::path(
    get, path = "/api/sessions/{id}/runs/{run}", tag = "runs", operation_id = "getRun",
    params(
        ("id" = uuid::Uuid, Path, description = "The session"),
        ("run" = uuid::Uuid, Path, description = "The run"),
    ),
    responses((status = 200, description = "The run", body = api::RunBody), Always, Invalid, Missing),
)]
pub(super) async fn get(
    State(app): State<App>,
    caller: Caller,
    PathIds(id, run): PathIds<SessionId, RunId>,
) -> Result<JsonAnswer<api::RunBody>, ApiError> {
    app.session(&caller, id).await?;
    let run = app.engine().store().run(id, run).await?;
    Ok(JsonAnswer(api::RunBody { run: run_view(&run) }))
}

pub(super) fn run_view(run: &RunRecord) -> api::Run {
    api::Run {
        id: uuid_of(run.id),
        session_id: uuid_of(run.session),
        status: run.status.as_str().to_owned(),
        phase: run.phase.map(|phase| phase.as_str().to_owned()),
        round: run.round,
        turn: run.turn.map(|turn| turn.get()),
        parent_turn: run.parent_turn.map(|turn| turn.get()),
        stop_reason: run.stop_reason.clone(),
        error: run.failure.as_ref().map(|failure| api::RunError {
            code: failure.code.as_str().to_owned(),
            message: failure.message.clone(),
        }),
        usage: usage_of(&run.usage),
        prompt_seq: run.prompt_seq.get(),
        accepted_at: api::rfc3339(run.accepted_at),
        started_at: run.started_at.map(api::rfc3339),
        ended_at: run.ended_at.map(api::rfc3339),
    }
}
