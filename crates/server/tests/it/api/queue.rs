//! The queue from outside: what is added is done once, whatever dies meanwhile.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::Client;
use super::served::{Served, With, agent, held, let_go};
use super::spawned::Spawned;
use crate::world::{bridges_of, kill};

async fn add(client: &Client, body: Value) -> Value {
    let mut whole = json!({ "agentName": "coder" });
    whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    client.post("/api/queue", &whole).await.ok()["item"].clone()
}

/// Looks at an item until it is so.
async fn until(client: &Client, item: &Value, is_so: impl Fn(&Value) -> bool) -> Value {
    let path = format!("/api/queue/{}", item["id"].as_str().unwrap());
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let item = client.get(&path).await.ok()["item"].clone();
        if is_so(&item) {
            return item;
        }
        assert!(Instant::now() < deadline, "never: {item:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn over(client: &Client, item: &Value) -> Value {
    until(client, item, |item| !item["completedAt"].is_null()).await
}

async fn begun(client: &Client, item: &Value) -> Value {
    until(client, item, |item| !item["runId"].is_null()).await
}

async fn runs(client: &Client, session: &Value) -> Vec<Value> {
    let path = format!("/api/sessions/{}/runs", session.as_str().unwrap());
    client.get(&path).await.ok()["runs"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_prompt_is_worked_on_and_its_answer_is_kept() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let item = add(client, json!({ "prompt": "hello\n/say All is well." })).await;
    assert_eq!((&item["agentName"], &item["tenantId"]), (&json!("coder"), &json!("default")));
    assert_eq!((&item["priority"], &item["retryCount"]), (&json!(0), &json!(0)));
    assert_eq!((&item["maxRetries"], &item["error"]), (&json!(3), &Value::Null));
    let item = over(client, &item).await;
    assert_eq!((&item["status"], &item["result"]), (&json!("completed"), &json!("All is well.")));
    assert_eq!((&item["stopReason"], &item["error"]), (&json!("end_turn"), &Value::Null));
    assert!(item["startedAt"].is_string() && item["completedAt"].is_string());
    let made = runs(client, &item["sessionId"]).await;
    assert_eq!((made.len(), &made[0]["id"]), (1, &item["runId"]));
    // The next one is for the same session, which remembers.
    let again = json!({ "prompt": "/recall", "sessionId": item["sessionId"], "priority": 7 });
    let again = over(client, &add(client, again).await).await;
    assert_eq!((&again["sessionId"], &again["priority"]), (&item["sessionId"], &json!(7)));
    assert!(again["result"].as_str().unwrap().contains("hello"), "{again:#}");
    let stats = client.get("/api/queue/stats").await.ok();
    let stands =
        json!({ "pending": 0, "processing": 0, "completed": 2, "failed": 0, "cancelled": 0 });
    assert_eq!(stats, json!({ "stats": stands }));
    let listed = client.get("/api/queue?status=completed&limit=1&unknown=x").await.ok();
    assert_eq!(listed["items"][0]["id"], again["id"], "newest first");
    let cursor = listed["nextCursor"].as_str().unwrap();
    let rest = client.get(&format!("/api/queue?cursor={cursor}")).await.ok();
    assert_eq!((&rest["items"][0]["id"], rest.get("nextCursor")), (&item["id"], None));
    assert_eq!(client.get("/api/queue?status=failed").await.ok()["items"], json!([]));
    served.end().await;
}

#[tokio::test]
async fn so_many_are_worked_on_at_once_and_only_what_waits_is_withdrawn() {
    let variables = vec![("ASH_QUEUE_CONCURRENCY", "2".to_owned())];
    let served = Served::with(With { variables, ..With::default() }).await;
    let client = &served.client;
    agent(client, "coder").await;
    let mut busy = Vec::new();
    for word in ["one", "two"] {
        busy.push(begun(client, &add(client, json!({ "prompt": held(word) })).await).await);
    }
    let low = add(client, json!({ "prompt": "low\n/say low" })).await;
    let high = add(client, json!({ "prompt": "high\n/say high", "priority": 1 })).await;
    let gone = add(client, json!({ "prompt": "gone" })).await;
    let stats = client.get("/api/queue/stats").await.ok();
    assert_eq!((&stats["stats"]["processing"], &stats["stats"]["pending"]), (&json!(2), &json!(3)));
    let path = |item: &Value| format!("/api/queue/{}", item["id"].as_str().unwrap());
    let cancelled = client.delete(&path(&gone)).await.ok();
    assert_eq!(cancelled["item"]["status"], "cancelled");
    for (item, status) in [(&gone, "cancelled"), (&busy[0], "processing")] {
        let refused = client.delete(&path(item)).await;
        assert_eq!(refused.refused(400), "not_pending");
        let message = format!("Cannot cancel item with status \"{status}\"");
        assert_eq!(refused.json()["error"], message);
    }
    let session = busy[0]["sessionId"].as_str().unwrap().to_owned();
    let_go(client, &session).await;
    let (high, low) = (over(client, &high).await, over(client, &low).await);
    assert!(high["startedAt"].as_str() <= low["startedAt"].as_str(), "{high:#} {low:#}");
    assert_eq!((&high["result"], &low["result"]), (&json!("high"), &json!("low")));
    // Whoever interrupts the run has cancelled the item.
    let session = busy[1]["sessionId"].as_str().unwrap();
    client.post(&format!("/api/sessions/{session}/interrupt"), &json!({})).await.ok();
    assert_eq!(over(client, &busy[1]).await["status"], "cancelled");
    assert_eq!(over(client, &busy[0]).await["result"], "over");
    served.end().await;
}

#[tokio::test]
async fn what_cannot_be_cured_fails_at_once() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "other").await;
    let session = served.session().await;
    let ghost = client.post("/api/queue", &json!({ "agentName": "ghost", "prompt": "x" })).await;
    assert_eq!(
        (ghost.refused(404).as_str(), &ghost.json()["error"]),
        ("not_found", &json!("Agent \"ghost\" not found"))
    );
    let unknown = json!({ "agentName": "coder", "prompt": "x", "sessionId": "00000000-0000-4000-8000-000000000000" });
    assert_eq!(client.post("/api/queue", &unknown).await.refused(404), "not_found");
    let foreign = json!({ "agentName": "other", "prompt": "x", "sessionId": session });
    assert_eq!(client.post("/api/queue", &foreign).await.refused(400), "invalid_request");
    // One that waits for a session that ends has nothing to wait for; the next one is not even taken.
    client.post(&format!("/api/sessions/{session}/stop"), &json!({})).await.ok();
    let body = json!({ "agentName": "coder", "prompt": "x", "sessionId": session });
    let waits = add(client, body.clone()).await;
    client.delete(&format!("/api/sessions/{session}")).await.ok();
    let ended = over(client, &waits).await;
    assert_eq!((&ended["status"], &ended["retryCount"]), (&json!("failed"), &json!(0)));
    assert_eq!(ended["errorCode"], "session_ended", "{ended:#}");
    assert!(ended["error"].is_string());
    assert_eq!(client.post("/api/queue", &body).await.refused(410), "session_ended");
    served.end().await;
}

#[tokio::test]
async fn an_item_waits_for_a_session_that_a_person_put_to_rest() {
    let variables = vec![("ASH_QUEUE_CONCURRENCY", "1".to_owned())];
    let served = Served::with(With { variables, ..With::default() }).await;
    let client = &served.client;
    for rest in ["pause", "stop"] {
        let session = served.session().await;
        client.post(&format!("/api/sessions/{session}/{rest}"), &json!({})).await.ok();
        let item = json!({ "prompt": "x\n/say awake", "sessionId": session, "maxRetries": 0 });
        let item = add(client, item).await;
        let withdrawn = add(client, json!({ "prompt": "x", "sessionId": session })).await;
        // It takes nobody's place, and nothing is counted against it.
        let other = over(client, &add(client, json!({ "prompt": "x\n/say other" })).await).await;
        assert_eq!(other["result"], "other");
        let waits = until(client, &item, |_| true).await;
        assert_eq!((&waits["status"], &waits["retryCount"]), (&json!("pending"), &json!(0)));
        assert_eq!((&waits["error"], &waits["startedAt"]), (&Value::Null, &Value::Null));
        let path = format!("/api/queue/{}", withdrawn["id"].as_str().unwrap());
        assert_eq!(client.delete(&path).await.ok()["item"]["status"], "cancelled");
        client.post(&format!("/api/sessions/{session}/resume"), &json!({})).await.ok();
        let done = over(client, &item).await;
        assert_eq!((&done["status"], &done["result"]), (&json!("completed"), &json!("awake")));
        assert_eq!(done["retryCount"], 0);
    }
    served.end().await;
}

#[tokio::test]
async fn a_prompt_that_makes_no_sense_is_refused() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let long = "x".repeat(500_001);
    for wrong in [
        json!({ "agentName": "" }),
        json!({ "prompt": " " }),
        json!({ "prompt": long }),
        json!({ "priority": -1 }),
        json!({ "priority": 2_147_483_648_u32 }),
        json!({ "maxRetries": 101 }),
        json!({ "sessionId": "x" }),
    ] {
        let mut body = json!({ "agentName": "coder", "prompt": "x" });
        body.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        assert_eq!(client.post("/api/queue", &body).await.refused(400), "invalid_request");
    }
    for query in ["limit=0", "limit=501", "limit=x", "status=asleep", "cursor=x"] {
        let answer = client.get(&format!("/api/queue?{query}")).await;
        assert_eq!(answer.refused(400), "invalid_request", "{query}");
    }
    assert_eq!(client.get("/api/queue").await.ok()["items"], json!([]));
    let longest = json!({ "prompt": format!("/say hi\n{}", "ü".repeat(499_992)) });
    assert_eq!(over(client, &add(client, longest).await).await["result"], "hi");
    served.end().await;
}

#[tokio::test]
async fn an_item_is_added_once_however_often_it_is_sent_and_is_nobody_elses() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let body = json!({ "agentName": "coder", "prompt": "once\n/say once" });
    let key = ["idempotency-key: added"];
    let first = client.ask("POST", "/api/queue", &key, Some(&body)).await;
    assert_eq!(first.status, 201);
    let id = first.json()["item"]["id"].as_str().unwrap().to_owned();
    over(client, &first.json()["item"]).await;
    let again = client.ask("POST", "/api/queue", &key, Some(&body)).await.ok();
    assert_eq!((&again["item"]["id"], &again["item"]["status"]), (&json!(id), &json!("completed")));
    let other = json!({ "agentName": "coder", "prompt": "twice" });
    let refused = client.ask("POST", "/api/queue", &key, Some(&other)).await;
    assert_eq!(refused.refused(409), "idempotency_mismatch");
    assert_eq!(client.get("/api/queue").await.ok()["items"].as_array().unwrap().len(), 1);
    let stranger = served.stranger().await;
    for (method, path) in
        [("GET", format!("/api/queue/{id}")), ("DELETE", format!("/api/queue/{id}"))]
    {
        assert_eq!(stranger.ask(method, &path, &[], None).await.refused(404), "not_found");
    }
    assert_eq!(stranger.get("/api/queue").await.ok()["items"], json!([]));
    assert_eq!(stranger.get("/api/queue/stats").await.ok()["stats"]["completed"], 0);
    assert_eq!(stranger.post("/api/queue", &body).await.refused(404), "not_found");
    served.end().await;
}

#[tokio::test]
async fn an_item_whose_sandbox_dies_is_tried_again_in_its_session() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let item = add(client, json!({ "prompt": held("Try"), "maxRetries": 2 })).await;
    let first = begun(client, &item).await;
    let session = first["sessionId"].as_str().unwrap();
    let workspace = served.dir.join("data/sandboxes").join(session).join("workspace");
    crate::world::until("its tool has begun", || workspace.join("begun").exists()).await;
    // The next attempt need not wait.
    let file = json!({ "files": [{ "path": "later", "content": "" }] });
    client.post(&format!("/api/sessions/{session}/files"), &file).await.ok();
    let bridges = bridges_of(&served.dir.join("data"));
    assert!(!bridges.is_empty());
    bridges.into_iter().for_each(kill);
    let waits = until(client, &item, |item| item["retryCount"] == 1).await;
    assert_eq!((&waits["sessionId"], &waits["runId"]), (&first["sessionId"], &Value::Null));
    assert_eq!(waits["errorCode"], "sandbox_died", "{waits:#}");
    std::fs::rename(workspace.join("later"), workspace.join("go")).unwrap();
    let item = over(client, &item).await;
    assert_eq!(
        (&item["status"], &item["result"]),
        (&json!("completed"), &json!("over")),
        "{item:#}"
    );
    assert_eq!((&item["sessionId"], &item["error"]), (&first["sessionId"], &Value::Null));
    assert_ne!(item["runId"], first["runId"]);
    assert_eq!(runs(client, &item["sessionId"]).await.len(), 2);
    served.end().await;
}

#[tokio::test]
async fn a_killed_server_loses_no_item_and_does_none_twice() {
    let mut spawned = Spawned::with(&[("ASH_QUEUE_CONCURRENCY", "2")]).await;
    agent(&spawned.client, "coder").await;
    let client = spawned.client.clone();
    let mut items = Vec::new();
    for number in 0..6 {
        let prompt = format!(
            "Item {number}.\n/bash echo {number} >> done.txt; sleep 0.1\n/say did {number}"
        );
        items.push(add(&client, json!({ "prompt": prompt, "maxRetries": 20 })).await);
    }
    let held =
        add(&client, json!({ "prompt": held("Hold"), "priority": 9, "maxRetries": 20 })).await;
    // At moments that differ: while sessions are made, prompts sent, runs going on, and items settled.
    for wait in [0, 5, 20, 60, 120, 250, 500, 900] {
        tokio::time::sleep(Duration::from_millis(wait)).await;
        spawned.kill_and_restart();
    }
    let client = spawned.client.clone();
    let kept = begun(&client, &held).await;
    spawned.kill_and_restart();
    let client = spawned.client.clone();
    let session = kept["sessionId"].as_str().unwrap();
    let_go(&client, session).await;
    let kept_over = over(&client, &kept).await;
    assert_eq!(kept_over["status"], "completed", "{kept_over:#}");
    assert_eq!(kept_over["runId"], kept["runId"], "it was attached to, and not repeated");
    for (number, item) in items.iter().enumerate() {
        let item = over(&client, item).await;
        assert_eq!(
            (&item["status"], &item["result"]),
            (&json!("completed"), &json!(format!("did {number}"))),
            "{item:#}"
        );
        let sent = runs(&client, &item["sessionId"]).await.len() as u64;
        assert!(sent <= item["retryCount"].as_u64().unwrap() + 1, "sent twice: {item:#}");
    }
    let sessions = client.get("/api/sessions").await.ok();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 7, "each item made one session");
    spawned.end().await;
}
