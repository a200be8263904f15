//! Adding chunks to a repository: hashed and compressed by whoever brings them, written by one.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::content::{Content, Item, MAX_CHUNK, MAX_ITEMS, encode_list};
use crate::cut::{self, BLOCK, MIDDLING, ONE_CHUNK};
use crate::error::{Result, SnapshotError};
use crate::id::{ChunkKind, Id};
use crate::objects::{NewObject, Put};
use crate::pack::{
    BEGIN, Frame, FrameBuilder, FrameIndex, PACK_BYTES, PACK_CHUNKS, end_of, longest_end,
};
use crate::repository::{Repository, pack_name};

/// What was added to a repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Added {
    /// Bytes that were not there before.
    pub(crate) new_bytes: u64,
    /// What they came to when stored.
    pub(crate) stored_bytes: u64,
}

/// How long all threads together were at something, in nanoseconds.
#[derive(Default)]
pub(crate) struct Effort(AtomicU64);

impl Effort {
    /// Does something, and counts how long it took.
    pub(crate) fn of<T>(&self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = work();
        let took = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_add(took, Ordering::Relaxed);
        done
    }

    pub(crate) fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// What the time of adding chunks went into.
#[derive(Default)]
pub(crate) struct Efforts {
    pub(crate) reading: Effort,
    pub(crate) hashing: Effort,
    pub(crate) compressing: Effort,
    pub(crate) writing: Effort,
}

/// Adds chunks to a repository. What it added is known to others once it is durable.
pub(crate) struct Writer<'a> {
    repository: &'a Repository,
    /// Packs that are about to be removed: what is only in them is stored again.
    refused: HashSet<Id>,
    /// Packs that chunks were found in.
    relied_on: Mutex<HashSet<Id>>,
    /// What it adds itself, and is in no pack that is whole.
    ours: Mutex<HashSet<Id>>,
    pack: Mutex<OpenPack<'a>>,
    pub(crate) efforts: Efforts,
}

#[derive(Default)]
struct OpenPack<'a> {
    object: Option<Box<dyn NewObject + 'a>>,
    frames: Vec<FrameIndex>,
    length: u64,
    chunks: usize,
    added: Added,
}

impl OpenPack<'_> {
    /// How long it is at most when it is sealed after this frame.
    fn length_with(&self, frame: &Frame<'_>) -> u64 {
        let chunks = self.chunks + frame.index.chunks.len();
        self.length + frame.bytes.len() as u64 + longest_end(self.frames.len() + 1, chunks)
    }
}

impl<'a> Writer<'a> {
    pub(crate) fn to(repository: &'a Repository, refused: HashSet<Id>) -> Self {
        let (relied_on, ours, pack) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { repository, refused, relied_on, ours, pack, efforts: Efforts::default() }
    }

    /// Whether a chunk has to be added; asked a second time, it does not.
    pub(crate) fn is_new(&self, id: Id) -> bool {
        if let Some(pack) = self.repository.pack_of(id, &self.refused) {
            self.relied_on.lock().unwrap_or_else(PoisonError::into_inner).insert(pack);
            return false;
        }
        self.ours.lock().unwrap_or_else(PoisonError::into_inner).insert(id)
    }

    /// Writes a frame.
    pub(crate) fn write(&self, frame: Frame<'_>) -> Result<()> {
        let failed = |attempted| SnapshotError::store(attempted, "a new pack");
        let most = self.repository.objects().max_object();
        let mut open = self.lock();
        while open.object.is_some() && open.length_with(&frame) > most {
            open = self.seal_aside(open)?;
        }
        let pack = &mut *open;
        let object = match &mut pack.object {
            Some(object) => object,
            none @ None => {
                let mut object = self.repository.objects().begin().map_err(failed("begin"))?;
                object.write(BEGIN).map_err(failed("write"))?;
                pack.length = BEGIN.len() as u64;
                none.insert(object)
            }
        };
        object.write(frame.bytes).map_err(failed("write"))?;
        pack.length += frame.bytes.len() as u64;
        pack.added.new_bytes += u64::from(frame.index.length);
        pack.added.stored_bytes += frame.bytes.len() as u64;
        pack.chunks += frame.index.chunks.len();
        pack.frames.push(frame.index);
        if pack.length < PACK_BYTES && pack.chunks < PACK_CHUNKS {
            return Ok(());
        }
        self.seal_aside(open).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, OpenPack<'a>> {
        self.pack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a pack. The others go on with the next one, while this one is made durable.
    fn seal_aside<'s>(
        &'s self,
        mut open: MutexGuard<'s, OpenPack<'a>>,
    ) -> Result<MutexGuard<'s, OpenPack<'a>>> {
        let mut full = std::mem::take(&mut *open);
        drop(open);
        let sealed = self.seal(&mut full);
        let mut open = self.lock();
        open.added.new_bytes += full.added.new_bytes;
        open.added.stored_bytes += full.added.stored_bytes;
        sealed?;
        Ok(open)
    }

    /// Ends a pack: from now on it is there.
    fn seal(&self, pack: &mut OpenPack<'a>) -> Result<()> {
        let Some(mut object) = pack.object.take() else { return Ok(()) };
        let frames = std::mem::take(&mut pack.frames);
        pack.chunks = 0;
        let (end, id) = end_of(&frames, pack.length, self.repository.unique());
        let name = pack_name(id);
        object.write(&end).map_err(SnapshotError::store("write", &name))?;
        match object.finish(&name).map_err(SnapshotError::store("put", &name))? {
            Put::Created => {}
            Put::Existed => {
                let exists = std::io::ErrorKind::AlreadyExists.into();
                return Err(SnapshotError::store("put", &name)(exists));
            }
        }
        pack.added.stored_bytes += end.len() as u64;
        self.repository.add_pack(id, frames);
        self.relied_on.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        Ok(())
    }

    /// Makes everything durable that was written; also returns the packs that chunks are in.
    pub(crate) fn finish(self) -> Result<(Added, HashSet<Id>)> {
        let mut pack = self.lock();
        self.seal(&mut pack)?;
        let mut relied_on = self.relied_on.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((pack.added, std::mem::take(&mut relied_on)))
    }
}

/// Cuts bytes into chunks, and gathers those that are new into frames. Each thread has its own.
pub(crate) struct Cutter<'a, 'w> {
    writer: &'w Writer<'a>,
    frame: FrameBuilder,
}

impl<'a, 'w> Cutter<'a, 'w> {
    pub(crate) fn of(writer: &'w Writer<'a>) -> Self {
        Self { writer, frame: FrameBuilder::default() }
    }

    /// Adds one chunk.
    fn chunk(&mut self, kind: ChunkKind, bytes: &[u8]) -> Result<Content> {
        debug_assert!(!bytes.is_empty() && bytes.len() <= MAX_CHUNK, "{} bytes", bytes.len());
        let id = self.writer.efforts.hashing.of(|| Id::of_chunk(kind, bytes));
        if self.writer.is_new(id) {
            self.frame.add(kind, id, bytes);
            if self.frame.is_full() {
                self.flush()?;
            }
        }
        Ok(Content { size: bytes.len() as u64, depth: 0, id })
    }

    /// Adds bytes that are in memory as a whole: as many as are cut as something middling, or the
    /// encoding of a directory.
    pub(crate) fn whole(&mut self, kind: ChunkKind, bytes: &[u8]) -> Result<Content> {
        if bytes.is_empty() {
            return Ok(Content::EMPTY);
        }
        if bytes.len() <= ONE_CHUNK {
            return self.chunk(kind, bytes);
        }
        let mut items = Vec::new();
        for chunk in cut::middling(bytes) {
            items.push(Item::Bytes(self.chunk(kind, chunk)?));
        }
        self.list(items)
    }

    /// Adds a segment of something large.
    pub(crate) fn segment(&mut self, bytes: &[u8]) -> Result<Content> {
        let mut items = Vec::with_capacity(bytes.len() / BLOCK + 1);
        for block in bytes.chunks(BLOCK) {
            items.push(Item::Bytes(self.chunk(ChunkKind::Data, block)?));
        }
        self.list(items)
    }

    /// Adds lists above parts until there is one.
    pub(crate) fn list(&mut self, mut items: Vec<Item>) -> Result<Content> {
        if items.is_empty() {
            return Ok(Content::EMPTY);
        }
        loop {
            let mut above = Vec::with_capacity(items.len().div_ceil(MAX_ITEMS));
            for group in items.chunks(MAX_ITEMS) {
                if let [Item::Bytes(alone)] = group {
                    above.push(Item::Bytes(*alone));
                    continue;
                }
                let depth = group.iter().map(|item| match item {
                    Item::Zeros(_) => 0,
                    Item::Bytes(content) => content.depth,
                });
                let depth = depth.max().unwrap_or(0) + 1;
                let Content { id, .. } = self.chunk(ChunkKind::List, &encode_list(group))?;
                let size = group.iter().map(Item::size).sum();
                above.push(Item::Bytes(Content { size, depth, id }));
            }
            match above[..] {
                [Item::Bytes(one)] => return Ok(one),
                _ => items = above,
            }
        }
    }

    /// Writes what was gathered.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.frame.is_empty() {
            return Ok(());
        }
        let Self { writer, frame } = self;
        let frame = writer.efforts.compressing.of(|| frame.finish());
        writer.efforts.writing.of(|| writer.write(frame))
    }
}

/// Whether something of this size is cut as something large.
pub(crate) fn is_large(size: u64) -> bool {
    size > MIDDLING as u64
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::objects::MemoryObjects;

    #[test]
    fn nothing_is_stored_as_nothing() {
        let repository = Repository::open(Box::new(MemoryObjects::default())).unwrap();
        let writer = Writer::to(&repository, HashSet::new());
        assert_eq!(Cutter::of(&writer).list(Vec::new()).unwrap(), Content::EMPTY);
    }

    #[test]
    fn more_tiny_chunks_than_a_pack_may_have_become_two_packs_that_can_be_read() {
        let repository = Repository::open(Box::new(MemoryObjects::default())).unwrap();
        let writer = Writer::to(&repository, HashSet::new());
        let mut cutter = Cutter::of(&writer);
        for number in 0..1_100_000_u32 {
            cutter.whole(ChunkKind::Data, &number.to_le_bytes()[..3]).unwrap();
        }
        cutter.flush().unwrap();
        drop(cutter);
        writer.finish().unwrap();
        for (id, listed) in repository.packs().unwrap() {
            repository.read_index(id, listed.size).unwrap();
        }
        assert!(repository.packs().unwrap().len() > 1);
    }

    /// Objects in memory that may not be long.
    struct Short(MemoryObjects, u64);

    impl crate::objects::Objects for Short {
        fn put(&self, name: &str, bytes: &[u8]) -> std::io::Result<Put> {
            self.0.put(name, bytes)
        }

        fn begin(&self) -> std::io::Result<Box<dyn NewObject + '_>> {
            self.0.begin()
        }

        fn get(&self, name: &str, most: u64) -> std::io::Result<Vec<u8>> {
            self.0.get(name, most)
        }

        fn get_range(&self, name: &str, offset: u64, length: u64) -> std::io::Result<Vec<u8>> {
            self.0.get_range(name, offset, length)
        }

        fn get_end(&self, name: &str, length: u64) -> std::io::Result<(Vec<u8>, u64)> {
            self.0.get_end(name, length)
        }

        fn list(&self, prefix: &str) -> std::io::Result<Vec<crate::objects::Listed>> {
            self.0.list(prefix)
        }

        fn delete(&self, name: &str) -> std::io::Result<()> {
            self.0.delete(name)
        }

        fn clear(&self, age: std::time::Duration) -> std::io::Result<()> {
            self.0.clear(age)
        }

        fn max_object(&self) -> u64 {
            self.1
        }
    }

    #[test]
    fn no_pack_is_longer_than_the_store_can_take() {
        // Frames hold a megabyte or a little more, and a list of small chunks is not to be compressed.
        for (most, chunk) in [(1_200_000, 4096), (2 << 20, 70_000), (8 << 20, 3)] {
            let short = Short(MemoryObjects::default(), most);
            let repository = Repository::open(Box::new(short)).unwrap();
            let writer = Writer::to(&repository, HashSet::new());
            let mut cutter = Cutter::of(&writer);
            let mut noise = blake3::Hasher::new().update(b"noise").finalize_xof();
            let mut bytes = vec![0; chunk];
            for _ in 0..(2 * most / chunk as u64).min(400_000) {
                noise.fill(&mut bytes);
                cutter.whole(ChunkKind::Data, &bytes).unwrap();
            }
            cutter.flush().unwrap();
            drop(cutter);
            writer.finish().unwrap();
            let packs = repository.packs().unwrap();
            assert!(packs.len() > 1);
            for (id, listed) in packs {
                assert!(listed.size <= most, "{} of {most}", listed.size);
                repository.read_index(id, listed.size).unwrap();
            }
        }
    }
}
