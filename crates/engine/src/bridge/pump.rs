//! Keeps the conversation with one sandbox going, whatever becomes of the connection.

use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::Death;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connection::{Connection, End, Question};
use super::files::Life;
use super::leftover::Leftover;
use super::plain::Inner;
use super::report::Understanding;
use crate::host::{Reporter, SandboxRef};

/// How long a bridge that closed its connection may take to die or to answer again.
const RECOVERY: Duration = Duration::from_secs(10);

/// How long to wait in between.
const PAUSE: Duration = Duration::from_millis(10);

/// Passes on what a sandbox reports, to its end.
pub(super) struct Pump {
    pub(super) host: Arc<Inner>,
    pub(super) sandbox: SandboxRef,
    pub(super) reporter: Reporter,
    pub(super) questions: mpsc::Receiver<Question>,
    pub(super) understanding: Understanding,
}

impl Pump {
    /// Talks to a live sandbox. When it dies, tells what it left behind, and then its end.
    pub(super) async fn run(mut self, mut connection: Connection) {
        loop {
            let end =
                connection.run(&mut self.understanding, &self.reporter, &mut self.questions).await;
            match end {
                End::Unwanted | End::Replaced => return,
                End::Misbehaved(how) => return self.give_up(how).await,
                End::Closed => match self.recover().await {
                    Some(again) => connection = again,
                    None => return,
                },
            }
        }
    }

    /// After a connection closed: the sandbox is dead, or it answers again, or it has to go.
    async fn recover(&mut self) -> Option<Connection> {
        let deadline = Instant::now() + RECOVERY;
        self.understanding.reconnected();
        while Instant::now() < deadline {
            match self.host.files.life(self.sandbox) {
                Ok(Life::Dead | Life::Unborn) => {
                    let death = self.host.death_of(self.sandbox).await.unwrap_or(Death::Unseen);
                    self.bequeath(death).await;
                    return None;
                }
                Ok(Life::Alive(_)) => {
                    if let Ok(connection) =
                        self.host.connect(self.sandbox, self.understanding.last()).await
                    {
                        return Some(connection);
                    }
                }
                Err(_) => {} // Looked at again.
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.give_up("it closed its connection and did not answer again".to_owned()).await;
        None
    }

    /// Tells everything that a dead sandbox has left behind, and that it is dead.
    pub(super) async fn bequeath(&mut self, death: Death) {
        let spool = self.host.files.spool(self.sandbox);
        if let Ok(Some(mut leftover)) = Leftover::open(&spool) {
            while let Some(reports) = leftover.next(&mut self.understanding) {
                if self.reporter.reported(reports).await.is_err() {
                    return;
                }
            }
        }
        self.say_how_much_was_skipped();
        self.host.forget(self.sandbox);
        let _engine_gone = self.reporter.gone(death).await;
    }

    /// Ends a sandbox that cannot be believed.
    async fn give_up(&mut self, how: String) {
        tracing::warn!(
            session.id = %self.sandbox.session,
            sandbox.incarnation = %self.sandbox.incarnation,
            "the sandbox of session {} is stopped: {how}", self.sandbox.session,
        );
        self.say_how_much_was_skipped();
        if let Err(error) = self.host.kill(self.sandbox).await {
            tracing::warn!(
                session.id = %self.sandbox.session,
                error = &error as &dyn std::error::Error,
                "session {}: {error}", self.sandbox.session,
            );
        }
        self.host.forget(self.sandbox);
        let _engine_gone = self.reporter.gone(Death::Misbehaved(how)).await;
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
