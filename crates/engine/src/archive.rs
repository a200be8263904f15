//! Where snapshots of sessions lie: in one repository for each tenant, so that its sessions and forks share what
//! they have in common, and nobody else does.
//!
//! ```text
//!   data/snapshots/<tenant>/              packs and records (crates/snapshot/FORMAT.md)
//!   <cloud>/tenants/<tenant>/repository/  the same, where there is a cloud
//!   data/sandboxes/<session>/captured     what the last capture saw: a help, and no more
//! ```

mod bring_back;
mod compare;
mod copy;
mod fetch;
mod keep;
mod put_back;
mod reach;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::snapshot::Captured;
use ash_snapshot::objects::LocalObjects;
use ash_snapshot::{
    Ahead, Capture, Damaged, Effect, Freeze, InPlace, Look, Newer, Repository, Restore, Root,
    SnapshotError, State, Took, Trust, caches,
};

use crate::cloud::{CloudError, Remote};

pub(crate) use bring_back::{BroughtBack, Looked, Lost};

/// The names of the two trees of a session.
const WORKSPACE: &str = "workspace";
const HOME: &str = "home";

/// How long a sandbox stands still at the most.
const FREEZE_BUDGET: Duration = Duration::from_millis(250);

/// How many threads one capture or restore has at the most: others work too.
const MAX_THREADS: usize = 4;

/// How many names a restore makes at the most.
pub(crate) const MAX_ENTRIES: u64 = 20_000_000;

/// The snapshots of all sessions on this machine.
pub(crate) struct Archive {
    root: PathBuf,
    open: Mutex<BTreeMap<TenantId, Repository>>,
    /// Where they lie too.
    remote: Option<Arc<Remote>>,
    /// Those that were fetched from there, and not brought back since.
    fetched: Mutex<BTreeSet<SnapshotId>>,
    /// How many wait for it though nobody waits for them.
    left: AtomicUsize,
    /// When it was last found to be silent, and what had come from it by then.
    silence: Mutex<Option<(u64, Instant)>>,
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
        let (open, fetched) = (Mutex::default(), Mutex::default());
        let (root, left) = (data.join("snapshots"), AtomicUsize::new(0));
        Self { root, open, remote: None, fetched, left, silence: Mutex::default() }
    }

    /// The same, with a cloud beside it.
    pub(crate) fn with_remote(self, remote: Arc<Remote>) -> Self {
        Self { remote: Some(remote), ..self }
    }

    pub(crate) fn remote(&self) -> Option<&Remote> {
        self.remote.as_deref()
    }

    /// The repository of a tenant, which is made when it is needed first.
    pub(crate) fn repository(&self, tenant: &TenantId) -> Result<Repository, ArchiveError> {
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
        whose: (&TenantId, SessionId),
        places: &Places,
        unless_like: Option<SnapshotId>,
    ) -> Result<Option<(Captured, Took)>, ArchiveError> {
        let look = self.look_at(whose, places, Looking::default())?;
        self.store(whose, places, unless_like, look)
    }

    /// The same of files that may be torn: what they look like says nothing, and every one is read. Nothing of
    /// the session may run. Blocks.
    pub(crate) fn capture_unproven(
        &self,
        whose: (&TenantId, SessionId),
        places: &Places,
        unless_like: Option<SnapshotId>,
    ) -> Result<Option<(Captured, Took)>, ArchiveError> {
        let look = self.look_from(whose, places, &Looking::default(), &State::default())?;
        let stored = self.store_from(whose, places, unless_like, look, State::default())?;
        Ok(stored.map(|(captured, took)| (Captured { unproven: true, ..captured }, took)))
    }

    /// Looks at what a session works on, and reads what changed while it stands still. Blocks.
    pub(crate) fn look_at(
        &self,
        whose: (&TenantId, SessionId),
        places: &Places,
        looking: Looking<'_>,
    ) -> Result<Look, ArchiveError> {
        self.look_from(whose, places, &looking, &State::load(&places.captured))
    }

    fn look_from(
        &self,
        (tenant, session): (&TenantId, SessionId),
        places: &Places,
        looking: &Looking<'_>,
        state: &State,
    ) -> Result<Look, ArchiveError> {
        let left_out = caches(&places.home).map_err(ArchiveError::Home)?;
        let roots = roots_of(places, &left_out);
        let freeze = looking.freeze.map(|freeze| (freeze, FREEZE_BUDGET));
        let source = session.to_string();
        let capture = Capture { roots: &roots, freeze, ..capture_of(&source, None) };
        let repository = self.repository(tenant)?;
        Ok(repository.look(&capture, state, looking.ahead, looking.room)?)
    }

    /// Whether what a session works on still looks as it did, by which nothing can have changed it. Blocks.
    pub(crate) fn is_still_so(&self, places: &Places, seen: &Ahead) -> Result<bool, ArchiveError> {
        let left_out = caches(&places.home).map_err(ArchiveError::Home)?;
        Ok(seen.is_still_so(&roots_of(places, &left_out), threads())?)
    }

    /// Stores what was seen of a session; nothing, if it is as in `unless_like`. There is one at a time. Blocks.
    pub(crate) fn store(
        &self,
        whose: (&TenantId, SessionId),
        places: &Places,
        unless_like: Option<SnapshotId>,
        look: Look,
    ) -> Result<Option<(Captured, Took)>, ArchiveError> {
        self.store_from(whose, places, unless_like, look, State::load(&places.captured))
    }

    fn store_from(
        &self,
        (tenant, session): (&TenantId, SessionId),
        places: &Places,
        unless_like: Option<SnapshotId>,
        look: Look,
        mut state: State,
    ) -> Result<Option<(Captured, Took)>, ArchiveError> {
        let source = session.to_string();
        let capture = capture_of(&source, unless_like);
        let made = self.repository(tenant)?.store_seen(&capture, look, &mut state)?;
        remove_half_saved(&places.captured);
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
            // Files that are as they were are not read, but looked at; after a while that is done unfrozen, too.
            unfrozen: match snapshot.unfrozen_scan {
                true => snapshot.unfrozen.max(workspace.files),
                false => snapshot.unfrozen,
            },
            unstable: snapshot.unstable.len() as u64,
            unproven: false,
        };
        Ok(Some((captured, made.took)))
    }

    /// Puts back what is missing of a session's directories, and what is torn; what is newer than the snapshot stays.
    /// Blocks.
    pub(crate) fn mend(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        places: &Places,
        owner: Option<(u32, u32)>,
        effect: Effect,
    ) -> Result<Lacking, ArchiveError> {
        let left_out = caches(&places.home).map_err(ArchiveError::Home)?;
        self.with_snapshot(tenant, id, |repository, snapshot| {
            let of = |root| InPlace {
                snapshot,
                root,
                trust: Trust::Bytes,
                newer: Newer::Keep,
                effect,
                owner,
                max_entries: MAX_ENTRIES,
                max_bytes: u64::MAX,
                threads: threads(),
                progress: &|_| true,
            };
            let both = [
                of(Root { name: WORKSPACE, path: &places.workspace, excluded: &[] }),
                of(Root { name: HOME, path: &places.home, excluded: &left_out }),
            ];
            let mended = repository.restore_all_in_place(&both, &State::default())?;
            // What one that was killed left aside is removed.
            let to_put_back = mended.iter().map(|mended| mended.written + mended.removed).sum();
            Ok(Lacking { to_put_back, unverified: mended[0].kept })
        })
    }

    /// Brings one file of a session's home back, to where nothing is yet. Blocks.
    pub(crate) fn bring_back_from_home(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        path: &str,
        target: &Path,
    ) -> Result<(), ArchiveError> {
        self.with_snapshot(tenant, id, |repository, snapshot| {
            repository.restore(&Restore {
                tree: snapshot.root(HOME)?,
                path: path.as_bytes(),
                damaged: Damaged::Refuse,
                target,
                owner: None,
                max_entries: 1,
                max_bytes: u64::MAX,
                threads: 1,
                progress: &|_| true,
            })?;
            Ok(())
        })
    }
}

/// How to look at what a session works on.
#[derive(Clone, Copy, Default)]
pub(crate) struct Looking<'a> {
    /// Keeps the sandbox still.
    pub(crate) freeze: Option<&'a dyn Freeze>,
    /// What was seen before, and is being stored.
    pub(crate) ahead: Option<&'a Ahead>,
    /// How many bytes may be held until they are stored.
    pub(crate) room: u64,
}

fn roots_of<'a>(places: &'a Places, left_out: &'a [Vec<u8>]) -> [Root<'a>; 2] {
    [
        Root { name: WORKSPACE, path: &places.workspace, excluded: &[] },
        Root { name: HOME, path: &places.home, excluded: left_out },
    ]
}

/// A capture of a session, as far as its directories do not matter.
fn capture_of(session: &str, unless_like: Option<SnapshotId>) -> Capture<'_> {
    Capture {
        roots: &[],
        source: Some(session),
        parent: None,
        label: None,
        unless_like: unless_like.map(theirs),
        freeze: None,
        threads: threads(),
        progress: &|_| true,
    }
}

/// What a session's directories lack of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    /// How many names are missing, or have other bytes though they look the same.
    pub(crate) to_put_back: u64,
    /// How many files of the workspace are newer.
    pub(crate) unverified: u64,
}

/// Removes what servers left that died while they saved what a capture saw. There is one capture of a session at a
/// time, so nobody is at it.
fn remove_half_saved(captured: &Path) {
    let (Some(above), Some(name)) = (captured.parent(), captured.file_name()) else { return };
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        if rest.is_some_and(|rest| rest.starts_with(b".")) {
            // The next capture tries again.
            let _still_there = fs::remove_file(entry.path());
        }
    }
}

pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |many| many.get().min(MAX_THREADS))
}

pub(crate) fn theirs(id: SnapshotId) -> ash_snapshot::SnapshotId {
    id.to_string().parse().expect("both are UUIDs, written the same way")
}

pub(crate) fn ours(id: ash_snapshot::SnapshotId) -> SnapshotId {
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
    /// It is not here, and the cloud could not be asked.
    #[error(transparent)]
    Cloud(CloudError),
    /// It is not here, and the cloud does not have it whole either.
    #[error("neither here nor in the cloud: {0}")]
    Nowhere(#[source] CloudError),
    /// It is said to be in the cloud, and there is none.
    #[error("it is in the cloud, and this server has none: ASH_SNAPSHOT_URL is not set")]
    NoCloud,
    /// Nothing of it can be read any more, though it is said to be in the cloud.
    #[error("what is in the cloud of it is damaged, and nothing here is whole")]
    DamagedInCloud,
    /// There is nothing left of it, and it was not to begin without.
    #[error("there is nothing left of its files")]
    NothingLeft,
}

impl ArchiveError {
    /// Whether a snapshot is not there, or not whole, here and wherever else it could be looked for.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Snapshot(SnapshotError::Missing(_) | SnapshotError::Damaged { .. })
            | Self::Nowhere(_) => true,
            // It went between a look and a read.
            Self::Snapshot(SnapshotError::Store { source, .. }) => {
                source.kind() == io::ErrorKind::NotFound
            }
            Self::Snapshot(_)
            | Self::Place(_)
            | Self::Home(_)
            | Self::Cloud(_)
            | Self::NoCloud
            | Self::DamagedInCloud
            | Self::NothingLeft => false,
        }
    }

    /// Whether nobody can tell now whether it is there.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        match self {
            Self::Cloud(_) | Self::NoCloud => true,
            Self::Snapshot(_)
            | Self::Place(_)
            | Self::Home(_)
            | Self::Nowhere(_)
            | Self::DamagedInCloud
            | Self::NothingLeft => false,
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_was_left_half_saved_is_gone_after_the_next_capture() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join("session").join(name);
        let (workspace, home, captured) = (at("workspace"), at("home"), at("captured"));
        let places = Places { workspace, home, captured };
        fs::create_dir_all(&places.workspace).unwrap();
        fs::create_dir_all(&places.home).unwrap();
        fs::write(at("captured.0198f0c2-0000-7000-8000-000000000000"), "half").unwrap();
        let session = SessionId::from_parts(ash_core::time::Timestamp::from_millis(1), [0; 10]);
        let whose = (&TenantId::default_tenant(), session);
        Archive::new(dir.path()).capture(whose, &places, None).unwrap().unwrap();
        let left = fs::read_dir(dir.path().join("session")).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["captured", "home", "workspace"]);
    }
}
