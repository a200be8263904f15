//! What an archive keeps, and what it does not any more.

use std::path::Path;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::time::Timestamp;
use ash_snapshot::{Collect, Others, SnapshotError};

use super::{Archive, ArchiveError, MAX_ENTRIES, Places, WORKSPACE, ours, theirs};
use crate::files::Stored;
use crate::host::Collected;

impl Archive {
    /// Whether all that a snapshot needs is there, and whole: everything of it is read, until `go_on` says no, which is
    /// an error. What is damaged is stored again by the next capture, whatever is remembered. Blocks.
    pub(crate) fn is_whole(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        go_on: &dyn Fn() -> bool,
    ) -> Result<bool, ArchiveError> {
        // It may be in the cloud alone.
        self.fetch_if_lost(tenant, id)?;
        let repository = self.repository(tenant)?;
        let found = repository.snapshot(theirs(id));
        let is_recorded = found.is_ok();
        let present = found.and_then(|found| repository.is_present(&found));
        match present.map_err(ArchiveError::from) {
            Ok(()) => Ok(repository.doubt_snapshot(theirs(id), MAX_ENTRIES, go_on)?),
            Err(error) if error.is_lost() => {
                if is_recorded {
                    repository.distrust_snapshot(theirs(id))?;
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the directories of a session are as a snapshot has them, whatever anybody remembers of them. Blocks.
    pub(crate) fn is_as_stored(
        &self,
        of: (&TenantId, SessionId),
        places: &Places,
        id: SnapshotId,
    ) -> Result<bool, ArchiveError> {
        Ok(self.capture(of, places, Some(id))?.is_none())
    }

    /// The files of a snapshot, here or in the cloud; nothing, if it is lost. Blocks.
    pub(crate) fn stored(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        scratch: &Path,
    ) -> Result<Option<Stored>, ArchiveError> {
        let (repository, snapshot, _) = match self.holder(tenant, id) {
            Ok(held) => held,
            Err(error) if error.is_lost() => return Ok(None),
            Err(error) => return Err(error),
        };
        let tree = snapshot.root(WORKSPACE)?.clone();
        Ok(Some(Stored::new(repository, tree, scratch.to_owned())))
    }

    /// All snapshots of a tenant. Blocks.
    pub(crate) fn snapshots(&self, tenant: &TenantId) -> Result<Vec<SnapshotId>, ArchiveError> {
        // Nothing is made for a tenant of whom nothing was ever captured.
        if !self.root.join(tenant.as_str()).try_exists().map_err(ArchiveError::Place)? {
            return Ok(Vec::new());
        }
        Ok(self.repository(tenant)?.snapshots()?.into_iter().map(ours).collect())
    }

    /// Forgets those of some snapshots that are of sessions and were captured before a time, and removes what no
    /// snapshot needs any more, until `go_on` says otherwise. Blocks.
    pub(crate) fn collect(
        &self,
        tenant: &TenantId,
        unneeded: &[SnapshotId],
        before: Timestamp,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Collected, ArchiveError> {
        let repository = self.repository(tenant)?;
        let mut collected = Collected::default();
        for id in unneeded.iter().copied().map(theirs).filter(|_| go_on()) {
            let snapshot = match repository.snapshot(id) {
                Ok(snapshot) => snapshot,
                // By somebody else, or nobody can tell whose it is.
                Err(SnapshotError::Missing(_) | SnapshotError::Damaged { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            // Others may keep snapshots here too. One that is young may be about to be recorded.
            let source = snapshot.source.as_deref();
            let is_of_session = source.is_some_and(|of| of.parse::<SessionId>().is_ok());
            if !is_of_session || snapshot.created_at > before.as_millis() {
                continue;
            }
            match repository.forget(id) {
                Ok(()) => collected.forgotten += 1,
                Err(SnapshotError::Missing(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let collect = Collect { others: Others::MayCapture, progress: &|_| go_on() };
        match repository.collect(&collect) {
            Ok((done, _)) => collected.removed_bytes = done.removed_bytes,
            Err(SnapshotError::Cancelled) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(collected)
    }
}
