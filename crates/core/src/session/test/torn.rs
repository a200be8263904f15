//! Snapshots of files that may be torn, and clocks that jump.

use std::time::Duration;

use super::super::{Effect, Fact, PauseReason, Status};
use super::host::captured;
use super::world::{Ask, World};
use crate::failure::Death;
use crate::resume::{Found, FromSnapshot, Native, Source, Workspace};
use crate::snapshot::{Captured, PersistOutcome};

fn unproven(number: u64) -> Captured {
    let PersistOutcome::Captured(captured) = captured(number) else { unreachable!() };
    Captured { unproven: true, ..captured }
}

fn start_of(world: &World) -> (Option<crate::id::SnapshotId>, Option<crate::id::SnapshotId>) {
    let effects = world.session.recover();
    let told = effects.iter().find_map(|effect| {
        let Effect::StartSandbox { snapshot, proven, .. } = effect else { return None };
        Some((snapshot, proven))
    });
    let (snapshot, proven) = told.expect("a start is owed");
    let (snapshot, proven) = (snapshot.as_ref(), proven.as_deref());
    (snapshot.map(|kept| kept.captured.id), proven.map(|kept| kept.captured.id))
}

#[test]
fn what_was_good_is_remembered_while_the_last_one_may_be_torn() {
    let mut world = World::settled();
    world.ask(Ask::Stop).unwrap();
    world.settle();
    let good = world.session.persistence().last().unwrap().captured.id;
    assert_eq!(world.session.persistence().proven().unwrap().captured.id, good);
    // The machine was restarted: a start captures what it finds, and puts it right.
    let as_found = unproven(900);
    let from = world.session.persistence().last().map(FromSnapshot::of).unwrap();
    let from = FromSnapshot { unverified: 1, ..from };
    world.found = Some(Found {
        workspace: Workspace::Repaired,
        source: Source::Local,
        snapshot: Some(from),
        unverified: 0,
        files: 3,
        bytes: 3,
        native: Native::None,
        turns: 0,
        as_found: Some(as_found),
    });
    world.ask(Ask::Resume).unwrap();
    assert_eq!(start_of(&world), (Some(good), Some(good)));
    world.settle();
    let kept = |id| world.snapshots.iter().filter(|kept| kept.captured.id == id).count();
    assert_eq!(kept(as_found.id), 1, "it is a snapshot as any other");
    let last = world.session.persistence().last().unwrap().captured;
    assert!(!last.unproven, "what was put right is captured at once");

    // It is told again by a later start, and is no other one.
    world.ask(Ask::Stop).unwrap();
    world.settle();
    let last = world.session.persistence().last().unwrap().captured.id;
    world.found = world.found.map(|found| Found { workspace: Workspace::Kept, ..found });
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.snapshots.iter().filter(|kept| kept.captured.id == as_found.id).count(), 1);
    assert_eq!(world.session.persistence().last().unwrap().captured.id, last);
}

#[test]
fn what_was_put_right_when_it_was_captured_is_the_last_one_and_good() {
    let mut world = World::settled();
    world.settle();
    let good = world.session.persistence().last().map(|last| last.captured.id);
    world.ask(Ask::Touch).unwrap();
    world.wait_for_deadline();
    let owed = world.session.recover();
    let asked = owed.iter().find_map(|effect| {
        let Effect::Persist { number, proven, .. } = effect else { return None };
        Some((*number, proven.as_deref().map(|proven| proven.captured.id)))
    });
    let (number, proven) = asked.expect("a capture is owed");
    assert_eq!(proven, good, "that is what it is held against");
    let as_found = unproven(911);
    let PersistOutcome::Captured(captured) = captured(912) else { unreachable!() };
    let before = world.snapshots.len();
    world.observe(Fact::Persisted {
        number,
        outcome: PersistOutcome::PutRight { as_found, captured },
    });
    let made: Vec<_> = world.snapshots[before..].iter().map(|made| made.captured).collect();
    assert_eq!(made, [as_found, captured]);
    let persistence = world.session.persistence();
    assert_eq!(persistence.last().unwrap().captured, captured);
    assert_eq!(persistence.proven().unwrap().captured, captured);
    // The start that tells of it tells of no other one.
    world.ask(Ask::Stop).unwrap();
    world.settle();
    let found =
        Found { workspace: Workspace::Repaired, as_found: Some(as_found), ..Found::NOTHING };
    world.found = Some(found);
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.snapshots.iter().filter(|kept| kept.captured.id == as_found.id).count(), 1);
}

#[test]
fn what_a_start_and_a_capture_both_found_is_one_snapshot() {
    let mut world = World::settled();
    world.ask(Ask::Stop).unwrap();
    world.settle();
    world.ask(Ask::Touch).unwrap();
    world.wait_for_deadline();
    let owed = world.session.recover();
    let asked = owed.iter().find_map(|effect| {
        let Effect::Persist { number, .. } = effect else { return None };
        Some(*number)
    });
    let number = asked.expect("a capture is owed");
    // It puts the files right; before it has stored them, a start is told what was found, and tells it first.
    let as_found = unproven(921);
    let PersistOutcome::Captured(captured) = captured(922) else { unreachable!() };
    world.ask(Ask::Resume).unwrap();
    let incarnation = world.session.incarnation();
    let found =
        Found { workspace: Workspace::Repaired, as_found: Some(as_found), ..Found::NOTHING };
    world.observe(Fact::SandboxStarted { incarnation, found });
    let outcome = PersistOutcome::PutRight { as_found, captured };
    world.observe(Fact::Persisted { number, outcome });
    let times = |id| world.snapshots.iter().filter(|kept| kept.captured.id == id).count();
    assert_eq!((times(as_found.id), times(captured.id)), (1, 1));
    assert_eq!(world.session.persistence().last().unwrap().captured, captured);
}

#[test]
fn one_torn_capture_after_another_does_not_make_any_of_them_good() {
    let mut world = World::settled();
    world.settle();
    let good = world.session.persistence().last().map(|last| last.captured.id);
    for number in [901, 902] {
        world.ask(Ask::Touch).unwrap();
        world.wait_for_deadline();
        let owed = world.session.recover();
        let asked = owed.iter().find_map(|effect| {
            let Effect::Persist { number, .. } = effect else { return None };
            Some(*number)
        });
        let outcome = PersistOutcome::Captured(unproven(number));
        world.observe(Fact::Persisted { number: asked.expect("a capture is owed"), outcome });
        let persistence = world.session.persistence();
        assert_eq!(persistence.last().unwrap().captured.id, unproven(number).id);
        assert_eq!(persistence.proven().map(|proven| proven.captured.id), good);
    }
}

#[test]
fn a_clock_that_jumps_leaves_no_state_without_a_way_out() {
    for (ahead, back) in [(0, 3_600 * 24 * 400), (3_600 * 24 * 400, 0_i64)] {
        let mut world = World::settled();
        for ask in [Ask::Pause(0), Ask::Resume, Ask::Stop, Ask::Resume] {
            let _refused_if_late = world.ask(ask);
            let jumped = world.now.plus(Duration::from_secs(ahead));
            let millis = jumped.as_millis() - back * 1_000;
            world.now = crate::time::Timestamp::from_millis(millis);
            for _ in 0..5 {
                world.observe(Fact::TimePassed);
                world.settle();
            }
            let next = world.session.next_deadline(&world.policy);
            assert!(next.is_none_or(|at| at > world.now), "{next:?}: {:?}", world.session);
        }
        if world.session.status() != Status::Active {
            world.ask(Ask::Resume).unwrap();
            world.settle();
        }
        assert_eq!(world.session.status(), Status::Active);
        let receipt = world.receipt();
        assert!(receipt.duration_micros < u64::MAX / 2, "{receipt:?}");
        world.die(Death::Lost);
        world.settle();
        let paused = world.log.iter().any(|entry| {
            matches!(
                entry,
                crate::entry::Entry::SessionPaused { reason: PauseReason::ServerRestart }
            )
        });
        assert!(paused);
    }
}
