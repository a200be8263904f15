//! What bridge and engine add between the model's byte and the follower's.
//!
//! A model of our own stamps each delta as it writes it; a follower of the log stamps it as it
//! arrives. In between are the proxy, the bridge with its spool, the engine, and the commit. The
//! same is measured over a store that keeps everything in memory, so that the sync is counted
//! apart.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ash_core::entry::Entry;
use ash_core::id::{SessionId, TenantId};
use ash_core::json::Json;
use ash_core::session::{IfBusy, Wake};
use ash_engine::bridge::{Agent, PlainHost, PlainOptions};
use ash_engine::{
    CreateSession, Engine, Followed, IdSource, Options, SandboxHost as _, SendPrompt, SystemClock,
};
use ash_server::egress::{ModelKey, ModelProxy, Upstream};
use ash_store::Store;
use ash_store::memory::MemoryStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::figures::{Figures, heading, millis};
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
    runtime.block_on(async {
        let stage = Stage::set(Arc::new(MemoryStore::new()), &bridge, &directory, Vec::new()).await;
        let resident = stage.resident_kb().await;
        println!("resident when idle, fresh: {:.2} MB", resident as f64 / 1e3);
        stage.clear().await;
        let script = vec![Pace { deltas: 100, apart: Duration::ZERO }];
        let stage = Stage::set(Arc::new(MemoryStore::new()), &bridge, &directory, script).await;
        stage.play(100).await;
        let resident = stage.resident_kb().await;
        println!("resident when idle, after a turn: {:.2} MB", resident as f64 / 1e3);
        stage.clear().await;
    });
}

async fn one_by_one(store: Arc<dyn Store>, bridge: &Path, directory: &Path) -> Figures {
    let script = vec![Pace { deltas: TIMED, apart: APART }];
    let stage = Stage::set(store, bridge, directory, script).await;
    let start = Instant::now();
    let arrivals = stage.play(TIMED).await;
    let departures = stage.departures();
    let each = arrivals.iter().zip(&departures).map(|(at, from)| *at - *from).collect();
    stage.clear().await;
    Figures::new(each, start.elapsed())
}

async fn flood(store: Arc<dyn Store>, bridge: &Path, directory: &Path) {
    let script = vec![Pace { deltas: FLOOD, apart: Duration::ZERO }];
    let stage = Stage::set(store, bridge, directory, script).await;
    let arrivals = stage.play(FLOOD).await;
    let begin = stage.departures()[0];
    let took = *arrivals.last().expect("there was something") - begin;
    let rate = FLOOD as f64 / took.as_secs_f64();
    println!("{FLOOD} deltas in {}: {rate:.0}/s, all in the log", millis(took));
    stage.clear().await;
}

/// How a model answers.
#[derive(Clone, Copy)]
struct Pace {
    deltas: usize,
    apart: Duration,
}

/// An engine, a bridge and a model, for one session.
struct Stage {
    engine: Engine,
    host: PlainHost,
    session: SessionId,
    departures: Arc<Mutex<Vec<Instant>>>,
    _model: JoinSet<()>,
}

impl Stage {
    async fn set(
        store: Arc<dyn Store>,
        bridge: &Path,
        directory: &Path,
        script: Vec<Pace>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let base_url = format!("http://{}", listener.local_addr().expect("it has an address"));
        let departures = Arc::new(Mutex::new(Vec::new()));
        let mut model = JoinSet::new();
        model.spawn(serve(listener, script, Arc::clone(&departures)));
        let owner = store.next_owner().await.expect("the store can be written");
        let agent = Agent {
            runtime: "builtin".to_owned(),
            model: "bench".to_owned(),
            env: BTreeMap::new(),
            limits: ash_protocol::Limits::default(),
        };
        let key = Some(ModelKey::new("none".to_owned()));
        let proxy = ModelProxy::new(Upstream { base_url, key }).expect("a client can be built");
        let host = PlainHost::open(PlainOptions {
            data: directory.to_owned(),
            bridge: bridge.to_owned(),
            owner,
            orphan_ttl: Duration::from_secs(60),
            describe: Arc::new(move |_| agent.clone()),
            environment: BTreeMap::new(),
            egress: Arc::new(proxy),
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
        });
        let create = CreateSession {
            tenant: TenantId::default_tenant(),
            agent: "coder".parse().expect("a plain name"),
            settings: world::settings(),
            time_to_live: None,
        };
        let session = engine.create_session(create, None).await.expect("it can be made").record.id;
        engine.settled(&TenantId::default_tenant(), session).await.expect("it starts");
        Self { engine, host, session, departures, _model: model }
    }

    /// Has the agent answer, and says when each delta arrived.
    async fn play(&self, deltas: usize) -> Vec<Instant> {
        let tenant = TenantId::default_tenant();
        let mut follower =
            self.engine.follow(&tenant, self.session, None).await.expect("it is there");
        let prompt = SendPrompt {
            content: Json::of("go").expect("a string is JSON"),
            if_busy: IfBusy::Queue,
            wake: Wake::Any,
            timeout: None,
        };
        self.engine.prompt(&tenant, self.session, prompt, None).await.expect("it is accepted");
        let mut arrivals = Vec::with_capacity(deltas);
        let mut ended = false;
        while !ended {
            let Followed::Entries(entries) = follower.next().await.expect("the log can be read")
            else {
                panic!("the log has a gap");
            };
            let now = Instant::now();
            for entry in entries {
                if let Entry::TextDelta { delta, .. } = &entry.entry {
                    arrivals.extend(delta.matches('#').map(|_| now));
                }
                ended |= entry.entry.kind() == "run_ended";
            }
        }
        assert_eq!(arrivals.len(), deltas, "every delta arrived");
        arrivals
    }

    fn departures(&self) -> Vec<Instant> {
        self.departures.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

/// A model that answers every request with the next of its paces.
async fn serve(listener: TcpListener, script: Vec<Pace>, departures: Arc<Mutex<Vec<Instant>>>) {
    for pace in script {
        let Ok((stream, _)) = listener.accept().await else { return };
        if answer(stream, pace, &departures).await.is_err() {
            return;
        }
    }
}

async fn answer(
    mut stream: TcpStream,
    pace: Pace,
    departures: &Mutex<Vec<Instant>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    read_request(&mut stream).await?;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"bench\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(start.as_bytes()).await?;
    let delta = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"# word\"}}\n\n";
    for _ in 0..pace.deltas {
        if !pace.apart.is_zero() {
            tokio::time::sleep(pace.apart).await;
        }
        departures.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
        stream.write_all(delta.as_bytes()).await?;
    }
    let end = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    stream.write_all(end.as_bytes()).await?;
    stream.shutdown().await
}

async fn read_request(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut bytes = [0; 8192];
    loop {
        let count = stream.read(&mut bytes).await?;
        request.extend_from_slice(&bytes[..count]);
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let is_whole = match length.and_then(|length| length.trim().parse::<usize>().ok()) {
                Some(length) => body.len() >= length,
                None => body.ends_with("0\r\n\r\n"),
            };
            if is_whole || count == 0 {
                return Ok(());
            }
        }
    }
}
