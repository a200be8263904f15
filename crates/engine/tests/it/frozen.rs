//! Sessions that are paused with their sandbox frozen, and what can become of that meanwhile.

use std::time::Duration;

use ash_core::entry::ResumePath;
use ash_core::failure::Death;
use ash_core::id::SessionId;
use ash_core::number::Turn;
use ash_core::refusal::Refusal;
use ash_core::run::RunStatus;
use ash_core::session::{IfRunning, PauseReason, Sandbox, Session, Status};
use ash_engine::files::{Executable, FilePath};
use ash_engine::host::SandboxRef;
use ash_engine::testing::{HostFaults, StoreFaults};
use ash_engine::{Accepted, EngineError, RequireState};

use crate::support::{TestEngine, UNHURRIED, tenant};

fn is_frozen(session: &Session) -> bool {
    matches!(session.sandbox(), Sandbox::Frozen { .. }) && session.is_at_rest()
}

/// A session that is frozen in the middle of a turn; nobody drives it.
async fn frozen(world: &TestEngine) -> (SessionId, SandboxRef, Accepted) {
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let run = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    let paused = world.until_state(session, is_frozen).await;
    let sandbox = SandboxRef { session, incarnation: paused.incarnation() };
    (session, sandbox, run)
}

/// Brings a session back whose sandbox is gone; its run is told to be cut.
async fn comes_back_cold(world: &TestEngine, session: SessionId, cut: Accepted) {
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    let receipt = back.receipt.unwrap();
    assert_eq!((receipt.path, receipt.interrupted_run), (ResumePath::Cold, Some(cut.run)));
    assert_eq!(back.session.session.status(), Status::Active);
    assert_eq!(world.status_of(session, cut).await, RunStatus::Interrupted);
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_death_of_a_frozen_sandbox_is_noticed_and_the_resume_is_cold() {
    let world = TestEngine::start().await;
    let (session, sandbox, run) = frozen(&world).await;
    world.host.kill(sandbox, Death::Killed(9));
    let paused = world.until_state(session, |it| it.sandbox() == Sandbox::None).await;
    assert_eq!(paused.status(), Status::Paused);
    comes_back_cold(&world, session, run).await;
}

#[tokio::test(start_paused = true)]
async fn a_resume_that_comes_before_the_death_was_noticed_is_cold_too() {
    let world = TestEngine::start().await;
    let (session, sandbox, run) = frozen(&world).await;
    world.host.kill(sandbox, Death::OutOfMemory);
    comes_back_cold(&world, session, run).await;
}

#[tokio::test(start_paused = true)]
async fn a_reboot_is_noticed_in_sessions_that_were_frozen() {
    // Somebody asks at once, or nobody does for a while.
    for at_once in [true, false] {
        let mut world = TestEngine::start().await;
        let (session, _, run) = frozen(&world).await;
        world.host.reboot();
        world.crash_and_restart().await;
        if !at_once {
            world.until_state(session, |it| it.sandbox() == Sandbox::None).await;
        }
        comes_back_cold(&world, session, run).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_prompt_to_a_session_whose_frozen_sandbox_is_gone_is_worked_on() {
    let mut world = TestEngine::start().await;
    let session = world.session().await;
    world.until_state(session, is_frozen).await;
    world.host.reboot();
    world.crash_and_restart().await;
    let run = world.prompt(session).await.unwrap();
    world.until(session, "run_ended").await;
    assert_eq!(world.status_of(session, run).await, RunStatus::Completed);
    assert_eq!(world.stored(session).await.status(), Status::Active);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_waited_when_the_sandbox_was_evicted_is_worked_on_after_the_resume() {
    let world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let cut = world.prompt(session).await.unwrap();
    let waits = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    world.engine.evict(session, PauseReason::Evicted).await.unwrap();
    world.until_state(session, |it| it.sandbox() == Sandbox::None).await;
    assert_eq!(world.status_of(session, waits).await, RunStatus::Queued);
    world.behave(StoreFaults::default(), HostFaults::default());
    comes_back_cold(&world, session, cut).await;
    world.until_state(session, |it| it.lineage().turns() == 2 && it.current_run().is_none()).await;
    assert_eq!(world.status_of(session, waits).await, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ended_while_nobody_listened_is_completed_when_its_sandbox_is_given_up() {
    let mut world = TestEngine::start().await;
    let (session, sandbox, run) = frozen(&world).await;
    world.engine.abort().await;
    world.host.finish_unheard(sandbox, run.run);
    world.crash_and_restart().await;
    world.engine.evict(session, PauseReason::Evicted).await.unwrap();
    assert_eq!(world.status_of(session, run).await, RunStatus::Completed);
    let evicted = world.until_state(session, |it| it.sandbox() == Sandbox::None).await;
    assert_eq!((evicted.status(), evicted.lineage().head()), (Status::Paused, Turn::new(1)));
}

#[tokio::test(start_paused = true)]
async fn the_same_when_it_is_given_up_for_its_age_and_when_it_is_interrupted() {
    for interrupts in [true, false] {
        let mut world = TestEngine::start().await;
        let (session, sandbox, run) = frozen(&world).await;
        world.engine.abort().await;
        world.host.finish_unheard(sandbox, run.run);
        world.crash_and_restart().await;
        if interrupts {
            let too_late = world.engine.interrupt(&tenant(), session, None).await;
            let refused = matches!(too_late, Err(EngineError::Refused(Refusal::NoSuchRun)));
            assert!(refused, "{too_late:?}");
        } else {
            world.until_state(session, |it| it.sandbox() == Sandbox::None).await;
        }
        assert_eq!(world.status_of(session, run).await, RunStatus::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_of_a_frozen_run_is_answered_with_the_run_cancelled() {
    let world = TestEngine::start().await;
    let (session, _, run) = frozen(&world).await;
    let record = world.engine.interrupt(&tenant(), session, None).await.unwrap();
    assert_eq!((record.id, record.status), (run.run, RunStatus::Cancelled));
    let paused = world.until_state(session, |it| it.sandbox() == Sandbox::None).await;
    assert_eq!(paused.status(), Status::Paused);
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    let receipt = back.receipt.unwrap();
    assert_eq!((receipt.path, receipt.interrupted_run), (ResumePath::Cold, None));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_cancels_the_run_is_answered_when_the_session_is_paused() {
    let world = TestEngine::start().await;
    // One that obeys, and one that does not.
    for deaf in [0, 1_000] {
        world.behave(StoreFaults::default(), HostFaults { deaf, ..UNHURRIED });
        let session = world.session().await;
        let run = world.prompt(session).await.unwrap();
        world.until(session, "phase").await;
        let paused = world.engine.pause(&tenant(), session, IfRunning::Interrupt).await.unwrap();
        assert_eq!(paused.status(), Status::Paused);
        assert_eq!(world.status_of(session, run).await, RunStatus::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn files_written_to_a_session_at_rest_are_captured_when_that_has_stopped_for_a_moment() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    world.engine.stop(&tenant(), session).await.unwrap();
    let before = world.until_state(session, |it| {
        it.is_at_rest() && it.persistence().is_settled() && it.persistence().last().is_some()
    });
    let before = before.await.persistence().last().unwrap().captured.id;
    // Right after a pass of the reconciler, so that the next one is far away.
    world.engine.reconcile().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    world.host.place_workspace(session, dir.path().to_owned());
    let files = world.engine.workspace_to_change(&tenant(), session).await.unwrap();
    let path = FilePath::file(b"late.txt").unwrap();
    files.write(path, Executable::No, b"hello".to_vec()).await.unwrap();
    drop(files);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = world.stored(session).await;
    assert_ne!(after.persistence().last().unwrap().captured.id, before);
    assert_eq!(world.engine.driven_sessions(), 0, "it is a row again");
}

/// Long enough for a driver to retire, and not for anything else to become due.
const A_WHILE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn whoever_resumes_goes_on_from_what_the_last_driver_left() {
    let world = TestEngine::start().await;
    let (session, _, run) = frozen(&world).await;
    tokio::time::sleep(A_WHILE).await;
    // Whoever claimed it would find something that it cannot read.
    world.behave(StoreFaults { damages: 1_000, ..StoreFaults::default() }, UNHURRIED);
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    assert_eq!(back.receipt.unwrap().path, ResumePath::Warm);
    world.until(session, "run_ended").await;
    assert_eq!(world.status_of(session, run).await, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_left_is_worth_nothing_when_another_server_has_the_session() {
    let mut world = TestEngine::start().await;
    let (session, _, run) = frozen(&world).await;
    tokio::time::sleep(A_WHILE).await;
    let old = world.engine.clone();
    world.engine = world.another().await;
    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    assert_eq!(back.receipt.unwrap().path, ResumePath::Warm);
    old.resume(&tenant(), session, RequireState::No).await.unwrap_err();
    tokio::time::timeout(A_WHILE, old.closing()).await.expect("it lets go");
    world.until(session, "run_ended").await;
    assert_eq!(world.status_of(session, run).await, RunStatus::Completed);
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}
