//! A store that is slow, fails, and loses answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ash_core::id::{
    AgentName, ApiKeyId, AttachmentId, CredentialId, OutboxId, QueueItemId, RunId, SessionId,
    SnapshotId, TenantId,
};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Fence, Incarnation, Owner, Seq};
use ash_core::session::{LogEntry, Session};
use ash_core::time::Timestamp;
use ash_store::{
    Agent, ApiKey, Attachment, AttachmentStore, Census, Claimed, CloudHead, CloudUse, Commit,
    Credential, ImportedSession, KeyHash, LabelledVersion, NewAgentVersion, NewQueueItem,
    NewSession, OutboxItem, OutboxTask, PageRequest, Place, QueueCounts, QueueItem, QueueOutcome,
    QueueStatus, QueueStore, QueueTask, Receipt, ReceiptKey, Resting, Result, RunRecord,
    SessionFilter, SessionRecord, Spend, Store, StoreError, StoredSession, StoredSnapshot, Tenant,
    UsageFilter, UsageRecord, UsageTotals, UsedCloud, VersionChange, Withdrawal,
};
use async_trait::async_trait;

use super::{Dice, Gate};

/// How a [`FlakyStore`] misbehaves, in chances per thousand operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreFaults {
    /// It does nothing and says so.
    pub fails: u64,
    /// It does what it was asked and says that it may not have.
    pub loses_answer: u64,
    /// A claim finds something that it cannot read.
    pub damages: u64,
    /// A commit finds no room, where a claim does.
    pub full: u64,
    /// A commit panics, as only a defect would.
    pub panics: u64,
    /// The longest it takes, each way.
    pub slowness: Duration,
}

/// Another store, behind a gate and a bad line.
pub struct FlakyStore {
    inner: Arc<dyn Store>,
    dice: Arc<Dice>,
    mood: Mutex<(Gate, StoreFaults)>,
    panic_next: AtomicBool,
    full_commits: AtomicU64,
}

impl FlakyStore {
    /// A store that behaves, for now.
    pub fn new(inner: Arc<dyn Store>, dice: Arc<Dice>) -> Self {
        let (mood, panic_next, full_commits) = Default::default();
        Self { inner, dice, mood, panic_next, full_commits }
    }

    /// How many commits found no room so far.
    pub fn full_commits(&self) -> u64 {
        self.full_commits.load(Ordering::Relaxed)
    }

    /// From now on: for the next engine, behind its gate.
    pub fn behave(&self, gate: Gate, faults: StoreFaults) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = (gate, faults);
    }

    /// The next commit panics.
    pub fn panic_once(&self) {
        self.panic_next.store(true, Ordering::Relaxed);
    }

    fn must_panic(&self, operation: &str, faults: StoreFaults) -> bool {
        operation == "commit"
            && (self.panic_next.swap(false, Ordering::Relaxed) || self.dice.chance(faults.panics))
    }

    /// The way to the store.
    async fn line(&self) -> (Gate, StoreFaults) {
        let (gate, faults) = self.mood.lock().unwrap_or_else(PoisonError::into_inner).clone();
        gate.pass().await;
        self.dawdle(&gate, faults).await;
        (gate, faults)
    }

    async fn dawdle(&self, gate: &Gate, faults: StoreFaults) {
        if !faults.slowness.is_zero() {
            tokio::time::sleep(self.dice.while_of(faults.slowness)).await;
            gate.pass().await;
        }
    }

    /// The way back. The world goes on meanwhile: what was read may be old when it arrives.
    async fn back<T>(&self, (gate, faults): (Gate, StoreFaults), result: Result<T>) -> Result<T> {
        gate.pass().await;
        self.dawdle(&gate, faults).await;
        if result.is_ok() && self.dice.chance(faults.loses_answer) {
            return Err(unavailable("the answer was lost"));
        }
        result
    }
}

fn unavailable(why: &'static str) -> StoreError {
    StoreError::Unavailable(why.into())
}

macro_rules! through_the_line {
    ($part:ident: $(fn $name:ident($($arg:ident: $type:ty),*) -> $output:ty;)*) => {
        #[async_trait]
        impl $part for FlakyStore {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$output> {
                let line = self.line().await;
                if self.dice.chance(line.1.fails) {
                    return Err(unavailable("the store is away"));
                }
                if stringify!($name) == "claim_session" && self.dice.chance(line.1.damages) {
                    let source = "it was just for a moment".into();
                    return Err(StoreError::Damaged { what: "session", source });
                }
                if stringify!($name) == "commit" && self.dice.chance(line.1.full) {
                    self.full_commits.fetch_add(1, Ordering::Relaxed);
                    return Err(StoreError::Full("there is no room".into()));
                }
                if self.must_panic(stringify!($name), line.1) {
                    // Without the hook that prints: it is meant to happen.
                    std::panic::resume_unwind(Box::new("a planted panic"));
                }
                let result = self.inner.$name($($arg),*).await;
                self.back(line, result).await
            })*
        }
    };
}

through_the_line! {
    QueueStore:
    fn create_queue_item(item: &NewQueueItem, receipt: Option<&Receipt>) -> ();
    fn queue_item(tenant: &TenantId, id: QueueItemId) -> QueueItem;
    fn queue_items(
        tenant: &TenantId,
        status: Option<QueueStatus>,
        after: Option<QueueItemId>,
        limit: u32
    ) -> Vec<QueueItem>;
    fn queue_counts(tenant: &TenantId) -> QueueCounts;
    fn withdraw_queue_item(tenant: &TenantId, id: QueueItemId, at: Timestamp) -> Withdrawal;
    fn next_queue_item() -> Option<Timestamp>;
    fn claim_queue_item(now: Timestamp, leased_until: Timestamp) -> Option<QueueTask>;
    fn release_queue_items(now: Timestamp) -> u64;
    fn hold_queue_item(id: QueueItemId, lease: u32, leased_until: Timestamp) -> ();
    fn note_queue_item(id: QueueItemId, lease: u32, session: SessionId, run: Option<RunId>) -> ();
    fn settle_queue_item(id: QueueItemId, lease: u32, outcome: &QueueOutcome, at: Timestamp) -> ();
    fn purge_queue_items(before: Timestamp) -> u64;
}

through_the_line! {
    AttachmentStore:
    fn create_attachment(attachment: &Attachment, receipt: Option<&Receipt>) -> ();
    fn attachment(tenant: &TenantId, id: AttachmentId) -> Attachment;
    fn attachments(tenant: &TenantId, session: SessionId) -> Vec<Attachment>;
    fn unplaced_attachments(session: SessionId) -> Vec<Attachment>;
    fn sessions_with_unplaced() -> Vec<SessionId>;
    fn place_attachment(id: AttachmentId) -> ();
    fn delete_attachment(tenant: &TenantId, id: AttachmentId, receipt: Option<&ReceiptKey>) -> ();
}

through_the_line! {
    Store:
    fn create_tenant(tenant: &Tenant) -> ();
    fn tenant(id: &TenantId) -> Tenant;
    fn tenants() -> Vec<Tenant>;
    fn create_api_key(key: &ApiKey, receipt: Option<&Receipt>) -> ();
    fn api_key_by_hash(hash: &KeyHash) -> ApiKey;
    fn api_keys(tenant: &TenantId) -> Vec<ApiKey>;
    fn revoke_api_key(tenant: &TenantId, id: ApiKeyId) -> ();
    fn create_credential(credential: &Credential, receipt: Option<&Receipt>) -> ();
    fn credential(tenant: &TenantId, id: CredentialId) -> Credential;
    fn credentials(tenant: &TenantId) -> Vec<Credential>;
    fn touch_credential(tenant: &TenantId, id: CredentialId, at: Timestamp) -> ();
    fn delete_credential(tenant: &TenantId, id: CredentialId) -> ();
    fn deploy_agent(version: &NewAgentVersion) -> Agent;
    fn agent(tenant: &TenantId, name: &AgentName) -> Agent;
    fn agent_version(tenant: &TenantId, name: &AgentName, version: AgentVersion) -> Agent;
    fn agent_versions(tenant: &TenantId, name: &AgentName) -> Vec<LabelledVersion>;
    fn change_version(
        tenant: &TenantId,
        name: &AgentName,
        number: AgentVersion,
        change: &VersionChange,
        at: Timestamp
    ) -> LabelledVersion;
    fn configure_agent(tenant: &TenantId, name: &AgentName, settings: &Json, at: Timestamp)
        -> Agent;
    fn agents(tenant: &TenantId) -> Vec<Agent>;
    fn used_definitions() -> Vec<Json>;
    fn delete_agent(tenant: &TenantId, name: &AgentName) -> Vec<SessionId>;
    fn next_owner() -> Owner;
    fn create_session(session: &NewSession) -> Fence;
    fn import_session(session: &ImportedSession) -> Fence;
    fn claim_session(id: SessionId, owner: Owner) -> Claimed;
    fn commit(commit: &Commit) -> ();
    fn session_record(id: SessionId) -> SessionRecord;
    fn session(tenant: &TenantId, id: SessionId) -> Arc<StoredSession>;
    fn sessions(tenant: &TenantId, filter: &SessionFilter, page: &PageRequest)
        -> Vec<StoredSession>;
    fn count_sessions(tenant: &TenantId, filter: &SessionFilter) -> u64;
    fn unsettled_sessions(after: Option<SessionId>, limit: u32) -> Vec<SessionId>;
    fn abandoned_sessions(after: Option<SessionId>, limit: u32) -> Vec<SessionId>;
    fn sandboxed_sessions(after: Option<SessionId>, limit: u32) -> Vec<(SessionId, Incarnation)>;
    fn housed_sessions() -> Vec<Session>;
    fn due_sessions(now: Timestamp, limit: u32) -> Vec<(SessionId, Timestamp)>;
    fn expected_incarnation(id: SessionId) -> Option<Incarnation>;
    fn census() -> Census;
    fn events_after(session: SessionId, after: Seq, limit: u32) -> Vec<LogEntry>;
    fn messages_after(session: SessionId, after: Seq, limit: u32) -> Vec<LogEntry>;
    fn run(session: SessionId, run: RunId) -> RunRecord;
    fn runs(session: SessionId, limit: u32) -> Vec<RunRecord>;
    fn prompt(session: SessionId, run: RunId) -> Json;
    fn usage(tenant: &TenantId, filter: &UsageFilter) -> UsageTotals;
    fn usage_records(tenant: &TenantId, filter: &UsageFilter, limit: u32) -> Vec<UsageRecord>;
    fn spend(session: SessionId) -> Spend;
    fn add_spend(session: SessionId, more: Spend) -> ();
    fn snapshots(session: SessionId, limit: u32) -> Vec<StoredSnapshot>;
    fn snapshot(session: SessionId, id: SnapshotId) -> StoredSnapshot;
    fn lost_snapshot(session: SessionId, id: SnapshotId, place: Place) -> ();
    fn found_snapshot(session: SessionId, id: SnapshotId, place: Place) -> ();
    fn cloud_heads(sessions: &[SessionId]) -> BTreeMap<SessionId, CloudHead>;
    fn put_cloud_head(session: SessionId, head: &CloudHead) -> ();
    fn used_cloud() -> Option<UsedCloud>;
    fn use_cloud(bucket: &str, url: &str, writer: &str) -> CloudUse;
    fn lagging_sessions(after: Option<SessionId>, limit: u32) -> Vec<SessionId>;
    fn cloud_lag() -> u64;
    fn forget_snapshot(session: SessionId, id: SnapshotId) -> ();
    fn prune_snapshots(session: SessionId, keep: u32, needed: &[SnapshotId]) -> Vec<SnapshotId>;
    fn unneeded_snapshots(tenant: &TenantId, ids: &[SnapshotId]) -> Vec<SnapshotId>;
    fn resting_sessions(after: Option<SessionId>, limit: u32) -> Resting;
    fn redate_session(
        id: SessionId,
        expected: Seq,
        recorded: Option<Timestamp>,
        due_at: Option<Timestamp>
    ) -> ();
    fn purge_session(id: SessionId, fence: Fence, outbox: &[OutboxItem]) -> ();
    fn purge_logs() -> bool;
    fn receipt(key: &ReceiptKey) -> Option<Receipt>;
    fn purge_receipts(before: Timestamp) -> u64;
    fn claim_outbox(topic: &str, now: Timestamp, leased_until: Timestamp, limit: u32)
        -> Vec<OutboxTask>;
    fn release_outbox(topic: &str, now: Timestamp) -> u64;
    fn finish_outbox(id: OutboxId, attempt: u32) -> ();
    fn retry_outbox(id: OutboxId, attempt: u32, ready_at: Timestamp) -> ();
}
