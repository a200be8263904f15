//! The world of the simulation: it starts engines and kills them while clients and followers go
//! on, then lets everything come to rest and has it checked.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ash_core::id::{AgentId, RunId, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::number::{Cursor, Turn};
use ash_core::policy::Policy;
use ash_core::session::{IfBusy, IfRunning, LogEntry, PauseReason, Wake};
use ash_core::time::Clock as _;
use ash_engine::signal::{Signal, Watcher};
use ash_engine::testing::{Dice, FakeHost, FlakyStore, Gate, HostFaults, StoreFaults, TestClock};
use ash_engine::{
    CreateSession, Effective, Engine, EngineError, FollowFrom, Followed, IdSource, Idempotency,
    Options, Point, RequireState, SendPrompt,
};
use ash_store::memory::MemoryStore;
use ash_store::{NewAgentVersion, ReceiptKey, Settings, Store};
use tokio::task::JoinSet;

use super::check;
use crate::support::command;

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

fn settings() -> Settings {
    let config = Json::of("none").unwrap();
    Settings { title: None, model: None, metadata: BTreeMap::new(), config }
}

/// How long a client waits for an answer, however bad the world is.
const PATIENCE: Duration = Duration::from_secs(120);

/// Somebody who wants things, and asks again until told.
struct Client {
    number: u64,
    engine: Watcher<Option<Engine>>,
    dice: Arc<Dice>,
    notes: Arc<Mutex<Notes>>,
    tenant: TenantId,
    keys: u64,
}

impl Client {
    /// Wants things, and leaves behind whoever followed.
    async fn live(mut self, wishes: u64) -> JoinSet<()> {
        let mut session = self.create().await;
        let mut followers = JoinSet::new();
        followers.spawn(self.follower(session).follow());
        for _ in 0..wishes {
            tokio::time::sleep(self.dice.while_of(Duration::from_secs(8))).await;
            match self.dice.roll(19) {
                0..=7 => self.prompt(session).await,
                8 => self.ask(|e, t| async move { e.interrupt(&t, session, None).await }).await,
                9 => {
                    let how = match self.dice.roll(3) {
                        0 => IfRunning::Freeze,
                        1 => IfRunning::Interrupt,
                        _ => IfRunning::Reject,
                    };
                    self.ask(|e, t| async move { e.pause(&t, session, how).await }).await;
                }
                10 | 11 => {
                    self.ask(|e, t| async move { e.resume(&t, session, RequireState::No).await })
                        .await;
                }
                12 => self.ask(|e, t| async move { e.stop(&t, session).await }).await,
                13 => {
                    self.ask(|e, _| async move { e.evict(session, PauseReason::Evicted).await })
                        .await;
                }
                15 => {
                    let to = Turn::new(u32::try_from(self.dice.roll(4)).unwrap());
                    let to = Point::Turn(to);
                    let act = |e: Engine, t| async move {
                        e.rewind(&t, session, to, Effective::Yes).await
                    };
                    self.ask(act).await;
                }
                16 => {
                    let settings = settings();
                    let set = |e: Engine, t| {
                        let settings = settings.clone();
                        async move { e.configure(&t, session, move |now| *now = settings).await }
                    };
                    self.ask(set).await;
                }
                17 => {
                    let exec =
                        |e: Engine, t| async move { e.exec(&t, session, command("true")).await };
                    self.ask(exec).await;
                }
                14 => {
                    self.ask(|e, t| async move { e.end(&t, session).await }).await;
                    self.notes.lock().unwrap().ended.push(session);
                    session = self.create().await;
                    followers.spawn(self.follower(session).follow());
                }
                _ => {
                    // Somebody else looks at the same log from its start.
                    followers.spawn(self.follower(session).follow());
                }
            }
        }
        followers
    }

    async fn create(&mut self) -> SessionId {
        let idempotency = self.key();
        let create = CreateSession {
            tenant: self.tenant.clone(),
            agent: "coder".parse().unwrap(),
            settings: settings(),
            time_to_live: self.dice.chance(100).then(|| Duration::from_secs(60)),
            idle_timeout: None,
        };
        let created = self
            .insist(|engine, _| {
                let (create, idempotency) = (create.clone(), idempotency.clone());
                async move { engine.create_session(create, Some(idempotency)).await }
            })
            .await
            .expect("nothing stands against a new session");
        let id = created.record.id;
        self.notes.lock().unwrap().sessions.push(id);
        id
    }

    async fn prompt(&mut self, session: SessionId) {
        let idempotency = self.key();
        let prompt = SendPrompt {
            content: Json::of("go on").unwrap(),
            if_busy: if self.dice.chance(200) { IfBusy::Reject } else { IfBusy::Queue },
            wake: if self.dice.chance(700) { Wake::Any } else { Wake::SystemPaused },
            timeout: self.dice.chance(200).then(|| Duration::from_secs(3)),
        };
        let answer = self
            .insist(|engine, tenant| {
                let (prompt, idempotency) = (prompt.clone(), idempotency.clone());
                async move { engine.prompt(&tenant, session, prompt, Some(idempotency)).await }
            })
            .await;
        match answer {
            Ok(accepted) => {
                let twice = self.notes.lock().unwrap().accepted.insert(accepted.run, session);
                assert_eq!(twice, None, "two prompts became one run");
            }
            Err(EngineError::Refused(_)) => {}
            Err(error) => panic!("a prompt was answered with {error}"),
        }
    }

    async fn ask<T, F: Future<Output = Result<T, EngineError>>>(
        &mut self,
        act: impl Fn(Engine, TenantId) -> F,
    ) {
        match self.insist(act).await {
            // The host of these tests keeps no snapshots: it only says that it made some.
            Err(EngineError::SnapshotExpired | EngineError::NothingBefore) => {}
            Ok(_) | Err(EngineError::Refused(_) | EngineError::Failed(_)) => {}
            Err(error) => panic!("a request was answered with {error}"),
        }
    }

    /// Asks whichever engine lives, again and again, until it gets a definite answer.
    async fn insist<T, F: Future<Output = Result<T, EngineError>>>(
        &mut self,
        act: impl Fn(Engine, TenantId) -> F,
    ) -> Result<T, EngineError> {
        loop {
            let engine = self.engine.wait_for(Option::is_some).await.expect("it was waited for");
            let answered = tokio::select! {
                biased;
                answer = tokio::time::timeout(PATIENCE, act(engine, self.tenant.clone())) => {
                    Some(answer.expect("every request is answered"))
                }
                // Its process is gone: the connection breaks.
                _ = self.engine.wait_for(Option::is_none) => None,
            };
            match answered {
                Some(Err(error)) if error.is_transient() => {}
                Some(answer) => return answer,
                None => {}
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    fn key(&mut self) -> Idempotency {
        self.keys += 1;
        let key = ReceiptKey {
            tenant: self.tenant.clone(),
            route: "simulated".to_owned(),
            key: format!("client-{}-{}", self.number, self.keys),
        };
        Idempotency { key, body_digest: [7; 32] }
    }

    fn follower(&self, session: SessionId) -> Reader {
        let mut notes = self.notes.lock().unwrap();
        notes.seen.push((session, Vec::new()));
        Reader {
            session,
            index: notes.seen.len() - 1,
            engine: self.engine.clone(),
            notes: Arc::clone(&self.notes),
            tenant: self.tenant.clone(),
            cursor: None,
        }
    }
}

/// Somebody who follows a log, and comes back with a cursor whenever the connection breaks.
struct Reader {
    session: SessionId,
    index: usize,
    engine: Watcher<Option<Engine>>,
    notes: Arc<Mutex<Notes>>,
    tenant: TenantId,
    cursor: Option<Cursor>,
}

impl Reader {
    async fn follow(mut self) {
        loop {
            let engine = self.engine.wait_for(Option::is_some).await.expect("it was waited for");
            let mut gone = self.engine.clone();
            tokio::select! {
                biased;
                () = self.read(&engine) => {}
                _ = gone.wait_for(Option::is_none) => {}
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn read(&mut self, engine: &Engine) {
        let from = self.cursor.map_or(FollowFrom::Start, FollowFrom::Cursor);
        let Ok(mut follower) = engine.follow(&self.tenant, self.session, from).await else {
            return;
        };
        loop {
            match follower.next().await {
                Ok(Followed::Entries(entries)) => {
                    self.notes.lock().unwrap().seen[self.index].1.extend(entries);
                    self.cursor = Some(follower.cursor());
                }
                Ok(Followed::Gap(gap)) => panic!("a log that lost nothing has {gap:?}"),
                Ok(Followed::Closing) | Err(_) => return,
            }
        }
    }
}
