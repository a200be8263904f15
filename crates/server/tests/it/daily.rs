//! The commands of every day: what runs, what was said, which server.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::commands::{ID, Machine, session, text};
use crate::fake::{Answer, Asked, Fake, frame, problem};

fn run(status: &str, phase: Option<&str>) -> Value {
    json!({
        "id": ID, "sessionId": ID, "status": status, "phase": phase, "round": 1, "turn": 2,
        "parentTurn": 1, "stopReason": null, "error": null, "promptSeq": 2,
        "usage": {
            "inputTokens": 12_000, "outputTokens": 345, "cacheCreationTokens": 0,
            "cacheReadTokens": 0, "toolCalls": 1, "costUsd": 0.5,
        },
        "acceptedAt": "2026-11-16T08:15:30.250Z", "startedAt": null, "endedAt": null,
    })
}

fn busy(asked: &Asked, _: usize) -> Answer {
    let mut one = session(ID);
    one["activity"] = json!("running");
    one["title"] = json!("a\u{1b}[2J title");
    match asked.line.as_str() {
        line if line.ends_with("/runs") => {
            Answer::Json(200, json!({ "runs": [run("running", Some("executing_tools"))] }))
        }
        line if line.contains("status=active") || !line.contains("status=") => {
            Answer::Json(200, json!({ "sessions": [one], "nextCursor": null }))
        }
        _ => Answer::Json(200, json!({ "sessions": [], "nextCursor": null })),
    }
}

#[tokio::test]
async fn ps_tells_what_runs() {
    let fake = Fake::start(busy).await;
    let machine = Machine::new();
    let output = machine.ash(&fake, &["ps"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let words: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..6], ["0192aaaa-0000-7000", "helper", "active,", "running", "tools", "2"]);
    assert_eq!(words[words.len() - 4..], ["12.3k", "$0.5000", "a[2J", "title"], "{shown}");
    let output = machine.ash(&fake, &["ps", "--json"]).await;
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["sessions"][0]["run"]["phase"], "executing_tools");
    assert_eq!(told["sessions"][0]["usage"]["outputTokens"], 345);
    let none =
        Fake::start(|_, _| Answer::Json(200, json!({ "sessions": [], "nextCursor": null }))).await;
    let output = machine.ash(&none, &["ps"]).await;
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), String::new()));
    assert!(text(&output.stderr).contains("ash ps --all"));
}

#[tokio::test]
async fn ps_that_is_watched_ends_when_nobody_reads_it_any_more() {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let fake = Fake::start(busy).await;
    let machine = Machine::new();
    let mut command = machine.command(&["ps", "--watch=200ms"]);
    command.env("ASH_SERVER_URL", fake.url()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut headings = 0;
    while headings < 2 {
        let line = lines.next_line().await.unwrap().unwrap();
        headings += usize::from(line.starts_with("ID "));
    }
    drop(lines);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn logs_are_those_of_a_sandbox() {
    let fake = Fake::start(|asked, _| {
        let log = |index: u64, level: &str, text: &str| json!({ "index": index, "level": level, "text": text, "ts": "" });
        let after = asked.line.rsplit_once("after=").map(|(_, after)| after.to_owned());
        let answer = match after.as_deref() {
            None => {
                json!([log(0, "system", "started"), log(1, "stderr", "a\u{1b}[2Jb")])
            }
            Some("1") => json!([log(2, "system", "paused")]),
            // Some were lost in between.
            Some("2") => {
                let gap = json!({ "after": 2, "next": 9, "reason": "left_out" });
                let logs = json!([log(9, "stderr", "late")]);
                return Answer::Json(200, json!({ "logs": logs, "source": "sandbox", "gap": gap }));
            }
            Some(_) => json!([]),
        };
        Answer::Json(200, json!({ "logs": answer, "source": "sandbox" }))
    })
    .await;
    let machine = Machine::new();
    let output = machine.ash(&fake, &["logs", ID]).await;
    assert_eq!(text(&output.stdout), "system started\nstderr a[2Jb\n");
    let mut command = machine.command(&["logs", "-f", ID, "--server", &fake.url()]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
    let mut seen = Vec::new();
    while seen.len() < 5 {
        seen.push(lines.next_line().await.unwrap().unwrap());
    }
    assert_eq!(seen[..3], ["system started", "stderr a[2Jb", "system paused"]);
    assert!(seen[3].contains("not kept") && seen[4] == "stderr late", "{seen:?}");
    drop(lines);
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
    let output = machine.ash(&fake, &["logs"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("journalctl"), "{}", text(&output.stderr));
}

#[tokio::test]
async fn what_is_followed_ends_with_its_session() {
    let machine = Machine::new();
    for follow in [&["logs", "-f", ID][..], &["session", "attach", "--read-only", ID][..]] {
        let has_ended = AtomicBool::new(false);
        let fake = Fake::start(move |asked, _| {
            let line = asked.line.as_str();
            if line.contains("/logs") {
                let more = line.contains("after=");
                has_ended.store(more, Ordering::Relaxed);
                let first = json!({ "index": 0, "level": "system", "text": "started", "ts": "" });
                let logs = if more { json!([]) } else { json!([first]) };
                return Answer::Json(200, json!({ "logs": logs, "source": "sandbox" }));
            }
            if line.contains("/runs") {
                return Answer::Json(200, json!({ "runs": [] }));
            }
            if line.contains("/stream") {
                has_ended.store(true, Ordering::Relaxed);
                return Answer::Stream(frame("1-3", "session_ended", &json!({ "by": "request" })));
            }
            let mut one = session(ID);
            if has_ended.load(Ordering::Relaxed) {
                (one["status"], one["activity"]) = (json!("ended"), Value::Null);
            }
            Answer::Json(200, json!({ "session": one }))
        })
        .await;
        let output = machine.ash(&fake, follow).await;
        assert_eq!(output.status.code(), Some(0), "{follow:?}: {}", text(&output.stderr));
        let streams = fake.asked().iter().filter(|asked| asked.line.contains("/stream")).count();
        assert!(streams <= 1, "the end was told, and nobody asked again");
    }
}

#[tokio::test]
async fn a_server_is_linked_once_it_takes_the_key_and_unlinked_again() {
    let fake = Fake::start(|asked, _| match asked.line.as_str() {
        "GET /health" => Answer::Json(
            200,
            json!({
                "status": "ok", "version": "1", "uptime": 1.0, "isolation": "none", "disk": "",
            }),
        ),
        _ if asked.header("authorization") == Some("Bearer right") => {
            Answer::Json(200, json!({ "agents": [] }))
        }
        _ => problem(401, "unauthorized", "no"),
    })
    .await;
    let machine = Machine::new();
    let path = machine.home.path().join(".ash/config.json");
    let wrong =
        machine.command(&["link", &fake.url(), "--api-key", "wrong"]).output().await.unwrap();
    assert_eq!(wrong.status.code(), Some(6), "{}", text(&wrong.stderr));
    assert!(text(&wrong.stderr).contains("nothing was written") && !path.exists());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, r#"{"theirs": 1}"#).unwrap();
    let mut command = machine.command(&["link", &fake.url(), "--api-key", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"right\n").await.unwrap();
    let linked = child.wait_with_output().await.unwrap();
    assert_eq!(text(&linked.stdout), format!("linked to {}\n", fake.url()));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(kept, json!({ "theirs": 1, "server_url": fake.url(), "api_key": "right" }));
    let listed = machine.command(&["agent", "list"]).output().await.unwrap();
    assert_eq!(listed.status.code(), Some(0), "{}", text(&listed.stderr));
    let unlinked = machine.command(&["unlink"]).output().await.unwrap();
    assert_eq!(text(&unlinked.stdout), "unlinked\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\n  \"theirs\": 1\n}\n");
}

#[tokio::test]
async fn commands_of_the_original_work_or_say_what_to_do_instead() {
    let machine = Machine::new();
    for (args, hint) in [
        (&["start", "--port", "4100", "-e", "A=b"][..], "ash serve"),
        (&["stop"], "ash serve"),
        (&["login", "--cloud-url", "x"], "ash link"),
        (&["logout"], "ash unlink"),
    ] {
        let output = machine.command(args).output().await.unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(hint), "{}", text(&output.stderr));
    }
    let fake = Fake::start(|asked, _| {
        if asked.line.ends_with("/exec") {
            let timed = asked.json()["timeout"] == 5_000 && asked.json()["command"] == "ls -la";
            return Answer::Json(200, json!({
                "exitCode": u8::from(!timed), "stdout": "", "stderr": "", "timedOut": false, "omittedBytes": 0,
            }));
        }
        Answer::Stream(
            frame("1-2", "tool_use", &json!({ "name": "bash", "input": {} }))
                + &frame("1-3", "text_delta", &json!({ "delta": "a" })),
        )
    })
    .await;
    for args in [
        &["session", "exec", "--timeout", "5000", ID, "ls -la"][..],
        &["session", "exec", ID, "ls -la", "--timeout", "5000"],
        &["session", "exec", ID, "--timeout", "5s", "--", "ls -la"],
    ] {
        let output = machine.ash(&fake, args).await;
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    }
    let output = machine.ash(&fake, &["session", "exec", ID, "ls", "--timeout", "5000"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("exec ID -- "), "{}", text(&output.stderr));
}

#[tokio::test]
async fn whoever_mistypes_is_told_what_there_is() {
    let fake = Fake::start(|asked, _| match asked.line.as_str() {
        line if line.contains("idPrefix=") => {
            Answer::Json(200, json!({ "sessions": [], "nextCursor": null }))
        }
        "GET /api/sessions?limit=1000" => {
            let mut one = session(ID);
            one["title"] = json!("the one");
            Answer::Json(200, json!({ "sessions": [one], "nextCursor": null }))
        }
        "GET /api/agents" => {
            let agent = json!({
                "id": ID, "name": "helper", "tenantId": "default", "version": 3, "path": "p", "env": {},
                "runtime": "builtin", "model": null, "files": 1, "bytes": 7,
                "createdAt": "2026-11-16T08:15:30.250Z", "updatedAt": "2026-11-16T08:15:30.250Z",
            });
            Answer::Json(200, json!({ "agents": [agent] }))
        }
        line if line.contains("sessions/") => problem(404, "not_found", "Session not found"),
        _ => problem(404, "not_found", "Agent \"x\" not found"),
    })
    .await;
    let machine = Machine::new();
    for said in [
        "0192aaab",
        "0192aaaa-0000-7000-8000-000000000011",
        // A letter that no id has.
        "0192aaag",
        "o192aaaa-0000-7000-8000-000000000001",
        // A character too many.
        "0192aaaa-0000-7000-8000-0000000000010",
    ] {
        let output = machine.ash(&fake, &["session", "show", said]).await;
        assert_eq!(output.status.code(), Some(4));
        let told = text(&output.stderr);
        assert!(
            said.len() == 36 || told.contains(&format!("no session's id begins with `{said}`")),
            "{told}"
        );
        assert!(told.contains("hint: did you mean 0192aaaa-0000-7000"), "{told}");
        assert!(told.contains("(the one)?"), "{told}");
    }
    for args in [
        &["session", "create", "helpr"][..],
        &["chat", "helpr", "hello"],
        &["agent", "info", "helpr"],
    ] {
        let told = text(&machine.ash(&fake, args).await.stderr);
        assert!(told.contains("hint: did you mean helper?"), "{args:?}: {told}");
    }
    let told = text(&machine.ash(&fake, &["session", "create", "nothing-like-it"]).await.stderr);
    assert!(told.contains("hint: there is only helper"), "{told}");
    let told = text(&machine.ash(&fake, &["session", "show", "helper"]).await.stderr);
    assert!(told.contains("hint: helper is an agent; ash session list --agent helper"), "{told}");
    let told = text(&machine.ash(&fake, &["sesion"]).await.stderr);
    assert!(told.contains("similar") && told.contains("session"), "{told}");
}
