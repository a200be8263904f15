//! Agents that are changed by many at once, and agents that cannot be run here.

use std::collections::BTreeSet;

use ash_core::id::TenantId;
use ash_store::Store as _;
use ash_store::sqlite::SqliteStore;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::served::{Served, agent};

#[tokio::test]
async fn changes_of_an_agent_that_come_at_once_are_all_made() {
    const CHANGES: usize = 32;
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let mut changing = JoinSet::new();
    for number in 0..CHANGES {
        let client = client.clone();
        let setting = format!("setting-{number}");
        changing.spawn(async move {
            let change = json!({ "config": { setting: number } });
            client.ask("PATCH", "/api/agents/coder", &[], Some(&change)).await.ok();
        });
    }
    // One changes the variables, and one deploys the next version, with the same ones.
    let env = json!({ "A": "a" });
    let change = json!({ "env": env });
    let deploy = json!({ "name": "coder", "systemPrompt": "You are tested again.", "env": env });
    let client = client.clone();
    changing.spawn(async move {
        client.ask("PATCH", "/api/agents/coder", &[], Some(&change)).await.ok();
        client.post("/api/agents", &deploy).await.ok();
    });
    changing.join_all().await;

    let shown = served.client.get("/api/agents/coder").await.ok();
    assert_eq!(
        (&shown["agent"]["version"], &shown["agent"]["env"]["A"]),
        (&json!(2), &json!("***"))
    );
    // The free settings are not shown: they are there for programs that run agents.
    let store = SqliteStore::open(&served.dir.join("data/ash.db")).unwrap();
    let name = "coder".parse().unwrap();
    let stored = store.agent(&TenantId::default_tenant(), &name).await.unwrap();
    let settings: Value = serde_json::from_str(stored.settings.get()).unwrap();
    let found: BTreeSet<&String> = settings["config"].as_object().unwrap().keys().collect();
    assert_eq!(found.len(), CHANGES, "{found:?}");
    served.end().await;
}

#[tokio::test]
async fn a_session_of_an_agent_that_cannot_be_run_here_is_refused_and_leaves_nothing() {
    let served = Served::start().await;
    let client = &served.client;
    let deploy = |runtime: &str| {
        let command = if runtime == "acp" { "command = [\"true\"]" } else { "" };
        let manifest = BASE64_STANDARD.encode(format!("runtime = \"{runtime}\"\n{command}"));
        let files = json!([{ "path": "ash.toml", "content": manifest }]);
        json!({ "name": "other", "systemPrompt": "You are tested.", "files": files })
    };
    let create = json!({ "agent": "other" });
    let key = "idempotency-key: again";
    let refusals = [
        ("claude", "runtime_missing"),
        ("acp", "runtime_unavailable"),
        ("legacy", "runtime_missing"),
    ];
    for (runtime, code) in refusals {
        let deployed = client.post("/api/agents", &deploy(runtime)).await.ok();
        assert_eq!(deployed["agent"]["runtime"], runtime);
        let answer = client.ask("POST", "/api/sessions", &[key], Some(&create)).await;
        assert_eq!(answer.refused(422), code, "{runtime}");
        let why = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(why.contains(runtime), "{why}");
    }
    let sessions = client.get("/api/sessions?includeTotal=true").await.ok();
    assert_eq!((&sessions["sessions"], &sessions["total"]), (&json!([]), &json!(0)));
    let sandboxes = served.dir.join("data/sandboxes");
    let left = std::fs::read_dir(&sandboxes).map_or(0, |found| found.flatten().count());
    assert_eq!(left, 0, "something is left in {}", sandboxes.display());
    // What was refused was not carried out: once the agent can be run, the same request is new.
    client.post("/api/agents", &deploy("builtin")).await.ok();
    let made = client.ask("POST", "/api/sessions", &[key], Some(&create)).await.ok();
    assert_eq!(made["session"]["status"], "active");
    served.end().await;
}
