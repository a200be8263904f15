//! The driver's hands: they do in the world what was decided, and say how it went.
//!
//! The driver never waits for them: a sandbox that takes a minute to start must not keep an `End`
//! waiting. What belongs to one sandbox is done one after the other, in the order it was decided,
//! by a *lane*; a stop overtakes the lane, and the lane is cut off when the next sandbox gets its
//! own, or when the driver goes. An effect that fails, or that finds the lane full, is simply lost: the
//! session has a deadline for everything it waits for, and leads itself out.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::Death;
use ash_core::id::{RunId, SessionId};
use ash_core::number::{Incarnation, Seq, SpoolPosition};
use ash_core::session::{Effect, Fact};
use ash_store::SessionRecord;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::host::{HostError, Reporter, SandboxRef};
use crate::registry::FactSender;
use crate::shared::Shared;
use crate::signal::Signal;

/// How many effects may wait behind one that takes long.
const LANE_CAPACITY: usize = 64;

/// How long a sandbox may take to answer an owner that comes back to it.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Hands {
    shared: Arc<Shared>,
    facts: FactSender,
    session: SessionId,
    outcomes: mpsc::Sender<Fact>,
    lane: Option<Lane>,
    /// How many stops are under way: the driver stays to hear of them.
    stops: Arc<Signal<usize>>,
}

/// Does what is to be done with one sandbox, in order.
struct Lane {
    incarnation: Incarnation,
    effects: mpsc::Sender<Effect>,
    task: AbortHandle,
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hands {
    pub(super) fn new(
        shared: Arc<Shared>,
        facts: FactSender,
        session: SessionId,
        outcomes: mpsc::Sender<Fact>,
    ) -> Self {
        Self { shared, facts, session, outcomes, lane: None, stops: Arc::default() }
    }

    /// Whether something is being done that nobody will ask about again.
    pub(super) fn are_busy(&self) -> bool {
        self.stops.get() > 0
    }

    /// Resolves when a driver that has nothing else to do may go.
    pub(super) async fn rest(&self) {
        if !self.are_busy() {
            return future::pending().await;
        }
        self.stops.watch().wait_for(|stops| *stops == 0).await;
    }

    /// Sets about what was decided. Call only after the decision is durable.
    pub(super) fn perform(&mut self, record: &SessionRecord, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::StopSandbox { incarnation } => self.stop(incarnation),
                Effect::StartSandbox { incarnation }
                | Effect::Attach { incarnation, .. }
                | Effect::Freeze { incarnation, .. }
                | Effect::Thaw { incarnation, .. }
                | Effect::Deliver { incarnation, .. }
                | Effect::Interrupt { incarnation, .. }
                | Effect::Acknowledge { incarnation, .. } => {
                    let lane = self.lane(record, incarnation);
                    if let Err(error) = lane.effects.try_send(effect) {
                        tracing::warn!(
                            session.id = %self.session,
                            "the sandbox of session {} is too slow, dropped: {error}", self.session,
                        );
                    }
                }
            }
        }
    }

    fn stop(&mut self, incarnation: Incarnation) {
        let sandbox = SandboxRef { session: self.session, incarnation };
        let shared = Arc::clone(&self.shared);
        let outcomes = self.outcomes.clone();
        let under_way = UnderWay::new(&self.stops);
        self.shared.tasks.spawn(async move {
            match shared.host.stop(sandbox).await {
                Ok(()) => {
                    let gone = Fact::SandboxGone { incarnation, death: Death::Stopped };
                    let _driver_gone = outcomes.send(gone).await;
                }
                Err(error) => warn(sandbox, &error),
            }
            drop(under_way);
        });
    }

    fn lane(&mut self, record: &SessionRecord, incarnation: Incarnation) -> &Lane {
        let lane = match self.lane.take() {
            Some(lane) if lane.incarnation == incarnation => lane,
            Some(_) | None => {
                let (effects, queue) = mpsc::channel(LANE_CAPACITY);
                let worker = Worker {
                    shared: Arc::clone(&self.shared),
                    facts: self.facts.clone(),
                    outcomes: self.outcomes.clone(),
                    sandbox: SandboxRef { session: self.session, incarnation },
                    record: record.clone(),
                };
                let task = self.shared.tasks.spawn(worker.work(queue));
                Lane { incarnation, effects, task }
            }
        };
        self.lane.insert(lane)
    }
}

/// Counts itself for as long as it lives, however its task ends.
struct UnderWay(Arc<Signal<usize>>);

impl UnderWay {
    fn new(count: &Arc<Signal<usize>>) -> Self {
        count.change(|count| *count += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.change(|count| *count -= 1);
    }
}

struct Worker {
    shared: Arc<Shared>,
    facts: FactSender,
    outcomes: mpsc::Sender<Fact>,
    sandbox: SandboxRef,
    record: SessionRecord,
}

impl Worker {
    async fn work(self, mut queue: mpsc::Receiver<Effect>) {
        while let Some(effect) = queue.recv().await {
            self.perform(effect).await;
        }
    }

    async fn perform(&self, effect: Effect) {
        let host = &self.shared.host;
        let sandbox = self.sandbox;
        let done = match effect {
            Effect::StartSandbox { incarnation } => return self.start(incarnation).await,
            Effect::Attach { incarnation, after } => return self.attach(incarnation, after).await,
            Effect::Freeze { incarnation, asked } => return self.freeze(incarnation, asked).await,
            Effect::Thaw { incarnation, asked, after } => {
                return self.thaw(incarnation, asked, after).await;
            }
            Effect::Deliver { run, .. } => self.deliver(run).await,
            Effect::Interrupt { run, .. } => host.interrupt(sandbox, run).await,
            Effect::Acknowledge { through, .. } => host.acknowledge(sandbox, through).await,
            Effect::StopSandbox { .. } => Ok(()), // Never in a lane.
        };
        if let Err(error) = done {
            warn(sandbox, &error);
        }
    }

    async fn start(&self, incarnation: Incarnation) {
        let started = self.shared.host.start(self.sandbox, &self.record, self.reporter()).await;
        self.tell(match started {
            Ok(()) => Fact::SandboxStarted { incarnation },
            Err(failure) => Fact::SandboxStartFailed { incarnation, failure },
        })
        .await;
    }

    /// A sandbox that cannot be reached is as good as lost, and must not run on unseen.
    async fn attach(&self, incarnation: Incarnation, after: SpoolPosition) {
        let attached = self.shared.host.attach(self.sandbox, after, self.reporter());
        match tokio::time::timeout(ATTACH_TIMEOUT, attached).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => warn(self.sandbox, &error),
            Err(_elapsed) => tracing::warn!(
                session.id = %self.sandbox.session,
                "the sandbox of session {} did not answer", self.sandbox.session,
            ),
        }
        loop {
            match self.shared.host.stop(self.sandbox).await {
                Ok(()) => break,
                Err(error) => warn(self.sandbox, &error),
            }
            tokio::time::sleep(self.shared.policy.stop_timeout).await;
        }
        self.tell(Fact::SandboxGone { incarnation, death: Death::Lost }).await;
    }

    async fn freeze(&self, incarnation: Incarnation, asked: Seq) {
        match self.shared.host.freeze(self.sandbox).await {
            Ok(()) => self.tell(Fact::SandboxFrozen { incarnation, asked }).await,
            Err(error) => warn(self.sandbox, &error),
        }
    }

    async fn thaw(&self, incarnation: Incarnation, asked: Seq, after: SpoolPosition) {
        match self.shared.host.thaw(self.sandbox, after, self.reporter()).await {
            Ok(()) => self.tell(Fact::SandboxThawed { incarnation, asked }).await,
            Err(error) => warn(self.sandbox, &error),
        }
    }

    async fn deliver(&self, run: RunId) -> Result<(), HostError> {
        let prompt =
            self.shared.store.prompt(self.sandbox.session, run).await.map_err(|error| {
                HostError { attempted: "read the prompt", detail: error.to_string() }
            })?;
        self.shared.host.deliver(self.sandbox, run, &prompt).await
    }

    fn reporter(&self) -> Reporter {
        Reporter::new(self.sandbox, self.facts.clone())
    }

    async fn tell(&self, fact: Fact) {
        // A driver that is gone has been followed by one that finds out for itself.
        let _driver_gone = self.outcomes.send(fact).await;
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
