//! What must hold of the decoders for any bytes at all: they are read and are the one spelling of
//! what was read, or refused, in bounded memory. The fuzz targets of `crates/snapshot/fuzz` run this,
//! and the tests run it on the corpus.

use crate::content::{Content, Item, decode_list, encode_list};
use crate::id::Id;
use crate::pack::{self, FOOTER, Footer, Opener};
use crate::snapshot::{Snapshot, SnapshotId};
use crate::tree;

/// How many names a directory may have here.
const NAMES: usize = 1000;

/// Reads bytes as everything that a manifest is made of; returns whether they are any of it.
pub fn manifest(bytes: &[u8]) -> bool {
    let directory = tree::decode(bytes, NAMES).ok().flatten();
    if let Some(entries) = &directory {
        assert!(entries.len() <= NAMES, "no more names than asked for");
        assert_eq!(tree::encode(entries), bytes, "a directory has one spelling");
    }
    // A list is read for a content, which says how long all of it is and how deep: from the end.
    let list = bytes.split_last_chunk::<9>().and_then(|(list, said)| {
        let size = u64::from_le_bytes(*said.first_chunk()?);
        let content = Content { size, depth: said[8], id: Id::ZERO };
        decode_list(list, content).ok().map(|items| (list, size, items))
    });
    if let Some((list, size, items)) = &list {
        assert_eq!(items.iter().map(Item::size).sum::<u64>(), *size, "lengths add up");
        assert_eq!(encode_list(items), *list, "a list has one spelling");
    }
    // Only the digest would keep the rest from being read.
    let id = SnapshotId::from_bytes([7; 16]);
    let digest = format!("\n{}", Id::of(bytes));
    let record = Snapshot::decode(&[bytes, digest.as_bytes()].concat(), id);
    if let Ok(snapshot) = &record {
        assert_eq!(snapshot.id, id, "a record is that of its name");
    }
    directory.is_some() || list.is_some() || record.is_ok()
}

/// Reads bytes as a pack, and as the index of one; returns whether they are either.
pub fn pack(bytes: &[u8]) -> bool {
    // An index is read for a pack, of which it begins so far from the start: from the end.
    let index = bytes.split_last_chunk::<4>().and_then(|(index, offset)| {
        let offset = u64::from(u32::from_le_bytes(*offset));
        pack::decode_index(index, offset).ok().map(|frames| (frames, offset))
    });
    if let Some((frames, offset)) = &index {
        let stored: u64 = frames.iter().map(|frame| u64::from(frame.stored)).sum();
        assert_eq!(stored + pack::BEGIN.len() as u64, *offset, "frames fill a pack");
    }
    index.is_some() || whole(bytes).is_some()
}

/// Reads a pack as one whose name is what it says.
fn whole(bytes: &[u8]) -> Option<()> {
    let (_, footer) = bytes.split_last_chunk::<FOOTER>()?;
    let id = Id(*footer[16..].first_chunk()?);
    let footer = Footer::read(bytes, bytes.len() as u64, id).ok()?;
    let begin = usize::try_from(footer.offset).ok()?;
    let frames = footer.index(&bytes[begin..][..footer.stored as usize]).ok()?;
    let (mut at, mut opener) = (pack::BEGIN.len(), Opener::default());
    for frame in frames {
        let stored = bytes[at..][..frame.stored as usize].to_vec();
        at += stored.len();
        if let Ok(opened) = opener.open(&frame, stored) {
            let chunks: u64 = frame.chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
            assert_eq!(opened.len() as u64, chunks, "a frame is its chunks");
        }
    }
    Some(())
}

#[cfg(test)]
mod test {
    use std::path::Path;

    use super::*;

    /// Runs a decoder on every seed of its corpus. Those called `right` are read.
    fn replay(corpus: &str, decoder: fn(&[u8]) -> bool) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(corpus);
        let mut seeds = 0;
        for seed in std::fs::read_dir(path).unwrap() {
            let seed = seed.unwrap();
            let hex: String = std::fs::read_to_string(seed.path()).unwrap();
            let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
            let byte =
                |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
            let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
            let name = seed.file_name().into_string().unwrap();
            assert_eq!(decoder(&bytes), name.starts_with("right"), "{name}");
            seeds += 1;
        }
        assert!(seeds >= 4, "{seeds} seeds");
    }

    #[test]
    fn every_seed_of_a_manifest_is_read_or_refused() {
        replay("manifest", manifest);
    }

    #[test]
    fn every_seed_of_a_pack_is_read_or_refused() {
        replay("pack", pack);
    }
}
