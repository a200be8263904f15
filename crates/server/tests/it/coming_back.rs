//! What a session comes back to, with the real bridge and its agent.

use ash_core::entry::{Entry, ResumePath};
use ash_core::id::SessionId;
use ash_core::number::Turn;
use ash_core::resume::{Native, Receipt, Source, Workspace};
use ash_core::run::RunStatus;
use ash_engine::{EngineError, Point, RequireState};

use crate::world::{World, tenant};

const WRITE: &str = "My name is Ada.\n/tool write_file {\"path\": \"a.txt\", \"content\": \"one\"}";

async fn stop_and_resume(world: &World, session: SessionId) -> Receipt {
    world.engine.stop(&tenant(), session).await.unwrap();
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    back.receipt.unwrap()
}

fn tells_of_a_loss(entry: &Entry) -> bool {
    matches!(entry, Entry::ContextLost { .. })
}

#[tokio::test]
async fn a_stopped_session_comes_back_to_its_files_and_its_conversation() {
    let world = World::start().await;
    let session = world.session().await;
    let receipt = stop_and_resume(&world, session).await;
    assert_eq!((receipt.workspace, receipt.files), (Workspace::Kept, 0));
    assert_eq!(receipt.conversation.native, Native::None, "nothing was said yet");

    world.say(session, WRITE).await;
    let receipt = stop_and_resume(&world, session).await;
    assert_eq!((receipt.path, receipt.source), (ResumePath::Cold, Some(Source::Local)));
    assert_eq!((receipt.workspace, receipt.files, receipt.bytes), (Workspace::Kept, 1, 3));
    let told = receipt.conversation;
    assert_eq!((told.native, told.turns, told.turns_in_log), (Native::Intact, 1, 1));
    assert_eq!(receipt.interrupted_run, None);
    let answer = world.say(session, "Who am I?\n/recall").await.text();
    assert!(answer.contains("My name is Ada."), "{answer}");
    world.end().await;
}

#[tokio::test]
async fn a_sandbox_that_was_killed_a_moment_ago_is_not_said_to_live() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    for _ in 0..10 {
        // Nobody can have heard of it: this is one thread.
        world.kill_bridge(session).await;
        let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
        let receipt = back.receipt.expect("it was away");
        assert_eq!((receipt.path, receipt.files), (ResumePath::Cold, 1));
    }
    world.end().await;
}

#[tokio::test]
async fn a_workspace_that_is_gone_with_its_snapshots_is_made_anew_and_that_is_told() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    std::fs::remove_dir_all(world.host.workspace(session)).unwrap();
    std::fs::remove_dir_all(world.dir.join("data/snapshots")).unwrap();
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    let receipt = back.receipt.unwrap();
    assert_eq!((receipt.workspace, receipt.source), (Workspace::Fresh, Some(Source::Fresh)));
    assert_eq!((receipt.files, receipt.conversation.native), (0, Native::Intact));
    world.log_until(session, tells_of_a_loss).await;
    world.end().await;
}

#[tokio::test]
async fn a_first_turn_that_was_cut_is_remembered_or_told_again_by_the_log() {
    for is_lost in [false, true] {
        let world = World::start().await;
        let session = world.session().await;
        let cut = world.prompt(session, "My name is Ada.\n/bash sleep 60").await.run;
        let runs = |entry: &Entry| matches!(entry, Entry::Output { run, .. } if *run == cut);
        world.log_until(session, runs).await;
        world.kill_bridge(session).await;
        world.ended(session, cut).await;
        if is_lost {
            world.captured(session).await;
            std::fs::remove_dir_all(world.host.home(session).join(".ash")).unwrap();
        }
        let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
        let told = back.receipt.unwrap().conversation;
        let native = if is_lost { Native::Rebuilt } else { Native::Intact };
        assert_eq!((told.native, told.turns, told.turns_in_log), (native, 1, 1));
        assert_eq!(back.session.session.conversation(), told, "and nothing else afterwards");
        let answer = world.say(session, "Who am I?\n/recall").await.text();
        assert!(answer.contains("My name is Ada."), "{is_lost}: {answer}");
        world.end().await;
    }
}

#[tokio::test]
async fn a_home_that_is_gone_alone_comes_back_and_the_workspace_is_what_it_was() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    std::fs::write(world.host.workspace(session).join("later"), "by hand").unwrap();
    std::fs::remove_dir_all(world.host.home(session)).unwrap();
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    let receipt = back.receipt.unwrap();
    assert_eq!((receipt.workspace, receipt.source), (Workspace::Kept, Some(Source::Local)));
    assert_eq!((receipt.snapshot, receipt.files), (None, 2));
    assert_eq!(receipt.conversation.native, Native::Intact);
    let answer = world.say(session, "Who am I?\n/recall").await.text();
    assert!(answer.contains("My name is Ada."), "{answer}");
    world.end().await;
}

#[tokio::test]
async fn a_run_that_was_cut_is_named_by_the_resume_that_follows() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    let cut = world.prompt(session, "/bash sleep 60").await.run;
    let runs = |entry: &Entry| matches!(entry, Entry::Output { run, .. } if *run == cut);
    world.log_until(session, runs).await;
    world.kill_bridge(session).await;
    world.ended(session, cut).await;
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    let receipt = back.receipt.unwrap();
    assert_eq!(receipt.interrupted_run, Some(cut));
    // What was proven at the end of the first turn is still the beginning, and the one that was cut follows.
    assert_eq!((receipt.conversation.native, receipt.conversation.turns), (Native::Intact, 2));
    assert_eq!(receipt.conversation.turns_in_log, 2);
    world.end().await;
}

/// What the model was last sent.
fn sent(world: &World) -> String {
    world.requests().last().unwrap().body.to_string()
}

/// A session whose files are gone for good, and that came back without them.
async fn bereft(world: &World) -> SessionId {
    let session = world.session().await;
    world.say(session, WRITE).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    std::fs::remove_dir_all(world.host.workspace(session)).unwrap();
    std::fs::remove_dir_all(world.dir.join("data/snapshots")).unwrap();
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    assert_eq!(back.receipt.unwrap().workspace, Workspace::Fresh);
    session
}

#[tokio::test]
async fn an_agent_whose_files_are_lost_is_told_though_its_sandbox_ends_before_anybody_speaks_to_it()
{
    let lost = "the files that you left in the workspace were lost";
    for is_killed in [false, true] {
        let mut world = World::start().await;
        let session = bereft(&world).await;
        if is_killed {
            world.kill_engine().await;
            world.kill_bridge(session).await;
        }
        let receipt = stop_and_resume(&world, session).await;
        assert_eq!(receipt.workspace, Workspace::Kept);
        let answer = world.say(session, "Who am I?\n/recall").await.text();
        assert!(answer.contains("My name is Ada."), "{answer}");
        assert!(sent(&world).contains(lost), "{}", sent(&world));
        // It knows.
        stop_and_resume(&world, session).await;
        world.say(session, "And now?").await;
        assert!(!sent(&world).contains(lost), "{}", sent(&world));
        world.end().await;
    }
}

#[tokio::test]
async fn what_is_left_after_a_loss_is_not_taken_for_what_the_turn_left() {
    let world = World::start().await;
    let session = bereft(&world).await;
    world.captured(session).await;
    let last = world.engine.snapshots(&tenant(), session, 10).await.unwrap()[0].snapshot.clone();
    assert_eq!((last.turn, last.lost.is_some()), (Turn::new(1), true), "it is captured");
    let tenant = tenant();
    let fork = |point| world.engine.fork(&tenant, session, point, None);
    let refused = fork(Point::Turn(Turn::new(1))).await;
    assert!(matches!(refused, Err(EngineError::SnapshotExpired)), "{refused:?}");
    // Whoever wants what is there now has it, and the agent knows what it is.
    let there = fork(Point::Latest).await.unwrap().record.id;
    world.engine.resume(&tenant, there, RequireState::Yes).await.unwrap();
    world.say(there, "What is there?").await;
    assert!(sent(&world).contains("the files that you left in the workspace were lost"));
    world.end().await;
}

#[tokio::test]
async fn a_message_that_was_cut_before_it_reached_the_agent_is_known_to_it() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, "My name is Ada.\n/say hello").await;
    // The sandbox is dead, and nobody has noticed when the message comes.
    let sandbox = world.sandbox(session).await;
    world.kill_bridge(session).await;
    let cut = world.prompt(session, "The heron is blue.\n/say it is").await.run;
    assert_eq!(world.ended(session, cut).await.status, RunStatus::Interrupted);
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    assert_ne!(world.sandbox(session).await, sandbox);
    let told = back.receipt.unwrap().conversation;
    assert_eq!((told.native, told.turns, told.turns_in_log), (Native::Rebuilt, 2, 2));
    let answer = world.say(session, "Who am I?\n/recall").await.text();
    assert!(answer.contains("Ada") && answer.contains("The heron is blue."), "{answer}");
    // From then on it is a part of what it remembers.
    let told = stop_and_resume(&world, session).await.conversation;
    assert_eq!((told.native, told.turns, told.turns_in_log), (Native::Intact, 3, 3));
    world.end().await;
}

/// Directories in one another, whose path is longer than any program could say it, and a file at the end.
const DEEP: &str = "python3 -c 'import os
for _ in range(80): os.mkdir(\"d\" * 60); os.chdir(\"d\" * 60)
open(\"end\", \"w\").write(\"it is deep\")'";

/// Reads it.
const DIVE: &str = "python3 -c 'import os
for _ in range(80): os.chdir(\"d\" * 60)
open(\"end\", \"a\").write(\" and mine\"); print(open(\"end\").read())'";

#[tokio::test]
async fn files_whose_path_is_longer_than_the_kernel_takes_come_back() {
    let world = World::start().await;
    let session = world.session().await;
    let command = serde_json::json!({ "command": DEEP });
    let turn = world.say(session, &format!("My name is Ada.\n/tool bash {command}")).await;
    assert_eq!(turn.status, RunStatus::Completed);
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    std::fs::remove_dir_all(world.host.workspace(session)).unwrap();
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(back.receipt.unwrap().workspace, Workspace::Restored);
    let command = serde_json::json!({ "command": DIVE });
    let answer =
        world.say(session, &format!("Who am I?\n/tool bash {command}\n/results")).await.text();
    assert!(answer.contains("it is deep and mine"), "{answer}");
    world.end().await;
}
