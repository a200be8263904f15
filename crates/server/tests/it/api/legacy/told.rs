//! What a session says of itself, as its program finds it: in the files of the workspace.

use std::fs;

use super::*;
use crate::api::brought_back::{packs, stop};
use crate::api::cloud::until as until_async;

const RHYMES: &str = "Speak in rhymes.";

/// Deploys an agent with instructions and servers of its own.
async fn deploy(client: &Client) {
    let servers = json!({ "mcpServers": { "a": { "command": "its" }, "b": { "command": "its" } } });
    let content = |text: &str| BASE64_STANDARD.encode(text);
    let files = json!([
        { "path": "CLAUDE.md", "content": content("You are tested.") },
        { "path": ".mcp.json", "content": content(&servers.to_string()) },
    ]);
    client.post("/api/agents", &json!({ "name": "coder", "files": files })).await.ok();
}

/// A session that says more than its agent.
async fn create(client: &Client) -> String {
    let body = json!({
        "agent": "coder", "systemPrompt": RHYMES,
        "mcpServers": { "b": { "command": "mine" }, "c": { "url": "https://x.example/mcp" } },
    });
    let made = client.post("/api/sessions", &body).await.ok();
    made["session"]["id"].as_str().unwrap().to_owned()
}

/// The servers of both.
fn merged() -> Value {
    json!({ "mcpServers": {
        "a": { "command": "its" }, "b": { "command": "mine" }, "c": { "url": "https://x.example/mcp" },
    } })
}

/// What the program found when it was started: its instructions and its servers.
async fn found(client: &Client, session: &str) -> (String, Value) {
    let told = answer(&say(client, session, "/found").await);
    let [instructions, servers]: [Option<String>; 2] = serde_json::from_str(&told).unwrap();
    let servers = servers.unwrap_or_default();
    (instructions.unwrap_or_default(), serde_json::from_str(&servers).unwrap_or(json!(servers)))
}

async fn exec(client: &Client, session: &str, command: &str) {
    let path = format!("/api/sessions/{session}/exec");
    let ran = client.post(&path, &json!({ "command": command })).await.ok();
    assert_eq!(ran["exitCode"], 0, "{ran}");
}

/// Gives a session a new sandbox.
async fn restart(client: &Client, session: &str) {
    for what in ["stop", "resume"] {
        client.post(&format!("/api/sessions/{session}/{what}"), &json!({})).await.ok();
    }
}

async fn file(client: &Client, session: &str, name: &str) -> String {
    client.get(&format!("/api/sessions/{session}/files/{name}")).await.body
}

#[tokio::test]
async fn a_program_finds_what_its_session_says_and_its_edits_stay() {
    let Some(program) = Program::new() else { return };
    let served = program.served().await;
    let client = &served.client;
    deploy(client).await;
    let session = create(client).await;
    let told = say(client, &session, "/memory").await;
    assert_eq!(answer(&told), "/memory", "it hears the message and nothing else");
    assert_eq!(named(&told, "notice"), Vec::<&Value>::new());
    assert_eq!(found(client, &session).await, (RHYMES.to_owned(), merged()));
    assert_eq!(file(client, &session, "CLAUDE.md").await, RHYMES);

    exec(client, &session, "printf edited > CLAUDE.md; printf '{}' > .mcp.json").await;
    let edited = ("edited".to_owned(), json!({}));
    say(client, &session, "/die").await;
    assert_eq!(found(client, &session).await, edited, "a new program in the same sandbox");
    restart(client, &session).await;
    assert_eq!(found(client, &session).await, edited, "and in another one");

    exec(client, &session, "rm CLAUDE.md .mcp.json").await;
    restart(client, &session).await;
    let mut own = merged();
    own["mcpServers"].as_object_mut().unwrap().remove("a");
    assert_eq!(found(client, &session).await, (RHYMES.to_owned(), own));

    // What cannot be understood is left alone, and that is said.
    exec(client, &session, "printf nonsense > .mcp.json; rm ~/.ash-told.json").await;
    restart(client, &session).await;
    let told = say(client, &session, "Hello").await;
    let notices = named(&told, "notice");
    let [notice] = notices[..] else { panic!("{told:#?}") };
    let notice = notice["message"].as_str().unwrap();
    assert!(notice.contains("mcpServers of the session are not in .mcp.json"), "{notice}");
    assert_eq!(found(client, &session).await, (RHYMES.to_owned(), json!("nonsense")));
    served.end().await;
}

#[tokio::test]
async fn what_was_lost_is_told_with_the_first_message_and_is_in_no_file() {
    let Some(program) = Program::new() else { return };
    let spawned = program.spawned().await;
    let client = &spawned.client;
    deploy(client).await;
    let session = create(client).await;
    say(client, &session, "The codeword is PLUM.").await;
    exec(client, &session, "printf edited > CLAUDE.md").await;
    stop(client, &session).await;
    // The home stays, and with it what was written to which files.
    let data = spawned.dir.path().join("data");
    packs(&data.join("snapshots/default")).iter().for_each(|pack| fs::remove_file(pack).unwrap());
    fs::remove_dir_all(data.join("sandboxes").join(&session).join("workspace")).unwrap();
    let path = format!("/api/sessions/{session}/resume");
    let back = client.post(&path, &json!({ "allowFresh": true })).await.ok();
    assert_eq!(back["resume"]["workspace"], "fresh", "{back}");
    assert_eq!(found(client, &session).await, (RHYMES.to_owned(), merged()));
    assert_eq!(file(client, &session, "CLAUDE.md").await, RHYMES);
    let heard = answer(&say(client, &session, "/memory").await);
    assert!(heard.contains("a fresh copy of what the session began with"), "{heard}");
    assert!(heard.contains("The person: The codeword is PLUM."), "{heard}");
    assert!(!heard.contains(RHYMES), "{heard}");
    client.delete(&format!("/api/sessions/{session}")).await.ok();
    spawned.end().await;
}

#[tokio::test]
async fn a_sandbox_that_waited_starts_its_program_over_all_of_its_files() {
    let Some(program) = Program::new().filter(|_| can_isolate()) else { return };
    let variables = vec![program.setting(), ("ASH_MAX_PREWARMED", "4".to_owned())];
    let served = Served::with(With { variables, ..With::default() }).await;
    let client = &served.client;
    deploy(client).await;
    for _session in 0..3 {
        until_async("one waits", async || {
            client.get("/health").await.ok()["pool"]["preWarmed"] == 1
        })
        .await;
        let session = create(client).await;
        assert_eq!(found(client, &session).await, (RHYMES.to_owned(), merged()));
        assert_eq!(answer(&say(client, &session, "/memory").await), "/found | /memory");
    }
    assert_eq!(client.get("/health").await.ok()["pool"]["preWarmHits"], 3);
    served.end().await;
}
