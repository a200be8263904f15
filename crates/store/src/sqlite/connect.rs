//! How connections are opened: the file and its permissions, and the settings that make a commit
//! durable.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::{Result, StoreError};

/// How long a connection waits for another process that writes, such as the command line.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait before asking again for what SQLite itself does not wait for.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// More than there are statements: each is prepared once per connection.
const STATEMENT_CACHE: usize = 128;

/// How many pages are logged between two checkpoints (32 MB). The same pages are written again and
/// again, the last one of each log above all; the longer they gather, the fewer go home.
const CHECKPOINT_PAGES: i64 = 8_000;

/// What the write-ahead log is cut back to after a checkpoint, if a burst made it longer.
const WAL_KEPT_BYTES: i64 = 64 * 1024 * 1024;

/// Opens the connection that writes, and creates the file if there is none.
pub(super) fn open_writer(path: &Path) -> Result<Connection> {
    create_private(path).map_err(|source| StoreError::Unavailable(source.into()))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    prepare(&connection)?;
    enter_wal_mode(&connection)?;
    // FULL: a commit is acknowledged only once the disk has it. Group commit pays for it.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// Opens a connection that reads. The database must exist.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    prepare(&connection)?;
    Ok(connection)
}

fn prepare(connection: &Connection) -> Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // A plan must not depend on the values that are bound: else a statement is parsed and planned
    // again each time that it is run, which costs more than running it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(())
}

/// Creates the file so that only its owner reads it: it holds sealed secrets and conversations.
/// SQLite gives the files it puts beside it the same permissions.
fn create_private(path: &Path) -> io::Result<()> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Ok(_) => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Switches the database to write-ahead logging, for good. SQLite does not wait for the lock this
/// needs, so that two processes which open a new database at once would trip over each other.
fn enter_wal_mode(connection: &Connection) -> Result<()> {
    let give_up = Instant::now() + BUSY_TIMEOUT;
    loop {
        let mode = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let refused = format!("no write-ahead logging here, only mode {mode}");
                return Err(StoreError::Unavailable(refused.into()));
            }
            Err(error) if is_busy(&error) && Instant::now() < give_up => thread::sleep(BUSY_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error_code()
        .is_some_and(|code| code == ErrorCode::DatabaseBusy || code == ErrorCode::DatabaseLocked)
}

#[cfg(test)]
mod test {
    use super::*;

    /// No test can see the loss of power that this is for, so it is asked for by name.
    #[test]
    fn a_commit_waits_for_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let writer = open_writer(&directory.path().join("ash.db")).unwrap();
        let number = |name| writer.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        assert_eq!(number("synchronous").unwrap(), 2, "FULL");
        assert_eq!(number("foreign_keys").unwrap(), 1);
        let mode = writer.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0));
        assert_eq!(mode.unwrap(), "wal");
    }

    #[test]
    fn a_statement_is_planned_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ash.db");
        super::super::migrate::apply(&mut open_writer(&path).unwrap()).unwrap();
        let reader = open_reader(&path).unwrap();
        for id in ["a", "b", "c"] {
            let mut statement = reader.prepare_cached(super::super::sql::SESSION).unwrap();
            assert!(!statement.exists([id, "default"]).unwrap());
        }
        let statement = reader.prepare_cached(super::super::sql::SESSION).unwrap();
        assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0);
    }

    #[test]
    fn a_reader_cannot_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ash.db");
        drop(open_writer(&path).unwrap());
        let reader = open_reader(&path).unwrap();
        assert!(reader.execute_batch("CREATE TABLE x (y TEXT)").is_err());
    }
}
