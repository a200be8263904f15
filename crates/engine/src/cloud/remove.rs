//! The end of a session in the cloud: when its time is over here, what is there of it goes too.
//!
//! The task is written in the commit that forgets the session. Heads go first, the latest last: whoever dies in
//! between leaves a set that is whole, or none. Only who has put the latest head may: another server that has
//! imported the session goes on with it. Snapshots are left to the next look through the bucket (`sweep`), for others
//! may have them too.

use ash_core::id::{OutboxId, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::number::LogEpoch;
use ash_core::time::Timestamp;
use ash_store::{OutboxItem, SessionRecord, Store, StoreError};
use serde::{Deserialize, Serialize};

use super::error::CloudError;
use super::place::Shelf;
use super::set::{epoch_of, heads_of, place_of};
use super::{Cloud, blocking};
use crate::shared::Shared;

/// What its tasks are called in the outbox.
pub(super) const TOPIC: &str = "cloud_removal";

/// What to remove.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Removal {
    tenant: TenantId,
    pub(super) session: SessionId,
    /// The latest one of this server: later ones are of others.
    epoch: LogEpoch,
    /// When the session was forgotten.
    at: Timestamp,
}

#[cfg(test)]
impl Removal {
    pub(super) fn of(tenant: TenantId, session: SessionId, epoch: LogEpoch, at: Timestamp) -> Self {
        Self { tenant, session, epoch, at }
    }
}

/// What became of a session in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removed {
    Yes,
    /// Another server has gone on with it.
    Elsewhere,
}

/// The task that the end of a session leaves, where there is a cloud.
pub(crate) fn to_remove(shared: &Shared, of: &SessionRecord, epoch: LogEpoch) -> Vec<OutboxItem> {
    if shared.cloud.is_none() {
        return Vec::new();
    }
    let now = shared.now();
    let removal = Removal { tenant: of.tenant.clone(), session: of.id, epoch, at: now };
    vec![OutboxItem {
        id: shared.ids.make(now, OutboxId::from_parts),
        topic: TOPIC.to_owned(),
        payload: Json::of(&removal).expect("texts and numbers in an object are JSON"),
        ready_at: now,
    }]
}

impl Cloud {
    /// Removes what is in the cloud of a session that is not remembered here any more.
    pub(super) async fn remove(
        &self,
        store: &dyn Store,
        removal: Removal,
    ) -> Result<(), CloudError> {
        let session = removal.session;
        match store.session_record(session).await {
            // It was imported again.
            Ok(_) => return Ok(()),
            Err(StoreError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let this = self.clone();
        let remove = move || {
            let removed = this.0.remote.shelf(&removal.tenant)?.remove(&removal, this.writer())?;
            // From a bucket that is away nothing was.
            this.0.remote.is_here()?;
            Ok(removed)
        };
        match blocking(remove).await? {
            Removed::Yes => {
                tracing::info!(session.id = %session, "session {session} is gone from the cloud");
            }
            Removed::Elsewhere => tracing::info!(
                session.id = %session,
                "session {session} stays in the cloud: another server goes on with it",
            ),
        }
        Ok(())
    }
}

impl Shelf {
    /// Removes what this server has put of a session, unless another one has gone on with it.
    pub(super) fn remove(&self, removal: &Removal, writer: &str) -> Result<Removed, CloudError> {
        let Removal { tenant, session, epoch, at } = removal;
        let listed = self.list(&place_of(*session))?;
        let below = heads_of(*session);
        let (heads, rest): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|listed| listed.name.starts_with(&below));
        // Whose it is says the latest head that can be read; of none that cannot anybody can make use.
        let names: Vec<String> = heads.iter().map(|head| head.name.clone()).collect();
        let latest = self.latest_readable(&names, (tenant, *session))?;
        if names.iter().any(|name| epoch_of(name).is_some_and(|of| of > *epoch))
            || latest.is_some_and(|latest| latest.writer != writer)
        {
            return Ok(Removed::Elsewhere);
        }
        let is_ours = |name: &str| epoch_of(name).is_some_and(|of| of <= *epoch);
        for head in heads.iter().filter(|head| is_ours(&head.name)) {
            self.delete(&head.name)?;
        }
        // What was listed together with our head is ours. If the heads went before, somebody who has the same epoch
        // may be about to put others.
        let is_known = |put_at: i64| !heads.is_empty() || put_at <= at.as_millis();
        for part in rest.iter().filter(|part| is_ours(&part.name) && is_known(part.put_at)) {
            self.delete(&part.name)?;
        }
        Ok(Removed::Yes)
    }
}
