//! Whether the files of a session can be believed, and putting them right where they cannot.
//!
//! Files that a dead sandbox left are what it left, whoever killed it: the kernel holds what is not on the disk yet.
//! That ends with the kernel. So what is written down beside them is under which boot of the machine they were last
//! in use, before a sandbox uses them; it costs a look, however many there are. If that was another boot, or nobody
//! knows, every file that the last good snapshot has is compared with it, by its bytes:
//!
//! 1. If nothing is missing or torn, that was all.
//! 2. Everything is captured as it is, so that nothing is lost by what follows.
//! 3. A note says so, and that it is not done yet.
//! 4. What is missing or torn is put back. What is newer than the snapshot stays.
//! 5. The note says that it is done; then the boot is written down.
//!
//! A start that is killed on the way is followed by one that finds the note, does 4 again with what was captured the
//! first time, and says that something was put right, also if there is nothing left to do. The boot is not synced: if the
//! power goes, what is found there is not the next one.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use ash_core::id::SessionId;
use ash_core::resume::FromSnapshot;
use ash_core::snapshot::{Captured, Snapshot};
use ash_snapshot::Effect;
use serde::{Deserialize, Serialize};

use super::files::Files;
use super::workspace::Saved;
use crate::archive::{ArchiveError, Places};
use crate::host::SandboxRef;

/// Where the kernel says which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The names of what is written down beside the files of a session.
const BOOT: &str = "boot";
const NOTE: &str = "mended";

/// Which boot of the machine this is.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string(BOOT_ID)?.trim().to_owned())
}

/// What was found out about files that could not be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mended {
    /// What they were held against, if that was done for this sandbox.
    pub(super) from: Option<FromSnapshot>,
    /// Whether anything was put back.
    pub(super) is_repaired: bool,
    /// What they were before that.
    pub(super) as_found: Option<Captured>,
}

/// What is written down of files that were held against a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Note {
    /// Under which boot.
    boot: String,
    from: FromSnapshot,
    /// Whether anything was put back, or was to be.
    is_repaired: bool,
    as_found: Option<Captured>,
    is_done: bool,
    /// Which sandbox has come up since, so that somebody was told.
    told: Option<u32>,
}

/// Whether the files of a session were last in use under this boot.
pub(super) fn is_believed(files: &Files, session: SessionId, boot: &str) -> io::Result<bool> {
    match fs::read_to_string(files.beside(session, BOOT)) {
        Ok(last) => Ok(last == boot),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // Torn as well.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes down that the files of a session are in use from now on.
pub(super) fn note_use(files: &Files, session: SessionId, boot: &str) -> io::Result<()> {
    if is_believed(files, session, boot)? {
        return Ok(());
    }
    fs::write(files.beside(session, BOOT), boot)
}

/// What was found out for a sandbox, or for one before it that did not come up.
pub(super) fn told_before(
    files: &Files,
    sandbox: SandboxRef,
    boot: &str,
) -> io::Result<Option<Mended>> {
    let note = Note::read(&files.beside(sandbox.session, NOTE))?;
    let note = note.filter(|note| note.boot == boot && note.is_done);
    Ok(note.map(|note| {
        let is_news = note.told.is_none_or(|told| told == sandbox.incarnation.get());
        let from = is_news.then_some(note.from);
        Mended { from, is_repaired: is_news && note.is_repaired, as_found: note.as_found }
    }))
}

/// Takes note that a sandbox has come up, and that what was put right for it is told.
pub(super) fn note_told(files: &Files, sandbox: SandboxRef) -> io::Result<()> {
    let path = files.beside(sandbox.session, NOTE);
    match Note::read(&path)? {
        Some(note) if note.told.is_none() => {
            Note { told: Some(sandbox.incarnation.get()), ..note }.write(&path)
        }
        Some(_) | None => Ok(()),
    }
}

/// Holds files that cannot be believed against a snapshot that can, and puts right what is torn or missing. Nothing, if
/// the snapshot is lost: then they are what they are. Nothing of the session may run.
pub(super) fn mend(
    files: &Files,
    session: SessionId,
    saved: Saved<'_>,
    (boot, user): (&str, Option<u32>),
) -> io::Result<Option<Mended>> {
    let Some(proven) = saved.proven else { return Ok(None) };
    match saved.mend(files, session, proven, (boot, user)) {
        Ok(mended) => Ok(Some(mended)),
        Err(Unmended::Archive(error)) if error.is_lost() => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, session.id = %session, "the files of session {session} could not be held against a snapshot, which is lost");
            Ok(None)
        }
        Err(Unmended::Archive(error)) => Err(io::Error::other(error)),
        Err(Unmended::Note(error)) => Err(error),
    }
}

enum Unmended {
    Archive(ArchiveError),
    Note(io::Error),
}

impl From<ArchiveError> for Unmended {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl Saved<'_> {
    fn mend(
        &self,
        files: &Files,
        session: SessionId,
        proven: &Snapshot,
        (boot, user): (&str, Option<u32>),
    ) -> Result<Mended, Unmended> {
        let Self { archive, tenant, .. } = *self;
        let (places, path) = (files.places(session), files.beside(session, NOTE));
        let owner = user.map(|user| (user, user));
        let mend = |effect| archive.mend(tenant, proven.captured.id, &places, owner, effect);
        let wrong = mend(Effect::Report)?;
        let from = FromSnapshot { unverified: wrong.unverified, ..FromSnapshot::of(proven) };
        let begun = Note::read(&path).map_err(Unmended::Note)?;
        let begun = begun.filter(|note| note.boot == boot && note.told.is_none());
        let was_repaired = begun.as_ref().is_some_and(|begun| begun.is_repaired);
        let is_repaired = wrong.to_put_back > 0 || was_repaired;
        let as_found = match begun {
            // What is there now is that, and half of what was put right.
            Some(begun) if begun.is_repaired => begun.as_found,
            Some(_) | None if is_repaired => self.capture_as_found(session, &places)?,
            Some(_) | None => None,
        };
        let boot = boot.to_owned();
        let note = Note { boot, from, is_repaired, as_found, is_done: false, told: None };
        if wrong.to_put_back > 0 {
            note.write(&path).map_err(Unmended::Note)?;
            mend(Effect::Write)?;
            tracing::warn!(
                session.id = %session,
                "the machine was restarted: {} of the files of session {session} were put right", wrong.to_put_back,
            );
        }
        Note { is_done: true, ..note }.write(&path).map_err(Unmended::Note)?;
        Ok(Mended { from: Some(from), is_repaired, as_found })
    }

    /// Captures files that may be torn; nothing, if the last snapshot is of the same.
    fn capture_as_found(
        &self,
        session: SessionId,
        places: &Places,
    ) -> Result<Option<Captured>, ArchiveError> {
        let unless_like = self.snapshot.captured.unproven.then_some(self.snapshot.captured.id);
        let whose = (self.tenant, session);
        let captured = self.archive.capture_unproven(whose, places, unless_like)?;
        Ok(captured.map(|(captured, _)| captured))
    }
}

impl Note {
    /// What was written down, if it is whole.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        write_whole(path, &serde_json::to_vec(self)?)
    }
}

/// Writes a small file beside those of a session, whole or not at all.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}
