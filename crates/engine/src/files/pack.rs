//! A tree as a bundle: `tar`, compressed.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{AtFlags, Mode, OFlags, readlinkat, unlinkat};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::archive::stays_inside;
use super::beneath::{Tree, modified, read_in, size_of};
use super::list::CACHES;
use super::path::FilePath;
use super::walk::{Found, Go, Kind};
use super::{FileError, MAX_BUNDLE_BYTES, MAX_FILES, MAX_UNPACKED_BYTES};

/// What is in no bundle: what can be made again, and what is most likely secret.
const LEFT_OUT: [&[u8]; 8] = [
    b"node_modules",
    b".git",
    b"__pycache__",
    b".DS_Store",
    b".env",
    b".env.local",
    b".env.production",
    b".env.development",
];

impl Tree {
    /// Packs the tree into a file without a name, which is open for reading from its beginning.
    /// Returns it with its size.
    ///
    /// Links that could lead out of the tree are left out. A file that changes meanwhile is packed as
    /// it was read.
    pub fn pack(&self) -> Result<(File, u64), FileError> {
        let file = self.nameless()?;
        let is_full = Cell::new(false);
        let capped = Capped { file: &file, left: MAX_BUNDLE_BYTES, is_full: &is_full };
        // Fast before small: most of it is kept for a moment only.
        let mut bundle = Builder::new(GzEncoder::new(capped, Compression::fast()));
        let packed = self.pack_into(&mut bundle).and_then(|()| {
            bundle.into_inner()?.finish()?;
            Ok(())
        });
        if is_full.get() {
            return Err(FileError::TooMuch("it has more than 100 MB when packed"));
        }
        packed?;
        let size = file.metadata()?.len();
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
        Ok((file, size))
    }

    fn pack_into<W: Write>(&self, bundle: &mut Builder<W>) -> Result<(), FileError> {
        let (mut entries, mut bytes) = (0, 0);
        let missed = self.walk(
            &FilePath::ROOT,
            |name| LEFT_OUT.contains(&name) || CACHES.contains(&name),
            |found| {
                entries += 1;
                if entries > MAX_FILES {
                    return Err(FileError::TooMuch("it has more than 100,000 entries"));
                }
                if found.kind == Kind::File {
                    bytes += size_of(&found.stat);
                }
                if bytes > MAX_UNPACKED_BYTES {
                    return Err(FileError::TooMuch("its files have more than 1 GB"));
                }
                match append(bundle, &found) {
                    // It has gone meanwhile, or is something else now.
                    Err(error) if error.is_raced() => Ok(Go::On),
                    appended => appended.map(|()| Go::On),
                }
            },
        )?;
        if missed.beyond {
            return Err(FileError::TooMuch("it has too many directories, or too deep ones"));
        }
        if missed.denied { Err(FileError::Denied) } else { Ok(()) }
    }

    /// A file that nobody can name, on the disk of the tree and not in it.
    fn nameless(&self) -> Result<File, FileError> {
        let mode = Mode::from_raw_mode(0o600);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let beside = rustix::fs::open(&self.beside, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        match rustix::fs::openat(&beside, ".", flags | OFlags::TMPFILE, mode) {
            // Not every file system can.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
            opened => return Ok(File::from(opened?)),
        }
        let mut random = [0; 12];
        getrandom::fill(&mut random).map_err(|error| FileError::Unavailable(error.into()))?;
        let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{}{name}", super::TEMPORARY);
        let flags = flags | OFlags::CREATE | OFlags::EXCL;
        let file = rustix::fs::openat(&beside, name.as_str(), flags, mode)?;
        unlinkat(&beside, name.as_str(), AtFlags::empty())?;
        Ok(File::from(file))
    }
}

/// Adds something to a bundle.
fn append<W: Write>(bundle: &mut Builder<W>, found: &Found<'_>) -> Result<(), FileError> {
    let path = found.path.as_path();
    let mut header = Header::new_gnu();
    let seconds = modified(&found.stat).as_millis() / 1_000;
    header.set_mtime(u64::try_from(seconds).unwrap_or_default());
    let can_run = found.stat.st_mode & 0o100 != 0;
    header.set_mode(if can_run { 0o755 } else { 0o644 });
    header.set_size(0);
    match found.kind {
        Kind::Directory => {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(0o755);
            let named = Path::new(path).join("");
            bundle.append_data(&mut header, named, io::empty())?;
        }
        Kind::Link => {
            let target = readlinkat(found.dir, found.path.name(), Vec::new())?;
            if !stays_inside(&found.path, target.as_bytes()) {
                return Ok(());
            }
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            let target = Path::new(std::ffi::OsStr::from_bytes(target.as_bytes()));
            bundle.append_link(&mut header, path, target)?;
        }
        Kind::File => {
            let opened = read_in(found.dir, found.path.name(), MAX_UNPACKED_BYTES)?;
            header.set_entry_type(EntryType::Regular);
            // What is said to be there has to come, also of a file that has become shorter.
            let size = size_of(&found.stat);
            header.set_size(size);
            let content = opened.file.chain(io::repeat(0)).take(size);
            bundle.append_data(&mut header, path, content)?;
        }
    }
    Ok(())
}

/// A file that takes no more than so many bytes.
struct Capped<'a> {
    file: &'a File,
    left: u64,
    is_full: &'a Cell<bool>,
}

impl Write for Capped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            self.is_full.set(true);
            return Err(io::Error::other("the bundle is too large"));
        }
        let written = self.file.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
