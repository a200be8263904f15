//! Where snapshots of sessions lie: in one repository for each tenant, so that its sessions and forks share what
//! they have in common, and nobody else does.
//!
//! ```text
//!   data/snapshots/<tenant>/              packs and records (crates/snapshot/FORMAT.md)
//!   data/sandboxes/<session>/captured     what the last capture saw: a help, and no more
//! ```

mod keep;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::snapshot::Captured;
use ash_snapshot::objects::LocalObjects;
use ash_snapshot::{
    Capture, Damaged, Freeze, Repository, Restore, Root, SnapshotError, State, Took, caches,
};

/// The names of the two trees of a session.
const WORKSPACE: &str = "workspace";
const HOME: &str = "home";

/// How long a sandbox stands still at the most.
const FREEZE_BUDGET: Duration = Duration::from_millis(250);

/// How many threads one capture or restore has at the most: others work too.
const MAX_THREADS: usize = 4;

/// How many names a restore makes at the most.
const MAX_ENTRIES: u64 = 20_000_000;

/// The snapshots of all sessions on this machine.
pub(crate) struct Archive {
    root: PathBuf,
    open: Mutex<BTreeMap<TenantId, Repository>>,
}

/// A session's directories.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) workspace: PathBuf,
    pub(crate) home: PathBuf,
    /// Where to remember what a capture saw.
    pub(crate) captured: PathBuf,
}

impl Archive {
    pub(crate) fn new(data: &Path) -> Self {
        Self { root: data.join("snapshots"), open: Mutex::default() }
    }

    /// The repository of a tenant, which is made when it is needed first.
    fn repository(&self, tenant: &TenantId) -> Result<Repository, ArchiveError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(repository) = open.get(tenant) {
            return Ok(repository.clone());
        }
        let place = self.root.join(tenant.as_str());
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&place);
        made.map_err(ArchiveError::Place)?;
        let objects = LocalObjects::open(&place).map_err(ArchiveError::Place)?;
        let repository = Repository::open(Box::new(objects))?;
        open.insert(tenant.clone(), repository.clone());
        Ok(repository)
    }

    /// Captures what a session works on; nothing, if it is as in `unless_like`. Blocks.
    pub(crate) fn capture(
        &self,
        (tenant, session): (&TenantId, SessionId),
        places: &Places,
        unless_like: Option<SnapshotId>,
        freeze: Option<&dyn Freeze>,
    ) -> Result<Option<(Captured, Took)>, ArchiveError> {
        let repository = self.repository(tenant)?;
        let mut state = State::load(&places.captured);
        let left_out = caches(&places.home).map_err(ArchiveError::Home)?;
        let roots = [
            Root { name: WORKSPACE, path: &places.workspace, excluded: &[] },
            Root { name: HOME, path: &places.home, excluded: &left_out },
        ];
        let source = session.to_string();
        let capture = Capture {
            roots: &roots,
            source: Some(&source),
            parent: None,
            label: None,
            unless_like: unless_like.map(theirs),
            freeze: freeze.map(|freeze| (freeze, FREEZE_BUDGET)),
            threads: threads(),
            progress: &|_| true,
        };
        let made = repository.capture(&capture, &mut state)?;
        if let Err(error) = state.save(&places.captured) {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, session.id = %session, "the next capture has to read everything");
        }
        if !made.is_new {
            return Ok(None);
        }
        let snapshot = &made.snapshot;
        let workspace = snapshot.root(WORKSPACE)?;
        let captured = Captured {
            id: ours(snapshot.id),
            files: workspace.files + workspace.links,
            bytes: workspace.bytes,
            new_bytes: snapshot.new_bytes,
            unfrozen: snapshot.unfrozen,
            unstable: snapshot.unstable.len() as u64,
        };
        Ok(Some((captured, made.took)))
    }

    /// Whether there is a snapshot. Blocks.
    pub(crate) fn has(&self, tenant: &TenantId, id: SnapshotId) -> Result<bool, ArchiveError> {
        match self.repository(tenant)?.snapshot(theirs(id)).map_err(ArchiveError::from) {
            Ok(_) => Ok(true),
            Err(error) if error.is_lost() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Brings back those of a session's directories that are not there. Blocks.
    pub(crate) fn bring_back(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        places: &Places,
    ) -> Result<(), ArchiveError> {
        let repository = self.repository(tenant)?;
        let snapshot = repository.snapshot(theirs(id))?;
        for (name, place) in [(HOME, &places.home), (WORKSPACE, &places.workspace)] {
            // The workspace last: who finds it finds the home too.
            if fs::symlink_metadata(place).is_ok() {
                continue;
            }
            let tree = snapshot.root(name)?;
            repository.restore(&Restore {
                tree,
                path: b"",
                damaged: Damaged::Refuse,
                target: place,
                owner: None,
                max_entries: MAX_ENTRIES,
                max_bytes: u64::MAX,
                threads: threads(),
                progress: &|_| true,
            })?;
        }
        Ok(())
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |many| many.get().min(MAX_THREADS))
}

fn theirs(id: SnapshotId) -> ash_snapshot::SnapshotId {
    id.to_string().parse().expect("both are UUIDs, written the same way")
}

fn ours(id: ash_snapshot::SnapshotId) -> SnapshotId {
    id.to_string().parse().expect("both are UUIDs, written the same way")
}

/// Why something could not be captured or brought back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("the place for snapshots cannot be used: {0}")]
    Place(#[source] io::Error),
    #[error("the agent's home cannot be looked at: {0}")]
    Home(#[source] io::Error),
}

impl ArchiveError {
    /// Whether a snapshot is not there, or not whole: another place may have it.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Snapshot(SnapshotError::Missing(_) | SnapshotError::Damaged { .. }) => true,
            Self::Snapshot(_) | Self::Place(_) | Self::Home(_) => false,
        }
    }
}
