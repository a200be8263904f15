//! Putting a session to rest, and waiting until it is.

use std::time::Duration;

use ash_core::id::{RunId, SessionId, TenantId};
use ash_core::session::{IfRunning, Request, Session, Status};

use crate::engine::Engine;
use crate::error::EngineError;

/// How long somebody who pauses a session waits for what is captured of it, and how often it is looked whether it is: not
/// every capture is an entry of the log.
const CAPTURE_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How much longer than an agent may take to end its run somebody waits for the pause after it.
const MARGIN: Duration = Duration::from_secs(5);

impl Engine {
    /// Puts a session to rest, sandbox and all, and waits a little for what is captured of it. If its run is to end first,
    /// waits until it has, and for no longer than it may take. Whoever resumes the session meanwhile calls the pause off: it is returned as it stands.
    pub async fn pause(
        &self,
        tenant: &TenantId,
        session: SessionId,
        if_running: IfRunning,
    ) -> Result<Session, EngineError> {
        let mut paused = self.ask(tenant, session, Request::Pause { if_running }).await?;
        if paused.status() == Status::Active
            && let Some(run) = paused.current_run().map(|run| run.id)
        {
            let patience = self.shared.policy.interrupt_grace.saturating_add(MARGIN);
            let ended = tokio::time::timeout(patience, self.ended_run(tenant, session, run)).await;
            ended.unwrap_or(Ok(()))?;
            paused = self.shared.store.session(tenant, session).await?.session.clone();
        }
        if let Some(cloud) = self.cloud() {
            cloud.wait_for(&self.shared, tenant, session).await;
        }
        match paused.status() {
            Status::Paused => self.captured_at_rest(tenant, session, paused).await,
            Status::Starting | Status::Active | Status::Stopped | Status::Error | Status::Ended => {
                Ok(paused)
            }
        }
    }

    /// Destroys a session's sandbox, and waits a little for what is captured of it.
    pub async fn stop(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<Session, EngineError> {
        let stopped = self.rest(tenant, session, Request::Stop).await?;
        self.captured_at_rest(tenant, session, stopped).await
    }

    /// A session that was put to rest, once everything of it is captured, or cannot be, or took too long.
    pub(crate) async fn captured_at_rest(
        &self,
        tenant: &TenantId,
        session: SessionId,
        rests: Session,
    ) -> Result<Session, EngineError> {
        let captured = self.until_captured(tenant, session, rests.status());
        tokio::time::timeout(CAPTURE_PATIENCE, captured).await.unwrap_or(Ok(rests))
    }

    /// Waits until everything of a session that was put to rest is captured, or cannot be, or it is brought back.
    async fn until_captured(
        &self,
        tenant: &TenantId,
        session: SessionId,
        rests: Status,
    ) -> Result<Session, EngineError> {
        loop {
            let stored = self.shared.store.session(tenant, session).await?;
            let now = &stored.session;
            let is_over = now.persistence().failed().is_some() || !now.is_yet_to_be_captured();
            if is_over || now.status() != rests || self.accepts_work().is_err() {
                return Ok(now.clone());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until a session works on another run than this one, or on none.
    async fn ended_run(
        &self,
        tenant: &TenantId,
        session: SessionId,
        run: RunId,
    ) -> Result<(), EngineError> {
        let mut news = self.shared.bus.subscribe(session);
        loop {
            let closing = news.head().closing;
            let stored = self.shared.store.session(tenant, session).await?;
            let current = stored.session.current_run().map(|run| run.id);
            if current != Some(run) || stored.session.status() != Status::Active {
                return Ok(());
            }
            if closing {
                return Err(EngineError::Draining);
            }
            // The end of a run is an entry of the log.
            news.changed().await;
        }
    }
}
