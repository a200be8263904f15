//! How long the files of sessions are kept, and sessions themselves; and what goes first when room gets short.

use std::time::Duration;

use ash_core::id::SessionId;
use ash_core::policy::Policy;
use ash_core::session::{FilesPlace, IfRunning, PauseReason, Sandbox, State};
use ash_engine::testing::{HostFaults, StoreFaults};
use ash_engine::{EngineError, RequireState};
use ash_store::Store as _;

use crate::support::{TestEngine, UNHURRIED, create, tenant};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn short_of_room(least: u64) -> TestEngine {
    let policy = Policy { min_free_bytes: least, cold_ttl: DAY, ..Policy::default() };
    TestEngine::with_policy(policy).await
}

/// A session that rests without a sandbox, captured.
async fn resting(world: &TestEngine) -> SessionId {
    let session = world.session().await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.until_state(session, |it| it.stored_by().is_some() && it.is_at_rest()).await;
    session
}

#[tokio::test(start_paused = true)]
async fn files_that_nobody_uses_go_in_time_and_come_back_with_the_session() {
    let cold_ttl = Duration::from_secs(1_000);
    let world = TestEngine::with_policy(Policy { cold_ttl, ..Policy::default() }).await;
    let session = resting(&world).await;
    tokio::time::sleep(cold_ttl / 2).await;
    assert_eq!(world.host.put_away_sessions(), []);
    world.until_state(session, |it| it.keeping().files() == FilesPlace::Away).await;
    assert_eq!(world.host.put_away_sessions(), [session]);
    assert_eq!(world.engine.driven_sessions(), 0, "it is a row, and no task");
    world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(world.host.put_away_sessions(), []);
}

#[tokio::test(start_paused = true)]
async fn files_that_may_go_in_seconds_go_in_seconds() {
    let cold_ttl = Duration::from_secs(5);
    let world = TestEngine::with_policy(Policy { cold_ttl, ..Policy::default() }).await;
    for _ in 0..3 {
        let session = resting(&world).await;
        tokio::time::sleep(cold_ttl * 2).await;
        let files = world.stored(session).await.keeping().files();
        assert_eq!(files, FilesPlace::Away);
    }
}

#[tokio::test(start_paused = true)]
async fn two_deadlines_of_a_session_that_come_right_after_each_other_are_both_seen_to() {
    let (evict_after, cold_ttl) = (Duration::from_secs(1), Duration::from_millis(500));
    let policy = Policy { evict_after, cold_ttl, ..Policy::default() };
    let world = TestEngine::with_policy(policy).await;
    for step in 0..5 {
        // At different moments between two looks for deadlines.
        tokio::time::sleep(Duration::from_millis(step * 200)).await;
        let session = world.session().await;
        world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let files = world.stored(session).await.keeping().files();
        assert_eq!(files, FilesPlace::Away, "step {step}");
    }
}

#[tokio::test(start_paused = true)]
async fn files_that_may_go_when_a_session_comes_to_rest_go_then() {
    let policy = Policy { cold_ttl: Duration::ZERO, ..Policy::default() };
    let world = TestEngine::with_policy(policy).await;
    let session = world.session().await;
    world.engine.stop(&tenant(), session).await.unwrap();
    // The reconciler would have found it after a minute.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.stored(session).await.keeping().files(), FilesPlace::Away);
}

#[tokio::test(start_paused = true)]
async fn files_stay_while_somebody_works_with_them() {
    let cold_ttl = Duration::from_secs(100);
    let world = TestEngine::with_policy(Policy { cold_ttl, ..Policy::default() }).await;
    let session = resting(&world).await;
    let directory = tempfile::tempdir().unwrap();
    world.host.place_workspace(session, directory.path().to_owned());
    let reads = world.engine.workspace(&tenant(), session).await.unwrap();
    let stays = |files| matches!(files, FilesPlace::Stay { .. });
    world.until_state(session, |it| stays(it.keeping().files())).await;
    assert_eq!(world.host.put_away_sessions(), []);
    drop(reads);
    world.until_state(session, |it| it.keeping().files() == FilesPlace::Away).await;
}

#[tokio::test(start_paused = true)]
async fn a_resume_and_a_removal_at_once_end_with_the_files_in_place() {
    let mut world = short_of_room(u64::MAX).await;
    for round in 0..20 {
        world.host.set_free(u64::MAX);
        let session = resting(&world).await;
        world.host.set_free(0);
        world.behave(StoreFaults::default(), UNHURRIED);
        let tenant = tenant();
        let back = async {
            world.engine.resume(&tenant, session, RequireState::Yes).await.unwrap();
            // At once: whoever makes room goes on, and it may be idle for long by then.
            assert!(!world.host.put_away_sessions().contains(&session), "round {round}");
        };
        let (made, ()) = tokio::join!(world.engine.make_space(), back);
        made.unwrap();
        world.behave(StoreFaults::default(), HostFaults::default());
        assert_eq!(world.host.broken_promises(), Vec::<String>::new());
        world.engine.end(&tenant, session).await.unwrap();
        if round % 5 == 0 {
            world.crash_and_restart().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_over_is_forgotten_in_time_also_if_it_goes_wrong_at_first() {
    let retention = Duration::from_secs(3_000);
    let world = TestEngine::with_policy(Policy { retention, ..Policy::default() }).await;
    let (over, kept) = (world.session().await, resting(&world).await);
    world.engine.end(&tenant(), over).await.unwrap();
    world.until_state(over, |it| it.is_at_rest() && it.sandbox() == Sandbox::None).await;
    tokio::time::sleep(retention / 2).await;
    assert_eq!(world.host.purged_sessions(), []);
    let broken = HostFaults { call_fails: 1_000, ..HostFaults::default() };
    world.behave(StoreFaults::default(), broken);
    tokio::time::sleep(retention).await;
    world.stored(over).await;
    world.behave(StoreFaults::default(), HostFaults::default());
    tokio::time::sleep(retention).await;
    assert_eq!(world.host.purged_sessions(), [over]);
    assert!(world.store.session(&tenant(), over).await.is_err());
    world.stored(kept).await;
}

#[tokio::test(start_paused = true)]
async fn another_policy_holds_for_sessions_that_were_at_rest_before() {
    let mut world = TestEngine::with_policy(Policy { cold_ttl: DAY, ..Policy::default() }).await;
    let (early, late) = (resting(&world).await, resting(&world).await);
    world.restart_with(|policy| policy.cold_ttl = Duration::from_secs(60)).await;
    for session in [early, late] {
        world.until_state(session, |it| it.keeping().files() == FilesPlace::Away).await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_room_gets_short_files_go_and_no_more_than_are_needed() {
    let world = short_of_room(2).await;
    world.host.set_free(100);
    let all = [resting(&world).await, resting(&world).await, resting(&world).await];
    world.engine.make_space().await.unwrap();
    assert_eq!(world.host.put_away_sessions(), [], "there is room");
    world.host.set_free(0);
    world.engine.make_space().await.unwrap();
    // Each of them frees one.
    assert_eq!(world.host.put_away_sessions(), all[..2], "those unused for longest go first");
    world.session().await;
}

#[tokio::test(start_paused = true)]
async fn where_nothing_else_can_go_frozen_sandboxes_do_and_then_no_session_begins() {
    let world = short_of_room(2).await;
    world.host.set_free(100);
    let (paused, works) = (world.session().await, world.session().await);
    world.engine.pause(&tenant(), paused, IfRunning::Freeze).await.unwrap();
    world.until_state(paused, |it| it.is_at_rest() && it.persistence().is_settled()).await;
    world.host.set_free(0);
    world.engine.make_space().await.unwrap();
    let stored = world.stored(paused).await;
    assert_eq!((stored.sandbox(), stored.keeping().files()), (Sandbox::None, FilesPlace::Away));
    let requested = |reason: &PauseReason| *reason == PauseReason::Requested;
    assert!(matches!(stored.state(), State::Paused { reason, .. } if requested(reason)));
    assert_eq!(world.stored(works).await.sandbox(), Sandbox::Live, "who is used stays");
    // One was freed, and two are needed.
    let refused = world.engine.create_session(create(), None).await;
    assert!(matches!(refused, Err(EngineError::DiskPressure)), "{refused:?}");
    assert!(refused.unwrap_err().is_transient());
    // Sessions that there are go on and come back.
    world.prompt(works).await.unwrap();
    world.until(works, "run_ended").await;
    world.host.set_free(2);
    world.session().await;
}
