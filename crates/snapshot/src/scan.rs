//! A look at every name in a tree, by several threads, without following anything.
//!
//! Each directory is opened by its path from the root, which the kernel does not let lead elsewhere.
//! So as many descriptors are open as there are threads, however deep a tree is.

mod anew;
mod below;

pub(crate) use below::{is_gone, is_mounted, open_below};

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, OFlags, RawDir, StatxAttributes, readlinkat, statx};
use rustix::io::Errno;

use crate::file::{self, ATTEMPTS, Found};
use crate::restore::is_aside;
use crate::show::join;
use crate::snapshot::MAX_UNSTABLE;
use crate::state::{ASKED, KnownDirectory, KnownKind, KnownTree, Stamp};

/// How long a path can be that the kernel takes at once.
const PATH_BYTES: usize = 4000;

/// How long the path of a directory may be that is looked into: several times what programs can name.
const MAX_PATH: usize = 32 * 1024;

/// How many bytes the paths of directories may have together that programs cannot name at once. Each
/// level of a deep tree has all those above it in its path: this is enough for some four thousand.
const MAX_LONG_PATHS: usize = 64 * 1024 * 1024;

/// What was found of a tree.
#[derive(Clone, Debug, Default)]
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
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// From the root; empty for the root.
    pub(crate) path: Vec<u8>,
    /// Which of the directories that are known it is.
    pub(crate) known: Option<usize>,
    /// By name.
    pub(crate) entries: Vec<SeenEntry>,
    /// Whether exactly those entries are there that are known.
    pub(crate) same_names: bool,
    /// Whether it does not look as it is known to have looked.
    pub(crate) is_new: bool,
    /// Its extended attributes, if it is new and a capture looks.
    pub(crate) attributes: Found,
}

/// A name that was found.
#[derive(Clone, Debug)]
pub(crate) struct SeenEntry {
    pub(crate) name: Box<[u8]>,
    pub(crate) stamp: Stamp,
    /// Which of the directories, if it is one.
    pub(crate) directory: Option<usize>,
    /// Which of the entries that are known of the directory looks exactly like it.
    pub(crate) known: Option<usize>,
    /// What it says, if it is a symbolic link that is not known and a capture looks. Nothing, if it was replaced
    /// each time that it was to be read.
    pub(crate) target: Option<Target>,
}

/// What a symbolic link says.
pub(crate) type Target = Box<[u8]>;

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

impl Asides {
    /// Whether a capture looks, which wants to keep what it sees. All others see them.
    fn is_capture(self) -> bool {
        self == Self::PassedOver
    }
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
    shared.found.directories.push(unseen(Vec::new(), first, false));
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

fn unseen(path: Vec<u8>, known: Option<usize>, is_new: bool) -> Seen {
    let attributes = Found::default();
    Seen { path, known, entries: Vec::new(), same_names: false, is_new, attributes }
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
                let (path, known, is_new) = (seen.path.clone(), seen.known, seen.is_new);
                drop(shared);
                let looked = self.look(&path, known, is_new, &mut buffer);
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
            shared.found.directories.push(unseen(below, *known, entry.known.is_none()));
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
        seen.attributes = looked.attributes;
    }

    fn look(
        &self,
        path: &[u8],
        known: Option<usize>,
        is_new: bool,
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
        let is_wanted = is_new && self.asides.is_capture();
        let attributes = match is_wanted.then(|| file::all_attributes(opened.as_fd())) {
            None => Found::default(),
            Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => Found::default(),
            Some(read) => read?,
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
            if entries.len().is_multiple_of(WATCHED) {
                (self.watch)();
            }
            let (looked, target) = self.look_at_name(opened.as_fd(), name, known);
            let entry = |stamp| {
                let name = name.to_bytes().into();
                SeenEntry { name, stamp, directory: None, known: None, target }
            };
            match looked {
                Ok((stamp, _)) if self.is_passed_over(name, &stamp) => {}
                // A directory is found to be empty: nobody goes through it.
                Ok((stamp, Mounted::Here)) => {
                    left.push(join(path, name.to_bytes()));
                    skipped.mounts += 1;
                    if stamp.file_type() == FileType::Directory {
                        entries.push(entry(stamp));
                    }
                }
                Ok((stamp, Mounted::No)) => match stamp.file_type() {
                    FileType::RegularFile | FileType::Directory | FileType::Symlink => {
                        entries.push(entry(stamp));
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
        Ok(Looked { left, unreadable, attributes, ..self.compare(known, entries, skipped) })
    }

    /// How something looks; and what it says, if that has to be kept. One that is replaced meanwhile is looked at
    /// again.
    fn look_at_name(
        &self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        known: Option<usize>,
    ) -> (io::Result<(Stamp, Mounted)>, Option<Target>) {
        let mut looked = look_at(directory, name);
        for _ in 0..ATTEMPTS {
            let is_link = |stamp: &Stamp| stamp.file_type() == FileType::Symlink;
            let is_wanted = looked.as_ref().is_ok_and(|(stamp, _)| {
                self.asides.is_capture() && is_link(stamp) && !self.is_known(known, name, stamp)
            });
            if !is_wanted {
                break;
            }
            match readlinkat(directory, name, Vec::new()) {
                Ok(target) => return (looked, Some(target.into_bytes().into())),
                Err(Errno::NOENT | Errno::INVAL) => looked = look_at(directory, name),
                Err(error) => return (Err(error.into()), None),
            }
        }
        (looked, None)
    }

    /// Whether a name is known, and looks as it did.
    fn is_known(&self, directory: Option<usize>, name: &CStr, stamp: &Stamp) -> bool {
        let Some(directory) = directory.map(|known| &self.known.directories[known]) else {
            return false;
        };
        let entries = &directory.entries;
        let found = entries.binary_search_by(|entry| (*entry.name).cmp(name.to_bytes()));
        found.is_ok_and(|at| entries[at].settled && entries[at].stamp == *stamp)
    }

    /// Whether this is a directory that a restore left behind, and nobody wants to see it.
    fn is_passed_over(&self, name: &CStr, stamp: &Stamp) -> bool {
        self.asides == Asides::PassedOver
            && is_aside(name.to_bytes())
            && stamp.file_type() == FileType::Directory
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
        let known = known.map(|known| &self.known.directories[known]);
        let (below, same_names) = compare(known, &mut entries);
        Looked { entries, below, same_names, skipped, ..Looked::default() }
    }
}

/// Finds which entries look as they are known to have looked; for each, which known directory it is; and whether
/// exactly those are there that are known.
fn compare(
    known: Option<&KnownDirectory>,
    entries: &mut [SeenEntry],
) -> (Vec<Option<usize>>, bool) {
    let mut below = vec![None; entries.len()];
    let Some(known) = known else { return (below, false) };
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
    (below, same_names)
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
    attributes: Found,
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
