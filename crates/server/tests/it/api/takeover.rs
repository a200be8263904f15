//! Servers that go while turns are running, and those that come after them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::client::{Client, Frame};
use super::served::session;
use super::spawned::Spawned;
use super::streams::log;
use crate::world::{can_isolate, until};

/// Starts turns that go on until they are let go, and waits until all of them are in the middle.
async fn running_turns(spawned: &Spawned, count: usize) -> Vec<String> {
    let client = &spawned.client;
    let mut sessions = Vec::new();
    for number in 0..count {
        let session = session(client).await;
        let prompt = format!(
            "Go.\n/say begun {number}\n/bash touch begun; while [ ! -e go ]; do sleep 0.05; done\n/say ended {number}"
        );
        let body = json!({ "content": prompt, "detach": true });
        let sent = client.post(&format!("/api/sessions/{session}/messages"), &body).await;
        assert_eq!(sent.status, 202, "{:?}", sent.json());
        sessions.push(session);
    }
    for session in &sessions {
        let begun = workspace(spawned, session).join("begun");
        until("the turn is in the middle", || begun.exists()).await;
    }
    sessions
}

fn workspace(spawned: &Spawned, session: &str) -> std::path::PathBuf {
    spawned.dir.path().join("data/sandboxes").join(session).join("workspace")
}

/// Lets every turn go and sees that each ended with its answer, with no event twice and none missing.
async fn all_end(spawned: &Spawned, client: &Client, sessions: &[String]) {
    for session in sessions {
        std::fs::write(workspace(spawned, session).join("go"), "").unwrap();
    }
    for (number, session) in sessions.iter().enumerate() {
        let (mut follow, mut seen) = (client.follow(session, "after=0").await, Vec::new());
        while seen.last().is_none_or(|last: &Frame| last.event != "done") {
            let next = follow.next().await.expect("a stream ends with a word");
            if next.event == "reconnect" {
                // The server that goes had taken it.
                (follow, seen) = (client.follow(session, "after=0").await, Vec::new());
            } else {
                seen.push(next);
            }
        }
        let seqs: Vec<u64> = seen.iter().filter_map(Frame::seq).collect();
        let last = *seqs.last().unwrap();
        assert_eq!(seqs, (1..=last).collect::<Vec<_>>(), "session {number}");
        let events: Vec<&str> = seen.iter().map(|frame| frame.event.as_str()).collect();
        let done = seen.last().unwrap();
        assert_eq!(done.data["stopReason"], "end_turn", "session {number}: {events:?}");
        let said: String = seen.iter().filter_map(|frame| frame.data["delta"].as_str()).collect();
        assert_eq!(said, format!("begun {number}ended {number}"), "{events:?}");
        drop(follow);
        let again = log(client, session).await;
        assert!(again.len() >= seen.len(), "session {number}");
    }
}

#[tokio::test]
async fn twenty_running_turns_outlive_the_kill_of_their_server() {
    let mut spawned = Spawned::start().await;
    let sessions = running_turns(&spawned, 20).await;
    spawned.kill_and_restart();
    all_end(&spawned, &spawned.client, &sessions).await;
    spawned.end().await;
}

#[tokio::test]
async fn whoever_says_so_twice_ends_running_turns_too() {
    let mut spawned = Spawned::start().await;
    let sessions = running_turns(&spawned, 2).await;
    tell(&spawned, "-TERM");
    // Everything that it had to do is done.
    until("it has let go", || spawned.said().contains("turns go on without a server")).await;
    tell(&spawned, "-TERM");
    assert!(spawned.wait(), "{}", spawned.said());
    assert!(spawned.said().contains("ending everything"), "{}", spawned.said());
    spawned.restart();
    for session in &sessions {
        let mut follow = spawned.client.follow(session, "after=0").await;
        let done = follow.until("done").await.pop().unwrap();
        assert_eq!(done.data["stopReason"], "error", "{:?}", done.data);
    }
    spawned.end().await;
}

#[tokio::test]
async fn a_server_that_is_told_once_leaves_running_turns_alone() {
    let mut spawned = Spawned::start().await;
    let sessions = running_turns(&spawned, 2).await;
    tell(&spawned, "-TERM");
    assert!(spawned.wait(), "{}", spawned.said());
    spawned.restart();
    all_end(&spawned, &spawned.client, &sessions).await;
    spawned.end().await;
}

#[tokio::test]
async fn a_server_hands_over_and_nobody_is_refused() {
    let spawned = Spawned::start().await;
    let sessions = running_turns(&spawned, 3).await;
    let mut follow = spawned.client.follow(&sessions[0], "after=0").await;
    follow.until("tool_use").await;
    hand_over(&spawned);
    // Whoever asks meanwhile waits for the one that comes next. Its life began later.
    let rest = follow.all().await;
    assert_eq!(rest.last().map(|frame| frame.event.as_str()), Some("reconnect"), "{rest:?}");
    all_end(&spawned, &spawned.client, &sessions).await;
    let said = spawned.said();
    assert!(said.contains("handing over to ash "), "{said}");
    assert_eq!(
        said.matches("listening on").count(),
        1,
        "the first line is read by the test: {said}"
    );
    spawned.end().await;
}

#[tokio::test]
async fn a_session_shows_the_isolation_of_its_own_sandbox() {
    if !can_isolate() {
        eprintln!("not tried: this machine has no sandboxes");
        return;
    }
    let mut spawned = Spawned::start().await;
    let ours = spawned.client.get("/health").await.ok()["isolation"].clone();
    let sessions = [session(&spawned.client).await, session(&spawned.client).await];
    for session in &sessions {
        let paused = format!("/api/sessions/{session}/pause");
        let answer = spawned.client.post(&paused, &json!({})).await.ok();
        assert_eq!(answer["session"]["isolation"], ours);
    }
    // As a server that could do no better, or could do better, would have left the first one.
    let (ours, other) = match ours.as_str().unwrap() {
        "full" => ("full", "rootless"),
        tier => (tier, "full"),
    };
    let process = spawned.dir.path().join("data/run").join(&sessions[0]).join("1.process");
    let written = std::fs::read_to_string(&process).unwrap();
    std::fs::write(&process, written.replace(ours, other)).unwrap();
    spawned.kill_and_restart();
    let shown = async |session: &str, name: &str| {
        let shown = spawned.client.get(&format!("/api/sessions/{session}")).await.ok();
        shown["session"][name].clone()
    };
    assert_eq!(shown(&sessions[0], "activity").await, "frozen");
    assert_eq!(shown(&sessions[0], "isolation").await, other);
    assert_eq!(shown(&sessions[1], "isolation").await, ours);
    // Without a sandbox it is the one that it would get.
    spawned.client.delete(&format!("/api/sessions/{}", sessions[0])).await.ok();
    assert_eq!(shown(&sessions[0], "isolation").await, ours);
    spawned.end().await;
}

#[tokio::test]
async fn a_server_hands_over_to_no_program_that_could_not_serve() {
    let spawned = Spawned::of_copies().await;
    let session = session(&spawned.client).await;
    let bin = spawned.dir.path().join("bin");
    // Moved into the place, as whoever upgrades does: a program that runs cannot be overwritten.
    let put = |name: &str, content: &[u8]| {
        let new = bin.join("new");
        std::fs::write(&new, content).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&new, bin.join(name)).unwrap();
    };
    let refused = async |times: usize, why: &str| {
        hand_over(&spawned);
        let count = || spawned.said().matches("not handing over: ").count();
        until("it is refused", || count() == times && spawned.said().contains(why)).await;
        let shown = spawned.client.get(&format!("/api/sessions/{session}")).await.ok();
        assert_eq!(shown["session"]["status"], "active", "the old one serves on");
    };
    let (ash, bridge) = (read(&bin.join("ash")), read(&bin.join("ash-bridge")));
    put("ash", b"nothing that can be run");
    refused(1, "cannot be run").await;
    put(
        "ash",
        b"#!/bin/sh\n[ \"$1\" = --version ] && echo ash 99 && exit\necho I am broken >&2; exit 1\n",
    );
    refused(2, "could not serve in its place:\nI am broken").await;
    put("ash", &ash);
    put("ash-bridge", b"#!/bin/sh\nexit 1\n");
    refused(3, "does not say that it is a bridge").await;
    put("ash-bridge", b"#!/bin/sh\necho ash-bridge 0.0.0-other\n");
    refused(4, "is ash-bridge 0.0.0-other, and not ash-bridge ").await;
    put("ash-bridge", &bridge);
    hand_over(&spawned);
    until("it hands over", || spawned.said().contains("handing over to ash ")).await;
    until("the next one is there", || spawned.said().matches("listening on").count() == 1).await;
    let told = spawned.client.say(&session, "Hello").await.all().await;
    assert_eq!(told.last().unwrap().event, "done");
    spawned.end().await;
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn hand_over(spawned: &Spawned) {
    tell(spawned, "-USR2");
}

fn tell(spawned: &Spawned, signal: &str) {
    let told = Command::new("kill").args([signal, &spawned.pid().to_string()]).status().unwrap();
    assert!(told.success());
}
