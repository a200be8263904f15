//! The receipt of a resume: what a session came back to, and what it did not.
//!
//! A host says what it [`Found`] where it started a sandbox; the session makes a [`Receipt`] of it,
//! which is logged and shown. Nothing that was lost is passed over in silence.

use serde::{Deserialize, Serialize};

use crate::entry::ResumePath;
use crate::id::{RunId, SnapshotId};
use crate::number::Seq;
use crate::snapshot::{Captured, Snapshot};

/// What became of the files that the agent works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workspace {
    /// They were where they had been left.
    Kept,
    /// They were brought back from a snapshot.
    Restored,
    /// They were there, but not as they should be, and were put right from a snapshot.
    Repaired,
    /// There were none: they begin anew, with what the agent's definition brings.
    Fresh,
}

impl Workspace {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Restored => "restored",
            Self::Repaired => "repaired",
            Self::Fresh => "fresh",
        }
    }
}

/// Where the files came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// This machine.
    Local,
    /// The object store.
    Cloud,
    /// The agent's definition.
    Fresh,
}

impl Source {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Cloud => "cloud",
            Self::Fresh => "fresh",
        }
    }
}

/// What became of the agent's own record of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Native {
    /// It begins with exactly what the log says it should.
    Intact,
    /// It was made anew from the log.
    Rebuilt,
    /// There should be one, and it is not there or not the same.
    Lost,
    /// There is none yet.
    None,
}

impl Native {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Intact => "intact",
            Self::Rebuilt => "rebuilt",
            Self::Lost => "lost",
            Self::None => "none",
        }
    }
}

/// What becomes of a session whose files cannot be brought back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfLost {
    /// It does not come back without them.
    Refuse,
    /// It begins with fresh ones if they are nowhere; not if they are said to be in the cloud.
    #[default]
    BeginAnew,
    /// It begins with whatever can be had now, and be it fresh ones.
    GiveUp,
}

impl IfLost {
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// What an agent still knows of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// What became of its own record.
    pub native: Native,
    /// How many turns that record holds.
    pub turns: u32,
    /// How many turns the log holds.
    pub turns_in_log: u32,
}

/// A snapshot that files came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromSnapshot {
    /// Which one.
    pub id: SnapshotId,
    /// Where the log ended when it was asked for.
    pub seq: Seq,
    /// Files that are newer than it, stayed, and could not be held against it; or of which it cannot be said that it has
    /// them as they were.
    #[serde(default)]
    pub unverified: u64,
    /// Whether there had been later ones, which are lost.
    #[serde(default, skip_serializing_if = "is_false")]
    pub outdated: bool,
    /// How many paths of it could not be read any more, and are missing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

impl FromSnapshot {
    /// All of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let Captured { id, unstable, .. } = snapshot.captured;
        Self { id, seq: snapshot.seq, unverified: unstable, outdated: false, left_out: 0 }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How files are not what the last turn left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilesLost {
    /// They are those of an earlier moment.
    Outdated,
    /// They are those of an earlier moment, as is the conversation: what was said after it is lost with them.
    WithTurns,
    /// Some of them are missing, and others may be of an earlier moment.
    WithHoles,
    /// None is left, and they began anew.
    All,
}

impl FilesLost {
    fn of(workspace: Workspace, from: Option<FromSnapshot>, turns: u32) -> Option<Self> {
        if workspace == Workspace::Fresh && turns > 0 {
            Some(Self::All)
        } else if from.is_some_and(|from| from.left_out > 0) {
            Some(Self::WithHoles)
        } else if from.is_some_and(|from| from.outdated) {
            Some(Self::Outdated)
        } else {
            None
        }
    }
}

/// What a host found where a sandbox was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What became of the files.
    pub workspace: Workspace,
    /// Where they came from.
    pub source: Source,
    /// The snapshot that they were brought back or put right from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<FromSnapshot>,
    /// How many of them nobody could hold against anything, because there was no good snapshot to do it with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unverified: u64,
    /// How many there are.
    pub files: u64,
    /// How large they are together.
    pub bytes: u64,
    /// What became of the agent's own record of the conversation.
    pub native: Native,
    /// How many turns that record holds.
    pub turns: u32,
    /// What was captured of the files as they were, before anything in them was put right. It may have been told
    /// before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_found: Option<Captured>,
}

impl Found {
    /// What is found where nothing was.
    pub const NOTHING: Self = Self {
        workspace: Workspace::Fresh,
        source: Source::Fresh,
        snapshot: None,
        unverified: 0,
        files: 0,
        bytes: 0,
        native: Native::None,
        turns: 0,
        as_found: None,
    };

    /// What was lost of the files, if the log has that many turns.
    pub fn files_lost(&self, turns: u32) -> Option<FilesLost> {
        FilesLost::of(self.workspace, self.snapshot, turns)
    }
}

/// What a session came back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// How it came back.
    pub path: ResumePath,
    /// Where its files came from; nothing, if they were never put away.
    pub source: Option<Source>,
    /// What became of its files.
    pub workspace: Workspace,
    /// The snapshot that they were brought back or put right from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<FromSnapshot>,
    /// How many files nobody could hold against anything, because there was no good snapshot to do it with.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unverified: u64,
    /// Where its log ended before.
    pub last_seq: Seq,
    /// How many files there are; not counted when the same sandbox goes on.
    pub files: u64,
    /// How large they are together; not counted when the same sandbox goes on.
    pub bytes: u64,
    /// What the agent still knows.
    pub conversation: Conversation,
    /// The run that was cut since the last resume and that no completed run has followed.
    pub interrupted_run: Option<RunId>,
    /// How long it took, from the request until the sandbox answered.
    pub duration_micros: u64,
}

impl Receipt {
    /// Why the agent does not know any more what the log says, if that is so.
    pub fn context_lost(&self) -> Option<&'static str> {
        let lost = FilesLost::of(self.workspace, self.snapshot, self.conversation.turns_in_log);
        match lost {
            Some(FilesLost::All) => Some("the workspace was gone and was made anew"),
            Some(FilesLost::WithHoles) => {
                Some("some files of the workspace could not be read back, and are missing")
            }
            Some(FilesLost::Outdated | FilesLost::WithTurns) => {
                Some("the latest snapshots are lost, and the files are those of an earlier one")
            }
            None if self.conversation.native == Native::Lost => {
                Some("the agent's own record of the conversation is gone, or is not what it was")
            }
            None => None,
        }
    }
}

/// How many digits a digest has.
const DIGEST_DIGITS: usize = 64;

/// The agent's own record of the conversation as it was at the end of a turn, by its digest: what
/// a later start can hold the record against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transcript {
    /// How long it was.
    pub bytes: u64,
    /// The BLAKE3 digest of that many bytes, in hexadecimal digits.
    pub blake3: String,
    /// How many turns it held.
    pub turns: u32,
}

impl Transcript {
    /// Reads what an agent reported. What is no digest is nothing: agents are not trusted.
    pub fn read(body: &str) -> Option<Self> {
        let read: Self = serde_json::from_str(body).ok()?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_digest = read.blake3.len() == DIGEST_DIGITS && read.blake3.bytes().all(is_digit);
        is_digest.then_some(read)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_stored_has_the_name_it_is_known_by() {
        let name = |stored: String| stored.trim_matches('"').to_owned();
        for of in [Workspace::Kept, Workspace::Restored, Workspace::Repaired, Workspace::Fresh] {
            assert_eq!(name(serde_json::to_string(&of).unwrap()), of.as_str());
        }
        for of in [Source::Local, Source::Cloud, Source::Fresh] {
            assert_eq!(name(serde_json::to_string(&of).unwrap()), of.as_str());
        }
        for of in [Native::Intact, Native::Rebuilt, Native::Lost, Native::None] {
            assert_eq!(name(serde_json::to_string(&of).unwrap()), of.as_str());
        }
    }

    #[test]
    fn only_a_digest_is_a_digest() {
        let told = |digest: &str| format!(r#"{{"bytes":3,"blake3":"{digest}","turns":1}}"#);
        assert_eq!(Transcript::read(&told(&"0a".repeat(32))).unwrap().bytes, 3);
        for lie in ["", "0a", &"0A".repeat(32), &"zz".repeat(32), &"0a".repeat(1_000_000)] {
            assert_eq!(Transcript::read(&told(lie)), None);
        }
        assert_eq!(Transcript::read(r#"{"bytes":-1}"#), None);
        assert_eq!(Transcript::read("[]"), None);
    }
}
