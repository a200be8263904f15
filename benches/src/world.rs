//! Sessions to measure with.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::Death;
use ash_core::id::{AgentId, RunId, SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Fence, Owner};
use ash_core::policy::{Context, Policy};
use ash_core::resume::Found;
use ash_core::run::Usage;
use ash_core::session::{
    AgentEnding, Decision, Effect, Fact, IfBusy, NumberedReport, PauseReason, Prompt, Report,
    ReportBody, Request, Session, Wake,
};
use ash_core::snapshot::{Captured, PersistOutcome};
use ash_core::time::Clock as _;
use ash_engine::testing::{Dice, FakeHost};
use ash_engine::{Engine, IdSource, Options, SystemClock};
use ash_store::sqlite::{self, SqliteStore};
use ash_store::{Commit, NewAgentVersion, NewSession, SessionRecord, Settings, Store};
use tokio::task::JoinSet;

/// The body of a measured event: what a line of an agent's answer is.
pub(crate) const EVENT_BYTES: usize = 300;

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

pub(crate) fn directory() -> tempfile::TempDir {
    let target = Path::new("target");
    std::fs::create_dir_all(target).expect("the target directory can be made");
    tempfile::tempdir_in(target).expect("a temporary directory can be made")
}

pub(crate) fn open(path: &Path, group_limit: usize) -> Arc<SqliteStore> {
    let options =
        sqlite::Options { path: path.to_owned(), group_limit, sharing: sqlite::Sharing::Alone };
    Arc::new(SqliteStore::open_with(&options).expect("the database opens"))
}

pub(crate) async fn engine(store: Arc<dyn Store>, host: &FakeHost) -> Engine {
    let owner = store.next_owner().await.expect("the database can be written");
    Engine::start(Options {
        store,
        host: Arc::new(host.clone()),
        clock: Arc::new(SystemClock),
        policy: policy(),
        ids: IdSource::unguessable(),
        owner,
        cloud: None,
        bundles: None,
    })
}

pub(crate) fn host() -> FakeHost {
    FakeHost::new(Arc::new(Dice::new(1)))
}

/// Nothing is to be overdue, nor to make room, in the middle of a measurement.
pub(crate) fn policy() -> Policy {
    let day = Duration::from_secs(24 * 60 * 60);
    let max_sandboxes = NonZeroU32::MAX;
    Policy {
        idle_timeout: day,
        evict_after: day,
        start_timeout: day,
        max_sandboxes,
        ..Policy::default()
    }
}

pub(crate) fn settings() -> Settings {
    let config = Json::of("none").expect("a string is JSON");
    Settings { title: None, model: None, metadata: BTreeMap::new(), config }
}

pub(crate) async fn deploy(store: &dyn Store) -> AgentId {
    let ids = IdSource::unguessable();
    let now = SystemClock.now();
    let agent = NewAgentVersion {
        id: ids.make(now, AgentId::from_parts),
        tenant: TenantId::default_tenant(),
        name: "coder".parse().expect("a plain name"),
        definition: Json::of("an agent").expect("a string is JSON"),
        at: now,
        receipt: None,
        settings: None,
        label: ash_store::NewLabel::default(),
    };
    store.deploy_agent(&agent).await.expect("an agent can be deployed").id
}

/// Sessions that are paused and have no sandbox, made in one go.
pub(crate) async fn paused_sessions(store: &Arc<dyn Store>, agent: AgentId, count: usize) {
    let mut pausing = JoinSet::new();
    for first in 0..64 {
        let store = Arc::clone(store);
        pausing.spawn(async move {
            for _ in (first..count).step_by(64) {
                let mut writer = Writer::new(Arc::clone(&store), agent).await;
                writer.request(Request::Interrupt { run: None }).await;
                writer.finish().await;
                writer.request(Request::Evict { reason: PauseReason::Idle }).await;
                writer.gone().await;
            }
        });
    }
    pausing.join_all().await;
}

/// A session in the store, driven by hand: no engine, only commits.
pub(crate) struct Writer {
    store: Arc<dyn Store>,
    policy: Policy,
    session: Session,
    fence: Fence,
    run: RunId,
    /// The capture that was asked for.
    capture: Option<u64>,
}

impl Writer {
    /// A session whose agent is in the middle of a run.
    pub(crate) async fn new(store: Arc<dyn Store>, agent: AgentId) -> Self {
        let policy = policy();
        let ids = IdSource::unguessable();
        let now = SystemClock.now();
        let id = ids.make(now, SessionId::from_parts);
        let (session, decision) = Session::create(&Context { now, policy: &policy }, id, None);
        let record = SessionRecord {
            id,
            tenant: TenantId::default_tenant(),
            agent,
            agent_name: "coder".parse().expect("a plain name"),
            agent_version: AgentVersion::new(1),
            parent: None,
            created_at: now,
            settings: settings(),
        };
        let new = NewSession {
            record,
            session: session.clone(),
            due_at: None,
            entries: decision.entries,
            owner: Owner::new(1),
            receipt: None,
        };
        let fence = store.create_session(&new).await.expect("a session can be created");
        let run = ids.make(now, RunId::from_parts);
        let mut writer = Self { store, policy, session, fence, run, capture: None };
        let incarnation = writer.session.incarnation();
        writer.observe(Fact::SandboxStarted { incarnation, found: Found::NOTHING }).await;
        let prompt = Prompt {
            run,
            content: Json::of("go on").expect("a string is JSON"),
            if_busy: IfBusy::Queue,
            wake: Wake::SystemPaused,
            timeout: None,
            asked_at: None,
        };
        writer.request(Request::Prompt(prompt)).await;
        writer
    }

    pub(crate) fn id(&self) -> SessionId {
        self.session.id()
    }

    /// One durable event.
    pub(crate) async fn say(&mut self, text: &str) {
        let report = Report { run: Some(self.run), body: ReportBody::TextDelta(text.to_owned()) };
        let reports = vec![NumberedReport { position: self.session.spool().next(), report }];
        let incarnation = self.session.incarnation();
        self.observe(Fact::Reported { incarnation, reports }).await;
    }

    /// The agent obeys an interrupt.
    pub(crate) async fn finish(&mut self) {
        let body = ReportBody::Ended { how: AgentEnding::Interrupted, usage: Usage::default() };
        let report = Report { run: Some(self.run), body };
        let reports = vec![NumberedReport { position: self.session.spool().next(), report }];
        let incarnation = self.session.incarnation();
        self.observe(Fact::Reported { incarnation, reports }).await;
    }

    /// The sandbox has gone as it was told, and what it left is captured.
    pub(crate) async fn gone(&mut self) {
        let incarnation = self.session.incarnation();
        self.observe(Fact::SandboxGone { incarnation, death: Death::Stopped }).await;
        while let Some(number) = self.capture.take() {
            let captured = Captured {
                id: IdSource::unguessable().make(SystemClock.now(), SnapshotId::from_parts),
                files: 10,
                bytes: 1_000_000,
                new_bytes: 1_000,
                unfrozen: 0,
                unstable: 0,
                unproven: false,
            };
            let outcome = PersistOutcome::Captured(captured);
            self.observe(Fact::Persisted { number, outcome }).await;
        }
        assert!(self.session.persistence().is_settled(), "nothing more is wanted of it");
    }

    async fn observe(&mut self, fact: Fact) {
        let mut next = self.session.clone();
        let decision =
            next.observe(&Context { now: SystemClock.now(), policy: &self.policy }, fact);
        self.commit(next, decision).await;
    }

    pub(crate) async fn request(&mut self, request: Request) {
        let mut next = self.session.clone();
        let ctx = Context { now: SystemClock.now(), policy: &self.policy };
        let decision = next.request(&ctx, request).expect("the request fits the state");
        self.commit(next, decision).await;
    }

    async fn commit(&mut self, next: Session, decision: Decision) {
        let asked = decision.effects.iter().find_map(|effect| match effect {
            Effect::Persist { number, .. } => Some(*number),
            Effect::StartSandbox { .. }
            | Effect::Attach { .. }
            | Effect::Deliver { .. }
            | Effect::Interrupt { .. }
            | Effect::Decide { .. }
            | Effect::Freeze { .. }
            | Effect::Thaw { .. }
            | Effect::StopSandbox { .. }
            | Effect::PutBack { .. }
            | Effect::PutAway { .. }
            | Effect::Purge
            | Effect::Acknowledge { .. } => None,
        });
        self.capture = asked.or(self.capture);
        let commit = Commit {
            fence: self.fence,
            expected_seq: self.session.last_seq(),
            due_at: None,
            entries: decision.entries,
            runs: decision.runs,
            settings: None,
            snapshots: decision.snapshots,
            outbox: Vec::new(),
            receipt: None,
            session: next,
        };
        self.store.commit(&commit).await.expect("the commit is fine");
        self.session = commit.session;
    }
}
