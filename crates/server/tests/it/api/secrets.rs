//! Secrets go in and do not come out: not in answers, not in what the server prints, not in its files.

use std::path::Path;

use serde_json::{Value, json};

use super::client::Frame;
use super::spawned::Spawned;
use super::streams::log;

const SECRETS: [(&str, &str); 4] = [
    ("a variable of the agent", "hush-of-the-agent-1f6a"),
    ("a variable of the session", "hush-of-the-session-77b0"),
    ("a variable of an MCP server", "hush-of-the-tools-c3d4"),
    ("a credential", "hush-of-the-credential-9e2f"),
];

#[tokio::test]
async fn what_is_secret_is_not_found_anywhere() {
    let spawned = Spawned::start().await;
    let client = &spawned.client;
    let [agent, session, tools, credential] = SECRETS.map(|(_, secret)| secret);
    let mut answers: Vec<String> = Vec::new();
    let mut ask = async |method: &str, path: &str, body: Option<Value>| {
        let answer = client.ask(method, path, &["idempotency-key: once"], body.as_ref()).await;
        answers.push(answer.body.clone());
        answer.ok()
    };
    let deploy = json!({ "name": "coder", "systemPrompt": "x", "env": { "AGENT": agent } });
    ask("POST", "/api/agents", Some(deploy)).await;
    ask("PATCH", "/api/agents/coder", Some(json!({ "env": { "AGENT": agent } }))).await;
    let key = json!({ "type": "anthropic", "key": credential });
    let made = ask("POST", "/api/credentials", Some(key)).await;
    let create = json!({
        "agent": "coder",
        "credentialId": made["credential"]["id"],
        "extraEnv": { "SESSION": session },
        "mcpServers": { "m": { "command": "x", "env": { "TOOL": tools } } },
    });
    let made = ask("POST", "/api/sessions", Some(create)).await;
    let id = made["session"]["id"].as_str().unwrap().to_owned();
    let of = |rest: &str| format!("/api/sessions/{id}{rest}");
    ask("PATCH", &of("/config"), Some(json!({ "title": "t" }))).await;
    let run = client
        .say(&id, "hello\n/bash test -n \"$AGENT$SESSION\" && echo set\n/say done")
        .await
        .all()
        .await;
    let told = run.iter().any(|frame| frame.event == "tool_result" && frame.raw.contains("set"));
    assert!(told, "{run:#?}");
    let used = spawned.model.requests();
    let with_it = used.iter().any(|request| format!("{request:?}").contains(credential));
    assert!(!with_it, "a recorded key is not shown");
    // The key itself is told once. It is kept apart.
    let made = client
        .ask("POST", "/api/api-keys", &["idempotency-key: k"], Some(&json!({ "label": "x" })))
        .await;
    let api_key = made.ok()["key"].as_str().unwrap().to_owned();
    client.with_key(&api_key).get("/api/sessions").await.ok();
    for (method, path) in super::operations() {
        if method == "GET" && !path.contains("{run}") && !path.ends_with("/stream") {
            let path =
                path.replace("{id}", &id).replace("{name}", "coder").replace("{version}", "1");
            let path = path.replace("{*path}", "CLAUDE.md").replace("{path}", "CLAUDE.md");
            answers.push(client.get(&path).await.body);
        }
    }
    answers.extend(log(client, &id).await.into_iter().map(|Frame { raw, .. }| raw));
    // What is refused is not repeated either.
    let twisted = json!({ "agent": 5, "extraEnv": { "SESSION": session } });
    answers.push(client.post("/api/sessions", &twisted).await.body);
    let wrong = json!({ "type": "anthropic", "key": [credential] });
    answers.push(client.post("/api/credentials", &wrong).await.body);
    client.with_key(agent).get("/api/sessions").await.refused(401);

    let mut all = SECRETS.to_vec();
    all.push(("an API key", &api_key));
    all.push(("the first API key", &client.key));
    for (what, secret) in &all {
        assert!(!answers.iter().any(|answer| answer.contains(secret)), "{what} is in an answer");
        assert!(!spawned.said().contains(secret), "{what} is in the log");
        let data = spawned.dir.path().join("data");
        for file in std::fs::read_dir(&data).unwrap().map(|file| file.unwrap().path()) {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            if name.starts_with("ash.db") {
                assert!(!holds(&file, secret), "{what} is in {name}");
            }
        }
    }
    assert!(spawned.said().contains("answered"), "the log says something: {}", spawned.said());
    for file in ["data", "data/initial-api-key"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(spawned.dir.path().join(file)).unwrap();
        assert_eq!(mode.permissions().mode() & 0o077, 0, "{file} can be read by others");
    }
    spawned.end().await;
}

fn holds(file: &Path, secret: &str) -> bool {
    let content = std::fs::read(file).unwrap();
    content.windows(secret.len()).any(|window| window == secret.as_bytes())
}
