//! Everything that goes wrong on demand. Nothing here waits for time to pass, but for what is to be
//! waited for.

use serde_json::json;
use tokio::io::AsyncReadExt as _;

use crate::client::{USUAL, post, read_until, receive, send};
use crate::talk::{Talk, body, plain};

fn asked(prompt: &str, stream: bool) -> String {
    body(&json!([{ "role": "user", "content": prompt }]), stream).to_string()
}

#[tokio::test]
async fn errors_happen_as_often_as_they_say_and_then_the_answer_comes() {
    let model = plain().await;
    let talk = Talk::new(
        &model,
        "/error 529 retry-after 7 times 2\n/error 400 strange_error times 1 message No.\n/say ok",
    );
    for stream in [true, false] {
        let busy = talk.ask(stream).await.unwrap();
        assert_eq!((busy.status, busy.header("retry-after")), (529, Some("7")));
        assert_eq!(busy.error().0, "overloaded_error");
    }
    let strange = talk.ask(true).await.unwrap();
    assert_eq!((strange.status, strange.header("retry-after")), (400, None));
    assert_eq!(strange.error(), ("strange_error".to_owned(), "No.".to_owned()));
    for _ in 0..2 {
        assert_eq!(talk.ask(true).await.unwrap().content()[0]["text"], "ok");
    }
    let other = Talk::new(&model, "hello\n/error 500 times 1\n/say ok");
    assert_eq!(other.ask(true).await.unwrap().error().0, "api_error");
    model.shutdown().await;
}

#[tokio::test]
async fn a_page_can_come_instead_of_an_answer() {
    let model = plain().await;
    for (prompt, status) in [("/html", 200), ("/html 502", 502)] {
        let page = Talk::new(&model, prompt).ask(true).await.unwrap();
        assert_eq!(page.status, status);
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        assert!(page.body.starts_with("<!doctype html>"));
    }
    model.shutdown().await;
}

#[tokio::test]
async fn a_connection_can_be_cut_before_the_answer() {
    let model = plain().await;
    let talk = Talk::new(&model, "/cut times 1\n/say ok");
    assert!(talk.ask(true).await.is_none());
    assert_eq!(talk.ask(true).await.unwrap().content()[0]["text"], "ok");
    model.shutdown().await;
}

#[tokio::test]
async fn a_connection_can_be_cut_within_the_answer() {
    let model = plain().await;
    for (after, text) in [(0, ""), (2, "a b "), (99, "a b c")] {
        let cut = Talk::new(&model, &format!("/cut after {after}\n/say a b c")).ask(true).await;
        let cut = cut.unwrap();
        assert_eq!((cut.status, cut.is_complete), (200, false));
        assert_eq!(cut.content()[0]["text"], text);
        assert!(!cut.body.contains("message_delta") && !cut.body.contains("message_stop"));
    }
    let whole = Talk::new(&model, "/cut after 1\n/say a b c").ask(false).await.unwrap();
    assert!(!whole.is_complete && serde_json::from_str::<serde_json::Value>(&whole.body).is_err());
    model.shutdown().await;
}

#[tokio::test]
async fn nothing_at_all_can_be_answered() {
    let model = plain().await;
    let stream = send(model.addr(), "POST /v1/messages", &USUAL, &asked("/hang", true)).await;
    model.received(1).await;
    assert_eq!(model.requests()[0].answer, "hang");
    // A model that ends lets go of whoever hangs.
    model.shutdown().await;
    assert!(receive(stream).await.is_none());
}

#[tokio::test]
async fn an_answer_can_stop_in_the_middle_and_stay_open() {
    for (stream, last) in [(true, "\"a \""), (false, "\"content\"")] {
        let model = plain().await;
        let asked = asked("/hang after 1\n/say a b c", stream);
        let mut hanging = send(model.addr(), "POST /v1/messages", &USUAL, &asked).await;
        read_until(&mut hanging, last).await;
        model.shutdown().await;
        let mut rest = String::new();
        hanging.read_to_string(&mut rest).await.ok();
        assert!(!rest.contains("\"b \"") && !rest.contains("message_stop"), "{rest}");
    }
}

#[tokio::test]
async fn an_error_can_come_within_the_stream() {
    let model = plain().await;
    let talk = Talk::new(&model, "/error-event after 1 times 2\n/say a b");
    let broken = talk.ask(true).await.unwrap();
    let (name, data) = broken.events().pop().unwrap();
    assert_eq!((name.as_str(), &data["error"]["type"]), ("error", &json!("overloaded_error")));
    assert_eq!(broken.content()[0]["text"], "a ");
    assert!(broken.is_complete);
    let whole = talk.ask(false).await.unwrap();
    assert_eq!((whole.status, whole.error().0.as_str()), (529, "overloaded_error"));
    model.shutdown().await;
}

#[tokio::test]
async fn a_stream_can_be_broken_and_go_on() {
    let model = plain().await;
    for (how, mark) in [("line", "%% this line"), ("json", "content_block_de\n")] {
        let talk = Talk::new(&model, &format!("/broken {how} after 1\n/say a b"));
        let broken = talk.ask(true).await.unwrap();
        assert!(broken.body.contains(mark));
        // What follows is whole: a client that skips what it does not understand loses nothing.
        assert_eq!(broken.content()[0]["text"], "a b");
        assert_eq!(broken.events().pop().unwrap().0, "message_stop");
        let half = talk.ask(false).await.unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&half.body).is_err());
    }
    let odd = Talk::new(&model, "/broken content-type\n/say a").ask(true).await.unwrap();
    assert_eq!(odd.header("content-type"), Some("text/plain"));
    assert_eq!(odd.content()[0]["text"], "a");
    model.shutdown().await;
}

#[tokio::test]
async fn a_stream_without_end_ends_with_its_client() {
    let model = plain().await;
    for stream in [true, false] {
        let asked = asked("/endless \"for ever \"", stream);
        let mut endless = send(model.addr(), "POST /v1/messages", &USUAL, &asked).await;
        let mut buffer = vec![0; 500_000];
        endless.read_exact(&mut buffer).await.unwrap();
        assert!(!String::from_utf8_lossy(&buffer).contains("message_stop"));
    }
    assert_eq!(Talk::new(&model, "/say still there").next_text().await, "still there");
    model.shutdown().await;
}

#[tokio::test]
async fn sessions_that_differ_in_their_system_prompt_are_counted_apart() {
    let model = plain().await;
    let messages = json!([{ "role": "user", "content": "/error 529 times 1\n/say ok" }]);
    let mut statuses = Vec::new();
    for (name, system) in [("m", "a"), ("m", "b"), ("n", "a"), ("m", "a")] {
        let mut request = body(&messages, false);
        request["model"] = json!(name);
        request["system"] = json!(system);
        statuses.push(post(model.addr(), &request).await.unwrap().status);
    }
    assert_eq!(statuses, [529, 529, 529, 200]);
    model.shutdown().await;
}

#[tokio::test]
async fn an_answer_or_an_error_can_be_waited_for() {
    let model = plain().await;
    for (prompt, status) in [("/wait 80ms\n/say ok", 200), ("/wait 80ms\n/error 500", 500)] {
        let begun = std::time::Instant::now();
        let response = Talk::new(&model, prompt).ask(true).await.unwrap();
        assert_eq!(response.status, status);
        assert!(begun.elapsed() >= std::time::Duration::from_millis(80));
    }
    model.shutdown().await;
}
