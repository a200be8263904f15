//! How much disk a sandbox's files take, where no quota of the file system keeps count.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, open, openat, statat};
use rustix::io::Errno;

/// How deep a tree is looked into. What is deeper would be a place to hide, so it counts as too much.
pub(super) const MAX_DEPTH: usize = 256;

/// What an entry counts at the least: the file system has work with empty ones too.
pub(super) const LEAST: u64 = 4096;

/// How a directory is opened whose name may be a link by now.
pub(super) const DIRECTORY: OFlags =
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

/// How many descriptors and mappings are looked at. Who has more has too much.
const MAX_HELD: usize = 200_000;

/// How many bytes files take that have no name any more and are held by these processes, on the file system
/// of `root`: open, also in a thread that has descriptors of its own, or mapped.
pub(super) fn unnamed(root: &Path, processes: &[u32]) -> io::Result<u64> {
    let device = fs::metadata(root)?.dev();
    let mut seen = BTreeMap::new();
    for (count, held) in processes.iter().flat_map(|&pid| held_by(pid)).enumerate() {
        if count >= MAX_HELD {
            return Ok(u64::MAX);
        }
        // It may be closed by now.
        let Ok(found) = fs::metadata(held) else { continue };
        if found.is_file() && found.nlink() == 0 && found.dev() == device {
            seen.insert(found.ino(), found.blocks().saturating_mul(512));
        }
    }
    Ok(seen.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)))
}

/// The links to what a process holds. What the server may not read is not there: where it runs without
/// privileges, mappings are not, nor anything of a process that hides itself.
fn held_by(pid: u32) -> impl Iterator<Item = PathBuf> {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let process = Path::new("/proc").join(pid.to_string());
    // Only where there is one are mappings looked at one by one: a program has hundreds.
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let is_unnamed = |line: &[u8]| line.ends_with(b" (deleted)");
    let mapped = maps.split(|&byte| byte == b'\n').any(is_unnamed);
    let mappings = mapped.then(|| entries(process.join("map_files"))).into_iter().flatten();
    let threads = entries(process.join("task"));
    let open = threads.flat_map(move |thread| entries(thread.path().join("fd")));
    open.chain(mappings).map(|held| held.path())
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
    fn what_is_mapped_counts_and_so_do_the_descriptors_of_a_thread() {
        // A program that holds a file in the way that it is told, and says when it does.
        let holder = "import mmap, os, sys, threading
path, how = sys.argv[1:]
fd = os.open(path, os.O_CREAT | os.O_RDWR)
os.write(fd, b'x' * 400000)
if how == 'mapped':
    held = mmap.mmap(fd, 400000)
    os.close(fd)
    for other in range(3, 64):
        try: os.close(other)
        except OSError: pass
os.unlink(path)
print('held', flush=True)
sys.stdin.read()";
        let dir = tempfile::tempdir().unwrap();
        // Only root may look at mappings.
        let is_root = rustix::process::geteuid().is_root();
        for how in ["open", "mapped"].into_iter().filter(|&how| is_root || how == "open") {
            let mut child = std::process::Command::new("python3")
                .args(["-c", holder])
                .arg(dir.path().join(how))
                .arg(how)
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = [0; 5];
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
            let held = unnamed(dir.path(), &[child.id()]).unwrap();
            drop(child.stdin.take());
            child.wait().unwrap();
            assert!(held >= 400_000, "{how}: {held}");
        }
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
