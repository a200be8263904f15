//! The whole workspace of a session at once.

use ash_core::id::SessionId;
use ash_engine::FileSource;
use ash_engine::files::MAX_BUNDLE_BYTES;
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::app::App;
use super::auth::Caller;
use super::base64::{decode, decoded_len};
use super::code::Code;
use super::error::ApiError;
use super::extract::{PathId, Upload};
use super::files::sent;
use super::openapi::{Always, Conflict, Full, Invalid, Missing, Over, Oversized, TooLarge};
use crate::api::{UploadWorkspace, WorkspaceUploaded};

/// The largest body: the largest bundle in base64.
const MAX_BODY: usize = 144 * 1024 * 1024;

/// Download the workspace of a session
///
/// Without `.git`, `node_modules` and other things that tools make again, without `.env` files, and without
/// links that lead out of it. At most 100 MB packed and 1 GB unpacked.
#[utoipa::path(
    get, path = "/api/sessions/{id}/workspace", tag = "files", operation_id = "downloadWorkspace",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    responses(
        (
            status = 200, description = "The files", body = String, content_type = "application/gzip",
            headers(
                ("X-Ash-Source" = String, description = "`sandbox` or `snapshot`"),
                ("Content-Disposition" = String, description = "Its name"),
            ),
        ),
        Always, Invalid, Missing, Oversized, Full,
    ),
)]
pub(super) async fn download(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
) -> Result<Response, ApiError> {
    let workspace = app.engine().workspace(&caller.tenant, id).await?;
    let (file, size) = workspace.pack().await?;
    let disposition = format!("attachment; filename=\"{id}.tar.gz\"");
    Ok(sent(file, size, "application/gzip", &disposition, workspace.source()))
}

/// Upload files into the workspace of a session
///
/// What is not in the bundle stays. One with anything in it that leads out of the workspace, or that is
/// neither a file, a directory nor a link, changes nothing.
#[utoipa::path(
    post, path = "/api/sessions/{id}/workspace", tag = "files", operation_id = "uploadWorkspace",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    request_body = UploadWorkspace,
    responses(
        (status = 200, description = "What was done", body = WorkspaceUploaded),
        Always, Invalid, Missing, Conflict, Over, TooLarge, Full,
    ),
)]
pub(super) async fn upload(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    Upload { value: body, place }: Upload<UploadWorkspace, MAX_BODY>,
) -> Result<JsonAnswer<WorkspaceUploaded>, ApiError> {
    let invalid = |why: String| ApiError::new(StatusCode::BAD_REQUEST, Code::INVALID_BUNDLE, why);
    if body.bundle.is_empty() {
        return Err(invalid("Empty bundle".to_owned()));
    }
    if decoded_len(&body.bundle) > MAX_BUNDLE_BYTES {
        let message = format!("The bundle has more than {MAX_BUNDLE_BYTES} bytes");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, Code::TOO_LARGE, message));
    }
    let bundle =
        decode(&body.bundle).map_err(|why| invalid(format!("The bundle is not base64: {why}")))?;
    drop(body);
    let workspace = app.engine().workspace_to_change(&caller.tenant, id).await?;
    let unpacked = workspace.unpack(bundle).await?;
    drop(place);
    let message = match workspace.source() {
        FileSource::Sandbox => "Workspace restored to live sandbox",
        FileSource::Snapshot => "Workspace saved as snapshot",
    };
    let message = message.to_owned();
    Ok(JsonAnswer(WorkspaceUploaded { message, files: unpacked.files, bytes: unpacked.bytes }))
}
