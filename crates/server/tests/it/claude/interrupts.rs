//! Interrupts that come before the program has begun.

use super::strange::with_program;
use super::*;

/// Says something and takes it back at once.
async fn taken_back(world: &World, session: SessionId, text: &str) {
    let accepted = world.prompt(session, &format!("{text}\n/wait 20s\n/say never")).await;
    world.engine.interrupt(&tenant(), session, None).await.unwrap();
    assert_eq!(world.turn(session, accepted).await.status, RunStatus::Cancelled);
}

/// Asks for what was said, and sees that the model was sent it.
async fn is_told(world: &World, session: SessionId, wanted: &[&str], context: &str) {
    let turn = world.say(session, ASK).await;
    assert_eq!(turn.status, RunStatus::Completed, "{context}");
    let sent = world.requests().last().unwrap().body["messages"].to_string();
    for wanted in wanted {
        assert!(sent.contains(wanted), "{context}, {wanted}: {sent}");
    }
}

#[tokio::test]
async fn a_message_that_is_taken_back_before_the_program_saw_it_is_quoted_with_the_next_one() {
    let Some(world) = start().await else { return };
    // The program is being started.
    let session = world.session().await;
    taken_back(&world, session, "The codeword is PLUM.").await;
    is_told(&world, session, &["PLUM"], "at once").await;
    stop(&world, session).await;
    resume(&world, session).await;
    taken_back(&world, session, "The second is FIG.").await;
    stop(&world, session).await;
    let receipt = resume(&world, session).await;
    assert_ne!(receipt.conversation.native, Native::Lost);
    is_told(&world, session, &["PLUM", "FIG"], "after a resume").await;

    let session = world.session().await;
    taken_back(&world, session, "The codeword is PEAR.").await;
    stop(&world, session).await;
    resume(&world, session).await;
    is_told(&world, session, &["PEAR"], "before anything else was said").await;
    // Without any file, from the log alone.
    taken_back(&world, session, "The second is KIWI.").await;
    stop(&world, session).await;
    let home = world.host.home(session);
    std::fs::remove_file(home.join(".ash/conversation.jsonl")).unwrap();
    assert_eq!(resume(&world, session).await.conversation.native, Native::Rebuilt);
    is_told(&world, session, &["PEAR", "KIWI"], "from the log").await;
    world.end().await;
}

/// A program that passes over the first interrupt, and another that is done with its message in spite of it.
const HARD_OF_HEARING: &str = r#"read -r line
echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'
read -r line
echo '{"type":"system","subtype":"heard"}'
while read -r line; do
  echo "$line" >> "$0.interrupts"
  case "$(wc -l < "$0.interrupts")" in
    2) break ;;
  esac
done
echo '{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":1}'
cat > /dev/null"#;

const DONE_ANYWAY: &str = r#"read -r line
echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'
read -r line
echo '{"type":"system","subtype":"heard"}'
read -r line
echo '{"type":"result","subtype":"success","is_error":false,"result":"fine","num_turns":1}'
cat > /dev/null"#;

#[tokio::test]
async fn an_interrupt_is_repeated_and_what_was_done_all_the_same_is_not_called_cancelled() {
    for (program, status) in
        [(HARD_OF_HEARING, RunStatus::Cancelled), (DONE_ANYWAY, RunStatus::Completed)]
    {
        let (world, dir) = with_program(program).await;
        let session = world.session().await;
        let accepted = world.prompt(session, "Hello.").await;
        let run = accepted.run;
        let heard =
            |entry: &Entry| matches!(entry, Entry::Output { name, .. } if name == "system_heard");
        until_logged(&world, session, heard).await;
        world.engine.interrupt(&tenant(), session, None).await.unwrap();
        assert_eq!(ended(&world, session, run).await, status);
        let asked = std::fs::read_to_string(dir.path().join("claude.interrupts"));
        let times = asked.unwrap_or_default().matches(r#""subtype":"interrupt""#).count();
        assert_eq!(times, if status == RunStatus::Cancelled { 2 } else { 0 });
        world.end().await;
    }
}
