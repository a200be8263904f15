//! The users that sandboxes run as: one for each session, and never root. One that waits for a session has
//! a user already, which goes along with its home.
//!
//! Who a session's user is stands in the file system and nowhere else: the owner of its home. So it
//! cannot be lost without the files that it is for, and it is found again by whatever server comes.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Dir, FileType, Mode, chownat, fchown, open, openat, statat};
use rustix::process::{Gid, Uid};

use super::disk::DIRECTORY;

/// A range of users that nothing else on the machine has.
#[derive(Debug)]
pub struct Users {
    base: u32,
    count: u32,
    /// Those that sessions have; looked for when one is first needed.
    taken: Mutex<Option<BTreeSet<u32>>>,
}

impl Users {
    /// The users from `base` on.
    pub fn new(base: u32, count: u32) -> Self {
        Self { base, count, taken: Mutex::default() }
    }

    /// One that no session ever has, for what is tried out.
    pub fn for_a_probe(&self) -> u32 {
        self.base
    }

    /// The user that owns a home, if it is one of these.
    pub(super) fn owner(&self, home: &Path) -> io::Result<Option<u32>> {
        Ok(Some(fs::symlink_metadata(home)?.uid()).filter(|&uid| self.holds(uid)))
    }

    /// The user of the sandbox whose home this is, among those in these places: the one that owns it,
    /// or one that owns nothing yet.
    pub(super) fn of(&self, home: &Path, places: &[PathBuf]) -> io::Result<u32> {
        if let Some(owner) = self.owner(home)? {
            return Ok(owner);
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.known(&mut taken, places)?;
        let last = self.base.saturating_add(self.count);
        let free = (self.base + 1..last).find(|uid| !taken.contains(uid)).ok_or_else(|| {
            let message = format!("all {} users for sandboxes are taken", self.count);
            io::Error::new(io::ErrorKind::QuotaExceeded, message)
        })?;
        taken.insert(free);
        // Its own at once, if nothing is in it: a start that fails from here on has not used up a user.
        if fs::read_dir(home)?.next().is_none() {
            let _given_later = lchown(home, Some(free), Some(free));
        }
        Ok(free)
    }

    /// Has a home in one of these places removed, and takes its user back.
    pub(super) fn take_back(
        &self,
        home: &Path,
        places: &[PathBuf],
        remove: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let owner = self.owner(home).ok().flatten();
        // While it is there still: whoever looks for the first time after it is gone takes its user for
        // free, gives it to somebody, and does not expect it back.
        self.known(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner), places)?;
        remove()?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(taken), Some(owner)) = (&mut *taken, owner) {
            taken.remove(&owner);
        }
        Ok(())
    }

    /// The users that are taken, found out if that was not done yet.
    fn known<'a>(
        &self,
        taken: &'a mut Option<BTreeSet<u32>>,
        places: &[PathBuf],
    ) -> io::Result<&'a mut BTreeSet<u32>> {
        match taken {
            Some(taken) => Ok(taken),
            none @ None => Ok(none.insert(self.owners(places)?)),
        }
    }

    fn holds(&self, uid: u32) -> bool {
        uid > self.base && uid - self.base < self.count
    }

    /// The users that own homes in these places.
    fn owners(&self, places: &[PathBuf]) -> io::Result<BTreeSet<u32>> {
        let mut owners = BTreeSet::new();
        for place in places {
            let entries = match fs::read_dir(place) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let home = entry?.path().join("home");
                // What was removed meanwhile, or never was, owns nothing.
                if let Ok(found) = fs::symlink_metadata(home) {
                    owners.extend(Some(found.uid()).filter(|&uid| self.holds(uid)));
                }
            }
        }
        Ok(owners)
    }
}

/// Gives a directory to a user, with everything in it, unless it is theirs already: then so is what is
/// in it. Nothing of the session may run.
pub(super) fn give(root: &Path, uid: u32) -> io::Result<()> {
    if fs::symlink_metadata(root)?.uid() == uid {
        return Ok(());
    }
    give_all(root, uid)
}

/// Gives a directory to a user, with everything in it. Links are given and not followed. Its paths may be longer than the
/// kernel takes, and it may be deeper than there are descriptors.
pub(super) fn give_all(root: &Path, uid: u32) -> io::Result<()> {
    let user = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)));
    let mut at = open(root, DIRECTORY, Mode::empty())?;
    let mut rest = vec![give_what_is_in(at.as_fd(), user)?];
    while let Some(directories) = rest.last_mut() {
        if let Some(name) = directories.pop() {
            at = openat(&at, &name, DIRECTORY, Mode::empty())?;
            rest.push(give_what_is_in(at.as_fd(), user)?);
            continue;
        }
        // It comes after all that is in it: if this is cut short, it is done again.
        fchown(&at, user.0, user.1)?;
        rest.pop();
        if !rest.is_empty() {
            at = openat(&at, c"..", DIRECTORY, Mode::empty())?;
        }
    }
    Ok(())
}

/// Gives everything that is in a directory but other directories; these are returned.
fn give_what_is_in(
    at: BorrowedFd<'_>,
    (user, group): (Option<Uid>, Option<Gid>),
) -> io::Result<Vec<CString>> {
    let mut directories = Vec::new();
    for entry in Dir::read_from(at)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let found = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode).is_dir() {
            directories.push(name.to_owned());
        } else {
            chownat(at, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(directories)
}

#[cfg(test)]
mod test {
    use super::*;

    fn home(place: &Path, name: &str) -> std::path::PathBuf {
        let home = place.join(name).join("home");
        fs::create_dir_all(&home).unwrap();
        home
    }

    #[test]
    fn every_session_has_a_user_of_its_own_until_there_are_none() {
        let place = tempfile::tempdir().unwrap();
        let users = Users::new(300_000, 4);
        let homes = ["a", "b", "c", "d"].map(|name| home(place.path(), name));
        let given: Vec<_> =
            homes.iter().map(|home| users.of(home, &[place.path().to_owned()]).ok()).collect();
        assert_eq!(given, [Some(300_001), Some(300_002), Some(300_003), None]);
        assert!(!given.contains(&Some(users.for_a_probe())));
    }

    #[test]
    fn a_user_that_is_taken_back_is_given_to_one_and_not_to_two() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give anything away.
        }
        let place = tempfile::tempdir().unwrap();
        let places = [place.path().to_owned()];
        let old = home(place.path(), "old");
        let uid = Users::new(300_000, 9).of(&old, &places).unwrap();
        // Another server, which has not looked yet. Somebody needs a user right when the home is gone.
        let users = Users::new(300_000, 9);
        let mut given = Vec::new();
        let removed = users.take_back(&old, &places, || {
            fs::remove_dir_all(&old)?;
            given.push(users.of(&home(place.path(), "one"), &places)?);
            Ok(())
        });
        removed.unwrap();
        given.push(users.of(&home(place.path(), "two"), &places).unwrap());
        assert_ne!(given[0], given[1]);
        assert!(given.contains(&uid), "it is free again: {given:?}");
    }

    #[test]
    fn whoever_owns_a_home_keeps_it() {
        if !rustix::process::geteuid().is_root() {
            return; // Only root can give anything away.
        }
        let place = tempfile::tempdir().unwrap();
        let (one, two) = (home(place.path(), "one"), home(place.path(), "two"));
        fs::create_dir(one.join("dir")).unwrap();
        fs::write(one.join("dir/file"), "").unwrap();
        std::os::unix::fs::symlink("/", one.join("dir/link")).unwrap();
        let uid = Users::new(300_000, 4).of(&one, &[place.path().to_owned()]).unwrap();
        give(&one, uid).unwrap();
        for name in ["", "dir", "dir/file", "dir/link"] {
            let found = fs::symlink_metadata(one.join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (uid, uid), "{name}");
        }
        assert_eq!(fs::metadata("/").unwrap().uid(), 0, "links are not followed");
        // Another server over the same files.
        let users = Users::new(300_000, 4);
        assert_ne!(users.of(&two, &[place.path().to_owned()]).unwrap(), uid);
        assert_eq!(users.of(&one, &[place.path().to_owned()]).unwrap(), uid);
    }
}
