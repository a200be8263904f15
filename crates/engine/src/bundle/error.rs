//! Why there is no bundle, or none that can be used.

use std::error::Error;
use std::io;

use ash_snapshot::SnapshotError;
use ash_store::StoreError;

use crate::archive::ArchiveError;
use crate::cloud::{CloudError, MAX_LOG};

/// Why there is no bundle, or none that can be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It is none, or not what was exported.
    #[error("the bundle is damaged: {0}")]
    Damaged(String),
    /// It was written by a later version.
    #[error("the bundle is of version {0}, which is not known here")]
    TooNew(u32),
    /// It is longer than any may be.
    #[error("the bundle has more than {0} bytes")]
    TooLarge(u64),
    /// There is no room for it on the disk.
    #[error("there is too little room on the disk for the bundle")]
    NoRoom,
    /// The snapshot that it was to be made of is gone.
    #[error("there is no snapshot of it")]
    Gone,
    /// What it is made of is in the cloud alone, which does not answer.
    #[error(transparent)]
    Cloud(CloudError),
    /// What is on this machine could not be used.
    #[error("could not be done here: {0}")]
    Here(#[source] Box<dyn Error + Send + Sync>),
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BundleError {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }

    pub(super) fn here(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Here(error.into())
    }

    /// Something of the disk has failed.
    pub(super) fn disk(error: io::Error) -> Self {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if full.contains(&error.kind()) { Self::NoRoom } else { Self::here(error) }
    }

    /// What is wrong with the set in a bundle that is read.
    pub(super) fn of_set(error: CloudError) -> Self {
        match error {
            CloudError::NotFound(what) => Self::Damaged(format!("there is no {what} in it")),
            CloudError::Damaged(what) => Self::Damaged(format!("{what} is not what it should be")),
            CloudError::TooLarge(what) => Self::Damaged(format!("{what} is too large")),
            CloudError::Elsewhere => Self::damaged("its parts do not belong together"),
            CloudError::TooNew { version, .. } => Self::TooNew(version),
            // It was checked against its digest: whoever wrote it wrote it so.
            CloudError::Unfit(what) | CloudError::NotOurs(what) => Self::Damaged(what),
            CloudError::Store(error) => Self::Store(error),
            CloudError::Unavailable(what) | CloudError::Refuses(what) => Self::here(what),
            CloudError::Here(cause) => match cause.downcast::<SnapshotError>() {
                Ok(error) => Self::of_snapshot(*error),
                Err(cause) => Self::Here(cause),
            },
        }
    }

    /// What is wrong with a snapshot in a bundle that is read.
    pub(super) fn of_snapshot(error: SnapshotError) -> Self {
        match error {
            SnapshotError::Damaged { .. }
            | SnapshotError::Missing(_)
            | SnapshotError::Unreadable { .. }
            | SnapshotError::Format(_)
            | SnapshotError::TooMuch { .. } => Self::Damaged(error.to_string()),
            // Somebody asked whether there is room.
            SnapshotError::Cancelled => Self::NoRoom,
            SnapshotError::Store { source, .. } | SnapshotError::Tree { source, .. } => {
                Self::disk(source)
            }
            SnapshotError::Collected | SnapshotError::Exists(_) => Self::here(error),
        }
    }

    /// What kept the set of a bundle from being made.
    pub(super) fn of_making_set(error: CloudError) -> Self {
        match error {
            CloudError::Store(error) => Self::Store(error),
            CloudError::Here(cause) => Self::Here(cause),
            CloudError::TooLarge(_) => Self::TooLarge(MAX_LOG),
            CloudError::Unavailable(_)
            | CloudError::Refuses(_)
            | CloudError::Unfit(_)
            | CloudError::NotOurs(_)
            | CloudError::NotFound(_)
            | CloudError::Damaged(_)
            | CloudError::TooNew { .. }
            | CloudError::Elsewhere => Self::here(error),
        }
    }

    /// What kept a bundle from being made.
    pub(super) fn of_making(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Cloud(error) => Self::Cloud(error),
            ArchiveError::Snapshot(SnapshotError::Cancelled) => Self::NoRoom,
            ArchiveError::Snapshot(SnapshotError::Store { source, .. }) => Self::disk(source),
            ArchiveError::Snapshot(_)
            | ArchiveError::Place(_)
            | ArchiveError::Home(_)
            | ArchiveError::Nowhere(_)
            | ArchiveError::NoCloud
            | ArchiveError::DamagedInCloud
            | ArchiveError::NothingLeft => Self::here(error),
        }
    }
}
