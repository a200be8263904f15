//! Going back: the conversation and the files become what a snapshot says, and everything since is kept.
//!
//! ```text
//!   asked ─► the sandbox goes ─► what is there is captured ─► the files are put back ─► rewound
//!                                 └── if that fails, nothing has changed
//! ```
//!
//! What is there is captured first, so that a rewind can itself be rewound. The branch moves in the decision that
//! observes that the files are back, and not before: until then the session is what it was, and whoever is killed in
//! the middle begins again with the step that was not observed. Meanwhile nothing is started: a session that was
//! active is paused, and whoever wants it back is told to come again. It keeps its place for a sandbox, and however the
//! rewind ends, it is started again in the same decision.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, Lost, PauseReason, Resuming, Sandbox, Session, State};
use crate::entry::Entry;
use crate::policy::Context;
use crate::refusal::Refusal;
use crate::snapshot::{PutBackOutcome, Snapshot};
use crate::time::Timestamp;

/// How long to wait before files are put back that could not be, at first and at most.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// A rewind that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewinding {
    /// What everything is to become.
    to: Snapshot,
    step: Step,
    /// Whether the session is started again when this is over.
    #[serde(default)]
    comes_back: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Step {
    /// What is there is captured once nothing moves.
    Capturing,
    /// The files are on their way back.
    PuttingBack {
        /// Tells its outcome from that of another.
        number: u64,
        /// How often that was asked for.
        attempt: u32,
        /// When it is asked for again.
        deadline: Timestamp,
    },
}

impl Rewinding {
    /// What everything is to become.
    pub(super) fn to(&self) -> &Snapshot {
        &self.to
    }

    /// Whether the session is started again when this is over.
    pub(crate) fn comes_back(&self) -> bool {
        self.comes_back
    }
}

impl Session {
    /// The rewind that is not over.
    pub fn rewinding(&self) -> Option<&Rewinding> {
        self.rewinding.as_ref()
    }

    /// Whether files are being put back: nothing else may be done with them.
    pub(super) fn puts_back(&self) -> bool {
        matches!(&self.rewinding, Some(Rewinding { step: Step::PuttingBack { .. }, .. }))
    }

    pub(super) fn rewind(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        to: Snapshot,
    ) -> Result<(), Refusal> {
        match self.state {
            State::Ended => return Err(Refusal::Ended),
            State::Starting { .. } => return Err(Refusal::NotActive(self.status())),
            State::Active | State::Paused { .. } | State::Stopped | State::Error { .. } => {}
        }
        self.must_not_rewind()?;
        if self.current.is_some() || !self.queue.is_empty() {
            return Err(Refusal::RunInProgress);
        }
        if to.turn > self.lineage.last() {
            return Err(Refusal::NoSuchTurn);
        }
        let comes_back = self.state == State::Active;
        if comes_back {
            // The system's own wish, not a person's: the next prompt brings it back.
            let reason = PauseReason::Evicted;
            self.state = State::Paused { reason, since: ctx.now };
            self.log(ctx, out, Entry::SessionPaused { reason });
        }
        self.stop_sandbox(ctx, out);
        // Nobody removes them from now on.
        self.keeping.keep_in_place();
        self.rewinding = Some(Rewinding { to, step: Step::Capturing, comes_back });
        Ok(())
    }

    /// Refuses what cannot be done while the session goes back.
    pub(super) fn must_not_rewind(&self) -> Result<(), Refusal> {
        if self.rewinding.is_some() { Err(Refusal::BeingRewound) } else { Ok(()) }
    }

    /// Has the files put back, once nothing moves and everything is captured.
    pub(super) fn go_on_rewinding(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        let captures = matches!(&self.rewinding, Some(Rewinding { step: Step::Capturing, .. }));
        if !captures || self.sandbox != Sandbox::None || self.persistence.is_under_way() {
            return;
        }
        if !self.persistence.is_settled() {
            self.want_capture(ctx.now);
            return self.capture_if_due(ctx, out);
        }
        self.ask_to_put_back(ctx, out, 1);
    }

    /// The files cannot be captured, so they stay.
    pub(super) fn give_rewind_up(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        if !self.puts_back() {
            self.rewind_is_over(ctx, out);
        }
    }

    /// Something is wrong with the session. What was begun with its files is brought to an end, and nothing else.
    pub(super) fn break_rewind_off(&mut self) {
        if !self.puts_back() {
            self.rewinding = None;
        }
    }

    /// Its place is needed, or the server goes: the session stays paused.
    pub(super) fn stay_after_rewind(&mut self) {
        if let Some(rewinding) = &mut self.rewinding {
            rewinding.comes_back = false;
        }
    }

    /// However it ended: a session that was active is started again.
    fn rewind_is_over(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        let comes_back = self.rewinding.take().is_some_and(|rewinding| rewinding.comes_back);
        if comes_back && matches!(self.state, State::Paused { .. }) {
            let back = self.resume(ctx, out, Resuming::default());
            debug_assert_eq!(back, Ok(()), "what is paused and not being rewound can be resumed");
        }
    }

    /// A session that is over goes nowhere. What is being put back is not worth a capture.
    pub(super) fn forget_rewind(&mut self) {
        if self.puts_back() {
            self.want_no_capture();
        }
        self.rewinding = None;
    }

    fn ask_to_put_back(&mut self, ctx: &Context<'_>, out: &mut Decision, attempt: u32) {
        let deadline = ctx.now.plus(ctx.policy.persist_timeout);
        self.put_backs += 1;
        if let Some(rewinding) = &mut self.rewinding {
            rewinding.step = Step::PuttingBack { number: self.put_backs, attempt, deadline };
        }
        out.effects.extend(self.put_back_effect());
    }

    /// What is owed for the files that are on their way back, if any are.
    pub(super) fn put_back_effect(&self) -> Option<Effect> {
        let Rewinding { to, step, .. } = self.rewinding.as_ref()?;
        match *step {
            Step::Capturing => None,
            Step::PuttingBack { number, .. } => {
                Some(Effect::PutBack { number, snapshot: to.clone() })
            }
        }
    }

    pub(super) fn was_put_back(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        number: u64,
        outcome: &PutBackOutcome,
    ) {
        let Some(Rewinding { step, .. }) = &mut self.rewinding else { return };
        let Step::PuttingBack { number: asked, attempt, deadline } = step else { return };
        // One that took longer than was waited for has done it all the same.
        let first = (*asked + 1).saturating_sub(u64::from(*attempt));
        let is_done = *outcome == PutBackOutcome::Done && (first..*asked).contains(&number);
        if *asked != number && !is_done {
            return;
        }
        let attempt = *attempt;
        match outcome {
            PutBackOutcome::Done => {}
            // Nothing was touched: the session is what it was, but for what was begun before.
            PutBackOutcome::Lost => {
                if attempt > 1 {
                    self.want_capture(ctx.now);
                }
                return self.rewind_is_over(ctx, out);
            }
            // Some of it may be done. There is only one way out of that.
            PutBackOutcome::Failed => {
                let wait = FIRST_RETRY.saturating_mul(1 << attempt.min(16)).min(LAST_RETRY);
                *deadline = (*deadline).min(ctx.now.plus(wait));
                self.keeping.bring_in_place();
                return;
            }
        }
        let Some(Rewinding { to, .. }) = self.rewinding.clone() else { return };
        let from = self.lineage.head();
        let known = self.lineage.rewind_into(to.turn, to.through);
        debug_assert!(known, "a turn that was known is known for ever");
        let (snapshot, through) = (Some(to.captured.id), to.through);
        self.transcript = to.transcript.clone();
        self.completed_runs = to.completed_runs;
        self.lost = Lost::of(&to);
        (self.recalled, self.interrupted_run) = (None, None);
        self.log(ctx, out, Entry::Rewound { from, to: to.turn, snapshot, through });
        self.branched_at = self.last_seq;
        self.keeping.bring_in_place();
        self.is_captured_by(to);
        self.rewind_is_over(ctx, out);
    }

    /// When the files are to be asked for again.
    pub(super) fn rewind_deadline(&self) -> Option<Timestamp> {
        match self.rewinding.as_ref()?.step {
            Step::Capturing => None,
            Step::PuttingBack { deadline, .. } => Some(deadline),
        }
    }

    pub(super) fn rewind_is_late(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        let Some(Rewinding { step, .. }) = &self.rewinding else { return };
        if let Step::PuttingBack { attempt, deadline, .. } = *step
            && deadline <= ctx.now
        {
            self.ask_to_put_back(ctx, out, attempt.saturating_add(1));
        }
    }
}
