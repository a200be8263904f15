//! The queue on plain maps.

use ash_core::id::{QueueItemId, RunId, SessionId, TenantId};
use ash_core::time::Timestamp;
use async_trait::async_trait;

use super::{MemoryStore, Tables};
use crate::model::{Receipt, ReceiptKey};
use crate::queue::{
    MAX_QUEUE_PAGE_BYTES, MAX_QUEUE_WAIT, NewQueueItem, QueueCounts, QueueItem, QueueOutcome,
    QueueStatus, QueueStore, QueueTask, Withdrawal, item_of,
};
use crate::{Result, StoreError};

const MISSING: StoreError = StoreError::NotFound("queue item");

/// An item, and who has it until when.
pub(super) struct QueueRow {
    pub(super) item: QueueItem,
    lease: u32,
    available_at: Timestamp,
}

impl Tables {
    /// Those of an item that is not over are not forgotten: it may be taken up after any time.
    pub(super) fn forget_receipts(&mut self, before: Timestamp) {
        let queue = &self.queue;
        let is_open =
            |id| queue.get(&id).is_some_and(|row: &QueueRow| row.item.completed_at.is_none());
        let keeps = |key: &ReceiptKey| item_of(key).is_some_and(is_open);
        self.receipts.retain(|key, receipt| receipt.at >= before || keeps(key));
    }

    fn theirs(&self, tenant: &TenantId) -> impl DoubleEndedIterator<Item = &QueueRow> {
        self.queue.values().filter(move |row| row.item.new.tenant == *tenant)
    }

    /// The item of its latest taker.
    fn taken(&mut self, id: QueueItemId, lease: u32) -> Result<&mut QueueRow> {
        let row = self.queue.get_mut(&id).ok_or(MISSING)?;
        let is_theirs = row.lease == lease && row.item.status == QueueStatus::Processing;
        if is_theirs { Ok(row) } else { Err(MISSING) }
    }

    /// Whether another item of the same session is worked on, or a person put the session to rest.
    fn is_held_up(&self, item: &QueueItem) -> bool {
        let Some(session) = item.new.session else { return false };
        let rests = self.sessions.get(&session).is_some_and(|row| row.session.is_put_to_rest());
        if rests && item.status == QueueStatus::Pending {
            return true;
        }
        self.queue.values().any(|other| {
            other.item.new.session == Some(session)
                && other.item.status == QueueStatus::Processing
                && other.item.new.id != item.new.id
        })
    }
}

#[async_trait]
impl QueueStore for MemoryStore {
    async fn create_queue_item(
        &self,
        item: &NewQueueItem,
        receipt: Option<&Receipt>,
    ) -> Result<()> {
        let mut tables = self.tables();
        if !tables.tenants.contains_key(&item.tenant) {
            return Err(StoreError::NotFound("tenant"));
        }
        if tables.queue.contains_key(&item.id) {
            return Err(StoreError::Exists("queue item"));
        }
        tables.check_receipt(receipt)?;
        tables.keep_receipt(receipt);
        let row = QueueRow { item: item.item(), lease: 0, available_at: item.created_at };
        tables.queue.insert(item.id, row);
        Ok(())
    }

    async fn queue_item(&self, tenant: &TenantId, id: QueueItemId) -> Result<QueueItem> {
        let tables = self.tables();
        let row = tables.queue.get(&id).filter(|row| row.item.new.tenant == *tenant);
        Ok(row.ok_or(MISSING)?.item.clone())
    }

    async fn queue_items(
        &self,
        tenant: &TenantId,
        status: Option<QueueStatus>,
        after: Option<QueueItemId>,
        limit: u32,
    ) -> Result<Vec<QueueItem>> {
        let tables = self.tables();
        let (mut found, mut bytes) = (Vec::new(), 0);
        for row in tables.theirs(tenant).rev() {
            let is_wanted = status.is_none_or(|status| row.item.status == status)
                && after.is_none_or(|after| row.item.new.id < after);
            if !is_wanted {
                continue;
            }
            if found.len() >= limit as usize || bytes >= MAX_QUEUE_PAGE_BYTES {
                break;
            }
            bytes += row.item.bytes();
            found.push(row.item.clone());
        }
        Ok(found)
    }

    async fn queue_counts(&self, tenant: &TenantId) -> Result<QueueCounts> {
        let mut counts = QueueCounts::default();
        self.tables().theirs(tenant).for_each(|row| *counts.of(row.item.status) += 1);
        Ok(counts)
    }

    async fn withdraw_queue_item(
        &self,
        tenant: &TenantId,
        id: QueueItemId,
        at: Timestamp,
    ) -> Result<Withdrawal> {
        let mut tables = self.tables();
        let row = tables.queue.get_mut(&id).filter(|row| row.item.new.tenant == *tenant);
        let item = &mut row.ok_or(MISSING)?.item;
        if item.status != QueueStatus::Pending {
            return Ok(Withdrawal::TooLate(item.clone()));
        }
        (item.status, item.completed_at) = (QueueStatus::Cancelled, Some(at));
        Ok(Withdrawal::Done(item.clone()))
    }

    async fn next_queue_item(&self) -> Result<Option<Timestamp>> {
        let tables = self.tables();
        let open = tables.queue.values().filter(|row| row.item.completed_at.is_none());
        Ok(open.map(|row| row.available_at).min())
    }

    async fn claim_queue_item(
        &self,
        now: Timestamp,
        leased_until: Timestamp,
    ) -> Result<Option<QueueTask>> {
        let mut tables = self.tables();
        let far = now.plus(MAX_QUEUE_WAIT);
        let ready = tables.queue.values().filter(|row| {
            row.item.completed_at.is_none()
                && (row.available_at <= now || row.available_at > far)
                && !tables.is_held_up(&row.item)
        });
        let first =
            ready.map(|row| (std::cmp::Reverse(row.item.new.priority), row.item.new.id)).min();
        let Some((_, id)) = first else { return Ok(None) };
        let row = tables.queue.get_mut(&id).ok_or(MISSING)?;
        row.lease += 1;
        row.available_at = leased_until;
        row.item.status = QueueStatus::Processing;
        row.item.started_at = row.item.started_at.or(Some(now));
        Ok(Some(QueueTask { item: row.item.clone(), lease: row.lease }))
    }

    async fn release_queue_items(&self, now: Timestamp) -> Result<u64> {
        let mut tables = self.tables();
        let mut released = 0;
        for row in tables.queue.values_mut() {
            if row.item.status == QueueStatus::Processing {
                row.available_at = now;
                released += 1;
            }
        }
        Ok(released)
    }

    async fn hold_queue_item(
        &self,
        id: QueueItemId,
        lease: u32,
        leased_until: Timestamp,
    ) -> Result<()> {
        self.tables().taken(id, lease)?.available_at = leased_until;
        Ok(())
    }

    async fn note_queue_item(
        &self,
        id: QueueItemId,
        lease: u32,
        session: SessionId,
        run: Option<RunId>,
    ) -> Result<()> {
        let mut tables = self.tables();
        let item = &mut tables.taken(id, lease)?.item;
        (item.new.session, item.run) = (Some(session), run);
        Ok(())
    }

    async fn settle_queue_item(
        &self,
        id: QueueItemId,
        lease: u32,
        outcome: &QueueOutcome,
        at: Timestamp,
    ) -> Result<()> {
        let mut tables = self.tables();
        let row = tables.taken(id, lease)?;
        let item = &mut row.item;
        match outcome.clone() {
            QueueOutcome::Completed { stop_reason, result } => {
                item.status = QueueStatus::Completed;
                (item.stop_reason, item.result, item.error) = (Some(stop_reason), result, None);
            }
            QueueOutcome::Cancelled => item.status = QueueStatus::Cancelled,
            QueueOutcome::Failed(error) => {
                (item.status, item.error) = (QueueStatus::Failed, Some(error));
            }
            QueueOutcome::Retry(error, ready_at) => {
                item.status = QueueStatus::Pending;
                (item.error, item.run) = (Some(error), None);
                item.retry_count += 1;
                row.available_at = ready_at;
                return Ok(());
            }
            QueueOutcome::PutBack(ready_at) => {
                item.status = QueueStatus::Pending;
                row.available_at = ready_at;
                return Ok(());
            }
        }
        item.completed_at = Some(at);
        Ok(())
    }

    async fn purge_queue_items(&self, before: Timestamp) -> Result<u64> {
        let mut tables = self.tables();
        let had = tables.queue.len();
        tables.queue.retain(|_, row| row.item.completed_at.is_none_or(|at| at >= before));
        Ok((had - tables.queue.len()) as u64)
    }
}
