//! What comes in, read once at the edge. Whatever does not fit is a 400 that says what and where.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::BytesMut;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::code::Code;
use super::error::ApiError;
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
const BODY_PATIENCE: Duration = Duration::from_secs(20);
const BODY_DEADLINE: Duration = Duration::from_secs(120);

/// How much of large bodies is held at a time, in pieces of a megabyte. Whoever sends little does not
/// wait for whoever sends much.
static LARGE_BODIES: Semaphore = Semaphore::const_new(512);
const PIECE: usize = 1024 * 1024;

async fn read(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let late = |_| {
        let message = "The body did not arrive in time";
        ApiError::new(StatusCode::REQUEST_TIMEOUT, Code::BODY_TIMEOUT, message)
    };
    let read = async {
        let mut body = Limited::new(body, limit);
        let mut read = BytesMut::new();
        let mut held = Vec::new();
        while let Some(frame) = timeout(BODY_PATIENCE, body.frame()).await.map_err(late)? {
            let frame = frame.map_err(|error| not_whole(error.as_ref(), limit))?;
            read.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes));
            while read.len() > SMALL_BODY + held.len() * PIECE {
                let piece = LARGE_BODIES.acquire().await;
                held.push(piece.expect("nobody closes the semaphore"));
            }
        }
        Ok(read.freeze())
    };
    timeout(BODY_DEADLINE, read).await.map_err(late)?
}

fn not_whole(error: &(dyn Error + Send + Sync + 'static), limit: usize) -> ApiError {
    if error.downcast_ref::<LengthLimitError>().is_some() {
        let message = format!("The body is larger than {limit} bytes");
        return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, Code::TOO_LARGE, message);
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
        .map_err(|error| ApiError::invalid(format!("The body is invalid: {error}")))
}

/// An id in the path.
pub(crate) struct PathId<T>(pub(crate) T);

impl<T, S> FromRequestParts<S> for PathId<T>
where
    T: FromStr<Err: fmt::Display>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<String>::from_request_parts(parts, state).await;
        let axum::extract::Path(text) =
            path.map_err(|_| ApiError::invalid("The path is not valid UTF-8"))?;
        text.parse()
            .map(Self)
            .map_err(|error: T::Err| ApiError::invalid(format!("The path has {error}")))
    }
}

/// Two ids in the path.
pub(crate) struct PathIds<A, B>(pub(crate) A, pub(crate) B);

impl<A, B, S> FromRequestParts<S> for PathIds<A, B>
where
    A: FromStr<Err: fmt::Display>,
    B: FromStr<Err: fmt::Display>,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<(String, String)>::from_request_parts(parts, state).await;
        let axum::extract::Path((first, second)) =
            path.map_err(|_| ApiError::invalid("The path is not valid UTF-8"))?;
        let first = first
            .parse()
            .map_err(|error: A::Err| ApiError::invalid(format!("The path has {error}")));
        let second = second
            .parse()
            .map_err(|error: B::Err| ApiError::invalid(format!("The path has {error}")));
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
        serde_urlencoded::from_str(query)
            .map(Self)
            .map_err(|error| ApiError::invalid(format!("The query is invalid: {error}")))
    }
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
    use super::*;
    use crate::api;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_is_given_up() {
        let pieces = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let error = read(Body::from_stream(pieces), SMALL_BODY).await.unwrap_err();
        assert_eq!((error.status, error.code), (StatusCode::REQUEST_TIMEOUT, Code::BODY_TIMEOUT));
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
