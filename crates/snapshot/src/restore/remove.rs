//! Removing a directory with all that is in it, however deep, without following anything.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RawDir, chmod, unlinkat};
use rustix::io::Errno;

use super::make::split;
use crate::file;
use crate::scan::{is_gone, is_mounted, open_below};
use crate::show::join;

/// How often one directory is looked into at the most, if somebody keeps putting something there.
const MAX_LOOKS: u32 = 64;

/// Removes what is at a path below a directory. What is mounted there is not removed, and an error.
pub(super) fn remove_tree(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<()> {
    let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
    let mut waiting = vec![(path.to_owned(), 0)];
    while let Some((path, looks)) = waiting.last_mut() {
        *looks += 1;
        if *looks > MAX_LOOKS {
            return Err(Errno::NOTEMPTY.into());
        }
        let directory = match open(root, path) {
            Ok(directory) => directory,
            Err(error) if is_mounted(&error) => {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    format!("something is mounted at {}", String::from_utf8_lossy(path)),
                ));
            }
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
                Err(Errno::ISDIR) => below.push((join(path, name.to_bytes()), 0)),
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

#[cfg(test)]
mod test {
    use std::fs;
    use std::process::Command;

    use super::*;

    const MOUNTED: &str = "ASH_SNAPSHOT_REMOVES";

    /// Not a test: removes a tree that something is mounted in, in a world of its own.
    #[test]
    fn the_process_that_removes() {
        let Some(place) = std::env::var_os(MOUNTED) else { return };
        let place = std::path::Path::new(&place);
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "none"]).arg(place.join("tree/mounted"));
        assert!(mount.status().unwrap().success());
        fs::write(place.join("tree/mounted/inside"), "not ours").unwrap();
        let root = fs::File::open(place).unwrap();
        let refused = remove_tree(root.as_fd(), b"tree").unwrap_err();
        assert!(refused.to_string().contains("mounted at tree/mounted"), "{refused}");
        assert!(place.join("tree/mounted/inside").exists());
        fs::write(place.join("seen"), "").unwrap();
    }

    #[test]
    fn what_is_mounted_in_a_tree_is_not_removed_and_ends_the_removal() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("tree/mounted")).unwrap();
        let unshared = Command::new("unshare").args(["-rm", "true"]).status();
        if !unshared.is_ok_and(|status| status.success()) {
            println!("not tried: this machine lets nobody mount anything");
            return;
        }
        let mut removing = Command::new("unshare");
        removing.arg("-rm").arg(std::env::current_exe().unwrap());
        let test = "restore::remove::test::the_process_that_removes";
        removing.args(["--exact", test, "--test-threads=1"]);
        let output = removing.env(MOUNTED, place.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(place.path().join("seen").exists());
    }
}
