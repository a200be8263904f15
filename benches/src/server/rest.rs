//! What a server costs when nothing happens, and how soon it is there.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_store::Store;

use super::child::Child;
use super::client::{self, Client};
use crate::figures::{Figures, heading};
use crate::world;

/// Threads that had something to do at the start are gone after this.
const SETTLE: Duration = Duration::from_secs(12);
const IDLE: Duration = Duration::from_secs(20);

const SESSIONS: usize = 10_000;
const STARTS: usize = 10;

/// An idle server's memory and processor time.
pub(super) async fn idle(directory: &Path) {
    heading("An idle server");
    let server = Child::ash(directory, "http://127.0.0.1:9");
    Client::connect(server.address).await.ask(&client::get("/health")).await;
    println!("resident when healthy: {:.1} MB", server.resident());
    tokio::time::sleep(SETTLE).await;
    let used = server.used_by_threads();
    tokio::time::sleep(IDLE).await;
    let used = server.used_by_threads().saturating_sub(used);
    println!(
        "resident when idle: {:.1} MB; processor time: {:.2} ms per minute",
        server.resident(),
        used.as_secs_f64() * 1e3 * 60.0 / IDLE.as_secs_f64(),
    );
}

/// From the start of the process to an answer of `/health`, with and without sessions.
pub(crate) async fn start(directory: &Path) {
    heading("From the start of the process to healthy");
    let (empty, full) = (directory.join("empty"), directory.join("full"));
    for data in [&empty, &full] {
        std::fs::create_dir(data).expect("there is room");
    }
    let store: Arc<dyn Store> = world::open(&full.join("ash.db"), 256);
    let agent = world::deploy(&*store).await;
    world::paused_sessions(&store, agent, SESSIONS).await;
    drop(store);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        without.push(until_healthy(&empty).await);
        with.push(until_healthy(&full).await);
    }
    for (each, what) in [(without, "no sessions"), (with, "10,000 paused sessions")] {
        let total = each.iter().sum();
        Figures::new(each, total).print(what);
    }
}

async fn until_healthy(data: &Path) -> Duration {
    let begin = Instant::now();
    let server = Child::ash(data, "http://127.0.0.1:9");
    Client::connect(server.address).await.ask(&client::get("/health")).await;
    begin.elapsed()
}
