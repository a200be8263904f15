//! A file of the cache: a part of an object, with a digest of every block.
//!
//! ```text
//! payload, in blocks of 64 KiB (the last is shorter)
//! 32 bytes  BLAKE3 of each block
//! 8 bytes   length of the payload
//! 8 bytes   length of the whole object
//! 32 bytes  what it is: BLAKE3 of the store, the object, and the part of it
//! 32 bytes  BLAKE3 of everything after the payload
//! ```
//!
//! It is written aside and renamed, and not synced: what a power cut leaves of it does not add up, and
//! counts as nothing.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const BLOCK: usize = 64 * 1024;
const DIGEST: usize = 32;
/// What follows the digests of the blocks.
const TRAILER: usize = 8 + 8 + DIGEST + DIGEST;

/// What an entry is of.
pub(super) type Identity = [u8; DIGEST];

/// An entry that is being written. Dropped unfinished, it never was.
pub(super) struct NewEntry {
    file: File,
    path: PathBuf,
    digests: Vec<u8>,
    block: blake3::Hasher,
    /// How much of the block that is being written is there.
    filled: usize,
    /// How much was written.
    pub(super) length: u64,
}

impl NewEntry {
    pub(super) fn begin(path: PathBuf) -> io::Result<Self> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        let block = blake3::Hasher::new();
        Ok(Self { file, path, digests: Vec::new(), block, filled: 0, length: 0 })
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.block.update(now);
            self.filled += now.len();
            if self.filled == BLOCK {
                self.end_block();
            }
            bytes = rest;
        }
        Ok(())
    }

    fn end_block(&mut self) {
        if self.filled > 0 {
            self.digests.extend_from_slice(self.block.finalize().as_bytes());
            self.block.reset();
            self.filled = 0;
        }
    }

    /// Gives it its name; says how long the file is.
    pub(super) fn finish(
        mut self,
        identity: &Identity,
        size: Option<u64>,
        name: &Path,
    ) -> io::Result<u64> {
        self.end_block();
        let mut end = std::mem::take(&mut self.digests);
        end.extend_from_slice(&self.length.to_le_bytes());
        end.extend_from_slice(&size.unwrap_or(self.length).to_le_bytes());
        end.extend_from_slice(identity);
        end.extend_from_slice(blake3::hash(&end).as_bytes());
        self.file.write_all(&end)?;
        fs::rename(&self.path, name)?;
        Ok(self.length + end.len() as u64)
    }
}

impl Drop for NewEntry {
    fn drop(&mut self) {
        // Gone already if it has its name; what stays behind is evicted one day.
        let _left_behind = fs::remove_file(&self.path);
    }
}

/// An entry that was found.
pub(super) struct Entry {
    file: File,
    digests: Vec<u8>,
    /// How long the part is.
    pub(super) length: u64,
    /// How long the whole object is.
    pub(super) size: u64,
}

impl Entry {
    /// Opens an entry, if there is one. It is used now, and evicted later than others.
    pub(super) fn open(path: &Path, identity: &Identity) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let all = file.metadata()?.len();
        let mut trailer = [0; TRAILER];
        let trailer_at = all.checked_sub(TRAILER as u64).ok_or_else(damaged)?;
        file.read_exact_at(&mut trailer, trailer_at)?;
        let number = |at: usize| {
            let bytes = trailer[at..at + 8].try_into().expect("eight bytes are eight bytes");
            u64::from_le_bytes(bytes)
        };
        let (length, size) = (number(0), number(8));
        let digests = length.div_ceil(BLOCK as u64).checked_mul(DIGEST as u64);
        let expected = digests.and_then(|digests| digests.checked_add(length));
        if expected != Some(trailer_at) || trailer[16..48] != identity[..] {
            return Err(damaged());
        }
        let digests = usize::try_from(trailer_at - length).map_err(io::Error::other)?;
        let mut end = vec![0; digests];
        file.read_exact_at(&mut end, length)?;
        end.extend_from_slice(&trailer[..48]);
        if blake3::hash(&end).as_bytes()[..] != trailer[48..] {
            return Err(damaged());
        }
        end.truncate(digests);
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        rustix::fs::futimens(&file, &times)?;
        Ok(Some(Self { file, digests: end, length, size }))
    }

    /// Some bytes of the part, fewer only where it ends; each is what was written.
    pub(super) fn read(&self, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let offset = offset.min(self.length);
        let end = offset.saturating_add(length).min(self.length);
        if offset == end {
            return Ok(Vec::new());
        }
        let block = BLOCK as u64;
        let (first, last) = (offset / block, end.div_ceil(block));
        let (from, to) = (first * block, (last * block).min(self.length));
        let mut bytes = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, from)?;
        let skipped = usize::try_from(first).map_err(io::Error::other)? * DIGEST;
        let digests = self.digests[skipped..].chunks(DIGEST);
        for (block, digest) in bytes.chunks(BLOCK).zip(digests) {
            if blake3::hash(block).as_bytes()[..] != *digest {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        bytes.truncate(usize::try_from(end - from).map_err(io::Error::other)?);
        bytes.drain(..usize::try_from(offset - from).map_err(io::Error::other)?);
        Ok(bytes)
    }
}
