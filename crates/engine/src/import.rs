//! A session from elsewhere, made one of this server: what the cloud and bundles have in common.
//!
//! It keeps its id where that is free, so that its agent finds everything under the names that it knows. Its log has a
//! new epoch: who followed it elsewhere is told. It is paused until it is resumed.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ash_core::id::{AgentId, AgentName, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::session::{Origin, Session};
use ash_core::snapshot::Snapshot;
use ash_store::{
    Agent, ImportedSession, NewAgentVersion, NewLabel, NewSession, Places, SessionRecord, Settings,
    StoreError, StoredSession, StoredSnapshot,
};
use serde::{Deserialize, Serialize};

use crate::agent::{Definition, Library};
use crate::attached::Brought;
use crate::cloud::{
    AgentRecord, Cloud, CloudError, Fetched, FetchedAgent, Shelf, as_it_is, blocking, fetch_agent,
};
use crate::engine::{Engine, Idempotency};
use crate::error::EngineError;
use crate::shared::Shared;

/// How much of its digest an agent's name gets if another one is called so.
const DIGITS: usize = 8;

/// What a session and its agent are set to, as the engine has to know it; nothing, if that is not understood.
pub type Understand = dyn Fn(&Settings, &Json) -> Option<Understood> + Send + Sync;

/// What the options of a session say to the engine, which does not look into them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Understood {
    /// After how long it ends by itself.
    pub time_to_live: Option<Duration>,
    /// After how long without use it is paused, if not after as long as others.
    pub idle_timeout: Option<Duration>,
}

/// A session from elsewhere that is one of this server now.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The session.
    pub session: Arc<StoredSession>,
    /// What could not be brought of it, a sentence each, without a full stop.
    pub warnings: Vec<String>,
}

/// What the receipt of an import remembers.
#[derive(Serialize, Deserialize)]
struct Told {
    session: SessionId,
    #[serde(default)]
    warnings: Vec<String>,
}

/// Where a set is read from, and what for.
#[derive(Clone)]
pub(crate) struct Supply {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) library: Library,
    /// Where things lie for a moment.
    pub(crate) aside: PathBuf,
}

impl Supply {
    fn agent(&self, agent: &AgentRecord) -> Result<Definition, CloudError> {
        fetch_agent(&self.shelf, &self.library, &self.aside, agent)
    }
}

/// Whether a session may be called what it was called elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// If nothing here is called so.
    Kept,
    /// No: somebody else is called so.
    Another,
}

/// A session that has come from elsewhere.
pub(crate) struct Arrival<'a> {
    pub(crate) tenant: &'a TenantId,
    /// What it was called there.
    pub(crate) from: SessionId,
    pub(crate) name: Name,
    pub(crate) fetched: Fetched,
    pub(crate) supply: &'a Supply,
    /// The cloud that it comes from, if it does: what cannot be read there is done without, and said.
    pub(crate) cloud: Option<&'a Cloud>,
    /// Where its snapshots are.
    pub(crate) places: Places,
    pub(crate) understood: Understood,
}

/// What became of it.
pub(crate) enum Settled {
    /// It is there now.
    Imported(Imported),
    /// The same request had been carried out before.
    Earlier(Imported),
}

impl Engine {
    /// Makes a session that has come from elsewhere one of this server, in one commit.
    pub(crate) async fn settle(
        &self,
        arrival: Arrival<'_>,
        idempotency: Option<&Idempotency>,
    ) -> Result<Settled, EngineError> {
        let Arrival { tenant, from, name, fetched, supply, cloud, places, understood } = arrival;
        let store = &self.shared.store;
        // One at a time: two must not find the same name free.
        let turn = self.shared.imports.acquire().await;
        let _turn = turn.map_err(|_| EngineError::Draining)?;
        if let Some(earlier) = self.imported_before(tenant, idempotency).await? {
            return Ok(Settled::Earlier(earlier));
        }
        let (agent, stands_in) = agent_of(&self.shared, supply, tenant, &fetched, cloud).await?;
        let id = match name {
            Name::Kept => self.free_id(from).await?,
            Name::Another => self.new_id(),
        };
        let Fetched { epoch, snapshot, record, log, history, attached, end_lost, .. } = fetched;
        let warnings: Vec<String> = end_lost.iter().cloned().chain(stands_in).collect();
        let last = record.snapshots.iter().find(|kept| kept.captured.id == snapshot).cloned();
        let captured_at = last.as_ref().map(|last| last.at);
        let ctx = self.shared.context();
        let (mut made, mut decision) =
            Session::with_history(&ctx, id, Origin::Import(from), epoch.next(), history, last);
        if let Some(reason) = end_lost {
            made = made.with_end_lost(&ctx, &mut decision, reason);
        }
        let made = made
            .with_time_to_live(&ctx, understood.time_to_live)
            .with_idle_timeout(understood.idle_timeout);
        // What is here alone has to be brought up; and in any case a set of this server's own.
        let missing = record.snapshots.iter().filter(|_| !places.cloud);
        let missing: Vec<_> = missing.map(|snapshot| snapshot.captured.id).collect();
        let outbox = as_it_is(&self.shared, id, &missing);
        let stored = |snapshot: Snapshot| StoredSnapshot { snapshot, places };
        let snapshots = record.snapshots.into_iter().map(stored).collect();
        let mut entries = log;
        entries.extend(decision.entries);
        let receipt = match idempotency {
            Some(idempotency) => {
                let told = Told { session: id, warnings: warnings.clone() };
                Some(self.receipt(idempotency, &told)?)
            }
            None => None,
        };
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
            receipt,
        };
        let runs = decision.runs;
        let brought = Brought { tenant, id, from, shelf: &supply.shelf, attached, captured_at };
        let attachments = self.bring_attachments(brought, record.attachments).await?;
        let imported =
            ImportedSession { new, inherited: None, runs, snapshots, attachments, outbox };
        if let Err(error) = store.import_session(&imported).await {
            self.drop_attachments(id).await;
            return Err(error.into());
        }
        let session = self.noted(store.session(tenant, id).await?);
        Ok(Settled::Imported(Imported { session, warnings }))
    }

    /// What an earlier request with the same key has imported, if there was one.
    pub(crate) async fn imported_before(
        &self,
        tenant: &TenantId,
        idempotency: Option<&Idempotency>,
    ) -> Result<Option<Imported>, EngineError> {
        let Some(Told { session, warnings }) = self.earlier(idempotency).await? else {
            return Ok(None);
        };
        let session = self.shared.store.session(tenant, session).await?;
        Ok(Some(Imported { session, warnings }))
    }

    fn new_id(&self) -> SessionId {
        self.shared.ids.make(self.shared.now(), SessionId::from_parts)
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
            return Ok(self.new_id());
        }
        Ok(wanted)
    }
}

/// The version of an agent that a session was made with. One that cannot be read in the cloud is stood in for by the
/// version that new sessions of that name get here, and that is said.
async fn agent_of(
    shared: &Shared,
    supply: &Supply,
    tenant: &TenantId,
    fetched: &Fetched,
    cloud: Option<&Cloud>,
) -> Result<(Agent, Option<String>), EngineError> {
    let error = match (same_agent(shared, supply, tenant, fetched).await, cloud) {
        (Err(EngineError::Cloud(error @ CloudError::Damaged(_))), Some(cloud)) => {
            let cloud = cloud.clone();
            blocking(move || cloud.is_here()).await?;
            error
        }
        (same, _) => return Ok((same?, None)),
    };
    let name = &fetched.record.agent_name;
    tracing::warn!(error = &error as &dyn Error, "agent {name} cannot be read in the cloud");
    match shared.store.agent(tenant, name).await {
        Ok(agent) if is_whole(supply, &agent) => {
            let told = format!(
                "agent {name} could not be read in the bucket: the session goes on with the one \
                 that is called so here"
            );
            Ok((agent, Some(told)))
        }
        Ok(_) | Err(StoreError::NotFound(_)) => Err(EngineError::AgentDamaged(name.clone())),
        Err(error) => Err(error.into()),
    }
}

/// The version of an agent that a session was made with: found here, or made. Versions of others are left as they are.
async fn same_agent(
    shared: &Shared,
    supply: &Supply,
    tenant: &TenantId,
    fetched: &Fetched,
) -> Result<Agent, EngineError> {
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
        if let Some(same) = versions.iter().map(|version| &version.agent).find(is_same) {
            restored(supply, &fetched.agent, same).await?;
            return Ok(same.clone());
        }
        if versions.is_empty() {
            free = Some(name);
            break;
        }
    }
    let record = fetched.agent.record()?;
    let taken = || EngineError::Exists("agent");
    let name = free.ok_or_else(taken)?;
    let definition = {
        let (supply, agent) = (supply.clone(), record.clone());
        blocking(move || supply.agent(&agent)).await?
    };
    let definition = Json::of(&definition).map_err(|error| EngineError::Damaged(error.into()))?;
    let version = NewAgentVersion {
        id: shared.ids.make(shared.now(), AgentId::from_parts),
        tenant: tenant.clone(),
        name,
        definition,
        at: shared.now(),
        receipt: None,
        settings: Some(record.settings.clone()),
        label: NewLabel::default(),
    };
    Ok(shared.store.deploy_agent(&version).await?)
}

fn digest_of(agent: &Agent) -> Option<String> {
    let definition: Definition = serde_json::from_str(agent.definition.get()).ok()?;
    Some(definition.digest)
}

/// Brings an agent's directory back that is known and gone.
async fn restored(supply: &Supply, agent: &FetchedAgent, known: &Agent) -> Result<(), CloudError> {
    if is_whole(supply, known) {
        return Ok(());
    }
    let (supply, agent) = (supply.clone(), agent.record()?.clone());
    blocking(move || supply.agent(&agent)).await.map(drop)
}

/// Whether an agent's directory is here, as far as anybody can tell which one that is.
fn is_whole(supply: &Supply, agent: &Agent) -> bool {
    let definition = serde_json::from_str::<Definition>(agent.definition.get());
    definition.is_ok_and(|definition| supply.library.directory(&definition).is_dir())
}
