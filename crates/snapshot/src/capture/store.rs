//! Storing a tree: the files that changed, by several threads.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

use rustix::fs::OFlags;

use super::plan::{self, Name, Plan, ToRead};
use super::trees::Trees;
use super::{Capture, OpenRoot, Progress, Took, path_of};
use crate::content::{Content, Item};
use crate::error::{Result, SnapshotError};
use crate::file::{self, ATTEMPTS, Found, Opened, Piece, Pieces};
use crate::id::ChunkKind;
use crate::scan::{Skipped, is_gone, open_below};
use crate::snapshot::Tree;
use crate::state::{KnownTree, Stamp};
use crate::tree::Modified;
use crate::writer::{Cutter, Writer, is_large};

/// How much work one thread takes at a time.
const JOB_BYTES: u64 = 1024 * 1024;
const JOB_FILES: usize = 128;

/// What came of storing a tree.
pub(crate) struct Stored {
    /// Without its name and mode.
    pub(crate) tree: Tree,
    pub(crate) known: KnownTree,
    pub(crate) skipped: Skipped,
    pub(crate) unstable: Vec<String>,
    /// Paths that were found, and could not be read.
    pub(crate) unreadable: Vec<Vec<u8>>,
    /// Paths with attributes that are not kept.
    pub(crate) stripped: Vec<Vec<u8>>,
}

/// A file that was stored.
#[derive(Debug)]
pub(super) struct StoredFile {
    pub(super) content: Content,
    pub(super) stamp: Stamp,
    pub(super) attributes: Found,
    pub(super) stable: bool,
}

/// What came of a file.
pub(super) enum Outcome {
    Stored(StoredFile),
    Gone,
    Unreadable,
}

/// Stores what changed in a tree.
pub(crate) fn store(
    writer: &Writer<'_>,
    capture: &Capture<'_>,
    open: &OpenRoot,
    plan: Plan,
    known: &KnownTree,
    began: Modified,
    took: &mut Took,
) -> Result<Stored> {
    let Plan { mut reads, mut links } = plan;
    let begin = Instant::now();
    let mut outcomes = Outcomes::new();
    while !reads.is_empty() {
        outcomes.extend(Files::new(writer, capture, open, &reads).store(reads)?);
        // A name may be gone by now, or be that of another file: what it was has other names still.
        reads = plan::tie_anew(&open.scanned, &mut links, |name| is_lost(open, &outcomes, name));
    }
    took.store += begin.elapsed();
    let begin = Instant::now();
    let (unreadable, stripped) = Default::default();
    let outcomes = &outcomes;
    let trees = Trees { open, known, links: &links, outcomes, began, unreadable, stripped };
    let stored = trees.store(&mut Cutter::of(writer));
    took.trees += begin.elapsed();
    stored
}

/// Whether what was read at a name is not the file that was found there.
fn is_lost(open: &OpenRoot, outcomes: &Outcomes, name: Name) -> bool {
    let (directory, entry) = name;
    let found = &open.scanned.directories[directory].entries[entry];
    match outcomes.get(&name) {
        Some(Outcome::Stored(stored)) => stored.stamp.file() != found.stamp.file(),
        Some(Outcome::Gone | Outcome::Unreadable) => true,
        // It is known, and was not read.
        None => false,
    }
}

fn size_of(open: &OpenRoot, read: &ToRead) -> u64 {
    open.scanned.directories[read.directory].entries[read.entry].stamp.size
}

/// Files that are being stored.
struct Files<'a, 'w> {
    writer: &'w Writer<'a>,
    capture: &'w Capture<'w>,
    open: &'w OpenRoot,
    all: u64,
    all_bytes: u64,
    files: AtomicU64,
    bytes: AtomicU64,
    stopped: AtomicBool,
}

/// Something for a thread to do.
enum Job {
    /// Read and store these.
    Files(Vec<ToRead>),
    /// Store this segment of a large file, and say so here.
    Segment(Vec<u8>, usize, Told),
}

/// Where it is said what the so-manieth segment was stored as.
type Told = mpsc::Sender<(usize, Content)>;

/// Gives a segment to somebody who stores it, with its number.
type GiveSegment<'a> = dyn FnMut(Vec<u8>, usize, &Told) -> Result<()> + 'a;

pub(super) type Outcomes = HashMap<Name, Outcome>;

impl<'a, 'w> Files<'a, 'w> {
    fn new(
        writer: &'w Writer<'a>,
        capture: &'w Capture<'w>,
        open: &'w OpenRoot,
        reads: &[ToRead],
    ) -> Self {
        let size = |read: &ToRead| size_of(open, read);
        Self {
            writer,
            capture,
            open,
            all: reads.len() as u64,
            all_bytes: reads.iter().map(size).fold(0, u64::saturating_add),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    fn size(&self, read: &ToRead) -> u64 {
        size_of(self.open, read)
    }

    fn store(&self, reads: Vec<ToRead>) -> Result<Outcomes> {
        let outcomes = Mutex::new(Outcomes::new());
        let failure = Mutex::new(None);
        let threads = self.capture.threads.max(1);
        let (jobs, taken) = mpsc::sync_channel::<Job>(threads * 2);
        let taken = Mutex::new(taken);
        std::thread::scope(|scope| {
            // One more, as one may wait until a pack is durable.
            for _ in 0..=threads {
                scope.spawn(|| {
                    // Whoever fails or panics: nobody may be left to wait for the queue.
                    let work = AssertUnwindSafe(|| self.work(&taken, &outcomes));
                    let done = catch_unwind(work);
                    if !matches!(done, Ok(Ok(()))) {
                        self.stopped.store(true, Ordering::Relaxed);
                        while taken.lock().unwrap_or_else(PoisonError::into_inner).recv().is_ok() {}
                    }
                    match done {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => note(&failure, error),
                        Err(panic) => resume_unwind(panic),
                    }
                });
            }
            let fed = self.feed(reads, &jobs, &outcomes);
            drop(jobs);
            if let Err(error) = fed {
                note(&failure, error);
            }
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Hands out work: files in runs, and large files piece by piece.
    fn feed(
        &self,
        reads: Vec<ToRead>,
        jobs: &mpsc::SyncSender<Job>,
        outcomes: &Mutex<Outcomes>,
    ) -> Result<()> {
        let (mut run, mut bytes) = (Vec::new(), 0);
        let mut large = Vec::new();
        for read in reads {
            self.go_on()?;
            let size = self.size(&read);
            if is_large(size) {
                large.push(read);
                continue;
            }
            bytes += size;
            run.push(read);
            if bytes >= JOB_BYTES || run.len() >= JOB_FILES {
                hand_out(jobs, Job::Files(std::mem::take(&mut run)))?;
                bytes = 0;
            }
        }
        hand_out(jobs, Job::Files(run))?;
        for read in large {
            // Whoever is free takes the next segment.
            let mut segment = |bytes, number, told: &Told| {
                hand_out(jobs, Job::Segment(bytes, number, told.clone()))
            };
            let at = (read.directory, read.entry);
            let outcome = match read.preloaded {
                Some(found) => self.found(found, at, &mut segment)?,
                None => self.large(at, &mut segment)?,
            };
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.insert(at, outcome);
        }
        Ok(())
    }

    fn go_on(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) { Err(SnapshotError::Cancelled) } else { Ok(()) }
    }

    fn work(&self, jobs: &Mutex<mpsc::Receiver<Job>>, outcomes: &Mutex<Outcomes>) -> Result<()> {
        let mut cutter = Cutter::of(self.writer);
        let mut hand = Hand::default();
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            match job {
                Ok(Job::Files(files)) => {
                    let mut done = Vec::with_capacity(files.len());
                    for read in files {
                        let at = (read.directory, read.entry);
                        done.push((at, self.small(read, &mut cutter, &mut hand)?));
                    }
                    let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                    outcomes.extend(done);
                }
                Ok(Job::Segment(bytes, number, told)) => {
                    let stored = cutter.segment(&bytes)?;
                    self.count(0, bytes.len() as u64)?;
                    // Whoever gave up on the file does not want to know.
                    let _told = told.send((number, stored));
                }
                Err(mpsc::RecvError) => return cutter.flush(),
            }
        }
    }

    fn small(&self, read: ToRead, cutter: &mut Cutter<'_, '_>, hand: &mut Hand) -> Result<Outcome> {
        let found = match read.preloaded {
            Some(found) => found,
            None => {
                let reading = &self.writer.efforts.reading;
                let found = reading.of(|| hand.read(self.open, read.directory, read.entry));
                found.map_err(|error| {
                    let path = plan::path(&self.open.scanned, read.directory, read.entry);
                    SnapshotError::tree("read", self.open.given.join(path_of(&path)))(error)
                })?
            }
        };
        match found {
            file::Read::Bytes { bytes, stamp, attributes, stable }
                if !is_large(bytes.len() as u64) =>
            {
                let content = cutter.whole(ChunkKind::Data, &bytes)?;
                self.count(1, bytes.len() as u64)?;
                hand.spare = bytes;
                Ok(Outcome::Stored(StoredFile { content, stamp, attributes, stable }))
            }
            // It was not large when it was found. The others are not asked to help.
            found @ (file::Read::Bytes { .. }
            | file::Read::Large
            | file::Read::Gone
            | file::Read::Unreadable) => {
                self.found(found, (read.directory, read.entry), &mut |bytes, number, told| {
                    let stored = cutter.segment(&bytes)?;
                    self.count(0, bytes.len() as u64)?;
                    told.send((number, stored)).map_err(|_| SnapshotError::Cancelled)
                })
            }
        }
    }

    /// Stores what was read of a file, however large it is.
    fn found(&self, found: file::Read, at: Name, segment: &mut GiveSegment<'_>) -> Result<Outcome> {
        let (bytes, stamp, attributes, stable) = match found {
            file::Read::Bytes { bytes, stamp, attributes, stable } => {
                (bytes, stamp, attributes, stable)
            }
            file::Read::Large => return self.large(at, segment),
            file::Read::Gone => return Ok(Outcome::Gone),
            file::Read::Unreadable => return Ok(Outcome::Unreadable),
        };
        let content = if is_large(bytes.len() as u64) {
            let failed = |error| SnapshotError::tree("read", &self.open.path)(error);
            self.pieces(Pieces::of_bytes(&bytes), segment, &failed)?
        } else {
            let mut cutter = Cutter::of(self.writer);
            let content = cutter.whole(ChunkKind::Data, &bytes)?;
            cutter.flush()?;
            self.count(1, bytes.len() as u64)?;
            content
        };
        Ok(Outcome::Stored(StoredFile { content, stamp, attributes, stable }))
    }

    /// Stores a large file: each segment is given to `segment` with its number, and what it was stored
    /// as is told.
    fn large(&self, at: Name, segment: &mut GiveSegment<'_>) -> Result<Outcome> {
        let (directory, entry) = at;
        let path = plan::path(&self.open.scanned, directory, entry);
        let shown = self.open.given.join(path_of(&path));
        let failed = |error| SnapshotError::tree("read", shown.clone())(error);
        let mut last = Outcome::Gone;
        for _ in 0..ATTEMPTS {
            let (file, before) =
                match file::open(self.open.directory.as_fd(), &path).map_err(failed)? {
                    Opened::File(file, stamp) => (file, stamp),
                    Opened::Gone => return Ok(Outcome::Gone),
                    Opened::Unreadable => return Ok(Outcome::Unreadable),
                };
            if !is_large(before.size) {
                // It was, when it was found.
                match file::read(self.open.directory.as_fd(), &path, Vec::new()).map_err(failed)? {
                    file::Read::Large => continue,
                    found @ (file::Read::Bytes { .. }
                    | file::Read::Gone
                    | file::Read::Unreadable) => return self.found(found, at, segment),
                }
            }
            let attributes = file::all_attributes(file.as_fd()).map_err(failed)?;
            let content = self.pieces(Pieces::of(&file, before.size), segment, &failed)?;
            let stamp = file::stamp_of(file.as_fd()).map_err(failed)?;
            let stable = stamp == before;
            last = Outcome::Stored(StoredFile { content, stamp, attributes, stable });
            if stable {
                break;
            }
        }
        Ok(last)
    }

    /// Stores a large file that is read in pieces.
    fn pieces(
        &self,
        mut pieces: Pieces<'_>,
        segment: &mut GiveSegment<'_>,
        failed: &dyn Fn(io::Error) -> SnapshotError,
    ) -> Result<Content> {
        let (told, hear) = mpsc::channel();
        let mut items = Vec::new();
        let reading = &self.writer.efforts.reading;
        while let Some(piece) = reading.of(|| pieces.next()).map_err(failed)? {
            self.go_on()?;
            match piece {
                Piece::Zeros(size) => items.push(Item::Zeros(size)),
                Piece::Segment(bytes) => {
                    segment(bytes, items.len(), &told)?;
                    items.push(Item::Zeros(0));
                }
            }
        }
        drop(told);
        for (number, content) in hear {
            items[number] = Item::Bytes(content);
        }
        if items.contains(&Item::Zeros(0)) {
            return Err(SnapshotError::Cancelled);
        }
        let mut cutter = Cutter::of(self.writer);
        let content = cutter.list(items)?;
        cutter.flush()?;
        self.count(1, 0)?;
        Ok(content)
    }

    fn count(&self, files: u64, bytes: u64) -> Result<()> {
        let files = self.files.fetch_add(files, Ordering::Relaxed) + files;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let (all_files, all_bytes) = (self.all, self.all_bytes);
        if (self.capture.progress)(Progress { files, all_files, bytes, all_bytes }) {
            return Ok(());
        }
        Err(SnapshotError::Cancelled)
    }
}

/// What a thread keeps from one file to the next.
#[derive(Default)]
struct Hand {
    spare: Vec<u8>,
    /// The directory that the last file was in: the next one is mostly in it, too.
    directory: Option<(usize, OwnedFd)>,
}

impl Hand {
    fn read(&mut self, open: &OpenRoot, directory: usize, entry: usize) -> io::Result<file::Read> {
        let seen = &open.scanned.directories[directory];
        if self.directory.as_ref().is_none_or(|(last, _)| *last != directory) {
            let flags = OFlags::DIRECTORY | OFlags::PATH;
            match open_below(open.directory.as_fd(), &seen.path, flags) {
                Ok(opened) => self.directory = Some((directory, opened)),
                Err(error) if is_gone(&error) => return Ok(file::Read::Gone),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Ok(file::Read::Unreadable);
                }
                Err(error) => return Err(error),
            }
        }
        let (_, at) = self.directory.as_ref().expect("it was just opened");
        file::read(at.as_fd(), &seen.entries[entry].name, std::mem::take(&mut self.spare))
    }
}

/// Keeps the first failure. One that only says that the others have stopped gives way to what made them
/// stop.
fn note(failure: &Mutex<Option<SnapshotError>>, error: SnapshotError) {
    let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*failure, None | Some(SnapshotError::Cancelled)) {
        *failure = Some(error);
    }
}

/// Gives a job to whoever is free first.
fn hand_out(jobs: &mpsc::SyncSender<Job>, job: Job) -> Result<()> {
    jobs.send(job).map_err(|_| SnapshotError::Cancelled)
}
