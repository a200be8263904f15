//! How things are removed: one, or a directory with everything in it.
//!
//! A tree can be deeper than paths are long and than there are descriptors. So whatever directory is not empty
//! is first moved aside, into a new directory right beneath the one that goes: nothing is ever deeper than two
//! levels, and a few descriptors are enough. When one round is done, the next one goes through what was moved
//! aside, and moves aside elsewhere. So every directory is read once, however deep it was: one that was large once takes long to read even
//! when nothing is in it any more. If it is cut short, what is left is still beneath the one that goes, and can be
//! removed again.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ash_sandbox::{KernelQuotas, Project, Quotas as _};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::FileError;
use super::beneath::{Tree, kind_of, look_in};
use super::path::FilePath;
use super::write::unused_name;

/// How many entries are removed at the most: whoever is inside can make others meanwhile.
const MAX_REMOVED: u64 = 20_000_000;

/// How long it may take. What is removed by then stays removed.
const PATIENCE: Duration = Duration::from_secs(30);

/// So many bytes of a directory cost as much to read as an entry does to remove.
const BYTES_PER_ENTRY: u64 = 256;

/// How large a directory may be to be used again: it is read in full each time.
const SMALL_BYTES: i64 = 16 << 10;

/// How the names of directories end that others are moved aside to.
const ASIDE: &str = ".aside";

/// How many levels are gone down into where nothing can be moved aside.
const MAX_LEVELS: u32 = 100;

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

impl Tree {
    /// Removes a file, or a link, and not what that leads to. Directories are not removed.
    pub fn remove(&self, path: &FilePath) -> Result<(), FileError> {
        let dir = self.parent_of(path)?;
        let stat = look_in(dir.as_fd(), path.name())?.ok_or(FileError::NotFound)?;
        if kind_of(&stat) == FileType::Directory {
            return Err(FileError::NotAFile);
        }
        Ok(unlinkat(&dir, path.name(), AtFlags::empty())?)
    }

    /// The same, and a directory with everything in it, however deep.
    pub fn remove_all(&self, path: &FilePath) -> Result<(), FileError> {
        self.remove_all_unless(path, &|| false)
    }

    /// The same, unless it is called off meanwhile: then it is [`FileError::Busy`], as when it takes too long. What
    /// is removed stays removed.
    pub fn remove_all_unless(
        &self,
        path: &FilePath,
        is_called_off: &dyn Fn() -> bool,
    ) -> Result<(), FileError> {
        match self.remove(path) {
            Err(FileError::NotAFile) => {}
            removed => return removed,
        }
        let dir = self.parent_of(path)?;
        let top = open_up(dir.as_fd(), path.name())?;
        let budget = Budget { left: MAX_REMOVED, until: Instant::now() + PATIENCE, is_called_off };
        let mut removal = Removal { top: &top, aside: None, spare: None, budget };
        loop {
            removal.empty_top()?;
            while let Some(aside) = removal.aside.take() {
                removal.empty(&aside.dir)?;
                removal.put_away(aside)?;
            }
            if let Some(spare) = removal.spare.take() {
                removal.remove_aside(&spare)?;
            }
            match unlinkat(&dir, path.name(), AtFlags::REMOVEDIR) {
                // Somebody has put something into it meanwhile.
                Err(Errno::NOTEMPTY | Errno::EXIST) => removal.budget.spend(1)?,
                removed => return Ok(removed?),
            }
        }
    }

    /// The directory that something is in.
    fn parent_of(&self, path: &FilePath) -> Result<OwnedFd, FileError> {
        match self.open_directory(&path.parent()) {
            Err(FileError::NotADirectory) => Err(FileError::NotFound),
            dir => dir,
        }
    }
}

/// A directory that is being removed with everything in it.
struct Removal<'a> {
    top: &'a OwnedFd,
    /// Where directories are moved that are not empty, once there is one.
    aside: Option<Aside>,
    /// One that was emptied, for the round after the next: making and removing one takes longer than moving.
    spare: Option<Aside>,
    budget: Budget<'a>,
}

/// A new directory right beneath the top.
struct Aside {
    name: String,
    dir: OwnedFd,
}

impl Removal<'_> {
    /// Removes what is in the top. Which directories in it are not empty is moved aside level by level.
    fn empty_top(&mut self) -> Result<(), FileError> {
        let top = self.top;
        self.each(top, |removal, name, child| {
            // What an earlier removal moved aside is not moved again: it would never come to an end.
            if name.to_bytes().ends_with(ASIDE.as_bytes()) {
                removal.empty(child)
            } else {
                removal.flatten(child, 0)
            }
        })
    }

    /// Removes what is in a directory that things were moved aside to.
    fn empty(&mut self, aside: &OwnedFd) -> Result<(), FileError> {
        self.each(aside, |removal, _, child| removal.flatten(child, 0))
    }

    /// Removes what is in a directory; other directories that are not empty after something was done about them.
    fn each(
        &mut self,
        dir: &OwnedFd,
        mut make_empty: impl FnMut(&mut Self, &CStr, &OwnedFd) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        self.budget.read(dir)?;
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_aside =
                self.aside.as_ref().is_some_and(|aside| aside.name.as_bytes() == name.to_bytes());
            if !is_itself(name) && !is_aside {
                self.budget.spend(1)?;
                gone(remove_entry(dir.as_fd(), name, |child| make_empty(self, name, child)))?;
            }
        }
        Ok(())
    }

    /// Removes what is in a directory, and moves aside which directories in it are not empty. Those that
    /// cannot be moved are gone down into.
    fn flatten(&mut self, dir: &OwnedFd, level: u32) -> Result<(), FileError> {
        self.each(dir, |removal, name, child| match removal.move_aside(dir, name)? {
            Moved::Aside => Ok(()),
            Moved::Not if level < MAX_LEVELS => removal.flatten(child, level + 1),
            // No path is wrong: it is what the file system does not do.
            Moved::Not => Err(FileError::Unavailable(Errno::XDEV.into())),
        })
    }

    /// Moves a directory to where the next round finds it.
    fn move_aside(&mut self, dir: &OwnedFd, name: &CStr) -> Result<Moved, FileError> {
        if self.aside.is_none() {
            self.aside = match self.spare.take() {
                Some(spare) => Some(spare),
                None => make_aside(self.top)?,
            };
        }
        // Where there is no room for a directory, there may be for a name.
        let target = self.aside.as_ref().map_or(self.top, |aside| &aside.dir);
        let new = unused_name()?;
        let moved = match renameat(dir, name, target, new.as_str()) {
            // It is of another project than the one that is handed on there.
            Err(Errno::XDEV) if self.aside.is_some() && hand_nothing_on(target) => {
                renameat(dir, name, target, new.as_str())
            }
            moved => moved,
        };
        match moved {
            Ok(()) => Ok(Moved::Aside),
            Err(Errno::XDEV) => Ok(Moved::Not),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps a directory that was emptied, unless it takes long to read since so much was in it.
    fn put_away(&mut self, aside: Aside) -> Result<(), FileError> {
        let is_small = rustix::fs::fstat(&aside.dir)?.st_size <= SMALL_BYTES;
        if is_small && self.spare.is_none() {
            self.spare = Some(aside);
            return Ok(());
        }
        self.remove_aside(&aside)
    }

    fn remove_aside(&self, aside: &Aside) -> Result<(), FileError> {
        match unlinkat(self.top, aside.name.as_str(), AtFlags::REMOVEDIR) {
            // Somebody has put something into it, or moved it: it is looked for again.
            Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// What became of a directory that was to be moved.
enum Moved {
    Aside,
    /// It lies on another file system, or is of another project.
    Not,
}

/// Makes a directory right beneath the top, which is its owner's: if the removal is cut short, it stays.
/// None, if there is no room for it.
fn make_aside(top: &OwnedFd) -> Result<Option<Aside>, FileError> {
    let name = unused_name()? + ASIDE;
    match rustix::fs::mkdirat(top, name.as_str(), Mode::RWXU) {
        Err(Errno::NOSPC | Errno::DQUOT | Errno::MLINK) => return Ok(None),
        made => made?,
    }
    let dir = openat(top, name.as_str(), DIRECTORY, Mode::empty())?;
    if rustix::process::geteuid().is_root() {
        let owner = rustix::fs::fstat(top)?;
        let uid = rustix::fs::Uid::from_raw(owner.st_uid);
        let gid = rustix::fs::Gid::from_raw(owner.st_gid);
        rustix::fs::fchown(&dir, Some(uid), Some(gid))?;
    }
    Ok(Some(Aside { name, dir }))
}

/// Has a directory take what is of any project. Says whether that has changed anything.
fn hand_nothing_on(dir: &OwnedFd) -> bool {
    match KernelQuotas.project(dir.as_fd()) {
        Ok(project) if project.is_inherited => {
            let project = Project { is_inherited: false, ..project };
            KernelQuotas.set_project(dir.as_fd(), project).is_ok()
        }
        Ok(_) | Err(_) => false,
    }
}

/// How much a removal may still do.
struct Budget<'a> {
    left: u64,
    until: Instant,
    is_called_off: &'a dyn Fn() -> bool,
}

impl Budget<'_> {
    fn spend(&mut self, cost: u64) -> Result<(), FileError> {
        if (self.is_called_off)() || Instant::now() >= self.until {
            return Err(FileError::Busy);
        }
        self.left = self.left.checked_sub(cost).ok_or(FileError::Busy)?;
        Ok(())
    }

    /// Pays for reading a directory: one that was large once is read in full, whatever is in it now.
    fn read(&mut self, dir: &OwnedFd) -> Result<(), FileError> {
        let bytes = u64::try_from(rustix::fs::fstat(dir)?.st_size).unwrap_or_default();
        self.spend(1 + bytes / BYTES_PER_ENTRY)
    }
}

/// Removes one entry; a directory that is not empty after something was done about it.
fn remove_entry(
    dir: BorrowedFd<'_>,
    name: &CStr,
    make_empty: impl FnOnce(&OwnedFd) -> Result<(), FileError>,
) -> Result<(), FileError> {
    let stat = look_in(dir, name.to_bytes())?.ok_or(FileError::NotFound)?;
    if kind_of(&stat) != FileType::Directory {
        return Ok(unlinkat(dir, name, AtFlags::empty())?);
    }
    match unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => {}
        removed => return Ok(removed?),
    }
    make_empty(&open_up(dir, name.to_bytes())?)?;
    match unlinkat(dir, name, AtFlags::REMOVEDIR) {
        // It is another round's, or was moved.
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        removed => Ok(removed?),
    }
}

/// Opens a directory. Where the agent has the server's own user it can have locked us out of one, so it is
/// opened to us again.
fn open_up(parent: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, FileError> {
    if rustix::process::geteuid().is_root() {
        return Ok(openat(parent, name, DIRECTORY, Mode::empty())?);
    }
    let place = openat(parent, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        rustix::fs::chmod(itself.as_str(), mode | Mode::RWXU)?;
    }
    Ok(rustix::fs::open(itself.as_str(), DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())?)
}

/// What went away by itself is gone too.
fn gone(removed: Result<(), FileError>) -> Result<(), FileError> {
    match removed {
        Err(FileError::NotFound | FileError::NotADirectory | FileError::NotAFile) => Ok(()),
        removed => removed,
    }
}

fn is_itself(name: &CStr) -> bool {
    name == c"." || name == c".."
}
