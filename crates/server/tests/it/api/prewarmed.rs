//! Sandboxes that are kept ready: over HTTP, and over the death of servers.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::client::Client;
use super::served::{Served, With, agent};
use super::spawned::Spawned;
use crate::world::{bridges_in, can_isolate, until};

async fn pool(client: &Client) -> Value {
    client.get("/health").await.ok()["pool"].clone()
}

/// Waits until so many wait for a session.
async fn until_waiting(client: &Client, count: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while pool(client).await["preWarmed"] != count {
        assert!(Instant::now() < deadline, "never: {count} wait: {}", pool(client).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn create(client: &Client, body: &Value) -> String {
    let made = client.post("/api/sessions", body).await.ok();
    assert_eq!(made["session"]["status"], "active", "{made}");
    made["session"]["id"].as_str().unwrap().to_owned()
}

async fn exec(client: &Client, session: &str, command: &str) -> String {
    let path = format!("/api/sessions/{session}/exec");
    let ran = client.post(&path, &json!({ "command": command })).await.ok();
    ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
}

async fn deploy(client: &Client, name: &str, manifest: &str) {
    let content = |text: &str| BASE64_STANDARD.encode(text);
    let files = json!([
        { "path": "CLAUDE.md", "content": content("You are tested.") },
        { "path": "ash.toml", "content": content(manifest) },
    ]);
    client.post("/api/agents", &json!({ "name": name, "files": files })).await.ok();
}

async fn served(settings: &[(&'static str, &str)]) -> Option<Served> {
    if !can_isolate() {
        eprintln!("not tried: this machine has no sandboxes");
        return None;
    }
    let variables = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Some(Served::with(With { variables, ..With::default() }).await)
}

#[tokio::test]
async fn a_session_has_all_its_options_also_in_a_sandbox_that_waited() {
    let Some(served) = served(&[("ASH_MAX_PREWARMED", "4")]).await else { return };
    let client = &served.client;
    agent(client, "coder").await;
    until_waiting(client, 1).await;
    let body = json!({
        "agent": "coder",
        "extraEnv": { "COLOR": "green" },
        "systemPrompt": "Be brief.",
    });
    let session = create(client, &body).await;
    let counted = pool(client).await;
    assert_eq!(counted["preWarmHits"], 1, "{counted}");
    assert_eq!(
        exec(client, &session, "echo $COLOR; cat CLAUDE.md").await,
        "green\nYou are tested."
    );
    client.say(&session, "Hello\n/say done").await.all().await;
    let asked = served.model.requests();
    assert!(asked.last().unwrap().body.to_string().contains("Be brief."));
    let metrics = client.get("/metrics").await.body;
    assert!(metrics.contains("ash_resume_total{path=\"prewarm\"}"), "{metrics}");
    // The next one has nothing of it.
    until_waiting(client, 1).await;
    let next = create(client, &json!({ "agent": "coder" })).await;
    assert_eq!(exec(client, &next, "echo [$COLOR]").await.trim(), "[]");
    assert_eq!(pool(client).await["preWarmHits"], 2);
    served.end().await;
}

#[tokio::test]
async fn what_an_agent_is_set_to_goes_before_what_its_version_says() {
    let Some(served) = served(&[("ASH_MAX_PREWARMED", "8")]).await else { return };
    let client = &served.client;
    deploy(client, "coder", "prewarm = 2").await;
    until_waiting(client, 2).await;
    let set = async |count: Value| {
        let body = json!({ "preWarmCount": count });
        client.ask("PATCH", "/api/agents/coder/config", &[], Some(&body)).await.ok();
    };
    set(json!(3)).await;
    until_waiting(client, 3).await;
    // With none its sessions take none that waits, and nothing is what the version says.
    set(json!(0)).await;
    create(client, &json!({ "agent": "coder" })).await;
    assert_eq!(pool(client).await["preWarmHits"], 0);
    set(Value::Null).await;
    until_waiting(client, 2).await;
    create(client, &json!({ "agent": "coder" })).await;
    assert_eq!(pool(client).await["preWarmHits"], 1);
    served.end().await;
}

#[tokio::test]
async fn those_that_wait_make_room_and_come_back_when_there_is() {
    let settings = [("ASH_MAX_SANDBOXES", "1"), ("ASH_MAX_PREWARMED", "4")];
    let Some(served) = served(&settings).await else { return };
    let client = &served.client;
    agent(client, "coder").await;
    until_waiting(client, 1).await;
    let session = create(client, &json!({ "agent": "coder" })).await;
    let counted = pool(client).await;
    assert_eq!((&counted["preWarmed"], &counted["total"]), (&json!(0), &json!(1)), "{counted}");
    assert_eq!(exec(client, &session, "echo here").await.trim(), "here");
    assert!(bridges_in(&served.dir.join("data/warm")).is_empty());
    client.delete(&format!("/api/sessions/{session}")).await.ok();
    until_waiting(client, 1).await;
    served.end().await;
}

#[tokio::test]
async fn what_agents_ask_for_is_kept_ready_and_nothing_else() {
    let Some(served) = served(&[("ASH_MAX_PREWARMED", "4")]).await else { return };
    let client = &served.client;
    deploy(client, "none", "prewarm = 0").await;
    deploy(client, "two", "prewarm = 2\n[limits]\nmemory_mb = 300").await;
    until_waiting(client, 2).await;
    // Another with the same limits shares them; one with others does not.
    deploy(client, "same", "[limits]\nmemory_mb = 300").await;
    deploy(client, "other", "[limits]\nmemory_mb = 301").await;
    until_waiting(client, 3).await;
    // More than there may be.
    deploy(client, "two", "prewarm = 100\n[limits]\nmemory_mb = 300").await;
    until_waiting(client, 4).await;
    create(client, &json!({ "agent": "none" })).await;
    assert_eq!(pool(client).await["preWarmHits"], 0, "it wants none");
    create(client, &json!({ "agent": "same" })).await;
    assert_eq!(pool(client).await["preWarmHits"], 1, "it shares");
    until_waiting(client, 4).await;
    for name in ["two", "same"] {
        client.delete(&format!("/api/agents/{name}")).await.ok();
    }
    until_waiting(client, 1).await;
    deploy(client, "other", "prewarm = 0").await;
    until_waiting(client, 0).await;
    until("they are gone", || bridges_in(&served.dir.join("data/warm")).is_empty()).await;
    let left = std::fs::read_dir(served.dir.join("data/warm/sandboxes")).unwrap().count();
    assert_eq!(left, 0);
    served.end().await;
}

#[tokio::test]
async fn a_server_that_ends_takes_those_that_wait_along() {
    if !can_isolate() {
        return;
    }
    let mut spawned = Spawned::with(&[("ASH_MAX_PREWARMED", "4")]).await;
    agent(&spawned.client, "coder").await;
    until_waiting(&spawned.client, 1).await;
    let warm = spawned.dir.path().join("data/warm");
    for signal in ["-USR2", "-TERM"] {
        let before = bridges_in(&warm);
        assert_eq!(before.len(), 1);
        let pid = spawned.pid().to_string();
        let told = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(told.success());
        let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}/exe")).exists();
        until("it is gone", || !before.iter().any(is_there)).await;
        if signal == "-USR2" {
            until_waiting(&spawned.client, 1).await;
        }
    }
    assert!(spawned.wait());
    assert!(bridges_in(&warm).is_empty());
    spawned.end().await;
}

#[tokio::test]
async fn no_session_is_lost_when_the_server_is_killed_while_they_begin() {
    if !can_isolate() {
        return;
    }
    let mut spawned = Spawned::with(&[("ASH_MAX_PREWARMED", "4")]).await;
    deploy(&spawned.client, "coder", "prewarm = 3").await;
    for round in 0..8_u64 {
        until_waiting(&spawned.client, 3).await;
        let mut creating = JoinSet::new();
        for _ in 0..3 {
            let client = spawned.client.clone();
            creating.spawn(async move {
                let body = json!({ "agent": "coder" });
                let request =
                    client.request("POST", "/api/sessions", &[], Some(body.to_string().as_bytes()));
                // Its connection may be cut.
                let Ok(mut stream) = TcpStream::connect(client.address).await else { return };
                let _cut = stream.write_all(&request).await;
                let _cut = stream.read_to_end(&mut Vec::new()).await;
            });
        }
        // Anywhere on the way: this is no wait for anything.
        tokio::time::sleep(Duration::from_millis(2 + round * 2)).await;
        spawned.kill_and_restart();
        creating.join_all().await;
    }
    until_waiting(&spawned.client, 3).await;
    let client = &spawned.client;
    let listed = client.get("/api/sessions?limit=100").await.ok();
    let sessions = listed["sessions"].as_array().unwrap();
    for session in sessions {
        let id = session["id"].as_str().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while client.get(&format!("/api/sessions/{id}")).await.ok()["session"]["status"]
            == "starting"
        {
            assert!(Instant::now() < deadline, "{id} starts for ever");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let told =
            client.say(id, "Go.\n/bash cat CLAUDE.md; echo own > own; cat own\n/say over").await;
        let told = told.all().await;
        let done = told.last().unwrap();
        assert_eq!(done.data["stopReason"], "end_turn", "{id}: {told:?}");
    }
    until_waiting(client, 3).await;
    // Of sessions and of those that wait, and nothing else.
    let data = spawned.dir.path().join("data").canonicalize().unwrap();
    let bridges = bridges_in(&data).len() + bridges_in(&data.join("warm")).len();
    assert_eq!(bridges, sessions.len() + 3);
    let cgroups = ash_engine::bridge::cgroups_of(&data);
    if cgroups.abilities().pids {
        assert_eq!(cgroups.list().unwrap().len(), bridges);
    }
    eprintln!("{} sessions began", sessions.len());
    spawned.end().await;
}
