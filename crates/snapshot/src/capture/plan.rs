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
    /// Names of files that have an earlier name: directory and entry of both.
    pub(crate) links: HashMap<(usize, usize), (usize, usize)>,
}

/// A file to read.
pub(crate) struct ToRead {
    pub(crate) directory: usize,
    pub(crate) entry: usize,
    /// What was read while everything stood still.
    pub(crate) preloaded: Option<file::Read>,
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
}

/// Names of one file, but for the first in the order of paths.
fn links(scanned: &Scanned) -> HashMap<(usize, usize), (usize, usize)> {
    let mut names: HashMap<_, Vec<(usize, usize)>> = HashMap::new();
    for (directory, seen) in scanned.directories.iter().enumerate() {
        for (entry, found) in seen.entries.iter().enumerate() {
            if found.stamp.links > 1 && found.stamp.file_type() == FileType::RegularFile {
                names.entry(found.stamp.file()).or_default().push((directory, entry));
            }
        }
    }
    let mut links = HashMap::new();
    for mut names in names.into_values().filter(|names| names.len() > 1) {
        names.sort_by(|&(a, x), &(b, y)| compare_paths(&path(scanned, a, x), &path(scanned, b, y)));
        let first = names[0];
        // A path that no entry can hold: each is a file of its own then, with the same chunks.
        if path(scanned, first.0, first.1).len() > MAX_PATH {
            continue;
        }
        links.extend(names[1..].iter().map(|&name| (name, first)));
    }
    links
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
    use crate::scan::{Seen, SeenEntry};
    use crate::state::Stamp;

    /// A tree in which two names of one file are in a directory with a path of this length.
    fn linked(length: usize) -> Scanned {
        let stamp = Stamp { mode: 0o100_644, links: 2, inode: 7, ..Stamp::NONE };
        let entry =
            |name: &[u8]| SeenEntry { name: name.into(), stamp, directory: None, known: None };
        let seen = Seen {
            path: vec![b'x'; length],
            known: None,
            entries: vec![entry(b"a"), entry(b"b")],
            same_names: false,
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
