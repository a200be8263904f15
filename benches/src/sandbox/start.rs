//! From the start to a bridge that has answered; and freezing what was started.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ash_sandbox::Cgroups;

use super::room::{Room, Way};
use crate::figures::{Figures, heading};

/// How often each way is taken.
const ROUNDS: usize = 100;

/// How long the system's package manager may take.
const INSTALL: Duration = Duration::from_secs(60);

/// How often a tree is frozen.
const FREEZES: usize = 100;
/// How long it is awake in between.
const AWAKE: Duration = Duration::from_millis(10);

pub(super) fn measure(directory: &Path) {
    let bridge = ash_server::beside::bridge().expect("it is built");
    let room = Room::new(directory.join("room"), bridge);
    let cgroups = Cgroups::detect(&format!("bench-{}", std::process::id()));
    heading(&format!("From the start to a bridge that has answered (tier {})", room.tier()));
    starts(&room, &cgroups);
    freezes(&room, &cgroups);
    if let Err(error) = cgroups.remove() {
        println!("cgroups of the bench are left: {error}");
    }
}

/// What one round of starts took.
#[derive(Default)]
struct Starts {
    plain: Vec<Duration>,
    launcher: Vec<Duration>,
    bubblewrap: Vec<Duration>,
    in_cgroup: Vec<Duration>,
    make_cgroup: Vec<Duration>,
}

fn starts(room: &Room, cgroups: &Cgroups) {
    let has_bubblewrap = has_bubblewrap();
    let mut took = Starts::default();
    // The first of each is not counted: it reads the programs from the disk.
    for round in 0..=ROUNDS {
        let mut counted = Starts::default();
        // Nobody always comes after the same one.
        for turn in 0..4 {
            match (turn + round) % 4 {
                0 => counted.plain.push(room.start(Way::ForkAndExec).0),
                1 => counted.launcher.push(room.start(Way::Launcher(None)).0),
                2 if has_bubblewrap => counted.bubblewrap.push(room.start(Way::Bubblewrap).0),
                2 => {}
                _ => in_cgroup(room, cgroups, &mut counted),
            }
        }
        if round > 0 {
            took.plain.append(&mut counted.plain);
            took.launcher.append(&mut counted.launcher);
            took.bubblewrap.append(&mut counted.bubblewrap);
            took.in_cgroup.append(&mut counted.in_cgroup);
            took.make_cgroup.append(&mut counted.make_cgroup);
        }
    }
    let plain = Figures::one_by_one(took.plain);
    let launcher = Figures::one_by_one(took.launcher);
    plain.print_least("fork and exec");
    launcher.print_least("our launcher");
    if has_bubblewrap {
        let bubblewrap = Figures::one_by_one(took.bubblewrap);
        bubblewrap.print_least("bubblewrap, the same namespaces");
        print_ratio("our launcher to bubblewrap", &launcher, &bubblewrap, 1.2);
    } else {
        println!("bubblewrap: missing, and it could not be installed");
    }
    print_ratio("our launcher to fork and exec", &launcher, &plain, 12.0);
    if took.in_cgroup.is_empty() {
        println!("in cgroups: missing, this machine has none for us");
    } else {
        Figures::one_by_one(took.make_cgroup).print_least("making the cgroups, apart");
        Figures::one_by_one(took.in_cgroup).print_least("our launcher, joining the cgroups");
    }
}

fn in_cgroup(room: &Room, cgroups: &Cgroups, took: &mut Starts) {
    let begin = Instant::now();
    let made = cgroups.create("start", room.limits()).expect("cgroups can be made");
    let making = begin.elapsed();
    let Some(cgroup) = made else { return };
    took.make_cgroup.push(making);
    let (elapsed, started) = room.start(Way::Launcher(Some(&cgroup)));
    took.in_cgroup.push(elapsed);
    drop(started);
    cgroup.kill().and_then(|()| cgroup.remove()).expect("it is ours, and empty");
}

fn print_ratio(what: &str, ours: &Figures, theirs: &Figures, wanted: f64) {
    let ratio = |ours: Duration, theirs: Duration| ours.as_secs_f64() / theirs.as_secs_f64();
    println!(
        "{what}: {:.2}x at p50, {:.2}x at the least; at most {wanted}x is wanted",
        ratio(ours.p50(), theirs.p50()),
        ratio(ours.least(), theirs.least()),
    );
}

fn freezes(room: &Room, cgroups: &Cgroups) {
    heading("Freezing and thawing a bridge, its keeper and four commands");
    let made = cgroups.create("freeze", room.limits()).expect("cgroups can be made");
    let Some(cgroup) = made.filter(|cgroup| cgroup.abilities().freeze) else {
        println!("missing: this machine has no cgroups that freeze");
        return;
    };
    let (_, mut started) = room.start(Way::Launcher(Some(&cgroup)));
    started.configure();
    started.exec("for i in 1 2 3 4; do sleep 1000 & done");
    let (mut freezing, mut thawing) = (Vec::new(), Vec::new());
    for _ in 0..FREEZES {
        let begin = Instant::now();
        cgroup.freeze().expect("it can be frozen");
        freezing.push(begin.elapsed());
        let begin = Instant::now();
        cgroup.thaw().expect("it can be thawed");
        thawing.push(begin.elapsed());
        // All of it must have run again: who is frozen before that never left.
        started.exec(":");
        std::thread::sleep(AWAKE);
    }
    Figures::one_by_one(freezing).print_least("freeze; below 2 ms is wanted");
    Figures::one_by_one(thawing).print_least("thaw; below 2 ms is wanted");
    drop(started);
    cgroup.kill().and_then(|()| cgroup.remove()).expect("it is ours, and empty");
}

/// Whether bubblewrap is there. If it is not, the system is asked for it.
fn has_bubblewrap() -> bool {
    is_there("bwrap") || (rustix::process::geteuid().is_root() && install() && is_there("bwrap"))
}

fn is_there(program: &str) -> bool {
    quiet(Command::new(program).arg("--version")).is_some_and(|mut child| succeeds(&mut child))
}

fn install() -> bool {
    let ways: [(&str, &[&str]); 3] = [
        ("apt-get", &["install", "-y", "-q", "bubblewrap"]),
        ("dnf", &["install", "-y", "-q", "bubblewrap"]),
        ("apk", &["add", "-q", "bubblewrap"]),
    ];
    let mut installing = ways.into_iter().filter(|(program, _)| is_there(program));
    let Some((program, args)) = installing.next() else { return false };
    println!("bubblewrap is not there; {program} is asked for it");
    quiet(Command::new(program).args(args)).is_some_and(|mut child| succeeds(&mut child))
}

fn quiet(command: &mut Command) -> Option<std::process::Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

/// Waits for its end, but not for ever.
fn succeeds(child: &mut std::process::Child) -> bool {
    let deadline = Instant::now() + INSTALL;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = child.try_wait() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _dead_already = child.kill();
    let _reaped = child.wait();
    false
}
