//! What the program says between two messages: it is in the log when it is said, and in the conversation.

use std::fs;

use ash_core::entry::Said;
use ash_core::json::Json;
use ash_core::number::Turn as TurnNumber;

use super::strange::with_program;
use super::*;

/// What was said without a run.
fn asides(log: &[ash_core::session::LogEntry]) -> Vec<(TurnNumber, Said)> {
    let asides = log.iter().filter_map(|logged| match &logged.entry {
        Entry::Aside { turn, said } => Some((*turn, said.clone())),
        _ => None,
    });
    asides.collect()
}

fn has(said: &Said, text: &str) -> bool {
    let (Said::Message { body } | Said::Output { body, .. }) = said;
    body.get().contains(text)
}

/// Something that goes on in the background until a file is there. Then the program speaks of its own accord.
async fn left_running(world: &World, session: SessionId) {
    let call = serde_json::json!({
        "command": "until test -e go; do sleep 0.1; done; echo the kettle has boiled",
        "description": "Wait for the kettle", "run_in_background": true,
    });
    let turn = world.say(session, &format!("Start it.\n/tool Bash {call}\n/say it runs")).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    fs::write(world.host.workspace(session).join("go"), "").unwrap();
}

#[tokio::test]
async fn what_the_program_says_between_two_messages_is_logged_when_it_is_said() {
    let Some(mut world) = start().await else { return };
    let session = planted(&world).await;
    left_running(&world, session).await;
    // Nobody sends a message.
    let is_proof = |entry: &Entry| matches!(entry, Entry::Aside { said: Said::Output { name, .. }, .. } if name == "transcript");
    let log = tokio::time::timeout(Duration::from_secs(60), world.log_until(session, is_proof));
    let told = asides(&log.await.expect("it is logged without a message"));
    assert!(told.iter().all(|(turn, _)| *turn == TurnNumber::new(2)), "{told:?}");
    let is_named =
        |said: &Said, wanted: &str| matches!(said, Said::Output { name, .. } if name == wanted);
    assert!(
        told.iter().any(
            |(_, said)| matches!(said, Said::Message { body } if body.get().contains("assistant"))
        ),
        "{told:?}"
    );
    assert!(told.iter().any(|(_, said)| is_named(said, "transcript_mirror")), "{told:?}");

    // Nothing but the log is left of it: neither the record, nor a snapshot that has it.
    world.captured(session).await;
    stop(&world, session).await;
    world.kill_engine().await;
    fs::remove_file(transcript(&world, session)).unwrap();
    let record = world.host.home(session).join(".ash/conversation.jsonl");
    let content = fs::read_to_string(&record).unwrap();
    let cut = content.lines().position(|line| line.contains("\"run\":\"\"")).expect("it has none");
    let before: Vec<&str> = content.lines().take(cut).collect();
    fs::write(&record, before.join("\n") + "\n").unwrap();
    let receipt = resume(&world, session).await;
    assert_ne!(receipt.conversation.native, Native::Lost, "{receipt:?}");
    remembers(&world, session, "told from the log").await;
    let sent = world.requests().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("Wait for the kettle"), "{sent}");
    assert!(sent.matches("task-notification").count() > 0, "what was said in between: {sent}");
    world.end().await;
}

#[tokio::test]
async fn the_program_can_be_killed_while_it_speaks_of_its_own_accord() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    left_running(&world, session).await;
    until_logged(&world, session, |entry| matches!(entry, Entry::Aside { .. })).await;
    let [pid] = programs(&world, session)[..] else { panic!("one program") };
    crate::world::kill(pid);
    remembers(&world, session, "killed while it spoke").await;
    stop(&world, session).await;
    assert_eq!(told(&resume(&world, session).await), (Native::Intact, 3, 3));
    remembers(&world, session, "after a resume").await;
    world.end().await;
}

/// A program that is done with its message at once, and has more to say when a file is there.
const TALKATIVE: &str = r#"next
echo '{"type":"result","subtype":"success","is_error":false,"result":"fine","num_turns":1}'
until test -e "$0.go"; do sleep 0.05; done
echo '{"type":"system","subtype":"task_notification","what":"the kettle"}'
echo '{"type":"assistant","uuid":"u","message":{"role":"assistant","content":[{"type":"text","text":"It has boiled."}]}}'
next
echo '{"type":"result","subtype":"success","is_error":false,"result":"fine","num_turns":1}'
cat > /dev/null"#;

#[tokio::test]
async fn what_is_said_between_two_messages_is_told_once_and_belongs_to_no_run() {
    let (mut world, dir) = with_program(TALKATIVE).await;
    let session = world.session().await;
    let run = world.prompt(session, "Hello.").await.run;
    assert_eq!(ended(&world, session, run).await, RunStatus::Completed);
    fs::write(dir.path().join("claude.go"), "").unwrap();
    let boiled =
        |entry: &Entry| matches!(entry, Entry::Aside { said, .. } if has(said, "It has boiled."));
    until_logged(&world, session, boiled).await;
    // A server that comes later is not told again.
    world.kill_engine().await;
    let prompt = Json::of("And now?").unwrap();
    let accepted = world.prompt_json(session, prompt).await;
    let next = accepted.run;
    let turn = world.turn(session, accepted).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    let log = world
        .log_until(session, |entry| matches!(entry, Entry::RunEnded { run, .. } if *run == next))
        .await;
    let told = asides(&log);
    let of = |text: &str| told.iter().filter(|(_, said)| has(said, text)).count();
    assert_eq!((of("the kettle"), of("It has boiled.")), (1, 1), "{told:?}");
    assert!(!said(&turn).contains("boiled"), "{}", said(&turn));
    world.end().await;
}
