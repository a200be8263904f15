//! What the real API refuses is refused here.

use ash_server::model::Options;
use serde_json::{Value, json};

use crate::client::{USUAL, ask, post};
use crate::talk::{Talk, body, model, plain};

fn user(content: Value) -> Value {
    json!({ "role": "user", "content": content })
}

fn assistant(content: Value) -> Value {
    json!({ "role": "assistant", "content": content })
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "bash", "input": {} })
}

fn result(id: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": "x" })
}

async fn check(cases: Vec<(Value, &str)>) {
    let model = plain().await;
    for (messages, wanted) in cases {
        let response = post(model.addr(), &body(&messages, true)).await.unwrap();
        if wanted.is_empty() {
            assert_eq!(response.status, 200, "{messages}: {}", response.body);
            continue;
        }
        assert_eq!(response.status, 400, "{messages}");
        let (kind, message) = response.error();
        assert_eq!(kind, "invalid_request_error");
        assert!(message.contains(wanted), "{messages}: {message}");
    }
    model.shutdown().await;
}

#[tokio::test]
async fn conversations_that_are_none_are_refused() {
    check(vec![
        (Value::Null, "messages: Field required"),
        (json!("hello"), "messages: Input should be a valid list"),
        (json!([]), "messages: at least one message is required"),
        (json!([assistant(json!("hi"))]), "first message must use the \"user\" role"),
        (json!([{ "role": "system", "content": "x" }]), "Unexpected role \"system\""),
        (json!([{ "content": "x" }]), "messages.0.role: Field required"),
        (json!([7]), "messages.0.role: Field required"),
        (json!([{ "role": "user" }]), "messages.0.content: Field required"),
        (json!([user(json!(7))]), "messages.0.content: Input should be"),
        (json!([user(json!(""))]), "messages.0: all messages must have non-empty content"),
        (json!([user(json!([]))]), "messages.0: all messages must have non-empty content"),
        (json!([user(json!([{ "type": "text", "text": "" }]))]), "must be non-empty"),
        (json!([user(json!(" \n"))]), "must contain non-whitespace text"),
        (json!([user(json!([{ "text": "a" }]))]), "messages.0.content.0.type: Field required"),
        (json!([user(json!("a")), assistant(json!([]))]), ""),
        (json!([user(json!("a")), user(json!("b"))]), ""),
    ])
    .await;
}

#[tokio::test]
async fn calls_without_results_and_results_without_calls_are_refused() {
    let orphan_call = "messages.1: `tool_use` ids were found without `tool_result` blocks \
        immediately after: b. Each `tool_use` block must have a corresponding `tool_result` block";
    let orphan_result = "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` \
        blocks: b. Each `tool_result` block must have a corresponding `tool_use` block";
    let a = || user(json!("x"));
    let text = json!({ "type": "text", "text": "t" });
    check(vec![
        (json!([a(), assistant(json!([call("a")])), user(json!([result("a")]))]), ""),
        (json!([a(), assistant(json!([call("a")])), user(json!([result("a"), text]))]), ""),
        (
            json!([a(), assistant(json!([call("a"), call("b")])), user(json!([result("a")]))]),
            orphan_call,
        ),
        (json!([a(), assistant(json!([call("b")]))]), orphan_call),
        (json!([a(), assistant(json!([call("b")])), user(json!("go on"))]), orphan_call),
        (
            json!([a(), assistant(json!([call("b")])), user(json!([text, result("b")]))]),
            orphan_call,
        ),
        (
            json!([a(), assistant(json!([call("a")])), user(json!([result("a"), result("b")]))]),
            orphan_result,
        ),
        (json!([user(json!([result("b")]))]), "messages.0.content.0: unexpected `tool_use_id`"),
        (
            json!([
                a(),
                assistant(json!([call("a")])),
                user(json!([result("a")])),
                assistant(json!("ok")),
                user(json!([result("a")])),
            ]),
            "messages.4.content.0: unexpected `tool_use_id`",
        ),
        (
            json!([a(), assistant(json!([call("a"), call("a")])), user(json!([result("a")]))]),
            "ids must be unique",
        ),
        (
            json!([a(), assistant(json!([call("a")])), user(json!([result("a"), result("a")]))]),
            "must have a single result",
        ),
        // Messages of one role that follow each other are one.
        (
            json!([
                a(),
                assistant(json!([call("a")])),
                assistant(json!([call("b")])),
                user(json!([result("a")])),
                user(json!([result("b")])),
            ]),
            "",
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_thought_must_come_back_as_it_left() {
    let model = plain().await;
    let mut talk = Talk::new(&model, "/think one two\n/bash ls\n/say fine");
    talk.next().await;
    assert_eq!(talk.ask(true).await.unwrap().status, 200);
    talk.messages[1]["content"][0]["thinking"] = json!("something else");
    let (_, message) = talk.ask(true).await.unwrap().error();
    assert_eq!(message, "messages.1.content.0: Invalid `signature` in `thinking` block");
    model.shutdown().await;
}

#[tokio::test]
async fn what_every_request_needs_is_missed() {
    let model = plain().await;
    let addr = model.addr();
    let good = body(&json!([user(json!("a"))]), false);
    for (field, wanted) in
        [("model", "model: Field required"), ("max_tokens", "max_tokens: Field required")]
    {
        let mut bad = good.clone();
        bad.as_object_mut().unwrap().remove(field);
        assert_eq!(post(addr, &bad).await.unwrap().error().1, wanted);
    }
    for text in ["{", "", "[1]"] {
        let response = ask(addr, "POST /v1/messages", &USUAL, text).await;
        assert_eq!((response.status, response.error().0.as_str()), (400, "invalid_request_error"));
    }
    let response = ask(addr, "POST /v1/messages", &USUAL[..1], &good.to_string()).await;
    assert_eq!(response.error().1, "anthropic-version: header is required");
    model.shutdown().await;
}

#[tokio::test]
async fn some_key_is_required_unless_none_is() {
    let good = body(&json!([user(json!("a"))]), false).to_string();
    let version = USUAL[1];
    let strict = plain().await;
    let cases = [
        ("x: y", 401),
        ("x-api-key: ", 401),
        ("x-api-key: k", 200),
        ("authorization: Bearer k", 200),
    ];
    for (header, status) in cases {
        let response = ask(strict.addr(), "POST /v1/messages", &[header, version], &good).await;
        assert_eq!(response.status, status, "{header}");
        assert!(status != 401 || response.error().0 == "authentication_error");
    }
    strict.shutdown().await;
    let open = model(Options { require_key: false, ..Options::default() }).await;
    assert_eq!(ask(open.addr(), "POST /v1/messages", &[version], &good).await.status, 200);
    open.shutdown().await;
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_read() {
    let model = plain().await;
    let headers = [USUAL[0], USUAL[1], "content-length: 33554433"];
    let response = ask(model.addr(), "POST /v1/messages", &headers, "").await;
    assert_eq!((response.status, response.error().0.as_str()), (413, "request_too_large"));
    model.shutdown().await;
}
