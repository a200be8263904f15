//! When the reconciler runs.

use std::collections::BTreeSet;

use crate::engine::Engine;
use crate::reconcile::{self, AT_LEAST, INTERVAL};

impl Engine {
    /// Between two passes: sessions at rest have deadlines that may be much shorter. Ends never.
    async fn wake_in_time(&self) {
        let mut woken = BTreeSet::new();
        loop {
            tokio::time::sleep(AT_LEAST).await;
            // What keeps it from looking is told by the next pass.
            let due = reconcile::wake_newly_due(&self.shared, &self.registry, &woken).await;
            woken = due.unwrap_or(woken);
        }
    }

    pub(crate) async fn keep_reconciling(self) {
        if let Err(error) = self.redate().await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "not every session at rest was looked at");
        }
        loop {
            if let Err(error) = self.reconcile().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a pass of the reconciler did not finish",
                );
            }
            self.keep_house();
            // Whoever finds the disk full finds it so again soon.
            let full = async {
                self.shared.housekeeping.full().await;
                tokio::time::sleep(AT_LEAST).await;
            };
            tokio::select! {
                biased;
                () = self.shared.tasks.closing() => return,
                () = full => {}
                () = self.wake_in_time() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }
}
