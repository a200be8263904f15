//! Turns that follow each other faster than what they left can be stored.

use super::super::{AgentEnding, Decision, Effect, Fact, IfRunning, Request, Sandbox};
use super::host::{captured, failed_capture};
use super::persist::captures;
use super::world::{Ask, World};
use super::{PROMPT, Report, ReportBody, Usage, reported};
use crate::failure::Death;
use crate::number::Turn;
use crate::policy::Context;
use crate::run::Completion;

/// A world whose first of many turns goes on, and that stores nothing unless it is told to.
fn busy() -> World {
    let mut world = World::settled();
    for _ in 0..30 {
        world.ask(PROMPT).unwrap();
    }
    world.settle();
    assert_eq!(world.session.lineage().head(), Turn::new(1));
    world
}

impl World {
    /// Ends the turn that goes on; the next one begins. Returns the captures that were asked for.
    fn end_turn(&mut self) -> Vec<u64> {
        let run = self.session.current_run().unwrap().id;
        let (position, incarnation) = (self.session.spool().next(), self.session.incarnation());
        let how = AgentEnding::Completed(Completion::EndTurn);
        let body = ReportBody::Ended { how, usage: Usage::default() };
        let effects =
            self.effects_of(reported(incarnation, position, Report { run: Some(run), body }));
        if let Some(captured) = effects.iter().position(|is| matches!(is, Effect::Persist { .. })) {
            let delivered = effects.iter().position(|is| matches!(is, Effect::Deliver { .. }));
            assert!(captured < delivered.unwrap(), "{effects:?}");
        }
        captures(&effects)
    }

    fn captured_turns(&self) -> Vec<u32> {
        self.snapshots.iter().map(|snapshot| snapshot.turn.get()).collect()
    }
}

#[test]
fn each_of_them_is_captured_though_the_ones_before_are_still_being_stored() {
    let mut world = busy();
    let asked: Vec<u64> = (0..4).flat_map(|_| world.end_turn()).collect();
    assert_eq!(asked, [1, 2, 3, 4]);
    for turn in 1..=4 {
        assert!(world.session.persistence().is_capturing(Turn::new(turn)));
        assert!(world.session.persistence().awaits(u64::from(turn)));
    }
    assert!(!world.session.persistence().awaits(0));
    assert!(!world.session.persistence().is_capturing(Turn::new(5)), "it goes on");
    for number in asked {
        world.observe(Fact::Persisted { number, outcome: captured(number) });
        assert!(!world.session.persistence().awaits(number));
        assert_eq!(world.session.persistence().awaits(4), number < 4);
    }
    assert_eq!(world.captured_turns(), [1, 2, 3, 4]);
    assert!(world.snapshots.iter().all(|snapshot| snapshot.through.is_none()));
    assert_eq!(world.session.persistence().last(), world.snapshots.last());
    assert!(world.session.persistence().is_settled());
}

#[test]
fn when_too_many_wait_the_next_one_covers_what_they_left() {
    let mut world = busy();
    let asked: Vec<u64> = (0..20).flat_map(|_| world.end_turn()).collect();
    assert_eq!(asked.len(), 16);
    for number in asked {
        let effects = world.effects_of(Fact::Persisted { number, outcome: captured(number) });
        // Whatever was wanted meanwhile is one more, of a turn that goes on.
        let more = usize::from(number == 16);
        assert_eq!(captures(&effects).len(), more);
    }
    world.observe(Fact::Persisted { number: 17, outcome: captured(17) });
    assert_eq!(world.captured_turns()[..16], (1..=16).collect::<Vec<_>>());
    let last = world.snapshots.last().unwrap();
    assert_eq!((last.turn, last.through.is_some()), (Turn::new(21), true));
}

#[test]
fn one_that_fails_takes_no_other_with_it() {
    let mut world = busy();
    let asked: Vec<u64> = (0..3).flat_map(|_| world.end_turn()).collect();
    world.observe(Fact::Persisted { number: asked[0], outcome: captured(1) });
    world.observe(Fact::Persisted { number: asked[1], outcome: failed_capture() });
    assert_eq!(world.session.persistence().failed(), None, "a later one is on its way");
    world.observe(Fact::Persisted { number: asked[2], outcome: captured(3) });
    assert_eq!(world.captured_turns(), [1, 3]);

    // The last one is tried again.
    let asked: Vec<u64> = (0..2).flat_map(|_| world.end_turn()).collect();
    world.observe(Fact::Persisted { number: asked[0], outcome: captured(4) });
    world.observe(Fact::Persisted { number: asked[1], outcome: failed_capture() });
    assert_eq!(world.session.persistence().failed().unwrap().attempts, 1);
    assert!(!world.session.persistence().is_settled());
}

#[test]
fn who_takes_over_captures_the_last_one_and_waits_for_no_other() {
    let mut world = busy();
    let asked: Vec<u64> = (0..3).flat_map(|_| world.end_turn()).collect();
    assert_eq!(captures(&world.session.recover()), asked[2..]);
    world.observe(Fact::Persisted { number: asked[2], outcome: captured(3) });
    assert_eq!(world.captured_turns(), [3]);
    assert!(world.session.persistence().is_settled());
    // What an earlier one comes to is nobody's business any more.
    let before = world.session.clone();
    world.observe(Fact::Persisted { number: asked[0], outcome: captured(1) });
    assert_eq!(world.session, before);
}

#[test]
fn what_a_turn_left_is_not_captured_by_who_takes_over_when_the_next_turn_works() {
    let mut world = busy();
    let _asked: Vec<u64> = (0..2).flat_map(|_| world.end_turn()).collect();
    // It was handed over. That nobody has heard that it was begun does not say that it was not.
    let mut sent = world.clone();
    world.report(ReportBody::Begun);
    for world in [&mut sent, &mut world] {
        world.session.taken_over(world.now);
        assert_eq!(captures(&world.session.recover()), [] as [u64; 0]);
        assert!(!world.session.persistence().is_capturing(Turn::new(2)), "its moment is over");
        let number = captures(&world.effects_of(Fact::TimePassed))[0];
        world.observe(Fact::Persisted { number, outcome: captured(number) });
        let last = world.snapshots.last().unwrap();
        assert_eq!((last.turn, last.through.is_some()), (Turn::new(3), true));
    }
}

#[test]
fn what_a_turn_left_is_not_captured_by_who_takes_over_however_the_sandbox_of_the_next_one_is() {
    fn freeze(world: &mut World) {
        world.request(Request::Pause { if_running: IfRunning::Freeze }).unwrap();
    }
    fn frozen(world: &mut World) {
        freeze(world);
        let Sandbox::Freezing { asked, .. } = world.session.sandbox() else { panic!() };
        let incarnation = world.session.incarnation();
        world.observe(Fact::SandboxFrozen { incarnation, asked });
    }
    type Way = (fn(&mut World), fn(Sandbox) -> bool);
    let ways: [Way; 5] = [
        (freeze, |is| matches!(is, Sandbox::Freezing { .. })),
        (frozen, |is| matches!(is, Sandbox::Frozen { .. })),
        (|world| world.ask(Ask::Stop).unwrap(), |is| matches!(is, Sandbox::Stopping { .. })),
        (|world| world.die(Death::Killed(9)), |is| matches!(is, Sandbox::None)),
        (|world| world.die(Death::Lost), |is| matches!(is, Sandbox::Starting { .. })),
    ];
    for (go, is_so) in ways {
        let mut world = busy();
        let _asked = world.end_turn();
        world.report(ReportBody::Begun);
        go(&mut world);
        let sandbox = world.session.sandbox();
        assert!(is_so(sandbox), "{sandbox:?}");
        assert!(world.session.persistence().is_capturing(Turn::new(1)), "{sandbox:?}");
        world.session.taken_over(world.now);
        assert_eq!(captures(&world.session.recover()), [] as [u64; 0], "{sandbox:?}");
        assert!(
            !world.session.persistence().is_settled(),
            "{sandbox:?}: what is there is captured"
        );
        world.crash();
        world.settle();
        let persistence = world.session.persistence();
        assert!(persistence.last().is_some_and(|last| last.turn >= Turn::new(2)), "{sandbox:?}");
        assert!(world.snapshots.iter().all(|snapshot| snapshot.turn >= Turn::new(2)));
    }
}

#[test]
fn what_the_last_turn_left_is_captured_by_who_takes_over() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.settle();
    world.report(ReportBody::Begun);
    let incarnation = world.session.incarnation();
    let run = world.session.current_run().map(|run| run.id);
    let how = AgentEnding::Completed(Completion::EndTurn);
    let body = ReportBody::Ended { how, usage: Usage::default() };
    let position = world.session.spool().next();
    world.observe(reported(incarnation, position, Report { run, body }));
    assert!(world.session.persistence().is_capturing(Turn::new(1)));
    for stops in [false, true] {
        if stops {
            world.ask(Ask::Stop).unwrap();
        }
        world.session.taken_over(world.now);
        assert!(world.session.persistence().is_capturing(Turn::new(1)), "nothing has changed");
    }
}

#[test]
fn what_is_as_it_was_before_one_that_is_on_its_way_is_captured_all_the_same() {
    let mut world = busy();
    let number = world.end_turn()[0];
    world.observe(Fact::Persisted { number, outcome: captured(number) });
    let like = |effects: &[Effect]| {
        effects.iter().find_map(|effect| {
            let Effect::Persist { unless_like, .. } = effect else { return None };
            Some(unless_like.is_some())
        })
    };
    // In the middle of a turn, twice: the second one is not held against what was before the first.
    for is_first in [true, false] {
        world.session.capture_turn(
            &Context { now: world.now, policy: &world.policy },
            &mut Decision::default(),
        );
        let is_like = like(&world.session.recover());
        assert!(is_first || is_like == Some(false), "{is_like:?}");
    }
}

#[test]
fn a_failure_before_keeps_no_turn_from_its_capture() {
    let mut world = busy();
    let number = world.end_turn()[0];
    world.observe(Fact::Persisted { number, outcome: failed_capture() });
    let asked: Vec<u64> = (0..2).flat_map(|_| world.end_turn()).collect();
    assert_eq!(asked.len(), 2);
}

#[test]
fn those_that_nobody_hears_of_are_given_up() {
    let mut world = busy();
    let _asked: Vec<u64> = (0..3).flat_map(|_| world.end_turn()).collect();
    let due = world.session.capture_deadline(&world.policy).unwrap();
    assert_eq!(due, world.now.plus(world.policy.persist_timeout));
    world.now = due;
    world.observe(Fact::TimePassed);
    assert!(world.session.persistence().failed().is_some());
    assert!(!world.session.persistence().is_under_way());
}

#[test]
fn a_clock_that_is_set_back_leaves_no_earlier_one_without_a_later() {
    let mut world = busy();
    let before = world.now;
    world.now = before.plus(world.policy.persist_timeout * 4);
    let _earlier = world.end_turn();
    world.now = before;
    let _last = world.end_turn();
    world.now = world.session.capture_deadline(&world.policy).unwrap();
    world.observe(Fact::TimePassed);
    assert!(world.session.persistence().failed().is_some());
    assert!(!world.session.persistence().is_under_way());
}

#[test]
fn what_was_done_from_outside_is_captured_before_the_next_turn_begins() {
    let mut world = World::settled();
    world.ask(Ask::Use).unwrap();
    assert!(!world.session.persistence().is_under_way(), "it may go on");
    world.ask(PROMPT).unwrap();
    assert!(world.session.current_run().is_some());
    assert!(world.session.persistence().is_capturing(Turn::ZERO), "it is of the time before");
    let place = |wanted: fn(&Effect) -> bool| world.owed.iter().position(wanted).unwrap();
    let captured_at = place(|effect| matches!(effect, Effect::Persist { .. }));
    assert!(captured_at < place(|effect| matches!(effect, Effect::Deliver { .. })));
}
