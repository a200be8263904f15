//! What snapshots are compared with: a bare scan, and other programs.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags, openat, statx};

/// Looks at every name in a tree, by several threads, and keeps nothing. Returns how many there were.
pub(crate) fn bare_scan(root: &Path, threads: usize) -> io::Result<u64> {
    struct Shared {
        waiting: Vec<OwnedFd>,
        busy: usize,
        names: u64,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let first = rustix::fs::open(root, flags, Mode::empty())?;
    let shared = Mutex::new(Shared { waiting: vec![first], busy: 0, names: 0 });
    let more = Condvar::new();
    let look = |directory: OwnedFd,
                buffer: &mut [MaybeUninit<u8>]|
     -> io::Result<(u64, Vec<OwnedFd>)> {
        let (mut names, mut below) = (0, Vec::new());
        let mut listing = RawDir::new(directory.as_fd(), buffer);
        while let Some(entry) = listing.next() {
            let entry = entry?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            names += 1;
            let flags_at = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            let found = statx(&directory, entry.file_name(), flags_at, StatxFlags::BASIC_STATS)?;
            if FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory {
                below.push(openat(&directory, entry.file_name(), flags, Mode::empty())?);
            }
        }
        Ok((names, below))
    };
    let work = || -> io::Result<()> {
        let mut buffer = vec![MaybeUninit::uninit(); 32 * 1024];
        let mut at = shared.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(directory) = at.waiting.pop() {
                at.busy += 1;
                drop(at);
                let looked = look(directory, &mut buffer);
                at = shared.lock().unwrap_or_else(PoisonError::into_inner);
                at.busy -= 1;
                let (names, below) = looked?;
                at.names += names;
                at.waiting.extend(below);
                more.notify_all();
            } else if at.busy == 0 {
                return Ok(());
            } else {
                at = more.wait(at).unwrap_or_else(PoisonError::into_inner);
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        others.into_iter().try_for_each(|other| other.join().expect("a scan does not panic"))?;
        mine
    })?;
    Ok(shared.into_inner().unwrap_or_else(PoisonError::into_inner).names)
}

/// Runs a program to its end, and says how long it took.
pub(crate) fn run(command: &mut Command) -> Duration {
    let begin = Instant::now();
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    let took = begin.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    took
}

pub(crate) fn copy(from: &Path, to: &Path) -> Duration {
    run(Command::new("cp").arg("-a").args([from, to]))
}

pub(crate) fn sync(at: &Path) -> Duration {
    run(Command::new("sync").arg("-f").arg(at))
}

pub(crate) fn tar(from: &Path, to: &Path) -> Duration {
    run(Command::new("tar").arg("--zstd").arg("-cf").arg(to).arg("-C").arg(from).arg("."))
}

pub(crate) fn untar(from: &Path, to: &Path) -> Duration {
    std::fs::create_dir(to).expect("the directory is made");
    run(Command::new("tar").arg("--zstd").arg("-xf").arg(from).arg("-C").arg(to))
}

/// A repository of restic.
pub(crate) struct Restic {
    pub(crate) repository: PathBuf,
    cache: PathBuf,
}

impl Restic {
    /// Whether there is one; it is installed where that can be done.
    pub(crate) fn is_there() -> bool {
        let has = || {
            Command::new("restic").arg("version").output().is_ok_and(|said| said.status.success())
        };
        let quiet = |command: &mut Command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
        };
        has() || {
            let asked = ["install", "-y", "--no-install-recommends", "restic"];
            let installed =
                quiet(Command::new("apt-get").args(asked)).is_ok_and(|exit| exit.success());
            let _again = !installed
                && quiet(Command::new("apt-get").arg("update")).is_ok()
                && quiet(Command::new("apt-get").args(asked)).is_ok();
            has()
        }
    }

    pub(crate) fn new(at: &Path) -> Self {
        let new = Self { repository: at.join("restic"), cache: at.join("restic-cache") };
        run(&mut new.command(["init"]));
        new
    }

    fn command<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = Command::new("restic");
        command.args([OsStr::new("--repo"), self.repository.as_os_str()]);
        command.args([OsStr::new("--cache-dir"), self.cache.as_os_str()]);
        command.arg("--quiet").args(arguments).env("RESTIC_PASSWORD", "bench");
        command
    }

    pub(crate) fn backup(&self, from: &Path) -> Duration {
        run(self.command(["backup", "."]).current_dir(from))
    }

    pub(crate) fn restore(&self, to: &Path) -> Duration {
        run(self.command(["restore", "latest", "--target"]).arg(to))
    }
}

/// How many bytes are in the files of a directory.
pub(crate) fn size(at: &Path) -> u64 {
    let mut sum = 0;
    let mut waiting = vec![at.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).expect("it can be read") {
            let entry = entry.expect("it can be read");
            let meta = entry.metadata().expect("it is there");
            if meta.is_dir() {
                waiting.push(entry.path());
            } else {
                sum += meta.len();
            }
        }
    }
    sum
}
