//! What is killed, and when.

use ash_core::json::Json;
use ash_core::run::Phase;
use ash_core::session::IfRunning;
use ash_engine::Accepted;

use super::*;
use crate::world::kill;

/// A run in the middle of an answer of so many words.
async fn talking(world: &World, session: SessionId, words: u32) -> Accepted {
    let prompt = format!("Talk.\n/say begin\n/slow 20ms\n/repeat {words} word ");
    let accepted = world.prompt(session, &prompt).await;
    let is_text =
        |entry: &Entry| matches!(entry, Entry::TextDelta { run, .. } if *run == accepted.run);
    until_logged(world, session, is_text).await;
    accepted
}

/// What the agent does when its sandbox is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Streaming,
    Tool,
    Question,
    Result,
}

#[tokio::test]
async fn a_sandbox_can_be_killed_at_any_moment_of_a_turn() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    for moment in [Moment::Streaming, Moment::Tool, Moment::Question, Moment::Result] {
        let (content, mode) = match moment {
            Moment::Streaming => {
                ("Talk.\n/say begin\n/slow 20ms\n/repeat 300 word ", "bypassPermissions")
            }
            Moment::Tool => (
                "Work.\n/bash echo in > tool.txt; python3 -c 'import time; time.sleep(5)'",
                "bypassPermissions",
            ),
            Moment::Question => ("Ask.\n/bash python3 -c pass\n/say done", "default"),
            Moment::Result => ("Short.\n/say the last word", "bypassPermissions"),
        };
        let prompt = serde_json::json!({ "content": content, "permissionMode": mode });
        let run = world.prompt_json(session, Json::of(&prompt).unwrap()).await.run;
        until_logged(&world, session, |entry| match (moment, entry) {
            (Moment::Streaming, Entry::TextDelta { run: of, delta }) => {
                *of == run && delta.contains("word")
            }
            (Moment::Tool, Entry::Phase { run: of, phase: Phase::ExecutingTools, .. }) => {
                *of == run
            }
            (Moment::Question, Entry::PermissionRequest { run: of, .. }) => *of == run,
            (Moment::Result, Entry::Message { run: of, body }) => {
                *of == run && body.get().contains("\"result\"")
            }
            _ => false,
        })
        .await;
        world.kill_bridge(session).await;
        let status = ended(&world, session, run).await;
        let expected = match moment {
            // The last word was said; whether its end was heard is a matter of luck.
            Moment::Result => vec![RunStatus::Completed, RunStatus::Interrupted],
            _ => vec![RunStatus::Interrupted],
        };
        assert!(expected.contains(&status), "{moment:?}: {status:?}");
        let receipt = resume(&world, session).await;
        assert_eq!(receipt.conversation.native, Native::Intact, "{moment:?}: {receipt:?}");
        let turn = remembers(&world, session, &format!("{moment:?}")).await;
        let sent = world.requests().last().unwrap().body.to_string();
        let asked = content.lines().next().unwrap();
        assert!(
            sent.contains(asked),
            "{moment:?}: the message that was cut is known: {}",
            turn.text()
        );
    }
    world.end().await;
}

#[tokio::test]
async fn the_program_can_be_killed_and_comes_back_with_the_next_message() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let [pid] = programs(&world, session)[..] else { panic!("one program") };
    kill(pid);
    remembers(&world, session, "killed while it did nothing").await;
    let run = talking(&world, session, 300).await.run;
    let [pid] = programs(&world, session)[..] else { panic!("one program") };
    kill(pid);
    let record = world.ended(session, run).await;
    assert_eq!(record.status, RunStatus::Failed);
    let told = format!("{:?}", record.failure);
    assert!(told.contains("signal 9"), "{told}");
    remembers(&world, session, "killed in the middle of a turn").await;
    world.end().await;
}

#[tokio::test]
async fn a_program_that_is_killed_while_it_asks_takes_its_question_with_it() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let prompt = serde_json::json!({ "content": "Ask.\n/bash touch never; python3 -c pass", "permissionMode": "default" });
    let run = world.prompt_json(session, Json::of(&prompt).unwrap()).await.run;
    let is_asked =
        |entry: &Entry| matches!(entry, Entry::PermissionRequest { run: of, .. } if *of == run);
    until_logged(&world, session, is_asked).await;
    let [pid] = programs(&world, session)[..] else { panic!("one program") };
    kill(pid);
    let record = world.ended(session, run).await;
    assert_eq!(record.status, RunStatus::Failed);
    assert!(format!("{:?}", record.failure).contains("signal 9"), "{:?}", record.failure);
    assert!(world.engine.questions(&tenant(), session).await.unwrap().is_empty());
    remembers(&world, session, "killed while it asked").await;
    assert!(!world.host.workspace(session).join("never").exists(), "nobody has allowed it");
    world.end().await;
}

#[tokio::test]
async fn a_message_that_never_reached_the_sandbox_is_quoted_to_the_agent() {
    let Some(world) = start().await else { return };
    // Before anything was said, and after.
    for is_new in [true, false] {
        let session = if is_new { world.session().await } else { planted(&world).await };
        world.kill_bridge(session).await;
        let cut = world.prompt(session, "The heron is blue.\n/say it is").await.run;
        assert_eq!(ended(&world, session, cut).await, RunStatus::Interrupted);
        let receipt = resume(&world, session).await;
        let turns = if is_new { 1 } else { 2 };
        assert_eq!(told(&receipt), (Native::Rebuilt, turns, turns));
        let turn = world.say(session, "Go on.\n/say so").await;
        assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
        let sent = world.requests().last().unwrap().body["messages"].to_string();
        assert!(sent.contains("> The heron is blue."), "{sent}");
        assert_eq!(sent.contains("PLUM"), !is_new, "{sent}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_call_that_was_made_when_it_was_killed_is_told_to_the_agent() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    for (sandbox, command) in [(false, "echo paid >> side.txt"), (true, "echo sold >> side.txt")] {
        let prompt = format!("Work.\n/bash {command}; python3 -c 'import time; time.sleep(20)'");
        let run = world.prompt(session, &prompt).await.run;
        until_logged(&world, session, |entry| {
            matches!(entry, Entry::Output { run: of, name, .. } if *of == run && name == "tool_use")
        })
        .await;
        // Before it has written it down itself, most likely.
        if sandbox {
            world.kill_bridge(session).await;
            ended(&world, session, run).await;
            resume(&world, session).await;
        } else {
            let [pid] = programs(&world, session)[..] else { panic!("one program") };
            kill(pid);
            ended(&world, session, run).await;
        }
        let told_of = |sent: &str| {
            let told = sent.split("these tools had been called").nth(1).unwrap_or_default();
            told.contains("Bash") && told.contains(command)
        };
        remembers(&world, session, command).await;
        let sent = world.requests().last().unwrap().body["messages"].to_string();
        assert!(told_of(&sent), "{command}: {sent}");
        assert!(!sent.contains("before you saw it"), "{sent}");
    }
    // Once it is told, it is not told again.
    remembers(&world, session, "later").await;
    let sent = world.requests().last().unwrap().body["messages"].clone();
    let last = sent.as_array().unwrap().last().unwrap().to_string();
    assert!(!last.contains("these tools had been called"), "{last}");
    world.end().await;
}

#[tokio::test]
async fn a_server_can_be_killed_in_the_middle_of_a_turn_and_of_a_question() {
    let Some(mut world) = start().await else { return };
    let session = planted(&world).await;
    let accepted = talking(&world, session, 100).await;
    world.kill_engine().await;
    let turn = world.turn(session, accepted).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    // The program goes on with an answer that was cut, and keeps what it had of it.
    assert!(turn.text().starts_with("begin"), "{}", turn.text());
    assert!(!turn.kinds().contains(&"run_retry"), "{:?}", turn.kinds());

    let prompt = serde_json::json!({ "content": "Ask.\n/bash echo yes > answer; python3 -c pass", "permissionMode": "default" });
    let accepted = world.prompt_json(session, Json::of(&prompt).unwrap()).await;
    let run = accepted.run;
    until_logged(
        &world,
        session,
        |entry| matches!(entry, Entry::PermissionRequest { run: of, .. } if *of == run),
    )
    .await;
    world.kill_engine().await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    let questions = world.engine.questions(&tenant(), session).await.unwrap();
    resume(&world, session).await;
    let allow = ash_core::permission::Permission::Allow { input: None };
    world.engine.answer(&tenant(), session, questions[0].open.id, allow).await.unwrap();
    assert_eq!(world.turn(session, accepted).await.status, RunStatus::Completed);
    assert!(world.host.workspace(session).join("answer").exists());
    remembers(&world, session, "after two servers").await;
    world.end().await;
}

/// Longer than anybody waits for an answer to a request.
const LONG: Duration = Duration::from_secs(61);

#[tokio::test]
async fn it_can_be_frozen_for_a_minute_in_the_middle_of_a_word() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let accepted = talking(&world, session, 300).await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    // Not a wait for something: it is what is tried.
    tokio::time::sleep(LONG).await;
    resume(&world, session).await;
    let turn = world.turn(session, accepted).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    assert!(turn.text().ends_with(&"word".repeat(300)), "{}", turn.text());
    remembers(&world, session, "after a minute").await;
    world.end().await;
}

#[tokio::test]
async fn a_request_that_dies_while_it_is_frozen_is_made_again() {
    let Some(mut world) = start().await else { return };
    let session = planted(&world).await;
    let accepted = talking(&world, session, 300).await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    // With the server its connections go, to the model and to the sandbox.
    world.kill_engine().await;
    resume(&world, session).await;
    let turn = world.turn(session, accepted).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    assert!(turn.text().starts_with("begin"), "{}", turn.text());
    remembers(&world, session, "after a dead connection").await;
    world.end().await;
}
