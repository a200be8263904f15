//! Waiting for the cloud: for as long as somebody said, and no longer.

use std::time::Duration;

use ash_core::id::{SessionId, TenantId};

use super::Cloud;
use crate::shared::Shared;

impl Cloud {
    /// Waits until what a session has worked on is in the cloud, unless that takes long.
    pub(crate) async fn wait_for(&self, shared: &Shared, tenant: &TenantId, session: SessionId) {
        let is_there = self.until_there(shared, tenant, session);
        let _there_or_late = tokio::time::timeout(self.0.wait, is_there).await;
    }

    /// The same for sessions whose sandboxes were given up, all of them together, and `at_most` so long. Nobody
    /// waits for a cloud that is known not to answer.
    pub(crate) async fn wait_for_all(
        &self,
        shared: &Shared,
        sessions: &[SessionId],
        at_most: Duration,
    ) {
        if self.is_down() {
            return;
        }
        let are_there = async {
            for session in sessions {
                if let Ok(record) = shared.store.session_record(*session).await {
                    self.until_there(shared, &record.tenant, *session).await;
                }
            }
        };
        let _there_or_late = tokio::time::timeout(self.0.wait.min(at_most), are_there).await;
    }

    async fn until_there(&self, shared: &Shared, tenant: &TenantId, session: SessionId) {
        let mut news = self.0.news.watch();
        let mut is_wanted = false;
        loop {
            let Ok(stored) = shared.store.session(tenant, session).await else { return };
            let standing = &stored.session;
            let persistence = standing.persistence();
            if persistence.failed().is_some() {
                return;
            }
            if standing.is_at_rest() && persistence.is_settled() {
                let Some(last) = persistence.last() else { return };
                match shared.store.snapshot(session, last.captured.id).await {
                    Ok(row) if !row.places.cloud => {
                        if !std::mem::replace(&mut is_wanted, true) {
                            self.want(session);
                        }
                    }
                    Ok(_) | Err(_) => return,
                }
            }
            news.changed().await;
        }
    }
}
