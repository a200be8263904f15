//! A server process that dies of -9 at its first step to store or sandbox, at its second, and so on, while something is
//! done with a session. Another one takes over each time, and nothing that was acknowledged is gone.
//!
//! One session goes through all of it and only grows, so whatever a death left behind is there for the next. An
//! ordinary run takes some of the steps of a turn; `make crashes` takes every one.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ash_core::id::SessionId;
use ash_core::run::RunStatus;
use ash_core::session::{IfRunning, PauseReason, Sandbox, Status};
use ash_core::time::Timestamp;
use ash_engine::bridge::Enclosure;
use ash_engine::testing::Gate;
use ash_engine::{RequireState, SandboxHost as _};
use ash_protocol::Limits;
use ash_server::model::Model;

use crate::processes::has_died;
use crate::world::{
    Turn, World, bridges_of, can_isolate, enclosure, end_sandboxes, kill, processes_mentioning,
    tenant, until,
};

/// Where a test tells the process that dies what to do.
const CHILD: &str = "TEST_CRASH_OF";

/// Says that every step is to be taken.
const EVERY_STEP: &str = "ASH_TEST_EVERY_STEP";

/// What is done with a session while its server dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    /// A turn, its capture, a pause, and the capture of that.
    Work,
    /// A warm resume.
    Thaw,
    Evict,
    /// A resume where the files are still there.
    Cold,
    /// A resume where they are gone.
    Restore,
    Stop,
    End,
}

impl Deed {
    fn named(name: &str) -> Self {
        let all =
            [Self::Work, Self::Thaw, Self::Evict, Self::Cold, Self::Restore, Self::Stop, Self::End];
        *all.iter().find(|deed| format!("{deed:?}") == name).unwrap()
    }

    async fn perform(self, world: &World, session: SessionId, turn: u64) {
        let (engine, tenant) = (&world.engine, tenant());
        match self {
            Self::Work => {
                let run = world.prompt(session, &work(turn)).await.run;
                fs::write(world.dir.join("accepted"), run.to_string()).unwrap();
                world.ended(session, run).await;
                engine.pause(&tenant, session, IfRunning::Freeze).await.unwrap();
            }
            Self::Thaw | Self::Cold | Self::Restore => {
                engine.resume(&tenant, session, RequireState::Yes).await.unwrap();
                return;
            }
            Self::Evict => drop(engine.evict(session, PauseReason::Evicted).await.unwrap()),
            Self::Stop => drop(engine.stop(&tenant, session).await.unwrap()),
            Self::End => drop(engine.end(&tenant, session).await.unwrap()),
        }
        until("it is at rest", || engine.driven_sessions() == 0).await;
    }
}

/// What a turn is asked to do: it leaves its number in a file of its own, and in one that all of them have.
fn work(turn: u64) -> String {
    format!("/bash printf '{turn} ' >>all; mkdir -p d; printf 'turn {turn}' >d/{turn}")
}

/// Not a test by itself: the server that dies.
#[tokio::test]
async fn the_server_that_dies() {
    let Some(asked) = std::env::var_os(CHILD) else { return };
    let asked = asked.into_string().unwrap();
    let words: Vec<&str> = asked.split('|').collect();
    let [dir, url, session, deed, turn, step, around] = words[..] else { panic!("{asked}") };
    let (session, deed) = (session.parse().unwrap(), Deed::named(deed));
    let gate = Gate::crashing_at(step.parse().unwrap());
    let around = match around {
        "sandbox" => enclosure(&Path::new(dir).join("data")),
        _ => Enclosure::Nothing,
    };
    let lived = async {
        let behind = Some(gate.clone());
        let world = World::behind(Path::new(dir), url, Limits::default(), around, behind).await;
        deed.perform(&world, session, turn.parse().unwrap()).await;
    };
    tokio::select! {
        biased;
        () = gate.crashed() => kill(std::process::id()),
        () = lived => {}
    }
    // Without a farewell: neither is a server asked for one that is killed in good order.
    std::process::exit(0);
}

/// A session, and what is known of it while its servers come and go.
struct Life {
    temp: tempfile::TempDir,
    model: Option<Model>,
    around: Enclosure,
    session: SessionId,
    turn: u64,
}

impl Life {
    async fn begin(around: fn(&Path) -> Enclosure) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = Model::start(listener, Default::default()).unwrap();
        let around = around(&temp.path().join("data"));
        let session = SessionId::from_parts(Timestamp::from_millis(0), [0; 10]);
        Self { temp, model: Some(model), around, session, turn: 0 }
    }

    fn dir(&self) -> &Path {
        self.temp.path()
    }

    fn url(&self) -> String {
        self.model.as_ref().unwrap().url()
    }

    async fn server(&self) -> World {
        let around = self.around.clone();
        World::behind(self.dir(), &self.url(), Limits::default(), around, None).await
    }

    async fn new_session(&mut self, world: &World) {
        self.session = world.session().await;
        world.say(self.session, "My name is Ada.\n/bash printf planted >name").await;
    }

    /// Brings the session to where something can be done with it.
    async fn prepare(&mut self, world: &World, deed: Deed) {
        let (session, tenant) = (self.session, tenant());
        let engine = &world.engine;
        match deed {
            Deed::Work | Deed::Stop | Deed::End => {}
            Deed::Thaw => {
                drop(engine.pause(&tenant, session, IfRunning::Freeze).await.unwrap());
                world.captured(session).await;
            }
            // From the sandbox that works, and from the one that is paused.
            Deed::Evict if self.turn.is_multiple_of(2) => {
                drop(engine.pause(&tenant, session, IfRunning::Freeze).await.unwrap());
            }
            Deed::Evict => {}
            Deed::Cold | Deed::Restore => {
                engine.stop(&tenant, session).await.unwrap();
                until("it is at rest", || engine.driven_sessions() == 0).await;
                world.captured(session).await;
            }
        }
        if deed == Deed::Restore {
            fs::remove_dir_all(world.host.workspace(session)).unwrap();
            if self.turn.is_multiple_of(2) {
                fs::remove_dir_all(world.host.home(session)).unwrap();
            }
        }
    }

    /// Has a server do it that dies at a step. Whether it did.
    async fn die(&self, deed: Deed, step: u64) -> bool {
        let around = match self.around {
            Enclosure::Sandbox(_) => "sandbox",
            Enclosure::Nothing => "nothing",
        };
        let (dir, url) = (self.dir().display(), self.url());
        let (session, turn) = (self.session, self.turn);
        let asked = format!("{dir}|{url}|{session}|{deed:?}|{turn}|{step}|{around}");
        let context = format!("{deed:?} at {step}");
        has_died("crashes::the_server_that_dies", (CHILD, &asked), self.dir(), &context).await
    }

    /// Sees that everything is there, and nothing that should not be. The session is active then, unless it is over.
    async fn check(&self, world: &World, kills_both: bool, context: &str) {
        let session = self.session;
        let store = world.engine.store();
        let accepted = fs::read_to_string(self.dir().join("accepted"));
        let mut runs = store.runs(session, u32::MAX).await.unwrap();
        if let Ok(accepted) = accepted {
            let is_there = runs.iter().any(|run| run.id.to_string() == accepted);
            assert!(is_there, "{context}: an accepted run is gone");
            fs::remove_file(self.dir().join("accepted")).unwrap();
        }
        let status = world.engine.settled(&tenant(), session).await.unwrap().session.status();
        if status != Status::Ended {
            // Whatever became of it, there is a way on. A prompt may come before it is seen that the sandbox was killed.
            let mut answer = self.ask(world, context).await;
            if kills_both && answer.status == RunStatus::Interrupted {
                answer = self.ask(world, context).await;
            }
            assert_eq!(answer.status, RunStatus::Completed, "{context}: {answer:#?}");
            assert!(answer.text().contains("My name is Ada."), "{context}: {}", answer.text());
            world.captured_after(session, answer.record.prompt_seq).await;
        }
        runs.sort_by_key(|run| run.prompt_seq);
        let mut completed = Vec::new();
        let mut cut = BTreeSet::new();
        for run in runs {
            let record = world.ended(session, run.id).await;
            let prompt = store.prompt(session, run.id).await.unwrap();
            let Some(turn) =
                prompt.get().split("turn ").nth(1).and_then(|rest| rest.split('\'').next())
            else {
                continue;
            };
            match record.status {
                RunStatus::Completed => completed.push(turn.to_owned()),
                RunStatus::Interrupted => drop(cut.insert(turn.to_owned())),
                other => panic!("{context}: {other:?}"),
            }
        }
        self.compare(world, &completed, &cut, context);
        self.nothing_is_left(world, context).await;
    }

    /// Brings it back, and asks something that only an agent knows that remembers.
    async fn ask(&self, world: &World, context: &str) -> Turn {
        let back = world.engine.resume(&tenant(), self.session, RequireState::Yes).await;
        back.unwrap_or_else(|error| panic!("{context}: {error}"));
        world.say(self.session, "Who am I?\n/recall").await
    }

    /// Byte for byte: every turn that was completed has left what it should, once.
    fn compare(&self, world: &World, completed: &[String], cut: &BTreeSet<String>, context: &str) {
        let place = world.host.workspace(self.session);
        let read = |name: &str| fs::read_to_string(place.join(name)).unwrap_or_default();
        assert_eq!(read("name"), "planted", "{context}");
        let all = read("all");
        let written: Vec<&str> = all.split_whitespace().filter(|it| !cut.contains(*it)).collect();
        assert_eq!(written, completed, "{context}");
        for turn in completed {
            assert_eq!(read(&format!("d/{turn}")), format!("turn {turn}"), "{context}");
        }
    }

    async fn nothing_is_left(&self, world: &World, context: &str) {
        let data = self.dir().join("data");
        let stored = world.engine.store().session(&tenant(), self.session).await.unwrap();
        let is_over = stored.session.status() == Status::Ended;
        if is_over {
            until("its sandbox is gone", || bridges_of(&data).is_empty()).await;
        } else {
            assert_eq!(stored.session.sandbox(), Sandbox::Live, "{context}");
            assert_eq!(bridges_of(&data).len(), 1, "{context}");
        }
        let alive = world.host.list().await.unwrap();
        assert_eq!(alive.len(), usize::from(!is_over), "{context}: {alive:?}");
        let session = self.session.to_string();
        let known = ["workspace", "home", "captured", "boot", "came", "rebuilt"].map(str::to_owned);
        for name in names(&data.join("sandboxes").join(&session)) {
            // What was half saved goes with the next capture, or with everything else.
            let is_half = is_over && name.starts_with("captured.");
            assert!(known.contains(&name) || is_half, "{context}: {name} is left");
        }
        let now = format!("{}.", stored.session.incarnation().get());
        for name in names(&data.join("run").join(&session)) {
            // What a sandbox said is kept until it is read, within bounds.
            let is_said = name.ends_with(".log") || name == "said";
            assert!(
                name.starts_with(&now) || is_said,
                "{context}: {name} is left, and it is {now}"
            );
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.dir().to_str().unwrap()), "{context}: {mounts}");
        if let Enclosure::Sandbox(sandboxing) = &self.around {
            let cgroups = || sandboxing.cgroups.list().unwrap();
            until("no cgroup is left over", || cgroups().len() <= usize::from(!is_over)).await;
        }
        let snapshots = world.engine.snapshots(&tenant(), self.session, 1_000).await.unwrap();
        for stored in snapshots {
            let id = stored.snapshot.captured.id;
            assert!(world.host.has_snapshot(&tenant(), id).await.unwrap(), "{context}: {id}");
        }
    }

    async fn over(mut self) {
        let world = self.server().await;
        for sandbox in world.host.list().await.unwrap() {
            world.host.stop(sandbox).await.unwrap();
        }
        let_go(world).await;
        self.model.take().unwrap().shutdown().await;
        let marker = self.dir().as_os_str().to_owned();
        until("nothing is left", || processes_mentioning(&marker).is_empty()).await;
        end_sandboxes(&self.dir().join("data"));
    }
}

/// Lets a server of this process go, as its death would.
async fn let_go(world: World) {
    world.engine.abort().await;
    world.host.abandon().await;
}

fn names(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Lets servers die at one step after the other. The sandbox is killed too, every other time.
async fn die_at_every_step(deed: Deed, stride: u64, around: fn(&Path) -> Enclosure) {
    let stride = if std::env::var_os(EVERY_STEP).is_some() { 1 } else { stride };
    let mut life = Life::begin(around).await;
    let mut world = life.server().await;
    life.new_session(&world).await;
    let (mut step, mut deaths) = (1, 0);
    loop {
        life.turn += 1;
        life.prepare(&world, deed).await;
        let_go(world).await;
        let died = life.die(deed, step).await;
        let kills_both = died && deaths % 2 == 1;
        if kills_both {
            bridges_of(&life.dir().join("data")).into_iter().for_each(kill);
        }
        world = life.server().await;
        let context = format!("{deed:?}, killed at step {step}, the sandbox too: {kills_both}");
        life.check(&world, kills_both, &context).await;
        if !died {
            break;
        }
        deaths += 1;
        step += stride;
        if deed == Deed::End {
            drop(world.engine.end(&tenant(), life.session).await);
            until("it is over", || world.engine.driven_sessions() == 0).await;
            life.new_session(&world).await;
        }
    }
    eprintln!("{deed:?}: {deaths} deaths, up to step {step}");
    assert!(step > 10, "{deed:?} has only {step} steps");
    let_go(world).await;
    life.over().await;
}

fn nothing(_data: &Path) -> Enclosure {
    Enclosure::Nothing
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_of_a_turn_and_a_pause_loses_nothing() {
    die_at_every_step(Deed::Work, 3, nothing).await;
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_of_a_warm_resume_loses_nothing() {
    die_at_every_step(Deed::Thaw, 1, nothing).await;
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_of_an_eviction_loses_nothing() {
    die_at_every_step(Deed::Evict, 1, nothing).await;
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_of_a_cold_resume_loses_nothing() {
    die_at_every_step(Deed::Cold, 1, nothing).await;
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_of_bringing_files_back_loses_nothing() {
    die_at_every_step(Deed::Restore, 1, nothing).await;
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_of_a_stop_loses_nothing() {
    die_at_every_step(Deed::Stop, 1, nothing).await;
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_of_an_end_loses_nothing() {
    die_at_every_step(Deed::End, 1, nothing).await;
}

#[tokio::test]
async fn a_server_that_dies_while_a_real_sandbox_works_and_pauses_loses_nothing() {
    if !can_isolate() {
        return eprintln!("not tried: this machine has no sandboxes");
    }
    die_at_every_step(Deed::Work, 7, enclosure).await;
}
