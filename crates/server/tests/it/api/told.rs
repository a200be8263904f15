//! Streams that are open for long: they show that they live, end with the key they were opened with,
//! and share what is large.

use std::time::Duration;

use ash_server::http::Bounds;
use serde_json::json;
use tokio::task::JoinSet;

use super::served::{Served, With, held, let_go};
use super::streams::log;

#[tokio::test]
async fn a_client_whose_run_waits_hears_that_its_stream_lives() {
    let bounds = Bounds { heartbeat: Duration::from_millis(500), ..Bounds::default() };
    let served = Served::with(With { bounds, ..With::default() }).await;
    let client = &served.client;
    let session = served.session().await;
    // It says something more often than a heartbeat is due, and the other client is told none of it.
    let busy = "busy\n/slow 20ms\n/repeat 200 word ";
    let mut first = client.say(&session, busy).await;
    first.until("text_delta").await;
    let mut second = client.say(&session, "second\n/say second").await;
    let before = second.until_comment().await;
    let names: Vec<&str> = before.iter().map(|frame| frame.event.as_str()).collect();
    assert_eq!(names, ["session_start", "run_queued"]);
    first.all().await;
    assert_eq!(second.all().await.last().unwrap().data["stopReason"], "end_turn");
    served.end().await;
}

#[tokio::test]
async fn a_revoked_key_ends_the_streams_that_it_opened_and_no_others() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let mut keys = Vec::new();
    for label in ["revoked", "kept"] {
        let made = client.post("/api/api-keys", &json!({ "label": label })).await.ok();
        keys.push(made);
    }
    let [revoked, kept] = [&keys[0], &keys[1]].map(|key| {
        let secret = key["key"].as_str().unwrap();
        client.with_key(secret)
    });
    let stranger = served.stranger().await;
    let theirs = super::served::session(&stranger).await;
    let mut sent = revoked.say(&session, &held("Wait")).await;
    let mut followed = revoked.follow(&session, "").await;
    let mut others = vec![kept.follow(&session, "").await, client.follow(&session, "").await];
    let mut elsewhere = stranger.follow(&theirs, "").await;
    elsewhere.until("session_active").await;
    for stream in others.iter_mut().chain([&mut sent, &mut followed]) {
        stream.until("tool_use").await;
    }
    let id = keys[0]["id"].as_str().unwrap();
    client.delete(&format!("/api/api-keys/{id}")).await.ok();
    for stream in [sent, followed] {
        let rest = stream.all().await;
        assert!(rest.iter().all(|frame| frame.event != "done"), "{rest:#?}");
    }
    // The run goes on, and the others are told of it.
    let_go(client, &session).await;
    for stream in &mut others {
        let rest = stream.until("done").await;
        assert_eq!(rest.last().unwrap().data["stopReason"], "end_turn");
    }
    let run = stranger.say(&theirs, "hello\n/say hello").await.all().await;
    let told = elsewhere.until("done").await;
    assert_eq!(told.last(), run.last());
    served.end().await;
}

#[tokio::test]
async fn what_is_large_is_the_same_for_everybody_who_follows() {
    let served = Served::start().await;
    let client = &served.client;
    let (session, _watched) = served.busy().await;
    let mut following = JoinSet::new();
    for _ in 0..100 {
        let (client, session) = (client.clone(), session.clone());
        following.spawn(async move {
            let mut stream = client.follow(&session, "after=0&until=idle").await;
            let seen = stream.until("tool_use").await;
            (seen, stream)
        });
    }
    let following = following.join_all().await;
    let piece = "0123456789abcdef".repeat(16 * 1024);
    let large = format!("large\n/repeat 1 {piece}");
    let body = json!({ "content": large, "detach": true });
    client.post(&format!("/api/sessions/{session}/messages"), &body).await.ok();
    let_go(client, &session).await;
    let mut ending = JoinSet::new();
    for (mut seen, stream) in following {
        ending.spawn(async move {
            seen.extend(stream.all().await);
            seen
        });
    }
    let told = ending.join_all().await;
    let whole = log(client, &session).await;
    let longest = whole.iter().map(|frame| frame.raw.len()).max();
    assert!(longest >= Some(piece.len()), "nothing is large: {longest:?}");
    for (number, seen) in told.iter().enumerate() {
        assert!(*seen == whole, "client {number} saw {} of {}", seen.len(), whole.len());
    }
    served.end().await;
}
