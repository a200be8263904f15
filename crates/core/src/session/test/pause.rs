//! What becomes of a session that is paused, of the run that is frozen in it and of the prompts behind that.

use super::super::{
    AgentEnding, Effect, Fact, IfRunning, PauseReason, ReportBody, Request, Sandbox, State, Status,
};
use super::PROMPT;
use super::world::{Ask, World};
use crate::entry::ResumePath;
use crate::failure::Death;
use crate::policy::MAX_STOPS_AWAITED;
use crate::refusal::Refusal;
use crate::run::{Completion, RunStatus};

const DONE: AgentEnding = AgentEnding::Completed(Completion::EndTurn);

/// A session that is frozen in the middle of a turn, and a prompt that waits behind it.
fn frozen_in_mid_turn() -> World {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.report(ReportBody::Begun);
    world.ask(PROMPT).unwrap();
    world.request(Request::Pause { if_running: IfRunning::Freeze }).unwrap();
    world.settle();
    assert!(matches!(world.session.sandbox(), Sandbox::Frozen { .. }));
    world
}

impl World {
    /// The cut run is told by the receipt of a cold resume, and the one that waited is worked on.
    fn came_back_cold_and_took_the_next_prompt(&mut self) {
        let cut = *self.statuses.keys().next().unwrap();
        let receipt = self.receipt();
        assert_eq!((receipt.path, receipt.interrupted_run), (ResumePath::Cold, Some(cut)));
        assert_eq!(self.outcomes(), [RunStatus::Interrupted, RunStatus::Running]);
        self.finish(DONE);
        assert_eq!(self.outcomes(), [RunStatus::Interrupted, RunStatus::Completed]);
    }
}

#[test]
fn a_sandbox_that_died_while_it_was_frozen_makes_the_resume_a_cold_one() {
    for death in [Death::Lost, Death::FilesGone, Death::Killed(9), Death::OutOfMemory] {
        // Before the resume, and while it is under way.
        for before in [true, false] {
            let mut world = frozen_in_mid_turn();
            if before {
                world.die(death.clone());
                assert_eq!(world.session.status(), Status::Paused);
                assert_eq!(world.outcomes(), [RunStatus::Interrupted, RunStatus::Queued]);
            }
            world.ask(Ask::Resume).unwrap();
            if !before {
                world.die(death.clone());
                assert_eq!(world.session.status(), Status::Starting);
            }
            world.settle();
            world.came_back_cold_and_took_the_next_prompt();
        }
    }
}

#[test]
fn a_prompt_that_waits_when_a_sandbox_is_lost_brings_the_session_back() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.report(ReportBody::Begun);
    world.ask(PROMPT).unwrap();
    world.die(Death::Lost);
    assert_eq!(world.session.status(), Status::Starting);
    world.settle();
    world.came_back_cold_and_took_the_next_prompt();
}

#[test]
fn a_sandbox_that_does_not_answer_when_it_is_thawed_gives_way_to_another() {
    let mut world = frozen_in_mid_turn();
    let old = world.session.incarnation();
    world.ask(Ask::Resume).unwrap();
    world.wait_for_deadline();
    assert!(matches!(world.session.sandbox(), Sandbox::Stopping { .. }), "the old one goes first");
    world.settle();
    assert_eq!(world.alive(), [old.next()]);
    world.came_back_cold_and_took_the_next_prompt();
}

#[test]
fn a_prompt_that_waits_outlives_every_way_to_lose_a_paused_sandbox() {
    let ways: [fn(&mut World); 3] = [
        |world| world.ask(Ask::Evict).unwrap(),
        |world| world.die(Death::Lost),
        |world| world.wait(world.policy.evict_after),
    ];
    for lose in ways {
        let mut world = frozen_in_mid_turn();
        lose(&mut world);
        world.settle();
        assert_eq!(world.session.sandbox(), Sandbox::None);
        assert_eq!(world.outcomes(), [RunStatus::Interrupted, RunStatus::Queued]);
        world.ask(Ask::Resume).unwrap();
        world.settle();
        world.came_back_cold_and_took_the_next_prompt();
    }
}

#[test]
fn a_prompt_that_waits_outlives_a_server_that_finds_the_sandbox_gone_but_no_broken_session() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.ask(PROMPT).unwrap();
    let mut broken = world.clone();
    world.die(Death::Lost);
    assert_eq!(world.outcomes(), [RunStatus::Interrupted, RunStatus::Queued]);
    world.ask(Ask::Resume).unwrap();
    world.settle();
    world.came_back_cold_and_took_the_next_prompt();
    // Nobody brings that one back by itself: whoever waits is told.
    broken.die(Death::Killed(9));
    assert_eq!(broken.session.status(), Status::Error);
    assert_eq!(broken.outcomes(), [RunStatus::Interrupted, RunStatus::Interrupted]);
}

#[test]
fn an_interrupt_ends_a_frozen_run_at_once_and_a_rewind_is_possible() {
    let mut world = frozen_in_mid_turn();
    assert_eq!(world.ask(Ask::Rewind(0)), Err(Refusal::RunInProgress));
    world.ask(Ask::Interrupt).unwrap();
    assert_eq!(world.outcomes(), [RunStatus::Cancelled, RunStatus::Queued]);
    assert_eq!(world.session.status(), Status::Paused);
    world.settle();
    assert_eq!((world.session.sandbox(), world.alive()), (Sandbox::None, vec![]));
    world.ask(Ask::Interrupt).unwrap();
    assert_eq!(world.outcomes(), [RunStatus::Cancelled, RunStatus::Cancelled]);
    world.ask(Ask::Rewind(0)).unwrap();
}

#[test]
fn whoever_resumes_wants_no_pause_that_is_still_to_come() {
    for if_running in [IfRunning::Interrupt, IfRunning::Freeze] {
        let mut world = World::settled();
        world.ask(PROMPT).unwrap();
        world.report(ReportBody::Begun);
        world.request(Request::Pause { if_running: IfRunning::Interrupt }).unwrap();
        if if_running == IfRunning::Freeze {
            world.request(Request::Pause { if_running }).unwrap();
            world.settle();
        }
        world.ask(Ask::Resume).unwrap();
        world.settle();
        world.finish(AgentEnding::Interrupted);
        assert_eq!(world.session.status(), Status::Active);
        assert_eq!(world.outcomes(), [RunStatus::Cancelled]);
    }
}

#[test]
fn a_pause_that_comes_while_a_sandbox_is_thawed_is_not_forgotten_when_it_is_dead() {
    let mut world = frozen_in_mid_turn();
    world.ask(Ask::Resume).unwrap();
    world.request(Request::Pause { if_running: IfRunning::Interrupt }).unwrap();
    world.die(Death::Lost);
    let paused = State::Paused { reason: PauseReason::Requested, since: world.now };
    assert_eq!(*world.session.state(), paused);
    assert_eq!(world.outcomes(), [RunStatus::Cancelled, RunStatus::Queued]);
}

#[test]
fn a_session_that_goes_back_does_not_wait_for_ever_for_a_sandbox_that_will_not_go() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.finish(DONE);
    world.settle();
    world.ask(Ask::Rewind(0)).unwrap();
    for _ in 0..MAX_STOPS_AWAITED {
        assert_eq!(world.ask(Ask::Resume), Err(Refusal::BeingRewound));
        world.wait_for_deadline();
    }
    assert_eq!(world.session.rewinding(), None);
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.session.state(), &State::Active);
    assert_eq!(world.session.lineage().turns(), 1, "nothing has changed");
}

#[test]
fn what_a_frozen_agent_had_reported_counts_before_its_sandbox_is_given_up() {
    let mut world = frozen_in_mid_turn();
    world.finish(DONE);
    assert_eq!(world.outcomes(), [RunStatus::Completed, RunStatus::Queued]);
    world.ask(Ask::Evict).unwrap();
    let incarnation = world.session.incarnation();
    assert_eq!(world.session.recover()[0], Effect::StopSandbox { incarnation });
    world.observe(Fact::SandboxGone { incarnation, death: Death::Stopped });
    world.settle();
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.outcomes(), [RunStatus::Completed, RunStatus::Running]);
}
