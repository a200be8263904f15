//! What was lost of a session's files, until its agent knows.

use super::super::{AgentEnding, Effect, Session};
use super::PROMPT;
use super::resume::KEPT;
use super::world::{Ask, World};
use crate::resume::{FilesLost, Found, FromSnapshot, Native, Source, Workspace};
use crate::run::Completion;

const FRESH: Found = Found { workspace: Workspace::Fresh, source: Source::Fresh, ..KEPT };

fn to_be_told(session: &Session) -> Option<FilesLost> {
    let owed = session.recover();
    let lost = owed.iter().find_map(|effect| {
        let Effect::StartSandbox { lost, .. } = effect else { return None };
        Some(*lost)
    });
    lost.expect("a start is owed")
}

impl World {
    /// Stops, and comes back to what is found. Returns what the start was to tell beside that.
    fn stopped_and_found(&mut self, found: Found) -> Option<FilesLost> {
        self.ask(Ask::Stop).unwrap();
        self.settle();
        self.found = Some(found);
        self.ask(Ask::Resume).unwrap();
        let told = to_be_told(&self.session);
        self.settle();
        self.found = Some(KEPT);
        told
    }

    fn capture_everything(&mut self) {
        while !self.session.persistence().is_settled() {
            self.now = self.now.plus(self.policy.persist_debounce);
            self.observe(super::Fact::TimePassed);
            self.settle();
        }
    }
}

#[test]
fn every_start_tells_of_it_until_a_run_has_completed() {
    let mut world = World::settled();
    world.complete_a_turn();
    assert_eq!(world.stopped_and_found(FRESH), None);
    for _ in 0..2 {
        assert_eq!(world.stopped_and_found(KEPT), Some(FilesLost::All));
    }
    // One that fails may have heard nothing of it.
    world.ask(PROMPT).unwrap();
    world.settle();
    world.finish(AgentEnding::Failed { message: "no model".to_owned() });
    assert_eq!(world.stopped_and_found(KEPT), Some(FilesLost::All));
    // What is lost later is not as much, and takes nothing of that back.
    let from = world.session.persistence().last().map(FromSnapshot::of).unwrap();
    let snapshot = Some(FromSnapshot { outdated: true, ..from });
    world.stopped_and_found(Found { workspace: Workspace::Restored, snapshot, ..KEPT });
    assert_eq!(world.session.lost_files(), Some(FilesLost::All));
    world.ask(PROMPT).unwrap();
    world.settle();
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    assert_eq!(world.stopped_and_found(KEPT), None);
}

#[test]
fn what_is_captured_after_it_is_not_what_the_turn_left() {
    let mut world = World::settled();
    world.complete_a_turn();
    world.capture_everything();
    let turn = world.session.lineage().head();
    world.stopped_and_found(FRESH);
    world.capture_everything();
    let marked = world.snapshots.last().unwrap().clone();
    assert_eq!(
        (marked.turn, marked.lost),
        (turn, Some(FilesLost::All)),
        "what is there is captured"
    );
    assert!(!marked.is_of_end_of(turn), "and is not what the turn left");

    // Whoever begins there is told; whoever goes back behind it has nothing to be told.
    let good = world.snapshots.iter().find(|snapshot| snapshot.is_of_end_of(turn)).unwrap().clone();
    for (to, lost) in [(good, None), (marked, Some(FilesLost::All))] {
        world.rewound_to(&to);
        assert_eq!(world.session.lost_files(), lost);
    }
    // The next turn has what it left.
    world.complete_a_turn();
    world.capture_everything();
    assert_eq!(world.snapshots.last().unwrap().lost, None);
    assert!(world.snapshots.last().unwrap().is_of_end_of(world.session.lineage().head()));
}

#[test]
fn a_sandbox_that_goes_on_had_nothing_made_anew() {
    let mut world = World::settled();
    world.complete_a_turn();
    world.stopped_and_found(Found { native: Native::Rebuilt, turns: 1, ..KEPT });
    assert_eq!(world.receipt().conversation.native, Native::Rebuilt);
    world.ask(Ask::Pause(0)).unwrap();
    world.settle();
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.receipt().conversation.native, Native::Intact);
}
