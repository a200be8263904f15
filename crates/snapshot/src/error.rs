//! What can go wrong.

use std::io;
use std::path::PathBuf;

use crate::snapshot::SnapshotId;

/// The result of what works on a repository.
pub type Result<T> = std::result::Result<T, SnapshotError>;

/// Bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub(crate) &'static str);

/// Why something could not be captured, restored or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file or directory of a tree.
    #[error("could not {attempted} {}", path.display())]
    Tree {
        /// What was tried.
        attempted: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it did not work.
        source: io::Error,
    },
    /// An object of the store.
    #[error("could not {attempted} {object}")]
    Store {
        /// What was tried.
        attempted: &'static str,
        /// With what.
        object: String,
        /// Why it did not work.
        source: io::Error,
    },
    /// An object is there, and is not what its name says.
    #[error("{object} is damaged: {wrong}")]
    Damaged {
        /// Which.
        object: String,
        /// How.
        wrong: Malformed,
    },
    /// Some of what a snapshot needs cannot be read. Nothing was removed.
    #[error("snapshot {id} cannot be read whole: {reason}")]
    Unreadable {
        /// Which.
        id: SnapshotId,
        /// Why.
        reason: String,
    },
    /// Something that is needed is not there.
    #[error("{0} is not there")]
    Missing(String),
    /// It is not a repository of ours, or one of a later version.
    #[error("not a repository of snapshots, or one of another version: {0}")]
    Format(String),
    /// Where a tree is to be restored there is something already.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// A tree has more than it may have.
    #[error("the snapshot has more than {most} {what}")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How many are allowed.
        most: u64,
    },
    /// A capture took so long that what it relies on may have been removed, or it was found to be damaged
    /// meanwhile. It can be tried again.
    #[error("what the capture relies on was collected, or found damaged, while it ran: try again")]
    Collected,
    /// Whoever asked does not want it any more.
    #[error("cancelled")]
    Cancelled,
}

impl SnapshotError {
    /// Whether it is worth trying again.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store { source, .. } => crate::objects::is_transient(source),
            Self::Collected => true,
            Self::Tree { .. }
            | Self::Damaged { .. }
            | Self::Unreadable { .. }
            | Self::Missing(_)
            | Self::Format(_)
            | Self::Exists(_)
            | Self::TooMuch { .. }
            | Self::Cancelled => false,
        }
    }

    /// Whether a copy failed because what it was made from is not whole.
    pub fn is_of_source(&self) -> bool {
        match self {
            Self::Missing(_) => true,
            // Of where it is copied to nothing but the record is read that could be found damaged.
            Self::Damaged { object, .. } => !object.starts_with("snapshots/"),
            Self::Tree { .. }
            | Self::Store { .. }
            | Self::Unreadable { .. }
            | Self::Format(_)
            | Self::Exists(_)
            | Self::TooMuch { .. }
            | Self::Collected
            | Self::Cancelled => false,
        }
    }

    pub(crate) fn damaged(object: impl ToString) -> impl FnOnce(Malformed) -> Self {
        let object = object.to_string();
        move |wrong| Self::Damaged { object, wrong }
    }

    pub(crate) fn tree(
        attempted: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Tree { attempted, path, source }
    }

    pub(crate) fn store(
        attempted: &'static str,
        object: impl ToString,
    ) -> impl FnOnce(io::Error) -> Self {
        let object = object.to_string();
        move |source| Self::Store { attempted, object, source }
    }
}
