//! Attempts to take more than one's share.

use ash_sandbox::{Limits, Tier};

use crate::support::{Place, Room, can_be_full, end_of, tiers, until};

const MEBIBYTE: u64 = 1 << 20;

/// A sandbox with a cgroup, run to its end: how it ended, what it printed, and who was killed.
fn run_bounded(limits: Limits, args: &[&str]) -> Option<(String, String, u64, u64)> {
    if !can_be_full() {
        return None;
    }
    let place = Place::new();
    let cgroup = place.cgroup("bomb", &limits)?;
    let mut room = Room::new(Tier::Full);
    room.limits = limits;
    let launched = room.start(Some(&cgroup), args).unwrap();
    let ended = format!("{:?}", end_of(&launched));
    let refused = cgroup.stats().refused_forks.unwrap_or_default();
    Some((ended, room.output(), cgroup.oom_kills().unwrap_or_default(), refused))
}

fn small() -> Limits {
    Limits { memory_bytes: Some(64 * MEBIBYTE), pids: Some(64), ..Limits::default() }
}

#[test]
fn a_fork_bomb_is_refused_and_counted() {
    let limits = Limits { pids: Some(32), ..small() };
    let Some((ended, output, _, refused)) = run_bounded(limits, &["fork"]) else { return };
    let (forked, error) = output.split_once(' ').unwrap_or_else(|| panic!("{ended} {output:?}"));
    let forked: u32 = forked.parse().unwrap();
    assert!((1..32).contains(&forked), "{output}");
    assert!(error.contains("temporarily unavailable"), "{output}");
    assert_eq!(ended, "Exited(0)");
    assert!(refused > 0);
}

#[test]
fn a_fork_bomb_is_refused_without_a_cgroup_too() {
    for tier in tiers() {
        let mut room = Room::new(tier);
        room.limits.pids = Some(32);
        let outcome = room.run(&["fork"]);
        let forked = outcome.output.split(' ').next().unwrap().parse::<u32>();
        assert!(forked.is_ok_and(|forked| (1..32).contains(&forked)), "{outcome:?}");
    }
}

#[test]
fn a_memory_bomb_dies_and_is_counted() {
    let Some((ended, output, oom_kills, _)) = run_bounded(small(), &["memory", "200"]) else {
        return;
    };
    assert_eq!((ended.as_str(), output.as_str()), ("Killed(9)", ""));
    assert_eq!(oom_kills, 1);
}

#[test]
fn a_memory_bomb_below_dies_alone_and_is_counted() {
    let Some((ended, output, oom_kills, _)) = run_bounded(small(), &["grandchild", "200"]) else {
        return;
    };
    assert_eq!(ended, "Exited(0)", "{output}");
    assert!(output.contains("child 137") && output.contains("survived"), "{output}");
    assert_eq!(oom_kills, 1);
}

#[test]
fn a_memory_bomb_dies_without_a_cgroup_too() {
    for tier in tiers() {
        let mut room = Room::new(tier);
        room.limits.memory_bytes = Some(64 * MEBIBYTE);
        let outcome = room.run(&["grandchild", "200"]);
        let output = &outcome.output;
        assert!(output.contains("survived") && !output.contains("touched"), "{outcome:?}");
    }
}

#[test]
fn what_is_in_memory_as_files_is_bounded() {
    for tier in tiers() {
        for (path, expected) in [("/tmp/fill", 8), ("/dev/shm/fill", 4)] {
            let mut room = Room::new(tier);
            room.limits.tmp_bytes = 8 * MEBIBYTE;
            room.limits.shm_bytes = 4 * MEBIBYTE;
            let outcome = room.run(&["fill", path]);
            let (written, error) = outcome.output.split_once(' ').unwrap();
            assert_eq!(written.parse::<u64>().unwrap(), expected, "{path} {outcome:?}");
            assert!(error.contains("No space left"), "{outcome:?}");
        }
    }
}

#[test]
fn files_without_bytes_are_bounded_too() {
    for tier in tiers() {
        let mut room = Room::new(tier);
        room.limits.tmp_bytes = MEBIBYTE;
        let script = "cd /tmp; i=0; while [ $i -lt 5000 ] && touch $i 2>/dev/null; do i=$((i+1)); done; \
            echo $i";
        let outcome = room.run(&["shell", script]);
        let made: u64 = outcome.output.trim().parse().unwrap_or_else(|_| panic!("{outcome:?}"));
        assert!(made < 1000, "{made}");
    }
}

#[test]
fn files_in_memory_count_as_memory() {
    let limits = Limits { tmp_bytes: 512 * MEBIBYTE, ..small() };
    let Some((ended, output, oom_kills, _)) = run_bounded(limits, &["fill", "/tmp/fill"]) else {
        return;
    };
    assert_eq!(ended, "Killed(9)", "{output}");
    assert!(oom_kills > 0);
}

#[test]
fn a_hog_of_the_processor_is_held_back() {
    if !can_be_full() {
        return;
    }
    let limits = Limits { cpu_percent: Some(10), ..small() };
    let place = Place::new();
    let Some(cgroup) = place.cgroup("hog", &limits) else { return };
    let room = Room::new(Tier::Full);
    let launched = room.start(Some(&cgroup), &["shell", "while :; do :; done"]).unwrap();
    until("the hog is held back", || cgroup.stats().throttled_micros.unwrap_or_default() > 100_000);
    cgroup.kill().unwrap();
    assert_eq!(format!("{:?}", end_of(&launched)), "Killed(9)");
}
