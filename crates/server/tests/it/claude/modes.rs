//! What the program changes of its own accord, what it asks where nobody is to be asked, and what it does not take.

use std::fs;

use ash_core::json::Json;
use ash_core::permission::Permission;
use serde_json::{Value, json};

use super::*;

const QUESTION: &str = r#"/tool AskUserQuestion {"questions":[{"question":"Which?","header":"h","multiSelect":false,"options":[{"label":"x","description":"d"},{"label":"y","description":"e"}]}]}"#;

async fn say(world: &World, session: SessionId, prompt: Value) -> Turn {
    let accepted = world.prompt_json(session, Json::of(&prompt).unwrap()).await;
    let turn = world.turn(session, accepted).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    turn
}

/// How the program says that it began a turn.
fn began(turn: &Turn) -> (String, String) {
    let begun = turn.outputs("system_init").pop().unwrap();
    let of = |name: &str| begun[name].as_str().unwrap_or_default().to_owned();
    (of("model"), of("permissionMode"))
}

/// Gives the agent settings of its own, and starts it with them.
async fn with_settings(world: &World, session: SessionId, settings: &Value) {
    stop(world, session).await;
    let directory = world.host.workspace(session).join(".claude");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("settings.json"), settings.to_string()).unwrap();
    resume(world, session).await;
}

#[tokio::test]
async fn every_run_begins_in_its_mode_and_with_its_model_whatever_the_one_before_it_changed() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let usual = began(&say(&world, session, json!("Hi.\n/say hi")).await);
    assert_eq!(usual.1, "bypassPermissions");
    let plan = "Plan.\n/tool EnterPlanMode {}\n/say planned";
    assert_eq!(began(&say(&world, session, json!(plan)).await), usual);
    assert_eq!(began(&say(&world, session, json!("Hi.\n/say hi")).await), usual);
    // One request for each: whether there is such a model is not asked every time.
    let before = world.requests().len();
    say(&world, session, json!("Hi.\n/say hi")).await;
    assert_eq!(world.requests().len(), before + 1);
    say(&world, session, json!("/model haiku")).await;
    assert_eq!(began(&say(&world, session, json!("Hi.\n/say hi")).await), usual);
    let other = json!({ "content": plan, "permissionMode": "acceptEdits" });
    assert_eq!(began(&say(&world, session, other.clone()).await).1, "acceptEdits");
    assert_eq!(began(&say(&world, session, other).await).1, "acceptEdits");
    remembers(&world, session, "after changes of mode and model").await;
    world.end().await;
}

#[tokio::test]
async fn a_run_that_asks_nobody_waits_for_nobody() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let planned =
        "Plan.\n/tool EnterPlanMode {}\n/bash touch planned\n/tool ExitPlanMode {}\n/say done";
    let unasked = async |prompt: Value| {
        let turn = say(&world, session, prompt).await;
        assert!(!turn.kinds().contains(&"permission_request"), "{}", said(&turn));
        turn
    };
    let turn = unasked(json!(planned)).await;
    assert_eq!(turn.text(), "done");
    assert!(world.host.workspace(session).join("planned").exists());
    let turn = unasked(json!(format!("Work.\n{QUESTION}\n/results"))).await;
    assert!(turn.text().contains("decide yourself"), "{}", turn.text());

    // What its own settings want to be asked is asked all the same.
    let hook = r#"if grep -q HOOKED; then echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"ask"}}'; fi"#;
    let settings = json!({
        "permissions": { "ask": ["Bash(touch:*)", "AskUserQuestion"] },
        "hooks": { "PreToolUse": [{ "hooks": [{ "type": "command", "command": hook }] }] },
    });
    with_settings(&world, session, &settings).await;
    for (step, made) in [
        ("/bash touch c", Some("c")),
        ("/bash true && touch d", Some("d")),
        ("/bash : HOOKED; mkdir e", Some("e")),
        (QUESTION, None),
    ] {
        let accepted = world.prompt(session, &format!("Work.\n{step}\n/say done")).await;
        let deadline = deadline();
        let question = loop {
            let questions = world.engine.questions(&tenant(), session).await.unwrap();
            if let [question] = &questions[..] {
                break question.open.id;
            }
            assert!(Instant::now() < deadline, "nobody is asked: {step}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let is_done = || made.is_some_and(|made| world.host.workspace(session).join(made).exists());
        assert!(!is_done(), "{step}");
        let decision = Permission::Allow { input: None };
        world.engine.answer(&tenant(), session, question, decision).await.unwrap();
        assert_eq!(world.turn(session, accepted).await.status, RunStatus::Completed);
        assert_eq!(is_done(), made.is_some(), "{step}");
    }
    remembers(&world, session, "after questions").await;
    world.end().await;
}

#[tokio::test]
async fn a_message_that_a_hook_refuses_is_none_that_the_agent_knows() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let command = "if grep -q FORBIDDEN; then echo not this >&2; exit 2; fi";
    let hook = json!([{ "hooks": [{ "type": "command", "command": command }] }]);
    with_settings(&world, session, &json!({ "hooks": { "UserPromptSubmit": hook } })).await;
    let turn = say(&world, session, json!("FORBIDDEN.\n/say never")).await;
    let told = said(&turn);
    assert!(told.contains("not this") && told.contains("was not taken"), "{told}");
    // Neither what it goes on with nor what it is started with has it, and nothing has to be made anew.
    for context in ["at once", "after a stop"] {
        let turn = remembers(&world, session, context).await;
        let sent = world.requests().last().unwrap().body["messages"].to_string();
        assert!(!sent.contains("FORBIDDEN"), "{context}: {sent}");
        assert!(turn.outputs("notice").is_empty(), "{context}: {:?}", turn.outputs("notice"));
        say(&world, session, json!("FORBIDDEN.\n/say never")).await;
        stop(&world, session).await;
        assert_eq!(resume(&world, session).await.conversation.native, Native::Intact, "{context}");
    }
    remembers(&world, session, "at last").await;
    world.end().await;
}
