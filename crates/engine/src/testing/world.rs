//! The world of a fake host: its sandboxes, what they have said, and what each of them does next.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash_core::failure::{Death, Failure, FailureCode};
use ash_core::id::{QuestionId, RunId, SessionId, SnapshotId};
use ash_core::number::{Incarnation, SpoolPosition};
use ash_core::permission::Permission;
use ash_core::resume::{Found, Native, Source, Workspace};
use ash_core::run::{Completion, Usage};
use ash_core::session::{AgentEnding, NumberedReport, Report, ReportBody};
use ash_core::snapshot::Captured;
use ash_core::time::Timestamp;
use tokio::task::{AbortHandle, JoinSet};

use super::host::HostFaults;
use super::{Dice, Gate};
use crate::host::{Persist, Persisted, Reporter, SandboxRef};
use crate::signal::Signal;

pub(super) struct World {
    pub(super) dice: Arc<Dice>,
    pub(super) state: Mutex<State>,
    pub(super) mood: Mutex<(Gate, HostFaults)>,
    pub(super) tasks: Mutex<JoinSet<()>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) sandboxes: BTreeMap<SandboxRef, Cell>,
    pub(super) dead_through: BTreeMap<SessionId, Incarnation>,
    /// The sandbox that each workspace was made for.
    pub(super) workspaces: BTreeMap<SessionId, Incarnation>,
    /// Directories that stand for a workspace.
    pub(super) directories: BTreeMap<SessionId, PathBuf>,
    pub(super) said: BTreeMap<RunId, String>,
    /// Who said something without a run; what was said is its place in this list, from 1.
    pub(super) asides: Vec<SandboxRef>,
    pub(super) begun: BTreeSet<RunId>,
    pub(super) broken_promises: Vec<String>,
    pub(super) connections: u64,
    pub(super) captures: u64,
    /// How many sandboxes may be alive at once.
    pub(super) most: Option<usize>,
    /// Whose files only a snapshot has.
    pub(super) away: BTreeSet<SessionId>,
    pub(super) purged: BTreeSet<SessionId>,
    pub(super) free: Option<u64>,
}

/// A sandbox, dead or alive.
pub(super) struct Cell {
    pub(super) death: Option<Death>,
    pub(super) frozen: bool,
    pub(super) known_runs: BTreeSet<RunId>,
    pub(super) interrupted: BTreeSet<RunId>,
    pub(super) decided: BTreeMap<QuestionId, Permission>,
    pub(super) spool: BTreeMap<u64, Report>,
    pub(super) last_report: u64,
    /// Says that something changed, so that whoever waits looks again.
    pub(super) changes: Arc<Signal<()>>,
    pub(super) pump: Option<AbortHandle>,
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

    pub(super) async fn hang(&self, faults: HostFaults) {
        if self.dice.chance(faults.hangs) {
            tokio::time::sleep(Duration::from_secs(24 * 60 * 60)).await;
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(task)
    }

    pub(super) fn come_up(&self, name: SandboxRef) -> Result<(), Failure> {
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
            decided: BTreeMap::new(),
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
    pub(super) fn capture(&self, persist: Persist<'_>) -> Persisted {
        let mut state = self.state();
        state.captures += 1;
        let mut random = [0; 10];
        random[..8].copy_from_slice(&state.captures.to_be_bytes());
        let id = SnapshotId::from_parts(Timestamp::from_millis(1), random);
        if !state.workspaces.contains_key(&persist.sandbox.session) {
            return Persisted::Gone;
        }
        Persisted::Captured(Captured {
            id,
            files: 1,
            bytes: 1,
            new_bytes: 0,
            unfrozen: 0,
            unstable: 0,
            unproven: false,
        })
    }

    /// Removes the files of a session. Nothing of it may run: its next start brings them back.
    pub(super) fn put_away(&self, session: SessionId) {
        let mut state = self.state();
        let mut all = state.sandboxes.range(incarnations(session));
        if let Some((alive, _)) = all.find(|(_, sandbox)| sandbox.death.is_none()) {
            let broken = format!("the files of {alive:?} were removed while it was alive");
            state.broken_promises.push(broken);
        }
        if state.away.insert(session) {
            state.free = state.free.map(|free| free + 1);
        }
    }

    pub(super) fn purge(&self, session: SessionId) {
        let mut state = self.state();
        let mut all = state.sandboxes.range(incarnations(session));
        if let Some((alive, _)) = all.find(|(_, sandbox)| sandbox.death.is_none()) {
            let broken = format!("{alive:?} was alive when its session was removed");
            state.broken_promises.push(broken);
        }
        state.workspaces.remove(&session);
        state.purged.insert(session);
    }

    pub(super) fn found(&self, name: SandboxRef, completed_runs: u32) -> Found {
        self.state().away.remove(&name.session);
        let made_for = *self.state().workspaces.entry(name.session).or_insert(name.incarnation);
        let (fresh, turns) = (made_for == name.incarnation, completed_runs);
        match (turns, fresh) {
            (0, true) => Found::NOTHING,
            (_, true) => Found { native: Native::Lost, ..Found::NOTHING },
            (_, false) => Found {
                workspace: Workspace::Kept,
                source: Source::Local,
                snapshot: None,
                unverified: 0,
                files: 1,
                bytes: 1,
                native: if turns == 0 { Native::None } else { Native::Intact },
                turns,
                as_found: None,
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

    pub(super) fn stop(&self, name: SandboxRef) {
        let upto = *incarnations(name.session).start()..=name;
        let theirs: Vec<_> = self.state().sandboxes.range(upto).map(|(of, _)| *of).collect();
        for sandbox in theirs {
            self.die(sandbox, Death::Stopped);
        }
        // Also one that never came up: it must not come up later.
        self.die(name, Death::Stopped);
    }

    /// What a sandbox has said after `after`.
    pub(super) fn spooled(&self, name: SandboxRef, after: SpoolPosition) -> Vec<NumberedReport> {
        let state = self.state();
        let Some(sandbox) = state.sandboxes.get(&name) else { return Vec::new() };
        sandbox.spool.range(after.get() + 1..).map(numbered).collect()
    }

    /// The turn ends while nobody is connected.
    pub(super) fn finish_unheard(&self, name: SandboxRef, run: RunId) {
        let how = AgentEnding::Completed(Completion::EndTurn);
        let body = ReportBody::Ended { how, usage: Usage::default() };
        if let Some(sandbox) = self.state().sandboxes.get_mut(&name) {
            if let Some(pump) = sandbox.pump.take() {
                pump.abort();
            }
            sandbox.last_report += 1;
            sandbox.spool.insert(sandbox.last_report, Report { run: Some(run), body });
        }
    }

    /// Sends everything after `after` to whoever asked last.
    pub(super) fn connect(
        self: &Arc<Self>,
        name: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
    ) {
        let pump = self.spawn(Arc::clone(self).pump(name, after, reporter));
        self.state().connections += 1;
        if let Some(sandbox) = self.state().sandboxes.get_mut(&name)
            && let Some(former) = sandbox.pump.replace(pump)
        {
            former.abort();
        }
    }

    pub(super) async fn pump(
        self: Arc<Self>,
        name: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
    ) {
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
pub(super) fn incarnations(session: SessionId) -> RangeInclusive<SandboxRef> {
    let of = |number| SandboxRef { session, incarnation: Incarnation::new(number) };
    of(0)..=of(u32::MAX)
}

fn numbered((&position, report): (&u64, &Report)) -> NumberedReport {
    NumberedReport { position: SpoolPosition::new(position), report: report.clone() }
}
