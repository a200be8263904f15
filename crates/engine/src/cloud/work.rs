//! Who brings sessions up: one task that hands out work, and some that do it.
//!
//! What is to be done is in the outbox, and stays there until it is done, whoever dies. For each session the latest
//! snapshot goes first, with a whole set; older ones follow. Sessions that have just changed go before all others.
//! While the cloud does not answer, one at a time tries.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId};
use ash_core::session::Request;
use ash_core::time::Timestamp;
use ash_store::{OutboxTask, StoreError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::owed::{Payload, TOPIC, payload_of};
use super::remove::{self, Removal};
use super::{Cloud, CloudError, blocking};
use crate::engine::Engine;
use crate::registry::{Registry, Want};
use crate::shared::Shared;

/// For how long a task is somebody's who does not say that it takes longer.
const LEASE: Duration = Duration::from_secs(60);

/// How long to wait before a task that failed is tried again, at first and at most.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(5 * 60);

/// How often something is tried that does not fail because of the cloud, before it is tried rarely; and how rarely.
const MAX_ATTEMPTS: u32 = 10;
const RARELY: Duration = Duration::from_secs(60 * 60);

/// When a task is looked at again whose session somebody works on, at first and at most.
const AFTER_ANOTHER: Duration = Duration::from_secs(2);
const LONG_AFTER_ANOTHER: Duration = Duration::from_secs(30);

/// How long to wait at the most before a bucket is looked at again that is not known yet.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How long a cloud that has failed may take to say whether it is there.
const PROBE: Duration = Duration::from_secs(5);

/// How often the outbox is looked at when nothing is said, and when something is to be tried again.
const IDLE: Duration = Duration::from_secs(5);
const BUSY: Duration = Duration::from_millis(500);

/// How many older snapshots follow the latest one of a session at once: others wait for their turn.
const MAX_FOLLOWING: usize = 32;

/// How many sessions may be asked for at once: more are found in the outbox.
const MAX_WANTED: usize = 1_024;

/// Sessions that have just changed, or that somebody waits for. One that fails keeps no other from its turn: it is in
/// the outbox as well, or waits for its next change.
#[derive(Default)]
pub(crate) struct Wanted(Mutex<(Vec<SessionId>, Vec<SessionId>)>);

impl Wanted {
    pub(super) fn add(&self, session: SessionId) {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (ready, _) = &mut *wanted;
        ready.retain(|other| *other != session);
        if ready.len() >= MAX_WANTED {
            ready.remove(0);
        }
        ready.push(session);
    }

    fn take(&self) -> Option<SessionId> {
        // The latest first: while there is more than can be copied, what is newest is worth most.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.pop()
    }

    /// Puts one off that somebody works on already.
    fn put_off(&self, session: SessionId) {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (ready, busy) = &mut *wanted;
        if !ready.contains(&session) && !busy.contains(&session) && busy.len() < MAX_WANTED {
            busy.push(session);
        }
    }

    /// Somebody is done: those that were put off may have their turn.
    fn again(&self) {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (ready, busy) = &mut *wanted;
        let busy: Vec<_> = busy.drain(..).filter(|session| !ready.contains(session)).collect();
        // They came before the others.
        ready.splice(0..0, busy);
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
    /// Find out which bucket it is.
    Enter,
    /// Bring a session up that has changed, or that somebody waits for.
    Session(SessionId),
    /// Do what the outbox says.
    Task(OutboxTask),
    /// Bring up all that is missing of a session.
    Rest(SessionId),
}

/// What came of it.
enum Done {
    Fine,
    /// It stays in the outbox.
    Later,
    /// Somebody works on the session already.
    Busy,
    /// It has to be looked for again after so long.
    Missed(Duration),
}

/// Brings sessions up until the engine closes.
pub(crate) async fn work(engine: Engine, cloud: Cloud) {
    let (sweep, registry) = (Sweep::default(), engine.registry);
    let mut hand = Hand { shared: engine.shared, cloud, sweep };
    let mut running: JoinSet<Done> = JoinSet::new();
    let mut news = hand.cloud.0.news.watch();
    let (mut pause, mut look_again) = (BUSY, BUSY);
    // What a server before this one had taken is nobody's.
    hand.release().await;
    let mut was_down = false;
    loop {
        let is_down = hand.cloud.is_down();
        if was_down && !is_down {
            // It answers again: nobody need wait any longer.
            hand.release().await;
        }
        was_down = is_down;
        let is_one = is_down || !hand.cloud.is_entered();
        let most = if is_one { 1 } else { hand.cloud.0.uploads };
        while running.len() < most
            && let Some(job) = hand.next().await
        {
            let (shared, cloud) = (Arc::clone(&hand.shared), hand.cloud.clone());
            let registry = Arc::clone(&registry);
            running.spawn(async move { perform(&shared, &registry, &cloud, job).await });
        }
        tokio::select! {
            biased;
            () = hand.shared.tasks.closing() => return,
            Some(done) = running.join_next(), if !running.is_empty() => {
                if !matches!(done, Ok(Done::Busy)) {
                    hand.cloud.0.wanted.again();
                }
                pause = match done {
                    Ok(Done::Fine) => IDLE,
                    Ok(Done::Missed(again)) => {
                        hand.sweep.missed(again);
                        BUSY
                    }
                    Ok(Done::Later | Done::Busy) | Err(_) => BUSY,
                };
                // It may be worth waiting a moment before the next one finds the same.
                if pause == BUSY && (hand.cloud.is_down() || !hand.cloud.is_entered()) {
                    tokio::select! {
                        biased;
                        () = hand.shared.tasks.closing() => return,
                        () = tokio::time::sleep(look_again) => {}
                    }
                    look_again = (look_again * 2).min(LOOK_AGAIN);
                } else {
                    look_again = BUSY;
                }
            }
            () = news.changed() => pause = BUSY,
            () = tokio::time::sleep(pause) => hand.cloud.0.wanted.again(),
        }
    }
}

/// What else may have to be brought up: snapshots from before there was a cloud, or from before it was this one, and
/// what a server that was killed had taken.
#[derive(Default)]
struct Sweep {
    after: Option<SessionId>,
    /// Since when it is over.
    over: Option<Timestamp>,
    /// How long after that it begins again, if something could not be brought up.
    again: Option<Duration>,
}

impl Sweep {
    fn missed(&mut self, again: Duration) {
        self.again = Some(self.again.map_or(again, |sooner| sooner.min(again)));
    }
}

/// Finds work.
struct Hand {
    shared: Arc<Shared>,
    cloud: Cloud,
    sweep: Sweep,
}

impl Hand {
    async fn next(&mut self) -> Option<Job> {
        if !self.cloud.is_entered() {
            return Some(Job::Enter);
        }
        if let Some(session) = self.cloud.0.wanted.take() {
            return Some(Job::Session(session));
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
        let now = self.shared.now();
        match (self.sweep.over, self.sweep.again) {
            // A clock that was set back does not put it off.
            (Some(over), Some(again)) if over.plus(again) <= now || over > now => {
                self.sweep = Sweep::default();
            }
            (Some(_), _) => return None,
            (None, _) => {}
        }
        let found = self.shared.store.lagging_sessions(self.sweep.after, 1).await.ok()?;
        self.sweep.after = found.first().copied().or(self.sweep.after);
        if found.is_empty() {
            self.sweep.over = Some(now);
        }
        found.first().map(|session| Job::Rest(*session))
    }
}

async fn perform(shared: &Shared, registry: &Arc<Registry>, cloud: &Cloud, job: Job) -> Done {
    let store = shared.store.as_ref();
    match job {
        Job::Enter => {
            let entered = cloud.enter(store).await;
            cloud.heard(entered.as_ref().err(), shared.now());
            if entered.is_ok() { Done::Fine } else { Done::Later }
        }
        Job::Session(session) => {
            // No place is taken while somebody works on it already.
            let Ok(_turn) = cloud.0.turns.of(session).try_acquire() else {
                cloud.0.wanted.put_off(session);
                return Done::Busy;
            };
            // Turns that followed each other quickly left more than one.
            let brought = cloud.catch_up(store, session, shared.now(), MAX_FOLLOWING).await;
            match settle(shared, registry, cloud, (session, brought)).await {
                Ok(()) => Done::Fine,
                Err(_) => Done::Later,
            }
        }
        Job::Rest(session) => {
            let Ok(_turn) = cloud.0.turns.of(session).acquire().await else { return Done::Later };
            let brought = cloud.catch_up(store, session, shared.now(), usize::MAX).await;
            match settle(shared, registry, cloud, (session, brought)).await {
                Ok(()) | Err(CloudError::Elsewhere) => Done::Fine,
                Err(error) if error.is_transient() => Done::Missed(LAST_RETRY),
                Err(error) => Done::Missed(rarely(&error)),
            }
        }
        Job::Task(task) if task.item.topic == remove::TOPIC => {
            let Some(removal) = payload_of::<Removal>(&task) else {
                return finish(shared, &task).await;
            };
            let Ok(_turn) = cloud.0.turns.of(removal.session).try_acquire() else {
                return put_off(shared, &task).await;
            };
            let removed = held(shared, &task, cloud.remove(store, removal)).await;
            let removed = heard(shared, cloud, removed).await;
            if let Err(error) = &removed {
                let error = error as &dyn std::error::Error;
                tracing::warn!(error, "what is over could not be removed from the cloud");
            }
            conclude(shared, &task, removed).await
        }
        Job::Task(task) => {
            let Some(payload) = payload_of::<Payload>(&task) else {
                return finish(shared, &task).await;
            };
            let session = payload.session;
            // Who works on it already may bring this up too: no place is taken meanwhile.
            let Ok(_turn) = cloud.0.turns.of(session).try_acquire() else {
                return put_off(shared, &task).await;
            };
            let now = shared.now();
            let brought = async {
                match payload.snapshot {
                    Some(snapshot) => cloud.bring_up_with(store, session, snapshot, now).await,
                    None => cloud.bring_up(store, session, now).await,
                }
            };
            let brought = held(shared, &task, brought).await;
            let brought = settle(shared, registry, cloud, (session, brought)).await;
            conclude(shared, &task, brought).await
        }
    }
}

/// Nothing is given up: what fails for another reason than that the cloud is away is tried rarely in the end.
async fn conclude(shared: &Shared, task: &OutboxTask, done: Result<(), CloudError>) -> Done {
    match done {
        // What is in the cloud and not ours is: the next snapshot is the time to look again.
        Ok(()) | Err(CloudError::Elsewhere) => finish(shared, task).await,
        Err(error) if error.is_transient() || task.attempt < MAX_ATTEMPTS => {
            put_back(shared, task, retry_at(shared, task.attempt)).await
        }
        Err(error) => put_back(shared, task, shared.now().plus(rarely(&error))).await,
    }
}

/// How long to wait before something is tried again that failed often. What the cloud alone would not do it may do soon.
const fn rarely(error: &CloudError) -> Duration {
    match error {
        CloudError::Refuses(_) => LAST_RETRY,
        CloudError::Unavailable(_)
        | CloudError::Unfit(_)
        | CloudError::NotOurs(_)
        | CloudError::NotFound(_)
        | CloudError::Damaged(_)
        | CloudError::TooNew { .. }
        | CloudError::TooLarge(_)
        | CloudError::Elsewhere
        | CloudError::Here(_)
        | CloudError::Store(_) => RARELY,
    }
}

/// Puts a task back whose session somebody works on.
async fn put_off(shared: &Shared, task: &OutboxTask) -> Done {
    let wait = AFTER_ANOTHER.saturating_mul(task.attempt).min(LONG_AFTER_ANOTHER);
    put_back(shared, task, shared.now().plus(wait)).await;
    Done::Busy
}

/// Does what a task says, and says as long as that takes that it is being done.
async fn held<T>(shared: &Shared, task: &OutboxTask, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(LEASE / 3) => {
                let until = shared.now().plus(LEASE);
                let held = shared.store.retry_outbox(task.item.id, task.attempt, until).await;
                let _held_or_taken_by_another = done(held);
            }
        }
    }
}

/// Takes note of how something went. If the cloud seems to be away, it is asked: only what it does not answer is its
/// own fault.
async fn heard(
    shared: &Shared,
    cloud: &Cloud,
    done: Result<(), CloudError>,
) -> Result<(), CloudError> {
    let Err(CloudError::Unavailable(message)) = done else {
        cloud.heard(done.as_ref().err(), shared.now());
        return done;
    };
    let remote = Arc::clone(&cloud.0.remote);
    // One that does not answer is not asked for as long again.
    let asked = tokio::time::timeout(PROBE, blocking(move || remote.bucket())).await;
    let answers = asked.unwrap_or_else(|_| Err(CloudError::Unavailable(message.clone())));
    cloud.heard(answers.as_ref().err(), shared.now());
    match answers {
        Ok(_) => Err(CloudError::Refuses(message)),
        Err(error) => Err(error),
    }
}

/// Says what came of bringing a session up.
async fn settle(
    shared: &Shared,
    registry: &Arc<Registry>,
    cloud: &Cloud,
    (session, brought): (SessionId, Result<(), CloudError>),
) -> Result<(), CloudError> {
    let brought = heard(shared, cloud, brought).await;
    cloud.0.failures.note(session, brought.as_ref().err(), shared.now());
    cloud.tell();
    let outcome = if brought.is_ok() { "done" } else { "failed" };
    metrics::counter!("ash_cloud_uploads_total", "outcome" => outcome).increment(1);
    match &brought {
        // What is wrong with the cloud is said for all of them.
        Ok(()) | Err(CloudError::Unavailable(_) | CloudError::Unfit(_)) => {}
        Err(error) => {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, session.id = %session, "session {session} could not be copied to the cloud");
        }
    }
    if let Some(lost) = brought.as_ref().err().and_then(CloudError::lost_here) {
        capture_again(registry, session, lost).await;
    }
    brought
}

/// Has a session captured once more whose last snapshot is lost. What is not heard is said again by the next attempt.
async fn capture_again(registry: &Arc<Registry>, session: SessionId, lost: SnapshotId) {
    let want = Want::Decide { request: Request::CaptureAgain { lost }, receipt: None };
    if let Err(error) = registry.request(session, want).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, session.id = %session, "session {session} could not be captured once more");
    }
}

async fn finish(shared: &Shared, task: &OutboxTask) -> Done {
    done(shared.store.finish_outbox(task.item.id, task.attempt).await)
}

async fn put_back(shared: &Shared, task: &OutboxTask, ready_at: Timestamp) -> Done {
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
