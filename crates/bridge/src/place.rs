//! Places in the agent's home that have to be there, and to be ours to use.
//!
//! The agent can do to its home what it likes: put a file or a link where a directory is expected, or take its rights away. What is
//! in the way is set aside, never removed; rights are given back. Then whatever was kept there is made anew from
//! elsewhere.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::questions::new_id;

/// How many pieces of a file are looked at.
const MAX_PIECES: usize = 1_000;

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

/// Cuts off what was never written at the end of a file: it can be longer than anybody could read, and says nothing.
pub(crate) fn trim(file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut end = 0;
    for _ in 0..MAX_PIECES {
        let written = match seek(file, SeekFrom::Data(end)) {
            Ok(written) => written,
            Err(Errno::NXIO) => break,
            // The file system does not tell.
            Err(_) => return Ok(()),
        };
        end = seek(file, SeekFrom::Hole(written))?;
        if end >= length {
            return Ok(());
        }
    }
    let is_at_the_end = matches!(seek(file, SeekFrom::Data(end)), Err(Errno::NXIO));
    if is_at_the_end { file.set_len(end) } else { Ok(()) }
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
    fn what_was_never_written_at_the_end_of_a_file_is_cut_off() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("f");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.unwrap();
        trim(&file).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        fs::write(&path, "kept").unwrap();
        trim(&file).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        file.set_len(1 << 40).unwrap();
        trim(&file).unwrap();
        let found = fs::read(&path).unwrap();
        assert!(found.starts_with(b"kept") && found.len() < 1 << 20, "{}", found.len());
        // What stands behind such a place is not cut off.
        std::os::unix::fs::FileExt::write_all_at(&file, b"more", 1 << 20).unwrap();
        file.set_len(1 << 40).unwrap();
        trim(&file).unwrap();
        assert_eq!(fs::read(&path).unwrap()[1 << 20..(1 << 20) + 4], *b"more");
        file.set_len(0).unwrap();
        file.set_len(1 << 40).unwrap();
        trim(&file).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
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
