//! Storing a tree: the files that changed, by several threads; then the directories above them.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

use rustix::fs::{FileType, OFlags, readlinkat};

use super::plan::{self, Plan, ToRead};
use super::{Capture, OpenRoot, Progress, Took, is_settled, path_of};
use crate::content::{Content, Item};
use crate::error::{Result, SnapshotError};
use crate::file::{self, ATTEMPTS, Attributes, Opened, Piece, Pieces};
use crate::id::ChunkKind;
use crate::scan::{Skipped, is_gone, open_below};
use crate::snapshot::Tree;
use crate::state::{Known, KnownDirectory, KnownKind, KnownTree, Stamp};
use crate::tree::{self, Entry, Kind, Modified};
use crate::writer::{Cutter, Writer};

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
}

/// A file that was stored.
#[derive(Debug)]
struct StoredFile {
    content: Content,
    stamp: Stamp,
    attributes: Attributes,
    stable: bool,
}

/// What came of a file.
enum Outcome {
    Stored(StoredFile),
    Gone,
    Unreadable,
}

/// Stores what changed in a tree.
pub(crate) fn store(
    writer: &Writer<'_>,
    capture: &Capture<'_>,
    open: &OpenRoot<'_>,
    plan: Plan,
    known: &KnownTree,
    began: Modified,
    took: &mut Took,
) -> Result<Stored> {
    let Plan { reads, links } = plan;
    let begin = Instant::now();
    let outcomes = Files::new(writer, capture, open, &reads).store(reads)?;
    took.store += begin.elapsed();
    let begin = Instant::now();
    let trees = Trees { open, known, links: &links, outcomes: &outcomes, began };
    let stored = trees.store(&mut Cutter::of(writer));
    took.trees += begin.elapsed();
    stored
}

/// Files that are being stored.
struct Files<'a, 'w> {
    writer: &'w Writer<'a>,
    capture: &'w Capture<'w>,
    open: &'w OpenRoot<'w>,
    all: u64,
    files: AtomicU64,
    bytes: AtomicU64,
    stopped: AtomicBool,
}

/// Something for a thread to do.
enum Job {
    /// Read and store these.
    Files(Vec<ToRead>),
    /// Store this segment of a large file, and say so here.
    Segment(Vec<u8>, usize, mpsc::Sender<(usize, Content)>),
}

type Outcomes = HashMap<(usize, usize), Outcome>;

impl<'a, 'w> Files<'a, 'w> {
    fn new(
        writer: &'w Writer<'a>,
        capture: &'w Capture<'w>,
        open: &'w OpenRoot<'w>,
        reads: &[ToRead],
    ) -> Self {
        Self {
            writer,
            capture,
            open,
            all: reads.len() as u64,
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    fn size(&self, read: &ToRead) -> u64 {
        self.open.scanned.directories[read.directory].entries[read.entry].stamp.size
    }

    fn store(&self, reads: Vec<ToRead>) -> Result<Outcomes> {
        if reads.is_empty() {
            return Ok(Outcomes::new());
        }
        let outcomes = Mutex::new(Outcomes::new());
        let failure = Mutex::new(None);
        let threads = self.capture.threads.max(1);
        let (jobs, taken) = mpsc::sync_channel::<Job>(threads * 2);
        let taken = Mutex::new(taken);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    if let Err(error) = self.work(&taken, &outcomes) {
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        self.stopped.store(true, Ordering::Relaxed);
                        // Nobody may be left to wait for the queue.
                        while taken.lock().unwrap_or_else(PoisonError::into_inner).recv().is_ok() {}
                    }
                });
            }
            let fed = self.feed(reads, &jobs, &outcomes);
            drop(jobs);
            if let Err(error) = fed {
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
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
            if crate::writer::is_large(size) && read.preloaded.is_none() {
                large.push((read.directory, read.entry));
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
        for (directory, entry) in large {
            // Whoever is free takes the next segment.
            let outcome = self.large(directory, entry, &mut |bytes, number, told| {
                hand_out(jobs, Job::Segment(bytes, number, told.clone()))
            })?;
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.insert((directory, entry), outcome);
        }
        Ok(())
    }

    fn go_on(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) { Err(SnapshotError::Cancelled) } else { Ok(()) }
    }

    fn work(&self, jobs: &Mutex<mpsc::Receiver<Job>>, outcomes: &Mutex<Outcomes>) -> Result<()> {
        let mut cutter = Cutter::of(self.writer);
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            match job {
                Ok(Job::Files(files)) => {
                    let mut done = Vec::with_capacity(files.len());
                    for read in files {
                        let at = (read.directory, read.entry);
                        done.push((at, self.small(read, &mut cutter)?));
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

    fn small(&self, read: ToRead, cutter: &mut Cutter<'_, '_>) -> Result<Outcome> {
        let found = match read.preloaded {
            Some(found) => found,
            None => {
                let path = plan::path(&self.open.scanned, read.directory, read.entry);
                let found = file::read(self.open.directory.as_fd(), &path);
                found.map_err(SnapshotError::tree(
                    "read",
                    self.open.root.path.join(path_of(&path)),
                ))?
            }
        };
        Ok(match found {
            file::Read::Bytes { bytes, stamp, attributes, stable } => {
                let content = cutter.whole(ChunkKind::Data, &bytes)?;
                self.count(1, bytes.len() as u64)?;
                Outcome::Stored(StoredFile { content, stamp, attributes, stable })
            }
            // It was not when it was found. The others are not asked to help.
            file::Read::Large => {
                self.large(read.directory, read.entry, &mut |bytes, number, told| {
                    let stored = cutter.segment(&bytes)?;
                    self.count(0, bytes.len() as u64)?;
                    told.send((number, stored)).map_err(|_| SnapshotError::Cancelled)
                })?
            }
            file::Read::Gone => Outcome::Gone,
            file::Read::Unreadable => Outcome::Unreadable,
        })
    }

    /// Stores a large file: each segment is given to `segment` with its number, and what it was stored
    /// as is told.
    fn large(
        &self,
        directory: usize,
        entry: usize,
        segment: &mut dyn FnMut(Vec<u8>, usize, &mpsc::Sender<(usize, Content)>) -> Result<()>,
    ) -> Result<Outcome> {
        let path = plan::path(&self.open.scanned, directory, entry);
        let shown = self.open.root.path.join(path_of(&path));
        let failed = |error| SnapshotError::tree("read", shown.clone())(error);
        let mut last = Outcome::Gone;
        for _ in 0..ATTEMPTS {
            let (file, before) =
                match file::open(self.open.directory.as_fd(), &path).map_err(failed)? {
                    Opened::File(file, stamp) => (file, stamp),
                    Opened::Gone => return Ok(Outcome::Gone),
                    Opened::Unreadable => return Ok(Outcome::Unreadable),
                };
            let attributes = file::attributes(file.as_fd()).map_err(failed)?;
            let (told, hear) = mpsc::channel();
            let mut items = Vec::new();
            let mut pieces = Pieces::of(&file, before.size);
            while let Some(piece) = pieces.next().map_err(failed)? {
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
            let stamp = file::stamp_of(file.as_fd()).map_err(failed)?;
            let stable = stamp == before;
            last = Outcome::Stored(StoredFile { content, stamp, attributes, stable });
            if stable {
                break;
            }
        }
        Ok(last)
    }

    fn count(&self, files: u64, bytes: u64) -> Result<()> {
        let files = self.files.fetch_add(files, Ordering::Relaxed) + files;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if (self.capture.progress)(Progress { files, all_files: self.all, bytes }) {
            return Ok(());
        }
        Err(SnapshotError::Cancelled)
    }
}

/// Gives a job to whoever is free first.
fn hand_out(jobs: &mpsc::SyncSender<Job>, job: Job) -> Result<()> {
    jobs.send(job).map_err(|_| SnapshotError::Cancelled)
}

/// Directories that are being stored.
struct Trees<'a> {
    open: &'a OpenRoot<'a>,
    known: &'a KnownTree,
    links: &'a HashMap<(usize, usize), (usize, usize)>,
    outcomes: &'a Outcomes,
    began: Modified,
}

impl Trees<'_> {
    /// Stores every directory in which something changed, those below before those above.
    fn store(&self, cutter: &mut Cutter<'_, '_>) -> Result<Stored> {
        let count = self.open.scanned.directories.len();
        let mut directories: Vec<Option<KnownDirectory>> = (0..count).map(|_| None).collect();
        let mut changed = vec![false; count];
        let mut skipped = Skipped::default();
        let mut unstable = Vec::new();
        for number in (0..count).rev() {
            let seen = &self.open.scanned.directories[number];
            let before = seen.known.map(|known| &self.known.directories[known]);
            let mut entries = Vec::with_capacity(seen.entries.len());
            let mut same = seen.same_names;
            for entry in 0..seen.entries.len() {
                let (known, is_same) = self.entry(number, entry, &mut skipped, &mut unstable)?;
                let below = seen.entries[entry].directory;
                same &= is_same && !below.is_some_and(|below| changed[below]);
                entries.extend(known);
            }
            let tree = match before {
                Some(before) if same => before.tree,
                Some(_) | None => {
                    let encoded = tree::encode(&shown(&entries, &directories));
                    cutter.whole(ChunkKind::Tree, &encoded)?
                }
            };
            changed[number] = before.is_none_or(|before| before.tree != tree);
            directories[number] = Some(KnownDirectory { entries, tree });
        }
        cutter.flush()?;
        let known = KnownTree { directories: directories.into_iter().flatten().collect() };
        Ok(Stored { tree: count_up(&known), known, skipped, unstable })
    }

    /// An entry as it is captured, if it is; and whether it is what it was.
    fn entry(
        &self,
        directory: usize,
        entry: usize,
        skipped: &mut Skipped,
        unstable: &mut Vec<String>,
    ) -> Result<(Option<Known>, bool)> {
        let seen = &self.open.scanned.directories[directory];
        let found = &seen.entries[entry];
        let before = found.known.zip(seen.known);
        let before = before.map(|(entry, at)| &self.known.directories[at].entries[entry]);
        let known = |kind, attributes: &Attributes| Known {
            name: found.name.clone(),
            stamp: found.stamp,
            settled: is_settled(found.stamp.changed, self.began),
            kind,
            attributes: attributes.clone(),
        };
        let none = Attributes::new();
        let now = match found.stamp.file_type() {
            FileType::Directory => {
                let number = found.directory.expect("a directory that was found has a number");
                match before {
                    Some(before) => {
                        return Ok((
                            Some(known(KnownKind::Directory(number), &before.attributes)),
                            true,
                        ));
                    }
                    None => known(KnownKind::Directory(number), &self.attributes(number)?),
                }
            }
            FileType::Symlink => match before {
                Some(before) => return Ok((Some(before.clone()), true)),
                None => match self.target(directory, entry)? {
                    Some(target) => known(KnownKind::Symlink(target), &none),
                    None => return Ok((None, false)),
                },
            },
            _ => match self.links.get(&(directory, entry)) {
                Some(&(first_directory, first)) => {
                    if let Some(Outcome::Gone | Outcome::Unreadable) =
                        self.outcomes.get(&(first_directory, first))
                    {
                        skipped.unreadable += 1;
                        return Ok((None, false));
                    }
                    let target = plan::path(&self.open.scanned, first_directory, first);
                    let kind = KnownKind::HardLink(target.into());
                    let same = before.is_some_and(|before| before.kind == kind);
                    return Ok((Some(known(kind, &none)), same));
                }
                None => match (self.outcomes.get(&(directory, entry)), before) {
                    (Some(outcome), _) => {
                        match self.stored(directory, entry, outcome, skipped, unstable) {
                            Some(stored) => stored,
                            None => return Ok((None, false)),
                        }
                    }
                    (None, Some(before)) => return Ok((Some(before.clone()), true)),
                    (None, None) => return Ok((None, false)),
                },
            },
        };
        Ok((Some(now), false))
    }

    /// A file that was read.
    fn stored(
        &self,
        directory: usize,
        entry: usize,
        outcome: &Outcome,
        skipped: &mut Skipped,
        unstable: &mut Vec<String>,
    ) -> Option<Known> {
        let name = || {
            let path = plan::path(&self.open.scanned, directory, entry);
            format!("{}/{}", self.open.root.name, String::from_utf8_lossy(&path))
        };
        match outcome {
            Outcome::Stored(stored) => {
                if !stored.stable {
                    unstable.push(name());
                }
                Some(Known {
                    name: self.open.scanned.directories[directory].entries[entry].name.clone(),
                    stamp: stored.stamp,
                    settled: stored.stable && is_settled(stored.stamp.changed, self.began),
                    kind: KnownKind::File(stored.content),
                    attributes: stored.attributes.clone(),
                })
            }
            Outcome::Unreadable => {
                skipped.unreadable += 1;
                None
            }
            Outcome::Gone => None,
        }
    }

    fn attributes(&self, directory: usize) -> Result<Attributes> {
        let path = &self.open.scanned.directories[directory].path;
        let root = self.open.directory.as_fd();
        let read =
            open_below(root, path, OFlags::DIRECTORY).and_then(|at| file::attributes(at.as_fd()));
        match read {
            Err(error)
                if is_gone(&error) || error.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Ok(Attributes::new())
            }
            read => read
                .map_err(SnapshotError::tree("look at", self.open.root.path.join(path_of(path)))),
        }
    }

    /// What a symbolic link says; nothing, if it is none any more.
    fn target(&self, directory: usize, entry: usize) -> Result<Option<Box<[u8]>>> {
        let seen = &self.open.scanned.directories[directory];
        let name = &seen.entries[entry].name;
        let root = self.open.directory.as_fd();
        let read = open_below(root, &seen.path, OFlags::DIRECTORY | OFlags::PATH)
            .and_then(|at| Ok(readlinkat(at, &name[..], Vec::new())?));
        match read {
            Ok(target) => Ok(Some(target.into_bytes().into())),
            Err(error) if is_gone(&error) || error.kind() == std::io::ErrorKind::InvalidInput => {
                Ok(None)
            }
            Err(error) => {
                let path = self.open.root.path.join(path_of(&plan::path(
                    &self.open.scanned,
                    directory,
                    entry,
                )));
                Err(SnapshotError::tree("read the link", path)(error))
            }
        }
    }
}

/// Entries as they are encoded.
fn shown(entries: &[Known], directories: &[Option<KnownDirectory>]) -> Vec<Entry> {
    let shown = entries.iter().map(|known| Entry {
        name: known.name.to_vec(),
        kind: match &known.kind {
            KnownKind::File(content) => Kind::File(*content),
            KnownKind::Directory(number) => {
                let below = directories[*number].as_ref();
                Kind::Directory(below.expect("what is below is stored before").tree)
            }
            KnownKind::Symlink(target) => Kind::Symlink(target.to_vec()),
            KnownKind::HardLink(target) => Kind::HardLink(target.to_vec()),
        },
        mode: known.stamp.permissions(),
        modified: known.stamp.modified,
        attributes: known.attributes.clone(),
    });
    shown.collect()
}

/// What is in a tree.
fn count_up(known: &KnownTree) -> Tree {
    let mut counted = Tree {
        name: String::new(),
        tree: known.directories.first().map_or(Content::EMPTY, |root| root.tree),
        mode: 0,
        files: 0,
        directories: 0,
        links: 0,
        bytes: 0,
    };
    for entry in known.directories.iter().flat_map(|directory| &directory.entries) {
        match &entry.kind {
            KnownKind::File(content) => {
                counted.files += 1;
                counted.bytes += content.size;
            }
            KnownKind::Directory(_) => counted.directories += 1,
            KnownKind::Symlink(_) | KnownKind::HardLink(_) => counted.links += 1,
        }
    }
    counted
}
