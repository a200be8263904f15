//! A bundle as a directory again. Nothing is taken but what its manifest says comes next, and nothing after it.

use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::error::BundleError;
use super::manifest::{DIGEST, MANIFEST, MAX_MANIFEST, Manifest, Object, digest_line};
use super::ustar::{self, BLOCK};
use super::{MAX_BUNDLE, Room};

/// How much is read at once.
const PIECE: usize = 256 * 1024;

/// How much is written between two looks at the disk.
const STRETCH: u64 = 16 << 20;

/// Unpacks a bundle below a directory. Returns what it is of, and the digest of all its bytes. Blocks.
pub(super) fn unpack(
    from: impl Read,
    root: &Path,
    room: &Room,
) -> Result<(Manifest, [u8; 32]), BundleError> {
    let mut bundle = Reading { from, digest: blake3::Hasher::new(), read: 0 };
    let (first, described) = bundle.manifest()?;
    let manifest = Manifest::decode(&described)?;
    let time = manifest.seconds();
    let expected = ustar::header(MANIFEST, described.len() as u64, time);
    if expected != Some(first) {
        return Err(BundleError::damaged("it does not begin as bundles do"));
    }
    let line = digest_line(&described);
    bundle.expect_header(DIGEST, line.len() as u64, time)?;
    let mut found = vec![0; line.len()];
    bundle.fill(&mut found)?;
    if found != line.as_bytes() {
        return Err(BundleError::damaged("its manifest is not what its digest says"));
    }
    bundle.expect_padding(line.len() as u64)?;
    if !room.has(manifest.bytes()) {
        return Err(BundleError::NoRoom);
    }
    for object in &manifest.objects {
        bundle.expect_header(&object.name, object.bytes, time)?;
        bundle.object(object, root, room)?;
        bundle.expect_padding(object.bytes)?;
    }
    bundle.expect_end()?;
    Ok((manifest, *bundle.digest.finalize().as_bytes()))
}

struct Reading<R> {
    from: R,
    digest: blake3::Hasher,
    read: u64,
}

impl<R: Read> Reading<R> {
    /// Reads as many bytes as there is place for.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BundleError> {
        self.read += bytes.len() as u64;
        if self.read > MAX_BUNDLE {
            return Err(BundleError::TooLarge(MAX_BUNDLE));
        }
        match self.from.read_exact(bytes) {
            Ok(()) => {
                self.digest.update(bytes);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(BundleError::damaged("it ends too early"))
            }
            Err(error) => Err(BundleError::here(error)),
        }
    }

    fn block(&mut self) -> Result<[u8; BLOCK], BundleError> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        Ok(block)
    }

    /// The manifest, with its header.
    fn manifest(&mut self) -> Result<([u8; BLOCK], Vec<u8>), BundleError> {
        let first = self.block()?;
        let none = || BundleError::damaged("it does not begin as bundles do");
        let (name, size, _) = ustar::read(&first).ok_or_else(none)?;
        if name != MANIFEST || size > MAX_MANIFEST {
            return Err(none());
        }
        // As it comes: whoever says that it is long has to send it.
        let mut described = Vec::new();
        while (described.len() as u64) < size {
            let had = described.len();
            let left = size - had as u64;
            let more = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            described.resize(had + more, 0);
            self.fill(&mut described[had..])?;
        }
        self.expect_padding(size)?;
        Ok((first, described))
    }

    /// The header of the file that has to come next, and no other.
    fn expect_header(&mut self, name: &str, bytes: u64, time: u64) -> Result<(), BundleError> {
        match ustar::header(name, bytes, time) {
            Some(expected) if self.block()? == expected => Ok(()),
            Some(_) | None => {
                Err(BundleError::Damaged(format!("{name} is not where it should be")))
            }
        }
    }

    fn expect_padding(&mut self, bytes: u64) -> Result<(), BundleError> {
        let mut padding = [0; BLOCK];
        let padding = &mut padding[..ustar::padding(bytes)];
        self.fill(padding)?;
        if padding.iter().any(|&byte| byte != 0) {
            return Err(BundleError::damaged("there is something between its files"));
        }
        Ok(())
    }

    fn expect_end(&mut self) -> Result<(), BundleError> {
        let ends = self.block()? == [0; BLOCK] && self.block()? == [0; BLOCK];
        let after = self.from.read(&mut [0]).map_err(BundleError::here)?;
        if !ends || after != 0 {
            return Err(BundleError::damaged("there is something after its end"));
        }
        Ok(())
    }

    fn object(&mut self, object: &Object, root: &Path, room: &Room) -> Result<(), BundleError> {
        let Object { name, bytes, blake3 } = object;
        // One name may be the beginning of another: a file, and a directory.
        let taken = [io::ErrorKind::AlreadyExists, io::ErrorKind::NotADirectory];
        let unmakeable = |error: io::Error| {
            if taken.contains(&error.kind()) {
                return BundleError::Damaged(format!("{name} is no name for a file"));
            }
            BundleError::disk(error)
        };
        let path = root.join(name);
        let parent = path.parent().unwrap_or(root);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.map_err(unmakeable)?;
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = file.map_err(unmakeable)?;
        let mut digest = blake3::Hasher::new();
        let mut piece = vec![0; PIECE];
        let (mut left, mut unlooked) = (*bytes, 0);
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let piece = &mut piece[..length];
            self.fill(piece)?;
            digest.update(piece);
            file.write_all(piece).map_err(BundleError::disk)?;
            left -= length as u64;
            unlooked += length as u64;
            if unlooked >= STRETCH {
                unlooked = 0;
                if !room.has(left) {
                    return Err(BundleError::NoRoom);
                }
            }
        }
        if digest.finalize().to_hex().as_str() != blake3 {
            return Err(BundleError::Damaged(format!("{name} is not what its digest says")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod test;
