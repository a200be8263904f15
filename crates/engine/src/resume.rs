//! Bringing a session back, and waiting until it is.

use std::sync::Arc;
use std::time::Duration;

use ash_core::entry::Entry;
use ash_core::failure::Failure;
use ash_core::id::{SessionId, TenantId};
use ash_core::number::Seq;
use ash_core::refusal::Refusal;
use ash_core::resume::{IfLost, Receipt};
use ash_core::session::{Request, Resuming, Sandbox, Session, State, Status};
use ash_store::{StoredSession, StoredSnapshot};

use crate::driver::past::LogOf;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::follow::{FollowFrom, Followed};
use crate::host::{NotReady, Ready, SandboxRef};
use crate::registry::{Decided, Want};

/// How long the end of a sandbox that is dead may take to be told: what it has left is heard before that.
const LONGEST_END: Duration = Duration::from_secs(10);

/// A session that is back.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// As it stands now.
    pub session: Arc<StoredSession>,
    /// What it came back to; nothing, if it had not been away.
    pub receipt: Option<Receipt>,
}

/// Whether a session may come back to a fresh workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequireState {
    /// Rather than not at all; but not if its files are said to be in the cloud.
    No,
    /// Rather not.
    Yes,
    /// Rather than wait for the cloud, or because what is there is damaged.
    Never,
}

impl RequireState {
    const fn if_lost(self) -> IfLost {
        match self {
            Self::No => IfLost::BeginAnew,
            Self::Yes => IfLost::Refuse,
            Self::Never => IfLost::GiveUp,
        }
    }
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
        let stored = self.if_it_lives(tenant, stored).await?;
        let (if_lost, asked_at) = (require_state.if_lost(), Some(self.shared.now()));
        self.fetch_files(&stored, if_lost).await?;
        let request = Request::Resume(Resuming { if_lost, asked_at });
        let want = || Want::Decide { request: request.clone(), receipt: None };
        let Decided { session: decided, before } =
            self.registry.request_with_room(session, want).await?;
        let receipt =
            if is_back(&decided) { None } else { self.back(tenant, session, before).await? };
        Ok(Resumed { session: self.shared.store.session(tenant, session).await?, receipt })
    }

    /// A session as it stands. Of one whose sandbox has just died that has to be heard first: it is active no more.
    async fn if_it_lives(
        &self,
        tenant: &TenantId,
        stored: Arc<StoredSession>,
    ) -> Result<Arc<StoredSession>, EngineError> {
        let (id, incarnation) = (stored.record.id, stored.session.incarnation());
        let sandbox = SandboxRef { session: id, incarnation };
        if !is_back(&stored.session) || !self.shared.host.is_over(sandbox).await {
            return Ok(stored);
        }
        let mut follower =
            self.follow(tenant, id, FollowFrom::After(stored.session.last_seq())).await?;
        let heard = async {
            loop {
                if let Followed::Closing = follower.next().await? {
                    return Err(EngineError::Draining);
                }
                let stored = self.shared.store.session(tenant, id).await?;
                if !is_back(&stored.session) || stored.session.incarnation() != incarnation {
                    return Ok(stored);
                }
            }
        };
        tokio::time::timeout(LONGEST_END, heard).await.unwrap_or(Ok(stored))
    }

    /// Sees to it that what a session at rest would be started with is on this machine, before it is woken: what is
    /// far away may take longer than a start may. If it cannot be had, the session stays as it is.
    pub(crate) async fn fetch_files(
        &self,
        stored: &StoredSession,
        if_lost: IfLost,
    ) -> Result<(), EngineError> {
        if !needs_a_workspace(&stored.session) {
            return Ok(());
        }
        let (host, record) = (&self.shared.host, &stored.record);
        let past = LogOf::new(&*self.shared.store, record);
        let ready = host.fetch_files(record.id, &record.tenant, &past, if_lost).await;
        match ready {
            Ok(Ready::Nothing) if if_lost == IfLost::Refuse => Err(EngineError::NoSavedState),
            Ok(Ready::InPlace | Ready::Stored | Ready::Nothing) => Ok(()),
            Err(NotReady::Failed(failure)) => Err(failure.into()),
            Err(NotReady::Host(error)) => Err(EngineError::Unavailable(error.into())),
        }
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
        | Entry::Aside { .. }
        | Entry::PermissionRequest { .. }
        | Entry::PermissionDecided { .. }
        | Entry::PermissionAnswered { .. }
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
