//! The trait, method by method, on plain maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use ash_core::entry::Entry;
use ash_core::id::{
    AgentName, ApiKeyId, CredentialId, OutboxId, RunId, SessionId, SnapshotId, TenantId,
};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Fence, Incarnation, Owner, Seq};
use ash_core::pool;
use ash_core::run::RunStatus;
use ash_core::session::{LogEntry, Sandbox, Session, Status};
use ash_core::time::Timestamp;
use async_trait::async_trait;

use super::{MemoryStore, stored};
use crate::model::{
    Agent, ApiKey, Census, Claimed, CloudHead, CloudUse, Commit, Credential, ImportedSession,
    KeyHash, NewAgentVersion, NewSession, OutboxItem, OutboxTask, PageRequest, Place, Receipt,
    ReceiptKey, Resting, RunRecord, SessionFilter, SessionRecord, StoredSession, StoredSnapshot,
    Tenant, UsageFilter, UsageRecord, UsageTotals, UsedCloud,
};
use crate::{LabelledVersion, Result, Spend, Store, StoreError, VersionChange};

#[async_trait]
impl Store for MemoryStore {
    async fn create_tenant(&self, tenant: &Tenant) -> Result<()> {
        self.tables().create_tenant(tenant)
    }

    async fn tenant(&self, id: &TenantId) -> Result<Tenant> {
        self.tables().tenants.get(id).cloned().ok_or(StoreError::NotFound("tenant"))
    }

    async fn tenants(&self) -> Result<Vec<Tenant>> {
        Ok(self.tables().tenants.values().cloned().collect())
    }

    async fn create_api_key(&self, key: &ApiKey, receipt: Option<&Receipt>) -> Result<()> {
        self.tables().create_api_key(key, receipt)
    }

    async fn api_key_by_hash(&self, hash: &KeyHash) -> Result<ApiKey> {
        let tables = self.tables();
        let found = tables.keys.values().find(|key| key.hash == *hash);
        found.cloned().ok_or(StoreError::NotFound("API key"))
    }

    async fn api_keys(&self, tenant: &TenantId) -> Result<Vec<ApiKey>> {
        Ok(self.tables().keys.values().filter(|key| key.tenant == *tenant).cloned().collect())
    }

    async fn revoke_api_key(&self, tenant: &TenantId, id: ApiKeyId) -> Result<()> {
        let mut tables = self.tables();
        let found = tables.keys.get(&id).filter(|found| found.tenant == *tenant);
        found.ok_or(StoreError::NotFound("API key"))?;
        tables.keys.remove(&id);
        Ok(())
    }

    async fn create_credential(
        &self,
        credential: &Credential,
        receipt: Option<&Receipt>,
    ) -> Result<()> {
        self.tables().create_credential(credential, receipt)
    }

    async fn credential(&self, tenant: &TenantId, id: CredentialId) -> Result<Credential> {
        let tables = self.tables();
        let found = tables.credentials.get(&id).filter(|found| found.tenant == *tenant);
        found.cloned().ok_or(StoreError::NotFound("credential"))
    }

    async fn credentials(&self, tenant: &TenantId) -> Result<Vec<Credential>> {
        let tables = self.tables();
        Ok(tables.credentials.values().filter(|found| found.tenant == *tenant).cloned().collect())
    }

    async fn touch_credential(
        &self,
        tenant: &TenantId,
        id: CredentialId,
        at: Timestamp,
    ) -> Result<()> {
        let mut tables = self.tables();
        let found = tables.credentials.get_mut(&id).filter(|found| found.tenant == *tenant);
        let used = &mut found.ok_or(StoreError::NotFound("credential"))?.last_used_at;
        *used = (*used).max(Some(at));
        Ok(())
    }

    async fn delete_credential(&self, tenant: &TenantId, id: CredentialId) -> Result<()> {
        self.tables().delete_credential(tenant, id)
    }

    async fn deploy_agent(&self, new: &NewAgentVersion) -> Result<Agent> {
        self.tables().deploy(new)
    }

    async fn agent(&self, tenant: &TenantId, name: &AgentName) -> Result<Agent> {
        self.tables().active(tenant, name)
    }

    async fn agent_version(
        &self,
        tenant: &TenantId,
        name: &AgentName,
        version: AgentVersion,
    ) -> Result<Agent> {
        let tables = self.tables();
        let found = tables.versions(tenant, name).find(|agent| agent.version == version);
        found.ok_or(StoreError::NotFound("agent version"))
    }

    async fn agent_versions(
        &self,
        tenant: &TenantId,
        name: &AgentName,
    ) -> Result<Vec<LabelledVersion>> {
        self.tables().labelled(tenant, name)
    }

    async fn change_version(
        &self,
        tenant: &TenantId,
        name: &AgentName,
        number: AgentVersion,
        change: &VersionChange,
        at: Timestamp,
    ) -> Result<LabelledVersion> {
        self.tables().change_version(tenant, name, number, change, at)
    }

    async fn configure_agent(
        &self,
        tenant: &TenantId,
        name: &AgentName,
        settings: &Json,
        at: Timestamp,
    ) -> Result<Agent> {
        self.tables().configure(tenant, name, settings, at)
    }

    async fn agents(&self, tenant: &TenantId) -> Result<Vec<Agent>> {
        Ok(self.tables().agents_of(tenant))
    }

    async fn used_definitions(&self) -> Result<Vec<Json>> {
        Ok(self.tables().used_definitions())
    }

    async fn delete_agent(&self, tenant: &TenantId, name: &AgentName) -> Result<Vec<SessionId>> {
        self.tables().delete(tenant, name)
    }

    async fn next_owner(&self) -> Result<Owner> {
        let mut tables = self.tables();
        tables.last_owner = tables.last_owner.next();
        Ok(tables.last_owner)
    }

    async fn create_session(&self, new: &NewSession) -> Result<Fence> {
        self.tables().create(new)
    }

    async fn import_session(&self, imported: &ImportedSession) -> Result<Fence> {
        self.tables().import(imported)
    }

    async fn claim_session(&self, id: SessionId, owner: Owner) -> Result<Claimed> {
        let mut tables = self.tables();
        let row = tables.sessions.get_mut(&id).ok_or(StoreError::NotFound("session"))?;
        if row.owner > owner {
            return Err(StoreError::Superseded(id));
        }
        row.owner = owner;
        row.fence = row.fence.next();
        Ok(Claimed { record: row.record.clone(), session: row.session.clone(), fence: row.fence })
    }

    async fn commit(&self, commit: &Commit) -> Result<()> {
        self.tables().commit(commit)
    }

    async fn session_record(&self, id: SessionId) -> Result<SessionRecord> {
        Ok(self.tables().row(id)?.record.clone())
    }

    async fn session(&self, tenant: &TenantId, id: SessionId) -> Result<Arc<StoredSession>> {
        let tables = self.tables();
        let row = tables.row(id)?;
        if row.record.tenant != *tenant || !tables.is_visible(row) {
            return Err(StoreError::NotFound("session"));
        }
        Ok(Arc::new(stored(row)))
    }

    async fn sessions(
        &self,
        tenant: &TenantId,
        filter: &SessionFilter,
        page: &PageRequest,
    ) -> Result<Vec<StoredSession>> {
        let tables = self.tables();
        let rest = tables
            .matching(tenant, filter)
            .filter(|row| page.after.is_none_or(|after| row.record.id < after));
        Ok(rest.skip(page.offset as usize).take(page.limit as usize).map(stored).collect())
    }

    async fn count_sessions(&self, tenant: &TenantId, filter: &SessionFilter) -> Result<u64> {
        Ok(self.tables().matching(tenant, filter).count() as u64)
    }

    async fn unsettled_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<SessionId>> {
        let tables = self.tables();
        let unsettled = tables.sessions_after(after).filter(|row| !row.session.is_at_rest());
        Ok(unsettled.take(limit as usize).map(|row| row.record.id).collect())
    }

    async fn sandboxed_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<(SessionId, Incarnation)>> {
        let tables = self.tables();
        let alive = tables
            .sessions_after(after)
            .filter(|row| matches!(row.session.sandbox(), Sandbox::Live | Sandbox::Frozen { .. }));
        let pairs = alive.map(|row| (row.record.id, row.session.incarnation()));
        Ok(pairs.take(limit as usize).collect())
    }

    async fn housed_sessions(&self) -> Result<Vec<Session>> {
        let tables = self.tables();
        let all = tables.sessions_after(None).map(|row| &row.session);
        Ok(all.filter(|session| pool::Place::of(session).is_some()).cloned().collect())
    }

    async fn abandoned_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<SessionId>> {
        let tables = self.tables();
        let abandoned = tables
            .sessions_after(after)
            .filter(|row| !tables.is_visible(row) && row.session.status() != Status::Ended);
        Ok(abandoned.take(limit as usize).map(|row| row.record.id).collect())
    }

    async fn due_sessions(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<(SessionId, Timestamp)>> {
        let tables = self.tables();
        let due = tables.sessions.values().filter_map(|row| Some((row.due_at?, row.record.id)));
        let mut due: Vec<_> = due.filter(|(at, _)| *at <= now).collect();
        due.sort_unstable();
        Ok(due.into_iter().take(limit as usize).map(|(at, id)| (id, at)).collect())
    }

    async fn expected_incarnation(&self, id: SessionId) -> Result<Option<Incarnation>> {
        let tables = self.tables();
        let row = tables.sessions.get(&id);
        let running = row.filter(|row| row.session.sandbox() != Sandbox::None);
        Ok(running.map(|row| row.session.incarnation()))
    }

    async fn census(&self) -> Result<Census> {
        let tables = self.tables();
        let mut census = Census::default();
        for row in tables.sessions.values() {
            census.active_sessions += u64::from(row.session.status() == Status::Active);
            match row.session.sandbox() {
                Sandbox::Starting { .. } => census.starting += 1,
                Sandbox::Live => {
                    census.live += 1;
                    let runs = row.runs.values();
                    let running = runs.filter(|run| run.status == RunStatus::Running);
                    census.running += running.count() as u64;
                }
                Sandbox::Frozen { .. } => census.frozen += 1,
                Sandbox::None
                | Sandbox::Freezing { .. }
                | Sandbox::Thawing { .. }
                | Sandbox::Stopping { .. } => {}
            }
        }
        Ok(census)
    }

    async fn events_after(
        &self,
        session: SessionId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<LogEntry>> {
        let tables = self.tables();
        let log = tables.row(session)?.log.iter().filter(|entry| entry.seq > after);
        super::usage::page_of(log, limit)
    }

    async fn messages_after(
        &self,
        session: SessionId,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<LogEntry>> {
        let tables = self.tables();
        let log = tables.row(session)?.log.iter().filter(|entry| entry.seq > after);
        let messages = log.filter(|entry| entry.entry.role().is_some());
        super::usage::page_of(messages, limit)
    }

    async fn run(&self, session: SessionId, run: RunId) -> Result<RunRecord> {
        let tables = self.tables();
        tables.row(session)?.runs.get(&run).cloned().ok_or(StoreError::NotFound("run"))
    }

    async fn runs(&self, session: SessionId, limit: u32) -> Result<Vec<RunRecord>> {
        let tables = self.tables();
        let mut runs: Vec<_> = tables.row(session)?.runs.values().cloned().collect();
        runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.prompt_seq));
        runs.truncate(limit as usize);
        Ok(runs)
    }

    async fn prompt(&self, session: SessionId, run: RunId) -> Result<Json> {
        let tables = self.tables();
        let mut newest_first = tables.row(session)?.log.iter().rev();
        let prompt = newest_first.find_map(|entry| {
            if let Entry::Prompt { run: of, content } = &entry.entry
                && *of == run
            {
                return Some(content.clone());
            }
            None
        });
        prompt.ok_or(StoreError::NotFound("run"))
    }

    async fn usage(&self, tenant: &TenantId, filter: &UsageFilter) -> Result<UsageTotals> {
        Ok(self.tables().usage(tenant, filter))
    }

    async fn spend(&self, session: SessionId) -> Result<Spend> {
        self.tables().row(session).map(|row| row.spend)
    }

    async fn add_spend(&self, session: SessionId, more: Spend) -> Result<()> {
        let mut tables = self.tables();
        let row = tables.sessions.get_mut(&session).ok_or(StoreError::NotFound("session"))?;
        row.spend = row.spend.plus(more);
        Ok(())
    }

    async fn usage_records(
        &self,
        tenant: &TenantId,
        filter: &UsageFilter,
        limit: u32,
    ) -> Result<Vec<UsageRecord>> {
        Ok(self.tables().usage_records(tenant, filter, limit as usize))
    }

    async fn snapshots(&self, session: SessionId, limit: u32) -> Result<Vec<StoredSnapshot>> {
        Ok(self.tables().row(session)?.newest_snapshots(limit))
    }

    async fn snapshot(&self, session: SessionId, id: SnapshotId) -> Result<StoredSnapshot> {
        self.tables().change_snapshot(session, id, |stored| stored.clone())
    }

    async fn lost_snapshot(&self, of: SessionId, id: SnapshotId, place: Place) -> Result<()> {
        self.tables().change_snapshot(of, id, |stored| *stored.places.at(place) = false)
    }

    async fn found_snapshot(&self, of: SessionId, id: SnapshotId, place: Place) -> Result<()> {
        self.tables().change_snapshot(of, id, |stored| *stored.places.at(place) = true)
    }

    async fn cloud_heads(&self, sessions: &[SessionId]) -> Result<BTreeMap<SessionId, CloudHead>> {
        Ok(self.tables().cloud_heads(sessions))
    }

    async fn put_cloud_head(&self, session: SessionId, head: &CloudHead) -> Result<()> {
        self.tables().put_cloud_head(session, head)
    }

    async fn used_cloud(&self) -> Result<Option<UsedCloud>> {
        Ok(self.tables().used_cloud())
    }

    async fn use_cloud(&self, bucket: &str, url: &str, writer: &str) -> Result<CloudUse> {
        Ok(self.tables().use_cloud(bucket, url, writer))
    }

    async fn lagging_sessions(
        &self,
        after: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<SessionId>> {
        Ok(self.tables().lagging_sessions(after, limit as usize))
    }

    async fn cloud_lag(&self) -> Result<u64> {
        Ok(self.tables().cloud_lag())
    }

    async fn forget_snapshot(&self, session: SessionId, id: SnapshotId) -> Result<()> {
        self.tables().forget_snapshot(session, id)
    }

    async fn prune_snapshots(
        &self,
        session: SessionId,
        keep: u32,
        needed: &[SnapshotId],
    ) -> Result<Vec<SnapshotId>> {
        self.tables().prune_snapshots(session, keep, needed)
    }

    async fn unneeded_snapshots(
        &self,
        tenant: &TenantId,
        ids: &[SnapshotId],
    ) -> Result<Vec<SnapshotId>> {
        Ok(self.tables().unneeded_snapshots(tenant, ids))
    }

    async fn resting_sessions(&self, after: Option<SessionId>, limit: u32) -> Result<Resting> {
        Ok(self.tables().resting_sessions(after, limit))
    }

    async fn redate_session(
        &self,
        id: SessionId,
        expected: Seq,
        recorded: Option<Timestamp>,
        due_at: Option<Timestamp>,
    ) -> Result<()> {
        self.tables().redate(id, expected, recorded, due_at)
    }

    async fn purge_session(&self, id: SessionId, of: Fence, then: &[OutboxItem]) -> Result<()> {
        self.tables().purge(id, of, then)
    }

    async fn purge_logs(&self) -> Result<bool> {
        Ok(self.tables().purge_logs())
    }

    async fn receipt(&self, key: &ReceiptKey) -> Result<Option<Receipt>> {
        Ok(self.tables().receipts.get(key).cloned())
    }

    async fn purge_receipts(&self, before: Timestamp) -> Result<u64> {
        let mut tables = self.tables();
        let had = tables.receipts.len();
        tables.forget_receipts(before);
        Ok((had - tables.receipts.len()) as u64)
    }

    async fn claim_outbox(
        &self,
        topic: &str,
        now: Timestamp,
        leased_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<OutboxTask>> {
        Ok(self.tables().claim_outbox(topic, now, leased_until, limit))
    }

    async fn release_outbox(&self, topic: &str, now: Timestamp) -> Result<u64> {
        Ok(self.tables().release_outbox(topic, now))
    }

    async fn finish_outbox(&self, id: OutboxId, attempt: u32) -> Result<()> {
        let mut tables = self.tables();
        tables.outbox_attempt(id, attempt)?;
        tables.outbox.remove(&id);
        Ok(())
    }

    async fn retry_outbox(&self, id: OutboxId, attempt: u32, ready_at: Timestamp) -> Result<()> {
        let mut tables = self.tables();
        tables.outbox_attempt(id, attempt)?.available_at = ready_at;
        Ok(())
    }
}
