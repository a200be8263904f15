//! Another host, behind a gate: no call of an engine that was stopped dead reaches it, nor does its answer come back.

use std::path::PathBuf;
use std::sync::Arc;

use ash_core::failure::Failure;
use ash_core::id::{QuestionId, RunId, SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::{Seq, SpoolPosition};
use ash_core::permission::Permission;
use ash_core::resume::{Found, IfLost};
use ash_core::session::{NumberedReport, Session};
use ash_core::snapshot::PutBackOutcome;
use ash_core::time::Timestamp;
use ash_protocol::{ExecRequest, ExecResult};
use ash_store::SessionRecord;
use async_trait::async_trait;
use tokio::sync::mpsc;

use super::Gate;
use crate::files::Stored;
use crate::host::{
    Away, Collected, Comparison, Detail, Happening, HostError, LogLine, NotReady, Past, Persist,
    Persisted, PutAway, Ready, Reporter, SandboxHost, SandboxRef, StandStill, Start, Thawed,
    WarmId,
};
use crate::leave::Leave;
use crate::places::WarmPlaces;

/// Another host, behind a gate.
pub struct GatedHost {
    inner: Arc<dyn SandboxHost>,
    gate: Gate,
}

impl GatedHost {
    /// That host, for the engine that this gate belongs to.
    pub fn new(inner: Arc<dyn SandboxHost>, gate: Gate) -> Self {
        Self { inner, gate }
    }

    /// One step there, and one back.
    async fn through<T>(&self, call: impl Future<Output = T>) -> T {
        self.gate.pass().await;
        let answer = call.await;
        self.gate.pass().await;
        answer
    }
}

macro_rules! through_the_gate {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $output:ty;)*) => {
        #[async_trait]
        impl SandboxHost for GatedHost {
            $(async fn $name(&self, $($arg: $type),*) -> $output {
                self.through(self.inner.$name($($arg),*)).await
            })*

            fn isolation(&self, sandbox: SandboxRef) -> Option<&'static str> {
                self.inner.isolation(sandbox)
            }

            fn attachments(&self, session: SessionId) -> Option<PathBuf> {
                self.inner.attachments(session)
            }

            fn free_bytes(&self) -> Option<u64> {
                self.inner.free_bytes()
            }

            fn unheard(
                &self,
                sandbox: SandboxRef,
                after: SpoolPosition,
            ) -> mpsc::Receiver<Vec<NumberedReport>> {
                self.inner.unheard(sandbox, after)
            }

            fn keep_reserve(&self) {
                self.inner.keep_reserve();
            }

            fn use_reserve(&self) {
                self.inner.use_reserve();
            }

            fn note(&self, record: &SessionRecord, session: &Session) {
                self.inner.note(record, session);
            }

            fn lend(&self, places: WarmPlaces) {
                self.inner.lend(places);
            }

            fn prewarm(&self) {
                self.inner.prewarm();
            }
        }
    };
}

through_the_gate! {
    fn start(sandbox: SandboxRef, start: Start<'_>, reporter: Reporter) -> Result<Found, Failure>;
    fn attach(sandbox: SandboxRef, after: SpoolPosition, reporter: Reporter)
        -> Result<(), HostError>;
    fn stop(sandbox: SandboxRef) -> Result<(), HostError>;
    fn freeze(sandbox: SandboxRef) -> Result<(), HostError>;
    fn thaw(sandbox: SandboxRef, after: SpoolPosition, reporter: Reporter)
        -> Result<Thawed, HostError>;
    fn deliver(sandbox: SandboxRef, run: RunId, prompt: &Json) -> Result<(), HostError>;
    fn interrupt(sandbox: SandboxRef, run: RunId) -> Result<(), HostError>;
    fn decide(sandbox: SandboxRef, question: QuestionId, decision: &Permission)
        -> Result<(), HostError>;
    fn acknowledge(sandbox: SandboxRef, through: SpoolPosition) -> Result<(), HostError>;
    fn persist(persist: Persist<'_>, still: StandStill) -> Result<Persisted, HostError>;
    fn put_back(session: SessionId, tenant: &TenantId, snapshot: SnapshotId)
        -> Result<PutBackOutcome, HostError>;
    fn compare(
        tenant: &TenantId,
        before: Option<SnapshotId>,
        after: Option<SnapshotId>,
        detail: Detail
    ) -> Result<Option<Comparison>, HostError>;
    fn put_away(away: PutAway<'_>, leave: Leave) -> Result<Away, HostError>;
    fn purge(session: SessionId) -> Result<(), HostError>;
    fn stored(tenant: &TenantId, snapshot: SnapshotId) -> Result<Option<Stored>, HostError>;
    fn snapshots(tenant: &TenantId) -> Result<Vec<SnapshotId>, HostError>;
    fn collect(tenant: &TenantId, unneeded: Vec<SnapshotId>, before: Timestamp)
        -> Result<Collected, HostError>;
    fn exec(sandbox: SandboxRef, request: ExecRequest) -> Result<ExecResult, HostError>;
    fn logs_told(session: SessionId) -> Result<Seq, HostError>;
    fn logs(session: SessionId, first: u64, happened: Vec<Happening>)
        -> Result<Vec<LogLine>, HostError>;
    fn has_state(session: SessionId) -> Result<bool, HostError>;
    fn has_snapshot(tenant: &TenantId, snapshot: SnapshotId) -> Result<bool, HostError>;
    fn fetch_snapshot(tenant: &TenantId, snapshot: SnapshotId) -> Result<(), Failure>;
    fn fetch_files(session: SessionId, tenant: &TenantId, past: &dyn Past, if_lost: IfLost)
        -> Result<Ready, NotReady>;
    fn workspace(session: SessionId) -> Result<Option<PathBuf>, HostError>;
    fn list() -> Result<Vec<SandboxRef>, HostError>;
    fn end_warm(warm: WarmId) -> Result<(), HostError>;
}
