//! What a session is owed when its owner is new and remembers nothing.

use super::{Effect, Sandbox, Session};
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
    /// on since: it would be of another moment than the one that it is bound to. What was asked for earlier is lost.
    pub fn taken_over(&mut self, now: Timestamp) {
        self.persistence.earlier.clear();
        let Some(asked) = &self.persistence.asked else { return };
        let moves = match self.sandbox {
            Sandbox::Live | Sandbox::Thawing { .. } => true,
            Sandbox::None
            | Sandbox::Starting { .. }
            | Sandbox::Freezing { .. }
            | Sandbox::Frozen { .. }
            | Sandbox::Stopping { .. } => false,
        };
        let is_so_still = match &self.current {
            None => asked.turn == self.lineage.head(),
            // Whoever has not begun has changed nothing.
            Some(run) => asked.through.is_none() && matches!(run.delivery, Delivery::Sent { .. }),
        };
        if moves && !is_so_still {
            self.persistence.asked = None;
            self.want_capture(now);
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
