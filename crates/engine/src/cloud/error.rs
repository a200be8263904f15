//! Why something could not be brought to the cloud, or back.

use std::error::Error;
use std::io;

use ash_core::id::SnapshotId;
use ash_snapshot::SnapshotError;
use ash_snapshot::objects::Unfit;
use ash_store::StoreError;

use crate::archive::ArchiveError;

/// Why something could not be brought to the cloud, or back.
#[derive(Debug, thiserror::Error)]
pub enum CloudError {
    /// It does not answer, or does not let us in. It may later.
    #[error("the cloud cannot be reached: {0}")]
    Unavailable(String),
    /// It answers, but not to this. It may later.
    #[error("the cloud answers, but does not do this: {0}")]
    Refuses(String),
    /// What is there cannot be relied on, whoever answers.
    #[error("the cloud cannot be used: {0}")]
    Unfit(String),
    /// What is at its place was put by somebody else or is damaged: it is left as it is.
    #[error("the cloud cannot be used: {0}")]
    NotOurs(String),
    /// There is no such thing.
    #[error("there is no {0} in the cloud")]
    NotFound(String),
    /// What is there is not what it says it is.
    #[error("{0} in the cloud is damaged")]
    Damaged(String),
    /// What is there was written by a later version.
    #[error("{what} in the cloud is of version {version}, which is not known here")]
    TooNew {
        /// What.
        what: String,
        /// Its version.
        version: u32,
    },
    /// It has more than can be brought back, so it is not brought there.
    #[error("{0} is too large for the cloud")]
    TooLarge(String),
    /// Another server has gone on with the session.
    #[error("another server goes on with the session")]
    Elsewhere,
    /// What is on this machine could not be used.
    #[error("could not be read here: {0}")]
    Here(#[source] Box<dyn Error + Send + Sync>),
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CloudError {
    /// Whether it is the cloud that has to change.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Store(error) => error.is_transient(),
            Self::Refuses(_)
            | Self::Unfit(_)
            | Self::NotOurs(_)
            | Self::NotFound(_)
            | Self::Damaged(_)
            | Self::TooNew { .. }
            | Self::TooLarge(_)
            | Self::Elsewhere
            | Self::Here(_) => false,
        }
    }

    /// Whether the cloud does not answer.
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    pub(crate) fn here(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Here(error.into())
    }

    /// A snapshot is not whole on this machine, and not in the cloud yet.
    pub(super) fn lost(snapshot: SnapshotId, why: &SnapshotError) -> Self {
        Self::here(LostHere { snapshot, why: why.to_string() })
    }

    /// The snapshot that was found to be lost on this machine, if that is what is wrong.
    pub(super) fn lost_here(&self) -> Option<SnapshotId> {
        match self {
            Self::Here(error) => error.downcast_ref::<LostHere>().map(|lost| lost.snapshot),
            Self::Unavailable(_)
            | Self::Refuses(_)
            | Self::Unfit(_)
            | Self::NotOurs(_)
            | Self::NotFound(_)
            | Self::Damaged(_)
            | Self::TooNew { .. }
            | Self::TooLarge(_)
            | Self::Elsewhere
            | Self::Store(_) => None,
        }
    }

    /// What a call to the cloud has failed with.
    pub(super) fn there(error: &io::Error) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// A snapshot that is to be copied is not whole on this machine any more.
#[derive(Debug, thiserror::Error)]
#[error("snapshot {snapshot} is not whole on this machine any more: {why}")]
struct LostHere {
    snapshot: SnapshotId,
    why: String,
}

/// What went wrong with a repository in the cloud.
impl From<SnapshotError> for CloudError {
    fn from(error: SnapshotError) -> Self {
        match &error {
            SnapshotError::Missing(what) => Self::NotFound(what.clone()),
            SnapshotError::Damaged { object, .. } => Self::Damaged(object.clone()),
            SnapshotError::Store { source, .. } if is_unfit(source) => {
                Self::Unfit(source.to_string())
            }
            SnapshotError::Store { source, .. } => Self::Unavailable(format!("{error}: {source}")),
            SnapshotError::Format(_) => Self::NotOurs(error.to_string()),
            SnapshotError::Collected | SnapshotError::Cancelled => {
                Self::Unavailable(error.to_string())
            }
            SnapshotError::Tree { .. }
            | SnapshotError::Unreadable { .. }
            | SnapshotError::Exists(_)
            | SnapshotError::TooMuch { .. } => Self::here(error),
        }
    }
}

impl From<ArchiveError> for CloudError {
    fn from(error: ArchiveError) -> Self {
        Self::here(error)
    }
}

/// Whether a server does not do what is relied on.
fn is_unfit(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Unfit>())
}
