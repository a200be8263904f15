//! Doing what makes a directory equal to a snapshot. Each step is a rename or as small; after any of them
//! it can be begun anew.

use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Mode, OFlags, fchmod, fremovexattr, linkat, mkdirat, openat, renameat, syncfs,
    unlinkat,
};
use rustix::io::Errno;

use super::in_place::{InPlace, Newer, Target};
use super::make::{Making, give, settle, split};
use super::place::ASIDE;
use super::plan::{Changes, Meta, ToMake};
use super::remove::remove_tree;
use super::{Damaged, Restore};
use crate::capture::{Progress, path_of};
use crate::error::{Result, SnapshotError};
use crate::file;
use crate::repository::Repository;
use crate::scan::open_below;
use crate::snapshot::Tree;

/// A directory that becomes a tree of a snapshot.
pub(super) struct Applying<'a> {
    repository: &'a Repository,
    in_place: &'a InPlace<'a>,
    tree: &'a Tree,
    pub(super) target: &'a Target,
    done: AtomicU64,
    /// How many things were moved out of the way.
    moved: AtomicU64,
    /// How many hard links became files of their own.
    copied: AtomicU64,
}

/// What is to be put in place, and lies aside.
pub(super) struct Written<'a> {
    /// Without its files.
    plan: Changes,
    /// Where they go.
    files: Vec<Vec<u8>>,
    /// How many things are to be done.
    steps: usize,
    /// Where they are, if there are any.
    aside: Option<Aside<'a>>,
}

/// The directory that was opened last, and its path.
type Last = Option<(Vec<u8>, OwnedFd)>;

impl<'a> Applying<'a> {
    pub(super) fn of(
        repository: &'a Repository,
        in_place: &'a InPlace<'a>,
        tree: &'a Tree,
        target: &'a Target,
    ) -> Self {
        let (done, moved, copied) = Default::default();
        Self { repository, in_place, tree, target, done, moved, copied }
    }

    /// Makes everything that is new aside, whole and durable. Nothing that is there is touched: whatever is
    /// damaged in the store is found now.
    pub(super) fn write_aside(&'a self, plan: Changes) -> Result<Written<'a>> {
        let mut plan = plan;
        let Changes { directories, files, symlinks, links, removals, settle, .. } = &mut plan;
        let steps = directories.len() + files.len() + symlinks.len() + links.len();
        let steps = steps + removals.len() + settle.len();
        if steps == 0 {
            return Ok(Written { plan, files: Vec::new(), steps, aside: None });
        }
        let aside = Aside::make(self)?;
        let files = self.write(&aside, std::mem::take(files), symlinks, directories)?;
        Ok(Written { plan, files, steps, aside: Some(aside) })
    }

    /// Puts everything in place; returns which files were left because of their looks alone.
    pub(super) fn put_in_place(&self, written: Written<'_>) -> Result<HashSet<Vec<u8>>> {
        let Written { plan, files, steps, aside } = written;
        let Changes { directories, symlinks, links, removals, locked, settle, doubtful, .. } = plan;
        if let Some(aside) = aside {
            for (path, mode) in &locked {
                let unlocked = open_below(self.root(), path, OFlags::DIRECTORY)
                    .and_then(|at| Ok(fchmod(at, Mode::from_raw_mode(mode | 0o700))?));
                unlocked.map_err(self.failed("open", path))?;
            }
            let step = |done: Result<()>| done.and_then(|()| self.step(steps));
            let mut last = None;
            for (number, path) in directories.iter().enumerate() {
                step(self.put(&aside, &format!("d{number}"), path, &mut last))?;
            }
            for (number, path) in files.iter().enumerate() {
                step(self.put(&aside, &format!("f{number}"), path, &mut last))?;
            }
            for (number, (path, ..)) in symlinks.iter().enumerate() {
                step(self.put(&aside, &format!("s{number}"), path, &mut last))?;
            }
            for (number, (path, target)) in links.iter().enumerate() {
                let name = format!("l{number}");
                self.link(&aside, &name, target).map_err(self.failed("link to", target))?;
                step(self.put(&aside, &name, path, &mut last))?;
            }
            for path in &removals {
                step(self.remove(&aside, path, &mut last))?;
            }
            for (path, meta) in settle.iter().rev() {
                let settled = self.settle(path, meta).map_err(self.failed("finish", path));
                step(settled)?;
            }
            aside.end()?;
        }
        let finished = || -> io::Result<()> {
            let Target { directory, mode, modified, attributes, .. } = self.target;
            let (mode, modified, attributes) = match self.in_place.newer {
                Newer::Keep => (*mode, *modified, attributes),
                Newer::Replace => (self.tree.mode, self.tree.modified, &self.tree.attributes),
            };
            let is_same = (mode, modified) == (self.target.mode, self.target.modified)
                && *attributes == self.target.attributes;
            if steps > 0 || !is_same {
                let meta = Meta { mode, modified, attributes: attributes.clone() };
                settle_again(directory.as_fd(), &meta)?;
                syncfs(directory)?;
            }
            Ok(())
        };
        finished().map_err(self.failed("finish", b""))?;
        Ok(doubtful)
    }

    /// How many hard links became files of their own.
    pub(super) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    fn root(&self) -> BorrowedFd<'_> {
        self.target.directory.as_fd()
    }

    fn failed<'p>(
        &'p self,
        attempted: &'static str,
        path: &'p [u8],
    ) -> impl Fn(io::Error) -> SnapshotError {
        let root = self.in_place.root.path;
        move |error| SnapshotError::tree(attempted, root.join(path_of(path)))(error)
    }

    fn step(&self, steps: usize) -> Result<()> {
        let files = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let progress = Progress { files, all_files: steps as u64, ..Progress::default() };
        if (self.in_place.progress)(progress) { Ok(()) } else { Err(SnapshotError::Cancelled) }
    }

    /// Makes everything that is new aside, each by its number, and durable. Returns where files go.
    fn write(
        &self,
        aside: &Aside<'_>,
        files: Vec<ToMake>,
        symlinks: &[(Vec<u8>, Vec<u8>, Meta)],
        directories: &[Vec<u8>],
    ) -> Result<Vec<Vec<u8>>> {
        let restore = Restore {
            tree: self.tree,
            path: b"",
            damaged: Damaged::Refuse,
            target: &self.in_place.root.path.join(path_of(&aside.name)),
            owner: self.in_place.owner,
            max_entries: self.in_place.max_entries,
            max_bytes: self.in_place.max_bytes,
            threads: self.in_place.threads,
            progress: self.in_place.progress,
        };
        let at = aside.directory.as_fd();
        let making = Making::of(self.repository, &restore, at);
        let mut files = files;
        making.order(&mut files);
        let named = |(number, file): (usize, &mut ToMake)| {
            std::mem::replace(&mut file.path, format!("f{number}").into_bytes())
        };
        let paths: Vec<Vec<u8>> = files.iter_mut().enumerate().map(named).collect();
        making.files(&files)?;
        for (number, (path, target, meta)) in symlinks.iter().enumerate() {
            let made = making.symlink(at, format!("s{number}").as_bytes(), target, meta);
            made.map_err(self.failed("make the link", path))?;
        }
        for (number, path) in directories.iter().enumerate() {
            let made = || -> io::Result<()> {
                let name = format!("d{number}");
                mkdirat(at, &name, Mode::from_raw_mode(0o700))?;
                let made = open_below(at, name.as_bytes(), OFlags::DIRECTORY)?;
                give(made.as_fd(), self.in_place.owner)
            };
            made().map_err(self.failed("make", path))?;
        }
        // What is put in place is whole, also if the power goes.
        syncfs(at).map_err(|error| self.failed("sync", &aside.name)(error.into()))?;
        Ok(paths)
    }

    /// The directory of a path, which is mostly that of the last one.
    fn parent<'l>(&self, path: &[u8], last: &'l mut Last) -> io::Result<&'l OwnedFd> {
        if last.as_ref().is_none_or(|(opened, _)| opened != path) {
            let opened = open_below(self.root(), path, OFlags::DIRECTORY | OFlags::PATH)?;
            *last = Some((path.to_owned(), opened));
        }
        Ok(&last.as_ref().expect("it was just opened").1)
    }

    /// Gives something that was made aside its place. What is there goes.
    fn put(&self, aside: &Aside<'_>, made: &str, path: &[u8], last: &mut Last) -> Result<()> {
        let mut put = || -> io::Result<()> {
            let (parent, name) = split(path);
            let at = self.parent(parent, last)?;
            match renameat(&aside.directory, made, at, &name) {
                // A directory is in the way, or it is one that something else is in the way of.
                Err(Errno::EXIST | Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY) => {
                    self.move_away(aside, at, &name)?;
                    Ok(renameat(&aside.directory, made, at, &name)?)
                }
                put => Ok(put?),
            }
        };
        put().map_err(self.failed("put in place", path))
    }

    /// Moves something to where it is removed in the end.
    fn move_away(&self, aside: &Aside<'_>, at: &OwnedFd, name: &CStr) -> io::Result<()> {
        let number = self.moved.fetch_add(1, Ordering::Relaxed);
        let away = format!("t{number}");
        match renameat(at, name, &aside.directory, &away) {
            // To be moved elsewhere, a directory must be one that its owner may write to.
            Err(Errno::ACCESS) => {
                let opened = open_below(at.as_fd(), name.to_bytes(), OFlags::DIRECTORY)?;
                fchmod(opened, Mode::from_raw_mode(0o700))?;
                Ok(renameat(at, name, &aside.directory, &away)?)
            }
            moved => Ok(moved?),
        }
    }

    fn link(&self, aside: &Aside<'_>, made: &str, target: &[u8]) -> io::Result<()> {
        let (parent, name) = split(target);
        let at = open_below(self.root(), parent, OFlags::DIRECTORY | OFlags::PATH)?;
        match linkat(&at, &name, &aside.directory, made, AtFlags::empty()) {
            // A file system lets one file have only so many names.
            Err(Errno::MLINK) => {
                self.copied.fetch_add(1, Ordering::Relaxed);
                copy(at.as_fd(), &name, aside, made, self.in_place.owner)
            }
            linked => Ok(linked?),
        }
    }

    fn remove(&self, aside: &Aside<'_>, path: &[u8], last: &mut Last) -> Result<()> {
        let mut remove = || -> io::Result<()> {
            let (parent, name) = split(path);
            let at = self.parent(parent, last)?;
            match unlinkat(at, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(Errno::ISDIR) => self.move_away(aside, at, &name),
                Err(error) => Err(error.into()),
            }
        };
        remove().map_err(self.failed("remove", path))
    }

    /// Gives a directory what it had. Its owner it has already.
    fn settle(&self, path: &[u8], meta: &Meta) -> io::Result<()> {
        settle_again(open_below(self.root(), path, OFlags::DIRECTORY)?.as_fd(), meta)
    }
}

/// Gives a directory that was there what it had, and nothing else.
fn settle_again(at: BorrowedFd<'_>, meta: &Meta) -> io::Result<()> {
    for (name, _) in file::attributes(at)? {
        if !meta.attributes.iter().any(|(wanted, _)| *wanted == name) {
            fremovexattr(at, &name[..])?;
        }
    }
    settle(at, meta, None)
}

/// Makes a file aside that is like one of the tree.
fn copy(
    at: BorrowedFd<'_>,
    name: &CStr,
    aside: &Aside<'_>,
    made: &str,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let mut from = File::from(open_below(at, name.to_bytes(), OFlags::empty())?);
    let stamp = file::stamp_of(from.as_fd())?;
    let attributes = file::attributes(from.as_fd())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let made = openat(&aside.directory, made, flags, Mode::from_raw_mode(0o600))?;
    let mut made = File::from(made);
    io::copy(&mut from, &mut made)?;
    made.sync_all()?;
    let meta = Meta { mode: stamp.permissions(), modified: stamp.modified, attributes };
    settle(made.as_fd(), &meta, owner)
}

/// A directory in the tree for what is not in its place yet, and for what is to go. Dropped, it is gone.
struct Aside<'a> {
    applying: &'a Applying<'a>,
    name: Vec<u8>,
    directory: OwnedFd,
    ended: bool,
}

impl<'a> Aside<'a> {
    fn make(applying: &'a Applying<'a>) -> Result<Self> {
        let name = format!("{ASIDE}{}", uuid::Uuid::now_v7()).into_bytes();
        let root = applying.root();
        let make = || -> io::Result<OwnedFd> {
            if is_locked(applying.target) {
                fchmod(root, Mode::from_raw_mode(applying.target.mode | 0o700))?;
            }
            mkdirat(root, &name[..], Mode::from_raw_mode(0o700))?;
            open_below(root, &name, OFlags::DIRECTORY)
        };
        let directory = make().map_err(applying.failed("make", &name))?;
        Ok(Self { applying, name, directory, ended: false })
    }

    /// Removes it with all that was moved away.
    fn end(mut self) -> Result<()> {
        self.ended = true;
        let removed = remove_tree(self.applying.root(), &self.name);
        removed.map_err(self.applying.failed("remove", &self.name))
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // What cannot be removed now is in no snapshot, and removed by the next one.
            let _left_behind = remove_tree(self.applying.root(), &self.name);
            if is_locked(self.applying.target) {
                let mode = Mode::from_raw_mode(self.applying.target.mode);
                let _left_open = fchmod(self.applying.root(), mode);
            }
        }
    }
}

/// Whether the owner of the directory may not write to it.
fn is_locked(target: &Target) -> bool {
    target.mode & 0o700 != 0o700
}
