//! A session from the cloud, made one of this server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ash_core::id::{SessionId, TenantId};
use ash_core::json::Json;
use ash_store::Places;

use super::fetch::{self, CloudSession, fetch};
use super::{Cloud, CloudError, blocking};
use crate::engine::{Engine, Idempotency};
use crate::error::EngineError;
use crate::import::{Arrival, Imported, Name, Settled, Supply, Understand};

/// How long somebody waits for an answer of the cloud.
const PATIENCE: Duration = Duration::from_secs(15);

impl Engine {
    /// The latest sessions of a tenant that are in the cloud, newest first, and those of which nothing can be read here.
    pub async fn sessions_in_cloud(
        &self,
        tenant: &TenantId,
        limit: u32,
    ) -> Result<(Vec<CloudSession>, Vec<SessionId>), EngineError> {
        let (cloud, tenant) = (self.the_cloud()?.clone(), tenant.clone());
        Ok(soon(blocking(move || cloud.sessions(&tenant, limit as usize))).await?)
    }

    /// Makes a session of a tenant that is in the cloud one of this server. Its files stay there until it is
    /// resumed.
    pub async fn import_from_cloud(
        &self,
        tenant: &TenantId,
        session: SessionId,
        understand: &Understand,
        idempotency: Option<Idempotency>,
    ) -> Result<Imported, EngineError> {
        self.accepts_work()?;
        let cloud = self.the_cloud()?.clone();
        if let Some(earlier) = self.imported_before(tenant, idempotency.as_ref()).await? {
            return Ok(earlier);
        }
        // Whether it answers at all is found out before anybody waits for the whole of it.
        let shelf = {
            let (cloud, tenant) = (cloud.clone(), tenant.clone());
            let look = move || {
                let shelf = cloud.0.remote.shelf(&tenant)?;
                let is_known = !shelf.heads(session)?.is_empty();
                if !is_known {
                    cloud.0.remote.is_here()?;
                }
                is_known.then_some(shelf).ok_or(CloudError::NotFound(format!("session {session}")))
            };
            soon(blocking(look)).await?
        };
        // While it is looked at, nothing of it is removed by this server.
        let turn = cloud.0.turns.of(session).acquire().await;
        let fetched = {
            let (cloud, shelf, tenant) = (cloud.clone(), Arc::clone(&shelf), tenant.clone());
            let fetch = move || {
                let fetched = fetch(&shelf, &tenant, session)?;
                if fetched.end_lost.is_some() || fetched.agent.record().is_err() {
                    cloud.is_here()?;
                }
                Ok(fetched)
            };
            blocking(fetch).await?
        };
        let understood = match fetched.agent.record() {
            Ok(agent) => understand(&fetched.record.settings, &agent.settings),
            // The one that takes its place is known here.
            Err(_) => understand(&fetched.record.settings, &nothing()?),
        };
        let understood = understood.ok_or_else(|| {
            EngineError::Cloud(CloudError::Damaged(format!("what {session} is set to")))
        })?;
        let aside = fetch::aside(&cloud.0.data);
        let supply = Supply { shelf, library: cloud.0.library.clone(), aside };
        let places = Places { local: false, cloud: true };
        let (from, name) = (session, Name::Kept);
        let arrival = Arrival {
            tenant,
            from,
            name,
            fetched,
            supply: &supply,
            cloud: Some(&cloud),
            places,
            understood,
        };
        let settled = self.settle(arrival, idempotency.as_ref()).await?;
        drop(turn);
        match settled {
            Settled::Imported(imported) => {
                // Once it has a set of this server's own, nobody else takes the session for theirs.
                cloud.want(imported.session.record.id);
                Ok(imported)
            }
            Settled::Earlier(earlier) => Ok(earlier),
        }
    }

    fn the_cloud(&self) -> Result<&Cloud, EngineError> {
        self.cloud().ok_or(EngineError::NoCloud)
    }
}

/// What an agent is set to of which nothing is known.
fn nothing() -> Result<Json, CloudError> {
    Json::of(&BTreeMap::<String, String>::new()).map_err(CloudError::here)
}

/// What the cloud is asked while somebody waits who could ask again: it answers soon, or cannot be reached.
async fn soon<T>(asked: impl Future<Output = Result<T, CloudError>>) -> Result<T, CloudError> {
    let late = |_| CloudError::Unavailable("it takes too long to answer".to_owned());
    tokio::time::timeout(PATIENCE, asked).await.map_err(late)?
}
