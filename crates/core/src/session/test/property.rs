//! One property per invariant. Each drives the world with random steps; a bug planted in the
//! machine must make one of them fail (`docs/testing.md` lists those that were tried).

use proptest::prelude::*;

use super::super::{Fact, Request, Sandbox, State, Status};
use super::world::{Ask, Step, World, steps};
use crate::failure::{Death, Failure, FailureCode};
use crate::number::{Incarnation, Seq};
use crate::refusal::Refusal;
use crate::resume::{Found, IfLost};
use crate::run::RunStatus;

fn world_after(script: &[Step]) -> World {
    let mut world = World::new();
    for step in script {
        world.step(step);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    /// Whatever happened: once the session has ended and the host has done as told, nothing runs.
    /// (That no two ever run at once is asserted by the world at every start.)
    #[test]
    fn no_sandbox_is_leaked(script in steps()) {
        let mut world = world_after(&script);
        world.ask(Ask::End).unwrap();
        world.settle();
        prop_assert_eq!(world.alive(), vec![]);
        prop_assert_eq!(world.session.sandbox(), Sandbox::None);
    }

    /// The same when the owner dies at the worst moment: between the commit and the first effect.
    #[test]
    fn no_sandbox_is_leaked_by_a_crash_at_the_end(script in steps()) {
        let mut world = world_after(&script);
        world.ask(Ask::End).unwrap();
        world.crash();
        world.settle();
        prop_assert_eq!(world.alive(), vec![]);
    }

    #[test]
    fn no_sandbox_is_adopted_twice(script in steps()) {
        let mut world = world_after(&script);
        world.settle();
        for (incarnation, times) in &world.adoptions {
            prop_assert_eq!(*times, 1, "incarnation {}", incarnation);
        }
    }

    #[test]
    fn a_stale_incarnation_is_never_adopted(script in steps(), off in 1u32..4, ahead: bool) {
        let mut world = world_after(&script);
        let current = world.session.incarnation().get();
        let other = if ahead { current + off } else { current.saturating_sub(off) };
        prop_assume!(other != current);
        let incarnation = Incarnation::new(other);
        let asked = match world.session.sandbox() {
            Sandbox::Freezing { asked, .. } | Sandbox::Thawing { asked, .. } => asked,
            Sandbox::None
            | Sandbox::Starting { .. }
            | Sandbox::Live
            | Sandbox::Frozen { .. }
            | Sandbox::Stopping { .. } => Seq::new(1),
        };
        let failure = Failure::new(FailureCode::SandboxStartFailed, "no");
        let before = world.session.clone();
        for fact in [
            Fact::SandboxStarted { incarnation, found: Found::NOTHING },
            Fact::SandboxStartFailed { incarnation, failure },
            Fact::SandboxFrozen { incarnation, asked },
            Fact::SandboxThawed { incarnation, asked },
            Fact::SandboxGone { incarnation, death: Death::Lost },
            Fact::SandboxUnreachable { incarnation },
        ] {
            world.observe(fact);
            prop_assert_eq!(&before, &world.session);
        }
        // The one that showed it alive had it stopped.
        world.settle();
        prop_assert!(!world.alive().contains(&incarnation));
    }

    #[test]
    fn ended_is_final(script in steps(), more in steps()) {
        let mut world = world_after(&script);
        world.ask(Ask::End).unwrap();
        let entries = world.log.len();
        for step in &more {
            world.step(step);
            prop_assert_eq!(world.session.state(), &State::Ended);
        }
        prop_assert_eq!(world.log.len(), entries, "an ended session's log grew");
        prop_assert_eq!(world.request(Request::Resume(IfLost::default().into())), Err(Refusal::Ended));
    }

    /// The world compares the session before and after every refusal; here every kind of request
    /// is made in every state that a script reaches.
    #[test]
    fn a_refusal_changes_nothing(script in steps()) {
        let world = world_after(&script);
        let asks = [
            Ask::Prompt { reject: true, wake: false, quick: false },
            Ask::Prompt { reject: false, wake: false, quick: false },
            Ask::Interrupt,
            Ask::InterruptQueued(0),
            Ask::Pause(2),
            Ask::Resume,
            Ask::Stop,
            Ask::Evict,
            Ask::Rewind(99),
        ];
        for ask in asks {
            world.clone().step(&Step::Ask(ask));
        }
    }

    #[test]
    fn every_accepted_prompt_ends_in_exactly_one_terminal_state(script in steps()) {
        let mut world = world_after(&script);
        world.settle();
        world.ask(Ask::End).unwrap();
        world.settle();
        for (run, statuses) in &world.statuses {
            let terminal = statuses.iter().filter(|status| status.is_terminal()).count();
            prop_assert_eq!(terminal, 1, "run {}: {:?}", run, statuses);
            prop_assert!(statuses.last().unwrap().is_terminal());
        }
    }

    /// A person's wish is never mistaken for an accident: a run that a person asked to end is
    /// never offered for recovery.
    #[test]
    fn cancelled_is_not_interrupted(script in steps(), after in steps()) {
        let mut world = world_after(&script);
        let Some(run) = world.session.current_run().map(|run| run.id) else { return Ok(()) };
        let timed_out = world.session.current_run().is_some_and(|run| run.ending.is_some());
        world.ask(Ask::Interrupt).unwrap();
        for step in &after {
            world.step(step);
        }
        let last = *world.statuses[&run].last().unwrap();
        prop_assert_ne!(last, RunStatus::Interrupted);
        if !timed_out {
            prop_assert_ne!(last, RunStatus::Failed);
        }
    }

    /// The world sees every fact twice, and old ones again at random; this one takes care that a
    /// whole life, replayed to its result, leaves no trace.
    #[test]
    fn replaying_any_fact_changes_nothing(script in steps()) {
        let mut world = world_after(&script);
        for index in 0..200 {
            world.step(&Step::Replay(index));
        }
    }

    /// With a host that never answers, time alone leads every session to rest and every run to
    /// its end; only what has not begun may wait, for as long as its session is paused. What stays
    /// owed is the stop, which is asked for again and again.
    #[test]
    fn every_transient_state_has_a_deadline_that_leads_out_of_it(script in steps()) {
        let mut world = world_after(&script);
        for _ in 0..50 {
            let deadline = world.session.next_deadline(&world.policy);
            let sandbox = world.session.sandbox();
            prop_assert!(
                deadline.is_some() || sandbox == Sandbox::None,
                "{:?} waits for ever", world.session
            );
            world.wait_for_deadline();
        }
        let asleep = !matches!(world.session.state(), State::Starting { .. } | State::Active);
        let left = matches!(world.session.sandbox(), Sandbox::None | Sandbox::Stopping { .. });
        prop_assert!(asleep && left, "{:?} does not come to rest", world.session);
        for (run, statuses) in &world.statuses {
            let waits = statuses.last() == Some(&RunStatus::Queued)
                && world.session.status() == Status::Paused;
            prop_assert!(
                waits || statuses.last().unwrap().is_terminal(),
                "run {} never ends", run
            );
        }
    }

    /// A new owner that performs what is owed arrives where the old one would have.
    #[test]
    fn a_crash_loses_nothing_that_was_committed(script in steps()) {
        let mut world = world_after(&script);
        let accepted = world.statuses.len();
        let entries = world.log.len();
        world.crash();
        world.settle();
        prop_assert_eq!(world.statuses.len(), accepted);
        prop_assert!(world.log.len() >= entries);
        let stored = serde_json::to_string(&world.session).unwrap();
        let read: super::super::Session = serde_json::from_str(&stored).unwrap();
        prop_assert_eq!(read, world.session);
    }
}
