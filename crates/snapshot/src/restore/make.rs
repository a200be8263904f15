//! Making what is in a snapshot, in a directory that nobody else knows of yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fsetxattr,
    ftruncate, futimens, mkdirat, openat, symlinkat, unlinkat, utimensat,
};

use super::flush::Flushing;
use super::large::is_large;
use super::plan::{Meta, Plan, ToMake};
use super::{Damaged, Restore, Restored};
use crate::capture::{Progress, path_of};
use crate::chunks::{Chunks, Part};
use crate::content::Content;
use crate::cut;
use crate::error::{Malformed, Result, SnapshotError};
use crate::id::ChunkKind;
use crate::repository::Repository;
use crate::scan::open_below;
use crate::tree::{Entry, Kind, Modified};

/// How many files a thread takes at a time.
const RUN: usize = 32;

/// From how many zero bytes on nothing is written, where a chunk has no others. A hole that was in the file when
/// it was captured is one again, but for its ends.
pub(super) const HOLE: usize = 64 * 1024;

/// What one thing alone is called until it has its name.
pub(super) const ALONE: &str = "it";

/// How much of it is made.
#[derive(Default)]
struct Done {
    all_files: u64,
    all_bytes: u64,
    files: AtomicU64,
    bytes: AtomicU64,
    /// How many bytes the files have that are whole, holes included.
    sizes: AtomicU64,
    left_out: AtomicU64,
}

/// A tree that is being made.
pub(super) struct Making<'a> {
    pub(super) repository: &'a Repository,
    pub(super) restore: &'a Restore<'a>,
    pub(super) root: BorrowedFd<'a>,
    pub(super) left_out: Mutex<Vec<Vec<u8>>>,
    flushing: Flushing,
}

impl<'a> Making<'a> {
    pub(super) fn of(
        repository: &'a Repository,
        restore: &'a Restore<'a>,
        root: BorrowedFd<'a>,
    ) -> Self {
        Self {
            repository,
            restore,
            root,
            left_out: Mutex::default(),
            flushing: Flushing::default(),
        }
    }

    /// Makes everything that is in a directory.
    pub(super) fn all(&self, content: Content) -> Result<Restored> {
        let begin = Instant::now();
        let plan = self.directories(content)?;
        let trees = begin.elapsed();
        let mut restored = self.make(&plan)?;
        restored.took.trees = trees;
        Ok(restored)
    }

    /// Makes one thing that is no directory, as [`ALONE`].
    pub(super) fn alone(&self, entry: Entry) -> Result<Restored> {
        let mut plan = Plan::default();
        plan.count(&entry, ALONE.len(), self.restore)?;
        let Entry { kind, mode, modified, attributes, .. } = entry;
        let meta = Meta { mode, modified, attributes };
        let path = ALONE.as_bytes().to_vec();
        match kind {
            Kind::File(content) => plan.files.push(ToMake { path, content, meta }),
            Kind::HardLink(target) => {
                self.outside(&HashMap::from([(target, path)]), &mut plan)?;
            }
            Kind::Symlink(target) => {
                let made = self.symlink(self.root, ALONE.as_bytes(), &target, &meta);
                made.map_err(self.failed("make the link", &path))?;
            }
            Kind::Directory(_) => plan.directories.push((path, meta)),
        }
        let restored = self.make(&plan)?;
        if restored.left_out.is_empty() {
            return Ok(restored);
        }
        // There is nothing else.
        let path = String::from_utf8_lossy(self.restore.path).into_owned();
        Err(SnapshotError::damaged(path)(Malformed("its bytes cannot be read back")))
    }

    fn make(&self, plan: &Plan) -> Result<Restored> {
        let begin = Instant::now();
        let mut restored = self.files(&plan.files)?;
        restored.took.files = begin.elapsed();
        let begin = Instant::now();
        let copied = self.links(plan)?;
        self.settle(&plan.directories)?;
        restored.took.finish = begin.elapsed();
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = std::mem::take(&mut *left_out);
        left_out.sort();
        Ok(Restored { left_out, copied, ..restored })
    }

    /// Takes note that something is damaged and left out, if that is wanted.
    pub(super) fn leave_out(&self, path: &[u8], error: SnapshotError) -> Result<()> {
        // A store that is busy has lost nothing.
        if error.is_transient() {
            return Err(error);
        }
        match (self.restore.damaged, &error) {
            (
                Damaged::LeaveOut,
                SnapshotError::Damaged { .. }
                | SnapshotError::Missing(_)
                | SnapshotError::Store { .. },
            ) => {
                let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
                left_out.push(path.to_owned());
                Ok(())
            }
            (Damaged::LeaveOut | Damaged::Refuse, _) => Err(error),
        }
    }

    pub(super) fn failed<'p>(
        &'p self,
        attempted: &'static str,
        path: &'p [u8],
    ) -> impl Fn(io::Error) -> SnapshotError {
        move |error| SnapshotError::tree(attempted, self.restore.target.join(path_of(path)))(error)
    }

    /// Makes every directory and symbolic link, and says what is left to be made.
    fn directories(&self, content: Content) -> Result<Plan> {
        let mut chunks = Chunks::of(self.repository);
        let mut plan = Plan::default();
        let mut outside = HashMap::new();
        let mut waiting = vec![(Vec::new(), content)];
        while let Some((path, content)) = waiting.pop() {
            let left = self.restore.max_entries - plan.entries;
            let entries = match chunks.directory(content, left) {
                Ok(entries) => entries,
                Err(error) => {
                    self.leave_out(&path, error)?;
                    continue;
                }
            };
            let opened = open_below(self.root, &path, OFlags::DIRECTORY);
            let directory = opened.map_err(self.failed("open", &path))?;
            for entry in entries {
                plan.count(&entry, path.len(), self.restore)?;
                let Entry { name, kind, mode, modified, attributes } = entry;
                let below =
                    if path.is_empty() { name.clone() } else { [&path[..], b"/", &name].concat() };
                let meta = Meta { mode, modified, attributes };
                match kind {
                    Kind::File(content) => plan.files.push(ToMake { path: below, content, meta }),
                    Kind::Directory(content) => {
                        let made = mkdirat(&directory, &name[..], Mode::from_raw_mode(0o700));
                        made.map_err(|error| self.failed("make", &below)(error.into()))?;
                        waiting.push((below.clone(), content));
                        plan.directories.push((below, meta));
                    }
                    Kind::Symlink(target) => {
                        let made = self.symlink(directory.as_fd(), &name, &target, &meta);
                        made.map_err(self.failed("make the link", &below))?;
                    }
                    Kind::HardLink(target) => match self.inside(&target) {
                        Some(target) => plan.links.push((below, target.to_owned())),
                        // The first name of a file outside is the file here.
                        None => match outside.entry(target) {
                            MapEntry::Occupied(first) => {
                                plan.links.push((below, Vec::clone(first.get())));
                            }
                            MapEntry::Vacant(none) => {
                                none.insert(below);
                            }
                        },
                    },
                }
            }
        }
        self.outside(&outside, &mut plan)?;
        self.order(&mut plan.files);
        Ok(plan)
    }

    /// Puts files in an order in which what is stored together is read once.
    pub(super) fn order(&self, files: &mut [ToMake]) {
        files.sort_by_cached_key(|file| {
            let place = self.repository.place(file.content.id);
            place.map(|place| place.order())
        });
    }

    pub(super) fn symlink(
        &self,
        at: BorrowedFd<'_>,
        name: &[u8],
        target: &[u8],
        meta: &Meta,
    ) -> io::Result<()> {
        symlinkat(target, at, name)?;
        if let Some((user, group)) = self.restore.owner {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::fs::chownat(at, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(utimensat(at, name, &times(meta.modified), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub(super) fn threads(&self) -> usize {
        self.restore.threads.max(1)
    }

    /// Makes every file, by several threads.
    pub(super) fn files(&self, files: &[ToMake]) -> Result<Restored> {
        self.check_space(files)?;
        let made = self.flushing.during(self.root, || self.each_file(files));
        made.map_err(self.failed("sync", b""))?
    }

    /// Small ones several at a time, large ones one after the other.
    fn each_file(&self, files: &[ToMake]) -> Result<Restored> {
        let all_bytes = files.iter().map(|file| file.content.size).fold(0, u64::saturating_add);
        let done = Done { all_files: files.len() as u64, all_bytes, ..Done::default() };
        let (large, small): (Vec<&ToMake>, Vec<&ToMake>) =
            files.iter().partition(|file| is_large(file.content));
        self.small_files(&small, &done)?;
        for file in large {
            let told = AtomicU64::new(0);
            let tell = |bytes| {
                told.fetch_add(bytes, Ordering::Relaxed);
                self.tell(&done, 0, bytes)
            };
            let made = self.create(file, &mut None);
            let made = made.and_then(|made| {
                self.large(file, &made, &tell)?;
                self.finish(file, &made)
            });
            // Its holes are done too.
            let rest = file.content.size.saturating_sub(told.into_inner());
            self.note(file, made, &done, rest)?;
        }
        Ok(Restored {
            files: done.files.into_inner() - done.left_out.into_inner(),
            bytes: done.sizes.into_inner(),
            ..Restored::default()
        })
    }

    fn small_files(&self, files: &[&ToMake], done: &Done) -> Result<()> {
        let next = AtomicUsize::new(0);
        let failure = Mutex::new(None);
        let work = || -> Result<()> {
            let mut chunks = Chunks::of(self.repository);
            let mut last: Option<(Vec<u8>, OwnedFd)> = None;
            loop {
                let from = next.fetch_add(RUN, Ordering::Relaxed);
                let Some(run) = files.get(from..files.len().min(from + RUN)) else { return Ok(()) };
                if run.is_empty() {
                    return Ok(());
                }
                for file in run {
                    let made = self.file(file, &mut chunks, &mut last);
                    self.note(file, made, done, file.content.size)?;
                }
            }
        };
        let run = || {
            if let Err(error) = work() {
                // The others stop at the end of what they have.
                next.store(files.len(), Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads() {
                scope.spawn(run);
            }
            run();
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Takes note of what came of a file, and of its bytes that were not told yet. One that is damaged is
    /// removed, if it is to be left out.
    fn note(&self, file: &ToMake, made: Result<()>, done: &Done, rest: u64) -> Result<()> {
        match made {
            Ok(()) => {
                done.sizes.fetch_add(file.content.size, Ordering::Relaxed);
            }
            Err(error) => {
                self.leave_out(&file.path, error)?;
                self.remove(&file.path).map_err(self.failed("remove", &file.path))?;
                done.left_out.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.tell(done, 1, rest)
    }

    /// Says how far it is.
    fn tell(&self, done: &Done, files: u64, bytes: u64) -> Result<()> {
        self.flushing.add(bytes);
        let progress = Progress {
            files: done.files.fetch_add(files, Ordering::Relaxed) + files,
            all_files: done.all_files,
            bytes: done.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes,
            all_bytes: done.all_bytes,
        };
        if (self.restore.progress)(progress) { Ok(()) } else { Err(SnapshotError::Cancelled) }
    }

    /// Begins a file. The directory of the last one is kept open: the next one is mostly in it too.
    fn create(&self, file: &ToMake, last: &mut Option<(Vec<u8>, OwnedFd)>) -> Result<File> {
        let failed = self.failed("write", &file.path);
        let (parent, name) = split(&file.path);
        if last.as_ref().is_none_or(|(path, _)| path != parent) {
            let opened = open_below(self.root, parent, OFlags::DIRECTORY | OFlags::PATH);
            *last = Some((parent.to_owned(), opened.map_err(&failed)?));
        }
        let (_, directory) = last.as_ref().expect("it was just opened");
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(directory, name, flags, Mode::from_raw_mode(0o600));
        Ok(opened.map_err(|error| failed(error.into()))?.into())
    }

    fn file(
        &self,
        file: &ToMake,
        chunks: &mut Chunks<'_>,
        last: &mut Option<(Vec<u8>, OwnedFd)>,
    ) -> Result<()> {
        let failed = self.failed("write", &file.path);
        let mut made = self.create(file, last)?;
        let (mut at, mut holes) = (0, false);
        chunks.each(ChunkKind::Data, file.content, &mut |part| {
            match sparse(part) {
                Part::Bytes(bytes) => {
                    made.write_all(&bytes).map_err(&failed)?;
                    at += bytes.len() as u64;
                }
                Part::Zeros(size) => {
                    at += size;
                    holes = true;
                    io::Seek::seek(&mut made, io::SeekFrom::Start(at)).map_err(&failed)?;
                }
            }
            Ok(())
        })?;
        if at != file.content.size {
            let wrong = Malformed("it is not as long as it should be");
            return Err(SnapshotError::damaged(format!("the content {}", file.content.id))(wrong));
        }
        if holes {
            ftruncate(&made, at).map_err(|error| failed(error.into()))?;
        }
        self.finish(file, &made)
    }

    /// Gives a file what it had beside its bytes.
    fn finish(&self, file: &ToMake, made: &File) -> Result<()> {
        let mode = mode_of_file(file.meta.mode, self.restore.owner);
        let meta = Meta { mode, ..file.meta.clone() };
        let settled = settle(made.as_fd(), &meta, self.restore.owner);
        settled.map_err(self.failed("write", &file.path))
    }

    /// Removes what was made of a file.
    fn remove(&self, path: &[u8]) -> io::Result<()> {
        let (parent, name) = split(path);
        let at = open_below(self.root, parent, OFlags::DIRECTORY | OFlags::PATH)?;
        match unlinkat(at, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives directories what they had, when nothing is made in them any more: those below first.
    fn settle(&self, directories: &[(Vec<u8>, Meta)]) -> Result<()> {
        for (path, meta) in directories.iter().rev() {
            let opened = open_below(self.root, path, OFlags::DIRECTORY);
            let settled = opened.and_then(|at| settle(at.as_fd(), meta, self.restore.owner));
            settled.map_err(self.failed("finish", path))?;
        }
        Ok(())
    }
}

pub(super) fn leads_to_nothing() -> SnapshotError {
    let wrong = Malformed("a hard link leads to nothing that is a file");
    SnapshotError::damaged("a directory")(wrong)
}

/// A part of a file, as it is written: a chunk of zeros that is long enough to be worth a hole is not.
fn sparse(part: Part) -> Part {
    match part {
        Part::Bytes(bytes) if bytes.len() >= HOLE && cut::is_zero(&bytes) => {
            Part::Zeros(bytes.len() as u64)
        }
        Part::Bytes(_) | Part::Zeros(_) => part,
    }
}

/// The directory of a path, and the name in it.
pub(super) fn split(path: &[u8]) -> (&[u8], CString) {
    let (parent, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    (parent, CString::new(name).expect("names have no zero bytes"))
}

/// Owner first: to be given away takes bits from a mode.
pub(super) fn settle(at: BorrowedFd<'_>, meta: &Meta, owner: Option<(u32, u32)>) -> io::Result<()> {
    give(at, owner)?;
    for (name, value) in &meta.attributes {
        match fsetxattr(at, &name[..], value, XattrFlags::empty()) {
            // This file system has none.
            Ok(()) | Err(rustix::io::Errno::NOTSUP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    fchmod(at, Mode::from_raw_mode(meta.mode))?;
    Ok(futimens(at, &times(meta.modified))?)
}

/// The permission bits that a file is given. Owners are not kept: a program that runs as whoever made it would
/// run as root, if root restores it for nobody in particular.
pub(super) fn mode_of_file(mode: u32, owner: Option<(u32, u32)>) -> u32 {
    let for_root = match owner {
        Some((user, _)) => user == 0,
        None => rustix::process::geteuid().is_root(),
    };
    if for_root { mode & 0o1777 } else { mode }
}

pub(super) fn give(at: BorrowedFd<'_>, owner: Option<(u32, u32)>) -> io::Result<()> {
    let Some((user, group)) = owner else { return Ok(()) };
    Ok(fchown(at, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
}

fn times(modified: Modified) -> Timestamps {
    let time = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}
