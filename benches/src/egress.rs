//! What the proxy of sandboxes adds to a request to the model, against a direct one and against a proxy that does nothing
//! but pass on.
//!
//! The real `ash serve` runs in a process of its own, with a real session that has a budget; agents are plain processes, so
//! that this one can ask as they do. So does the plain proxy. Rivals take turns, request by request.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, client, server};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::figures::{Figures, heading, millis};
use crate::server::child::{self, Child};
use crate::server::client::{self as api, Client};
use crate::world;

/// How many requests are timed, of each.
const TIMED: usize = 1_000;

/// How large the large answers are, and how many there are of each.
const LARGE: usize = 64 << 20;
const LARGE_ROUNDS: usize = 10;

/// How many ask at once for small answers, and for how long.
const AT_ONCE: usize = 8;
const WINDOW: Duration = Duration::from_millis(500);
const WINDOWS: usize = 8;

/// What a request has in it.
const BODY: &str = r#"{"model":"bench","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"go"}]}"#;

pub(crate) fn measure() {
    let directory = world::directory();
    let directory = directory.path().canonicalize().expect("it was just made");
    world::runtime().block_on(async {
        let provider = Provider::start().await;
        let server = Child::open(&directory.join("data"), &format!("http://{}", provider.address));
        let door = door_of(&server, &directory).await;
        let plain = Child::reverse(provider.address);
        first_token(provider.address, plain.address, door).await;
        small_answers(plain.address, door).await;
        large_answers(plain.address, door).await;
        drop(server);
        child::orphans_gone().await;
    });
}

/// Where a session of a server asks.
async fn door_of(server: &Child, directory: &Path) -> SocketAddr {
    let agent = directory.join("agent");
    std::fs::create_dir(&agent).expect("there is room");
    std::fs::write(agent.join("CLAUDE.md"), "Say something.\n").expect("there is room");
    std::fs::write(agent.join("ash.toml"), "egress = [\"nobody.example\"]\n")
        .expect("there is room");
    let deploy = json!({ "name": "bench", "path": agent }).to_string();
    let mut client = Client::connect(server.address).await;
    client.ask(&api::post("/api/agents", &deploy)).await;
    let create = r#"{"agent":"bench","budgetUsd":1000000,"budgetTokens":1000000000000}"#;
    let made = client.json(&api::post("/api/sessions", create)).await;
    let session = made["session"]["id"].as_str().expect("it has an id");
    let command = json!({ "command": "printf %s \"$http_proxy\"" }).to_string();
    let ran = client.json(&api::post(&format!("/api/sessions/{session}/exec"), &command)).await;
    let told = ran["stdout"].as_str().expect("it prints something");
    told.strip_prefix("http://").and_then(|at| at.parse().ok()).expect("it is an address")
}

async fn first_token(provider: SocketAddr, plain: SocketAddr, door: SocketAddr) {
    heading("The first streamed token of an answer");
    let mut each: [Vec<Duration>; 3] = Default::default();
    for round in 0..TIMED + 50 {
        for (whom, each) in [provider, plain, door].into_iter().zip(&mut each) {
            let took = ask(whom, "first").await.0;
            if round >= 50 {
                each.push(took);
            }
        }
    }
    let [direct, plain, ours] = each.map(Figures::one_by_one);
    direct.print("direct");
    plain.print("through a plain proxy");
    ours.print("through ash");
    let added = |of: Duration, than: Duration| millis(of.saturating_sub(than));
    println!(
        "\nash adds p50 {}, p99 {} to a direct request; the plain proxy {} and {}",
        added(ours.p50(), direct.p50()),
        added(ours.p99(), direct.p99()),
        added(plain.p50(), direct.p50()),
        added(plain.p99(), direct.p99()),
    );
}

async fn small_answers(plain: SocketAddr, door: SocketAddr) {
    heading(&format!("Small answers, {AT_ONCE} at once"));
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..WINDOWS {
        theirs.extend(window(plain).await);
        ours.extend(window(door).await);
    }
    let total = WINDOW * u32::try_from(WINDOWS).expect("a few");
    let (theirs, ours) = (Figures::new(theirs, total), Figures::new(ours, total));
    theirs.print("through a plain proxy");
    ours.print("through ash");
    println!("\nthe plain proxy answers {:.2}x as many", theirs.per_second() / ours.per_second());
}

async fn window(whom: SocketAddr) -> Vec<Duration> {
    let until = Instant::now() + WINDOW;
    let mut asking = JoinSet::new();
    for _ in 0..AT_ONCE {
        asking.spawn(async move {
            let mut each = Vec::new();
            while Instant::now() < until {
                each.push(ask(whom, "first").await.1);
            }
            each
        });
    }
    asking.join_all().await.into_iter().flatten().collect()
}

async fn large_answers(plain: SocketAddr, door: SocketAddr) {
    heading(&format!("Answers of {} MB", LARGE >> 20));
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..LARGE_ROUNDS {
        theirs.push(ask(plain, "large").await.1);
        ours.push(ask(door, "large").await.1);
    }
    let (theirs, ours) = (Figures::one_by_one(theirs), Figures::one_by_one(ours));
    theirs.print_least("through a plain proxy");
    ours.print_least("through ash");
    let rate = |of: &Figures| LARGE as f64 / 1e6 / of.p50().as_secs_f64();
    println!(
        "\nplain {:.0} MB/s, ash {:.0} MB/s: the plain proxy is {:.2}x as fast",
        rate(&theirs),
        rate(&ours),
        ours.p50().as_secs_f64() / theirs.p50().as_secs_f64(),
    );
}

/// Asks, and says after how long the first token was there, and the end.
async fn ask(whom: SocketAddr, what: &str) -> (Duration, Duration) {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(whom).await.expect("it listens");
    stream.set_nodelay(true).expect("it is a connection");
    let request = format!(
        "POST /v1/messages?beta={what} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\
         anthropic-version: 2023-06-01\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    stream.write_all(request.as_bytes()).await.expect("the request is taken");
    let mut piece = vec![0; 256 * 1024];
    let (mut first, mut total, mut head) = (None, 0, Vec::new());
    loop {
        let count = stream.read(&mut piece).await.expect("the answer comes");
        if count == 0 {
            break;
        }
        total += count;
        if first.is_none() {
            head.extend_from_slice(&piece[..count]);
            let is_there = head.windows(11).any(|window| window == b"\"text_delta");
            first = is_there.then(|| begun.elapsed());
        }
    }
    assert!(what == "first" || total > LARGE, "{total} bytes");
    let first = first.unwrap_or_else(|| panic!("no token: {}", String::from_utf8_lossy(&head)));
    (first, begun.elapsed())
}

/// A provider that answers at once.
struct Provider {
    address: SocketAddr,
    _serving: JoinSet<()>,
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
    event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"bench\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n";
const DELTA: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a few words of an answer\"}}\n\n";
const END: &str = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

impl Provider {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let piece = DELTA.repeat((64 << 10) / DELTA.len());
            let piece: &'static str = piece.leak();
            let mut answering = JoinSet::new();
            loop {
                while answering.try_join_next().is_some() {}
                let Ok((stream, _)) = listener.accept().await else { return };
                answering.spawn(async move {
                    // Whoever does not wait for the answer is none of our business.
                    let _gone = provide(stream, piece).await;
                });
            }
        });
        Self { address, _serving: serving }
    }
}

async fn provide(mut stream: TcpStream, large: &str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::new();
    let mut bytes = [0; 8192];
    while !request.ends_with(b"}]}") && !request.ends_with(b"}]}\r\n0\r\n\r\n") {
        let count = stream.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        request.extend_from_slice(&bytes[..count]);
    }
    stream.write_all(HEAD.as_bytes()).await?;
    if request.windows(10).any(|window| window == b"beta=large") {
        for _ in 0..=LARGE / large.len() {
            stream.write_all(large.as_bytes()).await?;
        }
    } else {
        stream.write_all(DELTA.as_bytes()).await?;
    }
    stream.write_all(END.as_bytes()).await?;
    stream.shutdown().await
}

/// A proxy that passes on and back, and nothing else. It serves until it is killed, and says where.
pub(crate) fn serve_reverse(upstream: SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime can be built").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        println!("listening on http://{}", listener.local_addr().expect("it has an address"));
        let mut serving = JoinSet::new();
        loop {
            while serving.try_join_next().is_some() {}
            let (stream, _) = listener.accept().await.expect("it listens");
            let _no_matter = stream.set_nodelay(true);
            serving.spawn(pass_all(stream, upstream));
        }
    });
}

async fn pass_all(inside: TcpStream, upstream: SocketAddr) {
    let Ok(outside) = TcpStream::connect(upstream).await else { return };
    let _no_matter = outside.set_nodelay(true);
    let Ok((sender, connection)) = client::conn::http1::handshake(TokioIo::new(outside)).await
    else {
        return;
    };
    let sender = std::sync::Mutex::new(sender);
    let pass = service_fn(|request: Request<Incoming>| {
        let mut sender = sender.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sender.send_request(request)
    });
    let served = server::conn::http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(inside), pass);
    let _either_broken_off = tokio::join!(served, connection);
}
