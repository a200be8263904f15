//! There are so many places for sandboxes: over HTTP.

use serde_json::{Value, json};

use super::client::Client;
use super::cloud::until;
use super::served::{Served, With, held, let_go, session};

async fn look(client: &Client, session: &str) -> Value {
    client.get(&format!("/api/sessions/{session}")).await.ok()["session"].clone()
}

#[tokio::test]
async fn the_oldest_idle_session_makes_room_and_whoever_finds_none_is_told_to_come_back() {
    let variables = vec![("ASH_MAX_SANDBOXES", "2".to_owned())];
    let served = Served::with(With { variables, ..With::default() }).await;
    let client = &served.client;
    let [first, second] = [session(client).await, session(client).await];
    let third = session(client).await;
    // It is captured before it goes, and that is written down a moment after.
    until("it is captured", async || !look(client, &first).await["snapshot"].is_null()).await;
    let evicted = look(client, &first).await;
    assert_eq!(
        (&evicted["status"], &evicted["pauseReason"]),
        (&json!("paused"), &json!("evicted"))
    );
    assert_eq!(look(client, &second).await["status"], "active");

    let mut working = Vec::new();
    for session in [&second, &third] {
        let mut run = client.say(session, &held("Wait")).await;
        run.until("tool_use").await;
        working.push(run);
    }
    let health = client.get("/health").await.ok();
    assert_eq!(health["pool"]["running"], 2);
    assert_eq!(health["pool"]["maxCapacity"], 2);
    let create = json!({ "agent": "coder" });
    let message = json!({ "content": "Hello" });
    for (path, body) in [
        ("/api/sessions".to_owned(), create),
        (format!("/api/sessions/{first}/messages"), message),
        (format!("/api/sessions/{first}/resume"), json!({})),
    ] {
        let answer = client.post(&path, &body).await;
        assert_eq!(answer.refused(503), "sandbox_capacity", "{path}");
        assert!(answer.header("retry-after").is_some(), "{path}");
    }
    // Nothing has changed.
    assert_eq!(look(client, &first).await, evicted);
    let listed = client.get("/api/sessions").await.ok();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 3);
    let runs = client.get(&format!("/api/sessions/{first}/runs")).await.ok();
    assert_eq!(runs["runs"], json!([]));

    // Once one of them is done, the session that made room gets its place.
    let_go(client, &third).await;
    working.pop().unwrap().all().await;
    let told = client.say(&first, "Hello").await.all().await;
    assert_eq!(told.last().unwrap().event, "done");
    assert_eq!(look(client, &third).await["pauseReason"], "evicted");
    assert_eq!(look(client, &second).await["status"], "active");
    let_go(client, &second).await;
    served.end().await;
}
