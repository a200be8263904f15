//! Restore in place: a directory that is there becomes what a snapshot says, and only what differs is
//! written.
//!
//! ```text
//!   scan ─► compare ─► write aside, verified ─► sync ─► put in place ─► remove ─► directories ─► sync
//!          └── nothing is touched, and whatever fails changes nothing ──┘
//! ```
//!
//! Aside is a directory in the tree itself, so that everything is put in place by a rename. No file
//! that is there is ever written to: it may have names elsewhere, and whoever is stopped in the middle of
//! a large one would leave a mix of both. So a large file of which little differs is written anew as a
//! whole: to copy the rest of it from the old one saves nothing where the file system cannot share
//! blocks, and what is copied would have to be read back to be believed. Whoever is stopped leaves each name as it
//! was or as it is to be, and a directory aside, which the next one removes like all that is in no
//! snapshot. Nobody else should write to the tree meanwhile: what they do may be undone or stay.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::apply::Applying;
use super::compare::Comparing;
use super::known;
use super::plan::Changes;
use crate::capture::{Progress, Root, path_of};
use crate::error::{Result, SnapshotError};
use crate::file::{self, Attributes};
use crate::repository::Repository;
use crate::scan::{self, Asides, Scanned};
use crate::snapshot::Snapshot;
use crate::state::{KnownTree, State};
use crate::tree::Modified;

/// Which tree to make of which directory, and how.
#[derive(Clone)]
pub struct InPlace<'a> {
    /// What it is to be.
    pub snapshot: &'a Snapshot,
    /// The name of the tree in the snapshot, and the directory that becomes it. What is excluded, here or when
    /// it was captured, is left alone: whatever of it is there stays, and nothing of it is restored.
    pub root: Root<'a>,
    /// What counts as the same.
    pub trust: Trust,
    /// What becomes of what is newer than the snapshot.
    pub newer: Newer,
    /// Whether anything is done.
    pub effect: Effect,
    /// Whose that is to be that is written, by their numbers; whoever restores it, if nobody is named.
    pub owner: Option<(u32, u32)>,
    /// How many names there may be at the most.
    pub max_entries: u64,
    /// How many bytes there may be at the most.
    pub max_bytes: u64,
    /// How many threads work.
    pub threads: usize,
    /// Is told after each step how far it is, by several threads; answers whether to go on. It begins
    /// anew when files are compared, written, and put in place.
    pub progress: &'a (dyn Fn(Progress) -> bool + Sync),
}

/// What is believed of a file that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// How it looks: its size, mode, time and attributes.
    Looks,
    /// Its bytes alone, all of which are read: for a tree that may be torn, as after a power cut.
    Bytes,
}

/// What becomes of what differs from the snapshot by its looks, and of what is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newer {
    /// The directory becomes what the snapshot says.
    Replace,
    /// It stays: only what is missing, and what is torn, is written. A file is torn if its size and its time are
    /// what they should be and its bytes are not.
    Keep,
}

/// Whether a restore in place does anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The directory becomes what the snapshot says.
    Write,
    /// It is only said what would be done.
    Report,
}

/// What a restore in place did, or would do. Directories count when they are made, or have another mode
/// or other attributes; their times do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Names that are as they should be.
    pub same: u64,
    /// Names that were written.
    pub written: u64,
    /// How many of those looked as they should, and had other bytes.
    pub repaired: u64,
    /// Names that were removed.
    pub removed: u64,
    /// Names that are newer than the snapshot and stayed; no directories.
    pub kept: u64,
    /// Sockets, pipes, devices and mounts, which are left where they are unless their directory goes or the
    /// snapshot has something of their name.
    pub left: u64,
    /// Bytes of files that were read to compare them.
    pub bytes_read: u64,
    /// Bytes of files that were written.
    pub bytes_written: u64,
    /// Hard links that became files of their own: a file system lets one file have only so many names.
    pub copied: u64,
    /// What was done at which path, by path. A directory that was removed stands for all that was in it.
    pub changes: Vec<(Vec<u8>, Mending)>,
    /// What is remembered of the tree as it is now. A capture that it is handed to reads only what
    /// changes from now on, and what was left by its looks alone.
    pub state: State,
    /// Where the time went.
    pub took: MendTook,
}

/// Where the time of a restore in place went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MendTook {
    /// Looking what is in the store, and in the directory.
    pub scan: Duration,
    /// Comparing the two.
    pub compare: Duration,
    /// Writing what differs, putting it in place, and making it durable.
    pub write: Duration,
    /// Looking at what is there now, to remember it.
    pub look: Duration,
}

/// What was done at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mending {
    /// It was written.
    Written,
    /// It looked as it should, and was written because its bytes were others.
    Repaired,
    /// It was removed.
    Removed,
}

/// A directory that is to become a tree.
pub(super) struct Target {
    /// Where it is, whatever it was called by.
    pub(super) path: PathBuf,
    pub(super) directory: std::os::fd::OwnedFd,
    pub(super) mode: u32,
    pub(super) modified: Modified,
    pub(super) attributes: Attributes,
}

impl InPlace<'_> {
    /// What is left alone: what whoever restores names, what the snapshot says was left out of it, and what
    /// could not be read then. Whatever is there now stays.
    fn left_alone(&self) -> Result<Vec<Vec<u8>>> {
        let mut excluded = self.root.excluded.to_vec();
        let of_root = format!("{}/", self.root.name);
        let unreadable = self.snapshot.unreadable.iter();
        excluded.extend(
            unreadable.filter_map(|name| Some(name.strip_prefix(&of_root)?.as_bytes().to_vec())),
        );
        excluded.extend(self.snapshot.root(self.root.name)?.excluded());
        Ok(excluded)
    }
}

impl Repository {
    /// Makes an existing directory equal to a tree of a snapshot. What is remembered of the directory, if
    /// anything, saves looking into files that are as they were. Whatever is damaged in the store is found
    /// before anything in the directory is touched.
    pub fn restore_in_place(&self, in_place: &InPlace<'_>, remembered: &State) -> Result<Mended> {
        let mut all = self.restore_all_in_place(std::slice::from_ref(in_place), remembered)?;
        Ok(all.pop().expect("what was done is said of each directory"))
    }

    /// The same for several directories, none of which has another one in it that is not excluded. Whatever is
    /// damaged in the store is found before anything in any of them is touched.
    pub fn restore_all_in_place(
        &self,
        all: &[InPlace<'_>],
        remembered: &State,
    ) -> Result<Vec<Mended>> {
        let excluded = all.iter().map(InPlace::left_alone);
        let excluded = excluded.collect::<Result<Vec<Vec<Vec<u8>>>>>()?;
        let all = all.iter().zip(&excluded).map(|(in_place, excluded)| InPlace {
            root: Root { excluded, ..in_place.root.clone() },
            ..in_place.clone()
        });
        let all: Vec<InPlace<'_>> = all.collect();
        let targets = all.iter().map(|in_place| Target::open(&in_place.root));
        let targets = targets.collect::<Result<Vec<Target>>>()?;
        let begin = Instant::now();
        self.refresh()?;
        let mut refreshed = begin.elapsed();
        let (mut applying, mut plans, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for (in_place, target) in all.iter().zip(&targets) {
            let (plan, mut mended) = self.compare(in_place, target, remembered)?;
            mended.took.scan += std::mem::take(&mut refreshed);
            let tree = in_place.snapshot.root(in_place.root.name)?;
            applying.push((in_place, Applying::of(self, in_place, tree, target)));
            plans.push(plan);
            done.push(mended);
        }
        let mut written = Vec::new();
        for (((in_place, applying), plan), mended) in applying.iter().zip(plans).zip(&mut done) {
            if in_place.effect == Effect::Write {
                let begin = Instant::now();
                written.push(applying.write_aside(plan)?);
                mended.took.write = begin.elapsed();
            }
        }
        let mut written = written.into_iter();
        for ((in_place, applying), mended) in applying.iter().zip(&mut done) {
            match in_place.effect {
                Effect::Report => mended.state = remembered.clone(),
                Effect::Write => {
                    let written = written.next().expect("each was written that is to be");
                    let begin = Instant::now();
                    let doubtful = applying.put_in_place(written)?;
                    mended.copied = applying.copied();
                    mended.took.write += begin.elapsed();
                    let begin = Instant::now();
                    mended.state = match in_place.newer {
                        Newer::Replace => self.remember(in_place, applying.target, &doubtful)?,
                        // It is not what any snapshot says.
                        Newer::Keep => State::default(),
                    };
                    mended.took.look = begin.elapsed();
                }
            }
        }
        Ok(done)
    }

    /// What is to be done with a directory.
    fn compare(
        &self,
        in_place: &InPlace<'_>,
        target: &Target,
        remembered: &State,
    ) -> Result<(Changes, Mended)> {
        let begin = Instant::now();
        let name = in_place.root.name;
        let nothing = KnownTree::default();
        let known = match in_place.trust {
            Trust::Looks => remembered.tree(name, &target.path).unwrap_or(&nothing),
            Trust::Bytes => &nothing,
        };
        let scanned = look(in_place, target, known)?;
        let scan = begin.elapsed();
        let begin = Instant::now();
        let tree = in_place.snapshot.root(name)?;
        let comparing = Comparing::of(self, in_place, tree, target, &scanned, known);
        let (plan, mut mended) = comparing.plan()?;
        mended.took = MendTook { scan, compare: begin.elapsed(), ..MendTook::default() };
        Ok((plan, mended))
    }

    /// What is known of a directory now.
    fn remember(
        &self,
        in_place: &InPlace<'_>,
        target: &Target,
        doubtful: &HashSet<Vec<u8>>,
    ) -> Result<State> {
        let began = crate::capture::realtime();
        let after = look(in_place, target, &KnownTree::default())?;
        let tree = in_place.snapshot.root(in_place.root.name)?;
        let known = known::after(self, in_place, tree, &after, doubtful, began)?;
        let root = (in_place.root.name.to_owned(), target.path.clone());
        Ok(State::of(in_place.snapshot.id, root, known))
    }
}

impl Target {
    fn open(root: &Root<'_>) -> Result<Self> {
        let failed = |error: io::Error| SnapshotError::tree("open", root.path)(error);
        let path = root.path.canonicalize().map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        let directory = opened.map_err(|error| failed(error.into()))?;
        let stamp = file::stamp_of(directory.as_fd()).map_err(failed)?;
        let (mode, modified) = (stamp.permissions(), stamp.modified);
        let attributes = file::attributes(directory.as_fd()).map_err(failed)?;
        Ok(Self { path, directory, mode, modified, attributes })
    }
}

/// Looks at everything in the directory.
fn look(in_place: &InPlace<'_>, target: &Target, known: &KnownTree) -> Result<Scanned> {
    let InPlace { root, threads, .. } = in_place;
    let (threads, asides) = ((*threads).max(1), Asides::Seen);
    let scanned =
        scan::scan(target.directory.as_fd(), known, root.excluded, asides, threads, &|| {});
    let mut scanned = scanned.map_err(|(path, error)| {
        SnapshotError::tree("read the directory", root.path.join(path_of(&path)))(error)
    })?;
    if in_place.newer == Newer::Keep {
        // Whoever closed it did so after it was captured.
        scanned.left.extend(scanned.unreadable.iter().cloned());
    } else if scanned.skipped.unreadable > 0 {
        // What is in there can be neither compared nor removed.
        let denied = io::ErrorKind::PermissionDenied.into();
        let which = scanned
            .unreadable
            .first()
            .map_or(root.path.to_owned(), |path| root.path.join(path_of(path)));
        return Err(SnapshotError::tree("look into", which)(denied));
    }
    Ok(scanned)
}
