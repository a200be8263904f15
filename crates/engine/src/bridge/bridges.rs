//! A host of bridges, each with what is around it.
//!
//! Bridges outlive the server that started them. What they need to be found again is in files
//! (`files`): a host that starts over finds every live bridge by its locked spool.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::{Death, Failure};
use ash_core::id::{QuestionId, RunId, SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::{Seq, SpoolPosition};
use ash_core::permission::Permission;
use ash_core::resume::{Found, IfLost};
use ash_core::session::{NumberedReport, Session};
use ash_core::snapshot::{PutBackOutcome, Snapshot};
use ash_core::time::Timestamp;
use ash_protocol::{Answer, Ask, ExecRequest, ExecResult};
use ash_store::SessionRecord;
use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::connection::Question;
use super::files::{Files, Life};
use super::inner::Inner;
use super::leftover::Leftover;
use super::options::HostOptions;
use super::process::Isolation;
use super::report::Understanding;
use super::upkeep;
use super::warm::Pool;
use super::word::{decision_of, done, failed, frame_of, not_prepared, start_failed, unexpected};
use crate::archive::Archive;
use crate::files::Stored;
use crate::host::{
    Away, Collected, Comparison, Detail, Happening, HostError, LogLine, NotReady, Past, Persist,
    Persisted, PutAway, Ready, Reporter, SandboxHost, SandboxRef, StandStill, Start, Thawed,
    WarmId,
};
use crate::leave::Leave;
use crate::places::WarmPlaces;

/// How often a dead sandbox is tried to be buried again, and the pause before each.
const BURIALS: usize = 20;
const LOOK: Duration = Duration::from_millis(5);

/// How long a bridge may take to answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer to a command may take beyond the command's own time.
pub(super) const EXEC_MARGIN: Duration = Duration::from_secs(15);

/// Runs bridges. Cheap to clone.
#[derive(Clone)]
pub struct BridgeHost(Arc<Inner>);

impl BridgeHost {
    /// A host over a directory. Bridges that are alive there are found again.
    pub fn open(options: HostOptions) -> io::Result<Self> {
        let files = Files::open(&options.data)?;
        let is_enclosed = options.enclosure.sandboxing().is_some();
        let warm = if is_enclosed || options.data.join("warm").try_exists()? {
            let files = Files::open_warm(&options.data)?;
            let nursery = Inner::new(files, options.clone(), None);
            Some(Pool::new(Arc::new(nursery)))
        } else {
            None
        };
        // Before anything is started here: what is on its way has not all of its files yet.
        if let Err(error) = files.clear_away() {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "not all that dead sandboxes left was cleared away");
        }
        let host = Arc::new(Inner::new(files, options, warm.clone()));
        upkeep::begin(&host);
        Ok(Self(host))
    }

    /// Ends the sandboxes that wait for a session. From now on there are none.
    pub async fn end_prewarmed(&self) {
        if let Some(pool) = &self.0.warm {
            pool.close().await;
            // An earlier server's too, if there was no time for them yet.
            pool.clear_up().await;
        }
    }

    /// Lets go of every sandbox without ending it, as the death of the server would.
    pub async fn abandon(&self) {
        self.0.abandon().await;
        if let Some(pool) = &self.0.warm {
            pool.abandon().await;
        }
    }

    /// The same, for another program that takes the place of this one in its process.
    pub async fn hand_over(&self) {
        self.0.guard.hand_over();
        self.abandon().await;
    }

    /// Leaves the machine as it was, if no sandbox is left on it.
    pub fn tidy_up(&self) {
        self.0.tidy_up();
    }

    /// Where snapshots lie.
    pub(crate) fn archive(&self) -> Arc<Archive> {
        Arc::clone(&self.0.archive)
    }

    /// Where a session's agent works.
    pub fn workspace(&self, session: SessionId) -> PathBuf {
        self.0.files.workspace(session)
    }

    /// Where a session's agent keeps what is its own.
    pub fn home(&self, session: SessionId) -> PathBuf {
        self.0.files.home(session)
    }

    /// The process number of a sandbox's bridge, if it is alive.
    pub fn bridge_of(&self, sandbox: SandboxRef) -> Option<u32> {
        match self.0.files.life(sandbox) {
            Ok(Life::Alive(told)) => self.0.process_of(sandbox, told).map(|process| process.pid),
            Ok(Life::Dead | Life::Unborn) | Err(_) => None,
        }
    }
}

#[async_trait]
impl SandboxHost for BridgeHost {
    async fn start(
        &self,
        sandbox: SandboxRef,
        start: Start<'_>,
        reporter: Reporter,
    ) -> Result<Found, Failure> {
        self.0.start(sandbox, start, reporter).await
    }

    async fn attach(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<(), HostError> {
        let attempted = "attach to a sandbox";
        match self.0.files.life(sandbox).map_err(|error| failed(attempted, error))? {
            Life::Alive(_) if self.0.is_of_no_use(sandbox) => {
                self.0.end_of_no_use(sandbox).await?;
                self.attach(sandbox, after, reporter).await
            }
            Life::Alive(told) => {
                // Nothing stays frozen by accident: whoever is frozen on purpose is not attached to. One that
                // cannot be thawed does not answer, which is noticed below.
                let _noticed_below = self.0.thaw(sandbox).await;
                self.0.listen_to(sandbox, told, after, reporter).await
            }
            Life::Dead | Life::Unborn => {
                let death = self.0.death_of(sandbox).await.unwrap_or(Death::Lost);
                let (_, questions) = mpsc::channel(1);
                let mut pump = self.0.pump_of(sandbox, after, reporter, questions);
                self.0.tasks.spawn(async move { pump.bequeath(death).await });
                Ok(())
            }
        }
    }

    async fn stop(&self, sandbox: SandboxRef) -> Result<(), HostError> {
        {
            let mut state = self.0.state();
            let through = state.stopped_through.entry(sandbox.session).or_default();
            *through = (*through).max(sandbox.incarnation);
        }
        let earlier = self.0.files.of(sandbox.session).map_err(|e| failed("find sandboxes", e))?;
        for other in earlier.into_iter().filter(|other| *other < sandbox) {
            self.0.kill(other).await?;
            self.0.forget(other);
            self.0.files.forget(other).map_err(|error| failed("forget a sandbox", error))?;
        }
        self.0.kill(sandbox).await?;
        self.0.forget(sandbox);
        // A child that is just being started has a copy of what was open then, locks and all, until it is
        // another program.
        let mut buried = self.0.files.bury(sandbox);
        for _ in 0..BURIALS {
            if buried.is_ok() {
                break;
            }
            sleep(LOOK).await;
            buried = self.0.files.bury(sandbox);
        }
        buried.map_err(|error| failed("bury a sandbox", error))
    }

    async fn freeze(&self, sandbox: SandboxRef) -> Result<(), HostError> {
        self.0.freeze(sandbox).await
    }

    async fn thaw(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<Thawed, HostError> {
        let life = || self.0.files.life(sandbox).map_err(|error| failed("thaw a sandbox", error));
        if let Life::Alive(told) = life()?
            && !self.0.is_of_no_use(sandbox)
        {
            let thawed = match self.0.thaw(sandbox).await {
                Ok(()) => self.0.listen_to(sandbox, told, after, reporter.clone()).await,
                Err(error) => Err(error),
            };
            // One that was killed while it was frozen dies only when it is thawed.
            if thawed.is_ok() || matches!(life()?, Life::Alive(_)) {
                return thawed.map(|()| Thawed::GoesOn);
            }
        }
        self.attach(sandbox, after, reporter).await.map(|()| Thawed::Gone)
    }

    async fn believe(
        &self,
        session: SessionId,
        tenant: &TenantId,
        proven: Option<&Snapshot>,
    ) -> Result<(), HostError> {
        self.0.believe(session, tenant, proven).await.map(drop)
    }

    fn unheard(
        &self,
        sandbox: SandboxRef,
        after: SpoolPosition,
    ) -> mpsc::Receiver<Vec<NumberedReport>> {
        let (pieces, unheard) = mpsc::channel(1);
        let spool = self.0.files.spool(sandbox);
        self.0.tasks.spawn(async move {
            let read = tokio::task::spawn_blocking(move || {
                let mut understanding = Understanding::after(after.get());
                let Ok(Some(mut leftover)) = Leftover::open(&spool) else { return };
                while let Some(reports) = leftover.next(&mut understanding) {
                    if pieces.blocking_send(reports).is_err() {
                        return; // Nobody listens any more.
                    }
                }
            });
            let _read_or_not = read.await;
        });
        unheard
    }

    async fn deliver(
        &self,
        sandbox: SandboxRef,
        run: RunId,
        prompt: &Json,
    ) -> Result<(), HostError> {
        let prompt = serde_json::value::RawValue::from_string(prompt.get().to_owned())
            .map_err(|error| failed("deliver a prompt", error))?;
        let ask = Ask::Deliver { run: run.to_string(), prompt };
        done("deliver a prompt", self.0.ask(sandbox, ask, ANSWER_TIMEOUT).await?)
    }

    async fn interrupt(&self, sandbox: SandboxRef, run: RunId) -> Result<(), HostError> {
        let ask = Ask::Interrupt { run: run.to_string() };
        done("interrupt a run", self.0.ask(sandbox, ask, ANSWER_TIMEOUT).await?)
    }

    async fn decide(
        &self,
        sandbox: SandboxRef,
        question: QuestionId,
        decision: &Permission,
    ) -> Result<(), HostError> {
        let decision = decision_of(decision)?;
        let ask = Ask::Decide { id: question.to_string(), decision };
        match self.0.ask(sandbox, ask, ANSWER_TIMEOUT).await? {
            // It was answered otherwise, or is over: that is reported.
            Answer::Done | Answer::Refused { .. } => Ok(()),
            answer @ (Answer::Welcome(_) | Answer::Executed(_) | Answer::Hooked(_)) => {
                Err(unexpected("answer a question", &answer))
            }
        }
    }

    async fn acknowledge(
        &self,
        sandbox: SandboxRef,
        through: SpoolPosition,
    ) -> Result<(), HostError> {
        let link = self.0.link(sandbox, "acknowledge reports")?;
        let frame = frame_of(&Ask::Acknowledge { through: through.get() })?;
        let taken = link.questions.send(Question { frame, reply: None });
        if let Ok(_taken_or_gone) = timeout(ANSWER_TIMEOUT, taken).await {
            // A sandbox that is gone meanwhile has nothing to forget.
            return Ok(());
        }
        // It reads nothing. What is not acknowledged stays in its spool, and is asked for again over the
        // next connection, if there is one. A frozen one is not to blame.
        if !self.0.state().frozen.contains(&sandbox) {
            link.lost.notify_one();
        }
        Err(failed("acknowledge reports", "it took nothing in time"))
    }

    async fn persist(
        &self,
        persist: Persist<'_>,
        still: StandStill,
    ) -> Result<Persisted, HostError> {
        self.0.persist(persist, still).await
    }

    async fn put_back(
        &self,
        session: SessionId,
        tenant: &TenantId,
        snapshot: SnapshotId,
    ) -> Result<PutBackOutcome, HostError> {
        self.0.put_back(session, tenant, snapshot).await
    }

    async fn compare(
        &self,
        tenant: &TenantId,
        before: Option<SnapshotId>,
        after: Option<SnapshotId>,
        detail: Detail,
    ) -> Result<Option<Comparison>, HostError> {
        self.0.compare(tenant, (before, after), detail).await
    }

    async fn put_away(&self, away: PutAway<'_>, leave: Leave) -> Result<Away, HostError> {
        self.0.put_away(away, leave).await
    }

    async fn purge(&self, session: SessionId) -> Result<(), HostError> {
        self.0.purge(session).await
    }

    async fn stored(
        &self,
        tenant: &TenantId,
        snapshot: SnapshotId,
    ) -> Result<Option<Stored>, HostError> {
        self.0.stored(tenant, snapshot).await
    }

    async fn snapshots(&self, tenant: &TenantId) -> Result<Vec<SnapshotId>, HostError> {
        self.0.snapshots(tenant).await
    }

    async fn collect(
        &self,
        tenant: &TenantId,
        unneeded: Vec<SnapshotId>,
        before: Timestamp,
    ) -> Result<Collected, HostError> {
        self.0.collect(tenant, unneeded, before).await
    }

    async fn collect_agents(
        &self,
        used: BTreeSet<String>,
        before: Timestamp,
    ) -> Result<u64, HostError> {
        self.0.collect_agents(used, before).await
    }

    fn attachments(&self, session: SessionId) -> Option<PathBuf> {
        Some(self.0.files.attachments(session))
    }

    fn free_bytes(&self) -> Option<u64> {
        self.0.free_bytes()
    }

    fn keep_reserve(&self) {
        self.0.keep_reserve();
    }

    fn use_reserve(&self) {
        self.0.use_reserve();
    }

    async fn exec(
        &self,
        sandbox: SandboxRef,
        request: ExecRequest,
    ) -> Result<ExecResult, HostError> {
        let patience = Duration::from_millis(request.timeout_ms).saturating_add(EXEC_MARGIN);
        match self.0.ask(sandbox, Ask::Exec(request), patience).await? {
            Answer::Executed(result) => Ok(result),
            answer @ (Answer::Welcome(_)
            | Answer::Done
            | Answer::Hooked(_)
            | Answer::Refused { .. }) => Err(unexpected("run a command", &answer)),
        }
    }

    async fn logs_told(&self, session: SessionId) -> Result<Seq, HostError> {
        let host = Arc::clone(&self.0);
        read_logs(move || host.files.said_through(session)).await
    }

    async fn logs(
        &self,
        session: SessionId,
        first: u64,
        happened: Vec<Happening>,
    ) -> Result<Vec<LogLine>, HostError> {
        let host = Arc::clone(&self.0);
        read_logs(move || host.files.said(session, first, &happened)).await
    }

    async fn has_state(&self, session: SessionId) -> Result<bool, HostError> {
        let found = self.0.files.has_workspace(session);
        found.map_err(|error| failed("look for a workspace", error))
    }

    async fn has_snapshot(
        &self,
        tenant: &TenantId,
        snapshot: SnapshotId,
    ) -> Result<bool, HostError> {
        self.0.has_snapshot(tenant, snapshot).await
    }

    async fn fetch_snapshot(&self, tenant: &TenantId, snapshot: SnapshotId) -> Result<(), Failure> {
        let (host, tenant) = (Arc::clone(&self.0), tenant.clone());
        let fetched = self.0.archive.unless_silent(move || {
            host.archive.with_snapshot(&tenant, snapshot, |here, found| Ok(here.is_present(found)?))
        });
        fetched.await.map_err(start_failed)?.map_err(not_prepared)
    }

    async fn fetch_files(
        &self,
        session: SessionId,
        tenant: &TenantId,
        past: &dyn Past,
        if_lost: IfLost,
    ) -> Result<Ready, NotReady> {
        self.0.fetch_files(session, tenant, past, if_lost).await
    }

    async fn workspace(&self, session: SessionId) -> Result<Option<PathBuf>, HostError> {
        Ok(self.has_state(session).await?.then(|| self.0.files.workspace(session)))
    }

    async fn is_over(&self, sandbox: SandboxRef) -> bool {
        let host = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || host.is_over(sandbox)).await.unwrap_or(false)
    }

    fn isolation(&self, sandbox: SandboxRef) -> Option<&'static str> {
        self.0.isolation_of(sandbox).map(Isolation::as_str)
    }

    async fn list(&self) -> Result<Vec<SandboxRef>, HostError> {
        Arc::clone(&self.0).list().await
    }

    fn note(&self, record: &SessionRecord, session: &Session) {
        self.0.notes.put(record, session);
    }

    fn lend(&self, places: WarmPlaces) {
        if let Some(pool) = &self.0.warm {
            pool.lend(places);
        }
    }

    fn prewarm(&self) {
        if let Some(pool) = &self.0.warm {
            pool.look_again();
        }
    }

    async fn end_warm(&self, warm: WarmId) -> Result<(), HostError> {
        match &self.0.warm {
            Some(pool) => pool.end(warm).await,
            None => Ok(()),
        }
    }
}

async fn read_logs<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, HostError> {
    let attempted = "read what a sandbox said";
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|error| failed(attempted, error))?.map_err(|error| failed(attempted, error))
}
