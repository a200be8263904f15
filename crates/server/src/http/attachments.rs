//! Files that are attached to sessions: kept beside them, with a copy for the agent.

use std::collections::BTreeSet;
use std::sync::Arc;

use ash_core::id::{AttachmentId, SessionId};
use ash_core::json::Json;
use ash_core::number::LogEpoch;
use ash_core::session::Wake;
use ash_engine::files::{Executable, FileError, FilePath};
use ash_engine::{Idempotency, RequireState, Workspace, WorkspaceError};
use ash_store::{Attachment, Receipt, StoreError, StoredSession};
use axum::Json as JsonAnswer;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use super::app::App;
use super::attached;
use super::auth::Caller;
use super::base64::{decode, decoded_len};
use super::code::Code;
use super::error::ApiError;
use super::extract::{PathId, Uploaded, upload};
use super::files::{encoded, streamed};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::messages::uuid_of;
use super::openapi::{Always, Conflict, Full, Invalid, Lost, Missing, Over, TooLarge};
use crate::api::{self, AttachmentBody, Done, NewAttachment};
use crate::attachments::{Attachments, numbered, safe_name};

/// Where the agent finds them.
const DIRECTORY: &str = "attachments";

/// How many names are tried for one.
const MAX_NAMES: u32 = 1_000;

/// What a file is that nobody says anything about.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Attach a file to a session
///
/// It is kept beside the session, and the agent finds a copy in `attachments` of its workspace: under another name, if
/// there is such a file already. If the workspace is in a snapshot alone, the copy is made when the session is back.
#[utoipa::path(
    post, path = "/api/sessions/{id}/attachments", tag = "files", operation_id = "attachFile",
    params(("id" = uuid::Uuid, Path, description = "The session"), Repeatable),
    request_body = NewAttachment,
    responses(
        (status = 201, description = "The attachment", body = AttachmentBody),
        Always, Invalid, Missing, Conflict, Over, TooLarge, Full,
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    key: IdempotencyKey,
    request: Request,
) -> Result<(StatusCode, JsonAnswer<AttachmentBody>), ApiError> {
    let kept = app.attachments();
    let Uploaded { value, digest, place } =
        upload::<NewAttachment>(request, kept.max_body()).await?;
    let wanted = Wanted::of(value, kept.max_size())?;
    let epoch = app.session(&caller, id).await?.session.log_epoch();
    let idempotency = key.of(&caller.tenant, digest);
    if let Some(earlier) = attached_before(&app, &caller, idempotency.as_ref()).await? {
        return Ok(shown_new(&earlier, epoch));
    }
    let message = wanted.message.as_deref();
    let message = attached::place_of_message(&app, &caller, id, message).await?;
    let workspace = match app.engine().workspace_to_change(&caller.tenant, id).await {
        Ok(workspace) => Some(workspace),
        // The copy has to wait.
        Err(WorkspaceError::Away | WorkspaceError::None) => None,
        Err(error @ (WorkspaceError::File(_) | WorkspaceError::Engine(_))) => {
            return Err(error.into());
        }
    };
    let bytes = Arc::new(wanted.bytes);
    let mut attachment = Attachment {
        id: app.make(AttachmentId::from_parts),
        tenant: caller.tenant.clone(),
        session: id,
        message,
        filename: wanted.filename,
        media_type: wanted.media_type,
        size: bytes.len() as u64,
        path: String::new(),
        placed: false,
        created_at: app.now(),
    };
    let attached =
        attach(&app, &mut attachment, &bytes, workspace.as_ref(), idempotency.as_ref()).await;
    match attached {
        Ok(()) => {}
        Err(Unattached::Earlier) => {
            let earlier = attached_before(&app, &caller, idempotency.as_ref()).await?;
            let earlier = earlier.ok_or_else(|| ApiError::internal("a receipt came and went"))?;
            return Ok(shown_new(&earlier, epoch));
        }
        Err(Unattached::Error(error)) => return Err(error),
    }
    drop((bytes, place));
    app.engine().attached(id);
    Ok(shown_new(&attachment, epoch))
}

/// What is to be attached, checked.
struct Wanted {
    filename: String,
    media_type: String,
    message: Option<String>,
    bytes: Vec<u8>,
}

impl Wanted {
    fn of(body: NewAttachment, most: u64) -> Result<Self, ApiError> {
        if body.filename.is_empty() {
            return Err(ApiError::invalid("filename is empty"));
        }
        let filename = safe_name(&body.filename)
            .ok_or_else(|| ApiError::invalid("filename has more than 255 bytes"))?;
        let media_type = body.mime_type.unwrap_or_else(|| UNKNOWN_TYPE.to_owned());
        if !is_media_type(&media_type) {
            return Err(ApiError::invalid("mimeType is not the name of a media type"));
        }
        let is_id = |id: &String| {
            (1..=64).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if !body.message_id.as_ref().is_none_or(is_id) {
            return Err(ApiError::invalid("messageId is not the id of a message"));
        }
        if body.content.is_empty() {
            return Err(ApiError::invalid("Empty attachment content"));
        }
        if decoded_len(&body.content) > most {
            let message = format!("Attachment too large (max {most} bytes)");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, Code::TOO_LARGE, message));
        }
        let bytes = decode(&body.content)
            .map_err(|why| ApiError::invalid(format!("content is not base64: {why}")))?;
        if bytes.is_empty() {
            return Err(ApiError::invalid("Empty attachment content"));
        }
        Ok(Self { filename, media_type, message: body.message_id, bytes })
    }
}

/// Whether it can stand in a header, and means nothing else there.
fn is_media_type(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    (3..=255).contains(&text.len())
        && text.bytes().all(is_plain)
        && text.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty())
}

/// Why nothing was attached.
enum Unattached {
    /// The same request was carried out meanwhile.
    Earlier,
    Error(ApiError),
}

impl From<ApiError> for Unattached {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

impl From<StoreError> for Unattached {
    fn from(error: StoreError) -> Self {
        Self::Error(error.into())
    }
}

/// Keeps the bytes, then says so, then gives the agent its copy. Whoever dies in between leaves bytes that nobody knows,
/// or an attachment whose copy is made later.
async fn attach(
    app: &App,
    attachment: &mut Attachment,
    bytes: &Arc<Vec<u8>>,
    workspace: Option<&Workspace>,
    idempotency: Option<&Idempotency>,
) -> Result<(), Unattached> {
    let kept = app.attachments();
    let (session, id) = (attachment.session, attachment.id);
    let content = Arc::clone(bytes);
    blocking(kept, move |kept| kept.put(session, id, &content)).await?;
    let recorded = record(app, attachment, workspace, idempotency).await;
    if let Err(error) = recorded {
        blocking(kept, move |kept| kept.remove(session, id)).await?;
        return Err(error);
    }
    let Some(workspace) = workspace else {
        kept.note_unplaced(session, true);
        return Ok(());
    };
    let path = path_of(attachment)?;
    match workspace.write(path, Executable::No, bytes.to_vec()).await {
        Ok(_) => app.store().place_attachment(id).await?,
        Err(error) => {
            // All of it, or nothing.
            let receipt = idempotency.map(|idempotency| &idempotency.key);
            app.store().delete_attachment(&attachment.tenant, id, receipt).await?;
            blocking(kept, move |kept| kept.remove(session, id)).await?;
            return Err(Unattached::Error(error.into()));
        }
    }
    Ok(())
}

/// Writes down what is attached, under the first name that is free.
async fn record(
    app: &App,
    attachment: &mut Attachment,
    workspace: Option<&Workspace>,
    idempotency: Option<&Idempotency>,
) -> Result<(), Unattached> {
    let receipt = match idempotency {
        Some(Idempotency { key, body_digest }) => Some(Receipt {
            key: key.clone(),
            body_digest: *body_digest,
            answer: Json::of(&attachment.id).map_err(ApiError::internal)?,
            at: app.now(),
        }),
        None => None,
    };
    for number in 1..=MAX_NAMES {
        attachment.path = format!("{DIRECTORY}/{}", numbered(&attachment.filename, number));
        if let Some(workspace) = workspace
            && !is_free(workspace, path_of(attachment)?).await?
        {
            continue;
        }
        match app.store().create_attachment(attachment, receipt.as_ref()).await {
            Ok(()) => return Ok(()),
            Err(StoreError::Exists("attachment")) => {}
            Err(StoreError::Exists("receipt")) => return Err(Unattached::Earlier),
            Err(error) => return Err(error.into()),
        }
    }
    Err(ApiError::invalid("Too many attachments of this session have this name").into())
}

async fn is_free(workspace: &Workspace, path: FilePath) -> Result<bool, ApiError> {
    match workspace.read(path, u64::MAX).await {
        Ok(_) | Err(WorkspaceError::File(FileError::NotAFile)) => Ok(false),
        Err(WorkspaceError::File(FileError::NotFound)) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn path_of(attachment: &Attachment) -> Result<FilePath, ApiError> {
    Ok(FilePath::file(attachment.path.as_bytes())?)
}

/// Does something with the bytes of attachments.
pub(super) async fn blocking<T: Send + 'static>(
    kept: &Attachments,
    work: impl FnOnce(&Attachments) -> std::io::Result<T> + Send + 'static,
) -> Result<T, ApiError> {
    let kept = kept.clone();
    let done = tokio::task::spawn_blocking(move || work(&kept)).await;
    let is_full = |error: &std::io::Error| {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        [StorageFull, QuotaExceeded].contains(&error.kind())
    };
    done.map_err(ApiError::internal)?.map_err(|error| {
        if is_full(&error) { FileError::DiskFull.into() } else { ApiError::internal(error) }
    })
}

async fn attached_before(
    app: &App,
    caller: &Caller,
    idempotency: Option<&Idempotency>,
) -> Result<Option<Attachment>, ApiError> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    let Some(answer) = app.engine().receipt_of(idempotency).await? else { return Ok(None) };
    let id: AttachmentId = serde_json::from_str(answer.get()).map_err(ApiError::internal)?;
    Ok(Some(app.store().attachment(&caller.tenant, id).await?))
}

/// List the files that are attached to a session, oldest first
#[utoipa::path(
    get, path = "/api/sessions/{id}/attachments", tag = "files", operation_id = "listAttachments",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    responses((status = 200, description = "The attachments", body = api::Attachments), Always, Invalid, Missing),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
) -> Result<JsonAnswer<api::Attachments>, ApiError> {
    let epoch = app.session(&caller, id).await?.session.log_epoch();
    let attachments = app.store().attachments(&caller.tenant, id).await?;
    let attachments = attachments.iter().map(|attachment| view(attachment, epoch)).collect();
    Ok(JsonAnswer(api::Attachments { attachments }))
}

/// Read an attachment
#[utoipa::path(
    get, path = "/api/attachments/{id}", tag = "files", operation_id = "readAttachment",
    params(("id" = uuid::Uuid, Path, description = "The attachment")),
    responses(
        (
            status = 200, description = "Its bytes, as what they were said to be",
            headers(("Content-Disposition" = String, description = "Its name")),
            body = String, content_type = "*/*",
        ),
        Always, Invalid, Missing, Lost,
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<AttachmentId>,
) -> Result<Response, ApiError> {
    let attachment = app.store().attachment(&caller.tenant, id).await?;
    let session = attachment.session;
    let opened = blocking(app.attachments(), move |kept| match kept.open(session, id) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    });
    let lost = || {
        let message = "The bytes of this attachment are lost";
        ApiError::new(StatusCode::GONE, Code::ATTACHMENT_LOST, message)
    };
    let file = opened.await?.ok_or_else(lost)?;
    let mut response = Response::new(streamed(file, attachment.size));
    let headers = response.headers_mut();
    let media_type = HeaderValue::from_str(&attachment.media_type);
    let unknown = HeaderValue::from_static(UNKNOWN_TYPE);
    headers.insert(header::CONTENT_TYPE, media_type.unwrap_or(unknown));
    headers.insert(header::CONTENT_LENGTH, attachment.size.into());
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    let disposition = format!("attachment; filename*=UTF-8''{}", encoded(&attachment.filename));
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

/// Delete an attachment
///
/// The copy in the workspace goes with it, unless it was changed: then it is the agent's.
#[utoipa::path(
    delete, path = "/api/attachments/{id}", tag = "files", operation_id = "deleteAttachment",
    params(("id" = uuid::Uuid, Path, description = "The attachment")),
    responses((status = 200, description = "It is gone", body = Done), Always, Invalid, Missing),
)]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<AttachmentId>,
) -> Result<JsonAnswer<Done>, ApiError> {
    let attachment = app.store().attachment(&caller.tenant, id).await?;
    attached::remove_copy(&app, &attachment).await?;
    app.store().delete_attachment(&caller.tenant, id, None).await?;
    let session = attachment.session;
    blocking(app.attachments(), move |kept| kept.remove(session, id)).await?;
    app.engine().attached(session);
    Ok(JsonAnswer(Done { ok: true }))
}

fn shown_new(attachment: &Attachment, epoch: LogEpoch) -> (StatusCode, JsonAnswer<AttachmentBody>) {
    (StatusCode::CREATED, JsonAnswer(AttachmentBody { attachment: view(attachment, epoch) }))
}

fn view(attachment: &Attachment, epoch: LogEpoch) -> api::Attachment {
    api::Attachment {
        id: uuid_of(attachment.id),
        tenant_id: attachment.tenant.to_string(),
        message_id: attached::message_of(attachment, epoch),
        session_id: uuid_of(attachment.session),
        filename: attachment.filename.clone(),
        mime_type: attachment.media_type.clone(),
        size: attachment.size,
        path: attachment.path.clone(),
        created_at: api::rfc3339(attachment.created_at),
    }
}

impl App {
    /// Gives an agent the copies that it does not have yet, before it is told anything. What cannot be given now is
    /// given the next time.
    pub(super) async fn place_attachments(&self, stored: &StoredSession, wake: Wake) {
        let id = stored.record.id;
        if !self.attachments().has_unplaced(id) {
            return;
        }
        if let Err(error) = self.place_all(stored, wake).await {
            let message = error.message;
            tracing::warn!(session.id = %id, "attachments of session {id} wait: {message}");
        }
    }

    /// Finds out whether a session that has come with attachments waits for copies.
    pub(super) async fn look_for_unplaced(&self, session: SessionId) -> Result<(), ApiError> {
        let unplaced = self.store().unplaced_attachments(session).await?;
        self.attachments().note_unplaced(session, !unplaced.is_empty());
        Ok(())
    }

    async fn place_all(&self, stored: &StoredSession, wake: Wake) -> Result<(), ApiError> {
        let (tenant, id) = (&stored.record.tenant, stored.record.id);
        let workspace = match self.engine().workspace_to_change(tenant, id).await {
            // It would be woken a moment later.
            Err(WorkspaceError::Away) if stored.session.wakes_for(wake) => {
                self.engine().resume(tenant, id, RequireState::No).await?;
                self.engine().workspace_to_change(tenant, id).await?
            }
            workspace => workspace?,
        };
        for attachment in self.store().unplaced_attachments(id).await? {
            let (kept, of) = (self.attachments(), attachment.id);
            let bytes = blocking(kept, move |kept| {
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut kept.open(id, of)?, &mut bytes)?;
                Ok(bytes)
            });
            let bytes = bytes.await?;
            workspace.write(path_of(&attachment)?, Executable::No, bytes).await?;
            self.store().place_attachment(of).await?;
        }
        self.attachments().note_unplaced(id, false);
        Ok(())
    }

    /// Removes bytes that nobody knows, and finds out which sessions wait for copies: what a server that was killed
    /// has left.
    pub(crate) async fn tend_attachments(self) {
        if let Err(error) = self.tend().await {
            let message = error.message;
            tracing::warn!("attachments could not be looked through: {message}");
        }
    }

    async fn attached_to(&self, session: SessionId) -> Result<BTreeSet<AttachmentId>, ApiError> {
        let record = match self.store().session_record(session).await {
            Err(StoreError::NotFound(_)) => return Ok(BTreeSet::new()),
            record => record?,
        };
        let attached = self.store().attachments(&record.tenant, session).await?;
        Ok(attached.iter().map(|attachment| attachment.id).collect())
    }

    async fn tend(&self) -> Result<(), ApiError> {
        let found = blocking(self.attachments(), Attachments::list).await?;
        let mut known = (None, BTreeSet::new());
        for (session, name) in found {
            if known.0 != Some(session) {
                known = (Some(session), self.attached_to(session).await?);
            }
            let is_known = name.parse().is_ok_and(|id: AttachmentId| known.1.contains(&id));
            if !is_known {
                blocking(self.attachments(), move |kept| kept.discard(session, &name)).await?;
            }
        }
        for session in self.store().sessions_with_unplaced().await? {
            self.attachments().note_unplaced(session, true);
        }
        Ok(())
    }
}
