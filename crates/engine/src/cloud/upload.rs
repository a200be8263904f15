//! Bringing a session to the cloud: its latest snapshot, its log, what it is, and last the head that names them.
//!
//! Whether it has to be is told by what was put last: the store remembers that for each session. Whoever is killed
//! on the way leaves objects that no head names: those of the log and the session are put again by the next attempt,
//! and go when they are old (`tidy`, `sweep`).

use std::collections::BTreeSet;
use std::sync::Arc;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::number::LogEpoch;
use ash_core::snapshot::Snapshot;
use ash_core::time::Timestamp;
use ash_snapshot::SnapshotError;
use ash_store::{CloudHead, Place, Store, StoreError, StoredSession, StoredSnapshot};

use super::attached::recorded;
use super::error::CloudError;
use super::new_set::{NewHead, NewSet, described};
use super::set::{Head, Standing, digest_of};
use super::tidy::tidy_up;
use super::{Cloud, blocking};
use crate::archive::{MAX_ENTRIES, theirs};

/// How many snapshots a record names: the latest.
pub(crate) const MAX_SNAPSHOTS: u32 = 10_000;

impl Cloud {
    /// Brings a session to the cloud as it stands now, unless all of it is there.
    pub(super) async fn bring_up(
        &self,
        store: &dyn Store,
        session: SessionId,
        now: Timestamp,
    ) -> Result<(), CloudError> {
        let Some(stored) = known(store, session).await? else { return Ok(()) };
        let Some(last) = stored.session.persistence().last() else { return Ok(()) };
        let (id, tenant) = (last.captured.id, &stored.record.tenant);
        let snapshots = store.snapshots(session, MAX_SNAPSHOTS).await?;
        // It is not kept any more.
        if !snapshots.iter().any(|row| row.snapshot.captured.id == id) {
            return Ok(());
        }
        let attachments = recorded(store.attachments(tenant, session).await?);
        let record = described(&stored, to_name(&snapshots, id), attachments.clone())?;
        let record = digest_of(&record);
        let before = store.cloud_heads(&[session]).await?.remove(&session);
        let lags = |row: &StoredSnapshot| !row.places.cloud && row.places.local;
        let goes_on =
            Unfinished { log: !stored.session.is_at_rest(), snapshots: snapshots.iter().any(lags) };
        let put = to_put(&stored, last, record);
        if lies_there(&snapshots, id)
            && before.as_ref().is_some_and(|before| covers(before, &put, goes_on))
        {
            return Ok(());
        }
        let (shelf, standing) = {
            let (this, tenant) = (self.clone(), tenant.clone());
            blocking(move || {
                let shelf = this.0.remote.shelf(&tenant)?;
                this.0.remote.is_here()?;
                let standing = shelf.standing(&tenant, session)?;
                Ok((shelf, standing))
            })
            .await?
        };
        // Before anything is put: who does not go on with it leaves nothing there.
        let (number, earlier) = self.place_in_line(stored.session.log_epoch(), &standing)?;
        let (mut snapshots, mut gone) = (snapshots, BTreeSet::new());
        if before.is_none() && snapshots.iter().any(|row| row.places.cloud) {
            // No head of ours has named them yet: whoever has put them may have removed them again.
            gone = self.look_for(store, tenant, session).await?;
            snapshots = store.snapshots(session, MAX_SNAPSHOTS).await?;
        }
        let was_there = lies_there(&snapshots, id) && !gone.contains(&id);
        if !was_there {
            self.bring_up_snapshot(store, (tenant, session), id).await?;
        }
        let described = described(&stored, to_name(&snapshots, id), attachments.clone())?;
        let put = to_put(&stored, last, digest_of(&described));
        let set = NewSet {
            store,
            library: &self.0.library,
            shelf: &shelf,
            tenant,
            writer: self.writer(),
            number,
            stored: &stored,
            described,
            attachments,
            attached_in: Some(self.0.data.join("attachments").join(session.to_string())),
            last,
            at: now,
        };
        let NewHead { head, agent } = set.put(earlier).await?;
        let this = self.clone();
        blocking(move || {
            this.still_there(&shelf, &head, &agent)?;
            if let Err(error) = tidy_up(&shelf, &head, now) {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "old sets of session {session} stay until the next one");
            }
            Ok(())
        })
        .await?;
        // Of what was there before nobody has looked at a byte now. Whoever has, and found it damaged, is right.
        if !was_there {
            is_there(store, session, id).await?;
        }
        match store.put_cloud_head(session, &put).await {
            // It was purged meanwhile.
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The number of the next head of a session, and the latest of this server that it can build on.
    fn place_in_line<'a>(
        &self,
        epoch: LogEpoch,
        standing: &'a Standing,
    ) -> Result<(u64, Option<&'a Head>), CloudError> {
        let Standing { head, latest } = standing;
        if latest.is_some_and(|(latest, _)| latest > epoch) {
            return Err(CloudError::Elsewhere);
        }
        let head = head.as_ref().filter(|head| head.epoch == epoch);
        if head.is_some_and(|head| head.writer != self.writer()) {
            return Err(CloudError::Elsewhere);
        }
        let before = latest.filter(|(latest, _)| *latest == epoch).map_or(0, |(_, number)| number);
        Ok((before + 1, head))
    }

    /// Brings an older snapshot of a session to the cloud, unless it is there.
    async fn bring_up_older(
        &self,
        store: &dyn Store,
        session: SessionId,
        id: SnapshotId,
    ) -> Result<(), CloudError> {
        let Some(stored) = known(store, session).await? else { return Ok(()) };
        match store.snapshot(session, id).await {
            // It is there, or nobody here can bring it.
            Ok(row) if row.places.cloud || !row.places.local => return Ok(()),
            Ok(_) => {}
            Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.bring_up_snapshot(store, (&stored.record.tenant, session), id).await?;
        is_there(store, session, id).await
    }

    /// Brings a session to the cloud as it stands now, then one of its snapshots, and a head that names it once all
    /// that were behind are there.
    pub(super) async fn bring_up_with(
        &self,
        store: &dyn Store,
        session: SessionId,
        snapshot: SnapshotId,
        now: Timestamp,
    ) -> Result<(), CloudError> {
        self.bring_up(store, session, now).await?;
        self.bring_up_older(store, session, snapshot).await?;
        self.bring_up(store, session, now).await?;
        self.recall(store, session, vec![snapshot]).await
    }

    /// Brings everything of a session to the cloud: as it stands now, then older snapshots, the newest first and as many
    /// as there may be, and a head that names them.
    pub(super) async fn catch_up(
        &self,
        store: &dyn Store,
        session: SessionId,
        now: Timestamp,
        most: usize,
    ) -> Result<(), CloudError> {
        self.bring_up(store, session, now).await?;
        let (mut brought, mut failed) = (Vec::new(), None);
        let mut missing = store.snapshots(session, MAX_SNAPSHOTS).await?;
        // What is neither there nor here cannot be brought by anybody.
        missing.retain(|row| !row.places.cloud && row.places.local);
        if missing.is_empty() {
            return Ok(());
        }
        for row in missing.into_iter().take(most) {
            let id = row.snapshot.captured.id;
            match self.bring_up_older(store, session, id).await {
                Ok(()) => brought.push(id),
                // One that is lost here keeps no other from being brought there.
                Err(CloudError::Here(_)) if !row.places.local => {}
                Err(error @ CloudError::Here(_)) => failed = Some(error),
                Err(error) => return Err(error),
            }
        }
        self.bring_up(store, session, now).await?;
        self.recall(store, session, brought).await?;
        failed.map_or(Ok(()), Err)
    }

    /// Copies a snapshot of a session to the cloud, unless it is there. One that is found to be lost on this machine is
    /// not said to be here any more.
    pub(super) async fn bring_up_snapshot(
        &self,
        store: &dyn Store,
        (tenant, session): (&TenantId, SessionId),
        id: SnapshotId,
    ) -> Result<(), CloudError> {
        let (this, of) = (self.clone(), tenant.clone());
        let brought = blocking(move || this.0.archive.bring_up(&of, id)).await;
        let is_lost = match &brought {
            Ok(brought) => *brought == Brought::IsThereAlone,
            Err(error) => error.lost_here() == Some(id),
        };
        if is_lost {
            is_not_here(store, session, id).await?;
        }
        brought.map(drop)
    }
}

/// Whether a snapshot is in the cloud, as far as is known.
fn lies_there(snapshots: &[StoredSnapshot], id: SnapshotId) -> bool {
    snapshots.iter().any(|row| row.snapshot.captured.id == id && row.places.cloud)
}

/// What a set names of these, oldest first: those that are in the cloud, or nowhere else, and the latest, which is there
/// when the set is. What was found damaged there is not given up by that: some of it may be read, or put again.
fn to_name(snapshots: &[StoredSnapshot], last: SnapshotId) -> Vec<Snapshot> {
    let is_there = |row: &&StoredSnapshot| {
        row.places.cloud || !row.places.local || row.snapshot.captured.id == last
    };
    snapshots.iter().rev().filter(is_there).map(|row| row.snapshot.clone()).collect()
}

/// What of a session changes all the time, or is on its way: a set may be without the latest of it.
#[derive(Clone, Copy)]
struct Unfinished {
    log: bool,
    snapshots: bool,
}

/// Whether what was put last has all that is to be there now.
fn covers(put: &CloudHead, now: &CloudHead, unfinished: Unfinished) -> bool {
    put.epoch == now.epoch
        && put.snapshot == now.snapshot
        && put.settings == now.settings
        && (put.seq == now.seq || unfinished.log)
        && (put.record == now.record || unfinished.snapshots)
        && (put.status.is_none() || put.status == now.status)
}

/// Whether everything of a session is in the cloud, as far as this store knows.
pub(super) async fn is_all_there(
    store: &dyn Store,
    stored: &StoredSession,
) -> Result<bool, StoreError> {
    let session = stored.session.id();
    let put = store.cloud_heads(&[session]).await?.remove(&session);
    Ok(has_all(put.as_ref(), stored))
}

/// Whether what was put last has everything of a session.
pub(super) fn has_all(put: Option<&CloudHead>, stored: &StoredSession) -> bool {
    let Some(last) = stored.session.persistence().last() else { return true };
    // Older snapshots follow when they can.
    let unfinished = Unfinished { log: !stored.session.is_at_rest(), snapshots: true };
    put.is_some_and(|put| covers(put, &to_put(stored, last, String::new()), unfinished))
}

/// What a set of a session would be now.
fn to_put(stored: &StoredSession, last: &Snapshot, record: String) -> CloudHead {
    let settings = serde_json::to_vec(&stored.record.settings);
    CloudHead {
        epoch: stored.session.log_epoch(),
        seq: stored.session.last_seq(),
        snapshot: last.captured.id,
        snapshot_seq: last.seq,
        settings: digest_of(&settings.expect("texts become JSON")),
        record,
        status: Some(stored.session.status().as_str().to_owned()),
    }
}

/// Notes that a snapshot of a session is in the cloud.
async fn is_there(store: &dyn Store, session: SessionId, id: SnapshotId) -> Result<(), CloudError> {
    match store.found_snapshot(session, id, Place::Cloud).await {
        // It was forgotten meanwhile.
        Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
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

/// Notes that a snapshot of a session is not whole on this machine.
async fn is_not_here(
    store: &dyn Store,
    session: SessionId,
    id: SnapshotId,
) -> Result<(), CloudError> {
    let noted = match store.snapshot(session, id).await {
        Ok(row) if row.places.local => {
            tracing::error!(
                session.id = %session, snapshot.id = %id,
                "snapshot {id} of session {session} is not whole on this machine any more",
            );
            store.lost_snapshot(session, id, Place::Local).await
        }
        found => found.map(drop),
    };
    match noted {
        // It was forgotten meanwhile.
        Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What came of copying a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brought {
    /// It is in the cloud.
    IsThere,
    /// It is in the cloud, and not on this machine.
    IsThereAlone,
}

impl crate::archive::Archive {
    /// Copies a snapshot to the cloud, unless it is there. Blocks.
    pub(super) fn bring_up(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
    ) -> Result<Brought, CloudError> {
        let Some(remote) = self.remote() else {
            return Err(CloudError::Unfit("there is none".to_owned()));
        };
        let here = self.repository(tenant)?;
        let shelf = remote.shelf(tenant)?;
        if let Err(error) = here.snapshot(theirs(id)) {
            // One that is there alone is there; otherwise what is wrong here is no fault of the cloud.
            let is_lost =
                matches!(error, SnapshotError::Missing(_) | SnapshotError::Damaged { .. });
            if !is_lost {
                return Err(CloudError::here(error));
            }
            // A record alone is not enough: what it needs may be lost there, or was found damaged by who came for it.
            let lacking = shelf.repository.lacking(&mut [theirs(id)].into_iter())?;
            return match lacking.is_empty() {
                true => Ok(Brought::IsThereAlone),
                false => Err(CloudError::lost(id, &error)),
            };
        }
        let copied = match shelf.repository.replicate(&super::copy_of(&here, id)) {
            // It is read once more before anybody says so; then what is damaged is stored anew by the next capture.
            Err(error) if error.is_of_source() => {
                let is_whole = here.doubt_snapshot(theirs(id), MAX_ENTRIES, &|| true);
                return Err(match is_whole.map_err(CloudError::here)? {
                    true => CloudError::here(error),
                    false => CloudError::lost(id, &error),
                });
            }
            copied => copied?,
        };
        metrics::counter!("ash_cloud_bytes_total", "way" => "up").increment(copied.stored_bytes);
        if !copied.is_new && shelf.repository.is_distrusted(theirs(id))? {
            // All of it was read there, and what was lost is put again.
            shelf.repository.trust_again(theirs(id))?;
            tracing::warn!(snapshot.id = %id, "snapshot {id} was damaged in the cloud, and was put again");
        }
        Ok(Brought::IsThere)
    }
}
