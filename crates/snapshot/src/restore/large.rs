//! Large files: each is written by several threads, a run of its segments each.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::ftruncate;

use super::make::{HOLE, Making};
use super::plan::ToMake;
use crate::content::{Content, Item};
use crate::cut;
use crate::error::Result;
use crate::id::ChunkKind;
use crate::repository::{Chunks, Part};
use crate::writer;

/// How many segments a thread takes at a time: their frames are opened once.
const RUN: usize = 8;

/// How many segments are known at a time: those of some gigabytes.
const KNOWN: usize = 4096;

/// How many bytes are written at once, about.
const AT_ONCE: usize = 1024 * 1024;

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
            let mut buffer = Vec::with_capacity(2 * AT_ONCE);
            loop {
                let from = next.fetch_add(RUN, Ordering::Relaxed);
                let to = segments.len().min(from.saturating_add(RUN));
                let Some(run) = segments.get(from..to) else { return Ok(()) };
                for &(at, content) in run {
                    self.segment(file, &pen, at, content, &mut chunks, &mut buffer)?;
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
        mut at: u64,
        content: Content,
        chunks: &mut Chunks<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let failed = self.failed("write", &file.path);
        buffer.clear();
        let mut write = |buffer: &mut Vec<u8>, beside: u64| -> Result<()> {
            let written = buffer.len() as u64;
            pen.write(at, buffer).map_err(&failed)?;
            at += written + beside;
            Ok(())
        };
        // Zeros after what is in the buffer: written only where they are too few for a hole.
        let mut zeros = 0;
        chunks.each(ChunkKind::Data, content, &mut |part| match part {
            Part::Bytes(bytes) if cut::is_zero(bytes) => {
                zeros += bytes.len();
                Ok(())
            }
            Part::Bytes(bytes) => {
                if zeros >= HOLE {
                    write(buffer, zeros as u64)?;
                } else {
                    buffer.resize(buffer.len() + zeros, 0);
                }
                zeros = 0;
                buffer.extend_from_slice(bytes);
                if buffer.len() < AT_ONCE { Ok(()) } else { write(buffer, 0) }
            }
            // What is not written is zero.
            Part::Zeros(size) => {
                let size = size + std::mem::take(&mut zeros) as u64;
                write(buffer, size)
            }
        })?;
        // The file is as long as it should be already.
        write(buffer, zeros as u64)
    }
}

/// How many buffers may wait for whoever writes.
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
    waiting: Vec<(u64, Vec<u8>)>,
    empty: Vec<Vec<u8>>,
}

impl<'a> Pen<'a> {
    fn of(file: &'a File) -> Self {
        Self { file, desk: Mutex::default(), less: Condvar::new() }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes bytes, or has them written. The buffer is empty then.
    fn write(&self, at: u64, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        let mut desk = self.desk();
        while desk.is_writing && desk.waiting.len() >= MAY_WAIT {
            desk = self.less.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
        let empty = desk.empty.pop().unwrap_or_else(|| Vec::with_capacity(2 * AT_ONCE));
        desk.waiting.push((at, std::mem::replace(buffer, empty)));
        if desk.is_writing {
            return Ok(());
        }
        desk.is_writing = true;
        let mut written = Ok(());
        while let Some((at, mut bytes)) = desk.waiting.pop() {
            drop(desk);
            // After a failure they are only cleared away: nobody may wait for ever.
            written = written.and_then(|()| self.file.write_all_at(&bytes, at));
            bytes.clear();
            desk = self.desk();
            desk.empty.push(bytes);
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
                    let mut buffer = Vec::new();
                    for number in (thread..THREADS * EACH).step_by(THREADS) {
                        buffer.resize(1000, u8::try_from(number % 251).expect("it is small"));
                        let written = pen.write(number as u64 * 1000, &mut buffer);
                        assert!(buffer.is_empty(), "what is left would be written again");
                        failed.lock().unwrap().push(written);
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
