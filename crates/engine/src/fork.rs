//! A session that begins where another one was.
//!
//! Which snapshot belongs to a turn: the newest of those that were made while the conversation was at the end of that
//! turn, and of files that could be relied on, if there is one. One that was made in the middle of the run can be named by its id.

use std::sync::Arc;
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::number::{Seq, Turn};
use ash_core::refusal::Refusal;
use ash_core::session::{History, Origin, Request, Session};
use ash_core::snapshot::Snapshot;
use ash_store::{ImportedSession, Inherited, NewSession, SessionRecord, StoreError, StoredSession};

use crate::branch::Branch;
use crate::cloud::as_it_is;
use crate::engine::{Created, Engine, Idempotency};
use crate::error::EngineError;
use crate::registry::Want;

/// How many entries of a log are read at once.
const PAGE: u32 = 1_000;

/// How many snapshots and runs of a session are looked through.
const MANY: u32 = 100_000;

/// How often a fork is tried whose parent loses old snapshots meanwhile.
const ATTEMPTS: u32 = 3;

/// How long somebody waits for a capture that is under way.
const PATIENCE: Duration = Duration::from_secs(30);

/// It is looked this often whether it is over: not every capture is an entry of the log.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A point of a session's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// As it is now.
    Latest,
    /// When this snapshot was made.
    Snapshot(SnapshotId),
    /// At the end of this turn.
    Turn(Turn),
}

impl Engine {
    /// Makes a session that begins where another one was: with its log and its files up to that point. It is
    /// paused. The other one is not touched, and may go on meanwhile.
    pub async fn fork(
        &self,
        tenant: &TenantId,
        parent: SessionId,
        at: Point,
        idempotency: Option<Idempotency>,
    ) -> Result<Arc<StoredSession>, EngineError> {
        let mut attempt = 1;
        loop {
            match self.try_to_fork(tenant, parent, at, idempotency.clone()).await {
                Err(EngineError::NotFound("snapshot")) if attempt < ATTEMPTS => attempt += 1,
                made => return made,
            }
        }
    }

    async fn try_to_fork(
        &self,
        tenant: &TenantId,
        parent: SessionId,
        at: Point,
        idempotency: Option<Idempotency>,
    ) -> Result<Arc<StoredSession>, EngineError> {
        self.accepts_work()?;
        let store = &self.shared.store;
        if let Some(Created { session }) = self.earlier(idempotency.as_ref()).await? {
            return Ok(store.session(tenant, session).await?);
        }
        let snapshot = self.snapshot_at(tenant, parent, at).await?;
        let of = store.session(tenant, parent).await?;
        let (through, captured_at) = (snapshot.seq, snapshot.at);
        let history = self.history(parent, through).await?;
        let mut snapshots = store.snapshots(parent, MANY).await?;
        snapshots.retain(|kept| kept.snapshot.seq <= through);
        let id = self.shared.ids.make(self.shared.now(), SessionId::from_parts);
        let ctx = self.shared.context();
        let (origin, epoch) = (Origin::Fork(parent), of.session.log_epoch().next());
        // Of a session from before this was written down it is told by its ages.
        let since_made = || of.session.expires_at().map(|at| at.since(of.record.created_at));
        let lives = of.session.time_to_live().or_else(since_made);
        let (session, decision) =
            Session::with_history(&ctx, id, origin, epoch, history, Some(snapshot));
        let session =
            session.with_time_to_live(&ctx, lives).with_idle_timeout(of.session.idle_timeout());
        let record =
            SessionRecord { id, parent: Some(parent), created_at: ctx.now, ..of.record.clone() };
        let receipt = match &idempotency {
            Some(idempotency) => Some(self.receipt(idempotency, &Created { session: id })?),
            None => None,
        };
        let missing = snapshots.iter().filter(|kept| !kept.places.cloud);
        let missing: Vec<_> = missing.map(|kept| kept.snapshot.captured.id).collect();
        let imported = ImportedSession {
            new: NewSession {
                record,
                due_at: session.next_deadline(ctx.policy),
                session,
                entries: decision.entries,
                owner: self.shared.owner,
                receipt,
            },
            inherited: Some(Inherited { session: parent, through }),
            runs: decision.runs,
            outbox: as_it_is(&self.shared, id, &missing),
            attachments: self.fork_attachments(tenant, parent, id, (through, captured_at)).await?,
            snapshots,
        };
        let forked = store.import_session(&imported).await;
        if forked.is_err() {
            self.drop_attachments(id).await;
        }
        match forked {
            Ok(_) => {
                if let Some(cloud) = self.cloud() {
                    cloud.want(id);
                }
                Ok(self.noted(store.session(tenant, id).await?))
            }
            // The same request was carried out between our look and our write.
            Err(StoreError::Exists("receipt")) => match self.earlier(idempotency.as_ref()).await? {
                Some(Created { session }) => Ok(store.session(tenant, session).await?),
                None => Err(EngineError::Exists("receipt")),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// A session that is new here and has no driver yet: where it stands is written down by whoever made it.
    pub(crate) fn noted(&self, made: Arc<StoredSession>) -> Arc<StoredSession> {
        self.shared.host.note(&made.record, &made.session);
        made
    }

    /// What the log of a session says up to an entry.
    async fn history(&self, session: SessionId, through: Seq) -> Result<History, EngineError> {
        let mut history = History::default();
        while history.last_seq() < through {
            let page = self.shared.store.events_after(session, history.last_seq(), PAGE).await?;
            if page.is_empty() {
                let error = StoreError::Conflict { session, expected: through };
                return Err(EngineError::Damaged(error.into()));
            }
            for logged in page.iter().take_while(|logged| logged.seq <= through) {
                history.read(logged).map_err(|error| EngineError::Damaged(error.into()))?;
            }
        }
        Ok(history)
    }

    /// The snapshot of a point of a session's history, which can be brought back.
    pub(crate) async fn snapshot_at(
        &self,
        tenant: &TenantId,
        session: SessionId,
        at: Point,
    ) -> Result<Snapshot, EngineError> {
        let stored = match at {
            Point::Latest => self.captured_now(tenant, session).await?,
            Point::Snapshot(_) => self.captured(tenant, session).await?,
            Point::Turn(turn) => self.captured_of(tenant, session, turn).await?,
        };
        let snapshot = match at {
            Point::Latest => {
                stored.session.persistence().last().cloned().ok_or(EngineError::NoSavedState)?
            }
            Point::Snapshot(id) => self.shared.store.snapshot(session, id).await?.snapshot,
            Point::Turn(turn) => self.snapshot_of(&stored.session, turn).await?,
        };
        let id = snapshot.captured.id;
        let found = self.shared.host.has_snapshot(tenant, id).await;
        match found.map_err(EngineError::of_snapshots)? {
            true => Ok(snapshot),
            false => Err(EngineError::SnapshotExpired),
        }
    }

    async fn snapshot_of(&self, session: &Session, turn: Turn) -> Result<Snapshot, EngineError> {
        if turn > session.lineage().last() {
            return Err(Refusal::NoSuchTurn.into());
        }
        if session.current_run().is_some_and(|run| run.turn == turn) {
            return Err(Refusal::RunInProgress.into());
        }
        let snapshots = self.shared.store.snapshots(session.id(), MANY).await?;
        let of_turn = || snapshots.iter().filter(|kept| kept.snapshot.is_of_end_of(turn));
        // One of files that may be torn is not what the turn left, if there is another one.
        let found = of_turn().find(|kept| !kept.snapshot.captured.unproven);
        let found = found.or_else(|| of_turn().next()).map(|kept| kept.snapshot.clone());
        found.ok_or(match turn {
            // Nothing is captured of a new session that nobody did anything with.
            Turn::ZERO => EngineError::NothingBefore,
            _ => EngineError::SnapshotExpired,
        })
    }

    /// A session of which everything is captured that is wanted now, at once and not in a moment. A run that goes on is not
    /// waited for, nor what cannot be captured.
    pub(crate) async fn captured(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<Arc<StoredSession>, EngineError> {
        let stored = self.shared.store.session(tenant, session).await?;
        let never = stored.session.persistence().last().is_none();
        if never && stored.session.current_run().is_none() || waits_for_a_capture(&stored.session) {
            self.capture_at_once(session).await?;
        }
        self.until_captured_of(tenant, session).await
    }

    /// The same of a session as it is now: what runs beside the conversation may have changed its files. Of one that is at
    /// a turn, what was begun to be captured is waited for: that is the latest there is.
    async fn captured_now(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<Arc<StoredSession>, EngineError> {
        let stored = self.shared.store.session(tenant, session).await?;
        if !stored.session.is_idle() {
            self.captured(tenant, session).await?;
            let number = stored.session.persistence().number();
            let is_on_its_way = |session: &Session| session.persistence().awaits(number);
            return self.while_it_is(tenant, session, is_on_its_way).await;
        }
        self.capture_at_once(session).await?;
        self.until_captured_of(tenant, session).await
    }

    async fn until_captured_of(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<Arc<StoredSession>, EngineError> {
        self.while_it_is(tenant, session, waits_for_a_capture).await
    }

    /// The same, and what a turn left is captured too, if that is under way: a later one may go on already.
    async fn captured_of(
        &self,
        tenant: &TenantId,
        session: SessionId,
        turn: Turn,
    ) -> Result<Arc<StoredSession>, EngineError> {
        self.captured(tenant, session).await?;
        let is_on_its_way = |session: &Session| session.persistence().is_capturing(turn);
        self.while_it_is(tenant, session, is_on_its_way).await
    }

    /// A session once something is over that is not waited for for ever.
    async fn while_it_is(
        &self,
        tenant: &TenantId,
        session: SessionId,
        under_way: impl Fn(&Session) -> bool,
    ) -> Result<Arc<StoredSession>, EngineError> {
        let begun = tokio::time::Instant::now();
        let mut stored = self.shared.store.session(tenant, session).await?;
        while under_way(&stored.session) && begun.elapsed() < PATIENCE {
            tokio::time::sleep(LOOK_AGAIN).await;
            stored = self.shared.store.session(tenant, session).await?;
        }
        Ok(stored)
    }

    async fn capture_at_once(&self, session: SessionId) -> Result<(), EngineError> {
        let want = Want::Decide { request: Request::Capture, receipt: None };
        match self.registry.request(session, want).await {
            Err(error @ (EngineError::Draining | EngineError::Unavailable(_))) => Err(error),
            // Whoever is over, or on the way, has nothing that could be captured now.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Which part of a session's log is its conversation.
    pub async fn branch(&self, session: &Session) -> Result<Branch, EngineError> {
        if Branch::is_everything(session) {
            return Ok(Branch::default());
        }
        let runs = self.shared.store.runs(session.id(), MANY).await?;
        Ok(Branch::of(session, &runs))
    }
}

fn waits_for_a_capture(session: &Session) -> bool {
    let persistence = session.persistence();
    session.current_run().is_none() && !persistence.is_settled() && persistence.failed().is_none()
}
