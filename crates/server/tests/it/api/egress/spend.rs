//! What a session may spend is counted outside of its sandbox.

use serde_json::{Value, json};

use super::super::client::Client;
use super::super::spawned::Spawned;
use super::{Inside, deploy, read, served};

/// A question for the scripted model, as a sandbox asks it.
fn question(said: &str, stream: bool) -> String {
    let body = json!({
        "model": "claude-sonnet-4-5", "max_tokens": 1000, "stream": stream,
        "messages": [{ "role": "user", "content": said }],
    });
    let body = body.to_string();
    format!(
        "POST /v1/messages?beta=true HTTP/1.1\nhost: x\nanthropic-version: 2023-06-01\n\
         content-type: application/json\ncontent-length: {}\n\n{body}",
        body.len()
    )
}

async fn ready(client: &Client, options: Value) -> Inside {
    deploy(client, "coder", &["nobody.example".to_owned()]).await;
    Inside::of(client, "coder", options).await
}

#[tokio::test]
async fn a_budget_holds_whatever_the_sandbox_says() {
    let served = served(&[]).await;
    let client = &served.client;
    let inside = ready(client, json!({ "budgetTokens": 2_000 })).await;
    let other = Inside::of(client, "coder", json!({ "budgetTokens": 2_000 })).await;

    // Behind the back of the agent that counts: streamed and not, they cost the same.
    for stream in [true, false] {
        let ask = question("x\n/usage input=600 output=100\n/say hello", stream);
        let answer = inside.ask(&[ask]).await.remove(0);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(inside.egress().await["spent"]["tokens"], 1_400);
    let usd = inside.egress().await["spent"]["costUsd"].as_f64().unwrap();
    assert!((usd - 1_200.0 * 3e-6 - 200.0 * 15e-6).abs() < 1e-9, "{usd}");
    // The run that goes over it is the last; it ends as one whose budget is spent.
    let costly = "on\n/usage input=600 output=100\n/bash true\n/say never";
    let run = client.say(&inside.session, costly).await.all().await;
    assert_eq!(run.last().unwrap().data["stopReason"], "budget", "{run:#?}");
    let messages = format!("/api/sessions/{}/messages", inside.session);
    let refused = client.post(&messages, &json!({ "content": "x" })).await;
    assert_eq!(refused.refused(402), "budget_spent");

    // And not even by itself does the sandbox get more. It is not asked to try again.
    let before = served.model.requests().len();
    let answer = inside.ask(&[question("x", true)]).await.remove(0);
    assert_eq!(read(&answer), (402, "budget_spent".to_owned()), "{answer}");
    assert!(answer.contains("billing_error") && answer.contains("2000 tokens"), "{answer}");
    assert!(answer.to_lowercase().contains("x-should-retry: false"), "{answer}");
    assert_eq!(served.model.requests().len(), before, "nobody was asked");
    // What costs nothing is open, and so is the other session.
    let of_other = question("x\n/say hi", true)
        .replace("host: x", &format!("x-session-id: {}", inside.session));
    assert!(other.ask(&[of_other]).await[0].starts_with("HTTP/1.1 200"));
    assert!(other.egress().await["spent"]["tokens"].as_u64().unwrap() < 600);
    assert_eq!(inside.egress().await["spent"]["tokens"], 2_100);
    served.end().await;
}

#[tokio::test]
async fn whoever_hangs_up_early_has_spent_it_all_the_same() {
    let served = served(&[]).await;
    let inside = ready(&served.client, json!({})).await;
    let ask = question("x\n/usage input=5000 output=1\n/endless word", true);
    let (head, body) = ask.split_once("\n\n").unwrap();
    let cut = format!(
        r#"python3 -c '
import os, socket, time
host, port = os.environ["http_proxy"].removeprefix("http://").split(":")
s = socket.create_connection((host, int(port)), 25)
s.sendall({head:?}.replace("\n", "\r\n").encode() + b"\r\n\r\n" + {body:?}.encode())
got = 0
while got < 200000: got += len(s.recv(65536))
s.close()
'"#
    );
    inside.run(&cut).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let egress = inside.egress().await;
        let spent = egress["spent"]["tokens"].as_u64().unwrap();
        // Five thousand were sent, and a word is a token at least.
        if spent > 5_500 && egress["requests"][0]["path"] == "/v1/messages" {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "never counted: {egress}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    // One who does not wait for the first word.
    let before = inside.egress().await["spent"]["tokens"].as_u64().unwrap();
    let impatient = format!(
        "curl -s -m 1 http://${{http_proxy#http://}}/v1/messages -H 'anthropic-version: 2023-06-01' \
        -H 'content-type: application/json' -d '{}'; true",
        json!({ "model": "m", "max_tokens": 10, "stream": true, "messages": [{ "role": "user", "content": "/hang" }] })
    );
    inside.run(&impatient).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while inside.egress().await["spent"]["tokens"].as_u64().unwrap() == before {
        assert!(std::time::Instant::now() < deadline, "it was free");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    served.end().await;
}

#[tokio::test]
async fn a_fork_has_a_budget_of_its_own_and_nothing_spent() {
    let served = served(&[]).await;
    let client = &served.client;
    let parent = ready(client, json!({ "budgetTokens": 2_000 })).await;
    let costly = "hello\n/usage input=2500 output=10\n/say done";
    client.say(&parent.session, costly).await.all().await;
    let messages = |of: &Inside| format!("/api/sessions/{}/messages", of.session);
    let refused = client.post(&messages(&parent), &json!({ "content": "x" })).await;
    assert_eq!(refused.refused(402), "budget_spent");

    let path = format!("/api/sessions/{}/fork", parent.session);
    let made = client.post(&path, &json!({})).await.ok();
    let session = made["session"]["id"].as_str().unwrap().to_owned();
    let fork = Inside { client: client.clone(), session };
    assert_eq!(fork.egress().await["spent"]["tokens"], 0);
    client.post(&format!("/api/sessions/{}/resume", fork.session), &json!({})).await.ok();
    let cheap = "hello\n/usage input=600 output=100\n/say done";
    let run = client.say(&fork.session, cheap).await.all().await;
    assert_eq!(run.last().unwrap().data["stopReason"], "end_turn", "{run:#?}");
    // Neither pays for the other, and the fork has as much as its parent had.
    assert_eq!(fork.egress().await["spent"]["tokens"], 700);
    assert_eq!(parent.egress().await["spent"]["tokens"], 2_510);
    client.say(&fork.session, costly).await.all().await;
    let refused = client.post(&messages(&fork), &json!({ "content": "x" })).await;
    assert_eq!(refused.refused(402), "budget_spent");
    served.end().await;
}

#[tokio::test]
async fn what_was_spent_outlives_the_server_and_the_sandbox() {
    let mut spawned = Spawned::start().await;
    let options = json!({ "budgetUsd": 0.01 });
    let mut inside = ready(&spawned.client, options).await;
    let ask = question("x\n/usage input=3000 output=100\n/say hello", true);
    assert!(inside.ask(&[ask]).await[0].starts_with("HTTP/1.1 200"));
    let spent = inside.egress().await["spent"].clone();
    assert_eq!(spent["tokens"], 3_100);
    // Nobody waits until it is on disk; it is long before a run of somebody else is over, which is written there many times.
    let other = Inside::of(&spawned.client, "coder", json!({})).await;
    spawned.client.say(&other.session, "hello\n/bash true\n/say done").await.all().await;
    spawned.kill_and_restart();
    inside.client = spawned.client.clone();
    assert_eq!(inside.egress().await["spent"], spent);
    // Another sandbox is the same session.
    for change in ["stop", "resume"] {
        let path = format!("/api/sessions/{}/{change}", inside.session);
        spawned.client.post(&path, &json!({})).await.ok();
    }
    assert_eq!(inside.egress().await["spent"], spent);
    let path = format!("/api/sessions/{}/messages", inside.session);
    assert_eq!(
        spawned.client.post(&path, &json!({ "content": "x" })).await.refused(402),
        "budget_spent"
    );
    let answer = inside.ask(&[question("x", true)]).await.remove(0);
    assert_eq!(read(&answer).0, 402, "{answer}");
    assert!(answer.contains("0.01 US dollars"), "{answer}");
    spawned.end().await;
}

#[tokio::test]
async fn a_session_asks_only_so_often() {
    let served = served(&[("ASH_EGRESS_RATE_LIMIT", "3")]).await;
    let inside = ready(&served.client, json!({})).await;
    let other = Inside::of(&served.client, "coder", json!({})).await;
    let ask = || "GET /v1/models HTTP/1.1\nhost: x\nanthropic-version: 2023-06-01".to_owned();
    let answers = inside.ask(&[ask(), ask(), ask(), ask()]).await;
    let told: Vec<(u16, String)> = answers.iter().map(|answer| read(answer)).collect();
    assert!(told[..3].iter().all(|(status, _)| *status != 429), "{answers:#?}");
    assert_eq!(told[3], (429, "rate_limited".to_owned()), "{answers:#?}");
    assert!(answers[3].to_lowercase().contains("retry-after: "), "{}", answers[3]);
    assert_ne!(read(&other.ask(&[ask()]).await[0]).0, 429, "each has its own");
    served.end().await;
}

#[tokio::test]
async fn a_request_without_an_end_is_ended() {
    let served = served(&[]).await;
    let inside = ready(&served.client, json!({})).await;
    let endless = r#"python3 -c '
import os, socket
host, port = os.environ["http_proxy"].removeprefix("http://").split(":")
s = socket.create_connection((host, int(port)), 25)
s.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
piece = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
sent = 0
try:
    while sent < 400: s.sendall(piece); sent += 1
except OSError: pass
print("ended" if sent < 400 else "never ended")
'"#;
    assert_eq!(inside.run(endless).await, "ended\n");
    let egress = inside.egress().await;
    assert_eq!(egress["requests"][0]["refusal"], "too_large", "{egress}");
    served.end().await;
}
