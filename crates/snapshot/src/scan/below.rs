//! Opening what is below a directory, and what it means if that fails.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::PATH_BYTES;

/// Whether something could not be reached because it is on another mount.
pub(crate) fn is_mounted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::XDEV.raw_os_error())
}

/// Whether something was there and is not any more, or is something else now.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV)
    )
}

/// Opens what is at a path below a directory, to be read. No link is followed, nothing outside is
/// reached, and nothing that is mounted below.
pub(crate) fn open_below(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    // What is only opened to be passed through takes no other flag. What is read must not make us wait.
    let how = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = flags | how | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if path.is_empty() {
        return open_one(root, b".", flags);
    }
    let mut rest = path;
    let mut opened: Option<OwnedFd> = None;
    while rest.len() > PATH_BYTES {
        let end = rest[..PATH_BYTES].iter().rposition(|&byte| byte == b'/');
        let end = end.ok_or_else(|| io::Error::from(Errno::NAMETOOLONG))?;
        let from = opened.as_ref().map_or(root, |opened| opened.as_fd());
        let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        opened = Some(open_one(from, &rest[..end], through)?);
        rest = &rest[end + 1..];
    }
    open_one(opened.as_ref().map_or(root, |opened| opened.as_fd()), rest, flags)
}

fn open_one(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let path = CString::new(path).map_err(|_| io::Error::from(Errno::INVAL))?;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_XDEV
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS;
    loop {
        match openat2(root, &path, flags, Mode::empty(), resolve) {
            // Something was renamed on the way: look again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return Ok(opened?),
        }
    }
}
