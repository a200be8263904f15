//! What the agents of a [`FakeHost`](super::FakeHost) do with a prompt.

use std::sync::Arc;

use ash_core::failure::Death;
use ash_core::id::RunId;
use ash_core::run::{Completion, Phase, Usage};
use ash_core::session::{AgentEnding, Report, ReportBody};

use super::world::World;
use crate::host::SandboxRef;

impl World {
    pub(super) fn deliver(self: &Arc<Self>, name: SandboxRef, run: RunId) {
        let mut fresh = false;
        self.change(name, |sandbox| fresh = sandbox.known_runs.insert(run));
        if !fresh {
            return;
        }
        if !self.state().begun.insert(run) {
            self.state().broken_promises.push(format!("{run} was begun twice"));
        }
        self.spawn(Arc::clone(self).act(name, run));
    }

    /// What an agent does with a prompt.
    async fn act(self: Arc<Self>, name: SandboxRef, run: RunId) {
        let things = match self.mood().1.diligence {
            0 => 1 + self.dice.roll(8),
            things => things,
        };
        self.report(name, run, ReportBody::Begun);
        for thing in 0..things {
            let faults = self.mood().1;
            self.dawdle(faults).await;
            if !self.may_go_on(name).await {
                return;
            }
            if self.dice.chance(faults.dies) {
                self.die(name, Death::Killed(9));
                return;
            }
            if self.is_interrupted(name, run) {
                self.end(name, run, AgentEnding::Interrupted);
                return;
            }
            let round = u32::try_from(1 + thing / 4).unwrap_or(1);
            let body = match thing % 4 {
                0 => ReportBody::Phase { phase: Phase::StreamingLlm, round },
                1 | 2 => ReportBody::TextDelta(format!("{thing} ")),
                _ => ReportBody::Phase { phase: Phase::ExecutingTools, round },
            };
            self.report(name, run, body);
        }
        self.dawdle(self.mood().1).await;
        if self.may_go_on(name).await {
            self.end(name, run, AgentEnding::Completed(Completion::EndTurn));
        }
    }

    fn end(&self, name: SandboxRef, run: RunId, how: AgentEnding) {
        self.report(name, run, ReportBody::Ended { how, usage: Usage::default() });
    }

    /// Waits while the sandbox is frozen; says whether it still lives.
    async fn may_go_on(&self, name: SandboxRef) -> bool {
        loop {
            let mut changes = {
                let state = self.state();
                let Some(sandbox) = state.sandboxes.get(&name) else { return false };
                if sandbox.death.is_some() {
                    return false;
                }
                if !sandbox.frozen {
                    return true;
                }
                sandbox.changes.watch()
            };
            changes.changed().await;
        }
    }

    fn is_interrupted(&self, name: SandboxRef, run: RunId) -> bool {
        let state = self.state();
        state.sandboxes.get(&name).is_some_and(|sandbox| sandbox.interrupted.contains(&run))
    }

    fn report(&self, name: SandboxRef, run: RunId, body: ReportBody) {
        if let ReportBody::TextDelta(text) = &body {
            self.state().said.entry(run).or_default().push_str(text);
        }
        self.change(name, |sandbox| {
            sandbox.last_report += 1;
            sandbox.spool.insert(sandbox.last_report, Report { run, body });
        });
    }
}
