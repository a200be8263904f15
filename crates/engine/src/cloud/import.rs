//! A session from the cloud, made one of this server.

use std::sync::Arc;

use ash_core::id::{SessionId, TenantId};
use ash_store::{Places, StoredSession};

use super::fetch::{CloudSession, fetch};
use super::upload::Anew;
use super::{Cloud, CloudError, blocking};
use crate::engine::{Created, Engine, Idempotency};
use crate::error::EngineError;
use crate::import::{Arrival, Name, Settled, Supply, Understand};
use crate::shared::Shared;

impl Engine {
    /// The latest sessions of a tenant that are in the cloud, newest first.
    pub async fn sessions_in_cloud(
        &self,
        tenant: &TenantId,
        limit: u32,
    ) -> Result<Vec<CloudSession>, EngineError> {
        let (cloud, tenant) = (self.the_cloud()?.clone(), tenant.clone());
        let listed = blocking(move || cloud.sessions(&tenant, limit as usize)).await;
        Ok(listed?)
    }

    /// Makes a session of a tenant that is in the cloud one of this server. Its files stay there until it is
    /// resumed.
    pub async fn import_from_cloud(
        &self,
        tenant: &TenantId,
        session: SessionId,
        understand: &Understand,
        idempotency: Option<Idempotency>,
    ) -> Result<Arc<StoredSession>, EngineError> {
        self.accepts_work()?;
        let cloud = self.the_cloud()?.clone();
        if let Some(Created { session }) = self.earlier(idempotency.as_ref()).await? {
            return Ok(self.shared.store.session(tenant, session).await?);
        }
        let (shelf, fetched) = {
            let (cloud, tenant) = (cloud.clone(), tenant.clone());
            blocking(move || {
                let shelf = cloud.0.remote.shelf(&tenant)?;
                let fetched = fetch(&shelf, &tenant, session)?;
                Ok((shelf, fetched))
            })
            .await?
        };
        let understood = understand(&fetched.record.settings, &fetched.agent.settings);
        let understood = understood.ok_or_else(|| {
            EngineError::Cloud(CloudError::Damaged(format!("what {session} is set to")))
        })?;
        let aside = cloud.0.data.join("import");
        let supply = Supply { shelf, library: cloud.0.library.clone(), aside };
        let places = Places { local: false, cloud: true };
        let (from, name) = (session, Name::Kept);
        let arrival = Arrival { tenant, from, name, fetched, supply: &supply, places, understood };
        match self.settle(arrival, idempotency.as_ref()).await? {
            Settled::Imported(stored) => {
                let id = stored.record.id;
                self.shared.tasks.spawn(take_over(Arc::clone(&self.shared), cloud, id));
                Ok(stored)
            }
            Settled::Earlier(stored) => Ok(stored),
        }
    }

    fn the_cloud(&self) -> Result<&Cloud, EngineError> {
        self.cloud().ok_or(EngineError::NoCloud)
    }
}

/// Puts a set of this server's own: from now on nobody else takes the session for theirs.
async fn take_over(shared: Arc<Shared>, cloud: Cloud, session: SessionId) {
    let Ok(_turn) = cloud.0.turns.of(session).acquire().await else { return };
    let put = cloud.bring_up(shared.store.as_ref(), session, shared.now(), Anew::Yes).await;
    cloud.heard(put.as_ref().err());
    if let Err(error) = put {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, session.id = %session, "session {session} is not taken over in the cloud yet");
    }
}
