//! Creating sessions over HTTP, and what the idle ones hold.

use std::time::{Duration, Instant};

use super::memory::Memory;
use super::{Server, create};
use crate::figures::{Figures, heading};
use crate::server::client::{self, Client};

/// How many are made, one after the other.
const CREATED: usize = 100;

/// Between two looks whether one waits.
const LOOK: Duration = Duration::from_millis(5);

/// Before memory is looked at: what a start left is given back.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) async fn creates(server: &Server) {
    heading("Creating sessions over HTTP, one after the other, until active");
    let mut client = server.client().await;
    // Not counted: what every server has once.
    for _ in 0..5 {
        create(&mut client, "bench").await;
    }
    tokio::time::sleep(SETTLE).await;
    let before = Memory::now(server);
    let mut took = Vec::new();
    for _ in 0..CREATED {
        let begin = Instant::now();
        create(&mut client, "bench").await;
        took.push(begin.elapsed());
    }
    Figures::one_by_one(took).print_least("POST /api/sessions; below 30 ms is wanted");
    tokio::time::sleep(SETTLE).await;
    heading("What an idle sandbox holds; below 1 MB is wanted");
    Memory::now(server).print_more_than(&before, CREATED);
}

/// The same, each in a sandbox that waits already.
pub(super) async fn claims(server: &Server) {
    heading("Creating sessions in a sandbox that waits, until active");
    let mut client = server.client().await;
    let before = pool(&mut client).await["preWarmHits"].as_u64().expect("it is counted");
    let mut took = Vec::new();
    for _ in 0..CREATED {
        while pool(&mut client).await["preWarmed"] == 0 {
            tokio::time::sleep(LOOK).await;
        }
        let begin = Instant::now();
        create(&mut client, "warm").await;
        took.push(begin.elapsed());
    }
    let hits = pool(&mut client).await["preWarmHits"].as_u64().expect("it is counted") - before;
    println!("{hits} of {CREATED} began in one that waited");
    Figures::one_by_one(took).print_least("POST /api/sessions, kept ready; below 6 ms is wanted");
}

async fn pool(client: &mut Client) -> serde_json::Value {
    client.json(&client::get("/health")).await["pool"].clone()
}
