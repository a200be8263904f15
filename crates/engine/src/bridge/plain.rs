//! A host whose sandboxes are plain child processes: nothing keeps the agent from the rest of the
//! machine. For tests, and for `--dangerously-no-sandbox`.
//!
//! Bridges outlive the server that started them. What they need to be found again is in files
//! (`files`): a host that starts over finds every live bridge by its locked spool.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash_core::failure::{Death, Failure};
use ash_core::id::{RunId, SessionId};
use ash_core::json::Json;
use ash_core::number::{Incarnation, Owner, SpoolPosition};
use ash_protocol::{Answer, Ask, Config, ExecRequest, ExecResult};
use ash_store::SessionRecord;
use async_trait::async_trait;
use rustix::process::Signal;
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::connection::{ConnectError, Connection, Question};
use super::files::{Begin, Files, Life};
use super::options::{Agent, EgressGuard, PlainOptions};
use super::pump::Pump;
use super::report::Understanding;
use super::tree;
use super::word::{death_by, done, failed, frame_of, is_harmless, start_failed, unexpected};
use crate::host::{HostError, Reporter, SandboxHost, SandboxRef};
use crate::tasks::Tasks;

/// How many questions may wait for a bridge.
const QUESTIONS_CAPACITY: usize = 64;

/// How long a bridge may take to come up, to answer, to greet, and to be gone after it was killed.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const DEATH_TIMEOUT: Duration = Duration::from_secs(8);

/// How long an answer to a command may take beyond the command's own time.
const EXEC_MARGIN: Duration = Duration::from_secs(15);

/// How long to wait between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Runs sandboxes as plain children. Cheap to clone.
#[derive(Clone)]
pub struct PlainHost(Arc<Inner>);

pub(super) struct Inner {
    pub(super) files: Files,
    options: PlainOptions,
    state: Mutex<State>,
    tasks: Tasks,
}

#[derive(Default)]
struct State {
    links: BTreeMap<SandboxRef, Link>,
    children: BTreeMap<SandboxRef, ChildOfOurs>,
    egress: BTreeMap<SandboxRef, EgressGuard>,
    /// Of each session, the incarnations that must not be started any more.
    stopped_through: BTreeMap<SessionId, Incarnation>,
}

/// A bridge that this process started.
#[derive(Clone)]
struct ChildOfOurs {
    pid: Option<u32>,
    /// How it ended, once it has.
    death: watch::Receiver<Option<Death>>,
}

/// The way to a sandbox that is connected.
#[derive(Clone)]
struct Link {
    questions: mpsc::Sender<Question>,
    pump: AbortHandle,
}

impl PlainHost {
    /// A host over a directory. Bridges that are alive there are found again.
    pub fn open(options: PlainOptions) -> io::Result<Self> {
        let files = Files::open(&options.data)?;
        Ok(Self(Arc::new(Inner { files, options, state: Mutex::default(), tasks: Tasks::new() })))
    }

    /// Runs a command beside the agent.
    pub async fn exec(
        &self,
        sandbox: SandboxRef,
        request: ExecRequest,
    ) -> Result<ExecResult, HostError> {
        let patience = Duration::from_millis(request.timeout_ms).saturating_add(EXEC_MARGIN);
        match self.0.ask(sandbox, Ask::Exec(request), patience).await? {
            Answer::Executed(result) => Ok(result),
            answer @ (Answer::Welcome(_) | Answer::Done | Answer::Refused { .. }) => {
                Err(unexpected("run a command", &answer))
            }
        }
    }

    /// Lets go of every sandbox without ending it, as the death of the server would.
    pub async fn abandon(&self) {
        self.0.tasks.abort().await;
        *self.0.state() = State::default();
    }

    /// Where a session's agent works.
    pub fn workspace(&self, session: SessionId) -> PathBuf {
        self.0.files.workspace(session)
    }

    /// Where a session's agent keeps what is its own.
    pub fn home(&self, session: SessionId) -> PathBuf {
        self.0.files.home(session)
    }

    /// The process number of a sandbox's bridge, if it is alive.
    pub fn bridge_of(&self, sandbox: SandboxRef) -> Option<u32> {
        match self.0.files.life(sandbox) {
            Ok(Life::Alive(told)) => self.0.process_of(sandbox, told),
            Ok(Life::Dead | Life::Unborn) | Err(_) => None,
        }
    }
}

#[async_trait]
impl SandboxHost for PlainHost {
    async fn start(
        &self,
        sandbox: SandboxRef,
        record: &SessionRecord,
        reporter: Reporter,
    ) -> Result<(), Failure> {
        let started = async {
            self.0.clear_before(sandbox).await.map_err(start_failed)?;
            self.0.launch(sandbox)?;
            let connection = self.0.first_connection(sandbox).await?;
            let configured = connection.welcome.configured;
            self.0
                .pump(sandbox, connection, SpoolPosition::ZERO, reporter)
                .map_err(start_failed)?;
            if configured {
                return Ok(());
            }
            let config = self.0.config(sandbox.session, record);
            let asked = self.0.ask(sandbox, Ask::Configure(Box::new(config)), ANSWER_TIMEOUT).await;
            done("configure a sandbox", asked.map_err(start_failed)?).map_err(start_failed)
        };
        match timeout(START_TIMEOUT, started).await {
            Ok(started) => started,
            Err(_elapsed) => Err(start_failed("its bridge did not answer in time")),
        }
    }

    async fn attach(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<(), HostError> {
        let attempted = "attach to a sandbox";
        match self.0.files.life(sandbox).map_err(|error| failed(attempted, error))? {
            Life::Alive(_) => {
                let connection = self
                    .0
                    .connect(sandbox, after.get())
                    .await
                    .map_err(|error| failed(attempted, error))?;
                self.0.pump(sandbox, connection, after, reporter)
            }
            Life::Dead | Life::Unborn => {
                let death = self.0.death_of(sandbox).await.unwrap_or(Death::Lost);
                let (_, questions) = mpsc::channel(1);
                let mut pump = self.0.pump_of(sandbox, after, reporter, questions);
                self.0.tasks.spawn(async move { pump.bequeath(death).await });
                Ok(())
            }
        }
    }

    async fn stop(&self, sandbox: SandboxRef) -> Result<(), HostError> {
        {
            let mut state = self.0.state();
            let through = state.stopped_through.entry(sandbox.session).or_default();
            *through = (*through).max(sandbox.incarnation);
        }
        let earlier = self.0.files.of(sandbox.session).map_err(|e| failed("find sandboxes", e))?;
        for other in earlier.into_iter().filter(|other| *other < sandbox) {
            self.0.kill(other).await?;
            self.0.forget(other);
            self.0.files.forget(other).map_err(|error| failed("forget a sandbox", error))?;
        }
        self.0.kill(sandbox).await?;
        self.0.forget(sandbox);
        self.0.files.bury(sandbox).map_err(|error| failed("bury a sandbox", error))
    }

    async fn freeze(&self, sandbox: SandboxRef) -> Result<(), HostError> {
        tree::signal_tree(self.0.live_bridge(sandbox, "freeze a sandbox")?, Signal::STOP);
        Ok(())
    }

    async fn thaw(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<(), HostError> {
        tree::wake_tree(self.0.live_bridge(sandbox, "thaw a sandbox")?);
        self.attach(sandbox, after, reporter).await
    }

    async fn deliver(
        &self,
        sandbox: SandboxRef,
        run: RunId,
        prompt: &Json,
    ) -> Result<(), HostError> {
        let prompt = serde_json::value::RawValue::from_string(prompt.get().to_owned())
            .map_err(|error| failed("deliver a prompt", error))?;
        let ask = Ask::Deliver { run: run.to_string(), prompt };
        done("deliver a prompt", self.0.ask(sandbox, ask, ANSWER_TIMEOUT).await?)
    }

    async fn interrupt(&self, sandbox: SandboxRef, run: RunId) -> Result<(), HostError> {
        let ask = Ask::Interrupt { run: run.to_string() };
        done("interrupt a run", self.0.ask(sandbox, ask, ANSWER_TIMEOUT).await?)
    }

    async fn acknowledge(
        &self,
        sandbox: SandboxRef,
        through: SpoolPosition,
    ) -> Result<(), HostError> {
        let link = self.0.link(sandbox, "acknowledge reports")?;
        let frame = frame_of(&Ask::Acknowledge { through: through.get() })?;
        // A sandbox that is gone meanwhile has nothing to forget.
        let _gone = link.questions.send(Question { frame, reply: None }).await;
        Ok(())
    }

    async fn list(&self) -> Result<Vec<SandboxRef>, HostError> {
        let attempted = "list sandboxes";
        let mut alive = Vec::new();
        for sandbox in self.0.files.all().map_err(|error| failed(attempted, error))? {
            let life = self.0.files.life(sandbox).map_err(|error| failed(attempted, error))?;
            if let Life::Alive(_) = life {
                alive.push(sandbox);
            }
        }
        Ok(alive)
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn owner(&self) -> Owner {
        self.options.owner
    }

    fn config(&self, session: SessionId, record: &SessionRecord) -> Config {
        let Agent { runtime, model, env, limits } = (self.options.describe)(record);
        Config {
            runtime,
            workspace: self.files.workspace(session),
            home: self.files.home(session),
            env,
            model,
            limits,
            orphan_ttl_ms: u64::try_from(self.options.orphan_ttl.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Makes sure that nothing of an earlier sandbox of the session runs.
    async fn clear_before(self: &Arc<Self>, sandbox: SandboxRef) -> Result<(), HostError> {
        let all =
            self.files.of(sandbox.session).map_err(|error| failed("find sandboxes", error))?;
        if all.iter().any(|other| *other > sandbox) {
            return Err(failed("start a sandbox", "a later one has been started already"));
        }
        for other in all.into_iter().filter(|other| *other < sandbox) {
            self.kill(other).await?;
            self.forget(other);
            self.files.forget(other).map_err(|error| failed("forget a sandbox", error))?;
        }
        Ok(())
    }

    /// Starts the bridge, unless it runs already.
    fn launch(self: &Arc<Self>, sandbox: SandboxRef) -> Result<(), Failure> {
        // Held so that a stop is either seen here, or sees what is started here.
        let mut state = self.state();
        let stopped = state.stopped_through.get(&sandbox.session).copied().unwrap_or_default();
        if sandbox.incarnation <= stopped {
            return Err(start_failed("it was stopped before it was started"));
        }
        match self.files.begin(sandbox).map_err(start_failed)? {
            Begin::Taken(Life::Alive(_)) => Ok(()),
            Begin::Taken(Life::Dead | Life::Unborn) => Err(start_failed("it has lived already")),
            Begin::Locked(spool) => {
                self.files.make_directories(sandbox.session).map_err(start_failed)?;
                let control = self.files.bind(sandbox).map_err(start_failed)?;
                let log = self.files.log(sandbox).map_err(start_failed)?;
                let mut child = Command::new(&self.options.bridge)
                    .env_clear()
                    .envs(self.options.environment.iter().filter(|(name, _)| is_harmless(name)))
                    .env("HOME", self.files.home(sandbox.session))
                    .current_dir("/")
                    .stdin(Stdio::from(OwnedFd::from(control)))
                    .stdout(Stdio::from(spool))
                    .stderr(Stdio::from(log))
                    .spawn()
                    .map_err(|error| {
                        let bridge = self.options.bridge.display();
                        start_failed(format!("{bridge} could not be run: {error}"))
                    })?;
                let (exit, death) = watch::channel(None);
                state.children.insert(sandbox, ChildOfOurs { pid: child.id(), death });
                self.tasks.spawn(async move {
                    let death = child.wait().await.map_or(Death::Unseen, death_by);
                    let _nobody_asks = exit.send(Some(death));
                });
                Ok(())
            }
        }
    }

    /// Connects to a bridge that is coming up.
    async fn first_connection(&self, sandbox: SandboxRef) -> Result<Connection, Failure> {
        loop {
            let error = match self.connect(sandbox, 0).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            match self.files.life(sandbox) {
                Ok(Life::Alive(_)) if matches!(error, ConnectError::Unreachable(_)) => {
                    sleep(LOOK).await;
                }
                Ok(Life::Alive(_)) => return Err(start_failed(error)),
                Ok(Life::Dead | Life::Unborn) => {
                    let death = self.death_of(sandbox).await.unwrap_or(Death::Unseen);
                    return Err(start_failed(death.failure().message));
                }
                Err(error) => return Err(start_failed(error)),
            }
        }
    }

    pub(super) async fn connect(
        &self,
        sandbox: SandboxRef,
        after: u64,
    ) -> Result<Connection, ConnectError> {
        let near = self.files.near(sandbox.session)?;
        let path = near.path(sandbox);
        let opened = timeout(CONNECT_TIMEOUT, Connection::open(&path, self.options.owner, after));
        opened.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    /// Listens to a sandbox from now on, and to no earlier connection.
    fn pump(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        connection: Connection,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<(), HostError> {
        let mut state = self.state();
        // The one that is served already is the same: what it is in the middle of goes on.
        if let Entry::Vacant(place) = state.egress.entry(sandbox) {
            let listener = connection.listener.try_clone();
            let guard = listener.and_then(|listener| self.options.egress.serve(sandbox, listener));
            place.insert(guard.map_err(|error| failed("serve a sandbox", error))?);
        }
        let (questions, queue) = mpsc::channel(QUESTIONS_CAPACITY);
        let pump = self.pump_of(sandbox, after, reporter, queue);
        let pump = self.tasks.spawn(pump.run(connection));
        if let Some(former) = state.links.insert(sandbox, Link { questions, pump }) {
            former.pump.abort();
        }
        Ok(())
    }

    fn pump_of(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
        questions: mpsc::Receiver<Question>,
    ) -> Pump {
        let understanding = Understanding::after(after.get());
        let host = Arc::clone(self);
        Pump { host, sandbox, reporter, questions, understanding, in_vain_since: None }
    }

    /// How a sandbox ended, if it was a child of ours.
    pub(super) async fn death_of(&self, sandbox: SandboxRef) -> Option<Death> {
        let mut child = self.state().children.get(&sandbox).cloned()?;
        let ended = timeout(DEATH_TIMEOUT, child.death.wait_for(Option::is_some)).await;
        ended.ok()?.ok()?.clone()
    }

    /// The process of a bridge that is alive: our own child, or what its spool says.
    pub(super) fn process_of(&self, sandbox: SandboxRef, told: Option<u32>) -> Option<u32> {
        let child = self.state().children.get(&sandbox).cloned();
        let living = child.filter(|child| child.death.borrow().is_none());
        living.and_then(|child| child.pid).or(told.filter(|&pid| self.is_bridge(pid)))
    }

    /// Whether a process number that a spool names still belongs to a bridge.
    fn is_bridge(&self, pid: u32) -> bool {
        let program = self.options.bridge.file_name();
        program.is_some_and(|program| tree::has_name(pid, &program.to_string_lossy()))
    }

    /// Forgets a sandbox that is dead.
    pub(super) fn forget(&self, sandbox: SandboxRef) {
        let mut state = self.state();
        state.links.remove(&sandbox);
        state.egress.remove(&sandbox);
        state.children.remove(&sandbox);
    }

    fn link(&self, sandbox: SandboxRef, attempted: &'static str) -> Result<Link, HostError> {
        let link = self.state().links.get(&sandbox).cloned();
        link.ok_or_else(|| failed(attempted, "it is not connected"))
    }

    async fn ask(
        &self,
        sandbox: SandboxRef,
        ask: Ask,
        patience: Duration,
    ) -> Result<Answer, HostError> {
        let attempted = "ask a sandbox";
        let link = self.link(sandbox, attempted)?;
        let frame = frame_of(&ask)?;
        let (reply, answer) = oneshot::channel();
        let asked = async {
            link.questions.send(Question { frame, reply: Some(reply) }).await.ok()?;
            answer.await.ok()
        };
        match timeout(patience, asked).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(failed(attempted, "the connection ended before it answered")),
            Err(_elapsed) => Err(failed(attempted, "it did not answer in time")),
        }
    }
}
