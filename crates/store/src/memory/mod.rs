//! The store in memory: the specification in code, and the store of simulations and tests.
//!
//! It is written to be read: one lock, plain maps, no index that a sorted map does not give. Where
//! another backend behaves differently, the other backend is wrong.

mod agents;
mod attachments;
mod cloud;
mod commit;
mod create;
mod keys;
mod outbox;
mod purge;
mod queue;
mod snapshots;
mod store;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use ash_core::id::{
    AgentId, ApiKeyId, AttachmentId, CredentialId, OutboxId, QueueItemId, RunId, SessionId,
    SnapshotId, TenantId,
};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Fence, Owner, Seq};
use ash_core::run::{RunStatus, Usage};
use ash_core::session::{LogEntry, RunChange, Session};
use ash_core::time::Timestamp;

use crate::attachment::Attachment;
use crate::model::{
    Agent, ApiKey, CloudHead, Credential, OutboxItem, Receipt, ReceiptKey, RunRecord,
    SessionFilter, SessionRecord, StoredSession, StoredSnapshot, Tenant, UsedCloud, storable_usage,
};
use crate::{Result, Spend, StoreError};

/// A store that forgets when it is dropped.
pub struct MemoryStore {
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    tenants: BTreeMap<TenantId, Tenant>,
    keys: BTreeMap<ApiKeyId, ApiKey>,
    credentials: BTreeMap<CredentialId, Credential>,
    agents: BTreeMap<(AgentId, AgentVersion), Agent>,
    /// What people know versions by.
    labels: BTreeMap<(AgentId, AgentVersion), agents::Label>,
    /// The version that new sessions get.
    active: BTreeMap<AgentId, AgentVersion>,
    deleted_agents: BTreeSet<AgentId>,
    /// What agents are set to, and since when.
    configured: BTreeMap<AgentId, (Json, Timestamp)>,
    sessions: BTreeMap<SessionId, Row>,
    /// Sessions that are gone, but for the rest of a long log.
    purged: BTreeMap<SessionId, (AgentId, Vec<LogEntry>)>,
    receipts: BTreeMap<ReceiptKey, Receipt>,
    outbox: BTreeMap<OutboxId, OutboxRow>,
    queue: BTreeMap<QueueItemId, queue::QueueRow>,
    attachments: BTreeMap<AttachmentId, Attachment>,
    last_owner: Owner,
    /// Which cloud is used, and as whom.
    cloud_use: Option<(UsedCloud, String)>,
}

struct Row {
    record: SessionRecord,
    session: Session,
    due_at: Option<Timestamp>,
    owner: Owner,
    fence: Fence,
    log: Vec<LogEntry>,
    /// Through which entry the log was written elsewhere.
    inherited: Seq,
    runs: BTreeMap<RunId, RunRecord>,
    snapshots: BTreeMap<(Seq, SnapshotId), StoredSnapshot>,
    cloud_head: Option<CloudHead>,
    spend: Spend,
}

struct OutboxRow {
    item: OutboxItem,
    attempt: u32,
    available_at: Timestamp,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store, but for the default tenant.
    pub fn new() -> Self {
        let mut tables = Tables::default();
        let id = TenantId::default_tenant();
        tables.tenants.insert(id.clone(), Tenant { id, created_at: Timestamp::from_millis(0) });
        Self { tables: Mutex::new(tables) }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().expect("no operation panics while it holds the lock")
    }
}

impl Tables {
    fn row(&self, id: SessionId) -> Result<&Row> {
        self.sessions.get(&id).ok_or(StoreError::NotFound("session"))
    }

    fn is_visible(&self, row: &Row) -> bool {
        !self.deleted_agents.contains(&row.record.agent)
    }

    /// A tenant's sessions that the filter matches, newest first.
    fn matching<'a>(
        &'a self,
        tenant: &'a TenantId,
        filter: &'a SessionFilter,
    ) -> impl Iterator<Item = &'a Row> {
        self.sessions.values().rev().filter(move |row| {
            row.record.tenant == *tenant
                && self.is_visible(row)
                && filter.agent.as_ref().is_none_or(|agent| row.record.agent_name == *agent)
                && filter.status.is_none_or(|status| row.session.status() == status)
                && filter
                    .id_prefix
                    .as_ref()
                    .is_none_or(|prefix| row.record.id.to_string().starts_with(prefix))
        })
    }

    fn sessions_after(&self, after: Option<SessionId>) -> impl Iterator<Item = &Row> {
        self.sessions.values().filter(move |row| after.is_none_or(|after| row.record.id > after))
    }

    fn check_receipt(&self, receipt: Option<&Receipt>) -> Result<()> {
        match receipt {
            Some(receipt) if self.receipts.contains_key(&receipt.key) => {
                Err(StoreError::Exists("receipt"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn keep_receipt(&mut self, receipt: Option<&Receipt>) {
        if let Some(receipt) = receipt {
            self.receipts.insert(receipt.key.clone(), receipt.clone());
        }
    }

    fn outbox_attempt(&mut self, id: OutboxId, attempt: u32) -> Result<&mut OutboxRow> {
        self.outbox
            .get_mut(&id)
            .filter(|row| row.attempt == attempt)
            .ok_or(StoreError::NotFound("outbox task"))
    }
}

fn stored(row: &Row) -> StoredSession {
    StoredSession { record: row.record.clone(), session: row.session.clone() }
}

/// What a change makes of the history of runs. A run is accepted once; the rest needs it to exist.
fn apply_run_change(
    runs: &mut BTreeMap<RunId, RunRecord>,
    session: SessionId,
    change: &RunChange,
) -> Result<()> {
    let unknown = StoreError::NotFound("run");
    match change {
        RunChange::Accepted { run, prompt_seq, at } => {
            let record = RunRecord {
                id: *run,
                session,
                status: RunStatus::Queued,
                prompt_seq: *prompt_seq,
                turn: None,
                parent_turn: None,
                phase: None,
                round: 0,
                stop_reason: None,
                failure: None,
                usage: Usage::default(),
                accepted_at: *at,
                started_at: None,
                ended_at: None,
            };
            if runs.insert(*run, record).is_some() {
                return Err(StoreError::Exists("run"));
            }
        }
        RunChange::Started { run, turn, parent_turn, at } => {
            let record = runs.get_mut(run).ok_or(unknown)?;
            record.status = RunStatus::Running;
            record.turn = Some(*turn);
            record.parent_turn = Some(*parent_turn);
            record.started_at = Some(*at);
        }
        RunChange::Progressed { run, phase, round } => {
            let record = runs.get_mut(run).ok_or(unknown)?;
            record.phase = Some(*phase);
            record.round = *round;
        }
        RunChange::Ended { run, outcome, usage, at } => {
            let record = runs.get_mut(run).ok_or(unknown)?;
            record.status = outcome.status();
            record.stop_reason = Some(outcome.stop_reason().to_owned());
            record.failure = outcome.failure().cloned();
            record.usage = storable_usage(*usage);
            record.ended_at = Some(*at);
        }
    }
    Ok(())
}
