//! The real Claude Code in a real sandbox, against the scripted model: whatever is killed, frozen, damaged or moved, the
//! agent knows what it was told in its first turn, and the model sees that it does.

mod between;
mod damage;
mod interrupts;
mod kills;
mod left;
mod modes;
mod obstacles;
mod older;
mod results;
mod strange;
mod turns;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ash_core::entry::Entry;
use ash_core::id::{RunId, SessionId};
use ash_core::resume::{Native, Receipt};
use ash_core::run::RunStatus;
use ash_engine::RequireState;
use ash_engine::bridge::Enclosure;
use ash_engine::runtimes::{RuntimeOptions, Runtimes, View};
use ash_protocol::Program;

use crate::claude_program::{ClaudeProgram, claude_program};
use crate::world::{Turn, World, tenant};

/// What is said in the first turn.
const PLANT: &str = "The codeword is PLUM.\n/say I keep it in mind.";

/// What is asked in a later one.
const ASK: &str = "Which codeword?\n/recall";

/// A world whose agent is Claude Code; none, where that cannot be had.
async fn start() -> Option<World> {
    Some(start_with(&claude_program()?).await)
}

/// The same with a release of Claude Code.
async fn start_with(program: &ClaudeProgram) -> World {
    let mut world = World::start().await;
    let data = world.dir.join("data");
    program.install_into(&data);
    world.claude = Some(found(&data, &world.enclosure).await);
    world.kill_engine().await;
    world
}

/// The program as a server finds it.
async fn found(data: &Path, enclosure: &Enclosure) -> Program {
    let view = match enclosure {
        Enclosure::Sandbox(_) => View::Sandboxes,
        Enclosure::Nothing => View::Machine,
    };
    let options = RuntimeOptions { data: data.to_owned(), version: None, path: None, view };
    Runtimes::look(options).claude().await.unwrap().program()
}

/// A session that was told the codeword.
async fn planted(world: &World) -> SessionId {
    let session = world.session().await;
    let turn = world.say(session, PLANT).await;
    assert_eq!((turn.status, turn.text().as_str()), (RunStatus::Completed, "I keep it in mind."));
    session
}

/// Asks for the codeword: the model answers by what it was really sent.
async fn remembers(world: &World, session: SessionId, context: &str) -> Turn {
    let turn = world.say(session, ASK).await;
    let answer = turn.text();
    assert!(answer.contains("The codeword is PLUM."), "{context}: {answer}\n{}", said(&turn));
    assert_eq!(turn.status, RunStatus::Completed, "{context}");
    turn
}

/// What was said in a turn, for a person who wonders.
fn said(turn: &Turn) -> String {
    let shown = turn.entries.iter().map(|logged| match &logged.entry {
        Entry::Message { body, .. } | Entry::Output { body, .. } => {
            let body: String = body.get().chars().take(400).collect();
            format!("{}: {body}\n", logged.entry.kind())
        }
        entry => format!("{entry:?}\n"),
    });
    shown.collect()
}

/// Resumes a session, once it was noticed that it does not run.
async fn resume(world: &World, session: SessionId) -> Receipt {
    let deadline = deadline();
    loop {
        let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
        if let Some(receipt) = back.receipt {
            return receipt;
        }
        assert!(Instant::now() < deadline, "it is still active");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Stops a session and waits until everything of it is captured.
async fn stop(world: &World, session: SessionId) {
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
}

/// The program's own transcript.
fn transcript(world: &World, session: SessionId) -> PathBuf {
    let config = world.host.home(session).join(".claude/projects");
    let project = std::fs::read_dir(config).unwrap().next().unwrap().unwrap().path();
    project.join(format!("{session}.jsonl"))
}

/// Waits until something is in the log.
async fn until_logged(world: &World, session: SessionId, wanted: impl Fn(&Entry) -> bool) {
    let followed = world.log_until(session, wanted);
    tokio::time::timeout(Duration::from_secs(60), followed).await.expect("it is said");
}

/// Waits until a run is over.
async fn ended(world: &World, session: SessionId, run: RunId) -> RunStatus {
    let followed = world.ended(session, run);
    tokio::time::timeout(Duration::from_secs(120), followed).await.expect("it ends").status
}

/// The program's processes of a session.
fn programs(world: &World, session: SessionId) -> Vec<u32> {
    let all = crate::processes::processes_of(&world.host.home(session));
    let is_claude = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| name.trim() == "claude")
    };
    // What it starts has its name until it has another program.
    let is_started_by_it = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        parent.is_some_and(&is_claude)
    };
    let is_it = |pid: &u32| is_claude(&pid.to_string()) && !is_started_by_it(pid);
    all.into_iter().filter(is_it).collect()
}

fn told(receipt: &Receipt) -> (Native, u32, u32) {
    let told = &receipt.conversation;
    (told.native, told.turns, told.turns_in_log)
}

/// Until when something has to have happened.
fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}
