//! A bundle becomes files of a tree, or is refused as a whole.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::ops::Bound::{Excluded, Unbounded};

use super::archive::{Item, bad, each};
use super::beneath::Tree;
use super::path::FilePath;
use super::walk::Kind;
use super::write::Executable;
use super::{FileError, MAX_FILES, MAX_HELD_BYTES, MAX_UNPACKED_BYTES};

/// What became of a bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// How many files and links there were in it.
    pub files: u64,
    /// How many bytes they have together.
    pub bytes: u64,
}

impl Tree {
    /// Unpacks a bundle over what is there: what is not in it stays.
    ///
    /// All of it is looked at before anything is written. One that has anything in it that is not
    /// taken, or that does not fit what is there, changes nothing.
    pub fn unpack(&self, bundle: &[u8]) -> Result<Unpacked, FileError> {
        let mut plan = Plan::default();
        each(bundle, |path, item, content| {
            // What is said to be there has to be there.
            io::copy(content, &mut io::sink()).map_err(|error| bad(error.to_string()))?;
            plan.add(self, path, &item)
        })?;
        let mut unpacked = Unpacked::default();
        each(bundle, |path, item, content| {
            match item {
                Item::Directory => drop(self.make_directory(&path)?),
                Item::Link { target } => {
                    self.link(&path, &target)?;
                    unpacked.files += 1;
                }
                Item::File { size, can_run } => {
                    unpacked.bytes += self.write(&path, can(can_run), &mut content.take(size))?;
                    unpacked.files += 1;
                }
                Item::Copy { of, can_run } => {
                    // The agent may have made something else of it since.
                    let size = plan.entries.get(&of).map_or(0, |planned| planned.size);
                    let whole = self.read(&of, size)?.file;
                    unpacked.bytes += self.write(&path, can(can_run), &mut whole.take(size))?;
                    unpacked.files += 1;
                }
            }
            Ok(())
        })?;
        Ok(unpacked)
    }
}

fn can(run: bool) -> Executable {
    if run { Executable::Yes } else { Executable::No }
}

/// What a bundle would make, as far as it was looked at.
#[derive(Default)]
struct Plan {
    entries: BTreeMap<FilePath, Planned>,
    held: usize,
    /// What all files have together.
    bytes: u64,
}

struct Planned {
    kind: Kind,
    size: u64,
}

impl Plan {
    fn add(&mut self, tree: &Tree, path: FilePath, item: &Item) -> Result<(), FileError> {
        let wrong = |why: &str| bad(format!("{path:?} {why}"));
        let kind_at = |path: &[u8]| self.entries.get(path).map(|planned| planned.kind);
        let (kind, size) = match item {
            Item::Directory => (Kind::Directory, 0),
            Item::File { size, .. } => (Kind::File, *size),
            Item::Link { .. } => (Kind::Link, 0),
            Item::Copy { of, .. } => match self.entries.get(of) {
                Some(Planned { kind: Kind::File, size }) => (Kind::File, *size),
                Some(_) | None => return Err(wrong("is a hard link to no file of it")),
            },
        };
        for parent in path.parents() {
            match kind_at(parent) {
                Some(Kind::Directory) | None => {}
                Some(Kind::File | Kind::Link) => {
                    return Err(wrong("lies in something that is no directory"));
                }
            }
        }
        match kind_at(path.as_bytes()) {
            Some(before) if before != kind || kind != Kind::Directory => {
                return Err(wrong("is in it twice"));
            }
            Some(_) => return Ok(()),
            None => {}
        }
        if kind != Kind::Directory && self.has_something_beneath(&path) {
            return Err(wrong("is in it as a directory too"));
        }
        let there = match tree.look(&path) {
            Err(FileError::NotAFile | FileError::NotADirectory) => {
                return Err(wrong("would lie in something that is no directory"));
            }
            there => there?,
        };
        let fits = match there.as_ref().map(Kind::of) {
            None => true,
            Some(Some(Kind::Link)) => kind == Kind::Link,
            Some(Some(Kind::File)) => kind != Kind::Directory,
            Some(Some(Kind::Directory)) => kind == Kind::Directory,
            Some(None) => false,
        };
        if !fits {
            return Err(wrong("is something else in the workspace"));
        }
        self.held += path.as_bytes().len();
        if self.entries.len() >= MAX_FILES || self.held > MAX_HELD_BYTES {
            return Err(bad(format!("it has more than {MAX_FILES} entries, or too long names")));
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > MAX_UNPACKED_BYTES {
            return Err(bad("its files have more than 1 GB".to_owned()));
        }
        self.entries.insert(path, Planned { kind, size });
        Ok(())
    }

    fn has_something_beneath(&self, path: &FilePath) -> bool {
        let prefix = [path.as_bytes(), b"/"].concat();
        let next = self.entries.range::<[u8], _>((Excluded(&prefix[..]), Unbounded)).next();
        next.is_some_and(|(next, _)| next.as_bytes().starts_with(&prefix))
    }
}
