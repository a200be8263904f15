//! A conversation that outgrows the model.

use ash_protocol::{Ending, Limits};
use serde_json::json;

use crate::fake::{Bench, Reply, error, local, run, text, tools};

fn reads(count: usize) -> Vec<Reply> {
    let read = |_| tools(&[("t", "read_file", json!({ "path": "big" }))]);
    (0..count).map(read).chain([text("done")]).collect()
}

#[test]
fn old_results_are_left_out_and_the_file_keeps_them() {
    local(async {
        let mut bench = Bench::new(reads(12)).await;
        bench.settings.limits = Limits {
            context_tokens: Some(20_000),
            answer_tokens: Some(1_000),
            ..Limits::default()
        };
        bench.write("big", &"0123456789\n".repeat(800));
        let told = bench.turn(json!("read it often")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        let trimmed = told.outputs("context_trimmed");
        assert!(trimmed[0]["clearedResults"].as_u64().unwrap() > 0, "{trimmed:?}");
        for (at, request) in bench.model.requests().iter().enumerate() {
            assert_eq!(bench.sent(at)[0]["content"][0]["text"], "read it often");
            assert!(request.to_string().len() < 20_000 * 4, "{}", request.to_string().len());
        }
        let file = std::fs::read_to_string(bench.file("conversation.jsonl")).unwrap();
        assert!(!file.contains("cleared to save room"));
        assert!(file.len() > 12 * 8_000);
    });
}

#[test]
fn a_model_that_takes_less_than_was_thought_gets_less_once() {
    local(async {
        let mut replies = reads(3);
        let done = replies.pop().unwrap();
        let long = || error(400, "invalid_request_error", "prompt is too long: 9 > 8");
        replies.extend([long(), done, long(), long()]);
        let bench = Bench::new(replies).await;
        bench.write("big", &"0123456789\n".repeat(2_000));
        let mut builtin = bench.open().await;
        let told = run(&mut builtin, json!("read")).await;
        assert_eq!(told.ending, Ending::EndTurn, "{:?}", told.in_words());
        assert_eq!(told.outputs("context_trimmed").len(), 1);
        let (before, after) = (bench.sent(3), bench.sent(4));
        assert!(json!(after).to_string().len() < json!(before).to_string().len());
        let told = run(&mut builtin, json!("again")).await;
        assert!(matches!(told.ending, Ending::Failed { message } if message.contains("too long")));
        builtin.close().await;
    });
}

#[test]
fn instructions_of_the_project_are_told_to_the_model() {
    local(async {
        let bench = Bench::new(vec![text("ok")]).await;
        bench.write("CLAUDE.md", "Use tabs.");
        bench.turn(json!("hi")).await;
        let system = bench.model.requests()[0]["system"][0]["text"].as_str().unwrap().to_owned();
        assert!(system.ends_with("Use tabs."), "{system}");
    });
}
