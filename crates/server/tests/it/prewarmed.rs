//! Sandboxes that are kept ready, and the sessions that begin in them.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ash_core::entry::Entry;
use ash_core::run::RunStatus;
use ash_core::session::IfRunning;
use ash_engine::RequireState;
use ash_engine::bridge::{Enclosure, Resources, SandboxLimits};
use tokio::task::JoinSet;

use crate::world::{World, bridges_in, kill, tenant, until};

fn small() -> Resources {
    let limits = SandboxLimits { memory_bytes: Some(96 << 20), ..SandboxLimits::default() };
    Resources { limits, disk_bytes: Some(64 << 20) }
}

/// The bridges that wait.
fn waiting(world: &World) -> BTreeSet<u32> {
    bridges_in(&world.dir.join("data/warm")).into_iter().collect()
}

/// The files of the only sandbox that waits.
fn files_of_the_only_one(world: &World) -> PathBuf {
    let found = std::fs::read_dir(world.dir.join("data/warm/sandboxes")).unwrap();
    let found: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/exe")).exists()
}

#[tokio::test]
async fn a_session_begins_in_the_sandbox_that_waits_and_lives_as_any_other() {
    let Some(mut world) = World::prewarmed(small(), 1).await else { return };
    let ready = waiting(&world);
    let session = world.session().await;
    let bridge = world.host.bridge_of(world.sandbox(session).await).unwrap();
    assert_eq!(BTreeSet::from([bridge]), ready);
    assert_eq!(world.engine.resumes().prewarmed, 1);

    let look = "id -u; pwd; echo $HOME $GREETING; echo made > file";
    let turn = world.say(session, &format!("Look.\n/bash {look}\n/results")).await;
    assert_eq!(turn.status, RunStatus::Completed, "{turn:#?}");
    let text = turn.text();
    assert!(text.contains("1000\n/workspace\n/home/agent hello"), "{text}");
    let made = std::fs::metadata(world.host.workspace(session).join("file")).unwrap();
    let home = std::fs::metadata(world.host.home(session)).unwrap();
    assert_eq!(made.uid(), home.uid());
    if rustix::process::geteuid().is_root() {
        assert!(made.uid() > 200_000);
    }

    // The limits are its own.
    let bomb = "python3 -c 'x = bytearray(400 << 20)'; echo after";
    let turn = world.say(session, &format!("Try.\n/bash {bomb}\n/results")).await;
    if world.bounds_memory() {
        assert!(turn.text().contains("because the sandbox ran out of memory"), "{}", turn.text());
    }

    // It is frozen, thawed, and adopted by the next server.
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    world.kill_engine().await;
    let turn = world.say(session, "Adopted.\n/bash cat file\n/results").await;
    assert!(turn.text().contains("made"), "{}", turn.text());
    assert_eq!(world.host.bridge_of(world.sandbox(session).await), Some(bridge));

    // Its end is noticed, and what was around it is removed: this is checked at the end.
    kill(bridge);
    world.log_until(session, |entry| matches!(entry, Entry::SessionFailed { .. })).await;
    world.end().await;
}

#[tokio::test]
async fn a_session_that_fills_its_disk_in_one_that_waited_is_told_so() {
    let resources = Resources { disk_bytes: Some(8 << 20), ..small() };
    let Some(world) = World::prewarmed(resources, 1).await else { return };
    let session = world.session().await;
    assert_eq!(world.engine.resumes().prewarmed, 1);
    let fill = "head -c 20000000 /dev/urandom > large; sleep 600";
    world.prompt(session, &format!("Fill.\n/bash {fill}\n/say done")).await;
    let log = world.log_until(session, |entry| matches!(entry, Entry::SessionFailed { .. })).await;
    let Some(Entry::SessionFailed { failure, .. }) = log.last().map(|entry| entry.entry.clone())
    else {
        panic!("{log:#?}");
    };
    assert_eq!(failure.code, ash_core::failure::FailureCode::SandboxDiskFull);
    world.end().await;
}

#[tokio::test]
async fn one_that_waits_holds_nothing_of_anybody() {
    let Some(world) = World::prewarmed(small(), 1).await else { return };
    // One has been used, and another one has come after it.
    let session = world.session().await;
    world.say(session, "Keep it.\n/bash echo secret > kept; echo secret > ~/kept").await;
    world.until_waiting(1).await;
    let bridges = waiting(&world);
    assert_eq!(bridges.len(), 1);
    for pid in bridges {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environment = String::from_utf8(environment).unwrap();
        for variable in environment.split_terminator('\0') {
            let (name, _) = variable.split_once('=').unwrap();
            assert!(["PATH", "HOME", "LANG"].contains(&name), "{environment:?}");
        }
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        for told in [environment, command] {
            assert!(!told.contains(&session.to_string()), "{told:?}");
        }
    }
    let files = files_of_the_only_one(&world);
    for place in ["workspace", "home"] {
        let found: Vec<_> = std::fs::read_dir(files.join(place)).unwrap().collect();
        assert!(found.is_empty(), "{found:?}");
        if rustix::process::geteuid().is_root() {
            let owner = std::fs::metadata(files.join(place)).unwrap().uid();
            let other = std::fs::metadata(world.host.home(session)).unwrap().uid();
            assert_ne!(owner, other, "users are not shared");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn nobody_notices_that_the_one_that_waited_is_dead_or_does_not_answer() {
    let Some(world) = World::prewarmed(small(), 1).await else { return };
    for signal in ["-KILL", "-STOP"] {
        world.until_waiting(1).await;
        let useless = *waiting(&world).first().unwrap();
        Command::new("kill").args([signal, &useless.to_string()]).status().unwrap();
        let session = world.session().await;
        let turn = world.say(session, "Go.\n/bash echo fine\n/results").await;
        assert!(turn.text().contains("fine"), "{}", turn.text());
        let bridge = world.host.bridge_of(world.sandbox(session).await);
        assert_ne!(bridge, Some(useless));
        until("it is removed", || !is_there(useless)).await;
    }
    world.until_waiting(1).await;
    world.end().await;
}

#[tokio::test]
async fn a_server_ends_those_that_an_earlier_one_kept_ready() {
    let Some(mut world) = World::prewarmed(small(), 2).await else { return };
    let before = waiting(&world);
    assert_eq!(before.len(), 2);
    world.kill_engine().await;
    world.until_waiting(2).await;
    until("they are gone", || before.iter().all(|pid| !is_there(*pid))).await;
    assert!(waiting(&world).is_disjoint(&before));
    if let Enclosure::Sandbox(sandboxing) = &world.enclosure
        && sandboxing.cgroups.abilities().pids
    {
        assert_eq!(sandboxing.cgroups.list().unwrap().len(), 2, "of those that wait now");
    }
    world.end().await;
}

#[tokio::test]
async fn no_two_sessions_get_the_same_one() {
    let Some(world) = World::prewarmed(small(), 3).await else { return };
    let mut creating = JoinSet::new();
    for _ in 0..8 {
        let engine = world.engine.clone();
        let create = World::new_session();
        creating.spawn(async move {
            let id = engine.create_session(create, None).await.unwrap().record.id;
            engine.settled(&tenant(), id).await.unwrap();
            id
        });
    }
    let sessions = creating.join_all().await;
    let mut bridges = BTreeSet::new();
    for &session in &sessions {
        bridges.insert(world.host.bridge_of(world.sandbox(session).await).unwrap());
        let own = format!("Write.\n/bash echo {session} > own; cat own\n/results");
        assert!(world.say(session, &own).await.text().contains(&session.to_string()));
    }
    assert_eq!(bridges.len(), sessions.len());
    let hits = world.engine.resumes().prewarmed;
    assert!((3..=8).contains(&hits), "{hits}");
    for session in sessions {
        let own = std::fs::read_to_string(world.host.workspace(session).join("own")).unwrap();
        assert_eq!(own.trim(), session.to_string());
    }
    world.end().await;
}

#[tokio::test]
async fn a_session_that_comes_back_gets_a_sandbox_of_its_own() {
    let Some(world) = World::prewarmed(small(), 1).await else { return };
    let session = world.session().await;
    world.say(session, "Keep it.\n/bash echo kept > file").await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.until_waiting(1).await;
    let ready = waiting(&world);
    world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    let turn = world.say(session, "Read.\n/bash cat file\n/results").await;
    assert!(turn.text().contains("kept"), "{}", turn.text());
    assert_eq!(world.engine.resumes().prewarmed, 1);
    assert_eq!(waiting(&world), ready, "it still waits");
    world.end().await;
}
