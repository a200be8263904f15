//! Freezing, thawing and killing, with the cgroups of both kinds.

use std::fs;

use ash_sandbox::{Cgroup, Launched, Limits, Tier};

use crate::support::{Place, Room, can_be_full, end_of, until};

/// Forks all the time, in many places, and leaves a mark each time.
const FORKING: &str = "for i in 1 2 3 4 5 6; do \
    (while :; do sleep 0.002; echo . >> /workspace/marks; done) & done; \
    while :; do sh -c 'sleep 0.001'; done";

/// Does all it can to live on.
const STUBBORN: &str = "trap '' TERM HUP INT QUIT; \
    (trap '' TERM HUP; setsid sh -c 'trap \"\" TERM HUP; (while :; do sleep 0.01; done) & while :; do sleep 0.01; done' &); \
    echo ready; while :; do sleep 0.01; done";

/// Every way in which this machine can hold cgroups, named.
fn places() -> Vec<(&'static str, Place)> {
    if !can_be_full() {
        return Vec::new();
    }
    let all = [
        ("as the machine has them", Place::new()),
        ("the first kind alone", Place::among(|line| line.contains(" - cgroup "))),
        ("the second kind alone", Place::among(|line| line.contains(" - cgroup2 "))),
    ];
    all.into_iter()
        .filter(|(name, place)| {
            let can = place.cgroups.abilities().freeze;
            println!("{}: {name}", if can { "tried" } else { "not tried" });
            can
        })
        .collect()
}

fn start(room: &Room, place: &Place, script: &str) -> (Cgroup, Launched) {
    let cgroup = place.cgroups.create("one", &Limits::default()).unwrap().unwrap();
    let launched = room.start(Some(&cgroup), &["shell", script]).unwrap();
    (cgroup, launched)
}

fn marks(room: &Room) -> u64 {
    fs::metadata(room.workspace().join("marks")).map_or(0, |found| found.len())
}

#[test]
fn a_forking_tree_is_frozen_and_goes_on() {
    for (name, place) in places() {
        let room = Room::new(Tier::Full);
        let (cgroup, launched) = start(&room, &place, FORKING);
        for _ in 0..10 {
            let before = marks(&room);
            until("the tree works", || marks(&room) > before);
            cgroup.freeze().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(cgroup.is_frozen().unwrap(), "{name}");
            let frozen = (marks(&room), cgroup.processes().unwrap());
            std::thread::yield_now();
            assert_eq!((marks(&room), cgroup.processes().unwrap()), frozen, "{name}");
            cgroup.thaw().unwrap();
        }
        cgroup.kill().unwrap();
        assert_eq!(format!("{:?}", end_of(&launched)), "Killed(9)", "{name}");
    }
}

#[test]
fn a_frozen_tree_is_killed() {
    for (name, place) in places() {
        let room = Room::new(Tier::Full);
        let (cgroup, launched) = start(&room, &place, FORKING);
        until("the tree works", || marks(&room) > 0);
        cgroup.freeze().unwrap();
        cgroup.kill().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(cgroup.processes().unwrap().is_empty());
        assert_eq!(format!("{:?}", end_of(&launched)), "Killed(9)", "{name}");
    }
}

#[test]
fn nothing_outlives_a_kill() {
    for (name, place) in places() {
        let room = Room::new(Tier::Full);
        let (cgroup, launched) = start(&room, &place, STUBBORN);
        until("the tree is ready", || room.output().contains("ready"));
        until("the tree has branched", || cgroup.processes().unwrap().len() > 4);
        cgroup.kill().unwrap();
        assert!(cgroup.processes().unwrap().is_empty(), "{name}");
        assert_eq!(format!("{:?}", end_of(&launched)), "Killed(9)", "{name}");
        cgroup.remove().unwrap();
        assert_eq!(place.cgroups.list().unwrap(), Vec::<String>::new());
        assert!(place.cgroups.open("one").unwrap().is_none());
    }
}

#[test]
fn the_death_of_pid_1_is_the_death_of_all() {
    for (name, place) in places() {
        let room = Room::new(Tier::Full);
        let (cgroup, launched) = start(&room, &place, STUBBORN);
        until("the tree is ready", || room.output().contains("ready"));
        rustix::process::pidfd_send_signal(&launched.pidfd, rustix::process::Signal::KILL).unwrap();
        assert_eq!(format!("{:?}", end_of(&launched)), "Killed(9)", "{name}");
        assert!(cgroup.processes().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn every_process_of_a_sandbox_is_in_its_cgroup() {
    for (name, place) in places() {
        let room = Room::new(Tier::Full);
        let (cgroup, launched) = start(&room, &place, STUBBORN);
        until("the tree is ready", || room.output().contains("ready"));
        assert!(cgroup.processes().unwrap().contains(&launched.pid), "{name}");
        assert_eq!(place.cgroups.list().unwrap(), ["one"]);
        let found = place.cgroups.open("one").unwrap().unwrap();
        assert!(found.processes().unwrap().len() > 1, "{name}");
        found.kill().unwrap();
        end_of(&launched);
    }
}

/// Whether this user decides whom the kernel kills last. What others set can be taken back.
fn can_spare() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    let sets = capabilities(None).unwrap();
    sets.effective.contains(CapabilitySet::SYS_RESOURCE)
}

#[test]
fn who_was_killed_for_want_of_memory_is_counted_inside_where_nobody_can_change_it() {
    for (name, place) in places() {
        let limits = Limits { memory_bytes: Some(64 << 20), ..Limits::default() };
        let cgroup = place.cgroups.create("one", &limits).unwrap().unwrap();
        let room = Room::new(Tier::Full);
        let script = "cat /run/ash/oom; /run/ash/bridge memory 200; cat /run/ash/oom; \
            (exec 3<> /run/ash/oom) || (exec 3>> /run/ash/oom) || echo not to be written; \
            (echo 0 > /proc/self/oom_score_adj) || echo not to be spared; \
            grep ' /run/ash/oom ro,' /proc/self/mountinfo";
        let launched = room.start(Some(&cgroup), &["shell", script]).unwrap();
        end_of(&launched);
        let output = room.output();
        if !place.cgroups.abilities().memory {
            assert!(!output.contains("oom_kill"), "{name}: {output}");
            continue;
        }
        let counted: Vec<&str> =
            output.lines().filter(|line| line.starts_with("oom_kill ")).collect();
        assert_eq!(counted, ["oom_kill 0", "oom_kill 1"], "{name}: {output}");
        assert!(output.contains("not to be written"), "{name}: {output}");
        assert!(output.contains("not to be spared") || !can_spare(), "{name}: {output}");
        let mount = output.lines().find(|line| line.contains(" /run/ash/oom ro,"));
        assert!(mount.is_some_and(|line| !line.contains("/one")), "{name}: {output}");
    }
}

#[test]
fn limits_are_raised_and_lowered() {
    for (name, place) in places() {
        let with = |memory_bytes| Limits { memory_bytes, ..Limits::default() };
        let cgroup = place.cgroups.create("one", &with(Some(64 << 20))).unwrap().unwrap();
        for bytes in [Some(256 << 20), Some(32 << 20), None, Some(64 << 20)] {
            cgroup.set_limits(&with(bytes)).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        // Making what exists already is how a start is repeated.
        assert!(place.cgroups.create("one", &Limits::default()).unwrap().is_some());
    }
}

#[test]
fn a_name_cannot_lead_elsewhere() {
    let place = Place::new();
    for name in ["", "..", "a/b", "a.b", "/", "a\nb", "\u{e4}"] {
        assert!(place.cgroups.create(name, &Limits::default()).is_err(), "{name:?}");
        assert!(place.cgroups.open(name).is_err(), "{name:?}");
    }
}
