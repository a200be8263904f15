//! What the engine's front has to do with the cloud.

use ash_core::id::{SessionId, TenantId};
use ash_core::session::{Request, Session};

use super::Cloud;
use crate::engine::Engine;
use crate::error::EngineError;

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
            cloud.wait_for(&self.shared, (tenant, session)).await;
        }
        Ok(rested)
    }
}
