//! What is sent when nothing goes wrong.

use serde_json::json;

use crate::client::{USUAL, ask, post};
use crate::talk::{Talk, body, plain};

const RICH: &str = "/think Let me think.\n/say Hello, world.\n/bash ls -l \"a b\"\n\
    /and tool read {\"path\": \"ä/ö.txt\", \"lines\": [1, 2]}";

#[tokio::test]
async fn the_events_are_those_of_the_api_in_its_order() {
    let model = plain().await;
    let response = Talk::new(&model, "/think T\n/say a b\n/bash x").ask(true).await.unwrap();
    assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let events = response.events();
    assert!(events.iter().all(|(name, data)| data["type"] == *name));
    let names: Vec<String> = events
        .iter()
        .map(|(name, data)| match data["delta"]["type"].as_str() {
            Some(delta) => delta.to_owned(),
            None => name.clone(),
        })
        .collect();
    let expected = "message_start ping \
        content_block_start thinking_delta signature_delta content_block_stop \
        content_block_start text_delta text_delta content_block_stop \
        content_block_start input_json_delta input_json_delta input_json_delta content_block_stop \
        message_delta message_stop";
    assert_eq!(names.join(" "), expected);
    assert_eq!(events[0].1["message"]["model"], "some-model");
    assert_eq!(events[0].1["message"]["content"], json!([]));
    assert_eq!(events[15].1["delta"]["stop_reason"], "tool_use");
    model.shutdown().await;
}

#[tokio::test]
async fn a_streamed_and_a_whole_answer_are_the_same() {
    let model = plain().await;
    let talk = Talk::new(&model, RICH);
    let streamed = talk.ask(true).await.unwrap();
    let whole = talk.ask(false).await.unwrap();
    assert_eq!(whole.header("content-type"), Some("application/json"));
    let message = whole.json();
    assert_eq!(json!(streamed.content()), message["content"]);
    assert_eq!(message["content"][3]["input"], json!({ "path": "ä/ö.txt", "lines": [1, 2] }));
    let events = streamed.events();
    assert_eq!(events[0].1["message"]["id"], message["id"]);
    let (_, end) = &events[events.len() - 2];
    assert_eq!(end["delta"]["stop_reason"], message["stop_reason"]);
    assert_eq!(end["usage"], message["usage"]);
    model.shutdown().await;
}

#[tokio::test]
async fn usage_and_stop_reasons_are_what_they_are_told_to_be() {
    let model = plain().await;
    for reason in ["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn"] {
        let prompt =
            format!("/usage input=1 output=2 cache-read=3 cache-write=4\n/say x\n/stop {reason}");
        let message = Talk::new(&model, &prompt).ask(false).await.unwrap().json();
        assert_eq!(message["stop_reason"], reason);
        let usage = json!({
            "input_tokens": 1,
            "output_tokens": 2,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 4,
        });
        assert_eq!(message["usage"], usage);
    }
    model.shutdown().await;
}

#[tokio::test]
async fn an_answer_can_be_empty_odd_or_long() {
    let model = plain().await;
    assert_eq!(Talk::new(&model, "/empty").next().await, Vec::<serde_json::Value>::new());
    let long = Talk::new(&model, "/repeat 1000 \"word \"").next_text().await;
    assert_eq!(long, "word ".repeat(1000));
    let flood = Talk::new(&model, "/flood 10000").ask(true).await.unwrap();
    assert_eq!(flood.events().len(), 10_000 + 6);
    let mut odd = Talk::new(&model, "/unknown\n/say known\n/slow 1ms");
    let response = odd.ask(true).await.unwrap();
    assert!(response.events().iter().any(|(name, _)| name == "scripted_event"));
    let content = odd.take(&response);
    assert_eq!(content[0]["type"], "scripted_unknown");
    assert_eq!(content[1], json!({ "type": "text", "text": "known" }));
    model.shutdown().await;
}

#[tokio::test]
async fn input_that_is_not_json_is_sent_as_it_is() {
    let model = plain().await;
    let talk = Talk::new(&model, "/bad-tool read {\"path\": \"unfini");
    let streamed = talk.ask(true).await.unwrap();
    assert_eq!(streamed.content()[0]["input"], "{\"path\": \"unfini");
    assert_eq!(talk.ask(false).await.unwrap().json()["content"][0]["input"], "{\"path\": \"unfini");
    model.shutdown().await;
}

#[tokio::test]
async fn the_shell_tool_has_the_name_that_is_offered() {
    let model = plain().await;
    let mut body = body(&json!([{ "role": "user", "content": "/bash ls" }]), false);
    body["tools"] = json!([{ "name": "Bash", "input_schema": { "type": "object" } }]);
    let message = post(model.addr(), &body).await.unwrap().json();
    assert_eq!(message["content"][0]["name"], "Bash");
    model.shutdown().await;
}

#[tokio::test]
async fn it_says_everywhere_what_it_is() {
    let model = plain().await;
    let addr = model.addr();
    let about = ask(addr, "GET /", &[], "").await;
    assert!(about.body.contains("not a model"), "{}", about.body);
    let head = ask(addr, "HEAD /", &[], "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let models = ask(addr, "GET /v1/models?limit=5", &USUAL, "").await;
    assert_eq!(models.json()["data"].as_array().unwrap().len(), 1);
    assert_eq!(models.json()["data"][0]["id"], "ash-scripted-model");
    let unknown = ask(addr, "GET /v1/files", &USUAL, "").await;
    assert_eq!((unknown.status, unknown.error().0.as_str()), (404, "not_found_error"));
    let wrong = ask(addr, "GET /v1/messages", &USUAL, "").await;
    assert_eq!((wrong.status, wrong.error().0.as_str()), (405, "invalid_request_error"));
    for (index, response) in [about, head, models, unknown, wrong].iter().enumerate() {
        assert_eq!(response.header("x-ash-scripted-model"), Some("true"));
        let id = format!("req_script_{}", index + 1);
        assert_eq!(response.header("request-id"), Some(id.as_str()));
    }
    model.shutdown().await;
}

#[tokio::test]
async fn tokens_are_counted_without_a_limit_on_them() {
    let model = plain().await;
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hello" }] });
    let path = "POST /v1/messages/count_tokens";
    let counted = ask(model.addr(), path, &USUAL, &body.to_string()).await;
    assert_eq!(counted.json(), json!({ "input_tokens": 9 }));
    let mut asked = body.clone();
    asked["max_tokens"] = json!(1);
    let message = post(model.addr(), &asked).await.unwrap().json();
    assert_eq!(message["usage"]["input_tokens"], 9);
    model.shutdown().await;
}
