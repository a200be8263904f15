//! Whether the program can write its transcript, whatever its agent has done to the place.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::Transcript;
use crate::place;

/// What the program remembers of itself. It does not start over something else in its place, and makes another one where
/// there is none.
const SETTINGS: &str = ".claude.json";

/// The most that it can have.
const MAX_SETTINGS: u64 = 16 * 1024 * 1024;

type Map = serde_json::Map<String, serde_json::Value>;

impl Transcript {
    /// Sees to it that the program can write it, and find its settings. What the agent has put in the way is set aside.
    pub(in crate::claude) fn make_room(&self) -> io::Result<()> {
        let directories: Vec<&Path> = self.path.ancestors().skip(1).take(3).collect();
        // From the outermost one on: what the program has for itself, what of projects, and this one's.
        directories.iter().rev().try_for_each(|directory| place::directory(directory))?;
        place::file(&self.path)?;
        match File::options().write(true).open(&self.path) {
            Ok(file) => place::trim(&file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let Some(config) = directories.last() else { return Ok(()) };
        let settings = config.join(SETTINGS);
        place::file(&settings)?;
        let is_huge = fs::metadata(&settings).is_ok_and(|found| found.len() > MAX_SETTINGS);
        if is_huge {
            return place::set_aside(&settings);
        }
        match fs::read(&settings) {
            Ok(bytes) if serde_json::from_slice::<Map>(&bytes).is_err() => {
                place::set_aside(&settings)
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod test {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn what_is_in_the_way_is_set_aside_and_rights_come_back() {
        let home = tempfile::tempdir().unwrap();
        let config = home.path().join(".claude");
        let of_project = config.join("projects/-workspace");
        let transcript = Transcript::new(&config, Path::new("/workspace"), "c");
        transcript.make_room().unwrap();
        assert!(of_project.is_dir());
        // A turn was written, and then the agent did as it liked.
        fs::write(transcript.path(), "said").unwrap();
        fs::write(config.join(SETTINGS), "{}").unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(transcript.path(), 0o400);
        set(&of_project, 0o000);
        transcript.make_room().unwrap();
        assert_eq!(fs::read_to_string(transcript.path()).unwrap(), "said");
        assert_eq!(fs::metadata(transcript.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(config.join(SETTINGS).exists());
        for damage in ["{", "", "[]", "\0\0"] {
            fs::write(config.join(SETTINGS), damage).unwrap();
            transcript.make_room().unwrap();
            assert!(!config.join(SETTINGS).exists(), "{damage:?}");
        }
        let huge = fs::File::create(config.join(SETTINGS)).unwrap();
        huge.set_len(MAX_SETTINGS + 1).unwrap();
        transcript.make_room().unwrap();
        assert!(!config.join(SETTINGS).exists());
        fs::remove_dir_all(&of_project).unwrap();
        symlink("/", &of_project).unwrap();
        transcript.make_room().unwrap();
        assert!(fs::symlink_metadata(&of_project).unwrap().is_dir());
        fs::rename(&config, home.path().join("elsewhere")).unwrap();
        fs::write(&config, "no directory").unwrap();
        transcript.make_room().unwrap();
        assert!(of_project.is_dir());
    }
}
