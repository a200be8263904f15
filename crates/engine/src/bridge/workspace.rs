//! The files that an agent works on: found where they were left, or made anew.
//!
//! A fresh workspace appears whole or not at all: it is made beside its place, synced, and renamed.
//! So whatever is found there later was there in full, and has been in use.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use ash_core::id::{SessionId, TenantId};
use ash_core::resume::{Found, FromSnapshot, IfLost, Source, Transcript, Workspace};
use ash_core::snapshot::{Captured, Snapshot};
use ash_store::StoredSnapshot;
use rustix::fs::syncfs;

use super::came::{self, How};
use super::files::{Files, Life};
use super::hooks;
use super::mend::{self, Mended};
use super::quota::DiskLimits;
use super::rebuild;
use super::users::{Users, give};
use crate::archive::{Archive, Lost};
use crate::host::SandboxRef;

/// How many files are counted at most: an agent must not be able to make its own start take for
/// ever.
const MAX_COUNTED: u64 = 1_000_000;

/// How many names are counted in no time, beside what a start takes anyway.
const QUICKLY: u64 = 200;

/// How many directories are remembered at most to be looked into.
const MAX_WAITING: usize = 10_000;

/// What a sandbox is started with.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) found: Found,
    /// Whose it is.
    pub(super) user: Option<u32>,
    /// Snapshots that were looked for and are not whole, and where.
    pub(super) lost: Lost,
}

/// Sees to it that a sandbox has a workspace, and says what was found and whose it is. Nothing of the session may
/// run, unless it is the sandbox itself.
pub(super) fn prepare(
    files: &Files,
    sandbox: SandboxRef,
    seed: Option<&Path>,
    known: Known<'_>,
    (users, disk, boot): (Option<&Users>, Option<&DiskLimits>, &str),
) -> io::Result<Prepared> {
    let saved = known.saved;
    let session = sandbox.session;
    let _one_at_a_time = files.making(session);
    files.clear_place(session)?;
    let was_untouched = files.is_untouched(session)?;
    let (brought_back, lost) = match saved {
        Some(saved) if !is_as_left(files, sandbox)? => {
            saved.bring_back(files, sandbox).map_err(io::Error::other)?
        }
        Some(_) | None => (None, Vec::new()),
    };
    // What was brought back is what was captured, which may be torn itself.
    let is_torn = brought_back.as_ref().is_some_and(|snapshot| snapshot.captured.unproven);
    // What was just brought back, all of it, needs no second look.
    if brought_back.is_some() && was_untouched && !is_torn {
        mend::note_use(files, session, boot)?;
    }
    files.make_directories(session)?;
    let home = files.home(session);
    // What is in use is not given to anybody else.
    let is_alive = matches!(files.life(sandbox)?, Life::Alive(_));
    let user = match users {
        Some(users) if is_alive => users.owner(&home)?,
        Some(users) => Some(users.of(&home, files.homes())?),
        None => None,
    };
    let is_there = files.has_workspace(session)?;
    let is_doubted =
        is_there && !is_alive && (is_torn || !mend::is_believed(files, session, boot)?);
    let mended = match saved {
        Some(saved) if is_doubted => mend::mend(files, session, saved, (boot, user))?,
        Some(_) | None => {
            let mut told = mend::told_before(files, sandbox, boot)?;
            // What nobody took note of may have been collected since.
            if let (Some(told), Some(saved)) = (&mut told, saved) {
                told.as_found =
                    told.as_found.filter(|found| saved.archive.is_here(saved.tenant, found.id));
            }
            told
        }
    };
    let is_unverified = is_doubted && mended.is_none();
    match came::to_tell(files, sandbox)? {
        None if is_unverified => came::note(files, session, How::Unverified)?,
        // Nobody has anything that it could be held against.
        Some(How::Restored { from, source }) if is_unverified && is_torn => {
            let unverified =
                from.unverified.max(saved.map_or(0, |saved| saved.snapshot.captured.files));
            let from = FromSnapshot { unverified, ..from };
            came::note(files, session, How::Restored { from, source })?;
        }
        Some(_) | None => {}
    }
    let (native, turns) = rebuild::find(files, sandbox, known, user)?;
    let begin = |new: &Path| {
        if let (Some(user), Some(disk)) = (user, disk)
            && let Err(error) = disk.begin(new, user)
        {
            // It is given to its project later, all but its links.
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, session.id = %session, "a workspace has no project yet");
        }
    };
    if !is_alive {
        mend::note_use(files, session, boot)?;
    }
    make(files, session, seed, begin)?;
    if let Some(user) = user.filter(|_| !is_alive) {
        // The home last: whoever owns it owns the rest.
        give(&files.workspace(session), user)?;
        give(&home, user)?;
    }
    let how = came::to_tell(files, sandbox)?;
    let captured = saved.filter(|_| is_of_last(how)).map(|saved| saved.snapshot.captured);
    let (files, bytes) = count(&files.workspace(session), captured);
    let as_found = mended.and_then(|mended| mended.as_found);
    let found = Found { files, bytes, native, turns, as_found, ..in_words(how, mended, files) };
    Ok(Prepared { found, user, lost })
}

/// Whether nothing has to be brought back: everything is where it was, or what is there was made anew because there was
/// nothing to bring back.
fn is_as_left(files: &Files, sandbox: SandboxRef) -> io::Result<bool> {
    let is_fresh =
        files.has_workspace(sandbox.session)? && came::to_tell(files, sandbox)? == Some(How::Fresh);
    Ok(is_fresh || files.are_in_place(sandbox.session)?)
}

/// What became of the files, of which there are so many.
fn in_words(how: Option<How>, mended: Option<Mended>, files: u64) -> Found {
    let (workspace, source, snapshot) = match (how, mended) {
        (Some(How::Fresh), _) => (Workspace::Fresh, Source::Fresh, None),
        (Some(How::Restored { from, source }), _) => (Workspace::Restored, source, Some(from)),
        (Some(How::Unverified) | None, Some(Mended { is_repaired: true, from, .. })) => {
            (Workspace::Repaired, Source::Local, from)
        }
        (Some(How::Unverified) | None, mended) => {
            (Workspace::Kept, Source::Local, mended.and_then(|mended| mended.from))
        }
    };
    let unverified = if how == Some(How::Unverified) { files } else { 0 };
    Found { workspace, source, snapshot, unverified, ..Found::NOTHING }
}

/// Whether the last snapshot says how much there is of files that came so.
fn is_of_last(how: Option<How>) -> bool {
    match how {
        Some(How::Fresh) => false,
        Some(How::Restored { from, .. }) => !from.outdated && from.left_out == 0,
        Some(How::Unverified) | None => true,
    }
}

/// How many files there are, and how large they are together. Of many, as many as were captured: nobody waits for a
/// count.
fn count(workspace: &Path, captured: Option<Captured>) -> (u64, u64) {
    match captured {
        Some(Captured { files, bytes, .. }) => survey(workspace, QUICKLY).unwrap_or((files, bytes)),
        None => survey(workspace, MAX_COUNTED).unwrap_or((MAX_COUNTED, 0)),
    }
}

/// What is known of a session from before.
#[derive(Clone, Copy, Default)]
pub(super) struct Known<'a> {
    /// What the agent's own record of the conversation must begin with, if it has one.
    pub(super) transcript: Option<&'a Transcript>,
    /// How many runs it has completed.
    pub(super) completed_runs: u32,
    /// How many turns its log has.
    pub(super) turns: u32,
    /// Its snapshots.
    pub(super) saved: Option<Saved<'a>>,
}

/// Snapshots of what a session worked on.
#[derive(Clone, Copy)]
pub(super) struct Saved<'a> {
    pub(super) archive: &'a Archive,
    pub(super) tenant: &'a TenantId,
    /// The last one.
    pub(super) snapshot: &'a Snapshot,
    /// The last one of files that could be relied on.
    pub(super) proven: Option<&'a Snapshot>,
    /// Those that files may be brought back from, the best first; asked for only if some are not in place.
    pub(super) kept: &'a [StoredSnapshot],
    /// What becomes of the session if they cannot be.
    pub(super) if_lost: IfLost,
}

/// Makes a workspace, unless there is one. That it is fresh is written down before it is there, so that no crash makes
/// it look like one that was kept.
fn make(
    files: &Files,
    session: SessionId,
    seed: Option<&Path>,
    begin: impl FnOnce(&Path),
) -> io::Result<()> {
    let place = files.workspace(session);
    match fs::symlink_metadata(&place) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(named(&place, io::Error::other("it is no directory"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(named(&place, error)),
    }
    let new = place.with_extension("new");
    match fs::remove_dir_all(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(&new, error)),
        _ => {}
    }
    directory(&new)?;
    begin(&new);
    came::note(files, session, How::Fresh)?;
    hooks::note_untold(&files.home(session));
    if let Some(seed) = seed {
        hooks::note_begun(&files.home(session), seed)?;
        sow(seed, &new)?;
    }
    fs::rename(&new, &place).map_err(|error| named(&place, error))
}

/// Puts a seed into a workspace that is not in use yet.
pub(super) fn sow(seed: &Path, workspace: &Path) -> io::Result<()> {
    copy(seed, workspace)?;
    // Once for all of it: thousands of small files would take seconds one by one.
    Ok(syncfs(File::open(workspace)?)?)
}

/// Copies what is in a directory into another one. Whoever owns the copy may always change it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from).map_err(|error| named(from, error))? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let about = |error| named(&source, error);
        let kind = entry.file_type().map_err(about)?;
        if kind.is_symlink() {
            symlink(fs::read_link(&source).map_err(about)?, &target).map_err(about)?;
            continue;
        }
        let mode = entry.metadata().map_err(about)?.permissions().mode() & 0o777;
        if kind.is_dir() {
            directory(&target)?;
            copy(&source, &target)?;
            fs::set_permissions(&target, Permissions::from_mode(mode | 0o700)).map_err(about)?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(about)?;
            fs::set_permissions(&target, Permissions::from_mode(mode | 0o600)).map_err(about)?;
        } else {
            return Err(about(io::Error::other("it is neither a file, a directory nor a link")));
        }
    }
    Ok(())
}

/// How many files are below a directory, and how large they are together. What cannot be read is
/// passed over; links are not followed. Nothing, if there are more than so many names.
fn survey(root: &Path, most: u64) -> Option<(u64, u64)> {
    let (mut count, mut bytes, mut looked) = (0_u64, 0_u64, 0_u64);
    let mut rest = vec![root.to_owned()];
    while let Some(directory) = rest.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let Ok(found) = entry.metadata() else { continue };
            looked += 1;
            if looked >= most {
                return None;
            }
            if found.is_dir() && rest.len() < MAX_WAITING {
                rest.push(entry.path());
            }
            if !found.is_dir() {
                count += 1;
                bytes = bytes.saturating_add(found.len());
            }
        }
    }
    Some((count, bytes))
}

fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path).map_err(|error| named(path, error))
}

/// Names what an error is about, and not where on this machine it lies: clients are told.
fn named(path: &Path, error: io::Error) -> io::Error {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

#[cfg(test)]
mod test {
    use ash_core::number::Incarnation;
    use ash_core::resume::Native;

    use super::*;

    fn sandbox(number: u32) -> SandboxRef {
        let session = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        SandboxRef { session, incarnation: Incarnation::new(number) }
    }

    fn made(
        files: &Files,
        sandbox: SandboxRef,
        seed: Option<&Path>,
        transcript: Option<&Transcript>,
    ) -> io::Result<Found> {
        let known = Known { transcript, ..Known::default() };
        prepare(files, sandbox, seed, known, (None, None, "boot")).map(|prepared| prepared.found)
    }

    fn seed(root: &Path) -> std::path::PathBuf {
        let seed = root.join("seed");
        fs::create_dir_all(seed.join("src/deep")).unwrap();
        fs::write(seed.join("CLAUDE.md"), "be kind").unwrap();
        fs::write(seed.join("src/deep/run.sh"), "true").unwrap();
        fs::set_permissions(seed.join("CLAUDE.md"), Permissions::from_mode(0o444)).unwrap();
        fs::set_permissions(seed.join("src/deep/run.sh"), Permissions::from_mode(0o555)).unwrap();
        fs::set_permissions(seed.join("src/deep"), Permissions::from_mode(0o555)).unwrap();
        symlink("CLAUDE.md", seed.join("link")).unwrap();
        symlink("/nowhere", seed.join("src/dangling")).unwrap();
        seed
    }

    #[test]
    fn a_fresh_workspace_begins_with_its_seed_and_is_the_agent_s_own() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(&dir.path().join("data")).unwrap();
        let seed = seed(dir.path());
        let found = made(&files, sandbox(1), Some(&seed), None).unwrap();
        assert_eq!(
            found,
            Found { files: 4, bytes: 28, ..Found::NOTHING },
            "counted when it is there"
        );
        let place = files.workspace(sandbox(1).session);
        assert_eq!(fs::read_to_string(place.join("link")).unwrap(), "be kind");
        assert_eq!(fs::read_link(place.join("src/dangling")).unwrap(), Path::new("/nowhere"));
        let mode =
            |name: &str| fs::metadata(place.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("CLAUDE.md"), mode("src/deep/run.sh")), (0o644, 0o755));
        fs::write(place.join("CLAUDE.md"), "be brief").unwrap();
        fs::write(place.join("src/deep/new"), "").unwrap();
        assert_eq!(fs::read_to_string(seed.join("CLAUDE.md")).unwrap(), "be kind");
    }

    #[test]
    fn a_workspace_is_kept_and_counted_by_the_next_start_and_fresh_for_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path()).unwrap();
        for _again in 0..2 {
            assert_eq!(made(&files, sandbox(1), None, None).unwrap(), Found::NOTHING);
        }
        let place = files.workspace(sandbox(1).session);
        fs::create_dir(place.join("dir")).unwrap();
        fs::write(place.join("dir/a"), "abc").unwrap();
        symlink("/", place.join("everything")).unwrap();
        files.bury(sandbox(1)).unwrap();
        // Nobody was told of it: the start failed.
        let found = made(&files, sandbox(2), None, None).unwrap();
        assert_eq!((found.workspace, found.source), (Workspace::Fresh, Source::Fresh));
        came::note_told(&files, sandbox(2)).unwrap();
        let found = made(&files, sandbox(2), None, None).unwrap();
        assert_eq!(found.workspace, Workspace::Fresh, "however often it is asked");
        let found = made(&files, sandbox(3), None, None).unwrap();
        assert_eq!((found.workspace, found.source), (Workspace::Kept, Source::Local));
        assert_eq!((found.files, found.bytes, found.native), (2, 4, Native::None));
    }

    #[test]
    fn what_a_crash_left_half_made_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(&dir.path().join("data")).unwrap();
        let seed = seed(dir.path());
        let place = files.workspace(sandbox(1).session);
        fs::create_dir_all(place.with_extension("new").join("half")).unwrap();
        let found = made(&files, sandbox(1), Some(&seed), None).unwrap();
        assert_eq!(found.workspace, Workspace::Fresh);
        assert!(!place.join("half").exists() && place.join("CLAUDE.md").exists());
    }

    #[test]
    fn a_seed_that_is_gone_makes_no_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(&dir.path().join("data")).unwrap();
        let gone = dir.path().join("gone");
        let error = made(&files, sandbox(1), Some(&gone), None).unwrap_err();
        assert!(error.to_string().contains("gone"), "{error}");
        assert!(!files.workspace(sandbox(1).session).exists());
    }
}
