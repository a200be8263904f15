//! Taking what a session left out of its place.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ash_core::id::SessionId;

use super::files::Files;

impl Files {
    /// Where things are for a moment, and what is on its way out: a place of this life's own.
    pub(super) fn scratch(&self) -> PathBuf {
        self.data().join("tmp").join(self.own())
    }

    /// What earlier lives have left there.
    pub(super) fn left_in_scratch(&self) -> Vec<PathBuf> {
        let all = fs::read_dir(self.data().join("tmp")).into_iter().flatten().flatten();
        all.filter(|entry| entry.file_name() != *self.own()).map(|entry| entry.path()).collect()
    }

    /// Takes a session's directories out of their place, in one step; nothing, if there are none. Says where they
    /// are.
    pub(super) fn take_out(&self, session: SessionId) -> io::Result<Option<PathBuf>> {
        let place = self.data().join("sandboxes").join(session.to_string());
        let scratch = self.scratch();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&scratch)?;
        let name = format!("{session}-{}", ash_snapshot::SnapshotId::new());
        let taken = scratch.join(name);
        match fs::rename(&place, &taken) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            renamed => renamed?,
        }
        // Before anybody hears of it: what is said to be gone does not come back.
        sync(&self.data().join("sandboxes"))?;
        Ok(Some(taken))
    }

    /// Removes what tells of a session that it ever was here, beside its directories.
    pub(super) fn remove_traces(&self, session: SessionId) -> io::Result<()> {
        for place in ["run", "sessions"] {
            match fs::remove_dir_all(self.data().join(place).join(session.to_string())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn sync(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn directories_leave_their_place_whole_and_a_session_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path()).unwrap();
        let session: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        assert_eq!(files.take_out(session).unwrap(), None);
        files.make_directories(session).unwrap();
        fs::create_dir_all(files.workspace(session).join("deep")).unwrap();
        fs::create_dir_all(dir.path().join("sessions").join(session.to_string())).unwrap();
        let taken = files.take_out(session).unwrap().unwrap();
        assert!(files.is_untouched(session).unwrap() && taken.join("workspace/deep").exists());
        files.make_directories(session).unwrap();
        assert_ne!(files.take_out(session).unwrap().unwrap(), taken);
        files.remove_traces(session).unwrap();
        files.remove_traces(session).unwrap();
        for place in ["run", "sessions", "sandboxes"] {
            assert_eq!(fs::read_dir(dir.path().join(place)).unwrap().count(), 0, "{place}");
        }
    }
}
