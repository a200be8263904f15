//! How a directory differs from a tree of a snapshot, and what has to be done about it.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{FileType, OFlags, readlinkat};

use super::bytes::{self, Doubt, Verdict};
use super::in_place::{InPlace, Mended, Mending, Newer, Target, Trust};
use super::keep;
use super::links::{look_up, must_be_files};
use super::make::mode_of_file;
use super::plan::{Changes, MAX_HELD, Meta, ToMake};
use crate::capture::path_of;
use crate::chunks::Chunks;
use crate::content::Content;
use crate::error::{Result, SnapshotError};
use crate::repository::Repository;
use crate::scan::{Scanned, SeenEntry, open_below};
use crate::show::join;
use crate::snapshot::Tree;
use crate::state::{Known, KnownKind, KnownTree};
use crate::tree::{Entry, Kind};

/// A directory of the snapshot.
struct Wanted {
    path: Vec<u8>,
    meta: Meta,
    /// The mode that it has, if it is there.
    mode: Option<u32>,
    differs: bool,
}

/// A further name of a file: its path, that of the file, and the file that it is now.
type WantedLink = (Vec<u8>, Vec<u8>, Option<FileNumber>);

/// A file, wherever its names are.
type FileNumber = ((u32, u32), u64);

/// A directory that is being compared.
pub(super) struct Comparing<'a> {
    repository: &'a Repository,
    in_place: &'a InPlace<'a>,
    tree: &'a Tree,
    target: &'a Target,
    scanned: &'a Scanned,
    known: &'a KnownTree,
    plan: Changes,
    mended: Mended,
    wanted: Vec<Wanted>,
    doubts: Vec<Doubt>,
    links: Vec<WantedLink>,
    /// Files with several names that are the file at a path of the snapshot already.
    claimed: HashMap<FileNumber, Vec<u8>>,
    /// Directories in which something is done.
    touched: HashSet<Vec<u8>>,
    held: u64,
    /// Whether what the snapshot does not have stays: it may be what could not be read then.
    keeps_others: bool,
}

impl<'a> Comparing<'a> {
    pub(super) fn of(
        repository: &'a Repository,
        in_place: &'a InPlace<'a>,
        tree: &'a Tree,
        target: &'a Target,
        scanned: &'a Scanned,
        known: &'a KnownTree,
    ) -> Self {
        let skipped = scanned.skipped;
        let left = skipped.sockets + skipped.fifos + skipped.devices + skipped.mounts;
        Self {
            repository,
            in_place,
            tree,
            target,
            scanned,
            known,
            plan: Changes::default(),
            mended: Mended { left, ..Mended::default() },
            wanted: Vec::new(),
            doubts: Vec::new(),
            links: Vec::new(),
            claimed: HashMap::new(),
            touched: HashSet::new(),
            held: 0,
            keeps_others: in_place.snapshot.skipped.unreadable > 0
                && !in_place.snapshot.names_all_unreadable(),
        }
    }

    /// What has to be done, and what comes of it.
    pub(super) fn plan(mut self) -> Result<(Changes, Mended)> {
        self.directories()?;
        self.check_links()?;
        self.doubts()?;
        self.link();
        self.settle();
        let Self { mut plan, mut mended, .. } = self;
        if self.in_place.newer == Newer::Keep {
            (plan, mended) = keep::only_torn(plan, mended, self.scanned);
        }
        mended.bytes_written = plan.files.iter().map(|file| file.content.size).sum();
        mended.changes.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok((plan, mended))
    }

    /// Compares every directory of the snapshot with the one that is at its path.
    fn directories(&mut self) -> Result<()> {
        let mut chunks = Chunks::of(self.repository);
        let mut left = self.in_place.max_entries;
        let mut bytes = 0_u64;
        let mut waiting = vec![(Vec::new(), self.tree.tree, Some(0))];
        while let Some((path, content, seen)) = waiting.pop() {
            let entries = chunks.directory(content, left)?;
            left -= entries.len() as u64;
            let scanned = self.scanned;
            let there = seen.map_or(&[][..], |seen| &scanned.directories[seen].entries);
            let known = seen.and_then(|seen| scanned.directories[seen].known);
            let mut there = there.iter().peekable();
            let mut opened = None;
            for entry in entries {
                while let Some(other) = there.next_if(|other| *other.name < *entry.name) {
                    self.remove(&path, other);
                }
                let found = there.next_if(|found| *found.name == *entry.name);
                let below = join(&path, &entry.name);
                if self.is_left(&below) {
                    continue;
                }
                bytes = bytes.saturating_add(entry.size());
                self.count(&below, &entry, bytes)?;
                if let Some(found) = found
                    && !matches!(entry.kind, Kind::Directory(_))
                {
                    self.clear(&below, found)?;
                }
                let before = found.and_then(|found| found.known).zip(known);
                let before = before.map(|(entry, at)| &self.known.directories[at].entries[entry]);
                let Entry { kind, mode, modified, attributes, .. } = entry;
                let meta = Meta { mode, modified, attributes };
                match kind {
                    Kind::Directory(content) => {
                        let found = found.filter(|found| is(found, FileType::Directory));
                        waiting.push((
                            below.clone(),
                            content,
                            found.and_then(|found| found.directory),
                        ));
                        self.directory(below, meta, found, before);
                    }
                    Kind::Symlink(target) => {
                        let same = found.is_some_and(|found| {
                            is(found, FileType::Symlink) && found.stamp.modified == meta.modified
                        });
                        if same && self.says(&path, &below, &target, before, &mut opened)? {
                            self.mended.same += 1;
                        } else {
                            self.write(&below, Mending::Written);
                            self.plan.symlinks.push((below, target, meta));
                        }
                    }
                    Kind::File(content) => {
                        // It was touched since it was captured, whatever it looks like.
                        let changed = before.is_none() && known.is_some() && found.is_some();
                        self.file(below, content, meta, found, before, changed);
                    }
                    Kind::HardLink(target) => {
                        let found = found.filter(|found| is(found, FileType::RegularFile));
                        self.links.push((below, target, found.map(|found| found.stamp.file())));
                    }
                }
            }
            for other in there {
                self.remove(&path, other);
            }
        }
        Ok(())
    }

    /// Takes account of an entry of the snapshot.
    fn count(&mut self, path: &[u8], entry: &Entry, bytes: u64) -> Result<()> {
        let attributes = entry.attributes.iter().map(|(name, value)| name.len() + value.len());
        let target = match &entry.kind {
            Kind::File(_) | Kind::Directory(_) => 0,
            Kind::Symlink(target) | Kind::HardLink(target) => target.len(),
        };
        self.held += (path.len() + target + attributes.sum::<usize>()) as u64;
        if self.held > MAX_HELD {
            return Err(SnapshotError::TooMuch { what: "bytes of names", most: MAX_HELD });
        }
        let most = self.in_place.max_bytes;
        if bytes > most { Err(SnapshotError::TooMuch { what: "bytes", most }) } else { Ok(()) }
    }

    /// Whether a path is one that is left alone.
    fn is_left(&self, path: &[u8]) -> bool {
        self.in_place.root.excluded.iter().chain(&self.scanned.left).any(|left| left == path)
    }

    /// Whether a path is left alone, or something that it is in.
    fn is_in_left(&self, path: &[u8]) -> bool {
        let mut left = self.in_place.root.excluded.iter().chain(&self.scanned.left);
        left.any(|left| left == path || is_below(path, left))
    }

    /// Takes note that something is written at a path.
    fn write(&mut self, path: &[u8], how: Mending) {
        self.mended.written += 1;
        self.mended.repaired += u64::from(how == Mending::Repaired);
        self.mended.changes.push((path.to_owned(), how));
        self.touch(path);
    }

    fn touch(&mut self, path: &[u8]) {
        let parent = above(path);
        if !self.touched.contains(parent) {
            self.touched.insert(parent.to_owned());
        }
    }

    /// A directory is in the way of something else: all that is in it goes.
    fn clear(&mut self, path: &[u8], found: &SeenEntry) -> Result<()> {
        let Some(directory) = found.directory else { return Ok(()) };
        if self.in_place.newer == Newer::Keep {
            return Ok(());
        }
        if self.scanned.left.iter().any(|left| is_below(left, path)) {
            let path = self.in_place.root.path.join(path_of(path));
            return Err(SnapshotError::tree("replace", path)(io::Error::other(
                "something in it is to be left alone, and the snapshot has no directory there",
            )));
        }
        self.mended.removed += self.names_in(directory);
        Ok(())
    }

    /// Something that is not in the snapshot goes, but for what is left alone in it.
    fn remove(&mut self, parent: &[u8], other: &SeenEntry) {
        if self.keeps_others {
            self.mended.left += 1;
            return;
        }
        let mut waiting = vec![(join(parent, &other.name), other)];
        while let Some((path, other)) = waiting.pop() {
            if self.is_left(&path) {
                continue;
            }
            if let Some(directory) = other.directory
                && self.scanned.left.iter().any(|left| is_below(left, &path))
            {
                let seen = &self.scanned.directories[directory];
                if other.stamp.mode & 0o700 != 0o700 {
                    self.plan.locked.push((path.clone(), other.stamp.permissions()));
                }
                waiting.extend(seen.entries.iter().map(|entry| (join(&path, &entry.name), entry)));
                continue;
            }
            self.mended.removed += 1 + other.directory.map_or(0, |below| self.names_in(below));
            self.mended.changes.push((path.clone(), Mending::Removed));
            self.touch(&path);
            self.plan.removals.push(path);
        }
    }

    /// How many names are in a directory and all below.
    fn names_in(&self, directory: usize) -> u64 {
        let (mut names, mut waiting) = (0, vec![directory]);
        while let Some(directory) = waiting.pop() {
            let entries = &self.scanned.directories[directory].entries;
            names += entries.len() as u64;
            waiting.extend(entries.iter().filter_map(|entry| entry.directory));
        }
        names
    }

    fn directory(
        &mut self,
        path: Vec<u8>,
        meta: Meta,
        found: Option<&SeenEntry>,
        before: Option<&Known>,
    ) {
        let mode = found.map(|found| found.stamp.permissions());
        let same_mode = mode == Some(meta.mode);
        let differs = found.is_none_or(|found| found.stamp.modified != meta.modified) || !same_mode;
        let number = self.wanted.len();
        let known = before.filter(|before| matches!(before.kind, KnownKind::Directory(_)));
        match (found, known) {
            (None, _) => {
                self.write(&path, Mending::Written);
                self.plan.directories.push(path.clone());
            }
            (Some(_), Some(known)) if same_mode && known.attributes == meta.attributes => {
                self.mended.same += 1;
            }
            (Some(_), None) if same_mode => {
                self.doubts.push(Doubt::directory(path.clone(), number, meta.clone()));
            }
            (Some(_), Some(_) | None) => {
                self.mended.written += 1;
                self.mended.changes.push((path.clone(), Mending::Written));
            }
        }
        let differs = differs || known.is_some_and(|known| known.attributes != meta.attributes);
        self.wanted.push(Wanted { path, meta, mode, differs });
    }

    /// Whether a symbolic link says this.
    fn says(
        &self,
        parent: &[u8],
        path: &[u8],
        target: &[u8],
        before: Option<&Known>,
        opened: &mut Option<OwnedFd>,
    ) -> Result<bool> {
        if let Some(Known { kind: KnownKind::Symlink(said), .. }) = before {
            return Ok(**said == *target);
        }
        let failed = |error: io::Error| {
            SnapshotError::tree("read the link", self.in_place.root.path.join(path_of(path)))(error)
        };
        let directory = match opened {
            Some(directory) => directory,
            none @ None => {
                let root = self.target.directory.as_fd();
                let flags = OFlags::DIRECTORY | OFlags::PATH;
                none.insert(open_below(root, parent, flags).map_err(failed)?)
            }
        };
        let name = &path[path.len() - path.iter().rev().take_while(|&&b| b != b'/').count()..];
        let said = readlinkat(directory, name, Vec::new());
        Ok(said.map_err(|error| failed(error.into()))?.as_bytes() == target)
    }

    fn file(
        &mut self,
        path: Vec<u8>,
        content: Content,
        meta: Meta,
        found: Option<&SeenEntry>,
        before: Option<&Known>,
        changed: bool,
    ) {
        let keeps = self.in_place.newer == Newer::Keep;
        let looks = found.filter(|found| {
            let mode = mode_of_file(meta.mode, self.in_place.owner);
            is(found, FileType::RegularFile)
                && found.stamp.size == content.size
                && (keeps || found.stamp.permissions() == mode)
                && found.stamp.modified == meta.modified
        });
        // A file that is another one of the snapshot already cannot be this one too.
        let looks = looks.filter(|found| {
            found.stamp.links == 1
                || match self.claimed.entry(found.stamp.file()) {
                    MapEntry::Occupied(_) => false,
                    MapEntry::Vacant(none) => {
                        none.insert(path.clone());
                        true
                    }
                }
        });
        let known = before.map(|before| (&before.kind, &before.attributes));
        match (looks, known) {
            (Some(_), Some((KnownKind::File(stored), attributes)))
                if *stored == content && *attributes == meta.attributes =>
            {
                self.mended.same += 1;
            }
            (None, _) | (Some(_), Some((KnownKind::File(_), _))) => {
                self.write(&path, Mending::Written);
                self.plan.files.push(ToMake { path, content, meta });
            }
            (Some(found), _) => {
                let doubt = Doubt::file(path, content, meta, found.stamp);
                self.doubts.push(Doubt { changed, ..doubt });
            }
        }
    }

    /// Whether all hard links lead to files. Those that lead to what is left alone become files.
    fn check_links(&mut self) -> Result<()> {
        let mut targets: HashSet<Vec<u8>> = HashSet::new();
        let mut outside: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        for (path, target, found) in std::mem::take(&mut self.links) {
            if !self.is_in_left(&target) {
                targets.insert(target.clone());
                self.links.push((path, target, found));
                continue;
            }
            match outside.entry(target) {
                MapEntry::Occupied(first) => self.links.push((path, first.get().clone(), found)),
                MapEntry::Vacant(none) => {
                    none.insert(path);
                }
            }
        }
        let all = outside.keys().map(|target| &target[..]);
        let (repository, tree) = (self.repository, self.tree);
        look_up(repository, tree, all, &mut |target, file| {
            let (content, meta) = file?;
            let path = outside[target].clone();
            self.write(&path, Mending::Written);
            self.plan.files.push(ToMake { path, content, meta });
            Ok(())
        })?;
        must_be_files(self.repository, self.tree, &targets)
    }

    /// Looks into what cannot be told from its looks.
    fn doubts(&mut self) -> Result<()> {
        let doubts = std::mem::take(&mut self.doubts);
        let (verdicts, read) = bytes::decide(self.repository, self.in_place, self.target, &doubts)?;
        self.mended.bytes_read = read;
        for (doubt, verdict) in doubts.into_iter().zip(verdicts) {
            let Doubt { path, of, meta, changed } = doubt;
            match (of, verdict) {
                (bytes::Of::Directory(_), Verdict::Same) => self.mended.same += 1,
                (bytes::Of::Directory(number), Verdict::Differs | Verdict::OtherBytes) => {
                    self.wanted[number].differs = true;
                    self.mended.written += 1;
                    self.mended.changes.push((path, Mending::Written));
                }
                (bytes::Of::File(content, _), Verdict::Same) => {
                    self.mended.same += 1;
                    if self.in_place.trust == Trust::Looks && !changed && content.size > 0 {
                        self.plan.doubtful.insert(path);
                    }
                }
                (bytes::Of::File(content, _), Verdict::Differs | Verdict::OtherBytes) => {
                    let repaired = verdict == Verdict::OtherBytes;
                    let how = if repaired { Mending::Repaired } else { Mending::Written };
                    self.write(&path, how);
                    self.plan.files.push(ToMake { path, content, meta });
                }
            }
        }
        Ok(())
    }

    /// Finds names that are not yet names of the file that they should be.
    fn link(&mut self) {
        if self.links.is_empty() {
            return;
        }
        let written: HashSet<&[u8]> = self.plan.files.iter().map(|file| &file.path[..]).collect();
        let mut wrong = Vec::new();
        for (path, target, found) in std::mem::take(&mut self.links) {
            let is_file = found.and_then(|found| self.claimed.get(&found)) == Some(&target);
            if is_file && !written.contains(&target[..]) {
                self.mended.same += 1;
            } else {
                wrong.push((path, target));
            }
        }
        for (path, target) in wrong {
            self.write(&path, Mending::Written);
            self.plan.links.push((path, target));
        }
    }

    /// What directories are given in the end.
    fn settle(&mut self) {
        for Wanted { path, meta, mode, differs } in std::mem::take(&mut self.wanted) {
            let touched = self.touched.contains(&path);
            if let Some(mode) = mode.filter(|mode| touched && mode & 0o700 != 0o700) {
                self.plan.locked.push((path.clone(), mode));
            }
            if touched || differs {
                self.plan.settle.push((path, meta));
            }
        }
    }
}

fn is(found: &SeenEntry, kind: FileType) -> bool {
    found.stamp.file_type() == kind
}

/// Whether a path is in what is at another, at some depth.
fn is_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// The directory of a path.
fn above(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(&path[..0], |at| &path[..at])
}
