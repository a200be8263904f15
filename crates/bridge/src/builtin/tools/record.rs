//! The journal of a change that is under way, so that one which is killed does not stay half done.
//!
//! The workspace outlives the bridge. What a change is about to do is therefore written down, in the
//! agent's home and not in the workspace, before each part of it that cannot be seen from the files
//! themselves:
//!
//! ```text
//! staging ──▶ placing ──▶ placed ──▶ (no journal)
//!    ▲           │
//!    └── undone ─┘
//! ```
//!
//! While *staging* nothing has its new content yet; what there is under temporary names is removed.
//! From *placing* on, files may have it: they are put back. Once *placed*, the change is a fact, and
//! only the old files under their second names are left to remove. Each of these can be cut off and
//! done again.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// How long a journal may be: a patch set is a thousand paths.
const MAX_JOURNAL_BYTES: u64 = 16 * 1024 * 1024;

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    Staging,
    Placing,
    Placed,
}

/// A change, as far as is needed to undo it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) phase: Phase,
    /// The directories that it makes, the outermost first.
    pub(super) dirs: Vec<PathBuf>,
    pub(super) entries: Vec<Entry>,
}

/// One file of a change.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    /// Its new content, beside it; none: it is to be gone.
    pub(super) staged: Option<PathBuf>,
    /// The second name of the old file, beside it; none: there is no old file.
    pub(super) kept: Option<PathBuf>,
}

impl Record {
    /// Whether nothing in it leads elsewhere. Paths are opened beneath the workspace anyway; names
    /// beside them must be names.
    fn is_sane(&self) -> bool {
        let is_name = |name: &Path| {
            matches!(name.components().collect::<Vec<_>>()[..], [Component::Normal(_)])
        };
        let names = self.entries.iter().flat_map(|entry| entry.staged.iter().chain(&entry.kept));
        names.into_iter().all(|name| is_name(name))
    }
}

/// Where the one change that is under way is written down.
#[derive(Debug)]
pub(super) struct Journal {
    path: Option<PathBuf>,
    turn: Mutex<()>,
    /// How many more operations a test allows, before it is as if the bridge had been killed.
    #[cfg(test)]
    pub(super) left: std::sync::atomic::AtomicUsize,
}

impl Journal {
    pub(super) fn new(home: Option<&str>) -> Self {
        let home = home.filter(|home| !home.is_empty());
        Self {
            path: home.map(|home| Path::new(home).join(".ash/patchset.json")),
            turn: Mutex::new(()),
            #[cfg(test)]
            left: usize::MAX.into(),
        }
    }

    /// Waits for the change before: one whose call was given up still goes on to its end.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes before everything that changes a file.
    pub(super) fn step(&self) -> io::Result<()> {
        #[cfg(test)]
        {
            use std::sync::atomic::Ordering;
            let less = |left: usize| left.checked_sub(1);
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err() {
                return Err(io::Error::other("killed"));
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, record: &Record) -> io::Result<()> {
        let path = self.path()?;
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let beside = path.with_extension("tmp");
        self.step()?;
        let mut file = File::create(&beside)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_data()?;
        self.step()?;
        fs::rename(&beside, path)
    }

    pub(super) fn read(&self) -> io::Result<Option<Record>> {
        let Ok(path) = self.path() else { return Ok(None) };
        // One that was not finished says nothing, whoever was killed over it.
        let _none = fs::remove_file(path.with_extension("tmp"));
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        file.take(MAX_JOURNAL_BYTES).read_to_end(&mut text)?;
        let record: Record = serde_json::from_slice(&text)?;
        if !record.is_sane() {
            return Err(io::Error::other("it names what is no name"));
        }
        Ok(Some(record))
    }

    pub(super) fn clear(&self) -> io::Result<()> {
        self.step()?;
        fs::remove_file(self.path()?)
    }

    fn path(&self) -> io::Result<&Path> {
        let none = || io::Error::other("there is no HOME to keep the journal of a change in");
        self.path.as_deref().ok_or_else(none)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_journal_that_names_elsewhere_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let journal = Journal::new(home.path().to_str());
        assert_eq!(journal.read().unwrap(), None);
        for name in ["../x", "/x", "a/b", "..", ""] {
            let entry = Entry { path: "a".into(), staged: None, kept: Some(name.into()) };
            let record = Record { phase: Phase::Placed, dirs: Vec::new(), entries: vec![entry] };
            journal.write(&record).unwrap();
            assert!(journal.read().is_err(), "{name}");
        }
        journal.clear().unwrap();
        assert_eq!(journal.read().unwrap(), None);
    }
}
