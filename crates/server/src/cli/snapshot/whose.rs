//! Whose snapshots are meant: those of a directory, or of whatever somebody calls it.

use std::collections::BTreeSet;
use std::path::Path;

use ash_snapshot::{Snapshot, SnapshotError, SnapshotId, source_of};

use super::of;
use super::store::Store;
use crate::cli::Hint;
use crate::cli::exit::Mistake;
use crate::cli::output::plain;

/// How many sources an error names.
const NAMED: usize = 8;

/// Whose snapshots a command is about.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Whose {
    /// Whose snapshots are meant: what `capture` called the directory, its path unless told otherwise
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
}

impl Whose {
    /// The source of a directory that is there.
    pub(super) fn of(&self, real: &Path) -> String {
        self.source.clone().unwrap_or_else(|| source_of(real))
    }
}

/// A source for people.
pub(super) fn shown(source: Option<&str>) -> String {
    source.map_or_else(|| "(nobody said)".to_owned(), plain)
}

impl Store {
    /// The snapshot that is meant: by its id, the beginning of it, or as the latest of a source. If none is named, that is
    /// the latest of all, provided that they are of one source.
    pub(super) fn find(&self, name: &str, source: Option<&str>) -> anyhow::Result<Snapshot> {
        match (name, source) {
            ("latest", Some(source)) => self.latest_of(source),
            ("latest", None) => self.latest(),
            (id, _) => self.repository.snapshot(self.find_id(id)?).map_err(of),
        }
    }

    /// The id of one that is meant by its id or the beginning of it, also if its record cannot be read.
    pub(super) fn find_id(&self, name: &str) -> anyhow::Result<SnapshotId> {
        let ids = self.repository.snapshots().map_err(of)?;
        let missing = || Mistake::NotFound(format!("there is no snapshot {name:?}"));
        let meant = |id: &&SnapshotId| !name.is_empty() && id.to_string().starts_with(name);
        let mut meant = ids.iter().filter(meant);
        let id = *meant.next().ok_or_else(missing)?;
        if meant.next().is_some() {
            let several = format!("several snapshots begin with {name:?}");
            return Err(Mistake::Usage(several).into());
        }
        Ok(id)
    }

    /// The last snapshot of a source that can be read, to say what a capture comes after.
    pub(super) fn parent(&self, source: &str) -> anyhow::Result<Option<SnapshotId>> {
        for (id, read) in self.repository.history().map_err(of)? {
            match read {
                Ok(snapshot) if snapshot.source.as_deref() == Some(source) => return Ok(Some(id)),
                Err(error) if error.is_transient() => return Err(of(error)),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Refuses a source that there is no snapshot of: it is misspelled. One that cannot be read may be of it.
    pub(super) fn has_any_of(&self, source: &str) -> anyhow::Result<()> {
        for (_, read) in self.repository.history().map_err(of)? {
            match read {
                Ok(snapshot) if snapshot.source.as_deref() == Some(source) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.is_transient() => return Err(of(error)),
                Err(_) => return Ok(()),
            }
        }
        Err(none_of(source))
    }

    fn latest_of(&self, source: &str) -> anyhow::Result<Snapshot> {
        for (id, read) in self.repository.history().map_err(of)? {
            let snapshot = read.map_err(|error| unknown(id, error))?;
            if snapshot.source.as_deref() == Some(source) {
                return Ok(snapshot);
            }
        }
        Err(none_of(source))
    }

    fn latest(&self) -> anyhow::Result<Snapshot> {
        let mut latest: Option<Snapshot> = None;
        let mut sources = BTreeSet::new();
        for (id, read) in self.repository.history().map_err(of)? {
            let snapshot = read.map_err(|error| unknown(id, error))?;
            sources.insert(snapshot.source.clone());
            latest.get_or_insert(snapshot);
        }
        if sources.len() > 1 {
            let more = if sources.len() > NAMED { ", …" } else { "" };
            let named = sources.iter().take(NAMED).map(|source| shown(source.as_deref()));
            let named = named.collect::<Vec<_>>().join(", ");
            let several = format!("the latest of whom? There are snapshots of {named}{more}");
            return Err(anyhow::Error::from(Mistake::Usage(several))
                .context(Hint("say whose with --source NAME, or name a snapshot by its id")));
        }
        let none = || Mistake::NotFound("there is no snapshot yet".to_owned());
        latest.ok_or_else(|| none().into())
    }
}

fn none_of(source: &str) -> anyhow::Error {
    let none = Mistake::NotFound(format!("there is no snapshot of {}", plain(source)));
    anyhow::Error::from(none)
        .context(Hint("ash snapshot list shows whose there are; --source NAME says whose is meant"))
}

/// One that cannot be read may be the latest: nobody knows whose it is.
fn unknown(id: SnapshotId, error: SnapshotError) -> anyhow::Error {
    if error.is_transient() {
        return of(error);
    }
    let error = anyhow::Error::from(error);
    error
        .context(format!("which one is the latest is not known: {id} cannot be read"))
        .context(Hint("name a snapshot by its id, or remove this one with: ash snapshot forget"))
}
