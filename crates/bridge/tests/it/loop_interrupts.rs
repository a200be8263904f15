//! An interrupt ends a turn wherever it is, and leaves a conversation to go on with.

use std::time::Duration;

use ash_protocol::{Ending, Event};
use serde_json::json;

use crate::fake::{
    Bench, Reply, begun, blocks, error, local, output, run_until, run_while, text, tools,
};

const INTERRUPTED: &str = "[The user interrupted the previous turn.]";

fn hanging_command(id: &'static str) -> (&'static str, &'static str, serde_json::Value) {
    (id, "bash", json!({ "command": "sleep 1000" }))
}

#[test]
fn while_the_model_speaks() {
    local(async {
        let bench = Bench::new(vec![Reply::Hang(begun("so far so")), text("ok")]).await;
        let mut builtin = bench.open().await;
        let mut heard = String::new();
        let told = run_until(&mut builtin, json!("hi"), |event| {
            if let Event::TextDelta(text) = event {
                heard.push_str(text);
            }
            heard == "so far so"
        })
        .await;
        assert_eq!(told.ending, Ending::Interrupted);
        builtin.close().await;
        bench.turn(json!("go on")).await;
        let sent = bench.sent(1);
        assert_eq!(sent[1]["content"][0]["text"], "so far so");
        assert_eq!(sent[2]["content"][0]["text"], INTERRUPTED);
        assert_eq!(sent[2]["content"][1]["text"], "go on");
    });
}

#[test]
fn before_the_model_has_said_anything() {
    local(async {
        let bench = Bench::new(vec![Reply::Hang(Vec::new()), text("ok")]).await;
        let mut builtin = bench.open().await;
        let told = run_while(&mut builtin, json!("hi"), bench.model.asked(1)).await;
        assert_eq!(told.ending, Ending::Interrupted);
        assert_eq!(told.in_words(), ["phase streaming 1", "output transcript"]);
    });
}

#[test]
fn while_waiting_to_ask_again() {
    local(async {
        let busy = "HTTP/1.1 529 Busy\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
        let bench =
            Bench::new(vec![Reply::Say(busy.into()), error(500, "api_error", "must not be asked")])
                .await;
        let mut builtin = bench.open().await;
        let told =
            run_until(&mut builtin, json!("hi"), |event| matches!(event, Event::Retry { .. }))
                .await;
        assert_eq!(told.ending, Ending::Interrupted);
        assert_eq!(bench.model.requests().len(), 1);
    });
}

#[test]
fn while_a_tool_runs() {
    local(async {
        let write = ("t1", "write_file", json!({ "path": "a", "content": "a" }));
        let calls =
            [write, hanging_command("t2"), ("t3", "write_file", json!({ "path": "never" }))];
        let bench = Bench::new(vec![tools(&calls), text("ok")]).await;
        let mut builtin = bench.open().await;
        let told = run_until(&mut builtin, json!("hi"), |event| {
            output(event, "tool_use").is_some_and(|body| body["id"] == "t2")
        })
        .await;
        assert_eq!(told.ending, Ending::Interrupted);
        assert_eq!(told.outputs("tool_result").len(), 2, "{:?}", told.in_words());
        assert_eq!(told.outputs("working_memory")[0]["filesTouched"], json!(["a"]));
        builtin.close().await;
        bench.turn(json!("go on")).await;
        let sent = bench.sent(1);
        let results = sent[2]["content"].as_array().unwrap();
        assert!(results[0].get("is_error").is_none(), "{results:#?}");
        assert!(results[1].to_string().contains("may have partly taken effect"), "{results:#?}");
        assert!(results[2].to_string().contains("not run"), "{results:#?}");
        assert_eq!(sent[3]["content"][0]["text"], "[The user interrupted this turn.]");
        assert_eq!(sent[4]["content"][0]["text"], "go on");
    });
}

#[test]
fn while_a_coder_works() {
    local(async {
        let bench = Bench::new(vec![
            tools(&[("d1", "delegate_coder", json!({ "task": "wait" }))]),
            tools(&[("c1", "update_memory", json!({ "plan": "to wait" })), hanging_command("c2")]),
            text("ok"),
        ])
        .await;
        let mut builtin = bench.open().await;
        let told = run_until(&mut builtin, json!("hi"), |event| {
            output(event, "tool_use").is_some_and(|body| body["id"] == "c2")
        })
        .await;
        assert_eq!(told.ending, Ending::Interrupted);
        assert_eq!(told.outputs("tool_result").len(), 3, "{:?}", told.in_words());
        builtin.close().await;
        bench.turn(json!("go on")).await;
        let result = bench.sent(2)[2]["content"][0].to_string();
        assert!(result.contains("may have partly taken effect"), "{result}");
        assert!(result.contains("to wait"), "{result}");
    });
}

#[test]
fn while_a_coders_model_speaks() {
    local(async {
        let bench = Bench::new(vec![
            tools(&[("d1", "delegate_coder", json!({ "task": "wait" }))]),
            Reply::Hang(begun("hm")),
            text("ok"),
        ])
        .await;
        let mut builtin = bench.open().await;
        let told = run_while(&mut builtin, json!("hi"), bench.model.asked(2)).await;
        assert_eq!(told.ending, Ending::Interrupted);
        builtin.close().await;
        bench.turn(json!("go on")).await;
        bench.sent(2);
    });
}

#[test]
fn half_a_tool_call_is_not_kept() {
    local(async {
        let said = json!({ "type": "text", "text": "I will" });
        let call = json!({ "type": "tool_use", "id": "t", "name": "bash", "input": { "a": "b" } });
        let Reply::Say(mut bytes) = blocks(&[said, call], "tool_use") else { unreachable!() };
        let cut = bytes.windows(12).rposition(|some| some == b"partial_json").unwrap();
        bytes.truncate(cut);
        let mut bench = Bench::new(vec![Reply::Hang(bytes), text("ok")]).await;
        bench.settings.patience.idle = Duration::from_secs(600);
        let mut builtin = bench.open().await;
        let mut heard = String::new();
        run_until(&mut builtin, json!("hi"), |event| {
            if let Event::TextDelta(text) = event {
                heard.push_str(text);
            }
            heard == "I will"
        })
        .await;
        builtin.close().await;
        bench.turn(json!("go on")).await;
        let sent = bench.sent(1);
        assert_eq!(sent[1]["content"], json!([{ "type": "text", "text": "I will" }]));
    });
}
