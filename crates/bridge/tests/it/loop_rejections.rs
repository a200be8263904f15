//! Content that the model does not take, and requests that it does not take whatever they say.

use ash_protocol::Ending;
use serde_json::{Value, json};

use crate::fake::{Bench, Reply, blocks, error, local, run, text};

const LEFT_OUT: &str = "[left out: the model did not take it]";

fn image(data: &str) -> Value {
    json!({ "type": "image", "source": { "type": "base64", "data": data } })
}

fn with(image: &Value, words: &str) -> Value {
    json!([image, { "type": "text", "text": words }])
}

fn rejected(message: &str) -> Reply {
    error(400, "invalid_request_error", message)
}

#[test]
fn a_picture_that_is_rejected_is_left_out_and_the_turn_goes_on() {
    local(async {
        let bad = rejected("could not process image");
        let replies = vec![text("hello"), bad, text("ok"), text("ok"), text("ok")];
        let bench = Bench::new(replies).await;
        bench.turn(with(&image("good"), "good one")).await;
        let mut builtin = bench.open().await;
        let told = run(&mut builtin, with(&image("bad"), "look")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        let notice = told.outputs("notice")[0].to_string();
        assert!(notice.contains("could not process image"), "{notice}");
        run(&mut builtin, json!("go on")).await;
        builtin.close().await;
        bench.turn(json!("and in another process")).await;
        for at in [2, 3, 4] {
            let sent = json!(bench.sent(at)).to_string();
            assert_eq!(sent.matches("base64").count(), 1, "the good one stays: {sent}");
            assert_eq!(sent.matches(LEFT_OUT).count(), 1, "{sent}");
        }
    });
}

#[test]
fn a_thought_that_is_rejected_is_found_by_its_place() {
    local(async {
        let thought = |signature: &str| json!({ "type": "thinking", "thinking": "hm", "signature": signature });
        let answer = |signature: &str| {
            blocks(&[thought(signature), json!({ "type": "text", "text": "ok" })], "end_turn")
        };
        let bad = rejected("messages.1.content.0: Invalid `signature` in `thinking` block");
        let bench =
            Bench::new(vec![answer("bad"), answer("good"), bad, text("ok"), text("ok")]).await;
        for prompt in [json!("a"), json!("b"), with(&image("good"), "c"), json!("d")] {
            assert_eq!(bench.turn(prompt).await.ending, Ending::EndTurn);
        }
        for at in [3, 4] {
            let sent = json!(bench.sent(at)).to_string();
            let has = |what: &str| sent.contains(what);
            assert!(!has("\"bad\"") && has("\"good\"") && has("base64"), "{sent}");
        }
    });
}

#[test]
fn one_rejection_costs_no_other_turn_its_pictures() {
    local(async {
        let bad = || rejected("messages.2.content.0.image.source: no");
        let refused = || rejected("tools.0.custom.input_schema: no such document");
        let replies = vec![text("ok"), bad(), bad(), text("ok"), refused(), text("ok"), text("ok")];
        let bench = Bench::new(replies).await;
        let mut builtin = bench.open().await;
        run(&mut builtin, with(&image("first"), "a")).await;
        let told = run(&mut builtin, with(&image("second"), "b")).await;
        assert!(matches!(told.ending, Ending::Failed { .. }));
        run(&mut builtin, with(&image("third"), "c")).await;
        let told = run(&mut builtin, with(&image("fourth"), "d")).await;
        assert!(matches!(told.ending, Ending::Failed { .. }));
        run(&mut builtin, json!("e")).await;
        builtin.close().await;
        let live = bench.sent(5);
        bench.turn(json!("f")).await;
        let reloaded = bench.sent(6);
        let sent = json!(live).to_string();
        for (data, times) in [("first", 1), ("second", 0), ("third", 1), ("fourth", 1)] {
            assert_eq!(sent.matches(data).count(), times, "{data}: {sent}");
        }
        let pictures = |sent: &[Value]| {
            let blocks = sent.iter().flat_map(|m| m["content"].as_array().unwrap().clone());
            blocks.filter(|block| block["type"] == "image").collect::<Vec<_>>()
        };
        assert_eq!(pictures(&live), pictures(&reloaded));
        assert_eq!(live[..live.len() - 1], reloaded[..live.len() - 1]);
    });
}
