//! Bringing a session back, and waiting until it is.

use std::sync::Arc;

use ash_core::entry::Entry;
use ash_core::failure::Failure;
use ash_core::id::{SessionId, TenantId};
use ash_core::number::Seq;
use ash_core::refusal::Refusal;
use ash_core::resume::Receipt;
use ash_core::session::{Request, Sandbox, Session, State, Status};
use ash_store::{StoredSession, StoredSnapshot};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::follow::{FollowFrom, Followed};
use crate::host::HostError;
use crate::registry::{Decided, Want};

/// A session that is back.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// As it stands now.
    pub session: Arc<StoredSession>,
    /// What it came back to; nothing, if it had not been away.
    pub receipt: Option<Receipt>,
}

/// Whether a session may come back to an empty workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequireState {
    /// Rather than not at all.
    No,
    /// Rather not.
    Yes,
}

impl Engine {
    /// Brings a session back, and waits until it is. Whoever asks meanwhile gets the same receipt.
    pub async fn resume(
        &self,
        tenant: &TenantId,
        session: SessionId,
        require_state: RequireState,
    ) -> Result<Resumed, EngineError> {
        self.accepts_work()?;
        let stored = self.shared.store.session(tenant, session).await?;
        if require_state == RequireState::Yes
            && needs_a_workspace(&stored.session)
            && !self.has_state(tenant, &stored.session).await?
        {
            return Err(EngineError::NoSavedState);
        }
        if needs_a_workspace(&stored.session) {
            self.fetch_files(tenant, &stored.session).await?;
        }
        let want = || Want::Decide { request: Request::Resume, receipt: None };
        let Decided { session: decided, before } =
            self.registry.request_with_room(session, want).await?;
        let receipt =
            if is_back(&decided) { None } else { self.back(tenant, session, before).await? };
        Ok(Resumed { session: self.shared.store.session(tenant, session).await?, receipt })
    }

    /// Whether there is anything of a session that a new sandbox could begin with.
    async fn has_state(&self, tenant: &TenantId, session: &Session) -> Result<bool, EngineError> {
        let unavailable = |error: HostError| EngineError::Unavailable(error.into());
        if self.shared.host.has_state(session.id()).await.map_err(unavailable)? {
            return Ok(true);
        }
        let Some(last) = session.persistence().last() else { return Ok(false) };
        self.shared.host.has_snapshot(tenant, last.captured.id).await.map_err(unavailable)
    }

    /// Sees to it that what a session would be started with is on this machine: what is far away may take longer than
    /// a start may. If it cannot be reached, the session stays as it is.
    async fn fetch_files(&self, tenant: &TenantId, session: &Session) -> Result<(), EngineError> {
        let unavailable = |error: HostError| EngineError::Unavailable(error.into());
        let Some(last) = session.persistence().last() else { return Ok(()) };
        if self.shared.cloud.is_none()
            || self.shared.host.has_state(session.id()).await.map_err(unavailable)?
        {
            return Ok(());
        }
        self.shared.host.fetch_snapshot(tenant, last.captured.id).await?;
        Ok(())
    }

    /// A session's snapshots, newest first.
    pub async fn snapshots(
        &self,
        tenant: &TenantId,
        session: SessionId,
        limit: u32,
    ) -> Result<Vec<StoredSnapshot>, EngineError> {
        self.shared.store.session(tenant, session).await?;
        Ok(self.shared.store.snapshots(session, limit).await?)
    }

    /// Waits until a session that is on its way back after `before` is there, or will not be.
    pub(crate) async fn back(
        &self,
        tenant: &TenantId,
        session: SessionId,
        before: Seq,
    ) -> Result<Option<Receipt>, EngineError> {
        let mut follower = self.follow(tenant, session, FollowFrom::After(before)).await?;
        loop {
            let entries = match follower.next().await? {
                Followed::Entries(entries) => entries,
                // What was read before the log's end was known cannot lie beyond it.
                Followed::Gap(_) => continue,
                Followed::Closing => return Err(EngineError::Draining),
            };
            if let Some(verdict) = entries.into_iter().find_map(|entry| verdict(entry.entry)) {
                return verdict;
            }
        }
    }
}

/// Whether a resume has nothing to do and nothing to wait for.
fn is_back(session: &Session) -> bool {
    // One that was thawing before receipts were written has said already that it is back.
    let thaws = matches!(session.sandbox(), Sandbox::Thawing { since, .. } if since.is_some());
    *session.state() == State::Active && !thaws
}

/// Whether a resume would start another sandbox.
fn needs_a_workspace(session: &Session) -> bool {
    let rests = match session.state() {
        State::Paused { .. } | State::Stopped | State::Error { .. } => true,
        State::Starting { .. } | State::Active | State::Ended => false,
    };
    rests && matches!(session.sandbox(), Sandbox::None | Sandbox::Stopping { .. })
}

/// What an entry says about a session that somebody waits for.
fn verdict(entry: Entry) -> Option<Result<Option<Receipt>, EngineError>> {
    let refused = |refusal: Refusal| Some(Err(refusal.into()));
    match entry {
        Entry::SessionResumed { receipt, .. } => Some(Ok(receipt)),
        Entry::SessionActive { .. } => Some(Ok(None)),
        Entry::SessionFailed { failure } => Some(Err(failure.into())),
        Entry::SessionPaused { .. } => refused(Refusal::NotActive(Status::Paused)),
        Entry::SessionStopped => refused(Refusal::NotActive(Status::Stopped)),
        Entry::SessionEnded { .. } => refused(Refusal::Ended),
        Entry::SessionCreated
        | Entry::SessionWaking
        | Entry::ContextLost { .. }
        | Entry::SessionForked { .. }
        | Entry::SessionImported { .. }
        | Entry::Rewound { .. }
        | Entry::Prompt { .. }
        | Entry::RunStarted { .. }
        | Entry::Phase { .. }
        | Entry::RunRetry { .. }
        | Entry::RunCancelling { .. }
        | Entry::TextDelta { .. }
        | Entry::ThinkingDelta { .. }
        | Entry::Message { .. }
        | Entry::Output { .. }
        | Entry::ReportTooLarge { .. }
        | Entry::RunError { .. }
        | Entry::RunEnded { .. }
        | Entry::ReportsLost { .. } => None,
    }
}

impl From<Failure> for EngineError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
