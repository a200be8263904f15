//! Bringing a session to the cloud: its latest snapshot, its log, what it is, and last the head that names them.
//!
//! Whoever is killed on the way leaves objects that no head names. The next attempt finds what of them it can use
//! by name, and old ones go with the next sets.

use std::collections::BTreeSet;
use std::sync::Arc;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::time::Timestamp;
use ash_store::{Place, Store, StoreError, StoredSession};

use super::error::CloudError;
use super::new_set::NewSet;
use super::place::Shelf;
use super::set::{Head, heads_of, place_of};
use super::{Cloud, blocking};
use crate::archive::theirs;

/// How many snapshots a record names: the latest.
pub(crate) const MAX_SNAPSHOTS: u32 = 10_000;

/// How many sets of a session are kept, and how many there are before the others go.
const KEPT_HEADS: usize = 2;
const MAX_HEADS: usize = 6;

/// Whether a set is made though there is one already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anew {
    /// No.
    No,
    /// Yes: it has to be this server's.
    Yes,
}

impl Cloud {
    /// Brings a session to the cloud as it stands now, unless its latest snapshot is there.
    pub(super) async fn bring_up(
        &self,
        store: &dyn Store,
        session: SessionId,
        now: Timestamp,
        anew: Anew,
    ) -> Result<(), CloudError> {
        let Some(stored) = known(store, session).await? else { return Ok(()) };
        let Some(last) = stored.session.persistence().last() else { return Ok(()) };
        let id = last.captured.id;
        let row = match store.snapshot(session, id).await {
            Ok(row) => row,
            // It is not kept any more.
            Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if row.places.cloud && anew == Anew::No {
            return Ok(());
        }
        let tenant = &stored.record.tenant;
        if !row.places.cloud {
            self.bring_up_snapshot(tenant, id).await?;
        }
        let (shelf, earlier) = {
            let (this, tenant) = (self.clone(), tenant.clone());
            blocking(move || {
                let shelf = this.0.remote.shelf(&tenant)?;
                let earlier = shelf.latest_head(&tenant, session)?;
                Ok((shelf, earlier))
            })
            .await?
        };
        let snapshots = store.snapshots(session, MAX_SNAPSHOTS).await?;
        let there = snapshots.into_iter().rev();
        let there = there.filter(|row| row.places.cloud || row.snapshot.captured.id == id);
        let set = NewSet {
            store,
            library: &self.0.library,
            shelf: &shelf,
            tenant,
            writer: &self.0.writer,
            stored: &stored,
            last,
            snapshots: there.map(|row| row.snapshot).collect(),
            at: now,
        };
        let head = set.put(earlier.as_ref()).await?;
        blocking(move || tidy_up(&shelf, &head)).await?;
        match store.found_snapshot(session, id, Place::Cloud).await {
            // It was forgotten meanwhile.
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings an older snapshot of a session to the cloud, unless it is there.
    pub(super) async fn bring_up_older(
        &self,
        store: &dyn Store,
        session: SessionId,
        id: SnapshotId,
    ) -> Result<(), CloudError> {
        let Some(stored) = known(store, session).await? else { return Ok(()) };
        match store.snapshot(session, id).await {
            Ok(row) if row.places.cloud => return Ok(()),
            Ok(_) => {}
            Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.bring_up_snapshot(&stored.record.tenant, id).await?;
        match store.found_snapshot(session, id, Place::Cloud).await {
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn bring_up_snapshot(&self, tenant: &TenantId, id: SnapshotId) -> Result<(), CloudError> {
        let (this, tenant) = (self.clone(), tenant.clone());
        blocking(move || this.0.archive.bring_up(&tenant, id)).await
    }
}

/// A session, if anybody may still know of it.
async fn known(
    store: &dyn Store,
    session: SessionId,
) -> Result<Option<Arc<StoredSession>>, CloudError> {
    let found = match store.session_record(session).await {
        Ok(record) => store.session(&record.tenant, session).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(stored) => Ok(Some(stored)),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes sets that are not the latest, once there are some; and what then no set needs.
fn tidy_up(shelf: &Shelf, latest: &Head) -> Result<(), CloudError> {
    let session = latest.session;
    let names = shelf.heads(session)?;
    if names.len() <= MAX_HEADS || names.last() != Some(&latest.name()) {
        return Ok(());
    }
    let (old, kept) = names.split_at(names.len() - KEPT_HEADS);
    let mut needed = BTreeSet::new();
    for name in kept {
        let Some(head) = shelf.head(name, (&latest.tenant, session))? else { return Ok(()) };
        needed.extend(head.log.into_iter().map(|segment| segment.part.name));
        needed.insert(head.record.name);
    }
    for name in old {
        shelf.delete(name)?;
    }
    let heads = heads_of(session);
    for listed in shelf.list(&place_of(session))? {
        if !listed.name.starts_with(&heads) && !needed.contains(&listed.name) {
            shelf.delete(&listed.name)?;
        }
    }
    Ok(())
}

impl crate::archive::Archive {
    /// Copies a snapshot to the cloud, unless it is there. Blocks.
    pub(super) fn bring_up(&self, tenant: &TenantId, id: SnapshotId) -> Result<(), CloudError> {
        let Some(remote) = self.remote() else {
            return Err(CloudError::Unfit("there is none".to_owned()));
        };
        let here = self.repository(tenant)?;
        let shelf = remote.shelf(tenant)?;
        // What is wrong here is no fault of the cloud.
        here.snapshot(theirs(id)).map_err(CloudError::here)?;
        let copied = shelf.repository.replicate(&super::copy_of(&here, id))?;
        metrics::counter!("ash_cloud_bytes_total", "way" => "up").increment(copied.stored_bytes);
        Ok(())
    }
}
