//! The directories that a sandbox works in: written down when it is started, and looked for by whoever comes back to it.
//!
//! A sandbox has its directories themselves, and not by their names. If they are removed, or others are put in their
//! place, it works on where nobody ever finds what it leaves. It is of no use then, and its session has to come back
//! to what was captured. With nothing around it an agent goes by names, and may itself have replaced what they mean:
//! of such a one nothing is written down, and it is enough that the directories are there.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use ash_core::id::SessionId;
use serde::{Deserialize, Serialize};

use super::files::Files;

/// Both directories of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Footing {
    workspace: Directory,
    home: Directory,
}

/// A directory: another one that has its name later is not it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Directory {
    device: u64,
    inode: u64,
    /// When it was made, in nanoseconds, where the file system knows: numbers are used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<u64>,
}

impl Footing {
    /// What is in place of a session; nothing, if one of its directories is not.
    pub(super) fn of(files: &Files, session: SessionId) -> io::Result<Option<Self>> {
        let workspace = Directory::at(&files.workspace(session))?;
        let home = Directory::at(&files.home(session))?;
        Ok(workspace.zip(home).map(|(workspace, home)| Self { workspace, home }))
    }

    /// Whether both are the same.
    pub(super) fn is(self, other: Self) -> bool {
        self.workspace.is(other.workspace) && self.home.is(other.home)
    }
}

impl Directory {
    fn at(path: &Path) -> io::Result<Option<Self>> {
        let found = match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => found,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let since = found.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born = since.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Ok(Some(Self { device: found.dev(), inode: found.ino(), born }))
    }

    fn is(self, other: Self) -> bool {
        let is_as_old = self.born.zip(other.born).is_none_or(|(one, another)| one == another);
        is_as_old && (self.device, self.inode) == (other.device, other.inode)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_directory_is_the_same_wherever_it_is_moved_and_another_one_in_its_place_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path()).unwrap();
        let session = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        assert_eq!(Footing::of(&files, session).unwrap(), None);
        files.make_directories(session).unwrap();
        let (workspace, home) = (files.workspace(session), files.home(session));
        assert_eq!(Footing::of(&files, session).unwrap(), None, "there is no workspace");
        fs::create_dir(&workspace).unwrap();
        let before = Footing::of(&files, session).unwrap().unwrap();
        let written = serde_json::to_vec(&before).unwrap();
        assert_eq!(serde_json::from_slice::<Footing>(&written).unwrap(), before);

        for place in [&workspace, &home] {
            fs::write(place.join("file"), "").unwrap();
            let moved = place.with_extension("moved");
            fs::rename(place, &moved).unwrap();
            assert_eq!(Footing::of(&files, session).unwrap(), None);
            std::os::unix::fs::symlink(&moved, place).unwrap();
            assert_eq!(Footing::of(&files, session).unwrap(), None, "a link is none");
            fs::remove_file(place).unwrap();
            fs::create_dir(place).unwrap();
            assert!(!Footing::of(&files, session).unwrap().unwrap().is(before));
            fs::remove_dir(place).unwrap();
            fs::rename(&moved, place).unwrap();
            assert!(Footing::of(&files, session).unwrap().unwrap().is(before));
        }
    }

    #[test]
    fn when_it_was_made_tells_it_from_one_that_has_its_number_later() {
        let known = Directory { device: 1, inode: 2, born: Some(3) };
        let unknown = Directory { born: None, ..known };
        assert!(known.is(known) && known.is(unknown) && unknown.is(known) && unknown.is(unknown));
        let others = [
            Directory { device: 2, ..known },
            Directory { inode: 3, ..known },
            Directory { born: Some(4), ..known },
        ];
        assert!(others.into_iter().all(|other| !known.is(other)));
    }
}
