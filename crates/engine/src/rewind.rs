//! Going back to an earlier point of a session, and comparing two of them.

use std::sync::Arc;
use std::time::Duration;

use ash_core::entry::Entry;
use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::number::Seq;
use ash_core::refusal::Refusal;
use ash_core::session::{Request, Sandbox, Status};
use ash_core::snapshot::Snapshot;
use ash_store::StoredSession;

use crate::branch::previous;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::fork::Point;
use crate::host::{Comparison, Detail};
use crate::registry::{Decided, Want};

/// How long somebody waits for a rewind. It goes on without them.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// It is looked this often whether it is over: what does not happen is no entry of the log.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How many snapshots are looked through.
const MANY: u32 = 100_000;

/// Whether a rewind does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effective {
    /// It does.
    Yes,
    /// It only says what would change.
    No,
}

/// A session that went back, or would.
#[derive(Clone, Debug)]
pub struct Rewound {
    /// As it stands now.
    pub session: Arc<StoredSession>,
    /// What became of its files, or would.
    pub changes: Comparison,
    /// Of how many files it cannot be said that they are what they were at that point.
    pub unverified: u64,
}

/// What a snapshot is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// The one that it followed on its branch; nothing, if it is the first.
    Previous,
    /// Nothing.
    Empty,
    /// The last one of the session.
    Current,
    /// This one.
    Snapshot(SnapshotId),
}

/// Two snapshots, compared.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The one.
    pub before: Option<Snapshot>,
    /// The other.
    pub after: Snapshot,
    /// How the one became the other.
    pub changes: Comparison,
}

/// How a rewind ended.
struct Over {
    done: Result<(), EngineError>,
    /// Whether the session is on its way back to where it was.
    comes_back: bool,
    /// Since which entry it was away.
    since: Seq,
}

impl Engine {
    /// Puts the conversation and the files of a session back to a point of its history, and waits until that is
    /// done. What is there is captured first. A session that was active is started again, whatever became of it; if that
    /// fails, it was rewound all the same.
    pub async fn rewind(
        &self,
        tenant: &TenantId,
        session: SessionId,
        to: Point,
        effective: Effective,
    ) -> Result<Rewound, EngineError> {
        self.accepts_work()?;
        let before = self.settled(tenant, session).await?;
        if before.session.status() == Status::Ended {
            return Err(Refusal::Ended.into());
        }
        if before.session.current_run().is_some() || before.session.queued_runs().len() > 0 {
            return Err(Refusal::RunInProgress.into());
        }
        let to = self.snapshot_at(tenant, session, to).await?;
        let (id, unverified) = (to.captured.id, to.unverified());
        let before = self.shared.store.session(tenant, session).await?;
        let present = before.session.persistence().last().map(|last| last.captured.id);
        if effective == Effective::No {
            let changes = self.changes(tenant, present, Some(id), Detail::Counts).await?;
            return Ok(Rewound { session: before, changes, unverified });
        }
        // What is far away may be out of reach, or take long: nothing is begun before it is here.
        if self.shared.cloud.is_some() {
            self.shared.host.fetch_snapshot(tenant, id).await?;
        }
        let known = self.shared.store.snapshots(session, 1).await?;
        let want = Want::Decide { request: Request::Rewind { to: Box::new(to) }, receipt: None };
        let Decided { before: seq, .. } = self.registry.request(session, want).await?;
        let over = self.over(tenant, session, seq).await?;
        // What was there may have been captured only now.
        let newest = self.shared.store.snapshots(session, 1).await?;
        let is_new = newest != known;
        let present = match newest.first() {
            Some(newest) if is_new => Some(newest.snapshot.captured.id),
            Some(_) | None => present,
        };
        if over.comes_back {
            let _it_says_so_itself = self.back(tenant, session, over.since).await;
        }
        over.done?;
        let changes = self.changes(tenant, present, Some(id), Detail::Counts).await?;
        let session = self.shared.store.session(tenant, session).await?;
        Ok(Rewound { session, changes, unverified })
    }

    /// Waits until a rewind that was asked for after `before` is over, and says how it ended.
    async fn over(
        &self,
        tenant: &TenantId,
        session: SessionId,
        before: Seq,
    ) -> Result<Over, EngineError> {
        let begun = tokio::time::Instant::now();
        let mut news = self.shared.bus.subscribe(session);
        let stored = loop {
            let closing = news.head().closing;
            let stored = self.shared.store.session(tenant, session).await?;
            if stored.session.rewinding().is_none() {
                break stored;
            }
            if closing {
                return Err(EngineError::Draining);
            }
            if begun.elapsed() > PATIENCE {
                return Err(EngineError::Unavailable("the session is still being rewound".into()));
            }
            let _news_or_not = tokio::time::timeout(LOOK_AGAIN, news.changed()).await;
        };
        let status = stored.session.status();
        let why = match (stored.session.sandbox(), stored.session.persistence().failed()) {
            (Sandbox::Stopping { .. }, _) => "its sandbox does not stop".to_owned(),
            (_, Some(failed)) => failed.message.clone(),
            (_, None) => "the snapshot cannot be read".to_owned(),
        };
        let mut over = Over {
            done: Err(EngineError::NotRewound(why)),
            comes_back: status == Status::Starting,
            since: before,
        };
        if status == Status::Ended {
            over.done = Err(Refusal::Ended.into());
        }
        let mut after = before;
        loop {
            let page = self.shared.store.events_after(session, after, 1_000).await?;
            let Some(last) = page.last() else { return Ok(over) };
            for logged in &page {
                if matches!(logged.entry, Entry::Rewound { .. }) {
                    over.done = Ok(());
                }
                // For the rewind.
                let is_paused = matches!(logged.entry, Entry::SessionPaused { .. });
                if is_paused && over.since == before {
                    over.since = logged.seq;
                }
            }
            after = last.seq;
        }
    }

    /// How the files of a snapshot differ from those of another one: all of them, or what lies at or beneath a path.
    pub async fn compare(
        &self,
        tenant: &TenantId,
        session: SessionId,
        snapshot: SnapshotId,
        against: Against,
        beneath: Option<String>,
    ) -> Result<Compared, EngineError> {
        let stored = self.shared.store.session(tenant, session).await?;
        let after = self.shared.store.snapshot(session, snapshot).await?.snapshot;
        let before = match against {
            Against::Empty => None,
            Against::Snapshot(id) => Some(self.shared.store.snapshot(session, id).await?.snapshot),
            Against::Current => stored.session.persistence().last().cloned(),
            Against::Previous => {
                let all = self.shared.store.snapshots(session, MANY).await?;
                let mut older = all.into_iter().map(|kept| kept.snapshot);
                older.by_ref().find(|kept| kept.captured.id == snapshot);
                previous(stored.session.lineage(), &after, older)
            }
        };
        let was = before.as_ref().map(|before| before.captured.id);
        let detail = Detail::Files { beneath };
        let changes = self.changes(tenant, was, Some(snapshot), detail).await?;
        Ok(Compared { before, after, changes })
    }

    async fn changes(
        &self,
        tenant: &TenantId,
        before: Option<SnapshotId>,
        after: Option<SnapshotId>,
        detail: Detail,
    ) -> Result<Comparison, EngineError> {
        let compared = self.shared.host.compare(tenant, before, after, detail).await;
        let compared = compared.map_err(EngineError::of_snapshots)?;
        compared.ok_or(EngineError::SnapshotExpired)
    }
}
