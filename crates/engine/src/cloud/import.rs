//! A session from the cloud, made one of this server.
//!
//! It keeps its id where that is free, so that its agent finds everything under the names that it knows. Its log has a
//! new epoch: who followed it elsewhere is told. It is paused, and its files stay in the cloud until it is resumed.

use std::sync::Arc;
use std::time::Duration;

use ash_core::id::{AgentId, AgentName, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::session::{Origin, Session};
use ash_store::{
    Agent, ImportedSession, NewAgentVersion, NewSession, Places, SessionRecord, StoreError,
    StoredSession, StoredSnapshot,
};

use super::fetch::{CloudSession, Fetched};
use super::owed::as_it_is;
use super::set::AgentRecord;
use super::{Cloud, CloudError, blocking};
use crate::agent::Definition;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::shared::Shared;

/// How long somebody waits for an answer of the cloud.
const PATIENCE: Duration = Duration::from_secs(15);

/// How much of its digest an agent's name gets if another one is called so.
const DIGITS: usize = 8;

impl Engine {
    /// The latest sessions of a tenant that are in the cloud, newest first.
    pub async fn sessions_in_cloud(
        &self,
        tenant: &TenantId,
        limit: u32,
    ) -> Result<Vec<CloudSession>, EngineError> {
        let (cloud, tenant) = (self.the_cloud()?.clone(), tenant.clone());
        Ok(soon(blocking(move || cloud.sessions(&tenant, limit as usize))).await?)
    }

    /// Makes a session of a tenant that is in the cloud one of this server.
    pub async fn import_from_cloud(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<Arc<StoredSession>, EngineError> {
        self.accepts_work()?;
        let cloud = self.the_cloud()?.clone();
        let heads = {
            let (cloud, tenant) = (cloud.clone(), tenant.clone());
            soon(blocking(move || cloud.heads_of(&tenant, session))).await?
        };
        let fetched = {
            let (cloud, tenant) = (cloud.clone(), tenant.clone());
            blocking(move || cloud.fetch(&tenant, session, &heads)).await?
        };
        let agent = agent_of(&self.shared, &cloud, tenant, &fetched).await?;
        let id = self.free_id(session).await?;
        let Fetched { epoch, snapshot, record, log, history, .. } = fetched;
        let last = record.snapshots.iter().find(|kept| kept.captured.id == snapshot).cloned();
        let ctx = self.shared.context();
        let (made, decision) =
            Session::with_history(&ctx, id, Origin::Import(session), epoch.next(), history, last);
        let made = made
            .with_time_to_live(&ctx, record.ttl_ms.map(Duration::from_millis))
            .with_idle_timeout(record.idle_timeout_ms.map(Duration::from_millis));
        let places = Places { local: false, cloud: true };
        let snapshots = record.snapshots.into_iter();
        let snapshots = snapshots.map(|snapshot| StoredSnapshot { snapshot, places }).collect();
        let mut entries = log;
        entries.extend(decision.entries);
        let new = NewSession {
            record: SessionRecord {
                id,
                tenant: tenant.clone(),
                agent: agent.id,
                agent_name: agent.name,
                agent_version: agent.version,
                parent: None,
                created_at: record.created_at,
                settings: record.settings,
            },
            due_at: made.next_deadline(ctx.policy),
            session: made,
            entries,
            owner: self.shared.owner,
            receipt: None,
        };
        // A set of this server's own: from then on nobody else takes the session for theirs.
        let outbox = as_it_is(&self.shared, id, &[]);
        let runs = decision.runs;
        let imported = ImportedSession { new, inherited: None, runs, snapshots, outbox };
        self.shared.store.import_session(&imported).await?;
        cloud.want(id);
        Ok(self.shared.store.session(tenant, id).await?)
    }

    fn the_cloud(&self) -> Result<&Cloud, EngineError> {
        self.cloud().ok_or(EngineError::NoCloud)
    }

    /// The id of a session, or another one if it is not free here.
    async fn free_id(&self, wanted: SessionId) -> Result<SessionId, EngineError> {
        let is_known = match self.shared.store.session_record(wanted).await {
            Ok(_) => true,
            Err(StoreError::NotFound(_)) => false,
            Err(error) => return Err(error.into()),
        };
        // Files of that name would be taken for its own.
        let has_files = self.shared.host.has_state(wanted).await;
        let has_files = has_files.map_err(|error| EngineError::Unavailable(error.into()))?;
        if is_known || has_files {
            return Ok(self.shared.ids.make(self.shared.now(), SessionId::from_parts));
        }
        Ok(wanted)
    }
}

/// What the cloud is asked while somebody waits who could ask again: it answers soon, or cannot be reached.
async fn soon<T>(asked: impl Future<Output = Result<T, CloudError>>) -> Result<T, CloudError> {
    let late = |_| CloudError::Unavailable("it takes too long to answer".to_owned());
    tokio::time::timeout(PATIENCE, asked).await.map_err(late)?
}

/// The version of an agent that a session was made with: found here, or made. Versions of others are left as they are.
async fn agent_of(
    shared: &Shared,
    cloud: &Cloud,
    tenant: &TenantId,
    fetched: &Fetched,
) -> Result<Agent, EngineError> {
    // One at a time: sessions of the same agent come together, and find the same one.
    let _turn = cloud.0.agents.acquire().await.map_err(CloudError::here)?;
    let name = &fetched.record.agent_name;
    let digest = &fetched.agent.digest;
    let mut names = vec![name.clone()];
    let other = digest.get(..DIGITS).and_then(|digits| format!("{name}-{digits}").parse().ok());
    names.extend(other);
    let mut free: Option<AgentName> = None;
    for name in names {
        let versions = match shared.store.agent_versions(tenant, &name).await {
            Ok(versions) => versions,
            Err(StoreError::NotFound(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let is_same = |agent: &&Agent| digest_of(agent).is_some_and(|of| of == *digest);
        if let Some(same) = versions.iter().find(is_same) {
            restored(cloud, tenant, &fetched.agent, same).await?;
            return Ok(same.clone());
        }
        if versions.is_empty() {
            free = Some(name);
            break;
        }
    }
    let taken = || EngineError::Exists("agent");
    let name = free.ok_or_else(taken)?;
    let definition = {
        let (cloud, tenant, agent) = (cloud.clone(), tenant.clone(), fetched.agent.clone());
        blocking(move || cloud.fetch_agent(&tenant, &agent)).await?
    };
    let definition = Json::of(&definition).map_err(|error| EngineError::Damaged(error.into()))?;
    let version = NewAgentVersion {
        id: shared.ids.make(shared.now(), AgentId::from_parts),
        tenant: tenant.clone(),
        name,
        definition,
        at: shared.now(),
        receipt: None,
        settings: Some(fetched.agent.settings.clone()),
    };
    Ok(shared.store.deploy_agent(&version).await?)
}

fn digest_of(agent: &Agent) -> Option<String> {
    let definition: Definition = serde_json::from_str(agent.definition.get()).ok()?;
    Some(definition.digest)
}

/// Brings an agent's directory back that is known and gone.
async fn restored(
    cloud: &Cloud,
    tenant: &TenantId,
    agent: &AgentRecord,
    known: &Agent,
) -> Result<(), CloudError> {
    let Ok(definition) = serde_json::from_str::<Definition>(known.definition.get()) else {
        return Ok(());
    };
    if cloud.0.library.directory(&definition).is_dir() {
        return Ok(());
    }
    let (cloud, tenant, agent) = (cloud.clone(), tenant.clone(), agent.clone());
    blocking(move || cloud.fetch_agent(&tenant, &agent)).await.map(drop)
}
