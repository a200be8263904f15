//! Looking into snapshots: what is in a tree, and how two of them differ. Only directories are read.

use std::cmp::Ordering;

use crate::chunks::{Chunks, Part};
use crate::content::Content;
use crate::error::{Result, SnapshotError};
use crate::id::ChunkKind;
use crate::repository::Repository;
use crate::snapshot::Tree;
use crate::tree::{Entry, Kind};

/// How two trees differ at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// From the root, whose own path is empty: it differs if its mode or attributes do.
    pub path: Vec<u8>,
    /// What was there, and what is.
    pub what: Difference,
    /// How many bytes were there, if anything was. Those of a hard link are those of the file that it leads to.
    pub size_before: Option<u64>,
    /// How many bytes are there, if anything is.
    pub size_after: Option<u64>,
}

/// What differs. The times of files and directories alone are no difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// This is there, and nothing was.
    Added(Entry),
    /// This was there, and nothing is.
    Removed(Entry),
    /// The first was there, the second is.
    Modified(Entry, Entry),
}

impl Entry {
    /// How many bytes it has, if it is a file.
    pub fn size(&self) -> u64 {
        match &self.kind {
            Kind::File(content) => content.size,
            Kind::Directory(_) | Kind::Symlink(_) | Kind::HardLink(_) => 0,
        }
    }

    /// Whether it differs from another of the same name, without what is in it if both are directories.
    fn differs(&self, other: &Self) -> bool {
        let same = match (&self.kind, &other.kind) {
            (Kind::Directory(_), Kind::Directory(_)) => true,
            (one, another) => one == another,
        };
        !same || self.mode != other.mode || self.attributes != other.attributes
    }

    fn directory(&self) -> Option<Content> {
        match &self.kind {
            Kind::Directory(content) => Some(*content),
            Kind::File(_) | Kind::Symlink(_) | Kind::HardLink(_) => None,
        }
    }
}

impl Tree {
    /// The root itself, as if it were in another directory. It has no name.
    fn entry(&self) -> Entry {
        Entry {
            name: Vec::new(),
            mode: self.mode,
            modified: self.modified,
            kind: Kind::Directory(self.tree),
            attributes: self.attributes.clone(),
        }
    }
}

/// Entries of a directory, by name.
type Entries = std::iter::Peekable<std::vec::IntoIter<Entry>>;

impl Repository {
    /// The entry at a path of a tree.
    pub fn entry(&self, tree: &Tree, path: &[u8]) -> Result<Entry> {
        self.refresh()?;
        self.entry_at(tree, path)
    }

    /// The same, by what is known of chunks already.
    pub(crate) fn entry_at(&self, tree: &Tree, path: &[u8]) -> Result<Entry> {
        let missing = || {
            let path = String::from_utf8_lossy(path);
            SnapshotError::Missing(format!("{path} in the tree {}", tree.name))
        };
        let mut chunks = Chunks::of(self);
        let mut at = Some(tree.tree);
        let mut found = None;
        for part in path.split(|&byte| byte == b'/') {
            let entries = chunks.directory(at.ok_or_else(missing)?, u64::MAX)?;
            let entry = entries.into_iter().find(|entry| entry.name == part);
            let entry = entry.ok_or_else(missing)?;
            at = entry.directory();
            found = Some(entry);
        }
        found.ok_or_else(missing)
    }

    /// The bytes of a file, of which there may be at most `most`.
    pub fn bytes(&self, content: Content, most: u64) -> Result<Vec<u8>> {
        if content.size > most {
            return Err(SnapshotError::TooMuch { what: "bytes in one file", most });
        }
        self.refresh()?;
        let mut bytes = Vec::new();
        Chunks::of(self).each(ChunkKind::Data, content, &mut |part| {
            match part {
                // As many as are left: the whole is not larger than it may be.
                Part::Zeros(size) => {
                    let size = usize::try_from(size.min(most)).unwrap_or_default();
                    bytes.resize(bytes.len() + size, 0);
                }
                Part::Bytes(more) => bytes.extend_from_slice(&more),
            }
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Calls `each` with every path of a tree, and what is there: by path, directories before what is in
    /// them. There may be at most `max_entries`.
    pub fn walk(
        &self,
        tree: &Tree,
        max_entries: u64,
        each: &mut dyn FnMut(&[u8], &Entry) -> Result<()>,
    ) -> Result<()> {
        self.refresh()?;
        let mut chunks = Chunks::of(self);
        let mut left = max_entries;
        let mut open = |content: Content| -> Result<std::vec::IntoIter<Entry>> {
            let entries = chunks.directory(content, left)?;
            left -= entries.len() as u64;
            Ok(entries.into_iter())
        };
        let mut above = vec![(Vec::new(), open(tree.tree)?)];
        while let Some((path, entries)) = above.last_mut() {
            let Some(entry) = entries.next() else {
                above.pop();
                continue;
            };
            let below = join(path, &entry.name);
            each(&below, &entry)?;
            if let Some(content) = entry.directory() {
                above.push((below, open(content)?));
            }
        }
        Ok(())
    }

    /// How one tree became another, by path. No tree is an empty one. What is the same in both is not
    /// looked into. There may be at most `max_entries` of what differs.
    pub fn diff(
        &self,
        before: Option<&Tree>,
        after: Option<&Tree>,
        max_entries: u64,
    ) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        self.each_change(before, after, max_entries, &mut |change| {
            changes.push(change);
            Ok(())
        })?;
        Ok(changes)
    }

    /// Calls `each` with what differs, as it is found: no more is held in memory than the directories on the
    /// way.
    pub fn each_change(
        &self,
        before: Option<&Tree>,
        after: Option<&Tree>,
        max_entries: u64,
        each: &mut dyn FnMut(Change) -> Result<()>,
    ) -> Result<()> {
        self.refresh()?;
        let root = |tree: Option<&Tree>| tree.map_or(Content::EMPTY, |tree| tree.tree);
        let mut chunks = Chunks::of(self);
        let mut left = max_entries;
        let mut read = |content: Content| -> Result<Entries> {
            let entries = chunks.directory(content, left)?;
            left -= entries.len() as u64;
            Ok(entries.into_iter().peekable())
        };
        let (was, is) = (root(before), root(after));
        if let (Some(before), Some(after)) = (before, after) {
            let (one, other) = (before.entry(), after.entry());
            if one.differs(&other) {
                let what = Difference::Modified(one, other);
                let (path, size_before, size_after) = (Vec::new(), Some(0), Some(0));
                each(Change { path, what, size_before, size_after })?;
            }
        }
        if was == is {
            return Ok(());
        }
        let (mut links_before, mut links_after) = (Links::of(self, before), Links::of(self, after));
        let mut above = vec![Both { path: Vec::new(), before: read(was)?, after: read(is)? }];
        while let Some(both) = above.last_mut() {
            let Some((was, is)) = both.next() else {
                above.pop();
                continue;
            };
            let Some(name) = was.as_ref().or(is.as_ref()).map(|entry| &entry.name) else {
                continue;
            };
            let path = join(&both.path, name);
            let content = |entry: &Option<Entry>| {
                entry.as_ref().and_then(Entry::directory).unwrap_or(Content::EMPTY)
            };
            let (below_before, below_after) = (content(&was), content(&is));
            let mut sizes = |was: Option<&Entry>, is: Option<&Entry>| -> Result<_> {
                let was = was.map(|was| links_before.size(was)).transpose()?;
                Ok((was, is.map(|is| links_after.size(is)).transpose()?))
            };
            let what = match (was, is) {
                (Some(was), Some(is)) if was.differs(&is) => Some(Difference::Modified(was, is)),
                (Some(was), None) => Some(Difference::Removed(was)),
                (None, Some(is)) => Some(Difference::Added(is)),
                (Some(_), Some(_)) | (None, None) => None,
            };
            if let Some(what) = what {
                let (size_before, size_after) = match &what {
                    Difference::Added(is) => sizes(None, Some(is))?,
                    Difference::Removed(was) => sizes(Some(was), None)?,
                    Difference::Modified(was, is) => sizes(Some(was), Some(is))?,
                };
                each(Change { path: path.clone(), what, size_before, size_after })?;
            }
            if below_before != below_after {
                let (before, after) = (read(below_before)?, read(below_after)?);
                above.push(Both { path, before, after });
            }
        }
        Ok(())
    }
}

/// The entries of two directories of a path, both by name.
struct Both {
    path: Vec<u8>,
    before: Entries,
    after: Entries,
}

impl Both {
    /// What was and is at the next name.
    fn next(&mut self) -> Option<(Option<Entry>, Option<Entry>)> {
        let order = match (self.before.peek(), self.after.peek()) {
            (Some(one), Some(other)) => one.name.cmp(&other.name),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        let was = if order == Ordering::Greater { None } else { self.before.next() };
        let is = if order == Ordering::Less { None } else { self.after.next() };
        Some((was, is))
    }
}

/// How many directories are remembered in which hard links were looked up.
const KEPT_DIRECTORIES: usize = 64;

/// Looks up how large the files are that hard links of a tree lead to. They lead to neighbors mostly, so some
/// directories are remembered, each with its path.
pub(crate) struct Links<'a> {
    chunks: Chunks<'a>,
    tree: Option<&'a Tree>,
    kept: Vec<(Vec<u8>, Vec<Entry>)>,
}

impl<'a> Links<'a> {
    pub(crate) fn of(repository: &'a Repository, tree: Option<&'a Tree>) -> Self {
        Self { chunks: Chunks::of(repository), tree, kept: Vec::new() }
    }

    /// How many bytes there are at an entry. A link that leads to nothing, or to what cannot be read, has none.
    fn size(&mut self, entry: &Entry) -> Result<u64> {
        let Kind::HardLink(target) = &entry.kind else { return Ok(entry.size()) };
        let (above, name) = match target.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&target[..at], &target[at + 1..]),
            None => (&target[..0], &target[..]),
        };
        match self.directory(above) {
            Ok(entries) => {
                let found = entries.iter().find(|entry| entry.name == name);
                Ok(found.map_or(0, Entry::size))
            }
            Err(SnapshotError::Missing(_) | SnapshotError::Damaged { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn directory(&mut self, path: &[u8]) -> Result<&[Entry]> {
        if let Some(at) = self.kept.iter().position(|(kept, _)| kept == path) {
            let found = self.kept.remove(at);
            self.kept.push(found);
        } else {
            let entries = self.read(path)?;
            if self.kept.len() >= KEPT_DIRECTORIES {
                self.kept.remove(0);
            }
            self.kept.push((path.to_owned(), entries));
        }
        Ok(self.kept.last().map_or(&[], |(_, entries)| entries))
    }

    fn read(&mut self, path: &[u8]) -> Result<Vec<Entry>> {
        let mut at = self.tree.map_or(Content::EMPTY, |tree| tree.tree);
        for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
            let entries = self.chunks.directory(at, u64::MAX)?;
            let found = entries.iter().find(|entry| entry.name == part);
            let missing = || SnapshotError::Missing(String::from_utf8_lossy(path).into_owned());
            at = found.and_then(Entry::directory).ok_or_else(missing)?;
        }
        self.chunks.directory(at, u64::MAX)
    }
}

/// The path of a name in a directory.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_owned() } else { [path, b"/", name].concat() }
}
