//! The world of the simulation: engines start and are killed while clients go on, then all comes to rest and is checked.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ash_core::id::{AgentId, QuestionId, RunId, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::permission::Permission;
use ash_core::policy::Policy;
use ash_core::session::LogEntry;
use ash_core::time::Clock as _;
use ash_engine::signal::Signal;
use ash_engine::testing::{Dice, FakeHost, FlakyStore, Gate, HostFaults, StoreFaults, TestClock};
use ash_engine::{Engine, IdSource, Options};
use ash_store::memory::MemoryStore;
use ash_store::{NewAgentVersion, Store};
use tokio::task::JoinSet;

use super::check;
use super::people::Client;

/// What happens in a simulation.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) clients: u64,
    /// How many things each client wants.
    pub(super) wishes: u64,
    /// After how many steps each engine is killed; the last one lives.
    pub(super) crash_steps: Vec<u64>,
    pub(super) store: StoreFaults,
    pub(super) host: HostFaults,
    /// How many sandboxes there may be.
    pub(super) places: u32,
}

impl Plan {
    pub(super) fn random(seed: u64) -> Self {
        let dice = Dice::new(seed ^ 0x5eed);
        let maybe = |most: u64| if dice.roll(3) == 0 { dice.roll(most) } else { 0 };
        Self {
            clients: 1 + dice.roll(4),
            wishes: 3 + dice.roll(10),
            crash_steps: (0..dice.roll(5)).map(|_| 1 + dice.roll(300)).collect(),
            store: StoreFaults {
                fails: maybe(80),
                loses_answer: maybe(80),
                damages: 0,
                full: maybe(40),
                panics: maybe(6),
                slowness: Duration::from_millis(maybe(40)),
            },
            host: HostFaults {
                start_fails: maybe(200),
                hangs: maybe(60),
                call_fails: maybe(150),
                loses_answer: maybe(150),
                dies: maybe(60),
                deaf: maybe(500),
                doubles: maybe(300),
                asks: maybe(500),
                diligence: 0,
                slowness: Duration::from_millis(1 + maybe(2_000)),
            },
            places: 1 + u32::try_from(dice.roll(5)).unwrap(),
        }
    }
}

/// What happened, to compare two plays of the same seed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) crashes: u64,
    pub(super) logs: BTreeMap<SessionId, Vec<LogEntry>>,
}

/// What clients were told, and what followers saw.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) sessions: Vec<SessionId>,
    pub(super) accepted: BTreeMap<RunId, SessionId>,
    pub(super) ended: Vec<SessionId>,
    /// What people were told that it is decided.
    pub(super) decided: Vec<(SessionId, QuestionId, Permission)>,
    pub(super) seen: Vec<(SessionId, Vec<LogEntry>)>,
}

pub(super) struct World {
    pub(super) store: Arc<MemoryStore>,
    pub(super) host: FakeHost,
    pub(super) notes: Arc<Mutex<Notes>>,
    flaky: Arc<FlakyStore>,
    clock: Arc<TestClock>,
    dice: Arc<Dice>,
    places: u32,
    /// The engine that lives, if one does.
    engine: Arc<Signal<Option<Engine>>>,
}

impl World {
    pub(super) async fn play(seed: u64, plan: &Plan) -> History {
        let dice = Arc::new(Dice::new(seed));
        let store = Arc::new(MemoryStore::new());
        let as_store: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
        let mut world = Self {
            flaky: Arc::new(FlakyStore::new(as_store, Arc::clone(&dice))),
            store,
            host: FakeHost::new(Arc::clone(&dice)),
            notes: Arc::default(),
            clock: Arc::new(TestClock::new()),
            dice,
            places: plan.places,
            engine: Arc::default(),
        };
        world.deploy_agent().await;
        world.host.allow_at_most(plan.places as usize);

        let mut people = JoinSet::new();
        for number in 0..plan.clients {
            people.spawn(world.client(number).live(plan.wishes));
        }
        let crashes = world.go_through_lives(plan).await;

        // The last engine has a healthy world around it: all must come to rest.
        // It takes a moment to answer, so that there is something to come in between.
        let healthy = StoreFaults { slowness: Duration::from_millis(3), ..StoreFaults::default() };
        world.start_engine(Gate::default(), healthy, HostFaults::default()).await;
        let mut readers = Vec::new();
        while let Some(lived) = people.join_next().await {
            readers.push(lived.expect("no client panics"));
        }
        check::at_rest(&world).await;
        world.end_everything().await;
        check::at_the_end(&world).await;

        for mut following in readers {
            following.shutdown().await;
        }
        world.engine().abort().await;
        History { crashes, logs: check::logs(&world).await }
    }

    pub(super) fn engine(&self) -> Engine {
        self.engine.get().expect("an engine lives")
    }

    /// Lets time pass until something holds; the simulation has a lot of time, but not for ever.
    pub(super) async fn until<F: Future<Output = bool>>(&self, what: &str, holds: impl Fn() -> F) {
        for _ in 0..2_000 {
            if holds().await {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("never: {what}");
    }

    async fn go_through_lives(&mut self, plan: &Plan) -> u64 {
        let mut crashes = 0;
        for &steps in &plan.crash_steps {
            let gate = Gate::crashing_at(steps);
            self.start_engine(gate.clone(), plan.store, plan.host).await;
            // A world that has nothing left to do takes no more steps.
            let crashed = tokio::time::timeout(Duration::from_secs(600), gate.crashed()).await;
            crashes += u64::from(crashed.is_ok());
            let engine = self.take_engine();
            if crashed.is_err() || self.dice.chance(200) {
                // Told to go in good order, and perhaps killed while it does.
                engine.drain(Duration::from_secs(4)).await;
            }
            gate.shut();
            engine.abort().await;
            if self.dice.chance(150) {
                self.host.reboot();
            }
            tokio::time::sleep(self.dice.while_of(Duration::from_secs(5))).await;
        }
        // Also without a crash, faults get their time.
        if plan.crash_steps.is_empty() {
            self.start_engine(Gate::default(), plan.store, plan.host).await;
            tokio::time::sleep(Duration::from_secs(120)).await;
            let engine = self.take_engine();
            engine.drain(Duration::from_secs(4)).await;
        }
        crashes
    }

    fn take_engine(&self) -> Engine {
        let engine = self.engine();
        self.engine.change(|living| *living = None);
        engine
    }

    async fn start_engine(&mut self, gate: Gate, store: StoreFaults, host: HostFaults) {
        self.flaky.behave(gate.clone(), store);
        self.host.behave(gate, host);
        let owner = self.store.next_owner().await.unwrap();
        let engine = Engine::start(Options {
            store: Arc::clone(&self.flaky) as Arc<dyn Store>,
            host: Arc::new(self.host.clone()),
            clock: Arc::clone(&self.clock) as Arc<_>,
            policy: policy(self.places),
            ids: IdSource::seeded(owner.get() << 32),
            owner,
            cloud: None,
            bundles: None,
        });
        self.engine.change(|living| *living = Some(engine));
    }

    async fn deploy_agent(&self) {
        let now = self.clock.now();
        let agent = NewAgentVersion {
            id: AgentId::from_parts(now, [0; 10]),
            tenant: TenantId::default_tenant(),
            name: "coder".parse().unwrap(),
            definition: Json::of("an agent").unwrap(),
            at: now,
            receipt: None,
            settings: None,
            label: ash_store::NewLabel::default(),
        };
        self.store.deploy_agent(&agent).await.unwrap();
    }

    async fn end_everything(&self) {
        let tenant = TenantId::default_tenant();
        let sessions = self.notes.lock().unwrap().sessions.clone();
        for session in sessions {
            self.engine().end(&tenant, session).await.unwrap();
        }
        self.until("every session comes to rest", || async {
            self.store.unsettled_sessions(None, 10).await.unwrap().is_empty()
                && self.engine().driven_sessions() == 0
        })
        .await;
    }

    fn client(&self, number: u64) -> Client {
        Client {
            number,
            engine: self.engine.watch(),
            dice: Arc::clone(&self.dice),
            notes: Arc::clone(&self.notes),
            tenant: TenantId::default_tenant(),
            keys: 0,
        }
    }
}

fn policy(places: u32) -> Policy {
    Policy {
        persist_interval: Duration::from_secs(90),
        persist_debounce: Duration::from_secs(2),
        persist_timeout: Duration::from_secs(40),
        cold_ttl: Duration::from_secs(30),
        start_timeout: Duration::from_secs(20),
        stop_timeout: Duration::from_secs(3),
        freeze_timeout: Duration::from_secs(4),
        delivery_timeout: Duration::from_secs(5),
        interrupt_grace: Duration::from_secs(6),
        turn_timeout: Duration::from_secs(90),
        idle_timeout: Duration::from_secs(70),
        evict_after: Duration::from_secs(50),
        max_sandboxes: NonZeroU32::new(places).unwrap(),
        max_prewarmed: 0,
        place_patience: Duration::from_secs(2),
        ..Policy::default()
    }
}
