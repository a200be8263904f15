//! An agent's own record of the conversation that is missing or is not what it was, made anew.
//!
//! What a snapshot has of it is as good as the record was, if its digest says so. Otherwise the log tells what was
//! said (`retell`). Either way the new one is written beside the old one's place, synced, and renamed; what was there is kept
//! for people. A note beside the session's directories says what it was made as, so that the next start knows it again:
//! the proof that the session has is of the record that was lost, until the next turn is over.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use ash_core::failure::Failure;
use ash_core::number::Seq;
use ash_core::resume::{Native, Transcript};
use ash_core::snapshot::Snapshot;
use rustix::fs::{AtFlags, Mode, OFlags, fchown, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};

use super::files::{Files, Life};
use super::inner::Inner;
use super::mend::write_whole;
use super::retell::{Lines, Retelling};
use super::transcript::{DIRECTORY, FILE, MAX_BYTES, beneath, is_proven, set_aside, verify};
use super::word::start_failed;
use super::workspace::{Known, Saved};
use crate::host::{SandboxRef, Start};

/// What the new record is called until it is whole.
const NEW: &str = "conversation.new";

/// What is written down beside a session's directories, and what is brought back there.
const NOTE: &str = "rebuilt";
const BROUGHT_BACK: &str = "conversation";

const CHUNK_BYTES: usize = 64 * 1024;

/// What a record was made anew as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// What it should have begun with.
    of: Option<Transcript>,
    /// What it begins with.
    record: Transcript,
    /// For which sandbox.
    incarnation: u32,
}

/// What became of the agent's own record, and how many turns it holds. One that is not what it was is brought back, if
/// a snapshot has it, and put out of the way otherwise: it is not to be believed by anybody. Whoever is alive has begun
/// another one.
pub(super) fn find(
    files: &Files,
    sandbox: SandboxRef,
    known: Known<'_>,
    user: Option<u32>,
) -> io::Result<(Native, u32)> {
    let Known { transcript, saved, .. } = known;
    let said = (known.completed_runs, known.turns);
    let home = files.home(sandbox.session);
    let (native, turns) = verify(&home, transcript, said);
    let note = Note::read(&files.beside(sandbox.session, NOTE))?;
    let note = note.filter(|note| note.of.as_ref() == transcript);
    match (native, note) {
        (Native::Intact, Some(note)) if note.incarnation == sandbox.incarnation.get() => {
            return Ok((Native::Rebuilt, turns));
        }
        (Native::Lost, Some(note)) => {
            if let (Native::Intact, turns) = verify(&home, Some(&note.record), said) {
                return Ok((Native::Rebuilt, turns));
            }
        }
        (Native::Intact | Native::Rebuilt | Native::Lost | Native::None, _) => {}
    }
    if native != Native::Lost || files.life(sandbox)? != Life::Unborn {
        return Ok((native, turns));
    }
    set_aside(&home, sandbox.incarnation)?;
    for (saved, proof) in saved.into_iter().zip(transcript) {
        for snapshot in [Some(saved.snapshot), saved.proven].into_iter().flatten() {
            if snapshot.transcript.as_ref() == Some(proof)
                && saved.bring_back_record(files, sandbox, (snapshot, proof), user)?
            {
                let (_, turns) = verify(&home, Some(proof), said);
                return Ok((Native::Rebuilt, turns));
            }
        }
    }
    Ok((Native::Lost, 0))
}

impl Saved<'_> {
    /// Brings the record back, if a snapshot has it as it should be.
    fn bring_back_record(
        &self,
        files: &Files,
        sandbox: SandboxRef,
        (snapshot, proof): (&Snapshot, &Transcript),
        user: Option<u32>,
    ) -> io::Result<bool> {
        let session = sandbox.session;
        let aside = files.beside(session, BROUGHT_BACK);
        clear(&aside)?;
        let (id, path) = (snapshot.captured.id, format!("{DIRECTORY}/{FILE}"));
        if let Err(error) = self.archive.bring_back_from_home(self.tenant, id, &path, &aside) {
            // The log may have it.
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, session.id = %session, "the conversation of session {session} is not in snapshot {id}");
            return Ok(false);
        }
        // The agent may have made something else of it before that was captured.
        if !fs::symlink_metadata(&aside)?.is_file() {
            clear(&aside)?;
            return Ok(false);
        }
        let mut brought_back = File::open(&aside)?;
        let is_it = is_proven(brought_back.try_clone()?, proof)?;
        if is_it && let Some(mut record) = NewRecord::begin(&files.home(session), user)? {
            io::Seek::rewind(&mut brought_back)?;
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                match brought_back.read(&mut chunk)? {
                    0 => break,
                    count => record.write(&chunk[..count])?,
                }
            }
            Note::of(Some(proof), record.put(proof.turns)?, sandbox).write(files, sandbox)?;
            clear(&aside)?;
            return Ok(true);
        }
        clear(&aside)?;
        Ok(false)
    }
}

/// Removes whatever is there.
fn clear(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

impl Inner {
    /// Makes the agent's own record anew from the log; says how many turns it holds. Nothing, if the log has none, or
    /// there is no place for it. Nothing of the session may run.
    pub(super) async fn retell(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        start: Start<'_>,
        user: Option<u32>,
        style: Lines,
    ) -> Result<Option<u32>, Failure> {
        let lineage = start.past.lineage().await.map_err(start_failed)?;
        let mut retelling = Retelling::of(lineage, style);
        let home = self.files.home(sandbox.session);
        let begun = blocking(move || NewRecord::begin(&home, user)).await?;
        let Some(mut record) = begun else { return Ok(None) };
        let mut after = Seq::ZERO;
        loop {
            let entries = start.past.entries_after(after).await.map_err(start_failed)?;
            let Some(last) = entries.last() else { break };
            after = last.seq;
            entries.into_iter().for_each(|entry| retelling.take(entry));
            let lines = retelling.lines();
            record = blocking(move || record.write(&lines).map(|()| record)).await?;
            if record.bytes > MAX_BYTES {
                return Ok(None);
            }
        }
        let (lines, turns) = retelling.end();
        if turns == 0 {
            return Ok(None);
        }
        let (host, proof) = (Arc::clone(self), start.transcript.cloned());
        blocking(move || {
            record.write(&lines)?;
            let record = record.put(turns)?;
            Note::of(proof.as_ref(), record, sandbox).write(&host.files, sandbox)
        })
        .await?;
        Ok(Some(turns))
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(start_failed)?.map_err(start_failed)
}

impl Note {
    fn of(of: Option<&Transcript>, record: Transcript, sandbox: SandboxRef) -> Self {
        Self { of: of.cloned(), record, incarnation: sandbox.incarnation.get() }
    }

    /// What was written down, if it is whole.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, files: &Files, sandbox: SandboxRef) -> io::Result<()> {
        write_whole(&files.beside(sandbox.session, NOTE), &serde_json::to_vec(self)?)
    }
}

/// A record that is being written. Dropped, it is gone.
struct NewRecord {
    directory: OwnedFd,
    file: File,
    hasher: blake3::Hasher,
    bytes: u64,
    is_put: bool,
}

impl NewRecord {
    /// Begins one. Nothing, if the agent has made something else of the place for it.
    fn begin(home: &Path, user: Option<u32>) -> io::Result<Option<Self>> {
        let root = beneath(home, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let owner = user.map(|user| (Uid::from_raw(user), Gid::from_raw(user)));
        let give = |what: &OwnedFd| match owner {
            Some((user, group)) => fchown(what, Some(user), Some(group)),
            None => Ok(()),
        };
        let made = mkdirat(&root, DIRECTORY, Mode::from_raw_mode(0o700));
        let opened = beneath(home, DIRECTORY, OFlags::RDONLY | OFlags::DIRECTORY);
        let directory = match (made, opened) {
            (_, Err(Errno::LOOP | Errno::NOTDIR)) => return Ok(None),
            (Ok(()), Ok(directory)) => {
                give(&directory)?;
                directory
            }
            (Err(Errno::EXIST), Ok(directory)) => directory,
            (Err(errno), _) | (Ok(()), Err(errno)) => return Err(errno.into()),
        };
        match unlinkat(&directory, NEW, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(&directory, NEW, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o600))?;
        give(&file)?;
        let (file, hasher) = (File::from(file), blake3::Hasher::new());
        Ok(Some(Self { directory, file, hasher, bytes: 0, is_put: false }))
    }

    fn write(&mut self, some: &[u8]) -> io::Result<()> {
        self.file.write_all(some)?;
        self.hasher.update(some);
        self.bytes += some.len() as u64;
        Ok(())
    }

    /// Makes it the agent's record; says what that begins with.
    fn put(mut self, turns: u32) -> io::Result<Transcript> {
        self.file.sync_all()?;
        renameat(&self.directory, NEW, &self.directory, FILE)?;
        self.is_put = true;
        rustix::fs::fsync(&self.directory)?;
        let blake3 = self.hasher.finalize().to_hex().to_string();
        Ok(Transcript { bytes: self.bytes, blake3, turns })
    }
}

impl Drop for NewRecord {
    fn drop(&mut self) {
        if !self.is_put {
            // The next one removes it.
            let _left_behind = unlinkat(&self.directory, NEW, AtFlags::empty());
        }
    }
}
