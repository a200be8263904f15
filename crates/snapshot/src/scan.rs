//! A look at every name in a tree, by several threads, without following anything.
//!
//! Each directory is opened by its path from the root, which the kernel does not let lead elsewhere.
//! So as many descriptors are open as there are threads, however deep a tree is.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, StatxAttributes, openat2, statx,
};
use rustix::io::Errno;

use crate::restore::is_aside;
use crate::show::join;
use crate::snapshot::MAX_UNSTABLE;
use crate::state::{ASKED, KnownKind, KnownTree, Stamp};

/// How long a path can be that the kernel takes at once.
const PATH_BYTES: usize = 4000;

/// How long the path of a directory may be that is looked into: several times what programs can name.
const MAX_PATH: usize = 32 * 1024;

/// How many bytes the paths of directories may have together that programs cannot name at once. Each
/// level of a deep tree has all those above it in its path: this is enough for some four thousand.
const MAX_LONG_PATHS: usize = 64 * 1024 * 1024;

/// What was found of a tree.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    /// The first is the root.
    pub(crate) directories: Vec<Seen>,
    pub(crate) skipped: Skipped,
    /// Paths that are there and were not looked into: what is excluded, and where something is mounted.
    pub(crate) left: Vec<Vec<u8>>,
    /// Paths that may not be read.
    pub(crate) unreadable: Vec<Vec<u8>>,
    /// Directories that were gone when they were to be looked into: removed, or renamed.
    pub(crate) vanished: Vec<Vec<u8>>,
}

impl Scanned {
    /// Whether everything looks as it is known to have looked.
    pub(crate) fn is_known(&self) -> bool {
        let mut directories = self.directories.iter();
        directories
            .all(|seen| seen.same_names && seen.entries.iter().all(|entry| entry.known.is_some()))
    }
}

/// What was left out of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// Sockets.
    pub sockets: u64,
    /// Named pipes.
    pub fifos: u64,
    /// Devices.
    pub devices: u64,
    /// What may not be read.
    pub unreadable: u64,
    /// Where something else is mounted: the directory is kept, and not what is in it.
    #[serde(default)]
    pub mounts: u64,
    /// Extended attributes that are not kept: access control lists, what a program may do, and those of a user
    /// that are too many or too long.
    #[serde(default)]
    pub attributes: u64,
}

impl Skipped {
    pub(crate) fn add(&mut self, other: Self) {
        self.sockets += other.sockets;
        self.fifos += other.fifos;
        self.devices += other.devices;
        self.unreadable += other.unreadable;
        self.mounts += other.mounts;
        self.attributes += other.attributes;
    }
}

/// A directory that was found.
#[derive(Debug)]
pub(crate) struct Seen {
    /// From the root; empty for the root.
    pub(crate) path: Vec<u8>,
    /// Which of the directories that are known it is.
    pub(crate) known: Option<usize>,
    /// By name.
    pub(crate) entries: Vec<SeenEntry>,
    /// Whether exactly those entries are there that are known.
    pub(crate) same_names: bool,
}

/// A name that was found.
#[derive(Debug)]
pub(crate) struct SeenEntry {
    pub(crate) name: Box<[u8]>,
    pub(crate) stamp: Stamp,
    /// Which of the directories, if it is one.
    pub(crate) directory: Option<usize>,
    /// Which of the entries that are known of the directory looks exactly like it.
    pub(crate) known: Option<usize>,
}

/// What is being scanned.
struct Scan<'a> {
    root: BorrowedFd<'a>,
    known: &'a KnownTree,
    excluded: &'a [Vec<u8>],
    asides: Asides,
    watch: &'a (dyn Fn() + Sync),
    shared: Mutex<Shared>,
    more: Condvar,
}

#[derive(Default)]
struct Shared {
    found: Scanned,
    /// Directories that nobody has looked into yet.
    waiting: Vec<usize>,
    /// How many are being looked into.
    busy: usize,
    /// How many bytes the paths have that are long.
    long_paths: usize,
    failed: Option<(Vec<u8>, io::Error)>,
}

/// How many names are looked at until somebody who watches is told so.
const WATCHED: usize = 256;

/// What becomes of directories that restores leave behind when they are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asides {
    /// They are seen like all others, and can be removed.
    Seen,
    /// They are passed over: nobody wants to keep them.
    PassedOver,
}

/// Scans a tree. What has these paths from the root is left out. Calls `watch` from time to time, by several
/// threads. An error comes with the path of the directory that could not be read.
pub(crate) fn scan(
    root: BorrowedFd<'_>,
    known: &KnownTree,
    excluded: &[Vec<u8>],
    asides: Asides,
    threads: usize,
    watch: &(dyn Fn() + Sync),
) -> Result<Scanned, (Vec<u8>, io::Error)> {
    let mut shared = Shared::default();
    let first = (!known.directories.is_empty()).then_some(0);
    shared.found.directories.push(unseen(Vec::new(), first));
    shared.waiting.push(0);
    let (shared, more) = (Mutex::new(shared), Condvar::new());
    let scan = Scan { root, known, excluded, asides, watch, shared, more };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| scan.work());
        }
        scan.work();
    });
    let shared = scan.shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    match shared.failed {
        Some(failed) => Err(failed),
        None => Ok(shared.found),
    }
}

fn unseen(path: Vec<u8>, known: Option<usize>) -> Seen {
    Seen { path, known, entries: Vec::new(), same_names: false }
}

impl Scan<'_> {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into directories until there are no more.
    fn work(&self) {
        let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
        let mut shared = self.lock();
        loop {
            if let Some(directory) = shared.waiting.pop() {
                shared.busy += 1;
                let seen = &shared.found.directories[directory];
                let (path, known) = (seen.path.clone(), seen.known);
                drop(shared);
                let looked = self.look(&path, known, &mut buffer);
                shared = self.lock();
                shared.busy -= 1;
                match looked {
                    Ok(_) if shared.failed.is_some() => {}
                    Ok(looked) => self.note(&mut shared, directory, path, looked),
                    Err(error) => {
                        shared.failed.get_or_insert((path, error));
                        shared.waiting.clear();
                    }
                }
                self.more.notify_all();
            } else if shared.busy == 0 {
                return;
            } else {
                shared = self.more.wait(shared).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Puts down what was found in a directory; what is in it waits to be looked into.
    fn note(&self, shared: &mut Shared, directory: usize, path: Vec<u8>, mut looked: Looked) {
        let mut too_deep = Vec::new();
        let entries = looked.entries.iter_mut().zip(&looked.below).enumerate();
        for (at, (entry, known)) in entries {
            if entry.stamp.file_type() != FileType::Directory {
                continue;
            }
            let mut below = path.clone();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(&entry.name);
            if below.len() > PATH_BYTES {
                shared.long_paths += below.len();
            }
            if below.len() > MAX_PATH || shared.long_paths > MAX_LONG_PATHS {
                // What is in there could not be restored either, and costs its depth squared.
                shared.found.skipped.unreadable += 1;
                if shared.found.unreadable.len() < MAX_UNSTABLE {
                    shared.found.unreadable.push(below);
                }
                too_deep.push(at);
                continue;
            }
            let number = shared.found.directories.len();
            shared.found.directories.push(unseen(below, *known));
            shared.waiting.push(number);
            entry.directory = Some(number);
        }
        // They are not there, as far as anybody is told.
        if !too_deep.is_empty() {
            let mut numbers = 0..;
            looked.entries.retain(|_| {
                numbers.next().is_some_and(|number| too_deep.binary_search(&number).is_err())
            });
        }
        shared.found.skipped.add(looked.skipped);
        shared.found.left.extend(looked.left);
        shared.found.unreadable.extend(looked.unreadable);
        if looked.vanished {
            shared.found.vanished.push(path.clone());
        }
        let seen = &mut shared.found.directories[directory];
        (seen.entries, seen.same_names) = (looked.entries, looked.same_names);
    }

    fn look(
        &self,
        path: &[u8],
        known: Option<usize>,
        buffer: &mut [MaybeUninit<u8>],
    ) -> io::Result<Looked> {
        let mut skipped = Skipped::default();
        let opened = match open_below(self.root, path, OFlags::DIRECTORY) {
            Ok(opened) => opened,
            // Something is mounted there: it is empty to us.
            Err(error) if !path.is_empty() && is_mounted(&error) => return Ok(Looked::default()),
            // Gone since its name was read, or not to be read.
            Err(error) if !path.is_empty() && is_gone(&error) => {
                return Ok(Looked { vanished: true, ..Looked::default() });
            }
            Err(error) if !path.is_empty() && error.kind() == io::ErrorKind::PermissionDenied => {
                skipped.unreadable = 1;
                let unreadable = vec![path.to_owned()];
                return Ok(Looked { skipped, unreadable, ..Looked::default() });
            }
            Err(error) => return Err(error),
        };
        let (mut entries, mut left, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
        let mut listing = RawDir::new(opened.as_fd(), buffer);
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if self.is_excluded(path, name) {
                left.push(join(path, name.to_bytes()));
                continue;
            }
            if self.asides == Asides::PassedOver && is_aside(name.to_bytes()) {
                continue;
            }
            if entries.len().is_multiple_of(WATCHED) {
                (self.watch)();
            }
            match look_at(opened.as_fd(), name) {
                // A directory is found to be empty: nobody goes through it.
                Ok((stamp, Mounted::Here)) => {
                    left.push(join(path, name.to_bytes()));
                    skipped.mounts += 1;
                    if stamp.file_type() == FileType::Directory {
                        let name = name.to_bytes().into();
                        entries.push(SeenEntry { name, stamp, directory: None, known: None });
                    }
                }
                Ok((stamp, Mounted::No)) => match stamp.file_type() {
                    FileType::RegularFile | FileType::Directory | FileType::Symlink => {
                        let name = name.to_bytes().into();
                        entries.push(SeenEntry { name, stamp, directory: None, known: None });
                    }
                    FileType::Socket => skipped.sockets += 1,
                    FileType::Fifo => skipped.fifos += 1,
                    FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                        skipped.devices += 1;
                    }
                },
                Err(error) if is_gone(&error) => {}
                // A directory that may be listed, and not passed through.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    skipped.unreadable += 1;
                    unreadable.push(join(path, name.to_bytes()));
                }
                Err(error) => return Err(error),
            }
        }
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(Looked { left, unreadable, ..self.compare(known, entries, skipped) })
    }

    fn is_excluded(&self, path: &[u8], name: &CStr) -> bool {
        self.excluded.iter().any(|excluded| match path {
            b"" => excluded == name.to_bytes(),
            _ => {
                let parts = [path, b"/", name.to_bytes()];
                excluded.len() == path.len() + 1 + name.count_bytes()
                    && excluded.iter().eq(parts.iter().copied().flatten())
            }
        })
    }

    /// Finds what looks as it is known to have looked.
    fn compare(
        &self,
        known: Option<usize>,
        mut entries: Vec<SeenEntry>,
        skipped: Skipped,
    ) -> Looked {
        let mut below = vec![None; entries.len()];
        let Some(known) = known.map(|known| &self.known.directories[known]) else {
            return Looked { entries, below, skipped, ..Looked::default() };
        };
        let mut rest = known.entries.iter().enumerate().peekable();
        let mut same_names = entries.len() == known.entries.len();
        for (entry, below) in entries.iter_mut().zip(&mut below) {
            while rest.next_if(|(_, known)| known.name < entry.name).is_some() {}
            let Some((number, known)) = rest.next_if(|(_, known)| known.name == entry.name) else {
                same_names = false;
                continue;
            };
            if let KnownKind::Directory(number) = known.kind {
                *below = Some(number);
            }
            if known.settled && known.stamp == entry.stamp {
                entry.known = Some(number);
            }
        }
        Looked { entries, below, same_names, skipped, ..Looked::default() }
    }
}

/// What a look into a directory found.
#[derive(Default)]
struct Looked {
    entries: Vec<SeenEntry>,
    /// For each of them, which known directory it is.
    below: Vec<Option<usize>>,
    same_names: bool,
    skipped: Skipped,
    left: Vec<Vec<u8>>,
    unreadable: Vec<Vec<u8>>,
    /// Whether it is not there any more.
    vanished: bool,
}

/// Whether something is mounted at a name.
enum Mounted {
    Here,
    No,
}

/// How something looks. The device says nothing of mounts: one that is bound has the same, and a file of
/// an overlay may have another.
fn look_at(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<(Stamp, Mounted)> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = statx(directory, name, flags, ASKED)?;
    let mounted = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok((Stamp::of(&found), if mounted { Mounted::Here } else { Mounted::No }))
}

/// Whether something could not be reached because it is on another mount.
pub(crate) fn is_mounted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::XDEV.raw_os_error())
}

/// Whether something was there and is not any more, or is something else now.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV)
    )
}

/// Opens what is at a path below a directory, to be read. No link is followed, nothing outside is
/// reached, and nothing that is mounted below.
pub(crate) fn open_below(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    // What is only opened to be passed through takes no other flag. What is read must not make us wait.
    let how = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = flags | how | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if path.is_empty() {
        return open_one(root, b".", flags);
    }
    let mut rest = path;
    let mut opened: Option<OwnedFd> = None;
    while rest.len() > PATH_BYTES {
        let end = rest[..PATH_BYTES].iter().rposition(|&byte| byte == b'/');
        let end = end.ok_or_else(|| io::Error::from(Errno::NAMETOOLONG))?;
        let from = opened.as_ref().map_or(root, |opened| opened.as_fd());
        let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        opened = Some(open_one(from, &rest[..end], through)?);
        rest = &rest[end + 1..];
    }
    open_one(opened.as_ref().map_or(root, |opened| opened.as_fd()), rest, flags)
}

fn open_one(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let path = CString::new(path).map_err(|_| io::Error::from(Errno::INVAL))?;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_XDEV
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS;
    loop {
        match openat2(root, &path, flags, Mode::empty(), resolve) {
            // Something was renamed on the way: look again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return Ok(opened?),
        }
    }
}
