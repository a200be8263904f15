//! What the server costs over HTTP, as its clients see it.
//!
//! `ash serve` runs as a process of its own, and so does the bare server it is compared with: what
//! the client costs is apart. The model is ours; the agent is the built-in one, in real bridges.

mod bare;
pub(crate) mod child;
pub(crate) mod client;
mod requests;
pub(crate) mod rest;
mod streams;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

pub(crate) use bare::serve_bare;
use child::Child;
use client::Client;

use crate::model::{Model, Pace};
use crate::world;

/// How many sessions there are in the end; so many are made at a time.
const SESSIONS: usize = 1_000;
const AT_A_TIME: usize = 8;

/// A server and its model.
struct Stage {
    server: Child,
    model: Arc<Model>,
}

/// Measures everything, or one kind of thing: `rest`, `requests` or `streams`.
pub(crate) fn measure(kind: Option<&str>) {
    let wanted = |name: &str| kind.is_none_or(|kind| kind == name);
    let directory = world::directory();
    let directory = directory.path().canonicalize().expect("it was just made");
    world::runtime().block_on(async {
        if wanted("rest") {
            std::fs::create_dir(directory.join("idle")).expect("there is room");
            rest::idle(&directory.join("idle")).await;
            rest::start(&directory).await;
        }
        let stage = Stage::set(&directory).await;
        let mut sessions = stage.sessions(1).await;
        if wanted("requests") {
            requests::look_at_a_session(&stage.server, &sessions[0]).await;
            requests::first_event(&stage.server, &sessions[0], &directory.join("commits.db")).await;
        }
        if wanted("streams") {
            sessions.extend(stage.sessions(49).await);
            streams::turns(&stage, &sessions).await;
            streams::followers_of_one(&stage, &sessions[0]).await;
            let begin = Instant::now();
            sessions.extend(stage.sessions(SESSIONS - sessions.len()).await);
            println!("\n(950 more sessions: active after {:.1} s)", begin.elapsed().as_secs_f64());
            streams::followers_of_many(&stage, &sessions).await;
        }
        drop(stage);
        child::orphans_gone().await;
    });
}

impl Stage {
    async fn set(directory: &Path) -> Self {
        let pace = Pace { deltas: 1, apart: Duration::ZERO };
        let model = Arc::new(Model::start(pace).await);
        let data = directory.join("data");
        let server = Child::ash(&data, &model.base_url());
        let agent = directory.join("agent");
        std::fs::create_dir(&agent).expect("there is room");
        std::fs::write(agent.join("CLAUDE.md"), "Say something.\n").expect("there is room");
        std::fs::write(agent.join("ash.toml"), "runtime = \"builtin\"\n").expect("there is room");
        let deploy = json!({ "name": "bench", "path": agent }).to_string();
        let mut client = Client::connect(server.address).await;
        client.ask(&client::post("/api/agents", &deploy)).await;
        Self { server, model }
    }

    /// New sessions, active.
    async fn sessions(&self, count: usize) -> Vec<String> {
        let mut making = JoinSet::new();
        for first in 0..AT_A_TIME.min(count) {
            let address = self.server.address;
            let share = (first..count).step_by(AT_A_TIME).count();
            making.spawn(async move {
                let mut client = Client::connect(address).await;
                let request = client::post("/api/sessions", r#"{"agent":"bench"}"#);
                let mut made = Vec::new();
                for _ in 0..share {
                    let answer = client.json(&request).await;
                    made.push(answer["session"]["id"].as_str().expect("it has an id").to_owned());
                }
                made
            });
        }
        making.join_all().await.into_iter().flatten().collect()
    }
}
