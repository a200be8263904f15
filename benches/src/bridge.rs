//! What bridge and engine add between the model's byte and the follower's.
//!
//! A model of our own stamps each delta as it writes it; a follower of the log stamps it as it
//! arrives. In between are the proxy, the bridge with its spool, the engine, and the commit. The
//! same is measured over a store that keeps everything in memory, so that the sync is counted
//! apart.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_core::entry::Entry;
use ash_core::id::{SessionId, TenantId};
use ash_core::json::Json;
use ash_core::session::{IfBusy, Wake};
use ash_engine::bridge::{Agent, BridgeHost, Enclosure, HostOptions};
use ash_engine::{
    CreateSession, Engine, FollowFrom, Followed, IdSource, Options, SandboxHost as _, SendPrompt,
    SystemClock,
};
use ash_server::egress::{ModelKey, ModelProxy, Upstream};
use ash_store::Store;
use ash_store::memory::MemoryStore;

use crate::figures::{Figures, heading, millis};
use crate::model::{Model, Pace};
use crate::world;

/// Deltas that are timed one by one, and how far apart they are.
const TIMED: usize = 1_000;
const APART: Duration = Duration::from_millis(4);

/// Deltas that come as fast as they go.
const FLOOD: usize = 50_000;

pub(crate) fn measure() {
    heading("From the model's byte to the follower's");
    let bridge = ash_server::beside::bridge().expect("it is built");
    let directory = world::directory();
    let runtime = world::runtime();
    runtime.block_on(async {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let disk: Arc<dyn Store> = world::open(&directory.path().join("ash.db"), 256);
        let without = one_by_one(memory, &bridge, &directory.path().join("a")).await;
        without.print("per event, without the sync");
        let with = one_by_one(Arc::clone(&disk), &bridge, &directory.path().join("b")).await;
        with.print("per event, on disk first");
        let sync = with.p50().saturating_sub(without.p50());
        println!("\nthe sync and the database: p50 {}", millis(sync));

        heading("A flood through one session");
        flood(disk, &bridge, &directory.path().join("c")).await;
    });
    heading("The bridge");
    let size = std::fs::metadata(&bridge).expect("the bridge is there").len();
    println!("size of the program: {:.2} MB", size as f64 / 1e6);
    let directory = directory.path().join("d");
    let short = Pace { deltas: 100, apart: Duration::ZERO };
    runtime.block_on(async {
        let stage = Stage::set(Arc::new(MemoryStore::new()), &bridge, &directory, short).await;
        let resident = stage.resident_kb().await;
        println!("resident when idle, fresh: {:.2} MB", resident as f64 / 1e3);
        stage.clear().await;
        let stage = Stage::set(Arc::new(MemoryStore::new()), &bridge, &directory, short).await;
        stage.play(100).await;
        let resident = stage.resident_kb().await;
        println!("resident when idle, after a turn: {:.2} MB", resident as f64 / 1e3);
        stage.clear().await;
    });
}

async fn one_by_one(store: Arc<dyn Store>, bridge: &Path, directory: &Path) -> Figures {
    let pace = Pace { deltas: TIMED, apart: APART };
    let stage = Stage::set(store, bridge, directory, pace).await;
    let start = Instant::now();
    let each = stage.play(TIMED).await.iter().map(|delta| delta.to - delta.from).collect();
    stage.clear().await;
    Figures::new(each, start.elapsed())
}

async fn flood(store: Arc<dyn Store>, bridge: &Path, directory: &Path) {
    let pace = Pace { deltas: FLOOD, apart: Duration::ZERO };
    let stage = Stage::set(store, bridge, directory, pace).await;
    let deltas = stage.play(FLOOD).await;
    let took = deltas[FLOOD - 1].to - deltas[0].from;
    let rate = FLOOD as f64 / took.as_secs_f64();
    println!("{FLOOD} deltas in {}: {rate:.0}/s, all in the log", millis(took));
    stage.clear().await;
}

/// An engine, a bridge and a model, for one session.
struct Stage {
    engine: Engine,
    host: BridgeHost,
    session: SessionId,
    model: Model,
}

/// When a delta was written by the model, and when the follower saw it.
struct Delta {
    from: Instant,
    to: Instant,
}

impl Stage {
    async fn set(store: Arc<dyn Store>, bridge: &Path, directory: &Path, pace: Pace) -> Self {
        let model = Model::start(pace).await;
        let base_url = model.base_url();
        let owner = store.next_owner().await.expect("the store can be written");
        let agent = Agent::new("builtin", "bench");
        let key = Some(ModelKey::new("none".to_owned()));
        let proxy = ModelProxy::new(Upstream { base_url, key }).expect("a client can be built");
        let host = BridgeHost::open(HostOptions {
            data: directory.to_owned(),
            bridge: bridge.to_owned(),
            owner,
            orphan_ttl: Duration::from_secs(60),
            hook_timeout: Duration::from_secs(60),
            describe: Arc::new(agent),
            environment: BTreeMap::new(),
            egress: Arc::new(proxy),
            enclosure: Enclosure::Nothing,
            cloud: None,
            boot_id: "bench".to_owned(),
        })
        .expect("the directory can be used");
        world::deploy(&*store).await;
        let engine = Engine::start(Options {
            store,
            host: Arc::new(host.clone()),
            clock: Arc::new(SystemClock),
            policy: world::policy(),
            ids: IdSource::unguessable(),
            owner,
            cloud: None,
            bundles: None,
        });
        let create = CreateSession {
            tenant: TenantId::default_tenant(),
            agent: "coder".parse().expect("a plain name"),
            settings: world::settings(),
            time_to_live: None,
            idle_timeout: None,
        };
        let session = engine.create_session(create, None).await.expect("it can be made").record.id;
        engine.settled(&TenantId::default_tenant(), session).await.expect("it starts");
        Self { engine, host, session, model }
    }

    /// Has the agent answer, and says when each delta was written and seen.
    async fn play(&self, expected: usize) -> Vec<Delta> {
        let tenant = TenantId::default_tenant();
        let mut follower = self
            .engine
            .follow(&tenant, self.session, FollowFrom::Start)
            .await
            .expect("it is there");
        let prompt = SendPrompt {
            content: Json::of("go").expect("a string is JSON"),
            if_busy: IfBusy::Queue,
            wake: Wake::Any,
            timeout: None,
        };
        self.engine.prompt(&tenant, self.session, prompt, None).await.expect("it is accepted");
        let mut deltas = Vec::with_capacity(expected);
        let mut ended = false;
        while !ended {
            let Followed::Entries(entries) = follower.next().await.expect("the log can be read")
            else {
                panic!("the log has a gap");
            };
            let to = Instant::now();
            for entry in entries {
                if let Entry::TextDelta { delta, .. } = &entry.entry {
                    let departures = self.model.departures(delta).into_iter();
                    deltas.extend(departures.map(|from| Delta { from, to }));
                }
                ended |= entry.entry.kind() == "run_ended";
            }
        }
        assert_eq!(deltas.len(), expected, "every delta arrived");
        deltas
    }

    async fn resident_kb(&self) -> u64 {
        let sandbox = self.host.list().await.expect("it can be listed")[0];
        let pid = self.host.bridge_of(sandbox).expect("it is alive");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is alive");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has memory");
        line.split_ascii_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number")
    }

    async fn clear(self) {
        for sandbox in self.host.list().await.expect("they can be listed") {
            self.host.stop(sandbox).await.expect("it can be stopped");
        }
        self.engine.abort().await;
        self.host.abandon().await;
    }
}
