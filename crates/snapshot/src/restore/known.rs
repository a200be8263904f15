//! What is remembered of a directory that was made equal to a snapshot.

use std::collections::{HashMap, HashSet};

use rustix::fs::FileType;

use super::in_place::InPlace;
use super::make::mode_of_file;
use crate::capture::is_settled;
use crate::chunks::Chunks;
use crate::error::Result;
use crate::repository::Repository;
use crate::scan::{Scanned, SeenEntry};
use crate::show::join;
use crate::snapshot::Tree;
use crate::state::{Known, KnownDirectory, KnownKind, KnownTree, Stamp};
use crate::tree::{Entry, Kind, Modified};

/// What is known of the tree after it was looked at once more. Only what looks as it should is relied on,
/// and was not left by its looks alone. Nobody can have written to it since it was put there: that
/// would have changed the time that it was given, which is not that of today.
pub(super) fn after(
    repository: &Repository,
    in_place: &InPlace<'_>,
    tree: &Tree,
    scanned: &Scanned,
    doubtful: &HashSet<Vec<u8>>,
    began: Modified,
) -> Result<KnownTree> {
    let mut chunks = Chunks::of(repository);
    let mut directories = Vec::new();
    // By number: directories are after those that they are in.
    let mut waiting = std::collections::VecDeque::from([(Vec::new(), tree.tree, Some(0))]);
    let mut numbers = 1;
    let mut left = in_place.max_entries;
    while let Some((path, content, seen)) = waiting.pop_front() {
        let wanted = chunks.directory(content, left)?;
        left -= wanted.len() as u64;
        let found = seen.map_or(&[][..], |seen: usize| &scanned.directories[seen].entries);
        let found: HashMap<&[u8], &SeenEntry> =
            found.iter().map(|found| (&*found.name, found)).collect();
        let mut entries = Vec::with_capacity(wanted.len());
        for entry in wanted {
            let below = join(&path, &entry.name);
            let found = found.get(&entry.name[..]).copied();
            let looks = found.is_some_and(|found| looks_right(found, &entry, in_place.owner));
            let settled = looks
                && !doubtful.contains(&below)
                && found.is_some_and(|found| is_settled(found.stamp.modified, began));
            let Entry { name, kind, attributes, .. } = entry;
            let kind = match kind {
                Kind::File(content) => KnownKind::File(content),
                Kind::Symlink(target) => KnownKind::Symlink(target.into()),
                Kind::HardLink(target) => KnownKind::HardLink(target.into()),
                Kind::Directory(content) => {
                    waiting.push_back((below, content, found.and_then(|found| found.directory)));
                    numbers += 1;
                    KnownKind::Directory(numbers - 1)
                }
            };
            let stamp = found.map_or(Stamp::NONE, |found| found.stamp);
            entries.push(Known { name: name.into(), stamp, settled, kind, attributes });
        }
        directories.push(KnownDirectory { entries, tree: content });
    }
    Ok(KnownTree { directories })
}

/// Whether something looks as it was made.
fn looks_right(found: &SeenEntry, entry: &Entry, owner: Option<(u32, u32)>) -> bool {
    let mode = match entry.kind {
        Kind::File(_) => mode_of_file(entry.mode, owner),
        Kind::Directory(_) | Kind::Symlink(_) | Kind::HardLink(_) => entry.mode,
    };
    let stamp = &found.stamp;
    let is = |kind| stamp.file_type() == kind;
    let kind = match &entry.kind {
        Kind::File(content) => is(FileType::RegularFile) && stamp.size == content.size,
        Kind::Directory(_) => is(FileType::Directory),
        Kind::Symlink(_) => return is(FileType::Symlink) && stamp.modified == entry.modified,
        // It looks like its file, which is looked at by itself.
        Kind::HardLink(_) => return is(FileType::RegularFile),
    };
    kind && stamp.permissions() == mode && stamp.modified == entry.modified
}
