//! An engine with a world around it, for tests that tell one story each.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ash_core::id::{AgentId, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::policy::Policy;
use ash_core::run::RunStatus;
use ash_core::session::{IfBusy, Session, Wake};
use ash_core::time::Clock as _;
use ash_engine::testing::{Dice, FakeHost, FlakyStore, Gate, HostFaults, StoreFaults, TestClock};
use ash_engine::{
    Accepted, CreateSession, Engine, EngineError, FollowFrom, Followed, IdSource, Idempotency,
    Options, SendPrompt,
};
use ash_protocol::ExecRequest;
use ash_store::memory::MemoryStore;
use ash_store::{NewAgentVersion, ReceiptKey, Settings, Store};

/// An engine and the world around it.
pub(crate) struct TestEngine {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) line: Arc<FlakyStore>,
    pub(crate) host: FakeHost,
    pub(crate) clock: Arc<TestClock>,
    policy: Policy,
}

/// Agents take their time, and a lot of it, so that there is time to interfere.
pub(crate) const UNHURRIED: HostFaults = HostFaults {
    slowness: Duration::from_secs(1),
    diligence: 100,
    start_fails: 0,
    hangs: 0,
    call_fails: 0,
    loses_answer: 0,
    dies: 0,
    deaf: 0,
    doubles: 0,
    asks: 0,
};

impl TestEngine {
    pub(crate) async fn start() -> Self {
        Self::with_policy(Policy::default()).await
    }

    /// With so many places for sandboxes.
    pub(crate) async fn with_places(places: u32) -> Self {
        let max_sandboxes = NonZeroU32::new(places).unwrap();
        let world = Self::with_policy(Policy { max_sandboxes, ..Policy::default() }).await;
        world.host.allow_at_most(places as usize);
        world
    }

    pub(crate) async fn with_policy(policy: Policy) -> Self {
        let dice = Arc::new(Dice::new(1));
        let store = Arc::new(MemoryStore::new());
        let as_store: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
        let line = Arc::new(FlakyStore::new(as_store, Arc::clone(&dice)));
        let host = FakeHost::new(dice);
        let clock = Arc::new(TestClock::new());
        let agent = NewAgentVersion {
            id: AgentId::from_parts(clock.now(), [0; 10]),
            tenant: tenant(),
            name: "coder".parse().unwrap(),
            definition: Json::of("an agent").unwrap(),
            at: clock.now(),
            receipt: None,
            settings: None,
            label: ash_store::NewLabel::default(),
        };
        store.deploy_agent(&agent).await.unwrap();
        let engine = engine(&store, &line, &host, &clock, &policy).await;
        Self { engine, store, line, host, clock, policy }
    }

    /// Kills the engine as a crash would, and starts another one.
    pub(crate) async fn crash_and_restart(&mut self) {
        self.engine.abort().await;
        self.engine = self.another().await;
    }

    /// The same, with another policy.
    pub(crate) async fn restart_with(&mut self, change: impl FnOnce(&mut Policy)) {
        change(&mut self.policy);
        self.crash_and_restart().await;
    }

    /// The same, with another number of places.
    pub(crate) async fn restart_with_places(&mut self, places: u32) {
        self.policy.max_sandboxes = NonZeroU32::new(places).unwrap();
        self.crash_and_restart().await;
    }

    /// Another engine on the same store and host; the one before may still run.
    pub(crate) async fn another(&self) -> Engine {
        engine(&self.store, &self.line, &self.host, &self.clock, &self.policy).await
    }

    pub(crate) async fn session(&self) -> SessionId {
        let created = self.engine.create_session(create(), None).await.unwrap();
        self.engine.settled(&tenant(), created.record.id).await.unwrap();
        created.record.id
    }

    pub(crate) async fn prompt(&self, session: SessionId) -> Result<Accepted, EngineError> {
        self.engine.prompt(&tenant(), session, prompt(), None).await
    }

    pub(crate) async fn stored(&self, session: SessionId) -> Session {
        self.store.session(&tenant(), session).await.unwrap().session.clone()
    }

    pub(crate) async fn status_of(&self, session: SessionId, accepted: Accepted) -> RunStatus {
        self.store.run(session, accepted.run).await.unwrap().status
    }

    /// Follows the log until an entry of this kind, and returns the kinds seen.
    pub(crate) async fn until(&self, session: SessionId, kind: &str) -> Vec<&'static str> {
        let mut follower = self.engine.follow(&tenant(), session, FollowFrom::Start).await.unwrap();
        let mut kinds = Vec::new();
        loop {
            match follower.next().await.unwrap() {
                Followed::Entries(entries) => kinds.extend(entries.iter().map(|e| e.entry.kind())),
                other => panic!("{other:?} after {kinds:?}"),
            }
            if kinds.contains(&kind) {
                return kinds;
            }
        }
    }

    /// Lets time pass until the session's state is as wanted.
    pub(crate) async fn until_state(
        &self,
        session: SessionId,
        wanted: impl Fn(&Session) -> bool,
    ) -> Session {
        for _ in 0..5_000 {
            let stored = self.stored(session).await;
            if wanted(&stored) {
                return stored;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("never: {:?}", self.stored(session).await);
    }

    pub(crate) fn behave(&self, store: StoreFaults, host: HostFaults) {
        self.line.behave(Gate::default(), store);
        self.host.behave(Gate::default(), host);
    }
}

async fn engine(
    store: &MemoryStore,
    line: &Arc<FlakyStore>,
    host: &FakeHost,
    clock: &Arc<TestClock>,
    policy: &Policy,
) -> Engine {
    let owner = store.next_owner().await.unwrap();
    Engine::start(Options {
        store: Arc::clone(line) as Arc<dyn Store>,
        host: Arc::new(host.clone()),
        clock: Arc::clone(clock) as Arc<_>,
        policy: policy.clone(),
        ids: IdSource::seeded(owner.get() << 32),
        owner,
        cloud: None,
        bundles: None,
    })
}

pub(crate) fn tenant() -> TenantId {
    TenantId::default_tenant()
}

pub(crate) fn create() -> CreateSession {
    let settings = Settings {
        title: None,
        model: None,
        metadata: BTreeMap::new(),
        config: Json::of("none").unwrap(),
    };
    let agent = "coder".parse().unwrap();
    CreateSession { tenant: tenant(), agent, settings, time_to_live: None, idle_timeout: None }
}

pub(crate) fn prompt() -> SendPrompt {
    SendPrompt {
        content: Json::of("count to three").unwrap(),
        if_busy: IfBusy::Queue,
        wake: Wake::SystemPaused,
        timeout: None,
    }
}

pub(crate) fn command(command: &str) -> ExecRequest {
    let (timeout_ms, max_output_bytes) = (1_000, 100);
    ExecRequest { command: command.to_owned(), cwd: None, timeout_ms, max_output_bytes }
}

pub(crate) fn key(name: &str, body: u8) -> Idempotency {
    let key = ReceiptKey { tenant: tenant(), route: "test".to_owned(), key: name.to_owned() };
    Idempotency { key, body_digest: [body; 32] }
}
