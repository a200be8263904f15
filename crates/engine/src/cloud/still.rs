//! What a head names, looked for once more: somebody may have taken it for nobody's.
//!
//! Who removes something looks for heads afterwards, and who puts a head looks for what it names afterwards. So at
//! least one of the two sees the other, and puts back what was removed (`sweep`).

use std::collections::BTreeSet;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_snapshot::SnapshotError;
use ash_store::{Place, Store, StoreError};

use super::error::CloudError;
use super::place::Shelf;
use super::set::{AgentRecord, Head, MAX_AGENT, MAX_RECORD, Record, Standing, versioned};
use super::upload::Brought;
use super::{Cloud, blocking};
use crate::archive::{Archive, ours, theirs};

/// How many snapshots of a session are looked for.
const MAX_SNAPSHOTS: u32 = 10_000;

impl Shelf {
    /// Whether a snapshot is there, also if it has to be taken back from what was forgotten. One whose record cannot be
    /// read is not. Blocks.
    pub(super) fn recall(&self, id: SnapshotId) -> Result<bool, CloudError> {
        match self.repository.recall(theirs(id)) {
            Err(SnapshotError::Damaged { .. }) => Ok(false),
            recalled => Ok(recalled?),
        }
    }
}

impl Archive {
    /// Puts again what is lost of a snapshot in the cloud, if it is whole on this machine. Blocks.
    pub(super) fn put_again(&self, tenant: &TenantId, id: SnapshotId) -> Result<(), CloudError> {
        let remote = self.remote().ok_or_else(|| CloudError::Unfit("there is none".to_owned()))?;
        // In a bucket that is away everything is missing.
        remote.is_here()?;
        let repository = &remote.shelf(tenant)?.repository;
        if repository.snapshot(theirs(id)).is_ok() {
            // Nothing of it is taken for stored before it was read.
            repository.distrust_snapshot(theirs(id))?;
        }
        match self.bring_up(tenant, id)? {
            Brought::IsThere => Ok(()),
            Brought::IsThereAlone => Err(CloudError::Damaged(format!("snapshot {id}"))),
        }
    }
}

impl Cloud {
    /// Sees to it that what a head names is there, now that the head is. Blocks.
    pub(super) fn still_there(
        &self,
        shelf: &Shelf,
        head: &Head,
        agent: &[u8],
    ) -> Result<(), CloudError> {
        if !shelf.recall(head.snapshot)? {
            self.0.archive.bring_up(&head.tenant, head.snapshot)?;
        }
        if shelf.get(&head.agent.name, MAX_AGENT)?.is_none() {
            shelf.put(&head.agent.name, agent)?;
        }
        let agent: AgentRecord = versioned(agent, &head.agent.name)?;
        if !shelf.recall(agent.snapshot)? {
            // The next set has another one.
            return Err(CloudError::NotFound(format!("directory of agent {}", agent.digest)));
        }
        Ok(())
    }

    /// Takes back snapshots of a session that others have forgotten before a head named them.
    pub(super) async fn recall(
        &self,
        store: &dyn Store,
        session: SessionId,
        ids: Vec<SnapshotId>,
    ) -> Result<(), CloudError> {
        let tenant = match store.session_record(session).await {
            Ok(record) => record.tenant,
            Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let this = self.clone();
        blocking(move || {
            let shelf = this.0.remote.shelf(&tenant)?;
            for id in ids {
                if shelf.recall(id)? {
                    continue;
                }
                match this.0.archive.bring_up(&tenant, id) {
                    // It is not kept any more.
                    Ok(_) | Err(CloudError::Here(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
        .await
    }

    /// Makes sure that snapshots of a session can be had from the cloud, whatever is remembered of that: the latest
    /// set is this server's, has this one as its last and names all, and all that they need is there, or is put again.
    pub(crate) async fn prove(
        &self,
        store: &dyn Store,
        (tenant, session): (&TenantId, SessionId),
        last: SnapshotId,
        all: BTreeSet<SnapshotId>,
    ) -> Result<(), CloudError> {
        let _turn = self.0.turns.of(session).acquire().await;
        let (this, tenant) = (self.clone(), tenant.clone());
        let tried = blocking(move || {
            let missing = || CloudError::NotFound(format!("whole session {session}"));
            let shelf = this.0.remote.shelf(&tenant)?;
            let Standing { head, latest } = shelf.standing(&tenant, session)?;
            // One that cannot be read may be the latest.
            let is_latest = |head: &Head| latest == Some((head.epoch, head.number));
            let head = head.filter(is_latest).ok_or_else(missing)?;
            let record = shelf.get_part(&head.record, MAX_RECORD)?;
            let record: Record = versioned(&record, &head.record.name)?;
            let named: BTreeSet<_> = record.snapshots.iter().map(|it| it.captured.id).collect();
            if head.writer != this.writer() || head.snapshot != last || !all.is_subset(&named) {
                return Err(missing());
            }
            let mut there = BTreeSet::new();
            for id in all {
                if !shelf.recall(id)? {
                    // Its record is lost there, and whole here as yet.
                    this.0.archive.bring_up(&tenant, id)?;
                }
                there.insert(theirs(id));
            }
            let lacking = shelf.repository.lacking(&mut there.into_iter())?;
            let mend = |id| (id, this.0.archive.put_again(&tenant, id));
            Ok(lacking.into_iter().map(ours).map(mend).collect::<Vec<_>>())
        })
        .await?;
        for (id, mended) in tried {
            if let Err(error) = mended {
                self.is_damaged(store, session, id, &error).await?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Notes that a snapshot of a session is not whole in the cloud, and cannot be mended by this server.
    pub(super) async fn is_damaged(
        &self,
        store: &dyn Store,
        session: SessionId,
        id: SnapshotId,
        error: &CloudError,
    ) -> Result<(), CloudError> {
        if error.is_unavailable() {
            return Ok(());
        }
        match store.snapshot(session, id).await {
            Ok(row) if row.places.cloud => {}
            // That is known; or it is a session of another server.
            Ok(_) | Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        tracing::error!(
            error = error as &dyn std::error::Error, session.id = %session, snapshot.id = %id,
            "snapshot {id} of session {session} is damaged in the cloud, and cannot be put again",
        );
        match is_not_whole_there(store, session, id).await {
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks for snapshots of a session that others have put there. What is not there any more is brought up again.
    /// Returns those that nobody here can bring: where they are said to be is left as it is, for nothing else tells
    /// that they were there.
    pub(super) async fn look_for(
        &self,
        store: &dyn Store,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<BTreeSet<SnapshotId>, CloudError> {
        let mut gone = BTreeSet::new();
        let there: BTreeSet<SnapshotId> = {
            let (this, tenant) = (self.clone(), tenant.clone());
            blocking(move || {
                let there = this.0.remote.shelf(&tenant)?.repository.snapshots()?;
                // In a bucket that is away nothing is found.
                this.0.remote.is_here()?;
                Ok(there.into_iter().map(ours).collect())
            })
            .await?
        };
        for row in store.snapshots(session, MAX_SNAPSHOTS).await? {
            let id = row.snapshot.captured.id;
            if !row.places.cloud || there.contains(&id) {
                continue;
            }
            let recalled = {
                let (this, tenant) = (self.clone(), tenant.clone());
                blocking(move || this.0.remote.shelf(&tenant)?.recall(id)).await?
            };
            if recalled {
                continue;
            }
            if row.places.local {
                self.bring_up_snapshot(store, (tenant, session), id).await?;
                continue;
            }
            tracing::error!(session.id = %session, "snapshot {id} of session {session} is not in the cloud any more");
            gone.insert(id);
        }
        Ok(gone)
    }
}

/// Notes that a snapshot of a session is not whole in the cloud. It may have been damaged on the way only. So one that
/// is nowhere else is still said to be there where no head of this server tells that files of the session were brought
/// there: otherwise the next resume would take it for one that never had any, and begin anew.
pub(crate) async fn is_not_whole_there(
    store: &dyn Store,
    session: SessionId,
    id: SnapshotId,
) -> Result<(), StoreError> {
    let places = store.snapshot(session, id).await?.places;
    if !places.local && !store.cloud_heads(&[session]).await?.contains_key(&session) {
        return Ok(());
    }
    store.lost_snapshot(session, id, Place::Cloud).await
}
