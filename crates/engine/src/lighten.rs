//! What this machine need not have, because it is elsewhere or nobody's: snapshots of sessions that nobody uses once
//! the cloud has them, and directories of agents that are gone.
//!
//! A snapshot is given up by a word in its row: it lies in the cloud alone. The next collection forgets it here, unless
//! a fork has it here too, and a resume fetches what it needs. The cloud's copy is not believed in before it was
//! looked at: the latest head is this server's, names the snapshot, and everything that it needs is there.

use std::collections::BTreeSet;
use std::time::Duration;

use ash_core::id::SessionId;
use ash_core::session::{FilesPlace, Session};
use ash_core::time::Timestamp;
use ash_store::{Place, StoreError};

use crate::agent::Definition;
use crate::engine::Engine;
use crate::error::EngineError;

/// How many rows are read at once.
const PAGE: u32 = 1_000;

/// How many snapshots of a session are looked at.
const MANY: u32 = 10_000;

/// How many sessions are looked at in one round where room is short: each asks much of the cloud.
const AT_ONCE: usize = 64;

impl Engine {
    /// Gives up snapshots on this machine that the cloud has too, of sessions that were not used for as long as
    /// somebody said. The same is done now and then.
    pub async fn leave_old_snapshots_to_cloud(&self) -> Result<(), EngineError> {
        let Some(after) = self.shared.policy.local_snapshot_ttl else { return Ok(()) };
        let now = self.shared.now();
        for session in self.unused_sessions().await? {
            if session.last_used().plus(after) <= now {
                self.leave_to_cloud(&session).await?;
            }
        }
        Ok(())
    }

    /// The same of some sessions, those unused for longest first, whatever somebody said: there is no room.
    pub(crate) async fn leave_snapshots_to_cloud(&self) -> Result<(), EngineError> {
        let mut left = 0;
        for session in self.unused_sessions().await? {
            left += usize::from(self.leave_to_cloud(&session).await?);
            if left == AT_ONCE {
                break;
            }
        }
        Ok(())
    }

    /// Sessions at rest whose files are in their snapshot alone, unused for longest first.
    async fn unused_sessions(&self) -> Result<Vec<Session>, EngineError> {
        let mut unused = Vec::new();
        if self.cloud().is_none() {
            return Ok(unused);
        }
        let mut after = None;
        loop {
            let page = self.shared.store.resting_sessions(after, PAGE).await?;
            let sessions = page.sessions.into_iter().map(|(session, _)| session);
            unused.extend(sessions.filter(|session| {
                session.keeping().files() == FilesPlace::Away && session.stored_by().is_some()
            }));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        unused.sort_by_key(|session| (session.last_used(), session.id()));
        Ok(unused)
    }

    /// Gives up all snapshots of a session here, if the cloud has every one of them. Says whether there were any.
    async fn leave_to_cloud(&self, session: &Session) -> Result<bool, EngineError> {
        let (Some(cloud), Some(last)) = (self.cloud(), session.stored_by()) else {
            return Ok(false);
        };
        let id = session.id();
        let rows = match self.shared.store.snapshots(id, MANY).await {
            Ok(rows) => rows,
            Err(StoreError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let is_there = rows.iter().all(|row| row.places.cloud);
        if !is_there || !rows.iter().any(|row| row.places.local) {
            return Ok(false);
        }
        let tenant = match self.shared.store.session_record(id).await {
            Ok(record) => record.tenant,
            Err(StoreError::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let all: BTreeSet<_> = rows.iter().map(|row| row.snapshot.captured.id).collect();
        if let Err(error) = cloud.prove(&*self.shared.store, (&tenant, id), last, all.clone()).await
        {
            told(id, &error);
            return Ok(false);
        }
        for snapshot in all {
            match self.shared.store.lost_snapshot(id, snapshot, Place::Local).await {
                // It is not kept any more.
                Ok(()) | Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        tracing::info!(session.id = %id, "the snapshots of session {id} are in the cloud alone now");
        Ok(true)
    }

    /// Removes directories of agents on this machine that no version of an agent and no session needs, and that
    /// nobody has deployed for so long. The same is done every hour.
    pub async fn collect_agents(&self, older_than: Duration) -> Result<u64, EngineError> {
        let mut used = BTreeSet::new();
        for definition in self.shared.store.used_definitions().await? {
            match serde_json::from_str::<Definition>(definition.get()) {
                Ok(definition) => used.insert(definition.digest),
                // Of one that cannot be read nobody can say what it needs.
                Err(_) => return Ok(0),
            };
        }
        let millis = i64::try_from(older_than.as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp::from_millis(self.shared.now().as_millis().saturating_sub(millis));
        let removed = self.shared.host.collect_agents(used, before).await;
        let removed = removed.map_err(|error| EngineError::Unavailable(error.into()))?;
        if removed > 0 {
            tracing::info!("{removed} directories of agents that nobody needs were removed");
        }
        Ok(removed)
    }
}

fn told(session: SessionId, error: &crate::cloud::CloudError) {
    let error = error as &dyn std::error::Error;
    tracing::debug!(error, session.id = %session, "session {session} keeps its snapshots here");
}
