//! Snapshots that are not here, or not whole any more, and may be in the cloud.
//!
//! Whether a snapshot is whole is found out by using it: to read all of it first would cost as much again. What turns
//! out to be lost here is copied from the cloud, and then it is used again.

use std::sync::PoisonError;

use ash_core::id::{SnapshotId, TenantId};
use ash_core::resume::Source;
use ash_snapshot::{Replicate, Repository, Snapshot, SnapshotError};

use super::{Archive, ArchiveError, MAX_ENTRIES, theirs, threads};
use crate::cloud::CloudError;

impl Archive {
    /// Does something with a snapshot. If that finds it lost here, what is lost is fetched from the cloud, and it is
    /// done once more: so it changes nothing before it has read what it needs. Blocks.
    pub(crate) fn with_snapshot<T>(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        mut act: impl FnMut(&Repository, &Snapshot) -> Result<T, ArchiveError>,
    ) -> Result<T, ArchiveError> {
        let here = self.repository(tenant)?;
        let mut act = || act(&here, &here.snapshot(theirs(id))?);
        match act() {
            Err(lost) if lost.is_lost() => {
                self.fetch(tenant, id, lost)?;
                act()
            }
            done => done,
        }
    }

    /// Whether a snapshot is on this machine, as far as its own record says. Blocks.
    pub(crate) fn is_here(&self, tenant: &TenantId, id: SnapshotId) -> bool {
        self.repository(tenant).is_ok_and(|here| here.snapshot(theirs(id)).is_ok())
    }

    /// Whether there is a snapshot, here or in the cloud, as far as that can be told without reading its files. Blocks.
    pub(crate) fn has(&self, tenant: &TenantId, id: SnapshotId) -> Result<bool, ArchiveError> {
        let here = self.repository(tenant)?;
        let whole = here.snapshot(theirs(id)).and_then(|found| here.is_present(&found));
        match whole.map_err(ArchiveError::from) {
            Ok(()) => return Ok(true),
            Err(error) if error.is_lost() => {}
            Err(error) => return Err(error),
        }
        let Some(remote) = &self.remote else { return Ok(false) };
        self.may_ask(remote)?;
        let shelf = remote.shelf(tenant).map_err(ArchiveError::Cloud)?;
        match shelf.repository.snapshot(theirs(id)) {
            Ok(_) => Ok(true),
            Err(SnapshotError::Missing(_) | SnapshotError::Damaged { .. }) => {
                // In a bucket that is away nothing is found either.
                remote.is_here().map_err(ArchiveError::Cloud)?;
                Ok(false)
            }
            Err(error) => Err(ArchiveError::Cloud(error.into())),
        }
    }

    /// Sees to it that a snapshot is whole here, if it is anywhere. Says whether it is. Blocks.
    pub(crate) fn fetch_if_lost(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
    ) -> Result<bool, ArchiveError> {
        match self.with_snapshot(tenant, id, |here, found| Ok(here.is_present(found)?)) {
            Ok(()) => Ok(true),
            Err(error) if error.is_lost() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Copies what is lost of a snapshot here from the cloud.
    fn fetch(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        lost: ArchiveError,
    ) -> Result<(), ArchiveError> {
        let Some(remote) = &self.remote else { return Err(lost) };
        self.may_ask(remote)?;
        let shelf = remote.shelf(tenant).map_err(ArchiveError::Cloud)?;
        let here = self.repository(tenant)?;
        match here.snapshot(theirs(id)) {
            // Some of what it needs is damaged: nothing of it is taken for stored before it was read.
            Ok(_) => here.distrust_snapshot(theirs(id))?,
            // The record itself is.
            Err(SnapshotError::Damaged { .. }) => here.forget(theirs(id))?,
            Err(SnapshotError::Missing(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let copied = here.replicate(&Replicate {
            from: &shelf.repository,
            snapshot: theirs(id),
            max_entries: MAX_ENTRIES,
            threads: threads(),
            progress: &|_| true,
        });
        match copied {
            Ok(copied) => {
                let bytes = copied.copied_bytes;
                metrics::counter!("ash_cloud_bytes_total", "way" => "down").increment(bytes);
                self.fetched.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
                Ok(())
            }
            Err(error @ (SnapshotError::Missing(_) | SnapshotError::Damaged { .. })) => {
                // In a bucket that is away nothing is found either.
                remote.is_here().map_err(ArchiveError::Cloud)?;
                // Whoever has it whole puts it again; and what is put from now on relies on nothing that is damaged.
                if shelf.repository.snapshot(theirs(id)).is_ok()
                    && let Err(error) = shelf.repository.distrust_damaged(theirs(id))
                {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(
                        error,
                        "that snapshot {id} is damaged in the cloud is not noted there"
                    );
                }
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    lost = &lost as &dyn std::error::Error,
                    "snapshot {id} is neither whole here nor in the cloud",
                );
                Err(ArchiveError::Nowhere(error.into()))
            }
            Err(error @ SnapshotError::Store { .. }) => Err(ArchiveError::Cloud(error.into())),
            Err(error) => Err(error.into()),
        }
    }

    /// Where a snapshot was that is here now.
    pub(super) fn came_from(&self, id: SnapshotId) -> Source {
        let fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        if fetched.contains(&id) { Source::Cloud } else { Source::Local }
    }

    /// Files were brought back from a snapshot. The next time it is here.
    pub(super) fn is_used(&self, id: SnapshotId) {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// The repository that has the record of a snapshot: here, or in the cloud. Blocks.
    pub(super) fn holder(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
    ) -> Result<(Repository, Snapshot, Source), ArchiveError> {
        let here = self.repository(tenant)?;
        match here.snapshot(theirs(id)).map_err(ArchiveError::from) {
            Ok(snapshot) => return Ok((here, snapshot, self.came_from(id))),
            Err(error) if !error.is_lost() || self.remote.is_none() => return Err(error),
            Err(_) => {}
        }
        let Some(remote) = &self.remote else { return Err(ArchiveError::NoCloud) };
        self.may_ask(remote)?;
        let shelf = remote.shelf(tenant).map_err(ArchiveError::Cloud)?;
        match shelf.repository.snapshot(theirs(id)) {
            Ok(snapshot) => Ok((shelf.repository.clone(), snapshot, Source::Cloud)),
            Err(error) => {
                let error = CloudError::from(error);
                let is_lost = matches!(error, CloudError::NotFound(_) | CloudError::Damaged(_));
                if !is_lost {
                    return Err(ArchiveError::Cloud(error));
                }
                remote.is_here().map_err(ArchiveError::Cloud)?;
                Err(ArchiveError::Nowhere(error))
            }
        }
    }
}
