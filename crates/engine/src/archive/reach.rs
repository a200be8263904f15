//! Work with snapshots that may be in the cloud alone, for who does not wait for a cloud that hangs.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ash_snapshot::objects::Signs;
use tokio::task::JoinError;

use super::{Archive, ArchiveError};
use crate::cloud::{CloudError, Remote, is_too_long};

/// How many that nobody waits for any more may still wait for the cloud: each has a thread.
const MAX_LEFT: usize = 32;

/// How long a cloud that was silent is not asked, unless it says something.
const BELIEVED: Duration = Duration::from_secs(10);

impl Archive {
    /// Does something with some snapshots that blocks. If the cloud is asked for it, and says nothing to that for too
    /// long, nobody waits for the end of it.
    pub(crate) async fn unless_silent<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
    ) -> Result<Result<T, ArchiveError>, JoinError> {
        let Some(remote) = self.remote() else { return tokio::task::spawn_blocking(work).await };
        if self.left.load(Ordering::Relaxed) >= MAX_LEFT {
            return Ok(Err(silent()));
        }
        let (is_over, signs) = (Arc::new(AtomicBool::new(false)), Signs::default());
        let mut working = {
            let (this, is_over, signs) = (Arc::clone(self), Arc::clone(&is_over), signs.clone());
            tokio::task::spawn_blocking(move || {
                let listening = signs.listen();
                let done = work();
                drop(listening);
                if is_over.swap(true, Ordering::Relaxed) {
                    this.left.fetch_sub(1, Ordering::Relaxed);
                }
                done
            })
        };
        tokio::select! {
            biased;
            done = &mut working => done,
            () = is_too_long(&signs) => {
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

    /// Refuses to ask a cloud that was found to be silent just now.
    pub(super) fn may_ask(&self, remote: &Remote) -> Result<(), ArchiveError> {
        let silence = *self.silence.lock().unwrap_or_else(PoisonError::into_inner);
        match silence {
            Some((signs, at)) if signs == remote.signs() && at.elapsed() < BELIEVED => {
                Err(silent())
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn silent() -> ArchiveError {
    let says = "it has said nothing for some seconds".to_owned();
    ArchiveError::Cloud(CloudError::Unavailable(says))
}
