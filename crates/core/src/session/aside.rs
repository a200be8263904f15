//! What the agent says of its own accord, while it has no prompt: something that it left running has ended, and it goes
//! on with that.
//!
//! It is logged when it is said, like everything else, and belongs to no run: the one before is over, and has told what
//! it consumed; the next one may never come. It belongs to the turn that the conversation is at.

use super::observe::TRANSCRIPT;
use super::{Decision, ReportBody, Session, State};
use crate::entry::{Entry, Said};
use crate::policy::{Context, MAX_REPORT_BYTES};
use crate::resume::Transcript;

impl Session {
    pub(super) fn said_aside(&mut self, ctx: &Context<'_>, out: &mut Decision, body: ReportBody) {
        if self.state == State::Ended {
            return;
        }
        let bytes = body.size();
        if bytes > MAX_REPORT_BYTES {
            return self.log(ctx, out, Entry::ReportTooLarge { run: None, bytes: bytes as u64 });
        }
        let said = match body {
            ReportBody::Message(body) => Said::Message { body },
            ReportBody::Output { name, body } => Said::Output { name, body },
            // All of these are about a run.
            ReportBody::Begun
            | ReportBody::Phase { .. }
            | ReportBody::Retry { .. }
            | ReportBody::TextDelta(_)
            | ReportBody::ThinkingDelta(_)
            | ReportBody::Question { .. }
            | ReportBody::Answered { .. }
            | ReportBody::Skipped
            | ReportBody::Ended { .. } => return,
        };
        if let Said::Output { name, body } = &said
            && name == TRANSCRIPT
            && let Some(transcript) = Transcript::read(body.get())
        {
            self.transcript = Some(transcript);
        }
        let turn = self.lineage.head();
        self.log(ctx, out, Entry::Aside { turn, said });
        // The snapshot of the turn was made before it.
        self.want_capture_after_use(ctx);
    }
}
