//! Looking into snapshots: what is in a tree, and how two of them differ. Only directories are read.

use std::cmp::Ordering;

use crate::content::Content;
use crate::error::{Result, SnapshotError};
use crate::repository::{Chunks, Repository};
use crate::snapshot::Tree;
use crate::tree::{Entry, Kind};

/// How two trees differ at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// From the root.
    pub path: Vec<u8>,
    /// What was there, and what is.
    pub what: Difference,
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

/// Directories that are still to be compared: their path, and what was and is there.
type Pair = (Vec<u8>, Content, Content);

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
        self.refresh()?;
        let root = |tree: Option<&Tree>| tree.map_or(Content::EMPTY, |tree| tree.tree);
        let mut chunks = Chunks::of(self);
        let mut changes = Vec::new();
        let mut left = max_entries;
        let mut waiting: Vec<Pair> = vec![(Vec::new(), root(before), root(after))];
        while let Some((path, before, after)) = waiting.pop() {
            if before == after {
                continue;
            }
            let mut read = |content: Content| -> Result<Vec<Entry>> {
                let entries = chunks.directory(content, left)?;
                left -= entries.len() as u64;
                Ok(entries)
            };
            let (before, after) = (read(before)?, read(after)?);
            compare(&path, before, after, &mut changes, &mut waiting);
        }
        let parts = |path: &[u8]| -> Vec<Vec<u8>> {
            path.split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect()
        };
        changes.sort_by_cached_key(|change| parts(&change.path));
        Ok(changes)
    }
}

/// Compares the entries of two directories, both by name.
fn compare(
    path: &[u8],
    before: Vec<Entry>,
    after: Vec<Entry>,
    changes: &mut Vec<Change>,
    waiting: &mut Vec<Pair>,
) {
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    loop {
        let order = match (before.peek(), after.peek()) {
            (Some(one), Some(other)) => one.name.cmp(&other.name),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return,
        };
        let was = if order == Ordering::Greater { None } else { before.next() };
        let is = if order == Ordering::Less { None } else { after.next() };
        let Some(name) = was.as_ref().or(is.as_ref()).map(|entry| &entry.name) else { return };
        let below = join(path, name);
        let content = |entry: &Option<Entry>| {
            entry.as_ref().and_then(Entry::directory).unwrap_or(Content::EMPTY)
        };
        waiting.push((below.clone(), content(&was), content(&is)));
        let what = match (was, is) {
            (Some(was), Some(is)) if was.differs(&is) => Difference::Modified(was, is),
            (Some(was), None) => Difference::Removed(was),
            (None, Some(is)) => Difference::Added(is),
            (Some(_), Some(_)) | (None, None) => continue,
        };
        changes.push(Change { path: below, what });
    }
}

/// The path of a name in a directory.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_owned() } else { [path, b"/", name].concat() }
}
