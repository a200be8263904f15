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

mod batch;
pub(crate) mod keep;
mod last_words;
mod note;
mod owned;
pub(crate) mod past;
mod perform;
mod say;
mod setback;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_core::id::SessionId;
use ash_core::session::{Decision, Effect, Fact, FilesPlace, Sandbox, Session, Status};
use ash_core::time::Timestamp;
use ash_store::{Claimed, Commit, StoreError};

use crate::cloud::to_bring_up;
use crate::error::EngineError;
use crate::places::{Reservation, full};
use crate::registry::{Decided, Envelope, FactSender, Inbox, Registry, Told, Want};
use crate::shared::Shared;
use batch::{MAX_BATCH, MAX_BATCH_BYTES, size_of_reports};
use last_words::gives_up_frozen_run;
use owned::{Extras, Owned};
use perform::Hands;
use setback::{After, Exit, Setback, Unanswered};

/// How long to wait before the store is asked again, at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(2);

/// How a driver comes to its session.
pub(crate) enum Start {
    /// Somebody wants something of it.
    Claim,
    /// The last one retired, and nobody has written it since.
    Left(Box<Claimed>),
    /// It was just created; this is what it is owed.
    Claimed { claimed: Box<Claimed>, owed: Vec<Effect> },
    /// The last driver panicked.
    AfterPanic,
}

pub(crate) struct Driver {
    shared: Arc<Shared>,
    registry: Arc<Registry>,
    id: SessionId,
    inbox: Inbox,
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        registry: Arc<Registry>,
        id: SessionId,
        inbox: Inbox,
    ) -> Self {
        Self { shared, registry, id, inbox }
    }

    /// Drives the session until nothing is owed. Whoever still waits for an answer when a driver
    /// ends otherwise is told that it is gone, by the drop of its mailbox.
    pub(crate) async fn run(mut self, start: Start) {
        let facts = FactSender::to(&self.registry);
        let outcomes = self.inbox.outcomes.clone();
        let mut hands = Hands::new(Arc::clone(&self.shared), facts, self.id, outcomes);
        match self.drive(&mut hands, start).await {
            Ok(()) | Err(Exit::Closing) => {}
            Err(Exit::Superseded) => {
                self.shared.tasks.begin_closing();
                self.shared.bus.close();
            }
            Err(Exit::Unusable(EngineError::NotFound(what))) => {
                self.shared.places.forget(self.id);
                self.turn_away(|| EngineError::NotFound(what));
            }
            Err(Exit::Unusable(error)) => {
                tracing::error!(
                    session.id = %self.id,
                    error = &error as &dyn std::error::Error,
                    "session {} cannot be driven", self.id,
                );
            }
        }
    }

    async fn drive(&mut self, hands: &mut Hands, start: Start) -> Result<(), Exit> {
        let mut owned = self.take_over(hands, start).await?;
        loop {
            let deadline = owned.session.next_deadline(&self.shared.policy);
            let is_due = deadline.is_some_and(|deadline| deadline <= self.shared.now());
            let rests = owned.session.is_at_rest()
                && !hands.are_busy(&owned.session)
                && !self.captures_soon(&owned.session);
            // What is due would otherwise wait for the reconciler. It finds those that are to be forgotten: whoever
            // ended a session is told of it first.
            let waits = !is_due || owned.session.status() == Status::Ended;
            if rests && waits && self.registry.retire(self.id, &self.inbox, || owned.left()) {
                return Ok(());
            }
            // Looked at first, and not only when nothing else comes: an agent that never stops
            // talking must not outrun its own deadline.
            if is_due {
                self.absorb(&mut owned, hands, &self.time_passed()).await?;
                continue;
            }
            let shared = Arc::clone(&self.shared);
            tokio::select! {
                biased;
                () = shared.tasks.closing() => return Err(Exit::Closing),
                Some(envelope) = self.inbox.requests.recv() => {
                    self.answer(&mut owned, hands, envelope).await?;
                }
                Some(told) = self.inbox.facts.recv() => {
                    let batch = self.gather(&owned, hands, told);
                    self.absorb(&mut owned, hands, &batch).await?;
                }
                () = hands.rest() => {}
                () = sleep_until(&shared, deadline) => {}
            }
        }
    }

    /// What is heard when something is due. Where a command goes on, nothing is idle.
    fn time_passed(&self) -> Vec<Fact> {
        let is_used = self.shared.commands.goes_on_in(self.id);
        is_used.then_some(Fact::InUse).into_iter().chain([Fact::TimePassed]).collect()
    }

    /// Makes the session ours and does what it is owed.
    async fn take_over(&mut self, hands: &mut Hands, start: Start) -> Result<Owned, Exit> {
        let after_panic = matches!(start, Start::AfterPanic);
        let (mut owned, owed) = match start {
            Start::Claimed { claimed, owed } => (Owned::from(*claimed), owed),
            Start::Left(claimed) => {
                let owed = claimed.session.recover();
                (Owned::from(*claimed), owed)
            }
            Start::Claim | Start::AfterPanic => {
                let mut owned = self.claim().await?;
                // Recorded with whatever comes next; whoever dies before that comes to the same.
                owned.session.taken_over(self.shared.now());
                let owed = owned.session.recover();
                (owned, owed)
            }
        };
        // The last owner may have died between a commit and telling its followers.
        self.shared.bus.publish(self.id, owned.session.last_seq(), &[]);
        hands.perform(&owned.record, owed);
        let mut news = self.time_passed();
        if after_panic {
            news.push(Fact::DriverPanicked { last_seq: owned.session.last_seq() });
        }
        self.absorb(&mut owned, hands, &news).await?;
        Ok(owned)
    }

    /// Claims the session, however long the store is away. Callers do not wait for that.
    async fn claim(&mut self) -> Result<Owned, Exit> {
        let mut pause = FIRST_RETRY;
        loop {
            match self.shared.store.claim_session(self.id, self.shared.owner).await {
                // That says nothing of whether there is room for what happens: little is written.
                Ok(claimed) => {
                    self.shared.places.note(&claimed.session);
                    // The last owner may have died before it had done so.
                    self.shared.host.note(&claimed.record, &claimed.session);
                    return Ok(Owned::from(claimed));
                }
                Err(error) if error.is_transient() => {
                    self.shared.could_not_record(&error);
                    tracing::warn!(
                        session.id = %self.id,
                        error = &error as &dyn std::error::Error,
                        "session {} could not be claimed, trying again", self.id,
                    );
                }
                Err(error @ StoreError::Superseded(_)) => return Err(self.superseded(&error)),
                Err(error) => return Err(Exit::Unusable(error.into())),
            }
            self.wait_longer(&mut pause).await?;
        }
    }

    /// Waits before something is tried again, and longer the next time. Callers do not wait for that.
    async fn wait_longer(&mut self, pause: &mut Duration) -> Result<(), Exit> {
        let shared = Arc::clone(&self.shared);
        let mut waited = pin!(tokio::time::sleep(*pause));
        *pause = (*pause * 2).min(LAST_RETRY);
        loop {
            tokio::select! {
                biased;
                () = shared.tasks.closing() => return Err(Exit::Closing),
                Some(envelope) = self.inbox.requests.recv() => envelope.refuse(in_doubt()),
                () = &mut waited => return Ok(()),
            }
        }
    }

    fn superseded(&self, error: &StoreError) -> Exit {
        tracing::warn!(
            session.id = %self.id,
            error = error as &dyn std::error::Error,
            "session {} has another owner now: another server has taken over", self.id,
        );
        Exit::Superseded
    }

    /// Answers everybody who waits.
    fn turn_away(&mut self, error: impl Fn() -> EngineError) {
        self.inbox.requests.close();
        while let Ok(envelope) = self.inbox.requests.try_recv() {
            envelope.refuse(error());
        }
    }

    /// Takes everything that has come meanwhile into the same commit; runs of reports from the
    /// same sandbox become one fact.
    fn gather(&mut self, owned: &Owned, hands: &mut Hands, first: Told) -> Vec<Fact> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(told) = next.take() {
            if let Some(fact) = hands.believe(&owned.record, &owned.session, told) {
                bytes += size_of_reports(&fact);
                match (batch.last_mut(), fact) {
                    (
                        Some(Fact::Reported { incarnation, reports }),
                        Fact::Reported { incarnation: of, reports: more },
                    ) if *incarnation == of => reports.extend(more),
                    (_, fact) => batch.push(fact),
                }
            }
            if batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
                next = self.inbox.facts.try_recv().ok();
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
        let (mut was_heard, mut pause) = (false, FIRST_RETRY);
        loop {
            let ctx = self.shared.context();
            let mut next = owned.session.clone();
            let mut decision = Decision::default();
            for fact in batch {
                decision.extend(next.observe(&ctx, fact.clone()));
            }
            if !was_heard && gives_up_frozen_run(&owned.session, &next) {
                was_heard = true;
                Box::pin(self.hear_out(owned, hands)).await?;
                continue;
            }
            if next == owned.session {
                hands.perform(&owned.record, decision.effects);
                return Ok(());
            }
            match self.commit(owned, hands, next, decision, Extras::default()).await {
                Ok(()) => return Ok(()),
                // A claim writes so little that it succeeds where this does not.
                Err(Setback::InDoubt(_)) => {
                    self.wait_longer(&mut pause).await?;
                    self.settle(owned, hands).await?;
                }
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
        let mut pause = FIRST_RETRY;
        loop {
            let mut next = owned.session.clone();
            let fact = Fact::DriverPanicked { last_seq: next.last_seq() };
            let decision = next.observe(&self.shared.context(), fact);
            match self.commit(owned, hands, next, decision, Extras::default()).await {
                Ok(()) => return Ok(()),
                Err(Setback::InDoubt(_)) => {
                    self.wait_longer(&mut pause).await?;
                    self.settle(owned, hands).await?;
                }
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
        let Envelope { want, place, reply } = envelope;
        let before = owned.session.last_seq();
        let (answer, after) = match self.decide(owned, hands, want, place).await {
            Ok(()) => (Ok(Decided { session: owned.session.clone(), before }), After::GoOn),
            Err(Unanswered::Told(error)) => (Err(error), After::GoOn),
            Err(Unanswered::InDoubt(error)) => (Err(error.into()), After::Settle),
            Err(Unanswered::Exit(exit)) => (Err(EngineError::driver_gone()), After::Exit(exit)),
        };
        // Whoever gave up waiting does not need to know; whoever waits is told before anything
        // else that may take long.
        let _unheard = reply.send(answer);
        match after {
            After::GoOn => Ok(()),
            After::Settle => self.settle(owned, hands).await,
            After::Exit(exit) => Err(exit),
        }
    }

    async fn decide(
        &mut self,
        owned: &mut Owned,
        hands: &mut Hands,
        want: Want,
        place: Option<Reservation>,
    ) -> Result<(), Unanswered> {
        let mut extras = Extras::default();
        let (next, decision) = match want {
            Want::Decide { request, receipt } => {
                extras.receipt = receipt;
                self.request(owned, hands, request).await?
            }
            Want::Configure(change) => {
                let mut settings = owned.record.settings.clone();
                change(&mut settings);
                extras.settings = Some(settings);
                (owned.session.clone(), Decision::default())
            }
        };
        if next == owned.session && extras.is_empty() {
            hands.perform(&owned.record, decision.effects);
            return Ok(());
        }
        // A new sandbox has its place before anybody hears of it.
        let begins = owned.session.sandbox() == Sandbox::None && next.sandbox() != Sandbox::None;
        if begins && !self.shared.places.take(self.id, place.as_ref(), self.shared.now()) {
            return Err(Unanswered::Told(full()));
        }
        match self.commit(owned, hands, next, decision, extras).await {
            Ok(()) => Ok(()),
            Err(Setback::InDoubt(error)) => Err(Unanswered::InDoubt(error)),
            Err(Setback::Impossible(error)) => {
                self.shared.places.note(&owned.session);
                Err(Unanswered::Told(error.into()))
            }
            Err(Setback::Exit(exit)) => Err(Unanswered::Exit(exit)),
        }
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
        let told = extras.settings.as_ref();
        let commit = Commit {
            fence: owned.fence,
            expected_seq: owned.session.last_seq(),
            due_at: next.next_deadline(&self.shared.policy),
            entries: decision.entries,
            runs: decision.runs,
            outbox: to_bring_up(&self.shared, (&owned.session, &next), told, &decision.snapshots),
            settings: extras.settings,
            snapshots: decision.snapshots,
            receipt: extras.receipt.map(|receipt| receipt(owned.session.last_seq())),
            session: next,
        };
        let started = Instant::now();
        match self.shared.store.commit(&commit).await {
            Ok(()) => {
                self.shared.recorded();
                let grew = commit.session.last_seq() > owned.session.last_seq();
                self.shared.tell_of(&owned.session, &commit);
                let before = owned.session.current_run().map(|run| (run.id, run.phase));
                note::tell(&self.shared, &owned.record, &owned.session, &commit);
                owned.session = commit.session;
                self.shared.places.note(&owned.session);
                if let Some(settings) = commit.settings {
                    owned.record.settings = settings;
                }
                if grew {
                    self.shared.bus.publish(self.id, owned.session.last_seq(), &commit.entries);
                }
                self.shared.counts.committed(started.elapsed(), &commit.entries, before);
                if !matches!(owned.session.keeping().files(), FilesPlace::Leaving { .. }) {
                    hands.keep_files();
                }
                if !commit.snapshots.is_empty() {
                    hands.prune(owned.session.needed_snapshots());
                }
                if decision.effects.contains(&Effect::Purge) {
                    hands.purge(&owned.record, owned.session.log_epoch(), owned.fence);
                }
                hands.perform(&owned.record, decision.effects);
                Ok(())
            }
            Err(error @ (StoreError::Fenced { .. } | StoreError::NotFound("session"))) => {
                self.shared.counts.fenced();
                Err(Setback::Exit(self.superseded(&error)))
            }
            Err(error) if error.is_transient() => {
                // A claim may find room where this did not.
                self.shared.could_not_record(&error);
                tracing::warn!(
                    session.id = %self.id,
                    error = &error as &dyn std::error::Error,
                    "a commit of session {} is in doubt", self.id,
                );
                Err(Setback::InDoubt(error))
            }
            Err(error) => Err(Setback::Impossible(error)),
        }
    }

    /// Finds out whether a commit in doubt has happened: claims the session again, so that it
    /// either is in what is read now, or never will be.
    async fn settle(&mut self, owned: &mut Owned, hands: &mut Hands) -> Result<(), Exit> {
        *owned = self.claim().await?;
        // If it did happen, its followers have not heard of it yet.
        self.shared.bus.publish(self.id, owned.session.last_seq(), &[]);
        hands.perform(&owned.record, owned.session.recover());
        Ok(())
    }
}

fn in_doubt() -> EngineError {
    EngineError::Unavailable("the session's state cannot be reached".into())
}

async fn sleep_until(shared: &Shared, deadline: Option<Timestamp>) {
    match deadline {
        Some(deadline) => tokio::time::sleep(deadline.since(shared.now())).await,
        None => std::future::pending().await,
    }
}
