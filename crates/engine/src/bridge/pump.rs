//! Keeps the conversation with one sandbox going, whatever becomes of the connection.

use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::Death;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::connection::{Came, ConnectError, Connection, End, Question};
use super::files::Life;
use super::inner::Inner;
use super::leftover::Leftover;
use super::report::Understanding;
use crate::host::{Reporter, SandboxRef};

/// How long a bridge that closed its connection may take to die or to be of use again.
const RECOVERY: Duration = Duration::from_secs(5);

/// How long to wait in between.
const PAUSE: Duration = Duration::from_millis(20);

/// Passes on what a sandbox reports, to its end.
pub(super) struct Pump {
    pub(super) host: Arc<Inner>,
    pub(super) sandbox: SandboxRef,
    pub(super) reporter: Reporter,
    pub(super) questions: mpsc::Receiver<Question>,
    pub(super) understanding: Understanding,
    /// Somebody has found that the connection is of no use any more, though it is open.
    pub(super) lost: Arc<Notify>,
    /// Since when nothing has come of connecting.
    pub(super) in_vain_since: Option<Instant>,
}

impl Pump {
    /// Talks to a live sandbox. When it dies, tells what it left behind, and then its end.
    pub(super) async fn run(mut self, mut connection: Connection) {
        loop {
            let before = self.understanding.last();
            let (end, came) = tokio::select! {
                ended = connection.run(
                    &mut self.understanding,
                    &self.reporter,
                    &mut self.questions,
                ) => ended,
                () = self.lost.notified() => (End::Closed, Came::Nothing),
            };
            if came == Came::Something || self.understanding.last() > before {
                self.in_vain_since = None;
            }
            match end {
                End::Unwanted => return,
                // By ourselves, if by nobody later: then whoever did it goes on from here.
                End::Replaced(by) if by.owner <= self.host.owner().get() => return,
                End::Replaced(_) => return self.let_go(),
                End::Misbehaved(how) => return self.give_up(how, LastWords::Distrusted).await,
                End::Closed => match self.recover().await {
                    Some(again) => connection = again,
                    None => return,
                },
            }
        }
    }

    /// After a connection closed: the sandbox is dead, or it answers again, or it has to go.
    async fn recover(&mut self) -> Option<Connection> {
        self.understanding.reconnected();
        let since = *self.in_vain_since.get_or_insert_with(Instant::now);
        while since.elapsed() < RECOVERY {
            match self.host.files.life(self.sandbox) {
                Ok(Life::Dead | Life::Unborn) => {
                    let death = self.host.death_of(self.sandbox).await.unwrap_or(Death::Unseen);
                    self.bequeath(death).await;
                    return None;
                }
                Ok(Life::Alive(_)) => {
                    match self.host.connect(self.sandbox, self.understanding.last()).await {
                        Ok(connection) => return Some(connection),
                        Err(ConnectError::Superseded) => {
                            self.let_go();
                            return None;
                        }
                        Err(ConnectError::Unreachable(_) | ConnectError::Foreign(_)) => {}
                    }
                }
                Err(_) => {} // Looked at again.
            }
            tokio::time::sleep(PAUSE).await;
        }
        let how = "it closed its connection and was of no use again".to_owned();
        self.give_up(how, LastWords::Told).await;
        None
    }

    /// A later server has the sandbox: not even its requests to the model are ours any more.
    fn let_go(&self) {
        tracing::warn!(
            session.id = %self.sandbox.session,
            "another server listens to the sandbox of session {}", self.sandbox.session,
        );
        self.host.forget(self.sandbox);
    }

    /// Tells everything that a dead sandbox has left behind, and that it is dead.
    pub(super) async fn bequeath(&mut self, death: Death) {
        let spool = self.host.files.spool(self.sandbox);
        if let Ok(Some(mut leftover)) = Leftover::open(&spool) {
            loop {
                let mut understanding = self.understanding.clone();
                // A disk may be slow, and what stands there may be long.
                let read = tokio::task::spawn_blocking(move || {
                    let reports = leftover.next(&mut understanding);
                    (reports, leftover, understanding)
                });
                let Ok((Some(reports), rest, understanding)) = read.await else { break };
                (leftover, self.understanding) = (rest, understanding);
                if self.reporter.reported(reports).await.is_err() {
                    return;
                }
            }
        }
        self.say_how_much_was_skipped();
        self.host.forget(self.sandbox);
        let _engine_gone = self.reporter.gone(death).await;
        self.host.remove_remains(self.sandbox).await;
    }

    /// Ends a sandbox that cannot be believed, or does not answer.
    async fn give_up(&mut self, how: String, last_words: LastWords) {
        tracing::warn!(
            session.id = %self.sandbox.session,
            sandbox.incarnation = %self.sandbox.incarnation,
            "the sandbox of session {} is stopped: {how}", self.sandbox.session,
        );
        if let Err(error) = self.host.kill(self.sandbox).await {
            tracing::warn!(
                session.id = %self.sandbox.session,
                error = &error as &dyn std::error::Error,
                "session {}: {error}", self.sandbox.session,
            );
        }
        let death = Death::Misbehaved(how);
        match last_words {
            LastWords::Told => self.bequeath(death).await,
            LastWords::Distrusted => {
                self.say_how_much_was_skipped();
                self.host.forget(self.sandbox);
                let _engine_gone = self.reporter.gone(death).await;
            }
        }
    }

    fn say_how_much_was_skipped(&self) {
        let skipped = self.understanding.skipped();
        if skipped > 0 {
            tracing::warn!(
                session.id = %self.sandbox.session,
                reports.skipped = skipped,
                "session {}: {skipped} reports were not understood", self.sandbox.session,
            );
        }
    }
}

/// What becomes of what a sandbox had spooled when it is ended.
#[derive(Clone, Copy, Debug)]
enum LastWords {
    /// It was only stuck.
    Told,
    /// Nothing it says is believed any more.
    Distrusted,
}
