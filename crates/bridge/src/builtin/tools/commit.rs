//! Puts computed changes in their places, all of them or none, whoever is killed meanwhile.
//!
//! Each new content is first written beside its destination. Each old file is then kept under a
//! second name, and the new one is renamed over it; readers see the old or the new, never half. If
//! a step fails, the steps before it are undone in reverse. If there is nobody left to undo them,
//! the next toolbox does, from the [journal](super::record). Only the journal is synced to disk:
//! what a crash of the machine would lose here, it loses with the whole sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::change::Change;
use super::fault::Fault;
use super::record::{Entry, Journal, Phase, Record};
use super::root::{Root, is_absent};

pub(super) fn commit(
    root: &Root,
    journal: &Journal,
    changes: &BTreeMap<PathBuf, Change>,
) -> Result<(), Fault> {
    let _turn = journal.turn();
    let mut record = prepare(root, changes)?;
    let hands = Hands { root, journal };
    let done = hands.stage(&record, changes).and_then(|()| {
        hands.enter(&mut record, Phase::Placing)?;
        hands.place(&record)?;
        // From here on it is a fact.
        hands.enter(&mut record, Phase::Placed)
    });
    match done {
        Ok(()) => {
            hands.tidy(&record);
            Ok(())
        }
        Err(fault) => {
            let lost = hands.undo(&mut record);
            if lost.is_empty() {
                return Err(fault);
            }
            let lost = lost.join(", ");
            Err(Fault::new(format!("{fault}; and these could not be put back: {lost}")))
        }
    }
}

/// Undoes what a bridge that was killed has left half done. Says so, if there was something.
pub(super) fn recover(root: &Root, journal: &Journal) -> Option<String> {
    let _turn = journal.turn();
    let mut record = match journal.read() {
        Ok(record) => record?,
        Err(error) => {
            // It would be met again and again, and there is nothing that could be done about it.
            let _there = journal.clear();
            return Some(format!("the journal of a change could not be used: {error}"));
        }
    };
    let hands = Hands { root, journal };
    if record.phase == Phase::Placed {
        hands.tidy(&record);
        return None;
    }
    let names: Vec<String> =
        record.entries.iter().map(|entry| entry.path.display().to_string()).collect();
    let lost = hands.undo(&mut record);
    let mut said = format!("a change was cut off, and was taken back: {}", names.join(", "));
    if !lost.is_empty() {
        // Writing to a string cannot fail.
        let _infallible = write!(said, "; but not of {}", lost.join(", "));
    }
    Some(said)
}

/// What will be done, under names that nobody has.
fn prepare(root: &Root, changes: &BTreeMap<PathBuf, Change>) -> Result<Record, Fault> {
    let mut dirs = BTreeSet::new();
    let mut entries = Vec::new();
    for (path, change) in changes {
        let fault = |error: io::Error| Fault::io(path, &error);
        if change.after.is_some() {
            dirs.extend(root.missing(path.parent().unwrap_or(Path::new(""))).map_err(fault)?);
        }
        let name = |is_needed: bool| is_needed.then(random_name).transpose().map_err(fault);
        entries.push(Entry {
            path: path.clone(),
            staged: name(change.after.is_some())?,
            kept: name(change.before.is_some())?,
        });
    }
    Ok(Record { phase: Phase::Staging, dirs: dirs.into_iter().collect(), entries })
}

/// Random, so that no leftover and no other bridge can have it.
fn random_name() -> io::Result<PathBuf> {
    let mut random = [0; 16];
    // So few bytes come at once or not at all.
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(PathBuf::from(format!(".ash-{:032x}.tmp", u128::from_ne_bytes(random))))
}

/// Does and undoes the steps of a record.
struct Hands<'a> {
    root: &'a Root,
    journal: &'a Journal,
}

impl Hands<'_> {
    fn enter(&self, record: &mut Record, phase: Phase) -> Result<(), Fault> {
        let before = std::mem::replace(&mut record.phase, phase);
        self.journal.write(record).map_err(|error| {
            record.phase = before;
            Fault::new(format!("the journal of the change could not be written: {error}"))
        })
    }

    /// Writes everything beside where it is to be, and looks whether all is as it was.
    fn stage(&self, record: &Record, changes: &BTreeMap<PathBuf, Change>) -> Result<(), Fault> {
        self.journal.write(record).map_err(|error| {
            Fault::new(format!("the journal of the change could not be written: {error}"))
        })?;
        for dir in &record.dirs {
            self.make_dir(dir).map_err(|error| Fault::io(dir, &error))?;
        }
        for entry in &record.entries {
            let path = &entry.path;
            let Some(change) = changes.get(path) else { continue };
            if let (Some(staged), Some(content)) = (&entry.staged, &change.after) {
                self.fill(path, staged, content, change.before.as_ref())
                    .map_err(|error| Fault::io(path, &error))?;
            }
            let now = self.root.look(path).map_err(|error| Fault::io(path, &error))?;
            let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
            if now.as_ref().map(kind) != change.before.as_ref().map(kind) {
                let name = path.display();
                return Err(Fault::new(format!("{name} was changed by somebody else meanwhile")));
            }
        }
        Ok(())
    }

    /// Renames everything to where it is to be.
    fn place(&self, record: &Record) -> Result<(), Fault> {
        for entry in &record.entries {
            self.place_one(entry).map_err(|error| Fault::io(&entry.path, &error))?;
        }
        Ok(())
    }

    fn place_one(&self, entry: &Entry) -> io::Result<()> {
        let (dir, name) = self.root.parent(&entry.path)?;
        if let Some(kept) = &entry.kept {
            self.journal.step()?;
            // A file system without links has the old file renamed instead.
            if rustix::fs::linkat(&dir, name, &dir, kept, AtFlags::empty()).is_err() {
                rustix::fs::renameat(&dir, name, &dir, kept)?;
            }
        }
        match &entry.staged {
            Some(staged) => self.rename(&dir, staged, name),
            None => self.remove(&dir, name),
        }
    }

    /// Makes all as it was. Returns what it could not.
    fn undo(&self, record: &mut Record) -> Vec<String> {
        let mut lost = Vec::new();
        if record.phase == Phase::Placing {
            for entry in record.entries.iter().rev() {
                if self.put_back(entry).is_err() {
                    lost.push(entry.path.display().to_string());
                }
            }
            if !lost.is_empty() {
                // What is under the second names is all that there is of those. A later attempt would
                // undo what was changed since.
                let _there = self.journal.clear();
                return lost;
            }
            // If that cannot be written, it is put back once more, which changes nothing.
            let _placing = self.enter(record, Phase::Staging);
        }
        self.tidy(record);
        lost
    }

    fn put_back(&self, entry: &Entry) -> io::Result<()> {
        let (dir, name) = self.root.parent(&entry.path)?;
        match (&entry.kept, &entry.staged) {
            (Some(kept), _) if exists(&dir, kept)? => {
                self.rename(&dir, kept, name)?;
                // Renaming one name of a file over another of the same file does nothing.
                self.remove(&dir, kept)
            }
            // Its turn had not come, or it was put back already.
            (Some(_), _) | (None, None) => Ok(()),
            (None, Some(staged)) if exists(&dir, staged)? => Ok(()),
            (None, Some(_)) => self.remove(&dir, name),
        }
    }

    /// Removes what has a temporary name, and the directories if they were made for nothing, and
    /// then the journal. What is left is garbage, not damage.
    fn tidy(&self, record: &Record) {
        for entry in &record.entries {
            let Ok((dir, _)) = self.root.parent(&entry.path) else { continue };
            for name in entry.staged.iter().chain(&entry.kept) {
                let _left = self.remove(&dir, name);
            }
        }
        if record.phase != Phase::Placed {
            for dir in record.dirs.iter().rev() {
                if let (Ok((parent, name)), Ok(())) = (self.root.parent(dir), self.journal.step()) {
                    // Refused if somebody put something there meanwhile, and rightly so.
                    let _kept = rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
                }
            }
        }
        let _left = self.journal.clear();
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.root.parent(path)?;
        self.journal.step()?;
        match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn fill(
        &self,
        path: &Path,
        staged: &Path,
        content: &[u8],
        before: Option<&Stat>,
    ) -> io::Result<()> {
        let (dir, _) = self.root.parent(path)?;
        // `EXCL` refuses a name that somebody has, a planted link as well.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        self.journal.step()?;
        let file = rustix::fs::openat(&dir, staged, flags, Mode::from_raw_mode(0o666))?;
        let mut file = File::from(file);
        // The mode of a link that is replaced means nothing.
        if let Some(before) = before.filter(|before| is_file(before)) {
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
        self.journal.step()?;
        file.write_all(content)
    }

    fn rename(&self, dir: &OwnedFd, from: &Path, to: &Path) -> io::Result<()> {
        self.journal.step()?;
        Ok(rustix::fs::renameat(dir, from, dir, to)?)
    }

    /// Removes a name, if it is there.
    fn remove(&self, dir: &OwnedFd, name: &Path) -> io::Result<()> {
        self.journal.step()?;
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn exists(dir: &OwnedFd, name: &Path) -> io::Result<bool> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from) {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

#[cfg(test)]
mod test {
    use std::fs;
    use std::sync::atomic::Ordering;

    use tempfile::TempDir;

    use super::*;

    /// A workspace with two files and a link, and a home beside it.
    fn planted() -> (TempDir, Root) {
        // In memory where that can be: the journal is synced at every phase of hundreds of commits.
        let memory = Path::new("/dev/shm");
        let around =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let around = around.unwrap();
        let workspace = around.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("changed"), "old").unwrap();
        fs::write(workspace.join("deleted"), "old").unwrap();
        std::os::unix::fs::symlink("changed", workspace.join("link")).unwrap();
        let root = Root::open(&workspace).unwrap();
        (around, root)
    }

    fn journal(around: &TempDir) -> Journal {
        Journal::new(around.path().join("home").to_str())
    }

    fn changes(root: &Root) -> BTreeMap<PathBuf, Change> {
        let change = |name: &str, after: Option<&str>| {
            let before = root.look(Path::new(name)).unwrap();
            let after = after.map(|text| text.as_bytes().to_vec());
            (PathBuf::from(name), Change { before, after })
        };
        BTreeMap::from([
            change("changed", Some("new")),
            change("deleted", None),
            change("dir/er/made", Some("new")),
            change("link", None),
        ])
    }

    /// Everything in a directory, and what is in it.
    fn contents(dir: &Path) -> Vec<(PathBuf, Option<String>)> {
        let mut all = Vec::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                all.extend(contents(&path));
            }
            all.push((path.clone(), fs::read_to_string(path).ok()));
        }
        all.sort();
        all
    }

    /// What is in the workspace, by names relative to it, and whether there is a journal.
    fn seen(around: &TempDir) -> (Vec<(PathBuf, Option<String>)>, bool) {
        let workspace = around.path().join("workspace");
        let all = contents(&workspace).into_iter();
        let all = all.map(|(path, text)| (path.strip_prefix(&workspace).unwrap().to_owned(), text));
        (all.collect(), around.path().join("home/.ash/patchset.json").exists())
    }

    #[test]
    fn a_failure_midway_takes_everything_back() {
        let (around, root) = planted();
        let journal = journal(&around);
        let mut changes = changes(&root);
        // It became a directory after the plan was made.
        fs::create_dir(around.path().join("workspace/late")).unwrap();
        let before = seen(&around);
        let late = Change { before: None, after: Some(b"new".to_vec()) };
        changes.insert(PathBuf::from("late"), late);
        assert!(commit(&root, &journal, &changes).is_err());
        assert_eq!(seen(&around), before);

        changes.remove(Path::new("late"));
        fs::remove_dir(around.path().join("workspace/late")).unwrap();
        commit(&root, &journal, &changes).unwrap();
        let (after, has_journal) = seen(&around);
        let names: Vec<&str> = after.iter().filter_map(|(path, _)| path.to_str()).collect();
        assert_eq!(names, ["changed", "dir", "dir/er", "dir/er/made"], "and nothing beside them");
        assert_eq!(after[0].1.as_deref(), Some("new"));
        assert!(!has_journal);
    }

    #[test]
    fn a_failure_while_placing_takes_everything_back() {
        let (around, root) = planted();
        let journal = journal(&around);
        let before = seen(&around);
        let changes = changes(&root);
        let hands = Hands { root: &root, journal: &journal };
        let mut record = prepare(&root, &changes).unwrap();
        hands.stage(&record, &changes).unwrap();
        hands.enter(&mut record, Phase::Placing).unwrap();
        // The last of them is taken away, so that it cannot be placed.
        fs::remove_file(around.path().join("workspace/link")).unwrap();
        assert!(hands.place(&record).is_err());
        assert_eq!(hands.undo(&mut record), Vec::<String>::new());
        let rest = |(files, has_journal): (Vec<(PathBuf, Option<String>)>, bool)| {
            let is_link = |path: &Path| path == Path::new("link");
            let files: Vec<_> = files.into_iter().filter(|(path, _)| !is_link(path)).collect();
            (files, has_journal)
        };
        assert_eq!(rest(seen(&around)), rest(before));
    }

    #[test]
    fn a_kill_at_any_point_leaves_all_or_nothing() {
        let done = {
            let (around, root) = planted();
            commit(&root, &journal(&around), &changes(&root)).unwrap();
            seen(&around)
        };
        let mut outcomes = BTreeSet::new();
        for steps in 0.. {
            // The recovery is killed as well, after ever more steps, until it gets through.
            for again in 0.. {
                let (around, root) = planted();
                let before = seen(&around);
                let first = journal(&around);
                first.left.store(steps, Ordering::Relaxed);
                let result = commit(&root, &first, &changes(&root));
                let is_through = first.left.load(Ordering::Relaxed) > 0;
                let second = journal(&around);
                second.left.store(again, Ordering::Relaxed);
                recover(&root, &second);
                let is_recovered = second.left.load(Ordering::Relaxed) > 0;
                recover(&root, &journal(&around));
                let after = seen(&around);
                assert!(
                    after == before || after == done,
                    "killed after {steps} steps and {again}: {result:?}, {after:?}"
                );
                outcomes.insert(after == done);
                if is_through {
                    assert!(result.is_ok() && after == done);
                    assert_eq!(outcomes.len(), 2, "both were seen");
                    return;
                }
                if is_recovered {
                    break;
                }
            }
        }
    }
}
