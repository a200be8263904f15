//! The seam to the world: whatever runs sandboxes.
//!
//! An implementation may be slow and may fail, but it keeps these promises, on which the safety
//! of sessions rests:
//!
//! 1. Every call can be made twice. Every call can be dropped in the middle; what it had begun is
//!    cleaned up by [`stop`](SandboxHost::stop).
//! 2. An incarnation that has lived and died, or was stopped before it lived, is not started again.
//! 3. When `stop` has returned, nothing of that incarnation or of any before it runs, nor will a
//!    `start` that is still under way bring it up. Later incarnations are not touched.
//! 4. What a sandbox reports is numbered from 1 without holes, kept until acknowledged, and sent
//!    in order to whoever attached last; its end is told after everything it reported. A dead
//!    sandbox can be attached to for as long as it has something to tell.
//! 5. A run that is interrupted before it is delivered may begin and end at once, but is never
//!    ignored once it is delivered.

mod compare;
mod kept;
mod past;
mod said;

use std::collections::BTreeSet;
use std::path::PathBuf;

use ash_core::failure::{Death, Failure};
use ash_core::id::{QuestionId, RunId, SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::{Incarnation, Seq, SpoolPosition};
use ash_core::permission::Permission;
use ash_core::resume::{FilesLost, Found, IfLost, Transcript};
use ash_core::session::{Fact, NumberedReport, Session};
use ash_core::snapshot::{PutBackOutcome, Snapshot};
use ash_core::time::Timestamp;
use ash_protocol::{ExecRequest, ExecResult};
use ash_store::SessionRecord;
use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::files::Stored;
use crate::leave::Leave;
use crate::places::WarmPlaces;
use crate::registry::{FactSender, Told};
use crate::shared::Link;

pub use compare::{ChangedFile, Comparison, Detail, HowChanged, TextDiff};
pub use kept::{Away, Collected, Persist, Persisted, PutAway, StandStill};
pub use past::{NotReady, Past, Ready};
pub use said::{Happening, LogLine};

/// Names a sandbox: of which session, and which start of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxRef {
    /// The session it belongs to.
    pub session: SessionId,
    /// Which start of it.
    pub incarnation: Incarnation,
}

/// Names a sandbox that waits for a session: it belongs to none yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WarmId(pub(crate) SessionId);

/// Why a host could not do something. It may have been done all the same.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox host could not {attempted}: {detail}")]
pub struct HostError {
    /// What it was doing.
    pub attempted: &'static str,
    /// What went wrong.
    pub detail: String,
    /// Whether it is the cloud, which does not answer: nothing was changed, and it may answer again.
    pub is_out_of_reach: bool,
}

impl HostError {
    pub(crate) fn new(attempted: &'static str, detail: impl ToString) -> Self {
        Self { attempted, detail: detail.to_string(), is_out_of_reach: false }
    }

    pub(crate) fn late(attempted: &'static str) -> Self {
        Self::new(attempted, "it did not answer in time")
    }
}

/// What became of a sandbox that was to be thawed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thawed {
    /// It goes on where it was.
    GoesOn,
    /// It is dead. What it left behind is being sent, and then its end.
    Gone,
}

/// What a sandbox is started for.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The session.
    pub record: &'a SessionRecord,
    /// What the agent's own record of the conversation must begin with, if it has one.
    pub transcript: Option<&'a Transcript>,
    /// How many runs the session has completed.
    pub completed_runs: u32,
    /// How many turns its log has.
    pub turns: u32,
    /// What becomes of it if its files cannot be brought back.
    pub if_lost: IfLost,
    /// What was lost of them before, and the agent has yet to be told.
    pub lost: Option<FilesLost>,
    /// What to bring back, if the files are gone.
    pub snapshot: Option<&'a Snapshot>,
    /// Whether that was captured before the last turn.
    pub is_behind: bool,
    /// What to put them right from, if they cannot be relied on.
    pub proven: Option<&'a Snapshot>,
    /// What the session's log says, should the agent's own record not say it any more.
    pub past: &'a dyn Past,
}

/// Whatever runs sandboxes.
#[async_trait]
pub trait SandboxHost: Send + Sync + 'static {
    /// Starts a sandbox, or finds it already up, and connects to it. Returns when its bridge
    /// answers, with what was found where it was started: the same when it is asked again.
    async fn start(
        &self,
        sandbox: SandboxRef,
        start: Start<'_>,
        reporter: Reporter,
    ) -> Result<Found, Failure>;

    /// Connects to a sandbox that an earlier owner left running, and has it send every report
    /// after `after`. If it is dead, what it left behind is sent all the same, and then its end.
    async fn attach(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<(), HostError>;

    /// Destroys a sandbox. Returns when nothing of it runs.
    async fn stop(&self, sandbox: SandboxRef) -> Result<(), HostError>;

    /// Freezes a sandbox where it is.
    async fn freeze(&self, sandbox: SandboxRef) -> Result<(), HostError>;

    /// Thaws a sandbox and connects to it as [`attach`](Self::attach) does; if it is dead, that is told
    /// as it is there.
    async fn thaw(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<Thawed, HostError>;

    /// What a sandbox that stands still has reported after `after` as far as it can be found without asking it,
    /// piece by piece: it is about to be given up.
    fn unheard(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
    ) -> mpsc::Receiver<Vec<NumberedReport>> {
        let _everything_was_heard = (sandbox, after);
        mpsc::channel(1).1
    }

    /// Hands a prompt to the agent. One that it already has is ignored.
    async fn deliver(
        &self,
        sandbox: SandboxRef,
        run: RunId,
        prompt: &Json,
    ) -> Result<(), HostError>;

    /// Tells the agent to end a run.
    async fn interrupt(&self, sandbox: SandboxRef, run: RunId) -> Result<(), HostError>;

    /// Tells the agent what a person says to its question. Said before, it is said again; if the question is not
    /// open any more, the agent has reported what became of it.
    async fn decide(
        &self,
        sandbox: SandboxRef,
        question: QuestionId,
        decision: &Permission,
    ) -> Result<(), HostError>;

    /// Lets the sandbox forget its reports through `through`: they are in the log.
    async fn acknowledge(
        &self,
        sandbox: SandboxRef,
        through: SpoolPosition,
    ) -> Result<(), HostError>;

    /// Captures what a session's agent works on, whether or not a sandbox is alive. One that is stands still for
    /// a moment, as long as `still` is held.
    async fn persist(
        &self,
        persist: Persist<'_>,
        still: StandStill,
    ) -> Result<Persisted, HostError>;

    /// Makes the files of a session what a snapshot of its tenant says. While something of the session runs, it is
    /// not done.
    async fn put_back(
        &self,
        session: SessionId,
        tenant: &TenantId,
        snapshot: SnapshotId,
    ) -> Result<PutBackOutcome, HostError> {
        let _unknown = (session, tenant, snapshot);
        Err(HostError::new("put files back", "it keeps no snapshots"))
    }

    /// How the workspace of one snapshot of a tenant became that of another; nothing, if one of them is lost. No
    /// snapshot is an empty workspace.
    async fn compare(
        &self,
        tenant: &TenantId,
        before: Option<SnapshotId>,
        after: Option<SnapshotId>,
        detail: Detail,
    ) -> Result<Option<Comparison>, HostError> {
        let _unknown = (tenant, before, after, detail);
        Err(HostError::new("compare snapshots", "it keeps no snapshots"))
    }

    /// Removes the files of a session for which nothing runs, if they are as in the snapshot and all of that can be
    /// read. They are taken from their place in one step, which is done under `leave`; then nothing of them is left
    /// to a later start but what it brings back.
    async fn put_away(&self, away: PutAway<'_>, leave: Leave) -> Result<Away, HostError>;

    /// Removes all that is left of a session for which nothing runs or ever will, but its snapshots.
    async fn purge(&self, session: SessionId) -> Result<(), HostError>;

    /// The files of a session as a snapshot of its tenant has them; nothing, if that is lost.
    async fn stored(
        &self,
        tenant: &TenantId,
        snapshot: SnapshotId,
    ) -> Result<Option<Stored>, HostError> {
        let _nothing_is_stored = (tenant, snapshot);
        Ok(None)
    }

    /// All snapshots of a tenant's sessions that are on this machine.
    async fn snapshots(&self, tenant: &TenantId) -> Result<Vec<SnapshotId>, HostError> {
        let _there_are_none = tenant;
        Ok(Vec::new())
    }

    /// Forgets snapshots that were captured before a time, and removes what no snapshot needs any more.
    async fn collect(
        &self,
        tenant: &TenantId,
        unneeded: Vec<SnapshotId>,
        before: Timestamp,
    ) -> Result<Collected, HostError> {
        let _nothing_is_kept = (tenant, unneeded, before);
        Ok(Collected::default())
    }

    /// Removes directories of agents but those with these digests, and those that were deployed after a time. Says
    /// how many.
    async fn collect_agents(
        &self,
        used: BTreeSet<String>,
        before: Timestamp,
    ) -> Result<u64, HostError> {
        let _nothing_is_kept = (used, before);
        Ok(0)
    }

    /// Where what is attached to a session is kept; nothing, if nowhere.
    fn attachments(&self, session: SessionId) -> Option<PathBuf> {
        let _nowhere = session;
        None
    }

    /// How much room there is on the disk; nothing, if nobody knows.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Takes some room on the disk, if there is plenty, for the records of the server itself.
    fn keep_reserve(&self) {}

    /// Gives that room up, if the disk is full.
    fn use_reserve(&self) {}

    /// Whether a sandbox that lived is dead, though that may not have been told yet.
    async fn is_over(&self, sandbox: SandboxRef) -> bool {
        let _it_will_be_told = sandbox;
        false
    }

    /// Runs a command beside the agent.
    async fn exec(
        &self,
        sandbox: SandboxRef,
        request: ExecRequest,
    ) -> Result<ExecResult, HostError>;

    /// Through which entry of the log [`logs`](Self::logs) was told what happened.
    async fn logs_told(&self, session: SessionId) -> Result<Seq, HostError>;

    /// What the session's sandboxes had to say about themselves, with what happened to it meanwhile: the end of it, if
    /// it was much. The lines are numbered from `first` on; a number is never given twice, nor later than a higher one.
    async fn logs(
        &self,
        session: SessionId,
        first: u64,
        happened: Vec<Happening>,
    ) -> Result<Vec<LogLine>, HostError>;

    /// Whether a start of this session would find the files that it worked on.
    async fn has_state(&self, session: SessionId) -> Result<bool, HostError>;

    /// Whether a snapshot of a tenant could be brought back.
    async fn has_snapshot(
        &self,
        tenant: &TenantId,
        snapshot: SnapshotId,
    ) -> Result<bool, HostError>;

    /// Sees to it that a snapshot of a tenant is on this machine, if it is anywhere: however long that takes.
    async fn fetch_snapshot(&self, tenant: &TenantId, snapshot: SnapshotId) -> Result<(), Failure> {
        let _is_here_or_nowhere = (tenant, snapshot);
        Ok(())
    }

    /// Sees to it that what a start would bring back of a session's files is on this machine, if it is anywhere:
    /// however long that takes. Nothing in place is touched.
    async fn fetch_files(
        &self,
        session: SessionId,
        tenant: &TenantId,
        past: &dyn Past,
        if_lost: IfLost,
    ) -> Result<Ready, NotReady> {
        let _here_or_nowhere = (tenant, past, if_lost);
        Ok(if self.has_state(session).await? { Ready::InPlace } else { Ready::Nothing })
    }

    /// The directory with the files that a session's agent works on, whether or not a sandbox is
    /// alive; nothing, if there is none. Who owns the directory owns what is in it.
    async fn workspace(&self, session: SessionId) -> Result<Option<PathBuf>, HostError>;

    /// Sees to it that the files of a session for which nothing runs can be relied on: if the machine was restarted
    /// since they were last in use, they are held against the last good snapshot, and put right.
    async fn believe(
        &self,
        session: SessionId,
        tenant: &TenantId,
        proven: Option<&Snapshot>,
    ) -> Result<(), HostError> {
        let _always = (session, tenant, proven);
        Ok(())
    }

    /// How strongly a sandbox is isolated, in the word that `/health` has for it; nothing, if that is not
    /// known.
    fn isolation(&self, sandbox: SandboxRef) -> Option<&'static str> {
        let _nothing_is_known = sandbox;
        None
    }

    /// Every sandbox that is alive on this host, frozen ones too, and belongs to a session.
    async fn list(&self) -> Result<Vec<SandboxRef>, HostError>;

    /// Takes note of where a session stands, for people and scripts that look at what lies on the disk. It may come
    /// late, and is never read back.
    fn note(&self, record: &SessionRecord, session: &Session) {
        let _nobody_looks = (record, session);
    }

    /// Lends places to a host that keeps sandboxes ready for sessions to come.
    fn lend(&self, places: WarmPlaces) {
        drop(places);
    }

    /// Says that agents have changed, and so perhaps which sandboxes are to be kept ready.
    fn prewarm(&self) {}

    /// Ends a sandbox that waits for a session. Returns when nothing of it runs; one that a session
    /// has taken meanwhile is left alone.
    async fn end_warm(&self, warm: WarmId) -> Result<(), HostError> {
        let _none_waits = warm;
        Ok(())
    }
}

/// The way back: how a host tells the engine what a sandbox did. It speaks for one sandbox only,
/// so nothing that sandbox sends can end up in another session.
#[derive(Clone)]
pub struct Reporter {
    sandbox: SandboxRef,
    link: Link,
    facts: FactSender,
}

/// What is passed on at once at the most, so that a mailbox has a bound in bytes too.
const MAX_REPORTS: usize = 64;
const MAX_BYTES: usize = 256 * 1024;

/// The engine that the reporter belongs to has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine has gone")]
pub struct EngineGone;

impl Reporter {
    pub(crate) fn new(sandbox: SandboxRef, link: Link, facts: FactSender) -> Self {
        Self { sandbox, link, facts }
    }

    /// Passes reports on, in order. Waits while the session has more than enough to do: then the
    /// host stops reading, and the sandbox spools.
    pub async fn reported(&self, reports: Vec<NumberedReport>) -> Result<(), EngineGone> {
        let incarnation = self.sandbox.incarnation;
        let mut bytes = 0;
        let mut some = Vec::new();
        for report in reports {
            bytes += report.report.body.size();
            some.push(report);
            if some.len() >= MAX_REPORTS || bytes >= MAX_BYTES {
                bytes = 0;
                let reports = std::mem::take(&mut some);
                self.tell(Fact::Reported { incarnation, reports }).await?;
            }
        }
        if some.is_empty() {
            return Ok(());
        }
        self.tell(Fact::Reported { incarnation, reports: some }).await
    }

    /// Says that nothing of the sandbox runs any more, after everything it reported.
    pub async fn gone(&self, death: Death) -> Result<(), EngineGone> {
        let incarnation = self.sandbox.incarnation;
        self.tell(Fact::SandboxGone { incarnation, death }).await
    }

    async fn tell(&self, fact: Fact) -> Result<(), EngineGone> {
        self.facts.send(self.sandbox.session, Told { link: Some(self.link), fact }).await
    }
}
