//! Bridges that lie, flood, stall and die, against a real host: the session always ends up somewhere,
//! with a reason, and nothing is left running. A bridge is any program that is handed a socket and a spool; these are
//! a few lines of Python.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ash_core::entry::Entry;
use ash_core::failure::{Failure, FailureCode};
use ash_core::id::{AgentId, SessionId};
use ash_core::json::Json;
use ash_core::policy::Policy;
use ash_core::run::RunStatus;
use ash_core::session::{LogEntry, Status};
use ash_core::time::Clock as _;
use ash_engine::bridge::{
    Agent, BridgeHost, Describe, Egress, EgressGuard, Enclosure, HostOptions,
};
use ash_engine::host::SandboxRef;
use ash_engine::{
    Accepted, Engine, FollowFrom, Followed, IdSource, Options, SandboxHost as _, SystemClock,
};
use ash_store::memory::MemoryStore;
use ash_store::{NewAgentVersion, SessionRecord, Store};
use async_trait::async_trait;

use crate::support::{create, prompt, tenant};

mod stuck;

/// What every one of them begins with: the heading, and how to speak.
const PRELUDE: &str = r#"
import ctypes, json, os, socket, sys, time
ctypes.CDLL(None).prctl(15, b"bridge", 0, 0, 0)
control = socket.socket(fileno=0)
heading = json.dumps({"release": "python", "pid": os.getpid()}).encode()
os.pwrite(1, heading.ljust(4095) + b"\n", 0)
listener = socket.create_server(("127.0.0.1", 0))
position = 0

def accept():
    global stream, lines
    stream, _ = control.accept()
    lines = stream.makefile("rb")
    return json.loads(lines.readline())

def welcome(hello, version=1, fds=None):
    body = {"version": version, "release": "python", "last": position, "configured": False}
    line = json.dumps({"kind": "welcome", "re": hello["id"], "body": body}).encode() + b"\n"
    socket.send_fds(stream, [line], [listener.fileno()] if fds is None else fds)

def greet():
    welcome(accept())
    done(json.loads(lines.readline()))

def send(frame):
    stream.sendall(json.dumps(frame).encode() + b"\n")

def done(frame):
    if "id" in frame:
        send({"kind": "done", "re": frame["id"]})

def until(kind):
    while True:
        frame = json.loads(lines.readline())
        done(frame)
        if frame["kind"] == kind:
            return frame["body"]

def report(run, kind, body=None, at=None):
    global position
    position += 1
    line = {"position": position if at is None else at, "run": run, "kind": kind, "body": body}
    send({"kind": "report", "body": line})

def spool(run, kind, body=None):
    global position, end
    position += 1
    line = json.dumps({"position": position, "run": run, "kind": kind, "body": body}).encode() + b"\n"
    os.pwrite(1, line, end)
    end += len(line)
end = 4096

def rest():
    while True:
        time.sleep(60)
"#;

struct NoModel;

impl Egress for NoModel {
    fn serve(&self, _sandbox: SandboxRef, _listener: TcpListener) -> io::Result<EgressGuard> {
        Ok(Box::new(()))
    }
}

struct World {
    engine: Engine,
    host: BridgeHost,
    store: Arc<MemoryStore>,
    _dir: tempfile::TempDir,
}

impl World {
    /// An engine whose bridges behave like this.
    async fn with(behavior: &str) -> Self {
        Self::with_program(&format!("{PRELUDE}\n{behavior}"), Policy::default()).await
    }

    async fn with_program(program: &str, policy: Policy) -> Self {
        Self::described(program, policy, Arc::new(Agent::new("builtin", "none"))).await
    }

    async fn described(program: &str, policy: Policy, describe: Arc<dyn Describe>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bridge = dir.path().join("bridge");
        std::fs::write(&bridge, format!("#!{}\n{program}", python())).unwrap();
        std::fs::set_permissions(&bridge, std::fs::Permissions::from_mode(0o755)).unwrap();
        let store = Arc::new(MemoryStore::new());
        let owner = store.next_owner().await.unwrap();
        let host = BridgeHost::open(HostOptions {
            data: dir.path().join("data"),
            bridge,
            owner,
            orphan_ttl: Duration::from_secs(60),
            hook_timeout: Duration::from_secs(60),
            describe,
            environment: BTreeMap::new(),
            egress: Arc::new(NoModel),
            enclosure: Enclosure::Nothing,
            cloud: None,
            boot_id: "boot".to_owned(),
        })
        .unwrap();
        let agent = NewAgentVersion {
            id: AgentId::from_parts(SystemClock.now(), [0; 10]),
            tenant: tenant(),
            name: "coder".parse().unwrap(),
            definition: Json::of("an agent").unwrap(),
            at: SystemClock.now(),
            receipt: None,
            settings: None,
            label: ash_store::NewLabel::default(),
        };
        store.deploy_agent(&agent).await.unwrap();
        let engine = Engine::start(Options {
            store: Arc::clone(&store) as Arc<dyn Store>,
            host: Arc::new(host.clone()),
            clock: Arc::new(SystemClock),
            policy,
            ids: IdSource::seeded(1),
            owner,
            cloud: None,
            bundles: None,
        });
        Self { engine, host, store, _dir: dir }
    }

    /// A session with one prompt, and its log until an entry of this kind.
    async fn play(&self, until: &str) -> (SessionId, Accepted, Vec<LogEntry>) {
        let session = self.session().await;
        let accepted = self.engine.prompt(&tenant(), session, prompt(), None).await.unwrap();
        (session, accepted, self.log(session, until).await)
    }

    async fn session(&self) -> SessionId {
        self.engine.create_session(create(), None).await.unwrap().record.id
    }

    async fn log(&self, session: SessionId, until: &str) -> Vec<LogEntry> {
        let mut follower = self.engine.follow(&tenant(), session, FollowFrom::Start).await.unwrap();
        let mut log = Vec::new();
        loop {
            match follower.next().await.unwrap() {
                Followed::Entries(entries) => log.extend(entries),
                other => panic!("{other:?} after {log:?}"),
            }
            if log.iter().any(|entry| entry.entry.kind() == until) {
                return log;
            }
        }
    }

    /// Ends it all, and sees that nothing is left.
    async fn end(self) {
        // First: a sandbox that it is just burying looks alive for that moment.
        self.engine.abort().await;
        for sandbox in self.host.list().await.unwrap() {
            self.host.stop(sandbox).await.unwrap();
        }
        assert_eq!(self.host.list().await.unwrap(), []);
    }
}

fn python() -> String {
    let find = ["-c", "import sys; print(sys.executable)"];
    let output = Command::new("python3").args(find).output().expect("python3 is there");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Why a session failed.
fn failure(log: &[LogEntry]) -> (FailureCode, String) {
    let mut failures = log.iter().rev().filter_map(|entry| match &entry.entry {
        Entry::SessionFailed { failure } => Some((failure.code, failure.message.clone())),
        _ => None,
    });
    failures.next().unwrap_or_else(|| panic!("nothing failed: {log:?}"))
}

fn text(log: &[LogEntry]) -> String {
    let deltas = log.iter().filter_map(|entry| match &entry.entry {
        Entry::TextDelta { delta, .. } => Some(delta.as_str()),
        _ => None,
    });
    deltas.collect()
}

const TALKS: &str = r#"
greet()
run = until("deliver")["run"]
report(run, "begun")
report(run, "text_delta", "hello")
report(run, "ended", {"how": "end_turn"})
"#;

#[tokio::test]
async fn a_well_behaved_bridge_is_heard_to_the_end() {
    let world = World::with(&format!("{TALKS}\nrest()")).await;
    let (session, accepted, log) = world.play("run_ended").await;
    assert_eq!(text(&log), "hello");
    let run = world.store.run(session, accepted.run).await.unwrap();
    assert_eq!(run.status, RunStatus::Completed);
    world.end().await;
}

struct Nobody;

#[async_trait]
impl Describe for Nobody {
    async fn describe(&self, _record: &SessionRecord) -> Result<Agent, Failure> {
        Err(Failure::new(FailureCode::SandboxStartFailed, "its agent cannot be read"))
    }
}

#[tokio::test]
async fn a_session_whose_agent_cannot_be_described_says_why_it_does_not_start() {
    let world = World::described("", Policy::default(), Arc::new(Nobody)).await;
    let session = world.session().await;
    let log = world.log(session, "session_failed").await;
    assert_eq!(failure(&log).1, "its agent cannot be read");
    assert!(!world.host.workspace(session).exists());
    world.end().await;
}

#[tokio::test]
async fn what_a_dead_bridge_had_spooled_is_told_before_its_end() {
    let world = World::with(
        r#"
greet()
run = until("deliver")["run"]
report(run, "begun"); position = 0
for word in ["last ", "words"]:
    if word == "last ":
        spool(run, "begun")
    spool(run, "text_delta", word)
os.pwrite(1, b'{"position":4,"run":"', end)
os.kill(os.getpid(), 9)
"#,
    )
    .await;
    let (session, accepted, log) = world.play("session_failed").await;
    assert_eq!(text(&log), "last words");
    let (code, message) = failure(&log);
    assert_eq!(code, FailureCode::SandboxDied);
    assert!(message.contains("signal 9"), "{message}");
    let run = world.store.run(session, accepted.run).await.unwrap();
    assert_eq!(run.status, RunStatus::Interrupted);
    world.end().await;
}

#[tokio::test]
async fn a_bridge_that_sends_half_a_frame_and_hangs_up_is_asked_again() {
    let world = World::with(
        r#"
greet()
run = until("deliver")["run"]
report(run, "begun")
stream.sendall(b'{"kind":"report","body":{"position":2,"ru')
stream.shutdown(socket.SHUT_RDWR); lines.close(); stream.close()
hello = accept()
assert hello["body"]["after"] == 1, hello
welcome(hello)
report(run, "text_delta", "again")
report(run, "ended", {"how": "end_turn"})
rest()
"#,
    )
    .await;
    let (_, _, log) = world.play("run_ended").await;
    assert_eq!(text(&log), "again");
    world.end().await;
}

/// Every one of these ends the sandbox, with this in the reason.
#[tokio::test]
async fn a_bridge_that_cannot_be_believed_is_stopped_with_a_reason() {
    let cases = [
        ("report(run, 'text_delta', 'x', at=7)", "report 7 came after report 1"),
        ("report(run, 'text_delta', 'x', at=1)", "report 1 came after report 1"),
        ("stream.sendall(b'what is JSON?\\n')", "not a frame"),
        ("stream.sendall(b'{\"kind\":\"report\",\"body\":[]}\\n')", "not a frame"),
        ("stream.sendall(b'\\x00' * 4096 + b'\\n')", "not a frame"),
        (
            "send({'kind': 'report', 'body': {'position': -1, 'run': run, 'kind': 'x'}})",
            "not a frame",
        ),
        (
            "line = json.dumps({'kind': 'noise'}).encode() + b'\\n'\nfor _ in range(20): stream.sendall(line * 1000)",
            "nothing that is known",
        ),
        ("for _ in range(1024): stream.sendall(b'x' * (1 << 20))", "longer than 33554432 bytes"),
    ];
    for (lie, reason) in cases {
        let behavior = format!(
            "greet()\nrun = until('deliver')['run']\nreport(run, 'begun')\ntry:\n  {}\nexcept OSError: pass\nrest()",
            lie.replace('\n', "\n  ")
        );
        let world = World::with(&behavior).await;
        let (session, accepted, log) = world.play("session_failed").await;
        let (code, message) = failure(&log);
        assert_eq!(code, FailureCode::SandboxDied, "{lie}");
        assert!(message.contains(reason), "{lie}: {message}");
        let run = world.store.run(session, accepted.run).await.unwrap();
        assert_eq!(run.status, RunStatus::Interrupted, "{lie}");
        assert_eq!(world.host.list().await.unwrap(), [], "{lie}: it is still there");
        world.end().await;
    }
}

#[tokio::test]
async fn reports_about_runs_of_others_are_not_recorded() {
    let world = World::with(
        r#"
greet()
run = until("deliver")["run"]
report("01890a5d-ac96-774b-bcce-b302099a8057", "text_delta", "not mine")
report("../../other", "text_delta", "nor this")
report(run, "made_up", {"x": 1})
send({"kind": "done", "re": 99999})
send({"kind": "surprise", "body": {}})
report(run, "text_delta", "mine")
report(run, "ended", {"how": "end_turn"})
rest()
"#,
    )
    .await;
    let (_, _, log) = world.play("run_ended").await;
    assert_eq!(text(&log), "mine");
    let kinds: Vec<_> = log.iter().map(|entry| entry.entry.kind()).collect();
    assert!(!kinds.contains(&"reports_lost"), "{kinds:?}");
    world.end().await;
}

#[tokio::test]
async fn a_bridge_that_does_not_answer_as_it_should_is_not_started() {
    let cases = [
        ("welcome(accept(), version=99)\nrest()", "version 99"),
        ("welcome(accept(), fds=[])\nrest()", "no listener"),
        ("a, b = socket.socketpair()\nwelcome(accept(), fds=[a.fileno()])\nrest()", "no listener"),
        (
            "u = socket.socket(socket.AF_INET, socket.SOCK_STREAM)\nwelcome(accept(), fds=[u.fileno()])\nrest()",
            "no listener",
        ),
        (
            "u = socket.create_server(('0.0.0.0', 0))\nwelcome(accept(), fds=[u.fileno()])\nrest()",
            "not on the loopback",
        ),
        (
            "h = accept()\nsend({'kind': 'refused', 're': 0, 'body': {'message': 'too old'}})\nrest()",
            "too old",
        ),
        (
            "accept()\nfor _ in range(3): socket.send_fds(stream, [b' '], [listener.fileno()])\nrest()",
            "more than its listener",
        ),
        (
            "accept()\ntry:\n  while True: stream.sendall(b' ' * 65536)\nexcept OSError: pass\nrest()",
            "longer than 65536 bytes",
        ),
        ("sys.exit(3)", "exit code 3"),
        ("sys.exit(74)", "disk limit"),
    ];
    for (lie, reason) in cases {
        let world = World::with(lie).await;
        let session = world.session().await;
        let stored = world.engine.settled(&tenant(), session).await.unwrap();
        assert_eq!(stored.session.status(), Status::Error, "{lie}");
        let (code, message) = failure(&world.log(session, "session_failed").await);
        assert_eq!(code, FailureCode::SandboxStartFailed, "{lie}");
        assert!(message.contains(reason), "{lie}: {message}");
        world.end().await;
    }
}

/// Both would be listened to for ever, if only the next connection were waited for.
#[tokio::test]
async fn a_bridge_that_is_alive_and_of_no_use_is_given_up_after_its_last_words() {
    let hangs_up = "while True: welcome(accept()); stream.close(); lines.close()";
    let is_silent = "rest()";
    for then in [hangs_up, is_silent] {
        let world = World::with(&format!(
            r#"
greet()
run = until("deliver")["run"]
spool(run, "begun"); spool(run, "text_delta", "last words")
position = 0
report(run, "begun")
stream.shutdown(socket.SHUT_RDWR); lines.close(); stream.close()
{then}
"#
        ))
        .await;
        let (_, _, log) = world.play("session_failed").await;
        let (code, message) = failure(&log);
        assert_eq!(code, FailureCode::SandboxDied);
        assert!(message.contains("of no use"), "{then}: {message}");
        assert_eq!(text(&log), "last words", "{then}");
        world.end().await;
    }
}

#[tokio::test]
async fn a_program_that_is_no_bridge_is_killed_when_it_does_not_come_up() {
    let policy = Policy { start_timeout: Duration::from_millis(300), ..Policy::default() };
    let world = World::with_program("import time\nwhile True: time.sleep(60)", policy).await;
    let session = world.session().await;
    let (code, _) = failure(&world.log(session, "session_failed").await);
    assert_eq!(code, FailureCode::SandboxStartTimeout);
    let sandbox = SandboxRef { session, incarnation: ash_core::number::Incarnation::new(1) };
    world.host.stop(sandbox).await.unwrap();
    assert_eq!(world.host.list().await.unwrap(), []);
    world.end().await;
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let world = World::with("").await;
    std::fs::remove_file(world._dir.path().join("bridge")).unwrap();
    let session = world.session().await;
    let (code, message) = failure(&world.log(session, "session_failed").await);
    assert_eq!(code, FailureCode::SandboxStartFailed);
    assert!(message.contains("bridge could not be run"), "{message}");
    world.end().await;
}

#[tokio::test]
async fn a_sandbox_that_lived_or_was_stopped_is_not_started_again() {
    let world = World::with("greet()\nrest()").await;
    let session = world.session().await;
    world.engine.settled(&tenant(), session).await.unwrap();
    let sandbox = world.host.list().await.unwrap()[0];
    world.host.stop(sandbox).await.unwrap();
    world.host.stop(sandbox).await.unwrap();
    assert!(spool_of(&world, sandbox).exists(), "what says that it lived is gone");
    let never = SandboxRef { session, incarnation: ash_core::number::Incarnation::new(7) };
    world.host.stop(never).await.unwrap();
    assert!(!spool_of(&world, sandbox).exists(), "the later one says it for both");
    assert!(spool_of(&world, never).exists());
    world.end().await;
}

fn spool_of(world: &World, sandbox: SandboxRef) -> std::path::PathBuf {
    let name = format!("{}/{}.spool", sandbox.session, sandbox.incarnation.get());
    Path::new(world._dir.path()).join("data/run").join(name)
}
