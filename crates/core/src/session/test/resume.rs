//! What a session says when it comes back.

use std::time::Duration;

use super::world::{Ask, World};
use super::{PROMPT, reported};
use crate::entry::{Entry, ResumePath};
use crate::failure::{Death, Failure, FailureCode};
use crate::json::Json;
use crate::number::Seq;
use crate::refusal::Refusal;
use crate::resume::{
    Conversation, Found, FromSnapshot, IfLost, Native, Receipt, Source, Transcript, Workspace,
};
use crate::run::Completion;
use crate::session::{
    AgentEnding, Effect, Fact, IfRunning, Report, ReportBody, Request, Resuming, Session, Status,
};

pub(super) const KEPT: Found = Found {
    snapshot: None,
    unverified: 0,
    workspace: Workspace::Kept,
    source: Source::Local,
    files: 7,
    bytes: 70,
    native: Native::Intact,
    turns: 1,
    as_found: None,
};

impl World {
    pub(super) fn receipt(&self) -> Receipt {
        let receipt = self.log.iter().rev().find_map(|entry| {
            let Entry::SessionResumed { receipt, .. } = entry else { return None };
            *receipt
        });
        receipt.expect("it came back")
    }

    pub(super) fn complete_a_turn(&mut self) {
        self.ask(PROMPT).unwrap();
        self.finish(AgentEnding::Completed(Completion::EndTurn));
    }
}

#[test]
fn a_cold_resume_tells_what_was_found_and_how_long_it_took() {
    let mut world = World::settled();
    world.complete_a_turn();
    world.ask(Ask::Stop).unwrap();
    world.settle();
    world.found = Some(KEPT);
    world.ask(Ask::Resume).unwrap();
    let last_seq = world.session.last_seq();
    world.wait(Duration::from_millis(250));
    world.settle();
    let receipt = Receipt {
        snapshot: None,
        unverified: 0,
        path: ResumePath::Cold,
        source: Some(Source::Local),
        workspace: Workspace::Kept,
        last_seq,
        files: 7,
        bytes: 70,
        conversation: Conversation { native: Native::Intact, turns: 1, turns_in_log: 1 },
        interrupted_run: None,
        duration_micros: 250_000,
    };
    assert_eq!(world.receipt(), receipt);
    assert!(!world.kinds().contains(&"context_lost"));
}

#[test]
fn a_warm_resume_is_told_when_the_sandbox_answers() {
    let mut world = World::settled();
    world.complete_a_turn();
    world.request(Request::Pause { if_running: IfRunning::Freeze }).unwrap();
    world.settle();
    world.ask(Ask::Resume).unwrap();
    assert_eq!(world.kinds().last(), Some(&"session_paused"));
    world.wait(Duration::from_millis(3));
    world.settle();
    let receipt = world.receipt();
    assert_eq!((receipt.path, receipt.source), (ResumePath::Warm, None));
    assert_eq!((receipt.workspace, receipt.duration_micros), (Workspace::Kept, 3_000));
    let knows = Conversation { native: Native::Intact, turns: 1, turns_in_log: 1 };
    assert_eq!(receipt.conversation, knows);
}

#[test]
fn a_fresh_workspace_over_earlier_turns_is_admitted_and_over_none_is_not() {
    let mut world = World::settled();
    world.found = Some(Found::NOTHING);
    for turns_in_log in 0..2 {
        world.ask(Ask::Stop).unwrap();
        world.settle();
        world.ask(Ask::Resume).unwrap();
        world.settle();
        let lost = world.kinds().contains(&"context_lost");
        assert_eq!(lost, turns_in_log > 0, "after {turns_in_log} turns");
        world.complete_a_turn();
    }
}

#[test]
fn an_agent_does_not_know_of_more_turns_than_there_were() {
    let mut world = World::settled();
    world.complete_a_turn();
    world.found = Some(Found { native: Native::Intact, turns: u32::MAX, ..KEPT });
    world.ask(Ask::Stop).unwrap();
    world.settle();
    world.ask(Ask::Resume).unwrap();
    world.settle();
    let knows = Conversation { native: Native::Intact, turns: 1, turns_in_log: 1 };
    assert_eq!(world.receipt().conversation, knows);
}

#[test]
fn a_lost_conversation_is_admitted() {
    let mut world = World::settled();
    world.complete_a_turn();
    world.found = Some(Found { native: Native::Lost, turns: 0, ..KEPT });
    world.ask(Ask::Stop).unwrap();
    world.settle();
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.kinds()[world.log.len() - 2..], ["session_resumed", "context_lost"]);
    let Some(Entry::ContextLost { turns_in_log, .. }) = world.log.last() else { panic!() };
    assert_eq!(*turns_in_log, 1);
}

#[test]
fn a_warm_resume_does_not_claim_more_turns_than_the_cold_one_before_it() {
    for (native, remembered) in [(Native::Lost, 0), (Native::Rebuilt, 2), (Native::Intact, 1)] {
        let mut world = World::settled();
        for _ in 0..3 {
            world.complete_a_turn();
        }
        world.found = Some(Found { native, turns: remembered, ..KEPT });
        world.ask(Ask::Stop).unwrap();
        world.settle();
        world.ask(Ask::Resume).unwrap();
        world.settle();
        let mut knows = Conversation { native, turns: remembered, turns_in_log: 3 };
        assert_eq!(world.receipt().conversation, knows);
        for _ in 0..2 {
            world.request(Request::Pause { if_running: IfRunning::Freeze }).unwrap();
            world.settle();
            world.ask(Ask::Resume).unwrap();
            world.settle();
            assert_eq!(world.receipt().path, ResumePath::Warm);
            // Nothing was made anew by this one.
            let native = if native == Native::Rebuilt { Native::Intact } else { native };
            assert_eq!(world.receipt().conversation, Conversation { native, ..knows });
            assert_eq!(world.session.conversation(), knows, "nor does one that has nothing to do");
            // Every turn since is known.
            world.complete_a_turn();
            knows.turns += 1;
            knows.turns_in_log += 1;
        }
    }
}

#[test]
fn files_of_an_earlier_snapshot_or_with_holes_are_admitted_and_captured() {
    for (outdated, left_out) in [(true, 0), (false, 2), (false, 0)] {
        let mut world = World::settled();
        world.complete_a_turn();
        world.ask(Ask::Stop).unwrap();
        world.settle();
        let from = world.session.persistence().last().map(FromSnapshot::of).unwrap();
        let snapshot = Some(FromSnapshot { outdated, left_out, ..from });
        world.found = Some(Found { workspace: Workspace::Restored, snapshot, ..KEPT });
        world.ask(Ask::Resume).unwrap();
        world.settle();
        let is_less = outdated || left_out > 0;
        assert_eq!(world.kinds().contains(&"context_lost"), is_less);
        let is_captured = !world.session.persistence().is_settled();
        assert_eq!(is_captured, is_less, "nobody relies on what is lost");
    }
}

#[test]
fn what_becomes_of_lost_files_is_what_the_last_resume_wants() {
    for if_lost in [IfLost::Refuse, IfLost::BeginAnew, IfLost::GiveUp] {
        let mut world = World::settled();
        world.ask(Ask::Stop).unwrap();
        world.settle();
        world.request(Request::Resume(if_lost.into())).unwrap();
        let [Effect::StartSandbox { if_lost: wanted, .. }] = world.session.recover()[..] else {
            panic!("a start is owed: {:?}", world.session)
        };
        assert_eq!(wanted, if_lost);
        let failure = Failure::new(FailureCode::NoSavedState, "nothing is left");
        let incarnation = world.session.incarnation();
        world.observe(Fact::SandboxStartFailed { incarnation, failure });
        world.settle();
        world.ask(Ask::Resume).unwrap();
        let owed = world.session.recover();
        let is_usual = |effect: &Effect| {
            matches!(effect, Effect::StartSandbox { if_lost: IfLost::BeginAnew, .. })
        };
        assert!(owed.iter().any(is_usual), "{owed:?}");
    }
}

#[test]
fn what_was_fetched_before_a_resume_belongs_to_the_time_that_it_took() {
    let mut world = World::settled();
    world.ask(Ask::Stop).unwrap();
    world.settle();
    let asked_at = Some(world.now);
    world.wait(Duration::from_secs(8));
    world.request(Request::Resume(Resuming { asked_at, ..Resuming::default() })).unwrap();
    world.wait(Duration::from_millis(250));
    world.settle();
    assert_eq!(world.receipt().duration_micros, 8_250_000);
}

#[test]
fn the_run_that_was_cut_is_told_once() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    let cut = world.session.current_run().unwrap().id;
    world.ask(PROMPT).unwrap();
    world.die(Death::Lost);
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.receipt().interrupted_run, Some(cut), "not the one that waited behind it");
    world.ask(Ask::Stop).unwrap();
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.receipt().interrupted_run, None);
}

#[test]
fn a_start_is_told_what_the_conversation_must_begin_with() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    let digest = "ab".repeat(32);
    for body in [format!(r#"{{"bytes":5,"blake3":"{digest}","turns":1}}"#), "[]".to_owned()] {
        let body = Json::parse(body).unwrap();
        world.report(ReportBody::Output { name: "transcript".to_owned(), body });
    }
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    world.ask(Ask::Stop).unwrap();
    world.settle();
    world.ask(Ask::Resume).unwrap();
    let start = Effect::StartSandbox {
        snapshot: world.session.persistence().last().cloned(),
        is_behind: false,
        proven: world.session.persistence().last().cloned().map(Box::new),
        incarnation: world.session.incarnation(),
        transcript: Some(Transcript { bytes: 5, blake3: digest, turns: 1 }),
        completed_runs: 1,
        turns: 1,
        if_lost: IfLost::default(),
        lost: None,
    };
    assert_eq!(world.session.recover(), [start]);
}

#[test]
fn what_goes_on_in_a_sandbox_keeps_it_awake_and_wakes_nobody() {
    let mut world = World::settled();
    let idle = world.policy.idle_timeout;
    for _ in 0..3 {
        world.now = world.now.plus(idle);
        world.observe(Fact::InUse);
        world.observe(Fact::TimePassed);
        assert_eq!(world.session.status(), Status::Active);
    }
    world.wait(idle);
    assert_eq!(world.session.status(), Status::Paused);
    let before = world.session.clone();
    world.observe(Fact::InUse);
    assert_eq!(world.session, before);
}

#[test]
fn use_keeps_an_idle_session_awake_and_needs_an_active_one() {
    let mut world = World::settled();
    let idle = world.policy.idle_timeout;
    world.wait(idle / 2);
    world.ask(Ask::Use).unwrap();
    world.wait(idle / 2);
    assert_eq!(world.session.status(), Status::Active);
    world.wait(idle / 2);
    assert_eq!(world.session.status(), Status::Paused);
    assert_eq!(world.ask(Ask::Use), Err(Refusal::NotActive(Status::Paused)));
}

#[test]
fn a_session_that_was_thawing_before_receipts_were_written_does_not_say_twice_that_it_is_back() {
    let mut world = World::settled();
    world.request(Request::Pause { if_running: IfRunning::Freeze }).unwrap();
    world.settle();
    world.ask(Ask::Resume).unwrap();
    let mut stored = serde_json::to_value(&world.session).unwrap();
    let asked = stored["sandbox"]["thawing"]["asked"].as_u64().unwrap();
    stored["sandbox"]["thawing"].as_object_mut().unwrap().remove("since").unwrap();
    world.session = serde_json::from_value::<Session>(stored).unwrap();
    let incarnation = world.session.incarnation();
    world.observe(Fact::SandboxThawed { incarnation, asked: Seq::new(asked) });
    assert!(!world.kinds().contains(&"session_resumed"));
}

#[test]
fn a_report_that_comes_before_the_thaw_is_confirmed_is_taken() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.request(Request::Pause { if_running: IfRunning::Freeze }).unwrap();
    world.settle();
    world.ask(Ask::Resume).unwrap();
    let run = world.session.current_run().unwrap().id;
    let early = Report { run: Some(run), body: ReportBody::TextDelta("early".to_owned()) };
    world.observe(reported(world.session.incarnation(), world.session.spool().next(), early));
    world.settle();
    assert_eq!(world.kinds()[world.log.len() - 2..], ["text_delta", "session_resumed"]);
}
