//! What can go wrong in the store: one variant for each thing a caller does differently.

use std::error::Error;

use ash_core::id::SessionId;
use ash_core::number::{Fence, Seq};

/// Why an operation did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such thing, or it is another tenant's.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// There already is one.
    #[error("this {0} already exists")]
    Exists(&'static str),
    /// It cannot go as long as it is used.
    #[error("this {0} is in use")]
    InUse(&'static str),
    /// Somebody else has claimed the session since: this owner must let go of it.
    #[error("session {session} was claimed by another owner after fence {held}")]
    Fenced {
        /// Which session.
        session: SessionId,
        /// The fence that the write named.
        held: Fence,
    },
    /// A later server owns the session: this one must let go of everything.
    #[error("session {0} belongs to a server that started later")]
    Superseded(SessionId),
    /// The write was decided on another end of the log than the one that is stored.
    #[error("the log of session {session} does not end at {expected}")]
    Conflict {
        /// Which session.
        session: SessionId,
        /// Where the write expected it to end.
        expected: Seq,
    },
    /// An entry is larger than the log takes.
    #[error("an entry of {bytes} bytes is larger than a log takes")]
    TooLarge {
        /// How large.
        bytes: usize,
    },
    /// What is stored cannot be understood.
    #[error("the stored {what} is damaged")]
    Damaged {
        /// What kind of thing.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The store was written by a newer version of this program.
    #[error("the database has schema version {found}, this program knows only up to {known}")]
    TooNew {
        /// The version that was found.
        found: i64,
        /// The latest version this program knows.
        known: i64,
    },
    /// The disk is full. The outcome is open, as with [`Unavailable`](Self::Unavailable).
    #[error("the disk that holds the database is full")]
    Full(#[source] Box<dyn Error + Send + Sync>),
    /// The store could not be reached or could not do it. The outcome is open: it may have
    /// happened.
    #[error("the database is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
}

impl StoreError {
    /// Whether the same operation may succeed later. If it was a write, its outcome is open.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Full(_) | Self::Unavailable(_) => true,
            Self::NotFound(_)
            | Self::Exists(_)
            | Self::InUse(_)
            | Self::Fenced { .. }
            | Self::Superseded(_)
            | Self::Conflict { .. }
            | Self::TooLarge { .. }
            | Self::Damaged { .. }
            | Self::TooNew { .. } => false,
        }
    }
}
