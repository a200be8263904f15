//! Another release than the one that is pinned.

use super::*;
use crate::claude_program::other_claude_program;

/// The release that a machine with an old Node gets which asks for none.
const OLDER: &str = "2.1.197";

#[tokio::test]
async fn an_older_release_keeps_its_conversation_as_well() {
    let Some(program) = other_claude_program(OLDER) else { return };
    let world = start_with(&program).await;
    assert_eq!(world.claude.as_ref().unwrap().version, OLDER);
    let session = planted(&world).await;
    let turn = world.say(session, "Work.\n/bash echo hi > a.txt\n/say done").await;
    assert_eq!((turn.status, turn.outputs("tool_use").len()), (RunStatus::Completed, 1));
    assert_eq!(
        std::fs::read_to_string(world.host.workspace(session).join("a.txt")).unwrap(),
        "hi\n"
    );
    // Killed in the middle of an answer.
    let prompt = "Talk.\n/say begin\n/slow 20ms\n/repeat 300 word ";
    let run = world.prompt(session, prompt).await.run;
    until_logged(
        &world,
        session,
        |entry| matches!(entry, Entry::TextDelta { run: of, delta } if *of == run && delta.contains("word")),
    )
    .await;
    world.kill_bridge(session).await;
    assert_eq!(ended(&world, session, run).await, RunStatus::Interrupted);
    assert_eq!(resume(&world, session).await.conversation.native, Native::Intact);
    remembers(&world, session, "killed").await;
    // The program alone, while a tool of it runs. It does not answer a message that it knows already.
    let prompt = "Work.\n/bash python3 -c 'import time; time.sleep(20)'\n/say done";
    let run = world.prompt(session, prompt).await.run;
    until_logged(
        &world,
        session,
        |entry| matches!(entry, Entry::Output { run: of, name, .. } if *of == run && name == "tool_use"),
    )
    .await;
    let [pid] = programs(&world, session)[..] else { panic!("one program") };
    crate::world::kill(pid);
    let record = world.ended(session, run).await;
    assert_eq!(record.status, RunStatus::Failed);
    assert!(format!("{:?}", record.failure).contains("signal 9"), "{:?}", record.failure);
    remembers(&world, session, "the program killed in a tool").await;
    // Its transcript is gone.
    stop(&world, session).await;
    std::fs::remove_file(transcript(&world, session)).unwrap();
    assert_eq!(resume(&world, session).await.conversation.native, Native::Intact);
    let turn = remembers(&world, session, "made anew").await;
    assert!(turn.text().contains("echo hi > a.txt"), "{}", said(&turn));
    world.end().await;
}
