//! From everything that can go wrong to what a client is told: the only place where it is decided.
//!
//! A handler returns an [`ApiError`]. What goes over the wire is written by the outermost layer
//! (`layer::finish`), which knows the request's id. Internal causes are logged there and never sent.

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;

use ash_core::failure::FailureCode;
use ash_core::refusal::Refusal;
use ash_core::session::Status;
use ash_engine::files::FileError;
use ash_engine::{BundleError, CloudError, EngineError, WorkspaceError};
use ash_store::StoreError;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::code::Code;

/// Why a client does not get what it asked for.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: Code,
    pub(crate) message: Cow<'static, str>,
    /// After how many seconds to try again.
    pub(crate) retry_after: Option<u64>,
    /// What really happened, for the log alone.
    pub(crate) cause: Option<Arc<dyn Error + Send + Sync>>,
}

/// After how many seconds a server that is busy or on its way out may be asked again.
pub(crate) const SOON: u64 = 1;

impl ApiError {
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<Code>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, code: code.into(), message: message.into(), retry_after: None, cause: None }
    }

    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::INVALID_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, Code::NOT_FOUND, message)
    }

    pub(crate) fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let mut error = Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Code::INTERNAL,
            "Something went wrong here",
        );
        error.cause = Some(cause.into().into());
        error
    }

    /// Says when to come back.
    pub(crate) fn later(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        let busy = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
        busy.contains(&self.status) || self.retry_after.is_some()
    }

    fn unavailable(code: Code, message: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message).later(SOON)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// What an engine says. The sentence of a refusal that depends on the route (`Session is paused`,
/// `Cannot pause session …`) is made by the route.
impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Refused(refusal) => refusal.into(),
            EngineError::NotFound(what) => Self::not_found(no_such(what)),
            EngineError::Exists(what) => Self::new(
                StatusCode::CONFLICT,
                Code::ALREADY_EXISTS,
                format!("This {what} exists already"),
            ),
            EngineError::InUse(what) => Self::new(
                StatusCode::CONFLICT,
                Code::VERSION_ACTIVE,
                format!("This {what} is in use"),
            ),
            EngineError::KeyReused => Self::new(
                StatusCode::CONFLICT,
                Code::IDEMPOTENCY_MISMATCH,
                "This idempotency key was used for another request",
            ),
            EngineError::TooLarge { bytes } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                Code::TOO_LARGE,
                format!("{bytes} bytes are more than a session takes at once"),
            ),
            EngineError::Overloaded => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                Code::SESSION_OVERLOADED,
                "Too many requests are waiting for this session",
            )
            .later(SOON),
            EngineError::DiskPressure => Self::unavailable(
                Code::DISK_PRESSURE,
                "There is too little room on the server's disk for another session",
            ),
            EngineError::Draining => {
                Self::unavailable(Code::DRAINING, "The server is shutting down")
            }
            EngineError::Unavailable(cause) => {
                let mut error = Self::unavailable(
                    Code::UNAVAILABLE,
                    "It may or may not have happened: ask again with the same Idempotency-Key",
                );
                error.cause = Some(cause.into());
                error
            }
            EngineError::Damaged(cause) => Self::internal(cause),
            EngineError::Failed(failure) => start_failed(failure.code, &failure.message),
            EngineError::SnapshotExpired => Self::new(
                StatusCode::GONE,
                Code::SNAPSHOT_EXPIRED,
                "There is no snapshot of it: it was removed since, or none was made at the time",
            ),
            EngineError::NothingBefore => Self::new(
                StatusCode::NOT_FOUND,
                Refusal::NoSuchTurn,
                "There is no snapshot of the time before the first message",
            ),
            EngineError::NotRewound(why) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                Code::NOT_REWOUND,
                format!("Nothing was rewound: {why}"),
            )
            .later(SOON),
            EngineError::NoCloud => Self::new(
                StatusCode::NOT_FOUND,
                Code::NO_CLOUD,
                "This server has no cloud: ASH_SNAPSHOT_URL is not set",
            ),
            EngineError::Cloud(error) => error.into(),
            EngineError::AgentDamaged(name) => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                Code::IMPORT_DAMAGED,
                format!(
                    "What is in the cloud of agent {name} is damaged: deploy an agent called {name}, then import again"
                ),
            ),
            EngineError::Bundle(error) => error.into(),
            EngineError::NoSavedState => Self::new(
                StatusCode::CONFLICT,
                Code::NO_SAVED_STATE,
                "There is no workspace to come back to",
            ),
        }
    }
}

/// What is wrong with the cloud, or with what is there.
impl From<CloudError> for ApiError {
    fn from(error: CloudError) -> Self {
        let unusable = StatusCode::UNPROCESSABLE_ENTITY;
        match error {
            CloudError::Unavailable(_)
            | CloudError::Refuses(_)
            | CloudError::Unfit(_)
            | CloudError::NotOurs(_) => {
                let mut told =
                    Self::unavailable(Code::CLOUD_UNAVAILABLE, "The cloud cannot be reached");
                told.cause = Some(Arc::new(error));
                told
            }
            CloudError::NotFound(_) => Self::not_found("There is no such session in the cloud"),
            CloudError::Damaged(_) | CloudError::TooLarge(_) | CloudError::Elsewhere => {
                let mut told =
                    Self::new(unusable, Code::IMPORT_DAMAGED, "What is in the cloud is damaged");
                told.cause = Some(Arc::new(error));
                told
            }
            CloudError::TooNew { .. } => {
                Self::new(unusable, Code::IMPORT_TOO_NEW, "It was written by a later version")
            }
            CloudError::Here(cause) => Self::internal(cause),
            CloudError::Store(error) => error.into(),
        }
    }
}

/// What is wrong with a bundle. Its sentences speak of what is in it, and of nothing else.
impl From<BundleError> for ApiError {
    fn from(error: BundleError) -> Self {
        let unusable = StatusCode::UNPROCESSABLE_ENTITY;
        match error {
            BundleError::Damaged(what) => Self::new(
                unusable,
                Code::IMPORT_DAMAGED,
                format!("The bundle is damaged, or none: {what}"),
            ),
            BundleError::TooNew(version) => Self::new(
                unusable,
                Code::IMPORT_TOO_NEW,
                format!("The bundle is of version {version}, which is not known here"),
            ),
            BundleError::TooLarge(most) => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                Code::TOO_LARGE,
                format!("The bundle has more than {most} bytes"),
            ),
            error @ (BundleError::NoRoom
            | BundleError::Gone
            | BundleError::Cloud(_)
            | BundleError::Here(_)
            | BundleError::Store(_)) => EngineError::from(error).into(),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::Ended => StatusCode::GONE,
            Refusal::NotActive(_) => StatusCode::BAD_REQUEST,
            Refusal::RunInProgress
            | Refusal::BeingRewound
            | Refusal::QuestionDecided
            | Refusal::QuestionClosed(_) => StatusCode::CONFLICT,
            Refusal::QueueFull => StatusCode::TOO_MANY_REQUESTS,
            Refusal::NoSuchRun | Refusal::NoSuchTurn | Refusal::NoSuchQuestion => {
                StatusCode::NOT_FOUND
            }
        };
        let message = match refusal {
            Refusal::Ended => "Session has ended — create a new session".to_owned(),
            Refusal::NotActive(status) => format!("Session is {status}"),
            Refusal::RunInProgress => "A run is in progress".to_owned(),
            Refusal::QueueFull => "Too many prompts are waiting for this session".to_owned(),
            Refusal::NoSuchRun => "There is no such run, or it is over".to_owned(),
            Refusal::NoSuchTurn => "There is no such turn".to_owned(),
            Refusal::BeingRewound => "The session is being rewound".to_owned(),
            Refusal::NoSuchQuestion => "There is no such permission question".to_owned(),
            Refusal::QuestionDecided => "The question was answered otherwise already".to_owned(),
            Refusal::QuestionClosed(how) => {
                format!("The question is not open any more: {}", how.as_str())
            }
        };
        // For a session that is over there is nothing to bring back.
        let is_over = refusal == Refusal::NotActive(Status::Ended);
        let code = if is_over { Refusal::Ended } else { refusal };
        let error = Self::new(status, code, message);
        match refusal {
            Refusal::QueueFull | Refusal::BeingRewound => error.later(SOON),
            Refusal::Ended
            | Refusal::NotActive(_)
            | Refusal::RunInProgress
            | Refusal::NoSuchRun
            | Refusal::NoSuchTurn
            | Refusal::NoSuchQuestion
            | Refusal::QuestionDecided
            | Refusal::QuestionClosed(_) => error,
        }
    }
}

/// What is wrong with the files of a session.
impl From<WorkspaceError> for ApiError {
    fn from(error: WorkspaceError) -> Self {
        match error {
            WorkspaceError::None => Self::new(
                StatusCode::NOT_FOUND,
                Code::NO_WORKSPACE,
                "No workspace available for this session",
            ),
            WorkspaceError::Away => Self::new(
                StatusCode::CONFLICT,
                Code::WORKSPACE_AWAY,
                "The files of this session are in its snapshot alone: resume it to change them",
            ),
            WorkspaceError::File(error) => error.into(),
            WorkspaceError::Engine(error) => error.into(),
        }
    }
}

impl From<FileError> for ApiError {
    fn from(error: FileError) -> Self {
        let (status, code) = match &error {
            FileError::BadPath => (StatusCode::BAD_REQUEST, Code::INVALID_PATH),
            // Nothing can be called so.
            FileError::TooLong | FileError::NotFound => (StatusCode::NOT_FOUND, Code::NOT_FOUND),
            FileError::NotAFile | FileError::NotADirectory => {
                (StatusCode::BAD_REQUEST, Code::NOT_A_FILE)
            }
            FileError::Denied => (StatusCode::BAD_REQUEST, Code::FILE_DENIED),
            FileError::TooLarge { .. } => (StatusCode::BAD_REQUEST, Code::FILE_TOO_LARGE),
            FileError::TooMuch(_) => (StatusCode::PAYLOAD_TOO_LARGE, Code::WORKSPACE_TOO_LARGE),
            FileError::BadBundle(_) => (StatusCode::BAD_REQUEST, Code::INVALID_BUNDLE),
            FileError::DiskFull => (StatusCode::INSUFFICIENT_STORAGE, Code::DISK_FULL),
            FileError::Busy => {
                let message = "Not everything could be removed in time: ask again to go on";
                return Self::unavailable(Code::UNAVAILABLE, message);
            }
            FileError::Unavailable(_) => return Self::internal(error),
        };
        Self::new(status, code, error.to_string())
    }
}

/// A session that could not be started.
pub(crate) fn start_failed(code: FailureCode, message: &str) -> ApiError {
    let status = match code {
        FailureCode::SandboxCapacity
        | FailureCode::CloudUnavailable
        | FailureCode::SandboxDiskFull => StatusCode::SERVICE_UNAVAILABLE,
        FailureCode::SnapshotDamaged | FailureCode::NoSavedState => StatusCode::CONFLICT,
        FailureCode::RuntimeMissing | FailureCode::HookFailed => StatusCode::UNPROCESSABLE_ENTITY,
        FailureCode::SandboxStartFailed
        | FailureCode::SandboxStartTimeout
        | FailureCode::SandboxDied
        | FailureCode::SandboxOutOfMemory
        | FailureCode::SandboxLost
        | FailureCode::SandboxStuck
        | FailureCode::AgentUnresponsive
        | FailureCode::AgentFailed
        | FailureCode::ConversationRefused
        | FailureCode::TurnTimeout
        | FailureCode::SessionExpired
        | FailureCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let error = ApiError::new(status, code, message.to_owned());
    if status == StatusCode::SERVICE_UNAVAILABLE { error.later(SOON) } else { error }
}

pub(super) fn no_such(what: &str) -> String {
    let mut letters = what.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    format!("{}{} not found", first.map(String::from).unwrap_or_default(), letters.as_str())
}

/// The answer where there is nothing.
pub(super) async fn no_such_route(method: axum::http::Method, uri: axum::http::Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::new(
        StatusCode::NOT_FOUND,
        Code::NO_SUCH_ROUTE,
        format!("Route {method}:{path} not found"),
    )
}
