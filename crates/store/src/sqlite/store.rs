//! The trait, method by method: each write goes to the writer, each read to the readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use ash_core::id::{
    AgentName, ApiKeyId, CredentialId, OutboxId, RunId, SessionId, SnapshotId, TenantId,
};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Fence, Incarnation, Owner, Seq};
use ash_core::session::{LogEntry, Session};
use ash_core::time::Timestamp;
use async_trait::async_trait;

use super::draft::{CommitDraft, ImportDraft, SessionDraft};
use super::fault::damaged;
use super::recent::{self, Looked, Touched};
use super::{SqliteStore, agents, cloud, purge, read, rows, sql, write};
use crate::model::{
    Agent, ApiKey, Census, Claimed, CloudHead, CloudUse, Commit, Credential, ImportedSession,
    KeyHash, NewAgentVersion, NewSession, OutboxItem, OutboxTask, PageRequest, Place, Receipt,
    ReceiptKey, Resting, RunRecord, SessionFilter, SessionRecord, StoredSession, StoredSnapshot,
    Tenant, UsageFilter, UsageRecord, UsageTotals, UsedCloud,
};
use crate::{LabelledVersion, Result, Spend, Store, VersionChange};

#[async_trait]
impl Store for SqliteStore {
    async fn create_tenant(&self, tenant: &Tenant) -> Result<()> {
        let tenant = tenant.clone();
        self.writer.perform(move |db| write::create_tenant(db, &tenant)).await
    }

    async fn tenant(&self, id: &TenantId) -> Result<Tenant> {
        let id = id.clone();
        self.readers.look_up(move |db| read::tenant(db, &id)).await
    }

    async fn tenants(&self) -> Result<Vec<Tenant>> {
        self.readers.perform(|db| read::list(db, sql::TENANTS, [], rows::tenant)).await
    }

    async fn create_api_key(&self, key: &ApiKey, receipt: Option<&Receipt>) -> Result<()> {
        let (key, receipt) = (key.clone(), receipt.cloned());
        self.writer.perform(move |db| write::create_api_key(db, &key, receipt.as_ref())).await
    }

    async fn api_key_by_hash(&self, hash: &KeyHash) -> Result<ApiKey> {
        let hash = hash.0;
        let found =
            move |db: &_| read::one(db, sql::API_KEY_BY_HASH, [hash], rows::api_key, "API key");
        self.readers.look_up(found).await
    }

    async fn api_keys(&self, tenant: &TenantId) -> Result<Vec<ApiKey>> {
        let tenant = tenant.clone();
        let theirs = move |db: &_| read::list(db, sql::API_KEYS, [tenant.as_str()], rows::api_key);
        self.readers.perform(theirs).await
    }

    async fn revoke_api_key(&self, tenant: &TenantId, id: ApiKeyId) -> Result<()> {
        let names = [tenant.to_string(), id.to_string()];
        let revoke =
            move |db: &_| write::change_one(db, sql::DELETE_API_KEY, names.each_ref(), "API key");
        self.writer.perform(revoke).await
    }

    async fn create_credential(
        &self,
        credential: &Credential,
        receipt: Option<&Receipt>,
    ) -> Result<()> {
        let (credential, receipt) = (credential.clone(), receipt.cloned());
        let create = move |db: &_| write::create_credential(db, &credential, receipt.as_ref());
        self.writer.perform(create).await
    }

    async fn credential(&self, tenant: &TenantId, id: CredentialId) -> Result<Credential> {
        let names = [tenant.to_string(), id.to_string()];
        let found =
            move |db: &_| read::one(db, sql::CREDENTIAL, names, rows::credential, "credential");
        self.readers.look_up(found).await
    }

    async fn credentials(&self, tenant: &TenantId) -> Result<Vec<Credential>> {
        let tenant = tenant.clone();
        let theirs =
            move |db: &_| read::list(db, sql::CREDENTIALS, [tenant.as_str()], rows::credential);
        self.readers.perform(theirs).await
    }

    async fn touch_credential(
        &self,
        tenant: &TenantId,
        id: CredentialId,
        at: Timestamp,
    ) -> Result<()> {
        let tenant = tenant.clone();
        self.writer.perform(move |db| write::touch_credential(db, &tenant, id, at)).await
    }

    async fn delete_credential(&self, tenant: &TenantId, id: CredentialId) -> Result<()> {
        let names = [tenant.to_string(), id.to_string()];
        let delete = move |db: &_| {
            write::change_one(db, sql::DELETE_CREDENTIAL, names.each_ref(), "credential")
        };
        self.writer.perform(delete).await
    }

    async fn deploy_agent(&self, version: &NewAgentVersion) -> Result<Agent> {
        let version = version.clone();
        self.writer.perform(move |db| agents::deploy(db, &version)).await
    }

    async fn agent(&self, tenant: &TenantId, name: &AgentName) -> Result<Agent> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.readers.look_up(move |db| read::agent(db, &tenant, &name)).await
    }

    async fn agent_version(
        &self,
        tenant: &TenantId,
        name: &AgentName,
        version: AgentVersion,
    ) -> Result<Agent> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.readers.look_up(move |db| read::agent_version(db, &tenant, &name, version)).await
    }

    async fn agent_versions(
        &self,
        tenant: &TenantId,
        name: &AgentName,
    ) -> Result<Vec<LabelledVersion>> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.readers.perform(move |db| read::agent_versions(db, &tenant, &name)).await
    }

    async fn change_version(
        &self,
        tenant: &TenantId,
        name: &AgentName,
        number: AgentVersion,
        change: &VersionChange,
        at: Timestamp,
    ) -> Result<LabelledVersion> {
        let (tenant, name, change) = (tenant.clone(), name.clone(), change.clone());
        let work = move |db: &_| agents::change(db, &tenant, &name, number, &change, at);
        self.writer.perform(work).await
    }

    async fn configure_agent(
        &self,
        tenant: &TenantId,
        name: &AgentName,
        settings: &Json,
        at: Timestamp,
    ) -> Result<Agent> {
        let (tenant, name, settings) = (tenant.clone(), name.clone(), settings.clone());
        let configure = move |db: &_| agents::configure(db, &tenant, &name, &settings, at);
        self.writer.perform(configure).await
    }

    async fn agents(&self, tenant: &TenantId) -> Result<Vec<Agent>> {
        let tenant = tenant.clone();
        let theirs = move |db: &_| read::list(db, sql::AGENTS, [tenant.as_str()], rows::agent);
        self.readers.perform(theirs).await
    }

    async fn used_definitions(&self) -> Result<Vec<Json>> {
        let used = |db: &_| read::list(db, sql::USED_DEFINITIONS, [], rows::definition);
        self.readers.perform(used).await
    }

    async fn delete_agent(&self, tenant: &TenantId, name: &AgentName) -> Result<Vec<SessionId>> {
        let (tenant, name) = (tenant.clone(), name.clone());
        let delete = move |db: &_| agents::delete(db, &tenant, &name);
        // It hides sessions, and names only those that have not ended.
        self.writer.change(Touched::All, delete).await
    }

    async fn next_owner(&self) -> Result<Owner> {
        self.writer.perform(write::next_owner).await
    }

    async fn create_session(&self, session: &NewSession) -> Result<Fence> {
        let draft = SessionDraft::of(session)?;
        let touched = Touched::Session(session.record.id);
        self.writer.change(touched, move |db| write::create_session(db, &draft)).await
    }

    async fn import_session(&self, session: &ImportedSession) -> Result<Fence> {
        let draft = ImportDraft::of(session)?;
        let touched = Touched::Session(session.new.record.id);
        self.writer.change(touched, move |db| write::import_session(db, &draft)).await
    }

    async fn claim_session(&self, id: SessionId, owner: Owner) -> Result<Claimed> {
        let claim = move |db: &_| write::claim_session(db, id, owner);
        let (fence, row) = self.writer.change(Touched::Session(id), claim).await?;
        row.decode_claimed(fence)
    }

    async fn commit(&self, commit: &Commit) -> Result<()> {
        let draft = CommitDraft::of(commit)?;
        let touched = Touched::Session(commit.session.id());
        self.writer.change(touched, move |db| write::commit(db, &draft)).await
    }

    async fn session_record(&self, id: SessionId) -> Result<SessionRecord> {
        self.readers.look_up(move |db| read::session_record(db, id)).await
    }

    async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Arc<StoredSession>> {
        let looked = self.recent.as_deref().map(|recent| (recent, recent.look(tenant, id)));
        let changes = match looked {
            Some((_, Looked::Kept(session))) => return Ok(session),
            Some((recent, Looked::Missing(changes))) => Some((recent, changes)),
            None => None,
        };
        let tenant = tenant.clone();
        let row = self.readers.look_up(move |db| read::session(db, &tenant, id)).await?;
        let bytes = row.bytes();
        let session = Arc::new(row.decode()?);
        if let Some((recent, changes)) = changes
            && bytes <= recent::MAX_BYTES
        {
            recent.keep(&session, changes);
        }
        Ok(session)
    }

    async fn sessions(
        &self,
        tenant: &TenantId,
        filter: &SessionFilter,
        page: &PageRequest,
    ) -> Result<Vec<StoredSession>> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        self.readers.perform(move |db| read::sessions(db, &tenant, &filter, &page)).await
    }

    async fn count_sessions(&self, tenant: &TenantId, filter: &SessionFilter) -> Result<u64> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        self.readers.perform(move |db| read::count_sessions(db, &tenant, &filter)).await
    }

    async fn unsettled_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<SessionId>> {
        self.readers.perform(move |db| read::unsettled_sessions(db, after, limit)).await
    }

    async fn sandboxed_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<(SessionId, Incarnation)>> {
        self.readers.perform(move |db| read::sandboxed_sessions(db, after, limit)).await
    }

    async fn housed_sessions(&self) -> Result<Vec<Session>> {
        self.readers.perform(read::housed_sessions).await
    }

    async fn abandoned_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<SessionId>> {
        self.readers.perform(move |db| read::abandoned_sessions(db, after, limit)).await
    }

    async fn due_sessions(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<(SessionId, Timestamp)>> {
        self.readers.perform(move |db| read::due_sessions(db, now, limit)).await
    }

    async fn expected_incarnation(&self, id: SessionId) -> Result<Option<Incarnation>> {
        self.readers.perform(move |db| read::expected_incarnation(db, id)).await
    }

    async fn census(&self) -> Result<Census> {
        self.readers.perform(|db| read::one(db, sql::CENSUS, [], rows::census, "census")).await
    }

    async fn events_after(
        &self,
        session: SessionId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<LogEntry>> {
        let entries = move |db: &_| read::log_after(db, sql::EVENTS_AFTER, session, after, limit);
        self.readers.perform(entries).await
    }

    async fn messages_after(
        &self,
        session: SessionId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<LogEntry>> {
        let messages =
            move |db: &_| read::log_after(db, sql::MESSAGES_AFTER, session, after, limit);
        self.readers.perform(messages).await
    }

    async fn run(&self, session: SessionId, run: RunId) -> Result<RunRecord> {
        self.readers.look_up(move |db| read::run(db, session, run)).await
    }

    async fn runs(&self, session: SessionId, limit: u32) -> Result<Vec<RunRecord>> {
        self.readers.perform(move |db| read::runs(db, session, limit)).await
    }

    async fn prompt(&self, session: SessionId, run: RunId) -> Result<Json> {
        self.readers.perform(move |db| read::prompt(db, session, run)).await
    }

    async fn usage(&self, tenant: &TenantId, filter: &UsageFilter) -> Result<UsageTotals> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        self.readers.perform(move |db| read::usage(db, &tenant, &filter)).await
    }

    async fn spend(&self, session: SessionId) -> Result<Spend> {
        self.readers.look_up(move |db| read::spend(db, session)).await
    }

    async fn add_spend(&self, session: SessionId, more: Spend) -> Result<()> {
        self.writer.perform(move |db| write::add_spend(db, session, more)).await
    }

    async fn usage_records(
        &self,
        tenant: &TenantId,
        filter: &UsageFilter,
        limit: u32,
    ) -> Result<Vec<UsageRecord>> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        self.readers.perform(move |db| read::usage_records(db, &tenant, &filter, limit)).await
    }

    async fn snapshots(&self, session: SessionId, limit: u32) -> Result<Vec<StoredSnapshot>> {
        self.readers.perform(move |db| read::snapshots(db, session, limit)).await
    }

    async fn snapshot(&self, session: SessionId, id: SnapshotId) -> Result<StoredSnapshot> {
        self.readers.perform(move |db| read::snapshot(db, session, id)).await
    }

    async fn lost_snapshot(&self, of: SessionId, id: SnapshotId, place: Place) -> Result<()> {
        self.writer.perform(move |db| cloud::lost_snapshot(db, of, id, place)).await
    }

    async fn found_snapshot(&self, of: SessionId, id: SnapshotId, place: Place) -> Result<()> {
        self.writer.perform(move |db| cloud::found_snapshot(db, of, id, place)).await
    }

    async fn cloud_heads(&self, sessions: &[SessionId]) -> Result<BTreeMap<SessionId, CloudHead>> {
        let sessions = sessions.to_vec();
        self.readers.perform(move |db| cloud::cloud_heads(db, &sessions)).await
    }

    async fn put_cloud_head(&self, session: SessionId, head: &CloudHead) -> Result<()> {
        let head = serde_json::to_string(head).map_err(|error| damaged("head", error))?;
        self.writer.perform(move |db| cloud::put_cloud_head(db, session, &head)).await
    }

    async fn used_cloud(&self) -> Result<Option<UsedCloud>> {
        self.readers.perform(cloud::used_cloud).await
    }

    async fn use_cloud(&self, bucket: &str, url: &str, writer: &str) -> Result<CloudUse> {
        let [bucket, url, writer] = [bucket, url, writer].map(str::to_owned);
        self.writer.perform(move |db| cloud::use_cloud(db, &bucket, &url, &writer)).await
    }

    async fn lagging_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<SessionId>> {
        self.readers.perform(move |db| cloud::lagging_sessions(db, after, limit)).await
    }

    async fn cloud_lag(&self) -> Result<u64> {
        self.readers.perform(cloud::cloud_lag).await
    }

    async fn forget_snapshot(&self, session: SessionId, id: SnapshotId) -> Result<()> {
        self.writer.perform(move |db| write::forget_snapshot(db, session, id)).await
    }

    async fn prune_snapshots(
        &self,
        session: SessionId,
        keep: u32,
        needed: &[SnapshotId],
    ) -> Result<Vec<SnapshotId>> {
        let needed = needed.to_vec();
        self.writer.perform(move |db| purge::prune_snapshots(db, session, keep, &needed)).await
    }

    async fn unneeded_snapshots(
        &self,
        tenant: &TenantId,
        ids: &[SnapshotId],
    ) -> Result<Vec<SnapshotId>> {
        let (tenant, ids) = (tenant.clone(), ids.to_vec());
        self.readers.perform(move |db| purge::unneeded_snapshots(db, &tenant, &ids)).await
    }

    async fn resting_sessions(&self, after: Option<SessionId>, limit: u32) -> Result<Resting> {
        self.readers.perform(move |db| purge::resting_sessions(db, after, limit)).await
    }

    async fn redate_session(
        &self,
        id: SessionId,
        expected: Seq,
        recorded: Option<Timestamp>,
        due_at: Option<Timestamp>,
    ) -> Result<()> {
        let redate = move |db: &_| purge::redate(db, id, expected, (recorded, due_at));
        self.writer.perform(redate).await
    }

    async fn purge_session(
        &self,
        id: SessionId,
        fence: Fence,
        outbox: &[OutboxItem],
    ) -> Result<()> {
        let outbox = outbox.to_vec();
        let purge = move |db: &_| purge::purge(db, id, fence, &outbox);
        self.writer.change(Touched::Session(id), purge).await
    }

    async fn purge_logs(&self) -> Result<bool> {
        self.writer.perform(purge::purge_logs).await
    }

    async fn receipt(&self, key: &ReceiptKey) -> Result<Option<Receipt>> {
        let key = key.clone();
        self.readers.look_up(move |db| read::receipt(db, &key)).await
    }

    async fn purge_receipts(&self, before: Timestamp) -> Result<u64> {
        self.writer.perform(move |db| write::purge_receipts(db, before)).await
    }

    async fn claim_outbox(
        &self,
        topic: &str,
        now: Timestamp,
        leased_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<OutboxTask>> {
        let topic = topic.to_owned();
        let claim = move |db: &_| write::claim_outbox(db, &topic, now, leased_until, limit);
        self.writer.perform(claim).await
    }

    async fn release_outbox(&self, topic: &str, now: Timestamp) -> Result<u64> {
        let topic = topic.to_owned();
        self.writer.perform(move |db| write::release_outbox(db, &topic, now)).await
    }

    async fn finish_outbox(&self, id: OutboxId, attempt: u32) -> Result<()> {
        self.writer.perform(move |db| write::finish_outbox(db, id, attempt)).await
    }

    async fn retry_outbox(&self, id: OutboxId, attempt: u32, ready_at: Timestamp) -> Result<()> {
        self.writer.perform(move |db| write::retry_outbox(db, id, attempt, ready_at)).await
    }
}
