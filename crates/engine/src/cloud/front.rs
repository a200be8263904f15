//! What the engine's front has to do with the cloud.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::session::{Request, Session};
use ash_core::time::Timestamp;

use super::sweep::Sweep;
use super::{Cloud, CloudError, blocking};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::host::Collected;

impl Engine {
    /// Where everything is copied to.
    pub fn cloud(&self) -> Option<&Cloud> {
        self.shared.cloud.as_ref()
    }

    /// Asks for what puts a session to rest: then it is worth waiting for the cloud, a moment.
    pub(crate) async fn rest(
        &self,
        tenant: &TenantId,
        session: SessionId,
        request: Request,
    ) -> Result<Session, EngineError> {
        let rested = self.ask(tenant, session, request).await?;
        if let Some(cloud) = self.cloud() {
            cloud.wait_for(&self.shared, tenant, session).await;
        }
        Ok(rested)
    }

    /// Removes what of a tenant's part of the cloud no session there has needed for so long. The same is done once a
    /// day, by one of the servers that share it.
    pub async fn collect_in_cloud(
        &self,
        tenant: &TenantId,
        older_than: Duration,
    ) -> Result<Collected, EngineError> {
        let cloud = self.cloud().ok_or(EngineError::NoCloud)?.clone();
        let (shared, tenant) = (Arc::clone(&self.shared), tenant.clone());
        let this = cloud.clone();
        let swept = blocking(move || {
            this.sweep(&tenant, shared.now(), older_than, &|| !shared.tasks.is_closing())
        });
        let (collected, damaged) = swept.await?;
        for Damage { id, sessions, error } in damaged {
            for session in sessions {
                cloud.is_damaged(&*self.shared.store, session, id, &error).await?;
            }
        }
        Ok(collected)
    }

    /// The same, if it is time and this server's turn.
    pub(crate) async fn collect_in_cloud_if_due(
        &self,
        tenant: &TenantId,
        older_than: Duration,
    ) -> Result<(), EngineError> {
        let Some(cloud) = self.cloud().cloned() else { return Ok(()) };
        let is_due = {
            let (cloud, tenant, now) = (cloud.clone(), tenant.clone(), self.shared.now());
            blocking(move || cloud.0.remote.shelf(&tenant)?.is_my_turn(cloud.writer(), now)).await
        };
        let swept = match is_due {
            Ok(true) => self.collect_in_cloud(tenant, older_than).await,
            Ok(false) => return Ok(()),
            Err(error) => Err(error.into()),
        };
        match swept {
            Ok(collected) if collected == Collected::default() => {}
            Ok(collected) => tracing::info!(
                tenant.id = %tenant, snapshots = collected.forgotten, bytes = collected.removed_bytes,
                "{} snapshots of {tenant} in the cloud that no session has were forgotten, and {} bytes removed",
                collected.forgotten, collected.removed_bytes,
            ),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, tenant.id = %tenant, "what {tenant} has in the cloud was not looked through");
            }
        }
        Ok(())
    }
}

impl Cloud {
    fn sweep(
        &self,
        tenant: &TenantId,
        now: Timestamp,
        older_than: Duration,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Collected, Vec<Damage>), CloudError> {
        let millis = i64::try_from(older_than.as_millis()).unwrap_or(i64::MAX);
        let before = Timestamp::from_millis(now.as_millis().saturating_sub(millis));
        // One that is not here either is for another server, or nobody can mend it.
        let damaged = RefCell::new(Vec::new());
        let mend = |id, sessions: BTreeSet<SessionId>| match self.0.archive.put_again(tenant, id) {
            Ok(()) => tracing::warn!("snapshot {id} was not whole in the cloud, and is put again"),
            Err(error) => damaged.borrow_mut().push(Damage { id, sessions, error }),
        };
        let sweep = Sweep { tenant, now, before, go_on, mend: &mend };
        let collected = self.0.remote.shelf(tenant)?.sweep(&sweep)?;
        Ok((collected, damaged.into_inner()))
    }
}

/// A snapshot that is not whole in the cloud, and that this server cannot put again.
struct Damage {
    id: SnapshotId,
    /// Whose it is, as the cloud says.
    sessions: BTreeSet<SessionId>,
    error: CloudError,
}
