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

/// What a request with these fields besides its messages is answered.
async fn check_fields(cases: Vec<(Value, &str)>) {
    let model = plain().await;
    for (fields, wanted) in cases {
        let mut request = body(&json!([user(json!("a"))]), false);
        for (name, value) in fields.as_object().unwrap() {
            request[name] = value.clone();
        }
        let response = post(model.addr(), &request).await.unwrap();
        if wanted.is_empty() {
            assert_eq!(response.status, 200, "{fields}: {}", response.body);
            continue;
        }
        assert_eq!(response.status, 400, "{fields}");
        let (_, message) = response.error();
        assert!(message.contains(wanted), "{fields}: {message}");
    }
    model.shutdown().await;
}

#[tokio::test]
async fn tools_that_are_none_are_refused() {
    let schema = json!({ "type": "object" });
    let tool = |schema: Value| json!({ "tools": [{ "name": "t", "input_schema": schema }] });
    let named = |name: &str| json!({ "name": name, "input_schema": schema });
    let combined = "does not support oneOf, allOf, or anyOf at the top level";
    check_fields(vec![
        (tool(schema.clone()), ""),
        (json!({ "tools": [{ "type": "bash_20250124", "name": "bash" }] }), ""),
        (json!({ "tools": [named("a"), named("b")] }), ""),
        (json!({ "tools": [named("a"), named("a")] }), "tools: Tool names must be unique."),
        (json!({ "tools": [named("a b")] }), "tools.0.custom.name: String should match pattern"),
        (json!({ "tools": [{ "name": "t" }] }), "tools.0.custom.input_schema: Field required"),
        (json!({ "tools": [{ "input_schema": {} }] }), "tools.0.custom.name: Field required"),
        (json!({ "tools": {} }), "tools: Input should be a valid list"),
        (tool(json!({})), "tools.0.custom.input_schema.type: Field required"),
        (tool(json!({ "type": "string" })), "input_schema.type: Input should be 'object'"),
        (tool(json!(true)), "tools.0.custom.input_schema: Input should be an object"),
        (tool(json!({ "type": "object", "anyOf": [] })), combined),
        (tool(json!({ "type": "object", "properties": { "a b": {} } })), "Property keys"),
        (json!({ "tool_choice": { "type": "auto" } }), "tool_choice: may only be specified"),
    ])
    .await;
}

#[tokio::test]
async fn settings_that_contradict_are_refused() {
    let thinking = |budget: u64, max: u64| {
        let thinking = json!({ "type": "enabled", "budget_tokens": budget });
        json!({ "thinking": thinking, "max_tokens": max })
    };
    let mut warm = thinking(1_024, 1_025);
    warm["temperature"] = json!(0.5);
    let marked = json!({ "type": "text", "text": "x", "cache_control": { "type": "ephemeral" } });
    check_fields(vec![
        (thinking(1_024, 1_025), ""),
        (json!({ "thinking": { "type": "adaptive" } }), ""),
        (thinking(1_023, 2_000), "greater than or equal to 1024"),
        (thinking(2_000, 2_000), "`max_tokens` must be greater than `thinking.budget_tokens`"),
        (json!({ "thinking": { "type": "enabled" } }), "budget_tokens: Field required"),
        (json!({ "thinking": { "type": "deep" } }), "thinking: Input tag 'deep'"),
        (warm, "`temperature` may only be set to 1"),
        (json!({ "system": [marked, marked, marked, marked] }), ""),
        (
            json!({ "system": [marked, marked, marked, marked, marked] }),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        (json!({ "system": 7 }), "system: Input should be a valid string or list"),
        (json!({ "system": [{ "type": "image" }] }), "system.0.type: Input should be 'text'"),
        (json!({ "system": [{ "type": "text", "text": "" }] }), "must be non-empty"),
    ])
    .await;
}

#[tokio::test]
async fn blocks_that_the_api_does_not_take_are_refused() {
    let marked = json!({ "type": "text", "text": "x", "cache_control": { "type": "ephemeral" } });
    let image = |length: usize| {
        let source = json!({ "type": "base64", "data": "A".repeat(length) });
        json!({ "type": "image", "source": source })
    };
    let answered = |content: Value, is_error: bool| {
        let mut result = result("a");
        result["content"] = content;
        result["is_error"] = json!(is_error);
        json!([user(json!("x")), assistant(json!([call("a")])), user(json!([result]))])
    };
    check(vec![
        (answered(json!([image(4)]), false), ""),
        (answered(json!("no"), true), ""),
        (answered(json!([image(4)]), true), "must be type \"text\" if `is_error` is true"),
        (answered(json!([marked, marked, marked, marked, marked]), false), "Found 5."),
        (json!([user(json!([image(5 << 20)]))]), ""),
        (json!([user(json!([image((5 << 20) + 1)]))]), "image exceeds 5 MB maximum"),
    ])
    .await;
}
