//! Brings a database to the schema that this program knows.
//!
//! All that is missing is applied in one transaction that takes the write lock first. So a
//! database is never half migrated, and of two processes that open it at once the second finds
//! the work done.

use rusqlite::{Connection, TransactionBehavior};

use crate::{Result, StoreError};

/// Every migration, oldest first. Its version is its place in the list, from 1.
const MIGRATIONS: &[(&str, &str)] = &[
    ("initial", include_str!("../../migrations/0001_initial.sql")),
    ("serving", include_str!("../../migrations/0002_serving.sql")),
    ("snapshots", include_str!("../../migrations/0003_snapshots.sql")),
    ("histories", include_str!("../../migrations/0004_histories.sql")),
    ("cloud", include_str!("../../migrations/0005_cloud.sql")),
    ("keeping", include_str!("../../migrations/0006_keeping.sql")),
    ("purging", include_str!("../../migrations/0007_purging.sql")),
    ("heads", include_str!("../../migrations/0008_heads.sql")),
    ("cloud_url", include_str!("../../migrations/0009_cloud_url.sql")),
    ("spend", include_str!("../../migrations/0010_spend.sql")),
    ("versions", include_str!("../../migrations/0011_versions.sql")),
    ("queue", include_str!("../../migrations/0012_queue.sql")),
    ("attachments", include_str!("../../migrations/0013_attachments.sql")),
];

/// The latest version this program knows.
const KNOWN: i64 = MIGRATIONS.len() as i64;

const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migration (
    version BIGINT NOT NULL PRIMARY KEY,
    name    TEXT   NOT NULL
)";
const FOUND: &str = "SELECT COALESCE(MAX(version), 0) FROM schema_migration";
const RECORD: &str = "INSERT INTO schema_migration (version, name) VALUES (?1, ?2)";

const HAS_TABLE: &str =
    "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migration'";

/// Whether this program could apply what is missing. Changes nothing.
pub(super) fn check(connection: &Connection) -> Result<()> {
    let tables: i64 = connection.query_row(HAS_TABLE, [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(());
    }
    let found: i64 = connection.query_row(FOUND, [], |row| row.get(0))?;
    if found > KNOWN { Err(StoreError::TooNew { found, known: KNOWN }) } else { Ok(()) }
}

/// Applies what is missing. A database of a newer program is left alone.
pub(super) fn apply(connection: &mut Connection) -> Result<()> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(CREATE_TABLE)?;
    let found: i64 = tx.query_row(FOUND, [], |row| row.get(0))?;
    if found > KNOWN {
        return Err(StoreError::TooNew { found, known: KNOWN });
    }
    for (version, (name, sql)) in (1..).zip(MIGRATIONS) {
        if version > found {
            tx.execute_batch(sql)?;
            tx.execute(RECORD, (version, name))?;
        }
    }
    tx.commit()?;
    Ok(())
}
