//! Who may see and do what: keys, and a stranger who knows every id.

use serde_json::{Value, json};

use super::client::Client;
use super::operations;
use super::served::{Served, With, agent, let_go};

#[tokio::test]
async fn only_a_known_key_opens_the_api() {
    let served = Served::start().await;
    let client = &served.client;
    let nobody = client.with_key("");
    for (header, sentence) in [
        ("authorization: -", "Missing Authorization header"),
        ("authorization: Basic dXNlcjpwYXNz", "Invalid Authorization header format"),
        ("authorization: Bearer", "Invalid Authorization header format"),
        ("authorization: Bearer  ", "Invalid Authorization header format"),
        ("authorization: token x", "Invalid Authorization header format"),
        ("authorization: Bearer ash_wrong", "Invalid API key"),
    ] {
        for (method, path) in operations() {
            let answer = nobody.ask(&method, &path, &[header], None).await;
            if path.starts_with("/health") || path.starts_with("/docs") {
                assert_eq!(answer.status, 200, "{path}");
                continue;
            }
            if path.starts_with("/api/internal/") {
                assert_eq!(answer.refused(403), "no_internal_secret", "{method} {path}");
                continue;
            }
            assert_eq!(answer.refused(401), "unauthorized", "{method} {path}");
            assert_eq!(answer.json()["error"], sentence, "{method} {path} {header}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        // Somebody without a key does not learn which routes there are.
        let answer = nobody.ask("GET", "/api/nothing-here", &[header], None).await;
        assert_eq!(answer.refused(401), "unauthorized");
    }
    let lower = format!("authorization: bearer {}", client.key);
    assert_eq!(nobody.ask("GET", "/api/sessions", &[&lower], None).await.status, 200);
    for path in ["/health", "/health?x=1", "/health/ready", "/docs", "/docs/json"] {
        assert_eq!(nobody.get(path).await.status, 200, "{path}");
    }
    served.end().await;
}

#[tokio::test]
async fn a_revoked_key_opens_nothing_from_then_on() {
    let served = Served::start().await;
    let client = &served.client;
    let made = client.post("/api/api-keys", &json!({ "label": "short" })).await.ok();
    let short = client.with_key(made["key"].as_str().unwrap());
    short.get("/api/sessions").await.ok();
    client.delete(&format!("/api/api-keys/{}", made["id"].as_str().unwrap())).await.ok();
    assert_eq!(short.get("/api/sessions").await.refused(401), "unauthorized");
    client.get("/api/sessions").await.ok();
    served.end().await;
}

#[tokio::test]
async fn the_key_of_the_environment_is_the_default_tenants() {
    let key = "a-key-of-the-environment".to_owned();
    let with = With { variables: vec![("ASH_API_KEY", key)], ..With::default() };
    let served = Served::with(with).await;
    agent(&served.client, "coder").await;
    let agents = served.client.get("/api/agents").await.ok();
    assert_eq!(agents["agents"][0]["tenantId"], "default");
    assert!(!served.dir.join("data/initial-api-key").exists());
    let keys = served.client.get("/api/api-keys").await.ok();
    assert_eq!(keys["keys"][0]["id"], "env");
    assert!(!keys.to_string().contains("a-key-of-the-environment"), "{keys}");
    served.end().await;
}

/// What belongs to the first tenant, by the names of the parameters that stand for it.
struct Belongings {
    session: String,
    run: String,
    snapshot: String,
    key: String,
    credential: String,
    attachment: String,
    item: String,
}

impl Belongings {
    async fn of(client: &Client) -> Self {
        agent(client, "coder").await;
        let credential = json!({ "type": "anthropic", "key": "sk-mine", "label": "label-of-mine" });
        let credential = client.post("/api/credentials", &credential).await.ok();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let credential = text(&credential["credential"]["id"]);
        let key = client.post("/api/api-keys", &json!({ "label": "key-of-mine" })).await.ok();
        let create =
            json!({ "agent": "coder", "title": "title-of-mine", "credentialId": credential });
        let made = client.post("/api/sessions", &create).await.ok();
        let session = text(&made["session"]["id"]);
        let file = json!({ "filename": "file-of-mine", "content": "eA==" });
        let attached =
            client.post(&format!("/api/sessions/{session}/attachments"), &file).await.ok();
        let item = json!({ "agentName": "coder", "prompt": "item-of-mine", "sessionId": session });
        let item = text(&client.post("/api/queue", &item).await.ok()["item"]["id"]);
        while client.get(&format!("/api/queue/{item}")).await.ok()["item"]["completedAt"].is_null()
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let run = client.say(&session, "word-of-mine\n/say answer-of-mine").await.all().await;
        let run = text(&run.last().unwrap().data["runId"]);
        // What is captured later is no change that a stranger made.
        let snapshot = loop {
            let now = client.get(&format!("/api/sessions/{session}")).await.ok();
            let last = &now["session"]["snapshot"];
            if let Some(snapshot) = last["id"].as_str().filter(|_| last["turn"] == 2) {
                break snapshot.to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        let attachment = text(&attached["attachment"]["id"]);
        Self { session, run, snapshot, key: text(&key["id"]), credential, attachment, item }
    }

    /// A route with the first tenant's names in it; nothing, if it names nothing.
    fn named(&self, path: &str) -> Option<String> {
        let id = match path.split('/').nth(2) {
            Some("api-keys") => &self.key,
            Some("credentials") => &self.credential,
            Some("attachments") => &self.attachment,
            Some("queue") => &self.item,
            _ => &self.session,
        };
        let named = path
            .replace("{id}", id)
            .replace("{run}", &self.run)
            .replace("{snapshot}", &self.snapshot)
            .replace("{permission}", &self.run)
            .replace("{name}", "coder")
            .replace("{version}", "1")
            .replace("{*path}", "CLAUDE.md")
            .replace("{path}", "CLAUDE.md");
        assert!(!named.contains('{'), "{path} has a parameter that is not known here");
        (named != path).then_some(named)
    }

    /// Everything that the first tenant can see.
    async fn seen(&self, client: &Client) -> Vec<Value> {
        let mut seen = Vec::new();
        for (method, path) in operations() {
            let path = self.named(&path).unwrap_or(path);
            let endless = path.ends_with("/stream");
            // And there is no cloud here.
            let counted = ["/health", "/metrics", "/docs", "/api/cloud", "/api/internal"];
            let counted = counted.iter().any(|of| path.starts_with(of));
            // When a credential was last used is not of interest here.
            if method == "GET" && !endless && !counted {
                // What is no JSON may change from one moment to the next only in its packing.
                let answer = client.get(&path).await;
                assert_eq!(answer.status, 200, "{path}");
                let is_json = answer.header("content-type") == Some("application/json");
                seen.push(json!([path, is_json.then(|| answer.json())]));
            }
        }
        let stream = client.follow(&self.session, "until=idle").await.all().await;
        seen.push(stream.iter().map(|frame| frame.raw.clone()).collect());
        seen
    }

    fn appears_in(&self, text: &str) -> bool {
        let of_mine = text.contains("-of-mine") || text.contains("You are tested");
        of_mine
            || [&self.session, &self.run, &self.key, &self.credential, &self.attachment, &self.item]
                .into_iter()
                .any(|id| text.contains(id.as_str()))
    }
}

/// A body that the route takes.
fn body(method: &str, path: &str) -> Option<Value> {
    let last = path.rsplit('/').next().unwrap_or_default();
    match (method, last) {
        ("POST", _) if path.contains("/permissions/") => Some(json!({ "behavior": "allow" })),
        ("POST", "messages") => Some(json!({ "content": "intruder", "wake": true })),
        ("POST", "rewind") => Some(json!({ "turn": 1 })),
        ("POST", "exec") => Some(json!({ "command": "touch intruder" })),
        ("POST", "files") => {
            let file = json!({ "path": "intruder", "content": "eA==" });
            Some(json!({ "files": [file] }))
        }
        ("POST", "versions") => Some(json!({ "name": "intruder" })),
        ("POST", "attachments") => Some(json!({ "filename": "intruder", "content": "eA==" })),
        ("POST", "workspace") => Some(json!({ "bundle": "H4sI" })),
        ("PATCH", "config") => Some(json!({ "title": "intruder" })),
        ("PATCH", _) => Some(json!({ "env": { "INTRUDER": "1" } })),
        _ => None,
    }
}

#[tokio::test]
async fn a_stranger_with_every_id_finds_nothing_and_changes_nothing() {
    let served = Served::start().await;
    let (client, stranger) = (&served.client, served.stranger().await);
    let mine = Belongings::of(client).await;
    let before = mine.seen(client).await;
    let mut tried = 0;
    for (method, path) in operations() {
        let Some(path) = mine.named(&path) else { continue };
        let answer = stranger.ask(&method, &path, &[], body(&method, &path).as_ref()).await;
        // There is no cloud, for anybody.
        let code = if path.starts_with("/api/cloud/") { "no_cloud" } else { "not_found" };
        assert_eq!(answer.refused(404), code, "{method} {path}");
        let text = answer.body.replace(answer.header("x-request-id").unwrap(), "");
        assert!(!mine.appears_in(&text), "{method} {path}: {text}");
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
    for header in ["last-event-id: 1-1", "last-event-id: 9-9", "idempotency-key: k"] {
        let path = format!("/api/sessions/{}/stream?after=0", mine.session);
        assert_eq!(stranger.ask("GET", &path, &[header], None).await.refused(404), "not_found");
    }
    // Lists are their own.
    for (method, path) in operations() {
        let is_for_all = path == "/metrics" || path.starts_with("/api/internal/");
        if method == "GET" && mine.named(&path).is_none() && !is_for_all {
            let answer = stranger.get(&path).await;
            assert!(!mine.appears_in(&answer.body), "{path}: {answer:?}");
            let status = if path.starts_with("/api/cloud/") { 404 } else { 200 };
            assert_eq!(answer.status, status, "{path}");
        }
    }
    for query in [
        format!("/api/sessions?cursor={}", mine.session),
        format!("/api/sessions?idPrefix={}", &mine.session[..8]),
        "/api/sessions?agent=coder&includeTotal=true".to_owned(),
        format!("/api/usage?sessionId={}", mine.session),
        "/api/usage?agentName=coder".to_owned(),
        format!("/api/usage/stats?sessionId={}", mine.session),
    ] {
        let answer = stranger.get(&query).await;
        assert!(!mine.appears_in(&answer.body), "{query}: {answer:?}");
        let all_is_empty = |value: &Value| match value {
            Value::Array(items) => items.is_empty(),
            Value::Number(number) => number.as_f64() == Some(0.0),
            _ => true,
        };
        let empty = answer.ok();
        let fields = empty.as_object().unwrap().values();
        let nested = fields.clone().filter_map(Value::as_object).flat_map(|inner| inner.values());
        assert!(fields.chain(nested).all(all_is_empty), "{query}: {empty}");
    }
    // Nor can anything be made of what is not theirs.
    let made = stranger.post("/api/sessions", &json!({ "agent": "coder" })).await;
    assert_eq!(made.refused(404), "not_found");
    let path = json!({ "name": "coder", "path": "/" });
    assert_eq!(stranger.post("/api/agents", &path).await.refused(403), "path_not_allowed");
    agent(&stranger, "theirs").await;
    let create = json!({ "agent": "theirs", "credentialId": mine.credential });
    assert_eq!(stranger.post("/api/sessions", &create).await.refused(400), "invalid_credential");
    assert_eq!(mine.seen(client).await, before);
    served.end().await;
}

#[tokio::test]
async fn the_same_idempotency_key_of_another_tenant_is_another_key() {
    let served = Served::start().await;
    let (client, stranger) = (&served.client, served.stranger().await);
    let mut ids = Vec::new();
    for somebody in [client, &stranger] {
        let ask = async |path: &str, body: Value| {
            somebody.ask("POST", path, &["idempotency-key: same"], Some(&body)).await.ok()
        };
        let deploy = json!({ "name": "coder", "systemPrompt": "Be brief." });
        let agent = ask("/api/agents", deploy).await["agent"]["id"].clone();
        let session = ask("/api/sessions", json!({ "agent": "coder" })).await;
        let session = session["session"]["id"].as_str().unwrap().to_owned();
        let sent = json!({ "content": "hello", "detach": true });
        let run = ask(&format!("/api/sessions/{session}/messages"), sent).await["runId"].clone();
        let key = ask("/api/api-keys", json!({ "label": "k" })).await;
        let credential = json!({ "type": "custom", "key": "s" });
        let credential = ask("/api/credentials", credential).await["credential"]["id"].clone();
        ids.push([agent, json!(session), run, key["id"].clone(), key["key"].clone(), credential]);
    }
    for (mine, theirs) in ids[0].iter().zip(&ids[1]) {
        assert_ne!(mine, theirs);
        assert!(mine.is_string() && theirs.is_string(), "{mine} {theirs}");
    }
    served.end().await;
}

#[tokio::test]
async fn a_stranger_can_neither_watch_nor_disturb_a_run_that_goes_on() {
    let served = Served::start().await;
    let (client, stranger) = (&served.client, served.stranger().await);
    let (session, watched) = served.busy().await;
    for (method, rest) in [
        ("POST", "interrupt"),
        ("POST", "stop"),
        ("POST", "pause"),
        ("GET", "stream"),
        ("GET", "logs"),
    ] {
        let path = format!("/api/sessions/{session}/{rest}");
        assert_eq!(stranger.ask(method, &path, &[], None).await.refused(404), "not_found");
    }
    assert_eq!(stranger.delete("/api/agents/coder").await.refused(404), "not_found");
    let_go(client, &session).await;
    let rest = watched.all().await;
    assert_eq!(rest.last().unwrap().data["stopReason"], "end_turn");
    served.end().await;
}
