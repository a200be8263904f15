//! Which answer is due.

use serde_json::{Value, json};

use crate::talk::{Talk, plain, scripted};

#[tokio::test]
async fn an_answer_that_nobody_scripted_shows_what_was_understood() {
    let model = plain().await;
    let mut talk = Talk::new(&model, "Hello there.");
    let first = talk.next_text().await;
    assert_eq!(first, "I am a scripted model. You said: \"Hello there.\". This is turn 1.");
    talk.say("And now?");
    let second = talk.next_text().await;
    assert!(second.ends_with("This is turn 2; earlier you said: \"Hello there.\"."), "{second}");
    model.shutdown().await;
}

#[tokio::test]
async fn steps_go_on_after_each_result_and_end() {
    let model = plain().await;
    let mut talk = Talk::new(&model, "/bash one\n/bash two\n/and bash three\n/results");
    assert_eq!(talk.next().await[0]["input"], json!({ "command": "one" }));
    assert_eq!(talk.next().await.len(), 2);
    assert_eq!(
        talk.next_text().await,
        "The tools gave:\nthe result of {\"command\":\"two\"}\nthe result of {\"command\":\"three\"}"
    );
    assert_eq!(talk.next_text().await, "The script is at its end. No tool was called.");
    model.shutdown().await;
}

#[tokio::test]
async fn a_model_that_was_restarted_goes_on_where_it_was() {
    let script = "Work.\n/bash one\n/bash two\n/say done";
    let mut ids = Vec::new();
    let model = plain().await;
    let mut talk = Talk::new(&model, script);
    let mut again = Talk::new(&model, script);
    for _ in 0..3 {
        let fresh = plain().await;
        let content = talk.next().await;
        let mut elsewhere = Talk::new(&fresh, script);
        elsewhere.messages.clone_from(&again.messages);
        assert_eq!(elsewhere.next().await, content);
        again.messages.clone_from(&talk.messages);
        ids.extend(content.iter().filter_map(|block| block["id"].as_str().map(str::to_owned)));
        fresh.shutdown().await;
    }
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
    model.shutdown().await;
}

#[tokio::test]
async fn ids_are_not_given_twice_when_a_client_forgets_the_beginning() {
    let model = plain().await;
    let mut talk = Talk::new(&model, "Work.\n/bash one\n/bash two\n/bash three\n/bash four");
    for _ in 0..3 {
        talk.next().await;
    }
    // The first call and its result are forgotten: the next answer would be the fifth message again.
    talk.messages.drain(1..3);
    talk.next().await;
    // The model refuses ids that are used twice.
    assert_eq!(talk.ask(true).await.unwrap().status, 200);
    model.shutdown().await;
}

#[tokio::test]
async fn what_is_remembered_can_be_asked_for() {
    let model = plain().await;
    let mut talk = Talk::new(&model, "Remember the number 42.\n/bash ls\n/say Noted.");
    talk.next().await;
    talk.next().await;
    talk.say("/say Only steps.");
    talk.next().await;
    talk.say("/recall");
    let recalled = talk.next_text().await;
    let expected = "I remember:\nprompt 1: \"Remember the number 42.\"\n\
        tool bash {\"command\":\"ls\"} gave \"the result of {\\\"command\\\":\\\"ls\\\"}\"\n\
        answer: \"Noted.\"\nprompt 2: \"/say Only steps.\"\nanswer: \"Only steps.\"";
    assert_eq!(recalled, expected);
    assert_eq!(Talk::new(&model, "/recall").next_text().await, "I remember nothing.");
    model.shutdown().await;
}

#[tokio::test]
async fn what_agents_add_for_the_model_is_no_prompt() {
    let model = plain().await;
    let mut talk = Talk::new(&model, "/bash one\n/say done");
    talk.messages[0]["content"] = json!([
        { "type": "text", "text": "<system-reminder>\n/say wrong\n</system-reminder>" },
        { "type": "text", "text": "/bash one\n/say done" },
    ]);
    talk.next().await;
    let note = json!({ "type": "text", "text": "<system-reminder>Be brief.</system-reminder>" });
    talk.messages[2]["content"].as_array_mut().unwrap().push(note);
    assert_eq!(talk.next_text().await, "done");
    model.shutdown().await;
}

#[tokio::test]
async fn a_prompt_among_results_begins_a_turn() {
    let model = plain().await;
    let mut talk = Talk::new(&model, "/bash one\n/say done");
    talk.next().await;
    let note = json!({ "type": "text", "text": "No, do this.\n/say this" });
    talk.messages[2]["content"].as_array_mut().unwrap().push(note);
    assert_eq!(talk.next_text().await, "this");
    model.shutdown().await;
}

#[tokio::test]
async fn a_step_that_is_wrong_is_refused() {
    let model = plain().await;
    for (prompt, reason) in [
        ("Go.\n/slow soon", "line 2 of the prompt: /slow: "),
        ("/say a\n/and bash b", "line 2 of the prompt: /and: "),
    ] {
        let response = Talk::new(&model, prompt).ask(true).await.unwrap();
        assert_eq!(response.status, 400);
        assert!(response.error().1.contains(reason), "{}", response.body);
    }
    model.shutdown().await;
}

#[tokio::test]
async fn a_delegated_conversation_is_steered_through_its_task() {
    let model = plain().await;
    let mut outer = Talk::new(
        &model,
        r#"/tool delegate_coder {"task": "Look.\n/bash ls\n/say found it"}
/results"#,
    );
    let call = outer.next().await.remove(0);
    let mut inner = Talk::new(&model, call["input"]["task"].as_str().unwrap());
    let inner_call = inner.next().await.remove(0);
    assert_eq!(inner_call["input"], json!({ "command": "ls" }));
    assert_ne!(inner_call["id"], call["id"]);
    let found = inner.next_text().await;
    outer.messages[2]["content"][0]["content"] = json!([{ "type": "text", "text": found }]);
    assert_eq!(outer.next_text().await, "The tools gave:\nfound it");
    model.shutdown().await;
}

#[tokio::test]
async fn a_script_goes_before_the_prompt_and_its_defaults_are_for_all() {
    let model = scripted(
        "defaults\n/usage input=77\n/error 503 times 1\n\
         when prompt deploy\n/usage input=5\n/bash make\n/say deployed\n\
         when turn 2\n/say second turn",
    )
    .await;
    let input = |message: &Value| message["usage"]["input_tokens"].as_u64();
    let mut talk = Talk::new(&model, "please deploy\n/say ignored");
    assert_eq!(talk.ask(false).await.unwrap().status, 503);
    assert_eq!(input(&talk.ask(false).await.unwrap().json()), Some(5));
    assert_eq!(talk.next().await[0]["name"], "bash");
    assert_eq!(talk.ask(false).await.unwrap().status, 503);
    assert_eq!(talk.next_text().await, "deployed");
    talk.say("anything");
    assert_eq!(talk.ask(false).await.unwrap().status, 503);
    assert_eq!(talk.next_text().await, "second turn");
    let prompted = Talk::new(&model, "/say by prompt");
    assert_eq!(prompted.ask(false).await.unwrap().status, 503);
    let message = prompted.ask(false).await.unwrap().json();
    assert_eq!((input(&message), &message["content"][0]["text"]), (Some(77), &json!("by prompt")));
    model.shutdown().await;
}
