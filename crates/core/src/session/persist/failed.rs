//! Captures that come to nothing: remembered, shown, and tried again.

use std::time::Duration;

use super::PersistFailed;
use crate::failure::{Death, MAX_MESSAGE_BYTES};
use crate::number::{Incarnation, Turn};
use crate::policy::Context;
use crate::session::{Decision, FilesPlace, PauseReason, Sandbox, Session, State};

/// How long to wait before a capture that failed is tried again, at first and at most.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(5 * 60);

/// How often that is done for a session that is over.
const MAX_RETRIES_OF_ENDED: u32 = 10;

/// How often files are looked for that are gone. They do not come back by themselves.
const MAX_RETRIES_OF_GONE: u32 = 10;

impl Session {
    /// Whether nobody expects files where a sandbox would have them: none was ever there, or only the snapshot has
    /// them.
    pub(super) fn has_no_files_in_place(&self) -> bool {
        let is_new = self.persistence.last.is_none() && self.lineage.head() == Turn::ZERO;
        is_new || self.incarnation == Incarnation::ZERO || self.keeping.files() == FilesPlace::Away
    }

    /// What the session works on is not there any more. What was captured before is what a start brings back. Whatever
    /// still works on what was there works for nothing, and is ended; the next prompt begins with files again.
    pub(super) fn files_are_gone(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        // There is nothing to lose by going back, and it brings files.
        let most = if self.rewinding.is_some() { 0 } else { MAX_RETRIES_OF_GONE };
        self.note_failure(ctx, "its files are not there any more".to_owned(), most);
        match (&self.state, self.sandbox) {
            (State::Active, Sandbox::Live) => {
                self.rest(ctx, out, PauseReason::Evicted, Death::FilesGone.failure());
            }
            (_, Sandbox::Frozen { .. }) => self.stop_sandbox(ctx, out),
            (
                _,
                Sandbox::None
                | Sandbox::Starting { .. }
                | Sandbox::Live
                | Sandbox::Freezing { .. }
                | Sandbox::Thawing { .. }
                | Sandbox::Stopping { .. },
            ) => {}
        }
    }

    pub(super) fn capture_failed(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        message: String,
    ) {
        let most = if self.state == State::Ended { MAX_RETRIES_OF_ENDED } else { u32::MAX };
        self.note_failure(ctx, message, most);
        self.give_rewind_up(ctx, out);
    }

    /// Remembers that a capture failed, and wants another one, unless there were so many.
    fn note_failure(&mut self, ctx: &Context<'_>, mut message: String, most: u32) {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        let attempts = self.persistence.failed.as_ref().map_or(0, |failed| failed.attempts);
        let attempts = attempts.saturating_add(1);
        self.persistence.failed = Some(PersistFailed { attempts, at: ctx.now, message });
        let wait = FIRST_RETRY.saturating_mul(1 << (attempts - 1).min(16)).min(LAST_RETRY);
        self.persistence.due = (attempts < most).then(|| ctx.now.plus(wait));
    }

    /// Leads out of a capture that nobody heard of again, and asks for what is due.
    pub(in crate::session) fn capture_is_late(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        self.persistence.earlier.retain(|_, asked| asked.deadline > ctx.now);
        if self.persistence.asked.as_ref().is_some_and(|asked| asked.deadline <= ctx.now) {
            self.persistence.asked = None;
            // Where the clock was set back, an earlier one can have a later deadline. It is over before this one is.
            self.persistence.earlier.clear();
            self.capture_failed(ctx, out, "it took too long".to_owned());
        }
        self.capture_if_due(ctx, out);
    }
}
