//! Who brings sessions up: one task that hands out work, and some that do it.
//!
//! What is to be done is in the outbox, and stays there until it is done, whoever dies. For each session the latest
//! snapshot goes first, with a whole set; older ones follow. Sessions that somebody waits for go before all others.
//! While the cloud does not answer, one at a time tries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ash_core::id::{OutboxId, SessionId, SnapshotId};
use ash_core::json::Json;
use ash_core::snapshot::Snapshot;
use ash_core::time::Timestamp;
use ash_store::{OutboxItem, OutboxTask, StoreError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::remove::{self, Removal};
use super::upload::Anew;
use super::{Cloud, CloudError};
use crate::shared::Shared;

/// What its tasks are called in the outbox.
pub(crate) const TOPIC: &str = "cloud";

/// For how long a task is somebody's. Who takes longer is joined by a second one, which waits for the first.
const LEASE: Duration = Duration::from_secs(60);

/// How long to wait before a task that failed is tried again, at first and at most.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(5 * 60);

/// How often something is tried that does not fail because of the cloud.
const MAX_ATTEMPTS: u32 = 10;

/// How often the outbox is looked at when nothing is said, and when something is to be tried again.
const IDLE: Duration = Duration::from_secs(60);
const BUSY: Duration = Duration::from_millis(500);

/// How many sessions may be asked for at once: more are found in the outbox.
const MAX_WANTED: usize = 1_024;

/// What to bring up.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    session: SessionId,
    snapshot: SnapshotId,
    /// The session has no set of its own yet, though its snapshots are there: it was forked or imported.
    #[serde(default)]
    is_first: bool,
}

/// The tasks that snapshots of a session leave, where there is a cloud.
pub(crate) fn to_bring_up(
    shared: &Shared,
    session: SessionId,
    snapshots: &[Snapshot],
) -> Vec<OutboxItem> {
    let payload = |snapshot: &Snapshot| {
        let snapshot = snapshot.captured.id;
        Payload { session, snapshot, is_first: false }
    };
    tasks(shared, snapshots.iter().map(payload))
}

/// The task that a session leaves that begins with a history: nobody there knows that it needs its snapshots.
pub(crate) fn to_make_known(
    shared: &Shared,
    session: SessionId,
    last: Option<&Snapshot>,
) -> Vec<OutboxItem> {
    let payload = |last: &Snapshot| {
        let snapshot = last.captured.id;
        Payload { session, snapshot, is_first: true }
    };
    tasks(shared, last.map(payload).into_iter())
}

fn tasks(shared: &Shared, payloads: impl Iterator<Item = Payload>) -> Vec<OutboxItem> {
    if shared.cloud.is_none() {
        return Vec::new();
    }
    let now = shared.now();
    let task = |payload: Payload| OutboxItem {
        id: shared.ids.make(now, OutboxId::from_parts),
        topic: TOPIC.to_owned(),
        payload: Json::of(&payload).expect("two ids in an object are JSON"),
        ready_at: now,
    };
    payloads.map(task).collect()
}

/// Sessions that somebody waits for.
#[derive(Default)]
pub(crate) struct Wanted(Mutex<BTreeMap<SessionId, Anew>>);

impl Wanted {
    pub(super) fn add(&self, session: SessionId, anew: Anew) {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.len() < MAX_WANTED {
            let how = wanted.entry(session).or_insert(anew);
            *how = (*how).max(anew);
        }
    }

    fn take(&self) -> Option<(SessionId, Anew)> {
        // The youngest first.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_last()
    }
}

/// Taken by whoever works on a session: there is one at a time.
pub(crate) struct Turns([Semaphore; 64]);

impl Default for Turns {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Semaphore::new(1)))
    }
}

impl Turns {
    pub(super) fn of(&self, session: SessionId) -> &Semaphore {
        let last = session.as_uuid().as_bytes()[15];
        &self.0[usize::from(last) % self.0.len()]
    }
}

/// Something to do.
enum Job {
    /// Bring a session up that somebody waits for.
    Session(SessionId, Anew),
    /// Do what the outbox says.
    Task(OutboxTask),
}

/// What came of it.
enum Done {
    Fine,
    /// It stays in the outbox, or is asked for again.
    Later,
}

/// Brings sessions up until the engine closes.
pub(crate) async fn work(shared: Arc<Shared>, cloud: Cloud) {
    let mut hand = Hand { shared, cloud, sweep: Sweep::From(None) };
    let mut running: JoinSet<Done> = JoinSet::new();
    let mut news = hand.cloud.0.news.watch();
    let mut pause = BUSY;
    // What a server before this one had taken is nobody's.
    hand.release().await;
    let mut was_down = false;
    loop {
        if was_down && !hand.cloud.is_down() {
            // It answers again: nobody need wait any longer.
            hand.release().await;
        }
        was_down = hand.cloud.is_down();
        let most = if hand.cloud.is_down() { 1 } else { hand.cloud.0.uploads };
        while running.len() < most
            && let Some(job) = hand.next().await
        {
            let (shared, cloud) = (Arc::clone(&hand.shared), hand.cloud.clone());
            running.spawn(async move { perform(&shared, &cloud, job).await });
        }
        tokio::select! {
            biased;
            () = hand.shared.tasks.closing() => return,
            Some(done) = running.join_next(), if !running.is_empty() => {
                pause = match done {
                    Ok(Done::Fine) => IDLE,
                    Ok(Done::Later) | Err(_) => BUSY,
                };
                // It may be worth waiting a moment before the next one finds the same.
                if pause == BUSY && hand.cloud.is_down() {
                    tokio::time::sleep(BUSY).await;
                }
            }
            () = news.changed() => pause = BUSY,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// What else may have to be brought up: snapshots from before there was a cloud, and what a server that was killed
/// had taken.
enum Sweep {
    From(Option<SessionId>),
    Over,
}

/// Finds work.
struct Hand {
    shared: Arc<Shared>,
    cloud: Cloud,
    sweep: Sweep,
}

impl Hand {
    async fn next(&mut self) -> Option<Job> {
        if let Some((session, anew)) = self.cloud.0.wanted.take() {
            return Some(Job::Session(session, anew));
        }
        match self.claim().await {
            Ok(Some(task)) => return Some(Job::Task(task)),
            Ok(None) => {}
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "what is to be copied to the cloud could not be looked up");
                return None;
            }
        }
        self.lagging().await
    }

    async fn claim(&self) -> Result<Option<OutboxTask>, StoreError> {
        let now = self.shared.now();
        for topic in [TOPIC, remove::TOPIC] {
            let taken = self.shared.store.claim_outbox(topic, now, now.plus(LEASE), 1).await?;
            if let Some(task) = taken.into_iter().next() {
                return Ok(Some(task));
            }
        }
        Ok(None)
    }

    /// Has everything tried again that waits.
    async fn release(&self) {
        for topic in [TOPIC, remove::TOPIC] {
            if let Err(error) = self.shared.store.release_outbox(topic, self.shared.now()).await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "what waits for the cloud waits a little longer");
            }
        }
    }

    async fn lagging(&mut self) -> Option<Job> {
        let Sweep::From(after) = self.sweep else { return None };
        match self.shared.store.lagging_sessions(after, 1).await {
            Ok(found) => {
                self.sweep = found.first().map_or(Sweep::Over, |last| Sweep::From(Some(*last)));
                found.first().map(|session| Job::Session(*session, Anew::No))
            }
            Err(_) => None,
        }
    }
}

async fn perform(shared: &Shared, cloud: &Cloud, job: Job) -> Done {
    let store = shared.store.as_ref();
    match job {
        Job::Session(session, anew) => {
            let Ok(_turn) = cloud.0.turns.of(session).acquire().await else { return Done::Later };
            let brought = cloud.bring_up(store, session, shared.now(), anew).await;
            if brought.as_ref().is_err_and(CloudError::is_transient) {
                cloud.0.wanted.add(session, anew);
            }
            settle(cloud, session, &brought)
        }
        Job::Task(task) if task.item.topic == remove::TOPIC => {
            let Some(removal) = payload_of::<Removal>(&task) else {
                return finish(shared, &task).await;
            };
            let session = removal.session;
            let Ok(_turn) = cloud.0.turns.of(session).acquire().await else { return Done::Later };
            let removed = cloud.remove(store, removal).await;
            cloud.heard(removed.as_ref().err());
            conclude(shared, &task, removed).await
        }
        Job::Task(task) => {
            let Some(Payload { session, snapshot, is_first }) = payload_of(&task) else {
                return finish(shared, &task).await;
            };
            let Ok(_turn) = cloud.0.turns.of(session).acquire().await else { return Done::Later };
            let anew = if is_first { Anew::Own } else { Anew::No };
            let mut brought = cloud.bring_up(store, session, shared.now(), anew).await;
            if brought.is_ok() {
                brought = cloud.bring_up_older(store, session, snapshot, shared.now()).await;
            }
            let _told = settle(cloud, session, &brought);
            conclude(shared, &task, brought).await
        }
    }
}

async fn conclude(shared: &Shared, task: &OutboxTask, done: Result<(), CloudError>) -> Done {
    match done {
        Ok(()) => finish(shared, task).await,
        Err(error) if error.is_transient() || task.attempt < MAX_ATTEMPTS => {
            put_back(shared, task).await
        }
        // It is not tried for ever. That it is not there is to be seen.
        Err(error) => {
            give_up(&error);
            finish(shared, task).await
        }
    }
}

fn give_up(error: &CloudError) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(error, "something to be done in the cloud is not tried any more");
}

fn payload_of<T: DeserializeOwned>(task: &OutboxTask) -> Option<T> {
    match serde_json::from_str(task.item.payload.get()) {
        Ok(payload) => Some(payload),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "a task for the cloud cannot be read, and is dropped");
            None
        }
    }
}

/// Says what came of bringing a session up.
fn settle(cloud: &Cloud, session: SessionId, brought: &Result<(), CloudError>) -> Done {
    cloud.heard(brought.as_ref().err());
    cloud.tell();
    let outcome = if brought.is_ok() { "done" } else { "failed" };
    metrics::counter!("ash_cloud_uploads_total", "outcome" => outcome).increment(1);
    match brought {
        Ok(()) => Done::Fine,
        // That is said for all of them.
        Err(CloudError::Unavailable(_) | CloudError::Unfit(_)) => Done::Later,
        Err(error) => {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, session.id = %session, "session {session} could not be copied to the cloud");
            Done::Later
        }
    }
}

async fn finish(shared: &Shared, task: &OutboxTask) -> Done {
    done(shared.store.finish_outbox(task.item.id, task.attempt).await)
}

async fn put_back(shared: &Shared, task: &OutboxTask) -> Done {
    let ready_at = retry_at(shared, task.attempt);
    let _put_back_or_leased =
        done(shared.store.retry_outbox(task.item.id, task.attempt, ready_at).await);
    Done::Later
}

fn done(done: Result<(), StoreError>) -> Done {
    match done {
        Ok(()) | Err(StoreError::NotFound(_)) => Done::Fine,
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "what came of a copy to the cloud could not be noted");
            Done::Later
        }
    }
}

/// Full jitter: after an outage everything that waits is tried again, and not all at once.
fn retry_at(shared: &Shared, attempt: u32) -> Timestamp {
    let longest = FIRST_RETRY.saturating_mul(1 << attempt.min(16)).min(LAST_RETRY);
    let now = shared.now();
    let chance =
        shared.ids.make(now, |_, random: [u8; 10]| u16::from_be_bytes([random[8], random[9]]));
    now.plus(FIRST_RETRY / 2 + longest * u32::from(chance) / u32::from(u16::MAX))
}
