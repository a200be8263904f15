//! Everything for real but the model: an engine on SQLite, bridges as plain children, the proxy that
//! adds the key, and the scripted model behind it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_core::entry::Entry;
use ash_core::id::{AgentId, RunId, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::number::Seq;
use ash_core::policy::Policy;
use ash_core::run::RunStatus;
use ash_core::session::{IfBusy, LogEntry, Wake};
use ash_core::snapshot::Snapshot;
use ash_core::time::Clock as _;
use ash_engine::bridge::{Agent, BridgeHost, Cgroup, Enclosure, HostOptions, Resources};
use ash_engine::host::SandboxRef;
use ash_engine::testing::{Dice, FlakyStore, Gate, GatedHost, StoreFaults};
use ash_engine::{
    Accepted, Bundles, CreateSession, Engine, FollowFrom, Followed, IdSource, Options, SandboxHost,
    SendPrompt, SystemClock,
};
use ash_protocol::{Limits, Program};
use ash_server::egress::{ModelKey, ModelProxy, Upstream};
use ash_server::model::{self, Model, Recorded};
use ash_store::sqlite::SqliteStore;
use ash_store::{NewAgentVersion, RunRecord, Settings, Store, StoreError};

use crate::clocks::SetClock;
pub(crate) use crate::machine::{bridge_program, can_isolate, enclosure};
pub(crate) use crate::processes::{
    bridges_in, bridges_of, end_sandboxes, kill, processes_mentioning, processes_of,
};

/// The key that only the proxy has.
pub(crate) const KEY: &str = "sk-test-only-the-proxy-knows";

pub(crate) struct World {
    pub(crate) dir: PathBuf,
    pub(crate) model: Option<Model>,
    url: String,
    pub(crate) host: BridgeHost,
    pub(crate) engine: Engine,
    pub(crate) limits: Limits,
    pub(crate) resources: Resources,
    /// How many sandboxes are kept ready.
    pub(crate) prewarm: u32,
    /// What runs the agent, if it is not our own loop; from the next engine on.
    pub(crate) claude: Option<Program>,
    pub(crate) enclosure: Enclosure,
    /// Which boot of the machine it is said to be.
    boot: u32,
    pub(crate) clock: SetClock,
    /// How long things may take, from the next engine on.
    pub(crate) policy: Policy,
    /// Where sessions are copied to, from the next engine on.
    pub(crate) cloud: Option<String>,
    _temp: Option<tempfile::TempDir>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::with_limits(Limits::default()).await
    }

    pub(crate) async fn with_limits(limits: Limits) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().to_owned();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = Model::start(listener, model::Options::default()).unwrap();
        let mut world = Self::of(&dir, &model.url(), limits).await;
        world.model = Some(model);
        world._temp = Some(temp);
        world
    }

    /// Over files that are there, with a model that is somebody else's.
    pub(crate) async fn over(dir: &Path, url: &str) -> Self {
        Self::of(dir, url, Limits::default()).await
    }

    async fn of(dir: &Path, url: &str, limits: Limits) -> Self {
        Self::behind(dir, url, limits, enclosure(&dir.join("data")), None).await
    }

    /// With that around its bridges; and with a gate that stops it dead, if there is one.
    pub(crate) async fn behind(
        dir: &Path,
        url: &str,
        limits: Limits,
        enclosure: Enclosure,
        gate: Option<Gate>,
    ) -> Self {
        let resources = Resources::default();
        let agent = (limits, resources.clone(), 0, None);
        let (policy, clock) = (Policy::default(), SetClock::default());
        let (engine, host) = gated_engine(
            dir,
            url,
            agent,
            (enclosure.clone(), (1, clock.clone()), policy, None),
            gate,
        )
        .await;
        let url = url.to_owned();
        let dir = dir.to_owned();
        Self {
            dir,
            model: None,
            url,
            host,
            engine,
            limits,
            resources,
            prewarm: 0,
            claude: None,
            enclosure,
            boot: 1,
            clock,
            policy: Policy::default(),
            cloud: None,
            _temp: None,
        }
    }

    /// In sandboxes that may use only so much; none, if this machine has no sandboxes.
    pub(crate) async fn sandboxed(resources: Resources) -> Option<Self> {
        let mut world = Self::start().await;
        if matches!(world.enclosure, Enclosure::Nothing) {
            eprintln!("not tried: this machine has no sandboxes");
            world.end().await;
            return None;
        }
        world.resources = resources;
        world.kill_engine().await;
        Some(world)
    }

    /// In sandboxes, of which so many are kept ready; returns when they are.
    pub(crate) async fn prewarmed(resources: Resources, count: u32) -> Option<Self> {
        let mut world = Self::sandboxed(resources).await?;
        world.prewarm = count;
        world.kill_engine().await;
        world.until_waiting(count).await;
        Some(world)
    }

    /// Waits until so many sandboxes wait for a session.
    pub(crate) async fn until_waiting(&self, count: u32) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.engine.pool().await.unwrap().prewarmed != u64::from(count) {
            assert!(Instant::now() < deadline, "never: {count} sandboxes wait");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until everything of a session that was to be captured is; returns its last snapshot.
    pub(crate) async fn captured(&self, session: SessionId) -> Snapshot {
        self.captured_after(session, Seq::ZERO).await
    }

    /// The same, if it is of a later moment.
    pub(crate) async fn captured_after(&self, session: SessionId, after: Seq) -> Snapshot {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let stored = self.engine.store().session(&tenant(), session).await.unwrap();
            let persistence = stored.session.persistence();
            if persistence.is_settled()
                && let Some(last) = persistence.last().filter(|last| last.seq > after)
            {
                return last.clone();
            }
            assert!(Instant::now() < deadline, "never captured: {persistence:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What the model was sent so far.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.model.as_ref().expect("the model is ours").requests()
    }

    /// Lets the engine die where it is, and starts another one over the same files.
    pub(crate) async fn kill_engine(&mut self) {
        self.engine.abort().await;
        self.host.abandon().await;
        let agent = (self.limits, self.resources.clone(), self.prewarm, self.claude.clone());
        let cloud = self.cloud.as_deref();
        let machine = (self.boot, self.clock.clone());
        let around = (self.enclosure.clone(), machine, self.policy.clone(), cloud);
        let again = gated_engine(&self.dir, &self.url, agent, around, None).await;
        (self.engine, self.host) = again;
    }

    /// The machine is restarted: nothing runs, and whatever was done to the files meanwhile was done by a power cut.
    pub(crate) async fn reboot(&mut self, meanwhile: impl FnOnce(&Self)) {
        self.engine.abort().await;
        for sandbox in self.host.list().await.unwrap() {
            // One that was killed already may be gone by now.
            self.host.bridge_of(sandbox).into_iter().for_each(kill);
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.host.list().await.unwrap().is_empty() {
            assert!(Instant::now() < deadline, "never: nothing runs");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        meanwhile(self);
        self.boot += 1;
        self.kill_engine().await;
    }

    /// What a session is made with.
    pub(crate) fn new_session() -> CreateSession {
        CreateSession {
            tenant: tenant(),
            agent: "coder".parse().unwrap(),
            settings: Settings {
                title: None,
                model: None,
                metadata: BTreeMap::new(),
                config: Json::parse("{}".to_owned()).unwrap(),
            },
            time_to_live: None,
            idle_timeout: None,
        }
    }

    pub(crate) async fn session(&self) -> SessionId {
        let id = self.engine.create_session(Self::new_session(), None).await.unwrap().record.id;
        self.engine.settled(&tenant(), id).await.unwrap();
        id
    }

    pub(crate) async fn prompt(&self, session: SessionId, text: &str) -> Accepted {
        self.prompt_json(session, Json::of(text).unwrap()).await
    }

    pub(crate) async fn prompt_json(&self, session: SessionId, content: Json) -> Accepted {
        let prompt = SendPrompt { content, if_busy: IfBusy::Queue, wake: Wake::Any, timeout: None };
        self.engine.prompt(&tenant(), session, prompt, None).await.unwrap()
    }

    /// Sends a prompt and waits for its end.
    pub(crate) async fn say(&self, session: SessionId, text: &str) -> Turn {
        let accepted = self.prompt(session, text).await;
        self.turn(session, accepted).await
    }

    /// Waits for the end of a run, and returns what the log says about it.
    pub(crate) async fn turn(&self, session: SessionId, accepted: Accepted) -> Turn {
        let log = self
            .log_until(
                session,
                |entry| matches!(entry, Entry::RunEnded { run, .. } if *run == accepted.run),
            )
            .await;
        let store = self.engine.store();
        let record = store.run(session, accepted.run).await.unwrap();
        let entries = log.into_iter().filter(|entry| entry.entry.run() == Some(accepted.run));
        Turn { entries: entries.collect(), status: record.status, record }
    }

    /// Waits for the end of a run.
    pub(crate) async fn ended(&self, session: SessionId, run: RunId) -> RunRecord {
        let is_end = |entry: &Entry| matches!(entry, Entry::RunEnded { run: of, .. } if *of == run);
        self.log_until(session, is_end).await;
        self.engine.store().run(session, run).await.unwrap()
    }

    /// Follows a log from its beginning until something is in it.
    pub(crate) async fn log_until(
        &self,
        session: SessionId,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Vec<LogEntry> {
        let mut follower = self.engine.follow(&tenant(), session, FollowFrom::Start).await.unwrap();
        let mut log = Vec::new();
        loop {
            match follower.next().await.unwrap() {
                Followed::Entries(entries) => log.extend(entries),
                other => panic!("{other:?} after {log:#?}"),
            }
            if log.iter().any(|entry| wanted(&entry.entry)) {
                return log;
            }
        }
    }

    /// The session's sandbox that is alive.
    pub(crate) async fn sandbox(&self, session: SessionId) -> SandboxRef {
        let alive = self.host.list().await.unwrap();
        *alive.iter().find(|sandbox| sandbox.session == session).expect("it has a sandbox")
    }

    /// Whether the memory of sandboxes is bounded, and counted who died of it.
    pub(crate) fn bounds_memory(&self) -> bool {
        let sandboxing = match &self.enclosure {
            Enclosure::Sandbox(sandboxing) => sandboxing,
            Enclosure::Nothing => return false,
        };
        sandboxing.cgroups.abilities().memory
    }

    /// Whether a sandbox is frozen by its cgroup.
    pub(crate) fn is_frozen(&self, sandbox: SandboxRef) -> bool {
        self.cgroup(sandbox).is_some_and(|cgroup| cgroup.is_frozen().unwrap())
    }

    /// The cgroup of a sandbox, if it has one.
    pub(crate) fn cgroup(&self, sandbox: SandboxRef) -> Option<Cgroup> {
        let Enclosure::Sandbox(sandboxing) = &self.enclosure else { return None };
        let name = format!("{}-{}", sandbox.session, sandbox.incarnation.get());
        sandboxing.cgroups.open(&name).unwrap()
    }

    /// Kills the session's bridge with -9.
    pub(crate) async fn kill_bridge(&self, session: SessionId) {
        let pid = self.host.bridge_of(self.sandbox(session).await).expect("its bridge is alive");
        kill(pid);
    }

    /// Ends everything, and sees that nothing is left.
    pub(crate) async fn end(self) {
        until("nothing is on its way out", || for_a_moment(&self.dir).is_empty()).await;
        self.host.end_prewarmed().await;
        for sandbox in self.host.list().await.unwrap() {
            self.host.stop(sandbox).await.unwrap();
        }
        // One that ended by itself is still being cleared away.
        if let Enclosure::Sandbox(sandboxing) = &self.enclosure {
            let are_gone = || sandboxing.cgroups.list().unwrap().is_empty();
            until("no cgroups are left", are_gone).await;
        }
        self.engine.abort().await;
        self.host.abandon().await;
        if let Some(model) = self.model {
            model.shutdown().await;
        }
        let marker = self.dir.as_os_str().to_owned();
        until("nothing is left", || processes_mentioning(&marker).is_empty()).await;
        assert_eq!(left_behind(&self.dir), Vec::<String>::new());
        end_sandboxes(&self.dir.join("data"));
    }
}

/// What is there for a moment: each life of a server has a place for that.
fn for_a_moment(dir: &Path) -> Vec<String> {
    let below = |place: PathBuf| std::fs::read_dir(place).into_iter().flatten().flatten();
    let lives = below(dir.join("data/tmp"));
    lives.flat_map(|life| below(life.path())).map(|it| it.path().display().to_string()).collect()
}

/// What nobody should leave behind, whatever happened: things that were there for a moment, and mounts.
fn left_behind(dir: &Path) -> Vec<String> {
    let mut left = for_a_moment(dir);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let marker = dir.to_str().unwrap();
    left.extend(mounts.lines().filter(|line| line.contains(marker)).map(str::to_owned));
    for entry in std::fs::read_dir(dir.join("data/sandboxes")).into_iter().flatten().flatten() {
        let half = entry.path().join("workspace.new");
        left.extend(half.exists().then(|| half.display().to_string()));
    }
    left
}

/// What the log says about one run.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) entries: Vec<LogEntry>,
    pub(crate) status: RunStatus,
    pub(crate) record: RunRecord,
}

impl Turn {
    /// The text of the answer, without what was retracted.
    pub(crate) fn text(&self) -> String {
        let mut kept: Vec<(u64, &str)> = Vec::new();
        for LogEntry { seq, entry, .. } in &self.entries {
            match entry {
                Entry::TextDelta { delta, .. } => kept.push((seq.get(), delta)),
                Entry::RunRetry { discard_after_seq, .. } => {
                    kept.retain(|(seq, _)| *seq <= discard_after_seq.get());
                }
                _ => {}
            }
        }
        kept.into_iter().map(|(_, delta)| delta).collect()
    }

    pub(crate) fn outputs(&self, wanted: &str) -> Vec<serde_json::Value> {
        let bodies = self.entries.iter().filter_map(|entry| match &entry.entry {
            Entry::Output { name, body, .. } if name == wanted => Some(body.get()),
            _ => None,
        });
        bodies.map(|body| serde_json::from_str(body).unwrap()).collect()
    }

    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.entries.iter().map(|entry| entry.entry.kind()).collect()
    }
}

/// What an agent is told.
type Told = (Limits, Resources, u32, Option<Program>);

async fn gated_engine(
    dir: &Path,
    model_url: &str,
    (limits, resources, prewarm, claude): Told,
    (enclosure, (boot, clock), policy, cloud): (Enclosure, (u32, SetClock), Policy, Option<&str>),
    gate: Option<Gate>,
) -> (Engine, BridgeHost) {
    let cloud = cloud.map(|url| crate::space::cloud(url, &dir.join("data")));
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.join("ash.db")).unwrap());
    let agent = NewAgentVersion {
        id: AgentId::from_parts(SystemClock.now(), [0; 10]),
        tenant: tenant(),
        name: "coder".parse().unwrap(),
        definition: Json::of("an agent").unwrap(),
        at: SystemClock.now(),
        receipt: None,
        settings: None,
        label: ash_store::NewLabel::default(),
    };
    match store.agent(&tenant(), &agent.name).await {
        Ok(_) => {}
        Err(StoreError::NotFound(_)) => drop(store.deploy_agent(&agent).await.unwrap()),
        Err(error) => panic!("{error}"),
    }
    let owner = store.next_owner().await.unwrap();
    let upstream =
        Upstream { base_url: model_url.to_owned(), key: Some(ModelKey::new(KEY.to_owned())) };
    let described = Agent {
        env: BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())]),
        limits,
        resources,
        prewarm,
        ..match claude {
            Some(_) => Agent { claude, ..Agent::new("claude", "claude-sonnet-4-5") },
            None => Agent::new("builtin", "scripted"),
        }
    };
    let host = BridgeHost::open(HostOptions {
        data: dir.join("data"),
        bridge: bridge_program(),
        owner,
        orphan_ttl: Duration::from_secs(60),
        hook_timeout: Duration::from_secs(60),
        describe: Arc::new(described),
        environment: std::env::vars().collect(),
        egress: Arc::new(ModelProxy::new(upstream).unwrap()),
        enclosure,
        cloud: cloud.clone(),
        boot_id: format!("boot {boot}"),
    })
    .unwrap();
    let library = crate::space::library(&dir.join("data"));
    let bundles = Bundles::open(&host, &dir.join("data"), library).unwrap();
    let (store, seen): (Arc<dyn Store>, Arc<dyn SandboxHost>) = match gate {
        Some(gate) => {
            let behind = FlakyStore::new(store, Arc::new(Dice::new(0)));
            behind.behave(gate.clone(), StoreFaults::default());
            (Arc::new(behind), Arc::new(GatedHost::new(Arc::new(host.clone()), gate)))
        }
        None => (store, Arc::new(host.clone())),
    };
    let engine = Engine::start(Options {
        store,
        host: seen,
        clock: Arc::new(clock),
        policy,
        ids: IdSource::unguessable(),
        owner,
        cloud,
        bundles: Some(bundles),
    });
    (engine, host)
}

pub(crate) fn tenant() -> TenantId {
    TenantId::default_tenant()
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
