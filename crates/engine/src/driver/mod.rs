//! The driver: the one task that changes a session, for as long as something is owed.
//!
//! ```text
//!      requests ──┐                                       ┌──► replies
//!         facts ──┼──► decide ──► commit ──► publish ──► perform
//!          time ──┘    (pure)    (durable)   (followers)    │
//!                         ▲                                 │
//!                         └──────────── outcomes ───────────┘
//! ```
//!
//! The order is what makes it safe to kill the process between any two instructions: what was
//! decided but not committed never happened; what was committed but not performed is what
//! [`Session::recover`] gives the next owner.
//!
//! A commit whose outcome is open is settled by claiming the session again: either the commit is
//! in what the claim returns, or the raised fence keeps it out for ever. Facts are then seen
//! again, which changes nothing if they had been recorded; a caller is told that the outcome is
//! open, and asks again with its idempotency key.

mod perform;

use std::sync::Arc;
use std::time::Duration;

use ash_core::id::SessionId;
use ash_core::number::Fence;
use ash_core::session::{Decision, Effect, Fact, Request, Session};
use ash_core::time::Timestamp;
use ash_store::{Claimed, Commit, SessionRecord, Settings, StoreError};
use tokio::sync::mpsc;

use crate::error::EngineError;
use crate::registry::{Decided, Envelope, FactSender, Inbox, ReceiptFor, Want};
use crate::shared::Shared;
use perform::Hands;

/// The most facts that go into one commit.
const MAX_BATCH: usize = 256;

/// How long to wait before the store is asked again, at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(2);

/// How a driver comes to its session.
pub(crate) enum Start {
    /// Somebody wants something of it.
    Claim,
    /// It was just created; this is what it is owed.
    Claimed { claimed: Box<Claimed>, owed: Vec<Effect> },
    /// The last driver panicked.
    AfterPanic,
}

/// What had come when the driver had already decided to go.
#[derive(Default)]
pub(crate) struct Leftover {
    pub(crate) requests: Vec<Envelope>,
    pub(crate) facts: Vec<Fact>,
}

pub(crate) struct Driver {
    shared: Arc<Shared>,
    facts: FactSender,
    id: SessionId,
    inbox: Inbox,
}

/// A session that is ours.
struct Owned {
    record: SessionRecord,
    session: Session,
    fence: Fence,
}

/// Why a driver lets go of its session.
enum Exit {
    /// The engine is going.
    Closing,
    /// Another owner has claimed it: then this engine is no longer the one that should run.
    Superseded,
    /// It is not there, or cannot be read.
    Unusable(EngineError),
}

/// How an attempt to commit ended, when it did not succeed.
enum Setback {
    /// The outcome was open; the session is what a new claim found.
    Reloaded,
    /// It did not happen and will not.
    Impossible(StoreError),
    /// The session is no longer ours.
    Exit(Exit),
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, facts: FactSender, id: SessionId, inbox: Inbox) -> Self {
        Self { shared, facts, id, inbox }
    }

    /// Drives the session until nothing is owed.
    pub(crate) async fn run(mut self, start: Start) -> Leftover {
        let mut hands = Hands::new(
            Arc::clone(&self.shared),
            self.facts.clone(),
            self.id,
            self.inbox.outcomes.clone(),
        );
        match self.drive(&mut hands, start).await {
            Ok(()) | Err(Exit::Closing) => self.close().await,
            Err(Exit::Superseded) => {
                self.shared.tasks.begin_closing();
                self.shared.bus.close();
                self.close().await
            }
            Err(Exit::Unusable(error)) => {
                tracing::error!(
                    session.id = %self.id,
                    error = &error as &dyn std::error::Error,
                    "session {} cannot be driven", self.id,
                );
                let leftover = self.close().await;
                for envelope in leftover.requests {
                    let answer = if let EngineError::NotFound(what) = error {
                        EngineError::NotFound(what)
                    } else {
                        EngineError::driver_gone()
                    };
                    let _unheard = envelope.reply.send(Err(answer));
                }
                Leftover::default()
            }
        }
    }

    async fn drive(&mut self, hands: &mut Hands, start: Start) -> Result<(), Exit> {
        let mut owned = self.take_over(hands, start).await?;
        loop {
            let idle = self.inbox.requests.is_empty() && self.inbox.facts.is_empty();
            if idle && owned.session.is_at_rest() && !hands.are_busy() {
                return Ok(());
            }
            let deadline = owned.session.next_deadline(&self.shared.policy);
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                biased;
                () = shared.tasks.closing() => return Err(Exit::Closing),
                Some(envelope) = self.inbox.requests.recv() => {
                    self.answer(&mut owned, hands, envelope).await?;
                }
                Some(fact) = self.inbox.facts.recv() => {
                    let batch = self.gather(fact);
                    self.absorb(&mut owned, hands, &batch).await?;
                }
                () = hands.rest() => {}
                () = sleep_until(&shared, deadline) => {
                    self.absorb(&mut owned, hands, &[Fact::TimePassed]).await?;
                }
            }
        }
    }

    /// Makes the session ours and does what it is owed.
    async fn take_over(&mut self, hands: &mut Hands, start: Start) -> Result<Owned, Exit> {
        let after_panic = matches!(start, Start::AfterPanic);
        let (mut owned, owed) = match start {
            Start::Claimed { claimed, owed } => (Owned::from(*claimed), owed),
            Start::Claim | Start::AfterPanic => {
                let owned = self.claim().await?;
                let owed = owned.session.recover();
                (owned, owed)
            }
        };
        hands.perform(&owned.record, owed);
        let mut news = vec![Fact::TimePassed];
        if after_panic {
            news.push(Fact::DriverPanicked { last_seq: owned.session.last_seq() });
        }
        self.absorb(&mut owned, hands, &news).await?;
        Ok(owned)
    }

    /// Claims the session, however long the store is away.
    async fn claim(&self) -> Result<Owned, Exit> {
        let mut pause = FIRST_RETRY;
        loop {
            match self.shared.store.claim_session(self.id, self.shared.owner).await {
                Ok(claimed) => return Ok(Owned::from(claimed)),
                Err(error) if error.is_transient() => {
                    tracing::warn!(
                        session.id = %self.id,
                        error = &error as &dyn std::error::Error,
                        "session {} could not be claimed, trying again", self.id,
                    );
                    tokio::select! {
                        biased;
                        () = self.shared.tasks.closing() => return Err(Exit::Closing),
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(LAST_RETRY);
                }
                Err(error) => return Err(Exit::Unusable(error.into())),
            }
        }
    }

    /// Takes everything that has come meanwhile into the same commit; runs of reports from the
    /// same sandbox become one fact.
    fn gather(&mut self, first: Fact) -> Vec<Fact> {
        let mut batch = vec![first];
        let mut taken = 1;
        while taken < MAX_BATCH
            && let Ok(fact) = self.inbox.facts.try_recv()
        {
            taken += 1;
            match (batch.last_mut(), fact) {
                (
                    Some(Fact::Reported { incarnation, reports }),
                    Fact::Reported { incarnation: of, reports: more },
                ) if *incarnation == of => reports.extend(more),
                (_, fact) => batch.push(fact),
            }
        }
        batch
    }

    /// Sees what happened, until it is recorded.
    async fn absorb(
        &mut self,
        owned: &mut Owned,
        hands: &mut Hands,
        batch: &[Fact],
    ) -> Result<(), Exit> {
        loop {
            let ctx = self.shared.context();
            let mut next = owned.session.clone();
            let mut decision = Decision::default();
            for fact in batch {
                decision.extend(next.observe(&ctx, fact.clone()));
            }
            if next == owned.session {
                hands.perform(&owned.record, decision.effects);
                return Ok(());
            }
            match self.commit(owned, hands, next, decision, Extras::default()).await {
                Ok(()) => return Ok(()),
                Err(Setback::Reloaded) => {}
                Err(Setback::Exit(exit)) => return Err(exit),
                Err(Setback::Impossible(error)) => {
                    return self.break_session(owned, hands, error).await;
                }
            }
        }
    }

    /// Something was reported that can never be recorded. The session must not hang on it.
    async fn break_session(
        &mut self,
        owned: &mut Owned,
        hands: &mut Hands,
        error: StoreError,
    ) -> Result<(), Exit> {
        tracing::error!(
            session.id = %self.id,
            error = &error as &dyn std::error::Error,
            "session {} is broken: what happened cannot be recorded", self.id,
        );
        loop {
            let mut next = owned.session.clone();
            let fact = Fact::DriverPanicked { last_seq: next.last_seq() };
            let decision = next.observe(&self.shared.context(), fact);
            match self.commit(owned, hands, next, decision, Extras::default()).await {
                Ok(()) => return Ok(()),
                Err(Setback::Reloaded) => {}
                Err(Setback::Impossible(_)) => return Err(Exit::Unusable(error.into())),
                Err(Setback::Exit(exit)) => return Err(exit),
            }
        }
    }

    /// Decides what a caller wants and tells it.
    async fn answer(
        &mut self,
        owned: &mut Owned,
        hands: &mut Hands,
        envelope: Envelope,
    ) -> Result<(), Exit> {
        let Envelope { want, reply } = envelope;
        let before = owned.session.last_seq();
        let (answer, exit) = match self.decide(owned, hands, want).await {
            Ok(()) => (Ok(Decided { session: owned.session.clone(), before }), Ok(())),
            Err(Unanswered::Told(error)) => (Err(error), Ok(())),
            Err(Unanswered::Exit(exit)) => (Err(EngineError::driver_gone()), Err(exit)),
        };
        // Whoever gave up waiting does not need to know.
        let _unheard = reply.send(answer);
        exit
    }

    async fn decide(
        &mut self,
        owned: &mut Owned,
        hands: &mut Hands,
        want: Want,
    ) -> Result<(), Unanswered> {
        let mut next = owned.session.clone();
        let mut extras = Extras::default();
        let decision = match want {
            Want::Decide { request, receipt } => {
                let decision = self.request(&mut next, request)?;
                extras.receipt = receipt;
                decision
            }
            Want::Configure(settings) => {
                extras.settings = Some(settings);
                Decision::default()
            }
        };
        if next == owned.session && extras.is_empty() {
            hands.perform(&owned.record, decision.effects);
            return Ok(());
        }
        match self.commit(owned, hands, next, decision, extras).await {
            Ok(()) => Ok(()),
            Err(Setback::Reloaded) => Err(Unanswered::Told(EngineError::Unavailable(
                "the store did not say whether it was recorded".into(),
            ))),
            Err(Setback::Impossible(error)) => Err(Unanswered::Told(error.into())),
            Err(Setback::Exit(exit)) => Err(Unanswered::Exit(exit)),
        }
    }

    fn request(&self, session: &mut Session, request: Request) -> Result<Decision, Unanswered> {
        session
            .request(&self.shared.context(), request)
            .map_err(|refusal| Unanswered::Told(refusal.into()))
    }

    /// Records a decision; then, and only then, tells followers and acts on it.
    async fn commit(
        &mut self,
        owned: &mut Owned,
        hands: &mut Hands,
        next: Session,
        decision: Decision,
        extras: Extras,
    ) -> Result<(), Setback> {
        let commit = Commit {
            fence: owned.fence,
            expected_seq: owned.session.last_seq(),
            due_at: next.next_deadline(&self.shared.policy),
            entries: decision.entries,
            runs: decision.runs,
            settings: extras.settings,
            outbox: Vec::new(),
            receipt: extras.receipt.map(|receipt| receipt(owned.session.last_seq())),
            session: next,
        };
        match self.shared.store.commit(&commit).await {
            Ok(()) => {
                let grew = commit.session.last_seq() > owned.session.last_seq();
                owned.session = commit.session;
                if let Some(settings) = commit.settings {
                    owned.record.settings = settings;
                }
                if grew {
                    self.shared.bus.publish(self.id, owned.session.last_seq());
                }
                hands.perform(&owned.record, decision.effects);
                Ok(())
            }
            Err(error @ (StoreError::Fenced { .. } | StoreError::NotFound("session"))) => {
                tracing::warn!(
                    session.id = %self.id,
                    error = &error as &dyn std::error::Error,
                    "session {} has another owner now: another server has taken over", self.id,
                );
                Err(Setback::Exit(Exit::Superseded))
            }
            Err(error) if error.is_transient() => {
                tracing::warn!(
                    session.id = %self.id,
                    error = &error as &dyn std::error::Error,
                    "a commit of session {} is in doubt, reading it again", self.id,
                );
                *owned = self.claim().await.map_err(Setback::Exit)?;
                // If it did happen, its followers have not heard of it yet.
                self.shared.bus.publish(self.id, owned.session.last_seq());
                hands.perform(&owned.record, owned.session.recover());
                Err(Setback::Reloaded)
            }
            Err(error) => Err(Setback::Impossible(error)),
        }
    }

    /// Takes no more; what is already in the mailbox is handed on.
    async fn close(mut self) -> Leftover {
        self.inbox.requests.close();
        self.inbox.facts.close();
        Leftover {
            requests: drain(&mut self.inbox.requests).await,
            facts: drain(&mut self.inbox.facts).await,
        }
    }
}

async fn sleep_until(shared: &Shared, deadline: Option<Timestamp>) {
    match deadline {
        Some(deadline) => tokio::time::sleep(deadline.since(shared.now())).await,
        None => std::future::pending().await,
    }
}

async fn drain<T>(receiver: &mut mpsc::Receiver<T>) -> Vec<T> {
    let mut rest = Vec::new();
    while let Some(item) = receiver.recv().await {
        rest.push(item);
    }
    rest
}

/// What a commit carries beside the decision.
#[derive(Default)]
struct Extras {
    settings: Option<Settings>,
    receipt: Option<ReceiptFor>,
}

impl Extras {
    fn is_empty(&self) -> bool {
        self.settings.is_none() && self.receipt.is_none()
    }
}

/// A caller that does not get what it wanted.
enum Unanswered {
    Told(EngineError),
    Exit(Exit),
}

impl From<Claimed> for Owned {
    fn from(claimed: Claimed) -> Self {
        Self { record: claimed.record, session: claimed.session, fence: claimed.fence }
    }
}
