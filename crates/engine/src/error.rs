//! What callers of the engine are told when it cannot do what they want.

use std::error::Error;

use ash_core::failure::{Failure, FailureCode};
use ash_core::id::AgentName;
use ash_core::refusal::Refusal;
use ash_store::StoreError;

use crate::bundle::BundleError;
use crate::cloud::CloudError;
use crate::host::HostError;

/// Why the engine did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The session turned it down. Nothing has changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// There is no such thing, or it is another tenant's.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// The session could not be brought up.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// The session's files are gone, and it was not to begin without them.
    #[error("the session has no saved state")]
    NoSavedState,
    /// There is no snapshot of what was asked for any more.
    #[error("there is no snapshot of it")]
    SnapshotExpired,
    /// What was before the first message is in no snapshot.
    #[error("there is no snapshot of the time before the first message")]
    NothingBefore,
    /// What is there could not be captured, or what was to be put back not read. The session is what it was.
    #[error("nothing was rewound: {0}")]
    NotRewound(String),
    /// Nothing is copied to a cloud.
    #[error("there is no cloud")]
    NoCloud,
    /// It could not be brought from the cloud.
    #[error(transparent)]
    Cloud(CloudError),
    /// Its agent cannot be read in the cloud, and there is none of that name to take its place.
    #[error("agent {0} in the cloud is damaged, and there is none of that name here")]
    AgentDamaged(AgentName),
    /// It is no bundle that can be used.
    #[error(transparent)]
    Bundle(BundleError),
    /// There already is one.
    #[error("this {0} already exists")]
    Exists(&'static str),
    /// The same idempotency key came with another request.
    #[error("this idempotency key was used for another request")]
    KeyReused,
    /// What was sent is larger than a session's log takes.
    #[error("{bytes} bytes are more than a session takes at once")]
    TooLarge {
        /// How large it was.
        bytes: usize,
    },
    /// There is too little room on the disk for another session, and nothing to remove.
    #[error("there is too little room on the disk for another session")]
    DiskPressure,
    /// It cannot go as long as it is used.
    #[error("this {0} is in use")]
    InUse(&'static str),
    /// Too much is waiting for this session.
    #[error("too many requests are waiting for this session")]
    Overloaded,
    /// The server is about to go: another one will answer.
    #[error("the server is shutting down")]
    Draining,
    /// It may or may not have happened. With an idempotency key it is safe to ask again.
    #[error("the session's state could not be recorded")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// What is stored makes no sense, or the request makes none.
    #[error("the session's state could not be used")]
    Damaged(#[source] Box<dyn Error + Send + Sync>),
}

impl EngineError {
    /// What is told of a host that could not do something with a snapshot.
    pub(crate) fn of_snapshots(error: HostError) -> Self {
        if error.is_out_of_reach {
            let why = "the cloud, where its files are, does not answer";
            return Self::Failed(Failure::new(FailureCode::CloudUnavailable, why));
        }
        Self::Unavailable(error.into())
    }

    /// Whether the same request may succeed later.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Overloaded
            | Self::DiskPressure
            | Self::Draining
            | Self::NotRewound(_)
            | Self::Unavailable(_) => true,
            Self::Cloud(error) => error.is_unavailable(),
            Self::Failed(failure) => {
                matches!(failure.code, FailureCode::SandboxCapacity | FailureCode::CloudUnavailable)
            }
            Self::Refused(_)
            | Self::NotFound(_)
            | Self::NoSavedState
            | Self::SnapshotExpired
            | Self::NothingBefore
            | Self::NoCloud
            | Self::AgentDamaged(_)
            | Self::Bundle(_)
            | Self::Exists(_)
            | Self::InUse(_)
            | Self::KeyReused
            | Self::TooLarge { .. }
            | Self::Damaged(_) => false,
        }
    }

    /// Whether there was no place for a sandbox. Nothing has changed.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.code == FailureCode::SandboxCapacity)
    }

    /// The driver that had the request is gone; it may have recorded it.
    pub(crate) fn driver_gone() -> Self {
        Self::Unavailable("the task that worked on the session is gone".into())
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(what) => Self::NotFound(what),
            StoreError::Exists(what) => Self::Exists(what),
            StoreError::InUse(what) => Self::InUse(what),
            // Somebody else owns the session now; asking again reaches them.
            StoreError::Fenced { .. }
            | StoreError::Superseded(_)
            | StoreError::Conflict { .. }
            | StoreError::Full(_)
            | StoreError::Unavailable(_) => Self::Unavailable(error.into()),
            StoreError::TooLarge { bytes } => Self::TooLarge { bytes },
            StoreError::Damaged { .. } | StoreError::TooNew { .. } => Self::Damaged(error.into()),
        }
    }
}

impl From<CloudError> for EngineError {
    fn from(error: CloudError) -> Self {
        match error {
            CloudError::Store(error) => error.into(),
            CloudError::Here(error) => Self::Damaged(error),
            CloudError::Unavailable(_)
            | CloudError::Refuses(_)
            | CloudError::Unfit(_)
            | CloudError::NotOurs(_)
            | CloudError::NotFound(_)
            | CloudError::Damaged(_)
            | CloudError::TooNew { .. }
            | CloudError::TooLarge(_)
            | CloudError::Elsewhere => Self::Cloud(error),
        }
    }
}

impl From<BundleError> for EngineError {
    fn from(error: BundleError) -> Self {
        match error {
            BundleError::Store(error) => error.into(),
            BundleError::Cloud(error) => error.into(),
            BundleError::Here(error) => Self::Damaged(error),
            BundleError::NoRoom => Self::DiskPressure,
            BundleError::Gone => Self::SnapshotExpired,
            BundleError::Damaged(_) | BundleError::TooNew(_) | BundleError::TooLarge(_) => {
                Self::Bundle(error)
            }
        }
    }
}
