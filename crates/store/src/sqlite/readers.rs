//! A few connections that read, side by side with the writer.
//!
//! In write-ahead mode a reader sees the last commit as of its first look, waits for nobody and
//! nobody waits for it. So what was acknowledged before a read began is in what it sees.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::connect;
use crate::{Result, StoreError};

/// How many reads go on at once; more would only compete for the same cores.
const MAX_READERS: usize = 4;

/// Connections that read, opened when they are first needed.
pub(super) struct Readers {
    path: Arc<Path>,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    /// Readers of the database at `path`.
    pub(super) fn of(path: PathBuf) -> Self {
        Self {
            path: path.into(),
            idle: Arc::default(),
            permits: Arc::new(Semaphore::new(MAX_READERS)),
        }
    }

    /// Runs `read` on a thread that may block.
    pub(super) async fn perform<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit =
            Arc::clone(&self.permits).acquire_owned().await.expect("nobody closes the semaphore");
        let (path, idle) = (Arc::clone(&self.path), Arc::clone(&self.idle));
        let reading = tokio::task::spawn_blocking(move || {
            let waiting = idle.lock().expect("nothing panics under this lock").pop();
            let connection = match waiting {
                Some(connection) => connection,
                None => connect::open_reader(&path)?,
            };
            let result = read(&connection);
            // Whatever might be wrong with the connection is left behind with it.
            if !result.as_ref().is_err_and(StoreError::is_transient) {
                idle.lock().expect("nothing panics under this lock").push(connection);
            }
            drop(permit);
            result
        });
        reading.await.map_err(|error| StoreError::Unavailable(error.into()))?
    }
}
