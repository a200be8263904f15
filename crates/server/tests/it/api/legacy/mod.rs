//! A program that speaks the original's bridge protocol, in a sandbox: what existing clients see of it, and what becomes of its
//! memory. `bridge.mjs` beside this is such a program.

mod strange;
mod told;

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::client::{Client, Frame};
use super::served::{Served, With};
use super::spawned::Spawned;
use crate::world::{KEY, can_isolate, kill, processes_mentioning, until};

/// The program, in a directory of its own that sandboxes do not see by themselves.
struct Program(tempfile::TempDir);

impl Program {
    /// Nothing, where there is no Node.
    fn new() -> Option<Self> {
        let node = Command::new("node").arg("--version").output();
        if !node.is_ok_and(|node| node.status.success()) {
            eprintln!("not tried: there is no Node");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let this = Self(dir);
        std::fs::create_dir_all(this.entry().parent().unwrap()).unwrap();
        std::fs::create_dir(this.0.path().join("app/node_modules")).unwrap();
        std::fs::write(this.entry(), include_bytes!("bridge.mjs")).unwrap();
        for path in ["app", "app/dist", "app/node_modules", "app/dist/bridge.mjs"] {
            // Everybody could write there, if it was not shown read-only.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(this.0.path().join(path), mode).unwrap();
        }
        Some(this)
    }

    fn entry(&self) -> PathBuf {
        self.0.path().join("app/dist/bridge.mjs")
    }

    fn setting(&self) -> (&'static str, String) {
        ("ASH_BRIDGE_ENTRY", self.entry().display().to_string())
    }

    async fn served(&self) -> Served {
        let variables = vec![self.setting(), ("ASH_REAL_SDK", "0".to_owned())];
        Served::with(With { variables, ..With::default() }).await
    }

    async fn spawned(&self) -> Spawned {
        let (name, entry) = self.setting();
        Spawned::with(&[(name, &entry)]).await
    }
}

async fn send(client: &Client, session: &str, body: Value) -> Vec<Frame> {
    let path = format!("/api/sessions/{session}/messages");
    client.open("POST", &path, &[], Some(&body)).await.all().await
}

async fn say(client: &Client, session: &str, text: &str) -> Vec<Frame> {
    send(client, session, json!({ "content": text })).await
}

/// What the agent said in whole messages.
fn answer(frames: &[Frame]) -> String {
    let messages = frames.iter().filter(|frame| frame.event == "message");
    let texts = messages.filter(|frame| frame.data["type"] == "assistant");
    let text =
        |frame: &Frame| frame.data["message"]["content"][0]["text"].as_str().map(str::to_owned);
    texts.filter_map(text).collect::<Vec<_>>().join("\n")
}

fn status(frames: &[Frame]) -> &str {
    frames.last().unwrap().data["status"].as_str().unwrap()
}

fn named<'a>(frames: &'a [Frame], event: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame.event == event).map(|frame| &frame.data).collect()
}

/// Names of frames that existing clients know, in order.
fn known(frames: &[Frame]) -> Vec<String> {
    let ours = ["prompt", "run_started", "phase", "transcript", "notice", "run_queued"];
    let shown = frames.iter().filter(|frame| !ours.contains(&frame.event.as_str()));
    shown.map(|frame| frame.event.clone()).collect()
}

/// The processes of the program.
fn programs(program: &Program) -> Vec<u32> {
    let all = processes_mentioning("bridge.mjs".as_ref());
    let own = std::process::id();
    let is_of = |pid: &u32| {
        let root = format!("/proc/{pid}/root/run/ash/shared/legacy/tree/dist/bridge.mjs");
        let inode = |path: &Path| {
            std::fs::metadata(path).ok().map(|of| std::os::unix::fs::MetadataExt::ino(&of))
        };
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let is_named =
            String::from_utf8_lossy(&command).contains(&*program.entry().to_string_lossy());
        is_named || inode(Path::new(&root)) == inode(&program.entry())
    };
    let is_node = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.contains("node"))
    };
    all.into_iter().filter(|pid| *pid != own && is_node(pid) && is_of(pid)).collect()
}

#[tokio::test]
async fn the_stream_is_what_existing_clients_know() {
    let Some(program) = Program::new() else { return };
    let served = program.served().await;
    let client = &served.client;
    let session = served.session().await;
    let shown = client.get(&format!("/api/sessions/{session}")).await.ok();
    assert_eq!(shown["session"]["config"]["runtime"], "legacy", "the setting makes it the default");

    let told = say(client, &session, "Hello").await;
    assert_eq!(
        known(&told),
        ["session_start", "message", "turn_complete", "message", "done"],
        "{told:#?}"
    );
    assert_eq!(answer(&told), "Turn 1: Hello");
    assert_eq!(named(&told, "turn_complete")[0]["result"], "Answer to: Hello");
    let result = named(&told, "message")[1];
    assert_eq!((&result["type"], &result["session_id"]), (&json!("result"), &json!(session)));
    let done = &told.last().unwrap().data;
    assert_eq!((&done["sessionId"], &done["stopReason"]), (&json!(session), &json!("end_turn")));
    assert_eq!(done["usage"]["inputTokens"], 10, "{done}");
    assert_eq!(done["usage"]["costUsd"], 0.25, "{done}");

    // The same program hears the second message, whose cost is its own.
    let told = say(client, &session, "/memory").await;
    assert_eq!(answer(&told), "Hello | /memory");
    assert_eq!(told.last().unwrap().data["usage"]["costUsd"], 0.25);

    // Pieces only for who asks for them.
    let told = say(client, &session, "/pieces").await;
    assert_eq!(known(&told), ["session_start", "message", "turn_complete", "message", "done"]);
    let body = json!({ "content": "/pieces", "includePartialMessages": true });
    let told = send(client, &session, body).await;
    assert_eq!(
        known(&told),
        [
            "session_start",
            "message",
            "text_delta",
            "message",
            "text_delta",
            "message",
            "message",
            "message",
            "turn_complete",
            "message",
            "done",
        ]
    );
    assert_eq!(named(&told, "text_delta")[1]["delta"], "two");

    let told = say(client, &session, "/tool").await;
    assert_eq!(
        known(&told),
        [
            "session_start",
            "message",
            "tool_use",
            "message",
            "tool_result",
            "message",
            "message",
            "turn_complete",
            "message",
            "done",
        ]
    );
    assert_eq!(named(&told, "tool_use")[0]["name"], "Bash");
    assert_eq!(named(&told, "tool_result")[0]["content"], "a.txt");

    // What is listed is what was said.
    let listed = client.get(&format!("/api/sessions/{session}/messages")).await.ok();
    let messages = listed["messages"].as_array().unwrap();
    let kinds: Vec<String> = messages
        .iter()
        .map(|message| serde_json::from_str::<Value>(message["content"].as_str().unwrap()).unwrap())
        .map(|message| message["type"].as_str().unwrap().to_owned())
        .collect();
    let turn = ["user", "assistant", "result"];
    let expected = [&turn[..], &turn, &turn, &turn, &["user", "assistant", "assistant", "result"]];
    assert_eq!(kinds, expected.concat());
    served.end().await;
}

#[tokio::test]
async fn it_has_the_original_s_environment_and_no_key() {
    let Some(program) = Program::new() else { return };
    let served = program.served().await;
    let client = &served.client;
    super::served::agent(client, "coder").await;
    let create = json!({
        "agent": "coder", "permissionMode": "acceptEdits", "allowedTools": ["Read"], "betas": ["b1"],
        "initialAgent": "first", "subagents": { "first": { "description": "d" } },
        "extraEnv": { "MINE": "1" }, "systemPrompt": "Speak in rhymes.",
    });
    let made = client.post("/api/sessions", &create).await.ok();
    let session = made["session"]["id"].as_str().unwrap().to_owned();

    let told = say(client, &session, "/env").await;
    let env: Value = serde_json::from_str(&answer(&told)).unwrap();
    let workspace =
        if can_isolate() { json!("/workspace") } else { env["ASH_WORKSPACE_DIR"].clone() };
    for (name, value) in [
        ("ASH_WORKSPACE_DIR", &workspace),
        ("ASH_AGENT_DIR", &workspace),
        ("ASH_SESSION_ID", &json!(session)),
        ("ASH_SANDBOX_ID", &json!(session)),
        ("ASH_PERMISSION_MODE", &json!("acceptEdits")),
        ("ASH_REAL_SDK", &json!("0")),
        ("MINE", &json!("1")),
    ] {
        assert_eq!(&env[name], value, "{name}");
    }
    assert!(env["ASH_BRIDGE_SOCKET"].as_str().unwrap().len() < 100);
    assert!(env["ANTHROPIC_BASE_URL"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    assert!(!env.to_string().contains(KEY), "the key is nowhere inside");
    for pid in programs(&program) {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environment).contains(KEY));
    }
    // The proxy adds it outside.
    let told = say(client, &session, "/model hello").await;
    assert_eq!(answer(&told), "from the model", "{told:#?}");

    let body = json!({
        "content": "/options", "model": "m2", "maxTurns": 7, "effort": "high",
        "thinking": { "type": "adaptive" }, "outputFormat": { "type": "json_schema", "schema": {} },
        "disallowedTools": ["Bash"], "maxBudgetUsd": 2.5,
    });
    let told = send(client, &session, body).await;
    let query: Value = serde_json::from_str(&answer(&told)).unwrap();
    let expected = json!({
        "cmd": "query", "sessionId": session, "model": "m2", "maxTurns": 7, "effort": "high",
        "thinking": { "type": "adaptive" }, "outputFormat": { "type": "json_schema", "schema": {} },
        "allowedTools": ["Read"], "disallowedTools": ["Bash"], "betas": ["b1"], "maxBudgetUsd": 2.5,
        "initialAgent": "first", "subagents": { "first": { "description": "d" } },
    });
    assert_eq!(query, expected);
    // A model that nobody chose is the program's affair.
    let query: Value =
        serde_json::from_str(&answer(&say(client, &session, "/options").await)).unwrap();
    assert_eq!((&query["cmd"], query.get("model")), (&json!("query"), None), "{query}");
    // What the session says of itself did not come with the first message.
    let told = say(client, &session, "/memory").await;
    assert!(answer(&told).starts_with("/env | "), "{}", answer(&told));

    if can_isolate() {
        let told = say(client, &session, "/files").await;
        let found: Value = serde_json::from_str(&answer(&told)).unwrap();
        assert_eq!(found["argv"][1], "/run/ash/shared/legacy/tree/dist/bridge.mjs");
        let exec = format!("/api/sessions/{session}/exec");
        let command =
            "ls /run/ash/shared/legacy/tree; echo x >> /run/ash/shared/legacy/tree/dist/bridge.mjs";
        let ran = client.post(&exec, &json!({ "command": command })).await.ok();
        assert_eq!(ran["stdout"], "dist\nnode_modules\n", "{ran}");
        assert!(ran["stderr"].as_str().unwrap().contains("Read-only"), "{ran}");
    }
    served.end().await;
}

#[tokio::test]
async fn it_is_interrupted_frozen_and_killed_and_goes_on() {
    let Some(program) = Program::new() else { return };
    let mut spawned = program.spawned().await;
    let client = spawned.client.clone();
    let session = super::served::session(&client).await;
    let path = |what: &str| format!("/api/sessions/{session}/{what}");
    say(&client, &session, "The codeword is PLUM.").await;

    // Interrupted, it obeys, and remembers.
    let mut watched = client.say(&session, "/wait").await;
    watched.until("message").await;
    client.post(&path("interrupt"), &json!({})).await.ok();
    let told = watched.all().await;
    assert_eq!(told.last().unwrap().data["stopReason"], "interrupted", "{told:#?}");
    assert!(answer(&say(&client, &session, "/memory").await).contains("PLUM"));

    // Frozen in the middle of a turn, which goes on; the server is killed meanwhile.
    let mut watched = client.say(&session, "/wait").await;
    watched.until("message").await;
    client.post(&path("pause"), &json!({})).await.ok();
    spawned.kill_and_restart();
    let client = spawned.client.clone();
    let back = client.post(&path("resume"), &json!({})).await.ok();
    assert_eq!(back["resume"]["path"], "warm", "{back}");
    assert_eq!(back["resume"]["conversation"]["native"], "intact", "{back}");
    client.post(&path("exec"), &json!({ "command": "touch go" })).await.ok();
    let mut log = client.follow(&session, "after=0").await;
    let went_on = loop {
        let frame = log.next().await.expect("the turn goes on");
        if frame.event == "turn_complete" && frame.data["result"] == "went on" {
            break frame;
        }
    };
    assert!(went_on.data["runId"].is_string());
    let told = say(&client, &session, "/memory").await;
    assert!(answer(&told).contains("PLUM"), "the same program: {}", answer(&told));
    assert!(named(&told, "conversation_lost").is_empty());

    // A new sandbox has a new program, which knows what it is told, and nobody claims more.
    client.post(&path("stop"), &json!({})).await.ok();
    let back = client.post(&path("resume"), &json!({})).await.ok();
    let conversation = &back["resume"]["conversation"];
    assert_eq!(back["resume"]["path"], "cold", "{back}");
    assert_eq!(
        (&conversation["native"], &conversation["turns"]),
        (&json!("lost"), &json!(0)),
        "{back}"
    );
    assert_eq!(back["resume"]["workspace"], "kept", "{back}");
    let events = client.get(&path("events?limit=1000&type=all")).await.ok();
    assert!(events.to_string().contains("context_lost"));
    let told = say(&client, &session, "/memory").await;
    assert!(answer(&told).contains("The person: The codeword is PLUM."), "{}", answer(&told));
    assert!(answer(&told).contains("started anew"), "{}", answer(&told));
    assert_eq!(named(&told, "conversation_lost").len(), 1, "{told:#?}");
    let told = say(&client, &session, "/memory").await;
    assert_eq!(
        answer(&told).matches("started anew").count(),
        2,
        "it was told once: by the server, and by the bridge"
    );
    assert!(named(&told, "conversation_lost").is_empty());

    // Its files and its record are gone: what is in the log is told.
    client.post(&path("stop"), &json!({})).await.ok();
    let place = spawned.dir.path().join("data/sandboxes").join(&session);
    // Whoever captures it may put something there at this moment.
    until("its files are gone", || std::fs::remove_dir_all(&place).is_ok()).await;
    let back = client.post(&path("resume"), &json!({})).await.ok();
    assert_eq!(back["resume"]["conversation"]["native"], "lost", "{back}");
    let told = say(&client, &session, "/memory").await;
    assert!(answer(&told).contains("The person: The codeword is PLUM."), "{}", answer(&told));

    // Killed while it does nothing, and in the middle of a turn.
    let [pid] = programs(&program)[..] else { panic!("one program: {:?}", programs(&program)) };
    kill(pid);
    until("it is gone", || !programs(&program).contains(&pid)).await;
    let told = say(&client, &session, "/memory").await;
    assert_eq!(status(&told), "completed", "{told:#?}");
    assert!(answer(&told).contains("The person: The codeword is PLUM."), "{}", answer(&told));
    assert_eq!(named(&told, "conversation_lost").len(), 1);
    client.post(&path("exec"), &json!({ "command": "rm -f go" })).await.ok();
    let mut watched = client.say(&session, "/wait").await;
    watched.until("message").await;
    let [pid] = programs(&program)[..] else { panic!("one program: {:?}", programs(&program)) };
    kill(pid);
    let told = watched.all().await;
    assert_eq!(status(&told), "failed", "{told:#?}");
    let why = named(&told, "error")[0];
    assert_eq!(why["code"], "agent_failed");
    assert!(why["error"].as_str().unwrap().contains("signal 9"), "{why}");
    let told = say(&client, &session, "/memory").await;
    assert!(answer(&told).contains("cut off before it finished"), "{}", answer(&told));
    client.delete(&format!("/api/sessions/{session}")).await.ok();
    until("nothing is left", || programs(&program).is_empty()).await;
    spawned.end().await;
}

#[tokio::test]
async fn an_agent_can_bring_its_own_program() {
    let Some(program) = Program::new() else { return };
    let served = Served::start().await;
    let client = &served.client;
    let content = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    let manifest = "runtime = \"legacy\"\ncommand = [\"node\", \"bridge.mjs\"]\n";
    let files = json!([
        { "path": "CLAUDE.md", "content": content(b"You are tested.") },
        { "path": "ash.toml", "content": content(manifest.as_bytes()) },
        { "path": "bridge.mjs", "content": content(&std::fs::read(program.entry()).unwrap()) },
    ]);
    let deployed = client.post("/api/agents", &json!({ "name": "own", "files": files })).await.ok();
    assert_eq!(deployed["agent"]["problem"], Value::Null, "{deployed}");
    let made = client.post("/api/sessions", &json!({ "agent": "own" })).await.ok();
    let session = made["session"]["id"].as_str().unwrap();
    let told = say(client, session, "Hello").await;
    assert_eq!(answer(&told), "Turn 1: Hello", "{told:#?}");
    served.end().await;
}
