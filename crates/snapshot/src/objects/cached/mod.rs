//! A directory in front of a store that is far away.
//!
//! Only packs are kept: they are named by what is in them, so one that is kept is right even when it is
//! gone from the store. Whether a snapshot or a mark is there is always asked of the store, because
//! collections rely on it; so are lists and deletes.
//!
//! Nothing in the directory is trusted: what does not add up is removed and fetched anew, and nothing that
//! goes wrong with it fails a call. Several processes may share it. It may be removed at any time. Whoever
//! wants to know what is in the store, and not what is kept of it here, asks without it.

mod entry;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Listed, NewObject, Objects, Put, too_long};
use entry::{Entry, Identity, NewEntry};

/// What is kept.
const KEPT: &str = "packs/";

/// Where entries lie before they have their names.
const ASIDE: &str = "tmp";

/// For how long one is written at the most: then whoever began it is dead.
const BEGUN_FOR_LONG: Duration = Duration::from_secs(60 * 60);

/// Held by whoever evicts.
const LOCK: &str = "lock";

/// Objects of another store, with a directory in which those lie that were used last.
pub struct CachedObjects {
    below: Box<dyn Objects>,
    dir: PathBuf,
    scope: String,
    most: u64,
    /// Packs that this process has removed: never again from the directory.
    gone: Mutex<HashSet<Identity>>,
    room: Mutex<Room>,
}

/// What is known of how full the directory is.
#[derive(Default)]
struct Room {
    /// How much was in it, when it was looked at.
    held: Option<u64>,
    /// How much was written since then, by this process.
    written: u64,
}

/// A part of an object.
#[derive(Clone, Copy)]
enum Part {
    Whole,
    Range(u64, u64),
    End(u64),
}

impl Part {
    fn name(self) -> String {
        match self {
            Self::Whole => "whole".to_owned(),
            Self::Range(offset, length) => format!("range-{offset}-{length}"),
            Self::End(length) => format!("end-{length}"),
        }
    }
}

impl CachedObjects {
    /// The objects of a store, of which about `most` bytes are kept in a directory. `scope` names the store:
    /// several may share the directory.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn open(below: Box<dyn Objects>, scope: &str, dir: &Path, most: u64) -> io::Result<Self> {
        make_directory(&dir.join(ASIDE))?;
        let (gone, room) = (Mutex::default(), Mutex::default());
        Ok(Self { below, dir: dir.to_owned(), scope: scope.to_owned(), most, gone, room })
    }

    fn gone(&self) -> MutexGuard<'_, HashSet<Identity>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an object is, here.
    fn object(&self, name: &str) -> Identity {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.scope.as_bytes()).update(&[0]).update(name.as_bytes());
        *hasher.finalize().as_bytes()
    }

    fn directory(&self, object: &Identity) -> PathBuf {
        let hex = blake3::Hash::from_bytes(*object).to_hex();
        self.dir.join(&hex[..2]).join(&hex[2..])
    }

    /// Reads from an entry; nothing if there is none that is whole.
    fn found<T>(
        &self,
        object: &Identity,
        part: Part,
        read: impl FnOnce(&Entry) -> io::Result<T>,
    ) -> Option<T> {
        let path = self.directory(object).join(part.name());
        let entry = Entry::open(&path, &identity(object, part));
        match entry.and_then(|entry| entry.map(|entry| read(&entry)).transpose()) {
            Ok(found) => found,
            Err(_) => {
                // Whoever damaged it: the next one is whole.
                let _left_behind = fs::remove_file(path);
                None
            }
        }
    }

    /// Reads a part of an object from the directory, or from the store, and then keeps it.
    fn part<T>(
        &self,
        name: &str,
        part: Part,
        from_whole: impl Fn(&Entry) -> io::Result<T>,
        from_part: impl Fn(&Entry) -> io::Result<T>,
        below: impl Fn() -> io::Result<T>,
        bytes: impl Fn(&T) -> (&[u8], Option<u64>),
    ) -> io::Result<T> {
        let object = self.object(name);
        if !name.starts_with(KEPT) || self.gone().contains(&object) {
            return below();
        }
        let found = self.found(&object, Part::Whole, from_whole);
        if let Some(found) = found.or_else(|| self.found(&object, part, from_part)) {
            return Ok(found);
        }
        let read = below()?;
        let (kept, size) = bytes(&read);
        if !kept.is_empty()
            && let Ok(mut entry) = self.begin_entry()
            && entry.write(kept).is_ok()
        {
            self.keep(entry, &object, part, size);
        }
        Ok(read)
    }

    fn begin_entry(&self) -> io::Result<NewEntry> {
        let aside = self.dir.join(ASIDE);
        let path = aside.join(uuid::Uuid::now_v7().to_string());
        match NewEntry::begin(path.clone()) {
            // Whoever removed the directory: it is used again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_directory(&aside)?;
                NewEntry::begin(path)
            }
            begun => begun,
        }
    }

    /// Keeps an entry, unless the object was removed meanwhile.
    fn keep(&self, entry: NewEntry, object: &Identity, part: Part, size: Option<u64>) {
        // One that leaves no room for others is not worth it.
        if self.gone().contains(object) || entry.length > self.most / 4 {
            return;
        }
        let directory = self.directory(object);
        let name = directory.join(part.name());
        let kept = make_directory(&directory)
            .and_then(|()| entry.finish(&identity(object, part), size, &name));
        if let Ok(length) = kept {
            self.make_room(length);
        }
    }

    /// Evicts what was not used for longest, if it has become too much.
    fn make_room(&self, added: u64) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        room.written += added;
        let is_known = room.held.is_some_and(|held| held + room.written <= self.most);
        // Others write too: it is looked at again before that can be much.
        if is_known && room.written <= self.most / 8 {
            return;
        }
        let mut entries = self.entries();
        let mut held: u64 = entries.iter().map(|entry| entry.length).sum();
        // One at a time is enough.
        let lock = File::create(self.dir.join(LOCK)).ok();
        let is_ours = lock.as_ref().is_some_and(|lock| lock.try_lock().is_ok());
        if held > self.most && is_ours {
            entries.sort_by_key(|entry| entry.used);
            let aside = self.dir.join(ASIDE);
            for entry in entries {
                if held <= self.most / 10 * 9 {
                    break;
                }
                if entry.is_begun || fs::remove_file(&entry.path).is_err() {
                    continue;
                }
                held -= entry.length;
                // Only if it is empty, and never the one that entries begin in.
                let directory = entry.path.parent().filter(|above| *above != aside);
                let _kept = directory.map(fs::remove_dir);
            }
        }
        *room = Room { held: Some(held), written: 0 };
    }

    /// Every file in the directory.
    fn entries(&self) -> Vec<Used> {
        let mut entries = Vec::new();
        let aside = self.dir.join(ASIDE);
        let mut waiting = vec![self.dir.clone()];
        while let Some(directory) = waiting.pop() {
            let Ok(found) = fs::read_dir(directory) else { continue };
            for entry in found.flatten() {
                let (path, Ok(meta)) = (entry.path(), entry.metadata()) else { continue };
                if meta.is_dir() {
                    waiting.push(path);
                } else if path != self.dir.join(LOCK) {
                    let used = (meta.mtime(), meta.mtime_nsec());
                    let age = meta.modified().ok().and_then(|at| at.elapsed().ok());
                    let is_begun = path.parent() == Some(&*aside)
                        && age.is_none_or(|age| age < BEGUN_FOR_LONG);
                    entries.push(Used { path, length: meta.len(), used, is_begun });
                }
            }
        }
        entries
    }

    fn forget(&self, object: &Identity) {
        let _left_behind = fs::remove_dir_all(self.directory(object));
    }

    /// An object was put.
    fn created(&self, name: &str, entry: Option<NewEntry>) {
        if !name.starts_with(KEPT) {
            return;
        }
        let object = self.object(name);
        // What is left of one that was removed is not of this one.
        self.forget(&object);
        self.gone().remove(&object);
        if let Some(entry) = entry {
            self.keep(entry, &object, Part::Whole, None);
        }
    }
}

/// A file in the directory, and when it was used last.
struct Used {
    path: PathBuf,
    length: u64,
    used: (i64, i64),
    /// Whether somebody is writing it.
    is_begun: bool,
}

/// What a part of an object is, here.
fn identity(object: &Identity, part: Part) -> Identity {
    let mut hasher = blake3::Hasher::new();
    hasher.update(object).update(part.name().as_bytes());
    *hasher.finalize().as_bytes()
}

fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

impl Objects for CachedObjects {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        let put = self.below.put(name, bytes)?;
        if put == Put::Created {
            let entry = self.begin_entry();
            self.created(name, entry.and_then(|mut e| e.write(bytes).map(|()| e)).ok());
        }
        Ok(put)
    }

    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>> {
        let below = self.below.begin()?;
        Ok(Box::new(NewCached { cached: self, below, entry: self.begin_entry().ok() }))
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let whole = |entry: &Entry| {
            // Not damage: it is asked for too little, and told so by what comes next.
            if entry.length > most { Ok(None) } else { entry.read(0, entry.length).map(Some) }
        };
        let read = self.part(
            name,
            Part::Whole,
            whole,
            whole,
            || self.below.get(name, most).map(Some),
            |read| (read.as_deref().unwrap_or_default(), None),
        )?;
        read.ok_or_else(|| too_long(name, most))
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.part(
            name,
            Part::Range(offset, length),
            |entry| entry.read(offset, length),
            |entry| entry.read(0, length),
            || self.below.get_range(name, offset, length),
            |read| (read, None),
        )
    }

    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)> {
        let end = |entry: &Entry| {
            let read = entry.read(entry.length.saturating_sub(length), length)?;
            Ok((read, entry.size))
        };
        self.part(
            name,
            Part::End(length),
            end,
            end,
            || self.below.get_end(name, length),
            |(read, size)| (read, Some(*size)),
        )
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>> {
        self.below.list(prefix)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        if name.starts_with(KEPT) {
            let object = self.object(name);
            self.gone().insert(object);
            self.forget(&object);
        }
        self.below.delete(name)
    }

    fn clear(&self, age: Duration) -> io::Result<()> {
        self.below.clear(age)
    }

    fn max_object(&self) -> u64 {
        self.below.max_object()
    }

    fn to_probe(&self) -> Option<&dyn Objects> {
        self.below.to_probe()
    }

    fn past_cache(&self) -> Option<&dyn Objects> {
        Some(self.below.past_cache().unwrap_or(&*self.below))
    }

    fn refuse(&self, name: &str) -> bool {
        let again = self.below.refuse(name);
        if !name.starts_with(KEPT) {
            return again;
        }
        self.forget(&self.object(name));
        true
    }
}

/// An object that is being written, here and there.
struct NewCached<'a> {
    cached: &'a CachedObjects,
    below: Box<dyn NewObject + 'a>,
    entry: Option<NewEntry>,
}

impl NewObject for NewCached<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.below.write(bytes)?;
        if self.entry.as_mut().is_some_and(|entry| entry.write(bytes).is_err()) {
            self.entry = None;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, name: &str) -> io::Result<Put> {
        let Self { cached, below, entry } = *self;
        let put = below.finish(name)?;
        if put == Put::Created {
            cached.created(name, entry);
        }
        Ok(put)
    }
}
