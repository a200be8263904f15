//! Works on the queue: takes items when there is room, has each sent to its session, and waits for its run.
//!
//! ```text
//!   claim ──► session (made once) ──► prompt (sent once an attempt) ──► its run is over ──► settle
//!     ▲            each step is recorded under a key of the item                              │
//!     └──────────────── again, later, if it failed and that may help ─────────────────────────┘
//! ```
//!
//! Whoever dies in between leaves a lease that runs out, or that the next server releases. What follows takes the same
//! steps under the same keys: it finds the session that was made and the run that was begun, and waits for that.

use std::sync::Arc;
use std::time::Duration;

use ash_core::entry::Entry;
use ash_core::failure::Failure;
use ash_core::id::{RunId, SessionId};
use ash_core::number::Seq;
use ash_core::queue::{AfterFailure, after_failure, may_be_cured};
use ash_core::run::RunStatus;
use ash_core::session::Status;
use ash_store::{
    NewQueueItem, QueueError, QueueItem, QueueOutcome, QueueTask, RunRecord, StoreError,
};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::engine::{Accepted, Engine, Idempotency};

/// For how long an item is taken at a time.
const LEASE: Duration = Duration::from_secs(60);

/// How long nothing is looked for at the most.
const IDLE: Duration = Duration::from_secs(60);

/// How long it takes to look again where something is ready that cannot be taken, or the store does not answer.
const SOON: Duration = Duration::from_secs(1);

/// How long a step whose outcome is open waits before it is repeated, at the most.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How many items are waited for at the most, with those whose sessions a person has paused.
const MAX_TAKEN: usize = 1_024;

/// The longest result that is kept.
const MAX_RESULT_BYTES: usize = 64 * 1024;

/// How many entries of a log are read at once.
const PAGE: u32 = 256;

/// Whoever knows how a session is made for an item, and what a prompt consists of. The engine does not: it is as if
/// somebody had sent the requests. Both may be asked again with the same key, and do it once.
#[async_trait]
pub trait Desk: Send + Sync + 'static {
    /// Makes the session of an item.
    async fn open(&self, item: &QueueItem, idempotency: Idempotency) -> Result<SessionId, Undone>;

    /// Sends the prompt of an item to its session.
    async fn send(
        &self,
        item: &QueueItem,
        session: SessionId,
        idempotency: Idempotency,
    ) -> Result<Accepted, Undone>;
}

/// Why a step was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undone {
    /// It is not known whether it was: it is repeated.
    Open,
    /// It was not, because a person had its session rest. It waits until a person brings that back.
    Resting,
    /// It was not.
    Failed {
        /// Why.
        error: QueueError,
        /// Whether trying again may help.
        may_help: bool,
    },
}

impl From<StoreError> for Undone {
    fn from(error: StoreError) -> Self {
        if error.is_transient() {
            return Self::Open;
        }
        let (code, message) = match &error {
            StoreError::NotFound(what) => ("not_found", format!("No such {what}")),
            StoreError::Exists(_)
            | StoreError::InUse(_)
            | StoreError::Fenced { .. }
            | StoreError::Superseded(_)
            | StoreError::Conflict { .. }
            | StoreError::TooLarge { .. }
            | StoreError::Damaged { .. }
            | StoreError::TooNew { .. }
            | StoreError::Full(_)
            | StoreError::Unavailable(_) => ("internal", "Something went wrong here".to_owned()),
        };
        tracing::warn!(error = &error as &dyn std::error::Error, "an item of the queue failed");
        Self::Failed { error: QueueError { code: code.to_owned(), message }, may_help: false }
    }
}

impl From<&Failure> for Undone {
    fn from(failure: &Failure) -> Self {
        let (code, message) = (failure.code.as_str().to_owned(), failure.message.clone());
        Self::Failed { error: QueueError { code, message }, may_help: may_be_cured(failure.code) }
    }
}

impl Engine {
    /// Works on the queue until the engine closes: on so many items at once.
    pub fn work_on_queue(&self, desk: Arc<dyn Desk>, at_once: usize) {
        let places = Arc::new(Semaphore::new(at_once));
        let queue = Queue { engine: self.clone(), desk, places };
        self.shared.tasks.spawn(queue.work());
    }

    /// Says that something was added to the queue.
    pub fn tell_queue(&self) {
        self.shared.queue.change(|count| *count += 1);
    }
}

#[derive(Clone)]
struct Queue {
    engine: Engine,
    desk: Arc<dyn Desk>,
    /// For items that are worked on.
    places: Arc<Semaphore>,
}

impl Queue {
    async fn work(self) {
        let shared = &self.engine.shared;
        let mut taken = JoinSet::new();
        let mut news = shared.queue.watch();
        // What a server before this one had taken is nobody's. If it cannot be said now, its leases run out.
        if let Err(error) = shared.store.release_queue_items(shared.now()).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "items of the queue that were taken wait a little longer");
        }
        loop {
            while taken.len() < MAX_TAKEN
                && let Ok(place) = Arc::clone(&self.places).try_acquire_owned()
                && let Some(task) = self.claim().await
            {
                taken.spawn(self.clone().perform(task, place));
            }
            let pause = self.until_next().await;
            tokio::select! {
                biased;
                () = shared.tasks.closing() => return,
                Some(_) = taken.join_next(), if !taken.is_empty() => {}
                () = news.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn claim(&self) -> Option<QueueTask> {
        let shared = &self.engine.shared;
        let now = shared.now();
        match shared.store.claim_queue_item(now, now.plus(LEASE)).await {
            Ok(task) => task,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the queue could not be looked at");
                None
            }
        }
    }

    /// How long nothing will be ready, as far as is known.
    async fn until_next(&self) -> Duration {
        let shared = &self.engine.shared;
        match shared.store.next_queue_item().await {
            Ok(Some(next)) => {
                let wait = next.since(shared.now());
                if wait.is_zero() { SOON } else { wait.min(IDLE) }
            }
            Ok(None) => IDLE,
            Err(_) => SOON,
        }
    }

    /// Works on an item for as long as it is ours.
    async fn perform(self, task: QueueTask, place: OwnedSemaphorePermit) {
        let id = task.item.new.id;
        tokio::select! {
            biased;
            () = self.hold(&task) => {
                tracing::warn!(item.id = %id, "item {id} of the queue was taken by somebody else");
            }
            outcome = self.attempt(&task, place) => {
                if let Some(outcome) = outcome {
                    self.settle(&task, outcome).await;
                }
            }
        }
        // Another one may have waited for its session.
        self.engine.tell_queue();
    }

    /// Says again and again that somebody works on it. Returns when that is not so any more.
    async fn hold(&self, task: &QueueTask) {
        let shared = &self.engine.shared;
        loop {
            tokio::time::sleep(LEASE / 3).await;
            let until = shared.now().plus(LEASE);
            let held = shared.store.hold_queue_item(task.item.new.id, task.lease, until).await;
            if let Err(StoreError::NotFound(_)) = held {
                return;
            }
        }
    }

    /// Takes all steps of an attempt. Nothing: the server ends, and another one goes on.
    async fn attempt(&self, task: &QueueTask, place: OwnedSemaphorePermit) -> Option<QueueOutcome> {
        let mut pause = SOON;
        let mut place = Some(place);
        loop {
            if self.engine.accepts_work().is_err() {
                return None;
            }
            match self.steps(task, &mut place).await {
                Ok(outcome) => return outcome,
                Err(Undone::Failed { error, may_help }) => {
                    return Some(self.failed(&task.item, error, may_help));
                }
                Err(Undone::Resting) => {
                    return Some(QueueOutcome::PutBack(self.engine.shared.now().plus(SOON)));
                }
                // The same steps again: what was done is found.
                Err(Undone::Open) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn steps(
        &self,
        task: &QueueTask,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<QueueOutcome>, Undone> {
        let QueueTask { item, lease } = task;
        let NewQueueItem { id, session, .. } = item.new;
        let store = &self.engine.shared.store;
        let session = match session {
            Some(session) => session,
            None => {
                let made = self.desk.open(item, idempotency(item.lasting_key("session"))).await?;
                store.note_queue_item(id, *lease, made, None).await?;
                made
            }
        };
        let run = match item.run {
            Some(run) => run,
            None => {
                let key = idempotency(item.key("prompt"));
                let sent = self.desk.send(item, session, key).await?;
                store.note_queue_item(id, *lease, session, Some(sent.run)).await?;
                sent.run
            }
        };
        let Some(record) = self.ended(item, session, run, place).await? else { return Ok(None) };
        match (record.status, &record.failure) {
            (RunStatus::Completed, _) => {
                let result = self.result(session, &record).await?;
                let stop_reason = record.stop_reason.unwrap_or_default();
                Ok(Some(QueueOutcome::Completed { stop_reason, result }))
            }
            (RunStatus::Cancelled, _) => Ok(Some(QueueOutcome::Cancelled)),
            (_, Some(failure)) => Err(failure.into()),
            (_, None) => {
                let (code, message) = ("internal".to_owned(), "The run has no outcome".to_owned());
                Err(Undone::Failed { error: QueueError { code, message }, may_help: false })
            }
        }
    }

    /// Waits for the end of a run. Nothing: the server ends first.
    async fn ended(
        &self,
        item: &QueueItem,
        session: SessionId,
        run: RunId,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<RunRecord>, Undone> {
        let shared = &self.engine.shared;
        // Subscribe, then read: its end is either in the read or in the news.
        let mut news = shared.bus.subscribe(session);
        loop {
            let closing = news.head().closing;
            let record = shared.store.run(session, run).await?;
            if record.status.is_terminal() {
                return Ok(Some(record));
            }
            if closing {
                return Ok(None);
            }
            // Nobody knows when a person goes on: others have the place meanwhile.
            if place.is_some() {
                let stored = shared.store.session(&item.new.tenant, session).await?;
                if stored.session.status() == Status::Paused {
                    *place = None;
                    self.engine.tell_queue();
                }
            }
            news.changed().await;
        }
    }

    /// What the agent said last in a run.
    async fn result(
        &self,
        session: SessionId,
        record: &RunRecord,
    ) -> Result<Option<String>, Undone> {
        let store = &self.engine.shared.store;
        let mut after: Seq = record.prompt_seq;
        let mut said = None;
        loop {
            let entries = store.events_after(session, after, PAGE).await?;
            let Some(last) = entries.last() else { return Ok(said) };
            after = last.seq;
            for logged in entries.iter().filter(|logged| logged.entry.run() == Some(record.id)) {
                if let Entry::RunEnded { .. } = logged.entry {
                    return Ok(said);
                }
                said = result_of(&logged.entry).or(said);
            }
        }
    }

    fn failed(&self, item: &QueueItem, error: QueueError, may_help: bool) -> QueueOutcome {
        match after_failure(item.retry_count, item.new.max_retries, may_help) {
            AfterFailure::Retry(wait) => {
                QueueOutcome::Retry(error, self.engine.shared.now().plus(wait))
            }
            AfterFailure::GiveUp => QueueOutcome::Failed(error),
        }
    }

    /// Notes what came of an attempt. What cannot be noted is found again when the lease has run out.
    async fn settle(&self, task: &QueueTask, outcome: QueueOutcome) {
        let (shared, id) = (&self.engine.shared, task.item.new.id);
        let name = match &outcome {
            QueueOutcome::Completed { .. } => "completed",
            QueueOutcome::Cancelled => "cancelled",
            QueueOutcome::Failed(_) => "failed",
            QueueOutcome::Retry(..) => "retry",
            QueueOutcome::PutBack(_) => "put_back",
        };
        loop {
            let now = shared.now();
            match shared.store.settle_queue_item(id, task.lease, &outcome, now).await {
                Ok(()) => break,
                Err(error) if error.is_transient() => tokio::time::sleep(SOON).await,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, item.id = %id, "what came of item {id} was not noted");
                    return;
                }
            }
        }
        metrics::counter!("ash_queue_attempts_total", "outcome" => name).increment(1);
        if let QueueOutcome::Failed(error) | QueueOutcome::Retry(error, _) = &outcome {
            tracing::info!(
                item.id = %id, code = %error.code,
                "item {id} of the queue failed: {}", error.message,
            );
        }
    }
}

/// What an item asks for does not change: its keys say all of it.
fn idempotency(key: ash_store::ReceiptKey) -> Idempotency {
    Idempotency { key, body_digest: [0; 32] }
}

/// What an entry says about the result of its run.
fn result_of(entry: &Entry) -> Option<String> {
    #[derive(Deserialize)]
    struct Complete {
        result: String,
    }
    let mut text = if let Entry::Message { body, .. } = entry {
        said_in(&serde_json::from_str(body.get()).ok()?)?
    } else if let Entry::Output { name, body, .. } = entry
        && name == "turn_complete"
    {
        serde_json::from_str::<Complete>(body.get()).ok()?.result
    } else {
        return None;
    };
    if text.len() > MAX_RESULT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_RESULT_BYTES));
        text.push_str(" …");
    }
    Some(text)
}

/// The text of a message, if it has any.
fn said_in(message: &Value) -> Option<String> {
    if let Some(result) = message["result"].as_str().filter(|_| message["type"] == "result") {
        return Some(result.to_owned());
    }
    let blocks = message["message"]["content"].as_array()?;
    let texts = blocks.iter().filter(|block| block["type"] == "text");
    let text: String = texts.filter_map(|block| block["text"].as_str()).collect();
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod test {
    use ash_core::json::Json;
    use ash_core::time::Timestamp;

    use super::*;

    fn said(entry: impl FnOnce(RunId) -> Entry) -> Option<String> {
        result_of(&entry(RunId::from_parts(Timestamp::from_millis(1), [1; 10])))
    }

    fn message(body: &str) -> Option<String> {
        said(|run| Entry::Message { run, body: Json::parse(body.to_owned()).unwrap() })
    }

    #[test]
    fn what_was_said_last_is_found_in_every_form() {
        let text = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a"},{"type":"tool_use"},{"type":"text","text":"b"}]}}"#;
        assert_eq!(message(text).as_deref(), Some("ab"));
        assert_eq!(message(r#"{"type":"result","result":"done"}"#).as_deref(), Some("done"));
        assert_eq!(message(r#"{"type":"assistant","message":{"content":[]}}"#), None);
        assert_eq!(message("5"), None);
        let output = |name: &str, body: &str| {
            let (name, body) = (name.to_owned(), Json::parse(body.to_owned()).unwrap());
            said(|run| Entry::Output { run, name, body })
        };
        assert_eq!(output("turn_complete", r#"{"result":"x"}"#).as_deref(), Some("x"));
        assert_eq!(output("turn_complete", r#"{"result":5}"#), None);
        assert_eq!(output("other", r#"{"result":"x"}"#), None);
    }

    #[test]
    fn a_long_result_is_cut_between_characters() {
        let long = format!(r#"{{"type":"result","result":"{}"}}"#, "ü".repeat(MAX_RESULT_BYTES));
        let cut = message(&long).unwrap();
        assert!(cut.len() <= MAX_RESULT_BYTES + 4 && cut.ends_with("ü …"), "{}", cut.len());
    }
}
