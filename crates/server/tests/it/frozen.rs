//! Sessions that are paused in the middle of a turn, with the real bridge: whoever dies meanwhile, the agent stands
//! still until it is resumed, and comes back in another sandbox if its own is gone.

use ash_core::entry::ResumePath;
use ash_core::id::{RunId, SessionId, SnapshotId};
use ash_core::resume::Receipt;
use ash_core::run::RunStatus;
use ash_core::session::{IfRunning, PauseReason, Sandbox, Session, Status};
use ash_engine::RequireState;
use ash_engine::files::{Executable, FilePath};
use ash_engine::host::SandboxRef;

use crate::world::{World, kill, processes_of, tenant, until};

/// Counts for as long as it is not told to stop.
const COUNT: &str = "The word is heron.\n/bash n=0; until [ -e go ]; do n=$((n+1)); echo $n >count.new; \
                     mv count.new count; done\n/say done";

/// A session that was paused while its agent counts, once it stands still and is captured.
async fn paused(world: &World) -> (SessionId, SandboxRef, RunId) {
    let session = world.session().await;
    let run = world.prompt(session, COUNT).await.run;
    let count = world.host.workspace(session).join("count");
    until("it counts", || count.exists()).await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    let sandbox = world.sandbox(session).await;
    until_it(world, session, |it| {
        matches!(it.sandbox(), Sandbox::Frozen { .. }) && it.persistence().is_settled()
    })
    .await;
    assert!(stands_still(world, sandbox));
    (session, sandbox, run)
}

async fn until_it(world: &World, session: SessionId, wanted: impl Fn(&Session) -> bool) -> Session {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let stored = world.engine.store().session(&tenant(), session).await.unwrap();
        if wanted(&stored.session) {
            return stored.session.clone();
        }
        assert!(std::time::Instant::now() < deadline, "never: {:?}", stored.session);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn last_snapshot(session: &Session) -> Option<SnapshotId> {
    session.persistence().last().map(|last| last.captured.id)
}

fn counted(world: &World, session: SessionId) -> String {
    std::fs::read_to_string(world.host.workspace(session).join("count")).unwrap()
}

fn stands_still(world: &World, sandbox: SandboxRef) -> bool {
    let is_stopped = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T"))
    };
    let all = processes_of(&world.host.home(sandbox.session));
    world.is_frozen(sandbox) || (!all.is_empty() && all.into_iter().all(is_stopped))
}

async fn resume(world: &World, session: SessionId) -> Receipt {
    world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap().receipt.unwrap()
}

async fn remembers(world: &World, session: SessionId) {
    let answer = world.say(session, "Which word?\n/recall").await.text();
    assert!(answer.contains("The word is heron."), "{answer}");
}

#[tokio::test]
async fn a_paused_turn_stands_still_whatever_another_server_captures() {
    let mut world = World::start().await;
    let (session, sandbox, run) = paused(&world).await;
    let before = counted(&world, session);
    for round in 0..2 {
        world.kill_engine().await;
        let was = last_snapshot(&until_it(&world, session, |_| true).await);
        let files = world.engine.workspace_to_change(&tenant(), session).await.unwrap();
        let path = FilePath::file(format!("{round}.txt").as_bytes()).unwrap();
        files.write(path, Executable::No, b"from outside".to_vec()).await.unwrap();
        drop(files);
        let captured = |it: &Session| it.persistence().is_settled() && last_snapshot(it) != was;
        let stored = until_it(&world, session, captured).await;
        assert!(matches!(stored.sandbox(), Sandbox::Frozen { .. }));
        assert!(stands_still(&world, sandbox));
        assert_eq!(counted(&world, session), before);
    }
    // A resume is warm all the same, and the turn goes on.
    std::fs::write(world.host.workspace(session).join("go"), "").unwrap();
    assert_eq!(resume(&world, session).await.path, ResumePath::Warm);
    assert_eq!(world.ended(session, run).await.status, RunStatus::Completed);
    remembers(&world, session).await;
    world.end().await;
}

#[tokio::test]
async fn a_server_that_is_killed_right_after_a_pause_leaves_it_paused() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.prompt(session, COUNT).await;
    let count = world.host.workspace(session).join("count");
    until("it counts", || count.exists()).await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    world.kill_engine().await;
    let is_paused = |it: &Session| {
        matches!(it.sandbox(), Sandbox::Frozen { .. }) && it.persistence().is_settled()
    };
    until_it(&world, session, is_paused).await;
    assert!(stands_still(&world, world.sandbox(session).await));
    world.end().await;
}

#[tokio::test]
async fn a_paused_sandbox_that_was_killed_comes_back_cold() {
    for restarts in [false, true] {
        let mut world = World::start().await;
        let (session, sandbox, run) = paused(&world).await;
        kill(world.host.bridge_of(sandbox).unwrap());
        if restarts {
            world.kill_engine().await;
        }
        let receipt = resume(&world, session).await;
        assert_eq!((receipt.path, receipt.interrupted_run), (ResumePath::Cold, Some(run)));
        assert_eq!(world.ended(session, run).await.status, RunStatus::Interrupted);
        remembers(&world, session).await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_session_that_was_paused_comes_back_cold_after_a_reboot() {
    let mut world = World::start().await;
    let (session, sandbox, run) = paused(&world).await;
    world.engine.abort().await;
    kill(world.host.bridge_of(sandbox).unwrap());
    // There are cgroups in which nothing dies while it is frozen.
    world.cgroup(sandbox).into_iter().for_each(|cgroup| cgroup.thaw().unwrap());
    world.reboot(|_| {}).await;
    let stored = until_it(&world, session, |it| it.sandbox() == Sandbox::None).await;
    assert_eq!(stored.status(), Status::Paused);
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.path, receipt.interrupted_run), (ResumePath::Cold, Some(run)));
    remembers(&world, session).await;
    world.end().await;
}

#[tokio::test]
async fn a_frozen_turn_can_be_interrupted_and_its_session_rewound() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, "The word is heron.\n/say ok").await;
    let run = world.prompt(session, COUNT).await.run;
    let count = world.host.workspace(session).join("count");
    until("it counts", || count.exists()).await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    let record = world.engine.interrupt(&tenant(), session, None).await.unwrap();
    assert_eq!((record.id, record.status), (run, RunStatus::Cancelled));
    let stored = until_it(&world, session, |it| it.sandbox() == Sandbox::None).await;
    assert_eq!(stored.status(), Status::Paused);
    assert_eq!(resume(&world, session).await.path, ResumePath::Cold);
    remembers(&world, session).await;
    world.end().await;
}

#[tokio::test]
async fn what_is_written_about_a_session_is_put_right_by_the_next_server() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    let file = world.dir.join("data/sessions").join(session.to_string()).join("metadata.json");
    let says = |word: &str| {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.contains(&format!("\"status\": \"{word}\""))
    };
    until("it is written down", || says("stopped")).await;
    // As if the server had been killed before that.
    let stale = std::fs::read_to_string(&file).unwrap().replace("stopped", "active");
    std::fs::write(&file, stale).unwrap();
    world.kill_engine().await;
    world.engine.evict(session, PauseReason::Evicted).await.unwrap();
    until("it is put right", || says("stopped")).await;
    world.end().await;
}
