//! Versions of agents, their files and their settings: each change is another version, and sessions keep theirs.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::{Answer, Client};
use super::served::{Served, agent};

const VERSIONS: &str = "/api/agents/coder/versions";
const FILES: &str = "/api/agents/coder/files";
const CONFIG: &str = "/api/agents/coder/config";

fn file(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": BASE64_STANDARD.encode(content) })
}

async fn patch(client: &Client, path: &str, body: &Value) -> Answer {
    client.ask("PATCH", path, &[], Some(body)).await
}

/// The instructions that a new session finds in its workspace, and the session.
async fn new_session(client: &Client) -> (String, Value) {
    let made = client.post("/api/sessions", &json!({ "agent": "coder" })).await.ok();
    let made = made["session"].clone();
    (instructions(client, &made).await, made)
}

async fn instructions(client: &Client, session: &Value) -> String {
    let id = session["id"].as_str().unwrap();
    client.get(&format!("/api/sessions/{id}/files/CLAUDE.md")).await.body
}

/// The number, the instructions and whether it is active, of every version.
async fn versions(client: &Client) -> Vec<(u64, String, bool)> {
    let listed = client.get(VERSIONS).await.ok();
    let row = |version: &Value| {
        let prompt = version["systemPrompt"].as_str().unwrap().to_owned();
        (version["versionNumber"].as_u64().unwrap(), prompt, version["isActive"] == true)
    };
    listed["versions"].as_array().unwrap().iter().map(row).collect()
}

fn row(number: u64, prompt: &str, is_active: bool) -> (u64, String, bool) {
    (number, prompt.to_owned(), is_active)
}

#[tokio::test]
async fn the_active_version_is_what_new_sessions_get_and_can_be_rolled_back() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let new = json!({
        "name": "second", "systemPrompt": "Be second.", "releaseNotes": "All of it.",
        "knowledgeFiles": ["a.md"],
    });
    let made = client.post(VERSIONS, &new).await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json()["version"].clone();
    let id = made["id"].as_str().unwrap().to_owned();
    id.parse::<uuid::Uuid>().unwrap();
    for (field, value) in [
        ("tenantId", json!("default")),
        ("agentName", json!("coder")),
        ("versionNumber", json!(2)),
        ("name", json!("second")),
        ("systemPrompt", json!("Be second.")),
        ("releaseNotes", json!("All of it.")),
        ("isActive", json!(false)),
        ("knowledgeFiles", json!(["a.md"])),
        ("createdBy", Value::Null),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    assert_eq!(made["createdAt"], made["updatedAt"]);
    // New sessions do not get it yet.
    let (first, session) = new_session(client).await;
    assert_eq!((first.as_str(), &session["agentVersion"]), ("You are tested.", &json!(1)));
    let listed = client.get(VERSIONS).await.ok();
    let plain = &listed["versions"][1];
    assert_eq!((&plain["name"], &plain["releaseNotes"]), (&json!("v1"), &Value::Null));
    assert_eq!(plain["knowledgeFiles"], Value::Null);

    // Activated by its id; and the first one by its number.
    let activated = client.ask("POST", &format!("{VERSIONS}/{id}/activate"), &[], None).await.ok();
    assert_eq!(activated, json!({ "activated": true, "versionNumber": 2 }));
    assert_eq!(new_session(client).await.0, "Be second.");
    assert_eq!(client.get("/api/agents/coder").await.ok()["agent"]["version"], 2);
    client.post(&format!("{VERSIONS}/1/activate"), &json!({})).await.ok();
    assert_eq!(new_session(client).await.0, "You are tested.");
    // A session keeps what it was made with.
    assert_eq!(instructions(client, &session).await, "You are tested.");
    let expected = [row(2, "Be second.", false), row(1, "You are tested.", true)];
    assert_eq!(versions(client).await, expected);
    // What is deployed is active at once.
    let deploy = json!({ "name": "coder", "systemPrompt": "Be third." });
    client.post("/api/agents", &deploy).await.ok();
    assert_eq!(versions(client).await[0], row(3, "Be third.", true));
    served.end().await;
}

#[tokio::test]
async fn a_version_is_made_from_another_one_by_number_or_by_id() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let put = json!({ "files": [file("notes/one.txt", "one"), file("run.sh", "#!/bin/sh\n")] });
    client.post(FILES, &put).await.ok();
    let second = client.post(VERSIONS, &json!({ "knowledgeFiles": ["notes/one.txt"] })).await.ok();
    let second = &second["version"];
    assert_eq!((&second["versionNumber"], &second["files"]), (&json!(3), &json!(3)));
    // What is not said comes from there, and the rest from the request.
    for from in [json!(3), json!("3"), second["id"].clone()] {
        let clone = json!({ "cloneFrom": from, "systemPrompt": "Be a clone." });
        let made = client.post(VERSIONS, &clone).await.ok();
        let made = &made["version"];
        assert_eq!(made["systemPrompt"], "Be a clone.", "{from}");
        assert_eq!(made["knowledgeFiles"], json!(["notes/one.txt"]), "{from}");
        assert_eq!(made["files"], 3, "{from}");
        assert_ne!(made["id"], second["id"]);
    }
    let from_first = client.post(VERSIONS, &json!({ "cloneFrom": 1 })).await.ok();
    assert_eq!(from_first["version"]["files"], 1);
    assert_eq!(from_first["version"]["systemPrompt"], "You are tested.");
    let nowhere = uuid::Uuid::from_u128(7).to_string();
    for from in [json!(99), json!("99"), json!(nowhere), json!("x"), json!(0)] {
        let answer = client.post(VERSIONS, &json!({ "cloneFrom": from })).await;
        assert_eq!(answer.refused(400), "invalid_request", "{from}");
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(error.starts_with("Source version ") && error.ends_with(" not found"), "{error}");
    }
    assert_eq!(versions(client).await.len(), 7);
    served.end().await;
}

#[tokio::test]
async fn a_version_can_be_changed_and_sessions_keep_what_they_were_made_with() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let (_, old) = new_session(client).await;
    let one = format!("{VERSIONS}/1");
    let named = patch(client, &one, &json!({ "name": "one", "releaseNotes": "n" })).await.ok();
    let named = &named["version"];
    assert_eq!((&named["name"], &named["releaseNotes"]), (&json!("one"), &json!("n")));
    assert_eq!((&named["agentVersion"], &named["isActive"]), (&json!(1), &json!(true)));
    let id = named["id"].as_str().unwrap().to_owned();

    let prompt = json!({ "systemPrompt": "Be changed." });
    let changed = patch(client, &format!("{VERSIONS}/{id}"), &prompt).await.ok();
    let changed = &changed["version"];
    assert_eq!((&changed["versionNumber"], &changed["id"]), (&json!(1), &json!(id)));
    assert_eq!(
        (&changed["name"], &changed["systemPrompt"]),
        (&json!("one"), &json!("Be changed."))
    );
    assert_eq!((&changed["agentVersion"], &changed["isActive"]), (&json!(2), &json!(true)));
    // The same once more is no change.
    let again = patch(client, &one, &prompt).await.ok();
    assert_eq!(again["version"]["agentVersion"], 2);
    let (found, new) = new_session(client).await;
    assert_eq!((found.as_str(), &new["agentVersion"]), ("Be changed.", &json!(2)));

    // What the first session was made with is what it gets again, and what its forks get.
    let id = old["id"].as_str().unwrap();
    assert_eq!(instructions(client, &old).await, "You are tested.");
    client.say(id, "/say Hello").await.all().await;
    let fork = client.ask("POST", &format!("/api/sessions/{id}/fork"), &[], None).await.ok();
    assert_eq!(fork["session"]["agentVersion"], 1);
    client.ask("POST", &format!("/api/sessions/{id}/stop"), &[], None).await.ok();
    client.ask("POST", &format!("/api/sessions/{id}/resume"), &[], None).await.ok();
    assert_eq!(instructions(client, &old).await, "You are tested.");
    served.end().await;
}

#[tokio::test]
async fn a_deleted_version_is_gone_and_the_active_one_stays() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let (_, old) = new_session(client).await;
    let one = format!("{VERSIONS}/1");
    let answer = client.delete(&one).await;
    assert_eq!(answer.refused(409), "version_active");
    assert_eq!(answer.json()["error"], "Version 1 is active: activate another one first");
    client.post(VERSIONS, &json!({ "systemPrompt": "Be second." })).await.ok();
    client.ask("POST", &format!("{VERSIONS}/2/activate"), &[], None).await.ok();
    let gone = client.delete(&one).await;
    assert_eq!(gone.ok(), json!({ "deleted": true, "versionNumber": 1 }));
    assert_eq!(versions(client).await, [row(2, "Be second.", true)]);
    for (method, path) in [
        ("GET", one.clone()),
        ("DELETE", one.clone()),
        ("POST", format!("{one}/activate")),
        ("PATCH", one.clone()),
    ] {
        let answer = client.ask(method, &path, &[], Some(&json!({}))).await;
        assert_eq!(answer.refused(404), "not_found", "{method} {path}");
        assert_eq!(answer.json()["error"], "Version not found");
    }
    let clone = client.post(VERSIONS, &json!({ "cloneFrom": 1 })).await;
    assert_eq!(clone.refused(400), "invalid_request");
    // Its session goes on.
    let id = old["id"].as_str().unwrap();
    client.ask("POST", &format!("/api/sessions/{id}/stop"), &[], None).await.ok();
    let back = client.ask("POST", &format!("/api/sessions/{id}/resume"), &[], None).await.ok();
    assert_eq!(back["session"]["agentVersion"], 1);
    assert_eq!(instructions(client, &old).await, "You are tested.");
    // And its number is not given again.
    let next = client.post(VERSIONS, &json!({})).await.ok();
    assert_eq!(next["version"]["versionNumber"], 3);
    served.end().await;
}

#[tokio::test]
async fn files_of_an_agent_are_put_read_and_taken_out() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let (_, session) = new_session(client).await;
    let put = json!({ "files": [file("notes/one.txt", "one"), file("CLAUDE.md", "Be filed.")] });
    let written = client.post(FILES, &put).await;
    assert_eq!((written.status, written.ok()), (200, json!({ "written": 2, "version": 2 })));
    assert_eq!(new_session(client).await.0, "Be filed.");
    assert_eq!(instructions(client, &session).await, "You are tested.");

    let listed = client.get(FILES).await.ok();
    let listed = listed["files"].as_array().unwrap();
    let names: Vec<_> = listed.iter().map(|file| (&file["path"], &file["size"])).collect();
    assert_eq!(names, [(&json!("CLAUDE.md"), &json!(9)), (&json!("notes/one.txt"), &json!(3))]);
    assert!(listed.iter().all(|file| file["modifiedAt"].as_str().unwrap().ends_with('Z')));
    for path in ["notes/one.txt", "notes/one.txt?format=json", "notes%2Fone.txt?unknown=1"] {
        let read = client.get(&format!("{FILES}/{path}")).await.ok();
        assert_eq!(read, json!({ "path": "notes/one.txt", "content": "one", "size": 3 }));
    }
    let raw = client.get(&format!("{FILES}/notes/one.txt?format=raw")).await;
    assert_eq!((raw.status, raw.body.as_str()), (200, "one"));
    assert_eq!(raw.header("content-type"), Some("text/plain"));
    assert_eq!(raw.header("content-disposition"), Some("attachment; filename*=UTF-8''one.txt"));

    let gone = client.delete(&format!("{FILES}/notes/one.txt")).await.ok();
    assert_eq!(gone, json!({ "path": "notes/one.txt", "deleted": true, "version": 3 }));
    assert_eq!(client.get(&format!("{FILES}/notes/one.txt")).await.refused(404), "not_found");
    assert_eq!(client.get(FILES).await.ok()["files"].as_array().unwrap().len(), 1);
    // Every change can be taken back.
    client.ask("POST", &format!("{VERSIONS}/2/activate"), &[], None).await.ok();
    assert_eq!(client.get(FILES).await.ok()["files"].as_array().unwrap().len(), 2);
    served.end().await;
}

#[tokio::test]
async fn what_would_be_no_agent_any_more_is_refused_and_changes_nothing() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let refused = |files: Value| json!({ "files": files });
    for (body, status, code) in [
        (refused(json!([])), 400, "invalid_request"),
        (json!({}), 400, "invalid_request"),
        (json!({ "files": "x" }), 400, "invalid_request"),
        (refused(json!(["x"])), 400, "invalid_request"),
        (refused(json!([{ "path": "a" }])), 400, "invalid_request"),
        (refused(json!([{ "path": 5, "content": "" }])), 400, "invalid_request"),
        (refused(json!([{ "path": "a", "content": "%" }])), 400, "invalid_request"),
        (refused(json!([file("../a", "x")])), 400, "invalid_agent_file"),
        (refused(json!([file("/a", "x")])), 400, "invalid_agent_file"),
        (refused(json!([file("a", "x"), file("a", "y")])), 400, "invalid_agent_file"),
        (refused(json!([file("CLAUDE.md/x", "x")])), 400, "invalid_agent_file"),
        (refused(json!([file("ash.toml", "what = 1")])), 400, "invalid_ash_toml"),
    ] {
        assert_eq!(client.post(FILES, &body).await.refused(status), code, "{body}");
    }
    for (path, status, code) in [
        ("CLAUDE.md", 400, "missing_claude_md"),
        ("nothing", 404, "not_found"),
        ("..%2Fx", 400, "invalid_request"),
    ] {
        let answer = client.delete(&format!("{FILES}/{path}")).await;
        assert_eq!(answer.refused(status), code, "{path}");
    }
    let format = client.get(&format!("{FILES}/CLAUDE.md?format=xml")).await;
    assert_eq!(format.refused(400), "invalid_request");
    for body in [
        json!({ "name": 5 }),
        json!({ "name": "" }),
        json!({ "name": "x".repeat(256) }),
        json!({ "systemPrompt": ["x"] }),
        json!({ "releaseNotes": "x".repeat(10_001) }),
        json!({ "knowledgeFiles": "x" }),
        json!({ "knowledgeFiles": [5] }),
        json!({ "knowledgeFiles": vec!["x"; 1_001] }),
        json!({ "cloneFrom": 1.5 }),
        json!({ "cloneFrom": -1 }),
        json!({ "cloneFrom": true }),
        json!([]),
    ] {
        let answer = client.post(VERSIONS, &body).await;
        assert_eq!(answer.refused(400), "invalid_request", "{body}");
    }
    for path in ["0", "x", "-1", "1.5", "4294967296"] {
        let answer = client.get(&format!("{VERSIONS}/{path}")).await;
        assert_eq!(answer.refused(404), "not_found", "{path}");
    }
    assert_eq!(versions(client).await, [row(1, "You are tested.", true)]);
    assert_eq!(
        client.post("/api/agents/ghost/versions", &json!({})).await.refused(404),
        "not_found"
    );
    served.end().await;
}

#[tokio::test]
async fn changes_of_files_that_come_at_once_are_all_made_and_each_once() {
    const CHANGES: usize = 8;
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let mut changing = JoinSet::new();
    for number in 0..CHANGES * 2 {
        let client = client.clone();
        changing.spawn(async move {
            // Each is sent twice.
            let number = number / 2;
            let put = json!({ "files": [file(&format!("{number}.txt"), "x")] });
            let key = format!("idempotency-key: {number}");
            client.ask("POST", FILES, &[&key], Some(&put)).await.ok();
        });
    }
    changing.join_all().await;
    let listed = client.get(FILES).await.ok();
    assert_eq!(listed["files"].as_array().unwrap().len(), CHANGES + 1);
    assert_eq!(versions(client).await.len(), CHANGES + 1);
    // So is a version.
    let new = json!({ "systemPrompt": "Be once." });
    let key = "idempotency-key: version";
    let first = client.ask("POST", VERSIONS, &[key], Some(&new)).await.ok();
    let again = client.ask("POST", VERSIONS, &[key], Some(&new)).await;
    assert_eq!((again.status, again.json()), (201, first));
    let other = json!({ "systemPrompt": "Be another." });
    let mismatch = client.ask("POST", VERSIONS, &[key], Some(&other)).await;
    assert_eq!(mismatch.refused(409), "idempotency_mismatch");
    assert_eq!(versions(client).await.len(), CHANGES + 2);
    served.end().await;
}

#[tokio::test]
async fn the_free_settings_of_an_agent_are_merged_and_shown() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    assert_eq!(client.get(CONFIG).await.ok(), json!({ "config": {} }));
    let first = json!({ "theme": { "a": 1 }, "preWarmCount": 2 });
    assert_eq!(patch(client, CONFIG, &first).await.ok(), json!({ "config": first }));
    // Not merged any deeper; and as `config`, as some clients say it.
    let second = json!({ "config": { "theme": { "b": 2 } } });
    let expected = json!({ "config": { "theme": { "b": 2 }, "preWarmCount": 2 } });
    assert_eq!(patch(client, CONFIG, &second).await.ok(), expected);
    let both = json!({ "env": { "A": "secret" }, "config": { "more": [1] } });
    patch(client, "/api/agents/coder", &both).await.ok();
    let config = client.get(CONFIG).await.ok();
    assert_eq!(config["config"]["more"], json!([1]));
    assert!(!config.to_string().contains("secret"));
    for wrong in [json!("2"), json!(-1), json!(1.5), json!(101), json!(true), json!([1])] {
        let body = json!({ "preWarmCount": wrong });
        assert_eq!(patch(client, CONFIG, &body).await.refused(400), "invalid_request", "{wrong}");
        let body = json!({ "config": body });
        let answer = patch(client, "/api/agents/coder", &body).await;
        assert_eq!(answer.refused(400), "invalid_request", "{wrong}");
    }
    for body in [json!([]), json!("x"), json!({ "large": "x".repeat(300_000) })] {
        assert_eq!(patch(client, CONFIG, &body).await.refused(400), "invalid_request");
    }
    assert_eq!(client.get(CONFIG).await.ok(), config);
    let ghost = patch(client, "/api/agents/ghost/config", &json!({})).await;
    assert_eq!(ghost.refused(404), "not_found");
    served.end().await;
}
