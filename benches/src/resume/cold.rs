//! A new sandbox over the files that are there.

use std::path::Path;
use std::time::{Duration, Instant};

use ash_core::resume::Workspace;
use ash_sandbox::Cgroups;

use super::stage::Stage;
use super::{SIZES, times};
use crate::figures::{Figures, heading};
use crate::sandbox::room::{Room, Way};

const ROUNDS: usize = 30;

pub(super) async fn measure(stage: &Stage, directory: &Path) {
    heading("Cold resume in place, against a bare sandbox start");
    let bridge = ash_server::beside::bridge().expect("it is built");
    let room = Room::new(directory.join("room"), bridge);
    let cgroups = Cgroups::detect(&format!("bench-{}", std::process::id()));
    let mut sessions = Vec::new();
    for (name, shape) in SIZES {
        let session = stage.session_with(shape).await;
        stage.stop(session).await;
        sessions.push((name, session, Vec::new()));
    }
    let mut bare = Vec::new();
    // The first is not counted: it reads the programs from the disk.
    for round in 0..=ROUNDS {
        let started = tokio::task::block_in_place(|| start(&room, &cgroups));
        if round > 0 {
            bare.push(started);
        }
        for (_, session, took) in &mut sessions {
            let (resumed, receipt) = stage.resume(*session).await;
            assert_eq!(receipt.workspace, Workspace::Kept, "its files are where they were");
            stage.stop(*session).await;
            if round > 0 {
                took.push(resumed);
            }
        }
    }
    let bare = Figures::one_by_one(bare);
    bare.print_least("bare start in its cgroups, to a bridge that has answered");
    for (name, _, took) in sessions {
        let took = Figures::one_by_one(took);
        took.print_least(&format!("cold resume in place, {name}"));
        println!("  {:.2}x of the bare start; 2x is allowed", times(&took, &bare));
    }
    if let Err(error) = cgroups.remove() {
        println!("cgroups of the bench are left: {error}");
    }
}

/// How long a sandbox takes that nobody keeps anything for.
fn start(room: &Room, cgroups: &Cgroups) -> Duration {
    let begin = Instant::now();
    let cgroup = cgroups.create("bare", room.limits()).expect("cgroups can be made");
    let made = begin.elapsed();
    let (took, started) = room.start(Way::Launcher(cgroup.as_ref()));
    drop(started);
    if let Some(cgroup) = cgroup {
        cgroup.kill().and_then(|()| cgroup.remove()).expect("it is ours, and empty");
    }
    made + took
}
