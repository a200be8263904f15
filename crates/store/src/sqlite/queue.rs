//! The queue in its table.

use ash_core::id::{QueueItemId, RunId, SessionId, TenantId};
use ash_core::time::Timestamp;
use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use super::fault::damaged;
use super::rows::{self, maybe_time, parse, parsed, time};
use super::sql::{AFTER_EVERY_ID, queue as sql};
use super::write::{self, change_one};
use super::{SqliteStore, read};
use crate::model::Receipt;
use crate::queue::{
    MAX_QUEUE_PAGE_BYTES, MAX_QUEUE_WAIT, NewQueueItem, QueueCounts, QueueError, QueueItem,
    QueueOutcome, QueueStatus, QueueStore, QueueTask, Withdrawal,
};
use crate::{Result, StoreError};

const WHAT: &str = "queue item";

#[async_trait]
impl QueueStore for SqliteStore {
    async fn create_queue_item(
        &self,
        item: &NewQueueItem,
        receipt: Option<&Receipt>,
    ) -> Result<()> {
        let (item, receipt) = (item.clone(), receipt.cloned());
        self.writer.perform(move |db| create(db, &item, receipt.as_ref())).await
    }

    async fn queue_item(&self, tenant: &TenantId, id: QueueItemId) -> Result<QueueItem> {
        let tenant = tenant.clone();
        self.readers.look_up(move |db| one(db, &tenant, id)).await
    }

    async fn queue_items(
        &self,
        tenant: &TenantId,
        status: Option<QueueStatus>,
        after: Option<QueueItemId>,
        limit: u32,
    ) -> Result<Vec<QueueItem>> {
        let tenant = tenant.clone();
        self.readers.perform(move |db| list(db, &tenant, status, after, limit)).await
    }

    async fn queue_counts(&self, tenant: &TenantId) -> Result<QueueCounts> {
        let tenant = tenant.clone();
        self.readers.perform(move |db| counts(db, &tenant)).await
    }

    async fn withdraw_queue_item(
        &self,
        tenant: &TenantId,
        id: QueueItemId,
        at: Timestamp,
    ) -> Result<Withdrawal> {
        let tenant = tenant.clone();
        self.writer.perform(move |db| withdraw(db, &tenant, id, at)).await
    }

    async fn next_queue_item(&self) -> Result<Option<Timestamp>> {
        let next = |db: &_| read::one(db, sql::NEXT_TIME, [], |row| maybe_time(row, 0), WHAT);
        self.readers.look_up(next).await
    }

    async fn claim_queue_item(
        &self,
        now: Timestamp,
        leased_until: Timestamp,
    ) -> Result<Option<QueueTask>> {
        self.writer.perform(move |db| claim(db, now, leased_until)).await
    }

    async fn release_queue_items(&self, now: Timestamp) -> Result<u64> {
        let release = move |db: &Connection| {
            Ok(db.prepare_cached(sql::RELEASE)?.execute([now.as_millis()])? as u64)
        };
        self.writer.perform(release).await
    }

    async fn hold_queue_item(
        &self,
        id: QueueItemId,
        lease: u32,
        leased_until: Timestamp,
    ) -> Result<()> {
        let hold = move |db: &_| {
            let values = params![id.to_string(), lease, leased_until.as_millis()];
            change_one(db, sql::HOLD, values, WHAT)
        };
        self.writer.perform(hold).await
    }

    async fn note_queue_item(
        &self,
        id: QueueItemId,
        lease: u32,
        session: SessionId,
        run: Option<RunId>,
    ) -> Result<()> {
        let note = move |db: &_| {
            let (session, run) = (session.to_string(), run.map(|run| run.to_string()));
            change_one(db, sql::NOTE, params![id.to_string(), lease, session, run], WHAT)
        };
        self.writer.perform(note).await
    }

    async fn settle_queue_item(
        &self,
        id: QueueItemId,
        lease: u32,
        outcome: &QueueOutcome,
        at: Timestamp,
    ) -> Result<()> {
        let outcome = outcome.clone();
        self.writer.perform(move |db| settle(db, id, lease, &outcome, at)).await
    }

    async fn purge_queue_items(&self, before: Timestamp) -> Result<u64> {
        let purge = move |db: &Connection| {
            Ok(db.prepare_cached(sql::PURGE)?.execute([before.as_millis()])? as u64)
        };
        self.writer.perform(purge).await
    }
}

fn create(db: &Connection, item: &NewQueueItem, receipt: Option<&Receipt>) -> Result<()> {
    read::tenant(db, &item.tenant)?;
    let values = params![
        item.id.to_string(),
        item.tenant.as_str(),
        item.agent_name.as_str(),
        item.prompt,
        item.priority,
        item.max_retries,
        item.created_at.as_millis(),
        item.session.map(|session| session.to_string()),
    ];
    write::insert(db, sql::INSERT, values, WHAT)?;
    write::keep_receipt(db, receipt)
}

fn one(db: &Connection, tenant: &TenantId, id: QueueItemId) -> Result<QueueItem> {
    let task = read::one(db, sql::ITEM, params![tenant.as_str(), id.to_string()], task, WHAT)?;
    Ok(task.item)
}

fn list(
    db: &Connection,
    tenant: &TenantId,
    status: Option<QueueStatus>,
    after: Option<QueueItemId>,
    limit: u32,
) -> Result<Vec<QueueItem>> {
    let after = after.map_or_else(|| AFTER_EVERY_ID.to_owned(), |after| after.to_string());
    let status = status.map(QueueStatus::as_str);
    let mut select = db.prepare_cached(sql::ITEMS)?;
    let mut rows = select.query(params![tenant.as_str(), after, status, limit])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while bytes < MAX_QUEUE_PAGE_BYTES
        && let Some(row) = rows.next()?
    {
        let item = task(row)?.item;
        bytes += item.bytes();
        found.push(item);
    }
    Ok(found)
}

fn counts(db: &Connection, tenant: &TenantId) -> Result<QueueCounts> {
    let each = |row: &Row<'_>| Ok((status(&row.get::<_, String>(0)?)?, rows::count(row, 1)?));
    let mut counts = QueueCounts::default();
    for (status, count) in read::list(db, sql::COUNTS, [tenant.as_str()], each)? {
        *counts.of(status) = count;
    }
    Ok(counts)
}

fn withdraw(
    db: &Connection,
    tenant: &TenantId,
    id: QueueItemId,
    at: Timestamp,
) -> Result<Withdrawal> {
    let values = params![tenant.as_str(), id.to_string(), at.as_millis()];
    let changed = db.prepare_cached(sql::WITHDRAW)?.execute(values)?;
    let item = one(db, tenant, id)?;
    Ok(if changed == 0 { Withdrawal::TooLate(item) } else { Withdrawal::Done(item) })
}

fn claim(db: &Connection, now: Timestamp, leased_until: Timestamp) -> Result<Option<QueueTask>> {
    let ready = params![now.as_millis(), now.plus(MAX_QUEUE_WAIT).as_millis()];
    let mut taken = match read::one(db, sql::NEXT_ITEM, ready, task, WHAT) {
        Err(StoreError::NotFound(_)) => return Ok(None),
        found => found?,
    };
    let id = taken.item.new.id.to_string();
    let values = params![id, leased_until.as_millis(), now.as_millis()];
    change_one(db, sql::TAKE, values, WHAT)?;
    taken.lease += 1;
    taken.item.status = QueueStatus::Processing;
    taken.item.started_at = taken.item.started_at.or(Some(now));
    Ok(Some(taken))
}

fn settle(
    db: &Connection,
    id: QueueItemId,
    lease: u32,
    outcome: &QueueOutcome,
    at: Timestamp,
) -> Result<()> {
    let (id, at) = (id.to_string(), at.as_millis());
    match outcome {
        QueueOutcome::Completed { stop_reason, result } => {
            change_one(db, sql::COMPLETE, params![id, lease, at, stop_reason, result], WHAT)
        }
        QueueOutcome::Cancelled => change_one(db, sql::CANCEL, params![id, lease, at], WHAT),
        QueueOutcome::Failed(QueueError { code, message }) => {
            change_one(db, sql::FAIL, params![id, lease, at, code, message], WHAT)
        }
        QueueOutcome::Retry(QueueError { code, message }, ready_at) => {
            let values = params![id, lease, ready_at.as_millis(), code, message];
            change_one(db, sql::RETRY, values, WHAT)
        }
        QueueOutcome::PutBack(ready_at) => {
            change_one(db, sql::PUT_BACK, params![id, lease, ready_at.as_millis()], WHAT)
        }
    }
}

fn status(text: &str) -> Result<QueueStatus> {
    let found = QueueStatus::ALL.into_iter().find(|status| status.as_str() == text);
    found.ok_or_else(|| damaged(WHAT, "its status is none"))
}

/// An item as it is before it is taken.
fn task(row: &Row<'_>) -> Result<QueueTask> {
    let (session, run): (Option<String>, Option<String>) = (row.get(7)?, row.get(10)?);
    let error = match (row.get(13)?, row.get(14)?) {
        (Some(code), Some(message)) => Some(QueueError { code, message }),
        (_, _) => None,
    };
    let new = NewQueueItem {
        id: parsed(row, 0, WHAT)?,
        tenant: parsed(row, 1, WHAT)?,
        agent_name: parsed(row, 2, WHAT)?,
        prompt: row.get(3)?,
        priority: row.get(4)?,
        max_retries: row.get(5)?,
        created_at: time(row, 6)?,
        session: session.map(|session| parse(&session, WHAT)).transpose()?,
    };
    let item = QueueItem {
        new,
        status: status(&row.get::<_, String>(8)?)?,
        retry_count: row.get(9)?,
        run: run.map(|run| parse(&run, WHAT)).transpose()?,
        stop_reason: row.get(11)?,
        result: row.get(12)?,
        error,
        started_at: maybe_time(row, 15)?,
        completed_at: maybe_time(row, 16)?,
    };
    Ok(QueueTask { item, lease: row.get(17)? })
}
