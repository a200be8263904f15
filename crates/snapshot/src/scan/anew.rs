//! A scan that is held against what became known after it.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{FileType, OFlags, readlinkat};

use super::{Scanned, Seen, compare, is_gone, look_at, open_below};
use crate::file::{self, Found};
use crate::state::KnownTree;

impl Scanned {
    /// Finds what looks as it is known to have looked. What the scan passed over because it was known then, and is not
    /// any more, is looked up now. An error comes with the path of the directory that could not be read.
    pub(crate) fn compare_anew(
        &mut self,
        root: BorrowedFd<'_>,
        known: &KnownTree,
    ) -> Result<(), (Vec<u8>, io::Error)> {
        self.directories[0].known = (!known.directories.is_empty()).then_some(0);
        // What is below a directory has a higher number.
        for number in 0..self.directories.len() {
            let seen = &mut self.directories[number];
            for entry in &mut seen.entries {
                entry.known = None;
            }
            let before = seen.known.map(|number| &known.directories[number]);
            let (below, same_names) = compare(before, &mut seen.entries);
            seen.same_names = same_names;
            read_links(seen, root).map_err(|error| (seen.path.clone(), error))?;
            let entries = seen.entries.iter().zip(below);
            let directories: Vec<_> = entries
                .filter_map(|(entry, known)| Some((entry.directory?, known, entry.known.is_none())))
                .collect();
            for (at, known, is_new) in directories {
                let below = &mut self.directories[at];
                let was_known = !std::mem::replace(&mut below.is_new, is_new);
                below.known = known;
                if is_new && was_known {
                    below.attributes =
                        attributes(below, root).map_err(|error| (below.path.clone(), error))?;
                }
            }
        }
        Ok(())
    }
}

/// Reads the links that are not known any more, if they are those that were seen.
fn read_links(seen: &mut Seen, root: BorrowedFd<'_>) -> io::Result<()> {
    let is_missing = |entry: &&mut super::SeenEntry| {
        let is_link = entry.stamp.file_type() == FileType::Symlink;
        is_link && entry.known.is_none() && entry.target.is_none()
    };
    let mut missing = seen.entries.iter_mut().filter(is_missing).peekable();
    if missing.peek().is_none() {
        return Ok(());
    }
    let directory = match open_below(root, &seen.path, OFlags::DIRECTORY) {
        Ok(directory) => directory,
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in missing {
        let name = &*entry.name;
        // Another one of that name is told as one that did not come to rest.
        let Ok(target) = readlinkat(&directory, name, Vec::new()) else { continue };
        let name = std::ffi::CString::new(name).map_err(io::Error::other)?;
        let is_same = look_at(directory.as_fd(), &name).is_ok_and(|(now, _)| now == entry.stamp);
        entry.target = is_same.then(|| target.into_bytes().into());
    }
    Ok(())
}

/// The attributes of a directory, if it is still there.
fn attributes(seen: &Seen, root: BorrowedFd<'_>) -> io::Result<Found> {
    match open_below(root, &seen.path, OFlags::DIRECTORY) {
        Ok(directory) => file::all_attributes(directory.as_fd()),
        Err(error) if is_gone(&error) => Ok(Found::default()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(Found::default()),
        Err(error) => Err(error),
    }
}
