//! Snapshots that leave for another repository, or come from one.

use ash_core::id::{SnapshotId, TenantId};
use ash_snapshot::{Replicate, Repository, SnapshotError};

use super::{Archive, ArchiveError, HOME, MAX_ENTRIES, WORKSPACE, theirs, threads};

impl Archive {
    /// Copies a snapshot to another repository. What is in the cloud alone is fetched first. Blocks.
    pub(crate) fn copy_out(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        to: &Repository,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), ArchiveError> {
        self.fetch_if_lost(tenant, id)?;
        to.replicate(&copy(&self.repository(tenant)?, id, &|_| go_on()))?;
        Ok(())
    }

    /// Copies a snapshot of a session from another repository, of which nothing is believed. Blocks.
    pub(crate) fn take_in(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        from: &Repository,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), ArchiveError> {
        let there = from.snapshot(theirs(id))?;
        for name in [WORKSPACE, HOME] {
            there.root(name)?;
        }
        let here = self.repository(tenant)?;
        let taken = here.replicate(&copy(from, id, &|_| go_on()))?;
        // One that is called the same and is another one is not to be taken for it.
        if taken.snapshot != there {
            return Err(SnapshotError::Missing(format!("a name of its own for {id}")).into());
        }
        Ok(())
    }
}

fn copy<'a>(
    from: &'a Repository,
    id: SnapshotId,
    progress: &'a (dyn Fn(ash_snapshot::Progress) -> bool + Sync),
) -> Replicate<'a> {
    let (snapshot, max_entries, threads) = (theirs(id), MAX_ENTRIES, threads());
    Replicate { from, snapshot, max_entries, threads, progress }
}
