//! The files that sessions work on, also when their sandboxes are gone.
//!
//! What can be asked of a workspace, and within which bounds, is decided in `ash_engine::files`; here
//! is how it looks from outside.

use std::fs::File;
use std::io::{self, Read as _};

use ash_core::id::SessionId;
use ash_engine::files::{Directories, Executable, FileError, FilePath, Listed, Scope};
use ash_engine::{FileSource, Workspace, WorkspaceError};
use axum::Json as JsonAnswer;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::app::App;
use super::auth::Caller;
use super::base64::{decode, decoded_len};
use super::code::Code;
use super::error::ApiError;
use super::extract::{NoId as _, PathId, Query, Upload};
use super::media::media_type;
use super::openapi::{Always, Conflict, Invalid, Missing, Over, TooLarge};
use crate::api::{
    self, FileContent, FileDeleted, FileInfo, FileWritten, Files, FilesWritten, NewFile, WriteFiles,
};

/// The largest file that is sent as it is, and as JSON.
const MAX_RAW: u64 = 100 * 1024 * 1024;
const MAX_JSON: u64 = 1024 * 1024;

/// What one request may write: files, bytes of each, bytes of all.
const MAX_WRITTEN: usize = 500;
const MAX_FILE: u64 = 50 * 1024 * 1024;
const MAX_BATCH: u64 = 100 * 1024 * 1024;

/// The largest body: that much in base64, with its names.
const MAX_BODY: usize = 144 * 1024 * 1024;

/// How much of a file is held while it is sent.
const PIECE: u64 = 256 * 1024;

/// Says where the files are.
pub(super) const SOURCE: HeaderName = HeaderName::from_static("x-ash-source");

/// Which files to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Whether caches and temporary directories are listed too: `.cache`, `.npm`, `.pnpm-store`,
    /// `.yarn`, `.venv`, `venv`, `.tmp` and `tmp`.
    #[serde(default)]
    #[param(nullable = false, default = true)]
    include_hidden: Option<bool>,
    /// Whether everything is listed, also what is left out otherwise.
    #[serde(default)]
    #[param(nullable = false, default = false)]
    everything: Option<bool>,
    /// Only those beneath this directory, or this file alone.
    #[serde(default)]
    #[param(nullable = false)]
    path: Option<String>,
    /// Whether the directories right beneath it are named too, also those without files.
    #[serde(default)]
    #[param(nullable = false, default = false)]
    directories: Option<bool>,
}

/// List the files of a session
///
/// Ordinary files only, unless directories are asked for; links are not followed. `node_modules`, `.git`, `__pycache__`, `.DS_Store`, and
/// what ends in `.sock`, `.lock` or `.pid` are left out.
#[utoipa::path(
    get, path = "/api/sessions/{id}/files", tag = "files", operation_id = "listFiles",
    params(("id" = uuid::Uuid, Path, description = "The session"), ListQuery),
    responses((status = 200, description = "The files", body = Files), Always, Invalid, Missing),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    Query(query): Query<ListQuery>,
) -> Result<JsonAnswer<Files>, ApiError> {
    let scope = match (query.everything, query.include_hidden) {
        (Some(true), _) => Scope::Everything,
        (Some(false) | None, Some(true) | None) => Scope::Usual,
        (Some(false) | None, Some(false)) => Scope::WithoutCaches,
    };
    let under = FilePath::directory(query.path.unwrap_or_default().as_bytes())?;
    let workspace = app.engine().workspace(&caller.tenant, id).await?;
    let listing = workspace.list(under.clone(), scope).await?;
    let (directories, are_more) = match query.directories {
        Some(true) => {
            let Directories { paths, are_more } = workspace.directories(under).await?;
            (Some(paths.iter().map(FilePath::encoded).collect()), are_more)
        }
        Some(false) | None => (None, false),
    };
    Ok(JsonAnswer(Files {
        files: listing.files.into_iter().map(info).collect(),
        directories,
        source: source_view(workspace.source()),
        truncated: listing.truncated || are_more,
    }))
}

/// As what a file is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// As it is, at most 100 MB.
    #[default]
    Raw,
    /// As text in JSON, at most 1 MB.
    Json,
}

/// How to read a file.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ReadQuery {
    /// As what it is sent.
    #[serde(default)]
    #[param(inline, nullable = false)]
    format: Option<Format>,
}

/// Read a file of a session
#[utoipa::path(
    get, path = "/api/sessions/{id}/files/{*path}", tag = "files", operation_id = "readFile",
    params(
        ("id" = uuid::Uuid, Path, description = "The session"),
        ("path" = String, Path, description = "The file", min_length = 1),
        ReadQuery,
    ),
    responses(
        (
            status = 200, description = "The file", headers(
                ("X-Ash-Source" = String, description = "`sandbox` or `snapshot`"),
                ("Content-Disposition" = String, description = "Its name"),
            ),
            content((FileContent = "application/json"), (String = "*/*")),
        ),
        Always, Invalid, Missing,
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    FileAt { session, path }: FileAt,
    Query(query): Query<ReadQuery>,
) -> Result<Response, ApiError> {
    let workspace = app.engine().workspace(&caller.tenant, session).await?;
    match query.format.unwrap_or_default() {
        Format::Raw => {
            let opened = workspace.read(path.clone(), MAX_RAW).await?;
            let name = String::from_utf8_lossy(path.name()).into_owned();
            let disposition = format!("attachment; filename*=UTF-8''{}", encoded(&name));
            let source = workspace.source();
            Ok(sent(opened.file, opened.size, media_type(&name), &disposition, source))
        }
        Format::Json => {
            let content = content_of(&workspace, path.clone()).await?;
            let size = content.len() as u64;
            let (content, lossy) = match String::from_utf8(content) {
                Ok(text) => (text, false),
                Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
            };
            let source = source_view(workspace.source());
            let path = path.to_string();
            Ok(JsonAnswer(FileContent { path, content, lossy, size, source }).into_response())
        }
    }
}

/// Write files of a session
///
/// Each is written whole or not at all, with the directories above it. One that is not written does not
/// keep the others from it. A run that goes on is not disturbed.
#[utoipa::path(
    post, path = "/api/sessions/{id}/files", tag = "files", operation_id = "writeFiles",
    params(("id" = uuid::Uuid, Path, description = "The session")),
    request_body = WriteFiles,
    responses(
        (status = 200, description = "What became of each", body = FilesWritten),
        Always, Invalid, Missing, Conflict, Over, TooLarge,
    ),
)]
pub(super) async fn write(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    Upload { value: body, place }: Upload<WriteFiles, MAX_BODY>,
) -> Result<JsonAnswer<FilesWritten>, ApiError> {
    if !(1..=MAX_WRITTEN).contains(&body.files.len()) {
        return Err(ApiError::invalid(format!("files must have 1 to {MAX_WRITTEN} items")));
    }
    let bytes: u64 = body.files.iter().map(|file| decoded_len(&file.content)).sum();
    if bytes > MAX_BATCH {
        let message = format!("The files have {bytes} bytes together, and may have {MAX_BATCH}");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, Code::TOO_LARGE, message));
    }
    let target = body.target_path.unwrap_or_default();
    let target = FilePath::directory(target.as_bytes())?;
    let workspace = app.engine().workspace_to_change(&caller.tenant, id).await?;
    let mut files = Vec::new();
    for file in body.files {
        let path = file.path.clone();
        let (size, error) = match write_one(&workspace, &target, file).await? {
            Ok(size) => (Some(size), None),
            Err(error) => (None, Some(error)),
        };
        files.push(FileWritten { path, written: size.is_some(), size, error });
    }
    drop(place);
    Ok(JsonAnswer(FilesWritten { files }))
}

/// Writes a file. What keeps only this one from being written is a sentence.
async fn write_one(
    workspace: &Workspace,
    target: &FilePath,
    file: NewFile,
) -> Result<Result<u64, String>, ApiError> {
    let executable = match file.executable {
        Some(true) => Executable::Yes,
        Some(false) => Executable::No,
        None => Executable::AsBefore,
    };
    let size = decoded_len(&file.content);
    if size > MAX_FILE {
        return Ok(Err(FileError::TooLarge { size, most: MAX_FILE }.to_string()));
    }
    let path = FilePath::file(file.path.as_bytes()).and_then(|path| path.beneath(target));
    let path = match path {
        Ok(path) => path,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let content = match decode(&file.content) {
        Ok(content) => content,
        Err(why) => return Ok(Err(format!("The content is not base64: {why}"))),
    };
    drop(file);
    match workspace.write(path, executable, content).await {
        Ok(size) => Ok(Ok(size)),
        Err(WorkspaceError::File(error)) => {
            if let FileError::Unavailable(cause) = &error {
                tracing::warn!(
                    error = cause as &dyn std::error::Error,
                    "a file of a session could not be written",
                );
            }
            Ok(Err(error.to_string()))
        }
        Err(error @ (WorkspaceError::None | WorkspaceError::Away | WorkspaceError::Engine(_))) => {
            Err(error.into())
        }
    }
}

/// What to delete.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteQuery {
    /// Whether a directory is deleted too, with everything in it.
    #[serde(default)]
    #[param(nullable = false, default = false)]
    recursive: Option<bool>,
}

/// Delete a file of a session
///
/// A link is deleted itself, and not what it leads to. A directory is deleted only with `recursive=true`, with
/// everything in it, however deep.
#[utoipa::path(
    delete, path = "/api/sessions/{id}/files/{*path}", tag = "files", operation_id = "deleteFile",
    params(
        ("id" = uuid::Uuid, Path, description = "The session"),
        ("path" = String, Path, description = "The file", min_length = 1),
        DeleteQuery,
    ),
    responses(
        (status = 200, description = "It is gone", body = FileDeleted),
        Always, Invalid, Missing, Conflict,
    ),
)]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    FileAt { session, path }: FileAt,
    Query(query): Query<DeleteQuery>,
) -> Result<JsonAnswer<FileDeleted>, ApiError> {
    let workspace = app.engine().workspace(&caller.tenant, session).await?;
    if query.recursive == Some(true) {
        workspace.remove_all(path.clone()).await?;
    } else {
        workspace.remove(path.clone()).await?;
    }
    Ok(JsonAnswer(FileDeleted { path: path.to_string(), deleted: true }))
}

/// A session and one of its files, as a path has them. The file's path is bytes: what it is called
/// need not be text.
pub(super) struct FileAt {
    session: SessionId,
    path: FilePath,
}

impl<S: Send + Sync> FromRequestParts<S> for FileAt {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // /api/sessions/<id>/files/<path>
        let mut parts = parts.uri.path().splitn(6, '/').skip(3);
        let (id, path) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
        let id = String::from_utf8_lossy(&decoded(id)).into_owned();
        let session = id.parse::<SessionId>().map_err(|error| error.told())?;
        Ok(Self { session, path: FilePath::file(&decoded(path))? })
    }
}

/// The bytes that a part of an address stands for.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| first == b'%');
        let value = digits.filter(|two| two.iter().all(u8::is_ascii_hexdigit)).and_then(|two| {
            let two = std::str::from_utf8(two).ok()?;
            u8::from_str_radix(two, 16).ok()
        });
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &behind[2..] } else { behind };
    }
    bytes
}

/// A text as a header can have it (RFC 5987).
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&+-.^_`|~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// A file as an answer, read as fast as it is taken.
pub(super) fn sent(
    file: File,
    size: u64,
    media_type: &'static str,
    disposition: &str,
    source: FileSource,
) -> Response {
    let mut response = Response::new(streamed(file, size));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CONTENT_LENGTH, size.into());
    headers.insert(SOURCE, HeaderValue::from_static(source.as_str()));
    if let Ok(disposition) = HeaderValue::from_str(disposition) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}

/// So many bytes of a file. If it has become shorter, the answer breaks off: nobody takes it for whole.
pub(super) fn streamed(file: File, size: u64) -> Body {
    let pieces = futures_util::stream::try_unfold((file, size), |(file, left)| async move {
        if left == 0 {
            return Ok::<_, io::Error>(None);
        }
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::new();
            (&file).take(left.min(PIECE)).read_to_end(&mut piece)?;
            Ok::<_, io::Error>((file, piece))
        });
        let (file, piece) = read.await.map_err(io::Error::other)??;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let left = left - piece.len() as u64;
        Ok(Some((Bytes::from(piece), (file, left))))
    });
    Body::from_stream(pieces)
}

/// What is in a file that is shown as text.
async fn content_of(workspace: &Workspace, path: FilePath) -> Result<Vec<u8>, ApiError> {
    let opened = workspace.read(path, MAX_JSON).await?;
    let read = tokio::task::spawn_blocking(move || {
        let mut content = Vec::new();
        opened.file.take(MAX_JSON).read_to_end(&mut content)?;
        Ok::<_, io::Error>(content)
    });
    read.await.map_err(ApiError::internal)?.map_err(ApiError::internal)
}

fn info(file: Listed) -> FileInfo {
    FileInfo {
        encoded_path: file.path.to_text().is_none().then(|| file.path.encoded()),
        path: file.path.to_string(),
        size: file.size,
        modified_at: api::rfc3339(file.modified),
        executable: file.executable,
    }
}

fn source_view(source: FileSource) -> api::FileSource {
    match source {
        FileSource::Sandbox => api::FileSource::Sandbox,
        FileSource::Snapshot => api::FileSource::Snapshot,
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_path_comes_back_from_an_address(text in prop::collection::vec(any::<u8>(), 1..60)) {
            let Ok(path) = FilePath::file(&text) else { return Ok(()) };
            prop_assert_eq!(decoded(&path.encoded()), path.as_bytes());
        }
    }

    #[test]
    fn what_is_no_escape_is_itself() {
        assert_eq!(decoded("a%2fb%zz%4%"), b"a/b%zz%4%");
        assert_eq!(encoded("a b\"ü;.txt"), "a%20b%22%C3%BC%3B.txt");
    }
}
