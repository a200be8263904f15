//! Sessions that ask the model with a credential of their own.

use std::sync::Arc;

use ash_core::id::SessionId;
use ash_core::time::Clock;
use ash_store::{Store, StoreError};
use async_trait::async_trait;

use crate::egress::{ModelKey, SessionKeys};
use crate::secret::{Sealer, credential_context};
use crate::sessions::Options;

/// Opens a session's credential when its agent asks the model, and not before.
pub(crate) struct SessionCredentials {
    store: Arc<dyn Store>,
    sealer: Sealer,
    clock: Arc<dyn Clock>,
}

impl SessionCredentials {
    pub(crate) fn new(store: Arc<dyn Store>, sealer: Sealer, clock: Arc<dyn Clock>) -> Self {
        Self { store, sealer, clock }
    }
}

#[async_trait]
impl SessionKeys for SessionCredentials {
    async fn key(&self, session: SessionId) -> Result<Option<ModelKey>, String> {
        let unreadable = |error: &dyn std::fmt::Display| {
            format!("the session's credential cannot be read: {error}")
        };
        let record =
            self.store.session_record(session).await.map_err(|error| unreadable(&error))?;
        let options = Options::open(&record.settings.config, &self.sealer)
            .map_err(|error| unreadable(&error))?;
        let Some(id) = options.credential_id else { return Ok(None) };
        let credential = self.store.credential(&record.tenant, id).await.map_err(|error| {
            if let StoreError::NotFound(_) = error {
                return "the session's credential was removed".to_owned();
            }
            unreadable(&error)
        })?;
        if credential.kind != "anthropic" {
            let kind = credential.kind;
            return Err(format!("the session's credential is for {kind}, which no agent uses yet"));
        }
        let context = credential_context(&record.tenant, id);
        let key =
            self.sealer.open(&credential.sealed, &context).map_err(|error| unreadable(&error))?;
        let key = String::from_utf8(key).map_err(|error| unreadable(&error))?;
        // A note for people; the request does not depend on it.
        let _not_noted = self.store.touch_credential(&record.tenant, id, self.clock.now()).await;
        Ok(Some(ModelKey::new(key)))
    }
}
