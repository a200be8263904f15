//! Work with snapshots that may be in the cloud alone, for who does not wait for a cloud that hangs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ash_core::id::SnapshotId;
use tokio::task::JoinError;

use super::{Archive, ArchiveError};
use crate::cloud::{CloudError, Remote};

/// How many that nobody waits for any more may still wait for the cloud: each has a thread.
const MAX_LEFT: usize = 32;

/// How long a cloud that was silent is not asked, unless it says something.
const BELIEVED: Duration = Duration::from_secs(10);

impl Archive {
    /// Does something with some snapshots that blocks. If the cloud is asked for one of them, and says nothing for too
    /// long, nobody waits for the end of it.
    pub(crate) async fn unless_silent<T: Send + 'static>(
        self: &Arc<Self>,
        ids: BTreeSet<SnapshotId>,
        work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
    ) -> Result<Result<T, ArchiveError>, JoinError> {
        let Some(remote) = self.remote() else { return tokio::task::spawn_blocking(work).await };
        if self.left.load(Ordering::Relaxed) >= MAX_LEFT {
            return Ok(Err(silent()));
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let mut working = {
            let (this, is_over) = (Arc::clone(self), Arc::clone(&is_over));
            tokio::task::spawn_blocking(move || {
                let done = work();
                if is_over.swap(true, Ordering::Relaxed) {
                    this.left.fetch_sub(1, Ordering::Relaxed);
                }
                done
            })
        };
        let asks = || {
            let asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
            ids.iter().any(|id| asking.contains_key(id))
        };
        tokio::select! {
            biased;
            done = &mut working => done,
            () = remote.is_silent(asks) => {
                self.left.fetch_add(1, Ordering::Relaxed);
                if is_over.swap(true, Ordering::Relaxed) {
                    // It is done just now.
                    self.left.fetch_sub(1, Ordering::Relaxed);
                    return working.await;
                }
                let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
                *silence = Some((remote.signs(), Instant::now()));
                Ok(Err(silent()))
            }
        }
    }

    /// Says that the cloud is asked for a snapshot, until what is returned is dropped. One that was found to be silent
    /// just now is not asked.
    pub(super) fn asks_for(
        &self,
        remote: &Remote,
        id: SnapshotId,
    ) -> Result<Asks<'_>, ArchiveError> {
        let silence = *self.silence.lock().unwrap_or_else(PoisonError::into_inner);
        if silence.is_some_and(|(signs, at)| signs == remote.signs() && at.elapsed() < BELIEVED) {
            return Err(silent());
        }
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        *asking.entry(id).or_default() += 1;
        Ok(Asks(self, id))
    }
}

fn silent() -> ArchiveError {
    let says = "it has said nothing for some seconds".to_owned();
    ArchiveError::Cloud(CloudError::Unavailable(says))
}

pub(super) struct Asks<'a>(&'a Archive, SnapshotId);

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        let mut asking = self.0.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let left = asking.get_mut(&self.1).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            asking.remove(&self.1);
        }
    }
}
