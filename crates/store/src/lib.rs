//! Metadata and the event log. SQL lives in this crate and nowhere else.
//!
//! [`Store`] is a trait of whole operations in terms of plain data: each either happened entirely
//! and is durable when it returns, or did not happen. [`memory`] is its specification in code;
//! [`sqlite`] is the default of a single machine. `tests/it/contract` holds every implementation
//! to the same behavior.
//!
//! Two rules guard a session's history:
//!
//! - **The fence.** Every claim of a session raises its [`Fence`]; every write of a session names
//!   the fence it holds and is refused with [`StoreError::Fenced`] when a later claim exists. A
//!   process that was stalled for an hour and wakes up cannot write.
//! - **The expected end.** A commit names the last log entry it was decided on and brings the next
//!   ones with their numbers. If the log ends elsewhere, it is a [`StoreError::Conflict`]. So the
//!   log has no holes and nothing is applied twice.
//!
//! An error for which [`StoreError::is_transient`] holds leaves the outcome open: the commit may
//! have happened with its acknowledgement lost. Whoever gets it claims the session again, which
//! settles the matter: the earlier write is either in what the claim returns, or fenced out.

mod attachment;
mod error;
pub mod memory;
mod model;
mod place;
mod queue;
mod spend;
pub mod sqlite;
mod version;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ash_core::id::{
    AgentName, ApiKeyId, CredentialId, OutboxId, RunId, SessionId, SnapshotId, TenantId,
};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Fence, Incarnation, Owner, Seq};
use ash_core::session::{LogEntry, Session};
use ash_core::time::Timestamp;
use async_trait::async_trait;

pub use attachment::{Attachment, AttachmentStore};
pub use error::StoreError;
pub use model::{
    Agent, ApiKey, Census, Claimed, CloudHead, CloudUse, Commit, Credential, ImportedSession,
    Inherited, KeyHash, NewAgentVersion, NewSession, OutboxItem, OutboxTask, PageRequest, Place,
    Places, Receipt, ReceiptKey, Resting, RunRecord, SessionFilter, SessionRecord, Settings,
    StoredSession, StoredSnapshot, Tenant, UsageFilter, UsageRecord, UsageTotals, UsedCloud,
};
pub use queue::{
    MAX_QUEUE_PAGE_BYTES, MAX_QUEUE_WAIT, NewQueueItem, QUEUE_ROUTE, QueueCounts, QueueError,
    QueueItem, QueueOutcome, QueueStatus, QueueStore, QueueTask, Withdrawal,
};
pub use spend::Spend;
pub use version::{LabelledVersion, NewLabel, VersionChange, VersionLabel};

/// The result of every operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// The largest single entry a log takes, as JSON. Larger output is cut into pieces, or refused,
/// before it gets here.
pub const MAX_ENTRY_BYTES: usize = 24 * 1024 * 1024;

/// How many bytes of entries are read at once, about: a page ends with the entry that reaches it.
pub const MAX_PAGE_BYTES: usize = 1024 * 1024;

/// How many entries of a log are removed at once when its session is purged: others write too.
pub const PURGED_AT_ONCE: u32 = 1_000;

/// For how long a task may be put back.
pub const MAX_OUTBOX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// What the product has to remember. Every method is one atomic, durable operation.
#[async_trait]
pub trait Store: QueueStore + AttachmentStore + Send + Sync + 'static {
    // --- Tenants and their keys -------------------------------------------------------------

    /// Adds a tenant. The default one exists from the start.
    async fn create_tenant(&self, tenant: &Tenant) -> Result<()>;
    /// One tenant.
    async fn tenant(&self, id: &TenantId) -> Result<Tenant>;
    /// All tenants, by id.
    async fn tenants(&self) -> Result<Vec<Tenant>>;

    /// Adds an API key. Only its hash is kept.
    async fn create_api_key(&self, key: &ApiKey, receipt: Option<&Receipt>) -> Result<()>;
    /// Finds the key that a caller presented.
    async fn api_key_by_hash(&self, hash: &KeyHash) -> Result<ApiKey>;
    /// A tenant's keys, oldest first.
    async fn api_keys(&self, tenant: &TenantId) -> Result<Vec<ApiKey>>;
    /// Removes a tenant's key for good.
    async fn revoke_api_key(&self, tenant: &TenantId, id: ApiKeyId) -> Result<()>;

    /// Adds a credential, sealed by the caller.
    async fn create_credential(
        &self,
        credential: &Credential,
        receipt: Option<&Receipt>,
    ) -> Result<()>;
    /// A tenant's credential.
    async fn credential(&self, tenant: &TenantId, id: CredentialId) -> Result<Credential>;
    /// A tenant's credentials, oldest first.
    async fn credentials(&self, tenant: &TenantId) -> Result<Vec<Credential>>;
    /// Notes that a tenant's credential was used. The latest time stays.
    async fn touch_credential(
        &self,
        tenant: &TenantId,
        id: CredentialId,
        at: Timestamp,
    ) -> Result<()>;
    /// Removes a tenant's credential for good.
    async fn delete_credential(&self, tenant: &TenantId, id: CredentialId) -> Result<()>;

    // --- Agents -----------------------------------------------------------------------------

    /// Adds the next version of an agent, or the first of a new one, and returns it. What a version consists of never
    /// changes. The answer of its receipt is replaced by `{"version":n}`: the number is known only here.
    async fn deploy_agent(&self, version: &NewAgentVersion) -> Result<Agent>;
    /// The active version of a tenant's agent: the one that new sessions get.
    async fn agent(&self, tenant: &TenantId, name: &AgentName) -> Result<Agent>;
    /// What a version of a tenant's agent consists of, for ever: also if it is retired.
    async fn agent_version(
        &self,
        tenant: &TenantId,
        name: &AgentName,
        version: AgentVersion,
    ) -> Result<Agent>;
    /// Every version of a tenant's agent that is not retired, newest first.
    async fn agent_versions(
        &self,
        tenant: &TenantId,
        name: &AgentName,
    ) -> Result<Vec<LabelledVersion>>;
    /// Changes a version of a tenant's agent, by the number that people know it by. Returns it as it is then, or as it
    /// was if it is gone.
    async fn change_version(
        &self,
        tenant: &TenantId,
        name: &AgentName,
        number: AgentVersion,
        change: &VersionChange,
        at: Timestamp,
    ) -> Result<LabelledVersion>;
    /// Replaces what an agent is set to. It holds for all its versions, and for those to come.
    async fn configure_agent(
        &self,
        tenant: &TenantId,
        name: &AgentName,
        settings: &Json,
        at: Timestamp,
    ) -> Result<Agent>;
    /// The active version of each of a tenant's agents, by name.
    async fn agents(&self, tenant: &TenantId) -> Result<Vec<Agent>>;
    /// What agents of all tenants consist of: every version that can be used, and of those that are retired or whose
    /// agent is deleted the ones that a session was made with.
    async fn used_definitions(&self) -> Result<Vec<Json>>;
    /// Deletes an agent and hides its sessions from every list and look-up. Returns those that
    /// have not ended: the caller ends them, or whoever finds them abandoned.
    async fn delete_agent(&self, tenant: &TenantId, name: &AgentName) -> Result<Vec<SessionId>>;

    // --- Sessions ---------------------------------------------------------------------------

    /// Begins the life of a server: the number it claims sessions with.
    async fn next_owner(&self) -> Result<Owner>;
    /// Adds a session, claimed by `owner`, with its first entries. Returns its fence. Once a later
    /// owner has begun, it is [`StoreError::Superseded`].
    async fn create_session(&self, session: &NewSession) -> Result<Fence>;
    /// Adds a session that begins with a history: its log, its runs and its snapshots. As
    /// [`create_session`](Self::create_session); what it inherits must be there, and of its tenant: a snapshot that the
    /// other session has lost meanwhile is `NotFound("snapshot")`.
    async fn import_session(&self, session: &ImportedSession) -> Result<Fence>;
    /// Makes `owner` the session's owner and raises its fence: whoever owned it before can write
    /// no more. A later owner keeps it. Works on hidden sessions too.
    async fn claim_session(&self, id: SessionId, owner: Owner) -> Result<Claimed>;
    /// Records a decision: the session's new value, its entries, runs and everything else, in
    /// one piece.
    async fn commit(&self, commit: &Commit) -> Result<()>;
    /// What a session is, whatever its tenant, hidden or not: for the server's own errands.
    async fn session_record(&self, id: SessionId) -> Result<SessionRecord>;
    /// A tenant's session. As long as it does not change, it may be the same one each time.
    async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Arc<StoredSession>>;
    /// A tenant's sessions, newest first.
    async fn sessions(
        &self,
        tenant: &TenantId,
        filter: &SessionFilter,
        page: &PageRequest,
    ) -> Result<Vec<StoredSession>>;
    /// How many sessions the filter matches.
    async fn count_sessions(&self, tenant: &TenantId, filter: &SessionFilter) -> Result<u64>;
    /// Sessions of any tenant that are not at rest, by id, after `after`: what a new owner has to
    /// take up.
    async fn unsettled_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<SessionId>>;
    /// Sessions of any tenant whose sandbox is at work or frozen, so that it must be alive, by id,
    /// after `after`.
    async fn sandboxed_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<(SessionId, Incarnation)>>;
    /// Every session of any tenant that holds a place: something runs for it, or may, or will after a rewind.
    /// One that cannot be read is left out. The cost grows with what is alive.
    async fn housed_sessions(&self) -> Result<Vec<Session>>;
    /// Sessions of any tenant with a deadline at or before `now`, and that, most overdue first.
    async fn due_sessions(&self, now: Timestamp, limit: u32)
    -> Result<Vec<(SessionId, Timestamp)>>;
    /// Sessions of any tenant that have not ended though their agent was deleted, by id, after
    /// `after`.
    async fn abandoned_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<SessionId>>;
    /// The sandbox a session may have, whatever its tenant: `None` if there is no such session,
    /// or nothing runs for it.
    async fn expected_incarnation(&self, id: SessionId) -> Result<Option<Incarnation>>;

    /// What goes on at this moment, over all tenants. The cost grows with what is alive, not with
    /// what is stored.
    async fn census(&self) -> Result<Census>;

    // --- Log and runs -----------------------------------------------------------------------

    /// Entries of a session's log after `after`, in order: `limit` of them, or fewer once they have
    /// more than [`MAX_PAGE_BYTES`].
    async fn events_after(
        &self,
        session: SessionId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<LogEntry>>;
    /// The messages of the conversation after `after`, in order: prompts and whole answers. As many
    /// as [`events_after`](Self::events_after) gives.
    async fn messages_after(
        &self,
        session: SessionId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<LogEntry>>;
    /// One run of a session.
    async fn run(&self, session: SessionId, run: RunId) -> Result<RunRecord>;
    /// A session's runs, newest first.
    async fn runs(&self, session: SessionId, limit: u32) -> Result<Vec<RunRecord>>;
    /// What the person wrote who started a run.
    async fn prompt(&self, session: SessionId, run: RunId) -> Result<Json>;
    /// What a tenant's runs consumed.
    async fn usage(&self, tenant: &TenantId, filter: &UsageFilter) -> Result<UsageTotals>;
    /// The runs of a tenant that are over, the last one to end first.
    async fn usage_records(
        &self,
        tenant: &TenantId,
        filter: &UsageFilter,
        limit: u32,
    ) -> Result<Vec<UsageRecord>>;
    /// What a session has spent as far as the server has counted, whatever its tenant.
    async fn spend(&self, session: SessionId) -> Result<Spend>;
    /// Counts that a session has spent more.
    async fn add_spend(&self, session: SessionId, more: Spend) -> Result<()>;

    // --- Snapshots --------------------------------------------------------------------------

    /// A session's snapshots, newest first.
    async fn snapshots(&self, session: SessionId, limit: u32) -> Result<Vec<StoredSnapshot>>;
    /// One snapshot of a session.
    async fn snapshot(&self, session: SessionId, id: SnapshotId) -> Result<StoredSnapshot>;
    /// Notes that a snapshot does not lie there any more, whatever is known of the other place. A new one lies on this
    /// machine.
    async fn lost_snapshot(&self, session: SessionId, id: SnapshotId, place: Place) -> Result<()>;
    /// Notes that a snapshot lies there too, whatever is known of the other place.
    async fn found_snapshot(&self, session: SessionId, id: SnapshotId, place: Place) -> Result<()>;
    /// What of each session was last put into the cloud. Those of which nothing was are left out.
    async fn cloud_heads(&self, sessions: &[SessionId]) -> Result<BTreeMap<SessionId, CloudHead>>;
    /// Notes what of a session is in the cloud now.
    async fn put_cloud_head(&self, session: SessionId, head: &CloudHead) -> Result<()>;
    /// Which cloud was used last.
    async fn used_cloud(&self) -> Result<Option<UsedCloud>>;
    /// Begins to use a cloud that was found at `url`, as `writer` unless another name was given before. If it is not the one that was used
    /// last, nothing counts as being there any more: neither snapshots nor heads. What is not on this machine, of a
    /// session that had a head, is still said to be in the cloud: it was in the other one, and is not taken for lost.
    async fn use_cloud(&self, bucket: &str, url: &str, writer: &str) -> Result<CloudUse>;
    /// Sessions of any tenant with snapshots that are not in the cloud, or with snapshots and no head there, by id,
    /// after `after`.
    async fn lagging_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<SessionId>>;
    /// How many snapshots are not in the cloud.
    async fn cloud_lag(&self) -> Result<u64>;
    /// Forgets a snapshot of a session. What it consists of is the caller's business; a fork may have the same one.
    async fn forget_snapshot(&self, session: SessionId, id: SnapshotId) -> Result<()>;
    /// Forgets all snapshots of a session but the latest `keep` and those in `needed`; returns which.
    async fn prune_snapshots(
        &self,
        session: SessionId,
        keep: u32,
        needed: &[SnapshotId],
    ) -> Result<Vec<SnapshotId>>;
    /// Those of `ids` that no session of a tenant has on this machine.
    async fn unneeded_snapshots(
        &self,
        tenant: &TenantId,
        ids: &[SnapshotId],
    ) -> Result<Vec<SnapshotId>>;

    // --- What goes ----------------------------------------------------------------------------

    /// Sessions of any tenant for which nothing runs, by id, after `after`, each with its recorded deadline.
    /// One that cannot be read is left out, so a page may be short; the last id says where to go on.
    async fn resting_sessions(&self, after: Option<SessionId>, limit: u32) -> Result<Resting>;
    /// Records another deadline of a session, unless it is not `recorded` any more, or its log has grown beyond
    /// `expected`: then whoever works on it knows better.
    async fn redate_session(
        &self,
        id: SessionId,
        expected: Seq,
        recorded: Option<Timestamp>,
        due_at: Option<Timestamp>,
    ) -> Result<()>;
    /// Removes all that is remembered of a session that has ended: its log, runs, snapshots, settings, and itself;
    /// and its agent, if that was deleted and has no other session. `outbox` is written in the same step. Nothing of
    /// the session is found afterwards. A log of more than [`PURGED_AT_ONCE`] entries is left to
    /// [`purge_logs`](Self::purge_logs); until then the id is not free.
    async fn purge_session(&self, id: SessionId, fence: Fence, outbox: &[OutboxItem])
    -> Result<()>;
    /// Removes up to [`PURGED_AT_ONCE`] entries of a session that was purged, and with the last one what is left of it
    /// and of its agent. Says whether there was anything to remove.
    async fn purge_logs(&self) -> Result<bool>;

    // --- Receipts and outbox ----------------------------------------------------------------

    /// The receipt of a request that was already carried out.
    async fn receipt(&self, key: &ReceiptKey) -> Result<Option<Receipt>>;
    /// Forgets receipts written before `before`, but for those of items of the queue that are not over; returns how many.
    async fn purge_receipts(&self, before: Timestamp) -> Result<u64>;

    /// Takes up to `limit` tasks of a topic that are ready, or whose taker let `leased_until`
    /// pass; or, if there are none, that become ready later than in [`MAX_OUTBOX_WAIT`]: those were
    /// put back under another clock. Each taking counts as an attempt.
    async fn claim_outbox(
        &self,
        topic: &str,
        now: Timestamp,
        leased_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<OutboxTask>>;
    /// Makes every task of a topic ready that was taken or put back before: whoever took it is gone, or what it waited
    /// for is there. Returns how many.
    async fn release_outbox(&self, topic: &str, now: Timestamp) -> Result<u64>;
    /// Removes a task that is done. Only the latest attempt may: otherwise `NotFound`.
    async fn finish_outbox(&self, id: OutboxId, attempt: u32) -> Result<()>;
    /// Puts a task back until `ready_at`. Only the latest attempt may: otherwise `NotFound`.
    async fn retry_outbox(&self, id: OutboxId, attempt: u32, ready_at: Timestamp) -> Result<()>;
}
