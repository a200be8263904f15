//! Messages, and what existing clients are told of them.

use super::*;

fn told(turn: &mut Turn, message: &Value) -> Vec<String> {
    let (events, _) = turn.take(to_raw_value(message).unwrap());
    events
        .into_iter()
        .map(|event| match event {
            Event::Message(raw) => {
                assert_eq!(raw.get(), message.to_string(), "it is passed on as it came");
                "message".to_owned()
            }
            Event::Output { name, body } => format!("{name} {body}"),
            Event::TextDelta(text) => format!("text_delta {text}"),
            Event::ThinkingDelta(text) => format!("thinking_delta {text}"),
            Event::Phase { phase, round } => format!("phase {phase:?} {round}"),
            other @ (Event::Begun
            | Event::Retry { .. }
            | Event::Question { .. }
            | Event::Answered { .. }
            | Event::Ended { .. }) => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_message_is_told_by_its_parts_and_then_as_it_came() {
    let mut turn = Turn::default();
    assert!(!turn.has_begun());
    assert_eq!(told(&mut turn, &json!({ "type": "system", "subtype": "init" })), ["message"]);
    assert!(turn.has_begun());
    let delta = |delta: Value| json!({ "type": "stream_event", "event": { "type": "content_block_delta", "delta": delta } });
    let start = json!({ "type": "stream_event", "event": { "type": "message_start" } });
    assert_eq!(told(&mut turn, &start), ["phase StreamingLlm 1", "message"]);
    for (part, expected) in [
        (json!({ "type": "text_delta", "text": "a" }), "text_delta a"),
        (json!({ "type": "thinking_delta", "thinking": "b" }), "thinking_delta b"),
        (
            json!({ "type": "input_json_delta", "partial_json": "{" }),
            r#"input_json_delta {"partial_json":"{","type":"input_json_delta"}"#,
        ),
    ] {
        assert_eq!(told(&mut turn, &delta(part)), [expected, "message"]);
    }
    let assistant = json!({ "type": "assistant", "message": { "content": [
        { "type": "text", "text": "a" },
        { "type": "tool_use", "id": "t1", "name": "Bash", "input": { "command": "ls" } },
        { "type": "odd", "x": 1 },
    ] } });
    assert_eq!(
        told(&mut turn, &assistant),
        [
            r#"tool_use {"id":"t1","input":{"command":"ls"},"name":"Bash"}"#,
            r#"odd {"type":"odd","x":1}"#,
            "message",
            "phase ExecutingTools 1",
        ]
    );
    let result = r#"tool_result {"content":"x","is_error":false,"tool_use_id":"t1"}"#;
    let blocks = json!({ "type": "user", "message": { "content": [
        { "type": "tool_result", "tool_use_id": "t1", "content": "x" },
    ] } });
    assert_eq!(told(&mut turn, &blocks), [result, "message"]);
    let named = json!({ "type": "user", "message": {}, "tool_use_result": { "tool_use_id": "t1", "stdout": "x" } });
    assert_eq!(told(&mut turn, &named), [result, "message"]);
    let done = json!({ "type": "result", "subtype": "success", "num_turns": 2, "result": "ok" });
    assert_eq!(
        told(&mut turn, &done),
        [r#"turn_complete {"numTurns":2,"result":"ok"}"#, "message"]
    );
    assert_eq!((turn.ending(), turn.usage.tool_calls), (Ending::EndTurn, 1));
    for odd in [json!({}), json!({ "type": 7 }), json!({ "type": "assistant", "message": 7 })] {
        assert!(told(&mut turn, &odd).contains(&"message".to_owned()));
    }
}

#[test]
fn what_the_agent_said_in_words_is_known() {
    let mut turn = Turn::default();
    let mut text = |message: Value| turn.take(to_raw_value(&message).unwrap()).1;
    let content = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
    let said = json!({ "type": "assistant", "message": { "content": content } });
    assert_eq!(text(said.clone()).as_deref(), Some("a\nb"));
    assert_eq!(
        text(json!({ "type": "assistant", "message": { "content": "c" } })).as_deref(),
        Some("c")
    );
    let mut of_another = said;
    of_another["parent_tool_use_id"] = json!("t");
    assert_eq!(text(of_another), None);
    assert_eq!(text(json!({ "type": "result", "result": "a" })), None);
}

#[test]
fn a_result_says_how_it_ended_and_what_it_cost() {
    let take = |turn: &mut Turn, result: Value| drop(turn.take(to_raw_value(&result).unwrap()));
    let ending = |result: Value| {
        let mut turn = Turn::default();
        take(&mut turn, result);
        turn.ending()
    };
    assert_eq!(ending(json!({ "type": "result", "subtype": "error_max_turns" })), Ending::MaxTurns);
    assert_eq!(
        ending(json!({ "type": "result", "subtype": "error_max_budget_usd" })),
        Ending::Budget
    );
    let failed = json!({ "type": "result", "subtype": "error_during_execution", "is_error": true, "errors": ["no", 7] });
    assert_eq!(ending(failed), Ending::Failed { message: "no; 7".to_owned() });
    let usage = json!({ "input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5 });
    let result = |total: f64| json!({ "type": "result", "usage": usage, "total_cost_usd": total });
    let mut turn = Turn::default();
    take(&mut turn, result(0.5));
    let Usage { input_tokens, output_tokens, cache_read_tokens, cost_micro_usd, .. } = turn.usage;
    assert_eq!(
        (input_tokens, output_tokens, cache_read_tokens, cost_micro_usd),
        (3, 4, 5, 500_000)
    );
    // Results of one query tell sums.
    take(&mut turn, result(0.75));
    assert_eq!(turn.usage.cost_micro_usd, 750_000);
    take(&mut turn, result(0.25));
    assert_eq!(turn.usage.cost_micro_usd, 750_000, "a lower sum gives nothing back");
}
