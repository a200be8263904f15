//! Single requests against bare routes: a look at a session, and the first event of an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_store::Store;
use tokio::task::JoinSet;

use super::child::Child;
use super::client::{self, Client};
use crate::figures::{Figures, heading, millis};
use crate::world::{self, EVENT_BYTES, Writer};

/// Rivals take turns in windows of this length, so many each.
const WINDOW: Duration = Duration::from_millis(500);
const WINDOWS: usize = 10;

/// How many messages are sent.
const MESSAGES: usize = 300;

/// What a window of requests came to.
#[derive(Default)]
struct Tally {
    each: Vec<Duration>,
    total: Duration,
    used: Duration,
}

impl Tally {
    fn used_per_request(&self) -> Duration {
        self.used / u32::try_from(self.each.len().max(1)).unwrap_or(u32::MAX)
    }
}

/// `GET /api/sessions/:id` against a fixed answer of the same size.
pub(super) async fn look_at_a_session(server: &Child, session: &str) {
    heading("GET /api/sessions/:id against a bare axum route");
    let ours = client::get(&format!("/api/sessions/{session}"));
    let bytes = Client::connect(server.address).await.ask(&ours).await;
    let bare = Child::bare(bytes);
    let theirs = client::get(&format!("/fixed/{session}"));
    for connections in [1, 16] {
        let (mut slow, mut fast) = (Tally::default(), Tally::default());
        for _ in 0..WINDOWS {
            window(server, &ours, connections, &mut slow).await;
            window(&bare, &theirs, connections, &mut fast).await;
        }
        let used = [slow.used_per_request(), fast.used_per_request()];
        let (slow, fast) =
            (Figures::new(slow.each, slow.total), Figures::new(fast.each, fast.total));
        fast.print(&format!("bare, {bytes} bytes, {connections} connections"));
        slow.print(&format!("ash, {connections} connections"));
        println!(
            "ash answers {:.0} % as many; the server's processor time per request: {:.1} us, bare {:.1} us",
            slow.per_second() / fast.per_second() * 100.0,
            used[0].as_secs_f64() * 1e6,
            used[1].as_secs_f64() * 1e6,
        );
    }
}

async fn window(server: &Child, request: &str, connections: usize, tally: &mut Tally) {
    let mut clients = Vec::new();
    for _ in 0..connections {
        let mut client = Client::connect(server.address).await;
        client.ask(request).await;
        clients.push(client);
    }
    let (used, begin) = (server.used(), Instant::now());
    let mut asking = JoinSet::new();
    for mut client in clients {
        let request = request.to_owned();
        asking.spawn(async move {
            let mut each = Vec::new();
            while begin.elapsed() < WINDOW {
                let asked = Instant::now();
                client.ask(&request).await;
                each.push(asked.elapsed());
            }
            each
        });
    }
    tally.each.extend(asking.join_all().await.into_iter().flatten());
    tally.total += begin.elapsed();
    tally.used += server.used() - used;
}

/// The first event after `POST messages`, against one that is echoed. The prompt is on disk before
/// its first event, so one durable commit is measured beside it.
pub(super) async fn first_event(server: &Child, session: &str, disk: &std::path::Path) {
    heading("First event after POST messages against a bare SSE echo");
    let bare = Child::bare(0);
    let (ours, theirs) = (client::send(session), client::post("/echo", r#"{"content":"go"}"#));
    let (mut real, mut echo) =
        (Client::connect(server.address).await, Client::connect(bare.address).await);
    let store: Arc<dyn Store> = world::open(disk, 256);
    let agent = world::deploy(&*store).await;
    let mut writer = Writer::new(store, agent).await;
    let text = "x".repeat(EVENT_BYTES);
    let (mut first, mut echoed, mut durable) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..MESSAGES {
        echoed.push(until_first_event(&mut echo, &theirs).await);
        let begin = Instant::now();
        writer.say(&text).await;
        durable.push(begin.elapsed());
        first.push(until_first_event(&mut real, &ours).await);
    }
    let figures = |each: Vec<Duration>| {
        let total = each.iter().sum();
        Figures::new(each, total)
    };
    let (first, echoed, durable) = (figures(first), figures(echoed), figures(durable));
    echoed.print("bare SSE echo");
    durable.print("one durable commit on the same disk");
    first.print("ash, first event");
    let more = first.p50().saturating_sub(echoed.p50());
    let apart = more.saturating_sub(durable.p50());
    println!("more than the echo: p50 {}; without the commit {}", millis(more), millis(apart));
}

async fn until_first_event(client: &mut Client, request: &str) -> Duration {
    let begin = Instant::now();
    client.open(request).await;
    assert!(client.event().await.is_some(), "there is an event");
    let took = begin.elapsed();
    client.finish().await;
    took
}
