//! The store that a command line names, and what is found in it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ash_snapshot::objects::LocalObjects;
use ash_snapshot::{Id, Repository, Snapshot, SnapshotId, Tree};

use super::of;
use crate::cli::Hint;
use crate::cli::exit::Mistake;

/// What is remembered of directories, below the store.
const STATES: &str = "state";

/// A store on this machine.
pub(super) struct Store {
    root: PathBuf,
    pub(super) repository: Repository,
}

impl Store {
    /// A store that is there, or a new one where nothing is.
    pub(super) fn make(name: &str) -> anyhow::Result<Self> {
        let root = local(name)?;
        let is_empty = match std::fs::read_dir(root) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
            Err(error) => {
                return Err(error).with_context(|| format!("could not open the store {name}"));
            }
        };
        if !is_empty && !root.join("format").is_file() {
            let wrong = format!("{name} is no store of snapshots, and not empty");
            return Err(anyhow::Error::from(Mistake::Usage(wrong))
                .context(Hint("name an empty directory, or one that is not there yet")));
        }
        Self::at(root, name)
    }

    /// A store that is there.
    pub(super) fn open(name: &str) -> anyhow::Result<Self> {
        let root = local(name)?;
        if !root.join("format").is_file() {
            return Err(
                Mistake::NotFound(format!("there is no store of snapshots at {name}")).into()
            );
        }
        Self::at(root, name)
    }

    fn at(root: &Path, name: &str) -> anyhow::Result<Self> {
        let failed = || format!("could not open the store {name}");
        let objects = LocalObjects::open(root).with_context(failed)?;
        let repository = Repository::open(Box::new(objects)).with_context(failed)?;
        std::fs::create_dir_all(root.join(STATES)).with_context(failed)?;
        Ok(Self { root: root.to_owned(), repository })
    }

    /// Where what is remembered of a directory is saved.
    pub(super) fn state_of(&self, dir: &Path) -> PathBuf {
        self.root.join(STATES).join(Id::of(bytes_of(dir)).to_string())
    }

    /// The path of the store from a directory that it is in. The directory itself cannot be captured.
    pub(super) fn inside(&self, dir: &Path) -> anyhow::Result<Option<Vec<u8>>> {
        let root = self.root.canonicalize().context("could not open the store")?;
        match root.strip_prefix(dir) {
            Ok(path) if path.as_os_str().is_empty() => {
                Err(Mistake::Usage("the directory is the store itself".to_owned()).into())
            }
            Ok(path) => Ok(Some(bytes_of(path).to_vec())),
            Err(_) => Ok(None),
        }
    }

    /// The snapshot that is meant: by its id, the beginning of it, or as the latest.
    pub(super) fn find(&self, name: &str) -> anyhow::Result<Snapshot> {
        let ids = self.repository.snapshots().map_err(of)?;
        let missing = || Mistake::NotFound(format!("there is no snapshot {name:?}"));
        let id = if name == "latest" {
            *ids.last().ok_or_else(|| Mistake::NotFound("there is no snapshot yet".to_owned()))?
        } else {
            let meant = |id: &&SnapshotId| !name.is_empty() && id.to_string().starts_with(name);
            let mut meant = ids.iter().filter(meant);
            let id = *meant.next().ok_or_else(missing)?;
            if meant.next().is_some() {
                let several = format!("several snapshots begin with {name:?}");
                return Err(Mistake::Usage(several).into());
            }
            id
        };
        self.repository.snapshot(id).map_err(of)
    }
}

/// The tree of a snapshot. Those of this command have one.
pub(super) fn root_of(snapshot: &Snapshot) -> anyhow::Result<&Tree> {
    snapshot.roots.first().with_context(|| format!("the snapshot {} is of nothing", snapshot.id))
}

pub(super) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// A store that is a directory.
fn local(name: &str) -> anyhow::Result<&Path> {
    match name.split_once("://") {
        Some((scheme, _)) => {
            let wrong = format!("a store at {scheme}:// cannot be used yet: only a directory can");
            Err(Mistake::Usage(wrong).into())
        }
        None => Ok(Path::new(name)),
    }
}
