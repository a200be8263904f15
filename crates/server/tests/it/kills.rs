//! `kill -9` of engine, bridge and tool in every phase; then the next turn is asked what it remembers.

use std::time::Duration;

use ash_core::entry::Entry;
use ash_core::id::{RunId, SessionId};
use ash_core::run::RunStatus;
use ash_core::session::IfRunning;
use ash_engine::{RequireState, SandboxHost as _};
use ash_protocol::ExecRequest;

use crate::world::{World, kill, processes_of, tenant, until};

/// A run that is held in one phase until it is let go.
struct Held {
    name: &'static str,
    prompt: &'static str,
    /// What the log shows once it is there.
    reached: fn(&Entry) -> bool,
    /// A process that is its tool, if it has one.
    tool: Option<&'static str>,
}

fn is_text(entry: &Entry) -> bool {
    matches!(entry, Entry::TextDelta { .. })
}

fn is_tool_use(entry: &Entry) -> bool {
    matches!(entry, Entry::Output { name, .. } if name == "tool_use")
}

fn is_coder_tool(entry: &Entry) -> bool {
    matches!(entry, Entry::Output { name, body, .. } if name == "tool_use" && body.get().contains("bash"))
}

const PHASES: [Held; 3] = [
    Held {
        name: "streaming",
        prompt: "Remember the heron.\n/hang after 3 times 1\n/say one two three four five",
        reached: is_text,
        tool: None,
    },
    Held {
        name: "tools",
        prompt: "Remember the heron.\n/bash touch begun; while [ ! -e go ]; do sleep 0.05; done; echo finished\n/say five",
        reached: is_tool_use,
        tool: Some("begun"),
    },
    Held {
        name: "delegation",
        prompt: "Remember the heron.\n/tool delegate_coder {\"task\": \"Wait.\\n/bash touch begun; while [ ! -e go ]; do sleep 0.05; done; echo finished\\n/say coded\"}\n/say five",
        reached: is_coder_tool,
        tool: Some("begun"),
    },
];

async fn hold(world: &World, session: SessionId, held: &Held) -> RunId {
    let accepted = world.prompt(session, held.prompt).await;
    world
        .log_until(session, |entry| entry.run() == Some(accepted.run) && (held.reached)(entry))
        .await;
    if held.tool.is_some() {
        let begun = world.host.workspace(session).join("begun");
        until("the tool has begun", || begun.exists()).await;
    }
    accepted.run
}

fn let_go(world: &World, session: SessionId) {
    std::fs::write(world.host.workspace(session).join("go"), "").unwrap();
}

async fn remembers(world: &World, session: SessionId, context: &str) {
    let turn = world.say(session, "What do you remember?\n/recall").await;
    assert_eq!(turn.status, RunStatus::Completed, "{context}: {turn:#?}");
    assert!(turn.text().contains("Remember the heron."), "{context}: {}", turn.text());
}

#[tokio::test]
async fn a_turn_outlives_its_engine_in_every_phase() {
    for held in &PHASES {
        let mut world = World::start().await;
        let session = world.session().await;
        let run = hold(&world, session, held).await;
        world.kill_engine().await;
        let_go(&world, session);
        let log = world
            .log_until(
                session,
                |entry| matches!(entry, Entry::RunEnded { run: of, .. } if *of == run),
            )
            .await;
        let record = world.engine.store().run(session, run).await.unwrap();
        assert_eq!(record.status, RunStatus::Completed, "{}: {log:#?}", held.name);
        let kinds: Vec<_> = log.iter().map(|entry| entry.entry.kind()).collect();
        assert!(!kinds.contains(&"reports_lost"), "{}: {kinds:?}", held.name);
        let said: String = log
            .iter()
            .filter_map(|entry| match &entry.entry {
                Entry::TextDelta { delta, .. } => Some(delta.as_str()),
                _ => None,
            })
            .collect();
        assert!(said.ends_with("five"), "{}: {said}", held.name);
        remembers(&world, session, held.name).await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_session_comes_back_after_its_bridge_was_killed_in_every_phase() {
    for held in &PHASES {
        let world = World::start().await;
        let session = world.session().await;
        let run = hold(&world, session, held).await;
        world.kill_bridge(session).await;
        world.log_until(session, |entry| matches!(entry, Entry::SessionFailed { .. })).await;
        let record = world.engine.store().run(session, run).await.unwrap();
        assert_eq!(record.status, RunStatus::Interrupted, "{}", held.name);
        let home = world.host.home(session);
        until("nothing of it is left", || processes_of(&home).is_empty()).await;
        remembers(&world, session, held.name).await;
        if held.tool.is_some() {
            let sent = world.requests().pop().unwrap().body.to_string();
            assert!(sent.contains("outcome unknown"), "{}: {sent}", held.name);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn both_may_die_at_once() {
    for held in &PHASES {
        let mut world = World::start().await;
        let session = world.session().await;
        let run = hold(&world, session, held).await;
        world.engine.abort().await;
        world.kill_bridge(session).await;
        world.kill_engine().await;
        let record = world.ended(session, run).await;
        assert_eq!(record.status, RunStatus::Interrupted, "{}", held.name);
        remembers(&world, session, held.name).await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_killed_tool_is_told_to_the_model() {
    for held in PHASES.iter().filter(|held| held.tool.is_some()) {
        let world = World::start().await;
        let session = world.session().await;
        let run = hold(&world, session, held).await;
        let home = world.host.home(session);
        let shells = processes_of(&home);
        let shells = shells.into_iter().filter(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("begun")
        });
        shells.for_each(kill);
        let record = world.ended(session, run).await;
        assert_eq!(record.status, RunStatus::Completed, "{}", held.name);
        let told = world.requests().iter().any(|request| {
            let body = request.body.to_string();
            body.contains("signal 9") || body.contains("killed")
        });
        assert!(told, "{}: the model was not told", held.name);
        remembers(&world, session, held.name).await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_cancelled_run_stays_cancelled_when_the_engine_dies_first() {
    let mut world = World::start().await;
    let session = world.session().await;
    let run = hold(&world, session, &PHASES[1]).await;
    world.engine.interrupt(&tenant(), session, None).await.unwrap();
    world.kill_engine().await;
    let record = world.ended(session, run).await;
    assert_eq!(record.status, RunStatus::Cancelled);
    remembers(&world, session, "after a cancel").await;
    world.end().await;
}

#[tokio::test]
async fn a_later_server_takes_a_running_turn_over_and_the_earlier_one_lets_it() {
    let old = World::start().await;
    let session = old.session().await;
    let run = hold(&old, session, &PHASES[1]).await;
    let new = World::over(&old.dir, old.url()).await;
    // The old one is still there when the new one has the sandbox, and does not take it back.
    let command = ExecRequest {
        command: "true".to_owned(),
        cwd: None,
        timeout_ms: 10_000,
        max_output_bytes: 10,
    };
    let sandbox = old.sandbox(session).await;
    while new.host.exec(sandbox, command.clone()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while old.host.exec(sandbox, command.clone()).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let_go(&new, session);
    let record = new.ended(session, run).await;
    assert_eq!(record.status, RunStatus::Completed);
    remembers(&new, session, "with another server").await;
    old.engine.abort().await;
    old.host.abandon().await;
    new.end().await;
}

#[tokio::test]
async fn a_paused_turn_stands_still_and_goes_on_where_it_was() {
    let world = World::start().await;
    let session = world.session().await;
    let run = hold(&world, session, &PHASES[1]).await;
    let sandbox = world.sandbox(session).await;
    let pid = world.host.bridge_of(sandbox).unwrap();
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    // Nothing of it runs: not the bridge, not its keeper, not the tool.
    let home = world.host.home(session);
    until("everything stands still", || {
        let all = processes_of(&home);
        let is_frozen = world.is_frozen(sandbox);
        all.len() >= 3 && all.contains(&pid) && (is_frozen || all.into_iter().all(is_stopped))
    })
    .await;
    let_go(&world, session);
    world.engine.resume(&tenant(), session, RequireState::No).await.unwrap();
    assert_eq!(world.ended(session, run).await.status, RunStatus::Completed);
    assert_eq!(world.host.bridge_of(world.sandbox(session).await), Some(pid), "it is another one");
    remembers(&world, session, "after a pause").await;
    world.end().await;
}

fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" T"))
}

/// Where the next test tells itself, as another process, what to do.
const CHILD: &str = "TEST_ENGINE_OF";

/// Not a test by itself: the engine that the next test kills with -9.
#[tokio::test]
async fn the_engine_of_another_process() {
    let Some(asked) = std::env::var_os(CHILD) else { return };
    let asked = asked.into_string().unwrap();
    let (dir, url) = asked.split_once('|').unwrap();
    let dir = std::path::PathBuf::from(dir);
    let world = World::over(&dir, url).await;
    let session = world.session().await;
    let held = &PHASES[1];
    let run = hold(&world, session, held).await;
    let told = dir.join("told.tmp");
    std::fs::write(&told, format!("{session}\n{run}")).unwrap();
    std::fs::rename(&told, dir.join("told")).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_turn_outlives_a_server_process_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = ash_server::model::Model::start(listener, Default::default()).unwrap();
    let url = model.url();
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::the_engine_of_another_process", "--nocapture"])
        .env(CHILD, format!("{}|{url}", dir.path().display()))
        .stdout(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let told = dir.path().join("told");
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !told.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the other process has ended");
        assert!(std::time::Instant::now() < deadline, "the other process says nothing");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child.start_kill().unwrap();
    child.wait().await.unwrap();
    let told = std::fs::read_to_string(told).unwrap();
    let (session, run) = told.split_once('\n').unwrap();
    let (session, run): (SessionId, RunId) = (session.parse().unwrap(), run.parse().unwrap());

    let world = World::over(dir.path(), &url).await;
    let_go(&world, session);
    let record = world.ended(session, run).await;
    assert_eq!(record.status, RunStatus::Completed);
    remembers(&world, session, "another process").await;
    world.end().await;
    model.shutdown().await;
}
