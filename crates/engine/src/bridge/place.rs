//! Whether the directories of a session are where they belong, and what becomes of something else that is there.
//!
//! A link to a directory is none: what is captured, brought back and shown to an agent is what lies here, and nothing
//! that somebody else keeps elsewhere. Whatever is in the way is moved aside, and stays there for whoever put it.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use ash_core::id::SessionId;

use super::files::Files;

/// How what was moved aside is called, after the place it was in; a number follows.
const ASIDE: &str = "aside-";

/// How much is moved aside from one place at the most, before somebody has to look at it.
const MAX_ASIDE: u32 = 1_000;

impl Files {
    /// Whether the workspace of a session is where it belongs.
    pub(super) fn has_workspace(&self, session: SessionId) -> io::Result<bool> {
        is_directory(&self.workspace(session))
    }

    /// Whether both directories of a session are where they belong.
    pub(super) fn are_in_place(&self, session: SessionId) -> io::Result<bool> {
        Ok(self.has_workspace(session)? && is_directory(&self.home(session))?)
    }

    /// Whether nothing was ever made for a session.
    pub(super) fn is_untouched(&self, session: SessionId) -> io::Result<bool> {
        let is_nothing = |path: &Path| look(path).map(|found| found.is_none());
        Ok(is_nothing(&self.workspace(session))? && is_nothing(&self.home(session))?)
    }

    /// Moves aside whatever is in the place of a session's directories and is none. Nothing of it is removed.
    pub(super) fn clear_place(&self, session: SessionId) -> io::Result<()> {
        for place in [self.workspace(session), self.home(session)] {
            if look(&place)?.is_none_or(|found| found.is_dir()) {
                continue;
            }
            let aside = name_aside(&place)?;
            fs::rename(&place, &aside)?;
            tracing::warn!(
                session.id = %session,
                "session {session}: {} is no directory, and is {} now", place.display(), aside.display(),
            );
        }
        Ok(())
    }

    /// Whether something of a session was moved aside that is still there.
    pub(super) fn has_something_aside(&self, session: SessionId) -> io::Result<bool> {
        let entries = match fs::read_dir(self.beside(session, "")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let name = PathBuf::from(entry?.file_name());
            let kind = name.extension().and_then(OsStr::to_str);
            if kind.is_some_and(|kind| kind.starts_with(ASIDE)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A name beside a place that nothing has.
fn name_aside(place: &Path) -> io::Result<PathBuf> {
    for number in 1..=MAX_ASIDE {
        let aside = place.with_extension(format!("{ASIDE}{number}"));
        if look(&aside)?.is_none() {
            return Ok(aside);
        }
    }
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    Err(io::Error::other(format!("{name}: it is no directory, and too much lies aside already")))
}

/// Whether a directory is there, and not something else.
fn is_directory(path: &Path) -> io::Result<bool> {
    Ok(look(path)?.is_some_and(|found| found.is_dir()))
}

/// What is there, if anything is. A link is what it is itself.
fn look(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod test {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_to_a_directory_is_in_the_way_and_no_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(&dir.path().join("data")).unwrap();
        let session = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        assert!(files.is_untouched(session).unwrap() && !files.has_workspace(session).unwrap());
        files.make_directories(session).unwrap();
        assert!(!files.is_untouched(session).unwrap() && !files.are_in_place(session).unwrap());
        for target in [dir.path(), &dir.path().join("nowhere")] {
            symlink(target, files.workspace(session)).unwrap();
            assert!(!files.has_workspace(session).unwrap());
            fs::remove_dir(files.home(session)).unwrap();
            assert!(!files.is_untouched(session).unwrap(), "{}", target.display());
            fs::create_dir(files.home(session)).unwrap();
            assert!(!files.are_in_place(session).unwrap());
            fs::remove_file(files.workspace(session)).unwrap();
        }
        fs::create_dir(files.workspace(session)).unwrap();
        assert!(files.has_workspace(session).unwrap() && files.are_in_place(session).unwrap());
    }

    #[test]
    fn what_is_in_the_way_is_moved_aside_and_nothing_of_it_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(&dir.path().join("data")).unwrap();
        let session = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        files.clear_place(session).unwrap();
        assert!(!files.has_something_aside(session).unwrap(), "there is nothing at all");
        files.make_directories(session).unwrap();
        files.clear_place(session).unwrap();
        assert!(!files.is_untouched(session).unwrap(), "a directory stays");
        assert!(!files.has_something_aside(session).unwrap());

        let workspace = files.workspace(session);
        fs::write(&workspace, "a file").unwrap();
        files.clear_place(session).unwrap();
        symlink(dir.path(), &workspace).unwrap();
        fs::remove_dir(files.home(session)).unwrap();
        symlink("nowhere", files.home(session)).unwrap();
        files.clear_place(session).unwrap();
        assert!(
            files.is_untouched(session).unwrap() && files.has_something_aside(session).unwrap()
        );
        let aside = |name: &str| files.beside(session, name);
        assert_eq!(fs::read_to_string(aside("workspace.aside-1")).unwrap(), "a file");
        assert_eq!(fs::read_link(aside("workspace.aside-2")).unwrap(), dir.path());
        assert_eq!(fs::read_link(aside("home.aside-1")).unwrap(), Path::new("nowhere"));
    }
}
