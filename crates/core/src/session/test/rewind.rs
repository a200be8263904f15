//! Going back to an earlier turn, and what may come in between.

use proptest::prelude::*;

use super::super::{AgentEnding, Effect, Fact, FilesPlace, Request, Sandbox, Session, State};
use super::PROMPT;
use super::host::{captured, failed_capture};
use super::world::{Ask, Work, World, steps};
use crate::entry::Entry;
use crate::number::Turn;
use crate::pool::{Kind, Place};
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
        self.rewound_to(&self.snapshot_of(turn));
    }

    pub(super) fn rewound_to(&mut self, to: &Snapshot) {
        let rewound = |log: &[Entry]| {
            log.iter().filter(|entry| matches!(entry, Entry::Rewound { .. })).count()
        };
        let before = rewound(&self.log);
        for _ in 0..5 {
            self.request(Request::Rewind { to: Box::new(to.clone()) }).unwrap();
            self.settle_rewind();
            // What it comes back to may differ from it, and is captured then.
            if rewound(&self.log) > before {
                return;
            }
        }
        panic!("it never went back: {:?}", self.session);
    }
}

#[test]
fn a_rewind_puts_the_conversation_where_the_snapshot_was_and_keeps_the_rest() {
    let mut world = after_turns(3);
    let first = world.snapshot_of(1);
    world.rewound(1);
    let lineage = world.session.lineage();
    assert_eq!((lineage.head(), lineage.last(), lineage.turns()), (Turn::new(1), Turn::new(3), 1));
    let said = Entry::Rewound {
        from: Turn::new(3),
        to: Turn::new(1),
        snapshot: Some(first.captured.id),
        through: None,
    };
    let at = world.log.iter().position(|entry| *entry == said).unwrap();
    assert_eq!(world.session.branched_at().get(), at as u64 + 1);
    assert_eq!(*world.session.state(), State::Active, "it was active");
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
    other.settle();
    assert_eq!(*other.session.state(), State::Active, "as it was");
    world.observe(Fact::Persisted { number, outcome: PersistOutcome::Unchanged });
    let owed = effects(&world.session);
    let [Effect::PutBack { number, .. }] = owed[..] else { panic!("{owed:?}") };
    assert_eq!(world.session.lineage().turns(), 2, "not before the files are back");
    world.observe(Fact::PutBack { number, outcome: PutBackOutcome::Done });
    assert_eq!(world.session.lineage().turns(), 1);
    assert!(matches!(world.session.state(), State::Starting { .. }), "in the same decision");
}

/// Has a rewind of a session with two turns come to its files, which are being put back.
fn putting_back() -> (World, u64) {
    let mut world = after_turns(2);
    let to = world.snapshot_of(1);
    world.request(Request::Rewind { to: Box::new(to) }).unwrap();
    let incarnation = world.session.incarnation();
    world.live.clear();
    world.observe(Fact::SandboxGone { incarnation, death: crate::failure::Death::Stopped });
    let owed = world.session.recover();
    let [Effect::Persist { number, .. }] = owed[..] else { panic!("{owed:?}") };
    world.observe(Fact::Persisted { number, outcome: PersistOutcome::Unchanged });
    let owed = world.session.recover();
    let [Effect::PutBack { number, .. }] = owed[..] else { panic!("{owed:?}") };
    (world, number)
}

#[test]
fn a_session_that_was_active_is_started_again_however_its_rewind_ends() {
    for outcome in [PutBackOutcome::Done, PutBackOutcome::Lost] {
        let (mut world, number) = putting_back();
        let place = Place::of(&world.session).map(|place| place.kind);
        assert_eq!(place, Some(Kind::Starting), "it keeps its place");
        world.crash();
        world.observe(Fact::PutBack { number, outcome });
        assert!(matches!(world.session.state(), State::Starting { .. }), "{outcome:?}");
        assert!(matches!(world.session.sandbox(), Sandbox::Starting { .. }));
    }
    // Unless its place was needed meanwhile.
    let (mut world, number) = putting_back();
    world.ask(Ask::Evict).unwrap();
    assert_eq!(Place::of(&world.session), None);
    world.observe(Fact::PutBack { number, outcome: PutBackOutcome::Done });
    assert!(matches!(world.session.state(), State::Paused { reason, .. } if reason.is_system()));
}

#[test]
fn files_that_are_back_later_than_was_waited_for_are_back() {
    let (mut world, number) = putting_back();
    world.now = world.now.plus(world.policy.persist_timeout);
    world.observe(Fact::TimePassed);
    let owed = world.session.recover();
    assert!(matches!(owed[..], [Effect::PutBack { number: again, .. }] if again == number + 1));
    world.observe(Fact::PutBack { number, outcome: PutBackOutcome::Failed });
    assert!(world.session.rewinding().is_some(), "another one goes on");
    world.observe(Fact::PutBack { number, outcome: PutBackOutcome::Done });
    assert_eq!((world.session.rewinding(), world.session.lineage().turns()), (None, 1));
}

#[test]
fn a_snapshot_that_is_found_lost_after_some_was_put_back_has_what_is_there_captured() {
    let (mut world, number) = putting_back();
    world.observe(Fact::PutBack { number, outcome: PutBackOutcome::Failed });
    world.wait_for_deadline();
    world.observe(Fact::PutBack { number: number + 1, outcome: PutBackOutcome::Lost });
    assert_eq!(world.session.rewinding(), None);
    assert!(!world.session.persistence().is_settled());
}

#[test]
fn files_that_were_away_are_in_place_after_a_rewind() {
    let mut world = after_turns(2);
    world.ask(Ask::Stop).unwrap();
    world.settle_captures();
    for _ in 0..5 {
        world.ask(Ask::PutAway).unwrap();
        world.settle();
        if world.session.keeping().files() == FilesPlace::Away {
            break;
        }
        world.wait_for_deadline();
        world.settle();
    }
    assert_eq!(world.session.keeping().files(), FilesPlace::Away);
    world.rewound(1);
    assert_eq!(world.session.keeping().files(), FilesPlace::InPlace);
}

/// A session whose second turn was captured in the middle, and then came to its end.
fn captured_in_the_middle() -> (World, Snapshot) {
    let mut world = after_turns(1);
    world.ask(PROMPT).unwrap();
    world.settle();
    world.work(Work::Begin);
    world.settle();
    world.ask(Ask::Pause(0)).unwrap();
    world.settle_captures();
    let middle = world.session.persistence().last().cloned().unwrap();
    assert_eq!((middle.turn, middle.through), (Turn::new(2), Some(middle.seq)));
    (world, middle)
}

#[test]
fn after_a_rewind_into_the_middle_of_a_turn_only_its_begin_is_known() {
    let (mut world, middle) = captured_in_the_middle();
    world.ask(Ask::Resume).unwrap();
    world.settle();
    world.work(Work::Talk);
    world.settle();
    world.finish(DONE);
    world.settle_captures();
    let whole = world.snapshot_of(2);
    assert_eq!(whole.through, None);
    world.rewound_to(&middle);
    assert_eq!(world.session.lineage().through(Turn::new(2)), Some(middle.seq));
    // What is captured now is of that, and not of the whole turn.
    world.ask(Ask::Touch).unwrap();
    world.wait_for_deadline();
    world.settle_captures();
    let changed = world.session.persistence().last().cloned().unwrap();
    assert_eq!((changed.turn, changed.through), (Turn::new(2), Some(middle.seq)));
    world.rewound_to(&whole);
    assert_eq!(world.session.lineage().through(Turn::new(2)), None);
    world.rewound_to(&changed);
    world.ask(PROMPT).unwrap();
    world.settle();
    assert_eq!(world.session.lineage().through(Turn::new(2)), Some(middle.seq));
}

#[test]
fn a_turn_that_is_cut_after_a_capture_in_its_middle_is_captured_once_more() {
    let (mut world, middle) = captured_in_the_middle();
    world.ask(Ask::Evict).unwrap();
    let incarnation = world.session.incarnation();
    world.live.clear();
    world.observe(Fact::SandboxGone { incarnation, death: crate::failure::Death::Stopped });
    let owed = world.session.recover();
    let [Effect::Persist { number, unless_like: None, .. }] = owed[..] else { panic!("{owed:?}") };
    world.observe(Fact::Persisted { number, outcome: captured(2_001) });
    let last = world.session.persistence().last().unwrap();
    assert_eq!((last.turn, last.through), (middle.turn, None));
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
            // What a start would put torn files right from is of this branch as well.
            let proven = at_rest.session.persistence().proven().map(|proven| proven.turn);
            prop_assert_eq!(proven, last);
        }
        // Nobody waits for anything, and no place is held for nothing.
        prop_assert!(at_rest.transit.is_empty(), "{:?}", at_rest.session);
        let holds = Place::of(&at_rest.session).is_some();
        prop_assert_eq!(holds, at_rest.session.sandbox() != Sandbox::None);
        // An owner that dies in the middle gets there too.
        world.crash();
        world.settle_rewind();
    }
}
