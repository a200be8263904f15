//! Whether the directories of a session are where they belong.
//!
//! A link to a directory is none: what is captured, brought back and shown to an agent is what lies here, and nothing
//! that somebody else keeps elsewhere.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;

use ash_core::id::SessionId;

use super::files::Files;

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
}
