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
//! active is paused, and whoever wants it back is told to come again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, PauseReason, Sandbox, Session, State};
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
        if self.state == State::Active {
            // The system's own wish, not a person's: the next prompt brings it back.
            let reason = PauseReason::Evicted;
            self.state = State::Paused { reason, since: ctx.now };
            self.log(ctx, out, Entry::SessionPaused { reason });
        }
        self.stop_sandbox(ctx, out);
        self.rewinding = Some(Rewinding { to, step: Step::Capturing });
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
    pub(super) fn give_rewind_up(&mut self) {
        if !self.puts_back() {
            self.rewinding = None;
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
        let Rewinding { to, step } = self.rewinding.as_ref()?;
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
        if *asked != number {
            return;
        }
        match outcome {
            PutBackOutcome::Done => {}
            // Nothing was touched: the session is what it was.
            PutBackOutcome::Lost => {
                self.rewinding = None;
                return;
            }
            // Some of it may be done. There is only one way out of that.
            PutBackOutcome::Failed => {
                let wait = FIRST_RETRY.saturating_mul(1 << (*attempt).min(16)).min(LAST_RETRY);
                *deadline = (*deadline).min(ctx.now.plus(wait));
                return;
            }
        }
        let Some(Rewinding { to, .. }) = self.rewinding.take() else { return };
        let from = self.lineage.head();
        let known = self.lineage.rewind(to.turn);
        debug_assert!(known, "a turn that was known is known for ever");
        let snapshot = Some(to.captured.id);
        self.transcript = to.transcript.clone();
        self.completed_runs = to.completed_runs;
        (self.recalled, self.interrupted_run) = (None, None);
        self.log(ctx, out, Entry::Rewound { from, to: to.turn, snapshot });
        self.is_captured_by(to);
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
