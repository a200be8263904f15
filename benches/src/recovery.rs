//! How long a server that was killed needs to take ten thousand live sessions up again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_core::id::TenantId;
use ash_core::session::Status;
use ash_engine::{CreateSession, Engine};
use ash_store::Store;
use tokio::task::JoinSet;

use crate::figures::heading;
use crate::world;

const SESSIONS: u64 = 10_000;

pub(crate) fn measure() {
    heading("Recovery of 10,000 live sessions after a crash (host without a delay of its own)");
    let directory = world::directory();
    let path = directory.path().join("ash.db");
    world::runtime().block_on(async {
        let store: Arc<dyn Store> = world::open(&path, 256);
        world::deploy(&*store).await;
        let host = world::host();
        let first = world::engine(Arc::clone(&store), &host).await;
        let before = Instant::now();
        create_sessions(&first).await;
        println!("created and active           {:>8.2} s", before.elapsed().as_secs_f64());
        let connected = host.connections();
        first.abort().await;
        drop(store);

        let before = Instant::now();
        let store: Arc<dyn Store> = world::open(&path, 256);
        let second = world::engine(Arc::clone(&store), &host).await;
        // There is no event for "everybody is back": the count is all there is to look at.
        while host.connections() < connected + SESSIONS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = before.elapsed();
        println!(
            "claimed and attached again   {:>8.2} s   {:.0} sessions/s, {:.3} ms each",
            took.as_secs_f64(),
            SESSIONS as f64 / took.as_secs_f64(),
            took.as_secs_f64() * 1_000.0 / SESSIONS as f64,
        );
        assert_eq!(second.driven_sessions() as u64, SESSIONS);
        second.abort().await;
    });
}

async fn create_sessions(engine: &Engine) {
    let mut creating = JoinSet::new();
    for _ in 0..64 {
        let engine = engine.clone();
        creating.spawn(async move {
            for _ in 0..SESSIONS / 64 {
                create_session(&engine).await;
            }
        });
    }
    creating.join_all().await;
    for _ in 0..SESSIONS % 64 {
        create_session(engine).await;
    }
}

async fn create_session(engine: &Engine) {
    let create = CreateSession {
        tenant: TenantId::default_tenant(),
        agent: "coder".parse().expect("a plain name"),
        settings: world::settings(),
        time_to_live: None,
        idle_timeout: None,
    };
    let tenant = create.tenant.clone();
    let created = engine.create_session(create, None).await.expect("a session can be created");
    let settled = engine.settled(&tenant, created.record.id).await.expect("it settles");
    assert_eq!(settled.session.status(), Status::Active);
}
