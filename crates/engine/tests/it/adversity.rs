//! What must not happen, each shown by what would bring it about.

use std::time::Duration;

use ash_core::entry::Entry;
use ash_core::failure::Death;
use ash_core::id::SessionId;
use ash_core::json::Json;
use ash_core::number::{Incarnation, Seq};
use ash_core::run::RunStatus;
use ash_core::session::{IfBusy, IfRunning, PauseReason, Sandbox, Status};
use ash_core::time::Clock as _;
use ash_engine::host::SandboxRef;
use ash_engine::testing::{HostFaults, StoreFaults};
use ash_engine::{EngineError, SendPrompt};
use ash_store::{MAX_ENTRY_BYTES, Store as _};

use crate::support::{TestEngine, UNHURRIED, key, prompt, tenant};

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_stops_talking_does_not_outrun_its_deadline() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let slow_disk = StoreFaults { slowness: Duration::from_millis(50), ..StoreFaults::default() };
    let talkative = HostFaults {
        slowness: Duration::from_millis(2),
        diligence: 10_000_000,
        ..HostFaults::default()
    };
    world.behave(slow_disk, talkative);
    let brief = SendPrompt { timeout: Some(Duration::from_secs(5)), ..prompt() };
    let accepted = world.engine.prompt(&tenant(), session, brief, None).await.unwrap();
    let ended = world.until_state(session, |s| s.current_run().is_none()).await;
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Failed);
    assert_eq!(ended.status(), Status::Active);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_an_answer_not_a_silence() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let away = StoreFaults { fails: 1_000, ..StoreFaults::default() };
    world.behave(away, HostFaults::default());
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let engine = world.engine.clone();
        asking.spawn(async move { engine.evict(session, PauseReason::Evicted).await });
    }
    let all = async {
        while let Some(answer) = asking.join_next().await {
            assert!(answer.unwrap().is_err_and(|error| error.is_transient()));
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("everybody is answered");
    assert!(world.engine.cannot_record(), "whoever watches over the server is told");
    world.behave(StoreFaults::default(), HostFaults::default());
    world.until_state(session, |s| s.status() == Status::Active).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.engine.evict(session, PauseReason::Evicted).await.unwrap();
    assert!(!world.engine.cannot_record());
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_is_not_tried_as_fast_as_it_goes() {
    let world = TestEngine::start().await;
    let brisk = HostFaults { slowness: Duration::from_millis(10), ..UNHURRIED };
    world.behave(StoreFaults::default(), brisk);
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    // A claim is so small that it has room.
    let slow = StoreFaults { slowness: Duration::from_millis(1), ..StoreFaults::default() };
    world.behave(StoreFaults { full: 1_000, ..slow }, brisk);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let tried = world.line.full_commits();
    assert!((10..60).contains(&tried), "{tried} times in a minute");
    world.behave(slow, brisk);
    world.until(session, "run_ended").await;
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_stalled_does_not_take_its_successor_down() {
    let mut world = TestEngine::start().await;
    let first = world.session().await;
    let old = world.engine.clone();
    world.engine = world.another().await;
    let second = world.session().await;
    // The old one wakes up and has its minute's look around.
    old.reconcile().await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), old.closing()).await.expect("it lets go");
    for session in [first, second] {
        let accepted = world.prompt(session).await.unwrap();
        world.until(session, "run_ended").await;
        assert_eq!(world.status_of(session, accepted).await, RunStatus::Completed);
    }
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_an_attach_does_not_cost_the_turn() {
    let mut world = TestEngine::start().await;
    let brisk = HostFaults { slowness: Duration::from_millis(10), ..UNHURRIED };
    world.behave(StoreFaults::default(), brisk);
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.engine.abort().await;
    world.behave(StoreFaults::default(), HostFaults { loses_answer: 1_000, ..brisk });
    world.engine = world.another().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.behave(StoreFaults::default(), brisk);
    world.until(session, "run_ended").await;
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Completed);
}

/// A driver that goes with reports in its mailbox must not leave a hole: the next one hears them
/// again, over its own connection.
#[tokio::test(start_paused = true)]
async fn what_a_driver_heard_and_could_not_record_is_told_again() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let talkative = HostFaults {
        slowness: Duration::from_millis(2),
        diligence: 5_000,
        ..HostFaults::default()
    };
    let slow = StoreFaults { slowness: Duration::from_millis(20), ..StoreFaults::default() };
    world.behave(slow, talkative);
    let accepted = world.prompt(session).await.unwrap();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.behave(StoreFaults { loses_answer: 1_000, damages: 1_000, ..slow }, talkative);
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.behave(slow, talkative);
    }
    world.until(session, "run_ended").await;
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Completed);
    let log = world.store.events_after(session, Seq::ZERO, 100_000).await.unwrap();
    let mut text = String::new();
    for entry in &log {
        assert_ne!(entry.entry.kind(), "reports_lost");
        if let Entry::TextDelta { delta, .. } = &entry.entry {
            text.push_str(delta);
        }
    }
    assert_eq!(text, world.host.said(accepted.run));
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_cannot_be_reached_is_given_up_and_the_session_goes_on() {
    let mut world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.engine.abort().await;
    world.behave(StoreFaults::default(), HostFaults { hangs: 1_000, ..UNHURRIED });
    world.engine = world.another().await;
    world.until_state(session, |s| s.status() == Status::Paused).await;
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Interrupted);
    world.behave(StoreFaults::default(), UNHURRIED);
    let next = world.prompt(session).await.unwrap();
    world.until_state(session, |s| s.status() == Status::Active && s.current_run().is_none()).await;
    assert_eq!(world.status_of(session, next).await, RunStatus::Completed);
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_agent_leaves_nothing_running() {
    let world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    world.engine.delete_agent(&tenant(), &"coder".parse().unwrap()).await.unwrap();
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Cancelled);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.host.alive(), vec![]);
    assert!(matches!(world.prompt(session).await, Err(EngineError::NotFound("session"))));
}

#[tokio::test(start_paused = true)]
async fn sessions_of_a_deleted_agent_are_ended_also_if_whoever_deleted_it_died() {
    let world = TestEngine::start().await;
    world.session().await;
    world.store.delete_agent(&tenant(), &"coder".parse().unwrap()).await.unwrap();
    world.engine.reconcile().await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.host.alive(), vec![]);
    assert_eq!(world.store.abandoned_sessions(None, 9).await.unwrap(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn one_sandbox_that_will_not_stop_does_not_hide_the_others() {
    let world = TestEngine::start().await;
    world.behave(StoreFaults::default(), HostFaults { hangs: 300, ..HostFaults::default() });
    for number in 1..=20 {
        let session = SessionId::from_parts(world.clock.now(), [number; 10]);
        world.host.plant(SandboxRef { session, incarnation: Incarnation::new(1) });
    }
    // Whichever hang this time, the next pass comes to the rest.
    for _ in 0..50 {
        let _host_too_slow = world.engine.reconcile().await;
    }
    assert_eq!(world.host.alive(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn a_live_sandbox_that_vanished_without_a_word_is_noticed() {
    let world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.host.reboot();
    world.engine.reconcile().await.unwrap();
    world.until_state(session, |s| s.sandbox() == Sandbox::None).await;
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Interrupted);
}

#[tokio::test(start_paused = true)]
async fn the_same_request_twice_at_once_is_carried_out_once_and_answered_twice() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let slow = StoreFaults { slowness: Duration::from_millis(50), ..StoreFaults::default() };
    world.behave(slow, UNHURRIED);
    let impatient = SendPrompt { if_busy: IfBusy::Reject, ..prompt() };
    let tenant = tenant();
    let (one, other) = tokio::join!(
        world.engine.prompt(&tenant, session, impatient.clone(), Some(key("k", 1))),
        world.engine.prompt(&tenant, session, impatient.clone(), Some(key("k", 1))),
    );
    assert_eq!(one.unwrap(), other.unwrap());
    assert_eq!(world.store.runs(session, 9).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_whose_delivery_was_lost_can_be_cancelled_without_harm_to_the_next() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    world.behave(StoreFaults::default(), HostFaults { call_fails: 1_000, ..UNHURRIED });
    let lost = world.prompt(session).await.unwrap();
    let next = world.prompt(session).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.behave(StoreFaults::default(), UNHURRIED);
    world.engine.interrupt(&tenant(), session, Some(lost.run)).await.unwrap();
    world.until_state(session, |s| s.current_run().is_none()).await;
    assert_eq!(world.status_of(session, lost).await, RunStatus::Cancelled);
    assert_eq!(world.status_of(session, next).await, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_is_too_large_is_refused_and_harms_nothing() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let content = Json::of(&"x".repeat(MAX_ENTRY_BYTES)).unwrap();
    let huge = SendPrompt { content, ..prompt() };
    let answer = world.engine.prompt(&tenant(), session, huge, None).await;
    assert!(matches!(answer, Err(EngineError::TooLarge { .. })), "{answer:?}");
    world.prompt(session).await.unwrap();
    world.until(session, "run_ended").await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_meets_a_hanging_host_still_ends_in_time() {
    let world = TestEngine::start().await;
    for _ in 0..5 {
        world.session().await;
    }
    world.engine.pause(&tenant(), world.session().await, IfRunning::Freeze).await.unwrap();
    world.behave(StoreFaults::default(), HostFaults { hangs: 1_000, ..HostFaults::default() });
    let drained = world.engine.drain(Duration::from_secs(4));
    tokio::time::timeout(Duration::from_secs(5), drained).await.expect("it keeps its time");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ended_unheard_counts_although_its_sandbox_is_dead() {
    let mut world = TestEngine::start().await;
    world.behave(StoreFaults::default(), HostFaults { diligence: 20, ..UNHURRIED });
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.engine.abort().await;
    // The agent finishes, and its bridge waits for a server until it gives up.
    tokio::time::sleep(Duration::from_secs(600)).await;
    world.host.kill(world.host.alive()[0], Death::Exited(0));
    world.engine = world.another().await;
    world.until(session, "run_ended").await;
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Completed);
}
