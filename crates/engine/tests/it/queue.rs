//! The worker of the queue, on a host and a store that behave until told otherwise.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ash_core::id::{QueueItemId, SessionId};
use ash_core::queue::QueueStatus;
use ash_core::refusal::Refusal;
use ash_core::session::IfRunning;
use ash_core::time::Clock as _;
use ash_engine::testing::StoreFaults;
use ash_engine::{Accepted, Desk, Engine, EngineError, Idempotency, RequireState, Undone};
use ash_store::{NewQueueItem, QueueError, QueueItem, QueueStore as _};
use async_trait::async_trait;

use crate::support::{TestEngine, UNHURRIED, create, prompt, tenant};

/// Sends what is in the queue, as far as it is let.
struct TestDesk {
    engine: Engine,
    /// The items that were sent, each time.
    sent: Mutex<Vec<QueueItemId>>,
    /// How often it is not known whether something was sent.
    unclear: AtomicU32,
    /// How often sending fails, in a way that may pass.
    failing: AtomicU32,
    /// Whether a person pauses the session in the moment before something is sent to it.
    pausing: AtomicU32,
}

fn is_left(count: &AtomicU32) -> bool {
    let less = |count: u32| count.checked_sub(1);
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
}

fn trouble() -> Undone {
    let error = QueueError { code: "trouble".to_owned(), message: "Some trouble".to_owned() };
    Undone::Failed { error, may_help: true }
}

#[async_trait]
impl Desk for TestDesk {
    async fn open(&self, _: &QueueItem, idempotency: Idempotency) -> Result<SessionId, Undone> {
        let made = self.engine.create_session(create(), Some(idempotency)).await;
        Ok(made.map_err(|_| trouble())?.record.id)
    }

    async fn send(
        &self,
        item: &QueueItem,
        session: SessionId,
        idempotency: Idempotency,
    ) -> Result<Accepted, Undone> {
        if is_left(&self.unclear) {
            return Err(Undone::Open);
        }
        if is_left(&self.failing) {
            return Err(trouble());
        }
        if is_left(&self.pausing) {
            self.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
        }
        let sent = self.engine.prompt(&tenant(), session, prompt(), Some(idempotency)).await;
        if sent.is_ok() {
            self.sent.lock().unwrap().push(item.new.id);
        }
        sent.map_err(|error| match error {
            EngineError::Refused(Refusal::NotActive(_)) => Undone::Resting,
            _ => trouble(),
        })
    }
}

struct World {
    test: TestEngine,
    desk: Arc<TestDesk>,
}

impl World {
    async fn start(at_once: usize) -> Self {
        let test = TestEngine::start().await;
        let desk = Arc::new(TestDesk {
            engine: test.engine.clone(),
            sent: Mutex::default(),
            unclear: AtomicU32::new(0),
            failing: AtomicU32::new(0),
            pausing: AtomicU32::new(0),
        });
        test.engine.work_on_queue(Arc::clone(&desk) as Arc<dyn Desk>, at_once);
        Self { test, desk }
    }

    async fn add(&self, number: u8, session: Option<SessionId>) -> QueueItemId {
        let now = self.test.clock.now();
        let new = NewQueueItem {
            id: QueueItemId::from_parts(now, [number; 10]),
            tenant: tenant(),
            agent_name: "coder".parse().unwrap(),
            session,
            prompt: "count to three".to_owned(),
            priority: 0,
            max_retries: 2,
            created_at: now,
        };
        self.test.store.create_queue_item(&new, None).await.unwrap();
        self.test.engine.tell_queue();
        new.id
    }

    async fn look(&self, id: QueueItemId) -> QueueItem {
        self.test.store.queue_item(&tenant(), id).await.unwrap()
    }

    /// Lets time pass until an item is as wanted.
    async fn until(&self, id: QueueItemId, wanted: impl Fn(&QueueItem) -> bool) -> QueueItem {
        for _ in 0..5_000 {
            let item = self.look(id).await;
            if wanted(&item) {
                return item;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("never: {:?}", self.look(id).await);
    }

    async fn over(&self, id: QueueItemId) -> QueueItem {
        self.until(id, |item| item.completed_at.is_some()).await
    }

    fn sent(&self, id: QueueItemId) -> usize {
        self.desk.sent.lock().unwrap().iter().filter(|sent| **sent == id).count()
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_that_takes_longer_than_a_lease_is_nobody_elses() {
    let world = World::start(4).await;
    world.test.behave(StoreFaults::default(), UNHURRIED);
    let id = world.add(1, None).await;
    world.until(id, |item| item.run.is_some()).await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(13)).await;
        if world.look(id).await.completed_at.is_none() {
            let now = world.test.clock.now();
            let taken = world.test.store.claim_queue_item(now, now.plus(Duration::from_secs(9)));
            assert_eq!(taken.await.unwrap(), None, "the lease was not renewed");
        }
    }
    let item = world.over(id).await;
    assert_eq!((item.status, item.retry_count), (QueueStatus::Completed, 0));
    assert_eq!(world.sent(id), 1);
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_session_is_paused_meanwhile_gives_its_place_to_another() {
    let world = World::start(1).await;
    world.test.behave(StoreFaults::default(), UNHURRIED);
    let paused = world.add(1, None).await;
    let item = world.until(paused, |item| item.run.is_some()).await;
    let session = item.new.session.unwrap();
    world.test.until(session, "phase").await;
    world.test.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    let other = world.add(2, None).await;
    assert_eq!(world.over(other).await.status, QueueStatus::Completed);
    assert_eq!(world.look(paused).await.status, QueueStatus::Processing);
    world.test.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    let item = world.over(paused).await;
    assert_eq!((item.status, item.retry_count), (QueueStatus::Completed, 0));
    assert_eq!(world.sent(paused), 1);
}

#[tokio::test(start_paused = true)]
async fn an_item_waits_for_a_session_that_a_person_put_to_rest() {
    let world = World::start(1).await;
    let session = world.test.session().await;
    world.test.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    let waits = world.add(1, Some(session)).await;
    let other = world.add(2, None).await;
    assert_eq!(world.over(other).await.status, QueueStatus::Completed);
    tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
    let item = world.look(waits).await;
    assert_eq!((item.status, item.retry_count), (QueueStatus::Pending, 0));
    // It comes to rest again in the moment before the prompt is sent.
    world.desk.pausing.store(1, Ordering::SeqCst);
    world.test.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    world.test.until_state(session, ash_core::session::Session::is_put_to_rest).await;
    let item = world.until(waits, |item| item.status == QueueStatus::Pending).await;
    assert_eq!((item.retry_count, item.error, item.run), (0, None, None));
    world.test.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    let item = world.over(waits).await;
    assert_eq!((item.status, item.retry_count), (QueueStatus::Completed, 0));
    assert_eq!(world.sent(waits), 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_outcome_is_open_is_repeated_and_one_that_failed_is_tried_again() {
    let world = World::start(1).await;
    world.desk.unclear.store(7, Ordering::SeqCst);
    let unclear = world.add(1, None).await;
    let item = world.over(unclear).await;
    assert_eq!((item.status, item.retry_count), (QueueStatus::Completed, 0));
    assert_eq!(world.sent(unclear), 1);
    for (failures, status, retries) in [(2, QueueStatus::Completed, 2), (3, QueueStatus::Failed, 2)]
    {
        world.desk.failing.store(failures, Ordering::SeqCst);
        let id = world.add(10 + u8::try_from(failures).unwrap(), None).await;
        let item = world.over(id).await;
        assert_eq!((item.status, item.retry_count), (status, retries), "{failures}");
        assert_eq!(item.error.is_some(), status == QueueStatus::Failed);
    }
}
