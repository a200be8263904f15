//! What a turn says last about itself.

use ash_protocol::{Ending, Event};
use serde_json::{Value, json};

use crate::fake::{Bench, Reply, Told, begun, error, local, run_until, text, tools};

/// The last three things that were reported, in words.
fn last_words(told: &Told) -> Vec<String> {
    let words = told.in_words();
    words[words.len() - 3..].to_vec()
}

#[test]
fn a_turn_that_ends_well_says_so_last() {
    local(async {
        let list = tools(&[("t", "list_files", json!({}))]);
        let bench = Bench::new(vec![list, text("all done")]).await;
        let told = bench.turn(json!("go")).await;
        assert_eq!(
            last_words(&told),
            ["output turn_complete", "result success", "output transcript"]
        );
        let complete = json!({ "numTurns": 2, "result": "all done" });
        assert_eq!(told.outputs("turn_complete"), [complete]);
        let mut result = told.result().unwrap();
        assert!(result["duration_ms"].is_u64(), "{result}");
        result.as_object_mut().unwrap().remove("duration_ms");
        assert_eq!(
            result,
            json!({
                "type": "result",
                "subtype": "success",
                "is_error": false,
                "num_turns": 2,
                "result": "all done",
                "total_cost_usd": 0.0009,
                "usage": {
                    "input_tokens": 200,
                    "output_tokens": 20,
                    "cache_creation_input_tokens": 0,
                    "cache_read_input_tokens": 0,
                },
            })
        );
    });
}

#[test]
fn a_limit_is_a_result_that_is_an_error() {
    local(async {
        let list = || tools(&[("t", "list_files", json!({}))]);
        let cases = [
            (list(), json!({ "content": "go", "maxTurns": 1 }), "error_max_turns"),
            (list(), json!({ "content": "go", "maxBudgetUsd": 0.0001 }), "error_budget"),
            (error(403, "billing_error", "no credit"), json!("go"), "error_quota"),
        ];
        for (reply, prompt, subtype) in cases {
            let bench = Bench::new(vec![reply]).await;
            let told = bench.turn(prompt).await;
            let result = told.result().unwrap();
            assert_eq!((&result["subtype"], &result["is_error"]), (&json!(subtype), &json!(true)));
            assert_eq!(result["num_turns"], 1, "{subtype}");
            assert_eq!(told.outputs("turn_complete").len(), 1, "{subtype}");
            assert_eq!(last_words(&told)[2], "output transcript");
        }
    });
}

#[test]
fn a_turn_that_was_interrupted_or_failed_has_no_result() {
    local(async {
        let bench = Bench::new(vec![Reply::Hang(begun("hello")), error(400, "bad", "no")]).await;
        let mut builtin = bench.open().await;
        let heard = |event: &Event| matches!(event, Event::TextDelta(_));
        let interrupted = run_until(&mut builtin, json!("a"), heard).await;
        assert_eq!(interrupted.ending, Ending::Interrupted);
        builtin.close().await;
        let failed = bench.turn(json!("b")).await;
        assert!(matches!(failed.ending, Ending::Failed { .. }));
        for told in [interrupted, failed] {
            assert_eq!(told.result(), None);
            assert_eq!(told.outputs("turn_complete"), Vec::<Value>::new());
        }
    });
}

#[test]
fn an_answer_in_a_shape_is_asked_for_and_told() {
    local(async {
        let schema = json!({ "type": "object", "properties": { "total": { "type": "number" } } });
        let format = json!({ "type": "json_schema", "schema": schema });
        let prompt = json!({ "content": "go", "outputFormat": format });
        let list = tools(&[("t", "list_files", json!({}))]);
        let replies = vec![list, text(r#"{"total": 3}"#), text("no shape"), text("{}")];
        let bench = Bench::new(replies).await;
        let told = bench.turn(prompt.clone()).await;
        assert_eq!(told.result().unwrap()["structured_output"], json!({ "total": 3 }));
        assert_eq!(bench.turn(prompt).await.result().unwrap().get("structured_output"), None);
        assert_eq!(bench.turn(json!("go")).await.result().unwrap().get("structured_output"), None);
        let asked: Vec<Value> =
            bench.model.requests().iter().map(|sent| sent["output_config"].clone()).collect();
        let wanted = json!({ "format": format });
        assert_eq!(asked, [wanted.clone(), wanted.clone(), wanted, Value::Null]);
        let wrong = json!({ "content": "go", "outputFormat": { "type": "xml" } });
        let told = bench.turn(wrong).await;
        assert!(matches!(&told.ending, Ending::Failed { message } if message.contains("xml")));
    });
}

#[test]
fn an_answer_is_reported_in_the_shape_of_the_original() {
    local(async {
        let bench = Bench::new(vec![text("hello")]).await;
        let told = bench.turn(json!("hi")).await;
        let message = &told.messages()[0];
        assert_eq!(message["type"], "assistant");
        let inner = &message["message"];
        assert_eq!((&inner["type"], &inner["role"]), (&json!("message"), &json!("assistant")));
        assert_eq!(inner["content"], json!([{ "type": "text", "text": "hello" }]));
    });
}
