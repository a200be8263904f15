//! How the files of a session came to be where they are, written down beside them until somebody was told.
//!
//! A start that fails is followed by another one, which finds the files in place. So the note is written before there is
//! anything, and stays what it is until a sandbox has come up over them: that one tells, however often it is asked, and
//! those that come later do not. It goes with the files.

use std::fs;
use std::io;

use ash_core::id::SessionId;
use ash_core::resume::{FromSnapshot, Source};
use serde::{Deserialize, Serialize};

use super::files::{Files, remove};
use crate::host::SandboxRef;

/// The name of the note.
const NOTE: &str = "came";

/// How they came to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    /// They were made, from nothing but the agent's definition.
    Fresh,
    /// They were brought back.
    Restored {
        /// From which snapshot.
        from: FromSnapshot,
        /// And where that was.
        source: Source,
    },
    /// They were found after another boot of the machine, and there was nothing to hold them against.
    Unverified,
}

#[derive(Serialize, Deserialize)]
struct Note {
    how: How,
    /// Which sandbox has come up since, so that somebody was told.
    told: Option<u32>,
}

/// What a start for this sandbox has to tell of the files that it finds.
pub(super) fn to_tell(files: &Files, sandbox: SandboxRef) -> io::Result<Option<How>> {
    let note = read(files, sandbox.session)?;
    let is_news = |note: &Note| note.told.is_none_or(|told| told == sandbox.incarnation.get());
    Ok(note.filter(is_news).map(|note| note.how))
}

/// Writes down how files come that are about to be there.
pub(super) fn note(files: &Files, session: SessionId, how: How) -> io::Result<()> {
    write(files, session, &Note { how, told: None })
}

/// Takes note that a sandbox has come up, and that everything is told.
pub(super) fn note_told(files: &Files, sandbox: SandboxRef) -> io::Result<()> {
    match read(files, sandbox.session)? {
        Some(Note { how, told: None }) => {
            write(files, sandbox.session, &Note { how, told: Some(sandbox.incarnation.get()) })
        }
        Some(_) | None => Ok(()),
    }
}

/// The files are something else now, and whoever made them that has told.
pub(super) fn forget(files: &Files, session: SessionId) -> io::Result<()> {
    remove(&files.beside(session, NOTE))
}

/// What was written down, if it is whole.
fn read(files: &Files, session: SessionId) -> io::Result<Option<Note>> {
    match fs::read(files.beside(session, NOTE)) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whole or not at all, but not synced: what a power cut leaves is held against a snapshot anyway.
fn write(files: &Files, session: SessionId, note: &Note) -> io::Result<()> {
    let path = files.beside(session, NOTE);
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(note)?)?;
    fs::rename(&new, &path)
}
