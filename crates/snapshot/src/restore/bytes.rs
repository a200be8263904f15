//! Whether files are what a snapshot says, by what is in them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use super::in_place::{InPlace, Newer, Target, Trust};
use super::plan::Meta;
use crate::capture::{Progress, path_of};
use crate::chunks::Chunks;
use crate::content::{Content, Item, MAX_CHUNK};
use crate::cut;
use crate::error::{Result, SnapshotError};
use crate::file::{self, Opened};
use crate::id::{ChunkKind, Id};
use crate::repository::Repository;
use crate::scan::{is_gone, open_below};
use crate::state::Stamp;

/// Something that looks right.
pub(super) struct Doubt {
    pub(super) path: Vec<u8>,
    pub(super) of: Of,
    pub(super) meta: Meta,
    /// Whether it is known to have been touched since it was captured.
    pub(super) changed: bool,
}

/// What looks right.
pub(super) enum Of {
    /// A directory: the so-manieth.
    Directory(usize),
    /// A file: what should be in it, and how it looked.
    File(Content, Stamp),
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    /// It has other attributes, or is something else by now.
    Differs,
    /// It has other bytes.
    OtherBytes,
}

impl Doubt {
    pub(super) fn directory(path: Vec<u8>, number: usize, meta: Meta) -> Self {
        Self { path, of: Of::Directory(number), meta, changed: false }
    }

    pub(super) fn file(path: Vec<u8>, content: Content, meta: Meta, stamp: Stamp) -> Self {
        Self { path, of: Of::File(content, stamp), meta, changed: false }
    }
}

/// Looks into everything, by several threads; also says how many bytes were read.
pub(super) fn decide(
    repository: &Repository,
    in_place: &InPlace<'_>,
    target: &Target,
    doubts: &[Doubt],
) -> Result<(Vec<Verdict>, u64)> {
    let (next, done, read) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let verdicts = Mutex::new(vec![Verdict::Differs; doubts.len()]);
    let failure = Mutex::new(None);
    let work = || -> Result<()> {
        let mut looking = Looking {
            chunks: Chunks::of(repository),
            target,
            in_place,
            buffer: Vec::new(),
            read: 0,
        };
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(doubt) = doubts.get(number) else { return Ok(()) };
            let (verdict, bytes) = looking.at(doubt)?;
            verdicts.lock().unwrap_or_else(PoisonError::into_inner)[number] = verdict;
            let progress = Progress {
                files: done.fetch_add(1, Ordering::Relaxed) + 1,
                all_files: doubts.len() as u64,
                bytes: read.fetch_add(bytes, Ordering::Relaxed) + bytes,
                all_bytes: 0,
            };
            if !(in_place.progress)(progress) {
                return Err(SnapshotError::Cancelled);
            }
        }
    };
    let run = || {
        if let Err(error) = work() {
            next.store(doubts.len(), Ordering::Relaxed);
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..in_place.threads.max(1) {
            scope.spawn(run);
        }
        run();
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => {
            let verdicts = verdicts.into_inner().unwrap_or_else(PoisonError::into_inner);
            Ok((verdicts, read.into_inner()))
        }
    }
}

struct Looking<'a> {
    chunks: Chunks<'a>,
    target: &'a Target,
    in_place: &'a InPlace<'a>,
    buffer: Vec<u8>,
    /// How many bytes of the file were read.
    read: u64,
}

impl Looking<'_> {
    fn at(&mut self, doubt: &Doubt) -> Result<(Verdict, u64)> {
        let Doubt { path, of, meta, changed } = doubt;
        let root = self.target.directory.as_fd();
        let failed = |error: io::Error| {
            SnapshotError::tree("read", self.in_place.root.path.join(path_of(path)))(error)
        };
        let (content, seen) = match of {
            Of::Directory(_) => {
                let found = open_below(root, path, OFlags::DIRECTORY);
                return match found.and_then(|at| file::attributes(at.as_fd())) {
                    Ok(found) if found == meta.attributes => Ok((Verdict::Same, 0)),
                    Ok(_) => Ok((Verdict::Differs, 0)),
                    Err(error) if is_gone(&error) => Ok((Verdict::Differs, 0)),
                    Err(error) => Err(failed(error)),
                };
            }
            Of::File(content, seen) => (content, seen),
        };
        let opened = match file::open(root, path).map_err(failed)? {
            Opened::File(opened, stamp) if stamp == *seen => opened,
            Opened::File(..) | Opened::Gone | Opened::Unreadable => {
                return Ok((Verdict::Differs, 0));
            }
        };
        let attributes = file::attributes(opened.as_fd()).map_err(failed)?;
        if attributes != meta.attributes && self.in_place.newer == Newer::Replace {
            return Ok((Verdict::Differs, 0));
        }
        if self.in_place.trust == Trust::Looks && !changed {
            return Ok((Verdict::Same, 0));
        }
        self.read = 0;
        let same = self.content(&opened, *content, &mut 0).map_err(|wrong| match wrong {
            Wrong::File(error) => failed(error),
            Wrong::Store(error) => error,
        })?;
        Ok((if same { Verdict::Same } else { Verdict::OtherBytes }, self.read))
    }

    /// Whether a file has these bytes from here on. Of the store only lists are read.
    fn content(
        &mut self,
        file: &File,
        content: Content,
        at: &mut u64,
    ) -> std::result::Result<bool, Wrong> {
        if content.size == 0 {
            return Ok(true);
        }
        if content.depth == 0 {
            let is_it = |bytes: &[u8]| Id::of_chunk(ChunkKind::Data, bytes) == content.id;
            return self.bytes(file, content.size, at, is_it);
        }
        for item in self.chunks.list(content).map_err(Wrong::Store)? {
            let same = match item {
                Item::Bytes(below) => self.content(file, below, at)?,
                Item::Zeros(size) => self.zeros(file, size, at)?,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a file has nothing but so many zeros from here on. Holes are not read.
    fn zeros(&mut self, file: &File, size: u64, at: &mut u64) -> std::result::Result<bool, Wrong> {
        let end = at.saturating_add(size);
        while *at < end {
            let data = match seek(file, SeekFrom::Data(*at)) {
                Ok(data) => data,
                // There is no data any more; it may have become shorter, too.
                Err(Errno::NXIO) => file.metadata().map_err(Wrong::File)?.len(),
                // This file system does not know.
                Err(Errno::INVAL) => *at,
                Err(error) => return Err(Wrong::File(error.into())),
            };
            if data >= end {
                *at = end;
                return Ok(true);
            }
            // A file that ends here is asked for more, and has none.
            *at = data.max(*at);
            let some = (end - *at).min(MAX_CHUNK as u64);
            if !self.bytes(file, some, at, cut::is_zero)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the next bytes of a file, no more than a chunk has.
    fn bytes(
        &mut self,
        file: &File,
        length: u64,
        at: &mut u64,
        are_right: impl FnOnce(&[u8]) -> bool,
    ) -> std::result::Result<bool, Wrong> {
        self.buffer.resize(usize::try_from(length).expect("a chunk is small"), 0);
        match file.read_exact_at(&mut self.buffer, *at) {
            Ok(()) => {
                *at += length;
                self.read += length;
                Ok(are_right(&self.buffer))
            }
            // It became shorter.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(Wrong::File(error)),
        }
    }
}

/// What could not be read.
enum Wrong {
    File(io::Error),
    Store(SnapshotError),
}
