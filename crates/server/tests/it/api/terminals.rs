//! The command line on a real terminal: a pseudo-terminal, the real server, and the scripted model.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::served::{agent, session};
use super::spawned::Spawned;

#[path = "../../../src/cli/transcript/emulator.rs"]
mod emulator;

use emulator::Emulator;

/// Reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// `ash` on a terminal of its own.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<Emulator>>,
    changed: Arc<Notify>,
    _reading: JoinSet<()>,
}

impl Terminal {
    fn open(spawned: &Spawned, columns: usize, args: &[&str]) -> Self {
        Self::with(spawned, columns, "xterm-256color", args)
    }

    /// `script` makes the terminal: what is written to it is typed, what it prints is what is seen.
    fn with(spawned: &Spawned, columns: usize, kind: &str, args: &[&str]) -> Self {
        let ash = env!("CARGO_BIN_EXE_ash");
        let words: Vec<String> =
            args.iter().map(|arg| format!("'{}'", arg.replace('\'', r"'\''"))).collect();
        let command = format!("stty cols {columns} rows 24; exec '{ash}' {}", words.join(" "));
        let mut child = Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .current_dir(spawned.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", spawned.dir.path())
            .env("TERM", kind)
            .env("SHELL", "/bin/sh")
            .env("ASH_SERVER_URL", format!("http://{}", spawned.client.address))
            .env("ASH_API_KEY", &spawned.client.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let keys = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(Emulator::new(columns, 24)));
        let changed = Arc::new(Notify::new());
        let mut reading = JoinSet::new();
        let (seen, tell) = (Arc::clone(&screen), Arc::clone(&changed));
        reading.spawn(async move {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut piece).await {
                seen.lock().unwrap().write(&piece[..length]);
                tell.notify_one();
            }
        });
        Self { child, keys, screen, changed, _reading: reading }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().lines().join("\n")
    }

    /// Waits until the screen is so.
    async fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let text = self.text();
                if is_so(&text) {
                    return text;
                }
                self.changed.notified().await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("never {what}:\n{}", self.text()))
    }

    async fn shows(&self, wanted: &str) -> String {
        self.until(wanted, |text| text.contains(wanted)).await
    }

    async fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
        self.keys.flush().await.unwrap();
    }

    /// Waits for its end; returns the exit code, and what is left on the screen.
    async fn end(mut self) -> (i32, String) {
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("it does not end:\n{}", self.text()));
        while self._reading.join_next().await.is_some() {}
        (status.unwrap().code().unwrap(), self.text())
    }
}

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";

#[tokio::test]
async fn a_conversation_is_readable_while_it_goes_on_and_ctrl_c_interrupts_the_turn() {
    let spawned = Spawned::start().await;
    let session = session(&spawned.client).await;
    let mut terminal = Terminal::open(&spawned, 80, &["session", "attach", &session]);
    terminal.shows("· idle").await;
    terminal.type_in("Look around.\r").await;
    terminal.shows("I am a scripted model.").await;
    terminal.shows("· idle · turn 1").await;
    // One that does not end by itself.
    terminal.type_in("/say **One** moment.").await;
    terminal.type_in("\x1b[200~\n/bash touch begun; sleep 1000\x1b[201~\r").await;
    let text = terminal.shows("running bash").await;
    assert!(text.contains("One moment."), "{text}");
    assert!(text.contains("> /say **One** moment."), "{text}");
    terminal.type_in(CTRL_C).await;
    let text = terminal.shows("interrupted · ").await;
    assert!(text.contains("bash touch begun; sleep 1000"), "{text}");
    terminal.shows("· idle · turn 2").await;
    terminal.type_in("And now?\r").await;
    terminal.shows("earlier you said").await;
    terminal.shows("· idle · turn 3").await;
    terminal.type_in(CTRL_D).await;
    let (code, text) = terminal.end().await;
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("· idle"), "the line that says what goes on goes too: {text}");
    spawned.end().await;
}

#[tokio::test]
async fn ctrl_c_twice_leaves_and_the_run_goes_on() {
    let mut spawned = Spawned::start().await;
    let session = session(&spawned.client).await;
    let say = "Go.\n/say begun\n/bash while [ ! -e go ]; do sleep 0.05; done\n/say **ended** well";
    let body = json!({ "content": say, "detach": true });
    let sent = spawned.client.post(&format!("/api/sessions/{session}/messages"), &body).await;
    assert_eq!(sent.status, 202);
    // Nothing but a watcher can leave without a trace: its first Ctrl-C is the last.
    let mut watcher = Terminal::open(&spawned, 40, &["session", "attach", "--read-only", &session]);
    watcher.shows("running bash").await;
    watcher.type_in(CTRL_C).await;
    let (code, text) = watcher.end().await;
    assert_eq!(code, 130, "{text}");
    assert!(text.contains("left; the run goes on"), "{text}");

    // The server is gone for a while; whoever watches sees it, and misses nothing.
    let terminal = Terminal::open(&spawned, 40, &["session", "attach", &session]);
    terminal.shows("running bash").await;
    let port = spawned.client.address.port().to_string();
    spawned.set("ASH_PORT", &port);
    spawned.stop();
    terminal.shows("reconnecting").await;
    spawned.start_again();
    let workspace = spawned.dir.path().join("data/sandboxes").join(&session).join("workspace");
    std::fs::write(workspace.join("go"), "").unwrap();
    let text = terminal.shows("ended well").await;
    assert_eq!(text.matches("begun").count(), 2, "the prompt and the answer, once: {text}");
    assert_eq!(text.matches("ended well").count(), 1, "{text}");
    let mut terminal = terminal;
    terminal.shows("· idle").await;
    terminal.type_in(CTRL_C).await;
    terminal.shows("Ctrl-C again").await;
    terminal.type_in(CTRL_C).await;
    let (code, text) = terminal.end().await;
    assert_eq!(code, 130);
    let flat = text.replace('\n', "");
    assert!(flat.contains(&format!("come back with: ash session attach {session}")), "{text}");
    spawned.end().await;
}

#[tokio::test]
async fn the_second_ctrl_c_leaves_also_when_the_turn_is_over_by_then() {
    let spawned = Spawned::start().await;
    let session = session(&spawned.client).await;
    let mut terminal = Terminal::open(&spawned, 80, &["session", "attach", &session]);
    terminal.shows("· idle").await;
    terminal.type_in("/bash sleep 1000\r").await;
    terminal.shows("running bash").await;
    terminal.type_in(CTRL_C).await;
    terminal.shows("interrupted · ").await;
    terminal.shows("· idle · turn 1").await;
    terminal.type_in(CTRL_C).await;
    let (code, text) = terminal.end().await;
    assert_eq!(code, 130, "{text}");
    assert!(!text.contains("Ctrl-C again"), "{text}");
    spawned.end().await;
}

#[tokio::test]
async fn whoever_waits_behind_another_run_cuts_only_his_own() {
    let spawned = Spawned::start().await;
    let (client, session) = (&spawned.client, session(&spawned.client).await);
    let theirs = json!({ "content": "/bash sleep 1000", "detach": true });
    client.post(&format!("/api/sessions/{session}/messages"), &theirs).await;
    let mut chat = Terminal::open(&spawned, 80, &["chat", "coder", "/say Mine.", "-s", &session]);
    chat.shows("waiting for").await;
    chat.type_in(CTRL_C).await;
    let (code, text) = chat.end().await;
    assert_eq!(code, 130, "{text}");
    assert!(text.contains("cut: by Ctrl-C") && !text.contains("Mine."), "{text}");
    let runs = client.get(&format!("/api/sessions/{session}/runs")).await.ok();
    let mut status: Vec<_> = runs["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["status"].as_str().unwrap())
        .collect();
    status.sort_unstable();
    assert_eq!(status, ["cancelled", "running"], "{runs}");
    client.post(&format!("/api/sessions/{session}/interrupt"), &json!({})).await.ok();
    spawned.end().await;
}

#[tokio::test]
async fn ctrl_c_while_a_session_is_made_leaves_none_behind() {
    let spawned = Spawned::start().await;
    let client = &spawned.client;
    let file = |path: &str, content: &str| json!({ "path": path, "content": BASE64_STANDARD.encode(content) });
    let held = file("install.sh", "until test -e go; do sleep 0.05; done");
    let files = [file("CLAUDE.md", "You are tested."), held];
    client.post("/api/agents", &json!({ "name": "held", "files": files })).await.ok();
    let mut chat = Terminal::open(&spawned, 100, &["chat", "held", "hello"]);
    let made = chat.until("it is made", |text| text.contains("starting"));
    made.await;
    let session = loop {
        let list = client.get("/api/sessions").await.ok();
        if let Some(id) = list["sessions"][0]["id"].as_str() {
            break id.to_owned();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    chat.type_in(CTRL_C).await;
    chat.shows("as soon as it is there").await;
    let go = spawned.dir.path().join("data/sandboxes").join(&session).join("workspace/go");
    // The workspace is made before the script is run.
    while std::fs::write(&go, "").is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (code, text) = chat.end().await;
    assert_eq!(code, 130, "{text}");
    assert!(text.contains(&format!("session {session} has ended")), "{text}");
    let session = client.get(&format!("/api/sessions/{session}")).await.ok();
    assert_eq!(session["session"]["status"], "ended");
    spawned.end().await;
}

#[tokio::test]
async fn a_terminal_that_knows_no_escapes_and_a_pipe_get_plain_text() {
    let spawned = Spawned::start().await;
    let session = session(&spawned.client).await;
    let say = "/say # Title";
    let dumb = Terminal::with(&spawned, 80, "dumb", &["session", "send", &session, say]);
    let (code, text) = dumb.end().await;
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("# Title\nend_turn · "), "{text}");
    let piped = Command::new(env!("CARGO_BIN_EXE_ash"))
        .args(["session", "attach", "--no-follow", &session])
        .env_clear()
        .env("HOME", spawned.dir.path())
        .env("ASH_SERVER_URL", format!("http://{}", spawned.client.address))
        .env("ASH_API_KEY", &spawned.client.key)
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), "# Title\n");
    assert_eq!(piped.status.code(), Some(0));
    spawned.end().await;
}

#[tokio::test]
async fn a_question_is_answered_on_the_terminal() {
    let spawned = Spawned::start().await;
    agent(&spawned.client, "coder").await;
    let body = json!({ "agent": "coder", "permissionMode": "default" });
    let created = spawned.client.post("/api/sessions", &body).await.ok();
    let session = created["session"]["id"].as_str().unwrap().to_owned();
    let say = "Go.\n/bash touch asked\n/say it is done";
    let mut terminal = Terminal::open(&spawned, 80, &["session", "send", &session, say]);
    terminal.shows("waiting for permission: y or n").await;
    terminal.type_in("perhaps\r").await;
    terminal.shows("y or n?").await;
    terminal.type_in("y\r").await;
    let (code, text) = terminal.end().await;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("? bash touch asked") && text.contains("it is done"), "{text}");
    assert!(text.contains("✓ bash touch asked"), "{text}");
    spawned.end().await;
}

#[tokio::test]
async fn a_narrow_terminal_has_whole_columns_and_whoever_leaves_is_told_once_where_to() {
    let spawned = Spawned::start().await;
    agent(&spawned.client, "coder").await;
    let mut chat = Terminal::open(&spawned, 100, &["chat", "coder"]);
    chat.shows("· idle").await;
    chat.type_in(CTRL_C).await;
    chat.shows("Ctrl-C again").await;
    chat.type_in(CTRL_C).await;
    let (code, text) = chat.end().await;
    assert_eq!(code, 130, "{text}");
    assert!(text.contains("come back with: ash session attach"), "{text}");
    assert!(!text.contains("go on with"), "{text}");
    for (columns, headings) in [(40, "ID                  AGENT  STATE"), (100, "TOKENS  COST")] {
        let (code, text) = Terminal::open(&spawned, columns, &["ps"]).end().await;
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(headings) && !text.contains('…'), "{columns}: {text}");
        assert!(text.contains("coder  active"), "{columns}: {text}");
    }
    spawned.end().await;
}

#[tokio::test]
async fn what_was_said_in_a_session_that_has_ended_is_shown_whole() {
    let spawned = Spawned::start().await;
    let session = session(&spawned.client).await;
    for word in ["heron", "stork"] {
        spawned.client.say(&session, &format!("Hello.\n/say A {word}.")).await.all().await;
    }
    spawned.client.delete(&format!("/api/sessions/{session}")).await.ok();
    for (args, is_first_shown) in [
        (&["session", "attach", &session, "--from", "start"][..], true),
        (&["session", "attach", &session][..], false),
        (&["session", "attach", "--no-follow", &session][..], false),
        (&["chat", "coder", "-s", &session][..], false),
    ] {
        let (code, text) = Terminal::open(&spawned, 80, args).end().await;
        assert_eq!(code, 0, "{args:?}: {text}");
        let shown = ["A heron.", "A stork.", "the session has ended", "go on with"]
            .map(|words| text.contains(words));
        assert_eq!(shown, [is_first_shown, true, true, false], "{args:?}: {text}");
    }
    spawned.end().await;
}
