//! What a real agent can do and cannot do in a real sandbox, and what becomes of the session.

use ash_core::entry::Entry;
use ash_core::failure::FailureCode;
use ash_core::id::SessionId;
use ash_core::run::RunStatus;
use ash_core::session::{IfRunning, State};
use ash_engine::RequireState;
use ash_engine::bridge::{Resources, SandboxLimits};

use crate::world::{KEY, World, kill, processes_of, tenant, until};

fn resources(memory_mb: u64, disk_mb: u64) -> Resources {
    let limits = SandboxLimits { memory_bytes: Some(memory_mb << 20), ..SandboxLimits::default() };
    Resources { limits, disk_bytes: Some(disk_mb << 20) }
}

/// Why a session is in error, once it is.
async fn failure(world: &World, session: SessionId) -> FailureCode {
    world.log_until(session, |entry| matches!(entry, Entry::SessionFailed { .. })).await;
    let stored = world.engine.store().session(&tenant(), session).await.unwrap();
    match stored.session.state() {
        State::Error { failure, .. } => failure.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_agent_has_its_files_its_model_and_nothing_else() {
    let Some(world) = World::sandboxed(Resources::default()).await else { return };
    let session = world.session().await;
    let look = "id -u; pwd; echo $HOME; ls /; cat /proc/1/environ /proc/*/environ; env; \
                echo made > file; ls -ln file; ip addr; cat /proc/net/dev; ls -d /root /data /var";
    let turn = world.say(session, &format!("Look.\n/bash {look}\n/results")).await;
    assert_eq!(turn.status, RunStatus::Completed, "{turn:#?}");
    let text = turn.text();
    assert!(text.contains("1000\n/workspace\n/home/agent\n"), "{text}");
    for hidden in [KEY, world.dir.to_str().unwrap(), "CARGO", "eth0"] {
        assert!(!text.contains(hidden), "{hidden} is seen: {text}");
    }
    let made = world.host.workspace(session).join("file");
    assert_eq!(std::fs::read_to_string(&made).unwrap(), "made\n");
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&made).unwrap());
    let ours = rustix::process::geteuid().as_raw();
    assert!(if ours == 0 { owner > 200_000 } else { owner == ours }, "{owner}");
    world.end().await;
}

#[tokio::test]
async fn sessions_have_users_of_their_own_and_cannot_reach_each_other() {
    let Some(world) = World::sandboxed(Resources::default()).await else { return };
    let (one, two) = (world.session().await, world.session().await);
    world.say(one, "Keep it.\n/bash echo secret-of-one > kept; chmod 777 kept .").await;
    let outside = world.host.workspace(one);
    let look =
        format!("cat {0}/kept; ls {0}; ls -R /workspace /home /tmp; ls /proc", outside.display());
    let turn = world.say(two, &format!("Look.\n/bash {look}\n/results")).await;
    assert!(!turn.text().contains("secret-of-one"), "{}", turn.text());
    let owner = |session| {
        let found = std::fs::metadata(world.host.home(session)).unwrap();
        std::os::unix::fs::MetadataExt::uid(&found)
    };
    if rustix::process::geteuid().is_root() {
        assert_ne!(owner(one), owner(two));
    }
    world.end().await;
}

#[tokio::test]
async fn a_tool_that_takes_too_much_memory_is_a_result_and_the_session_goes_on() {
    let Some(world) = World::sandboxed(resources(96, 512)).await else { return };
    let session = world.session().await;
    let bomb = "python3 -c 'x = bytearray(400 << 20)'; echo after";
    let turn = world.say(session, &format!("Try.\n/bash {bomb}\n/results")).await;
    assert_eq!(turn.status, RunStatus::Completed, "{turn:#?}");
    if world.bounds_memory() {
        assert!(turn.text().contains("because the sandbox ran out of memory"), "{}", turn.text());
    }
    let turn = world.say(session, "Go on.\n/bash echo still here\n/results").await;
    assert!(turn.text().contains("still here"), "{}", turn.text());
    world.end().await;
}

#[tokio::test]
async fn a_workspace_that_outgrows_its_disk_ends_the_sandbox_with_the_reason() {
    let Some(world) = World::sandboxed(resources(512, 8)).await else { return };
    let session = world.session().await;
    let fill = "head -c 20000000 /dev/urandom > large; sleep 600";
    let accepted = world.prompt(session, &format!("Fill.\n/bash {fill}\n/say done")).await;
    assert_eq!(failure(&world, session).await, FailureCode::SandboxDiskFull);
    let record = world.ended(session, accepted.run).await;
    assert_eq!(record.status, RunStatus::Interrupted);
    let home = world.host.home(session);
    until("nothing of it is left", || processes_of(&home).is_empty()).await;
    // Whoever makes room can go on.
    std::fs::remove_file(world.host.workspace(session).join("large")).unwrap();
    world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    let turn = world.say(session, "Go on.\n/bash ls; echo fine\n/results").await;
    assert!(turn.text().contains("fine"), "{}", turn.text());
    world.end().await;
}

/// Moves a large file about behind the back of whoever counts: it hears when a directory was looked into,
/// and puts the file where the count has been already.
const SHUFFLE: &str = r"
import ctypes, os, select, struct
os.chdir('/workspace')
for name in 'abc': os.mkdir(name)
first, middle, last = [entry.name for entry in os.scandir('.') if entry.is_dir()]
for number in range(9000): open(f'{middle}/{number}', 'w').close()
libc = ctypes.CDLL(None)
heard = libc.inotify_init1(0)
CLOSED = 0x10
of_first = libc.inotify_add_watch(heard, first.encode(), CLOSED)
of_last = libc.inotify_add_watch(heard, last.encode(), CLOSED)
large = os.open(f'{last}/large', os.O_CREAT | os.O_RDWR)
at, written = last, 0
open('ready', 'w').close()
while True:
    select.select([heard], [], [])
    events = os.read(heard, 65536)
    while events:
        watch, _, _, length = struct.unpack_from('iIII', events)
        events = events[16 + length:]
        if length: continue
        if watch == of_first and at == last:
            os.rename(f'{last}/large', f'{first}/large'); at = first
        elif watch == of_last and at == first:
            os.rename(f'{first}/large', f'{last}/large'); at = last
            if written < 150: os.write(large, b'z' * (15 << 20)); written += 15
";

#[tokio::test]
async fn what_is_moved_about_behind_the_count_is_found_while_it_stands_still() {
    // Nine thousand empty files count too.
    let Some(world) = World::sandboxed(resources(512, 64)).await else { return };
    let session = world.session().await;
    let workspace = world.host.workspace(session);
    std::fs::write(workspace.join("shuffle.py"), SHUFFLE).unwrap();
    world.prompt(session, "Hide.\n/bash python3 shuffle.py\n/say done").await;
    until("it hides", || workspace.join("ready").exists()).await;
    let sandbox = world.sandbox(session).await;
    assert_eq!(failure(&world, session).await, FailureCode::SandboxDiskFull);
    until("nothing of it is left", || world.cgroup(sandbox).is_none()).await;
    world.end().await;
}

#[tokio::test]
async fn the_death_of_a_bridge_is_told_by_its_signal_also_by_the_next_server() {
    let Some(mut world) = World::sandboxed(Resources::default()).await else { return };
    let (one, two) = (world.session().await, world.session().await);
    world.kill_bridge(one).await;
    assert_eq!(failure(&world, one).await, FailureCode::SandboxDied);
    world.kill_engine().await;
    world.say(two, "Adopted.\n/say yes").await;
    let pid = world.host.bridge_of(world.sandbox(two).await).expect("it is known again");
    kill(pid);
    assert_eq!(failure(&world, two).await, FailureCode::SandboxDied);
    world.end().await;
}

#[tokio::test]
async fn what_is_frozen_stands_still_and_goes_on_where_it_was() {
    let Some(world) = World::sandboxed(Resources::default()).await else { return };
    let session = world.session().await;
    let count =
        "i=0; while [ ! -e go ]; do i=$((i+1)); echo $i > count; sleep 0.01; done; echo went on";
    let accepted = world.prompt(session, &format!("Count.\n/bash {count}\n/results")).await;
    let counted = world.host.workspace(session).join("count");
    until("it counts", || counted.exists()).await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    let frozen = world.sandbox(session).await;
    let states = || {
        processes_of(&world.host.home(session))
            .into_iter()
            .map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default())
            .filter(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R')))
            .count()
    };
    until("nothing runs", || states() == 0).await;
    std::fs::write(world.host.workspace(session).join("go"), "").unwrap();
    world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    let turn = world.turn(session, accepted).await;
    assert!(turn.text().contains("went on"), "{}", turn.text());
    assert_eq!(world.sandbox(session).await, frozen, "it is the same one");
    world.end().await;
}

#[tokio::test]
async fn a_server_removes_the_cgroups_of_sandboxes_that_died_without_one() {
    let Some(mut world) = World::sandboxed(Resources::default()).await else { return };
    let session = world.session().await;
    let pid = world.host.bridge_of(world.sandbox(session).await).unwrap();
    world.engine.abort().await;
    world.host.abandon().await;
    kill(pid);
    let ash_engine::bridge::Enclosure::Sandbox(sandboxing) = world.enclosure.clone() else {
        return;
    };
    let limits = SandboxLimits::default();
    sandboxing.cgroups.create("00000000-0000-7000-8000-000000000000-1", &limits).unwrap();
    world.kill_engine().await;
    let left = || sandboxing.cgroups.list().unwrap();
    until("it is removed", || left().iter().all(|name| !name.starts_with("00000000"))).await;
    world.end().await;
}

#[tokio::test]
async fn nothing_stays_frozen_by_accident_and_what_is_meant_to_be_does() {
    let Some(world) = World::sandboxed(Resources::default()).await else { return };
    let (by_accident, on_purpose) = (world.session().await, world.session().await);
    world.engine.pause(&tenant(), on_purpose, IfRunning::Freeze).await.unwrap();
    let meant = world.sandbox(on_purpose).await;
    if !world.cgroup(meant).is_some_and(|cgroup| cgroup.abilities().freeze) {
        eprintln!("not tried: nothing is frozen by its cgroup here");
        return world.end().await;
    }
    until("it is frozen", || world.is_frozen(meant)).await;
    let forgotten = world.sandbox(by_accident).await;
    world.cgroup(forgotten).unwrap().freeze().unwrap();
    until("it is thawed", || !world.is_frozen(forgotten)).await;
    let turn = world.say(by_accident, "Go on.\n/bash echo still here\n/results").await;
    assert!(turn.text().contains("still here"), "{}", turn.text());
    assert!(world.is_frozen(meant), "it was looked at too, and is paused");
    world.engine.resume(&tenant(), on_purpose, RequireState::No).await.unwrap();
    let turn = world.say(on_purpose, "Go on.\n/bash echo here too\n/results").await;
    assert!(turn.text().contains("here too"), "{}", turn.text());
    world.end().await;
}
