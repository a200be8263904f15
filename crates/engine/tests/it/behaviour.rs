//! The engine by example, on a host and a store that behave until told otherwise.

use std::time::Duration;

use ash_core::entry::Entry;
use ash_core::failure::{Death, FailureCode};
use ash_core::id::{SessionId, TenantId};
use ash_core::number::{Cursor, Incarnation, LogEpoch, Seq};
use ash_core::refusal::Refusal;
use ash_core::run::RunStatus;
use ash_core::session::{IfRunning, PauseReason, Sandbox, State, Status};
use ash_core::time::Clock as _;
use ash_engine::host::SandboxRef;
use ash_engine::testing::{Gate, StoreFaults};
use ash_engine::{EngineError, FollowFrom, Followed, GapReason, RequireState};
use ash_store::Store as _;

use crate::support::{TestEngine, UNHURRIED, command, create, key, prompt, tenant};

#[tokio::test(start_paused = true)]
async fn a_prompt_is_worked_on_from_the_request_to_the_log() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    let kinds = world.until(session, "run_ended").await;
    assert_eq!(kinds[..4], ["session_created", "session_active", "prompt", "run_started"]);
    assert_eq!(accepted.seq, Seq::new(3));
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_after_the_engine_is_killed() {
    let mut world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.crash_and_restart().await;
    world.until(session, "run_ended").await;
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Completed);
    let log = world.store.events_after(session, Seq::ZERO, 1_000).await.unwrap();
    let text: String = log
        .iter()
        .filter_map(|entry| match &entry.entry {
            Entry::TextDelta { delta, .. } => Some(delta.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text, world.host.said(accepted.run));
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_reboot_interrupts_the_run_and_the_next_prompt_brings_the_session_back() {
    let mut world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let cut = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.engine.abort().await;
    world.host.reboot();
    world.engine = world.another().await;
    let paused = world.until_state(session, |s| s.status() == Status::Paused).await;
    let State::Paused { reason: PauseReason::ServerRestart, .. } = paused.state() else {
        panic!("{paused:?}")
    };
    assert_eq!(world.status_of(session, cut).await, RunStatus::Interrupted);
    let next = world.prompt(session).await.unwrap();
    world.until_state(session, |s| s.current_run().is_none() && s.status() == Status::Active).await;
    assert_eq!(world.status_of(session, next).await, RunStatus::Completed);
    assert_eq!(world.stored(session).await.incarnation().get(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_same_key_is_the_same_prompt_and_another_body_is_a_mistake() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let send = |body| {
        let engine = world.engine.clone();
        async move { engine.prompt(&tenant(), session, prompt(), Some(key("k", body))).await }
    };
    let first = send(1).await.unwrap();
    assert_eq!(send(1).await.unwrap(), first);
    assert!(matches!(send(2).await, Err(EngineError::KeyReused)));
    assert_eq!(world.store.runs(session, 10).await.unwrap().len(), 1);

    let one = world.engine.create_session(create(), Some(key("c", 1))).await.unwrap();
    let two = world.engine.create_session(create(), Some(key("c", 1))).await.unwrap();
    assert_eq!(one.record.id, two.record.id);
}

#[tokio::test(start_paused = true)]
async fn another_tenant_s_session_does_not_exist() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let other: TenantId = "other".parse().unwrap();
    let engine = &world.engine;
    let before = world.stored(session).await;
    assert!(matches!(
        engine.prompt(&other, session, prompt(), None).await,
        Err(EngineError::NotFound("session"))
    ));
    for answer in [
        engine.pause(&other, session, IfRunning::Freeze).await,
        engine
            .resume(&other, session, RequireState::No)
            .await
            .map(|back| back.session.session.clone()),
        engine.stop(&other, session).await,
        engine.end(&other, session).await,
        engine.configure(&other, session, |_| panic!("it is not theirs")).await,
        engine.settled(&other, session).await.map(|stored| stored.session.clone()),
    ] {
        assert!(matches!(answer, Err(EngineError::NotFound("session"))), "{answer:?}");
    }
    assert!(matches!(
        engine.interrupt(&other, session, None).await,
        Err(EngineError::NotFound("session"))
    ));
    assert!(matches!(engine.logs(&other, session).await, Err(EngineError::NotFound("session"))));
    assert!(matches!(
        engine.exec(&other, session, command("true")).await,
        Err(EngineError::NotFound("session"))
    ));
    assert!(matches!(
        engine.follow(&other, session, FollowFrom::Start).await.map(|_| ()),
        Err(EngineError::NotFound("session"))
    ));
    assert_eq!(world.stored(session).await, before);
}

#[tokio::test(start_paused = true)]
async fn paused_sessions_are_rows_not_tasks() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    assert_eq!(world.engine.driven_sessions(), 1);
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    world.until_state(session, |s| matches!(s.sandbox(), Sandbox::Frozen { .. })).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.engine.driven_sessions(), 0);
    // The reconciler finds that its time is over, and wakes it to be evicted.
    world.until_state(session, |s| s.sandbox() == Sandbox::None).await;
    assert_eq!(world.host.alive(), vec![]);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_sandbox_that_died_unseen_is_noticed() {
    let world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    world.until_state(session, |s| matches!(s.sandbox(), Sandbox::Frozen { .. })).await;
    world.host.reboot();
    world.engine.reconcile().await.unwrap();
    world.until_state(session, |s| s.sandbox() == Sandbox::None).await;
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Interrupted);
    assert_eq!(world.stored(session).await.status(), Status::Paused);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_no_session_expects_is_stopped() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let mine = world.host.alive();
    let ended = world.session().await;
    world.engine.end(&tenant(), ended).await.unwrap();
    world.until_state(ended, |s| s.sandbox() == Sandbox::None).await;
    let unknown = SessionId::from_parts(world.clock.now(), [9; 10]);
    for (session, number) in [(unknown, 1), (ended, 2)] {
        world.host.plant(SandboxRef { session, incarnation: Incarnation::new(number) });
    }
    world.engine.reconcile().await.unwrap();
    assert_eq!(world.host.alive(), mine);
    assert_eq!(world.stored(session).await.status(), Status::Active);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_dies_breaks_the_session_with_the_reason() {
    let world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.host.kill(world.host.alive()[0], Death::OutOfMemory);
    let kinds = world.until(session, "session_failed").await;
    assert_eq!(kinds[kinds.len() - 2..], ["run_ended", "session_failed"]);
    let State::Error { failure, .. } = world.stored(session).await.state().clone() else {
        panic!("not broken")
    };
    assert_eq!(failure.code, FailureCode::SandboxOutOfMemory);
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Interrupted);
    assert!(matches!(
        world.prompt(session).await,
        Err(EngineError::Refused(Refusal::NotActive(Status::Error)))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_cursor_the_log_does_not_hold_is_a_gap_not_a_guess() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let follow = |epoch, seq| {
        let cursor = Cursor { epoch: LogEpoch::new(epoch), seq: Seq::new(seq) };
        let engine = world.engine.clone();
        async move {
            let mut follower =
                engine.follow(&tenant(), session, FollowFrom::Cursor(cursor)).await.unwrap();
            (follower.next().await.unwrap(), follower.next().await.unwrap())
        }
    };
    for (cursor, reason) in [((9, 1), GapReason::OtherEpoch), ((1, 99), GapReason::BeyondEnd)] {
        let (first, second) = follow(cursor.0, cursor.1).await;
        let Followed::Gap(gap) = first else { panic!("{first:?}") };
        assert_eq!((gap.reason, gap.to.seq), (reason, Seq::ZERO));
        let Followed::Entries(entries) = second else { panic!("{second:?}") };
        assert_eq!(entries[0].seq, Seq::new(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_up_what_is_idle_and_leaves_running_turns_to_their_bridges() {
    let mut world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let (idle, busy) = (world.session().await, world.session().await);
    let accepted = world.prompt(busy).await.unwrap();
    world.until(busy, "phase").await;
    let mut follower = world.engine.follow(&tenant(), idle, FollowFrom::Start).await.unwrap();

    world.engine.drain(Duration::from_secs(4)).await;
    assert_eq!(world.stored(idle).await.status(), Status::Paused);
    assert_eq!(world.stored(idle).await.sandbox(), Sandbox::None);
    assert_eq!(world.stored(busy).await.status(), Status::Active);
    assert_eq!(world.host.alive().len(), 1);
    while let Followed::Entries(_) = follower.next().await.unwrap() {}
    assert_eq!(follower.next().await.unwrap(), Followed::Closing);
    assert!(matches!(world.prompt(idle).await, Err(EngineError::Draining)));

    world.engine = world.another().await;
    world.until(busy, "run_ended").await;
    assert_eq!(world.status_of(busy, accepted).await, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_engine_whose_sessions_were_taken_over_lets_go() {
    let mut world = TestEngine::start().await;
    let session = world.session().await;
    let old = world.engine.clone();
    world.engine = world.another().await;
    // The new one claims what is active; the old one does not know yet.
    world.prompt(session).await.unwrap();
    world.until(session, "run_ended").await;
    let before = world.stored(session).await;
    let answer = old.end(&tenant(), session).await;
    assert!(answer.is_err_and(|error| error.is_transient()));
    old.closing().await;
    assert!(matches!(
        old.resume(&tenant(), session, RequireState::No).await,
        Err(EngineError::Draining)
    ));
    assert_eq!(world.stored(session).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_defect_in_the_driver_breaks_its_session_and_no_other() {
    let world = TestEngine::start().await;
    let (unlucky, lucky) = (world.session().await, world.session().await);
    world.line.panic_once();
    let want = world.engine.evict(unlucky, PauseReason::Evicted).await;
    assert!(want.is_err_and(|error| error.is_transient()));
    let broken = world.until_state(unlucky, |s| s.status() == Status::Error).await;
    let State::Error { failure, .. } = broken.state() else { panic!("{broken:?}") };
    assert_eq!(failure.code, FailureCode::Internal);
    world.until_state(unlucky, |s| s.sandbox() == Sandbox::None).await;
    assert_eq!(world.stored(lucky).await.status(), Status::Active);
    world.engine.resume(&tenant(), unlucky, RequireState::No).await.unwrap();
    world.until_state(unlucky, |s| s.status() == Status::Active).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_delays_and_loses_nothing() {
    let world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let accepted = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    world.behave(StoreFaults { fails: 1_000, ..StoreFaults::default() }, UNHURRIED);
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.behave(StoreFaults::default(), UNHURRIED);
    world.until(session, "run_ended").await;
    assert_eq!(world.status_of(session, accepted).await, RunStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_at_once_are_turned_away_at_once() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let slow = StoreFaults { slowness: Duration::from_secs(60), ..StoreFaults::default() };
    let mut asking = tokio::task::JoinSet::new();
    world.line.behave(Gate::default(), slow);
    for _ in 0..200 {
        let engine = world.engine.clone();
        asking.spawn(async move { engine.evict(session, PauseReason::Evicted).await });
    }
    let mut overloaded = 0;
    while let Some(answer) = asking.join_next().await {
        overloaded += usize::from(matches!(answer.unwrap(), Err(EngineError::Overloaded)));
    }
    assert!((100..200).contains(&overloaded), "{overloaded} of 200");
}

/// With real threads, because on one thread nothing comes between the last look into the mailbox
/// and its closing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_meets_a_retiring_driver_is_answered_by_the_next() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    world.engine.stop(&tenant(), session).await.unwrap();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let engine = world.engine.clone();
        asking.spawn(async move {
            for _ in 0..2_000 {
                engine.evict(session, PauseReason::Evicted).await.unwrap();
            }
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_agent_s_sessions_are_hidden() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let going_on = world.store.delete_agent(&tenant(), &"coder".parse().unwrap()).await.unwrap();
    assert_eq!(going_on, [session]);
    assert!(matches!(world.prompt(session).await, Err(EngineError::NotFound("session"))));
    assert!(matches!(
        world.engine.create_session(create(), None).await,
        Err(EngineError::NotFound("agent"))
    ));
}
