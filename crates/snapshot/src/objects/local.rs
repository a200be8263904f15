//! Objects as files of a directory.
//!
//! An object is written aside without a name of its own, synced, and linked to its name: a link is
//! never made over something that is there. Then the directory is synced. So a name always leads to a
//! whole object, whatever dies when.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Listed, NewObject, Objects, Put, check_name, too_long};

/// Where objects lie before they have their names.
const ASIDE: &str = "tmp";

/// Objects in a directory.
#[derive(Debug)]
pub struct LocalObjects {
    root: PathBuf,
    if_gone: IfGone,
}

/// What becomes of something that is put where the directory is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfGone {
    /// It is made again.
    Made,
    /// Nothing is put.
    Refused,
}

impl LocalObjects {
    /// The objects in a directory, which is made if it is not there; only its owner can read it. Nothing is
    /// written to one that is there before something is put.
    pub fn open(root: &Path) -> io::Result<Self> {
        make_directory(root)?;
        Ok(Self { root: root.to_owned(), if_gone: IfGone::Made })
    }

    /// The same on a disk that may be unmounted: a directory that is gone later is not made again, and nothing is put.
    pub fn open_mounted(root: &Path) -> io::Result<Self> {
        Ok(Self { if_gone: IfGone::Refused, ..Self::open(root)? })
    }

    /// Whether there is nothing in a directory but what somebody who makes a store in it just now, or died
    /// doing so, puts there first.
    pub fn is_empty(root: &Path) -> io::Result<bool> {
        let Some(names) = names_in(root)? else { return Ok(true) };
        if names.iter().any(|name| name != ASIDE) {
            return Ok(false);
        }
        Ok(names_in(&root.join(ASIDE))?.is_none_or(|names| names.iter().all(|name| is_ours(name))))
    }

    fn path(&self, name: &str) -> io::Result<PathBuf> {
        check_name(name)?;
        Ok(self.root.join(name))
    }

    fn list_into(&self, directory: &Path, prefix: &str, found: &mut Vec<Listed>) -> io::Result<()> {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let name = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                self.list_into(&entry.path(), &format!("{name}/"), found)?;
                continue;
            }
            match entry.metadata() {
                Ok(meta) => found.push(Listed {
                    name,
                    size: meta.len(),
                    put_at: meta.mtime() * 1000 + meta.mtime_nsec() / 1_000_000,
                }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Objects for LocalObjects {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        let mut new = self.begin()?;
        new.write(bytes)?;
        new.finish(name)
    }

    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>> {
        // A name that nobody else comes upon: the numbers of processes repeat from container to
        // container.
        let aside = self.root.join(ASIDE);
        if self.if_gone == IfGone::Refused {
            fs::metadata(&self.root)?;
        }
        make_directory(&aside)?;
        let path = aside.join(uuid::Uuid::now_v7().to_string());
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Box::new(Aside { objects: self, file, path }))
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let file = open(&self.path(name)?)?;
        let size = file.metadata()?.len();
        if size > most {
            return Err(too_long(name, most));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        read_range(&open(&self.path(name)?)?, offset, length)
    }

    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)> {
        let file = open(&self.path(name)?)?;
        let size = file.metadata()?.len();
        let length = length.min(size);
        Ok((read_range(&file, size - length, length)?, size))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>> {
        let directory = self.path(prefix.trim_end_matches('/'))?;
        let mut found = Vec::new();
        self.list_into(&directory, prefix, &mut found)?;
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let path = self.path(name)?;
        remove(&path)?;
        match sync_directory(path.parent().unwrap_or(&self.root)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn clear(&self, age: Duration) -> io::Result<()> {
        let entries = match fs::read_dir(self.root.join(ASIDE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            // What others put there is not ours to remove.
            if !entry.file_type().is_ok_and(|kind| kind.is_file()) || !is_ours(&entry.file_name()) {
                continue;
            }
            let written = entry.metadata().and_then(|found| found.modified());
            if written.is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed >= age)) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// A file that is being written aside.
struct Aside<'a> {
    objects: &'a LocalObjects,
    file: File,
    path: PathBuf,
}

impl NewObject for Aside<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn finish(self: Box<Self>, name: &str) -> io::Result<Put> {
        let path = self.objects.path(name)?;
        self.file.sync_data()?;
        let directory = path.parent().unwrap_or(&self.objects.root);
        make_directory(directory)?;
        let put = match fs::hard_link(&self.path, &path) {
            Ok(()) => Put::Created,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Put::Existed,
            Err(error) => return Err(error),
        };
        // Also what existed: whoever put it may not have come to this.
        sync_directory(directory)?;
        Ok(put)
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        // What cannot be removed now is cleared later.
        let _left_behind = remove(&self.path);
    }
}

/// The names in a directory, if it is there.
fn names_in(directory: &Path) -> io::Result<Option<Vec<OsString>>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>().map(Some)
}

/// Whether a file that lies aside was begun by us.
fn is_ours(name: &OsStr) -> bool {
    let name = name.to_str().unwrap_or_default();
    uuid::Uuid::try_parse(name).is_ok_and(|id| id.to_string() == name)
}

/// Opens an object. What is put into a store by others, such as a named pipe, must not make us wait.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file"));
    }
    Ok(file)
}

fn read_range(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let length = length.min(size.saturating_sub(offset));
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Makes a directory and those above it, each durable in the one above it.
fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        make_directory(above)?;
    }
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => sync_directory(above.unwrap_or(Path::new("."))),
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
