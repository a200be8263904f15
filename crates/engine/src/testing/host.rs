//! A host whose sandboxes are entries in a map and whose agents are dice.
//!
//! It keeps the promises of [`SandboxHost`] and breaks everything else on demand: it is slow, its
//! calls fail before or after they took effect, its sandboxes die, its agents ignore interrupts,
//! its reports come twice. It outlives the engines that use it, as bridges outlive a server, and
//! it remembers every promise that *they* broke.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ash_core::failure::{Death, Failure, FailureCode};
use ash_core::id::{QuestionId, RunId, SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::{Seq, SpoolPosition};
use ash_core::permission::Permission;
use ash_core::resume::{Found, IfLost};
use ash_core::session::NumberedReport;
use ash_protocol::{ExecEnd, ExecRequest, ExecResult};
use async_trait::async_trait;
use tokio::sync::mpsc;

use super::world::World;
use super::{Dice, Gate};
use crate::host::{
    Away, Happening, HostError, LogLine, NotReady, Past, Persist, Persisted, PutAway, Ready,
    Reporter, SandboxHost, SandboxRef, StandStill, Start, Thawed,
};
use crate::leave::Leave;

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
    /// An agent asks before it does a thing.
    pub asks: u64,
    /// How many things an agent does for a prompt; zero: a few.
    pub diligence: u64,
    /// The longest that a call, or a thing an agent does, takes.
    pub slowness: Duration,
}

/// A host for tests, which keeps its promises and breaks everything else on demand.
#[derive(Clone)]
pub struct FakeHost(Arc<World>);

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

    /// Who has said something without a run. What was said is its place in the list, from 1.
    pub fn asides(&self) -> Vec<SandboxRef> {
        self.0.state().asides.clone()
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

    /// An agent finishes its turn, and nobody hears of it yet: its reports are only in the sandbox.
    pub fn finish_unheard(&self, sandbox: SandboxRef, run: RunId) {
        self.0.finish_unheard(sandbox, run);
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

    /// How much room there is; each session whose files are removed adds its one byte.
    pub fn set_free(&self, bytes: u64) {
        self.0.state().free = Some(bytes);
    }

    /// The sessions whose files are not in place, though they were.
    pub fn put_away_sessions(&self) -> Vec<SessionId> {
        self.0.state().away.iter().copied().collect()
    }

    /// The sessions of which nothing is left.
    pub fn purged_sessions(&self) -> Vec<SessionId> {
        self.0.state().purged.iter().copied().collect()
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
            return Err(HostError::new(attempted, "nothing happened"));
        }
        let done = act();
        gate.pass().await;
        if self.0.dice.chance(faults.loses_answer) {
            return Err(HostError::new(attempted, "the answer was lost"));
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
    ) -> Result<Thawed, HostError> {
        self.call("thaw", || {
            self.0.change(sandbox, |sandbox| sandbox.frozen = false);
            self.0.connect(sandbox, after, reporter);
            if self.alive().contains(&sandbox) { Thawed::GoesOn } else { Thawed::Gone }
        })
        .await
    }

    fn unheard(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
    ) -> mpsc::Receiver<Vec<NumberedReport>> {
        let (pieces, unheard) = mpsc::channel(1);
        let reports = self.0.spooled(sandbox, after);
        if !reports.is_empty() {
            pieces.try_send(reports).expect("there is room for one");
        }
        unheard
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

    async fn decide(
        &self,
        sandbox: SandboxRef,
        question: QuestionId,
        decision: &Permission,
    ) -> Result<(), HostError> {
        self.call("decide", || self.0.decide(sandbox, question, decision)).await
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
    ) -> Result<Persisted, HostError> {
        let captured = self.call("persist", || self.0.capture(persist)).await;
        still.is_over();
        captured
    }

    async fn put_away(&self, away: PutAway<'_>, leave: Leave) -> Result<Away, HostError> {
        let session = away.sandbox.session;
        self.call("put away", || {
            let gone = leave.take(|| self.0.put_away(session));
            if gone.is_some() { Away::Gone } else { Away::Wanted }
        })
        .await
    }

    async fn purge(&self, session: SessionId) -> Result<(), HostError> {
        self.call("purge", || self.0.purge(session)).await
    }

    fn free_bytes(&self) -> Option<u64> {
        self.0.state().free
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
            return Err(HostError::new("exec", "it is not alive"));
        }
        Ok(ExecResult {
            end: ExecEnd::Exited(0),
            stdout: request.command,
            stderr: String::new(),
            omitted_bytes: 0,
        })
    }

    /// Nothing is kept here: all is told each time.
    async fn logs_told(&self, _session: SessionId) -> Result<Seq, HostError> {
        self.call("logs", || Seq::ZERO).await
    }

    async fn logs(
        &self,
        _session: SessionId,
        first: u64,
        happened: Vec<Happening>,
    ) -> Result<Vec<LogLine>, HostError> {
        let line = |(index, Happening { at, level, text, .. }): (u64, Happening)| LogLine {
            index,
            level: level.to_owned(),
            text,
            at,
        };
        self.call("logs", || (first..).zip(happened).map(line).collect()).await
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

    /// Nothing is far away here.
    async fn fetch_files(
        &self,
        session: SessionId,
        _tenant: &TenantId,
        _past: &dyn Past,
        _if_lost: IfLost,
    ) -> Result<Ready, NotReady> {
        let is_there = self.0.state().workspaces.contains_key(&session);
        Ok(if is_there { Ready::InPlace } else { Ready::Nothing })
    }

    async fn workspace(&self, session: SessionId) -> Result<Option<PathBuf>, HostError> {
        self.call("find files", || self.0.state().directories.get(&session).cloned()).await
    }

    async fn list(&self) -> Result<Vec<SandboxRef>, HostError> {
        self.call("list", || self.alive()).await
    }
}
