//! What whoever brings a session back is told, and what can be asked of it beside its conversation.

use std::time::Duration;

use ash_core::entry::ResumePath;
use ash_core::failure::FailureCode;
use ash_core::number::{LogEpoch, Seq};
use ash_core::refusal::Refusal;
use ash_core::resume::{Native, Source, Workspace};
use ash_core::run::RunStatus;
use ash_core::session::{IfRunning, Sandbox, Status};
use ash_engine::testing::{HostFaults, StoreFaults};
use ash_engine::{EngineError, FollowFrom, Followed, GapReason, RequireState};
use ash_protocol::ExecEnd;

use crate::support::{TestEngine, UNHURRIED, command, create, tenant};

#[tokio::test(start_paused = true)]
async fn a_resume_is_answered_when_the_session_is_back_with_what_it_came_back_to() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    world.prompt(session).await.unwrap();
    world.until(session, "run_ended").await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.until_state(session, |s| s.sandbox() == Sandbox::None).await;
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(back.session.session.status(), Status::Active);
    let receipt = back.receipt.unwrap();
    assert_eq!((receipt.path, receipt.source), (ResumePath::Cold, Some(Source::Local)));
    assert_eq!((receipt.workspace, receipt.files), (Workspace::Kept, 1));
    let told = receipt.conversation;
    assert_eq!((told.native, told.turns, told.turns_in_log), (Native::Intact, 1, 1));

    let again = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(again.receipt, None, "it had not been away");
}

#[tokio::test(start_paused = true)]
async fn two_resumes_at_once_get_the_same_receipt_warm_and_cold() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let tenant = tenant();
    let slow = HostFaults { slowness: Duration::from_secs(1), ..HostFaults::default() };
    world.behave(StoreFaults::default(), slow);
    for path in [ResumePath::Warm, ResumePath::Cold] {
        match path {
            ResumePath::Warm => {
                world.engine.pause(&tenant, session, IfRunning::Reject).await.unwrap();
            }
            ResumePath::Cold => drop(world.engine.stop(&tenant, session).await.unwrap()),
        }
        world.until_state(session, |s| s.is_at_rest()).await;
        let (one, other) = tokio::join!(
            world.engine.resume(&tenant, session, RequireState::No),
            world.engine.resume(&tenant, session, RequireState::No),
        );
        let (one, other) = (one.unwrap().receipt.unwrap(), other.unwrap().receipt.unwrap());
        assert_eq!(one, other);
        assert_eq!(one.path, path);
        assert!(one.duration_micros > 0, "{one:?}");
        assert_eq!(world.stored(session).await.sandbox(), Sandbox::Live);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_files_are_gone_says_so_or_stays_where_it_is() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    world.prompt(session).await.unwrap();
    world.until(session, "run_ended").await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.until_state(session, |s| s.sandbox() == Sandbox::None).await;
    world.host.lose_workspace(session);
    let before = world.stored(session).await;
    let refused = world.engine.resume(&tenant(), session, RequireState::Yes).await;
    assert!(matches!(refused, Err(EngineError::NoSavedState)), "{refused:?}");
    assert_eq!(world.stored(session).await, before);

    let back = world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    let receipt = back.receipt.unwrap();
    assert_eq!((receipt.workspace, receipt.conversation.native), (Workspace::Fresh, Native::Lost));
    assert!(world.until(session, "context_lost").await.ends_with(&["context_lost"]));
}

#[tokio::test(start_paused = true)]
async fn a_resume_that_cannot_start_tells_why() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    world.engine.stop(&tenant(), session).await.unwrap();
    let unlucky = HostFaults { start_fails: 1_000, ..HostFaults::default() };
    world.behave(StoreFaults::default(), unlucky);
    let answer = world.engine.resume(&tenant(), session, RequireState::No).await;
    let Err(EngineError::Failed(failure)) = &answer else { panic!("{answer:?}") };
    assert_eq!(failure.code, FailureCode::SandboxStartFailed);
    let error = answer.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.is_transient()), ("no luck", false));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_session_that_is_stopped_or_ended_is_told() {
    let world = TestEngine::start().await;
    let tenant = tenant();
    for end in [false, true] {
        let session = world.session().await;
        world.engine.stop(&tenant, session).await.unwrap();
        world.until_state(session, |s| s.is_at_rest()).await;
        world.behave(StoreFaults::default(), HostFaults { hangs: 1_000, ..HostFaults::default() });
        let (answer, interfered) =
            tokio::join!(world.engine.resume(&tenant, session, RequireState::No), async {
                world.until(session, "session_waking").await;
                if end {
                    world.engine.end(&tenant, session).await
                } else {
                    world.engine.stop(&tenant, session).await
                }
            });
        interfered.unwrap();
        let Err(EngineError::Refused(refusal)) = answer else { panic!("{answer:?}") };
        let expected = if end { Refusal::Ended } else { Refusal::NotActive(Status::Stopped) };
        assert_eq!(refusal, expected);
        world.behave(StoreFaults::default(), HostFaults::default());
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_sent_away_when_the_engine_closes() {
    let world = TestEngine::start().await;
    let tenant = tenant();
    let session = world.session().await;
    world.engine.stop(&tenant, session).await.unwrap();
    world.until_state(session, |s| s.is_at_rest()).await;
    world.behave(StoreFaults::default(), HostFaults { hangs: 1_000, ..HostFaults::default() });
    let (answer, ()) =
        tokio::join!(world.engine.resume(&tenant, session, RequireState::No), async {
            world.until(session, "session_waking").await;
            world.engine.drain(Duration::from_secs(1)).await;
        });
    assert!(matches!(answer, Err(EngineError::Draining)), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_is_answered_with_the_run_that_has_ended() {
    let world = TestEngine::start().await;
    world.behave(StoreFaults::default(), UNHURRIED);
    let session = world.session().await;
    let first = world.prompt(session).await.unwrap();
    let second = world.prompt(session).await.unwrap();
    world.until(session, "phase").await;
    let withdrawn = world.engine.interrupt(&tenant(), session, Some(second.run)).await.unwrap();
    assert_eq!((withdrawn.id, withdrawn.status), (second.run, RunStatus::Cancelled));
    let cut = world.engine.interrupt(&tenant(), session, None).await.unwrap();
    assert_eq!((cut.id, cut.status), (first.run, RunStatus::Cancelled));
    let nothing = world.engine.interrupt(&tenant(), session, None).await;
    assert!(matches!(nothing, Err(EngineError::Refused(Refusal::NoSuchRun))), "{nothing:?}");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_of_a_prompt_that_waits_for_its_session_names_its_run() {
    let world = TestEngine::start().await;
    world.behave(StoreFaults::default(), HostFaults { hangs: 1_000, ..HostFaults::default() });
    let session = world.engine.create_session(create(), None).await.unwrap().record.id;
    let waiting = world.prompt(session).await.unwrap();
    let withdrawn = world.engine.interrupt(&tenant(), session, None).await.unwrap();
    assert_eq!((withdrawn.id, withdrawn.status), (waiting.run, RunStatus::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn a_command_needs_a_live_sandbox_and_keeps_it_awake() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let before = world.stored(session).await.last_active();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let result = world.engine.exec(&tenant(), session, command("echo hi")).await.unwrap();
    assert_eq!((result.end, result.stdout.as_str()), (ExecEnd::Exited(0), "echo hi"));
    assert!(world.stored(session).await.last_active() > before);
    let logs = world.engine.logs(&tenant(), session).await.unwrap();
    assert_eq!((logs.first, logs.lines[0].text.as_str()), (0, "Sandbox 1 is up"));

    world.engine.stop(&tenant(), session).await.unwrap();
    let refused = world.engine.exec(&tenant(), session, command("true")).await;
    let expected = Refusal::NotActive(Status::Stopped);
    assert!(matches!(refused, Err(EngineError::Refused(of)) if of == expected), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_log_is_followed_from_its_start_a_number_or_its_end() {
    let world = TestEngine::start().await;
    let session = world.session().await;
    let first = |from| {
        let engine = world.engine.clone();
        async move {
            let mut follower = engine.follow(&tenant(), session, from).await.unwrap();
            follower.next().await.unwrap()
        }
    };
    let seq_of = |followed: Followed| match followed {
        Followed::Entries(entries) => entries[0].seq,
        other => panic!("{other:?}"),
    };
    assert_eq!(seq_of(first(FollowFrom::Start).await), Seq::new(1));
    assert_eq!(seq_of(first(FollowFrom::After(Seq::new(1))).await), Seq::new(2));
    let Followed::Gap(gap) = first(FollowFrom::After(Seq::new(9))).await else { panic!() };
    assert_eq!((gap.reason, gap.to.seq), (GapReason::BeyondEnd, Seq::ZERO));
    assert_eq!((gap.from.epoch, gap.from.seq), (LogEpoch::new(1), Seq::new(9)));

    let end = world.stored(session).await.last_seq();
    let (news, accepted) =
        tokio::join!(first(FollowFrom::End), async { world.prompt(session).await.unwrap() });
    assert_eq!((seq_of(news), accepted.seq), (end.next(), end.next()));
}
