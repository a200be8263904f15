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

#[test]
fn a_prompt_that_is_too_long_is_sent_shortened_and_the_session_goes_on() {
    local(async {
        let bench = Bench::new(vec![text("ok"), text("ok")]).await;
        let long = format!("BEGIN {} END", "word ".repeat(300_000));
        let told = bench.turn(json!(long)).await;
        assert_eq!(told.ending, Ending::EndTurn);
        let trimmed = told.outputs("context_trimmed");
        assert!(trimmed[0]["shortenedBytes"].as_u64().unwrap() > 500_000, "{trimmed:?}");
        assert_eq!(bench.turn(json!("short")).await.ending, Ending::EndTurn);
        for at in [0, 1] {
            let sent = bench.sent(at)[0]["content"][0]["text"].as_str().unwrap().to_owned();
            assert!(sent.starts_with("BEGIN") && sent.ends_with("END"), "both ends stay");
            assert!(sent.contains("bytes are left out here"));
            assert!(sent.len() < 600_000, "{}", sent.len());
        }
        let file = std::fs::read_to_string(bench.file("conversation.jsonl")).unwrap();
        assert!(file.contains(&long), "the file keeps all of it");
    });
}

#[test]
fn a_prompt_that_the_model_finds_too_long_is_shortened_by_what_it_counted() {
    local(async {
        let too_long = "prompt is too long: 120000 tokens > 30000 maximum";
        let long = || error(400, "invalid_request_error", too_long);
        let bench = Bench::new(vec![long(), text("ok"), text("ok")]).await;
        let mut builtin = bench.open().await;
        let told = run(&mut builtin, json!("word ".repeat(40_000))).await;
        assert_eq!(told.ending, Ending::EndTurn, "{:?}", told.in_words());
        let length = |at: usize| json!(bench.sent(at)).to_string().len();
        assert!(length(1) < length(0) / 4, "{} of {}", length(1), length(0));
        assert_eq!(run(&mut builtin, json!("more")).await.ending, Ending::EndTurn);
        assert!(length(2) < length(0) / 4);
        builtin.close().await;
    });
}

#[test]
fn large_results_of_one_answer_share_the_room_there_is() {
    local(async {
        let read = |id| (id, "read_file", json!({ "path": "big" }));
        let calls = ["a", "b", "c", "d", "e", "f"].map(read);
        let bench = {
            let mut bench = Bench::new(vec![tools(&calls), text("done")]).await;
            bench.settings.limits = Limits {
                context_tokens: Some(20_000),
                answer_tokens: Some(1_000),
                ..Limits::default()
            };
            bench
        };
        bench.write("big", &"0123456789\n".repeat(1_500));
        let told = bench.turn(json!("read it six times")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        let results = bench.sent(1)[2]["content"].as_array().unwrap().clone();
        for result in &results {
            let length = result.to_string().len();
            assert!((2_000..10_000).contains(&length), "{length}");
            assert!(result.to_string().contains("bytes are left out here"), "{result}");
        }
    });
}

#[test]
fn results_that_the_model_finds_too_long_are_shortened_once() {
    local(async {
        let read = |id| (id, "read_file", json!({ "path": "big" }));
        let long = error(400, "invalid_request_error", "input exceeds the context window");
        let bench =
            Bench::new(vec![tools(&[read("a"), read("b")]), long, text("done"), text("ok")]).await;
        bench.write("big", &"0123456789\n".repeat(1_500));
        let mut builtin = bench.open().await;
        assert_eq!(run(&mut builtin, json!("read")).await.ending, Ending::EndTurn);
        let length = |at: usize| json!(bench.sent(at)).to_string().len();
        assert!(length(2) < length(1) / 2 + 1_000, "{} of {}", length(2), length(1));
        builtin.close().await;
    });
}
