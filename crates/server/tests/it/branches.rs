//! What is part of a conversation after a fork or a rewind: all that the agent knows, and nothing else.

use ash_core::entry::Entry;
use ash_core::id::SessionId;
use ash_core::number::{Seq, Turn};
use ash_core::refusal::Refusal;
use ash_core::run::{Phase, RunStatus};
use ash_core::session::{IfRunning, Session, Status};
use ash_core::snapshot::Snapshot;
use ash_engine::{Against, Effective, EngineError, Point, RequireState};
use tokio::task::JoinSet;

use crate::world::{World, tenant};

/// Works until there is a file, and says something then.
const WAITS: &str = "Wait for it.\n/bash while [ ! -e go ]; do sleep 0.05; done\n/say FINALANSWER";

async fn stored(world: &World, session: SessionId) -> Session {
    world.engine.store().session(&tenant(), session).await.unwrap().session.clone()
}

/// The messages of a conversation, as they are shown.
async fn messages(world: &World, session: SessionId) -> String {
    let branch = world.engine.branch(&stored(world, session).await).await.unwrap();
    let all = world.engine.store().messages_after(session, Seq::ZERO, 999).await.unwrap();
    let shown = all.iter().filter(|logged| branch.has(logged)).map(|logged| match &logged.entry {
        Entry::Prompt { content, .. } => format!("> {}\n", content.get()),
        Entry::Message { body, .. } => format!("{}\n", body.get()),
        other => panic!("{other:?}"),
    });
    shown.collect()
}

/// Begins a turn that waits, and pauses in the middle of it.
async fn paused_in_the_middle(world: &World, session: SessionId) -> Snapshot {
    let run = world.prompt(session, WAITS).await.run;
    let works = |entry: &Entry| matches!(entry, Entry::Phase { run: of, phase: Phase::ExecutingTools, .. } if *of == run);
    world.log_until(session, works).await;
    let before = stored(world, session).await.last_seq();
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    let middle = world.captured_after(session, before).await;
    assert_eq!(middle.through, Some(middle.seq), "the turn goes on");
    middle
}

#[tokio::test]
async fn a_turn_that_was_cut_after_it_stood_still_can_be_forked_and_gone_back_to() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, "/bash printf one >one").await;
    paused_in_the_middle(&world, session).await;
    world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    world.kill_bridge(session).await;
    let run = world.engine.store().runs(session, 1).await.unwrap()[0].id;
    assert_eq!(world.ended(session, run).await.status, RunStatus::Interrupted);
    let at = Point::Turn(Turn::new(2));
    let fork = world.engine.fork(&tenant(), session, at, None).await.unwrap();
    assert_eq!(fork.session.lineage().turns(), 2);
    let back = world.engine.rewind(&tenant(), session, at, Effective::Yes).await.unwrap();
    assert_eq!(back.session.session.lineage().head(), Turn::new(2));
    world.end().await;
}

#[tokio::test]
async fn a_fork_and_a_rewind_know_nothing_of_what_waited_then() {
    let world = World::start().await;
    let session = world.session().await;
    let first = world.prompt(session, "one\n/bash sleep 0.2").await;
    for text in ["two", "three", "four"] {
        world.prompt(session, text).await;
    }
    world.ended(session, first.run).await;
    let fourth = world.engine.store().runs(session, 9).await.unwrap()[0].id;
    world.ended(session, fourth).await;
    world.captured(session).await;
    let at = Point::Turn(Turn::new(1));
    let fork = world.engine.fork(&tenant(), session, at, None).await.unwrap().record.id;
    let told = messages(&world, fork).await;
    assert!(told.contains("> \"one") && !told.contains("two") && !told.contains("three"), "{told}");
    let runs = world.engine.store().runs(fork, 9).await.unwrap();
    let begun = runs.iter().filter(|run| run.turn.is_some());
    assert!(begun.clone().all(|run| run.status == RunStatus::Completed), "{runs:?}");
    let waited = runs.iter().filter(|run| run.turn.is_none());
    assert!(waited.clone().all(|run| run.status == RunStatus::Cancelled), "{runs:?}");
    let back = world.engine.resume(&tenant(), fork, RequireState::Yes).await.unwrap();
    assert_eq!(back.receipt.unwrap().interrupted_run, None, "nothing was cut");
    world.say(fork, "five").await;
    assert!(messages(&world, fork).await.contains("five"));

    // One that was cancelled while it waited, in a session that is then rewound.
    let busy = world.prompt(session, "six\n/bash sleep 60").await;
    world.prompt(session, "seven").await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.ended(session, busy.run).await;
    assert!(messages(&world, session).await.contains("seven"), "it was sent");
    world.engine.rewind(&tenant(), session, at, Effective::Yes).await.unwrap();
    let told = messages(&world, session).await;
    assert!(told.contains("> \"one") && !told.contains("six") && !told.contains("seven"), "{told}");
    world.end().await;
}

#[tokio::test]
async fn of_a_turn_that_was_rewound_into_only_what_the_agent_knows_is_shown() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, "/bash printf one >one").await;
    let middle = paused_in_the_middle(&world, session).await;
    let run = world.engine.store().runs(session, 1).await.unwrap()[0].id;
    world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    std::fs::write(world.host.workspace(session).join("go"), "").unwrap();
    assert_eq!(world.ended(session, run).await.status, RunStatus::Completed);
    let whole = world.captured(session).await;
    assert!(messages(&world, session).await.contains("\"FINALANSWER\""));

    let to = Point::Snapshot(middle.captured.id);
    let back = world.engine.rewind(&tenant(), session, to, Effective::Yes).await.unwrap();
    assert_eq!(back.session.session.status(), Status::Active, "it was active");
    let told = messages(&world, session).await;
    assert!(told.contains("Wait for it.") && !told.contains("\"FINALANSWER\""), "{told}");
    let answer = world.say(session, "What was said?\n/recall").await.text();
    assert!(answer.contains("Wait for it.") && !answer.contains("\nFINALANSWER"), "{answer}");
    assert!(!messages(&world, session).await.contains("\"text\":\"FINALANSWER\""));
    let third = world.captured(session).await;
    let compare = |id| world.engine.compare(us(), session, id, Against::Previous, None);
    let before = compare(third.captured.id).await.unwrap().before.unwrap();
    assert_eq!(before.through, middle.through, "what it went on from");
    let before = compare(whole.captured.id).await.unwrap().before.unwrap();
    assert_eq!(before.captured.id, middle.captured.id);

    let to = Point::Turn(Turn::new(2));
    world.engine.rewind(&tenant(), session, to, Effective::Yes).await.unwrap();
    assert!(
        messages(&world, session).await.contains("\"FINALANSWER\""),
        "all of it is there again"
    );
    world.end().await;
}

fn us() -> &'static ash_core::id::TenantId {
    static US: std::sync::LazyLock<ash_core::id::TenantId> = std::sync::LazyLock::new(tenant);
    &US
}

#[tokio::test]
async fn a_rewind_of_a_session_that_is_ended_meanwhile_says_so() {
    let world = World::start().await;
    let session = world.session().await;
    for text in ["one", "two"] {
        world.say(session, text).await;
        world.captured(session).await;
    }
    let engine = world.engine.clone();
    let mut asked = JoinSet::new();
    let rewinding = asked.spawn(async move {
        let to = Point::Turn(Turn::new(1));
        engine.rewind(&tenant(), session, to, Effective::Yes).await
    });
    while !rewinding.is_finished() && stored(&world, session).await.rewinding().is_none() {
        tokio::task::yield_now().await;
    }
    world.engine.end(&tenant(), session).await.unwrap();
    match asked.join_next().await.unwrap().unwrap() {
        // It was quicker.
        Ok(_) => {}
        Err(EngineError::Refused(Refusal::Ended)) => {}
        Err(other) => panic!("{other:?}"),
    }
    world.end().await;
}

#[tokio::test]
async fn what_was_before_the_first_message_is_there_only_if_it_was_captured() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, "one").await;
    world.captured(session).await;
    let fork = world.engine.fork(&tenant(), session, Point::Turn(Turn::ZERO), None).await;
    assert!(matches!(fork, Err(EngineError::NothingBefore)), "{fork:?}");
    world.end().await;
}
