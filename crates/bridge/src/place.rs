//! Places in the agent's home that have to be there, and to be ours to use.
//!
//! The agent can do to its home what it likes: put a file or a link where a directory is expected, or take its rights away. What is
//! in the way is set aside, never removed; rights are given back. Then whatever was kept there is made anew from
//! elsewhere.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use crate::questions::new_id;

/// Sees to it that there is a directory that can be used, below one that is there.
pub(crate) fn directory(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => give_rights(path, found.permissions().mode(), 0o700),
        Ok(_) => {
            set_aside(path)?;
            DirBuilder::new().mode(0o700).create(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o700).create(path)
        }
        Err(error) => Err(error),
    }
}

/// Sees to it that what is there, if anything is, is a file that can be read and written.
pub(crate) fn file(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => give_rights(path, found.permissions().mode(), 0o600),
        Ok(_) => set_aside(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Puts what is in the way beside where it was.
pub(crate) fn set_aside(path: &Path) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".aside-{}", new_id()?));
    fs::rename(path, aside)
}

fn give_rights(path: &Path, has: u32, needs: u32) -> io::Result<()> {
    if has & needs == needs {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode((has | needs) & 0o7777))
}

#[cfg(test)]
mod test {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_directory_is_made_and_what_is_in_its_place_stays_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("d");
        directory(&path).unwrap();
        directory(&path).unwrap();
        assert_eq!(names(home.path()), ["d"]);
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere", &path).unwrap();
        directory(&path).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_dir());
        let left = names(home.path());
        assert!(left.len() == 2 && left[1].starts_with("d.aside-"), "{left:?}");
        fs::set_permissions(&path, Permissions::from_mode(0o000)).unwrap();
        directory(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    }

    #[test]
    fn a_file_can_be_written_again_and_what_is_none_is_out_of_the_way() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("f");
        file(&path).unwrap();
        assert_eq!(names(home.path()), [""; 0]);
        fs::write(&path, "kept").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o644);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        file(&path).unwrap();
        let left = names(home.path());
        assert!(left.len() == 1 && left[0].starts_with("f.aside-"), "{left:?}");
    }
}
