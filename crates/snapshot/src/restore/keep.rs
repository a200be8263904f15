//! What is left to do where what is newer than the snapshot stays.
//!
//! After a power cut a tree has files that were never written as they look, and lacks some; it also has what
//! was done since the snapshot, which nothing else has. By its looks what is newer differs from the snapshot in
//! its size or its time, and it is left as it is. What looks the same and has other bytes is torn.

use std::collections::{HashMap, HashSet};

use rustix::fs::FileType;

use super::in_place::{Mended, Mending};
use super::place::is_aside;
use super::plan::{Changes, Meta};
use crate::scan::{Scanned, SeenEntry};
use crate::show::join;

/// Takes out of a plan whatever would replace or remove something, but for files that are torn.
pub(super) fn only_torn(plan: Changes, mended: Mended, scanned: &Scanned) -> (Changes, Mended) {
    let there = There::of(scanned);
    let torn = mended.changes.iter().filter(|(_, how)| *how == Mending::Repaired);
    let torn: HashSet<Vec<u8>> = torn.map(|(path, _)| path.clone()).collect();
    let mut kept: HashSet<Vec<u8>> = HashSet::new();
    let mut left = Changes { doubtful: plan.doubtful, ..Changes::default() };
    let mut may_be_made = |path: &Vec<u8>| {
        let newer = there.instead_of(path);
        kept.extend(newer.map(<[u8]>::to_owned));
        newer.is_none()
    };
    left.directories = plan.directories.into_iter().filter(&mut may_be_made).collect();
    let files = plan.files.into_iter();
    left.files =
        files.filter(|file| torn.contains(&file.path) || may_be_made(&file.path)).collect();
    let symlinks = plan.symlinks.into_iter();
    left.symlinks = symlinks.filter(|(path, ..)| may_be_made(path)).collect();
    let made: HashSet<&[u8]> = left.files.iter().map(|file| &file.path[..]).collect();
    let links = plan.links.into_iter().filter(|(path, target)| {
        // A further name of a torn file is torn as well.
        let is_of_it = torn.contains(target) && there.is_one_file(path, target);
        is_of_it || (may_be_made(path) && (made.contains(&target[..]) || there.is_file(target)))
    });
    left.links = links.collect();
    let (asides, newer): (Vec<Vec<u8>>, Vec<Vec<u8>>) =
        plan.removals.into_iter().partition(|path| is_aside(path));
    let extra: u64 = newer.iter().map(|path| there.files_at(path)).sum();
    left.removals = asides;

    let mut mended = Mended {
        kept: kept.iter().map(|path| there.files_at(path)).sum::<u64>() + extra,
        changes: Vec::new(),
        written: 0,
        repaired: 0,
        removed: left.removals.len() as u64,
        ..mended
    };
    let written = left.files.iter().map(|file| &file.path).chain(&left.directories);
    let written = written.chain(left.symlinks.iter().map(|(path, ..)| path));
    for path in written.chain(left.links.iter().map(|(path, _)| path)) {
        let repaired = torn.contains(path);
        let how = if repaired { Mending::Repaired } else { Mending::Written };
        mended.written += 1;
        mended.repaired += u64::from(repaired);
        mended.changes.push((path.clone(), how));
    }
    let removed = left.removals.iter().map(|path| (path.clone(), Mending::Removed));
    mended.changes.extend(removed);
    let touched: HashSet<&[u8]> = mended.changes.iter().map(|(path, _)| above(path)).collect();
    left.locked = plan.locked;
    left.locked.retain(|(path, _)| touched.contains(&path[..]));
    let made: HashSet<&[u8]> = left.directories.iter().map(|path| &path[..]).collect();
    let settle = plan.settle.into_iter().filter_map(|(path, meta)| {
        if made.contains(&path[..]) {
            return Some((path, meta));
        }
        // It is there: what is put into it does not make it another one.
        let found = touched.contains(&path[..]).then(|| there.at(&path)).flatten()?;
        let (mode, modified) = (found.stamp.permissions(), found.stamp.modified);
        Some((path, Meta { mode, modified, ..meta }))
    });
    left.settle = settle.collect();
    (left, mended)
}

/// What is in a directory, by path.
struct There<'a> {
    scanned: &'a Scanned,
    entries: HashMap<Vec<u8>, &'a SeenEntry>,
}

impl<'a> There<'a> {
    fn of(scanned: &'a Scanned) -> Self {
        let mut entries = HashMap::new();
        for directory in &scanned.directories {
            let below = directory.entries.iter();
            entries.extend(below.map(|entry| (join(&directory.path, &entry.name), entry)));
        }
        Self { scanned, entries }
    }

    fn at(&self, path: &[u8]) -> Option<&'a SeenEntry> {
        self.entries.get(path).copied()
    }

    fn is_file(&self, path: &[u8]) -> bool {
        self.at(path).is_some_and(|found| found.stamp.file_type() == FileType::RegularFile)
    }

    fn is_one_file(&self, one: &[u8], other: &[u8]) -> bool {
        let file = |path| self.at(path).map(|found| found.stamp.file());
        file(one).is_some() && file(one) == file(other)
    }

    /// What keeps something from being made at a path: what is there, or is no directory above it.
    fn instead_of<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut above = slashes.map(|(at, _)| &path[..at]);
        let is_no_directory = |path: &&[u8]| self.at(path).is_some_and(|it| it.directory.is_none());
        above.find(is_no_directory).or_else(|| self.at(path).map(|_| path))
    }

    /// How many names there are at a path that are no directories.
    fn files_at(&self, path: &[u8]) -> u64 {
        let Some(found) = self.at(path) else { return 0 };
        let (mut files, mut waiting) = (0, vec![found]);
        while let Some(found) = waiting.pop() {
            match found.directory {
                Some(directory) => waiting.extend(&self.scanned.directories[directory].entries),
                None => files += 1,
            }
        }
        files
    }
}

/// The directory of a path.
fn above(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(&path[..0], |at| &path[..at])
}
