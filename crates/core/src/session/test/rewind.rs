//! Going back to an earlier turn, and what may come in between.

use proptest::prelude::*;

use super::super::{AgentEnding, Effect, Fact, Request, Sandbox, Session, State};
use super::PROMPT;
use super::host::failed_capture;
use super::world::{Ask, Work, World, steps};
use crate::entry::Entry;
use crate::number::Turn;
use crate::refusal::Refusal;
use crate::run::Completion;
use crate::snapshot::{PersistOutcome, PutBackOutcome, Snapshot};

const DONE: AgentEnding = AgentEnding::Completed(Completion::EndTurn);

/// A session after so many turns, each of which was captured.
fn after_turns(turns: u32) -> World {
    let mut world = World::settled();
    for _ in 0..turns {
        world.ask(PROMPT).unwrap();
        world.settle();
        world.finish(DONE);
        world.settle();
        world.settle_captures();
    }
    world
}

impl World {
    /// Does all that is owed, however often captures fail.
    fn settle_captures(&mut self) {
        self.settle();
        while !self.session.persistence().is_settled() {
            self.wait_for_deadline();
            self.settle();
        }
    }

    fn snapshot_of(&self, turn: u32) -> Snapshot {
        let of_turn = |snapshot: &&Snapshot| snapshot.turn == Turn::new(turn);
        self.snapshots.iter().rfind(of_turn).cloned().unwrap()
    }

    /// Does all that is owed, and waits for what is tried again, until the session does not go back any more.
    fn settle_rewind(&mut self) {
        for _ in 0..20 {
            self.settle();
            if self.session.rewinding().is_none() {
                return;
            }
            self.wait_for_deadline();
        }
        panic!("it goes back for ever: {:?}", self.session);
    }

    /// Goes back and comes back again, however often the host fails.
    fn rewound(&mut self, turn: u32) {
        let to = self.snapshot_of(turn);
        for _ in 0..5 {
            self.request(Request::Rewind { to: Box::new(to.clone()) }).unwrap();
            self.settle_rewind();
            if self.session.persistence().last() == Some(&to) {
                return;
            }
        }
        panic!("it never went back: {:?}", self.session);
    }
}

#[test]
fn a_rewind_puts_the_conversation_where_the_snapshot_was_and_keeps_the_rest() {
    let mut world = after_turns(3);
    world.rewound(1);
    let (lineage, first) = (world.session.lineage(), world.snapshot_of(1));
    assert_eq!((lineage.head(), lineage.last(), lineage.turns()), (Turn::new(1), Turn::new(3), 1));
    let said =
        Entry::Rewound { from: Turn::new(3), to: Turn::new(1), snapshot: Some(first.captured.id) };
    assert_eq!(world.log.last(), Some(&said));
    assert!(matches!(world.session.state(), State::Paused { reason, .. } if reason.is_system()));
    world.ask(PROMPT).unwrap();
    world.settle();
    let started = |entry: &&Entry| matches!(entry, Entry::RunStarted { .. });
    let Some(Entry::RunStarted { turn, parent_turn, .. }) = world.log.iter().rfind(started) else {
        panic!("{:?}", world.session);
    };
    assert_eq!((*turn, *parent_turn), (Turn::new(4), Turn::new(1)));
}

#[test]
fn a_rewind_can_be_rewound() {
    let mut world = after_turns(3);
    world.rewound(1);
    world.rewound(3);
    assert_eq!(world.session.lineage().turns(), 3);
    world.rewound(2);
    assert_eq!(world.session.lineage().turns(), 2);
}

#[test]
fn what_is_there_is_captured_before_anything_is_put_back() {
    let mut world = after_turns(2);
    let to = world.snapshot_of(1);
    world.request(Request::Rewind { to: Box::new(to) }).unwrap();
    let effects = |session: &Session| session.recover();
    assert!(matches!(effects(&world.session)[..], [Effect::StopSandbox { .. }]));
    let incarnation = world.session.incarnation();
    let death = crate::failure::Death::Stopped;
    world.observe(Fact::SandboxGone { incarnation, death });
    let owed = effects(&world.session);
    let [Effect::Persist { number, .. }] = owed[..] else { panic!("{owed:?}") };
    // If that fails, nothing has changed.
    let mut other = world.clone();
    other.observe(Fact::Persisted { number, outcome: failed_capture() });
    assert_eq!((other.session.rewinding(), other.session.lineage().turns()), (None, 2));
    world.observe(Fact::Persisted { number, outcome: PersistOutcome::Unchanged });
    let owed = effects(&world.session);
    let [Effect::PutBack { number, .. }] = owed[..] else { panic!("{owed:?}") };
    assert_eq!(world.session.lineage().turns(), 2, "not before the files are back");
    world.observe(Fact::PutBack { number, outcome: PutBackOutcome::Done });
    assert_eq!(world.session.lineage().turns(), 1);
    assert!(world.session.is_at_rest());
}

#[test]
fn a_snapshot_that_is_lost_leaves_everything_as_it_was() {
    let mut world = after_turns(2);
    world.ask(Ask::Stop).unwrap();
    world.settle_captures();
    let (last, to) = (world.session.persistence().last().cloned(), world.snapshot_of(1));
    world.request(Request::Rewind { to: Box::new(to) }).unwrap();
    let owed = world.session.recover();
    let [Effect::PutBack { number, .. }] = owed[..] else { panic!("{owed:?}") };
    world.observe(Fact::PutBack { number, outcome: PutBackOutcome::Lost });
    assert_eq!(world.session.persistence().last(), last.as_ref());
    assert_eq!((world.session.rewinding(), world.session.lineage().turns()), (None, 2));
    assert_eq!(*world.session.state(), State::Stopped);
}

#[test]
fn nothing_is_started_and_no_other_rewind_begun_while_it_goes_back() {
    let mut world = after_turns(2);
    let to = world.snapshot_of(1);
    world.request(Request::Rewind { to: Box::new(to.clone()) }).unwrap();
    assert_eq!(world.ask(Ask::Resume), Err(Refusal::BeingRewound));
    assert_eq!(world.ask(PROMPT), Err(Refusal::BeingRewound));
    assert_eq!(world.request(Request::Rewind { to: Box::new(to) }), Err(Refusal::BeingRewound));
    world.ask(Ask::End).unwrap();
    assert_eq!(world.session.rewinding(), None);
}

#[test]
fn a_rewind_needs_a_session_that_does_nothing_and_a_turn_that_was() {
    let mut world = after_turns(1);
    assert_eq!(world.ask(Ask::Rewind(99)), Err(Refusal::NoSuchTurn));
    world.ask(PROMPT).unwrap();
    assert_eq!(world.ask(Ask::Rewind(0)), Err(Refusal::RunInProgress));
    world.settle();
    world.work(Work::Begin);
    world.ask(Ask::Pause(0)).unwrap();
    world.settle();
    assert_eq!(world.ask(Ask::Rewind(0)), Err(Refusal::RunInProgress), "it is frozen in mid-turn");
    world.ask(Ask::End).unwrap();
    assert_eq!(world.ask(Ask::Rewind(0)), Err(Refusal::Ended));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whatever happens around it, a rewind ends, and the session is then at one point of its history or another:
    /// its last snapshot, its branch and its log say the same.
    #[test]
    fn a_rewind_ends_in_one_state_or_the_other(before in steps(), which in 0u32..6, after in steps()) {
        let mut world = World::new();
        before.iter().for_each(|step| world.step(step));
        let to = world.snapshot_to(which);
        if world.request(Request::Rewind { to: Box::new(to) }).is_err() {
            return Ok(());
        }
        let at = world.log.len();
        for step in &after {
            if world.session.rewinding().is_none() {
                break;
            }
            world.step(step);
        }
        let mut at_rest = world.clone();
        at_rest.settle_rewind();
        let is_rewind = |entry: &Entry| matches!(entry, Entry::Rewound { .. });
        let rewound = at_rest.log[at..].iter().any(is_rewind);
        if rewound {
            let last = at_rest.session.persistence().last().map(|last| last.turn);
            prop_assert_eq!(last, Some(at_rest.session.lineage().head()));
        }
        let left = matches!(at_rest.session.sandbox(), Sandbox::None | Sandbox::Stopping { .. });
        prop_assert!(left, "{:?}", at_rest.session);
        // An owner that dies in the middle gets there too.
        world.crash();
        world.settle_rewind();
    }
}
