//! Large files: each is written by several threads, a run of its segments each.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::ftruncate;

use super::make::{HOLE, Making};
use super::plan::ToMake;
use crate::chunks::{Chunks, Part, Slice};
use crate::content::{Content, Item};
use crate::cut;
use crate::error::Result;
use crate::id::ChunkKind;
use crate::writer;

/// How many segments a thread takes at a time: their frames are opened once.
const RUN: usize = 8;

/// How many segments are known at a time: those of some gigabytes.
const KNOWN: usize = 4096;

/// How many bytes are written at once, about; and of how many in frames at most, about.
const AT_ONCE: usize = 1024 * 1024;
const MAX_KEPT: usize = 4 * 1024 * 1024;

/// Whether something is written by several threads.
pub(super) fn is_large(content: Content) -> bool {
    content.depth > 1 && writer::is_large(content.size)
}

/// Parts of a file, each with where it begins.
type Segments = Vec<(u64, Content)>;

impl Making<'_> {
    /// Writes everything that is in a large file; `tell` is called with how many bytes were written.
    pub(super) fn large(
        &self,
        file: &ToMake,
        made: &File,
        tell: &(dyn Fn(u64) -> Result<()> + Sync),
    ) -> Result<()> {
        let failed = self.failed("write", &file.path);
        ftruncate(made, file.content.size).map_err(|error| failed(error.into()))?;
        let mut chunks = Chunks::of(self.repository);
        // Lists that are not done with: each from its end on, with where the rest of it begins.
        let mut segments = Segments::new();
        let mut at = 0;
        let mut above = vec![Item::Bytes(file.content)];
        while let Some(item) = above.pop() {
            match item {
                Item::Bytes(content) if content.depth > 1 => {
                    above.extend(chunks.list(content)?.into_iter().rev());
                }
                Item::Bytes(content) => {
                    segments.push((at, content));
                    at += content.size;
                }
                Item::Zeros(size) => at += size,
            }
            if segments.len() == KNOWN {
                self.segments(file, made, &segments, tell)?;
                segments.clear();
            }
        }
        self.segments(file, made, &segments, tell)
    }

    fn segments(
        &self,
        file: &ToMake,
        made: &File,
        segments: &Segments,
        tell: &(dyn Fn(u64) -> Result<()> + Sync),
    ) -> Result<()> {
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        let pen = Pen::of(made);
        let work = || -> Result<()> {
            let mut chunks = Chunks::of(self.repository);
            loop {
                let from = next.fetch_add(RUN, Ordering::Relaxed);
                let to = segments.len().min(from.saturating_add(RUN));
                let Some(run) = segments.get(from..to) else { return Ok(()) };
                for &(at, content) in run {
                    self.segment(file, &pen, at, content, &mut chunks)?;
                    tell(content.size)?;
                }
            }
        };
        let run = || {
            if let Err(error) = work() {
                // The others stop at the end of what they have.
                next.store(segments.len(), Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads().min(segments.len().div_ceil(RUN)) {
                scope.spawn(run);
            }
            run();
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn segment(
        &self,
        file: &ToMake,
        pen: &Pen<'_>,
        at: u64,
        content: Content,
        chunks: &mut Chunks<'_>,
    ) -> Result<()> {
        let failed = self.failed("write", &file.path);
        let mut batch = Batch::at(at);
        chunks.each(ChunkKind::Data, content, &mut |part| {
            match part {
                Part::Zeros(size) => batch.skip(size),
                Part::Bytes(bytes) if cut::is_zero(&bytes) => batch.add_zeros(bytes),
                Part::Bytes(bytes) => batch.add(bytes),
            }
            if batch.is_full() { pen.write(batch.take()).map_err(&failed) } else { Ok(()) }
        })?;
        // The file is as long as it should be already.
        pen.write(batch.take()).map_err(&failed)
    }
}

/// Bytes that are written at once, each with where in the file. They are not copied: their frames are kept until
/// they are written.
#[derive(Default)]
struct Batch {
    /// Where what is added next belongs.
    end: u64,
    slices: Vec<(u64, Slice)>,
    /// Zeros before that, with how many they are: written only where they are too few for a hole.
    zeros: (Vec<Slice>, usize),
    /// How many bytes are to be written, and how many are kept for them.
    bytes: usize,
    kept: usize,
}

impl Batch {
    fn at(end: u64) -> Self {
        Self { end, ..Self::default() }
    }

    /// What is not written is zero.
    fn skip(&mut self, size: u64) {
        let (_, zeros) = std::mem::take(&mut self.zeros);
        self.end += zeros as u64 + size;
    }

    fn add_zeros(&mut self, zeros: Slice) {
        self.zeros.1 += zeros.len();
        // More of them are a hole, whatever follows.
        if self.zeros.1 < HOLE {
            self.zeros.0.push(zeros);
        }
    }

    fn add(&mut self, slice: Slice) {
        if self.zeros.1 >= HOLE {
            self.skip(0);
        }
        let (zeros, _) = std::mem::take(&mut self.zeros);
        zeros.into_iter().for_each(|zeros| self.push(zeros));
        self.push(slice);
    }

    fn push(&mut self, slice: Slice) {
        let (at, length) = (self.end, slice.len());
        self.end += length as u64;
        self.bytes += length;
        let slice = match self.slices.last_mut() {
            Some((begin, last)) if *begin + last.len() as u64 == at => last.join(slice),
            Some(_) | None => Some(slice),
        };
        let Some(slice) = slice else { return };
        if !self.slices.iter().any(|(_, other)| other.is_of(&slice)) {
            self.kept += slice.kept_bytes();
        }
        self.slices.push((at, slice));
    }

    fn is_full(&self) -> bool {
        self.bytes >= AT_ONCE || self.kept >= MAX_KEPT
    }

    /// What is there; what is added next begins anew.
    fn take(&mut self) -> Self {
        let next =
            Self { end: self.end, zeros: std::mem::take(&mut self.zeros), ..Self::default() };
        std::mem::replace(self, next)
    }

    fn write(&self, file: &File) -> std::io::Result<()> {
        self.slices.iter().try_for_each(|(at, slice)| file.write_all_at(slice, *at))
    }
}

/// How many batches may wait for whoever writes.
const MAY_WAIT: usize = 6;

/// Writes to one file for several threads. A file is written by one at a time, and the system lets the others
/// turn in circles meanwhile. So who finds another one writing leaves its bytes to it, and goes on.
struct Pen<'a> {
    file: &'a File,
    desk: Mutex<Desk>,
    less: Condvar,
}

#[derive(Default)]
struct Desk {
    is_writing: bool,
    waiting: Vec<Batch>,
}

impl<'a> Pen<'a> {
    fn of(file: &'a File) -> Self {
        Self { file, desk: Mutex::default(), less: Condvar::new() }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes bytes, or has them written.
    fn write(&self, batch: Batch) -> std::io::Result<()> {
        let mut desk = self.desk();
        while desk.is_writing && desk.waiting.len() >= MAY_WAIT {
            desk = self.less.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
        desk.waiting.push(batch);
        if desk.is_writing {
            return Ok(());
        }
        desk.is_writing = true;
        let mut written = Ok(());
        while let Some(batch) = desk.waiting.pop() {
            drop(desk);
            // After a failure they are only cleared away: nobody may wait for ever.
            written = written.and_then(|()| batch.write(self.file));
            drop(batch);
            desk = self.desk();
            self.less.notify_one();
        }
        desk.is_writing = false;
        written
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const THREADS: usize = 4;
    const EACH: usize = 200;

    /// What each thread writes at its places: a number of its own, as many times as the place is long.
    fn write_all(pen: &Pen<'_>) -> Vec<std::io::Result<()>> {
        let failed = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let failed = &failed;
                scope.spawn(move || {
                    for number in (thread..THREADS * EACH).step_by(THREADS) {
                        let bytes = vec![u8::try_from(number % 251).expect("it is small"); 1000];
                        let mut batch = Batch::at(number as u64 * 1000);
                        batch.add(Slice::of(bytes));
                        failed.lock().unwrap().push(pen.write(batch));
                    }
                });
            }
        });
        failed.into_inner().unwrap()
    }

    #[test]
    fn what_several_write_is_all_there() {
        let file = tempfile::tempfile().unwrap();
        let written = write_all(&Pen::of(&file));
        assert!(written.iter().all(std::io::Result::is_ok), "{written:?}");
        let mut bytes = vec![0; THREADS * EACH * 1000];
        file.read_exact_at(&mut bytes, 0).unwrap();
        for (number, part) in bytes.chunks(1000).enumerate() {
            assert!(part.iter().all(|&byte| usize::from(byte) == number % 251), "{number}");
        }
    }

    #[test]
    fn a_failure_is_told_and_keeps_nobody_waiting() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let only_read = File::open(file.path()).unwrap();
        let written = write_all(&Pen::of(&only_read));
        assert_eq!(written.len(), THREADS * EACH);
        assert!(written.iter().any(std::io::Result::is_err));
    }
}
