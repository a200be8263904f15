//! How commands behave when something is odd: nobody reads, nobody answers, a limit is reached.

use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::commands::{ID, Machine, answer, press_ctrl_c, session, text};
use crate::fake::{Answer, Asked, Fake, frame, problem};

/// A session whose stream says two things and then no more.
fn quiet(asked: &Asked, _: usize) -> Answer {
    if asked.line.ends_with("/messages") || asked.line.contains("/stream") {
        let frames = frame("1-1", "run_started", &json!({ "turn": 1 }))
            + &frame("1-2", "phase", &json!({ "phase": "streaming_llm" }));
        return Answer::Open(frames);
    }
    Answer::Json(200, json!({ "session": session(ID) }))
}

#[tokio::test]
async fn a_command_ends_when_nobody_reads_it_any_more() {
    let fake = Fake::start(quiet).await;
    for args in [
        &["session", "tail", ID][..],
        &["session", "send", ID, "hello", "--json"],
        &["session", "send", ID, "hello", "--raw"],
    ] {
        let machine = Machine::new();
        let mut command = machine.command(args);
        command.env("ASH_SERVER_URL", fake.url()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next_line().await.unwrap().is_some());
        drop(lines);
        assert_eq!(child.wait().await.unwrap().code(), Some(0), "{args:?}");
    }
}

#[tokio::test]
async fn a_run_that_a_limit_cut_is_no_success() {
    let fake = Fake::start(|_, _| answer("max_turns", "completed")).await;
    let output = Machine::new().ash(&fake, &["session", "send", ID, "hello"]).await;
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(text(&output.stdout), "whole\n");
    let told = text(&output.stderr);
    assert!(told.starts_with("the run was cut: ") && told.contains("max_turns"), "{told}");
}

#[tokio::test]
async fn a_budget_is_an_amount() {
    let fake = Fake::start(|_, _| problem(500, "internal", "nobody should ask")).await;
    for amount in ["nan", "inf", "-1", "0"] {
        for args in [["session", "create", "helper"], ["session", "send", ID]] {
            let args = [&args[..], &["--budget", amount, "hello"]].concat();
            let args = if args[1] == "create" { &args[..5] } else { &args[..] };
            let output = Machine::new().ash(&fake, args).await;
            assert_eq!(output.status.code(), Some(2), "{args:?}");
            assert!(text(&output.stderr).contains("expected an amount above 0"), "{args:?}");
        }
    }
    assert!(fake.asked().is_empty());
}

#[tokio::test]
async fn a_second_ctrl_c_leaves_though_the_server_is_silent() {
    let fake = Fake::start(|asked, _| match asked.line.as_str() {
        "POST /api/sessions" => Answer::Json(201, json!({ "session": session(ID) })),
        // A head that never comes to its end.
        line if line.ends_with("/interrupt") => Answer::Open(String::new()),
        _ => Answer::Open(frame("1-1", "run_started", &json!({ "runId": ID }))),
    })
    .await;
    let machine = Machine::new();
    let args = ["--json", "chat", "helper", "hello", "--server", &fake.url()];
    let mut command = machine.command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    // Kept open: whoever closes it has seen enough.
    let mut seen = BufReader::new(child.stdout.take().unwrap()).lines();
    while !seen.next_line().await.unwrap().unwrap().contains("run_started") {}
    press_ctrl_c(&child).await;
    while !told.next_line().await.unwrap().unwrap().contains("Ctrl-C again leaves") {}
    press_ctrl_c(&child).await;
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
}

#[tokio::test]
async fn a_chat_from_a_pipe_ends_as_its_last_run_did() {
    let fake = Fake::start(|asked, _| match asked.line.as_str() {
        "POST /api/sessions" => Answer::Json(201, json!({ "session": session(ID) })),
        _ if asked.body.contains("bad") => answer("error", "failed"),
        _ => answer("end_turn", "completed"),
    })
    .await;
    for (lines, code) in [("good\nbad\n", 7), ("bad\ngood\n", 0)] {
        let machine = Machine::new();
        let mut command = machine.command(&["chat", "helper", "--server", &fake.url()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(output.status.code(), Some(code), "{lines}");
    }
}

#[tokio::test]
async fn nothing_to_say_makes_no_session() {
    let fake = Fake::start(quiet).await;
    let output = Machine::new().ash(&fake, &["chat", "helper", ""]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(fake.asked().is_empty());
}

#[tokio::test]
async fn a_gap_is_shown_to_one_who_does_not_stay() {
    let gap =
        |to: &str| frame("", "gap", &json!({ "from": "1-9", "to": to, "reason": "beyond_end" }));
    let last = frame("1-3", "phase", &json!({ "phase": "comes_after_it" }));
    // Nothing comes after the one; after the other the log comes again.
    for (stream, told) in [(gap("1-3"), false), (gap("1-0") + &last, true)] {
        let fake = Fake::start(move |asked, _| {
            if asked.line.contains("/stream") {
                return Answer::Open(stream.clone());
            }
            Answer::Json(200, json!({ "session": session(ID) }))
        })
        .await;
        for after in ["9", "7-2"] {
            let args = ["session", "tail", ID, "--after", after, "--no-follow"];
            let output = Machine::new().ash(&fake, &args).await;
            assert_eq!(output.status.code(), Some(0));
            let shown = text(&output.stdout);
            assert!(shown.contains("beyond_end"), "{shown}");
            assert_eq!(shown.contains("comes_after_it"), told, "{shown}");
        }
    }
    let fake = Fake::start(|_, _| Answer::Json(200, json!({ "session": session(ID) }))).await;
    let args = ["session", "tail", ID, "--after", "3", "--no-follow"];
    assert_eq!(text(&Machine::new().ash(&fake, &args).await.stdout), "");
}

#[tokio::test]
async fn what_is_no_ash_server_is_told_in_a_line() {
    let page = Value::String("<html>\n<body>not here</body>\n</html>".to_owned());
    let fake = Fake::start(move |_, _| Answer::Json(404, page.clone())).await;
    let output = Machine::new().ash(&fake, &["health"]).await;
    assert_eq!(output.status.code(), Some(3));
    let told = text(&output.stderr);
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.contains("no Ash server"), "{told}");
}

#[tokio::test]
async fn where_the_server_is_can_be_said_before_the_command() {
    let fake = Fake::start(|_, _| Answer::Json(200, json!({ "agents": [] }))).await;
    let machine = Machine::new();
    let url = fake.url();
    let output = machine.command(&["--server", &url, "agent", "list"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = machine.command(&["--server", &url, "config"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let args = ["--data-dir", "/srv/x", "config"];
    let output = machine.command(&args).output().await.unwrap();
    let shown = text(&output.stdout);
    assert!(shown.lines().any(|line| line.contains("/srv/x") && line.ends_with("flag")), "{shown}");
}

#[tokio::test]
async fn a_secret_variable_need_not_stand_on_the_command_line() {
    let fake = Fake::start(|_, _| Answer::Json(201, json!({ "session": session(ID) }))).await;
    let machine = Machine::new();
    let args = ["session", "create", "helper", "-e", "TOKEN", "-e", "A=b", "--server", &fake.url()];
    let output = machine.command(&args).env("TOKEN", "hush").output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fake.asked()[0].json()["extraEnv"], json!({ "A": "b", "TOKEN": "hush" }));
    let output = machine.command(&args).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[tokio::test]
async fn a_credential_is_named_by_its_beginning() {
    let fake = Fake::start(|asked, _| match asked.line.as_str() {
        "GET /api/credentials" => {
            let credential = json!({
                "id": ID, "type": "anthropic", "label": "l", "active": true,
                "createdAt": "2026-11-16T08:15:30.250Z", "lastUsedAt": null,
            });
            Answer::Json(200, json!({ "credentials": [credential] }))
        }
        _ => Answer::Json(201, json!({ "session": session(ID) })),
    })
    .await;
    let args = ["session", "create", "helper", "--credential", "0192aa"];
    let output = Machine::new().ash(&fake, &args).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fake.asked()[1].json()["credentialId"], ID);
}

#[tokio::test]
async fn a_variable_that_is_not_text_is_named() {
    let odd = std::ffi::OsStr::from_bytes(b"a\xff");
    let machine = Machine::new();
    let output = machine.command(&["config"]).env("ASH_DATA_DIR", odd).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "error: the variable ASH_DATA_DIR is not UTF-8\n");
}

#[tokio::test]
async fn a_lost_connection_is_told_once_to_who_waits_at_a_pipe() {
    let fake = Fake::start(|_, before| match before {
        0 => Answer::Cut(frame("1-1", "run_started", &json!({ "runId": ID }))),
        1 => Answer::Nothing,
        _ => Answer::Stream(frame(
            "1-2",
            "done",
            &json!({ "runId": ID, "stopReason": "end_turn", "status": "completed" }),
        )),
    })
    .await;
    let output = Machine::new().ash(&fake, &["session", "send", ID, "hello"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "(connection lost, trying again)\n");
}

#[tokio::test]
async fn a_server_starts_though_nobody_reads_what_it_says() {
    let machine = Machine::new();
    let mut command = machine.command(&["model", "--port", "0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let log = child.stderr.take().unwrap();
    // It listens for signals before it says anything, and says nothing after it has begun.
    let pid = child.id().unwrap();
    let handles = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        // SIGINT is number 2.
        caught.is_some_and(|mask| mask & 0b10 != 0)
    };
    while !handles() {
        tokio::task::yield_now().await;
    }
    press_ctrl_c(&child).await;
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    let mut lines = BufReader::new(log).lines();
    assert_eq!(lines.next_line().await.unwrap(), None);
}
