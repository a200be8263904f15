//! What a session is owed when its owner is new and remembers nothing.

use super::{Effect, Sandbox, Session};
use crate::number::Seq;
use crate::run::Delivery;
use crate::time::Timestamp;

impl Session {
    /// The effects that may not have been performed, or whose outcome may have been lost. The
    /// session itself is what was committed and does not change; overdue deadlines are the
    /// business of [`Fact::TimePassed`](super::Fact::TimePassed).
    pub fn recover(&self) -> Vec<Effect> {
        let incarnation = self.incarnation;
        let mut owed = match self.sandbox {
            // A frozen sandbox cannot answer; whether it still lives is seen from outside.
            Sandbox::None | Sandbox::Frozen { .. } => Vec::new(),
            Sandbox::Starting { .. } => vec![self.start_effect()],
            Sandbox::Freezing { asked, .. } => vec![Effect::Freeze { incarnation, asked }],
            Sandbox::Thawing { asked, .. } => {
                vec![Effect::Thaw { incarnation, asked, after: self.spool }]
            }
            Sandbox::Stopping { .. } => vec![Effect::StopSandbox { incarnation }],
            Sandbox::Live => {
                // As when it was asked for: what the turn before left is captured before the next prompt is
                // handed over.
                let mut owed = vec![Effect::Attach { incarnation, after: self.spool }];
                owed.extend(self.capture_effect(false));
                owed.extend(self.owed_to_the_run());
                return owed;
            }
        };
        owed.extend(self.capture_effect(false));
        owed.extend(self.put_back_effect());
        owed.extend(self.put_away_effect());
        owed
    }

    /// Somebody else owns the session now, who makes the capture that was asked for again. But not if the agent has gone
    /// on since, or may have: it would be of another moment than the one that it is bound to, whether the sandbox lives,
    /// is frozen or is gone by now. Then what is there now is captured. What was asked for earlier is lost.
    pub fn taken_over(&mut self, now: Timestamp) {
        self.persistence.earlier.clear();
        let Some(asked) = &self.persistence.asked else { return };
        // A prompt that was handed over may have been begun, though nobody has heard of it.
        let is_so_still = self.current.is_none()
            && asked.turn == self.lineage.head()
            && asked.through == self.knows_through();
        if !is_so_still {
            self.persistence.asked = None;
            self.want_capture(now);
        }
    }

    /// How much of the turn it is at the agent knows of now, if that is not all of it.
    pub(super) fn knows_through(&self) -> Option<Seq> {
        match &self.current {
            Some(_) => Some(self.last_seq),
            None => self.lineage.through(self.lineage.head()),
        }
    }

    /// What the agent may not have been told about the current run.
    pub(super) fn owed_to_the_run(&self) -> Vec<Effect> {
        let incarnation = self.incarnation;
        let Some(run) = &self.current else { return Vec::new() };
        let mut owed = Vec::new();
        if let Delivery::Sent { .. } = run.delivery {
            owed.push(Effect::Deliver { incarnation, run: run.id });
        }
        if run.ending.is_some() {
            owed.push(Effect::Interrupt { incarnation, run: run.id });
        }
        owed.extend(self.decisions_owed());
        owed
    }
}
