//! The steps that both doors are made of.

use super::{
    Decision, Effect, LogEntry, PauseReason, RunChange, Sandbox, Session, SpoolPosition, StartWhy,
    State,
};
use crate::entry::{EndedBy, Entry, ResumePath};
use crate::failure::{Failure, FailureCode};
use crate::id::RunId;
use crate::policy::{Context, MAX_GATHERED_BYTES};
use crate::resume::{Conversation, Found, Native, Receipt, Workspace};
use crate::run::{CurrentRun, Delivery, Outcome, QueuedRun, Usage};
use crate::time::Timestamp;

/// How a session comes back.
#[derive(Clone, Copy)]
pub(super) enum Back {
    /// In the same sandbox.
    Warm {
        /// When it was asked for.
        asked_at: Option<Timestamp>,
    },
    /// In another one.
    Cold {
        /// When it was asked for.
        asked_at: Option<Timestamp>,
        /// What its host found.
        found: Found,
    },
}

impl Session {
    pub(super) fn log(&mut self, ctx: &Context<'_>, out: &mut Decision, entry: Entry) {
        self.last_seq = self.last_seq.next();
        out.entries.push(LogEntry { seq: self.last_seq, at: ctx.now, entry });
    }

    /// Logs a piece of text. What gathered while the previous commit was under way becomes one
    /// entry: a model that speaks fast costs few rows, and a replay shows the same rows.
    pub(super) fn log_delta(&mut self, ctx: &Context<'_>, out: &mut Decision, piece: Entry) {
        let gathered = match (out.entries.last_mut().map(|last| &mut last.entry), &piece) {
            (
                Some(Entry::TextDelta { run: of, delta: gathered }),
                Entry::TextDelta { run, delta },
            )
            | (
                Some(Entry::ThinkingDelta { run: of, delta: gathered }),
                Entry::ThinkingDelta { run, delta },
            ) if of == run && gathered.len() + delta.len() <= MAX_GATHERED_BYTES => {
                gathered.push_str(delta);
                true
            }
            (Some(_) | None, _) => false,
        };
        if !gathered {
            self.log(ctx, out, piece);
        }
    }

    /// Asks for the next sandbox. The slot must be empty.
    pub(super) fn start_sandbox(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        debug_assert_eq!(
            self.sandbox,
            Sandbox::None,
            "a sandbox is started only into an empty slot"
        );
        self.keeping.bring_in_place();
        self.incarnation = self.incarnation.next();
        self.spool = SpoolPosition::ZERO;
        // Files that have to be brought back, or held against a snapshot, take longer than a sandbox.
        let files = self.persistence.last().map(|_| ctx.policy.persist_timeout).unwrap_or_default();
        let deadline = ctx.now.plus(ctx.policy.start_timeout).plus(files);
        self.sandbox = Sandbox::Starting { deadline };
        out.effects.push(self.start_effect());
    }

    pub(super) fn start_effect(&self) -> Effect {
        Effect::StartSandbox {
            incarnation: self.incarnation,
            transcript: self.transcript.clone(),
            completed_runs: self.completed_runs,
            turns: self.lineage.turns(),
            if_lost: self.if_lost,
            lost: self.lost_files(),
            snapshot: self.persistence.last().cloned(),
            is_behind: self.persistence.last().is_some_and(|last| last.turn != self.lineage.head()),
            proven: self.persistence.proven().cloned().map(Box::new),
        }
    }

    /// Has whatever is in the slot destroyed.
    pub(super) fn stop_sandbox(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        match self.sandbox {
            Sandbox::None | Sandbox::Stopping { .. } => {}
            Sandbox::Starting { .. }
            | Sandbox::Live
            | Sandbox::Freezing { .. }
            | Sandbox::Frozen { .. }
            | Sandbox::Thawing { .. } => {
                self.sandbox = Sandbox::Stopping {
                    attempt: 1,
                    deadline: ctx.now.plus(ctx.policy.stop_timeout),
                };
                out.effects.push(Effect::StopSandbox { incarnation: self.incarnation });
            }
        }
    }

    /// Puts an active session to rest with its sandbox frozen.
    pub(super) fn freeze(&mut self, ctx: &Context<'_>, out: &mut Decision, reason: PauseReason) {
        self.state = State::Paused { reason, since: ctx.now };
        self.log(ctx, out, Entry::SessionPaused { reason });
        let asked = self.last_seq;
        let deadline = ctx.now.plus(ctx.policy.freeze_timeout);
        self.sandbox = Sandbox::Freezing { asked, deadline };
        out.effects.push(Effect::Freeze { incarnation: self.incarnation, asked });
    }

    /// Has another sandbox started for a resume that found none to thaw. The run that was frozen
    /// in the old one is cut; whatever is left of it goes first.
    pub(super) fn come_back_cold(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        asked_at: Option<Timestamp>,
        failure: Failure,
    ) {
        self.cut_run(ctx, out, &Outcome::Interrupted(failure));
        let since = asked_at.or(Some(ctx.now));
        self.state = State::Starting { why: StartWhy::Resumed, since };
        self.log(ctx, out, Entry::SessionWaking);
        if self.sandbox == Sandbox::None {
            self.start_sandbox(ctx, out);
        } else {
            self.stop_sandbox(ctx, out);
        }
    }

    /// Breaks the session: whatever runs is destroyed, every run ends.
    pub(super) fn fail(&mut self, ctx: &Context<'_>, out: &mut Decision, failure: Failure) {
        self.end_runs(ctx, out, &Outcome::Interrupted(failure.clone()));
        self.stop_sandbox(ctx, out);
        self.break_rewind_off();
        self.log(ctx, out, Entry::SessionFailed { failure: failure.clone() });
        self.state = State::Error { failure, at: ctx.now };
    }

    pub(super) fn end(&mut self, ctx: &Context<'_>, out: &mut Decision, by: EndedBy) {
        let outcome = match by {
            EndedBy::Request => Outcome::Cancelled,
            EndedBy::Ttl => Outcome::Failed(Failure::new(
                FailureCode::SessionExpired,
                "the session's time to live ran out",
            )),
        };
        self.end_runs(ctx, out, &outcome);
        self.stop_sandbox(ctx, out);
        self.state = State::Ended;
        self.forget_rewind();
        self.keeping.ended(ctx.now);
        self.log(ctx, out, Entry::SessionEnded { by });
    }

    /// Gives the agent the next prompt, if it is free to take one.
    pub(super) fn start_next_run(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        if self.state != State::Active || self.sandbox != Sandbox::Live || self.current.is_some() {
            return;
        }
        let Some(QueuedRun { id: run, timeout }) = self.queue.pop_front() else { return };
        self.capture_before_turn(ctx, out);
        let (turn, parent_turn) = self.lineage.begin();
        self.log(ctx, out, Entry::RunStarted { run, turn, parent_turn });
        self.current = Some(CurrentRun {
            id: run,
            turn,
            deadline: ctx.now.plus(timeout),
            delivery: Delivery::Sent {
                attempt: 1,
                deadline: ctx.now.plus(ctx.policy.delivery_timeout),
            },
            phase: None,
            round: 0,
            round_start: self.last_seq,
            ending: None,
        });
        out.runs.push(RunChange::Started { run, turn, parent_turn, at: ctx.now });
        out.effects.push(Effect::Deliver { incarnation: self.incarnation, run });
    }

    /// Ends the current run with `outcome`, unless it was already told to end for another reason.
    /// The prompts that wait have not begun: the next sandbox takes them.
    pub(super) fn cut_run(&mut self, ctx: &Context<'_>, out: &mut Decision, outcome: &Outcome) {
        if let Some(run) = self.current.take() {
            // Once a person wanted the run to end, no accident makes it look like one.
            let outcome = run.ending.map_or_else(|| outcome.clone(), |ending| ending.why.outcome());
            self.end_run(ctx, out, run.id, outcome, Usage::default());
        }
    }

    /// The same, and ends every prompt that waits: no sandbox will come for them by itself.
    pub(super) fn end_runs(&mut self, ctx: &Context<'_>, out: &mut Decision, outcome: &Outcome) {
        self.cut_run(ctx, out, outcome);
        let cut = self.interrupted_run;
        for run in std::mem::take(&mut self.queue) {
            self.end_run(ctx, out, run.id, outcome.clone(), Usage::default());
        }
        // A prompt that still waited was not cut in the middle of anything.
        self.interrupted_run = cut;
    }

    /// Says what the session came back to.
    pub(super) fn log_resumed(&mut self, ctx: &Context<'_>, out: &mut Decision, back: Back) {
        let turns_in_log = self.lineage.turns();
        let (path, found) = match back {
            Back::Warm { .. } => (ResumePath::Warm, None),
            Back::Cold { found, .. } => (ResumePath::Cold, Some(found)),
        };
        if let Some(Found { native, turns, .. }) = found {
            // The record is the agent's, and says what it likes: there were no more than were logged.
            let turns = turns.min(turns_in_log);
            self.recalled = Some(Conversation { native, turns, turns_in_log });
        }
        if let Some(found) = &found {
            self.note_lost_files(found);
        }
        let mut conversation = self.conversation();
        if path == ResumePath::Warm && conversation.native == Native::Rebuilt {
            // That was done when its sandbox came up. Now nothing had to be.
            conversation.native = Native::Intact;
        }
        let (Back::Warm { asked_at } | Back::Cold { asked_at, .. }) = back;
        let duration = asked_at.map(|asked_at| ctx.now.since(asked_at)).unwrap_or_default();
        let receipt = Receipt {
            path,
            source: found.map(|found| found.source),
            workspace: found.map_or(Workspace::Kept, |found| found.workspace),
            last_seq: self.last_seq,
            snapshot: found.and_then(|found| found.snapshot),
            unverified: found.map_or(0, |found| found.unverified),
            files: found.map_or(0, |found| found.files),
            bytes: found.map_or(0, |found| found.bytes),
            conversation,
            interrupted_run: self.interrupted_run.take(),
            duration_micros: u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
        };
        let incarnation = self.incarnation;
        self.log(ctx, out, Entry::SessionResumed { path, incarnation, receipt: Some(receipt) });
        // What was lost is said once: when it was found to be.
        if let Some(reason) = receipt.context_lost().filter(|_| path == ResumePath::Cold) {
            self.log(ctx, out, Entry::ContextLost { turns_in_log, reason: reason.to_owned() });
        }
    }

    pub(super) fn end_run(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        run: RunId,
        outcome: Outcome,
        usage: Usage,
    ) {
        self.last_active = ctx.now;
        self.last_message_at = Some(ctx.now);
        match &outcome {
            Outcome::Completed(_) => {
                self.completed_runs = self.completed_runs.saturating_add(1);
                self.interrupted_run = None;
                self.lost = None;
            }
            Outcome::Interrupted(_) => self.interrupted_run = Some(run),
            Outcome::Cancelled | Outcome::Failed(_) => {}
        }
        self.close_questions(ctx, out, run, &outcome);
        if let Some(failure) = outcome.failure() {
            self.log(ctx, out, Entry::RunError { run, failure: failure.clone() });
        }
        self.log(ctx, out, Entry::RunEnded { run, outcome: outcome.clone(), usage });
        out.runs.push(RunChange::Ended { run, outcome, usage, at: ctx.now });
    }
}
