//! What sandboxes cost: to start, to keep, to freeze, and what one can do to another.
//!
//! `sandbox` compares rivals in turns, in one run. `sandbox-many` fills the machine with five hundred, kills
//! the server, and waits until the next one has them all again. Everything that is made is removed,
//! by its cgroup, also if a measurement breaks off.

mod live;
mod many;
mod memory;
mod neighbour;
pub(crate) mod room;
mod start;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ash_engine::bridge::cgroups_of;
use serde_json::json;

use crate::server::child::Child;
use crate::server::client::{self, Client};
use crate::world;

/// No model is asked.
const NO_MODEL: &str = "http://127.0.0.1:9";

/// How long bridges wait for the next server.
const ORPHAN_TTL: Duration = Duration::from_secs(60);

/// How many sandboxes are kept ready, for agents that ask for it.
const KEPT_READY: u32 = 1;

/// Starts, creates, freezes, memory, neighbours.
pub(crate) fn measure() {
    print_load();
    let directory = world::directory();
    let directory = directory.path().canonicalize().expect("it was just made");
    start::measure(&directory);
    world::runtime().block_on(async {
        let server = Server::start(&directory).await;
        live::creates(&server).await;
        server.deploy(&directory, "warm", "prewarm = 1\n").await;
        live::claims(&server).await;
        server.delete("warm").await;
        neighbour::measure(&server).await;
    });
}

/// Five hundred at once, and the death of their server.
pub(crate) fn measure_many() {
    print_load();
    let directory = world::directory();
    let directory = directory.path().canonicalize().expect("it was just made");
    world::runtime().block_on(many::measure(&directory));
}

/// Figures of a busy machine say so.
pub(crate) fn print_load() {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load of the machine: {}", load.trim_end());
}

/// A real server with real sandboxes, and all that is left of it when it is gone.
pub(crate) struct Server {
    // Before its remains: who is alive makes new ones.
    pub(crate) process: Child,
    pub(crate) remains: Remains,
}

/// The sandboxes of servers over a directory. They end when this is dropped.
pub(crate) struct Remains {
    pub(crate) data: PathBuf,
}

impl Server {
    /// With two agents, for which nothing is kept ready: `bench`, and `bomb`, which may use little.
    async fn start(directory: &Path) -> Self {
        let server = Self::with_model(directory, NO_MODEL).await;
        server
            .deploy(directory, "bomb", "prewarm = 0\n[limits]\nmemory_mb = 256\npids = 256\n")
            .await;
        server
    }

    /// With the agent `bench` alone, which asks this model.
    pub(crate) async fn with_model(directory: &Path, model: &str) -> Self {
        let data = directory.join("data");
        let process = Child::outlived(&data, model, ORPHAN_TTL, KEPT_READY);
        let server = Self { process, remains: Remains { data } };
        server.deploy(directory, "bench", "prewarm = 0\n").await;
        server
    }

    /// Kills the server with -9, and starts another one over the same files. Returns when that listens.
    fn replace(self) -> Self {
        let Self { process, remains } = self;
        drop(process);
        Self { process: Child::outlived(&remains.data, NO_MODEL, ORPHAN_TTL, KEPT_READY), remains }
    }

    async fn deploy(&self, directory: &Path, name: &str, limits: &str) {
        let agent = directory.join(name);
        std::fs::create_dir(&agent).expect("there is room");
        std::fs::write(agent.join("CLAUDE.md"), "Say something.\n").expect("there is room");
        let manifest = format!("runtime = \"builtin\"\n{limits}");
        std::fs::write(agent.join("ash.toml"), manifest).expect("there is room");
        let deploy = json!({ "name": name, "path": agent }).to_string();
        self.client().await.ask(&client::post("/api/agents", &deploy)).await;
    }

    async fn delete(&self, name: &str) {
        self.client().await.ask(&client::delete(&format!("/api/agents/{name}"))).await;
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.process.address).await
    }
}

/// Makes a session, and returns when it is active.
pub(crate) async fn create(client: &mut Client, agent: &str) -> String {
    let request = client::post("/api/sessions", &json!({ "agent": agent }).to_string());
    let answer = client.json(&request).await;
    answer["session"]["id"].as_str().expect("it has an id").to_owned()
}

/// A command beside the agent.
fn exec(session: &str, command: &str, timeout: Duration) -> String {
    let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let body = json!({ "command": command, "timeout": timeout }).to_string();
    client::post(&format!("/api/sessions/{session}/exec"), &body)
}

impl Drop for Remains {
    fn drop(&mut self) {
        let cgroups = cgroups_of(&self.data);
        for name in cgroups.list().unwrap_or_default() {
            let Ok(Some(cgroup)) = cgroups.open(&name) else { continue };
            if let Err(error) = cgroup.kill().and_then(|()| cgroup.remove()) {
                println!("{name} is left: {error}");
            }
        }
        if let Err(error) = cgroups.remove() {
            println!("the cgroups of {} are left: {error}", self.data.display());
        }
    }
}
