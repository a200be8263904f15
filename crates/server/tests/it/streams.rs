//! A client whose connections break misses nothing and sees nothing twice.

use std::time::Duration;

use ash_server::api::SendMessage;
use ash_server::client::{
    BearerKey, Client, ClientError, Cursor, EventStream, Incoming, Patience, Until,
};
use serde_json::json;
use uuid::Uuid;

use crate::fake::{Answer, Fake, frame, problem};

const SESSION: Uuid = Uuid::from_u128(0x0192_aaaa_0000_7000_8000_0000_0000_0001);
const OWN: &str = "0192aaaa-0000-7000-8000-00000000000a";
const OTHER: &str = "0192aaaa-0000-7000-8000-00000000000b";

fn client(fake: &Fake) -> Client {
    let pause = Duration::from_millis(1);
    let patience = Patience {
        first_pause: pause,
        longest_pause: pause,
        attempts: 4,
        request_attempts: 3,
        ..Patience::default()
    };
    Client::new(&fake.url(), Some(&BearerKey::new("secret"))).unwrap().with_patience(patience)
}

fn message() -> SendMessage {
    serde_json::from_value(json!({ "content": "hello" })).unwrap()
}

fn said(id: &str, run: &str, delta: &str) -> String {
    frame(id, "text_delta", &json!({ "runId": run, "delta": delta }))
}

fn done(id: &str, run: &str) -> String {
    frame(id, "done", &json!({ "runId": run, "stopReason": "end_turn" }))
}

/// The names and places of all events until the end; breaks are not told.
async fn all(mut stream: EventStream) -> Result<Vec<String>, ClientError> {
    let mut events = Vec::new();
    while let Some(incoming) = stream.next().await? {
        if let Incoming::Event(event) = incoming {
            let place = event.cursor.map(|cursor| cursor.to_string()).unwrap_or_default();
            events.push(format!("{} {place}", event.name).trim_end().to_owned());
        }
    }
    Ok(events)
}

#[tokio::test]
async fn a_message_is_followed_to_its_end_over_broken_connections() {
    let fake = Fake::start(|asked, before| match before {
        0 => Answer::Nothing,
        1 => Answer::Cut(frame("", "session_start", &json!({"sessionId": SESSION}))),
        2 => Answer::Cut(
            frame("", "session_start", &json!({"sessionId": SESSION}))
                + &frame("1-4", "run_started", &json!({"runId": OWN}))
                + &said("1-5", OWN, "a"),
        ),
        3 => {
            Answer::Cut(said("1-5", OWN, "a") + &said("1-6", OTHER, "no") + &said("1-7", OWN, "b"))
        }
        4 => problem(503, "draining", "the server is going down"),
        5 => Answer::Stream(frame("", "reconnect", &json!({}))),
        6 => Answer::Cut(done("1-8", OTHER) + &done("1-9", OWN) + &said("1-10", OWN, "never")),
        _ => panic!("{asked:?}"),
    })
    .await;
    let events = all(client(&fake).send(SESSION, &message())).await.unwrap();
    let expected =
        ["session_start", "run_started 1-4", "text_delta 1-5", "text_delta 1-7", "done 1-9"];
    assert_eq!(events, expected);
    let asked = fake.asked();
    let keys: Vec<_> = asked[..3].iter().map(|asked| asked.header("idempotency-key")).collect();
    assert!(keys[0].is_some() && keys[0] == keys[1] && keys[1] == keys[2], "{keys:?}");
    assert_eq!(asked[0].header("authorization"), Some("Bearer secret"));
    let stream = |at: &str| format!("GET /api/sessions/{SESSION}/stream?after={at}&until=idle");
    let lines = fake.lines();
    assert_eq!(lines[3..], [stream("1-5"), stream("1-7"), stream("1-7"), stream("1-7")]);
    assert_eq!(asked[3].header("last-event-id"), Some("1-5"));
}

#[tokio::test]
async fn a_run_that_ended_in_a_gap_is_asked_for() {
    let fake = Fake::start(|_, before| match before {
        0 => Answer::Cut(said("1-5", OWN, "a")),
        1 => Answer::Stream(
            frame("", "gap", &json!({"from": "1-5", "to": "2-3"})) + &said("2-4", OTHER, "x"),
        ),
        _ => Answer::Json(
            200,
            json!({"run": {
                "id": OWN, "sessionId": SESSION, "status": "failed", "phase": null, "round": 1,
                "turn": 1, "parentTurn": null, "stopReason": "error", "error": null,
                "usage": {"inputTokens": 1, "outputTokens": 1, "cacheCreationTokens": 0,
                    "cacheReadTokens": 0, "toolCalls": 0, "costUsd": 0.0},
                "promptSeq": 3, "acceptedAt": "2026-11-16T08:15:30.250Z", "startedAt": null,
                "endedAt": "2026-11-16T08:15:31.250Z",
            }}),
        ),
    })
    .await;
    let events = all(client(&fake).send(SESSION, &message())).await.unwrap();
    assert_eq!(events, ["text_delta 1-5", "gap", "done"]);
}

#[tokio::test]
async fn a_log_is_followed_from_where_it_was_left() {
    let fake = Fake::start(|_, before| match before {
        0 => Answer::Cut(said("1-3", OWN, "a") + &said("1-4", OTHER, "b")),
        1 => Answer::Stream(said("1-4", OTHER, "b") + &done("1-5", OWN)),
        _ => panic!("it was over"),
    })
    .await;
    let stream = client(&fake).follow(SESSION, Cursor::after(2), Until::Idle);
    assert_eq!(all(stream).await.unwrap(), ["text_delta 1-3", "text_delta 1-4", "done 1-5"]);
    assert!(fake.lines()[0].ends_with("/stream?after=2&until=idle"));
    assert!(fake.lines()[1].ends_with("/stream?after=1-4&until=idle"));
    assert_eq!(fake.asked()[0].header("last-event-id"), None);
}

#[tokio::test]
async fn a_refusal_is_not_asked_for_again() {
    let fake = Fake::start(|_, _| problem(400, "session_not_active", "Session is paused")).await;
    let error = all(client(&fake).send(SESSION, &message())).await.unwrap_err();
    assert!(matches!(error, ClientError::Problem(problem) if problem.code == "session_not_active"));
    assert_eq!(fake.asked().len(), 1);
}

#[tokio::test]
async fn a_stream_that_never_says_anything_is_given_up() {
    let fake = Fake::start(|_, _| Answer::Nothing).await;
    let error =
        all(client(&fake).follow(SESSION, Cursor::after(0), Until::Dropped)).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken { .. }), "{error}");
    assert_eq!(fake.asked().len(), 4);
}

#[tokio::test]
async fn only_what_may_be_repeated_is_repeated() {
    let fake = Fake::start(|_, _| Answer::Nothing).await;
    let client = client(&fake);
    client.session(SESSION).await.unwrap_err();
    assert_eq!(fake.asked().len(), 3);
    let command = serde_json::from_value(json!({"command": "true"})).unwrap();
    client.exec(SESSION, &command).await.unwrap_err();
    assert_eq!(fake.asked().len(), 4);
    client.create_session(&ash_server::api::CreateSession::default()).await.unwrap_err();
    let asked = fake.asked();
    let keys: Vec<_> = asked[4..].iter().map(|asked| asked.header("idempotency-key")).collect();
    assert!(keys.len() == 3 && keys[0].is_some() && keys[0] == keys[2], "{keys:?}");
}
