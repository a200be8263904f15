//! When a session has its files captured, and what it makes of the outcome.

use std::time::Duration;

use proptest::prelude::*;

use super::super::{
    AgentEnding, Effect, Fact, FilesPlace, IfRunning, PauseReason, Request, Sandbox, State,
};
use super::PROMPT;
use super::host::{captured, failed_capture};
use super::world::{Ask, World, steps};
use crate::failure::Death;
use crate::number::Turn;
use crate::policy::Context;
use crate::resume::{Found, IfLost, Workspace};
use crate::run::{Completion, RunStatus};
use crate::snapshot::PersistOutcome;

const DONE: AgentEnding = AgentEnding::Completed(Completion::EndTurn);

/// The captures among some effects.
pub(super) fn captures(effects: &[Effect]) -> Vec<u64> {
    let mut numbers = Vec::new();
    for effect in effects {
        if let Effect::Persist { number, .. } = effect {
            numbers.push(*number);
        }
    }
    numbers
}

impl World {
    /// What is owed after a fact, which is observed.
    pub(super) fn effects_of(&mut self, fact: Fact) -> Vec<Effect> {
        let mut session = self.session.clone();
        let ctx = Context { now: self.now, policy: &self.policy };
        let decision = session.observe(&ctx, fact.clone());
        self.observe(fact);
        decision.effects
    }

    fn turn_of_last(&self) -> Option<Turn> {
        self.session.persistence().last().map(|last| last.turn)
    }
}

#[test]
fn what_a_turn_left_is_captured_before_the_next_prompt_is_handed_over() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.ask(PROMPT).unwrap();
    world.settle();
    let run = world.session.current_run().unwrap().id;
    let (position, incarnation) = (world.session.spool().next(), world.session.incarnation());
    let body = super::ReportBody::Ended { how: DONE, usage: super::Usage::default() };
    let ended = super::reported(incarnation, position, super::Report { run: Some(run), body });
    let effects = world.effects_of(ended);
    let place = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted).unwrap();
    let captured_at = place(|effect| matches!(effect, Effect::Persist { .. }));
    assert!(captured_at < place(|effect| matches!(effect, Effect::Deliver { .. })), "{effects:?}");
    world.settle();
    let last = world.session.persistence().last().unwrap();
    assert_eq!((last.turn, last.completed_runs), (Turn::new(1), 1));
    assert!(last.seq < world.session.last_seq(), "the next turn has begun since");
}

#[test]
fn who_takes_over_captures_what_a_turn_left_before_the_next_prompt_too() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.ask(PROMPT).unwrap();
    world.settle();
    let run = world.session.current_run().unwrap().id;
    let (position, incarnation) = (world.session.spool().next(), world.session.incarnation());
    let body = super::ReportBody::Ended { how: DONE, usage: super::Usage::default() };
    world.observe(super::reported(incarnation, position, super::Report { run: Some(run), body }));
    let owed = world.session.recover();
    let place = |wanted: fn(&Effect) -> bool| owed.iter().position(wanted).unwrap();
    let captured_at = place(|effect| matches!(effect, Effect::Persist { .. }));
    assert!(place(|effect| matches!(effect, Effect::Attach { .. })) < captured_at, "{owed:?}");
    assert!(captured_at < place(|effect| matches!(effect, Effect::Deliver { .. })), "{owed:?}");
}

#[test]
fn whatever_ends_a_sandbox_is_followed_by_a_capture_of_what_it_left() {
    type End = fn(&mut World);
    let ends: [End; 6] = [
        |world| world.ask(Ask::Stop).unwrap(),
        |world| world.ask(Ask::End).unwrap(),
        |world| world.ask(Ask::Evict).unwrap(),
        |world| world.die(Death::OutOfMemory),
        |world| world.die(Death::Lost),
        |world| world.request(Request::Pause { if_running: IfRunning::Freeze }).unwrap(),
    ];
    for end in ends {
        let mut world = World::settled();
        assert_eq!(world.session.persistence().last(), None);
        end(&mut world);
        world.settle();
        assert_eq!(world.snapshots.len(), 1, "{:?}", world.session);
        assert!(world.session.persistence().is_settled() && world.session.is_at_rest());
    }
}

#[test]
fn a_pause_in_the_middle_of_a_turn_is_captured_while_nothing_moves() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.settle();
    world.ask(Ask::Pause(0)).unwrap();
    assert!(world.session.persistence().is_settled(), "what is being frozen still moves");
    world.settle();
    assert!(matches!(world.session.sandbox(), Sandbox::Frozen { .. }));
    assert_eq!(world.turn_of_last(), Some(Turn::new(1)));
}

#[test]
fn use_from_outside_is_captured_when_it_has_stopped_and_not_put_off_for_ever() {
    let mut world = World::settled();
    world.policy.persist_interval = Duration::from_secs(8);
    for _ in 0..3 {
        world.wait(Duration::from_millis(400));
        world.ask(Ask::Use).unwrap();
    }
    world.settle();
    assert!(world.snapshots.is_empty());
    world.wait(Duration::from_millis(800));
    world.settle();
    assert_eq!(world.snapshots.len(), 1);
    for _ in 0..30 {
        world.wait(Duration::from_millis(400));
        world.ask(Ask::Use).unwrap();
        world.settle();
    }
    assert!(world.snapshots.len() > 1, "whoever never stops is captured all the same");
}

#[test]
fn files_written_while_it_rests_are_captured_too() {
    let mut world = World::settled();
    world.ask(Ask::Stop).unwrap();
    world.settle();
    let before = world.snapshots.len();
    world.ask(Ask::Touch).unwrap();
    assert!(world.session.is_at_rest(), "no task waits for the moment to come");
    world.wait_for_deadline();
    world.settle();
    assert_eq!(world.snapshots.len(), before + 1);
}

#[test]
fn what_is_to_be_captured_in_a_moment_is_captured_at_once_for_whoever_waits() {
    let mut world = World::settled();
    world.ask(Ask::Stop).unwrap();
    world.settle();
    let before = world.snapshots.len();
    world.ask(Ask::Capture).unwrap();
    world.settle();
    assert_eq!(world.snapshots.len(), before, "nothing was to be captured");
    world.ask(Ask::Touch).unwrap();
    assert!(world.session.is_yet_to_be_captured());
    world.ask(Ask::Capture).unwrap();
    world.settle();
    assert_eq!(world.snapshots.len(), before + 1);
    assert!(!world.session.is_yet_to_be_captured());
    // What failed is not tried again and again for whoever asks again and again.
    world.ask(Ask::Touch).unwrap();
    world.ask(Ask::Capture).unwrap();
    let number = before as u64 + 2;
    world.observe(Fact::Persisted { number, outcome: failed_capture() });
    let due = world.session.capture_deadline(&world.policy);
    world.ask(Ask::Capture).unwrap();
    assert_eq!(world.session.capture_deadline(&world.policy), due);
}

#[test]
fn a_failure_is_remembered_and_tried_again_later_and_later() {
    let mut world = World::settled();
    world.policy.idle_timeout = Duration::from_secs(24 * 60 * 60);
    world.ask(PROMPT).unwrap();
    world.settle();
    world.finish(DONE);
    let mut waits = Vec::new();
    for number in 1..8 {
        world.observe(Fact::Persisted { number, outcome: failed_capture() });
        let failed = world.session.persistence().failed().unwrap();
        assert_eq!((u64::from(failed.attempts), &*failed.message), (number, "the disk is full"));
        assert_eq!(*world.session.state(), State::Active, "nothing else is wrong");
        let due = world.session.capture_deadline(&world.policy).unwrap();
        waits.push(due.since(world.now));
        world.now = due;
        world.observe(Fact::TimePassed);
    }
    assert!(waits.is_sorted() && waits[0] < waits[6], "{waits:?}");
    world.observe(Fact::Persisted { number: 8, outcome: captured(8) });
    assert_eq!(world.session.persistence().failed(), None);
}

#[test]
fn files_that_are_gone_are_a_failure_and_no_turn_is_bound_to_them() {
    let mut world = World::settled();
    world.policy.idle_timeout = Duration::from_secs(24 * 60 * 60);
    for _ in 0..2 {
        world.ask(PROMPT).unwrap();
        world.settle();
        world.finish(DONE);
        if world.turn_of_last().is_none() {
            world.settle();
        }
    }
    let is_captured = world.turn_of_last() == Some(Turn::new(1));
    assert!(is_captured && world.session.persistence().is_under_way());
    // Nobody works on for nothing; the next prompt begins with files again.
    world.observe(Fact::Persisted { number: 2, outcome: PersistOutcome::Gone });
    let is_paused =
        matches!(world.session.state(), State::Paused { reason: PauseReason::Evicted, .. });
    assert!(is_paused && matches!(world.session.sandbox(), Sandbox::Stopping { .. }));
    let (incarnation, death) = (world.session.incarnation(), Death::Stopped);
    world.observe(Fact::SandboxGone { incarnation, death });
    let mut tries = 1;
    while world.session.persistence().is_under_way() {
        tries += 1;
        let number = tries + 1;
        world.observe(Fact::Persisted { number, outcome: PersistOutcome::Gone });
        let failed = world.session.persistence().failed().unwrap();
        assert_eq!(u64::from(failed.attempts), tries);
        assert!(world.session.stored_by().is_none(), "nothing may be removed");
        if let Some(due) = world.session.capture_deadline(&world.policy) {
            world.now = due;
            world.observe(Fact::TimePassed);
        }
    }
    assert_eq!((tries, world.turn_of_last()), (10, Some(Turn::new(1))));
    assert!(world.session.persistence().failed().is_some(), "it is still shown");
    assert!(world.session.is_at_rest());

    // A start brings back what there is, and says that it is of an earlier turn.
    let last = world.session.persistence().last().cloned();
    world.request(Request::Resume(IfLost::default().into())).unwrap();
    let is_told = |effect: &Effect| matches!(effect, Effect::StartSandbox { snapshot, is_behind: true, .. } if *snapshot == last);
    assert!(world.session.recover().iter().any(is_told), "{:?}", world.session.recover());
    let found = Found { workspace: Workspace::Restored, ..Found::NOTHING };
    let incarnation = world.session.incarnation();
    let effects = world.effects_of(Fact::SandboxStarted { incarnation, found });
    let number = captures(&effects)[0];
    world.observe(Fact::Persisted { number, outcome: captured(number) });
    assert_eq!(world.session.persistence().failed(), None);
}

#[test]
fn a_run_whose_files_are_gone_is_cut_and_one_that_is_frozen_goes_too() {
    for is_frozen in [false, true] {
        let mut world = World::settled();
        world.policy.persist_interval = Duration::from_secs(8);
        world.ask(PROMPT).unwrap();
        world.settle();
        world.finish(DONE);
        world.settle();
        world.ask(PROMPT).unwrap();
        world.settle();
        if is_frozen {
            world.ask(Ask::Pause(0)).unwrap();
            let (incarnation, asked) = (world.session.incarnation(), world.session.last_seq());
            world.observe(Fact::SandboxFrozen { incarnation, asked });
        } else {
            world.now = world.session.capture_deadline(&world.policy).unwrap();
            world.observe(Fact::TimePassed);
        }
        assert!(world.session.persistence().is_under_way(), "{:?}", world.session);
        world.observe(Fact::Persisted { number: 2, outcome: PersistOutcome::Gone });
        assert!(matches!(world.session.sandbox(), Sandbox::Stopping { .. }));
        let (incarnation, death) = (world.session.incarnation(), Death::Stopped);
        world.observe(Fact::SandboxGone { incarnation, death });
        assert_eq!(world.session.current_run(), None);
        assert_eq!(world.outcomes().last(), Some(&RunStatus::Interrupted));
    }
}

#[test]
fn a_last_snapshot_that_is_lost_is_followed_by_another_one() {
    let mut world = World::settled();
    world.ask(Ask::Stop).unwrap();
    world.settle();
    let lost = world.session.stored_by().unwrap();
    world.request(Request::PutAway).unwrap();
    assert!(matches!(world.session.keeping().files(), FilesPlace::Leaving { .. }));
    world.request(Request::CaptureAgain { lost }).unwrap();
    assert_eq!(world.session.keeping().files(), FilesPlace::InPlace, "they stay");
    assert_eq!(world.session.stored_by(), None);
    let again = |effect: &Effect| matches!(effect, Effect::Persist { unless_like: None, .. });
    assert!(world.session.recover().iter().any(again), "{:?}", world.session.recover());
    let before = world.session.clone();
    world.request(Request::CaptureAgain { lost }).unwrap();
    assert_eq!(world.session, before, "it is asked for once");
    world.settle();
    let next = world.session.stored_by().unwrap();
    assert_ne!(next, lost);
    world.request(Request::CaptureAgain { lost }).unwrap();
    assert_eq!(world.session.stored_by(), Some(next), "that is not the last one any more");
}

#[test]
fn files_that_nobody_expects_in_place_are_not_missed() {
    // Its sandbox never came up.
    let mut world = World::new();
    let incarnation = world.session.incarnation();
    let death = Death::Killed(9);
    let number = captures(&world.effects_of(Fact::SandboxGone { incarnation, death }))[0];
    world.observe(Fact::Persisted { number, outcome: PersistOutcome::Gone });
    assert!(world.session.persistence().failed().is_none() && world.session.is_at_rest());
    // Only the snapshot has them.
    let mut world = World::settled();
    world.ask(Ask::Stop).unwrap();
    world.settle();
    world.ask(Ask::PutAway).unwrap();
    world.settle();
    assert_eq!(world.session.keeping().files(), FilesPlace::Away);
    world.ask(Ask::Touch).unwrap();
    world.now = world.session.capture_deadline(&world.policy).unwrap();
    let number = captures(&world.effects_of(Fact::TimePassed))[0];
    world.observe(Fact::Persisted { number, outcome: PersistOutcome::Gone });
    assert!(world.session.persistence().failed().is_none() && world.session.is_at_rest());
}

#[test]
fn a_live_sandbox_is_captured_every_now_and_then_and_when_idle_only_if_something_runs() {
    let mut world = World::settled();
    world.policy.persist_interval = Duration::from_secs(8);
    world.wait(Duration::from_millis(7_999));
    assert!(world.session.persistence().is_settled());
    let effects = {
        world.now = world.now.plus(Duration::from_millis(1));
        world.effects_of(Fact::TimePassed)
    };
    assert!(matches!(effects[..], [Effect::Persist { only_if_busy: true, .. }]), "{effects:?}");
    world.settle();
    world.ask(PROMPT).unwrap();
    world.settle();
    world.now = world.now.plus(Duration::from_millis(8_000));
    let effects = world.effects_of(Fact::TimePassed);
    let busy = |effect: &Effect| matches!(effect, Effect::Persist { only_if_busy: false, .. });
    assert!(effects.iter().any(busy), "{effects:?}");
}

#[test]
fn a_snapshot_of_the_same_turn_is_as_good_if_nothing_changed() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.settle();
    world.finish(DONE);
    world.settle();
    let id = world.session.persistence().last().unwrap().captured.id;
    world.ask(Ask::Stop).unwrap();
    let incarnation = world.session.incarnation();
    let effects = world.effects_of(Fact::SandboxGone { incarnation, death: Death::Stopped });
    let as_good = |effect: &Effect| matches!(effect, Effect::Persist { unless_like, .. } if *unless_like == Some(id));
    assert!(effects.iter().any(as_good), "{effects:?}");
    let captures = captures(&effects);
    let unchanged = crate::snapshot::PersistOutcome::Unchanged;
    world.observe(Fact::Persisted { number: captures[0], outcome: unchanged });
    assert_eq!(world.session.persistence().last().unwrap().captured.id, id);
    assert!(world.session.is_at_rest());
}

#[test]
fn a_start_is_told_what_to_bring_back() {
    let mut world = World::settled();
    world.ask(Ask::Stop).unwrap();
    world.settle();
    let last = world.session.persistence().last().cloned().unwrap();
    let mut session = world.session.clone();
    let ctx = Context { now: world.now, policy: &world.policy };
    let decision = session.request(&ctx, Request::Resume(IfLost::default().into())).unwrap();
    let is_told = |effect: &Effect| matches!(effect, Effect::StartSandbox { snapshot, .. } if *snapshot == Some(last.clone()));
    assert!(decision.effects.iter().any(is_told), "{decision:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whatever happened: once the session is over and the host has done as told, everything that was
    /// wanted has come to an end, and it was captured after the last sandbox was gone, or tried often enough.
    #[test]
    fn what_was_wanted_comes_to_an_end(script in steps()) {
        let mut world = World::new();
        for step in &script {
            world.step(step);
        }
        world.ask(Ask::End).unwrap();
        for _ in 0..60 {
            world.settle();
            if world.session.persistence().is_settled() && world.session.is_at_rest() {
                break;
            }
            world.wait_for_deadline();
        }
        prop_assert!(world.session.persistence().is_settled(), "{:?}", world.session);
        prop_assert!(world.session.is_at_rest());
        // Only that all of it goes is still to come.
        for _ in 0..60 {
            if world.purges == 0 {
                world.wait_for_deadline();
                world.settle();
            }
        }
        prop_assert!(world.purges > 0, "{:?}", world.session);
    }

    /// An owner that dies asks for the same capture again.
    #[test]
    fn a_capture_outlives_its_owner(script in steps()) {
        let mut world = World::new();
        for step in &script {
            world.step(step);
        }
        let under_way = !world.session.is_at_rest() && world.session.persistence().is_under_way();
        prop_assert_eq!(captures(&world.session.recover()).len(), usize::from(under_way));
    }
}
