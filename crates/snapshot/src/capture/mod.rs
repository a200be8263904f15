//! Capture: from directories to a snapshot, for the price of what changed.
//!
//! ```text
//!   freeze ─► scan ─► read what changed ─► thaw ─► cut, hash, compress ─► packs ─► snapshot
//!             └──────── within the budget ─────┘   └─ what was not read in time ─┘
//! ```
//!
//! The budget bounds the scan too: where it does not suffice for that, everything goes on while the rest is looked
//! at, and the snapshot says so.
//! What was not read within the freeze budget is read afterwards, each file with a look at its stamp
//! before and after: one that changed meanwhile is read again, and named if it does not come to rest.
//! The two halves, on both sides of the thaw, can be had apart ([`look`]): the next moment can be looked at while this one is
//! being stored.

mod frozen;
mod look;
mod plan;
mod store;
mod trees;

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::error::{Result, SnapshotError};
use crate::file::Found;
use crate::id::Id;
use crate::repository::Repository;
use crate::scan::Skipped;
use crate::snapshot::{MAX_RECORD, MAX_UNSTABLE, Snapshot, SnapshotId, Tree};
use crate::state::{KnownRoot, KnownTree, State};
use crate::tree::Modified;
use crate::writer::Writer;

pub use look::{Ahead, Look};
use look::{From, OpenRoot};

/// How many bytes are held in memory that were read while everything stood still.
const MAX_PRELOADED: u64 = 64 * 1024 * 1024;

/// A file whose stamp is younger than this may change once more without its stamp changing.
const TICK: Duration = Duration::from_millis(20);

/// The same, where a file system counts in seconds, or in two of them.
const COARSE_TICK: Duration = Duration::from_millis(2_500);

/// A directory to capture.
#[derive(Clone, Debug)]
pub struct Root<'a> {
    /// What it is called in the snapshot.
    pub name: &'a str,
    /// Where it is. What is captured is a directory itself: a link to one is not followed.
    pub path: &'a Path,
    /// Paths from it that are left out, with all that is in them.
    pub excluded: &'a [Vec<u8>],
}

/// Keeps whoever writes to the directories from doing so for a moment.
pub trait Freeze: Sync {
    /// Returns when nothing moves any more.
    fn freeze(&self) -> io::Result<()>;
    /// Lets everything go on.
    fn thaw(&self) -> io::Result<()>;
}

/// What to capture, and how.
#[derive(Clone)]
pub struct Capture<'a> {
    /// The directories.
    pub roots: &'a [Root<'a>],
    /// Whose it is: what its snapshots have in common, and those of others do not. At most [`MAX_SOURCE`](crate::snapshot::MAX_SOURCE) bytes.
    pub source: Option<&'a str>,
    /// The snapshot before.
    pub parent: Option<SnapshotId>,
    /// What to call it.
    pub label: Option<&'a str>,
    /// A snapshot that is as good, if its trees are the same.
    pub unless_like: Option<SnapshotId>,
    /// Keeps writers still, and for how long at the most.
    pub freeze: Option<(&'a dyn Freeze, Duration)>,
    /// How many threads work.
    pub threads: usize,
    /// Is told from time to time how far it is, by several threads; answers whether to go on.
    pub progress: &'a (dyn Fn(Progress) -> bool + Sync),
}

/// How far a capture or a restore is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files that are done.
    pub files: u64,
    /// Of so many.
    pub all_files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Of so many; 0 if that is not known.
    pub all_bytes: u64,
}

/// What came of a capture.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The snapshot, which is there.
    pub snapshot: Snapshot,
    /// Whether it was made now; otherwise there was one that is alike.
    pub is_new: bool,
    /// Where the time went.
    pub took: Took,
}

/// Where the time of a capture went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Took {
    /// Looking at every name.
    pub scan: Duration,
    /// Finding out what of it is new.
    pub plan: Duration,
    /// Reading while everything stood still.
    pub read: Duration,
    /// How long everything stood still.
    pub frozen: Duration,
    /// Looking what is in the store, if anything is new.
    pub look: Duration,
    /// Reading the rest, cutting, hashing and compressing.
    pub store: Duration,
    /// Encoding directories.
    pub trees: Duration,
    /// Making it durable.
    pub sync: Duration,
    /// Reading files: all threads together, as with what follows.
    pub reading: Duration,
    /// Hashing chunks.
    pub hashing: Duration,
    /// Compressing them.
    pub compressing: Duration,
    /// Handing them to the store.
    pub writing: Duration,
}

impl Repository {
    /// Captures directories. What is remembered of them from the last time is replaced; if this fails it
    /// stays. If the snapshot that it is from is not in this repository any more, it counts as none.
    pub fn capture(&self, capture: &Capture<'_>, state: &mut State) -> Result<Captured> {
        let look = self.look(capture, state, None, MAX_PRELOADED)?;
        self.store_seen(capture, look, state)
    }

    /// Makes a snapshot of what was seen: directories and writers of the capture do not matter any more. What is
    /// remembered may be of another one that was stored in between.
    pub fn store_seen(
        &self,
        capture: &Capture<'_>,
        look: Look,
        state: &mut State,
    ) -> Result<Captured> {
        let look = self.hold_against(look, state)?;
        let unfrozen = look.unfrozen();
        let Look { roots, began, unfrozen_scan, from, mut took, .. } = look;
        let From { mut since, relied_on, .. } = from;
        let nothing = KnownTree::default();
        let known_of = |name: &str, path: &Path| {
            let known = relied_on.then(|| state.tree(name, path)).flatten();
            known.unwrap_or(&nothing)
        };
        // What is known of chunks is needed only where there are new ones. Marks before packs: a mark goes
        // when its pack is gone.
        let is_new =
            roots.iter().any(|(open, plan)| !plan.reads.is_empty() || !open.scanned.is_known());
        let begin = Instant::now();
        let mut refused = HashSet::new();
        if is_new || !relied_on {
            refused = self.marks()?.into_keys().collect();
            self.refresh()?;
        }
        took.look = begin.elapsed();
        let writer = Writer::to(self, refused);
        let (mut trees, mut known_trees) = (Vec::new(), Vec::new());
        let mut skipped = Skipped::default();
        let (mut unstable, mut unreadable, mut stripped) = (Vec::new(), Vec::new(), Vec::new());
        for (open, plan) in roots {
            let known = known_of(&open.name, &open.path);
            let stored = store::store(&writer, capture, &open, plan, known, began, &mut took)?;
            skipped.add(open.scanned.skipped);
            skipped.add(stored.skipped);
            unstable.extend(stored.unstable);
            let named = |path: &Vec<u8>| format!("{}/{}", open.name, String::from_utf8_lossy(path));
            unstable.extend(open.scanned.vanished.iter().map(named));
            unreadable.extend(open.scanned.unreadable.iter().chain(&stored.unreadable).map(named));
            stripped.extend(stored.stripped.iter().map(named));
            let OpenRoot { name, path, escaped, mode, modified, attributes, .. } = open;
            let Found { kept: attributes, lost } = attributes;
            if lost > 0 {
                skipped.attributes += lost;
                stripped.push(name.clone());
            }
            known_trees.push((name.clone(), KnownRoot { path, tree: stored.known }));
            trees.push(Tree { name, escaped, mode, modified, attributes, ..stored.tree });
        }
        let begin = Instant::now();
        took.reading = writer.efforts.reading.total();
        took.hashing = writer.efforts.hashing.total();
        took.compressing = writer.efforts.compressing.total();
        took.writing = writer.efforts.writing.total();
        let (added, packs) = writer.finish()?;
        unstable.truncate(MAX_UNSTABLE);
        for names in [&mut unreadable, &mut stripped] {
            names.sort();
            names.truncate(MAX_UNSTABLE);
        }
        let mut snapshot = Snapshot {
            version: Snapshot::VERSION,
            id: SnapshotId::from_bytes(self.unique()),
            created_at: began.seconds * 1000 + i64::from(began.nanoseconds / 1_000_000),
            source: capture.source.map(str::to_owned),
            parent: capture.parent,
            label: capture.label.map(str::to_owned),
            roots: trees,
            new_bytes: added.new_bytes,
            stored_bytes: added.stored_bytes,
            skipped,
            unstable,
            unreadable,
            stripped,
            unfrozen,
            unfrozen_scan,
        };
        if !snapshot.fit() {
            return Err(SnapshotError::TooMuch { what: "bytes in its record", most: MAX_RECORD });
        }
        if let Some(like) = capture.unless_like
            && let Some(snapshot) = self.if_alike(like, &snapshot)?
        {
            if relied_on && self.is_refused(state)? {
                return Err(SnapshotError::Collected);
            }
            state.snapshot = Some(like);
            state.roots = known_trees.into_iter().collect();
            return Ok(Captured { snapshot, is_new: false, took });
        }
        if self.time().since(&since) > self.grace() / 4 {
            since = self.time();
            self.look_again(&packs, relied_on.then_some(&*state))?;
        }
        self.put_snapshot(&snapshot)?;
        // Who finds damage names what is remembered, and then all snapshots that came meanwhile: one of both sees
        // the other.
        let is_refused = relied_on && self.is_refused(state)?;
        if is_refused || self.time().since(&since) > self.grace() / 2 {
            self.take_back(snapshot.id)?;
            return Err(SnapshotError::Collected);
        }
        took.sync += begin.elapsed();
        state.snapshot = Some(snapshot.id);
        state.roots = known_trees.into_iter().collect();
        Ok(Captured { snapshot, is_new: true, took })
    }

    /// A snapshot that is there, if its trees are those of another one.
    fn if_alike(&self, id: SnapshotId, other: &Snapshot) -> Result<Option<Snapshot>> {
        match self.snapshot(id) {
            Ok(found) => Ok((found.roots == other.roots).then_some(found)),
            Err(SnapshotError::Missing(_) | SnapshotError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether what a capture relies on is still there, and will be for a while.
    pub(crate) fn look_again(&self, packs: &HashSet<Id>, state: Option<&State>) -> Result<()> {
        let marks = self.marks()?;
        let there: HashSet<Id> = self.packs()?.into_iter().map(|(id, _)| id).collect();
        let fine = packs.iter().all(|pack| there.contains(pack) && !marks.contains_key(pack));
        let known = match state {
            Some(state) => self.is_relied_on(state)?,
            None => true,
        };
        if fine && known { Ok(()) } else { Err(SnapshotError::Collected) }
    }

    /// Whether what is remembered is of a snapshot that was found to be damaged.
    fn is_refused(&self, state: &State) -> Result<bool> {
        state.snapshot.map_or(Ok(false), |id| self.is_distrusted(id))
    }

    /// Whether everything that is remembered is in this repository: its snapshot is, and nobody has found it
    /// damaged. In this order: who forgets a snapshot removes its record first.
    fn is_relied_on(&self, state: &State) -> Result<bool> {
        let Some(id) = state.snapshot else { return Ok(false) };
        if self.is_refused(state)? {
            return Ok(false);
        }
        match self.snapshot(id) {
            Ok(_) => Ok(true),
            Err(SnapshotError::Missing(_) | SnapshotError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A path of bytes.
pub(crate) fn path_of(bytes: &[u8]) -> &Path {
    Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes))
}

pub(crate) fn realtime() -> Modified {
    let now = clock_gettime(ClockId::Realtime);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    Modified { seconds: now.tv_sec, nanoseconds }
}

/// Whether something that was stamped then cannot change any more without another stamp, if it was
/// looked at after this.
pub(crate) fn is_settled(changed: Modified, looked: Modified) -> bool {
    let nanoseconds =
        |at: Modified| i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanoseconds);
    // Where stamps are round, the file system has only coarse ones.
    let is_coarse = changed.nanoseconds.is_multiple_of(10_000_000);
    let tick = if is_coarse { COARSE_TICK } else { TICK };
    nanoseconds(changed) + i128::try_from(tick.as_nanos()).unwrap_or(i128::MAX)
        < nanoseconds(looked)
}
