//! Scripts of an agent that are run before its first turn: inside, once or in each sandbox, and never in silence.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::Client;
use super::cloud::until as until_async;
use super::served::{Served, With};
use super::spawned::Spawned;
use crate::world::{bridges_of, can_isolate, kill, until};

/// Says each time that it was run.
const COUNTED_INSTALL: &str = "#!/bin/sh\necho once >> installs\n";
const COUNTED_STARTUP: &str = "#!/bin/sh\necho again >> startups\n";

/// Goes on until it is let go.
const HELD_INSTALL: &str =
    "#!/bin/sh\ntouch begun\nwhile [ ! -e go ]; do sleep 0.02; done\necho once >> installs\n";

async fn deploy(client: &Client, scripts: &[(&str, &str)]) {
    let files = [("CLAUDE.md", "You are tested.")].iter().chain(scripts);
    let files: Vec<Value> = files
        .map(|(path, text)| json!({ "path": path, "content": BASE64_STANDARD.encode(text) }))
        .collect();
    client.post("/api/agents", &json!({ "name": "coder", "files": files })).await.ok();
}

async fn create(client: &Client) -> String {
    let body = json!({ "agent": "coder", "extraEnv": { "COLOR": "green" } });
    let made = client.post("/api/sessions", &body).await.ok();
    assert_eq!(made["session"]["status"], "active", "{made}");
    made["session"]["id"].as_str().unwrap().to_owned()
}

/// The only session that there is.
async fn only(client: &Client) -> Value {
    let listed = client.get("/api/sessions").await.ok();
    let sessions = listed["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 1, "{listed}");
    sessions[0].clone()
}

async fn exec(client: &Client, session: &str, command: &str) -> String {
    let path = format!("/api/sessions/{session}/exec");
    let ran = client.post(&path, &json!({ "command": command })).await.ok();
    ran["stdout"].as_str().unwrap_or_else(|| panic!("{ran}")).to_owned()
}

async fn act(client: &Client, session: &str, what: &str) -> Value {
    client.post(&format!("/api/sessions/{session}/{what}"), &json!({})).await.ok()
}

/// What the log of a session's sandbox says.
async fn logs(client: &Client, session: &str) -> Vec<String> {
    let logs = client.get(&format!("/api/sessions/{session}/logs")).await.ok();
    let lines = logs["logs"].as_array().unwrap().iter();
    lines.map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

async fn write(client: &Client, session: &str, path: &str, text: &str) {
    let file = json!({ "path": path, "content": BASE64_STANDARD.encode(text) });
    let path = format!("/api/sessions/{session}/files");
    let written = client.post(&path, &json!({ "files": [file] })).await.ok();
    assert_eq!(written["files"][0]["written"], true, "{written}");
}

fn workspace(dir: &Path, session: &str) -> PathBuf {
    dir.join("data/sandboxes").join(session).join("workspace")
}

/// What was counted: how often each script was run.
fn counted(dir: &Path, session: &str) -> (usize, usize) {
    let lines = |name: &str| {
        let text = fs::read_to_string(workspace(dir, session).join(name)).unwrap_or_default();
        text.lines().count()
    };
    (lines("installs"), lines("startups"))
}

/// A session that is made in the background, and is in the middle of its script.
async fn held(client: &Client, dir: &Path) -> (String, JoinSet<()>) {
    let (again, body) = (client.clone(), json!({ "agent": "coder" }).to_string());
    let mut making = JoinSet::new();
    making.spawn(async move {
        let request = again.request("POST", "/api/sessions", &[], Some(body.as_bytes()));
        let mut socket = tokio::net::TcpStream::connect(again.address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut socket, &request).await.unwrap();
        let mut answer = Vec::new();
        let _cut = tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut answer).await;
    });
    let sessions = dir.join("data/sandboxes");
    let begun = || {
        let mut all = fs::read_dir(&sessions).into_iter().flatten().flatten();
        all.find(|session| session.path().join("workspace/begun").exists())
    };
    until("the script is in the middle", || begun().is_some()).await;
    (begun().unwrap().file_name().into_string().unwrap(), making)
}

async fn until_active(client: &Client, session: &str) {
    until_async("the session is active", async || {
        let now = client.get(&format!("/api/sessions/{session}")).await.ok();
        now["session"]["status"] == "active"
    })
    .await;
}

#[tokio::test]
async fn what_the_scripts_made_is_there_in_the_first_turn_and_what_they_began_lives() {
    let served = Served::start().await;
    let client = &served.client;
    let outside = served.dir.join("data");
    let install = format!(
        "#!/bin/sh\necho installing; echo careful >&2\nid -u > who; pwd > where\n\
         echo \"$COLOR $ASH_SESSION_ID\" > env\n[ -e {} ] && echo seen > seen\necho made > made.txt\n",
        outside.display(),
    );
    // Without a first line, and nobody said that it can be executed.
    let startup = "cat made.txt > /tmp/ready-$ASH_SESSION_ID\nsleep 1000 &\necho $! > helper\n";
    deploy(client, &[("install.sh", &install), ("startup.sh", startup)]).await;
    let session = create(client).await;

    let prompt =
        "Look.\n/bash cat made.txt /tmp/ready-*; kill -0 $(cat helper) && echo it lives\n/results";
    let frames = client.say(&session, prompt).await.all().await;
    let said: String = frames.iter().map(|frame| frame.raw.as_str()).collect();
    assert!(said.contains("it lives"), "{said}");
    let ready = exec(client, &session, "cat /tmp/ready-$(basename /tmp/ready-* | cut -c7-)").await;
    assert_eq!(ready, "made\n");
    assert_eq!(exec(client, &session, "cat env").await, format!("green {session}\n"));
    if can_isolate() {
        assert_eq!(exec(client, &session, "cat who where").await, "1000\n/workspace\n");
        assert_eq!(exec(client, &session, "ls seen 2>/dev/null").await, "", "it saw the host");
    }
    let lines = logs(client, &session).await;
    for wanted in ["install.sh: installing", "install.sh: careful", "install.sh is done"] {
        assert!(lines.iter().any(|line| line.ends_with(wanted)), "{wanted}: {lines:#?}");
    }
    assert!(lines.iter().any(|line| line.ends_with("startup.sh is done")), "{lines:#?}");
    let home = exec(client, &session, "ls -A ~ | grep to-install").await;
    assert_eq!(home, "", "nothing is left of it");
    // What lived in the background ends with its sandbox, and with the server: this is looked at.
    served.end().await;
}

#[tokio::test]
async fn a_script_that_fails_is_told_and_can_be_put_right() {
    let served = Served::start().await;
    let client = &served.client;
    let install = "#!/bin/sh\necho looking\necho 'no such package' >&2\nexit 3\n";
    deploy(client, &[("install.sh", install), ("startup.sh", COUNTED_STARTUP)]).await;
    let refused = client.post("/api/sessions", &json!({ "agent": "coder" })).await;
    assert_eq!(refused.refused(422), "hook_failed");
    let why = "install.sh of the agent exited with 3: no such package";
    assert!(refused.body.contains(why), "{refused:?}");
    let failed = only(client).await;
    assert_eq!(
        (&failed["status"], &failed["error"]["code"]),
        (&json!("error"), &json!("hook_failed"))
    );
    let session = failed["id"].as_str().unwrap().to_owned();
    let lines = logs(client, &session).await;
    assert!(lines.iter().any(|line| line.ends_with("install.sh: looking")), "{lines:#?}");
    let again = client.post(&format!("/api/sessions/{session}/resume"), &json!({})).await;
    assert_eq!(again.refused(422), "hook_failed", "it is run again");
    assert_eq!(counted(&served.dir, &session), (0, 0), "nothing is run after it");

    // Another one is put in its place, and the second fails until it finds what it needs.
    write(client, &session, "install.sh", COUNTED_INSTALL).await;
    let startup = format!("{COUNTED_STARTUP}[ -e needed ]\n");
    write(client, &session, "startup.sh", &startup).await;
    for _ in 0..2 {
        let failed = client.post(&format!("/api/sessions/{session}/resume"), &json!({})).await;
        assert_eq!(failed.refused(422), "hook_failed");
        assert!(failed.body.contains("startup.sh of the agent exited with 1"), "{failed:?}");
    }
    write(client, &session, "needed", "").await;
    act(client, &session, "resume").await;
    assert_eq!(counted(&served.dir, &session), (1, 3), "what is installed is not installed again");
    let said = client.say(&session, "Hello\n/say done").await.all().await;
    assert_eq!(said.last().unwrap().data["stopReason"], "end_turn");
    served.end().await;
}

#[tokio::test]
async fn a_script_that_hangs_is_ended_with_all_it_began() {
    let variables = vec![("ASH_HOOK_TIMEOUT_MS", "400".to_owned())];
    let served = Served::with(With { variables, ..With::default() }).await;
    let client = &served.client;
    let install = "#!/bin/sh\ntrap '' TERM\nsleep 1000 &\necho waiting\nsleep 1000\n";
    deploy(client, &[("install.sh", install), ("startup.sh", COUNTED_STARTUP)]).await;
    let refused = client.post("/api/sessions", &json!({ "agent": "coder" })).await;
    assert_eq!(refused.refused(422), "hook_failed");
    let why = "install.sh of the agent was not done after 400 ms, and was ended: waiting";
    assert!(refused.body.contains(why), "{refused:?}");
    // A message to it is no way around.
    let session = only(client).await["id"].as_str().unwrap().to_owned();
    let path = format!("/api/sessions/{session}/messages");
    let sent = client.post(&path, &json!({ "content": "Hello", "detach": true })).await;
    assert!(sent.status >= 400, "{sent:?}");
    assert_eq!(counted(&served.dir, &session), (0, 0));
    served.end().await;
}

#[tokio::test]
async fn a_session_that_comes_back_starts_up_and_installs_nothing() {
    let served = Served::start().await;
    let client = &served.client;
    deploy(client, &[("install.sh", COUNTED_INSTALL), ("startup.sh", COUNTED_STARTUP)]).await;
    let session = create(client).await;
    assert_eq!(counted(&served.dir, &session), (1, 1));
    act(client, &session, "pause").await;
    act(client, &session, "resume").await;
    assert_eq!(counted(&served.dir, &session), (1, 1), "it is the same sandbox");
    client.say(&session, "Hello\n/say done").await.all().await;
    act(client, &session, "stop").await;
    act(client, &session, "resume").await;
    assert_eq!(counted(&served.dir, &session), (1, 2), "it is another one");

    let fork = client.post(&format!("/api/sessions/{session}/fork"), &json!({})).await.ok();
    let fork = fork["session"]["id"].as_str().unwrap().to_owned();
    act(client, &fork, "resume").await;
    assert_eq!(counted(&served.dir, &fork), (1, 3), "one more than it has itself");

    // Nothing is left of its files: it begins as it began.
    act(client, &session, "stop").await;
    until_async("its files are captured", async || {
        let now = client.get(&format!("/api/sessions/{session}")).await.ok();
        now["session"]["snapshot"].is_object()
    })
    .await;
    fs::remove_dir_all(served.dir.join("data/sandboxes").join(&session)).unwrap();
    fs::remove_dir_all(served.dir.join("data/snapshots")).unwrap();
    let back = act(client, &session, "resume").await;
    assert_eq!(back["resume"]["workspace"], "fresh", "{back}");
    assert_eq!(counted(&served.dir, &session), (1, 1));
    served.end().await;
}

#[tokio::test]
async fn what_is_still_to_be_installed_goes_wherever_the_files_go() {
    let served = Served::start().await;
    let client = &served.client;
    let install = format!("{COUNTED_INSTALL}[ -e needed ]\n");
    deploy(client, &[("install.sh", &install)]).await;
    let refused = client.post("/api/sessions", &json!({ "agent": "coder" })).await;
    assert_eq!(refused.refused(422), "hook_failed");
    let session = only(client).await["id"].as_str().unwrap().to_owned();
    until_async("its files are captured", async || {
        let now = client.get(&format!("/api/sessions/{session}")).await.ok();
        now["session"]["snapshot"].is_object()
    })
    .await;
    fs::remove_dir_all(served.dir.join("data/sandboxes").join(&session)).unwrap();
    let again = client.post(&format!("/api/sessions/{session}/resume"), &json!({})).await;
    assert_eq!(again.refused(422), "hook_failed");
    assert_eq!(counted(&served.dir, &session), (2, 0), "its files came back, and it was still due");
    write(client, &session, "needed", "").await;
    act(client, &session, "resume").await;
    assert_eq!(counted(&served.dir, &session), (3, 0));
    act(client, &session, "stop").await;
    act(client, &session, "resume").await;
    assert_eq!(counted(&served.dir, &session), (3, 0), "it is done");
    served.end().await;
}

#[tokio::test]
async fn a_message_waits_for_the_scripts() {
    let served = Served::start().await;
    let client = &served.client;
    deploy(client, &[("install.sh", HELD_INSTALL)]).await;
    let (session, making) = held(client, &served.dir).await;
    assert_eq!(only(client).await["status"], "starting");
    let path = format!("/api/sessions/{session}/messages");
    let body = json!({ "content": "Look.\n/bash cat installs\n/results", "detach": true });
    let sent = client.post(&path, &body).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    // Meanwhile others are served.
    client.get("/health").await.ok();
    fs::write(workspace(&served.dir, &session).join("go"), "").unwrap();
    let mut follow = client.follow(&session, "after=0").await;
    let mut said = String::new();
    loop {
        let frame = follow.next().await.unwrap();
        said += &frame.raw;
        if frame.event == "done" {
            break;
        }
    }
    assert!(said.contains("once"), "{said}");
    drop(follow);
    making.join_all().await;
    served.end().await;
}

#[tokio::test]
async fn a_session_in_a_sandbox_that_waited_has_its_scripts_run_too() {
    if !can_isolate() {
        eprintln!("not tried: this machine has no sandboxes");
        return;
    }
    let variables = vec![("ASH_MAX_PREWARMED", "2".to_owned())];
    let served = Served::with(With { variables, ..With::default() }).await;
    let client = &served.client;
    deploy(client, &[("install.sh", COUNTED_INSTALL), ("startup.sh", COUNTED_STARTUP)]).await;
    until_async("one waits", async || client.get("/health").await.ok()["pool"]["preWarmed"] == 1)
        .await;
    let session = create(client).await;
    assert_eq!(client.get("/health").await.ok()["pool"]["preWarmHits"], 1);
    assert_eq!(counted(&served.dir, &session), (1, 1));
    assert_eq!(exec(client, &session, "stat -c %u installs").await.trim(), "1000");
    served.end().await;
}

#[tokio::test]
async fn a_server_that_dies_in_the_middle_of_a_script_leaves_it_to_the_next_one() {
    let mut spawned = Spawned::start().await;
    deploy(&spawned.client, &[("install.sh", HELD_INSTALL), ("startup.sh", COUNTED_STARTUP)]).await;
    let (session, making) = held(&spawned.client, spawned.dir.path()).await;
    spawned.kill_and_restart();
    making.join_all().await;
    let client = &spawned.client;
    assert_eq!(only(client).await["status"], "starting");
    fs::write(workspace(spawned.dir.path(), &session).join("go"), "").unwrap();
    until_active(client, &session).await;
    assert_eq!(counted(spawned.dir.path(), &session), (1, 1), "it went on without a server");
    let said = client.say(&session, "Hello\n/say done").await.all().await;
    assert_eq!(said.last().unwrap().data["stopReason"], "end_turn");
    spawned.end().await;
}

#[tokio::test]
async fn a_server_that_dies_with_its_sandbox_in_the_middle_of_a_script_leaves_a_way_out() {
    let mut spawned = Spawned::start().await;
    deploy(&spawned.client, &[("install.sh", HELD_INSTALL), ("startup.sh", COUNTED_STARTUP)]).await;
    let (session, making) = held(&spawned.client, spawned.dir.path()).await;
    spawned.stop();
    making.join_all().await;
    let data = spawned.dir.path().join("data");
    for bridge in bridges_of(&data) {
        kill(bridge);
    }
    until("its sandbox is gone", || bridges_of(&data).is_empty()).await;
    spawned.start_again();
    let client = &spawned.client;
    until_async("the session says what happened", async || only(client).await["status"] == "error")
        .await;
    fs::write(workspace(spawned.dir.path(), &session).join("go"), "").unwrap();
    act(client, &session, "resume").await;
    assert_eq!(counted(spawned.dir.path(), &session), (1, 1));
    spawned.end().await;
}
