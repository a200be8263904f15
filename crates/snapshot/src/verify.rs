//! Reads everything back, and says what is damaged: which packs, and what that costs.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::capture::Progress;
use crate::content::{Content, Item};
use crate::error::{Malformed, Result, SnapshotError};
use crate::id::Id;
use crate::objects::Listed;
use crate::pack::BEGIN;
use crate::repository::{Chunks, Repository, pack_name};
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
}

/// A snapshot that cannot be restored as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedSnapshot {
    /// Which.
    pub id: SnapshotId,
    /// Why none of it can be read, if that is so.
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
    whole: HashSet<Id>,
    damaged: Vec<(String, String)>,
}

impl Repository {
    /// Reads everything back. Damage is no error: it is what is returned.
    pub fn verify(&self, verify: &Verify<'_>) -> Result<Verified> {
        // Snapshots first: what they need was there before them.
        let ids = self.snapshots()?;
        self.refresh()?;
        let listed = self.packs()?;
        let packs = self.read_packs(&listed, verify)?;
        let mut verified = Verified {
            packs: listed.len() as u64,
            bytes: listed.iter().map(|(_, listed)| listed.size).sum(),
            chunks: packs.whole.len() as u64,
            snapshots: 0,
            damaged_packs: packs.damaged,
            damaged: Vec::new(),
        };
        let mut looking = Looking {
            chunks: Chunks::of(self),
            whole: &packs.whole,
            whole_contents: HashSet::new(),
            whole_directories: HashSet::new(),
        };
        for id in ids {
            let (record, paths) = match self.snapshot(id) {
                Ok(snapshot) => (None, looking.snapshot(&snapshot, verify.max_entries)?),
                // Forgotten meanwhile.
                Err(SnapshotError::Missing(_)) => continue,
                Err(error) => (Some(error.to_string()), Vec::new()),
            };
            verified.snapshots += 1;
            if record.is_some() || !paths.is_empty() {
                verified.damaged.push(DamagedSnapshot { id, record, paths });
            }
        }
        verified.damaged_packs.sort();
        Ok(verified)
    }

    /// Reads all packs, by several threads.
    fn read_packs(&self, listed: &[(Id, Listed)], verify: &Verify<'_>) -> Result<Packs> {
        let (next, done, bytes) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let packs = Mutex::new(Packs::default());
        let lock = || packs.lock().unwrap_or_else(PoisonError::into_inner);
        let cancelled = Mutex::new(false);
        let all = listed.len() as u64;
        let work = || {
            while let Some((id, listed)) = listed.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut whole = Vec::new();
                let read = self.read_pack(*id, listed.size, &mut whole);
                lock().whole.extend(whole);
                match read {
                    // Collected meanwhile.
                    Ok(()) | Err(SnapshotError::Missing(_)) => {}
                    Err(error) => lock().damaged.push((pack_name(*id), reason(&error))),
                }
                let progress = Progress {
                    files: done.fetch_add(1, Ordering::Relaxed) + 1,
                    all_files: all,
                    bytes: bytes.fetch_add(listed.size, Ordering::Relaxed) + listed.size,
                };
                if !(verify.progress)(progress) {
                    *cancelled.lock().unwrap_or_else(PoisonError::into_inner) = true;
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..verify.threads.max(1) {
                scope.spawn(work);
            }
            work();
        });
        if cancelled.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(SnapshotError::Cancelled);
        }
        Ok(packs.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads a pack, and puts down which chunks of it are whole; also of one that is damaged.
    pub(crate) fn read_pack(&self, id: Id, size: u64, whole: &mut Vec<Id>) -> Result<()> {
        let name = pack_name(id);
        let frames = self.read_index(id, size)?;
        let range = |offset, length: u64| {
            let read = self.objects().get_range(&name, offset, length);
            read.map_err(SnapshotError::store("read", &name))
        };
        let damaged = |wrong| Err(SnapshotError::damaged(&name)(Malformed(wrong)));
        let mut result = Ok(());
        if range(0, BEGIN.len() as u64)? != BEGIN {
            result = damaged("it does not begin as a pack begins");
        }
        let mut offset = BEGIN.len() as u64;
        for frame in frames {
            let stored = range(offset, u64::from(frame.stored));
            offset += u64::from(frame.stored);
            let opened =
                stored.and_then(|stored| frame.open(stored).map_err(SnapshotError::damaged(&name)));
            let opened = match opened {
                Ok(opened) => opened,
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
                    whole.push(chunk.id);
                } else {
                    result = result.and(damaged("a chunk is not what its name is made of"));
                }
            }
        }
        result
    }
}

/// An error with its cause.
fn reason(error: &SnapshotError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Looks at what snapshots need.
struct Looking<'a> {
    chunks: Chunks<'a>,
    /// Chunks that are whole.
    whole: &'a HashSet<Id>,
    /// Contents and directories all of which is whole.
    whole_contents: HashSet<Id>,
    whole_directories: HashSet<Id>,
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
        let mut damaged = Vec::new();
        let mut seen = Vec::new();
        let mut links = Vec::new();
        let mut left = max_entries;
        let mut waiting = vec![(Vec::new(), root)];
        while let Some((path, content)) = waiting.pop() {
            if self.whole_directories.contains(&content.id) {
                continue;
            }
            let entries = match self.chunks.directory(content, left) {
                Ok(entries) => entries,
                Err(error @ SnapshotError::TooMuch { .. }) => return Err(error),
                Err(_) => {
                    damaged.push(path);
                    continue;
                }
            };
            left -= entries.len() as u64;
            seen.push(content.id);
            for entry in entries {
                let below = join(&path, &entry.name);
                match entry.kind {
                    Kind::File(content) if !self.is_whole(content) => damaged.push(below),
                    Kind::Directory(content) => waiting.push((below, content)),
                    Kind::HardLink(target) => links.push((below, target)),
                    Kind::File(_) | Kind::Symlink(_) => {}
                }
            }
        }
        damaged.sort();
        // What leads to something damaged is damaged too.
        let linked = links.into_iter().filter(|(_, target)| damaged.binary_search(target).is_ok());
        let linked: Vec<_> = linked.map(|(path, _)| path).collect();
        damaged.extend(linked);
        damaged.sort();
        if damaged.is_empty() {
            self.whole_directories.extend(seen);
        }
        Ok(damaged)
    }

    /// Whether all chunks of a content are whole, and make up what they should.
    fn is_whole(&mut self, content: Content) -> bool {
        if content.size == 0 {
            return true;
        }
        if content.depth == 0 {
            return self.whole.contains(&content.id);
        }
        if self.whole_contents.contains(&content.id) {
            return true;
        }
        let Ok(items) = self.chunks.list(content) else { return false };
        let whole = items.into_iter().all(|item| match item {
            Item::Zeros(_) => true,
            Item::Bytes(below) => self.is_whole(below),
        });
        if whole {
            self.whole_contents.insert(content.id);
        }
        whole
    }
}
