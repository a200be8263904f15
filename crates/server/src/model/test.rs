//! Whatever is sent, there is an answer, and it is the same when it is sent again.

use axum::http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::attempts::Attempts;
use super::frames::frames;
use super::outcome::{Asked, Outcome, Rules, decide};

/// The bytes of an answer, without the ends that nobody sees.
fn answered(body: &Value) -> String {
    let mut headers = HeaderMap::new();
    headers.insert("anthropic-version", HeaderValue::from_static("1"));
    let attempts = Attempts::default();
    let rules = Rules { script: None, require_key: false, attempts: &attempts };
    let asked =
        Asked { method: &Method::POST, path: "/v1/messages", headers: &headers, body: Some(body) };
    let outcome = decide(&rules, &asked).outcome;
    let kind = outcome.kind();
    match outcome {
        Outcome::Reply(replied) => {
            let whole = replied.reply.message().to_string();
            let frames = frames(replied.reply).take(50);
            let streamed: Vec<String> =
                frames.map(|frame| String::from_utf8(frame.bytes.to_vec()).unwrap()).collect();
            format!("{kind}\n{whole}\n{}", streamed.concat())
        }
        Outcome::Error(error) => format!("{kind}\n{}", error.message),
        Outcome::About
        | Outcome::Json { .. }
        | Outcome::Html { .. }
        | Outcome::Hang
        | Outcome::Cut => kind,
    }
}

fn any_prompt() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("hello".to_owned()),
        Just("/recall".to_owned()),
        Just("/results".to_owned()),
        Just("/bash ls".to_owned()),
        Just("/and bash pwd".to_owned()),
        Just("/bad-tool x {\"ä".to_owned()),
        Just("/endless".to_owned()),
        Just("/unknown".to_owned()),
        Just("/error 529 times 1".to_owned()),
        Just("/stop pause_turn".to_owned()),
        Just("<system-reminder>".to_owned()),
        "/(say|think|repeat 3) \\PC{0,8}",
        "\\PC{0,8}",
    ];
    prop::collection::vec(line, 0..5).prop_map(|lines| lines.join("\n"))
}

fn any_block() -> impl Strategy<Value = Value> {
    let id = "[ab]";
    prop_oneof![
        any_prompt().prop_map(|text| json!({ "type": "text", "text": text })),
        id.prop_map(|id| json!({ "type": "tool_use", "id": id, "name": "x", "input": {} })),
        id.prop_map(|id| json!({ "type": "tool_result", "tool_use_id": id, "content": "r" })),
        Just(json!({ "type": "image", "source": {} })),
        Just(json!({ "type": "thinking", "thinking": "t" })),
        Just(json!({ "type": 7 })),
        Just(json!(null)),
    ]
}

fn any_message() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec!["user", "assistant", "user", "assistant", "other"]);
    let content = prop_oneof![
        3 => any_prompt().prop_map(Value::from),
        3 => prop::collection::vec(any_block(), 0..4).prop_map(Value::from),
        1 => Just(json!(7)),
    ];
    (role, content).prop_map(|(role, content)| json!({ "role": role, "content": content }))
}

proptest! {
    #[test]
    fn every_request_has_an_answer_and_has_it_again(
        messages in prop::collection::vec(any_message(), 0..6),
        stream in any::<bool>(),
    ) {
        let body =
            json!({ "model": "m", "max_tokens": 1, "stream": stream, "messages": messages });
        prop_assert_eq!(answered(&body), answered(&body));
    }

    #[test]
    fn a_prompt_that_is_alone_is_always_answered(prompt in any_prompt()) {
        let body = json!({
            "model": "m", "max_tokens": 1, "messages": [{ "role": "user", "content": prompt }],
        });
        let answer = answered(&body);
        let is_refused = answer.starts_with("error 400");
        prop_assert!(!is_refused || prompt.trim().is_empty() || answer.contains("line"), "{}", answer);
    }
}
