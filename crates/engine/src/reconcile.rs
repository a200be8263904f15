//! The reconciler: what the store says and what the world is, brought together again and again.
//!
//! It runs at the start, every minute, and on demand; what has a deadline is looked for every second. It is the reason why nothing waits for ever:
//! whatever was missed, by a crash, a lost message or a defect, is found by the next pass.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::Death;
use ash_core::id::SessionId;
use ash_core::session::Fact;
use ash_core::time::Timestamp;
use ash_store::StoreError;
use tokio::task::JoinSet;

use crate::driver::keep::purge_logs;
use crate::error::EngineError;
use crate::host::{HostError, SandboxRef};
use crate::registry::{Registry, Told};
use crate::shared::{Link, Shared};

/// How long between two passes.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);

/// The same, where one is asked for at once, and between two looks for deadlines.
pub(crate) const AT_LEAST: Duration = Duration::from_secs(1);

/// How long a receipt answers for its request.
const RECEIPT_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// How many rows are read at once.
const PAGE: u32 = 1_000;

/// How long a host may take for one answer: one that hangs must not end all passes.
const HOST_PATIENCE: Duration = Duration::from_secs(10);

/// Why a part of a pass did not finish. The next pass begins again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassError {
    #[error("the store could not be read")]
    Store(#[from] StoreError),
    #[error("the places for sandboxes could not be counted")]
    Places(#[source] EngineError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the engine is closing")]
    Closing,
}

/// One pass over everything. Its parts do not depend on each other: one that fails is reported,
/// the others are done.
pub(crate) async fn pass(shared: &Arc<Shared>, registry: &Arc<Registry>) -> Result<(), PassError> {
    let parts = [
        count_places(shared, registry).await,
        take_up_unsettled(shared, registry).await,
        wake_overdue(shared, registry).await,
        end_abandoned(shared, registry).await,
        compare_with_host(shared, registry).await,
        purge_receipts(shared).await,
        purge_queue(shared).await,
        purge_logs(shared).await.map_err(PassError::from),
    ];
    parts.into_iter().collect()
}

/// Every place is held by a session that may have a sandbox. One that nobody drives is compared
/// with the store: another server may have had the last word on it.
async fn count_places(shared: &Shared, registry: &Arc<Registry>) -> Result<(), PassError> {
    shared.places.count(&*shared.store).await.map_err(PassError::Places)?;
    let driven: BTreeSet<SessionId> = registry.driven().into_iter().collect();
    for session in shared.places.holders() {
        if !driven.contains(&session) && shared.store.expected_incarnation(session).await?.is_none()
        {
            registry.wake(session);
        }
    }
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
    for (session, _) in shared.store.due_sessions(shared.now(), PAGE).await? {
        registry.wake(session);
    }
    Ok(())
}

/// The same for deadlines that have come since they were looked for last: whoever was woken for one then and still has it
/// is left to the next pass, unless another one has come. Says which there are now.
pub(crate) async fn wake_newly_due(
    shared: &Shared,
    registry: &Arc<Registry>,
    woken: &BTreeSet<(SessionId, Timestamp)>,
) -> Result<BTreeSet<(SessionId, Timestamp)>, StoreError> {
    let due: BTreeSet<_> =
        shared.store.due_sessions(shared.now(), PAGE).await?.into_iter().collect();
    for &(session, _) in due.difference(woken) {
        registry.wake(session);
    }
    Ok(due)
}

/// Sessions whose agent was deleted are over, also if whoever deleted it died before ending them.
async fn end_abandoned(shared: &Shared, registry: &Arc<Registry>) -> Result<(), PassError> {
    let mut after = None;
    loop {
        let page = shared.store.abandoned_sessions(after, PAGE).await?;
        for &session in &page {
            registry.end_abandoned(session).await;
        }
        match page.last() {
            Some(&last) if page.len() == PAGE as usize => after = Some(last),
            Some(_) | None => return Ok(()),
        }
    }
}

/// A sandbox that should be alive and is not is asked for its last words; one that no session
/// expects is stopped.
///
/// The order matters. What should be alive is read before the host is asked, so a sandbox that is
/// missing has really gone. What is expected is read after, so a sandbox that is not expected has
/// really been given up: it is committed before it is started.
async fn compare_with_host(
    shared: &Arc<Shared>,
    registry: &Arc<Registry>,
) -> Result<(), PassError> {
    let should_live = should_be_alive(shared).await?;
    let list = tokio::time::timeout(HOST_PATIENCE, shared.host.list()).await;
    let alive: BTreeSet<SandboxRef> =
        list.map_err(|_| HostError::late("list sandboxes"))??.into_iter().collect();
    for sandbox in should_live {
        if !alive.contains(&sandbox) {
            let fact = Fact::SandboxGone { incarnation: sandbox.incarnation, death: Death::Lost };
            let told = Told { link: Some(Link::OUTSIDE), fact };
            registry.tell(sandbox.session, told).await.map_err(|_| PassError::Closing)?;
        }
    }
    let mut stopping = JoinSet::new();
    for sandbox in alive {
        let expected = shared.store.expected_incarnation(sandbox.session).await?;
        if expected != Some(sandbox.incarnation) {
            stopping.spawn(stop_stray(Arc::clone(shared), sandbox));
        }
    }
    // One that will not go must not hide the others; the next pass finds it again.
    while stopping.join_next().await.is_some() {}
    Ok(())
}

async fn stop_stray(shared: Arc<Shared>, sandbox: SandboxRef) {
    let SandboxRef { session, incarnation } = sandbox;
    tracing::warn!(
        session.id = %session,
        sandbox.incarnation = %incarnation,
        "a sandbox of session {session} belongs to nobody, stopping it",
    );
    let stopped = tokio::time::timeout(HOST_PATIENCE, shared.host.stop(sandbox)).await;
    let stopped = stopped.unwrap_or_else(|_| Err(HostError::late("stop a sandbox")));
    if let Err(error) = stopped {
        tracing::warn!(
            session.id = %session,
            sandbox.incarnation = %incarnation,
            error = &error as &dyn std::error::Error,
            "a sandbox of session {session} that belongs to nobody does not stop",
        );
    }
}

async fn should_be_alive(shared: &Shared) -> Result<Vec<SandboxRef>, PassError> {
    let mut found = Vec::new();
    let mut after: Option<SessionId> = None;
    loop {
        let page = shared.store.sandboxed_sessions(after, PAGE).await?;
        let full = page.len() == PAGE as usize;
        after = page.last().map(|(session, _)| *session);
        found.extend(
            page.into_iter().map(|(session, incarnation)| SandboxRef { session, incarnation }),
        );
        if !full {
            return Ok(found);
        }
    }
}

async fn purge_receipts(shared: &Shared) -> Result<(), PassError> {
    shared.store.purge_receipts(ago(shared, RECEIPT_LIFETIME)).await?;
    Ok(())
}

/// What is over in the queue is kept for as long as an ended session.
async fn purge_queue(shared: &Shared) -> Result<(), PassError> {
    shared.store.purge_queue_items(ago(shared, shared.policy.retention)).await?;
    Ok(())
}

fn ago(shared: &Shared, time: Duration) -> Timestamp {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(shared.now().as_millis().saturating_sub(millis))
}
