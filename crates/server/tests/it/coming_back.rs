//! What a session comes back to, with the real bridge and its agent.

use ash_core::entry::{Entry, ResumePath};
use ash_core::id::SessionId;
use ash_core::resume::{Native, Receipt, Source, Workspace};
use ash_engine::RequireState;

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
