//! Which sessions have a driver, and how to reach it.
//!
//! Everything that concerns a session goes to its one driver, which is started when something
//! comes for it and retires when nothing is owed: ten thousand paused sessions are rows, not
//! tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ash_core::id::SessionId;
use ash_core::number::Seq;
use ash_core::session::{Effect, Fact, Request, Session};
use ash_store::{Claimed, Receipt, Settings};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::driver::{Driver, Start};
use crate::error::EngineError;
use crate::host::EngineGone;
use crate::places::Reservation;
use crate::shared::{Link, Shared};
use crate::tasks::{Panicked, catching};

/// A full mailbox answers "overloaded"; it never grows.
const REQUESTS_CAPACITY: usize = 64;

/// Facts wait here while the driver commits; a full one holds the host back.
const FACTS_CAPACITY: usize = 32;

/// What a caller wants, and where it waits for the answer.
pub(crate) struct Envelope {
    pub(crate) want: Want,
    /// The place that was made for the sandbox it may start.
    pub(crate) place: Option<Reservation>,
    pub(crate) reply: oneshot::Sender<Result<Decided, EngineError>>,
}

impl Envelope {
    pub(crate) fn refuse(self, error: EngineError) {
        // Whoever gave up waiting does not need to know.
        let _unheard = self.reply.send(Err(error));
    }
}

/// Something that happened, and who says so.
pub(crate) struct Told {
    /// Over which connection it came; nothing if it did not come from a sandbox.
    pub(crate) link: Option<Link>,
    pub(crate) fact: Fact,
}

impl From<Fact> for Told {
    fn from(fact: Fact) -> Self {
        Self { link: None, fact }
    }
}

/// A session after a decision.
pub(crate) struct Decided {
    pub(crate) session: Session,
    /// Where its log ended before.
    pub(crate) before: Seq,
}

/// What a caller wants of a driver.
pub(crate) enum Want {
    /// A decision of the session.
    Decide {
        request: Request,
        /// Written in the same commit as the effect.
        receipt: Option<ReceiptFor>,
    },
    /// Other settings.
    Configure(Box<dyn FnOnce(&mut Settings) + Send>),
}

/// Makes the receipt of a request, given where the log ended before it.
pub(crate) type ReceiptFor = Box<dyn FnOnce(Seq) -> Receipt + Send>;

#[derive(Clone)]
struct Mailbox {
    requests: mpsc::Sender<Envelope>,
    facts: mpsc::Sender<Told>,
    /// Tells this driver from a later one of the same session.
    number: u64,
}

/// The receiving ends of a mailbox.
pub(crate) struct Inbox {
    pub(crate) requests: mpsc::Receiver<Envelope>,
    pub(crate) facts: mpsc::Receiver<Told>,
    /// For the outcomes of the driver's own effects.
    pub(crate) outcomes: mpsc::Sender<Told>,
    number: u64,
}

/// The drivers of an engine.
pub(crate) struct Registry {
    shared: Arc<Shared>,
    drivers: Mutex<Drivers>,
}

#[derive(Default)]
struct Drivers {
    by_session: BTreeMap<SessionId, Mailbox>,
    /// What the last driver had, of sessions that have a sandbox and nobody who drives them: whoever comes next goes
    /// on from there, as if it had stayed. So there are never more of them than sandboxes.
    left: BTreeMap<SessionId, Claimed>,
    started: u64,
}

impl Drivers {
    /// Takes a driver out, unless another has taken its place.
    fn forget(&mut self, session: SessionId, number: u64) {
        if self.by_session.get(&session).is_some_and(|mailbox| mailbox.number == number) {
            self.by_session.remove(&session);
        }
    }
}

impl Registry {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, drivers: Mutex::default() })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Asks the driver of a session for a decision.
    pub(crate) async fn request(
        self: &Arc<Self>,
        session: SessionId,
        want: Want,
    ) -> Result<Decided, EngineError> {
        self.request_in(session, want, None).await
    }

    /// The same, with a place for the sandbox that the decision may start.
    pub(crate) async fn request_in(
        self: &Arc<Self>,
        session: SessionId,
        want: Want,
        place: Option<Reservation>,
    ) -> Result<Decided, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send(session, |mailbox| mailbox.requests.try_send(Envelope { want, place, reply }))?;
        answer.await.unwrap_or_else(|_| Err(EngineError::driver_gone()))
    }

    /// Tells the driver of a session what happened. Waits while its mailbox is full.
    pub(crate) async fn tell(
        self: &Arc<Self>,
        session: SessionId,
        told: Told,
    ) -> Result<(), EngineGone> {
        let mut unsent = Some(told);
        loop {
            let mut room = None;
            let sent = self.send(session, |mailbox| {
                let told = unsent.take().expect("it is put back when it could not be sent");
                mailbox.facts.try_send(told).map_err(|error| {
                    room = Some(mailbox.facts.clone());
                    match error {
                        TrySendError::Full(told) => {
                            unsent = Some(told);
                            TrySendError::Full(())
                        }
                        TrySendError::Closed(told) => {
                            unsent = Some(told);
                            TrySendError::Closed(())
                        }
                    }
                })
            });
            match (sent, room) {
                (Ok(()), _) => return Ok(()),
                // Whether there is room or nobody is left: the next look will tell.
                (Err(EngineError::Overloaded), Some(mailbox)) => drop(mailbox.reserve().await),
                (Err(_), _) => return Err(EngineGone),
            }
        }
    }

    /// Ends a session whose agent was deleted. If it cannot be done now, the reconciler comes back
    /// to it.
    pub(crate) async fn end_abandoned(self: &Arc<Self>, session: SessionId) {
        let want = Want::Decide { request: Request::End, receipt: None };
        if let Err(error) = self.request(session, want).await {
            tracing::warn!(
                session.id = %session,
                error = &error as &dyn std::error::Error,
                "session {session} of a deleted agent could not be ended yet",
            );
        }
    }

    /// Has a session looked after, if nobody does.
    pub(crate) fn wake(self: &Arc<Self>, session: SessionId) {
        // Only an engine that is going refuses, and then the next one wakes it.
        let _refused = self.mailbox(&mut self.drivers(), session, Start::Claim);
    }

    /// Starts the driver of a session that was just created and is ours already.
    pub(crate) fn adopt(self: &Arc<Self>, claimed: Claimed, owed: Vec<Effect>) {
        let session = claimed.session.id();
        let start = Start::Claimed { claimed: Box::new(claimed), owed };
        let _refused = self.mailbox(&mut self.drivers(), session, start);
    }

    /// Resolves when the session's driver is gone; nothing if it has none.
    pub(crate) fn retirement(&self, session: SessionId) -> Option<impl Future<Output = ()>> {
        let mailbox = self.drivers().by_session.get(&session).cloned()?;
        Some(async move { mailbox.requests.closed().await })
    }

    /// Every session with a driver, newest first.
    pub(crate) fn driven(&self) -> Vec<SessionId> {
        self.drivers().by_session.keys().rev().copied().collect()
    }

    /// Lets a driver go that has nothing left to do, unless something has come for it. Whoever
    /// sends does so under the same lock, so nothing comes in between. What it leaves is for the next one.
    pub(crate) fn retire(
        &self,
        session: SessionId,
        inbox: &Inbox,
        leaves: impl FnOnce() -> Option<Claimed>,
    ) -> bool {
        let mut drivers = self.drivers();
        if !inbox.requests.is_empty() || !inbox.facts.is_empty() {
            return false;
        }
        drivers.forget(session, inbox.number);
        drivers.left.extend(leaves().map(|claimed| (session, claimed)));
        true
    }

    /// Puts something into the mailbox of a session's driver, and starts one if there is none.
    fn send<E>(
        self: &Arc<Self>,
        session: SessionId,
        put: impl FnOnce(&Mailbox) -> Result<(), TrySendError<E>>,
    ) -> Result<(), EngineError> {
        let mut drivers = self.drivers();
        let mailbox = self.mailbox(&mut drivers, session, Start::Claim)?;
        match put(&mailbox) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(EngineError::Overloaded),
            Err(TrySendError::Closed(_)) => {
                // It ended otherwise than by retiring, and is about to be forgotten.
                drivers.forget(session, mailbox.number);
                Err(EngineError::driver_gone())
            }
        }
    }

    fn mailbox(
        self: &Arc<Self>,
        drivers: &mut Drivers,
        session: SessionId,
        start: Start,
    ) -> Result<Mailbox, EngineError> {
        if let Some(mailbox) = drivers.by_session.get(&session) {
            return Ok(mailbox.clone());
        }
        if self.shared.tasks.is_closing() {
            return Err(EngineError::Draining);
        }
        // Whatever becomes of this driver, what the last one left is known no longer.
        let start = match (drivers.left.remove(&session), start) {
            (Some(claimed), Start::Claim) => Start::Left(Box::new(claimed)),
            (_, start) => start,
        };
        drivers.started += 1;
        let (requests_tx, requests) = mpsc::channel(REQUESTS_CAPACITY);
        let (facts_tx, facts) = mpsc::channel(FACTS_CAPACITY);
        let number = drivers.started;
        let mailbox = Mailbox { requests: requests_tx, facts: facts_tx, number };
        drivers.by_session.insert(session, mailbox.clone());
        let inbox = Inbox { requests, facts, outcomes: mailbox.facts.clone(), number };
        self.shared.tasks.spawn(Arc::clone(self).drive(session, inbox, start));
        Ok(mailbox)
    }

    /// Runs a driver to its end, and cleans up after it.
    async fn drive(self: Arc<Self>, session: SessionId, inbox: Inbox, start: Start) {
        let number = inbox.number;
        let after_panic = matches!(start, Start::AfterPanic);
        let driver = Driver::new(Arc::clone(&self.shared), Arc::clone(&self), session, inbox);
        let ended = Box::pin(catching(driver.run(start))).await;
        let mut drivers = self.drivers();
        drivers.forget(session, number);
        if let Err(Panicked(message)) = ended {
            tracing::error!(
                session.id = %session,
                panic = message,
                "the driver of session {session} panicked",
            );
            // Once: a defect that strikes again would do so for ever.
            if !after_panic {
                let _closing = self.mailbox(&mut drivers, session, Start::AfterPanic);
            }
        }
    }

    fn drivers(&self) -> MutexGuard<'_, Drivers> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells drivers what happened, for as long as the engine lives.
#[derive(Clone)]
pub(crate) struct FactSender(Weak<Registry>);

impl FactSender {
    pub(crate) fn to(registry: &Arc<Registry>) -> Self {
        Self(Arc::downgrade(registry))
    }

    pub(crate) async fn send(&self, session: SessionId, told: Told) -> Result<(), EngineGone> {
        let registry = self.0.upgrade().ok_or(EngineGone)?;
        registry.tell(session, told).await
    }
}
