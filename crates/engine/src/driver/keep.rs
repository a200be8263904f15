//! What the hands do with what is kept of a session: its files, its snapshots, and in the end all of it.

use std::sync::Arc;

use ash_core::id::SnapshotId;
use ash_core::number::{Fence, LogEpoch};
use ash_core::session::{AwayOutcome, Fact};
use ash_core::snapshot::{PersistOutcome, Snapshot};
use ash_store::{SessionRecord, StoreError};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::perform::Hands;
use crate::cloud::to_remove;
use crate::error::EngineError;
use crate::host::{Away, Persist, PutAway, SandboxRef, StandStill};
use crate::leave::Leave;
use crate::shared::Shared;

impl Hands {
    /// Has something captured. It goes on whatever becomes of the lane; the lane waits until everything moves
    /// again, so that the next prompt changes nothing of it.
    pub(super) fn persist(
        &mut self,
        record: &SessionRecord,
        sandbox: SandboxRef,
        number: u64,
        (unless_like, only_if_busy, proven): (Option<SnapshotId>, bool, Option<Box<Snapshot>>),
    ) {
        // Whoever found out what was recorded asks for it once more.
        let goes_on = self.last_capture.as_mut().is_some_and(|(last, told)| {
            *last == number && told.try_recv() == Err(TryRecvError::Empty)
        });
        if goes_on {
            return;
        }
        let (still, moves) = StandStill::new();
        self.hold_up(sandbox.incarnation, moves);
        let (shared, outcomes) = (Arc::clone(&self.shared), self.outcomes.clone());
        let (tenant, (told, last_told)) = (record.tenant.clone(), oneshot::channel());
        let before = self.last_capture.replace((number, last_told)).map(|(_, before)| before);
        self.shared.tasks.spawn(async move {
            let _until_told: oneshot::Sender<()> = told;
            let (tenant, proven) = (&tenant, proven.as_deref());
            let persist = Persist { sandbox, tenant, unless_like, only_if_busy, proven };
            let outcome = match shared.host.persist(persist, still).await {
                Ok(persisted) => persisted.outcome(),
                Err(error) => PersistOutcome::Failed { message: error.to_string() },
            };
            shared.counts.persisted(&outcome);
            if let Some(before) = before {
                let _told_or_gone = before.await;
            }
            let _driver_gone = outcomes.send(Fact::Persisted { number, outcome }.into()).await;
        });
    }

    /// Has the files of a session removed, until somebody wants them.
    pub(super) fn put_away(
        &mut self,
        record: &SessionRecord,
        sandbox: SandboxRef,
        number: u64,
        snapshot: SnapshotId,
    ) {
        self.keep_files();
        let leave = Leave::new(self.session, self.shared.file_work.requests());
        self.leave = Some(leave.clone());
        let (shared, outcomes) = (Arc::clone(&self.shared), self.outcomes.clone());
        let tenant = record.tenant.clone();
        self.shared.tasks.spawn(async move {
            let away = PutAway { sandbox, tenant: &tenant, snapshot };
            let done = shared.host.put_away(away, leave).await;
            let outcome = match &done {
                Ok(Away::Gone) => AwayOutcome::Gone,
                Ok(Away::Changed | Away::Unsaved) => AwayOutcome::Uncaptured,
                Ok(Away::Wanted) | Err(_) => AwayOutcome::Stay,
            };
            shared.counts.put_away(done.as_ref().ok().copied());
            let session = sandbox.session;
            match done {
                Ok(Away::Gone) => tracing::info!(
                    session.id = %session, snapshot.id = %snapshot,
                    "the files of session {session} are in its snapshot {snapshot} alone now",
                ),
                Ok(Away::Wanted) => {
                    tracing::debug!(session.id = %session, "the files of session {session} are wanted");
                }
                Ok(Away::Changed) => tracing::warn!(
                    session.id = %session, snapshot.id = %snapshot,
                    "the files of session {session} are not as in its snapshot, and stay",
                ),
                Ok(Away::Unsaved) => tracing::error!(
                    session.id = %session, snapshot.id = %snapshot,
                    "the snapshot {snapshot} of session {session} cannot be read whole; its files stay",
                ),
                Err(error) => tracing::warn!(
                    session.id = %session, error = &error as &dyn std::error::Error,
                    "the files of session {session} could not be removed",
                ),
            }
            let _driver_gone = outcomes.send(Fact::PutAway { number, outcome }.into()).await;
        });
    }

    /// Removes all that is left of a session that is over. Files first, and what is remembered last: whoever dies
    /// in between does it again. Its snapshots are nobody's then, and are forgotten by the next collection.
    pub(super) fn purge(&self, record: &SessionRecord, epoch: LogEpoch, fence: Fence) {
        let (shared, record) = (Arc::clone(&self.shared), record.clone());
        self.shared.tasks.spawn(async move {
            let session = record.id;
            let purged = async {
                let gone = shared.host.purge(session).await;
                gone.map_err(|error| EngineError::Unavailable(error.into()))?;
                // What lies elsewhere has to be removed by somebody who does not forget it.
                let follows = to_remove(&shared, &record, epoch);
                shared.store.purge_session(session, fence, &follows).await?;
                if let Some(cloud) = &shared.cloud {
                    cloud.tell();
                }
                purge_logs(&shared).await?;
                Ok::<(), EngineError>(())
            };
            match purged.await {
                Ok(()) => {
                    shared.counts.purged();
                    tracing::info!(session.id = %session, "session {session} is gone: its time was over");
                }
                Err(error) => tracing::warn!(
                    session.id = %session, error = &error as &dyn std::error::Error,
                    "session {session} could not be removed, and will be later",
                ),
            }
        });
    }

    /// Forgets snapshots of a session that are not kept. What is left over is forgotten with the next one.
    pub(super) fn prune(&self, needed: Vec<SnapshotId>) {
        let Some(keep) = self.shared.policy.snapshot_keep else { return };
        let (shared, session) = (Arc::clone(&self.shared), self.session);
        self.shared.tasks.spawn(async move {
            let pruned = shared.store.prune_snapshots(session, keep.get(), &needed).await;
            match pruned {
                Ok(gone) if gone.is_empty() => {}
                Ok(_) => {
                    if let Some(cloud) = &shared.cloud {
                        // What is there names fewer of them from now on.
                        cloud.want(session);
                    }
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, session.id = %session, "no snapshot was forgotten");
                }
            }
        });
    }
}

/// Removes what is left of long logs of sessions that are gone: in steps, so that others can write meanwhile.
pub(crate) async fn purge_logs(shared: &Shared) -> Result<(), StoreError> {
    while !shared.tasks.is_closing() && shared.store.purge_logs().await? {}
    Ok(())
}
