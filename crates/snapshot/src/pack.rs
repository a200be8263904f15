//! Packs: many chunks in one object, and an index of them at its end.

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::CParameter;

use crate::codec::{Reader, put_number};
use crate::content::MAX_CHUNK;
use crate::error::Malformed;
use crate::id::{ChunkKind, Id};

/// How many bytes of chunks are compressed together, about.
pub(crate) const FRAME_BYTES: usize = 1024 * 1024;

/// And how many chunks, at the most: their ids take room too.
const FRAME_CHUNKS: usize = 64 * 1024;

/// How long a pack gets, about: the frame that reaches it is the last.
pub(crate) const PACK_BYTES: u64 = 32 * 1024 * 1024;

/// How many chunks a pack gets, about: likewise. A frame has far fewer than as many again.
pub(crate) const PACK_CHUNKS: usize = 400_000;

/// Bounds of what is read.
const MAX_FRAME: usize = 8 * 1024 * 1024;
pub(crate) const MAX_PACK: u64 = 128 * 1024 * 1024;
const MAX_CHUNKS: usize = 1_000_000;
const MAX_INDEX: usize = 48 * 1024 * 1024;

const LEVEL: i32 = 1;

pub(crate) const BEGIN: &[u8; 8] = b"ASHPACK1";
const END: &[u8; 8] = b"ASHPEND1";

/// How long the footer is.
pub(crate) const FOOTER: usize = 8 + 4 + 4 + 32 + 8;

/// A chunk, as the index has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedChunk {
    pub(crate) kind: ChunkKind,
    pub(crate) length: u32,
    pub(crate) id: Id,
}

/// Chunks that were compressed together, as the index has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameIndex {
    pub(crate) stored: u32,
    pub(crate) length: u32,
    pub(crate) compressed: bool,
    pub(crate) digest: Id,
    pub(crate) chunks: Vec<PackedChunk>,
}

/// Chunks that are to be compressed together.
#[derive(Default)]
pub(crate) struct FrameBuilder {
    bytes: Vec<u8>,
    chunks: Vec<PackedChunk>,
    /// Made when it is needed first: it is large, and used for every frame.
    compressor: Option<Compressor<'static>>,
    /// What was compressed last.
    squeezed: Vec<u8>,
    /// Whether what is there was handed out already.
    finished: bool,
}

/// A frame that is ready to be stored.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) index: FrameIndex,
    pub(crate) bytes: &'a [u8],
}

impl FrameBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        let is_large = self.bytes.len() >= FRAME_BYTES || self.chunks.len() >= FRAME_CHUNKS;
        !self.finished && is_large
    }

    pub(crate) fn add(&mut self, kind: ChunkKind, id: Id, bytes: &[u8]) {
        if std::mem::take(&mut self.finished) {
            self.bytes.clear();
        }
        let length = u32::try_from(bytes.len()).expect("a chunk is at most 4 MiB");
        self.chunks.push(PackedChunk { kind, length, id });
        self.bytes.extend_from_slice(bytes);
    }

    /// Compresses what was added. What is added next begins anew.
    pub(crate) fn finish(&mut self) -> Frame<'_> {
        let Self { bytes: raw, chunks, compressor, squeezed, finished } = self;
        *finished = true;
        let length = u32::try_from(raw.len()).expect("a frame is at most 8 MiB");
        // Compression of what is in memory to memory does not fail; what it does not make smaller
        // is kept as it is.
        if compressor.is_none() {
            *compressor = compressor_of_frames().ok();
        }
        squeezed.clear();
        squeezed.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        let done = compressor.as_mut().map(|with| with.compress_to_buffer(raw, squeezed));
        let compressed = matches!(done, Some(Ok(length)) if length < raw.len() - raw.len() / 32);
        let bytes: &[u8] = if compressed { squeezed } else { raw };
        let stored = u32::try_from(bytes.len()).expect("it is no longer than the frame");
        let (digest, chunks) = (Id::of(bytes), std::mem::take(chunks));
        Frame { index: FrameIndex { stored, length, compressed, digest, chunks }, bytes }
    }
}

/// Level 1 with a larger table and longer steps: on trees of sources a tenth faster than without them, and
/// about as small.
fn compressor_of_frames() -> std::io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.set_parameter(CParameter::HashLog(16))?;
    compressor.set_parameter(CParameter::TargetLength(2))?;
    Ok(compressor)
}

/// How long the end of a pack with so many frames and chunks is at most.
pub(crate) fn longest_end(frames: usize, chunks: usize) -> u64 {
    // Numbers take five bytes at most, and what cannot be compressed gets a little longer.
    let index = 16 + 5 + frames * (5 + 5 + 1 + 32 + 5) + chunks * (1 + 5 + 32);
    (index + index / 128 + 1024 + FOOTER) as u64
}

/// The end of a pack: its index and its footer; and its id. No two packs have the same, also if the same is
/// in them, for each has a number of its own: so one that is put is never taken for one that is damaged or
/// about to be removed.
pub(crate) fn end_of(frames: &[FrameIndex], offset: u64, unique: [u8; 16]) -> (Vec<u8>, Id) {
    let mut index = unique.to_vec();
    put_number(&mut index, frames.len() as u64);
    for frame in frames {
        put_number(&mut index, u64::from(frame.stored));
        put_number(&mut index, u64::from(frame.length));
        index.push(u8::from(frame.compressed));
        index.extend_from_slice(&frame.digest.0);
        put_number(&mut index, frame.chunks.len() as u64);
        for chunk in &frame.chunks {
            index.push(chunk.kind.as_byte());
            put_number(&mut index, u64::from(chunk.length));
            index.extend_from_slice(&chunk.id.0);
        }
    }
    let id = Id::of(&index);
    let mut end = zstd::bulk::compress(&index, LEVEL).expect("memory is compressed to memory");
    let stored = u32::try_from(end.len()).expect("an index is smaller than a pack");
    let length = u32::try_from(index.len()).expect("an index is smaller than a pack");
    end.extend_from_slice(&offset.to_le_bytes());
    end.extend_from_slice(&stored.to_le_bytes());
    end.extend_from_slice(&length.to_le_bytes());
    end.extend_from_slice(&id.0);
    end.extend_from_slice(END);
    (end, id)
}

/// Where the index of a pack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) offset: u64,
    pub(crate) stored: u32,
    length: u32,
    id: Id,
}

impl Footer {
    /// Reads the last bytes of a pack of this size, which must be the pack with this id.
    pub(crate) fn read(bytes: &[u8], size: u64, id: Id) -> Result<Self, Malformed> {
        let start = bytes.len().checked_sub(FOOTER).ok_or(Malformed("it is too short"))?;
        let mut reader = Reader::new(&bytes[start..]);
        let offset = u64::from_le_bytes(reader.array()?);
        let stored = u32::from_le_bytes(reader.array()?);
        let length = u32::from_le_bytes(reader.array()?);
        let named = Id(reader.array()?);
        if reader.array()? != *END {
            return Err(Malformed("it does not end as a pack ends"));
        }
        if named != id {
            return Err(Malformed("it is another pack"));
        }
        let end = offset.checked_add(u64::from(stored) + FOOTER as u64);
        if end != Some(size) || size > MAX_PACK || length as usize > MAX_INDEX {
            return Err(Malformed("its index is not where it should be"));
        }
        Ok(Self { offset, stored, length, id })
    }

    /// Reads the index.
    pub(crate) fn index(&self, stored: &[u8]) -> Result<Vec<FrameIndex>, Malformed> {
        let index = zstd::bulk::decompress(stored, self.length as usize)
            .map_err(|_| Malformed("its index cannot be decompressed"))?;
        if index.len() != self.length as usize || Id::of(&index) != self.id {
            return Err(Malformed("its index is not the one that its name is made of"));
        }
        decode_index(&index, self.offset)
    }
}

pub(crate) fn decode_index(index: &[u8], offset: u64) -> Result<Vec<FrameIndex>, Malformed> {
    let mut reader = Reader::new(index);
    let [..]: [u8; 16] = reader.array()?;
    let mut frames = Vec::new();
    let (mut end, mut total) = (BEGIN.len() as u64, 0);
    for _ in 0..reader.count(MAX_CHUNKS)? {
        let stored = u32::try_from(reader.at_most(MAX_FRAME as u64)?).expect("it is small");
        let length = u32::try_from(reader.at_most(MAX_FRAME as u64)?).expect("it is small");
        let compressed = match reader.byte()? {
            0 if stored == length => false,
            1 => true,
            _ => return Err(Malformed("a frame is stored in no way that is known")),
        };
        let digest = Id(reader.array()?);
        let count = reader.count(MAX_CHUNKS)?;
        total += count;
        if total > MAX_CHUNKS {
            return Err(Malformed("it has too many chunks"));
        }
        let (mut chunks, mut sum) = (Vec::new(), 0);
        for _ in 0..count {
            let kind = ChunkKind::from_byte(reader.byte()?)?;
            let length = u32::try_from(reader.at_most(MAX_CHUNK as u64)?).expect("it is small");
            if length == 0 {
                return Err(Malformed("a chunk has no bytes"));
            }
            sum += u64::from(length);
            chunks.push(PackedChunk { kind, length, id: Id(reader.array()?) });
        }
        if sum != u64::from(length) {
            return Err(Malformed("a frame is not as long as its chunks"));
        }
        end += u64::from(stored);
        frames.push(FrameIndex { stored, length, compressed, digest, chunks });
    }
    if !reader.is_empty() || end != offset {
        return Err(Malformed("its frames do not fill it"));
    }
    Ok(frames)
}

/// Opens frames. What it takes to decompress is made when it is needed first, and used for every frame.
#[derive(Default)]
pub(crate) struct Opener(Option<Decompressor<'static>>);

impl Opener {
    fn decompress(&mut self, stored: &[u8], length: usize) -> std::io::Result<Vec<u8>> {
        let with = match &mut self.0 {
            Some(with) => with,
            none => none.insert(Decompressor::new()?),
        };
        with.decompress(stored, length)
    }

    /// The chunks of a frame, one after the other, from what is stored of it.
    pub(crate) fn open(
        &mut self,
        frame: &FrameIndex,
        stored: Vec<u8>,
    ) -> Result<Vec<u8>, Malformed> {
        if Id::of(&stored) != frame.digest {
            return Err(Malformed("a frame is not what it was"));
        }
        self.open_unchecked(frame, stored)
    }

    /// The same, for who compares each chunk with its id.
    pub(crate) fn open_unchecked(
        &mut self,
        frame: &FrameIndex,
        stored: Vec<u8>,
    ) -> Result<Vec<u8>, Malformed> {
        if stored.len() != frame.stored as usize {
            return Err(Malformed("a frame is not what it was"));
        }
        if !frame.compressed {
            return Ok(stored);
        }
        let bytes = self
            .decompress(&stored, frame.length as usize)
            .map_err(|_| Malformed("a frame cannot be decompressed"))?;
        if bytes.len() == frame.length as usize {
            Ok(bytes)
        } else {
            Err(Malformed("a frame is shorter than its chunks"))
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn pack(texts: &[&[u8]]) -> (Vec<u8>, Id, Vec<FrameIndex>) {
        let mut builder = FrameBuilder::default();
        let mut bytes = BEGIN.to_vec();
        let mut frames = Vec::new();
        for text in texts {
            builder.add(ChunkKind::Data, Id::of_chunk(ChunkKind::Data, text), text);
            let frame = builder.finish();
            bytes.extend_from_slice(frame.bytes);
            frames.push(frame.index);
        }
        let (end, id) = end_of(&frames, bytes.len() as u64, [7; 16]);
        bytes.extend_from_slice(&end);
        (bytes, id, frames)
    }

    fn read(bytes: &[u8], id: Id) -> Result<Vec<FrameIndex>, Malformed> {
        let footer = Footer::read(bytes, bytes.len() as u64, id)?;
        let offset = usize::try_from(footer.offset).map_err(|_| Malformed("far"))?;
        footer.index(&bytes[offset..offset + footer.stored as usize])
    }

    #[test]
    fn what_is_packed_is_found() {
        let long = "a line of text that repeats\n".repeat(1000);
        let (bytes, id, frames) = pack(&[b"short", long.as_bytes()]);
        assert_eq!(read(&bytes, id), Ok(frames.clone()));
        assert!(bytes.len() < long.len() / 4, "it is compressed");
        let first = 8 + frames[0].stored as usize;
        let stored = bytes[first..first + frames[1].stored as usize].to_vec();
        assert_eq!(Opener::default().open(&frames[1], stored).unwrap(), long.as_bytes());
    }

    #[test]
    fn whatever_byte_is_changed_is_noticed() {
        let (bytes, id, frames) = pack(&[b"one chunk of some length", b"and another one, too"]);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let Ok(read) = read(&changed, id) else { continue };
            assert_eq!(read, frames, "byte {at}");
            let mut begin = BEGIN.len();
            let broken = frames.iter().any(|frame| {
                let stored = changed[begin..begin + frame.stored as usize].to_vec();
                begin += frame.stored as usize;
                Opener::default().open(frame, stored).is_err()
            });
            assert!(broken || at < BEGIN.len(), "byte {at}");
        }
    }

    #[test]
    fn whatever_is_cut_off_is_noticed() {
        let (bytes, id, _) = pack(&[b"one chunk of some length", b"and another one, too"]);
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length], id).is_err(), "{length} bytes");
        }
    }
}
