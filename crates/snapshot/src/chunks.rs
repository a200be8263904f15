//! Reading chunks: each is compared with its id, wherever it is found.

use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::content::{Content, Item, decode_list};
use crate::error::{Malformed, Result, SnapshotError};
use crate::id::{ChunkKind, Id};
use crate::pack::Opener;
use crate::repository::{MAX_DIRECTORY, Place, PlacedFrame, Repository, pack_name};
use crate::tree;

/// How many opened frames a reader keeps.
const KEPT_FRAMES: usize = 8;

/// Reads chunks, and remembers the frames it opened last. Each thread has its own.
pub(crate) struct Chunks<'a> {
    repository: &'a Repository,
    kept: Vec<(FrameKey, Arc<Vec<u8>>)>,
    opener: Opener,
}

/// A pack and a frame of it.
type FrameKey = (u32, u32);

impl<'a> Chunks<'a> {
    pub(crate) fn of(repository: &'a Repository) -> Self {
        Self { repository, kept: Vec::new(), opener: Opener::default() }
    }

    /// Calls `read` with the bytes of a chunk, which are what its id says.
    pub(crate) fn with<T>(
        &mut self,
        kind: ChunkKind,
        id: Id,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let (frame, place) = self.found(kind, id)?;
        Ok(read(&frame[place.range()]))
    }

    /// A frame with a chunk, which is what its id says, and where in it that is.
    fn found(&mut self, kind: ChunkKind, id: Id) -> Result<(Arc<Vec<u8>>, Place)> {
        let place = self.repository.place(id).ok_or_else(|| self.repository.missing(id))?;
        let mut error = match self.checked(kind, id, place) {
            Ok(frame) => return Ok((frame, place)),
            Err(error) => error,
        };
        self.repository.suspect(place, &error);
        // What is damaged here may be whole in another pack.
        for other in self.repository.places(id).into_iter().skip(1) {
            match self.checked(kind, id, other) {
                Ok(frame) => return Ok((frame, other)),
                // What may be read later is not lost.
                Err(busy) if busy.is_transient() => error = busy,
                Err(damaged) => self.repository.suspect(other, &damaged),
            }
        }
        Err(error)
    }

    /// The frame of a chunk, which is there what its id says.
    fn checked(&mut self, kind: ChunkKind, id: Id, place: Place) -> Result<Arc<Vec<u8>>> {
        let frame = self.open(place)?;
        if Id::of_chunk(kind, &frame[place.range()]) == id {
            return Ok(frame);
        }
        let wrong = Malformed("its bytes are not those that its name is made of");
        Err(SnapshotError::damaged(format!("chunk {id}"))(wrong))
    }

    fn open(&mut self, place: Place) -> Result<Arc<Vec<u8>>> {
        let key = (place.pack, place.frame);
        if let Some(at) = self.kept.iter().position(|(kept, _)| *kept == key) {
            let found = self.kept.remove(at);
            self.kept.push(found);
        } else {
            let (pack, PlacedFrame { offset, frame }) = self.repository.frame(place);
            let name = pack_name(pack);
            let objects = self.repository.objects();
            let opener = &mut self.opener;
            // Each chunk is compared with its id below. The frame as a whole needs a look only where what is wrong may
            // be read right the second time.
            let may_differ = objects.past_cache().is_some() || objects.to_probe().is_some();
            let opened = self.repository.believed(&name, || {
                let stored = objects.get_range(&name, offset, u64::from(frame.stored));
                let stored = stored.map_err(SnapshotError::store("read", &name))?;
                let opened = if may_differ {
                    opener.open(&frame, stored)
                } else {
                    opener.open_unchecked(&frame, stored)
                };
                opened.map_err(SnapshotError::damaged(&name))
            })?;
            if self.kept.len() >= KEPT_FRAMES {
                self.kept.remove(0);
            }
            self.kept.push((key, Arc::new(opened)));
        }
        let (_, frame) = self.kept.last().expect("one was just put there");
        Ok(Arc::clone(frame))
    }

    /// The list that a content of some depth names.
    pub(crate) fn list(&mut self, content: Content) -> Result<Vec<Item>> {
        let decoded =
            self.with(ChunkKind::List, content.id, |bytes| decode_list(bytes, content))?;
        decoded.map_err(SnapshotError::damaged(format!("list {}", content.id)))
    }

    /// Calls `part` with every part of a content, in order: zeros, or the bytes of one chunk.
    pub(crate) fn each(
        &mut self,
        kind: ChunkKind,
        content: Content,
        part: &mut dyn FnMut(Part) -> Result<()>,
    ) -> Result<()> {
        if content.size == 0 {
            return Ok(());
        }
        if content.depth > 0 {
            for item in self.list(content)? {
                match item {
                    Item::Zeros(size) => part(Part::Zeros(size))?,
                    Item::Bytes(below) => self.each(kind, below, part)?,
                }
            }
            return Ok(());
        }
        let (frame, place) = self.found(kind, content.id)?;
        let slice = Slice { frame, range: place.range() };
        if slice.len() as u64 != content.size {
            let wrong = Malformed("it is not as long as it should be");
            return Err(SnapshotError::damaged(format!("chunk {}", content.id))(wrong));
        }
        part(Part::Bytes(slice))
    }

    /// The entries of a directory, of which there may be at most `most`.
    pub(crate) fn directory(&mut self, content: Content, most: u64) -> Result<Vec<tree::Entry>> {
        let encoded = self.whole(ChunkKind::Tree, content, MAX_DIRECTORY)?;
        let limit = usize::try_from(most).unwrap_or(usize::MAX);
        match tree::decode(&encoded, limit) {
            Ok(Some(entries)) => Ok(entries),
            Ok(None) => Err(SnapshotError::TooMuch { what: "names", most }),
            Err(wrong) => Err(SnapshotError::damaged(format!("directory {}", content.id))(wrong)),
        }
    }

    /// All bytes of a content, which may be at most `most`.
    fn whole(&mut self, kind: ChunkKind, content: Content, most: u64) -> Result<Vec<u8>> {
        if content.size > most {
            return Err(SnapshotError::TooMuch { what: "bytes in one directory", most });
        }
        let mut whole = Vec::new();
        self.each(kind, content, &mut |part| match part {
            Part::Zeros(_) => {
                let wrong = Malformed("a directory has a run of zeros");
                Err(SnapshotError::damaged(format!("directory {}", content.id))(wrong))
            }
            Part::Bytes(bytes) => {
                whole.extend_from_slice(&bytes);
                Ok(())
            }
        })?;
        Ok(whole)
    }
}

/// A part of a content.
pub(crate) enum Part {
    /// So many zero bytes.
    Zeros(u64),
    /// These.
    Bytes(Slice),
}

/// Some bytes of a frame, which is kept for as long as they are.
pub(crate) struct Slice {
    frame: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Slice {
    /// All of a frame.
    #[cfg(test)]
    pub(crate) fn of(frame: Vec<u8>) -> Self {
        Self { range: 0..frame.len(), frame: Arc::new(frame) }
    }

    /// Takes what follows, if it does so in the frame; otherwise gives it back.
    pub(crate) fn join(&mut self, next: Self) -> Option<Self> {
        if self.range.end == next.range.start && self.is_of(&next) {
            self.range.end = next.range.end;
            return None;
        }
        Some(next)
    }

    /// Whether both are of one frame.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.frame, &other.frame)
    }

    /// How many bytes are kept for this.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.frame.len()
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.frame[self.range.clone()]
    }
}
