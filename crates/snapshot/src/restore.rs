//! Restore: from a snapshot to a directory that appears as a whole, or not at all.
//!
//! Nothing in a snapshot is trusted. Everything is made in a new directory of its own beside the
//! place where it is to appear, each name in a directory that was opened without following anything;
//! every chunk is compared with its id. When all of it is durable, the directory is given its name.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags, fchmod, fchown,
    fsetxattr, ftruncate, futimens, linkat, mkdirat, openat, renameat_with, symlinkat, syncfs,
    utimensat,
};
use rustix::fs::{Gid, Uid};

use crate::capture::{Progress, path_of};
use crate::content::Content;
use crate::error::{Malformed, Result, SnapshotError};
use crate::file::Attributes;
use crate::id::ChunkKind;
use crate::repository::{Chunks, Part, Repository};
use crate::scan::open_below;
use crate::snapshot::Tree;
use crate::tree::{self, Entry, Kind, Modified};

/// The longest encoding of one directory: some million names.
const MAX_DIRECTORY: u64 = 512 * 1024 * 1024;

/// How many files a thread takes at a time.
const RUN: usize = 32;

/// What to restore, and where.
#[derive(Clone)]
pub struct Restore<'a> {
    /// Which tree of a snapshot.
    pub tree: &'a Tree,
    /// Where it is to appear. Nothing may be there; the directory above must be.
    pub target: &'a Path,
    /// Whose it is to be, by their numbers; whoever restores it, if nobody is named.
    pub owner: Option<(u32, u32)>,
    /// How many names there may be at the most.
    pub max_entries: u64,
    /// How many bytes there may be at the most.
    pub max_bytes: u64,
    /// How many threads work.
    pub threads: usize,
    /// Is told from time to time how far it is, by several threads; answers whether to go on.
    pub progress: &'a (dyn Fn(Progress) -> bool + Sync),
}

/// What was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A file to make.
struct ToMake {
    path: Vec<u8>,
    content: Content,
    meta: Meta,
}

/// What something is given when its contents are there.
struct Meta {
    mode: u32,
    modified: Modified,
    attributes: Attributes,
}

/// Everything that is to be made, but for what was made while it was found.
#[derive(Default)]
struct Plan {
    files: Vec<ToMake>,
    directories: Vec<(Vec<u8>, Meta)>,
    links: Vec<(Vec<u8>, Vec<u8>)>,
    entries: u64,
    bytes: u64,
}

impl Repository {
    /// Restores a tree.
    pub fn restore(&self, restore: &Restore<'_>) -> Result<Restored> {
        let target = restore.target;
        if fs::symlink_metadata(target).is_ok() {
            return Err(SnapshotError::Exists(target.to_owned()));
        }
        let (above, name) = match (target.parent(), target.file_name()) {
            (Some(above), Some(name)) if above.as_os_str().is_empty() => (Path::new("."), name),
            (Some(above), Some(name)) => (above, name),
            (None, _) | (_, None) => return Err(SnapshotError::Exists(target.to_owned())),
        };
        self.refresh()?;
        let place = Place::make(above)?;
        let root = place.directory.as_fd();
        let making = Making { repository: self, restore, root };
        let plan = making.directories()?;
        let restored = making.files(&plan.files)?;
        making.links(&plan)?;
        making.settle(&plan.directories)?;
        place.appear(name, restore)?;
        Ok(restored)
    }
}

/// A directory that is not where it should be yet. Dropped, it is gone.
struct Place {
    above: PathBuf,
    path: PathBuf,
    directory: OwnedFd,
    appeared: bool,
}

impl Place {
    fn make(above: &Path) -> Result<Self> {
        let path = above.join(format!(".ash-restore-{}", uuid::Uuid::now_v7()));
        let failed = |attempted| SnapshotError::tree(attempted, path.clone());
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed("make"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        let directory = opened.map_err(|error| failed("open")(error.into()))?;
        Ok(Self { above: above.to_owned(), path, directory, appeared: false })
    }

    /// Gives it its name, now that everything is in it.
    fn appear(mut self, name: &std::ffi::OsStr, restore: &Restore<'_>) -> Result<()> {
        let failed = |attempted| SnapshotError::tree(attempted, restore.target);
        let done = || -> io::Result<()> {
            give(self.directory.as_fd(), restore.owner)?;
            fchmod(&self.directory, Mode::from_raw_mode(restore.tree.mode))?;
            Ok(syncfs(&self.directory)?)
        };
        done().map_err(failed("finish"))?;
        let above = File::open(&self.above).map_err(failed("open the directory above"))?;
        let from = self.path.file_name().unwrap_or_default();
        match renameat_with(&above, from, &above, name, RenameFlags::NOREPLACE) {
            Ok(()) => self.appeared = true,
            Err(rustix::io::Errno::EXIST) => {
                return Err(SnapshotError::Exists(restore.target.to_owned()));
            }
            Err(error) => return Err(failed("name")(error.into())),
        }
        above.sync_all().map_err(failed("sync the directory above"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.appeared {
            // What cannot be removed is found by its name.
            let _left_behind = fs::remove_dir_all(&self.path);
        }
    }
}

/// A tree that is being made.
struct Making<'a> {
    repository: &'a Repository,
    restore: &'a Restore<'a>,
    root: BorrowedFd<'a>,
}

impl Making<'_> {
    fn failed<'p>(
        &'p self,
        attempted: &'static str,
        path: &'p [u8],
    ) -> impl Fn(io::Error) -> SnapshotError {
        move |error| SnapshotError::tree(attempted, self.restore.target.join(path_of(path)))(error)
    }

    /// Makes every directory and symbolic link, and says what is left to be made.
    fn directories(&self) -> Result<Plan> {
        let mut chunks = Chunks::of(self.repository);
        let mut plan = Plan::default();
        let mut waiting = vec![(Vec::new(), self.restore.tree.tree)];
        while let Some((path, content)) = waiting.pop() {
            let encoded = chunks.whole(ChunkKind::Tree, content, MAX_DIRECTORY)?;
            let entries = tree::decode(&encoded);
            let entries =
                entries.map_err(SnapshotError::damaged(format!("directory {}", content.id)))?;
            let opened = open_below(self.root, &path, OFlags::DIRECTORY);
            let directory = opened.map_err(self.failed("open", &path))?;
            for entry in entries {
                plan.count(&entry, self.restore)?;
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
                        let made = self.symlink(&directory, &name, &target, &meta);
                        made.map_err(self.failed("make the link", &below))?;
                    }
                    Kind::HardLink(target) => plan.links.push((below, target)),
                }
            }
        }
        // So that what is stored together is read once.
        plan.files.sort_by_cached_key(|file| {
            let place = self.repository.place(file.content.id);
            place.map(|place| place.order())
        });
        Ok(plan)
    }

    fn symlink(&self, at: &OwnedFd, name: &[u8], target: &[u8], meta: &Meta) -> io::Result<()> {
        symlinkat(target, at, name)?;
        if let Some((user, group)) = self.restore.owner {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::fs::chownat(at, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(utimensat(at, name, &times(meta.modified), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Makes every file, by several threads.
    fn files(&self, files: &[ToMake]) -> Result<Restored> {
        let next = AtomicUsize::new(0);
        let (count, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
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
                    self.file(file, &mut chunks, &mut last)?;
                    let files_done = count.fetch_add(1, Ordering::Relaxed) + 1;
                    let size = file.content.size;
                    let progress = Progress {
                        files: files_done,
                        all_files: files.len() as u64,
                        bytes: bytes.fetch_add(size, Ordering::Relaxed) + size,
                    };
                    if !(self.restore.progress)(progress) {
                        return Err(SnapshotError::Cancelled);
                    }
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
            for _ in 1..self.restore.threads.max(1) {
                scope.spawn(run);
            }
            run();
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(Restored { files: count.into_inner(), bytes: bytes.into_inner() }),
        }
    }

    /// Makes a file. The directory of the last one is kept open: the next one is mostly in it too.
    fn file(
        &self,
        file: &ToMake,
        chunks: &mut Chunks<'_>,
        last: &mut Option<(Vec<u8>, OwnedFd)>,
    ) -> Result<()> {
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
        let mut made = File::from(opened.map_err(|error| failed(error.into()))?);
        let (mut at, mut holes) = (0, false);
        chunks.each(ChunkKind::Data, file.content, &mut |part| {
            match part {
                Part::Bytes(bytes) => {
                    made.write_all(bytes).map_err(&failed)?;
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
        settle(made.as_fd(), &file.meta, self.restore.owner).map_err(failed)
    }

    /// Makes further names of files, each of which was made.
    fn links(&self, plan: &Plan) -> Result<()> {
        if plan.links.is_empty() {
            return Ok(());
        }
        let files: HashSet<&[u8]> = plan.files.iter().map(|file| &file.path[..]).collect();
        for (path, target) in &plan.links {
            if !files.contains(&target[..]) {
                let wrong = Malformed("a hard link leads to nothing that is a file");
                return Err(SnapshotError::damaged("a directory")(wrong));
            }
            let link = || -> io::Result<()> {
                let (old_parent, old_name) = split(target);
                let (new_parent, new_name) = split(path);
                let flags = OFlags::DIRECTORY | OFlags::PATH;
                let old = open_below(self.root, old_parent, flags)?;
                let new = open_below(self.root, new_parent, flags)?;
                Ok(linkat(old, old_name, new, new_name, AtFlags::empty())?)
            };
            link().map_err(self.failed("make the link", path))?;
        }
        Ok(())
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

impl Plan {
    /// Takes account of an entry, before anything is made of it.
    fn count(&mut self, entry: &Entry, restore: &Restore<'_>) -> Result<()> {
        self.entries += 1;
        if let Kind::File(content) = &entry.kind {
            self.bytes = self.bytes.saturating_add(content.size);
        }
        if self.entries > restore.max_entries {
            return Err(SnapshotError::TooMuch { what: "names", most: restore.max_entries });
        }
        if self.bytes > restore.max_bytes {
            return Err(SnapshotError::TooMuch { what: "bytes", most: restore.max_bytes });
        }
        Ok(())
    }
}

/// The directory of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], CString) {
    let (parent, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    (parent, CString::new(name).expect("names have no zero bytes"))
}

/// Owner first: to be given away takes bits from a mode.
fn settle(at: BorrowedFd<'_>, meta: &Meta, owner: Option<(u32, u32)>) -> io::Result<()> {
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

fn give(at: BorrowedFd<'_>, owner: Option<(u32, u32)>) -> io::Result<()> {
    let Some((user, group)) = owner else { return Ok(()) };
    Ok(fchown(at, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
}

fn times(modified: Modified) -> Timestamps {
    let time = Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}
