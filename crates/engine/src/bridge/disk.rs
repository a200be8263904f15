//! How much disk a sandbox's files take, where no quota of the file system keeps count.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, openat, statat};
use rustix::io::Errno;

/// How deep a tree is looked into. What is deeper would be a place to hide, so it counts as too much.
const MAX_DEPTH: usize = 256;

/// What an entry counts at the least: the file system has work with empty ones too.
const LEAST: u64 = 4096;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How many bytes the files below a directory take on the disk, counted no further than `enough`. The
/// sandbox may change all of it meanwhile: nothing is followed, and what goes away is not counted. What
/// cannot be looked into counts as too much.
pub(super) fn usage(root: &Path, enough: u64) -> io::Result<u64> {
    let mut open_dirs = vec![Dir::new(open(root, DIRECTORY, Mode::empty())?)?];
    let mut bytes = 0_u64;
    loop {
        let depth = open_dirs.len();
        let Some(dir) = open_dirs.last_mut() else { return Ok(bytes) };
        let Some(Ok(entry)) = dir.read() else {
            open_dirs.pop();
            continue;
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let found = match statat(dir.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno.into()),
        };
        bytes = bytes.saturating_add(taken(found.st_blocks).max(LEAST));
        if bytes > enough {
            return Ok(bytes);
        }
        if !FileType::from_raw_mode(found.st_mode).is_dir() {
            continue;
        }
        if depth >= MAX_DEPTH {
            return Ok(u64::MAX);
        }
        match enter(dir.fd()?, name) {
            Ok(opened) => open_dirs.push(Dir::new(opened)?),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => return Ok(u64::MAX),
        }
    }
}

/// Opens a directory. Where the agent has the server's own user it can lock us out of one, so it is opened to
/// us again.
fn enter(parent: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let lacks = |fd: &OwnedFd| {
        let mode = Mode::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        Ok::<_, Errno>((!mode.contains(Mode::RWXU)).then_some(mode | Mode::RWXU))
    };
    let place = openat(parent, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
    if let Some(mode) = lacks(&place)?
        && !rustix::process::geteuid().is_root()
    {
        rustix::fs::chmod(itself.as_str(), mode)?;
    }
    open(itself.as_str(), DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())
}

fn taken(blocks: i64) -> u64 {
    u64::try_from(blocks).unwrap_or(0).saturating_mul(512)
}

/// How many descriptors are looked at.
const MAX_DESCRIPTORS: usize = 20_000;

/// How many bytes files take that have no name any more and are held open by these processes, on the file
/// system of `root`.
pub(super) fn unnamed(root: &Path, processes: &[u32]) -> io::Result<u64> {
    let device = fs::metadata(root)?.dev();
    let mut seen = BTreeMap::new();
    let of = |pid: &u32| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    for descriptor in processes.iter().flat_map(of).take(MAX_DESCRIPTORS) {
        // It may be closed by now.
        let Ok(found) = fs::metadata(descriptor.path()) else { continue };
        if found.is_file() && found.nlink() == 0 && found.dev() == device {
            seen.insert(found.ino(), found.blocks().saturating_mul(512));
        }
    }
    Ok(seen.values().sum())
}

#[cfg(test)]
mod test {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_lies_deep_counts_and_what_is_linked_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::write(dir.path().join("large"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(dir.path().join("large"), root.join("link")).unwrap();
        std::os::unix::fs::symlink("..", root.join("a/up")).unwrap();
        let empty = usage(&root, u64::MAX).unwrap();
        assert!(empty < 100_000, "{empty}");
        fs::write(root.join("a/b/c/file"), vec![1; 200_000]).unwrap();
        let full = usage(&root, u64::MAX).unwrap();
        assert!((200_000..400_000).contains(&(full - empty)), "{full} after {empty}");
        assert!(usage(&root, 1000).unwrap() > 1000, "and no more is counted than needed");
        assert!(usage(&dir.path().join("none"), 1).is_err());
    }

    #[test]
    fn a_hole_takes_nothing_and_nothing_hides_in_the_depth() {
        let dir = tempfile::tempdir().unwrap();
        let file = fs::File::create(dir.path().join("hole")).unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(usage(dir.path(), u64::MAX).unwrap() < 1 << 20);
        fs::create_dir_all(dir.path().join("d/".repeat(MAX_DEPTH + 1))).unwrap();
        assert_eq!(usage(dir.path(), 1 << 30).unwrap(), u64::MAX);
    }

    #[test]
    fn what_has_no_name_any_more_counts_while_somebody_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gone");
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![1; 300_000]).unwrap();
        let held = || unnamed(dir.path(), &[std::process::id()]).unwrap();
        let before = held();
        fs::remove_file(&path).unwrap();
        assert!(held() >= before + 300_000);
        drop(file);
        assert!(held() < before + 300_000);
    }

    #[test]
    fn empty_files_count_and_a_locked_directory_hides_nothing() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        for number in 0..100 {
            fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        let empty = usage(dir.path(), u64::MAX).unwrap();
        assert!(empty >= 100 * LEAST);
        let locked = dir.path().join("locked");
        fs::create_dir(&locked).unwrap();
        fs::write(locked.join("large"), vec![1; 300_000]).unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
        assert!(usage(dir.path(), u64::MAX).unwrap() >= empty + 300_000);
    }
}
