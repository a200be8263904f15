//! Large files: each is written by several threads, a run of its segments each.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::ftruncate;

use super::make::Making;
use super::plan::ToMake;
use crate::content::{Content, Item};
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
        let work = || -> Result<()> {
            let mut chunks = Chunks::of(self.repository);
            let mut buffer = Vec::with_capacity(2 * AT_ONCE);
            loop {
                let from = next.fetch_add(RUN, Ordering::Relaxed);
                let to = segments.len().min(from.saturating_add(RUN));
                let Some(run) = segments.get(from..to) else { return Ok(()) };
                for &(at, content) in run {
                    self.segment(file, made, at, content, &mut chunks, &mut buffer)?;
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
        made: &File,
        mut at: u64,
        content: Content,
        chunks: &mut Chunks<'_>,
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let failed = self.failed("write", &file.path);
        buffer.clear();
        let mut write = |buffer: &mut Vec<u8>, beside: u64| -> Result<()> {
            made.write_all_at(buffer, at).map_err(&failed)?;
            at += buffer.len() as u64 + beside;
            buffer.clear();
            Ok(())
        };
        chunks.each(ChunkKind::Data, content, &mut |part| match part {
            Part::Bytes(bytes) => {
                buffer.extend_from_slice(bytes);
                if buffer.len() < AT_ONCE { Ok(()) } else { write(buffer, 0) }
            }
            // What is not written is zero.
            Part::Zeros(size) => write(buffer, size),
        })?;
        write(buffer, 0)
    }
}
