//! When the files of a session go, and when all of it does.

use std::time::Duration;

use super::super::{AwayOutcome, Fact, FilesPlace, Request, Sandbox, State};
use super::PROMPT;
use super::host::failed_capture;
use super::world::{Ask, World};

impl World {
    /// A world whose session is stopped, and captured.
    fn resting() -> Self {
        let mut world = Self::settled();
        world.ask(Ask::Stop).unwrap();
        world.settle();
        assert!(world.session.stored_by().is_some(), "{:?}", world.session);
        world
    }

    fn files(&self) -> FilesPlace {
        self.session.keeping().files()
    }

    /// Waits for so long, step by step, and does all that comes of it.
    fn let_pass(&mut self, duration: Duration) {
        let end = self.now.plus(duration);
        while let Some(next) = self.session.next_deadline(&self.policy).filter(|next| *next < end) {
            self.wait(next.since(self.now));
            self.settle();
        }
        self.wait(end.since(self.now));
        self.settle();
    }
}

#[test]
fn the_files_of_a_session_go_when_nobody_has_used_it_for_long_and_a_snapshot_has_them() {
    let mut world = World::resting();
    let ttl = world.policy.cold_ttl;
    world.wait(ttl - Duration::from_millis(1));
    assert_eq!(world.files(), FilesPlace::InPlace);
    world.wait(Duration::from_millis(1));
    assert!(matches!(world.files(), FilesPlace::Leaving { .. }) && !world.session.is_at_rest());
    world.settle();
    assert_eq!(world.files(), FilesPlace::Away);
    assert!(world.session.is_at_rest());
    assert_eq!(world.session.next_deadline(&world.policy), None, "nothing more is to come");
    let log = world.log.len();
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!((world.files(), world.session.state()), (FilesPlace::InPlace, &State::Active));
    assert!(world.log.len() > log);
}

#[test]
fn files_that_no_snapshot_has_stay() {
    let mut world = World::settled();
    world.ask(Ask::Stop).unwrap();
    let incarnation = world.session.incarnation();
    world.observe(Fact::SandboxGone { incarnation, death: crate::failure::Death::Stopped });
    world.observe(Fact::Persisted { number: 1, outcome: failed_capture() });
    assert_eq!(world.session.stored_by(), None);
    world.request(Request::PutAway).unwrap();
    assert_eq!(world.files(), FilesPlace::InPlace);
    // Nor do those of a session that is used.
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.settle();
    world.request(Request::PutAway).unwrap();
    assert_eq!(world.files(), FilesPlace::InPlace);
}

#[test]
fn whoever_wants_files_that_are_leaving_has_them() {
    for want in [Ask::Resume, Ask::Touch] {
        let mut world = World::resting();
        world.request(Request::PutAway).unwrap();
        assert!(matches!(world.files(), FilesPlace::Leaving { .. }));
        world.ask(want).unwrap();
        assert_eq!(world.files(), FilesPlace::InPlace);
        // What was under way may be done all the same, and is heard of too late.
        world.observe(Fact::PutAway { number: 1, outcome: AwayOutcome::Gone });
        assert_eq!(world.files(), FilesPlace::InPlace);
        world.settle();
    }
}

#[test]
fn files_that_could_not_be_removed_are_tried_again() {
    let mut world = World::resting();
    world.request(Request::PutAway).unwrap();
    world.observe(Fact::PutAway { number: 1, outcome: AwayOutcome::Stay });
    let FilesPlace::Stay { until } = world.files() else { panic!("{:?}", world.session) };
    assert!(world.session.is_at_rest());
    assert_eq!(world.session.next_deadline(&world.policy), Some(until));
    // Nobody hears of the second time: that is led out of by its deadline.
    world.wait_for_deadline();
    assert!(matches!(world.files(), FilesPlace::Leaving { .. }));
    world.wait_for_deadline();
    assert!(matches!(world.files(), FilesPlace::Stay { .. }));
}

#[test]
fn files_that_no_snapshot_has_as_they_are_are_captured() {
    let mut world = World::resting();
    world.request(Request::PutAway).unwrap();
    let before = world.snapshots.len();
    world.observe(Fact::PutAway { number: 1, outcome: AwayOutcome::Uncaptured });
    assert!(matches!(world.files(), FilesPlace::Stay { .. }));
    assert_eq!(world.session.stored_by(), None, "a capture is under way");
    world.settle();
    assert_eq!(world.snapshots.len(), before + 1);
    assert!(world.session.stored_by().is_some());
}

#[test]
fn a_removal_is_asked_for_again_by_the_next_owner() {
    let mut world = World::resting();
    world.request(Request::PutAway).unwrap();
    world.crash();
    world.settle();
    assert_eq!(world.files(), FilesPlace::Away);
}

#[test]
fn everything_goes_when_a_session_has_been_over_for_long_enough() {
    let mut world = World::settled();
    world.ask(Ask::End).unwrap();
    world.settle();
    assert_eq!(world.session.sandbox(), Sandbox::None);
    let retention = world.policy.retention;
    world.let_pass(retention - Duration::from_millis(1));
    assert_eq!((world.purges, world.files()), (0, FilesPlace::Away), "its files went before");
    world.let_pass(Duration::from_millis(2));
    assert_eq!(world.purges, 1);
    // Until it is gone, it is tried again and again: soon, and then less and less often.
    let mut waits = Vec::new();
    for tried in 2..12 {
        let before = world.now;
        world.wait_for_deadline();
        world.settle();
        assert_eq!(world.purges, tried);
        waits.push(world.now.since(before).as_secs());
    }
    assert!(waits[0] <= 10 && (waits[1], waits[9]) == (10, 600), "{waits:?}");
    assert!(waits.is_sorted(), "{waits:?}");
}

#[test]
fn a_session_that_is_not_over_is_kept() {
    let mut world = World::resting();
    world.let_pass(Duration::from_secs(365 * 24 * 60 * 60));
    assert_eq!((world.purges, world.files()), (0, FilesPlace::Away));
    world.ask(Ask::Resume).unwrap();
}
