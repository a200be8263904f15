//! A host whose sandboxes are entries in a map and whose agents are dice.
//!
//! It keeps the promises of [`SandboxHost`] and breaks everything else on demand: it is slow, its
//! calls fail before or after they took effect, its sandboxes die, its agents ignore interrupts,
//! its reports come twice. It outlives the engines that use it, as bridges outlive a server, and
//! it remembers every promise that *they* broke.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash_core::failure::{Death, Failure, FailureCode};
use ash_core::id::{RunId, SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::{Incarnation, SpoolPosition};
use ash_core::resume::{Found, Native, Source, Workspace};
use ash_core::session::{NumberedReport, Report};
use ash_core::snapshot::Captured;
use ash_core::time::Timestamp;
use ash_protocol::{ExecEnd, ExecRequest, ExecResult};
use async_trait::async_trait;
use tokio::task::{AbortHandle, JoinSet};

use super::{Dice, Gate};
use crate::host::{HostError, Persist, Reporter, SandboxHost, SandboxRef, StandStill, Start};
use crate::signal::Signal;

/// How a [`FakeHost`] misbehaves: chances per thousand, and how slow it is at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostFaults {
    /// A start fails.
    pub start_fails: u64,
    /// A start, or any other call, takes longer than anybody waits.
    pub hangs: u64,
    /// A call does nothing and fails.
    pub call_fails: u64,
    /// A call takes effect and fails.
    pub loses_answer: u64,
    /// A sandbox dies between two things its agent does.
    pub dies: u64,
    /// An agent pays no attention to an interrupt.
    pub deaf: u64,
    /// A batch of reports is sent once more.
    pub doubles: u64,
    /// How many things an agent does for a prompt; zero: a few.
    pub diligence: u64,
    /// The longest that a call, or a thing an agent does, takes.
    pub slowness: Duration,
}

/// A host for tests, which keeps its promises and breaks everything else on demand.
#[derive(Clone)]
pub struct FakeHost(Arc<World>);

pub(super) struct World {
    pub(super) dice: Arc<Dice>,
    state: Mutex<State>,
    mood: Mutex<(Gate, HostFaults)>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) sandboxes: BTreeMap<SandboxRef, Cell>,
    dead_through: BTreeMap<SessionId, Incarnation>,
    /// The sandbox that each workspace was made for.
    workspaces: BTreeMap<SessionId, Incarnation>,
    /// Directories that stand for a workspace.
    directories: BTreeMap<SessionId, PathBuf>,
    pub(super) said: BTreeMap<RunId, String>,
    pub(super) begun: BTreeSet<RunId>,
    pub(super) broken_promises: Vec<String>,
    connections: u64,
    captures: u64,
    /// How many sandboxes may be alive at once.
    most: Option<usize>,
}

/// A sandbox, dead or alive.
pub(super) struct Cell {
    pub(super) death: Option<Death>,
    pub(super) frozen: bool,
    pub(super) known_runs: BTreeSet<RunId>,
    pub(super) interrupted: BTreeSet<RunId>,
    pub(super) spool: BTreeMap<u64, Report>,
    pub(super) last_report: u64,
    /// Says that something changed, so that whoever waits looks again.
    pub(super) changes: Arc<Signal<()>>,
    pump: Option<AbortHandle>,
}

impl FakeHost {
    /// A host that behaves, for now.
    pub fn new(dice: Arc<Dice>) -> Self {
        Self(Arc::new(World {
            dice,
            state: Mutex::default(),
            mood: Mutex::default(),
            tasks: Mutex::default(),
        }))
    }

    /// From now on: for the next engine, behind its gate.
    pub fn behave(&self, gate: Gate, faults: HostFaults) {
        *self.0.mood.lock().unwrap_or_else(PoisonError::into_inner) = (gate, faults);
    }

    /// More sandboxes than this at once are a broken promise.
    pub fn allow_at_most(&self, sandboxes: usize) {
        self.0.state().most = Some(sandboxes);
    }

    /// What an agent has said in a run, whether or not anybody heard it.
    pub fn said(&self, run: RunId) -> String {
        self.0.state().said.get(&run).cloned().unwrap_or_default()
    }

    /// Which promises the engine broke: two sandboxes of a session at once, more of them than there
    /// may be, a prompt begun twice.
    pub fn broken_promises(&self) -> Vec<String> {
        self.0.state().broken_promises.clone()
    }

    /// How often somebody connected to a sandbox.
    pub fn connections(&self) -> u64 {
        self.0.state().connections
    }

    /// Every sandbox that is alive.
    pub fn alive(&self) -> Vec<SandboxRef> {
        let state = self.0.state();
        let alive = state.sandboxes.iter().filter(|(_, sandbox)| sandbox.death.is_none());
        alive.map(|(name, _)| *name).collect()
    }

    /// Has a sandbox run that nobody asked for.
    pub fn plant(&self, sandbox: SandboxRef) {
        self.0.come_up(sandbox).expect("it has not lived before");
    }

    /// Kills a sandbox.
    pub fn kill(&self, sandbox: SandboxRef, death: Death) {
        self.0.die(sandbox, death);
    }

    /// The files of a session are gone.
    pub fn lose_workspace(&self, session: SessionId) {
        self.0.state().workspaces.remove(&session);
    }

    /// Where the files of a session are from now on.
    pub fn place_workspace(&self, session: SessionId, directory: PathBuf) {
        self.0.state().directories.insert(session, directory);
    }

    /// The machine reboots: everything is gone, and nobody saw it go.
    pub fn reboot(&self) {
        let mut state = self.0.state();
        for (name, sandbox) in std::mem::take(&mut state.sandboxes) {
            let dead = state.dead_through.entry(name.session).or_default();
            *dead = (*dead).max(name.incarnation);
            if let Some(pump) = sandbox.pump {
                pump.abort();
            }
            sandbox.changes.change(|()| ());
        }
    }

    /// The way to the sandboxes, and back.
    async fn call<T>(
        &self,
        attempted: &'static str,
        act: impl FnOnce() -> T,
    ) -> Result<T, HostError> {
        let (gate, faults) = self.0.mood();
        gate.pass().await;
        self.0.dawdle(faults).await;
        self.0.hang(faults).await;
        gate.pass().await;
        if self.0.dice.chance(faults.call_fails) {
            return Err(HostError { attempted, detail: "nothing happened".to_owned() });
        }
        let done = act();
        gate.pass().await;
        if self.0.dice.chance(faults.loses_answer) {
            return Err(HostError { attempted, detail: "the answer was lost".to_owned() });
        }
        Ok(done)
    }
}

#[async_trait]
impl SandboxHost for FakeHost {
    async fn start(
        &self,
        sandbox: SandboxRef,
        start: Start<'_>,
        reporter: Reporter,
    ) -> Result<Found, Failure> {
        let (gate, faults) = self.0.mood();
        gate.pass().await;
        self.0.dawdle(faults).await;
        self.0.hang(faults).await;
        gate.pass().await;
        if self.0.dice.chance(faults.start_fails) {
            return Err(Failure::new(FailureCode::SandboxStartFailed, "no luck"));
        }
        self.0.come_up(sandbox)?;
        let found = self.0.found(sandbox, start.completed_runs);
        self.0.connect(sandbox, SpoolPosition::ZERO, reporter);
        gate.pass().await;
        Ok(found)
    }

    async fn attach(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<(), HostError> {
        self.call("attach", || self.0.connect(sandbox, after, reporter)).await
    }

    async fn stop(&self, sandbox: SandboxRef) -> Result<(), HostError> {
        self.call("stop", || self.0.stop(sandbox)).await
    }

    async fn freeze(&self, sandbox: SandboxRef) -> Result<(), HostError> {
        self.call("freeze", || self.0.change(sandbox, |sandbox| sandbox.frozen = true)).await
    }

    async fn thaw(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<(), HostError> {
        self.call("thaw", || {
            self.0.change(sandbox, |sandbox| sandbox.frozen = false);
            self.0.connect(sandbox, after, reporter);
        })
        .await
    }

    async fn deliver(
        &self,
        sandbox: SandboxRef,
        run: RunId,
        _prompt: &Json,
    ) -> Result<(), HostError> {
        self.call("deliver", || self.0.deliver(sandbox, run)).await
    }

    async fn interrupt(&self, sandbox: SandboxRef, run: RunId) -> Result<(), HostError> {
        let deaf = self.0.dice.chance(self.0.mood().1.deaf);
        self.call("interrupt", || {
            self.0.change(sandbox, |sandbox| {
                if !deaf {
                    sandbox.interrupted.insert(run);
                }
            });
        })
        .await
    }

    async fn acknowledge(
        &self,
        sandbox: SandboxRef,
        through: SpoolPosition,
    ) -> Result<(), HostError> {
        self.call("acknowledge", || {
            self.0.change(sandbox, |sandbox| {
                sandbox.spool.retain(|&position, _| position > through.get());
            });
        })
        .await
    }

    async fn persist(
        &self,
        persist: Persist<'_>,
        still: StandStill,
    ) -> Result<Option<Captured>, HostError> {
        let captured = self.call("persist", || self.0.capture(persist)).await;
        still.is_over();
        captured
    }

    /// Says the command back. However the host hangs, a command takes no longer than it may.
    async fn exec(
        &self,
        sandbox: SandboxRef,
        request: ExecRequest,
    ) -> Result<ExecResult, HostError> {
        let patience = Duration::from_millis(request.timeout_ms);
        let alive = self.call("exec", || self.alive().contains(&sandbox));
        let alive = tokio::time::timeout(patience, alive).await;
        if !alive.unwrap_or_else(|_| Err(HostError::late("exec")))? {
            return Err(HostError { attempted: "exec", detail: "it is not alive".to_owned() });
        }
        Ok(ExecResult {
            end: ExecEnd::Exited(0),
            stdout: request.command,
            stderr: String::new(),
            omitted_bytes: 0,
        })
    }

    async fn logs(&self, session: SessionId) -> Result<String, HostError> {
        self.call("logs", || {
            let state = self.0.state();
            let latest = state.sandboxes.range(incarnations(session)).next_back();
            latest.map(|(name, _)| format!("sandbox {}", name.incarnation)).unwrap_or_default()
        })
        .await
    }

    async fn has_state(&self, session: SessionId) -> Result<bool, HostError> {
        self.call("look", || self.0.state().workspaces.contains_key(&session)).await
    }

    async fn has_snapshot(
        &self,
        _tenant: &TenantId,
        _snapshot: SnapshotId,
    ) -> Result<bool, HostError> {
        self.call("look", || false).await
    }

    async fn workspace(&self, session: SessionId) -> Result<Option<PathBuf>, HostError> {
        self.call("find files", || self.0.state().directories.get(&session).cloned()).await
    }

    async fn list(&self) -> Result<Vec<SandboxRef>, HostError> {
        self.call("list", || self.alive()).await
    }
}

impl World {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mood(&self) -> (Gate, HostFaults) {
        self.mood.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn dawdle(&self, faults: HostFaults) {
        if !faults.slowness.is_zero() {
            tokio::time::sleep(self.dice.while_of(faults.slowness)).await;
        }
    }

    async fn hang(&self, faults: HostFaults) {
        if self.dice.chance(faults.hangs) {
            tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task)
    }

    fn come_up(&self, name: SandboxRef) -> Result<(), Failure> {
        let mut state = self.state();
        if state.sandboxes.get(&name).is_some_and(|sandbox| sandbox.death.is_none()) {
            return Ok(());
        }
        let dead_through = state.dead_through.get(&name.session).copied().unwrap_or_default();
        if name.incarnation <= dead_through {
            return Err(Failure::new(FailureCode::SandboxStartFailed, "it is dead already"));
        }
        let mut others = state.sandboxes.range(incarnations(name.session));
        if let Some((other, _)) = others.find(|(_, sandbox)| sandbox.death.is_none()) {
            let broken = format!("{name:?} was started while {other:?} was alive");
            state.broken_promises.push(broken);
        }
        let sandbox = Cell {
            death: None,
            frozen: false,
            known_runs: BTreeSet::new(),
            interrupted: BTreeSet::new(),
            spool: BTreeMap::new(),
            last_report: 0,
            changes: Arc::default(),
            pump: None,
        };
        state.sandboxes.insert(name, sandbox);
        let alive = state.sandboxes.values().filter(|sandbox| sandbox.death.is_none()).count();
        if state.most.is_some_and(|most| alive > most) {
            state.broken_promises.push(format!("{name:?} was one sandbox too many: {alive}"));
        }
        Ok(())
    }

    /// What is captured is a number.
    fn capture(&self, persist: Persist<'_>) -> Option<Captured> {
        let mut state = self.state();
        state.captures += 1;
        let mut random = [0; 10];
        random[..8].copy_from_slice(&state.captures.to_be_bytes());
        let id = SnapshotId::from_parts(Timestamp::from_millis(1), random);
        let is_there = state.workspaces.contains_key(&persist.sandbox.session);
        is_there.then_some(Captured {
            id,
            files: 1,
            bytes: 1,
            new_bytes: 0,
            unfrozen: 0,
            unstable: 0,
        })
    }

    fn found(&self, name: SandboxRef, completed_runs: u32) -> Found {
        let made_for = *self.state().workspaces.entry(name.session).or_insert(name.incarnation);
        let (fresh, turns) = (made_for == name.incarnation, completed_runs);
        match (turns, fresh) {
            (0, true) => Found::NOTHING,
            (_, true) => Found { native: Native::Lost, ..Found::NOTHING },
            (_, false) => Found {
                workspace: Workspace::Kept,
                source: Source::Local,
                snapshot: None,
                files: 1,
                bytes: 1,
                native: if turns == 0 { Native::None } else { Native::Intact },
                turns,
            },
        }
    }

    pub(super) fn change(&self, name: SandboxRef, change: impl FnOnce(&mut Cell)) {
        if let Some(sandbox) = self.state().sandboxes.get_mut(&name)
            && sandbox.death.is_none()
        {
            change(sandbox);
            sandbox.changes.change(|()| ());
        }
    }

    pub(super) fn die(&self, name: SandboxRef, death: Death) {
        let mut state = self.state();
        let dead = state.dead_through.entry(name.session).or_default();
        *dead = (*dead).max(name.incarnation);
        if let Some(sandbox) = state.sandboxes.get_mut(&name)
            && sandbox.death.is_none()
        {
            sandbox.death = Some(death);
            sandbox.changes.change(|()| ());
        }
    }

    fn stop(&self, name: SandboxRef) {
        let upto = *incarnations(name.session).start()..=name;
        let theirs: Vec<_> = self.state().sandboxes.range(upto).map(|(of, _)| *of).collect();
        for sandbox in theirs {
            self.die(sandbox, Death::Stopped);
        }
        // Also one that never came up: it must not come up later.
        self.die(name, Death::Stopped);
    }

    /// Sends everything after `after` to whoever asked last.
    fn connect(self: &Arc<Self>, name: SandboxRef, after: SpoolPosition, reporter: Reporter) {
        let pump = self.spawn(Arc::clone(self).pump(name, after, reporter));
        self.state().connections += 1;
        if let Some(sandbox) = self.state().sandboxes.get_mut(&name)
            && let Some(former) = sandbox.pump.replace(pump)
        {
            former.abort();
        }
    }

    async fn pump(self: Arc<Self>, name: SandboxRef, after: SpoolPosition, reporter: Reporter) {
        let mut at = after.get();
        loop {
            let (batch, death, changes) = {
                let state = self.state();
                let Some(sandbox) = state.sandboxes.get(&name) else { break };
                let rest = sandbox.spool.range(at + 1..);
                let several = 1 + usize::try_from(self.dice.roll(4)).unwrap_or(0);
                let batch: Vec<_> = rest.take(several).map(numbered).collect();
                (batch, sandbox.death.clone(), sandbox.changes.watch())
            };
            if let Some(last) = batch.last() {
                at = last.position.get();
                let twice = self.dice.chance(self.mood().1.doubles);
                if twice && reporter.reported(batch.clone()).await.is_err() {
                    return;
                }
                if reporter.reported(batch).await.is_err() {
                    return;
                }
            } else if let Some(death) = death {
                let _engine_gone = reporter.gone(death).await;
                return;
            } else {
                let mut changes = changes;
                changes.changed().await;
            }
        }
        let _engine_gone = reporter.gone(Death::Lost).await;
    }
}

/// Every sandbox a session can have.
fn incarnations(session: SessionId) -> RangeInclusive<SandboxRef> {
    let of = |number| SandboxRef { session, incarnation: Incarnation::new(number) };
    of(0)..=of(u32::MAX)
}

fn numbered((&position, report): (&u64, &Report)) -> NumberedReport {
    NumberedReport { position: SpoolPosition::new(position), report: report.clone() }
}
