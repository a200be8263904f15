//! What a capture has to read, and which names are links to the same file.

use std::cmp::Ordering;
use std::collections::HashMap;

use rustix::fs::FileType;

use crate::file;
use crate::scan::Scanned;
use crate::state::{KnownKind, KnownTree};
use crate::tree::MAX_PATH;

/// What has to be done for a tree.
pub(crate) struct Plan {
    /// Files to read, in the order of their paths.
    pub(crate) reads: Vec<ToRead>,
    pub(crate) links: Links,
}

/// A name: its directory and its entry.
pub(crate) type Name = (usize, usize);

/// Names of files that have an earlier name: both.
pub(crate) type Links = HashMap<Name, Name>;

/// A file to read.
pub(crate) struct ToRead {
    pub(crate) directory: usize,
    pub(crate) entry: usize,
    /// What was read while everything stood still.
    pub(crate) preloaded: Option<file::Read>,
}

impl ToRead {
    /// How many bytes of it were read already.
    pub(crate) fn held(&self) -> u64 {
        match &self.preloaded {
            Some(file::Read::Bytes { bytes, .. }) => bytes.len() as u64,
            Some(file::Read::Large | file::Read::Gone | file::Read::Unreadable) | None => 0,
        }
    }
}

impl Plan {
    pub(crate) fn of(scanned: &Scanned, known: &KnownTree) -> Self {
        let links = links(scanned);
        let mut reads = Vec::new();
        for (directory, seen) in scanned.directories.iter().enumerate() {
            for (entry, found) in seen.entries.iter().enumerate() {
                let is_file = found.stamp.file_type() == FileType::RegularFile;
                if !is_file || links.contains_key(&(directory, entry)) {
                    continue;
                }
                let before = found.known.zip(seen.known);
                let before = before.map(|(entry, at)| &known.directories[at].entries[entry].kind);
                if !matches!(before, Some(KnownKind::File(_))) {
                    reads.push(ToRead { directory, entry, preloaded: None });
                }
            }
        }
        reads.sort_by(|one, other| {
            let at = |read: &ToRead| &scanned.directories[read.directory];
            let by_path = compare_paths(&at(one).path, &at(other).path);
            by_path.then(one.entry.cmp(&other.entry))
        });
        Self { reads, links }
    }

    /// Takes over what was read for an earlier plan of the same scan. What is not to be read any more is forgotten.
    pub(crate) fn take_over(&mut self, earlier: Self) {
        let mut preloaded: HashMap<Name, file::Read> = earlier
            .reads
            .into_iter()
            .filter_map(|read| Some(((read.directory, read.entry), read.preloaded?)))
            .collect();
        for read in &mut self.reads {
            read.preloaded = preloaded.remove(&(read.directory, read.entry));
        }
    }
}

/// Names of one file, but for the first in the order of paths.
fn links(scanned: &Scanned) -> Links {
    let mut names: HashMap<_, Vec<Name>> = HashMap::new();
    for (directory, seen) in scanned.directories.iter().enumerate() {
        for (entry, found) in seen.entries.iter().enumerate() {
            if found.stamp.links > 1 && found.stamp.file_type() == FileType::RegularFile {
                names.entry(found.stamp.file()).or_default().push((directory, entry));
            }
        }
    }
    let mut links = Links::new();
    for names in names.into_values().filter(|names| names.len() > 1) {
        tie(scanned, names, &mut links);
    }
    links
}

/// Makes the first of these names of one file the file, and the others links to it. Returns those that are files.
fn tie(scanned: &Scanned, mut names: Vec<Name>, links: &mut Links) -> Vec<Name> {
    names.sort_by(|&(a, x), &(b, y)| compare_paths(&path(scanned, a, x), &path(scanned, b, y)));
    for name in &names {
        links.remove(name);
    }
    let first = names[0];
    // A path that no entry can hold: each is a file of its own then, with the same chunks.
    if path(scanned, first.0, first.1).len() > MAX_PATH {
        return names;
    }
    links.extend(names[1..].iter().map(|&name| (name, first)));
    vec![first]
}

/// Where the first name of a file was lost before it was read, the next one is the file. Returns what has to be read
/// for that.
pub(crate) fn tie_anew(
    scanned: &Scanned,
    links: &mut Links,
    is_lost: impl Fn(Name) -> bool,
) -> Vec<ToRead> {
    let mut left: HashMap<Name, Vec<Name>> = HashMap::new();
    for (&name, &first) in links.iter().filter(|(_, first)| is_lost(**first)) {
        left.entry(first).or_default().push(name);
    }
    let files = left.into_values().flat_map(|names| tie(scanned, names, links));
    files.map(|(directory, entry)| ToRead { directory, entry, preloaded: None }).collect()
}

/// The path of an entry from the root.
pub(crate) fn path(scanned: &Scanned, directory: usize, entry: usize) -> Vec<u8> {
    let seen = &scanned.directories[directory];
    let name = &seen.entries[entry].name;
    if seen.path.is_empty() {
        return name.to_vec();
    }
    [&seen.path[..], b"/", name].concat()
}

/// The order of paths: part by part.
fn compare_paths(one: &[u8], other: &[u8]) -> Ordering {
    let parts = |path| <[u8]>::split(path, |&byte| byte == b'/');
    parts(one).cmp(parts(other))
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::file::Found;
    use crate::scan::{Seen, SeenEntry};
    use crate::state::Stamp;

    /// A tree in which two names of one file are in a directory with a path of this length.
    fn linked(length: usize) -> Scanned {
        let stamp = Stamp { mode: 0o100_644, links: 2, inode: 7, ..Stamp::NONE };
        let entry = |name: &[u8]| {
            let name = name.into();
            SeenEntry { name, stamp, directory: None, known: None, target: None }
        };
        let seen = Seen {
            path: vec![b'x'; length],
            known: None,
            entries: vec![entry(b"a"), entry(b"b")],
            same_names: false,
            is_new: false,
            attributes: Found::default(),
        };
        Scanned { directories: vec![seen], ..Scanned::default() }
    }

    #[test]
    fn names_too_deep_for_a_hard_link_are_files_of_their_own() {
        let deep = linked(MAX_PATH - 1);
        let plan = Plan::of(&deep, &KnownTree::default());
        assert_eq!((plan.reads.len(), plan.links.len()), (2, 0));
        let less_deep = linked(MAX_PATH - 2);
        let plan = Plan::of(&less_deep, &KnownTree::default());
        assert_eq!((plan.reads.len(), plan.links.len()), (1, 1));
    }
}
