//! What a capture sees at one moment, which is stored afterwards.
//!
//! ```text
//!   one      look ─► store ──────────────────────────────────►
//!   the next                look ┄┄┄ waits for the one before ┄┄┄ store ─►
//! ```
//!
//! Looking is short, and everything stands still for it; storing takes as long as it takes, and meanwhile somebody may
//! want the next moment. So a look may come while what was seen before is still being stored ([`Ahead`]): what looks the
//! same will be known by then, and only the rest is read while everything stands still.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{FileType, Mode, OFlags};

use super::frozen::Frozen;
use super::plan::{self, Name, Plan};
use super::{Capture, MAX_PRELOADED, Root, Took, is_settled, path_of, realtime};
use crate::error::{Result, SnapshotError};
use crate::file::{self, Found};
use crate::repository::Repository;
use crate::scan::{self, Asides, Scanned};
use crate::snapshot::{MAX_ROOT_ATTRIBUTES, MAX_SOURCE, SnapshotId, escaped};
use crate::state::{KnownTree, State};
use crate::time::Time;
use crate::tree::Modified;

/// What was seen of directories at one moment, with the bytes that were read of them then.
pub struct Look {
    pub(super) roots: Vec<(OpenRoot, Plan)>,
    pub(super) began: Modified,
    /// Whether writers stood still at first: then it is told what was read later.
    is_frozen: bool,
    pub(super) unfrozen_scan: bool,
    pub(super) from: From,
    pub(super) took: Took,
}

/// What was remembered when somebody looked.
pub(super) struct From {
    snapshot: Option<SnapshotId>,
    /// Whether all of it was in the repository, and when it was looked whether it is.
    pub(super) relied_on: bool,
    pub(super) since: Time,
}

/// A root that is open.
pub(super) struct OpenRoot {
    pub(super) name: String,
    /// What it was called by.
    pub(super) given: PathBuf,
    /// Where it is.
    pub(super) path: PathBuf,
    /// What is left out.
    pub(super) escaped: Vec<String>,
    pub(super) directory: OwnedFd,
    pub(super) scanned: Arc<Scanned>,
    pub(super) mode: u32,
    pub(super) modified: Modified,
    pub(super) attributes: Found,
}

/// How everything looked that is being stored.
#[derive(Clone)]
pub struct Ahead {
    roots: Vec<(PathBuf, Arc<Scanned>)>,
    began: Modified,
}

impl Look {
    /// For whoever looks before this is stored.
    pub fn ahead(&self) -> Ahead {
        let roots = self.roots.iter();
        let roots = roots.map(|(open, _)| (open.path.clone(), Arc::clone(&open.scanned)));
        Ahead { roots: roots.collect(), began: self.began }
    }

    /// How many bytes it holds that were read.
    pub fn held(&self) -> u64 {
        let reads = self.roots.iter().flat_map(|(_, plan)| &plan.reads);
        reads.map(plan::ToRead::held).sum()
    }

    /// How many files are yet to be read, though everything stood still.
    pub(super) fn unfrozen(&self) -> u64 {
        let reads = self.roots.iter().flat_map(|(_, plan)| &plan.reads);
        let later = reads.filter(|read| read.preloaded.is_none()).count();
        if self.is_frozen { later as u64 } else { 0 }
    }
}

impl Ahead {
    /// Which files of a root look as they did when it was seen. What had changed just before may have changed once
    /// more, unseen.
    fn same(&self, path: &Path, scanned: &Scanned) -> HashSet<Name> {
        let mut same = HashSet::new();
        let Some((_, before)) = self.roots.iter().find(|(before, _)| before == path) else {
            return same;
        };
        // What is below a directory has a higher number.
        let mut twins: Vec<Option<usize>> = vec![None; scanned.directories.len()];
        twins[0] = Some(0);
        for (number, seen) in scanned.directories.iter().enumerate() {
            let Some(twin) = twins[number] else { continue };
            let mut rest = before.directories[twin].entries.iter().peekable();
            for (at, entry) in seen.entries.iter().enumerate() {
                while rest.next_if(|before| before.name < entry.name).is_some() {}
                let Some(before) = rest.next_if(|before| before.name == entry.name) else {
                    continue;
                };
                if let (Some(below), Some(twin)) = (entry.directory, before.directory) {
                    twins[below] = Some(twin);
                }
                let is_file = entry.stamp.file_type() == FileType::RegularFile;
                let is_same = before.stamp == entry.stamp;
                if is_file && is_same && is_settled(entry.stamp.changed, self.began) {
                    same.insert((number, at));
                }
            }
        }
        same
    }
}

impl Ahead {
    /// Whether everything still looks as it did. For directories that nobody should have touched meanwhile: what is being
    /// removed is not taken for what was there.
    pub fn is_still_so(&self, roots: &[Root<'_>], threads: usize) -> Result<bool> {
        for root in roots {
            let path = match root.path.canonicalize() {
                Ok(path) => path,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(SnapshotError::tree("open", root.path)(error)),
            };
            let Some((_, before)) = self.roots.iter().find(|(before, _)| *before == path) else {
                return Ok(false);
            };
            let nothing = KnownTree::default();
            let now = open(root, |_| &nothing, threads, &|| ())?;
            if !is_same(before, &now.scanned) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether two scans found the same names, looking the same.
fn is_same(before: &Scanned, now: &Scanned) -> bool {
    let mut twins: Vec<Option<usize>> = vec![None; now.directories.len()];
    twins[0] = Some(0);
    now.directories.iter().enumerate().all(|(number, seen)| {
        let Some(twin) = twins[number] else { return false };
        let before = &before.directories[twin].entries;
        before.len() == seen.entries.len()
            && before.iter().zip(&seen.entries).all(|(before, entry)| {
                if let (Some(below), Some(twin)) = (entry.directory, before.directory) {
                    twins[below] = Some(twin);
                }
                before.name == entry.name && before.stamp == entry.stamp
            })
    })
}

impl Repository {
    /// Looks at directories, and reads what changed since what is remembered, and since what is being stored, for as
    /// long as everything stands still. At most `room` bytes are held.
    pub fn look(
        &self,
        capture: &Capture<'_>,
        state: &State,
        ahead: Option<&Ahead>,
        room: u64,
    ) -> Result<Look> {
        if capture.source.is_some_and(|source| source.len() as u64 > MAX_SOURCE) {
            let what = "bytes in the name of its source";
            return Err(SnapshotError::TooMuch { what, most: MAX_SOURCE });
        }
        let began = realtime();
        let mut took = Took::default();
        let from = self.from(state)?;
        // A store may take its time to answer. Nobody stands still for that.
        let frozen =
            capture.freeze.map(|(freeze, budget)| Frozen::begin(freeze, budget)).transpose()?;
        let begin = Instant::now();
        let nothing = KnownTree::default();
        let mut roots = Vec::with_capacity(capture.roots.len());
        for root in capture.roots {
            let watch = || frozen.as_ref().map_or((), Frozen::watch);
            let known = |path: &Path| known(state, &from, root.name, path).unwrap_or(&nothing);
            roots.push(open(root, known, capture.threads, &watch)?);
        }
        let unfrozen_scan = frozen.as_ref().is_some_and(Frozen::is_over);
        took.scan = begin.elapsed();
        let begin = Instant::now();
        let planned = roots.into_iter().map(|open| {
            let known = known(state, &from, &open.name, &open.path).unwrap_or(&nothing);
            let plan = Plan::of(&open.scanned, known);
            (open, plan)
        });
        let mut roots: Vec<_> = planned.collect();
        took.plan = begin.elapsed();
        let is_frozen = frozen.is_some();
        if let Some(frozen) = frozen {
            let begin = Instant::now();
            preload(&mut roots, ahead, room.min(MAX_PRELOADED), &frozen)?;
            took.read = begin.elapsed();
            took.frozen = frozen.end()?;
        }
        Ok(Look { roots, began, is_frozen, unfrozen_scan, from, took })
    }

    /// Holds what was seen against what is remembered now: another capture may have been stored since.
    pub(super) fn hold_against(&self, mut look: Look, state: &State) -> Result<Look> {
        if look.from.snapshot == state.snapshot {
            return Ok(look);
        }
        look.from = self.from(state)?;
        let nothing = KnownTree::default();
        for (open, plan) in &mut look.roots {
            let known = known(state, &look.from, &open.name, &open.path).unwrap_or(&nothing);
            let scanned = Arc::make_mut(&mut open.scanned);
            let compared = scanned.compare_anew(open.directory.as_fd(), known);
            compared.map_err(|(path, error)| unreadable(&open.given, &path, error))?;
            let preloaded = std::mem::replace(plan, Plan::of(&open.scanned, known));
            plan.take_over(preloaded);
        }
        Ok(look)
    }

    fn from(&self, state: &State) -> Result<From> {
        let since = self.time();
        Ok(From { snapshot: state.snapshot, relied_on: self.is_relied_on(state)?, since })
    }
}

/// What is known of a root, as far as that can be relied on.
fn known<'s>(state: &'s State, from: &From, name: &str, path: &Path) -> Option<&'s KnownTree> {
    from.relied_on.then(|| state.tree(name, path)).flatten()
}

fn unreadable(root: &Path, below: &[u8], error: io::Error) -> SnapshotError {
    SnapshotError::tree("read the directory", root.join(path_of(below)))(error)
}

/// Opens a root and looks at everything in it.
fn open<'k>(
    root: &Root<'_>,
    known: impl FnOnce(&Path) -> &'k KnownTree,
    threads: usize,
    watch: &(dyn Fn() + Sync),
) -> Result<OpenRoot> {
    let escaped = escaped(root.excluded)?;
    let path = root.path.canonicalize().map_err(SnapshotError::tree("open", root.path))?;
    // Whoever has put a link in its place must not have something else captured as if it were this.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(root.path, flags, Mode::empty()).map_err(io::Error::from);
    let directory = opened.map_err(SnapshotError::tree("open", root.path))?;
    let stamp = file::stamp_of(directory.as_fd());
    let stamp = stamp.map_err(SnapshotError::tree("look at", root.path))?;
    let (mode, modified) = (stamp.permissions(), stamp.modified);
    let attributes = attributes_of_root(directory.as_fd());
    let attributes = attributes.map_err(SnapshotError::tree("look at", root.path))?;
    let (threads, asides) = (threads.max(1), Asides::PassedOver);
    let known = known(&path);
    let scanned = scan::scan(directory.as_fd(), known, root.excluded, asides, threads, watch);
    let scanned = scanned.map_err(|(below, error)| unreadable(root.path, &below, error))?;
    let (name, given) = (root.name.to_owned(), root.path.to_owned());
    let scanned = Arc::new(scanned);
    Ok(OpenRoot { name, given, path, escaped, directory, scanned, mode, modified, attributes })
}

/// The attributes of a root, as many as a record has room for.
fn attributes_of_root(root: BorrowedFd<'_>) -> io::Result<Found> {
    let Found { mut kept, mut lost } = file::all_attributes(root)?;
    let mut room = MAX_ROOT_ATTRIBUTES;
    kept.retain(|(name, value)| {
        let fits = room.checked_sub(name.len() + value.len());
        room = fits.unwrap_or(room);
        lost += u64::from(fits.is_none());
        fits.is_some()
    });
    Ok(Found { kept, lost })
}

/// Reads what changed for as long as everything stands still, but for what is being stored already.
fn preload(
    roots: &mut [(OpenRoot, Plan)],
    ahead: Option<&Ahead>,
    room: u64,
    frozen: &Frozen<'_>,
) -> Result<()> {
    let mut bytes = 0;
    for (open, plan) in roots {
        let same = ahead.map(|ahead| ahead.same(&open.path, &open.scanned)).unwrap_or_default();
        for read in &mut plan.reads {
            if same.contains(&(read.directory, read.entry)) {
                continue;
            }
            let seen = &open.scanned.directories[read.directory].entries[read.entry];
            if bytes + seen.stamp.size > room || frozen.is_spent() {
                continue;
            }
            let path = plan::path(&open.scanned, read.directory, read.entry);
            let most = usize::try_from(room - bytes).unwrap_or(0);
            let go_on = || !frozen.is_spent();
            let at = open.directory.as_fd();
            let found = file::read_up_to(at, &path, Vec::new(), most, &go_on);
            let found =
                found.map_err(SnapshotError::tree("read", open.given.join(path_of(&path))))?;
            match &found {
                // There was no time for it, or no room.
                file::Read::Large => continue,
                file::Read::Bytes { bytes: read, .. } => bytes += read.len() as u64,
                file::Read::Gone | file::Read::Unreadable => {}
            }
            read.preloaded = Some(found);
        }
    }
    Ok(())
}
