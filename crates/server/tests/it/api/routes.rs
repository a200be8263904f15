//! Every route once, as it goes when all is well. The transcript is kept beside this file: what is
//! answered does not change by accident.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::client::{Answer, Client, Frame};
use super::served::{Served, held, let_go};

/// What was asked and answered, with ids and times made the same in every run.
#[derive(Default)]
struct Transcript {
    text: String,
    ids: BTreeMap<String, String>,
    dir: String,
}

impl Transcript {
    fn note(&mut self, request: &str, answer: &Answer) {
        let body = match answer.header("content-type") {
            Some("text/markdown") => answer.body.clone(),
            Some("application/gzip") => "<bundle>".to_owned(),
            Some("application/json") => {
                let mut body = answer.json();
                self.hide(&mut body);
                serde_json::to_string_pretty(&body).unwrap()
            }
            _ => names(&answer.body),
        };
        let request = self.hidden(request);
        writeln!(self.text, "{request}\n{}\n{body}\n", answer.status).unwrap();
    }

    fn note_stream(&mut self, request: &str, frames: &[Frame]) {
        let request = self.hidden(request);
        writeln!(self.text, "{request}\n200").unwrap();
        for frame in frames {
            let mut data = frame.data.clone();
            self.hide(&mut data);
            let id = frame.id.as_deref().unwrap_or("-");
            writeln!(self.text, "{id} {} {data}", frame.event).unwrap();
        }
        self.text.push('\n');
    }

    fn hide(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => match serde_json::from_str::<Value>(text) {
                // JSON as a text, as lists of events have it.
                Ok(mut inner @ Value::Object(_)) => {
                    self.hide(&mut inner);
                    *text = inner.to_string();
                }
                _ => *text = self.hidden(text),
            },
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide(item)),
            Value::Object(fields) => {
                let is_transcript = fields.contains_key("blake3");
                for (name, field) in fields {
                    match name.as_str() {
                        // What depends on the clock, and on how long the path of the directory is.
                        "durationMs"
                        | "duration_ms"
                        | "uptime"
                        | "firstByteMs"
                        | "totalMs"
                        | "bytesUp"
                        | "bytesDown"
                        | "tokens"
                        | "inputTokens"
                        | "input_tokens"
                        | "costUsd"
                        | "total_cost_usd"
                        | "totalInputTokens"
                        | "totalCostUsd"
                        | "totalComputeSeconds" => *field = json!("<number>"),
                        "bytes" if is_transcript => *field = json!("<number>"),
                        "coordinatorId" | "blake3" | "keyPrefix" | "key" => {
                            *field = json!("<text>");
                        }
                        // There is one, or not yet.
                        "snapshot" | "snapshots" | "snapshotPending" => {
                            *field = "<snapshot>".into();
                        }
                        "isolation" if field.is_string() => *field = "<isolation>".into(),
                        "disk" if field.is_string() => *field = "<disk>".into(),
                        _ => self.hide(field),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A text with ids numbered as they first appear, and times and the directory left out.
    fn hidden(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text.replace(&self.dir, "<dir>");
        while !rest.is_empty() {
            let is =
                |length: usize, wanted: fn(&str) -> bool| rest.get(..length).is_some_and(wanted);
            if is(36, |text| text.parse::<uuid::Uuid>().is_ok()) {
                let number = self.ids.len() + 1;
                let id = self.ids.entry(rest[..36].to_owned());
                out += id.or_insert_with(|| format!("<id {number}>"));
                rest.drain(..36);
            } else if is(24, |text| text.ends_with('Z') && text.as_bytes()[10] == b'T') {
                out += "<time>";
                rest.drain(..24);
            } else {
                out.push(rest.remove(0));
            }
        }
        out
    }
}

/// Only what is counted, and not how much.
fn names(metrics: &str) -> String {
    let types = metrics.lines().filter(|line| line.starts_with("# TYPE"));
    // What is captured is counted when it is done, which may be later.
    let is_later = |line: &str| line.contains("snapshot") || line.contains("persist");
    let mut types: Vec<&str> = types
        .filter(|line| !line.contains("seconds") || line.contains("uptime"))
        .filter(|line| !is_later(line))
        .collect();
    types.sort_unstable();
    types.dedup();
    types.join("\n")
}

#[tokio::test]
async fn every_route_answers_as_it_always_did() {
    let served = Served::start().await;
    let client = &served.client;
    let mut transcript =
        Transcript { dir: served.dir.display().to_string(), ..Transcript::default() };
    macro_rules! ask {
        ($method:literal, $path:expr $(, $body:expr)?) => {{
            let body: Option<Value> = [$($body)?].into_iter().next();
            let (path, body): (String, Option<Value>) = ($path.to_string(), body);
            let answer = client.ask($method, &path, &[], body.as_ref()).await;
            let body = body.map(|body| format!(" {body}")).unwrap_or_default();
            transcript.note(&format!("{} {path}{body}", $method), &answer);
            assert!((200..300).contains(&answer.status), "{path} {answer:?}");
            answer
        }};
    }
    ask!("GET", "/health");
    ask!("GET", "/health/ready");
    // Agents.
    let files = json!([
        { "path": "CLAUDE.md", "content": "QmUgYnJpZWYuCg==" },
        { "path": "notes/one.txt", "content": "b25lCg==" },
    ]);
    ask!("POST", "/api/agents", json!({ "name": "coder", "files": files, "env": { "A": "1" } }));
    ask!("POST", "/api/agents", json!({ "name": "coder", "systemPrompt": "Be brief." }));
    ask!("GET", "/api/agents");
    ask!("GET", "/api/agents/coder");
    ask!("PATCH", "/api/agents/coder", json!({ "env": { "B": "2" }, "config": { "c": 3 } }));
    ask!("GET", "/api/agents/coder/versions");
    ask!("GET", "/api/agents/coder/versions/1");
    let made = json!({ "name": "third", "systemPrompt": "Be kind.", "cloneFrom": 1 });
    ask!("POST", "/api/agents/coder/versions", made);
    ask!("PATCH", "/api/agents/coder/versions/3", json!({ "releaseNotes": "Kinder." }));
    ask!("POST", "/api/agents/coder/versions/3/activate");
    ask!("GET", "/api/agents/coder/config");
    ask!("PATCH", "/api/agents/coder/config", json!({ "d": 4 }));
    ask!("GET", "/api/agents/coder/files");
    ask!("GET", "/api/agents/coder/files/CLAUDE.md");
    let files = json!([{ "path": "notes/two.txt", "content": "dHdvCg==" }]);
    ask!("POST", "/api/agents/coder/files", json!({ "files": files }));
    ask!("DELETE", "/api/agents/coder/files/notes%2Fone.txt");
    ask!("POST", "/api/agents/coder/versions/2/activate");
    ask!("DELETE", "/api/agents/coder/versions/5");
    // Sessions.
    let create = json!({
        "agent": "coder", "title": "One", "metadata": { "k": "v" }, "model": "m",
        "extraEnv": { "X": "y" }, "idleTimeoutMs": 60_000, "budgetUsd": 5.0,
    });
    let made = ask!("POST", "/api/sessions", create);
    let id = made.json()["session"]["id"].as_str().unwrap().to_owned();
    let of = |rest: &str| format!("/api/sessions/{id}{rest}");
    let tools = json!({ "s": { "command": "c", "args": ["a"], "env": { "T": "u" } } });
    let other = json!({ "agent": "coder", "mcpServers": tools, "ttlMs": 3_600_000 });
    let other = ask!("POST", "/api/sessions", other).json();
    ask!("GET", "/api/sessions?includeTotal=true&limit=1");
    let other = other["session"]["id"].as_str().unwrap().to_owned();
    ask!("DELETE", format!("/api/sessions/{other}"));
    ask!("GET", of(""));
    ask!("PATCH", of("/config"), json!({ "title": "Two", "allowedTools": ["bash"] }));
    ask!("POST", of("/exec"), json!({ "command": "echo out; echo err >&2; exit 3" }));
    // Files.
    let files = json!([
        { "path": "one.txt", "content": "b25lCg==" }, { "path": "../two.txt", "content": "" },
    ]);
    ask!("POST", of("/files"), json!({ "files": files, "targetPath": "sub" }));
    ask!("GET", of("/files?includeHidden=false"));
    ask!("GET", of("/files/sub%2Fone.txt?format=json"));
    ask!("GET", of("/files/CLAUDE.md"));
    ask!("DELETE", of("/files/sub%2Fone.txt"));
    // An archive with nothing in it.
    let bundle = "H4sIAAAAAAACA2NgGAWjYBSMVAAALq+17wAEAAA=";
    ask!("GET", of("/workspace"));
    ask!("POST", of("/workspace"), json!({ "bundle": bundle }));
    // Attachments.
    let attached =
        json!({ "filename": "a/plan.md", "mimeType": "text/markdown", "content": "aGkK" });
    let attached = ask!("POST", of("/attachments"), attached).json();
    let attached = attached["attachment"]["id"].as_str().unwrap().to_owned();
    ask!("GET", of("/attachments"));
    ask!("GET", format!("/api/attachments/{attached}"));
    ask!("DELETE", format!("/api/attachments/{attached}"));
    // A run, told in full.
    let run = client.say(&id, "/think Hm.\n/bash echo hi\n/say Hello").await.all().await;
    transcript.note_stream(&format!("POST {}", of("/messages")), &run);
    let sent =
        ask!("POST", of("/messages"), json!({ "content": "Again\n/say Yes", "detach": true }));
    let run_id = sent.json()["runId"].as_str().unwrap().to_owned();
    let stream = client.follow(&id, "until=idle").await.all().await;
    transcript.note_stream(&format!("GET {}", of("/stream?until=idle")), &stream);
    ask!("GET", of("/messages?limit=1000"));
    ask!("GET", of("/events?limit=1000&type=all"));
    ask!("GET", of("/runs"));
    ask!("GET", of("/snapshots"));
    ask!("GET", of(&format!("/runs/{run_id}")));
    ask!("GET", of("/logs"));
    ask!("GET", of("/egress?limit=1"));
    // Of each of these turns there is a snapshot, if it is not followed by others too soon.
    while client.get(&of("")).await.ok()["session"]["snapshot"]["turn"] != 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    // A run that is interrupted.
    let mut watched = client.say(&id, &held("Wait")).await;
    watched.until("tool_use").await;
    let begun = json!({ "command": "while [ ! -e begun ]; do sleep 0.02; done" });
    client.post(&of("/exec"), &begun).await.ok();
    ask!("POST", of("/interrupt"));
    watched.all().await;
    let_go(client, &id).await;
    // A run that asks.
    ask!("PATCH", of("/config"), json!({ "permissionMode": "default" }));
    let mut watched = client.say(&id, "/bash true\n/say Done").await;
    let question = watched.until("permission_request").await.pop().unwrap();
    let question = question.data["id"].as_str().unwrap().to_owned();
    ask!("GET", of("/permissions"));
    ask!("POST", of(&format!("/permissions/{question}")), json!({ "behavior": "allow" }));
    let run = watched.all().await;
    transcript.note_stream(&format!("POST {}", of("/messages")), &run);
    // Rest and return.
    ask!("POST", of("/pause"), json!({ "ifRunning": "reject" }));
    ask!("POST", of("/resume"), json!({ "requireState": true }));
    ask!("POST", of("/resume"));
    ask!("POST", of("/stop"));
    // History.
    let snapshot = captured(client, &id).await;
    ask!("GET", of(&format!("/snapshots/{snapshot}/diff?against={snapshot}")));
    ask!("POST", of("/rewind"), json!({ "turn": 2, "dryRun": true }));
    ask!("POST", of("/fork"), json!({ "turn": 2 }));
    ask!("POST", of("/resume"));
    ask!("DELETE", of(""));
    // The queue: of one session one item at a time, so the other one waits.
    let made = client.post("/api/sessions", &json!({ "agent": "coder" })).await.ok();
    let queued = made["session"]["id"].as_str().unwrap().to_owned();
    let item =
        |prompt: &str| json!({ "agentName": "coder", "prompt": prompt, "sessionId": queued });
    let first = ask!("POST", "/api/queue", item(&held("Queued"))).json();
    let first = format!("/api/queue/{}", first["item"]["id"].as_str().unwrap());
    let stands = async |field: &str| loop {
        let item = client.get(&first).await.ok();
        if !item["item"][field].is_null() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    stands("runId").await;
    let second = ask!("POST", "/api/queue", item("Later")).json();
    let second = second["item"]["id"].as_str().unwrap().to_owned();
    ask!("DELETE", format!("/api/queue/{second}"));
    let_go(client, &queued).await;
    stands("completedAt").await;
    ask!("GET", first);
    ask!("GET", "/api/queue?status=cancelled");
    ask!("GET", "/api/queue/stats");
    // The account.
    let made = ask!("POST", "/api/api-keys", json!({ "label": "mine" })).json();
    ask!("GET", "/api/api-keys");
    ask!("DELETE", format!("/api/api-keys/{}", made["id"].as_str().unwrap()));
    let credential = json!({ "type": "anthropic", "key": "sk", "label": "l" });
    let made = ask!("POST", "/api/credentials", credential).json();
    ask!("GET", "/api/credentials");
    let made = made["credential"]["id"].as_str().unwrap().to_owned();
    ask!("DELETE", format!("/api/credentials/{made}"));
    ask!("GET", "/api/usage?limit=1");
    ask!("GET", "/api/usage/stats");
    ask!("GET", "/api/analytics");
    ask!("GET", "/metrics");
    ask!("DELETE", "/api/agents/coder");
    served.end().await;
    compare(&transcript.text);
    // The documents about the routes have tests of their own, and so have the cloud, bundles, and the operator.
    let elsewhere = |path: &str| {
        path.starts_with("/docs")
            || path.starts_with("/api/cloud/")
            || path.ends_with("/export")
            || path == "/api/sessions/import"
            || path.starts_with("/api/internal/")
    };
    for (method, path) in super::operations().into_iter().filter(|(_, path)| !elsewhere(path)) {
        assert!(was_asked(&transcript.text, &method, &path), "{method} {path} is not tried here");
    }
}

/// The last snapshot of a session, once everything is captured that there is.
async fn captured(client: &Client, id: &str) -> String {
    loop {
        let session = client.get(&format!("/api/sessions/{id}")).await.ok();
        let rewind = json!({ "turn": 2, "dryRun": true });
        let settled = client.post(&format!("/api/sessions/{id}/rewind"), &rewind).await;
        if let (200, Some(snapshot)) =
            (settled.status, session["session"]["snapshot"]["id"].as_str())
        {
            return snapshot.to_owned();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Whether a route is in the transcript.
fn was_asked(transcript: &str, method: &str, path: &str) -> bool {
    let wanted: Vec<&str> = path.split('/').collect();
    transcript.lines().filter_map(|line| line.split_once(' ')).any(|(asked, rest)| {
        // Ids are hidden as `<id 1>`, which has a space in it.
        let asked_path = rest.replace("<id ", "<id");
        let asked_path = asked_path.split([' ', '?']).next().unwrap_or_default();
        let parts: Vec<&str> = asked_path.split('/').collect();
        asked == method
            && parts.len() == wanted.len()
            && parts
                .iter()
                .zip(&wanted)
                .all(|(part, wanted)| wanted.starts_with('{') || part == wanted)
    })
}

fn compare(found: &str) {
    let expected = include_str!("transcript.txt");
    if found == expected {
        return;
    }
    let kept = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("transcript.txt");
    std::fs::write(&kept, found).unwrap();
    let differs = found.lines().zip(expected.lines()).position(|(one, other)| one != other);
    let at = differs.unwrap_or_else(|| found.lines().count().min(expected.lines().count()));
    let around = |text: &str| {
        text.lines().skip(at.saturating_sub(8)).take(16).collect::<Vec<_>>().join("\n")
    };
    panic!(
        "line {} of transcript.txt differs; if it should, copy {} over it\n--- expected\n{}\n--- found\n{}",
        at + 1,
        kept.display(),
        around(expected),
        around(found),
    );
}
