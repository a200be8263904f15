//! What comes in, read once at the edge. Whatever does not fit is a 400 that says what and where; an id that is none is
//! a 404.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ash_core::id::ParseIdError;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::BytesMut;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::code::Code;
use super::error::{ApiError, SOON, no_such};
use super::wrong::{in_words, query_in_words};
use crate::api::Object;

/// The largest body of a request that says nothing long.
pub(crate) const SMALL_BODY: usize = 2 * 1024 * 1024;

/// A JSON body of at most `LIMIT` bytes, with the digest of its bytes.
pub(crate) struct JsonBody<T, const LIMIT: usize = SMALL_BODY> {
    pub(crate) value: T,
    pub(crate) digest: [u8; 32],
    /// The body as it came.
    pub(crate) bytes: Bytes,
}

/// Like [`JsonBody`], but no body at all, or `null`, is the default.
pub(crate) struct MaybeJson<T>(pub(crate) T);

impl<T, S, const LIMIT: usize> FromRequest<S> for JsonBody<T, LIMIT>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read(body, LIMIT).await?;
        if bytes.is_empty() {
            return Err(ApiError::invalid("A JSON body is missing"));
        }
        is_json(&parts.headers)?;
        let value = parse(&bytes)?;
        Ok(Self { value, digest: *blake3::hash(&bytes).as_bytes(), bytes })
    }
}

impl<T, S> FromRequest<S> for MaybeJson<T>
where
    T: DeserializeOwned + Default,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read(body, SMALL_BODY).await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        is_json(&parts.headers)?;
        // As good as none.
        if bytes.trim_ascii() == b"null" {
            return Ok(Self(T::default()));
        }
        parse(&bytes).map(Self)
    }
}

/// How long a client may send nothing in the middle of a body, and take for all of it.
pub(crate) const BODY_PATIENCE: Duration = Duration::from_secs(20);
const BODY_DEADLINE: Duration = Duration::from_secs(120);

/// How much of large bodies is held at a time, in pieces of a megabyte. Whoever sends little does not
/// wait for whoever sends much.
static LARGE_BODIES: Semaphore = Semaphore::const_new(512);
const PIECE: usize = 1024 * 1024;

/// How much of uploads is held at a time, in megabytes, until they are dealt with: two of the largest.
static UPLOADS: Semaphore = Semaphore::const_new(2 * MAX_UPLOAD_WEIGHT as usize);
const MAX_UPLOAD_WEIGHT: u32 = 300;

/// How long an upload waits for its place.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(20);

/// A JSON body that holds whole files. Only so many are held at once, however many are sent; those
/// that hold little do not wait for those that hold much.
pub(crate) struct Upload<T, const LIMIT: usize> {
    pub(crate) value: T,
    /// To be kept until nothing of it is held any more.
    pub(crate) place: Option<SemaphorePermit<'static>>,
}

impl<T, S, const LIMIT: usize> FromRequest<S> for Upload<T, LIMIT>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let Uploaded { value, place, .. } = upload(request, LIMIT).await?;
        Ok(Self { value, place })
    }
}

/// An upload, with the digest of its bytes.
pub(crate) struct Uploaded<T> {
    pub(crate) value: T,
    pub(crate) digest: [u8; 32],
    /// To be kept until nothing of it is held any more.
    pub(crate) place: Option<SemaphorePermit<'static>>,
}

/// Reads an upload of at most `limit` bytes.
pub(crate) async fn upload<T: DeserializeOwned>(
    request: Request,
    limit: usize,
) -> Result<Uploaded<T>, ApiError> {
    let (parts, body) = request.into_parts();
    is_json(&parts.headers)?;
    let length = body.size_hint().upper();
    let length = length.map_or(limit, |most| usize::try_from(most).unwrap_or(usize::MAX));
    if length > limit {
        return Err(too_large(limit));
    }
    let place = match length {
        0..=SMALL_BODY => None,
        length => Some(place_for(length).await?),
    };
    let bytes = timeout(BODY_DEADLINE, gather(body, limit)).await.map_err(|_| late())??;
    if bytes.is_empty() {
        return Err(ApiError::invalid("A JSON body is missing"));
    }
    Ok(Uploaded { value: parse(&bytes)?, digest: *blake3::hash(&bytes).as_bytes(), place })
}

/// A place for an upload of so many bytes, which are there twice for a while: as JSON, and read.
async fn place_for(length: usize) -> Result<SemaphorePermit<'static>, ApiError> {
    let weight = u32::try_from(2 * length.div_ceil(PIECE)).unwrap_or(u32::MAX);
    let place = UPLOADS.acquire_many(weight.min(MAX_UPLOAD_WEIGHT));
    let place = timeout(UPLOAD_PATIENCE, place).await.map_err(|_| {
        let message = "Too much is being uploaded at once";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, Code::UNAVAILABLE, message).later(1)
    })?;
    Ok(place.expect("nobody closes the semaphore"))
}

async fn gather(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let mut body = Limited::new(body, limit);
    let mut read = BytesMut::new();
    while let Some(frame) = timeout(BODY_PATIENCE, body.frame()).await.map_err(|_| late())? {
        let frame = frame.map_err(|error| not_whole(error.as_ref(), limit))?;
        read.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes));
    }
    Ok(read.freeze())
}

pub(crate) fn late() -> ApiError {
    let message = "The body did not arrive in time";
    ApiError::new(StatusCode::REQUEST_TIMEOUT, Code::BODY_TIMEOUT, message)
}

fn too_large(limit: usize) -> ApiError {
    let message = format!("The body is larger than {limit} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, Code::TOO_LARGE, message)
}

async fn read(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    read_within(body, limit, &LARGE_BODIES).await
}

async fn read_within(body: Body, limit: usize, pieces: &Semaphore) -> Result<Bytes, ApiError> {
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let read = async {
        let mut body = Limited::new(body, limit);
        let mut read = BytesMut::new();
        let mut held = Vec::new();
        while let Some(frame) = timeout(BODY_PATIENCE, body.frame()).await.map_err(|_| late())? {
            let frame = frame.map_err(|error| not_whole(error.as_ref(), limit))?;
            read.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes));
            while read.len() > SMALL_BODY + held.len() * PIECE {
                held.push(another(pieces, held.is_empty()).await?);
            }
        }
        Ok(read.freeze())
    };
    timeout(BODY_DEADLINE, read).await.map_err(|_| late())?
}

/// Takes a piece of what large bodies may hold. Whoever holds none yet waits for it. Whoever holds
/// some does not: all of them would wait for each other, and none would ever be done.
async fn another(pieces: &Semaphore, first: bool) -> Result<SemaphorePermit<'_>, ApiError> {
    if first {
        return Ok(pieces.acquire().await.expect("nobody closes the semaphore"));
    }
    pieces.try_acquire().map_err(|_| {
        let message = "Too many large bodies are being sent at once";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, Code::TOO_MANY_BODIES, message).later(SOON)
    })
}

fn not_whole(error: &(dyn Error + Send + Sync + 'static), limit: usize) -> ApiError {
    if error.downcast_ref::<LengthLimitError>().is_some() {
        return too_large(limit);
    }
    ApiError::invalid("The body did not arrive whole")
}

/// How much an answer may still hold. A list ends when it is full, and says that there is more.
pub(crate) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(32 * 1024 * 1024)
    }
}

impl Room {
    pub(crate) fn take(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }

    pub(crate) const fn is_left(&self) -> bool {
        self.0 > 0
    }
}

fn is_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") || essence.ends_with("+json") {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::UNSUPPORTED_MEDIA_TYPE,
        "The body must be JSON, and its content type application/json",
    ))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| ApiError::invalid("The body is not valid UTF-8"))?;
    serde_json::from_str::<Object<T>>(text)
        .map(|object| object.0)
        .map_err(|error| ApiError::invalid(in_words::<T>(text, &error)))
}

/// What is answered to a path that has something else in the place of an id. As in the original, what cannot be an id is
/// wrong, and what cannot be a name is nobody's.
pub(crate) trait NoId {
    fn told(&self) -> ApiError;
}

impl NoId for ParseIdError {
    fn told(&self) -> ApiError {
        if self.is_name() {
            return ApiError::not_found(format!(
                "{}: this is no name of one",
                no_such(self.kind())
            ));
        }
        ApiError::invalid(format!(
            "The path is invalid: this is no {} id, which is a UUID",
            self.kind()
        ))
    }
}

impl NoId for &'static str {
    fn told(&self) -> ApiError {
        ApiError::not_found(*self)
    }
}

impl NoId for Infallible {
    fn told(&self) -> ApiError {
        match *self {}
    }
}

/// An id in the path.
pub(crate) struct PathId<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for PathId<T>
where
    T: FromStr<Err: NoId>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<String>::from_request_parts(parts, state).await;
        let axum::extract::Path(text) =
            path.map_err(|_| ApiError::invalid("The path is not valid UTF-8"))?;
        text.parse().map(Self).map_err(|error: T::Err| error.told())
    }
}

/// Two ids in the path.
pub(crate) struct PathIds<A, B>(pub(crate) A, pub(crate) B);

impl<A, B, S> FromRequestParts<S> for PathIds<A, B>
where
    A: FromStr<Err: NoId>,
    B: FromStr<Err: NoId>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<(String, String)>::from_request_parts(parts, state).await;
        let axum::extract::Path((first, second)) =
            path.map_err(|_| ApiError::invalid("The path is not valid UTF-8"))?;
        let first = first.parse().map_err(|error: A::Err| error.told());
        let second = second.parse().map_err(|error: B::Err| error.told());
        Ok(Self(first?, second?))
    }
}

/// A query string.
pub(crate) struct Query<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for Query<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        if !is_text(query) {
            return Err(ApiError::invalid("The query is not valid UTF-8"));
        }
        serde_urlencoded::from_str(query)
            .map(Self)
            .map_err(|error| ApiError::invalid(query_in_words::<T>(query, &error.to_string())))
    }
}

/// Whether what stands behind the percent signs is text.
fn is_text(query: &str) -> bool {
    let bytes = query.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = query.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match hex.filter(|_| byte == b'%') {
            Some(escaped) => {
                decoded.push(escaped);
                at += 3;
            }
            None => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    std::str::from_utf8(&decoded).is_ok()
}

/// Refuses what is longer or shorter than it may be.
pub(crate) fn length(name: &str, text: &str, most: usize) -> Result<(), ApiError> {
    let found = text.chars().count();
    if found > most {
        return Err(ApiError::invalid(format!(
            "{name} has {found} characters; {most} are allowed"
        )));
    }
    Ok(())
}

/// A place in a log that the caller names, or its beginning.
pub(crate) fn sequence(name: &str, value: Option<u64>) -> Result<u64, ApiError> {
    range(name, value.unwrap_or(0), 0, i64::MAX.cast_unsigned())
}

/// Refuses a number that is out of its range.
pub(crate) fn range<T: PartialOrd + fmt::Display>(
    name: &str,
    value: T,
    least: T,
    most: T,
) -> Result<T, ApiError> {
    if value >= least && value <= most {
        return Ok(value);
    }
    Err(ApiError::invalid(format!("{name} is {value}; it must be from {least} to {most}")))
}

#[cfg(test)]
mod test {
    use futures_util::StreamExt as _;

    use super::*;
    use crate::api;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_is_given_up() {
        let pieces = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let error = read(Body::from_stream(pieces), SMALL_BODY).await.unwrap_err();
        assert_eq!((error.status, error.code), (StatusCode::REQUEST_TIMEOUT, Code::BODY_TIMEOUT));
    }

    /// A body of so many pieces beyond what is little, that come one after the other.
    fn large(pieces: usize) -> Body {
        let first = std::iter::once(SMALL_BODY);
        let chunks = first.chain(std::iter::repeat_n(PIECE, pieces)).map(|len| vec![b' '; len]);
        let slowly = futures_util::stream::iter(chunks).then(|chunk| async {
            tokio::task::yield_now().await;
            Ok::<_, std::io::Error>(chunk)
        });
        Body::from_stream(slowly)
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_that_come_at_once_do_not_wait_for_each_other() {
        let pieces = Semaphore::new(8);
        let all = (0..4).map(|_| read_within(large(6), usize::MAX, &pieces));
        let read = futures_util::future::join_all(all).await;
        let whole = read.iter().filter(|read| read.is_ok()).count();
        assert!(whole > 0, "nobody got through: {read:?}");
        for refused in read.iter().filter_map(|read| read.as_ref().err()) {
            let told = (refused.status, refused.code, refused.retry_after);
            let not_now = StatusCode::SERVICE_UNAVAILABLE;
            assert_eq!(told, (not_now, Code::TOO_MANY_BODIES, Some(SOON)));
        }
        assert_eq!(pieces.available_permits(), 8, "what was held was given back");
        // One after the other, all of them are taken, and little is taken whatever else there is.
        for _ in 0..4 {
            assert!(read_within(large(6), usize::MAX, &pieces).await.is_ok());
        }
        let _all = pieces.try_acquire_many(8).unwrap();
        assert!(read_within(large(0), usize::MAX, &pieces).await.is_ok());
        // Who needs a first piece waits for it.
        let error = read_within(large(1), usize::MAX, &pieces).await.unwrap_err();
        assert_eq!(error.code, Code::BODY_TIMEOUT);
    }

    #[test]
    fn a_list_is_not_taken_for_an_object() {
        assert!(parse::<api::NewApiKey>(b"{}").is_ok());
        assert!(parse::<api::NewApiKey>(b" [\"label\"]").is_err());
        let server = br#"{"agent": "a", "mcpServers": {"b": ["c"]}}"#;
        assert!(parse::<api::CreateSession>(server).is_err());
        let file = br#"{"name": "a", "files": [["CLAUDE.md", ""]]}"#;
        assert!(parse::<api::DeployAgent>(file).is_err());
        for content in [
            r#"[["text", "a"]]"#,
            r#"[{"type": 0, "text": "a"}]"#,
            r#"[{"type": "image", "source": "a"}]"#,
        ] {
            let message = format!(r#"{{"content": {content}}}"#);
            assert!(parse::<api::SendMessage>(message.as_bytes()).is_err(), "{content}");
        }
        for option in [r#""thinking": ["disabled"]"#, r#""outputFormat": ["json"]"#] {
            let message = format!(r#"{{"content": "a", {option}}}"#);
            assert!(parse::<api::SendMessage>(message.as_bytes()).is_err(), "{option}");
        }
        let message =
            br#"{"content": [{"type": "text", "text": "a"}], "thinking": {"type": "adaptive"}}"#;
        assert!(parse::<api::SendMessage>(message).is_ok());
    }

    #[tokio::test]
    async fn a_body_is_taken_up_to_its_limit() {
        assert_eq!(read(Body::from("four"), 4).await.unwrap(), "four");
        let error = read(Body::from("five!"), 4).await.unwrap_err();
        assert_eq!((error.status, error.code), (StatusCode::PAYLOAD_TOO_LARGE, Code::TOO_LARGE));
    }
}
