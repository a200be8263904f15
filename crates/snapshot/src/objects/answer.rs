//! What a server answers, as a value: nothing above has to read it out of a sentence.
//!
//! Every request goes through [`Watched`]. An answer that is no success becomes an [`Answered`] with its
//! status and the code that the server gives it. The rest of the body is dropped: S3 repeats in it
//! what was signed, and a session's token can be in that.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

/// How much of the body of a refusal is looked at.
const MAX_REFUSAL: usize = 64 * 1024;

/// Connects as usual, and watches what is answered.
#[derive(Debug, Default)]
pub(super) struct Watching(ReqwestConnector);

impl HttpConnector for Watching {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // Somebody else may have chosen already: then that one is used.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        Ok(HttpClient::new(Watched(self.0.connect(options)?)))
    }
}

#[derive(Debug)]
struct Watched(HttpClient);

#[async_trait::async_trait]
impl HttpService for Watched {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.0.execute(request).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let after = response.headers().get("retry-after");
        let after = after.and_then(|after| after.to_str().ok()?.parse().ok());
        let mut body = Vec::new();
        let mut parts = response.into_body().bytes_stream();
        while let Some(Ok(part)) = parts.next().await {
            body.extend_from_slice(&part[..part.len().min(MAX_REFUSAL - body.len())]);
            if body.len() == MAX_REFUSAL {
                break;
            }
        }
        let answered = Answered {
            status: status.as_u16(),
            code: code_in(&String::from_utf8_lossy(&body)),
            after: after.map(Duration::from_secs),
        };
        Err(HttpError::new(HttpErrorKind::Unknown, answered))
    }
}

/// The code in the XML of a refusal: a word, or nothing.
fn code_in(body: &str) -> String {
    let code = body.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let code = code.map_or("", |(code, _)| code);
    let is_word = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_word { code.to_owned() } else { String::new() }
}

/// An answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    status: u16,
    code: String,
    /// When to come back, if it says so.
    after: Option<Duration>,
}

impl StdError for Answered {}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it answered {}", self.status)?;
        if self.code.is_empty() { Ok(()) } else { write!(f, " {}", self.code) }
    }
}

/// Why one attempt did not succeed.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is no such object.
    NotFound,
    /// There is one of that name.
    Exists,
    /// The server has too much to do, or has failed.
    Busy(Answered),
    /// It will not do it, now or later.
    Refused(Answered),
    /// It did not answer in time.
    Stalled(Duration),
    /// The connection could not be made, or broke.
    Cut(String),
    /// Fewer or more bytes came than there are.
    Length { expected: u64, came: u64 },
    /// As many bytes came as there are, and others.
    Altered,
    /// The object is longer than was asked for.
    TooLong(io::Error),
    /// Something else.
    Other(String),
}

impl Failure {
    /// Whether the next attempt may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Busy(_)
            | Self::Stalled(_)
            | Self::Cut(_)
            | Self::Length { .. }
            | Self::Altered => true,
            Self::NotFound
            | Self::Exists
            | Self::Refused(_)
            | Self::TooLong(_)
            | Self::Other(_) => false,
        }
    }

    /// When the server wants to be asked again, if it says so.
    pub(super) fn after(&self) -> Option<Duration> {
        match self {
            Self::Busy(answered) => answered.after,
            Self::NotFound
            | Self::Exists
            | Self::Refused(_)
            | Self::Stalled(_)
            | Self::Cut(_)
            | Self::Length { .. }
            | Self::Altered
            | Self::TooLong(_)
            | Self::Other(_) => None,
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NotFound => io::ErrorKind::NotFound,
            Self::Exists => io::ErrorKind::AlreadyExists,
            Self::Busy(_) => io::ErrorKind::ResourceBusy,
            Self::Refused(Answered { status: 401 | 403, .. }) => io::ErrorKind::PermissionDenied,
            Self::Stalled(_) => io::ErrorKind::TimedOut,
            Self::Cut(_) => io::ErrorKind::NotConnected,
            Self::Length { .. } | Self::Altered => io::ErrorKind::UnexpectedEof,
            Self::TooLong(_) => io::ErrorKind::InvalidData,
            Self::Refused(_) | Self::Other(_) => io::ErrorKind::Other,
        }
    }

    /// As an error that names the object.
    pub(super) fn of(self, object: &str, attempts: u32, note: &'static str) -> io::Error {
        if let Self::TooLong(error) = self {
            return error;
        }
        let kind = self.kind();
        io::Error::new(kind, Failed { object: object.to_owned(), attempts, failure: self, note })
    }
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
        let mut http = None;
        while let Some(next) = cause {
            if let Some(answered) = next.downcast_ref::<Answered>() {
                return Self::from(answered.clone());
            }
            http = http.or_else(|| next.downcast_ref::<HttpError>());
            cause = next.source();
        }
        if let Some(http) = http {
            return Self::Cut(deepest(http));
        }
        // Of stores that are no servers.
        if matches!(error, object_store::Error::NotFound { .. }) {
            return Self::NotFound;
        }
        if matches!(
            error,
            object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }
        ) {
            return Self::Exists;
        }
        Self::Other(deepest(&error))
    }
}

impl From<Answered> for Failure {
    fn from(answered: Answered) -> Self {
        match answered.status {
            // An object can be missing, and so can all of the bucket.
            404 if answered.code != "NoSuchBucket" => Self::NotFound,
            304 | 412 => Self::Exists,
            // 409: somebody else is putting an object of this name now, and may not succeed.
            408 | 409 | 425 | 429 | 500..=599 => Self::Busy(answered),
            _ => Self::Refused(answered),
        }
    }
}

/// What an error comes down to: the others around it say where in which library it came by.
fn deepest(error: &(dyn StdError + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// Why an object of a remote store could not be had.
#[derive(Debug)]
struct Failed {
    object: String,
    attempts: u32,
    failure: Failure,
    note: &'static str,
}

impl StdError for Failed {}

/// Whether an object could not be had because there is no such bucket.
pub fn is_missing_bucket(error: &io::Error) -> bool {
    let failed = error.get_ref().and_then(|inner| inner.downcast_ref::<Failed>());
    failed.is_some_and(|failed| match &failed.failure {
        Failure::Refused(answered) => answered.code == "NoSuchBucket",
        Failure::NotFound
        | Failure::Exists
        | Failure::Busy(_)
        | Failure::Stalled(_)
        | Failure::Cut(_)
        | Failure::Length { .. }
        | Failure::Altered
        | Failure::TooLong(_)
        | Failure::Other(_) => false,
    })
}

/// Whether what is there of an object has other bytes than were put.
pub(super) fn is_altered(error: &io::Error) -> bool {
    let failed = error.get_ref().and_then(|inner| inner.downcast_ref::<Failed>());
    failed.is_some_and(|failed| matches!(failed.failure, Failure::Altered))
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        match &self.failure {
            Failure::NotFound => f.write_str("it is not there"),
            Failure::Exists => f.write_str("it is there already"),
            Failure::Busy(answered) => write!(f, "{answered}"),
            Failure::Refused(answered) => {
                write!(f, "{answered}")?;
                match (answered.status, answered.code.as_str()) {
                    (_, "NoSuchBucket") => f.write_str(": there is no such bucket"),
                    (300..=399, _) | (_, "AuthorizationHeaderMalformed") => {
                        f.write_str(": the bucket is in another region, or at another endpoint")
                    }
                    (401 | 403, _) => f.write_str(": the credentials do not allow this"),
                    (_, _) => Ok(()),
                }
            }
            Failure::Stalled(patience) => write!(f, "no answer within {patience:?}"),
            Failure::Cut(why) => write!(f, "the connection failed: {why}"),
            Failure::Length { expected, came } => {
                write!(f, "{came} bytes came and {expected} were to come")
            }
            Failure::Altered => f.write_str("what is there is not what was put"),
            Failure::TooLong(error) => error.fmt(f),
            Failure::Other(why) => f.write_str(why),
        }?;
        f.write_str(self.note)?;
        if !self.failure.is_transient() {
            return Ok(());
        }
        match self.attempts {
            1 => f.write_str("; it is worth trying again"),
            attempts => write!(f, " ({attempts} attempts); it is worth trying again"),
        }
    }
}

/// Whether it is worth trying again what failed with this error.
pub fn is_transient(error: &io::Error) -> bool {
    let failed = error.get_ref().and_then(|inner| inner.downcast_ref::<Failed>());
    failed.is_some_and(|failed| failed.failure.is_transient())
}

#[cfg(test)]
mod test {
    use super::*;

    fn answered(status: u16, code: &str) -> Failure {
        Failure::from(Answered { status, code: code.to_owned(), after: None })
    }

    #[test]
    fn a_missing_bucket_is_no_missing_object() {
        assert!(matches!(answered(404, "NoSuchKey"), Failure::NotFound));
        assert!(matches!(answered(404, ""), Failure::NotFound));
        let error = answered(404, "NoSuchBucket").of("s3://none/format", 1, "");
        assert_eq!(error.kind(), io::ErrorKind::Other);
        assert!(error.to_string().contains("no such bucket"), "{error}");
        assert!(is_missing_bucket(&error));
        assert!(!is_missing_bucket(&answered(403, "").of("s3://none/format", 1, "")));
    }

    #[test]
    fn every_status_is_worth_another_attempt_or_not() {
        for status in 100..600 {
            let again = matches!(status, 408 | 409 | 425 | 429 | 500..=599);
            let error = answered(status, "").of("s3://b/o", 3, "");
            assert_eq!(is_transient(&error), again, "{error}");
            assert_eq!(error.to_string().contains("worth trying again"), again, "{error}");
        }
        assert!(!is_transient(&io::ErrorKind::TimedOut.into()), "not one of ours");
    }

    #[test]
    fn of_a_refusal_only_the_code_is_kept() {
        let body = "<Error><Code>SignatureDoesNotMatch</Code><Message>m</Message>\
            <CanonicalRequest>x-amz-security-token:secret</CanonicalRequest></Error>";
        assert_eq!(code_in(body), "SignatureDoesNotMatch");
        for body in ["", "<Code>", "<Code>a b</Code>", "<Code>\u{1b}[2J</Code>"] {
            assert_eq!(code_in(body), "", "{body}");
        }
    }
}
