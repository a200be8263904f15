//! The first door: what callers want. A refusal leaves the session as it was.

use std::time::Duration;

use super::{
    Decision, Effect, IfBusy, IfRunning, PauseReason, Prompt, Request, Resuming, RunChange,
    Sandbox, Session, StartWhy, State, Wake,
};
use crate::entry::{EndedBy, Entry};
use crate::failure::{Failure, FailureCode};
use crate::id::RunId;
use crate::policy::{Context, MAX_QUEUED_RUNS};
use crate::refusal::Refusal;
use crate::resume::IfLost;
use crate::run::{Delivery, Ending, EndingWhy, Outcome, QueuedRun, Usage};

impl Session {
    /// Decides what a caller wants. A refusal leaves the session unchanged.
    pub fn request(&mut self, ctx: &Context<'_>, request: Request) -> Result<Decision, Refusal> {
        let mut out = Decision::default();
        match request {
            Request::Prompt(prompt) => self.prompt(ctx, &mut out, prompt)?,
            Request::Interrupt { run } => self.interrupt(ctx, &mut out, run)?,
            Request::Decide { question, decision } => {
                self.decide(ctx, &mut out, question, decision)?;
            }
            Request::Pause { if_running } => self.pause(ctx, &mut out, if_running)?,
            Request::Resume(resuming) => self.resume(ctx, &mut out, resuming)?,
            Request::Stop => self.stop(ctx, &mut out)?,
            Request::Evict { reason } => self.evict(ctx, &mut out, reason)?,
            Request::Rewind { to } => self.rewind(ctx, &mut out, *to)?,
            Request::Use => self.make_use(ctx)?,
            Request::Touch => self.touch(ctx)?,
            Request::Capture => self.capture_at_once(ctx)?,
            Request::CaptureAgain { lost } => self.capture_again(ctx, lost),
            Request::PutAway => self.put_away(ctx, &mut out),
            Request::End => {
                if self.state != State::Ended {
                    self.end(ctx, &mut out, EndedBy::Request);
                }
            }
        }
        self.capture_if_due(ctx, &mut out);
        self.go_on_rewinding(ctx, &mut out);
        Ok(out)
    }

    fn prompt(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        prompt: Prompt,
    ) -> Result<(), Refusal> {
        let must_wake = self.wakes_for(prompt.wake);
        if must_wake {
            self.must_not_rewind()?;
        } else if !matches!(self.state, State::Starting { .. } | State::Active) {
            return Err(Refusal::NotActive(self.status()));
        }
        let busy = self.current.is_some() || !self.queue.is_empty();
        if busy && prompt.if_busy == IfBusy::Reject {
            return Err(Refusal::RunInProgress);
        }
        if self.queue.len() >= MAX_QUEUED_RUNS {
            return Err(Refusal::QueueFull);
        }

        self.last_active = ctx.now;
        self.last_message_at = Some(ctx.now);
        self.log(ctx, out, Entry::Prompt { run: prompt.run, content: prompt.content });
        out.runs.push(RunChange::Accepted {
            run: prompt.run,
            prompt_seq: self.last_seq,
            at: ctx.now,
        });
        self.queue.push_back(QueuedRun {
            id: prompt.run,
            timeout: prompt.timeout.unwrap_or(ctx.policy.turn_timeout),
        });
        if must_wake {
            let if_lost = IfLost::default();
            self.resume(ctx, out, Resuming { if_lost, asked_at: prompt.asked_at })?;
        }
        self.start_next_run(ctx, out);
        Ok(())
    }

    /// Whether a person put it to rest: then a person brings it back.
    pub fn is_put_to_rest(&self) -> bool {
        match &self.state {
            State::Paused { reason, .. } => !reason.is_system(),
            State::Stopped => true,
            State::Starting { .. } | State::Active | State::Error { .. } | State::Ended => false,
        }
    }

    /// Whether a prompt brings it back.
    pub fn wakes_for(&self, wake: Wake) -> bool {
        match (&self.state, wake) {
            (State::Paused { .. } | State::Stopped | State::Error { .. }, Wake::Any) => true,
            (State::Paused { reason, .. }, Wake::SystemPaused) => reason.is_system(),
            (State::Stopped | State::Error { .. }, Wake::SystemPaused)
            | (State::Starting { .. } | State::Active | State::Ended, _) => false,
        }
    }

    fn interrupt(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        wanted: Option<RunId>,
    ) -> Result<(), Refusal> {
        if let Some(run) = &self.current
            && wanted.is_none_or(|wanted| wanted == run.id)
        {
            if self.state == State::Active {
                self.cancel_current(ctx, out, false);
            } else {
                self.cancel_frozen(ctx, out);
            }
            return Ok(());
        }
        let waiting = match wanted {
            Some(wanted) => self.queue.iter().position(|run| run.id == wanted),
            None => (!self.queue.is_empty()).then_some(0),
        };
        let run = waiting.and_then(|index| self.queue.remove(index)).ok_or(Refusal::NoSuchRun)?;
        self.end_run(ctx, out, run.id, Outcome::Cancelled, Usage::default());
        Ok(())
    }

    /// Tells the agent to end the current run, unless it was told already.
    fn cancel_current(&mut self, ctx: &Context<'_>, out: &mut Decision, then_pause: bool) {
        let Some(run) = &mut self.current else { return };
        if let Some(ending) = &mut run.ending {
            // A later wish to pause is not lost; the reason and the deadline stay.
            ending.then_pause |= then_pause;
            return;
        }
        let id = run.id;
        let deadline = ctx.now.plus(ctx.policy.interrupt_grace);
        run.ending = Some(Ending { why: EndingWhy::Cancel, then_pause, deadline });
        self.log(ctx, out, Entry::RunCancelling { run: id });
        out.effects.push(Effect::Interrupt { incarnation: self.incarnation, run: id });
    }

    /// Ends the run that is frozen with its session. The agent cannot obey, and would go on before
    /// it heard of it if it were thawed: its sandbox is given up, and the session stays paused.
    fn cancel_frozen(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        if let Some(run) = self.current.as_ref().filter(|run| run.ending.is_none()) {
            let run = run.id;
            self.log(ctx, out, Entry::RunCancelling { run });
        }
        self.cut_run(ctx, out, &Outcome::Cancelled);
        self.stop_sandbox(ctx, out);
    }

    fn pause(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        if_running: IfRunning,
    ) -> Result<(), Refusal> {
        if self.state != State::Active {
            return Err(Refusal::NotActive(self.status()));
        }
        match (self.current.is_some(), if_running) {
            (false, _) | (true, IfRunning::Freeze) => {
                self.freeze(ctx, out, PauseReason::Requested);
            }
            (true, IfRunning::Interrupt) => {
                self.cancel_current(ctx, out, true);
            }
            (true, IfRunning::Reject) => return Err(Refusal::RunInProgress),
        }
        Ok(())
    }

    pub(super) fn resume(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        Resuming { if_lost, asked_at }: Resuming,
    ) -> Result<(), Refusal> {
        let paused_since = match self.state {
            State::Ended => return Err(Refusal::Ended),
            State::Starting { .. } => return Ok(()),
            State::Active => {
                self.want_no_pause();
                return Ok(());
            }
            State::Paused { since, .. } => Some(since),
            State::Stopped | State::Error { .. } => None,
        };
        self.must_not_rewind()?;
        self.last_active = ctx.now;
        self.if_lost = if_lost;
        let since = asked_at.or(Some(ctx.now));
        match self.sandbox {
            Sandbox::Freezing { .. } | Sandbox::Frozen { .. } => {
                let stood_still =
                    paused_since.map(|since| ctx.now.since(since)).unwrap_or_default();
                self.thaw(ctx, out, stood_still);
            }
            Sandbox::Stopping { deadline, .. } => {
                // The old one must be gone first; whoever waits is told if it will not go.
                self.state = State::Starting { why: StartWhy::Resumed, since };
                self.log(ctx, out, Entry::SessionWaking);
                self.sandbox = Sandbox::Stopping { attempt: 1, deadline };
            }
            Sandbox::None => {
                self.state = State::Starting { why: StartWhy::Resumed, since };
                self.log(ctx, out, Entry::SessionWaking);
                self.start_sandbox(ctx, out);
            }
            Sandbox::Starting { .. } | Sandbox::Live | Sandbox::Thawing { .. } => {
                debug_assert!(false, "a session at rest has no running sandbox");
            }
        }
        Ok(())
    }

    /// Whoever wants the session back wants no pause that is still to come.
    fn want_no_pause(&mut self) {
        if let Some(ending) = self.current.as_mut().and_then(|run| run.ending.as_mut()) {
            ending.then_pause = false;
        }
    }

    fn make_use(&mut self, ctx: &Context<'_>) -> Result<(), Refusal> {
        if self.state != State::Active {
            return Err(Refusal::NotActive(self.status()));
        }
        self.last_active = ctx.now;
        self.want_capture_after_use(ctx);
        Ok(())
    }

    fn touch(&mut self, ctx: &Context<'_>) -> Result<(), Refusal> {
        if self.state == State::Ended {
            return Err(Refusal::Ended);
        }
        self.keeping.keep_in_place();
        self.want_capture_after_use(ctx);
        Ok(())
    }

    fn thaw(&mut self, ctx: &Context<'_>, out: &mut Decision, stood_still: Duration) {
        let incarnation = self.incarnation;
        self.state = State::Active;
        self.want_no_pause();
        if let Some(run) = &mut self.current {
            run.deadline = run.deadline.plus(stood_still);
            if let Delivery::Sent { deadline, .. } = &mut run.delivery {
                *deadline = deadline.plus(stood_still);
            }
            if let Some(ending) = &mut run.ending {
                ending.deadline = ending.deadline.plus(stood_still);
            }
        }
        self.questions.stood_still(stood_still);
        // Between two resumes there is a pause, and that is an entry: no two have the same number.
        let asked = self.last_seq;
        let deadline = ctx.now.plus(ctx.policy.freeze_timeout);
        self.sandbox = Sandbox::Thawing { asked, deadline, since: Some(ctx.now) };
        out.effects.push(Effect::Thaw { incarnation, asked, after: self.spool });
    }

    fn stop(&mut self, ctx: &Context<'_>, out: &mut Decision) -> Result<(), Refusal> {
        match self.state {
            State::Starting { .. } | State::Active => {}
            State::Paused { .. } | State::Stopped | State::Error { .. } | State::Ended => {
                return Err(Refusal::NotActive(self.status()));
            }
        }
        self.end_runs(ctx, out, &Outcome::Cancelled);
        self.stop_sandbox(ctx, out);
        self.state = State::Stopped;
        self.log(ctx, out, Entry::SessionStopped);
        Ok(())
    }

    fn evict(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        reason: PauseReason,
    ) -> Result<(), Refusal> {
        match self.state {
            State::Active if self.current.is_none() && self.queue.is_empty() => {
                self.stop_sandbox(ctx, out);
                self.state = State::Paused { reason, since: ctx.now };
                self.log(ctx, out, Entry::SessionPaused { reason });
            }
            State::Active => return Err(Refusal::RunInProgress),
            State::Starting { .. } => return Err(Refusal::NotActive(self.status())),
            // The reason why it is paused stays what it was.
            State::Paused { .. } => {
                self.stay_after_rewind();
                self.give_up_frozen(ctx, out);
            }
            State::Stopped | State::Error { .. } | State::Ended => {}
        }
        Ok(())
    }

    /// Destroys the frozen sandbox of a paused session; a run that was frozen with it is cut.
    pub(super) fn give_up_frozen(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        let lost = Failure::new(FailureCode::SandboxLost, "the paused sandbox was given up");
        self.cut_run(ctx, out, &Outcome::Interrupted(lost));
        self.stop_sandbox(ctx, out);
    }
}
