//! Storing directories: those in which something changed, above the files that were stored.

use std::cell::RefCell;

use rustix::fs::FileType;

use super::plan::{self, Links};
use super::store::{Outcome, Outcomes, Stored};
use super::{OpenRoot, is_settled};
use crate::content::Content;
use crate::error::Result;
use crate::file::{Attributes, Found};
use crate::id::ChunkKind;
use crate::scan::Skipped;
use crate::snapshot::Tree;
use crate::state::{Known, KnownDirectory, KnownKind, KnownTree};
use crate::tree::{self, Entry, Kind, Modified};
use crate::writer::Cutter;

/// Directories that are being stored.
pub(super) struct Trees<'a> {
    pub(super) open: &'a OpenRoot,
    pub(super) known: &'a KnownTree,
    /// Each leads to a name that is a file: what was lost meanwhile is not among them.
    pub(super) links: &'a Links,
    pub(super) outcomes: &'a Outcomes,
    pub(super) began: Modified,
    /// Paths that were found, and could not be read.
    pub(super) unreadable: RefCell<Vec<Vec<u8>>>,
    /// Paths with attributes that are not kept. They are looked at by every capture, so that each says so.
    pub(super) stripped: RefCell<Vec<Vec<u8>>>,
}

impl Trees<'_> {
    /// Stores every directory in which something changed, those below before those above.
    pub(super) fn store(&self, cutter: &mut Cutter<'_, '_>) -> Result<Stored> {
        let count = self.open.scanned.directories.len();
        let mut directories: Vec<Option<KnownDirectory>> = (0..count).map(|_| None).collect();
        let mut changed = vec![false; count];
        let mut skipped = Skipped::default();
        let mut unstable = Vec::new();
        for number in (0..count).rev() {
            let seen = &self.open.scanned.directories[number];
            let before = seen.known.map(|known| &self.known.directories[known]);
            let mut entries = Vec::with_capacity(seen.entries.len());
            let mut same = seen.same_names;
            for entry in 0..seen.entries.len() {
                let (known, is_same) = self.entry(number, entry, &mut skipped, &mut unstable);
                let below = seen.entries[entry].directory;
                same &= is_same && !below.is_some_and(|below| changed[below]);
                entries.extend(known);
            }
            let tree = match before {
                Some(before) if same => before.tree,
                Some(_) | None => {
                    let encoded = tree::encode(&shown(&entries, &directories));
                    cutter.whole(ChunkKind::Tree, &encoded)?
                }
            };
            changed[number] = before.is_none_or(|before| before.tree != tree);
            directories[number] = Some(KnownDirectory { entries, tree });
        }
        cutter.flush()?;
        let known = KnownTree { directories: directories.into_iter().flatten().collect() };
        let (unreadable, stripped) = (self.unreadable.take(), self.stripped.take());
        Ok(Stored { tree: count_up(&known), known, skipped, unstable, unreadable, stripped })
    }

    /// An entry as it is captured, if it is; and whether it is what it was.
    fn entry(
        &self,
        directory: usize,
        entry: usize,
        skipped: &mut Skipped,
        unstable: &mut Vec<String>,
    ) -> (Option<Known>, bool) {
        let seen = &self.open.scanned.directories[directory];
        let found = &seen.entries[entry];
        let before = found.known.zip(seen.known);
        let before = before.map(|(entry, at)| &self.known.directories[at].entries[entry]);
        let known = |kind, attributes: &Attributes| Known {
            name: found.name.clone(),
            stamp: found.stamp,
            settled: is_settled(found.stamp.changed, self.began),
            kind,
            attributes: attributes.clone(),
        };
        let none = Attributes::new();
        let now = match found.stamp.file_type() {
            FileType::Directory => {
                let number = found.directory.expect("a directory that was found has a number");
                match before {
                    Some(before) => {
                        let kind = KnownKind::Directory(number);
                        return (Some(known(kind, &before.attributes)), true);
                    }
                    None => {
                        let Found { kept, lost } =
                            &self.open.scanned.directories[number].attributes;
                        self.note_lost(directory, entry, *lost, skipped);
                        let now = known(KnownKind::Directory(number), kept);
                        Known { settled: now.settled && *lost == 0, ..now }
                    }
                }
            }
            FileType::Symlink => match before {
                Some(before) => return (Some(before.clone()), true),
                None => match &found.target {
                    Some(target) => known(KnownKind::Symlink(target.clone()), &none),
                    None => {
                        unstable.push(self.name(directory, entry));
                        return (None, false);
                    }
                },
            },
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => match self.links.get(&(directory, entry)) {
                Some(&(first_directory, first)) => {
                    let target = plan::path(&self.open.scanned, first_directory, first);
                    let kind = KnownKind::HardLink(target.into());
                    let same = before.is_some_and(|before| before.kind == kind);
                    return (Some(known(kind, &none)), same);
                }
                None => match (self.outcomes.get(&(directory, entry)), before) {
                    (Some(outcome), _) => {
                        match self.stored(directory, entry, outcome, skipped, unstable) {
                            Some(stored) => stored,
                            None => return (None, false),
                        }
                    }
                    (None, Some(before)) => return (Some(before.clone()), true),
                    (None, None) => return (None, false),
                },
            },
        };
        (Some(now), false)
    }

    /// A file that was read.
    fn stored(
        &self,
        directory: usize,
        entry: usize,
        outcome: &Outcome,
        skipped: &mut Skipped,
        unstable: &mut Vec<String>,
    ) -> Option<Known> {
        match outcome {
            Outcome::Stored(stored) => {
                // What was read later may not be what was there at the moment that this is of.
                let found = &self.open.scanned.directories[directory].entries[entry];
                if !stored.stable || !stored.stamp.has_content_of(&found.stamp) {
                    unstable.push(self.name(directory, entry));
                }
                let Found { kept, lost } = &stored.attributes;
                self.note_lost(directory, entry, *lost, skipped);
                let settled = stored.stable && *lost == 0;
                Some(Known {
                    name: self.open.scanned.directories[directory].entries[entry].name.clone(),
                    stamp: stored.stamp,
                    settled: settled && is_settled(stored.stamp.changed, self.began),
                    kind: KnownKind::File(stored.content),
                    attributes: kept.clone(),
                })
            }
            Outcome::Unreadable => {
                skipped.unreadable += 1;
                self.note_unreadable(directory, entry);
                None
            }
            Outcome::Gone => {
                unstable.push(self.name(directory, entry));
                None
            }
        }
    }

    fn note_unreadable(&self, directory: usize, entry: usize) {
        self.unreadable.borrow_mut().push(plan::path(&self.open.scanned, directory, entry));
    }

    fn note_lost(&self, directory: usize, entry: usize, lost: u64, skipped: &mut Skipped) {
        skipped.attributes += lost;
        if lost > 0 {
            let path = plan::path(&self.open.scanned, directory, entry);
            self.stripped.borrow_mut().push(path);
        }
    }

    /// What an entry is called in the record of a snapshot.
    fn name(&self, directory: usize, entry: usize) -> String {
        let path = plan::path(&self.open.scanned, directory, entry);
        format!("{}/{}", self.open.name, String::from_utf8_lossy(&path))
    }
}

/// Entries as they are encoded.
fn shown(entries: &[Known], directories: &[Option<KnownDirectory>]) -> Vec<Entry> {
    let shown = entries.iter().map(|known| Entry {
        name: known.name.to_vec(),
        kind: match &known.kind {
            KnownKind::File(content) => Kind::File(*content),
            KnownKind::Directory(number) => {
                let below = directories[*number].as_ref();
                Kind::Directory(below.expect("what is below is stored before").tree)
            }
            KnownKind::Symlink(target) => Kind::Symlink(target.to_vec()),
            KnownKind::HardLink(target) => Kind::HardLink(target.to_vec()),
        },
        mode: known.stamp.permissions(),
        modified: known.stamp.modified,
        attributes: known.attributes.clone(),
    });
    shown.collect()
}

/// What is in a tree.
fn count_up(known: &KnownTree) -> Tree {
    let mut counted = Tree {
        name: String::new(),
        escaped: Vec::new(),
        tree: known.directories.first().map_or(Content::EMPTY, |root| root.tree),
        mode: 0,
        modified: Modified::default(),
        files: 0,
        directories: 0,
        links: 0,
        bytes: 0,
        attributes: Attributes::new(),
    };
    for entry in known.directories.iter().flat_map(|directory| &directory.entries) {
        match &entry.kind {
            KnownKind::File(content) => {
                counted.files += 1;
                counted.bytes += content.size;
            }
            KnownKind::Directory(_) => counted.directories += 1,
            KnownKind::Symlink(_) | KnownKind::HardLink(_) => counted.links += 1,
        }
    }
    counted
}
