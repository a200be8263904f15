//! What clients of the original send at the edges of what is allowed: the last that is taken, the first that is not.

use serde_json::{Value, json};

use super::client::Client;
use super::served::{Served, let_go};

async fn send(client: &Client, session: &str, content: Value) -> super::client::Answer {
    let body = json!({ "content": content, "detach": true });
    client.post(&format!("/api/sessions/{session}/messages"), &body).await
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

#[tokio::test]
async fn the_longest_message_is_taken_and_a_longer_one_is_not() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    // Characters, not bytes.
    let longest = format!("/say short\n{}", "ü".repeat(500_000 - "/say short\n".len()));
    assert_eq!(send(client, &session, json!(longest)).await.status, 202);
    let longer = format!("{longest}ü");
    assert_eq!(send(client, &session, json!(longer)).await.refused(400), "invalid_request");
    assert_eq!(
        send(client, &session, json!([text(&longer)])).await.refused(400),
        "invalid_request"
    );
    let most = vec![text("/say many"); 20];
    assert_eq!(send(client, &session, json!(most)).await.status, 202);
    let more = vec![text("x"); 21];
    assert_eq!(send(client, &session, json!(more)).await.refused(400), "invalid_request");
    client.follow(&session, "until=idle").await.all().await;
    let runs = client.get(&format!("/api/sessions/{session}/runs")).await.ok();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2);
    served.end().await;
}

#[tokio::test]
async fn what_was_said_stays_what_it_was() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    for content in [json!("/say text"), json!([text("/say block")]), json!("5"), json!("[\"a\"]")] {
        assert_eq!(send(client, &session, content.clone()).await.status, 202, "{content}");
        client.follow(&session, "until=idle").await.all().await;
        let messages =
            client.get(&format!("/api/sessions/{session}/messages?limit=1000")).await.ok();
        let mut said = messages["messages"].as_array().unwrap().iter();
        let said = said.rfind(|message| message["role"] == "user").unwrap();
        let said: Value = serde_json::from_str(said["content"].as_str().unwrap()).unwrap();
        assert_eq!(said["content"], content);
    }
    served.end().await;
}

#[tokio::test]
async fn a_block_that_no_model_could_read_is_refused() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let image = |source: Value| json!([{ "type": "image", "source": source }]);
    let document = |source: Value| json!([{ "type": "document", "source": source }]);
    for bad in [
        json!(5),
        json!(true),
        json!(null),
        json!({ "type": "text", "text": "x" }),
        json!(["x"]),
        json!([{ "type": "video" }]),
        json!([{ "type": "tool_result" }]),
        json!([{ "text": "x" }]),
        json!([text("")]),
        json!([{ "type": "image" }]),
        image(json!({})),
        image(json!({ "type": "base64", "media_type": "image/png" })),
        image(json!({ "type": "base64", "media_type": "image/png", "data": "no base64!" })),
        image(json!({ "type": "base64", "media_type": "text/plain", "data": "eA==" })),
        image(json!({ "type": "base64", "data": "eA==" })),
        image(json!({ "type": "url", "url": "file:///etc/passwd" })),
        image(json!({ "type": "text", "data": "x" })),
        image(json!({ "type": "weird" })),
        document(json!({ "type": "base64", "media_type": "application/pdf", "data": "%" })),
        document(json!({ "type": "base64", "media_type": "pdf", "data": "eA==" })),
        document(json!({ "type": "text", "media_type": "text/plain" })),
    ] {
        let answer = send(client, &session, bad.clone()).await;
        assert_eq!(answer.refused(400), "invalid_request", "{bad}");
    }
    let runs = client.get(&format!("/api/sessions/{session}/runs")).await.ok();
    assert_eq!(runs["runs"], json!([]));
    for good in [
        image(json!({ "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" })),
        image(json!({ "type": "url", "url": "https://example.com/a.png" })),
        document(json!({ "type": "base64", "media_type": "application/pdf", "data": "JVBERg==" })),
        document(json!({ "type": "text", "media_type": "text/plain", "data": "hello" })),
    ] {
        assert_eq!(send(client, &session, good.clone()).await.status, 202, "{good}");
    }
    client.follow(&session, "until=idle").await.all().await;
    served.end().await;
}

#[tokio::test]
async fn bytes_of_a_picture_that_the_model_would_not_take_are_refused_with_the_reason() {
    let served = Served::start().await;
    let session = served.session().await;
    for (data, why) in [
        ("eA", "the model takes it with its padding, with + and / and in one line"),
        ("eHh4\neHh4", "the model takes it with its padding, with + and / and in one line"),
        ("no base64!", "'!' at place 10 is no digit of it"),
    ] {
        let source = json!({ "type": "base64", "media_type": "image/png", "data": data });
        let answer =
            send(&served.client, &session, json!([{ "type": "image", "source": source }])).await;
        assert_eq!(answer.refused(400), "invalid_request");
        let said = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(said.ends_with(&format!("source.data is not base64: {why}")), "{said}");
    }
    served.end().await;
}

#[tokio::test]
async fn as_many_files_as_may_be_are_written_in_one_call_and_each_is_told_of() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let path = format!("/api/sessions/{session}/files");
    let file = |number: usize| json!({ "path": format!("many/{number}"), "content": "eA==" });
    let many: Vec<Value> = (0..500).map(file).collect();
    let written = client.post(&path, &json!({ "files": many })).await.ok();
    let written = written["files"].as_array().unwrap();
    assert_eq!(written.len(), 500);
    assert!(written.iter().all(|file| file["written"] == true), "{written:?}");
    let more: Vec<Value> = (0..501).map(file).collect();
    let refused = client.post(&path, &json!({ "files": more })).await;
    assert_eq!(refused.refused(400), "invalid_request");
    // The last of two with the same name stays; each is told of.
    let twice = json!({ "files": [
        { "path": "same", "content": "Zmlyc3Q=" },
        { "path": "./same", "content": "c2Vjb25k" },
        { "path": "wrong", "content": "a" },
        { "path": "wrong", "content": "====" },
    ] });
    let written = client.post(&path, &twice).await.ok();
    let told: Vec<&Value> =
        written["files"].as_array().unwrap().iter().map(|file| &file["written"]).collect();
    assert_eq!(told, [&json!(true), &json!(true), &json!(false), &json!(false)]);
    for (at, why) in [(2, "it has 1 digits"), (3, "")] {
        let error = written["files"][at]["error"].as_str().unwrap();
        assert!(error.starts_with("The content is not base64: ") && error.contains(why), "{error}");
    }
    assert_eq!(client.get(&format!("{path}/same")).await.body, "second");
    assert_eq!(client.get(&format!("{path}/wrong")).await.refused(404), "not_found");
    served.end().await;
}

#[tokio::test]
async fn parameters_that_nobody_knows_change_nothing_and_a_forged_cursor_is_refused() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    for path in [
        "/api/sessions".to_owned(),
        "/api/agents".to_owned(),
        "/api/queue".to_owned(),
        "/api/usage".to_owned(),
        format!("/api/sessions/{session}"),
        format!("/api/sessions/{session}/messages"),
        format!("/api/sessions/{session}/events"),
        format!("/api/sessions/{session}/files"),
        format!("/api/sessions/{session}/attachments"),
    ] {
        let plain = client.get(&path).await.ok();
        let with = client.get(&format!("{path}?utm_source=x&%5B%5D=1&page=2")).await.ok();
        assert_eq!(plain, with, "{path}");
    }
    for cursor in ["x", "1", "00000000", "eyJpZCI6MX0%3D", "%00"] {
        for path in ["/api/sessions", "/api/queue"] {
            let answer = client.get(&format!("{path}?cursor={cursor}")).await;
            assert_eq!(answer.refused(400), "invalid_request", "{path} {cursor}");
        }
    }
    // One of something that is gone is a place like any other.
    let gone = "00000000-0000-7000-8000-000000000000";
    for (path, list) in [("/api/sessions", "sessions"), ("/api/queue", "items")] {
        assert_eq!(client.get(&format!("{path}?cursor={gone}")).await.ok()[list], json!([]));
    }
    served.end().await;
}

#[tokio::test]
async fn a_busy_session_refuses_who_does_not_want_to_wait() {
    let served = Served::start().await;
    let client = &served.client;
    let (session, watched) = served.busy().await;
    let path = format!("/api/sessions/{session}/messages");
    let answer = client.post(&path, &json!({ "content": "now", "ifBusy": "reject" })).await;
    assert_eq!(answer.refused(409), "run_in_progress");
    let pause = json!({ "ifRunning": "reject" });
    let answer = client.post(&format!("/api/sessions/{session}/pause"), &pause).await;
    assert_eq!(answer.refused(409), "run_in_progress");
    let_go(client, &session).await;
    watched.all().await;
    let runs = client.get(&format!("/api/sessions/{session}/runs")).await.ok();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    served.end().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_body_is_named() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let messages = format!("/api/sessions/{session}/messages");
    let content = |block: Value| json!({ "content": [text("x"), block] });
    let image = |source: Value| content(json!({ "type": "image", "source": source }));
    let kinds = "is not known; known are base64, url, file";
    for (path, body, words) in [
        (
            &*messages,
            content(json!({ "type": "video" })),
            "content[1].type \"video\" is not known; known are text, image, document".to_owned(),
        ),
        (&messages, content(text("")), "content[1].text is empty".to_owned()),
        (&messages, content(json!({ "type": "image" })), "content[1].source is missing".to_owned()),
        (
            &messages,
            image(json!({ "type": "blob" })),
            format!("content[1].source.type \"blob\" {kinds}"),
        ),
        (
            &messages,
            json!({ "content": "x", "maxTurns": "x" }),
            "maxTurns is the text \"x\"; it must be a whole number that is not negative".to_owned(),
        ),
        ("/api/queue", json!({ "agentName": "coder" }), "prompt is missing".to_owned()),
        (
            "/api/agents/coder/versions",
            json!({ "name": "a", "cloneFrom": true }),
            "cloneFrom is true; it must be the number of a version, or its id".to_owned(),
        ),
    ] {
        let answer = client.post(path, &body).await;
        assert_eq!(answer.refused(400), "invalid_request");
        assert_eq!(answer.json()["error"], words, "{body}");
    }
    served.end().await;
}
