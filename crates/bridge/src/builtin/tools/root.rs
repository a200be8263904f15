//! The workspace as the file tools see it: everything is opened beneath one descriptor.
//!
//! **No name can lead out.** The kernel resolves each path below the root (`openat2` with
//! `RESOLVE_BENEATH`), in the same call that opens it, so there is no moment between a check and a
//! use in which a symlink could be planted. Where the kernel has no `openat2`, the path is walked
//! one component at a time and every link is refused: poorer, equally safe.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::fault::Fault;

/// How often a resolution that was disturbed by a rename elsewhere is tried again.
const DISTURBED_RETRIES: usize = 32;

/// A directory that nothing opened through it can leave.
#[derive(Debug)]
pub(super) struct Root {
    dir: OwnedFd,
    path: PathBuf,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { dir: rustix::fs::open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    /// The path that a model wrote, relative to the root and without `.` and `..`.
    ///
    /// This is not what keeps it inside; it gives one file one name, and an early, clear answer.
    pub(super) fn relative(&self, given: &str) -> Result<PathBuf, Fault> {
        if given.contains('\0') {
            return Err(Fault::new("a path cannot contain a NUL character"));
        }
        let outside = || {
            Fault::new(format!(
                "{given} is outside the workspace; give a path relative to the workspace, or one beneath {}",
                self.path.display()
            ))
        };
        let mut path = Path::new(given);
        if path.is_absolute() {
            let real = self.real_path(self.dir.as_fd());
            path = path
                .strip_prefix(&self.path)
                .or_else(|_| path.strip_prefix(real.as_deref().unwrap_or(&self.path)))
                .map_err(|_| outside())?;
        }
        let mut clean = PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => clean.push(name),
                Component::CurDir => {}
                Component::ParentDir if clean.pop() => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(outside());
                }
            }
        }
        Ok(clean)
    }

    /// Opens something beneath the root.
    pub(super) fn open_at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = flags | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..DISTURBED_RETRIES {
            match rustix::fs::openat2(&self.dir, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                // Some filters of system calls say "not permitted" of what they do not know.
                Err(Errno::NOSYS | Errno::PERM) => return self.walk(path, flags),
                other => return Ok(other?),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// The directory a file lies in, and its name there.
    pub(super) fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a Path)> {
        let Some(name) = path.file_name() else { return Err(Errno::ISDIR.into()) };
        let parent = path.parent().unwrap_or(Path::new(""));
        let dir = self.open_at(parent, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok((dir, Path::new(name)))
    }

    /// What lies at a path, not following a link in its last component; nothing: nothing does.
    pub(super) fn look(&self, path: &Path) -> io::Result<Option<Stat>> {
        if path.as_os_str().is_empty() {
            return Ok(Some(rustix::fs::fstat(&self.dir)?));
        }
        let looked = self
            .parent(path)
            .and_then(|(dir, name)| Ok(rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?));
        match looked {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The name of a file with every link resolved, so that a file that is written keeps the links
    /// that lead to it, and so that two names of one file are one.
    ///
    /// What does not exist yet keeps its name below the deepest directory that does.
    pub(super) fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let base = self.real_path(self.dir.as_fd())?;
        for existing in path.ancestors() {
            match self.open_at(existing, OFlags::PATH) {
                Ok(opened) => {
                    let real = self.real_path(opened.as_fd())?;
                    let real = real.strip_prefix(&base).map_err(|_| Errno::XDEV)?;
                    let rest = path.strip_prefix(existing).map_err(|_| Errno::XDEV)?;
                    // `join("")` would add a slash, and a file with a slash is not found.
                    let joined =
                        if rest.as_os_str().is_empty() { real.to_owned() } else { real.join(rest) };
                    return Ok(joined);
                }
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::NOENT.into())
    }

    /// The same with only the links above it resolved: the name itself, link or not.
    pub(super) fn resolve_parent(&self, path: &Path) -> io::Result<PathBuf> {
        let Some(name) = path.file_name() else { return self.resolve(path) };
        Ok(self.resolve(path.parent().unwrap_or(Path::new("")))?.join(name))
    }

    /// Which directories, of this and those above it, are not there: the outermost first.
    pub(super) fn missing(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let mut missing = Vec::new();
        for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
            match self.open_at(dir, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing.push(dir.to_owned());
                }
                Err(error) => return Err(error),
            }
        }
        missing.reverse();
        Ok(missing)
    }

    /// Opens an ordinary file for reading. What is none is never opened: to open a FIFO waits for
    /// a writer, and to open a device may do something.
    pub(super) fn read(&self, path: &Path) -> Result<(File, Stat), Fault> {
        let name = path.display();
        let fault = |error: io::Error| Fault::io(path, &error);
        let seen = self.open_at(path, OFlags::PATH).map_err(fault)?;
        require_file(path, &rustix::fs::fstat(&seen).map_err(|error| fault(error.into()))?)?;
        // It may have been replaced since. Not blocking, a FIFO opens at once, and is then refused.
        let file = self
            .open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
            .map_err(fault)?;
        let stat = rustix::fs::fstat(&file)
            .map_err(|error| Fault::new(format!("could not look at {name}: {error}")))?;
        require_file(path, &stat)?;
        Ok((File::from(file), stat))
    }

    /// Where something that was opened really lies.
    fn real_path(&self, of: BorrowedFd<'_>) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", of.as_raw_fd()))
    }

    /// Opens something without `openat2`: one component at a time, and no link anywhere.
    fn walk(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let mut here = self.dir.try_clone()?;
        let mut names = path.components().peekable();
        while let Some(component) = names.next() {
            let name = match component {
                Component::Normal(name) => Path::new(name),
                Component::CurDir => Path::new("."),
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(Errno::XDEV.into());
                }
            };
            let flags = if names.peek().is_some() {
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
            } else {
                flags
            };
            let next = rustix::fs::openat(&here, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
            // With `PATH`, a link is not refused but opened as itself.
            if FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) == FileType::Symlink {
                return Err(Errno::LOOP.into());
            }
            here = next;
        }
        Ok(here)
    }
}

/// Whether an error says that there is nothing of that name.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn require_file(path: &Path, stat: &Stat) -> Result<(), Fault> {
    let name = path.display();
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::RegularFile {
        Ok(())
    } else if kind == FileType::Directory {
        Err(Fault::new(format!("{name} is a directory; use list_files to see what is in it")))
    } else {
        Err(Fault::new(format!("{name} is not an ordinary file (a device, a FIFO or a socket)")))
    }
}

#[cfg(test)]
mod test {
    use std::os::unix::fs::symlink;

    use super::*;

    fn planted() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("workspace");
        std::fs::create_dir_all(workspace.join("sub")).unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::fs::write(workspace.join("sub/file"), "inside").unwrap();
        symlink("../secret", workspace.join("out")).unwrap();
        symlink("..", workspace.join("up")).unwrap();
        symlink(dir.path().join("secret"), workspace.join("absolute")).unwrap();
        symlink("sub/file", workspace.join("in")).unwrap();
        symlink("/proc/self/root", workspace.join("magic")).unwrap();
        let root = Root::open(&workspace).unwrap();
        (dir, root)
    }

    #[test]
    fn links_that_lead_out_are_not_followed() {
        let (_dir, root) = planted();
        for name in ["out", "up/secret", "absolute", "magic/etc/passwd", "up"] {
            assert!(root.open_at(Path::new(name), OFlags::RDONLY).is_err(), "{name} was opened");
            assert!(root.walk(Path::new(name), OFlags::RDONLY).is_err(), "{name} was walked");
        }
        assert!(root.open_at(Path::new("in"), OFlags::RDONLY).is_ok());
        assert!(root.walk(Path::new("sub/file"), OFlags::RDONLY).is_ok());
        assert!(root.walk(Path::new("in"), OFlags::RDONLY).is_err(), "no link without openat2");
        assert!(root.walk(Path::new("in"), OFlags::PATH).is_err(), "not even as itself");
    }

    #[test]
    fn a_path_is_relative_whatever_it_looks_like() {
        let (dir, root) = planted();
        let absolute = dir.path().join("workspace/sub/file");
        assert_eq!(root.relative(absolute.to_str().unwrap()).unwrap(), Path::new("sub/file"));
        assert_eq!(root.relative("./sub//../sub/file/").unwrap(), Path::new("sub/file"));
        assert_eq!(root.relative("").unwrap(), Path::new(""));
        for outside in ["..", "sub/../../secret", "/etc/passwd", "a\0b"] {
            assert!(root.relative(outside).is_err(), "{outside:?}");
        }
    }

    #[test]
    fn a_file_has_one_name() {
        let (_dir, root) = planted();
        assert_eq!(root.resolve(Path::new("in")).unwrap(), Path::new("sub/file"));
        assert_eq!(root.resolve(Path::new("sub/new/er")).unwrap(), Path::new("sub/new/er"));
        assert_eq!(root.resolve(Path::new("")).unwrap(), Path::new(""));
        assert!(root.resolve(Path::new("out")).is_err());
    }

    #[test]
    fn what_is_no_file_is_not_opened() {
        let (dir, root) = planted();
        let fifo = dir.path().join("workspace/fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
        assert!(root.read(Path::new("fifo")).is_err());
        assert!(root.read(Path::new("sub")).is_err());
    }
}
