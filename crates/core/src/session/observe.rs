//! The second door: what has already happened. Facts are never refused; seeing one again changes
//! nothing.

use super::step::Back;
use super::{
    AgentEnding, Decision, Effect, Fact, NumberedReport, PauseReason, Report, ReportBody, Resuming,
    RunChange, Sandbox, Session, StartWhy, State,
};
use crate::entry::{EndedBy, Entry};
use crate::failure::{Death, Failure, FailureCode};
use crate::number::{Incarnation, SpoolPosition};
use crate::policy::{Context, MAX_DELIVERIES, MAX_REPORT_BYTES, MAX_STOPS_AWAITED};
use crate::resume::{Found, Transcript};
use crate::run::{Delivery, Ending, EndingWhy, Outcome};

/// What an agent calls the proof of its own record of the conversation.
pub(super) const TRANSCRIPT: &str = "transcript";

impl Session {
    /// Absorbs something that already happened.
    pub fn observe(&mut self, ctx: &Context<'_>, fact: Fact) -> Decision {
        let mut out = Decision::default();
        match fact {
            Fact::SandboxStarted { incarnation, found } => {
                self.sandbox_started(ctx, &mut out, incarnation, found);
            }
            Fact::InUse => self.in_use(ctx),
            Fact::TimePassed => self.time_passed(ctx, &mut out),
            Fact::Persisted { number, outcome } => {
                self.persisted(ctx, &mut out, number, outcome);
            }
            Fact::PutBack { number, outcome } => {
                self.was_put_back(ctx, &mut out, number, &outcome);
            }

            Fact::PutAway { number, outcome } => self.put_away_ended(ctx, number, outcome),

            // The rest is about a sandbox that we know of, or about one that no longer matters.
            Fact::SandboxStartFailed { incarnation, .. }
            | Fact::SandboxGone { incarnation, .. }
            | Fact::SandboxUnreachable { incarnation }
            | Fact::SandboxFrozen { incarnation, .. }
            | Fact::SandboxThawed { incarnation, .. }
            | Fact::Reported { incarnation, .. }
                if incarnation != self.incarnation => {}
            Fact::SandboxStartFailed { failure, .. } => {
                if let Sandbox::Starting { .. } = self.sandbox {
                    self.start_failed(ctx, &mut out, failure);
                }
            }
            Fact::SandboxGone { death, .. } => self.sandbox_gone(ctx, &mut out, &death),
            Fact::SandboxUnreachable { .. } => self.sandbox_unreachable(ctx, &mut out),
            Fact::SandboxFrozen { asked: done, .. } => {
                if let Sandbox::Freezing { asked, .. } = self.sandbox
                    && asked == done
                {
                    self.sandbox = Sandbox::Frozen { since: ctx.now };
                    self.want_capture(ctx.now);
                }
            }
            Fact::SandboxThawed { asked: done, .. } => {
                if let Sandbox::Thawing { asked, since, .. } = self.sandbox
                    && asked == done
                {
                    self.sandbox = Sandbox::Live;
                    self.begin_interval(ctx);
                    if let Some(asked_at) = since {
                        self.log_resumed(ctx, &mut out, Back::Warm { asked_at: Some(asked_at) });
                    }
                    out.effects.extend(self.owed_to_the_run());
                    self.start_next_run(ctx, &mut out);
                }
            }
            Fact::Reported { reports, .. } => {
                if self.sandbox != Sandbox::None && !reports.is_empty() {
                    for NumberedReport { position, report } in reports {
                        self.reported(ctx, &mut out, position, report);
                    }
                    // Repetitions are acknowledged too: they come when our answer was lost.
                    let (incarnation, through) = (self.incarnation, self.spool);
                    out.effects.push(Effect::Acknowledge { incarnation, through });
                }
            }
            Fact::DriverPanicked { last_seq } => {
                if last_seq == self.last_seq {
                    self.driver_panicked(ctx, &mut out);
                }
            }
        }
        self.capture_if_due(ctx, &mut out);
        self.go_on_rewinding(ctx, &mut out);
        out
    }

    fn sandbox_started(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        incarnation: Incarnation,
        found: Found,
    ) {
        let expected = incarnation == self.incarnation;
        match (&self.state, self.sandbox) {
            (&State::Starting { why, since }, Sandbox::Starting { .. }) if expected => {
                self.state = State::Active;
                self.sandbox = Sandbox::Live;
                self.last_active = ctx.now;
                self.begin_interval(ctx);
                self.found_and_mended(ctx, out, &found);
                match why {
                    StartWhy::Created => self.log(ctx, out, Entry::SessionActive { incarnation }),
                    StartWhy::Resumed => {
                        self.log_resumed(ctx, out, Back::Cold { asked_at: since, found });
                    }
                }
                self.start_next_run(ctx, out);
            }
            (
                _,
                Sandbox::Live
                | Sandbox::Freezing { .. }
                | Sandbox::Frozen { .. }
                | Sandbox::Thawing { .. },
            ) if expected => {}
            // It came up after it was given up, or it belongs to nobody: it must not stay.
            _ => out.effects.push(Effect::StopSandbox { incarnation }),
        }
    }

    fn start_failed(&mut self, ctx: &Context<'_>, out: &mut Decision, failure: Failure) {
        self.end_runs(ctx, out, &Outcome::Failed(failure.clone()));
        self.fail(ctx, out, failure);
    }

    fn sandbox_gone(&mut self, ctx: &Context<'_>, out: &mut Decision, death: &Death) {
        let slot = std::mem::replace(&mut self.sandbox, Sandbox::None);
        if slot == Sandbox::None {
            return;
        }
        // Whatever it left behind does not move any more.
        self.want_capture(ctx.now);
        match &self.state {
            State::Starting { .. } => match slot {
                // What it waited for.
                Sandbox::Stopping { .. } => self.start_sandbox(ctx, out),
                Sandbox::Starting { .. }
                | Sandbox::Live
                | Sandbox::Freezing { .. }
                | Sandbox::Frozen { .. }
                | Sandbox::Thawing { .. }
                | Sandbox::None => self.start_failed(ctx, out, death.failure()),
            },
            State::Active => match slot {
                // There is nothing to thaw, so whoever wants the session back gets another sandbox.
                Sandbox::Thawing { since, .. } if !self.wants_pause() => {
                    self.come_back_cold(ctx, out, since, death.failure());
                }
                Sandbox::None
                | Sandbox::Starting { .. }
                | Sandbox::Live
                | Sandbox::Freezing { .. }
                | Sandbox::Frozen { .. }
                | Sandbox::Thawing { .. }
                | Sandbox::Stopping { .. } => self.lost_while_active(ctx, out, death),
            },
            State::Paused { .. } => {
                self.cut_run(ctx, out, &Outcome::Interrupted(death.failure()));
            }
            State::Stopped | State::Error { .. } | State::Ended => {}
        }
    }

    fn lost_while_active(&mut self, ctx: &Context<'_>, out: &mut Decision, death: &Death) {
        let wanted_pause = self.wants_pause();
        let rest = match death {
            _ if wanted_pause => Some(PauseReason::Requested),
            // Nothing went wrong with the session: the next prompt brings it back.
            Death::Lost | Death::FilesGone => Some(PauseReason::ServerRestart),
            Death::RecordGone => Some(PauseReason::Evicted),
            Death::RunnerLost => Some(PauseReason::RunnerLost),
            Death::Stopped
            | Death::Exited(_)
            | Death::Killed(_)
            | Death::Unseen
            | Death::Misbehaved(_)
            | Death::OutOfMemory
            | Death::DiskFull => None,
        };
        match rest {
            Some(reason) => self.rest(ctx, out, reason, death.failure()),
            None => self.fail(ctx, out, death.failure()),
        }
    }

    /// Whoever cannot be reached must not run on unseen; nothing is wrong with the session.
    fn sandbox_unreachable(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        if self.sandbox == Sandbox::Live {
            let reason = if self.wants_pause() {
                PauseReason::Requested
            } else {
                PauseReason::ServerRestart
            };
            let failure = Failure::new(
                FailureCode::SandboxLost,
                "the sandbox did not answer when the server came back",
            );
            self.rest(ctx, out, reason, failure);
        }
    }

    /// Pauses an active session that has lost its sandbox, or has to give it up.
    pub(super) fn rest(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        reason: PauseReason,
        failure: Failure,
    ) {
        self.cut_run(ctx, out, &Outcome::Interrupted(failure));
        self.stop_sandbox(ctx, out);
        self.state = State::Paused { reason, since: ctx.now };
        self.log(ctx, out, Entry::SessionPaused { reason });
        // Nobody asked for it, so a prompt that waits already brings it back, as the next one would.
        if reason.is_system() && !self.queue.is_empty() {
            let back = self.resume(ctx, out, Resuming::default());
            debug_assert_eq!(back, Ok(()), "what is paused and not being rewound can be resumed");
        }
    }

    /// Whether a person wants a pause as soon as the current run is over.
    fn wants_pause(&self) -> bool {
        self.current.as_ref().and_then(|run| run.ending).is_some_and(|ending| ending.then_pause)
    }

    fn reported(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        position: SpoolPosition,
        report: Report,
    ) {
        if position <= self.spool {
            return;
        }
        let missing = position.get() - self.spool.get() - 1;
        if missing > 0 && self.current.is_some() {
            self.log(ctx, out, Entry::ReportsLost { missing });
        }
        self.spool = position;

        let Some(of) = report.run else { return self.said_aside(ctx, out, report.body) };
        let Some(current) = self.current.as_mut().filter(|run| run.id == of) else { return };
        let run = current.id;
        current.delivery = Delivery::Begun;
        let bytes = report.body.size();
        if bytes > MAX_REPORT_BYTES {
            self.log(ctx, out, Entry::ReportTooLarge { run: Some(run), bytes: bytes as u64 });
            return;
        }
        match report.body {
            ReportBody::Begun | ReportBody::Skipped => {}
            ReportBody::Phase { phase, round } => {
                if current.phase == Some(phase) && current.round == round {
                    return;
                }
                let new_round = current.round != round;
                current.phase = Some(phase);
                current.round = round;
                self.log(ctx, out, Entry::Phase { run, phase, round });
                if new_round && let Some(current) = &mut self.current {
                    current.round_start = self.last_seq;
                }
                out.runs.push(RunChange::Progressed { run, phase, round });
            }
            ReportBody::Retry { round } => {
                let discard_after_seq = current.round_start;
                self.log(ctx, out, Entry::RunRetry { run, round, discard_after_seq });
            }
            ReportBody::TextDelta(delta) => {
                self.log_delta(ctx, out, Entry::TextDelta { run, delta });
            }
            ReportBody::ThinkingDelta(delta) => {
                self.log_delta(ctx, out, Entry::ThinkingDelta { run, delta });
            }
            ReportBody::Message(body) => self.log(ctx, out, Entry::Message { run, body }),
            ReportBody::Output { name, body } => {
                if name == TRANSCRIPT
                    && let Some(transcript) = Transcript::read(body.get())
                {
                    self.transcript = Some(transcript);
                }
                self.log(ctx, out, Entry::Output { run, name, body });
            }
            ReportBody::Question { id, tool, input } => {
                self.asked(ctx, out, run, id, tool, input);
            }
            ReportBody::Answered { id, how } => self.answered(ctx, out, id, how),
            ReportBody::Ended { how, usage } => {
                let ending = current.ending;
                self.current = None;
                let outcome = match (how, ending.map(|ending| ending.why)) {
                    // It finished before the interrupt reached it.
                    (AgentEnding::Completed(completion), _) => Outcome::Completed(completion),
                    (
                        AgentEnding::Interrupted
                        | AgentEnding::Failed { .. }
                        | AgentEnding::Refused { .. },
                        Some(why),
                    ) => why.outcome(),
                    (AgentEnding::Interrupted, None) => Outcome::Failed(Failure::new(
                        FailureCode::AgentFailed,
                        "the agent stopped though nobody asked it to",
                    )),
                    (AgentEnding::Failed { message }, None) => {
                        Outcome::Failed(Failure::as_told(FailureCode::AgentFailed, message))
                    }
                    (AgentEnding::Refused { message }, None) => {
                        Outcome::Failed(Failure::as_told(FailureCode::ConversationRefused, message))
                    }
                };
                self.end_run(ctx, out, run, outcome, usage);
                if self.state == State::Active && ending.is_some_and(|ending| ending.then_pause) {
                    self.freeze(ctx, out, PauseReason::Requested);
                }
                // Before the next prompt is handed over: this is what the turn left.
                self.capture_turn(ctx, out);
                self.start_next_run(ctx, out);
            }
        }
    }

    fn time_passed(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        let now = ctx.now;
        if self.state != State::Ended && self.expires_at.is_some_and(|at| at <= now) {
            self.end(ctx, out, EndedBy::Ttl);
        }
        match self.sandbox {
            Sandbox::Starting { deadline } if deadline <= now => {
                let failure = Failure::new(
                    FailureCode::SandboxStartTimeout,
                    "the sandbox did not come up in time",
                );
                self.start_failed(ctx, out, failure);
            }
            Sandbox::Freezing { deadline, .. } if deadline <= now => self.give_up_frozen(ctx, out),
            Sandbox::Frozen { since } if since.plus(ctx.policy.evict_after) <= now => {
                self.give_up_frozen(ctx, out);
            }
            Sandbox::Thawing { deadline, since, .. } if deadline <= now => {
                let failure = Failure::new(
                    FailureCode::AgentUnresponsive,
                    "the sandbox did not answer after it was thawed",
                );
                if self.wants_pause() {
                    self.rest(ctx, out, PauseReason::Requested, failure);
                } else {
                    self.come_back_cold(ctx, out, since, failure);
                }
            }
            Sandbox::Stopping { attempt, deadline } if deadline <= now => {
                self.stop_is_late(ctx, out, attempt);
            }
            Sandbox::None
            | Sandbox::Live
            | Sandbox::Starting { .. }
            | Sandbox::Freezing { .. }
            | Sandbox::Frozen { .. }
            | Sandbox::Thawing { .. }
            | Sandbox::Stopping { .. } => {}
        }
        if self.state == State::Active {
            self.run_is_late(ctx, out);
            self.decisions_are_late(ctx, out);
        }
        if self.is_idle() && self.idle_until(ctx.policy) <= now {
            self.freeze(ctx, out, PauseReason::Idle);
        }
        self.capture_is_late(ctx, out);
        self.rewind_is_late(ctx, out);
        self.keeping_is_late(ctx, out);
    }

    fn in_use(&mut self, ctx: &Context<'_>) {
        if self.is_idle() {
            self.last_active = self.last_active.max(ctx.now);
        }
    }

    /// Asks for the stop again. Whoever waits for it, to start anew or to go back, waits only so often.
    fn stop_is_late(&mut self, ctx: &Context<'_>, out: &mut Decision, attempt: u32) {
        self.sandbox = Sandbox::Stopping {
            attempt: attempt.saturating_add(1),
            deadline: ctx.now.plus(ctx.policy.stop_timeout),
        };
        out.effects.push(Effect::StopSandbox { incarnation: self.incarnation });
        if attempt < MAX_STOPS_AWAITED {
            return;
        }
        self.give_rewind_up(ctx, out);
        if let State::Starting { .. } = self.state {
            let failure = Failure::new(
                FailureCode::SandboxStuck,
                "the previous sandbox would not stop, so no new one may start",
            );
            self.start_failed(ctx, out, failure);
        }
    }

    fn run_is_late(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        let now = ctx.now;
        let incarnation = self.incarnation;
        let Some(run) = &mut self.current else { return };
        match run.ending {
            Some(ending) if ending.deadline <= now => {
                self.give_up_disobedient(ctx, out, ending.then_pause);
                return;
            }
            None if run.deadline <= now => {
                let deadline = now.plus(ctx.policy.interrupt_grace);
                run.ending = Some(Ending { why: EndingWhy::Timeout, then_pause: false, deadline });
                out.effects.push(Effect::Interrupt { incarnation, run: run.id });
            }
            Some(_) | None => {}
        }
        let Delivery::Sent { attempt, deadline } = run.delivery else { return };
        if deadline > now {
            return;
        }
        if attempt >= MAX_DELIVERIES && run.ending.is_none() {
            let failure =
                Failure::new(FailureCode::AgentUnresponsive, "the agent did not take the prompt");
            self.fail(ctx, out, failure);
            return;
        }
        // With an interrupt, if one is wanted: an agent that never got the prompt has nothing to
        // end, and would stay silent until it is killed for it.
        let deadline = now.plus(ctx.policy.delivery_timeout);
        run.delivery = Delivery::Sent { attempt: attempt.saturating_add(1), deadline };
        out.effects.extend(self.owed_to_the_run());
    }

    /// The agent was told to end the run and did not: its sandbox has to go.
    fn give_up_disobedient(&mut self, ctx: &Context<'_>, out: &mut Decision, then_pause: bool) {
        let failure = Failure::new(
            FailureCode::AgentUnresponsive,
            "the agent did not obey the interrupt, so its sandbox was stopped",
        );
        if then_pause {
            self.rest(ctx, out, PauseReason::Requested, failure);
        } else {
            self.fail(ctx, out, failure);
        }
    }

    fn driver_panicked(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        match self.state {
            State::Starting { .. } | State::Active | State::Paused { .. } => {
                let failure = Failure::new(
                    FailureCode::Internal,
                    "the server failed while working on this session",
                );
                self.fail(ctx, out, failure);
            }
            State::Stopped | State::Error { .. } | State::Ended => {}
        }
    }
}
