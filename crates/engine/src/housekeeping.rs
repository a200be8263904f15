//! What is done in the background so that the disk does not fill up: snapshots that nobody needs are forgotten and
//! collected, and where room gets short, files that a snapshot has too are removed before their time.
//!
//! One thing at a time, and each again and again: whatever was missed is found by the next round.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ash_core::id::{SessionId, TenantId};
use ash_core::pressure::{Candidate, order};
use ash_core::session::{FilesPlace, PauseReason, Request, Session, Status};
use ash_core::time::Timestamp;
use ash_store::StoreError;
use tokio::sync::{Notify, RwLock};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::host::{Collected, HostError};
use crate::registry::Want;
use crate::shared::Shared;

/// How long between two collections of what a tenant's snapshots need.
const COLLECT_EVERY: Duration = Duration::from_secs(60 * 60);

/// How long a snapshot that no session has is left alone: its row may be about to be written.
const UNKNOWN_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// How many rows are read at once, and how many snapshots are asked about.
const PAGE: u32 = 1_000;

/// What came of making room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// There is as much as there should be.
    Made,
    /// Something is being removed, and takes its time.
    Coming,
    /// There is too little, still.
    None,
}

/// For how long a session whose files leave is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whoever could not record something tries again sooner than this.
const TRIED_WITHIN: Duration = Duration::from_secs(30);

/// What goes on in the background.
#[derive(Default)]
pub(crate) struct Housekeeping {
    is_busy: AtomicBool,
    collected_at: Mutex<BTreeMap<TenantId, Timestamp>>,
    /// When it was last looked for what is not of one tenant.
    looked_at: Mutex<Option<Timestamp>>,
    /// When it was last looked for snapshots that the cloud has too.
    left_at: Mutex<Option<Timestamp>>,
    /// Whoever brings snapshots here before the session that has them is recorded shares it with others who do; a
    /// collection, which would take them for nobody's, has it alone.
    pub(crate) arrivals: RwLock<()>,
    /// Whether there is less room than there should be, and nothing more can be removed.
    is_short: AtomicBool,
    /// The disk was found to be full.
    full: Notify,
    /// When something could last not be recorded, if nothing was since.
    failed_at: Mutex<Option<Timestamp>>,
}

impl Housekeeping {
    /// Waits until the disk is found to be full.
    pub(crate) async fn full(&self) {
        self.full.notified().await;
    }
}

impl Shared {
    /// Something could not be recorded. If that is because the disk is full, room is made at once.
    pub(crate) fn could_not_record(&self, error: &StoreError) {
        self.note_failure(Some(self.now()));
        if matches!(error, StoreError::Full(_)) {
            self.host.use_reserve();
            self.housekeeping.full.notify_one();
        }
    }

    /// Something was recorded.
    pub(crate) fn recorded(&self) {
        self.note_failure(None);
    }

    fn note_failure(&self, at: Option<Timestamp>) {
        let failed = &self.housekeeping.failed_at;
        *failed.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

/// One round, until it is dropped.
struct Round(Arc<Shared>);

impl Round {
    /// Nothing, if one goes on.
    fn begin(shared: &Arc<Shared>) -> Option<Self> {
        let was_busy = shared.housekeeping.is_busy.swap(true, Ordering::AcqRel);
        (!was_busy).then(|| Self(Arc::clone(shared)))
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.0.housekeeping.is_busy.store(false, Ordering::Release);
    }
}

impl Engine {
    /// Begins a round in the background, unless one goes on.
    pub(crate) fn keep_house(&self) {
        let Some(round) = Round::begin(&self.shared) else { return };
        let engine = self.clone();
        self.shared.tasks.spawn(async move {
            let work = async {
                told(engine.make_space().await);
                told(engine.collect_due().await);
            };
            tokio::select! {
                biased;
                () = engine.shared.tasks.closing() => {}
                () = work => {}
            }
            drop(round);
        });
    }

    async fn collect_due(&self) -> Result<(), EngineError> {
        let now = self.shared.now();
        for tenant in self.shared.store.tenants().await? {
            let is_due = {
                let collected = &self.shared.housekeeping.collected_at;
                let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
                // The first time not at once: a server that starts has other things to do.
                let last = *collected.entry(tenant.id.clone()).or_insert(now);
                let is_due = last.plus(COLLECT_EVERY) <= now;
                if is_due {
                    collected.insert(tenant.id.clone(), now);
                }
                is_due
            };
            if is_due {
                self.collect(&tenant.id, UNKNOWN_FOR).await?;
                self.collect_in_cloud_if_due(&tenant.id, UNKNOWN_FOR).await?;
            }
        }
        if is_due_again(&self.shared.housekeeping.looked_at, now, COLLECT_EVERY) {
            self.collect_agents(UNKNOWN_FOR).await?;
        }
        let left_at = &self.shared.housekeeping.left_at;
        match self.shared.policy.local_snapshot_ttl {
            Some(ttl) if is_due_again(left_at, now, ttl.min(COLLECT_EVERY)) => {}
            Some(_) | None => return Ok(()),
        }
        self.leave_old_snapshots_to_cloud().await
    }

    /// Forgets those of a tenant's snapshots on this machine that no session has and that are older than that, and
    /// removes what no snapshot needs any more. The same is done every hour.
    pub async fn collect(
        &self,
        tenant: &TenantId,
        older_than: Duration,
    ) -> Result<Collected, EngineError> {
        let unavailable = |error: HostError| EngineError::Unavailable(error.into());
        let millis = i64::try_from(older_than.as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp::from_millis(self.shared.now().as_millis().saturating_sub(millis));
        let _alone = self.shared.housekeeping.arrivals.write().await;
        let ids = self.shared.host.snapshots(tenant).await.map_err(unavailable)?;
        if ids.is_empty() {
            return Ok(Collected::default());
        }
        let mut unneeded = Vec::new();
        for some in ids.chunks(PAGE as usize) {
            unneeded.extend(self.shared.store.unneeded_snapshots(tenant, some).await?);
        }
        let collected = self.shared.host.collect(tenant, unneeded, before).await;
        let collected = collected.map_err(unavailable)?;
        self.shared.counts.collected(collected);
        if collected != Collected::default() {
            tracing::info!(
                tenant.id = %tenant, snapshots = collected.forgotten, bytes = collected.removed_bytes,
                "{} snapshots of {tenant} that no session has were forgotten, and {} bytes removed",
                collected.forgotten, collected.removed_bytes,
            );
        }
        Ok(collected)
    }

    /// Whether there is as much room on the disk as there should be; nothing, if nobody looks.
    pub fn has_room(&self) -> Option<bool> {
        let least = self.shared.policy.min_free_bytes;
        let free = self.shared.host.free_bytes().filter(|_| least > 0)?;
        self.shared.counts.free(free);
        Some(free >= least)
    }

    /// Whether what happens in sessions cannot be recorded at the moment: the disk that holds the database is full, or
    /// that is away.
    pub fn cannot_record(&self) -> bool {
        let failed = &self.shared.housekeeping.failed_at;
        let failed = *failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.is_some_and(|at| self.shared.now().since(at) < TRIED_WITHIN)
    }

    /// Whether another session may begin.
    pub(crate) fn room_for_another(&self) -> Result<(), EngineError> {
        let is_short = self.shared.housekeeping.is_short.load(Ordering::Acquire);
        if is_short && self.has_room() == Some(false) {
            return Err(EngineError::DiskPressure);
        }
        Ok(())
    }

    /// Makes room on the disk, if there is less than there should be: files of sessions at rest that a snapshot has
    /// too are removed, the largest and those unused for longest first; then frozen sandboxes are given up, and
    /// theirs follow. The same is done every minute.
    pub async fn make_space(&self) -> Result<(), EngineError> {
        let has_room = self.has_room();
        if has_room != Some(false) {
            self.shared.housekeeping.is_short.store(false, Ordering::Release);
            // Also where nothing is removed to keep room: what happens has to be recorded.
            self.shared.host.keep_reserve();
            return Ok(());
        }
        // Removing files is recorded first.
        self.shared.host.use_reserve();
        tracing::warn!(
            "there is little room on the disk: files that snapshots have too are removed"
        );
        let mut room = self.remove_stored().await?;
        if room == Room::None {
            // Their bytes go in a day or two: until then it does not help.
            self.leave_snapshots_to_cloud().await?;
            room = self.give_up_frozen_ones().await?;
        }
        if room == Room::None {
            let was_short = self.shared.housekeeping.is_short.swap(true, Ordering::AcqRel);
            if !was_short {
                tracing::error!(
                    "there is too little room on the disk, and nothing more could be removed: no session begins",
                );
            }
            return Ok(());
        }
        self.shared.housekeeping.is_short.store(false, Ordering::Release);
        Ok(())
    }

    /// Removes files that snapshots have too, until there is room.
    async fn remove_stored(&self) -> Result<Room, EngineError> {
        let mut candidates = Vec::new();
        let mut after = None;
        loop {
            let page = self.shared.store.resting_sessions(after, PAGE).await?;
            candidates.extend(page.sessions.iter().filter_map(|(session, _)| candidate(session)));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        for session in order(candidates, self.shared.now()) {
            let room = self.put_away(session).await;
            if room != Room::None {
                return Ok(room);
            }
        }
        Ok(Room::None)
    }

    /// Gives frozen sandboxes up, the one that is frozen for longest first, and removes their files once they are
    /// captured, until there is room.
    async fn give_up_frozen_ones(&self) -> Result<Room, EngineError> {
        let mut frozen: Vec<(Timestamp, SessionId)> = Vec::new();
        for session in self.shared.store.housed_sessions().await? {
            if let ash_core::session::Sandbox::Frozen { since } = session.sandbox() {
                frozen.push((since, session.id()));
            }
        }
        frozen.sort_unstable();
        for (_, session) in frozen {
            // The reason why it is paused stays what it was.
            if let Err(error) = self.evict(session, PauseReason::Evicted).await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, session.id = %session, "session {session} stays frozen");
                continue;
            }
            self.shared.counts.evicted();
            self.at_rest(session).await;
            if let Some(cloud) = self.cloud() {
                cloud.wait_for_all(&self.shared, &[session], Duration::MAX).await;
            }
            let room = self.put_away(session).await;
            if room != Room::None {
                return Ok(room);
            }
        }
        Ok(Room::None)
    }

    /// Has the files of a session removed, and waits until they are, or stay. Says whether that made room.
    async fn put_away(&self, session: SessionId) -> Room {
        let want = Want::Decide { request: Request::PutAway, receipt: None };
        let is_over = match self.registry.request(session, want).await {
            Ok(_) => self.at_rest(session).await,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, session.id = %session, "session {session} keeps its files");
                true
            }
        };
        match self.has_room() {
            // What is large takes long to read before it goes. Nobody loses more meanwhile.
            Some(false) if !is_over => Room::Coming,
            Some(false) => Room::None,
            Some(true) | None => Room::Made,
        }
    }

    /// Waits until a session is owed nothing, or somebody uses it again; but not for longer than others can wait. Says
    /// whether it came to that.
    async fn at_rest(&self, session: SessionId) -> bool {
        // Before the first look: a change is either seen, or told.
        let mut news = self.shared.rests.watch();
        let rests = async {
            while self.is_on_its_way(session).await {
                news.changed().await;
            }
        };
        tokio::time::timeout(PATIENCE, rests).await.is_ok()
    }

    /// Whether something is owed to a session that nobody uses.
    async fn is_on_its_way(&self, session: SessionId) -> bool {
        let Ok(record) = self.shared.store.session_record(session).await else { return false };
        let stored = self.shared.store.session(&record.tenant, session).await;
        stored.is_ok_and(|stored| match stored.session.status() {
            Status::Starting | Status::Active => false,
            Status::Paused | Status::Stopped | Status::Error | Status::Ended => {
                !stored.session.is_at_rest()
            }
        })
    }

    /// Sets the deadlines of sessions at rest to what they are now: those that were recorded are of another policy,
    /// or of a program that knew fewer of them.
    pub(crate) async fn redate(&self) -> Result<(), EngineError> {
        let mut after = None;
        loop {
            let page = self.shared.store.resting_sessions(after, PAGE).await?;
            for (session, recorded) in page.sessions {
                let due = session.next_deadline(&self.shared.policy);
                if due == recorded {
                    continue;
                }
                let (id, last_seq) = (session.id(), session.last_seq());
                let redated = self.shared.store.redate_session(id, last_seq, recorded, due).await;
                match redated {
                    // Whoever drives it has recorded another one, or it is gone.
                    Ok(()) | Err(StoreError::Conflict { .. }) => {}
                    Err(StoreError::NotFound(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }
}

/// A session whose files could be removed.
fn candidate(session: &Session) -> Option<Candidate<SessionId>> {
    let may_go = match session.keeping().files() {
        FilesPlace::InPlace | FilesPlace::Stay { .. } => session.stored_by().is_some(),
        FilesPlace::Leaving { .. } | FilesPlace::Away => false,
    };
    let last = session.persistence().last().filter(|_| may_go)?;
    let (bytes, last_used) = (last.captured.bytes, session.last_used());
    Some(Candidate { whose: session.id(), bytes, last_used })
}

/// Whether something was not done for so long, and is done now. The first time not at once.
fn is_due_again(last: &Mutex<Option<Timestamp>>, now: Timestamp, every: Duration) -> bool {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = last.get_or_insert(now).plus(every) <= now;
    if is_due {
        *last = Some(now);
    }
    is_due
}

/// Says what went wrong in the background. The next round begins again.
fn told(done: Result<(), EngineError>) {
    if let Err(error) = done {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "a round of housekeeping did not finish");
    }
}
