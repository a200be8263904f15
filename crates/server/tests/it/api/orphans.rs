//! Sandboxes whose server was killed and does not come back.

use serde_json::json;

use super::served::held;
use super::spawned::Spawned;
use crate::world::{bridges_of, kill, until};

/// The process beside a server.
fn guard_of(server: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    let children = children.unwrap_or_default();
    let of_any_thread = std::fs::read_dir(format!("/proc/{server}/task")).into_iter().flatten();
    let of_any_thread = of_any_thread
        .flatten()
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let all = of_any_thread.chain([children]).collect::<Vec<_>>().join(" ");
    let guards = all.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).nth(1) == Some(b"guard")
    });
    guards.into_iter().next()
}

fn is_there(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn one_that_is_paused_ends_too_if_no_server_comes_back() {
    let mut spawned = Spawned::with(&[("ASH_ORPHAN_TTL_MS", "300")]).await;
    let client = spawned.client.clone();
    let idle = super::served::session(&client).await;
    let made = client.post("/api/sessions", &json!({ "agent": "coder" })).await.ok();
    let busy = made["session"]["id"].as_str().unwrap().to_owned();
    client.say(&busy, &held("Wait")).await.until("tool_use").await;
    for session in [&idle, &busy] {
        client.post(&format!("/api/sessions/{session}/pause"), &json!({})).await.ok();
    }
    let data = spawned.dir.path().join("data");
    assert_eq!(bridges_of(&data).len(), 2);
    spawned.stop();
    until("both have ended", || bridges_of(&data).is_empty()).await;
    // Nothing is lost by that.
    spawned.start_again();
    let path = format!("/api/sessions/{idle}/resume");
    let receipt = spawned.client.post(&path, &json!({})).await.ok()["resume"].clone();
    assert_eq!((&receipt["path"], &receipt["workspace"]), (&json!("cold"), &json!("kept")));
    let path = format!("/api/sessions/{busy}/resume");
    let receipt = spawned.client.post(&path, &json!({})).await.ok()["resume"].clone();
    assert_eq!(receipt["path"], "cold");
    assert!(receipt["interruptedRun"].is_string(), "{receipt}");
    spawned.end().await;
}

#[tokio::test]
async fn one_that_is_paused_is_the_next_server_s_if_that_comes_in_time() {
    let mut spawned = Spawned::with(&[("ASH_ORPHAN_TTL_MS", "1500")]).await;
    let session = super::served::session(&spawned.client).await;
    spawned.client.post(&format!("/api/sessions/{session}/pause"), &json!({})).await.ok();
    let data = spawned.dir.path().join("data");
    let bridge = bridges_of(&data);
    let guard = guard_of(spawned.pid()).expect("it watches what is paused");
    spawned.kill_and_restart();
    until("the time of the guard is over", || !is_there(guard)).await;
    assert_eq!(bridges_of(&data), bridge, "it is alive");
    // The next server has somebody who watches it, too.
    until("it is watched", || guard_of(spawned.pid()).is_some()).await;
    let path = format!("/api/sessions/{session}/resume");
    let receipt = spawned.client.post(&path, &json!({})).await.ok()["resume"].clone();
    assert_eq!(receipt["path"], "warm");
    kill(spawned.pid());
    until("it ends by itself", || bridges_of(&data).is_empty()).await;
    spawned.end().await;
}
