//! How long a client that comes back waits for ten thousand events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_core::id::TenantId;
use ash_core::number::Seq;
use ash_engine::{FollowFrom, Followed};
use ash_store::Store;

use crate::figures::{Figures, heading, millis};
use crate::world::{self, EVENT_BYTES, Writer};

const EVENTS: u64 = 10_000;
const TIMES: u32 = 30;

pub(crate) fn measure() {
    heading("Replay of 10,000 events (300 bytes) through a follower");
    let directory = world::directory();
    world::runtime().block_on(async {
        let store: Arc<dyn Store> = world::open(&directory.path().join("ash.db"), 256);
        let agent = world::deploy(&*store).await;
        let mut writer = Writer::new(Arc::clone(&store), agent).await;
        let text = "x".repeat(EVENT_BYTES);
        for _ in 0..EVENTS {
            writer.say(&text).await;
        }
        let session = writer.id();
        let engine = world::engine(store, &world::host()).await;
        let mut each = Vec::new();
        let mut first = Vec::new();
        let start = Instant::now();
        for _ in 0..TIMES {
            let before = Instant::now();
            let tenant = TenantId::default_tenant();
            let mut follower = engine
                .follow(&tenant, session, FollowFrom::Start)
                .await
                .expect("the session is there");
            let mut seen = 0;
            while seen < EVENTS {
                match follower.next().await.expect("the log can be read") {
                    Followed::Entries(entries) => {
                        if seen == 0 {
                            first.push(before.elapsed());
                        }
                        seen += entries.len() as u64;
                    }
                    other @ (Followed::Gap(_) | Followed::Closing) => panic!("{other:?}"),
                }
            }
            assert!(follower.cursor().seq >= Seq::new(EVENTS), "everything was seen");
            each.push(before.elapsed());
        }
        Figures::new(first, start.elapsed()).print("first page");
        let figures = Figures::new(each, start.elapsed());
        figures.print("all of it");
        println!("\nper 1,000 events: {}", millis(figures.p50() / 10));
        engine.drain(Duration::from_secs(1)).await;
    });
}
