//! There are so many places for sandboxes: who makes room, and who is turned down.

use std::time::Duration;

use ash_core::failure::{Death, FailureCode};
use ash_core::pool::Occupancy;
use ash_core::run::RunStatus;
use ash_core::session::{IfRunning, PauseReason, Sandbox, Session, State, Status};
use ash_engine::testing::{HostFaults, StoreFaults};
use ash_engine::{EngineError, RequireState};
use ash_protocol::ExecRequest;
use ash_store::Store as _;

use crate::support::{TestEngine, UNHURRIED, command, create, key, prompt, tenant};

/// Whatever is asked of the host takes longer than anybody waits.
const HANGING: HostFaults =
    HostFaults { hangs: 1_000, diligence: 0, slowness: Duration::ZERO, ..UNHURRIED };

/// Long enough that two things do not happen at the same time.
const A_WHILE: Duration = Duration::from_secs(5);

fn paused_for(session: &Session) -> Option<PauseReason> {
    match session.state() {
        State::Paused { reason, .. } => Some(*reason),
        _ => None,
    }
}

#[track_caller]
fn no_place<T: std::fmt::Debug>(answer: Result<T, EngineError>) {
    let Err(EngineError::Failed(failure)) = answer else { panic!("{answer:?}") };
    assert_eq!(failure.code, FailureCode::SandboxCapacity);
}

#[tokio::test(start_paused = true)]
async fn the_session_that_was_idle_the_longest_makes_room_and_the_next_prompt_brings_it_back() {
    let world = TestEngine::with_places(2).await;
    let first = world.session().await;
    tokio::time::sleep(A_WHILE).await;
    let second = world.session().await;
    tokio::time::sleep(A_WHILE).await;
    let third = world.session().await;
    let evicted = world.stored(first).await;
    assert_eq!(paused_for(&evicted), Some(PauseReason::Evicted));
    assert_eq!(evicted.sandbox(), Sandbox::None);
    assert_eq!(world.stored(second).await.status(), Status::Active);
    assert_eq!(world.stored(third).await.status(), Status::Active);

    tokio::time::sleep(A_WHILE).await;
    let accepted = world.prompt(first).await.unwrap();
    world.until(first, "run_ended").await;
    assert_eq!(world.status_of(first, accepted).await, RunStatus::Completed);
    assert_eq!(paused_for(&world.stored(second).await), Some(PauseReason::Evicted));
    assert_eq!(world.host.alive().len(), 2);
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_frozen_sandbox_goes_before_an_idle_one_and_its_session_stays_as_it_was() {
    let world = TestEngine::with_places(2).await;
    let idle = world.session().await;
    tokio::time::sleep(A_WHILE).await;
    let frozen = world.session().await;
    world.engine.pause(&tenant(), frozen, IfRunning::Freeze).await.unwrap();
    world.until_state(frozen, |s| matches!(s.sandbox(), Sandbox::Frozen { .. })).await;

    world.session().await;
    let given_up = world.stored(frozen).await;
    assert_eq!(paused_for(&given_up), Some(PauseReason::Requested));
    assert_eq!(given_up.sandbox(), Sandbox::None);
    assert_eq!(world.stored(idle).await.status(), Status::Active);
}

#[tokio::test(start_paused = true)]
async fn a_burst_waits_for_those_that_are_only_starting() {
    let world = TestEngine::with_places(2).await;
    let slow = HostFaults { slowness: Duration::from_millis(200), ..HostFaults::default() };
    world.behave(StoreFaults::default(), slow);
    let one = || world.engine.create_session(create(), None);
    let (first, second, third, fourth) = tokio::join!(one(), one(), one(), one());
    for created in [first, second, third, fourth] {
        let session = created.expect("it got a place in time").record.id;
        world.engine.settled(&tenant(), session).await.unwrap();
    }
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
    assert!(world.host.alive().len() <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_becomes_free_is_somebody_s_who_waits_for_one() {
    let world = TestEngine::with_places(1).await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let busy = world.session().await;
    world.prompt(busy).await.unwrap();
    world.until(busy, "phase").await;
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.host.kill(world.host.alive()[0], Death::Exited(1));
    };
    let (created, ()) = tokio::join!(world.engine.create_session(create(), None), stop);
    let session = created.unwrap().record.id;
    world.engine.settled(&tenant(), session).await.unwrap();
    assert_eq!(world.stored(session).await.status(), Status::Active);
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_every_sandbox_at_work_is_turned_down_and_nothing_has_changed() {
    let world = TestEngine::with_places(2).await;
    let [stopped, paused] = [world.session().await, world.session().await];
    world.engine.stop(&tenant(), stopped).await.unwrap();
    world.engine.evict(paused, PauseReason::Evicted).await.unwrap();
    for session in [stopped, paused] {
        world.until_state(session, |s| s.sandbox() == Sandbox::None).await;
    }
    world.behave(StoreFaults::default(), UNHURRIED);
    for _ in 0..2 {
        let busy = world.session().await;
        world.prompt(busy).await.unwrap();
        world.until(busy, "phase").await;
    }

    let before = [world.stored(stopped).await, world.stored(paused).await];
    let sessions = world.store.census().await.unwrap();
    no_place(world.engine.create_session(create(), Some(key("new", 1))).await);
    no_place(world.engine.resume(&tenant(), stopped, RequireState::No).await);
    no_place(world.engine.prompt(&tenant(), paused, prompt(), Some(key("woken", 1))).await);
    assert_eq!([world.stored(stopped).await, world.stored(paused).await], before);
    assert_eq!(world.store.census().await.unwrap(), sessions);
    assert_eq!(world.store.runs(paused, 9).await.unwrap(), []);

    // The same requests are carried out once there is room.
    world.host.kill(world.host.alive()[0], Death::Exited(1));
    let created = loop {
        match world.engine.create_session(create(), Some(key("new", 1))).await {
            Ok(created) => break created.record.id,
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    world.engine.settled(&tenant(), created).await.unwrap();
    world.engine.prompt(&tenant(), paused, prompt(), Some(key("woken", 1))).await.unwrap();
    world.until_state(paused, |s| s.status() == Status::Active).await;
    assert_eq!(paused_for(&world.stored(created).await), Some(PauseReason::Evicted));
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_with_fewer_places_as_many_go_as_have_to_before_another_one_starts() {
    let mut world = TestEngine::with_places(5).await;
    for _ in 0..5 {
        world.session().await;
    }
    world.restart_with_places(2).await;
    let created = world.engine.create_session(create(), None).await;
    let session = created.expect("room was made").record.id;
    world.engine.settled(&tenant(), session).await.unwrap();
    assert_eq!(world.stored(session).await.status(), Status::Active);
    assert_eq!(world.host.alive().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_starts_never_take_one_place() {
    let world = TestEngine::with_places(3).await;
    let slow = HostFaults { slowness: Duration::from_secs(1), ..HostFaults::default() };
    world.behave(StoreFaults::default(), slow);
    for _ in 0..3 {
        world.session().await;
    }
    let starts = (0..3).map(|_| {
        let engine = world.engine.clone();
        async move {
            let created = engine.create_session(create(), None).await?;
            engine.settled(&tenant(), created.record.id).await
        }
    });
    let mut starts: tokio::task::JoinSet<_> = starts.collect();
    while let Some(started) = starts.join_next().await {
        assert_eq!(started.unwrap().unwrap().session.status(), Status::Active);
    }
    assert_eq!(world.host.alive().len(), 3);
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_about_to_be_free_is_waited_for_and_nobody_is_evicted() {
    let world = TestEngine::with_places(2).await;
    let slow = HostFaults { slowness: Duration::from_secs(1), ..HostFaults::default() };
    world.behave(StoreFaults::default(), slow);
    let [idle, over] = [world.session().await, world.session().await];
    world.engine.end(&tenant(), over).await.unwrap();
    world.session().await;
    assert_eq!(world.stored(idle).await.status(), Status::Active);
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_does_not_go_does_not_stand_in_the_way_of_others() {
    let world = TestEngine::with_places(2).await;
    let [over, idle] = [world.session().await, world.session().await];
    world.behave(StoreFaults::default(), HANGING);
    world.engine.end(&tenant(), over).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.behave(StoreFaults::default(), HostFaults::default());
    // Its place is waited for until it is late.
    let third = world.session().await;
    assert_eq!(world.stored(third).await.status(), Status::Active);
    assert_eq!(paused_for(&world.stored(idle).await), Some(PauseReason::Evicted));
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn places_are_counted_anew_after_a_restart() {
    let mut world = TestEngine::with_places(3).await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let [frozen, idle, busy] =
        [world.session().await, world.session().await, world.session().await];
    world.engine.pause(&tenant(), frozen, IfRunning::Freeze).await.unwrap();
    world.until_state(frozen, |s| matches!(s.sandbox(), Sandbox::Frozen { .. })).await;
    world.prompt(busy).await.unwrap();
    world.until(busy, "phase").await;
    world.crash_and_restart().await;

    let found = Occupancy { frozen: 1, idle: 1, running: 1, ..Occupancy::default() };
    assert_eq!(world.engine.pool().await.unwrap(), found);
    world.session().await;
    assert_eq!(world.stored(frozen).await.sandbox(), Sandbox::None);
    assert_eq!(world.stored(idle).await.status(), Status::Active);
    world.session().await;
    assert_eq!(paused_for(&world.stored(idle).await), Some(PauseReason::Evicted));
    assert_eq!(world.stored(busy).await.status(), Status::Active);
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_session_in_which_a_command_runs_does_not_make_room() {
    let world = TestEngine::with_places(2).await;
    let used = world.session().await;
    world.behave(StoreFaults::default(), HANGING);
    let engine = world.engine.clone();
    let mut commands = tokio::task::JoinSet::new();
    let hour = ExecRequest { timeout_ms: 3_600_000, ..command("true") };
    commands.spawn(async move { engine.exec(&tenant(), used, hour).await });
    tokio::time::sleep(A_WHILE).await;
    world.behave(StoreFaults::default(), HostFaults::default());
    let idle = world.session().await;
    tokio::time::sleep(A_WHILE).await;
    world.session().await;
    assert_eq!(world.stored(used).await.status(), Status::Active);
    assert_eq!(paused_for(&world.stored(idle).await), Some(PauseReason::Evicted));
}

#[tokio::test(start_paused = true)]
async fn a_create_that_nobody_waits_for_keeps_no_place() {
    let world = TestEngine::with_places(1).await;
    let slow = StoreFaults { slowness: Duration::from_secs(2), ..StoreFaults::default() };
    for patience in (0..40).map(|n| Duration::from_millis(n * 200)) {
        world.behave(slow, HostFaults::default());
        let given_up = world.engine.create_session(create(), None);
        let _elapsed = tokio::time::timeout(patience, given_up).await;
        world.behave(StoreFaults::default(), HostFaults::default());
        tokio::time::sleep(Duration::from_secs(10)).await;
        // Whether or not the session came to be, there is a place for another one.
        world.session().await;
        assert_eq!(world.host.alive().len(), 1);
    }
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}
