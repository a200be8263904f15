//! What it was sent is told, and keys are kept to memory.

use ash_server::model::Options;
use serde_json::{Value, json};

use crate::client::ask;
use crate::talk::{Talk, body, model, plain};

#[tokio::test]
async fn the_log_has_every_request_and_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.log");
    let options = || Options { log: Some(path.clone()), ..Options::default() };
    let first = model(options()).await;
    let mut asked = body(&json!([{ "role": "user", "content": "Hi.\n/error 529" }]), true);
    let schema = json!({ "type": "object" });
    asked["tools"] = json!([
        { "name": "bash", "input_schema": schema },
        { "name": "read", "input_schema": schema },
    ]);
    let headers = ["x-api-key: sk-very-secret", "anthropic-version: 1"];
    ask(first.addr(), "POST /v1/messages?beta=true", &headers, &asked.to_string()).await;
    let bearer = ["authorization: Bearer sk-very-secret", "anthropic-version: 1"];
    ask(first.addr(), "POST /v1/messages", &bearer, "no json").await;
    first.shutdown().await;
    let second = model(options()).await;
    Talk::new(&second, "/say more").next().await;
    second.shutdown().await;

    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("secret"));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = json!({
        "n": 1,
        "path": "/v1/messages?beta=true",
        "model": "some-model",
        "stream": true,
        "messages": 1,
        "last_user_text": "Hi.\n/error 529",
        "tools": ["bash", "read"],
        "answer": "error 529",
        "body": asked,
    });
    assert_eq!(lines[0], expected);
    assert_eq!((&lines[1]["answer"], &lines[1]["body"]), (&json!("error 400"), &Value::Null));
    assert_eq!((&lines[2]["n"], &lines[2]["answer"]), (&json!(1), &json!("text")));
}

#[tokio::test]
async fn tests_see_the_key_and_printing_does_not() {
    let model = plain().await;
    let headers = ["x-api-key: sk-very-secret", "anthropic-version: 1", "x-custom: value"];
    ask(model.addr(), "POST /v1/messages", &headers, "{}").await;
    ask(model.addr(), "GET /v1/models", &[], "").await;
    let requests = model.requests();
    assert_eq!(requests[0].key.as_ref().unwrap().reveal(), "sk-very-secret");
    assert!(requests[0].header_names.contains(&"x-custom".to_owned()));
    assert_eq!((requests[0].n, &requests[0].body), (1, &json!({})));
    assert_eq!((requests[1].path.as_str(), requests[1].answer.as_str()), ("/v1/models", "models"));
    assert!(requests[1].key.is_none());
    assert!(!format!("{requests:?}").contains("secret"));
    model.shutdown().await;
}

#[tokio::test]
async fn only_the_last_thousand_requests_are_kept() {
    let model = plain().await;
    for _ in 0..1_003 {
        ask(model.addr(), "GET /", &[], "").await;
    }
    let numbers: Vec<u64> = model.requests().iter().map(|request| request.n).collect();
    assert_eq!((numbers.len(), numbers[0], numbers[999]), (1_000, 4, 1_003));
    model.shutdown().await;
}
