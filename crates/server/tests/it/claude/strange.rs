//! Programs that are not what they should be, and a provider that refuses.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use ash_core::failure::FailureCode;

use super::*;

/// Reads the next line that is no question of ours, of which each is answered.
const NEXT: &str = r#"next() {
  while read -r line; do
    case "$line" in *'"control_request"'*) ;; *) return 0 ;; esac
    id="${line#*\"request_id\":\"}"
    echo '{"type":"control_response","response":{"subtype":"success","request_id":"'"${id%%\"*}"'"}}'
  done
  return 1
}"#;

/// A world whose Claude Code is a few lines of shell. Without sandboxes: they have only what was installed.
pub(super) async fn with_program(script: &str) -> (World, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("claude");
    fs::write(&path, format!("#!/bin/sh\n{NEXT}\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let mut world = World::start().await;
    world.enclosure = Enclosure::Nothing;
    world.claude = Some(Program { path, version: "0.0.0".to_owned() });
    world.kill_engine().await;
    (world, dir)
}

async fn failure(world: &World, session: SessionId) -> String {
    let run = world.prompt(session, "Hello.\n/say hi").await.run;
    assert_eq!(ended(world, session, run).await, RunStatus::Failed);
    format!("{:?}", world.engine.store().run(session, run).await.unwrap().failure)
}

#[tokio::test]
async fn a_program_that_does_not_work_fails_the_run_and_says_why() {
    for (script, why) in [
        ("echo 'unknown option --session-mirror' >&2; exit 1", "unknown option --session-mirror"),
        ("exit 7", "code 7"),
        ("kill -9 $$", "signal 9"),
        ("echo garbage; printf '{\\n'; echo '[1]'; echo no library >&2; exit 127", "no library"),
        ("head -c 40000000 /dev/zero | tr '\\0' x; sleep 1000", "talks no more"),
    ] {
        let (world, _dir) = with_program(script).await;
        let session = world.session().await;
        let told = failure(&world, session).await;
        assert!(told.contains(why), "{script}: {told}");
        // It is tried anew each time, and the session is not stuck.
        assert!(failure(&world, session).await.contains(why), "{script}");
        world.end().await;
    }
}

#[tokio::test]
async fn a_program_that_never_begins_to_talk_is_told_of_as_that() {
    let (world, _dir) = with_program("echo garbage; sleep 1000").await;
    let session = world.session().await;
    let told = failure(&world, session).await;
    assert!(told.contains("did not begin to talk"), "{told}");
    world.end().await;
}

#[tokio::test]
async fn a_program_that_says_nothing_can_be_interrupted() {
    let (world, _dir) = with_program("sleep 1000").await;
    let session = world.session().await;
    let run = world.prompt(session, "Hello.").await.run;
    until_logged(
        &world,
        session,
        |entry| matches!(entry, Entry::RunStarted { run: of, .. } if *of == run),
    )
    .await;
    let record = world.engine.interrupt(&tenant(), session, Some(run)).await.unwrap();
    assert_eq!(record.status, RunStatus::Cancelled);
    world.end().await;
}

#[tokio::test]
async fn a_program_that_dies_in_the_middle_of_a_line_fails_the_run() {
    let answer = r#"read line; echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'"#;
    let (world, _dir) = with_program(&format!(
        "{answer}; read line; echo '{{\"type\":\"assis'; printf '{{\"type'; exit 3"
    ))
    .await;
    let session = world.session().await;
    let told = failure(&world, session).await;
    assert!(told.contains("code 3"), "{told}");
    world.end().await;
}

#[tokio::test]
async fn calls_without_an_answer_that_the_provider_refuses_are_cut_off() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    stop(&world, session).await;
    // As it is after a machine has died in the wrong moment: a call, and nothing about what came of it.
    let file = transcript(&world, session);
    let content = fs::read_to_string(&file).unwrap();
    let last: serde_json::Value = content
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|line| line["type"] == "assistant")
        .unwrap();
    let mut call = last.clone();
    call["uuid"] = "11111111-2222-4333-8444-555555555555".into();
    call["parentUuid"] = last["uuid"].clone();
    call["message"]["id"] = "msg_poison".into();
    call["message"]["content"] = serde_json::json!([{ "type": "tool_use", "id": "toolu_poison", "name": "Bash", "input": { "command": "true" } }]);
    fs::write(&file, format!("{content}{call}\n")).unwrap();
    resume(&world, session).await;
    let refusal = "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_poison";
    let prompt = format!("Go on.\n/error 400 message {refusal}");
    let accepted = world.prompt(session, &prompt).await;
    // It is asked once more, without them. This provider refuses everything, so that is the end of it.
    let turn = world.turn(session, accepted).await;
    // Nor does it keep the message that was refused at last.
    assert_eq!(turn.outputs("transcript_cut").len(), 2, "{}", said(&turn));
    assert_eq!(turn.status, RunStatus::Failed);
    stop(&world, session).await;
    let content = fs::read_to_string(&file).unwrap();
    assert!(content.contains("PLUM") && !content.contains("\"id\":\"toolu_poison\""));
    assert_eq!(told(&resume(&world, session).await), (Native::Intact, 2, 2));
    world.end().await;
}

#[tokio::test]
async fn a_message_that_the_provider_refuses_does_not_spoil_what_comes_after_it() {
    let Some(world) = start().await else { return };
    let session = world.session().await;
    let refused = async |prompt: &str| {
        let accepted = world.prompt(session, prompt).await;
        let run = accepted.run;
        let turn = world.turn(session, accepted).await;
        assert_eq!(turn.outputs("transcript_cut").len(), 1, "{}", said(&turn));
        let failure = world.engine.store().run(session, run).await.unwrap().failure.unwrap();
        assert_eq!(failure.code, FailureCode::ConversationRefused, "{failure:?}");
        assert!(failure.message.contains("this bird is not taken"), "{failure:?}");
    };
    let bird = "Look at the PEACOCK.\n/error 400 message messages.0: this bird is not taken";
    // As the first of all, and behind something that is known.
    refused(bird).await;
    let turn = world.say(session, PLANT).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    assert_eq!(turn.outputs("conversation_lost").len(), 0, "{}", said(&turn));
    refused(bird).await;
    refused(bird).await;
    remembers(&world, session, "after a refusal").await;
    stop(&world, session).await;
    assert_eq!(told(&resume(&world, session).await), (Native::Intact, 5, 5));
    remembers(&world, session, "after a resume").await;
    let sent = world.requests().last().unwrap().body["messages"].to_string();
    assert!(!sent.contains("PEACOCK"), "{sent}");
    world.end().await;
}

/// A program that does not start before a file is there, and then writes down what it is told and is done with it.
const LATE: &str = r#"test -e "$0.ready" || exit 7
while next; do
  printf '%s\n' "$line" >> "$0.told"
  echo '{"type":"result","subtype":"success","is_error":false,"result":"fine","num_turns":1}'
done"#;

#[tokio::test]
async fn every_message_that_was_cut_is_told_to_the_agent() {
    let (world, dir) = with_program(LATE).await;
    let session = world.session().await;
    for prompt in ["The first is ALPHA.", "The second is BETA.", "The third is GAMMA."] {
        let run = world.prompt(session, prompt).await.run;
        assert_eq!(ended(&world, session, run).await, RunStatus::Failed);
    }
    fs::write(dir.path().join("claude.ready"), "").unwrap();
    let run = world.prompt(session, "The fourth is DELTA.").await.run;
    assert_eq!(ended(&world, session, run).await, RunStatus::Completed);
    let run = world.prompt(session, "The fifth is EPSILON.").await.run;
    assert_eq!(ended(&world, session, run).await, RunStatus::Completed);
    let told = fs::read_to_string(dir.path().join("claude.told")).unwrap();
    let [first, second] = told.lines().collect::<Vec<_>>()[..] else { panic!("{told}") };
    let places = ["ALPHA", "BETA", "GAMMA", "DELTA"].map(|word| first.find(word));
    assert!(places.is_sorted() && places[0].is_some(), "{first}");
    assert!(second.contains("EPSILON") && !second.contains("ALPHA"), "{second}");
    world.end().await;
}
