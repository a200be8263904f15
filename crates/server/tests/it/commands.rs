//! The commands that talk to a server, as a person and a script meet them.

use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, Command};

use crate::fake::{Answer, Asked, Fake, frame, problem};

const ASH: &str = env!("CARGO_BIN_EXE_ash");
pub(crate) const ID: &str = "0192aaaa-0000-7000-8000-000000000001";
const TWIN: &str = "0192aaaa-0000-7000-8000-000000000002";

/// A machine of its own: no settings, no keys.
pub(crate) struct Machine {
    pub(crate) home: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(ASH);
        command.args(args).env_clear().env("HOME", self.home.path());
        command.current_dir(self.home.path()).kill_on_drop(true);
        command.stdin(Stdio::null());
        command
    }

    pub(crate) async fn ash(&self, fake: &Fake, args: &[&str]) -> Output {
        let mut command = self.command(args);
        command.env("ASH_SERVER_URL", fake.url()).env("ASH_API_KEY", "k").output().await.unwrap()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn session(id: &str) -> Value {
    json!({
        "id": id, "tenantId": "default", "agentName": "helper", "agentVersion": 1, "sandboxId": id,
        "status": "active", "createdAt": "2026-11-16T08:15:30.250Z",
        "lastActiveAt": "2026-11-16T08:15:30.250Z", "runnerId": null, "parentSessionId": null,
        "model": null, "config": {}, "title": null, "metadata": {}, "activity": "idle",
        "incarnation": 1, "pauseReason": null, "error": null, "lastSeq": 3, "logEpoch": 1,
        "turns": 2, "queued": 0, "expiresAt": null, "snapshot": null, "cloudSeq": null,
        "isolation": "none",
    })
}

fn sessions(ids: &[&str]) -> Answer {
    let sessions: Vec<Value> = ids.iter().map(|id| session(id)).collect();
    Answer::Json(200, json!({ "sessions": sessions, "nextCursor": null }))
}

/// A stream of one answer.
pub(crate) fn answer(stop_reason: &str, status: &str) -> Answer {
    let run = "0192aaaa-0000-7000-8000-00000000000a";
    let with = |mut data: Value| {
        data["runId"] = json!(run);
        data
    };
    Answer::Stream(
        frame("", "session_start", &json!({"sessionId": ID}))
            + &frame("1-1", "run_started", &with(json!({"turn": 1})))
            + &frame("1-2", "text_delta", &with(json!({"delta": "cut"})))
            + &frame("1-3", "run_retry", &with(json!({"round": 1, "discardAfterSeq": 1})))
            + &frame("1-4", "text_delta", &with(json!({"delta": "whole"})))
            + &frame("1-5", "done", &with(json!({"stopReason": stop_reason, "status": status}))),
    )
}

#[tokio::test]
async fn without_a_server_it_says_how_to_start_one() {
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let machine = Machine::new();
    let output =
        machine.command(&["health"]).env("ASH_PORT", port.to_string()).output().await.unwrap();
    assert_eq!(output.status.code(), Some(3));
    let told = text(&output.stderr);
    let expected = format!("error: no Ash server answers at http://127.0.0.1:{port}\n");
    assert!(told.starts_with(&expected), "{told}");
    assert!(told.ends_with("hint: start one with: ash serve\n"), "{told}");
    assert!(output.stdout.is_empty());
}

#[tokio::test]
async fn on_the_machine_of_the_server_the_key_is_found() {
    let fake = Fake::start(|_, _| Answer::Json(200, json!({ "agents": [] }))).await;
    let machine = Machine::new();
    let data = machine.home.path().join("somewhere");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::write(data.join("initial-api-key"), "found-key\n").unwrap();
    let servers = machine.home.path().join(".ash/servers");
    std::fs::create_dir_all(&servers).unwrap();
    let port = fake.addr.port();
    let running = json!({ "url": fake.url(), "dataDir": data, "pid": 1 });
    std::fs::write(servers.join(format!("{port}.json")), running.to_string()).unwrap();
    let mut command = machine.command(&["agent", "list", "--json"]);
    let output = command.env("ASH_PORT", port.to_string()).output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fake.asked()[0].header("authorization"), Some("Bearer found-key"));
}

#[tokio::test]
async fn every_refusal_has_its_exit_code() {
    let cases = [(400, 5), (401, 6), (404, 4), (409, 5), (410, 5), (500, 1)];
    for (status, code) in cases {
        let fake = Fake::start(move |_, _| problem(status, "some_code", "it cannot be")).await;
        let output = Machine::new().ash(&fake, &["session", "stop", ID]).await;
        assert_eq!(output.status.code(), Some(code), "{status}");
        assert!(text(&output.stderr).starts_with("error: it cannot be\n"));
    }
}

#[tokio::test]
async fn an_error_is_json_for_those_who_want_json() {
    let fake = Fake::start(|_, _| problem(404, "not_found", "Session not found")).await;
    let output = Machine::new().ash(&fake, &["--json", "session", "show", ID]).await;
    assert_eq!(output.status.code(), Some(4));
    let told: Value = serde_json::from_slice(&output.stderr).unwrap();
    let expected = json!({
        "error": "Session not found", "causes": [], "code": "not_found", "statusCode": 404,
        "hint": "ash session list and ash agent list show what there is", "exitCode": 4,
        "retryable": false, "requestId": "r-1",
    });
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_rewind_wants_a_yes_where_nobody_can_be_asked() {
    let rewound = json!({ "session": session(ID), "changes": { "added": 0, "modified": 1_002, "removed": 0 }});
    let fake = Fake::start(move |_, _| Answer::Json(200, rewound.clone())).await;
    let machine = Machine::new();
    let output = machine.ash(&fake, &["session", "rewind", ID, "--turn", "1"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--yes"), "{output:?}");
    assert!(fake.lines().is_empty(), "nothing was asked");
    let output = machine.ash(&fake, &["session", "rewind", ID, "--turn", "1", "--yes"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("1,002 files: 0 added, 1,002 modified"), "{output:?}");
    assert_eq!(fake.asked()[0].json(), json!({ "turn": 1, "dryRun": false }));
}

#[tokio::test]
async fn what_is_in_the_way_of_a_rewind_or_an_import_is_told_with_what_to_do() {
    let told = async |status, code: &'static str, args: &[&str]| {
        let fake = Fake::start(move |_, _| problem(status, code, "it cannot be")).await;
        text(&Machine::new().ash(&fake, args).await.stderr)
    };
    let rewind = ["session", "rewind", ID, "--turn", "1", "--yes"];
    let said = told(409, "run_in_progress", &rewind).await;
    assert!(said.contains("ash session resume") && !said.contains("--if-busy"), "{said}");
    let said = told(410, "snapshot_expired", &rewind).await;
    assert!(said.contains("ash session snapshots") && !said.contains("begin another"), "{said}");
    let said = told(404, "not_found", &["session", "import", ID]).await;
    assert!(said.contains("ash session import --list"), "{said}");
    let said = told(404, "no_cloud", &["session", "import", ID]).await;
    assert!(said.contains("ASH_SNAPSHOT_URL"), "{said}");
}

#[tokio::test]
async fn the_beginning_of_an_id_is_enough_if_it_is_one_of_one() {
    let machine = Machine::new();
    let answered = |asked: &Asked, _: usize| match asked.line.as_str() {
        "GET /api/sessions?idPrefix=0192aaaa&limit=10" => sessions(&[ID]),
        "GET /api/sessions?idPrefix=0192&limit=10" => sessions(&[ID, TWIN]),
        line if line.starts_with("GET /api/sessions?idPrefix=") => sessions(&[]),
        _ => Answer::Json(200, json!({ "session": session(ID) })),
    };
    let fake = Fake::start(answered).await;
    let output = machine.ash(&fake, &["session", "end", "0192AAAA"]).await;
    assert_eq!(text(&output.stdout), format!("{ID} is active\n"));
    assert_eq!(fake.lines()[1], format!("DELETE /api/sessions/{ID}"));

    let output = machine.ash(&fake, &["session", "end", "0192"]).await;
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    let expected = format!("error: more than one session's id begins with `0192`: {ID} (");
    assert!(told.starts_with(&expected) && told.contains(&format!(" old), {TWIN} (")), "{told}");

    for none in ["ffff", "../x", ""] {
        let output = machine.ash(&fake, &["session", "end", none]).await;
        assert_eq!(output.status.code(), Some(4), "{none}");
        assert!(text(&output.stderr).contains("hint: ash session list --all"));
    }
}

#[tokio::test]
async fn an_answer_is_written_to_a_pipe_without_what_was_taken_back() {
    let fake = Fake::start(|_, _| answer("end_turn", "completed")).await;
    let output = Machine::new().ash(&fake, &["session", "send", ID, "hello"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "whole\n");
    assert_eq!(text(&output.stderr), "");
    let asked = &fake.asked()[0];
    assert_eq!(asked.line, format!("POST /api/sessions/{ID}/messages"));
    assert_eq!(asked.json()["content"], "hello");
    assert!(asked.header("idempotency-key").is_some());
}

#[tokio::test]
async fn events_are_lines_of_json_and_a_cut_run_ends_with_7() {
    let fake = Fake::start(|_, _| answer("interrupted", "cancelled")).await;
    let output = Machine::new().ash(&fake, &["session", "send", ID, "hello", "--json"]).await;
    assert_eq!(output.status.code(), Some(7));
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 6);
    assert_eq!(
        lines[0],
        json!({ "id": null, "event": "session_start", "data": {"sessionId": ID} })
    );
    assert_eq!((&lines[5]["id"], &lines[5]["event"]), (&json!("1-5"), &json!("done")));
}

#[tokio::test]
async fn a_log_is_shown_as_far_as_it_goes() {
    let fake = Fake::start(|asked, _| {
        if asked.line.contains("/stream") {
            return Answer::Stream(
                frame("1-2", "tool_use", &json!({"name": "bash", "input": {"command": "ls"}}))
                    + &frame("1-3", "text_delta", &json!({"delta": " a\n"})),
            );
        }
        Answer::Json(200, json!({ "session": session(ID) }))
    })
    .await;
    let args = ["session", "tail", ID, "--after", "1", "--no-follow"];
    let output = Machine::new().ash(&fake, &args).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "     2 tool_use bash ls\n     3 text_delta \" a\\n\"\n");
}

#[tokio::test]
async fn a_command_ends_with_its_own_code() {
    let fake = Fake::start(|_, _| {
        let outcome = json!({
            "exitCode": 42, "stdout": "out\n", "stderr": "err\n", "timedOut": false,
            "omittedBytes": 0,
        });
        Answer::Json(200, outcome)
    })
    .await;
    let args = ["session", "exec", ID, "--timeout", "2s", "--", "echo", "a b"];
    let output = Machine::new().ash(&fake, &args).await;
    assert_eq!(output.status.code(), Some(42));
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n".into(), "err\n".into()));
    assert_eq!(fake.asked()[0].json(), json!({ "command": "echo 'a b'", "timeout": 2_000 }));
}

#[tokio::test]
async fn a_command_that_took_too_long_ends_as_timeout_does() {
    let fake = Fake::start(|_, _| {
        let outcome = json!({
            "exitCode": 1, "stdout": "out\n", "stderr": "", "timedOut": true, "omittedBytes": 0,
        });
        Answer::Json(200, outcome)
    })
    .await;
    let output = Machine::new().ash(&fake, &["session", "exec", ID, "--", "sleep 9"]).await;
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(text(&output.stdout), "out\n");
    assert!(text(&output.stderr).contains("took too long"), "{}", text(&output.stderr));
}

#[tokio::test]
async fn an_agent_is_deployed_from_its_directory() {
    let fake = Fake::start(|asked, _| {
        let files = asked.json()["files"].as_array().unwrap().len();
        let agent = json!({
            "id": ID, "name": asked.json()["name"], "tenantId": "default", "version": 3, "path": "p",
            "env": {"A": "***"}, "runtime": "builtin", "model": null, "files": files, "bytes": 7,
            "createdAt": "2026-11-16T08:15:30.250Z", "updatedAt": "2026-11-16T08:15:30.250Z",
        });
        Answer::Json(201, json!({ "agent": agent }))
    })
    .await;
    let machine = Machine::new();
    let dir = machine.home.path().join("helper");
    std::fs::create_dir_all(dir.join(".git")).unwrap();
    std::fs::write(dir.join(".git/HEAD"), "x").unwrap();
    let output = machine.ash(&fake, &["deploy", "helper"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: helper has no CLAUDE.md\n"));
    std::fs::write(dir.join("CLAUDE.md"), "be kind").unwrap();
    let output = machine.ash(&fake, &["deploy", "helper", "-e", "A=b"]).await;
    assert_eq!(text(&output.stdout), "deployed helper version 3: 1 file, 7 B\n");
    let expected = json!({
        "name": "helper", "files": [{"path": "CLAUDE.md", "content": "YmUga2luZA==", "executable": false}],
        "env": {"A": "b"},
    });
    assert_eq!(fake.asked()[0].json(), expected);
}

#[tokio::test]
async fn a_secret_comes_from_standard_input() {
    let fake = Fake::start(|_, _| {
        let credential = json!({
            "id": ID, "type": "anthropic", "label": "l", "active": true,
            "createdAt": "2026-11-16T08:15:30.250Z", "lastUsedAt": null,
        });
        Answer::Json(201, json!({ "credential": credential }))
    })
    .await;
    let machine = Machine::new();
    let mut command = machine.command(&["credential", "add", "anthropic", "--server", &fake.url()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"the-secret\n").await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(text(&output.stdout), format!("{ID}\n"));
    assert_eq!(fake.asked()[0].json(), json!({ "type": "anthropic", "key": "the-secret" }));
    assert_eq!(fake.asked()[0].header("authorization"), None);
    let output = machine.ash(&fake, &["credential", "add", "anthropic", "the-secret"]).await;
    assert_eq!(output.status.code(), Some(2), "a secret is no argument");
}

#[tokio::test]
async fn a_conversation_is_a_line_at_a_time() {
    let fake = Fake::start(|asked, _| match asked.line.as_str() {
        "POST /api/sessions" => Answer::Json(201, json!({ "session": session(ID) })),
        line if line.starts_with("DELETE") => Answer::Json(200, json!({ "session": session(ID) })),
        _ => answer("end_turn", "completed"),
    })
    .await;
    let machine = Machine::new();
    let mut command = machine.command(&["chat", "helper", "--end", "--server", &fake.url()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\n\ntwo\n").await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "whole\nwhole\n");
    let message = format!("POST /api/sessions/{ID}/messages");
    let end = format!("DELETE /api/sessions/{ID}");
    assert_eq!(fake.lines(), ["POST /api/sessions", &message, &message, &end]);
}

#[tokio::test]
async fn a_conversation_in_which_nothing_is_said_makes_no_session() {
    let fake = Fake::start(|_, _| Answer::Json(201, json!({ "session": session(ID) }))).await;
    let machine = Machine::new();
    for nothing in ["", "\n \n", "/exit\nhello\n"] {
        let mut command = machine.command(&["chat", "helper", "--server", &fake.url()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(nothing.as_bytes()).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{nothing:?}");
        assert_eq!(text(&output.stdout), "", "{nothing:?}");
    }
    assert_eq!(fake.lines(), Vec::<String>::new());
}

pub(crate) async fn press_ctrl_c(child: &Child) {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
}

/// Reads until a line says it. Whoever drops what is returned closes the pipe, and the command ends.
async fn until<R: AsyncRead + Unpin>(output: R, wanted: &str) -> Lines<BufReader<R>> {
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains(wanted) {
            return lines;
        }
    }
    panic!("nothing said {wanted}");
}

fn endless(asked: &Asked, _: usize) -> Answer {
    match asked.line.as_str() {
        "POST /api/sessions" => Answer::Json(201, json!({ "session": session(ID) })),
        line if line.ends_with("/interrupt") => problem(409, "no_such_run", "there is no run"),
        _ => Answer::Open(frame("1-1", "run_started", &json!({ "runId": TWIN }))),
    }
}

#[tokio::test]
async fn ctrl_c_leaves_a_run_that_goes_on() {
    let fake = Fake::start(endless).await;
    let machine = Machine::new();
    let args = ["--json", "session", "send", ID, "hello", "--server", &fake.url()];
    let mut child = machine.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let _open = until(child.stdout.take().unwrap(), "run_started").await;
    press_ctrl_c(&child).await;
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
    assert_eq!(fake.asked().len(), 1, "nothing was cut");
}

#[tokio::test]
async fn ctrl_c_leaves_a_command_that_goes_on() {
    let fake = Fake::start(endless).await;
    let machine = Machine::new();
    let args = ["session", "exec", ID, "--server", &fake.url(), "--", "sleep", "9"];
    let mut child = machine.command(&args).stderr(Stdio::piped()).spawn().unwrap();
    crate::world::until("it is asked", || fake.lines().iter().any(|line| line.ends_with("/exec")))
        .await;
    press_ctrl_c(&child).await;
    let _told = until(child.stderr.take().unwrap(), "the command goes on").await;
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
}

#[tokio::test]
async fn ctrl_c_cuts_the_answer_in_a_chat_and_leaves_the_second_time() {
    let fake = Fake::start(endless).await;
    let machine = Machine::new();
    let args = ["--json", "chat", "helper", "hello", "--server", &fake.url()];
    let mut command = machine.command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _open = until(child.stdout.take().unwrap(), "run_started").await;
    press_ctrl_c(&child).await;
    let _told = until(child.stderr.take().unwrap(), "it was not cut").await;
    assert_eq!(fake.lines()[2], format!("POST /api/sessions/{ID}/interrupt"));
    press_ctrl_c(&child).await;
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
}

#[tokio::test]
async fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = Machine::new().command(&["completions", shell]).output().await.unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("credential"), "{shell}");
    }
}
