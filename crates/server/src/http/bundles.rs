//! Sessions as bundles: one file that leaves a server, and comes to another.

use std::io::{self, Read};
use std::time::Duration;

use ash_core::id::SessionId;
use ash_engine::{
    Bundle, BundleError, EngineError, Extent, MAX_BUNDLE, Received, Understand, Understood,
};
use axum::Json as JsonAnswer;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::timeout;
use utoipa::IntoParams;

use super::app::App;
use super::auth::Caller;
use super::checks::{check_model, check_times, check_words};
use super::code::Code;
use super::error::{ApiError, SOON};
use super::extract::{BODY_PATIENCE, PathId, Query, late};
use super::files::{encoded, streamed};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::openapi::{Always, Conflict, Expired, Invalid, Missing, Unfitting, Unusable};
use crate::agents::AgentSettings;
use crate::api::SessionBody;

/// How many bundles are taken in at once.
static ARRIVING: Semaphore = Semaphore::const_new(4);

/// How long one may take to come. Who sends nothing for a while is cut off before.
const DEADLINE: Duration = Duration::from_secs(2 * 60 * 60);

/// How much of a bundle waits to be written.
const PIECES: usize = 4;

/// How much is still listened to when it is known that it is of no use, and for how long: whoever sends hears the
/// answer when it is done with it.
const MAX_UNHEARD: usize = 64 << 20;
const UNHEARD: Duration = Duration::from_secs(5);

/// What a bundle is to have in it.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportQuery {
    /// Whether every snapshot of its files that is kept is in it, and not the latest alone: then it can be forked
    /// and rewound where it is imported.
    #[serde(default)]
    #[param(nullable = false, default = false)]
    history: Option<bool>,
}

/// Export a session
///
/// One file with everything that another server needs to go on with it: its conversation, its files, its agent, and a
/// manifest with the digest of each part. Variables and credentials are not in it. The session is not touched.
#[utoipa::path(
    get, path = "/api/sessions/{id}/export", tag = "sessions", operation_id = "exportSession",
    params(("id" = uuid::Uuid, Path, description = "The session"), ExportQuery),
    responses(
        (
            status = 200, description = "The bundle", body = String, content_type = "application/x-tar",
            headers(("Content-Disposition" = String, description = "Its name")),
        ),
        Always, Invalid, Missing, Conflict, Expired,
    ),
)]
pub(super) async fn export(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    Query(query): Query<ExportQuery>,
) -> Result<Response, ApiError> {
    let extent = match query.history {
        Some(true) => Extent::History,
        Some(false) | None => Extent::Latest,
    };
    let exported = app.engine().export(&caller.tenant, id, extent).await;
    if let Err(EngineError::NoSavedState) = &exported {
        let message = "Nothing of this session was captured yet: export it after its first turn";
        return Err(ApiError::new(StatusCode::CONFLICT, Code::NO_SAVED_STATE, message));
    }
    let Bundle { file, size, name } = exported?;
    let mut response = Response::new(streamed(file, size));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert(header::CONTENT_LENGTH, size.into());
    let disposition = format!("attachment; filename*=UTF-8''{}", encoded(&name));
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

/// Import a session
///
/// The body is a bundle, as an export has made it, of any server and any tenant. The session is `paused`, with its log, its
/// runs and its snapshots; a resume brings its files. It keeps its id, unless there is such a session here or in
/// the cloud. Its agent is made here, unless it is there. A bundle that is not whole changes nothing.
#[utoipa::path(
    post, path = "/api/sessions/import", tag = "sessions", operation_id = "importSession",
    params(Repeatable),
    request_body(content = String, content_type = "application/x-tar", description = "The bundle"),
    responses(
        (status = 201, description = "The session", body = SessionBody),
        Always, Invalid, Conflict, Unfitting, Unusable,
    ),
)]
pub(super) async fn import(
    State(app): State<App>,
    caller: Caller,
    key: IdempotencyKey,
    body: Body,
) -> Result<(StatusCode, JsonAnswer<SessionBody>), ApiError> {
    let _place = place()?;
    let imported = async {
        let received = receive(&app, body).await?;
        let idempotency = key.of(&caller.tenant, received.digest());
        let understand = understanding(&app);
        let engine = app.engine();
        Ok(engine.import_bundle(&caller.tenant, received, &*understand, idempotency).await?)
    };
    let imported = imported.await.inspect_err(|error| not_imported(&caller, "a bundle", error))?;
    app.look_for_unplaced(imported.record.id).await?;
    let session = app.view(&imported).await?;
    Ok((StatusCode::CREATED, JsonAnswer(SessionBody { session })))
}

/// Says in the log that something was not imported, and why: whoever looks after the server may be another one than who
/// asked. What is no fault of what was to be imported is said wherever it is found.
pub(super) fn not_imported(caller: &Caller, what: &str, error: &ApiError) {
    if error.status.is_server_error() {
        return;
    }
    let cause = error.cause.as_deref().map(|cause| cause as &dyn std::error::Error);
    tracing::warn!(
        error = cause, error.code = error.code.as_str(), tenant.id = %caller.tenant,
        "{what} was not imported: {}", error.message,
    );
}

/// What sessions from elsewhere and their agents are set to, as the engine has to know it. What could not be asked
/// for here is not taken.
pub(super) fn understanding(app: &App) -> Box<Understand> {
    let app = app.clone();
    Box::new(move |session, agent| {
        AgentSettings::open(agent, app.sealer()).ok()?;
        let options = app.open_options(&session.config).ok()?;
        check_model(session.model.as_deref()).ok()?;
        check_words(session.title.as_deref(), Some(&session.metadata)).ok()?;
        check_times(options.idle_timeout_ms, options.ttl_ms).ok()?;
        let [time_to_live, idle_timeout] =
            [options.ttl_ms, options.idle_timeout_ms].map(|it| it.map(Duration::from_millis));
        Some(Understood { time_to_live: time_to_live.or(app.session_ttl()), idle_timeout })
    })
}

fn place() -> Result<SemaphorePermit<'static>, ApiError> {
    ARRIVING.try_acquire().map_err(|_| {
        let message = "Too many bundles are being imported at once";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, Code::TOO_MANY_BODIES, message).later(SOON)
    })
}

/// Takes a bundle in as it comes, without holding more than a few pieces of it.
async fn receive(app: &App, mut body: Body) -> Result<Received, ApiError> {
    if body.size_hint().lower() > MAX_BUNDLE {
        return Err(EngineError::from(BundleError::TooLarge(MAX_BUNDLE)).into());
    }
    let (sender, receiver) = mpsc::channel(PIECES);
    let taken = app.engine().receive_bundle(Pieces { from: receiver, piece: Bytes::new() });
    let (sent, taken) = tokio::join!(timeout(DEADLINE, send(&mut body, sender)), taken);
    match (sent, taken) {
        (Ok(Ok(())), taken) => {
            if taken.is_err() {
                let _enough = timeout(UNHEARD, listen_out(&mut body)).await;
            }
            Ok(taken?)
        }
        (Ok(Err(error)), _) => Err(error),
        (Err(_), _) => Err(late()),
    }
}

/// Hands a body on, piece by piece, for as long as somebody wants it.
async fn send(body: &mut Body, to: mpsc::Sender<io::Result<Bytes>>) -> Result<(), ApiError> {
    loop {
        let frame = match timeout(BODY_PATIENCE, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => return Ok(()),
            Ok(Some(Err(_))) => {
                let _heard = to.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
                return Err(ApiError::invalid("The body did not arrive whole"));
            }
            Err(_) => {
                let _heard = to.send(Err(io::ErrorKind::TimedOut.into())).await;
                return Err(late());
            }
        };
        if let Ok(piece) = frame.into_data()
            && to.send(Ok(piece)).await.is_err()
        {
            return Ok(());
        }
    }
}

async fn listen_out(body: &mut Body) {
    let mut heard = 0;
    while heard < MAX_UNHEARD
        && let Some(Ok(frame)) = body.frame().await
    {
        heard += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// A body, read where that may take time.
struct Pieces {
    from: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.from.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let length = into.len().min(self.piece.len());
        into[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}
