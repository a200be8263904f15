//! The driver's hands: they do in the world what was decided, and say how it went.
//!
//! The driver never waits for them: a sandbox that takes a minute to start must not keep an `End`
//! waiting. What belongs to one sandbox is done one after the other, in the order it was decided,
//! by a *lane*; a stop overtakes the lane, and the lane is cut off when the next sandbox gets its
//! own, or when the driver goes. An effect that fails, or that finds the lane full, is simply lost: the
//! session has a deadline for everything it waits for, and leads itself out.

use std::collections::BTreeSet;
use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ash_core::failure::Death;
use ash_core::id::{SessionId, SnapshotId};
use ash_core::number::{Incarnation, Seq, SpoolPosition};
use ash_core::resume::{Found, Source};
use ash_core::session::{Effect, Fact, Sandbox, Session};
use ash_core::snapshot::PutBackOutcome;
use ash_store::{Place, SessionRecord};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::past::LogOf;
use crate::host::{HostError, Reporter, SandboxRef, Start, Thawed};
use crate::leave::Leave;
use crate::registry::{FactSender, Told};
use crate::shared::{Link, Shared};
use crate::signal::Signal;

/// How many effects may wait behind one that takes long.
const LANE_CAPACITY: usize = 64;

/// How long a sandbox may take to answer an owner that comes back to it, in all and each time,
/// and how long to wait in between.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);
const ATTACH_ATTEMPT: Duration = Duration::from_secs(3);
const ATTACH_PAUSE: Duration = Duration::from_millis(200);

/// How long a lane waits at most for a sandbox that stands still.
const LONGEST_STAND_STILL: Duration = Duration::from_secs(2);

pub(super) struct Hands {
    pub(super) shared: Arc<Shared>,
    facts: FactSender,
    pub(super) session: SessionId,
    pub(super) outcomes: mpsc::Sender<Told>,
    lane: Option<Lane>,
    /// The connection that was asked for last.
    pub(super) link: Option<(Incarnation, Link)>,
    /// The right to remove the files, while somebody is at it.
    pub(super) leave: Option<Leave>,
    /// The stops that are under way: the driver stays to hear of them.
    stops: Arc<Signal<BTreeSet<Incarnation>>>,
    /// The latest that was told to stop.
    told_to_stop: Arc<AtomicU32>,
    /// The one that is gone and is asked for what it had to tell: the driver stays to hear it.
    pub(super) last_words_of: Option<Incarnation>,
    /// Held while files are put back.
    putting_back: Arc<tokio::sync::Mutex<()>>,
    /// The number of the last capture, and what resolves when its outcome was told: they are told in the order in which
    /// they were asked for.
    pub(super) last_capture: Option<(u64, oneshot::Receiver<()>)>,
}

/// Does what is to be done with one sandbox, in order.
struct Lane {
    incarnation: Incarnation,
    errands: mpsc::Sender<Errand>,
    task: AbortHandle,
}

/// What a lane does next.
enum Errand {
    Do(Box<Effect>, Link),
    /// Nothing, until a sandbox that stands still moves again.
    Wait(oneshot::Receiver<()>),
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        // Whoever drives the session next may start a sandbox.
        self.keep_files();
    }
}

impl Hands {
    pub(super) fn new(
        shared: Arc<Shared>,
        facts: FactSender,
        session: SessionId,
        outcomes: mpsc::Sender<Told>,
    ) -> Self {
        let (stops, told_to_stop) = (Arc::default(), Arc::default());
        Self {
            shared,
            facts,
            session,
            outcomes,
            lane: None,
            link: None,
            leave: None,
            stops,
            told_to_stop,
            last_words_of: None,
            putting_back: Arc::default(),
            last_capture: None,
        }
    }

    /// Whether something is being done that nobody will ask about again.
    pub(super) fn are_busy(&self, session: &Session) -> bool {
        let listens = self.last_words_of == Some(session.incarnation());
        (listens && session.sandbox() != Sandbox::None) || !self.stops.get().is_empty()
    }

    /// Resolves when the stops are over for which a driver that has nothing else to do has stayed.
    pub(super) async fn rest(&self) {
        if self.stops.get().is_empty() {
            return future::pending().await;
        }
        self.stops.watch().wait_for(BTreeSet::is_empty).await;
    }

    /// Sets about what was decided. Call only after the decision is durable.
    pub(super) fn perform(&mut self, record: &SessionRecord, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::StopSandbox { incarnation } => self.stop(incarnation),
                Effect::Attach { incarnation, .. } => {
                    // Who is connected, or about to be, is not connected once more.
                    if self.link.is_none_or(|(of, _)| of != incarnation) {
                        self.connect(record, incarnation, effect);
                    }
                }
                Effect::StartSandbox { incarnation, .. } | Effect::Thaw { incarnation, .. } => {
                    self.connect(record, incarnation, effect);
                }
                Effect::Persist { incarnation, number, unless_like, only_if_busy, proven } => {
                    let sandbox = SandboxRef { session: self.session, incarnation };
                    self.persist(record, sandbox, number, (unless_like, only_if_busy, proven));
                }
                Effect::PutBack { number, snapshot } => {
                    self.put_back(record, number, snapshot.captured.id);
                }
                Effect::PutAway { incarnation, number, snapshot } => {
                    let sandbox = SandboxRef { session: self.session, incarnation };
                    self.put_away(record, sandbox, number, snapshot);
                }
                // Needs the fence: the driver has it done.
                Effect::Purge => {}
                Effect::Freeze { incarnation, .. }
                | Effect::Deliver { incarnation, .. }
                | Effect::Interrupt { incarnation, .. }
                | Effect::Decide { incarnation, .. }
                | Effect::Acknowledge { incarnation, .. } => {
                    let link = self.link.map_or_else(|| self.shared.next_link(), |(_, link)| link);
                    self.put(record, incarnation, effect, link);
                }
            }
        }
    }

    /// Nobody removes the files from now on.
    pub(super) fn keep_files(&mut self) {
        if let Some(leave) = self.leave.take() {
            leave.revoke();
        }
    }

    /// Does something that connects anew.
    pub(super) fn connect(
        &mut self,
        record: &SessionRecord,
        incarnation: Incarnation,
        effect: Effect,
    ) {
        let link = self.shared.next_link();
        self.link = Some((incarnation, link));
        self.put(record, incarnation, effect, link);
    }

    fn put(
        &mut self,
        record: &SessionRecord,
        incarnation: Incarnation,
        effect: Effect,
        link: Link,
    ) {
        let session = self.session;
        let lane = self.lane(record, incarnation);
        let crowded = lane.errands.capacity() < LANE_CAPACITY / 2;
        if crowded && matches!(effect, Effect::Acknowledge { .. }) {
            return; // The next one says the same and more.
        }
        if let Err(error) = lane.errands.try_send(Errand::Do(Box::new(effect), link)) {
            tracing::warn!(
                session.id = %session,
                "the sandbox of session {session} is too slow, dropped: {error}",
            );
        }
    }

    /// Nothing more is done with a sandbox until it moves again.
    pub(super) fn hold_up(&self, incarnation: Incarnation, moves: oneshot::Receiver<()>) {
        let lane = self.lane.as_ref();
        if let Some(lane) = lane.filter(|lane| lane.incarnation == incarnation) {
            // A lane that is full has other worries.
            let _full = lane.errands.try_send(Errand::Wait(moves));
        }
    }

    /// Has files put back. Nothing of the session runs, and nothing will before the outcome is known.
    fn put_back(&self, record: &SessionRecord, number: u64, snapshot: SnapshotId) {
        // One that takes longer than was waited for is let to its end: it does the same.
        let Ok(turn) = Arc::clone(&self.putting_back).try_lock_owned() else { return };
        let (shared, outcomes) = (Arc::clone(&self.shared), self.outcomes.clone());
        let (session, tenant) = (self.session, record.tenant.clone());
        self.shared.tasks.spawn(async move {
            let outcome = shared.host.put_back(session, &tenant, snapshot).await;
            let outcome = outcome.unwrap_or_else(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, session.id = %session, "session {session}: {error}");
                PutBackOutcome::Failed
            });
            drop(turn);
            let _driver_gone = outcomes.send(Fact::PutBack { number, outcome }.into()).await;
        });
    }

    fn stop(&mut self, incarnation: Incarnation) {
        if self.stops.get().contains(&incarnation) {
            return;
        }
        self.told_to_stop.fetch_max(incarnation.get(), Ordering::Relaxed);
        let sandbox = SandboxRef { session: self.session, incarnation };
        let shared = Arc::clone(&self.shared);
        let outcomes = self.outcomes.clone();
        let under_way = UnderWay::new(&self.stops, incarnation);
        self.shared.tasks.spawn(async move {
            let stopped = shared.host.stop(sandbox);
            match tokio::time::timeout(shared.policy.stop_timeout, stopped).await {
                Ok(Ok(())) => {
                    let gone = Fact::SandboxGone { incarnation, death: Death::Stopped };
                    let _driver_gone = outcomes.send(gone.into()).await;
                }
                Ok(Err(error)) => warn(sandbox, &error),
                Err(_elapsed) => warn(sandbox, &HostError::late("stop a sandbox")),
            }
            drop(under_way);
        });
    }

    fn lane(&mut self, record: &SessionRecord, incarnation: Incarnation) -> &Lane {
        let lane = match self.lane.take() {
            Some(lane) if lane.incarnation == incarnation => lane,
            Some(_) | None => {
                let (errands, queue) = mpsc::channel(LANE_CAPACITY);
                let worker = Worker {
                    shared: Arc::clone(&self.shared),
                    facts: self.facts.clone(),
                    outcomes: self.outcomes.clone(),
                    sandbox: SandboxRef { session: self.session, incarnation },
                    record: record.clone(),
                    told_to_stop: Arc::clone(&self.told_to_stop),
                };
                let task = self.shared.tasks.spawn(worker.work(queue));
                Lane { incarnation, errands, task }
            }
        };
        self.lane.insert(lane)
    }
}

/// Is among those under way for as long as it lives, however its task ends.
struct UnderWay(Arc<Signal<BTreeSet<Incarnation>>>, Incarnation);

impl UnderWay {
    fn new(stops: &Arc<Signal<BTreeSet<Incarnation>>>, incarnation: Incarnation) -> Self {
        stops.change(|stops| {
            stops.insert(incarnation);
        });
        Self(Arc::clone(stops), incarnation)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.change(|stops| {
            stops.remove(&self.1);
        });
    }
}

pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    facts: FactSender,
    outcomes: mpsc::Sender<Told>,
    pub(super) sandbox: SandboxRef,
    record: SessionRecord,
    told_to_stop: Arc<AtomicU32>,
}

impl Worker {
    async fn work(self, mut queue: mpsc::Receiver<Errand>) {
        while let Some(errand) = queue.recv().await {
            match errand {
                Errand::Do(effect, link) => self.perform(*effect, link).await,
                Errand::Wait(moves) => {
                    let _moves_or_late = tokio::time::timeout(LONGEST_STAND_STILL, moves).await;
                }
            }
        }
    }

    async fn perform(&self, effect: Effect, link: Link) {
        let host = &self.shared.host;
        let sandbox = self.sandbox;
        let done = match effect {
            Effect::StartSandbox {
                incarnation,
                transcript,
                completed_runs,
                turns,
                if_lost,
                lost,
                snapshot,
                is_behind,
                proven,
            } => {
                let record = &self.record;
                let start = Start {
                    record,
                    transcript: transcript.as_ref(),
                    completed_runs,
                    turns,
                    if_lost,
                    lost,
                    snapshot: snapshot.as_ref(),
                    is_behind,
                    proven: proven.as_deref(),
                    past: &LogOf::new(&*self.shared.store, record),
                };
                return self.start(incarnation, start, link).await;
            }
            Effect::Attach { incarnation, after } => {
                return self.attach(incarnation, after, link).await;
            }
            Effect::Freeze { incarnation, asked } => return self.freeze(incarnation, asked).await,
            Effect::Thaw { incarnation, asked, after } => {
                return self.thaw(incarnation, asked, after, link).await;
            }
            Effect::Deliver { run, .. } => self.deliver(run).await,
            Effect::Interrupt { run, .. } => host.interrupt(sandbox, run).await,
            Effect::Decide { question, decided, .. } => self.decide(question, decided).await,
            Effect::Acknowledge { through, .. } => host.acknowledge(sandbox, through).await,
            // Never in a lane.
            Effect::StopSandbox { .. }
            | Effect::Persist { .. }
            | Effect::PutBack { .. }
            | Effect::PutAway { .. }
            | Effect::Purge => Ok(()),
        };
        if let Err(error) = done {
            self.complain(&error);
        }
    }

    async fn start(&self, incarnation: Incarnation, start: Start<'_>, link: Link) {
        let asked = Instant::now();
        let started = self.shared.host.start(self.sandbox, start, self.reporter(link)).await;
        if let Ok(found) = &started {
            self.shared.counts.started(asked.elapsed());
            self.note_place(found).await;
        }
        self.tell(match started {
            Ok(found) => Fact::SandboxStarted { incarnation, found },
            Err(failure) => Fact::SandboxStartFailed { incarnation, failure },
        })
        .await;
    }

    /// What came from the cloud is here now too.
    async fn note_place(&self, found: &Found) {
        let (Source::Cloud, Some(from)) = (found.source, found.snapshot) else { return };
        let session = self.sandbox.session;
        for place in [Place::Local, Place::Cloud] {
            if let Err(error) = self.shared.store.found_snapshot(session, from.id, place).await {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, session.id = %session, "a place was not noted");
            }
        }
    }

    /// One answer that was lost must not cost a turn, so it is tried for a while. What becomes of
    /// a sandbox that cannot be reached is the session's decision.
    async fn attach(&self, incarnation: Incarnation, after: SpoolPosition, link: Link) {
        let attached = async {
            loop {
                let attempt = self.shared.host.attach(self.sandbox, after, self.reporter(link));
                match tokio::time::timeout(ATTACH_ATTEMPT, attempt).await {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => self.complain(&error),
                    Err(_elapsed) => self.complain(&HostError::late("attach to a sandbox")),
                }
                tokio::time::sleep(ATTACH_PAUSE).await;
            }
        };
        if tokio::time::timeout(ATTACH_TIMEOUT, attached).await.is_err() {
            self.tell(Fact::SandboxUnreachable { incarnation }).await;
        }
    }

    async fn freeze(&self, incarnation: Incarnation, asked: Seq) {
        match self.shared.host.freeze(self.sandbox).await {
            Ok(()) => self.tell(Fact::SandboxFrozen { incarnation, asked }).await,
            Err(error) => self.complain(&error),
        }
    }

    /// Tried for a while, as an attach is: one that was killed while it was frozen may die only now.
    async fn thaw(&self, incarnation: Incarnation, asked: Seq, after: SpoolPosition, link: Link) {
        let thawed = async {
            loop {
                match self.shared.host.thaw(self.sandbox, after, self.reporter(link)).await {
                    Ok(thawed) => return thawed,
                    Err(error) => self.complain(&error),
                }
                tokio::time::sleep(ATTACH_PAUSE).await;
            }
        };
        if let Ok(Thawed::GoesOn) = tokio::time::timeout(ATTACH_ATTEMPT, thawed).await {
            self.tell(Fact::SandboxThawed { incarnation, asked }).await;
        }
    }

    /// Says that something was not done. Of a sandbox that was told to stop nothing else is expected.
    fn complain(&self, error: &HostError) {
        let sandbox = self.sandbox;
        if sandbox.incarnation.get() > self.told_to_stop.load(Ordering::Relaxed) {
            return warn(sandbox, error);
        }
        tracing::debug!(
            session.id = %sandbox.session,
            sandbox.incarnation = %sandbox.incarnation,
            error = error as &dyn std::error::Error,
            "session {}, which stops: {error}", sandbox.session,
        );
    }

    fn reporter(&self, link: Link) -> Reporter {
        Reporter::new(self.sandbox, link, self.facts.clone())
    }

    async fn tell(&self, fact: Fact) {
        // A driver that is gone has been followed by one that finds out for itself.
        let _driver_gone = self.outcomes.send(fact.into()).await;
    }
}

fn warn(sandbox: SandboxRef, error: &HostError) {
    tracing::warn!(
        session.id = %sandbox.session,
        sandbox.incarnation = %sandbox.incarnation,
        error = error as &dyn std::error::Error,
        "session {}: {error}", sandbox.session,
    );
}
