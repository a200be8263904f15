//! The same request, sent again and at once: one effect, one answer.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::Client;
use super::served::{Served, agent};

/// Sends the same request ten times at once.
async fn ten_at_once(client: &Client, path: &str, key: &str, body: &Value) -> Vec<Value> {
    at_once::<10>(client, path, key, body).await
}

/// Sends the same request many times at once.
async fn at_once<const TIMES: usize>(
    client: &Client,
    path: &str,
    key: &str,
    body: &Value,
) -> Vec<Value> {
    let mut asking = JoinSet::new();
    for _ in 0..TIMES {
        let (client, path, body) = (client.clone(), path.to_owned(), body.clone());
        let header = format!("idempotency-key: {key}");
        asking.spawn(async move {
            let answer = client.ask("POST", &path, &[&header], Some(&body)).await;
            assert!(matches!(answer.status, 201 | 202), "{path}: {answer:?}");
            answer.json()
        });
    }
    asking.join_all().await
}

fn all_alike(answers: &[Value], what: &str) {
    for answer in answers {
        assert_eq!(answer, &answers[0], "{what}");
    }
}

#[tokio::test]
async fn ten_requests_with_one_key_have_one_effect_and_one_answer() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let count =
        async |path: &str, list: &str| client.get(path).await.ok()[list].as_array().unwrap().len();

    let deploy = json!({ "name": "other", "systemPrompt": "Be brief.", "env": { "A": "b" } });
    all_alike(&ten_at_once(client, "/api/agents", "a", &deploy).await, "agents");
    assert_eq!(count("/api/agents/other/versions", "versions").await, 1);

    let create = json!({ "agent": "coder" });
    let mut sessions = ten_at_once(client, "/api/sessions", "s", &create).await;
    for made in &mut sessions {
        // It goes on living between one answer and the next.
        made["session"].as_object_mut().unwrap().remove("lastActiveAt");
    }
    all_alike(&sessions, "sessions");
    assert_eq!(count("/api/sessions", "sessions").await, 1);

    let session = sessions[0]["session"]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/sessions/{session}/messages");
    let send = json!({ "content": "once\n/say yes", "detach": true });
    all_alike(&ten_at_once(client, &path, "m", &send).await, "messages");
    client.follow(&session, "until=idle").await.all().await;
    assert_eq!(count(&format!("/api/sessions/{session}/runs"), "runs").await, 1);

    let keys = count("/api/api-keys", "keys").await;
    let made = ten_at_once(client, "/api/api-keys", "k", &json!({ "label": "x" })).await;
    all_alike(&made, "keys");
    assert_eq!(count("/api/api-keys", "keys").await, keys + 1);
    client.with_key(made[0]["key"].as_str().unwrap()).get("/api/sessions").await.ok();

    let credential = json!({ "type": "custom", "key": "s", "label": "x" });
    all_alike(&ten_at_once(client, "/api/credentials", "c", &credential).await, "credentials");
    assert_eq!(count("/api/credentials", "credentials").await, 1);
    served.end().await;
}

#[tokio::test]
async fn a_key_that_was_used_for_something_else_is_a_conflict_and_nothing_happens() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let messages = format!("/api/sessions/{session}/messages");
    for (path, body, other, list) in [
        (
            "/api/agents",
            json!({ "name": "other", "systemPrompt": "a" }),
            json!({ "name": "other", "systemPrompt": "b" }),
            "/api/agents/other/versions",
        ),
        (
            "/api/sessions",
            json!({ "agent": "coder" }),
            json!({ "agent": "coder", "title": "t" }),
            "/api/sessions",
        ),
        (
            &messages,
            json!({ "content": "a", "detach": true }),
            json!({ "content": "b", "detach": true }),
            &format!("/api/sessions/{session}/runs"),
        ),
        ("/api/api-keys", json!({ "label": "a" }), json!({ "label": "b" }), "/api/api-keys"),
        (
            "/api/credentials",
            json!({ "type": "custom", "key": "a" }),
            json!({ "type": "custom", "key": "b" }),
            "/api/credentials",
        ),
    ] {
        let key = "idempotency-key: used";
        client.ask("POST", path, &[key], Some(&body)).await.ok();
        client.follow(&session, "until=idle").await.all().await;
        let length = async || {
            let list = client.get(list).await.ok();
            list.as_object().unwrap().values().find_map(Value::as_array).unwrap().len()
        };
        let before = length().await;
        let answer = client.ask("POST", path, &[key], Some(&other)).await;
        assert_eq!(answer.refused(409), "idempotency_mismatch", "{path}");
        // The one it was used for is still answered.
        client.ask("POST", path, &[key], Some(&body)).await.ok();
        assert_eq!(length().await, before, "{path}");
        // A key is for one route.
        for bad in [
            "idempotency-key: ",
            &format!("idempotency-key: {}", "x".repeat(256)),
            "idempotency-key: ä",
        ] {
            let answer = client.ask("POST", path, &[bad], Some(&body)).await;
            assert_eq!(answer.refused(400), "invalid_request", "{path} {bad}");
        }
        let answer = client.ask("POST", path, &[key, "idempotency-key: b"], Some(&body)).await;
        assert_eq!(answer.refused(400), "invalid_request", "{path}: two keys");
        assert_eq!(length().await, before, "{path}");
    }
    served.end().await;
}

#[tokio::test]
async fn a_message_that_is_repeated_is_told_again_from_its_first_event() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let path = format!("/api/sessions/{session}/messages");
    let body = json!({ "content": "hello\n/bash echo hi\n/say there" });
    let key = ["idempotency-key: told"];
    let first = client.open("POST", &path, &key, Some(&body)).await.all().await;
    client.say(&session, "another\n/say thing").await.all().await;
    let again = client.open("POST", &path, &key, Some(&body)).await.all().await;
    assert_eq!(first, again);
    // It is the same answer in another form.
    let sent = client.ask("POST", &path, &[key[0], "prefer: respond-async"], Some(&body)).await;
    assert_eq!(sent.status, 202);
    assert_eq!(sent.json()["runId"], first.last().unwrap().data["runId"]);
    client.delete(&format!("/api/sessions/{session}")).await.ok();
    // Even of a session that is over.
    let later = client.open("POST", &path, &key, Some(&body)).await.all().await;
    assert_eq!(first, later);
    served.end().await;
}

#[tokio::test]
async fn a_deployment_that_is_repeated_after_its_agent_was_deleted_deploys_nothing() {
    let served = Served::start().await;
    let client = &served.client;
    let deploy = json!({ "name": "coder", "systemPrompt": "You are tested." });
    let key = ["idempotency-key: deploy"];
    let repeat = async || client.ask("POST", "/api/agents", &key, Some(&deploy)).await;
    let made = repeat().await.ok();
    assert_eq!(repeat().await.ok(), made);
    client.delete("/api/agents/coder").await.ok();
    assert_eq!(repeat().await.refused(404), "not_found");
    assert_eq!(client.get("/api/agents").await.ok()["agents"], json!([]));
    // Nor is it taken for a later agent of the same name.
    let later = client.post("/api/agents", &deploy).await.ok();
    assert_ne!(later["agent"]["id"], made["agent"]["id"]);
    assert_eq!(repeat().await.refused(404), "not_found");
    assert_eq!(client.get("/api/agents/coder").await.ok(), later);
    served.end().await;
}

#[tokio::test]
async fn a_session_that_many_ask_for_with_one_key_is_one_session() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let create = json!({ "agent": "coder", "title": "one" });
    let made = at_once::<64>(client, "/api/sessions", "one", &create).await;
    let ids: BTreeSet<&str> =
        made.iter().map(|made| made["session"]["id"].as_str().unwrap()).collect();
    assert_eq!((made.len(), ids.len()), (64, 1), "{ids:?}");
    assert!(made.iter().all(|made| made["session"]["status"] == "active"), "{made:#?}");
    let all = client.get("/api/sessions?includeTotal=true").await.ok();
    assert_eq!((all["sessions"].as_array().unwrap().len(), &all["total"]), (1, &json!(1)));
    let sandboxes = std::fs::read_dir(served.dir.join("data/sandboxes")).unwrap();
    assert_eq!(sandboxes.count(), 1);
    served.end().await;
}
