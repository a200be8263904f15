//! What agents ask before they do something: answered, not answered, and survived by.

use serde_json::{Value, json};

use super::client::{Client, Frame, Stream};
use super::served::{Served, agent};
use super::spawned::Spawned;
use crate::world::{bridges_of, kill};

const TOUCH: &str = "/bash touch made\n/results";

/// A session that asks, with these options beside.
async fn session(client: &Client, options: Value) -> String {
    agent(client, "coder").await;
    let mut create = json!({ "agent": "coder", "permissionMode": "default" });
    create.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
    let made = client.post("/api/sessions", &create).await.ok();
    made["session"]["id"].as_str().unwrap().to_owned()
}

/// Sends a prompt, and waits for the question that it comes to.
async fn asked(client: &Client, session: &str, prompt: &str) -> (Stream, String) {
    let mut stream = client.say(session, prompt).await;
    let frame = stream.until("permission_request").await.pop().unwrap();
    let id = frame.data["id"].as_str().unwrap().to_owned();
    (stream, id)
}

fn at(session: &str, id: &str) -> String {
    format!("/api/sessions/{session}/permissions/{id}")
}

async fn open(client: &Client, session: &str) -> Vec<Value> {
    let answer = client.get(&format!("/api/sessions/{session}/permissions")).await.ok();
    answer["permissions"].as_array().unwrap().clone()
}

async fn has(client: &Client, session: &str, name: &str) -> bool {
    let files = client.get(&format!("/api/sessions/{session}/files")).await.ok();
    files["files"].as_array().unwrap().iter().any(|file| file["path"] == name)
}

fn of<'a>(frames: &'a [Frame], event: &str) -> &'a Value {
    let frame = frames.iter().find(|frame| frame.event == event);
    &frame.unwrap_or_else(|| panic!("there is no {event}: {frames:#?}")).data
}

fn result(frames: &[Frame]) -> String {
    of(frames, "tool_result").to_string()
}

/// Follows a run to its end, from wherever it is.
async fn to_the_end(client: &Client, session: &str) -> Vec<Frame> {
    client.follow(session, "after=0").await.until("done").await
}

#[tokio::test]
async fn a_question_is_shown_and_a_yes_has_it_done() {
    let served = Served::start().await;
    let client = &served.client;
    let session = session(client, json!({})).await;
    let (stream, id) = asked(client, &session, TOUCH).await;
    let listed = open(client, &session).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["id"], id.as_str());
    assert_eq!((&listed[0]["tool"], &listed[0]["decided"]), (&json!("bash"), &Value::Null));
    assert_eq!(listed[0]["input"], json!({ "command": "touch made" }));
    let shown = client.get(&format!("/api/sessions/{session}")).await.ok();
    assert_eq!(shown["session"]["openPermissions"], 1);
    assert!(!has(client, &session, "made").await);

    let allowed = client.post(&at(&session, &id), &json!({ "behavior": "allow" })).await.ok();
    assert_eq!(allowed, json!({ "id": id, "behavior": "allow" }));
    let rest = stream.all().await;
    assert_eq!(of(&rest, "permission_decided")["behavior"], "allow");
    let resolved = of(&rest, "permission_resolved");
    assert_eq!((&resolved["how"], &resolved["behavior"]), (&json!("allowed"), &json!("allow")));
    assert_eq!(rest.last().unwrap().data["stopReason"], "end_turn");
    assert!(has(client, &session, "made").await);
    assert_eq!(open(client, &session).await, Vec::<Value>::new());

    // The same answer again is fine; another one is not, and says what became of it.
    client.post(&at(&session, &id), &json!({ "behavior": "allow" })).await.ok();
    let other = client.post(&at(&session, &id), &json!({ "behavior": "deny" })).await;
    assert_eq!(other.refused(409), "permission_closed");
    assert!(other.body.contains("allowed"), "{other:?}");
    let unknown = client.post(&at(&session, &session), &json!({ "behavior": "deny" })).await;
    assert_eq!(unknown.refused(404), "no_such_permission");
    served.end().await;
}

#[tokio::test]
async fn a_yes_with_another_input_does_that_and_a_no_tells_the_agent_why() {
    let served = Served::start().await;
    let client = &served.client;
    let session = session(client, json!({})).await;
    let (stream, id) = asked(client, &session, TOUCH).await;
    let other = json!({ "behavior": "allow", "input": { "command": "touch other" } });
    client.post(&at(&session, &id), &other).await.ok();
    let rest = stream.all().await;
    assert_eq!(of(&rest, "permission_decided")["input"], other["input"]);
    assert!(has(client, &session, "other").await && !has(client, &session, "made").await);

    let (stream, id) = asked(client, &session, TOUCH).await;
    let no = json!({ "behavior": "deny", "message": "not on a Monday" });
    client.post(&at(&session, &id), &no).await.ok();
    let rest = stream.all().await;
    assert!(result(&rest).contains("not on a Monday"), "{}", result(&rest));
    assert_eq!(of(&rest, "permission_resolved")["how"], "denied");
    assert!(!has(client, &session, "made").await);
    for wrong in [
        json!({ "behavior": "maybe" }),
        json!({}),
        json!({ "behavior": "allow", "message": "x" }),
        json!({ "behavior": "deny", "input": {} }),
        json!({ "behavior": "allow", "input": "touch" }),
    ] {
        let answer = client.post(&at(&session, &id), &wrong).await;
        assert_eq!(answer.refused(400), "invalid_request", "{wrong}");
    }
    served.end().await;
}

#[tokio::test]
async fn nobody_answers_and_an_interrupt_takes_the_question_back() {
    let served = Served::start().await;
    let client = &served.client;
    let session = session(client, json!({ "permissionTimeoutMs": 100 })).await;
    let (stream, id) = asked(client, &session, TOUCH).await;
    let rest = stream.all().await;
    assert_eq!(of(&rest, "permission_resolved")["how"], "timed_out");
    assert!(result(&rest).contains("nobody allowed it"), "{}", result(&rest));
    let late = client.post(&at(&session, &id), &json!({ "behavior": "allow" })).await;
    assert_eq!(late.refused(409), "permission_closed");

    // Both change with the next message.
    let longer = json!({ "permissionTimeoutMs": 600_000 });
    let config = format!("/api/sessions/{session}/config");
    client.ask("PATCH", &config, &[], Some(&longer)).await.ok();
    let (stream, id) = asked(client, &session, TOUCH).await;
    let interrupt = format!("/api/sessions/{session}/interrupt");
    let run = client.post(&interrupt, &json!({})).await.ok();
    assert_eq!(run["run"]["status"], "cancelled");
    let rest = stream.all().await;
    assert_eq!(of(&rest, "permission_resolved")["how"], "withdrawn");
    let late = client.post(&at(&session, &id), &json!({ "behavior": "allow" })).await;
    assert_eq!(late.refused(409), "permission_closed");
    assert!(!has(client, &session, "made").await);

    let bypass = json!({ "permissionMode": "bypassPermissions" });
    client.ask("PATCH", &config, &[], Some(&bypass)).await.ok();
    let frames = client.say(&session, TOUCH).await.all().await;
    assert!(frames.iter().all(|frame| frame.event != "permission_request"));
    assert!(has(client, &session, "made").await);
    served.end().await;
}

#[tokio::test]
async fn of_two_answers_at_once_one_counts() {
    let served = Served::start().await;
    let client = &served.client;
    let session = session(client, json!({})).await;
    for _ in 0..5 {
        let (stream, id) = asked(client, &session, TOUCH).await;
        let path = at(&session, &id);
        let (yes, no) = (json!({ "behavior": "allow" }), json!({ "behavior": "deny" }));
        let (yes, no) = tokio::join!(client.post(&path, &yes), client.post(&path, &no));
        let rest = stream.all().await;
        let (counts, refused) = if yes.status == 200 { ("allow", no) } else { ("deny", yes) };
        let code = refused.refused(409);
        assert!(["permission_decided", "permission_closed"].contains(&code.as_str()), "{code}");
        let decided: Vec<_> =
            rest.iter().filter(|frame| frame.event == "permission_decided").collect();
        assert_eq!(decided.len(), 1);
        assert_eq!(decided[0].data["behavior"], counts);
        assert_eq!(of(&rest, "permission_resolved")["behavior"], counts);
    }
    served.end().await;
}

#[tokio::test]
async fn a_stranger_neither_sees_nor_answers_a_question() {
    let served = Served::start().await;
    let (client, stranger) = (&served.client, served.stranger().await);
    let session = session(client, json!({})).await;
    let (stream, id) = asked(client, &session, TOUCH).await;
    let list = format!("/api/sessions/{session}/permissions");
    assert_eq!(stranger.get(&list).await.refused(404), "not_found");
    let yes = json!({ "behavior": "allow" });
    assert_eq!(stranger.post(&at(&session, &id), &yes).await.refused(404), "not_found");
    // Nor is it found under another session.
    let other = self::session(client, json!({})).await;
    assert_eq!(client.post(&at(&other, &id), &yes).await.refused(404), "no_such_permission");
    assert_eq!(open(client, &session).await.len(), 1);
    client.post(&at(&session, &id), &yes).await.ok();
    stream.all().await;
    served.end().await;
}

#[tokio::test]
async fn a_question_stays_open_while_the_session_is_paused() {
    let served = Served::start().await;
    let client = &served.client;
    let session = session(client, json!({})).await;
    let lifecycle = |what: &str| format!("/api/sessions/{session}/{what}");
    for answered_meanwhile in [false, true] {
        let (stream, id) = asked(client, &session, "/bash echo hello\n/results").await;
        let paused = client.post(&lifecycle("pause"), &json!({})).await.ok();
        assert_eq!(paused["session"]["status"], "paused");
        assert_eq!(paused["session"]["openPermissions"], 1);
        let yes = json!({ "behavior": "allow" });
        if answered_meanwhile {
            client.post(&at(&session, &id), &yes).await.ok();
            assert_eq!(open(client, &session).await[0]["decided"], "allow");
        }
        let resumed = client.post(&lifecycle("resume"), &json!({})).await.ok();
        assert_eq!(resumed["resume"]["path"], "warm");
        if !answered_meanwhile {
            assert_eq!(open(client, &session).await.len(), 1);
            client.post(&at(&session, &id), &yes).await.ok();
        }
        let rest = stream.all().await;
        assert_eq!(of(&rest, "permission_resolved")["how"], "allowed");
        assert!(result(&rest).contains("hello"), "{}", result(&rest));
        assert_eq!(rest.last().unwrap().data["status"], "completed");
    }
    served.end().await;
}

#[tokio::test]
async fn a_sandbox_that_dies_closes_its_question_and_interrupts_the_run() {
    let served = Served::start().await;
    let client = &served.client;
    let session = session(client, json!({})).await;
    let (stream, id) = asked(client, &session, TOUCH).await;
    for bridge in bridges_of(&served.dir.join("data")) {
        kill(bridge);
    }
    let rest = stream.all().await;
    let resolved = of(&rest, "permission_resolved");
    assert_eq!((&resolved["how"], &resolved["code"]), (&json!("lost"), &json!("sandbox_died")));
    let done = rest.last().unwrap();
    assert_eq!(done.data["status"], "interrupted");
    let events: Vec<&str> = rest.iter().map(|frame| frame.event.as_str()).collect();
    let at_end = &events[events.len() - 3..];
    assert_eq!(at_end, ["permission_resolved", "error", "done"]);
    let late = client.post(&at(&session, &id), &json!({ "behavior": "allow" })).await;
    assert_eq!(late.refused(409), "permission_closed");
    assert!(late.body.contains("lost"), "{late:?}");
    served.end().await;
}

#[tokio::test]
async fn a_question_outlives_a_server_that_is_killed() {
    let mut spawned = Spawned::start().await;
    let session = session(&spawned.client, json!({})).await;
    let (_cut, id) = asked(&spawned.client, &session, TOUCH).await;
    spawned.kill_and_restart();
    let client = spawned.client.clone();
    let listed = open(&client, &session).await;
    assert_eq!(listed[0]["id"], id.as_str());
    assert_eq!(listed[0]["input"], json!({ "command": "touch made" }));
    client.post(&at(&session, &id), &json!({ "behavior": "allow" })).await.ok();
    let frames = to_the_end(&client, &session).await;
    assert_eq!(of(&frames, "permission_resolved")["how"], "allowed");
    assert_eq!(frames.last().unwrap().data["status"], "completed");
    let asked = frames.iter().filter(|frame| frame.event == "permission_request").count();
    assert_eq!(asked, 1, "it is not asked again");
    assert!(has(&client, &session, "made").await);
    spawned.end().await;
}

#[tokio::test]
async fn an_answer_outlives_a_server_that_is_killed_right_after_it_took_it() {
    let mut spawned = Spawned::start().await;
    let session = session(&spawned.client, json!({})).await;
    for round in 1..=4 {
        let prompt = format!("/bash echo {round} >> rounds\n/say over {round}");
        let (_cut, id) = asked(&spawned.client, &session, &prompt).await;
        let taken = spawned.client.post(&at(&session, &id), &json!({ "behavior": "allow" })).await;
        spawned.kill_and_restart();
        taken.ok();
        let client = spawned.client.clone();
        let mut stream = client.follow(&session, "after=0").await;
        let mut frames = Vec::new();
        for _ in 0..round {
            frames = stream.until("done").await;
        }
        assert_eq!(of(&frames, "permission_resolved")["how"], "allowed", "round {round}");
        assert_eq!(frames.last().unwrap().data["status"], "completed", "round {round}");
        let path = format!("/api/sessions/{session}/exec");
        let told = client.post(&path, &json!({ "command": "wc -l < rounds" })).await.ok();
        let stdout = told["stdout"].as_str().unwrap();
        assert_eq!(stdout.trim(), round.to_string(), "it was done once each time");
    }
    spawned.end().await;
}
