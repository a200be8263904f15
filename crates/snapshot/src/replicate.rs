//! A snapshot in another repository: only chunks that are not there are copied, and then its record, under
//! the same id.
//!
//! Towards collections it is a capture that remembers nothing (`FORMAT.md`): marks are listed, then packs;
//! chunks count as stored only in packs without a mark; who took long looks again. Of where it comes from
//! nothing is believed: every chunk is compared with its id before it is written.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::capture::Progress;
use crate::chunks::Chunks;
use crate::content::{Content, Item};
use crate::error::{Malformed, Result, SnapshotError};
use crate::id::{ChunkKind, Id};
use crate::objects::Signs;
use crate::pack::FrameBuilder;
use crate::repository::{Place, Repository};
use crate::snapshot::{Snapshot, SnapshotId};
use crate::tree::Kind;
use crate::verify::ContentKey;
use crate::writer::Writer;

/// How many chunks a thread takes at a time: they lie together, so it reads few frames for them.
const RUN: usize = 256;

/// How often a record is put that others put and take away meanwhile.
const PUTS: usize = 4;

/// What to copy, and how.
#[derive(Clone)]
pub struct Replicate<'a> {
    /// Where it is.
    pub from: &'a Repository,
    /// Which snapshot.
    pub snapshot: SnapshotId,
    /// How many names a snapshot may have, and no more are looked at: its record may be anybody's.
    pub max_entries: u64,
    /// How many threads work.
    pub threads: usize,
    /// Is told from time to time how many chunks (as files) and bytes were copied; answers whether to go on.
    pub progress: &'a (dyn Fn(Progress) -> bool + Sync),
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Replicated {
    /// The snapshot, which is there now.
    pub snapshot: Snapshot,
    /// Whether it was copied now; otherwise it was there.
    pub is_new: bool,
    /// Bytes that were not there.
    pub copied_bytes: u64,
    /// What they came to when stored.
    pub stored_bytes: u64,
}

impl Repository {
    /// Copies a snapshot from another repository, unless it is here.
    pub fn replicate(&self, replicate: &Replicate<'_>) -> Result<Replicated> {
        let Replicate { from, snapshot: id, .. } = *replicate;
        let here = self.if_here(id)?;
        // One that was found to be damaged here is mended by what is copied: its record stays.
        let is_distrusted = here.is_some() && self.is_distrusted(id)?;
        if let Some(snapshot) = &here
            && !is_distrusted
        {
            let snapshot = snapshot.clone();
            return Ok(Replicated { snapshot, is_new: false, copied_bytes: 0, stored_bytes: 0 });
        }
        let mut since = self.time();
        // Marks before packs: a mark goes when its pack is gone.
        let refused: HashSet<Id> = self.marks()?.into_keys().collect();
        self.refresh()?;
        let snapshot = from.snapshot(id)?;
        if here.as_ref().is_some_and(|here| *here != snapshot) {
            return Err(another(id));
        }
        from.refresh()?;
        let writer = Writer::to(self, refused);
        // What is named here may be damaged itself: it is read before it is taken for stored.
        let doubted = is_distrusted.then(|| Chunks::of(self));
        let missing = Missing::of(replicate, &snapshot, &writer, doubted)?;
        copy(replicate, &writer, missing)?;
        let (added, packs) = writer.finish()?;
        if self.time().since(&since) > self.grace() / 4 {
            since = self.time();
            self.look_again(&packs, None)?;
        }
        let is_new = here.is_none() && self.put_same(&snapshot)?;
        if self.time().since(&since) > self.grace() / 2 {
            // What somebody else has put is theirs, and they look themselves.
            if is_new {
                self.take_back(id)?;
            }
            return Err(SnapshotError::Collected);
        }
        let (copied_bytes, stored_bytes) = (added.new_bytes, added.stored_bytes);
        Ok(Replicated { snapshot, is_new, copied_bytes, stored_bytes })
    }

    /// A snapshot, if it is here. One whose record is torn is not: it is put again.
    fn if_here(&self, id: SnapshotId) -> Result<Option<Snapshot>> {
        match self.snapshot(id) {
            Ok(here) => Ok(Some(here)),
            Err(SnapshotError::Missing(_)) => Ok(None),
            Err(SnapshotError::Damaged { .. }) if self.is_torn(id)? => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts the record, unless somebody has put the same meanwhile; says whether it was put now. One that is torn is of
    /// no use to anybody, and gives way, now that all that it needs is here.
    fn put_same(&self, snapshot: &Snapshot) -> Result<bool> {
        let id = snapshot.id;
        for _ in 0..PUTS {
            match self.put_snapshot(snapshot) {
                Ok(()) => return Ok(true),
                Err(SnapshotError::Store { source, .. })
                    if source.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            match self.snapshot(id) {
                Ok(there) if there == *snapshot => return Ok(false),
                Ok(_) => return Err(another(id)),
                Err(SnapshotError::Missing(_)) => {}
                Err(SnapshotError::Damaged { .. }) if self.is_torn(id)? => self.take_back(id)?,
                Err(error) => return Err(error),
            }
        }
        Err(SnapshotError::Collected)
    }
}

fn another(id: SnapshotId) -> SnapshotError {
    let wrong = Malformed("another snapshot has the same name");
    SnapshotError::damaged(format!("snapshots/{id}"))(wrong)
}

/// A chunk to copy.
#[derive(Clone, Copy)]
struct Wanted {
    kind: ChunkKind,
    id: Id,
    place: Place,
}

/// Chunks of a snapshot that are not where they should be.
struct Missing<'a, 'w> {
    from: &'a Repository,
    writer: &'a Writer<'w>,
    chunks: Chunks<'a>,
    /// What is here, if it has to be read to be believed.
    doubted: Option<Chunks<'a>>,
    /// Chunks that were looked for.
    seen: HashSet<Id>,
    wanted: HashMap<Id, Wanted>,
    /// Lists that were followed. An id alone does not tell: it may have been named as if it were data.
    followed: HashSet<ContentKey>,
}

impl<'a, 'w> Missing<'a, 'w> {
    fn of(
        replicate: &Replicate<'a>,
        snapshot: &Snapshot,
        writer: &'a Writer<'w>,
        doubted: Option<Chunks<'a>>,
    ) -> Result<Vec<Wanted>> {
        let from = replicate.from;
        let mut missing = Self {
            from,
            writer,
            chunks: Chunks::of(from),
            doubted,
            seen: HashSet::new(),
            wanted: HashMap::new(),
            followed: HashSet::new(),
        };
        let mut names = replicate.max_entries;
        let mut seen = HashSet::new();
        let mut waiting: Vec<Content> = snapshot.roots.iter().map(|root| root.tree).collect();
        while let Some(directory) = waiting.pop() {
            if !seen.insert(directory.key()) {
                continue;
            }
            missing.content(ChunkKind::Tree, directory)?;
            let entries = missing.chunks.directory(directory, names)?;
            names -= entries.len() as u64;
            for entry in entries {
                match entry.kind {
                    Kind::File(content) => missing.content(ChunkKind::Data, content)?,
                    Kind::Directory(content) => waiting.push(content),
                    Kind::Symlink(_) | Kind::HardLink(_) => {}
                }
            }
        }
        let mut wanted: Vec<Wanted> = missing.wanted.into_values().collect();
        // In the order in which they lie: each frame is read once.
        wanted.sort_unstable_by_key(|wanted| wanted.place.order());
        Ok(wanted)
    }

    fn content(&mut self, kind: ChunkKind, content: Content) -> Result<()> {
        if content.size == 0 {
            return Ok(());
        }
        if content.depth == 0 {
            return self.chunk(kind, content.id);
        }
        if !self.followed.insert(content.key()) {
            return Ok(());
        }
        self.chunk(ChunkKind::List, content.id)?;
        for item in self.chunks.list(content)? {
            match item {
                Item::Zeros(_) => {}
                Item::Bytes(below) => self.content(kind, below)?,
            }
        }
        Ok(())
    }

    fn chunk(&mut self, kind: ChunkKind, id: Id) -> Result<()> {
        if !self.seen.insert(id) || (!self.writer.is_new(id) && self.is_whole(kind, id)?) {
            return Ok(());
        }
        let place = self.from.place(id).ok_or_else(|| self.from.missing(id))?;
        self.wanted.insert(id, Wanted { kind, id, place });
        Ok(())
    }
}

impl Missing<'_, '_> {
    /// Whether a chunk that is here can be relied on.
    fn is_whole(&mut self, kind: ChunkKind, id: Id) -> Result<bool> {
        let Some(here) = &mut self.doubted else { return Ok(true) };
        match here.with(kind, id, |_| ()) {
            Ok(()) => Ok(true),
            Err(error) if error.is_transient() => Err(error),
            Err(_) => Ok(false),
        }
    }
}

/// Copies chunks, by several threads.
fn copy(replicate: &Replicate<'_>, writer: &Writer<'_>, wanted: Vec<Wanted>) -> Result<()> {
    let runs: Vec<&[Wanted]> = wanted.chunks(RUN).collect();
    let (next, done, bytes) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failure: Mutex<Option<SnapshotError>> = Mutex::default();
    let failed = || failure.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let work = || -> Result<()> {
        let mut chunks = Chunks::of(replicate.from);
        let mut frame = FrameBuilder::default();
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed))
            && !failed()
        {
            for &Wanted { kind, id, .. } in *run {
                let length = chunks.with(kind, id, |chunk| {
                    frame.add(kind, id, chunk);
                    chunk.len() as u64
                })?;
                bytes.fetch_add(length, Ordering::Relaxed);
                if frame.is_full() {
                    writer.write(frame.finish())?;
                }
            }
            let files = done.fetch_add(run.len() as u64, Ordering::Relaxed) + run.len() as u64;
            let told = Progress {
                files,
                all_files: wanted.len() as u64,
                bytes: bytes.load(Ordering::Relaxed),
                all_bytes: 0,
            };
            if !(replicate.progress)(told) {
                return Err(SnapshotError::Cancelled);
            }
        }
        if frame.is_empty() { Ok(()) } else { writer.write(frame.finish()) }
    };
    let listener = Signs::listener();
    std::thread::scope(|scope| {
        for _ in 0..replicate.threads.clamp(1, runs.len().max(1)) {
            scope.spawn(|| {
                let _listening = listener.as_ref().map(Signs::listen);
                if let Err(error) = work() {
                    let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                    first.get_or_insert(error);
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
