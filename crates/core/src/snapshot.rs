//! Snapshots of what an agent works on, as a session knows them: which one, and of which moment.

use serde::{Deserialize, Serialize};

use crate::id::SnapshotId;
use crate::number::{Seq, Turn};
use crate::resume::{FilesLost, Transcript};
use crate::time::Timestamp;

/// What a host captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The snapshot, which is durable.
    pub id: SnapshotId,
    /// How many names there are in the workspace that are no directories.
    pub files: u64,
    /// How large they are together.
    pub bytes: u64,
    /// How much of that was not stored before.
    pub new_bytes: u64,
    /// How many files were read after everything was allowed to move again.
    pub unfrozen: u64,
    /// How many files changed each time they were read, or before that, or were found and then gone.
    pub unstable: u64,
    /// Whether the machine had been restarted since the files were last in use: they may be torn.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unproven: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A snapshot, and the moment of its session that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// What was captured.
    #[serde(flatten)]
    pub captured: Captured,
    /// Where the log ended when it was asked for.
    pub seq: Seq,
    /// The turn that the conversation was at.
    pub turn: Turn,
    /// The last entry of that turn which the agent knew of, if that was not all of it: the turn went on, or the
    /// session had been rewound into the middle of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<Seq>,
    /// When it was asked for.
    pub at: Timestamp,
    /// The agent's own record of the conversation at that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<Transcript>,
    /// How many runs the session had completed then.
    #[serde(default)]
    pub completed_runs: u32,
    /// What had been lost of the files before: then it is not what the turn left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<FilesLost>,
}

impl Snapshot {
    /// Of how many files it cannot be said that they are what they were at that moment.
    pub fn unverified(&self) -> u64 {
        let Captured { files, unstable, unproven, .. } = self.captured;
        if unproven { files } else { unstable }
    }

    /// Whether it is of the end of a turn, and has what that left.
    /// That it may be torn is not asked.
    pub fn is_of_end_of(&self, turn: Turn) -> bool {
        self.turn == turn && self.through.is_none() && self.lost.is_none()
    }
}

/// What came of files that were to be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutBackOutcome {
    /// They are what the snapshot says.
    Done,
    /// The snapshot is not there, or not whole. Nothing was touched.
    Lost,
    /// They may be partly what they were, and partly what they are to be.
    Failed,
}

/// What came of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PersistOutcome {
    /// There is a snapshot.
    Captured(Captured),
    /// The machine had been restarted, and something was torn or missing.
    PutRight {
        /// What was found.
        as_found: Captured,
        /// What it is, now that it was put right.
        captured: Captured,
    },
    /// There is nothing that the last snapshot does not have, or nothing that is worth it.
    Unchanged,
    /// There are no files where the session's should be.
    Gone,
    /// There is none.
    Failed {
        /// Why, for a person.
        message: String,
    },
}
