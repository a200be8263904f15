//! What was lost of a session's files.
//!
//! A start finds that, and says so in its receipt. Two more have to know. The agent remembers files that are not there: it
//! is told by every start until it has completed a run with that, for a sandbox can end before anybody has said a word to
//! it. And what is captured until the next turn is not what the turn before it left, though the conversation is there: a
//! fork or a rewind to that turn does not take it for that.

use serde::{Deserialize, Serialize};

use super::{Decision, Session};
use crate::entry::Entry;
use crate::number::Turn;
use crate::policy::Context;
use crate::resume::{FilesLost, Found};
use crate::snapshot::Snapshot;

/// Files that were lost, and that no run has completed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// What is missing.
    files: FilesLost,
    /// The turn that the conversation was at.
    turn: Turn,
}

impl Lost {
    /// What was lost before a snapshot was made, for whoever begins with that.
    pub(super) fn of(snapshot: &Snapshot) -> Option<Self> {
        snapshot.lost.map(|files| Self { files, turn: snapshot.turn })
    }
}

impl Session {
    /// The same session, the end of whose history could not be read where it comes from. That is logged after what
    /// `decision` has, and its agent is told.
    #[must_use]
    pub fn with_end_lost(
        mut self,
        ctx: &Context<'_>,
        decision: &mut Decision,
        reason: String,
    ) -> Self {
        let turns_in_log = self.lineage.turns();
        self.log(ctx, decision, Entry::ContextLost { turns_in_log, reason });
        let before = self.lost_files();
        let files = before.map_or(FilesLost::WithTurns, |before| before.max(FilesLost::WithTurns));
        self.lost = Some(Lost { files, turn: self.lineage.head() });
        self
    }

    /// What the agent is yet to be told of its files.
    pub fn lost_files(&self) -> Option<FilesLost> {
        self.lost.map(|lost| lost.files)
    }

    /// What was lost of the files that the turn left at which the conversation is now.
    pub(super) fn lost_of_turn(&self) -> Option<FilesLost> {
        let lost = self.lost.filter(|lost| lost.turn == self.lineage.head());
        lost.map(|lost| lost.files)
    }

    /// Takes note of what a start found. What was lost before that and not told yet is lost all the same.
    pub(super) fn note_lost_files(&mut self, found: &Found) {
        if let Some(files) = found.files_lost(self.lineage.turns()) {
            let files = self.lost.map_or(files, |before| before.files.max(files));
            self.lost = Some(Lost { files, turn: self.lineage.head() });
        }
    }
}
