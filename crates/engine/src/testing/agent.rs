//! What the agents of a [`FakeHost`](super::FakeHost) do with a prompt.

use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::Death;
use ash_core::id::{QuestionId, RunId};
use ash_core::json::Json;
use ash_core::permission::{AnsweredHow, Permission};
use ash_core::run::{Completion, Phase, Usage};
use ash_core::session::{AgentEnding, Report, ReportBody};
use ash_core::time::Timestamp;
use tokio::time::Instant;

use super::world::World;
use crate::host::SandboxRef;

/// How long an agent waits for an answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);

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
            if self.dice.chance(faults.asks) && !self.ask(name, run).await {
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
            self.go_on_alone(name).await;
        }
    }

    /// Sometimes an agent has more to say, of its own accord. By then it may have the next prompt.
    async fn go_on_alone(&self, name: SandboxRef) {
        for _ in 0..self.dice.roll(3) {
            self.dawdle(self.mood().1).await;
            if !self.may_go_on(name).await {
                return;
            }
            let body = {
                let mut state = self.state();
                state.asides.push(name);
                Json::of(&state.asides.len()).expect("a number is JSON")
            };
            self.spool(name, Report { run: None, body: ReportBody::Message(body) });
        }
    }

    /// Asks before a thing is done, and waits for the answer. Says whether it still lives.
    async fn ask(&self, name: SandboxRef, run: RunId) -> bool {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.dice.roll(u64::MAX).to_be_bytes());
        let id = QuestionId::from_parts(Timestamp::from_millis(0), random);
        let input = Json::of("what for").expect("text is JSON");
        self.report(name, run, ReportBody::Question { id, tool: "bash".to_owned(), input });
        let until = Instant::now() + ANSWER_PATIENCE;
        let how = loop {
            if !self.may_go_on(name).await {
                return false;
            }
            let (decision, interrupted, mut changes) = {
                let state = self.state();
                let Some(sandbox) = state.sandboxes.get(&name) else { return false };
                let decision = sandbox.decided.get(&id).cloned();
                (decision, sandbox.interrupted.contains(&run), sandbox.changes.watch())
            };
            match decision {
                Some(Permission::Allow { .. }) => break AnsweredHow::Allowed,
                Some(Permission::Deny { .. }) => break AnsweredHow::Denied,
                None if interrupted => break AnsweredHow::Withdrawn,
                None if Instant::now() >= until => break AnsweredHow::TimedOut,
                None => {
                    let _late = tokio::time::timeout_at(until, changes.changed()).await;
                }
            }
        };
        self.report(name, run, ReportBody::Answered { id, how });
        true
    }

    /// Tells an agent what a person says.
    pub(super) fn decide(&self, name: SandboxRef, question: QuestionId, decision: &Permission) {
        let mut otherwise = false;
        self.change(name, |sandbox| {
            let before = sandbox.decided.insert(question, decision.clone());
            otherwise = before.is_some_and(|before| before != *decision);
        });
        if otherwise {
            self.state().broken_promises.push(format!("{question} was answered twice"));
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
        self.spool(name, Report { run: Some(run), body });
    }

    fn spool(&self, name: SandboxRef, report: Report) {
        self.change(name, |sandbox| {
            sandbox.last_report += 1;
            sandbox.spool.insert(sandbox.last_report, report);
        });
    }
}
