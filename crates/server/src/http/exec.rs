//! Commands beside the agent.

use ash_core::id::SessionId;
use ash_engine::EngineError;
use ash_protocol::{ExecEnd, ExecRequest};
use axum::Json as JsonAnswer;
use axum::extract::State;

use super::app::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, PathId, length, range};
use super::openapi::{Always, Invalid, Missing, TooLarge};
use crate::api::{ExecCommand, ExecOutcome};

/// How much of each stream is kept.
const MAX_OUTPUT_BYTES: usize = 5 * 1024 * 1024;

/// How long a command may take unless told otherwise, and at the most, in milliseconds.
const USUAL_TIMEOUT: u64 = 30_000;
const LONGEST_TIMEOUT: u64 = 300_000;

/// Run a command in a session's workspace
///
/// A run that goes on is not disturbed.
#[utoipa::path(
    post, path = "/api/sessions/{id}/exec", tag = "sessions", operation_id = "execCommand",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    request_body = ExecCommand,
    responses((status = 200, description = "What became of it", body = ExecOutcome), Always, Invalid, Missing, TooLarge),
)]
pub(super) async fn exec(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    JsonBody { value: body, .. }: JsonBody<ExecCommand>,
) -> Result<JsonAnswer<ExecOutcome>, ApiError> {
    if body.command.is_empty() || body.command.contains('\0') {
        return Err(ApiError::invalid("command is empty, or has a NUL in it"));
    }
    length("command", &body.command, 100_000)?;
    let timeout = range("timeout", body.timeout.unwrap_or(USUAL_TIMEOUT), 1, LONGEST_TIMEOUT)?;
    let request = ExecRequest {
        command: body.command,
        cwd: None,
        timeout_ms: timeout,
        max_output_bytes: MAX_OUTPUT_BYTES,
    };
    let result = app.engine().exec(&caller.tenant, id, request).await.map_err(|error| {
        if let EngineError::Unavailable(cause) = error {
            let mut refused = ApiError::internal(cause);
            refused.message = "The sandbox did not run the command".into();
            return refused;
        }
        error.into()
    })?;
    let timed_out = result.end == ExecEnd::TimedOut;
    let (exit_code, complaint) = match result.end {
        ExecEnd::Exited(code) => (code, None),
        ExecEnd::Killed(signal) => (128 + signal, None),
        ExecEnd::TimedOut => (1, None),
        ExecEnd::NotStarted(why) => (127, Some(why)),
    };
    Ok(JsonAnswer(ExecOutcome {
        exit_code,
        stdout: result.stdout,
        stderr: complaint.unwrap_or(result.stderr),
        timed_out,
        omitted_bytes: result.omitted_bytes,
    }))
}
