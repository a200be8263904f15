//! A disk that is full, and one that cannot be written to.

use serde_json::{Value, json};

use super::client::Client;
use super::served::session;
use super::spawned::Spawned;

/// Twenty megabytes that take little room in a snapshot.
const LARGE: &str = "My name is Ada.\n/bash yes 0123456789 | head -c 20000000 >large";

async fn say(client: &Client, session: &str, prompt: &str) -> String {
    let frames = client.say(session, prompt).await.all().await;
    assert_eq!(frames.last().unwrap().event, "done", "{frames:#?}");
    frames.into_iter().map(|frame| frame.raw).collect()
}

async fn post(client: &Client, session: &str, what: &str) -> Value {
    client.post(&format!("/api/sessions/{session}/{what}"), &json!({})).await.ok()
}

#[tokio::test]
async fn a_disk_that_is_full_ends_no_session_and_room_is_made() {
    // A hundred and more are needed before room is kept for records.
    let Some(server) = Spawned::on_a_small_disk(256, &[("ASH_MIN_FREE_MB", "40")]).await else {
        return eprintln!("not tried: nothing can be mounted here");
    };
    let client = server.client.clone();
    let (rests, fills) = (session(&client).await, session(&client).await);
    say(&client, &rests, LARGE).await;
    post(&client, &rests, "stop").await;
    super::cloud::until("it is captured", async || {
        let session = client.get(&format!("/api/sessions/{rests}")).await.ok()["session"].clone();
        session["snapshot"]["files"].as_u64().is_some_and(|files| files > 0)
    })
    .await;
    super::cloud::until("room is kept", async || {
        server.dir.path().exists() && reserve_is_kept(&server)
    })
    .await;
    // It takes everything there is; what it has to say of it is recorded all the same.
    let said = say(&client, &fills, "/bash cat /dev/zero >fill; echo the disk is full").await;
    assert!(said.contains("the disk is full"), "{said}");
    super::cloud::until("room is made", async || {
        let listed = client.get(&format!("/api/sessions/{rests}/files")).await;
        listed.status == 200 && listed.ok()["source"] == "snapshot"
    })
    .await;
    // What was removed comes back, once there is room for it.
    let command = json!({ "command": "rm fill" });
    client.post(&format!("/api/sessions/{fills}/exec"), &command).await.ok();
    let receipt = post(&client, &rests, "resume").await["resume"].clone();
    assert_eq!(receipt["workspace"], "restored", "{receipt}");
    let said = say(&client, &rests, "Who am I?\n/recall\n/bash wc -c <large").await;
    assert!(said.contains("My name is Ada.") && said.contains("20000000"), "{said}");
    server.end().await;
}

/// Only a process of its namespace sees it.
fn reserve_is_kept(server: &Spawned) -> bool {
    let data = server.dir.path().join("data/reserve");
    let seen = format!("/proc/{}/root{}", server.pid(), data.display());
    std::fs::metadata(seen).is_ok_and(|found| found.len() > 0)
}

#[tokio::test]
async fn a_disk_that_cannot_be_written_to_is_said_and_loses_nothing() {
    let Some(server) = Spawned::on_a_small_disk(128, &[]).await else {
        return eprintln!("not tried: nothing can be mounted here");
    };
    let client = server.client.clone();
    let of = session(&client).await;
    say(&client, &of, "My name is Ada.\n/bash echo one >a").await;
    post(&client, &of, "stop").await;
    server.remount("ro");
    // It is not accepted and then lost.
    let path = format!("/api/sessions/{of}/resume");
    let refused = client.post(&path, &json!({})).await;
    assert!(refused.status >= 500, "{refused:?}");
    assert!(refused.json()["code"].is_string(), "{refused:?}");
    assert_eq!(
        client.get(&format!("/api/sessions/{of}")).await.ok()["session"]["status"],
        "stopped"
    );
    server.remount("rw");
    post(&client, &of, "resume").await;
    let said = say(&client, &of, "Who am I?\n/recall\n/bash cat a").await;
    assert!(said.contains("My name is Ada.") && said.contains("one"), "{said}");
    server.end().await;
}
