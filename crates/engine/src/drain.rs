//! The end of a server, in good order.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ash_core::id::SessionId;
use ash_core::session::PauseReason;
use tokio::task::JoinSet;

use crate::engine::Engine;
use crate::error::EngineError;

/// How many sandboxes are given up at the same time: enough to share commits.
const GIVEN_UP_AT_ONCE: usize = 64;

/// How many rows are read at once.
const PAGE: u32 = 1_000;

impl Engine {
    /// Prepares for the end of the process: takes no new work, sends followers away, gives up
    /// sandboxes that do nothing, newest first, waits a moment until the cloud has what they left, and
    /// leaves running turns to their bridges. Takes as long as `patience` at most; whatever is not done then is done by the next server.
    pub async fn drain(&self, patience: Duration) {
        self.draining.store(true, Ordering::Release);
        self.shared.bus.close();
        self.shared.file_work.stop();
        let orderly = async {
            if let Err(error) = self.give_up_idle(patience).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "not every idle sandbox could be given up",
                );
            }
            self.shared.tasks.close().await;
        };
        if tokio::time::timeout(patience, orderly).await.is_err() {
            tracing::warn!("the engine did not come to rest in time and is cut off");
        }
        self.abort().await;
    }

    async fn give_up_idle(&self, patience: Duration) -> Result<(), EngineError> {
        let mut waiting: BTreeSet<SessionId> = self.registry.driven().into_iter().collect();
        let mut after = None;
        loop {
            let page = self.shared.store.sandboxed_sessions(after, PAGE).await?;
            waiting.extend(page.iter().map(|(session, _)| *session));
            match page.last() {
                Some((last, _)) if page.len() == PAGE as usize => after = Some(*last),
                Some(_) | None => break,
            }
        }
        let mut giving_up = JoinSet::new();
        let mut given_up = Vec::new();
        for session in waiting.into_iter().rev() {
            if giving_up.len() >= GIVEN_UP_AT_ONCE {
                given_up.extend(giving_up.join_next().await.and_then(Result::ok).flatten());
            }
            giving_up.spawn(self.clone().give_up(session));
        }
        while let Some(done) = giving_up.join_next().await {
            given_up.extend(done.ok().flatten());
        }
        if let Some(cloud) = self.cloud() {
            // The rest is for what has to be closed.
            cloud.wait_for_all(&self.shared, &given_up, patience / 2).await;
        }
        Ok(())
    }

    /// Says which session it was, if it has no sandbox any more.
    async fn give_up(self, session: SessionId) -> Option<SessionId> {
        match self.evict(session, PauseReason::ServerRestart).await {
            // A driver retires when nothing is owed: when the sandbox is gone.
            Ok(_) => {
                if let Some(retired) = self.registry.retirement(session) {
                    retired.await;
                }
                return Some(session);
            }
            // A run goes on: it is left to its bridge.
            Err(EngineError::Refused(_)) => {}
            // Everything was told to end already: the second time, nobody is asked any more.
            Err(EngineError::Draining) => {
                tracing::debug!(session.id = %session, "session {session} is not asked any more");
            }
            Err(error) => tracing::warn!(
                session.id = %session,
                error = &error as &dyn std::error::Error,
                "session {session} could not be put to rest",
            ),
        }
        None
    }
}
