//! Puts computed changes in their places, all of them or none.
//!
//! Each new content is first written beside its destination. Each old file is then kept under a
//! second name, and the new one is renamed over it; readers see the old or the new, never half. If
//! a step fails, the steps before it are undone in reverse. There is no sync to disk: what a crash
//! of the machine would lose here, it loses with the whole sandbox.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::change::Change;
use super::fault::Fault;
use super::root::Root;

/// How many names are tried before it is said that none is free.
const NAME_TRIES: usize = 64;

/// One file on its way: its directory, its name there, and what must be cleaned up.
struct Step {
    path: PathBuf,
    dir: OwnedFd,
    name: PathBuf,
    /// The new content, until it is renamed.
    staged: Option<PathBuf>,
    /// The old file, under its second name.
    kept: Option<PathBuf>,
    /// Whether the destination was changed.
    is_done: bool,
}

pub(super) fn commit(root: &Root, changes: &BTreeMap<PathBuf, Change>) -> Result<(), Fault> {
    let mut made = Vec::new();
    let mut steps = Vec::new();
    let result = stage(root, changes, &mut made, &mut steps).and_then(|()| place(&mut steps));
    match result {
        Ok(()) => {
            for step in &steps {
                // What is left under a second name is garbage, not damage.
                let _left = step.kept.as_ref().map(|kept| remove(&step.dir, kept));
            }
            Ok(())
        }
        Err(fault) => Err(undo(root, &made, steps, fault)),
    }
}

/// Writes everything beside where it is to be.
fn stage(
    root: &Root,
    changes: &BTreeMap<PathBuf, Change>,
    made: &mut Vec<PathBuf>,
    steps: &mut Vec<Step>,
) -> Result<(), Fault> {
    for (path, change) in changes {
        let fault = |error: io::Error| Fault::io(path, &error);
        if change.after.is_some() {
            root.make_dirs(path.parent().unwrap_or(Path::new("")), made).map_err(fault)?;
        }
        let (dir, name) = root.parent(path).map_err(fault)?;
        let step = Step {
            path: path.clone(),
            dir,
            name: name.to_owned(),
            staged: None,
            kept: None,
            is_done: false,
        };
        steps.push(step);
        let Some(step) = steps.last_mut() else { continue };
        if let Some(content) = &change.after {
            let (staged, file) = create(&step.dir).map_err(fault)?;
            step.staged = Some(staged);
            fill(file, content, change.before.as_ref()).map_err(fault)?;
        }
    }
    Ok(())
}

/// A new file of a free name. `EXCL` refuses a name that somebody has, a planted link as well.
fn create(dir: &OwnedFd) -> io::Result<(PathBuf, File)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    for _ in 0..NAME_TRIES {
        let name = free_name();
        match rustix::fs::openat(dir, &name, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => return Ok((name, File::from(file))),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

fn free_name() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    PathBuf::from(format!(".ash-{}-{number}.tmp", std::process::id()))
}

fn fill(mut file: File, content: &[u8], before: Option<&Stat>) -> io::Result<()> {
    if let Some(before) = before {
        let now = rustix::fs::fstat(&file)?;
        if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid) {
            // Only root may give files away. Whoever may not is left owning it.
            let owner = rustix::process::Uid::from_raw(before.st_uid);
            let group = rustix::process::Gid::from_raw(before.st_gid);
            let _refused = rustix::fs::fchown(&file, Some(owner), Some(group));
        }
        // After the owner: to change that takes the set-user bit away.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(before.st_mode & 0o7777))?;
    }
    file.write_all(content)
}

/// Renames everything to where it is to be.
fn place(steps: &mut [Step]) -> Result<(), Fault> {
    for step in steps {
        step.place().map_err(|error| Fault::io(&step.path, &error))?;
    }
    Ok(())
}

impl Step {
    fn place(&mut self) -> io::Result<()> {
        match rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if is_file(&stat) => self.keep_old()?,
            Ok(_) => return Err(Errno::ISDIR.into()),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(staged) = &self.staged {
            rustix::fs::renameat(&self.dir, staged, &self.dir, &self.name)?;
            self.staged = None;
        } else if self.kept.is_some() {
            remove(&self.dir, &self.name)?;
        }
        self.is_done = true;
        Ok(())
    }

    /// Gives the old file a second name. A file system without links has it renamed instead.
    fn keep_old(&mut self) -> io::Result<()> {
        for _ in 0..NAME_TRIES {
            let kept = free_name();
            match rustix::fs::linkat(&self.dir, &self.name, &self.dir, &kept, AtFlags::empty()) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(_) => {
                    rustix::fs::renameat(&self.dir, &self.name, &self.dir, &kept)?;
                    self.is_done = true;
                }
            }
            self.kept = Some(kept);
            return Ok(());
        }
        Err(Errno::EXIST.into())
    }

    /// Makes it as it was.
    fn take_back(&self) -> io::Result<()> {
        if let Some(staged) = &self.staged {
            remove(&self.dir, staged)?;
        }
        match &self.kept {
            // Renaming one name of a file over another of the same file does nothing; remove then.
            Some(kept) if self.is_done => {
                rustix::fs::renameat(&self.dir, kept, &self.dir, &self.name)?;
            }
            Some(kept) => remove(&self.dir, kept)?,
            None if self.is_done => remove(&self.dir, &self.name)?,
            None => {}
        }
        Ok(())
    }
}

fn undo(root: &Root, made: &[PathBuf], steps: Vec<Step>, fault: Fault) -> Fault {
    let mut lost = Vec::new();
    for step in steps.iter().rev() {
        if step.take_back().is_err() {
            lost.push(step.path.display().to_string());
        }
    }
    for dir in made.iter().rev() {
        if let Ok((parent, name)) = root.parent(dir) {
            // Refused if somebody put something there meanwhile, and rightly so.
            let _kept = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
    }
    if lost.is_empty() {
        return fault;
    }
    Fault::new(format!("{fault}; and these could not be put back: {}", lost.join(", ")))
}

fn remove(dir: &OwnedFd, name: &Path) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
}

fn is_file(stat: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile
}

#[cfg(test)]
mod test {
    use std::fs;

    use super::*;

    /// What is in a directory, and where it really is.
    fn contents(dir: &Path) -> Vec<(PathBuf, Option<String>)> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> =
            entries.map(|path| (path.clone(), fs::read_to_string(path).ok())).collect();
        all.sort();
        all
    }

    #[test]
    fn a_failure_midway_takes_everything_back() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("changed"), "old").unwrap();
        fs::write(dir.path().join("deleted"), "old").unwrap();
        // It became a directory after the plan was made.
        fs::create_dir(dir.path().join("late")).unwrap();
        let before = contents(dir.path());
        let root = Root::open(dir.path()).unwrap();
        let was = |name: &str| root.look(Path::new(name)).unwrap();
        let change = |before, after: Option<&str>| Change {
            before,
            after: after.map(|text| text.as_bytes().to_vec()),
        };
        let mut changes = BTreeMap::from([
            (PathBuf::from("changed"), change(was("changed"), Some("new"))),
            (PathBuf::from("deleted"), change(was("deleted"), None)),
            (PathBuf::from("dir/made"), change(None, Some("new"))),
            (PathBuf::from("late"), change(None, Some("new"))),
        ]);
        assert!(commit(&root, &changes).is_err());
        assert_eq!(contents(dir.path()), before);

        changes.remove(Path::new("late"));
        commit(&root, &changes).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("changed")).unwrap(), "new");
        assert_eq!(fs::read_to_string(dir.path().join("dir/made")).unwrap(), "new");
        assert_eq!(contents(dir.path()).len(), 3, "nothing is left beside them");
    }
}
