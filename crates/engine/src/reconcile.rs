//! The reconciler: what the store says and what the world is, brought together again and again.
//!
//! It runs at the start, every minute, and on demand. It is the reason why nothing waits for ever:
//! whatever was missed, by a crash, a lost message or a defect, is found by the next pass.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::Death;
use ash_core::id::SessionId;
use ash_core::session::Fact;
use ash_core::time::Timestamp;
use ash_store::StoreError;

use crate::host::{HostError, SandboxRef};
use crate::registry::Registry;
use crate::shared::Shared;

/// How long between two passes.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);

/// How long a receipt answers for its request.
const RECEIPT_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// How many rows are read at once.
const PAGE: u32 = 1_000;

/// Why a pass did not finish. The next one begins again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassError {
    #[error("the store could not be read")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the engine is closing")]
    Closing,
}

/// One pass over everything.
pub(crate) async fn pass(shared: &Shared, registry: &Arc<Registry>) -> Result<(), PassError> {
    take_up_unsettled(shared, registry).await?;
    wake_overdue(shared, registry).await?;
    compare_with_host(shared, registry).await?;
    let lifetime = i64::try_from(RECEIPT_LIFETIME.as_millis()).unwrap_or(i64::MAX);
    let oldest = Timestamp::from_millis(shared.now().as_millis().saturating_sub(lifetime));
    shared.store.purge_receipts(oldest).await?;
    Ok(())
}

/// Every session that is not at rest has a driver.
async fn take_up_unsettled(shared: &Shared, registry: &Arc<Registry>) -> Result<(), PassError> {
    let mut after = None;
    loop {
        let page = shared.store.unsettled_sessions(after, PAGE).await?;
        for &session in &page {
            registry.wake(session);
        }
        match page.last() {
            Some(&last) if page.len() == PAGE as usize => after = Some(last),
            Some(_) | None => return Ok(()),
        }
    }
}

/// Sessions at rest have deadlines too: a frozen sandbox is evicted, a time to live runs out.
async fn wake_overdue(shared: &Shared, registry: &Arc<Registry>) -> Result<(), PassError> {
    // One page: those that are left are found by the next pass, and are the least overdue.
    for session in shared.store.due_sessions(shared.now(), PAGE).await? {
        registry.wake(session);
    }
    Ok(())
}

/// A sandbox that no session expects is stopped; a frozen one that is gone is reported.
///
/// The order matters. What the sessions expect to be frozen is read before the host is asked, so
/// a sandbox that is missing has really gone. What they expect to run is read after, so a sandbox
/// that is not expected has really been given up: it is committed before it is started.
async fn compare_with_host(shared: &Shared, registry: &Arc<Registry>) -> Result<(), PassError> {
    let frozen = frozen_sessions(shared).await?;
    let alive: BTreeSet<SandboxRef> = shared.host.list().await?.into_iter().collect();
    for sandbox in frozen {
        if !alive.contains(&sandbox) {
            let gone = Fact::SandboxGone { incarnation: sandbox.incarnation, death: Death::Lost };
            registry.tell(sandbox.session, gone).await.map_err(|_| PassError::Closing)?;
        }
    }
    for sandbox in alive {
        let expected = shared.store.expected_incarnation(sandbox.session).await?;
        if expected != Some(sandbox.incarnation) {
            tracing::warn!(
                session.id = %sandbox.session,
                sandbox.incarnation = %sandbox.incarnation,
                "a sandbox of session {} belongs to nobody, stopping it", sandbox.session,
            );
            shared.host.stop(sandbox).await?;
        }
    }
    Ok(())
}

async fn frozen_sessions(shared: &Shared) -> Result<Vec<SandboxRef>, PassError> {
    let mut frozen = Vec::new();
    let mut after: Option<SessionId> = None;
    loop {
        let page = shared.store.frozen_sessions(after, PAGE).await?;
        let full = page.len() == PAGE as usize;
        after = page.last().map(|(session, _)| *session);
        frozen.extend(
            page.into_iter().map(|(session, incarnation)| SandboxRef { session, incarnation }),
        );
        if !full {
            return Ok(frozen);
        }
    }
}
