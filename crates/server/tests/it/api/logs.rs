//! What sandboxes say about themselves: one list for all of them, in which a line keeps its number.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::client::Client;
use super::served::Served;

/// Says something in each new sandbox.
const STARTUP: &str = "#!/bin/sh\necho here >> starts\necho \"start $(wc -l < starts)\"\n";

async fn session(client: &Client) -> String {
    let files = [("CLAUDE.md", "You are tested."), ("startup.sh", STARTUP)];
    let files =
        files.map(|(path, text)| json!({ "path": path, "content": BASE64_STANDARD.encode(text) }));
    client.post("/api/agents", &json!({ "name": "coder", "files": files })).await.ok();
    let made = client.post("/api/sessions", &json!({ "agent": "coder" })).await.ok();
    made["session"]["id"].as_str().unwrap().to_owned()
}

async fn act(client: &Client, session: &str, what: &str) {
    client.post(&format!("/api/sessions/{session}/{what}"), &json!({})).await.ok();
}

async fn logs(client: &Client, session: &str, after: i64) -> (Vec<Value>, Value) {
    let path = format!("/api/sessions/{session}/logs?after={after}");
    let answer = client.get(&path).await.ok();
    (answer["logs"].as_array().unwrap().clone(), answer["gap"].clone())
}

fn index(line: &Value) -> i64 {
    line["index"].as_i64().unwrap()
}

fn place(lines: &[Value], text: &str) -> usize {
    let found = lines.iter().position(|line| line["text"].as_str().unwrap().contains(text));
    found.unwrap_or_else(|| panic!("{text} is not in {lines:#?}"))
}

#[tokio::test]
async fn whoever_follows_misses_no_line_when_the_sandbox_is_another_one() {
    let served = Served::start().await;
    let client = &served.client;
    let session = session(client).await;
    let (first, gap) = logs(client, &session, -1).await;
    assert_eq!((index(&first[0]), gap), (0, Value::Null));
    place(&first, "startup.sh: start 1");
    let mut followed = first.clone();
    for number in 2..=4 {
        act(client, &session, "stop").await;
        act(client, &session, "resume").await;
        let (fresh, gap) = logs(client, &session, index(followed.last().unwrap())).await;
        assert_eq!(gap, Value::Null);
        place(&fresh, &format!("startup.sh: start {number}"));
        assert!(place(&fresh, "Session stopped") < place(&fresh, "Session resumed"));
        followed.extend(fresh);
    }
    // What nobody read meanwhile is there, too, in order.
    for _ in 0..3 {
        act(client, &session, "stop").await;
        act(client, &session, "resume").await;
    }
    let (fresh, _) = logs(client, &session, index(followed.last().unwrap())).await;
    let starts: Vec<usize> =
        (5..=7).map(|number| place(&fresh, &format!("startup.sh: start {number}"))).collect();
    assert!(starts.is_sorted(), "{fresh:#?}");
    assert!(place(&fresh, "sandbox 5") < starts[0] && starts[0] < place(&fresh, "sandbox 6"));
    followed.extend(fresh);
    let (all, _) = logs(client, &session, -1).await;
    assert_eq!(all, followed, "a line is what it was, and has the number that it had");
    let numbers: Vec<i64> = all.iter().map(index).collect();
    assert_eq!(numbers, (0..i64::try_from(all.len()).unwrap()).collect::<Vec<_>>());
    served.end().await;
}

#[tokio::test]
async fn a_number_that_no_line_has_had_is_told_and_answered_with_all() {
    let served = Served::start().await;
    let client = &served.client;
    let session = session(client).await;
    let (all, _) = logs(client, &session, -1).await;
    let last = index(all.last().unwrap());
    assert_eq!(logs(client, &session, last).await, (vec![], Value::Null), "nothing is new");
    let (told, gap) = logs(client, &session, last + 1_000).await;
    assert_eq!(told, all);
    assert_eq!(gap, json!({ "after": last + 1_000, "next": 0, "reason": "beyond_end" }));
    // A session that begins with the history of another one has numbers of its own.
    client.say(&session, "Hello").await.all().await;
    let forked = client.post(&format!("/api/sessions/{session}/fork"), &json!({})).await.ok();
    let fork = forked["session"]["id"].as_str().unwrap();
    act(client, fork, "resume").await;
    let (told, gap) = logs(client, fork, last).await;
    assert_eq!(gap, json!({ "after": last, "next": 1_000_000_000, "reason": "other_epoch" }));
    assert_eq!(index(&told[0]), 1_000_000_000);
    served.end().await;
}
