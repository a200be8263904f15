//! What runs a session: chosen once, and refused with the way out where it is missing.

use std::path::Path;

use ash_server::runtimes::{Origin, Stage, Wanted, install, remove};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::client::Client;
use super::served::{Served, With, agent};
use crate::claude_program::claude_program;
use crate::programs::published;
use crate::world::can_isolate;

const COMMAND: &str = "`ash agent-runtime install claude`";

async fn deploy(client: &Client, name: &str, manifest: &str) -> Value {
    let content = |text: &str| BASE64_STANDARD.encode(text);
    let files = json!([
        { "path": "CLAUDE.md", "content": content("You are tested.") },
        { "path": "ash.toml", "content": content(manifest) },
    ]);
    client.post("/api/agents", &json!({ "name": name, "files": files })).await.ok()["agent"].clone()
}

/// Installs a program that says this version.
async fn install_into(data: &Path, version: &str) {
    let file = data.join("a-package");
    std::fs::write(&file, published(version)).unwrap();
    let (progress, _) = tokio::sync::watch::channel(Stage::Waiting);
    install(data, &Wanted::Any, &Origin::File(file), &progress).await.unwrap();
}

async fn exec(client: &Client, session: &str, command: &str) -> Value {
    client.post(&format!("/api/sessions/{session}/exec"), &json!({ "command": command })).await.ok()
}

#[tokio::test]
async fn without_the_program_an_agent_of_claude_is_deployed_with_a_warning_and_not_run() {
    let served = Served::start().await;
    let client = &served.client;
    let deployed = deploy(client, "coder", "runtime = \"claude\"\n").await;
    assert_eq!(deployed["runtime"], "claude");
    assert!(deployed["problem"].as_str().unwrap().contains(COMMAND), "{deployed}");
    let refused = client.post("/api/sessions", &json!({ "agent": "coder" })).await;
    let body = refused.json();
    assert_eq!((refused.status, &body["code"]), (422, &json!("runtime_missing")), "{body}");
    assert!(body["error"].as_str().unwrap().contains(COMMAND), "{body}");
    let sessions = client.get("/api/sessions").await.ok();
    assert_eq!(sessions["sessions"], json!([]));
    let health = client.get("/health").await.ok();
    let names: Vec<&Value> =
        health["runtimes"].as_array().unwrap().iter().map(|of| &of["name"]).collect();
    assert_eq!(names, ["builtin"]);
    served.end().await;
}

#[tokio::test]
async fn installing_the_program_changes_no_session_that_is_there() {
    let served = Served::start().await;
    let (client, data) = (&served.client, served.dir.join("data"));
    let session = served.session().await;
    let seen = client.get(&format!("/api/sessions/{session}")).await.ok();
    assert_eq!(seen["session"]["config"]["runtime"], "builtin", "{seen}");

    // While the server runs, and the session's sandbox too.
    install_into(&data, "2.1.400").await;
    let health = client.get("/health").await.ok();
    let claude = &health["runtimes"][0];
    assert_eq!(
        (&claude["name"], &claude["version"], &claude["source"], &claude["verified"]),
        (&json!("claude"), &json!("2.1.400"), &json!("installed"), &Value::Null),
    );
    assert_eq!(client.get("/api/agents/coder").await.ok()["agent"]["runtime"], "claude");
    if can_isolate() {
        let ran = exec(client, &session, "/run/ash/claude/2.1.400/claude --version").await;
        assert_eq!(ran["stdout"], "2.1.400 (Claude Code)\n", "{ran}");
        let ran = exec(client, &session, "echo x > /run/ash/claude/2.1.400/claude").await;
        assert_ne!(ran["exitCode"], 0, "{ran}");
    }
    let path = |what: &str| format!("/api/sessions/{session}/{what}");
    client.post(&path("stop"), &json!({})).await.ok();
    client.post(&path("resume"), &json!({})).await.ok();
    let told = client.say(&session, "Hello\n/say as before").await.all().await;
    assert!(format!("{told:?}").contains("as before"), "{told:?}");
    let seen = client.get(&format!("/api/sessions/{session}")).await.ok();
    assert_eq!(seen["session"]["config"]["runtime"], "builtin", "{seen}");
    served.end().await;
}

#[tokio::test]
async fn a_session_whose_program_is_gone_says_so_when_it_should_come_back() {
    let served = Served::start().await;
    let (client, data) = (&served.client, served.dir.join("data"));
    install_into(&data, "2.1.400").await;
    let deployed = deploy(client, "coder", "runtime = \"claude\"\n").await;
    assert_eq!(deployed["problem"], Value::Null, "{deployed}");
    // The program only says its version: whether the session comes up is not what this is about.
    client.post("/api/sessions", &json!({ "agent": "coder" })).await;
    let sessions = client.get("/api/sessions").await.ok();
    let session = sessions["sessions"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(sessions["sessions"][0]["config"]["runtime"], "claude", "{sessions}");
    client.post(&format!("/api/sessions/{session}/stop"), &json!({})).await;
    assert!(remove(&data, &"2.1.400".parse().unwrap()).await.unwrap());
    let refused = client.post(&format!("/api/sessions/{session}/resume"), &json!({})).await;
    let body = refused.json();
    assert_eq!((refused.status, &body["code"]), (422, &json!("runtime_missing")), "{body}");
    assert!(body["error"].as_str().unwrap().contains(COMMAND), "{body}");
    served.end().await;
}

#[tokio::test]
async fn a_setting_says_what_runs_agents_that_do_not_say() {
    let variables = vec![("ASH_DEFAULT_RUNTIME", "builtin".to_owned())];
    let served = Served::with(With { variables, ..With::default() }).await;
    install_into(&served.dir.join("data"), "2.1.400").await;
    let deployed = agent(&served.client, "coder").await;
    assert_eq!(deployed["agent"]["runtime"], "builtin", "{deployed}");
    served.end().await;
    let variables = vec![("ASH_DEFAULT_RUNTIME", "claude".to_owned())];
    let served = Served::with(With { variables, ..With::default() }).await;
    let deployed = agent(&served.client, "coder").await;
    assert_eq!(deployed["agent"]["runtime"], "claude", "{deployed}");
    assert!(deployed["agent"]["problem"].is_string(), "{deployed}");
    served.end().await;
}

#[tokio::test]
async fn the_real_program_runs_in_a_sandbox() {
    let (Some(claude), true) = (claude_program(), can_isolate()) else { return };
    let variables = vec![("ASH_DEFAULT_RUNTIME", "builtin".to_owned())];
    let served = Served::with(With { variables, ..With::default() }).await;
    claude.install_into(&served.dir.join("data"));
    let session = served.session().await;
    let program = format!("/run/ash/claude/{}/claude", claude.version);
    let ran = exec(&served.client, &session, &format!("{program} --version")).await;
    assert_eq!(ran["stdout"], format!("{} (Claude Code)\n", claude.version), "{ran}");
    served.end().await;
}

#[tokio::test]
async fn a_server_that_is_nowhere_or_out_of_reach_is_refused_by_its_name() {
    let served = Served::start().await;
    agent(&served.client, "coder").await;
    let refused = async |server: Value| {
        let body = json!({ "agent": "coder", "mcpServers": { "good": { "command": "true" }, "tools": server } });
        let answer = served.client.post("/api/sessions", &body).await;
        assert_eq!(answer.refused(400), "invalid_request", "{server}");
        answer.json()["error"].as_str().unwrap().to_owned()
    };
    for nowhere in [json!({}), json!({ "args": ["x"] }), json!({ "command": "", "url": null })] {
        assert_eq!(refused(nowhere).await, "mcpServers.tools has neither a command nor a url");
    }
    let far = refused(json!({ "url": "https://tools.example/mcp" })).await;
    assert!(far.starts_with("mcpServers.tools has a url, and the builtin agent"), "{far}");
    let none = served.client.get("/api/sessions").await.ok();
    assert_eq!(none["sessions"], json!([]), "no session was made");
    served.end().await;
}
