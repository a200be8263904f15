//! What becomes of a turn when the model does not answer as it should.

use std::time::Duration;

use ash_protocol::Ending;
use serde_json::json;

use crate::fake::{Bench, Reply, Told, begun, error, events, http, local, stream, text};

const TRANSCRIPT: &str = "output transcript";

fn message(told: &Told) -> &str {
    let Ending::Failed { message } = &told.ending else { panic!("{:?}", told.ending) };
    message
}

fn said(what: &str) -> Vec<String> {
    let (a, b) = what.split_at(what.len() / 2);
    [a, b].iter().map(|half| format!("text {half}")).collect()
}

#[test]
fn an_overloaded_model_is_asked_again() {
    local(async {
        let bench =
            Bench::new(vec![error(529, "overloaded_error", "Overloaded"), text("hello")]).await;
        let told = bench.turn(json!("hi")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        assert_eq!(told.in_words()[..3], ["phase streaming 1", "retry 1", "text he"]);
        assert_eq!(bench.model.requests()[0], bench.model.requests()[1]);
    });
}

#[test]
fn what_a_cut_answer_said_is_taken_back_before_it_is_said_again() {
    local(async {
        let bench = Bench::new(vec![Reply::Say(begun("hell")), text("hello")]).await;
        let told = bench.turn(json!("hi")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        let expected: Vec<String> = ["phase streaming 1".to_owned()]
            .into_iter()
            .chain(said("hell"))
            .chain(["retry 1".to_owned()])
            .chain(said("hello"))
            .collect();
        assert_eq!(told.in_words()[..expected.len()], expected);
        let file = std::fs::read_to_string(bench.file("conversation.jsonl")).unwrap();
        assert!(!file.contains("\"hell\""), "{file}");
        assert_eq!(told.usage.input_tokens, 200, "both were paid for");
    });
}

#[test]
fn an_error_in_the_middle_is_one_to_repeat_or_not() {
    local(async {
        let broken = |kind: &str| {
            let all = events(&[json!({ "type": "text", "text": "hell" })], "end_turn");
            let mut some = all[..4].to_vec();
            some.push(json!({ "type": "error", "error": { "type": kind, "message": "oh" } }));
            Reply::Say(stream(&some))
        };
        let bench = Bench::new(vec![
            broken("overloaded_error"),
            broken("api_error"),
            broken("rate_limit_error"),
            text("hello"),
            broken("invalid_request_error"),
        ])
        .await;
        assert_eq!(bench.turn(json!("hi")).await.ending, Ending::EndTurn);
        let told = bench.turn(json!("hi")).await;
        assert_eq!(message(&told), "the model answered with invalid_request_error: oh");
    });
}

#[test]
fn a_page_instead_of_an_answer_is_quoted() {
    local(async {
        let page = format!("<html>go away{}", "!".repeat(1000));
        let bench = Bench::new(vec![http(200, "text/html", &page)]).await;
        let told = bench.turn(json!("hi")).await;
        let message = message(&told);
        assert!(message.contains("200") && message.contains("<html>go away!!!"), "{message}");
        assert!(message.len() < 300, "{message}");
        assert_eq!(bench.model.requests().len(), 1);
    });
}

#[test]
fn garbage_is_a_cut_and_patience_ends() {
    local(async {
        let garbage = || {
            let mut bytes = stream(&[]);
            bytes.extend_from_slice(b"data: {\"type\": \"mess\xff\x00\n\nnonsense\n\n");
            Reply::Say(bytes)
        };
        let no_http = || Reply::Say(b"\x00\x01\x02 what?\r\n\r\n".to_vec());
        let empty = || Reply::Say(Vec::new());
        let bench = Bench::new(vec![garbage(), no_http(), empty(), garbage()]).await;
        let told = bench.turn(json!("hi")).await;
        assert!(message(&told).ends_with("(after 4 attempts)"), "{:?}", told.ending);
        assert_eq!(told.in_words().iter().filter(|word| *word == "retry 1").count(), 3);
    });
}

#[test]
fn nobody_there_is_tried_and_then_given_up() {
    local(async {
        let mut bench = Bench::new(Vec::new()).await;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        bench.settings.endpoint = listener.local_addr().unwrap();
        drop(listener);
        let told = bench.turn(json!("hi")).await;
        assert!(message(&told).contains("connection to the model was cut"), "{:?}", told.ending);
    });
}

#[test]
fn a_model_that_hangs_is_a_cut() {
    local(async {
        let mut bench =
            Bench::new(vec![Reply::Hang(Vec::new()), Reply::Hang(begun("hell")), text("hello")])
                .await;
        bench.settings.patience.idle = Duration::from_millis(200);
        let told = bench.turn(json!("hi")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        assert_eq!(told.in_words().iter().filter(|word| *word == "retry 1").count(), 2);
    });
}

#[test]
fn an_answer_that_only_pings_has_a_deadline() {
    local(async {
        let mut bench = Bench::new(vec![Reply::Hang(begun("hell"))]).await;
        bench.settings.patience.whole = Duration::from_millis(50);
        let told = bench.turn(json!("hi")).await;
        assert!(message(&told).contains("did not finish"), "{:?}", told.ending);
    });
}

#[test]
fn an_answer_without_end_is_given_up() {
    local(async {
        let ping = b"event: ping\ndata: {\"type\": \"ping\"}\n\n".repeat(1000);
        let endless = vec![b'x'; 64 * 1024];
        let bench = Bench::new(vec![
            Reply::Endless(begun("hell"), ping),
            Reply::Endless(begun("hell"), endless),
        ])
        .await;
        let told = bench.turn(json!("hi")).await;
        assert!(message(&told).contains("longer than"), "{:?}", told.ending);
        let told = bench.turn(json!("hi")).await;
        assert!(message(&told).contains("no end"), "{:?}", told.ending);
    });
}

#[test]
fn refusals_of_the_api_end_the_run_and_say_why() {
    local(async {
        let bench = Bench::new(vec![
            error(401, "authentication_error", "invalid x-api-key"),
            error(404, "not_found_error", "model: nope"),
            error(403, "billing_error", "pay first"),
            error(429, "rate_limit_error", "monthly quota exceeded"),
            error(400, "invalid_request_error", "Your credit balance is too low"),
            text("ok"),
        ])
        .await;
        assert_eq!(
            message(&bench.turn(json!("a")).await),
            "the model answered 401: invalid x-api-key"
        );
        assert_eq!(message(&bench.turn(json!("b")).await), "the model answered 404: model: nope");
        for _ in 0..3 {
            let told = bench.turn(json!("c")).await;
            assert_eq!(told.ending, Ending::Quota);
            assert_eq!(told.outputs("quota").len(), 1);
        }
        bench.turn(json!("again")).await;
        let sent = bench.sent(5);
        assert_eq!(sent.len(), 11, "two prompts never run together");
        assert!(sent[1].to_string().contains("cut off before it finished"));
    });
}

#[test]
fn a_wait_that_is_too_long_ends_the_run() {
    local(async {
        let busy = "HTTP/1.1 429 Slow\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n";
        let bench = Bench::new(vec![Reply::Say(busy.into())]).await;
        let told = bench.turn(json!("hi")).await;
        assert!(message(&told).contains("3600 s"), "{:?}", told.ending);
    });
}

#[test]
fn what_was_said_before_a_failure_is_in_the_log_and_in_the_conversation() {
    local(async {
        let all = events(&[json!({ "type": "text", "text": "hell" })], "end_turn");
        let broken = |kind: &str| {
            let error = json!({ "type": "error", "error": { "type": kind, "message": "oh" } });
            Reply::Say(stream(&[all[..5].to_vec(), vec![error]].concat()))
        };
        let bench = Bench::new(vec![
            broken("something_new"),
            broken("permission_error"),
            broken("billing_error"),
            text("ok"),
        ])
        .await;
        let told = bench.turn(json!("a")).await;
        assert!(message(&told).contains("permission_error"), "what is new is tried again");
        let words = told.in_words();
        assert_eq!(words[3..], ["retry 1", "text he", "text ll", "message null", TRANSCRIPT]);
        assert_eq!(bench.turn(json!("b")).await.ending, Ending::Quota);
        bench.turn(json!("c")).await;
        let sent = bench.sent(3);
        let texts: Vec<_> = sent.iter().map(|m| m["content"][0]["text"].clone()).collect();
        let cut = "[The previous turn was cut off before it finished.]";
        assert_eq!(texts, ["a", "hell", cut, "hell", cut]);
    });
}

#[test]
fn thoughts_before_a_failure_are_taken_back() {
    local(async {
        let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let all = events(&[thought], "end_turn");
        let error = json!({ "type": "error",
            "error": { "type": "permission_error", "message": "oh" } });
        let bench =
            Bench::new(vec![Reply::Say(stream(&[all[..5].to_vec(), vec![error]].concat()))]).await;
        let told = bench.turn(json!("a")).await;
        assert_eq!(told.in_words()[1..], ["thinking hm", "retry 1", TRANSCRIPT]);
    });
}

#[test]
fn an_answer_that_may_not_be_so_long_is_asked_for_shorter() {
    local(async {
        let said = "max_tokens: 16384 > 4000, which is the maximum allowed number of output tokens";
        let less = || error(400, "invalid_request_error", said);
        let bench = Bench::new(vec![less(), text("ok"), less(), less()]).await;
        assert_eq!(bench.turn(json!("a")).await.ending, Ending::EndTurn);
        let asked = |at: usize| bench.model.requests()[at]["max_tokens"].clone();
        assert_eq!((asked(0), asked(1)), (json!(16_384), json!(4_000)));
        assert!(message(&bench.turn(json!("b")).await).contains("max_tokens"), "once is enough");
    });
}
