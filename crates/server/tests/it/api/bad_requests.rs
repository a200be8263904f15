//! Requests that make no sense: each is refused with a code, and changes nothing. Which bodies there
//! are and what is in them is read from the documentation, so that a new field is tried too.

use serde_json::{Value, json};

use super::client::Client;
use super::served::{Served, agent};

/// A route that takes a body, and a body that it takes.
struct Taker {
    method: &'static str,
    route: &'static str,
    good: Value,
}

fn takers() -> Vec<Taker> {
    let taker = |method, route, good| Taker { method, route, good };
    let files = json!({ "files": [{ "path": "x", "content": "" }] });
    vec![
        taker("POST", "/api/sessions", json!({ "agent": "coder" })),
        taker("PATCH", "/api/sessions/{id}/config", json!({})),
        taker("POST", "/api/sessions/{id}/pause", json!({})),
        taker("POST", "/api/sessions/{id}/resume", json!({})),
        taker("POST", "/api/sessions/{id}/messages", json!({ "content": "x", "detach": true })),
        taker("POST", "/api/sessions/{id}/exec", json!({ "command": "true" })),
        taker("POST", "/api/sessions/{id}/files", files.clone()),
        taker("POST", "/api/sessions/{id}/workspace", json!({ "bundle": "H4sI" })),
        taker(
            "POST",
            "/api/sessions/{id}/attachments",
            json!({ "filename": "x", "content": "eA==" }),
        ),
        taker("POST", "/api/queue", json!({ "agentName": "coder", "prompt": "x" })),
        taker("POST", "/api/agents", json!({ "name": "other", "systemPrompt": "x" })),
        taker("PATCH", "/api/agents/{name}", json!({})),
        taker("PATCH", "/api/agents/{name}/config", json!({})),
        taker("POST", "/api/agents/{name}/files", files),
        taker("POST", "/api/agents/{name}/versions", json!({})),
        taker("PATCH", "/api/agents/{name}/versions/{version}", json!({})),
        taker("POST", "/api/api-keys", json!({ "label": "x" })),
        taker("POST", "/api/credentials", json!({ "type": "custom", "key": "x" })),
    ]
}

fn document() -> Value {
    serde_json::from_str(&ash_server::http::document()).unwrap()
}

/// What a reference stands for.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => resolve(document, document.pointer(&reference[1..]).unwrap()),
        None => schema,
    }
}

/// The types of JSON that a schema takes; nothing, if it takes anything.
fn types(document: &Value, schema: &Value) -> Option<Vec<String>> {
    let schema = resolve(document, schema);
    for several in ["oneOf", "anyOf"] {
        if let Some(each) = schema[several].as_array() {
            let each: Option<Vec<Vec<String>>> =
                each.iter().map(|one| types(document, one)).collect();
            return each.map(|each| each.concat());
        }
    }
    if let Some(all) = schema["allOf"].as_array() {
        return all.iter().find_map(|one| types(document, one));
    }
    match &schema["type"] {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(each) => {
            Some(each.iter().map(|one| one.as_str().unwrap().to_owned()).collect())
        }
        _ => None,
    }
}

/// Values of every type that is not among these.
fn of_other_types(types: &[String]) -> Vec<Value> {
    let all = [
        ("string", json!("5")),
        ("string", json!("true")),
        ("integer", json!(5)),
        ("integer", json!(-7)),
        ("number", json!(1.5)),
        ("boolean", json!(true)),
        ("array", json!([])),
        ("array", json!(["coder"])),
        ("object", json!({})),
    ];
    let takes = |of: &str| {
        types.iter().any(|one| one == of)
            || (of == "integer" && types.iter().any(|one| one == "number"))
    };
    all.into_iter().filter(|(of, _)| !takes(of)).map(|(_, value)| value).collect()
}

fn body_schema<'a>(document: &'a Value, taker: &Taker) -> &'a Value {
    let operation = &document["paths"][taker.route][taker.method.to_lowercase()];
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{} {} takes no body", taker.method, taker.route);
    let schema = resolve(document, schema);
    let several = schema["oneOf"].as_array().into_iter().flatten();
    let object = several.map(|one| resolve(document, one)).find(|one| one["type"] == "object");
    object.unwrap_or(schema)
}

fn path(route: &str, session: &str) -> String {
    route.replace("{id}", session).replace("{name}", "coder").replace("{version}", "1")
}

/// Everything that a bad request could have changed.
async fn everything(client: &Client, session: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for path in [
        "/api/sessions",
        "/api/agents",
        "/api/agents/coder/versions",
        "/api/api-keys",
        "/api/credentials",
        "/api/queue",
        &format!("/api/sessions/{session}/attachments"),
        &format!("/api/sessions/{session}/events?limit=1000&type=all"),
        &format!("/api/sessions/{session}/runs"),
    ] {
        all.push(client.get(path).await.ok());
    }
    all
}

#[tokio::test]
async fn a_field_of_the_wrong_type_is_refused_on_every_route() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let before = everything(client, &session).await;
    let document = document();
    let mut tried = 0;
    for taker in takers() {
        let path = path(taker.route, &session);
        let schema = body_schema(&document, &taker);
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let Some(types) = types(&document, field) else { continue };
            for wrong in of_other_types(&types) {
                let mut body = taker.good.clone();
                body[name] = wrong;
                let answer = client.ask(taker.method, &path, &[], Some(&body)).await;
                assert_eq!(answer.status, 400, "{} {path} {body}: {answer:?}", taker.method);
                assert_eq!(answer.refused(400), "invalid_request", "{path} {body}");
                tried += 1;
            }
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            let mut body = taker.good.clone();
            body.as_object_mut().unwrap().remove(name.as_str().unwrap());
            let answer = client.ask(taker.method, &path, &[], Some(&body)).await;
            assert_eq!(answer.refused(400), "invalid_request", "{path} {body}");
        }
    }
    assert!(tried > 100, "{tried}");
    assert_eq!(everything(client, &session).await, before);
    served.end().await;
}

#[tokio::test]
async fn a_body_that_is_no_object_of_json_is_refused_on_every_route() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let before = everything(client, &session).await;
    for taker in takers() {
        let path = path(taker.route, &session);
        let good = taker.good.to_string().into_bytes();
        let broken_utf8 = [b"{\"title\": \"".as_slice(), &[0xff, 0xfe], b"\"}"].concat();
        let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        for bad in [
            b"{bad".to_vec(),
            b"\"x\"".to_vec(),
            b"5".to_vec(),
            b"[]".to_vec(),
            b"[\"coder\"]".to_vec(),
            b"[\"coder\", null]".to_vec(),
            b"[{\"agent\": \"coder\"}]".to_vec(),
            b"true".to_vec(),
            [&good, b"x".as_slice()].concat(),
            [&good, good.as_slice()].concat(),
            good[..good.len() - 1].to_vec(),
            broken_utf8,
            deep,
        ] {
            let answer = client.ask_bytes(taker.method, &path, &[], Some(&bad)).await;
            let shown = String::from_utf8_lossy(&bad[..bad.len().min(60)]).into_owned();
            assert_eq!(answer.status, 400, "{path} {shown}: {answer:?}");
            assert_eq!(answer.refused(400), "invalid_request", "{path} {shown}");
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "x"]
        {
            let header = format!("content-type: {kind}");
            let answer = client.ask_bytes(taker.method, &path, &[&header], Some(&good)).await;
            assert_eq!(answer.refused(415), "unsupported_media_type", "{path} {kind}");
        }
    }
    assert_eq!(everything(client, &session).await, before);
    served.end().await;
}

#[tokio::test]
async fn a_value_that_is_out_of_bounds_is_refused() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let before = everything(client, &session).await;
    let long = "x".repeat(1_000_001);
    let blocks: Vec<Value> = vec![json!({ "type": "text", "text": "x" }); 21];
    let sessions = "/api/sessions".to_owned();
    let of = |rest: &str| format!("/api/sessions/{session}/{rest}");
    for (path, body) in [
        (&sessions, json!({ "agent": "" })),
        (&sessions, json!({ "agent": "coder", "model": "" })),
        (&sessions, json!({ "agent": "coder", "model": &long[..101] })),
        (&sessions, json!({ "agent": "coder", "systemPrompt": long })),
        (&sessions, json!({ "agent": "coder", "title": &long[..501] })),
        (&sessions, json!({ "agent": "coder", "metadata": { "k": &long[..70_000] } })),
        (&sessions, json!({ "agent": "coder", "permissionMode": "weird" })),
        (&sessions, json!({ "agent": "coder", "extraEnv": { "A=B": "x" } })),
        (&sessions, json!({ "agent": "coder", "extraEnv": { "": "x" } })),
        (&sessions, json!({ "agent": "coder", "extraEnv": { "A": "x\u{0}y" } })),
        (&sessions, json!({ "agent": "coder", "extraEnv": { "A": 5 } })),
        (&sessions, json!({ "agent": "coder", "mcpServers": { "s": ["url"] } })),
        (&sessions, json!({ "agent": "coder", "mcpServers": { "s": { "args": "x" } } })),
        (
            &sessions,
            json!({ "agent": "coder", "mcpServers": { "s": { "command": "a", "url": "b" } } }),
        ),
        (&sessions, json!({ "agent": "coder", "systemPrompt": "" })),
        (&sessions, json!({ "agent": "coder", "ttlMs": 0 })),
        (&sessions, json!({ "agent": "coder", "idleTimeoutMs": 99_999_999_999_999_u64 })),
        (&sessions, json!({ "agent": "coder", "budgetUsd": -1 })),
        (&sessions, json!({ "agent": "coder", "credentialId": "not-a-uuid" })),
        (&sessions, json!({ "agent": "coder", "credentialId": UNKNOWN })),
        (&of("messages"), json!({ "content": "" })),
        (&of("messages"), json!({ "content": &long[..500_001] })),
        (&of("messages"), json!({ "content": [] })),
        (&of("messages"), json!({ "content": blocks })),
        (&of("messages"), json!({ "content": [{ "type": "video" }] })),
        (&of("messages"), json!({ "content": [["text", "x"]] })),
        (&of("messages"), json!({ "content": [{ "type": "text" }] })),
        (&of("messages"), json!({ "content": "x", "thinking": ["adaptive"] })),
        (
            &of("messages"),
            json!({ "content": "x", "thinking": { "type": "enabled", "budgetTokens": 5 } }),
        ),
        (&of("messages"), json!({ "content": "x", "outputFormat": ["json_schema"] })),
        (&of("messages"), json!({ "content": "x", "effort": "huge" })),
        (&of("messages"), json!({ "content": "x", "maxTurns": 0 })),
        (&of("messages"), json!({ "content": "x", "maxBudgetUsd": -0.5 })),
        (&of("messages"), json!({ "content": "x", "ifBusy": "maybe" })),
        (&of("messages"), json!({ "content": "x", "timeoutMs": 1 })),
        (&of("exec"), json!({ "command": "" })),
        (&of("exec"), json!({ "command": "a\u{0}b" })),
        (&of("exec"), json!({ "command": "true", "timeout": 0 })),
        (&of("exec"), json!({ "command": "true", "timeout": 300_001 })),
        (&of("pause"), json!({ "ifRunning": "perhaps" })),
    ] {
        let answer = client.post(path, &body).await;
        let mut shown = body.to_string();
        shown.truncate(200);
        assert_eq!(answer.status, 400, "{path} {shown}: {answer:?}");
        answer.refused(400);
    }
    assert_eq!(everything(client, &session).await, before);
    served.end().await;
}

const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

#[tokio::test]
async fn ids_that_are_unknown_are_404_and_what_is_none_is_answered_as_in_the_original() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    for (method, route) in super::operations().into_iter().filter(|(_, route)| route.contains('{'))
    {
        let body = takers().into_iter().find(|t| t.method == method && t.route == route);
        let rewind = || route.ends_with("/rewind").then(|| json!({ "turn": 1 }));
        let answer = || route.ends_with("{permission}").then(|| json!({ "behavior": "deny" }));
        let body = body.map(|taker| taker.good).or_else(rewind).or_else(answer);
        let fill = |id: &str, name: &str| {
            let path = route.replace("{id}", id).replace("{name}", name).replace("{run}", UNKNOWN);
            path.replace("{version}", "1")
                .replace("{snapshot}", UNKNOWN)
                .replace("{permission}", UNKNOWN)
                .replace("{*path}", "CLAUDE.md")
                .replace("{path}", "CLAUDE.md")
        };
        let unknown = client.ask(&method, &fill(UNKNOWN, "nobody"), &[], body.as_ref()).await;
        // Without a cloud there is nothing in it, either.
        let code = if route.starts_with("/api/cloud/") { "no_cloud" } else { "not_found" };
        assert_eq!(unknown.refused(404), code, "{method} {route}");
        for bad in ["x", "%00", "..", "%2e%2e%2f", &UNKNOWN[1..], "%ff%fe", "' OR 1=1"] {
            let bad = bad.replace(' ', "%20");
            let answer =
                client.ask(&method, &fill(&bad, &format!("{bad}.")), &[], body.as_ref()).await;
            assert!(matches!(answer.status, 400 | 404 | 405), "{method} {route} {bad}: {answer:?}");
            answer.refused(answer.status);
        }
        let ghost = client.ask(&method, &fill("ghost", "gh.ost"), &[], body.as_ref()).await;
        // A name that cannot be is nobody's; a message has nobody to go to.
        let is_message = method == "POST" && route == "/api/sessions/{id}/messages";
        let is_nobody = route.contains("{name}") || is_message;
        let (status, code) = if is_nobody { (404, "not_found") } else { (400, "invalid_request") };
        assert_eq!(ghost.refused(status), code, "{method} {route}");
    }
    let path = format!("/api/sessions/{session}/runs/{UNKNOWN}");
    assert_eq!(client.get(&path).await.refused(404), "not_found");
    let none = client.post("/api/sessions/ghost/messages", &json!({ "content": "hello" })).await;
    assert!(none.json()["error"].as_str().unwrap().starts_with("Session not found"), "{none:?}");
    let ghost = client.post("/api/sessions", &json!({ "agent": "ghost" })).await;
    assert_eq!(ghost.refused(404), "not_found");
    assert_eq!(ghost.json()["error"], "Agent \"ghost\" not found");
    served.end().await;
}

#[tokio::test]
async fn a_query_that_makes_no_sense_is_refused() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let of = |rest: &str| format!("/api/sessions/{session}/{rest}");
    for path in [
        "/api/sessions?limit=0",
        "/api/sessions?limit=1001",
        "/api/sessions?limit=abc",
        "/api/sessions?limit=-1",
        "/api/sessions?offset=-1",
        "/api/sessions?status=asleep",
        "/api/sessions?cursor=x",
        "/api/sessions?agent=",
        "/api/sessions?includeTotal=perhaps",
        "/api/sessions?idPrefix=XYZ",
        "/api/usage?after=yesterday",
        "/api/usage?limit=0",
        "/api/usage?sessionId=x",
        &of("messages?limit=0"),
        &of("messages?limit=abc"),
        &of("messages?after=-1"),
        &of("messages?after=1.5"),
        &of("events?limit=1001"),
        &of("events?after=x"),
        &of("logs?after=-2"),
        &of("runs?limit=0"),
        &of("stream?after=x"),
        &of("stream?after=-1"),
        &of("stream?after=1-2-3"),
        &of("stream?until=never"),
        &of("files?includeHidden=perhaps"),
        &of("files?everything=1"),
        &of("files/CLAUDE.md?format=xml"),
    ] {
        let answer = client.get(path).await;
        assert_eq!(answer.refused(400), "invalid_request", "{path}");
        let (_, query) = path.split_once('?').unwrap();
        let (name, _) = query.split_once('=').unwrap();
        let told = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(told.contains(name), "{path}: {told}");
        for phrase in ["digit found", "unknown variant", "UUID parsing", "provided string"] {
            assert!(!told.contains(phrase), "{path}: {told}");
        }
    }
    for path in [of("messages?after=18446744073709551615"), of("events?after=18446744073709551615")]
    {
        assert_eq!(client.get(&path).await.refused(400), "invalid_request", "{path}");
    }
    for name in ["messages", "events"] {
        let answer = client.get(&of(&format!("{name}?after=9223372036854775807"))).await.ok();
        assert_eq!(answer[name], json!([]));
    }
    assert_eq!(client.get(&of("events?type=bogus")).await.ok()["events"], json!([]));
    let answer = client.ask("GET", &of("stream"), &["last-event-id: x"], None).await;
    assert_eq!(answer.refused(400), "invalid_request");
    served.end().await;
}

#[tokio::test]
async fn the_path_of_an_agents_file_leads_nowhere_else() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let before = client.get("/api/agents").await.ok();
    for bad in [
        "../x",
        "/etc/passwd",
        "a/../../x",
        "",
        ".",
        "..",
        "a//b",
        "a/./b",
        "a\u{0}b",
        "./a",
        "a/",
        "\\..\\x\u{7}",
    ] {
        let files = json!([
            { "path": "CLAUDE.md", "content": "eA==" }, { "path": bad, "content": "eA==" },
        ]);
        let answer = client.post("/api/agents", &json!({ "name": "coder", "files": files })).await;
        // A name that is only ugly may be taken; one that leads elsewhere may not.
        if answer.status != 201 {
            answer.refused(400);
        } else {
            assert!(
                ["./a", "a//b", "a/./b", "a/", "\\..\\x\u{7}"].contains(&bad),
                "{bad:?} was taken"
            );
        }
    }
    for twice in ["CLAUDE.md", "claude.md/x"] {
        let files = json!([
            { "path": "CLAUDE.md", "content": "eA==" },
            { "path": "claude.md", "content": "eA==" },
            { "path": twice, "content": "eA==" },
        ]);
        let answer = client.post("/api/agents", &json!({ "name": "coder", "files": files })).await;
        answer.refused(400);
    }
    for (body, code) in [
        (
            json!({ "name": "coder", "files": [{ "path": "CLAUDE.md", "content": "%%%" }] }),
            "invalid_request",
        ),
        (
            json!({ "name": "coder", "files": [{ "path": "README.md", "content": "eA==" }] }),
            "missing_claude_md",
        ),
        (json!({ "name": "coder" }), "invalid_request"),
        (json!({ "name": "coder", "files": [["CLAUDE.md", "eA=="]] }), "invalid_request"),
        (json!({ "name": "a b", "systemPrompt": "x" }), "invalid_request"),
        (json!({ "name": "../x", "systemPrompt": "x" }), "invalid_request"),
        (json!({ "name": "", "systemPrompt": "x" }), "invalid_request"),
        (json!({ "name": "coder", "path": "/", "systemPrompt": "x" }), "invalid_request"),
        (json!({ "name": "coder", "path": "/nonexistent" }), "agent_directory_unreadable"),
    ] {
        assert_eq!(client.post("/api/agents", &body).await.refused(400), code, "{body}");
    }
    for path in
        ["..%2f..%2fash.db", "%2e%2e/%2e%2e/ash.db", "%2fetc%2fpasswd", "..", "nope.txt", "%00", ""]
    {
        let answer = client.get(&format!("/api/agents/coder/files/{path}")).await;
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
        answer.refused(answer.status);
    }
    let files = client.get("/api/agents/coder/files").await.ok();
    assert_eq!(
        files["files"].as_array().unwrap().len(),
        before["agents"][0]["files"].as_u64().unwrap() as usize
    );
    served.end().await;
}

#[tokio::test]
async fn a_session_that_rests_or_is_over_takes_no_message() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let of = |rest: &str| format!("/api/sessions/{session}{rest}");
    let message = json!({ "content": "hello" });
    let refused = async |status: &str| {
        let before = client.get(&of("/events?limit=1000&type=all")).await.ok();
        let answer = client.post(&of("/messages"), &message).await;
        answer.refused(400);
        assert_eq!(answer.json()["error"], format!("Session is {status}"));
        let exec = client.post(&of("/exec"), &json!({ "command": "true" })).await;
        assert_eq!(exec.status, 400, "{exec:?}");
        assert_eq!(client.get(&of("/events?limit=1000&type=all")).await.ok(), before);
    };
    client.post(&of("/pause"), &json!({})).await.ok();
    refused("paused").await;
    let twice = client.post(&of("/pause"), &json!({})).await;
    twice.refused(400);
    assert_eq!(twice.json()["error"], "Cannot pause session with status \"paused\"");
    let stop = client.ask("POST", &of("/stop"), &[], None).await;
    assert_eq!(stop.json()["error"], "Cannot stop session with status \"paused\"");
    client.ask("POST", &of("/resume"), &[], None).await.ok();
    client.ask("POST", &of("/stop"), &[], None).await.ok();
    refused("stopped").await;
    // Unless it is meant to.
    let wake = json!({ "content": "hello\n/say awake", "wake": true });
    let run = client.open("POST", &of("/messages"), &[], Some(&wake)).await.all().await;
    assert_eq!(run.last().unwrap().data["stopReason"], "end_turn");
    client.delete(&of("")).await.ok();
    refused("ended").await;
    let answer = client.ask("POST", &of("/resume"), &[], None).await;
    assert_eq!(answer.refused(410), "session_ended");
    client.delete(&of("")).await.ok();
    assert_eq!(client.ask("POST", &of("/interrupt"), &[], None).await.status / 100, 4);
    served.end().await;
}
