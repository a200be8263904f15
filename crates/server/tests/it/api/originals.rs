//! What clients of the original ask for besides: what is counted, what whoever runs the server asks, and what is not
//! offered.

use serde_json::{Value, json};

use super::client::Client;
use super::served::{Served, With, agent};

const SECRET: &str = "between-the-operator-and-the-server";

#[tokio::test]
async fn what_is_not_offered_says_so_to_everybody_with_a_key() {
    let served = Served::start().await;
    let client = &served.client;
    let nobody = client.with_key("");
    agent(client, "coder").await;
    let id = uuid::Uuid::from_u128(7);
    for (method, path) in [
        ("GET", "/api/agents/coder/eval-cases".to_owned()),
        ("POST", "/api/agents/coder/eval-cases".to_owned()),
        ("POST", "/api/agents/coder/eval-cases/import".to_owned()),
        ("GET", "/api/agents/coder/eval-cases/export".to_owned()),
        ("GET", format!("/api/agents/coder/eval-cases/{id}")),
        ("PATCH", format!("/api/agents/coder/eval-cases/{id}")),
        ("DELETE", format!("/api/agents/coder/eval-cases/{id}")),
        ("POST", "/api/agents/coder/eval-runs".to_owned()),
        ("GET", "/api/agents/coder/eval-runs".to_owned()),
        ("GET", format!("/api/agents/coder/eval-runs/compare?runA={id}&runB={id}")),
        ("GET", format!("/api/agents/coder/eval-runs/{id}")),
        ("GET", format!("/api/agents/coder/eval-runs/{id}/results")),
        ("POST", format!("/api/agents/coder/eval-runs/{id}/score")),
        ("PATCH", format!("/api/agents/coder/eval-results/{id}")),
        ("GET", "/api/files".to_owned()),
        ("POST", "/api/files".to_owned()),
        ("GET", format!("/api/files/{id}")),
        ("DELETE", format!("/api/files/{id}")),
    ] {
        let answer = client.ask(method, &path, &[], Some(&json!({}))).await;
        assert_eq!(answer.refused(501), "not_offered", "{method} {path}");
        let answer = nobody.ask(method, &path, &["authorization: -"], None).await;
        assert_eq!(answer.refused(401), "unauthorized", "{method} {path}");
    }
    served.end().await;
}

#[tokio::test]
async fn whatever_is_listed_has_an_id_that_stays_the_same() {
    let served = Served::start().await;
    let session = served.session().await;
    served.client.say(&session, "/say Hello").await.all().await;
    let mut ids = std::collections::BTreeSet::new();
    for (path, list) in [
        (format!("/api/sessions/{session}/events"), "events"),
        (format!("/api/sessions/{session}/messages"), "messages"),
        ("/api/usage".to_owned(), "events"),
    ] {
        let first = served.client.get(&path).await.ok();
        for listed in first[list].as_array().unwrap() {
            let id: uuid::Uuid = listed["id"].as_str().unwrap().parse().unwrap();
            assert!(ids.insert(id), "{path}: {listed}");
        }
        assert_eq!(served.client.get(&path).await.ok(), first, "{path}");
    }
    assert!(ids.len() > 5, "{ids:?}");
    served.end().await;
}

#[tokio::test]
async fn an_account_is_shown_in_figures() {
    let served = Served::start().await;
    let client = &served.client;
    let empty = client.get("/api/analytics").await.ok();
    assert_eq!(empty["agents"], json!({ "total": 0 }));
    assert_eq!(empty["sessions"], json!({ "total": 0, "byStatus": {} }));
    assert_eq!(empty["evals"], json!({ "totalRuns": 0, "byStatus": {} }));
    let session = served.session().await;
    served.session().await;
    client.say(&session, "/bash true\n/say Hello").await.all().await;
    client.ask("POST", &format!("/api/sessions/{session}/stop"), &[], None).await.ok();
    let figures = client.get("/api/analytics?unknown=1").await.ok();
    assert_eq!(figures["agents"], json!({ "total": 1 }));
    let by_status = json!({ "active": 1, "stopped": 1 });
    assert_eq!(figures["sessions"], json!({ "total": 2, "byStatus": by_status }));
    let stats = client.get("/api/usage/stats").await.ok();
    assert_eq!(figures["usage"], stats["stats"]);
    for name in [
        "totalInputTokens",
        "totalOutputTokens",
        "totalCacheCreationTokens",
        "totalCacheReadTokens",
        "totalToolCalls",
        "totalMessages",
        "totalComputeSeconds",
    ] {
        assert!(stats["stats"][name].is_u64(), "{name}: {stats}");
    }
    assert_eq!(
        (&stats["stats"]["totalMessages"], &stats["stats"]["totalToolCalls"]),
        (&json!(1), &json!(1))
    );
    // Only what runs consumed has a time.
    for before in ["2020-01-01T00:00:00Z", "2020-01-01", "1577836800000"] {
        let earlier = client.get(&format!("/api/analytics?before={before}")).await.ok();
        assert_eq!(
            (&earlier["usage"]["totalMessages"], &earlier["agents"]["total"]),
            (&json!(0), &json!(1)),
            "{before}"
        );
        let since = client.get(&format!("/api/usage/stats?after={before}")).await.ok();
        assert_eq!(since, stats, "{before}");
    }
    let wrong = client.get("/api/analytics?after=yesterday").await;
    assert_eq!(wrong.refused(400), "invalid_request");
    let theirs = served.stranger().await.get("/api/analytics").await.ok();
    assert_eq!(
        (&theirs["sessions"]["total"], &theirs["usage"]["totalMessages"]),
        (&json!(0), &json!(0))
    );
    served.end().await;
}

async fn make(client: &Client, key: &str, body: &Value) -> super::client::Answer {
    client.ask("POST", "/api/internal/api-keys", &[key], Some(body)).await
}

#[tokio::test]
async fn whoever_runs_the_server_makes_keys_for_tenants() {
    let with =
        With { variables: vec![("ASH_INTERNAL_SECRET", SECRET.to_owned())], ..With::default() };
    let served = Served::with(with).await;
    let operator = served.client.with_key(SECRET);
    let body = json!({ "tenantId": "customer", "label": "theirs" });
    let made = make(&operator, "idempotency-key: one", &body).await;
    assert_eq!(made.status, 200, "{made:?}");
    let made = made.json();
    assert_eq!(made["tenantId"], "customer");
    let again = make(&operator, "idempotency-key: one", &body).await.ok();
    assert_eq!(again, made);
    let customer = served.client.with_key(made["key"].as_str().unwrap());
    agent(&customer, "theirs").await;
    let agents = customer.get("/api/agents").await.ok();
    assert_eq!(agents["agents"][0]["tenantId"], "customer");
    let keys = customer.get("/api/api-keys").await.ok();
    assert_eq!(
        (&keys["keys"][0]["id"], &keys["keys"][0]["label"]),
        (&made["id"], &json!("theirs"))
    );
    // One without a name has one.
    let second = make(&operator, "x: y", &json!({ "tenantId": "customer" })).await.ok();
    assert_ne!(second["key"], made["key"]);
    let keys = customer.get("/api/api-keys").await.ok();
    assert_eq!(keys["keys"][1]["label"], "platform-customer");

    let runners = operator.get("/api/internal/runners").await.ok();
    assert_eq!(runners, json!({ "runners": [], "count": 0, "hasLocal": true }));
    for name in ["register", "heartbeat", "deregister"] {
        let answer = operator.post(&format!("/api/internal/runners/{name}"), &json!({})).await;
        assert_eq!(answer.refused(501), "not_offered", "{name}");
    }
    for body in [
        json!({}),
        json!({ "tenantId": 5 }),
        json!({ "tenantId": "" }),
        json!({ "tenantId": "a b" }),
    ] {
        assert_eq!(make(&operator, "x: y", &body).await.refused(400), "invalid_request", "{body}");
    }
    // The secret opens nothing else, and no key opens this.
    assert_eq!(operator.get("/api/agents").await.refused(401), "unauthorized");
    for somebody in [&served.client, &customer, &served.client.with_key("wrong")] {
        assert_eq!(make(somebody, "x: y", &body).await.refused(401), "unauthorized");
        let answer = somebody.get("/api/internal/runners").await;
        assert_eq!(answer.refused(401), "unauthorized");
        assert_eq!(answer.json()["error"], "Invalid internal secret");
    }
    served.end().await;
}

#[tokio::test]
async fn without_a_secret_nobody_runs_the_server() {
    let served = Served::start().await;
    let body = json!({ "tenantId": "customer" });
    for key in [served.client.key.as_str(), "", "anything"] {
        let somebody = served.client.with_key(key);
        assert_eq!(make(&somebody, "x: y", &body).await.refused(403), "no_internal_secret");
        let answer = somebody.get("/api/internal/runners").await;
        assert_eq!(answer.refused(403), "no_internal_secret");
        let answer = somebody.post("/api/internal/runners/register", &json!({})).await;
        assert_eq!(answer.refused(403), "no_internal_secret");
    }
    served.end().await;
}

#[tokio::test]
async fn health_and_metrics_have_all_that_is_expected_of_them() {
    let served = Served::start().await;
    served.session().await;
    let health = served.client.get("/health").await.ok();
    assert_eq!((&health["status"], &health["remoteRunners"]), (&json!("ok"), &json!(0)));
    for name in ["activeSessions", "activeSandboxes", "uptime"] {
        assert!(health[name].is_u64(), "{name}: {health}");
    }
    for name in ["version", "coordinatorId"] {
        assert!(health[name].is_string(), "{name}: {health}");
    }
    for name in [
        "total",
        "cold",
        "warming",
        "warm",
        "waiting",
        "running",
        "maxCapacity",
        "resumeWarmHits",
        "resumeColdHits",
        "preWarmHits",
    ] {
        assert!(health["pool"][name].is_u64(), "{name}: {health}");
    }
    let metrics = served.client.get("/metrics").await.body;
    for line in [
        "ash_up{coordinator=",
        "ash_uptime_seconds ",
        "ash_active_sessions 1",
        "ash_active_sandboxes 1",
        "ash_pool_sandboxes{state=\"cold\"} 0",
        "ash_pool_sandboxes{state=\"warming\"} 0",
        "ash_pool_sandboxes{state=\"warm\"} ",
        "ash_pool_sandboxes{state=\"waiting\"} 1",
        "ash_pool_sandboxes{state=\"running\"} 0",
        "ash_pool_max_capacity 1000",
        // Before anything was ever counted, too.
        "ash_resume_total{path=\"warm\"} ",
        "ash_resume_total{path=\"cold\"} ",
        "ash_resume_total{path=\"prewarm\"} ",
        "ash_resume_cold_total{source=\"local\"} ",
        "ash_resume_cold_total{source=\"cloud\"} ",
        "ash_resume_cold_total{source=\"fresh\"} ",
    ] {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{line}\n{metrics}");
    }
    served.end().await;
}

#[tokio::test]
async fn every_option_of_a_session_is_kept_shown_and_changed() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let options = json!({
        "systemPrompt": "Be kind.",
        "permissionMode": "permissionsByAgent",
        "allowedTools": ["bash"],
        "disallowedTools": ["write_file"],
        "betas": ["context-1m-2025-08-07"],
        "subagents": { "reviewer": { "description": "Reviews.", "prompt": "Review." } },
        "initialAgent": "reviewer",
    });
    let mut create = options.clone();
    create["agent"] = json!("coder");
    create["extraEnv"] = json!({ "A": "1" });
    create["mcpServers"] = json!({ "near": { "command": "true" } });
    let made = client.post("/api/sessions", &create).await.ok();
    let id = made["session"]["id"].as_str().unwrap().to_owned();
    let config = &made["session"]["config"];
    for (name, value) in options.as_object().unwrap() {
        assert_eq!(&config[name], value, "{name}");
    }
    assert_eq!(config["extraEnv"], json!({ "A": "***" }));
    assert_eq!(config["mcpServers"]["near"]["command"], "true");
    let change = json!({
        "model": "m", "allowedTools": [], "disallowedTools": ["bash"], "betas": ["b"],
        "subagents": { "other": { "description": "d", "prompt": "p" } }, "initialAgent": "other",
    });
    let path = format!("/api/sessions/{id}/config");
    let changed = client.ask("PATCH", &path, &[], Some(&change)).await.ok();
    for (name, value) in change.as_object().unwrap().iter().filter(|(name, _)| *name != "model") {
        assert_eq!(&changed["session"]["config"][name], value, "{name}");
    }
    assert_eq!(changed["session"]["model"], "m");
    assert_eq!(changed["session"]["config"]["systemPrompt"], "Be kind.");
    // What the builtin agent has no use for does not trouble it.
    let run = client.say(&id, "/say Hello").await.all().await;
    assert_eq!(run.last().unwrap().data["stopReason"], "end_turn");
    for wrong in [
        json!({ "betas": "b" }),
        json!({ "betas": [5] }),
        json!({ "betas": vec!["b"; 101] }),
        json!({ "subagents": [] }),
        json!({ "subagents": { "x": "y" } }),
        json!({ "subagents": { "x": { "prompt": "y".repeat(200_000) } } }),
        json!({ "initialAgent": 5 }),
        json!({ "allowedTools": "bash" }),
        json!({ "permissionMode": "weird" }),
    ] {
        let answer = client.ask("PATCH", &path, &[], Some(&wrong)).await;
        assert_eq!(answer.refused(400), "invalid_request", "{wrong:.100}");
        let mut create = wrong.clone();
        create["agent"] = json!("coder");
        let answer = client.post("/api/sessions", &create).await;
        assert_eq!(answer.refused(400), "invalid_request", "{wrong:.100}");
    }
    served.end().await;
}

#[tokio::test]
async fn credentials_of_every_type_are_kept_and_those_that_would_have_to_enter_a_sandbox_are_not_used()
 {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let aws = json!({ "accessKeyId": "a", "secretAccessKey": "hush", "region": "r" }).to_string();
    for (kind, key, why) in [
        ("openai", "sk-hush", "openai"),
        ("bedrock", aws.as_str(), "bedrock"),
        ("custom", "hush", "no header"),
    ] {
        let made = client.post("/api/credentials", &json!({ "type": kind, "key": key })).await;
        assert_eq!(made.status, 201, "{made:?}");
        let made = made.json()["credential"].clone();
        assert_eq!((&made["type"], &made["active"]), (&json!(kind), &json!(true)));
        let told = made["unusable"].as_str().unwrap();
        assert!(told.contains(why), "{told}");
        let listed = client.get("/api/credentials").await.ok();
        assert_eq!(listed["credentials"][0]["unusable"], told);
        assert!(!made.to_string().contains("hush"));
        let create = json!({ "agent": "coder", "credentialId": made["id"] });
        let answer = client.post("/api/sessions", &create).await;
        assert_eq!(answer.refused(400), "invalid_credential", "{kind}");
        assert_eq!(answer.json()["error"], format!("The credential cannot be used. {told}"));
        let path = format!("/api/credentials/{}", made["id"].as_str().unwrap());
        assert_eq!(client.delete(&path).await.ok(), json!({ "ok": true }));
    }
    for key in ["notjson", "[]", r#"{"accessKeyId": "a", "region": "r"}"#] {
        let wrong = json!({ "type": "bedrock", "key": key });
        let answer = client.post("/api/credentials", &wrong).await;
        assert_eq!(answer.refused(400), "invalid_request", "{key}");
        assert!(answer.json()["error"].as_str().unwrap().contains("secretAccessKey"), "{answer:?}");
    }
    let usable = json!({ "type": "anthropic", "key": "sk" });
    let usable = client.post("/api/credentials", &usable).await.ok();
    assert_eq!(usable["credential"].get("unusable"), None);
    served.end().await;
}

#[tokio::test]
async fn the_lines_of_a_sandbox_are_numbered_and_asked_for_after_one() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let path = format!("/api/sessions/{session}/logs");
    let all = client.get(&path).await.ok();
    assert_eq!(all["source"], "sandbox");
    let logs = all["logs"].as_array().unwrap();
    assert_eq!((&logs[0]["index"], &logs[0]["level"]), (&json!(0), &json!("system")));
    assert!(logs.iter().all(|log| log["text"].is_string() && log["ts"].is_string()));
    assert_eq!(client.get(&format!("{path}?after=-1")).await.ok(), all);
    let rest = client.get(&format!("{path}?after=0&unknown=x")).await.ok();
    assert_eq!(rest["logs"].as_array().unwrap().len(), logs.len() - 1);
    for wrong in ["-2", "x", "1.5"] {
        let answer = client.get(&format!("{path}?after={wrong}")).await;
        assert_eq!(answer.refused(400), "invalid_request", "{wrong}");
    }
    served.end().await;
}
