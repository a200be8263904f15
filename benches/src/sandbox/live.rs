//! Creating sessions over HTTP, and what the idle ones hold.

use std::time::{Duration, Instant};

use super::memory::Memory;
use super::{Server, create};
use crate::figures::{Figures, heading};

/// How many are made, one after the other.
const CREATED: usize = 100;

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
