//! What SQLite's errors mean to a caller of the store.

use std::error::Error;

use rusqlite::ErrorCode;

use crate::StoreError;

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(error.into()),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                damaged("database", error)
            }
            // What a caller can get wrong is asked for before it is written, so only rows that
            // were changed by other hands can break a constraint. Trying again will not help.
            Some(ErrorCode::ConstraintViolation) => damaged("reference between rows", error),
            Some(_) => Self::Unavailable(error.into()),
            // Not from the database: a value is not of the type its column should have.
            None => damaged("row", error),
        }
    }
}

/// The error for something that is stored and cannot be understood.
pub(super) fn damaged(
    what: &'static str,
    source: impl Into<Box<dyn Error + Send + Sync>>,
) -> StoreError {
    StoreError::Damaged { what, source: source.into() }
}
