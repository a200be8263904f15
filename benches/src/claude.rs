//! The real Claude Code: what its start costs, and what is left of that for whoever sends a message.
//!
//! It is installed from the registry first, by our own command; without one this part is left out, and says so.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::figures::{Figures, heading};
use crate::model::{Model, Pace};
use crate::sandbox::{Server, create, print_load};
use crate::server::client::{self, Client};

const ROUNDS: usize = 15;

/// How long the program is given to come up, where its start is not to be measured.
const COME_UP: Duration = Duration::from_secs(4);

pub(crate) fn measure() {
    heading("Claude Code: its own start, and the first message of a session");
    let directory = tempfile::tempdir_in(".").expect("there is room");
    let data = directory.path().join("data");
    let Some(program) = install(&data) else { return };
    print_load();
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    runtime.block_on(run(directory.path(), &program));
}

fn install(data: &Path) -> Option<PathBuf> {
    let ash = std::env::current_exe().expect("this program has a path").with_file_name("ash");
    let installed = Command::new(ash)
        .args(["--json", "agent-runtime", "install", "claude", "--data-dir"])
        .arg(data)
        .output()
        .expect("ash is built");
    if !installed.status.success() {
        let why = String::from_utf8_lossy(&installed.stderr).into_owned();
        println!("not measured: Claude Code is not here, and cannot be had: {}", why.trim());
        return None;
    }
    let shown: serde_json::Value = serde_json::from_slice(&installed.stdout).expect("it is JSON");
    Some(shown["path"].as_str().expect("it has a path").into())
}

async fn run(directory: &Path, program: &Path) {
    let model = Model::start(Pace { deltas: 1, apart: Duration::ZERO }).await;
    let server = Server::with_model(directory, &model.base_url()).await;
    let mut client = server.client().await;
    deploy(&mut client, directory).await;
    let (mut bare, mut at_once, mut later, mut resumed, mut second) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // The first is not counted: it reads the program from the disk.
    for round in 0..=ROUNDS {
        let started = tokio::task::block_in_place(|| bare_start(program, directory));
        let begin = Instant::now();
        let session = create(&mut client, "claude").await;
        first_text(&server, &session).await;
        let hurried = begin.elapsed();
        let waited = create(&mut client, "claude").await;
        tokio::time::sleep(COME_UP).await;
        let warm = first_text(&server, &waited).await;
        let again = first_text(&server, &waited).await;
        client.json(&client::post(&format!("/api/sessions/{waited}/stop"), "{}")).await;
        let begin = Instant::now();
        client.json(&client::post(&format!("/api/sessions/{waited}/resume"), "{}")).await;
        first_text(&server, &waited).await;
        let cold = begin.elapsed();
        if round > 0 {
            bare.push(started);
            at_once.push(hurried);
            later.push(warm);
            second.push(again);
            resumed.push(cold);
        }
        for session in [session, waited] {
            client.json(&client::delete(&format!("/api/sessions/{session}"))).await;
        }
    }
    let bare = Figures::one_by_one(bare);
    bare.print_least("its own start, to its first answer, no sandbox");
    let show = |what: &str, took| {
        let took = Figures::one_by_one(took);
        took.print_least(what);
        let ratio = took.p50().as_secs_f64() / bare.p50().as_secs_f64();
        println!("  {ratio:.2}x of its own start");
    };
    show("create and a message at once, to the first text", at_once);
    show("a message to a session that waits, to the first text", later);
    show("the second message, to the first text", second);
    show("cold resume and a message, to the first text", resumed);
}

async fn deploy(client: &mut Client, directory: &Path) {
    let agent = directory.join("claude-agent");
    std::fs::create_dir(&agent).expect("there is room");
    std::fs::write(agent.join("CLAUDE.md"), "Say something.\n").expect("there is room");
    std::fs::write(agent.join("ash.toml"), "runtime = \"claude\"\nprewarm = 0\n")
        .expect("there is room");
    let deploy = json!({ "name": "claude", "path": agent }).to_string();
    client.ask(&client::post("/api/agents", &deploy)).await;
}

/// How long a message takes until the first text of its answer is there.
async fn first_text(server: &Server, session: &str) -> Duration {
    let mut client = server.client().await;
    let begin = Instant::now();
    client.open(&client::send(session)).await;
    let mut first = None;
    while let Some(event) = client.event().await {
        if event.name == "text_delta" {
            first = first.or(Some(begin.elapsed()));
        }
        if event.name == "done" {
            return first.expect("it has answered");
        }
    }
    panic!("the stream ended before the run");
}

/// How long the program takes until it answers, with nothing around it.
fn bare_start(program: &Path, directory: &Path) -> Duration {
    let home = directory.join("bare");
    std::fs::create_dir_all(&home).expect("there is room");
    let begin = Instant::now();
    let mut child = Command::new(program)
        .args(["--output-format=stream-json", "--input-format=stream-json", "--verbose"])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", &home)
        .env("CLAUDE_CONFIG_DIR", home.join(".claude"))
        .env("ANTHROPIC_API_KEY", "none")
        .env("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .current_dir(&home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it was installed");
    let ask = json!({ "type": "control_request", "request_id": "1", "request": { "subtype": "initialize", "hooks": null } });
    let mut stdin = child.stdin.take().expect("it is piped");
    writeln!(stdin, "{ask}").expect("it listens");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped"))
        .read_line(&mut line)
        .expect("it talks");
    let took = begin.elapsed();
    drop(stdin);
    child.wait().expect("it is ours");
    took
}
