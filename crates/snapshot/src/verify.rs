//! Reads everything back, and says what is damaged: which packs, and what that costs.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::capture::Progress;
use crate::chunks::Chunks;
use crate::content::{Content, Item};
use crate::error::{Malformed, Result, SnapshotError};
use crate::id::{ChunkKind, Id};
use crate::objects::{Listed, Objects};
use crate::pack::{BEGIN, Opener, PackedChunk};
use crate::repository::{FORMAT, FORMAT_NAME, Repository, pack_name};
use crate::show::join;
use crate::snapshot::{Snapshot, SnapshotId};
use crate::tree::Kind;

/// How to read everything back.
#[derive(Clone)]
pub struct Verify<'a> {
    /// How many threads work.
    pub threads: usize,
    /// How many names a snapshot may have at the most.
    pub max_entries: u64,
    /// Is told after each pack how many were read, by several threads; answers whether to go on.
    pub progress: &'a (dyn Fn(Progress) -> bool + Sync),
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many packs there are.
    pub packs: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// How many chunks are whole.
    pub chunks: u64,
    /// How many snapshots there are.
    pub snapshots: u64,
    /// Packs that are not what they should be, by name, and how.
    pub damaged_packs: Vec<(String, String)>,
    /// Snapshots that cannot be restored as a whole.
    pub damaged: Vec<DamagedSnapshot>,
    /// Where the time went.
    pub took: VerifyTook,
    /// Snapshots that were there when it began: nothing is known of others.
    pub(crate) seen: Vec<SnapshotId>,
}

/// Where the time of a verification went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyTook {
    /// Looking what is in the store.
    pub look: Duration,
    /// Reading packs, and comparing every chunk with its name.
    pub packs: Duration,
    /// Looking what snapshots need.
    pub snapshots: Duration,
}

/// A snapshot that cannot be restored as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedSnapshot {
    /// Which.
    pub id: SnapshotId,
    /// Why none of it can be read, or was looked at, if that is so.
    pub record: Option<String>,
    /// The name of a root and a path in it: a file, or a directory whose entries cannot be read. The root itself
    /// has an empty path.
    pub paths: Vec<(String, Vec<u8>)>,
}

impl Verified {
    /// Whether nothing is damaged.
    pub fn is_whole(&self) -> bool {
        self.damaged_packs.is_empty() && self.damaged.is_empty()
    }
}

/// What was read of packs.
#[derive(Default)]
struct Packs {
    /// Chunks that are whole: what they are, and how long.
    whole: HashMap<Id, (ChunkKind, u64)>,
    damaged: Vec<(String, String)>,
}

/// A content, to be found again: an id alone may be named in several ways, of which one is right.
pub(crate) type ContentKey = (u64, u8, Id);

impl Content {
    pub(crate) fn key(&self) -> ContentKey {
        (self.size, self.depth, self.id)
    }
}

impl Repository {
    /// Reads everything back. Damage is no error: it is what is returned. A store that does not answer is one:
    /// nobody knows then what is damaged.
    pub fn verify(&self, verify: &Verify<'_>) -> Result<Verified> {
        // Snapshots first: what they need was there before them.
        let begin = Instant::now();
        let ids = self.snapshots()?;
        self.refresh()?;
        let listed = self.packs()?;
        let mut took = VerifyTook { look: begin.elapsed(), ..VerifyTook::default() };
        let begin = Instant::now();
        let packs = self.read_packs(&listed, verify)?;
        took.packs = begin.elapsed();
        let begin = Instant::now();
        let mut verified = Verified {
            packs: listed.len() as u64,
            bytes: listed.iter().map(|(_, listed)| listed.size).sum(),
            chunks: packs.whole.len() as u64,
            snapshots: 0,
            damaged_packs: packs.damaged,
            damaged: Vec::new(),
            took,
            seen: ids.clone(),
        };
        let mut looking = Looking {
            chunks: Chunks::of(self),
            whole: &packs.whole,
            whole_contents: HashSet::new(),
            whole_directories: HashSet::new(),
        };
        for id in ids {
            let read = self.snapshot(id);
            let found = read.and_then(|snapshot| looking.snapshot(&snapshot, verify.max_entries));
            let (record, paths) = match found {
                Ok(paths) => (None, paths),
                // Forgotten meanwhile.
                Err(SnapshotError::Missing(_)) => continue,
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => (Some(error.to_string()), Vec::new()),
            };
            verified.snapshots += 1;
            if record.is_some() || !paths.is_empty() {
                verified.damaged.push(DamagedSnapshot { id, record, paths });
            }
        }
        verified.damaged_packs.sort();
        verified.took.snapshots = begin.elapsed();
        Ok(verified)
    }

    /// The store itself, without what is kept of it nearby.
    pub(crate) fn store(&self) -> &dyn Objects {
        self.objects().past_cache().unwrap_or(self.objects())
    }

    /// Reads something of an object. What is wrong is read once more, if it may have been kept nearby.
    pub(crate) fn believed<T>(&self, name: &str, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        let mut result = read();
        for again in [true, false] {
            let wrong = matches!(result, Err(SnapshotError::Damaged { .. }));
            if wrong && self.objects().refuse(name) && again {
                result = read();
            }
        }
        result
    }

    /// Reads all packs, by several threads.
    fn read_packs(&self, listed: &[(Id, Listed)], verify: &Verify<'_>) -> Result<Packs> {
        let (next, done, bytes) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let packs = Mutex::new(Packs::default());
        let lock = || packs.lock().unwrap_or_else(PoisonError::into_inner);
        let stopped = Mutex::new(None);
        let stop = |error| {
            stopped.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            next.store(listed.len(), Ordering::Relaxed);
        };
        let all_files = listed.len() as u64;
        let all_bytes = listed.iter().map(|(_, listed)| listed.size).sum();
        let work = || {
            while let Some((id, listed)) = listed.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut whole = Vec::new();
                let read = self.read_pack(*id, listed.size, &mut whole);
                let whole = whole.into_iter();
                lock()
                    .whole
                    .extend(whole.map(|chunk| (chunk.id, (chunk.kind, u64::from(chunk.length)))));
                match read {
                    // Collected meanwhile.
                    Ok(()) | Err(SnapshotError::Missing(_)) => {}
                    Err(error) if error.is_transient() => return stop(error),
                    Err(error) if !self.is_of_the_pack(&error, *id, listed.size) => {
                        return stop(error);
                    }
                    Err(error) => lock().damaged.push((pack_name(*id), reason(&error))),
                }
                let progress = Progress {
                    files: done.fetch_add(1, Ordering::Relaxed) + 1,
                    all_files,
                    bytes: bytes.fetch_add(listed.size, Ordering::Relaxed) + listed.size,
                    all_bytes,
                };
                if !(verify.progress)(progress) {
                    return stop(SnapshotError::Cancelled);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..verify.threads.max(1) {
                scope.spawn(work);
            }
            work();
        });
        if let Some(error) = stopped.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        Ok(packs.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a pack could not be read because of what it is. A disk, or a process that has too much open, fails
    /// with other objects too: then nobody knows what is damaged.
    fn is_of_the_pack(&self, error: &SnapshotError, id: Id, size: u64) -> bool {
        match error {
            SnapshotError::Store { .. } => {
                let again = self.read_pack(id, size, &mut Vec::new());
                again.is_err_and(|again| !again.is_transient())
                    && self.store().get(FORMAT_NAME, FORMAT.len() as u64).is_ok()
            }
            SnapshotError::Tree { .. }
            | SnapshotError::Damaged { .. }
            | SnapshotError::Unreadable { .. }
            | SnapshotError::Missing(_)
            | SnapshotError::Format(_)
            | SnapshotError::Exists(_)
            | SnapshotError::TooMuch { .. }
            | SnapshotError::Collected
            | SnapshotError::Cancelled => true,
        }
    }

    /// Reads a pack, and puts down which chunks of it are whole; also of one that is damaged. It is read from
    /// the store, whatever is kept of it nearby.
    pub(crate) fn read_pack(&self, id: Id, size: u64, whole: &mut Vec<PackedChunk>) -> Result<()> {
        let name = pack_name(id);
        let frames = Self::index_in(self.store(), id, size)?;
        let range = |offset, length: u64| {
            let read = self.store().get_range(&name, offset, length);
            read.map_err(SnapshotError::store("read", &name))
        };
        let damaged = |wrong| Err(SnapshotError::damaged(&name)(Malformed(wrong)));
        let mut result = Ok(());
        if range(0, BEGIN.len() as u64)? != BEGIN {
            result = damaged("it does not begin as a pack begins");
        }
        let (mut offset, mut opener) = (BEGIN.len() as u64, Opener::default());
        for frame in frames {
            let stored = range(offset, u64::from(frame.stored));
            offset += u64::from(frame.stored);
            let opened = stored.and_then(|stored| {
                opener.open(&frame, stored).map_err(SnapshotError::damaged(&name))
            });
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    result = result.and(Err(error));
                    continue;
                }
            };
            let mut rest = &opened[..];
            for chunk in &frame.chunks {
                let (bytes, after) = rest.split_at(chunk.length as usize);
                rest = after;
                if Id::of_chunk(chunk.kind, bytes) == chunk.id {
                    whole.push(*chunk);
                } else {
                    result = result.and(damaged("a chunk is not what its name is made of"));
                }
            }
        }
        result
    }
}

/// An error with its cause, which some say already.
pub(crate) fn reason(error: &SnapshotError) -> String {
    match (error, std::error::Error::source(error)) {
        (SnapshotError::Damaged { .. }, _) | (_, None) => error.to_string(),
        (_, Some(cause)) => format!("{error}: {cause}"),
    }
}

/// Looks at what snapshots need.
struct Looking<'a> {
    chunks: Chunks<'a>,
    /// Chunks that are whole.
    whole: &'a HashMap<Id, (ChunkKind, u64)>,
    /// Contents and directories all of which is whole. No hard link is below such a directory: where one
    /// leads to depends on the tree.
    whole_contents: HashSet<ContentKey>,
    whole_directories: HashSet<ContentKey>,
}

impl Looking<'_> {
    /// What of a snapshot is damaged.
    fn snapshot(
        &mut self,
        snapshot: &Snapshot,
        max_entries: u64,
    ) -> Result<Vec<(String, Vec<u8>)>> {
        let mut damaged = Vec::new();
        for root in &snapshot.roots {
            let paths = self.tree(root.tree, max_entries)?;
            damaged.extend(paths.into_iter().map(|path| (root.name.clone(), path)));
        }
        Ok(damaged)
    }

    fn tree(&mut self, root: Content, max_entries: u64) -> Result<Vec<Vec<u8>>> {
        let mut found = self.walk(root, max_entries, Known::PassedOver)?;
        // What they lead to may be in a directory that was passed over.
        if found.passed_over && found.links_to_nothing().next().is_some() {
            found = self.walk(root, max_entries, Known::LookedInto)?;
        }
        // What leads to nothing, or to something damaged, is damaged too.
        let mut damaged: Vec<Vec<u8>> = found.links_to_nothing().cloned().collect();
        damaged.append(&mut found.damaged);
        damaged.sort();
        if damaged.is_empty() {
            let mut above = HashSet::new();
            for (path, _) in &found.links {
                let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
                above.extend(slashes.map(|(at, _)| &path[..at]));
                above.insert(&[]);
            }
            let seen = found.seen.iter().filter(|(path, _)| !above.contains(&path[..]));
            self.whole_directories.extend(seen.map(|(_, content)| content.key()));
        }
        Ok(damaged)
    }

    /// Looks into every directory of a tree.
    fn walk(&mut self, root: Content, max_entries: u64, known: Known) -> Result<Found> {
        let mut found = Found::default();
        let mut left = max_entries;
        let mut waiting = vec![(Vec::new(), root)];
        while let Some((path, content)) = waiting.pop() {
            if known == Known::PassedOver && self.whole_directories.contains(&content.key()) {
                found.passed_over = true;
                continue;
            }
            let entries = match self.chunks.directory(content, left) {
                Ok(entries) => entries,
                Err(error @ SnapshotError::TooMuch { .. }) => return Err(error),
                Err(error) if error.is_transient() => return Err(error),
                Err(_) => {
                    found.damaged.push(path);
                    continue;
                }
            };
            left -= entries.len() as u64;
            for entry in entries {
                let below = join(&path, &entry.name);
                match entry.kind {
                    Kind::File(content) if self.is_whole(content)? => {
                        found.files.insert(below);
                    }
                    Kind::File(_) => found.damaged.push(below),
                    Kind::Directory(content) => waiting.push((below, content)),
                    Kind::HardLink(target) => found.links.push((below, target)),
                    Kind::Symlink(_) => {}
                }
            }
            found.seen.push((path, content));
        }
        Ok(found)
    }

    /// Whether all chunks of a file are whole, and make up what they should.
    fn is_whole(&mut self, content: Content) -> Result<bool> {
        if content.size == 0 {
            return Ok(true);
        }
        if content.depth == 0 {
            return Ok(self.whole.get(&content.id) == Some(&(ChunkKind::Data, content.size)));
        }
        if self.whole_contents.contains(&content.key()) {
            return Ok(true);
        }
        let items = match self.chunks.list(content) {
            Ok(items) => items,
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => return Ok(false),
        };
        for item in items {
            let whole = match item {
                Item::Zeros(_) => true,
                Item::Bytes(below) => self.is_whole(below)?,
            };
            if !whole {
                return Ok(false);
            }
        }
        self.whole_contents.insert(content.key());
        Ok(true)
    }
}

/// What becomes of directories that are known to be whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    PassedOver,
    LookedInto,
}

/// What was found in a tree, by path.
#[derive(Default)]
struct Found {
    damaged: Vec<Vec<u8>>,
    /// Files that are whole.
    files: HashSet<Vec<u8>>,
    /// Hard links, and where they lead to.
    links: Vec<(Vec<u8>, Vec<u8>)>,
    /// Directories that were looked into.
    seen: Vec<(Vec<u8>, Content)>,
    /// Whether some were not.
    passed_over: bool,
}

impl Found {
    /// Hard links that lead to no file that is whole.
    fn links_to_nothing(&self) -> impl Iterator<Item = &Vec<u8>> {
        let nothing = self.links.iter().filter(|(_, target)| !self.files.contains(target));
        nothing.map(|(path, _)| path)
    }
}
