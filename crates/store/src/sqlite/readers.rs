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

    /// Runs a `read` of a row or two by their keys, right here if a connection is free. The way to
    /// another thread and back takes several times as long as such a look, and nobody writes to
    /// what it reads.
    pub(super) async fn look_up<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if let Ok(_permit) = self.permits.try_acquire()
            && let Some(connection) = take(&self.idle)
        {
            let result = read(&connection);
            give_back(&self.idle, connection, &result);
            return result;
        }
        self.perform(read).await
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
            let connection = match take(&idle) {
                Some(connection) => connection,
                None => connect::open_reader(&path)?,
            };
            let result = read(&connection);
            give_back(&idle, connection, &result);
            drop(permit);
            result
        });
        reading.await.map_err(|error| StoreError::Unavailable(error.into()))?
    }
}

fn take(idle: &Mutex<Vec<Connection>>) -> Option<Connection> {
    idle.lock().expect("nothing panics under this lock").pop()
}

/// Whatever might be wrong with a connection is left behind with it.
fn give_back<T>(idle: &Mutex<Vec<Connection>>, connection: Connection, result: &Result<T>) {
    if !result.as_ref().is_err_and(StoreError::is_transient) {
        idle.lock().expect("nothing panics under this lock").push(connection);
    }
}
