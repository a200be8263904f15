//! The store of a single machine: one SQLite file.
//!
//! ```text
//!   callers ──┬── writes, as column values ──► writer: one thread, group commit ──┐
//!             │                                                                   ├──► file
//!             └── reads ──► readers: a few connections, on blocking threads ──────┘
//! ```
//!
//! A look-up of a row or two by their keys does not go to another thread. Where no other process
//! writes, sessions that were read lately are not read again (`recent`).
//!
//! The file is in write-ahead mode with `synchronous=FULL`: what was acknowledged survives the
//! death of the process and of the machine. Another process may use the file at the same time,
//! reading or writing; the fence keeps two servers from writing the same session.

mod agents;
mod attachments;
mod cloud;
mod connect;
mod draft;
mod fault;
mod migrate;
mod purge;
mod queue;
mod read;
mod readers;
mod recent;
mod rows;
mod sql;
mod store;
mod write;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use readers::Readers;
use recent::Recent;
use writer::Writer;

use crate::{Result, StoreError};

/// How many operations are made durable at once, unless [`Options`] says otherwise.
pub const GROUP_LIMIT: usize = 256;

/// Where a store is, and how it commits.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database file. It is created if it is not there; its directory is not.
    pub path: PathBuf,
    /// How many operations are made durable at once. One: each on its own, which is what a
    /// benchmark compares with.
    pub group_limit: usize,
    /// Whether other processes may write to the file: then every look is a look at the file.
    pub sharing: Sharing,
}

/// Whether other processes may write to a database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// They may.
    Shared,
    /// The caller sees to it that none does.
    Alone,
}

/// A store in a SQLite file. Dropping it finishes what is queued, and waits for that.
pub struct SqliteStore {
    // Dropped in this order, so that the writer is the last to close the file: it is the one that
    // can bring the write-ahead log home.
    readers: Readers,
    writer: Writer,
    recent: Option<Arc<Recent>>,
}

impl SqliteStore {
    /// Opens the store at `path`, creates it if there is none, and brings its schema up to date.
    /// Other processes may write to it.
    pub fn open(path: &Path) -> Result<Self> {
        let (path, sharing) = (path.to_owned(), Sharing::Shared);
        Self::open_with(&Options { path, group_limit: GROUP_LIMIT, sharing })
    }

    /// Opens the store at `path`, as [`open`](Self::open) does, where no other process writes to it.
    pub fn open_alone(path: &Path) -> Result<Self> {
        let (path, sharing) = (path.to_owned(), Sharing::Alone);
        Self::open_with(&Options { path, group_limit: GROUP_LIMIT, sharing })
    }

    /// Opens a store, as [`open`](Self::open) does.
    pub fn open_with(options: &Options) -> Result<Self> {
        let mut connection = connect::open_writer(&options.path)?;
        migrate::apply(&mut connection)?;
        let recent = match options.sharing {
            Sharing::Shared => None,
            Sharing::Alone => Some(Arc::<Recent>::default()),
        };
        let writer = Writer::start(connection, options.group_limit, recent.clone())
            .map_err(|source| StoreError::Unavailable(source.into()))?;
        Ok(Self { readers: Readers::of(options.path.clone()), writer, recent })
    }

    /// Whether this program could open the store at `path`, as far as that is seen without changing
    /// anything. One that is not there would be made.
    ///
    /// # Errors
    /// It cannot be read, or a newer program made it.
    pub fn can_open(path: &Path) -> Result<()> {
        match path.try_exists() {
            Ok(false) => Ok(()),
            Ok(true) => migrate::check(&connect::open_reader(path)?),
            Err(source) => Err(StoreError::Unavailable(source.into())),
        }
    }

    /// Closes the store: finishes what is queued without holding up the caller's thread.
    pub async fn close(self) {
        let closing = tokio::task::spawn_blocking(move || drop(self));
        closing.await.expect("closing a store does not panic");
    }

    /// Looks for damage: pages, indexes, references between rows, and logs with holes. Returns
    /// what is wrong, a line each; nothing if all is well. Reads the whole file.
    pub async fn check_integrity(&self) -> Result<Vec<String>> {
        self.readers.perform(read::integrity).await
    }
}
