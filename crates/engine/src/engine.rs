//! The engine's front: everything a server asks of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ash_core::id::{AgentName, RunId, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::number::{Owner, Seq};
use ash_core::policy::Policy;
use ash_core::pool::Occupancy;
use ash_core::resume::IfLost;
use ash_core::session::{IfBusy, PauseReason, Prompt, Request, Session, Status, Wake};
use ash_core::time::Clock;
use ash_store::{
    Claimed, NewSession, Receipt, ReceiptKey, SessionRecord, Settings, Store, StoreError,
    StoredSession,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::at_once::AtOnce;
use crate::beside::MAX_COMMANDS;
use crate::bundle::Bundles;
use crate::bus::Bus;
use crate::cloud::{self, Cloud};
use crate::counts::{Counts, Resumes};
use crate::error::EngineError;
use crate::follow::{FollowFrom, Follower};
use crate::host::SandboxHost;
use crate::housekeeping::Housekeeping;
use crate::ids::IdSource;
use crate::places::{Places, WarmPlaces};
use crate::reconcile;
use crate::registry::{Decided, ReceiptFor, Registry, Want};
use crate::shared::Shared;
use crate::tasks::Tasks;
use crate::workspace::FileWork;

/// How long removals that were called off may take to end: no more than it takes to read a directory.
const REMOVALS_PATIENCE: Duration = Duration::from_secs(2);

/// What an engine is made of.
pub struct Options {
    /// Where everything is remembered.
    pub store: Arc<dyn Store>,
    /// What runs sandboxes.
    pub host: Arc<dyn SandboxHost>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// How long things may take.
    pub policy: Policy,
    /// Where ids come from.
    pub ids: IdSource,
    /// Which life of a server this is, from [`Store::next_owner`]: it takes sessions from earlier
    /// ones, and later ones take them from it.
    pub owner: Owner,
    /// Where everything is copied to.
    pub cloud: Option<Cloud>,
    /// What bundles are made of.
    pub bundles: Option<Bundles>,
}

/// Drives sessions. Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) draining: Arc<AtomicBool>,
}

/// A session to be made.
#[derive(Clone, Debug)]
pub struct CreateSession {
    /// Whose it is.
    pub tenant: TenantId,
    /// The agent it talks to, in its latest version.
    pub agent: AgentName,
    /// What its owner says about it.
    pub settings: Settings,
    /// When it ends by itself.
    pub time_to_live: Option<Duration>,
    /// After how long without use it is paused, if not after as long as others.
    pub idle_timeout: Option<Duration>,
}

/// A prompt to be worked on.
#[derive(Clone, Debug)]
pub struct SendPrompt {
    /// What the person wrote.
    pub content: Json,
    /// What to do when a run goes on.
    pub if_busy: IfBusy,
    /// Which sessions it may bring back.
    pub wake: Wake,
    /// How long the run may take, if not as long as usual.
    pub timeout: Option<Duration>,
}

/// Makes a request safe to repeat: the same key and body have the same effect once.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// What makes two requests the same.
    pub key: ReceiptKey,
    /// A digest of what is asked for.
    pub body_digest: [u8; 32],
}

/// A prompt that will come to an end, whatever happens to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Its run.
    pub run: RunId,
    /// The log entry that holds it. What concerns the run comes after.
    pub seq: Seq,
}

/// What the receipt of a new session remembers.
#[derive(Serialize, Deserialize)]
pub(crate) struct Created {
    pub(crate) session: SessionId,
}

impl Engine {
    /// Starts an engine: every session that is owed something is taken up at once, by this
    /// process and no other. It runs until [`drain`](Self::drain) or [`abort`](Self::abort);
    /// dropping the handle does not stop it.
    pub fn start(options: Options) -> Self {
        let Options { store, host, clock, policy, ids, owner, cloud, bundles } = options;
        let most = usize::try_from(policy.max_sandboxes.get()).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            store,
            host,
            clock,
            policy,
            ids,
            owner,
            links: AtomicU64::new(0),
            bus: Arc::new(Bus::default()),
            tasks: Tasks::new(),
            counts: Counts::default(),
            commands: AtOnce::new(MAX_COMMANDS),
            file_work: FileWork::default(),
            places: Places::new(most),
            cloud,
            housekeeping: Housekeeping::default(),
            rests: Arc::default(),
            queue: Arc::default(),
            bundles,
            imports: Semaphore::new(1),
        });
        let engine = Self {
            registry: Registry::new(Arc::clone(&shared)),
            shared,
            draining: Arc::new(AtomicBool::new(false)),
        };
        engine.shared.tasks.spawn(engine.clone().keep_reconciling());
        engine.shared.host.lend(WarmPlaces::of(&engine.shared));
        if let Some(cloud) = engine.shared.cloud.clone() {
            engine.shared.tasks.spawn(cloud::work(engine.clone(), cloud));
        }
        engine
    }

    /// The store, for reading.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Makes a session. It is `starting`; [`settled`](Self::settled) waits for more.
    pub async fn create_session(
        &self,
        create: CreateSession,
        idempotency: Option<Idempotency>,
    ) -> Result<Arc<StoredSession>, EngineError> {
        self.accepts_work()?;
        if let Some(Created { session }) = self.earlier(idempotency.as_ref()).await? {
            return Ok(self.shared.store.session(&create.tenant, session).await?);
        }
        self.room_for_another()?;
        let agent = self.shared.store.agent(&create.tenant, &create.agent).await?;
        let id = self.shared.ids.make(self.shared.now(), SessionId::from_parts);
        let place = self.registry.place_for_new(id).await?;
        let ctx = self.shared.context();
        let (session, decision) = Session::create(&ctx, id, create.time_to_live);
        let session = session.with_idle_timeout(create.idle_timeout);
        let record = SessionRecord {
            id,
            tenant: create.tenant.clone(),
            agent: agent.id,
            agent_name: agent.name,
            agent_version: agent.version,
            parent: None,
            created_at: ctx.now,
            settings: create.settings,
        };
        let receipt = match &idempotency {
            Some(idempotency) => Some(self.receipt(idempotency, &Created { session: id })?),
            None => None,
        };
        let new = NewSession {
            record,
            due_at: session.next_deadline(ctx.policy),
            session,
            entries: decision.entries,
            owner: self.shared.owner,
            receipt,
        };
        match self.shared.store.create_session(&new).await {
            Ok(fence) => {
                place.recorded();
                let (record, session) = (new.record, new.session);
                let stored = StoredSession { record: record.clone(), session: session.clone() };
                let stored = Arc::new(stored);
                self.registry.adopt(Claimed { record, session, fence }, decision.effects);
                Ok(stored)
            }
            // The same request was carried out between our look and our write.
            Err(StoreError::Exists("receipt")) => match self.earlier(idempotency.as_ref()).await? {
                Some(Created { session }) => {
                    Ok(self.shared.store.session(&create.tenant, session).await?)
                }
                None => Err(EngineError::Exists("receipt")),
            },
            Err(StoreError::Superseded(_)) => {
                self.shared.tasks.begin_closing();
                self.shared.bus.close();
                Err(EngineError::Draining)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Has the agent work on a prompt. Once this returns, the prompt ends in exactly one outcome.
    pub async fn prompt(
        &self,
        tenant: &TenantId,
        session: SessionId,
        prompt: SendPrompt,
        idempotency: Option<Idempotency>,
    ) -> Result<Accepted, EngineError> {
        self.accepts_work()?;
        let stored = self.shared.store.session(tenant, session).await?;
        if let Some(accepted) = self.earlier(idempotency.as_ref()).await? {
            return Ok(accepted);
        }
        let asked_at = Some(self.shared.now());
        if stored.session.wakes_for(prompt.wake) {
            self.fetch_files(&stored, IfLost::default()).await?;
        }
        let run = self.shared.ids.make(self.shared.now(), RunId::from_parts);
        let SendPrompt { content, if_busy, wake, timeout } = prompt;
        let prompt = Prompt { run, content, if_busy, wake, timeout, asked_at };
        let at = self.shared.now();
        let receipt = |idempotency: Idempotency| -> ReceiptFor {
            Box::new(move |before: Seq| {
                let accepted = Accepted { run, seq: before.next() };
                let answer = Json::of(&accepted).expect("two plain fields are always JSON");
                let Idempotency { key, body_digest } = idempotency;
                Receipt { key, body_digest, answer, at }
            })
        };
        let want = || Want::Decide {
            request: Request::Prompt(prompt.clone()),
            receipt: idempotency.clone().map(receipt),
        };
        match self.registry.request_with_room(session, want).await {
            // A prompt's entry is the first that its decision logs.
            Ok(Decided { before, .. }) => Ok(Accepted { run, seq: before.next() }),
            // The same request may have been carried out between our look and this refusal, which
            // then speaks of its own effect.
            Err(refused @ (EngineError::Exists("receipt") | EngineError::Refused(_))) => {
                self.earlier(idempotency.as_ref()).await?.ok_or(refused)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the place of a session's sandbox up, unless a run goes on in it.
    pub async fn evict(
        &self,
        session: SessionId,
        reason: PauseReason,
    ) -> Result<Session, EngineError> {
        let want = Want::Decide { request: Request::Evict { reason }, receipt: None };
        Ok(self.registry.request(session, want).await?.session)
    }

    /// Takes note that files of a session were written from outside: they are captured soon.
    pub(crate) async fn touch(&self, session: SessionId) -> Result<(), EngineError> {
        let want = Want::Decide { request: Request::Touch, receipt: None };
        self.registry.request(session, want).await.map(drop)
    }

    /// Ends a session for ever.
    pub async fn end(&self, tenant: &TenantId, session: SessionId) -> Result<Session, EngineError> {
        let ended = self.rest(tenant, session, Request::End).await?;
        self.captured_at_rest(tenant, session, ended).await
    }

    /// Deletes an agent: its sessions are hidden at once, and ended. What cannot be ended now is
    /// ended by the reconciler.
    pub async fn delete_agent(
        &self,
        tenant: &TenantId,
        agent: &AgentName,
    ) -> Result<(), EngineError> {
        self.accepts_work()?;
        for session in self.shared.store.delete_agent(tenant, agent).await? {
            self.registry.end_abandoned(session).await;
        }
        self.prewarm();
        Ok(())
    }

    /// Says that agents were deployed: sandboxes are kept ready for them.
    pub fn prewarm(&self) {
        self.shared.host.prewarm();
    }

    /// Changes what a session's owner says about it. Two changes at once follow each other.
    pub async fn configure(
        &self,
        tenant: &TenantId,
        session: SessionId,
        change: impl FnOnce(&mut Settings) + Send + 'static,
    ) -> Result<Session, EngineError> {
        self.visible(tenant, session).await?;
        let want = Want::Configure(Box::new(change));
        Ok(self.registry.request(session, want).await?.session)
    }

    /// What an earlier request with the same key was told, if there was one.
    pub async fn receipt_of(&self, idempotency: &Idempotency) -> Result<Option<Json>, EngineError> {
        match self.shared.store.receipt(&idempotency.key).await? {
            Some(receipt) if receipt.body_digest != idempotency.body_digest => {
                Err(EngineError::KeyReused)
            }
            receipt => Ok(receipt.map(|receipt| receipt.answer)),
        }
    }

    /// Waits until a session that is starting has started, or could not.
    pub async fn settled(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<Arc<StoredSession>, EngineError> {
        let mut news = self.shared.bus.subscribe(session);
        loop {
            let closing = news.head().closing;
            let stored = self.shared.store.session(tenant, session).await?;
            if stored.session.status() != Status::Starting {
                return Ok(stored);
            }
            if closing {
                return Err(EngineError::Draining);
            }
            // Every change of state is an entry of the log.
            news.changed().await;
        }
    }

    /// Follows a session's log.
    pub async fn follow(
        &self,
        tenant: &TenantId,
        session: SessionId,
        from: FollowFrom,
    ) -> Result<Follower, EngineError> {
        // Subscribe, then read: an entry is either in the read or in the news.
        let news = self.shared.bus.subscribe(session);
        let stored = self.shared.store.session(tenant, session).await?;
        let log = (stored.session.log_epoch(), stored.session.last_seq());
        Ok(Follower::new(Arc::clone(&self.shared.store), session, log, from, news))
    }

    /// How often sessions came back since the engine started.
    pub fn resumes(&self) -> Resumes {
        self.shared.counts.resumes()
    }

    /// How many sandboxes there are, by what they do.
    pub async fn pool(&self) -> Result<Occupancy, EngineError> {
        self.shared.places.count(&*self.shared.store).await?;
        Ok(self.shared.places.occupancy())
    }

    /// How many sessions have a driver right now.
    pub fn driven_sessions(&self) -> usize {
        self.registry.driven().len()
    }

    /// Compares everything that is stored with everything that runs, now. The same is done at
    /// the start and every minute.
    pub async fn reconcile(&self) -> Result<(), EngineError> {
        let pass = reconcile::pass(&self.shared, &self.registry).await;
        pass.map_err(|error| EngineError::Unavailable(error.into()))
    }

    /// Resolves when the engine begins to close: because it was told to, or because a later server
    /// has taken its sessions over.
    pub async fn closing(&self) {
        self.shared.tasks.closing().await;
    }

    /// Cuts everything off where it is. As safe as killing the process, and as rude.
    pub async fn abort(&self) {
        self.draining.store(true, Ordering::Release);
        self.shared.bus.close();
        self.shared.file_work.stop();
        self.shared.tasks.abort().await;
        self.shared.file_work.at_rest(REMOVALS_PATIENCE).await;
    }

    pub(crate) async fn ask(
        &self,
        tenant: &TenantId,
        session: SessionId,
        request: Request,
    ) -> Result<Session, EngineError> {
        self.visible(tenant, session).await?;
        let want = Want::Decide { request, receipt: None };
        Ok(self.registry.request(session, want).await?.session)
    }

    pub(crate) fn accepts_work(&self) -> Result<(), EngineError> {
        if self.draining.load(Ordering::Acquire) || self.shared.tasks.is_closing() {
            return Err(EngineError::Draining);
        }
        Ok(())
    }

    /// Whether the tenant may know of the session, and the engine may work on it.
    pub(crate) async fn visible(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<(), EngineError> {
        self.accepts_work()?;
        self.shared.store.session(tenant, session).await?;
        Ok(())
    }

    /// What an earlier request with the same key was told.
    pub(crate) async fn earlier<T: for<'de> Deserialize<'de>>(
        &self,
        idempotency: Option<&Idempotency>,
    ) -> Result<Option<T>, EngineError> {
        let Some(idempotency) = idempotency else { return Ok(None) };
        let Some(answer) = self.receipt_of(idempotency).await? else { return Ok(None) };
        serde_json::from_str(answer.get())
            .map(Some)
            .map_err(|error| EngineError::Damaged(error.into()))
    }

    pub(crate) fn receipt<T: Serialize>(
        &self,
        idempotency: &Idempotency,
        answer: &T,
    ) -> Result<Receipt, EngineError> {
        let answer = Json::of(answer).map_err(|error| EngineError::Damaged(error.into()))?;
        let Idempotency { key, body_digest } = idempotency.clone();
        Ok(Receipt { key, body_digest, answer, at: self.shared.now() })
    }
}
