//! The queue: prompts that are worked on when there is room, each until it is over.
//!
//! An item is taken under a lease that is renewed while somebody works on it. Each taking has a number, and only the
//! latest taker may write. What an attempt does is done under keys that are made of the item and the number of its
//! retry ([`QueueItem::key`]), so whoever takes an item over finds what was done instead of doing it again; the
//! receipts of an item that is not over are never forgotten.

use std::time::Duration;

use ash_core::id::{AgentName, QueueItemId, RunId, SessionId, TenantId};
pub use ash_core::queue::QueueStatus;
use ash_core::time::Timestamp;
use async_trait::async_trait;

use crate::Result;
use crate::model::{Receipt, ReceiptKey};

/// The route of receipts that items leave: no request comes by it.
pub const QUEUE_ROUTE: &str = "queue";

/// The furthest in the future that an item is put back, or leased. What is further away was put back under another
/// clock, and is not waited for.
pub const MAX_QUEUE_WAIT: Duration = Duration::from_secs(60 * 60);

/// How many bytes of items are read at once, about: a list ends with the item that reaches it.
pub const MAX_QUEUE_PAGE_BYTES: usize = 16 * 1024 * 1024;

/// A prompt to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewQueueItem {
    /// Its id.
    pub id: QueueItemId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The agent that is to work on it.
    pub agent_name: AgentName,
    /// The session that it is for, if not for a new one.
    pub session: Option<SessionId>,
    /// What is said.
    pub prompt: String,
    /// What has more comes first.
    pub priority: u32,
    /// How often it is tried again.
    pub max_retries: u32,
    /// When it is added.
    pub created_at: Timestamp,
}

/// A prompt in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueItem {
    /// What was added. Its session is the one that was made for it, once there is one.
    pub new: NewQueueItem,
    /// Where it stands.
    pub status: QueueStatus,
    /// How often it was tried again.
    pub retry_count: u32,
    /// The run of its latest attempt, once that was sent.
    pub run: Option<RunId>,
    /// Why its run ended, if it was completed.
    pub stop_reason: Option<String>,
    /// What the agent said last, if it was completed.
    pub result: Option<String>,
    /// What went wrong last.
    pub error: Option<QueueError>,
    /// When it was first taken.
    pub started_at: Option<Timestamp>,
    /// When it was over.
    pub completed_at: Option<Timestamp>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueError {
    /// A name that does not change.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
}

/// An item, taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueTask {
    /// What to do.
    pub item: QueueItem,
    /// Which taking this is; to be named by whatever is written about it.
    pub lease: u32,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueOutcome {
    /// It is done.
    Completed {
        /// Why the run ended.
        stop_reason: String,
        /// What the agent said last.
        result: Option<String>,
    },
    /// A person ended the run.
    Cancelled,
    /// It is not tried again.
    Failed(QueueError),
    /// It is tried again, not before this time.
    Retry(QueueError, Timestamp),
    /// Nothing was tried, because its session was put to rest meanwhile: it waits again, not to be looked at before
    /// this time.
    PutBack(Timestamp),
}

/// What became of the wish to withdraw an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// It is cancelled.
    Done(QueueItem),
    /// It does not wait any more, and stays what it is.
    TooLate(QueueItem),
}

/// How many items stand how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Those that wait.
    pub pending: u64,
    /// Those that are worked on.
    pub processing: u64,
    /// Those that were done.
    pub completed: u64,
    /// Those that could not be done.
    pub failed: u64,
    /// Those that were withdrawn.
    pub cancelled: u64,
}

impl QueueCounts {
    /// The count of a status.
    pub(crate) const fn of(&mut self, status: QueueStatus) -> &mut u64 {
        match status {
            QueueStatus::Pending => &mut self.pending,
            QueueStatus::Processing => &mut self.processing,
            QueueStatus::Completed => &mut self.completed,
            QueueStatus::Failed => &mut self.failed,
            QueueStatus::Cancelled => &mut self.cancelled,
        }
    }

    /// Those that are not over.
    pub const fn open(&self) -> u64 {
        self.pending + self.processing
    }
}

impl NewQueueItem {
    /// The item as it is when it was added.
    pub fn item(&self) -> QueueItem {
        QueueItem {
            new: self.clone(),
            status: QueueStatus::Pending,
            retry_count: 0,
            run: None,
            stop_reason: None,
            result: None,
            error: None,
            started_at: None,
            completed_at: None,
        }
    }
}

impl QueueItem {
    /// What makes a step of the attempt that is made now the same step when it is repeated.
    pub fn key(&self, step: &str) -> ReceiptKey {
        let NewQueueItem { id, tenant, .. } = &self.new;
        let key = format!("{id}/{}/{step}", self.retry_count);
        ReceiptKey { tenant: tenant.clone(), route: QUEUE_ROUTE.to_owned(), key }
    }

    /// What makes a step of the item the same step in every attempt.
    pub fn lasting_key(&self, step: &str) -> ReceiptKey {
        let NewQueueItem { id, tenant, .. } = &self.new;
        let key = format!("{id}/{step}");
        ReceiptKey { tenant: tenant.clone(), route: QUEUE_ROUTE.to_owned(), key }
    }

    /// How much it takes to hold it, about.
    pub(crate) fn bytes(&self) -> usize {
        self.new.prompt.len() + self.result.as_ref().map_or(0, String::len)
    }
}

/// The item that left a receipt, if one did.
pub(crate) fn item_of(key: &ReceiptKey) -> Option<QueueItemId> {
    let id = key.key.split('/').next().filter(|_| key.route == QUEUE_ROUTE);
    id.and_then(|id| id.parse().ok())
}

/// The part of a store that remembers the queue.
#[async_trait]
pub trait QueueStore: Send + Sync + 'static {
    /// Adds an item.
    async fn create_queue_item(&self, item: &NewQueueItem, receipt: Option<&Receipt>)
    -> Result<()>;
    /// A tenant's item.
    async fn queue_item(&self, tenant: &TenantId, id: QueueItemId) -> Result<QueueItem>;
    /// A tenant's items, newest first, from the one after `after`: `limit` of them, or fewer once they have more than
    /// [`MAX_QUEUE_PAGE_BYTES`].
    async fn queue_items(
        &self,
        tenant: &TenantId,
        status: Option<QueueStatus>,
        after: Option<QueueItemId>,
        limit: u32,
    ) -> Result<Vec<QueueItem>>;
    /// How many of a tenant's items stand how.
    async fn queue_counts(&self, tenant: &TenantId) -> Result<QueueCounts>;
    /// Withdraws a tenant's item, if it waits.
    async fn withdraw_queue_item(
        &self,
        tenant: &TenantId,
        id: QueueItemId,
        at: Timestamp,
    ) -> Result<Withdrawal>;

    /// When the next item may be taken, of any tenant.
    async fn next_queue_item(&self) -> Result<Option<Timestamp>>;
    /// Takes the first item that is ready, or whose taker let `leased_until` pass: by priority, then by age. Of one
    /// session, one item at a time. One that waits is not taken while its session is put to rest
    /// ([`Session::is_put_to_rest`](ash_core::session::Session::is_put_to_rest)): it may be withdrawn meanwhile.
    async fn claim_queue_item(
        &self,
        now: Timestamp,
        leased_until: Timestamp,
    ) -> Result<Option<QueueTask>>;
    /// Makes every item ready that was taken: whoever took it is gone. Returns how many.
    async fn release_queue_items(&self, now: Timestamp) -> Result<u64>;
    /// Renews a lease. Only the latest taker may: otherwise `NotFound`.
    async fn hold_queue_item(
        &self,
        id: QueueItemId,
        lease: u32,
        leased_until: Timestamp,
    ) -> Result<()>;
    /// Notes where an item is worked on. Only the latest taker may: otherwise `NotFound`.
    async fn note_queue_item(
        &self,
        id: QueueItemId,
        lease: u32,
        session: SessionId,
        run: Option<RunId>,
    ) -> Result<()>;
    /// Notes what came of an attempt. Only the latest taker may: otherwise `NotFound`.
    async fn settle_queue_item(
        &self,
        id: QueueItemId,
        lease: u32,
        outcome: &QueueOutcome,
        at: Timestamp,
    ) -> Result<()>;
    /// Forgets items that were over before `before`; returns how many.
    async fn purge_queue_items(&self, before: Timestamp) -> Result<u64>;
}
