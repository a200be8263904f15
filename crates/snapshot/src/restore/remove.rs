//! Removing a directory with all that is in it, however deep, without following anything.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, chmod, unlinkat};
use rustix::io::Errno;

use super::make::split;
use crate::file;
use crate::scan::{is_gone, open_below};
use crate::show::join;

/// Removes what is at a path below a directory.
pub(super) fn remove_tree(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<()> {
    let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.last() {
        let directory = match open(root, path) {
            Ok(directory) => directory,
            Err(error) if is_gone(&error) => {
                waiting.pop();
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut below = Vec::new();
        let mut listing = RawDir::new(directory.as_fd(), &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match unlinkat(&directory, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => below.push(join(path, name.to_bytes())),
                Err(error) => return Err(error.into()),
            }
        }
        if below.is_empty() {
            let (parent, name) = split(path);
            let at = open_below(root, parent, OFlags::DIRECTORY | OFlags::PATH)?;
            match unlinkat(at, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {
                    waiting.pop();
                }
                // Somebody put something there since: look again.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        } else {
            waiting.extend(below);
        }
    }
    Ok(())
}

/// Opens a directory to be emptied, also one that its owner has closed.
fn open(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let opened = open_below(root, path, OFlags::DIRECTORY);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Ok(opened) => {
            let is_open = file::stamp_of(opened.as_fd())?.mode & 0o700 == 0o700;
            if is_open {
                return Ok(opened);
            }
        }
        Err(error) => return Err(error),
    }
    // What is only found can be given another mode by its number.
    let found = open_below(root, path, OFlags::DIRECTORY | OFlags::PATH)?;
    chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::from_raw_mode(0o700))?;
    open_below(root, path, OFlags::DIRECTORY)
}
