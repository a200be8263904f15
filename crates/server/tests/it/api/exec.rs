//! Commands beside the agent: only so many at once, and only where there is a sandbox.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokio::task::JoinSet;

use super::served::{Served, agent};
use crate::world::{can_isolate, until};

/// How many commands may run beside one agent.
const PLACES: usize = 16;

#[tokio::test]
async fn a_command_for_which_there_is_no_place_is_told_to_come_back() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let other = served.session().await;
    let path = format!("/api/sessions/{session}/exec");
    let workspace = served.dir.join("data/sandboxes").join(&session).join("workspace");
    let mut running = JoinSet::new();
    for number in 0..PLACES {
        let (client, path) = (client.clone(), path.clone());
        let command = format!("touch begun-{number}; while [ ! -e go ]; do sleep 0.02; done");
        running.spawn(async move {
            client.post(&path, &json!({ "command": command })).await.ok()["exitCode"].clone()
        });
    }
    let begun = |number: usize| workspace.join(format!("begun-{number}")).exists();
    until("all places are taken", || (0..PLACES).all(begun)).await;
    let more = json!({ "command": "touch never" });
    assert_eq!(client.post(&path, &more).await.refused(429), "session_overloaded");
    assert!(!workspace.join("never").exists());
    // The places are those of one session.
    client.post(&format!("/api/sessions/{other}/exec"), &more).await.ok();

    std::fs::write(workspace.join("go"), "").unwrap();
    assert_eq!(running.join_all().await, vec![json!(0); PLACES]);
    // Whoever was done has given its place up.
    for _ in 0..=PLACES {
        assert_eq!(client.post(&path, &json!({ "command": "true" })).await.ok()["exitCode"], 0);
    }
    served.end().await;
}

#[tokio::test]
async fn a_session_without_a_sandbox_runs_no_command() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let of = |rest: &str| format!("/api/sessions/{session}{rest}");
    let workspace = served.dir.join("data/sandboxes").join(&session).join("workspace");
    let command = json!({ "command": "touch never" });
    for (rest, status) in [("/pause", "paused"), ("/resume", "active"), ("/stop", "stopped")] {
        client.ask("POST", &of(rest), &[], None).await.ok();
        if status == "active" {
            continue;
        }
        let answer = client.post(&of("/exec"), &command).await;
        assert_eq!(answer.refused(400), "session_not_active");
        assert_eq!(answer.json()["error"], format!("Session is {status}"));
        assert!(!workspace.join("never").exists(), "{status}");
    }
    client.delete(&of("")).await.ok();
    let answer = client.post(&of("/exec"), &command).await;
    assert_eq!(answer.status / 100, 4, "{answer:?}");
    served.end().await;
}

#[tokio::test]
async fn a_sandbox_has_the_tmp_and_the_open_files_that_its_agent_asks_for() {
    if !can_isolate() {
        eprintln!("not tried: this machine has no sandboxes");
        return;
    }
    let served = Served::start().await;
    let client = &served.client;
    let manifest = BASE64_STANDARD.encode("[limits]\ntmp_mb = 3\nopen_files = 321\n");
    let files = json!([{ "path": "ash.toml", "content": manifest }]);
    let agent = json!({ "name": "small", "systemPrompt": "You are tested.", "files": files });
    client.post("/api/agents", &agent).await.ok();
    let made = client.post("/api/sessions", &json!({ "agent": "small" })).await.ok();
    let session = made["session"]["id"].as_str().unwrap();
    let path = format!("/api/sessions/{session}/exec");
    let command = "ulimit -n; head -c 9000000 /dev/zero > /tmp/large; stat -c %s /tmp/large";
    let ran = client.post(&path, &json!({ "command": command })).await.ok();
    assert_eq!(ran["stdout"], format!("321\n{}\n", 3 << 20), "{ran}");
    assert!(ran["stderr"].as_str().unwrap().contains("No space left on device"), "{ran}");
    served.end().await;
}

#[tokio::test]
async fn a_session_is_not_idle_while_a_command_goes_on_in_it() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let body = json!({ "agent": "coder", "idleTimeoutMs": 1_000 });
    let made = client.post("/api/sessions", &body).await.ok();
    let session = made["session"]["id"].as_str().unwrap();
    // Three times as long.
    let command = json!({ "command": "for i in 1 2 3 4 5 6; do sleep 0.5; echo $i; done" });
    let done = client.post(&format!("/api/sessions/{session}/exec"), &command).await.ok();
    assert_eq!(done["stdout"], "1\n2\n3\n4\n5\n6\n", "{done}");
    served.end().await;
}

#[tokio::test]
async fn a_time_is_a_whole_number_however_it_is_written() {
    let served = Served::start().await;
    let client = &served.client;
    let path = format!("/api/sessions/{}/exec", served.session().await);
    for timeout in [json!(20_000), json!(20_000.0), json!(2e4)] {
        let done = client.post(&path, &json!({ "command": "echo hi", "timeout": timeout })).await;
        assert_eq!(done.ok()["stdout"], "hi\n");
    }
    for timeout in [json!(1.5), json!(-1.0), json!(0.0), json!("20000"), json!(1e300)] {
        let done = client.post(&path, &json!({ "command": "echo hi", "timeout": timeout })).await;
        assert_eq!(done.refused(400), "invalid_request", "{timeout}");
    }
    served.end().await;
}
