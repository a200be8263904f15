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
use tokio::sync::{mpsc, oneshot};

use crate::driver::{Driver, Leftover, Start};
use crate::error::EngineError;
use crate::host::EngineGone;
use crate::shared::Shared;
use crate::tasks::{Panicked, catching};

/// A full mailbox answers "overloaded"; it never grows.
const REQUESTS_CAPACITY: usize = 64;

/// Facts wait here while the driver commits; a full one holds the host back.
const FACTS_CAPACITY: usize = 256;

/// What a caller wants, and where it waits for the answer.
pub(crate) struct Envelope {
    pub(crate) want: Want,
    pub(crate) reply: oneshot::Sender<Result<Decided, EngineError>>,
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
    Configure(Settings),
}

/// Makes the receipt of a request, given where the log ended before it.
pub(crate) type ReceiptFor = Box<dyn FnOnce(Seq) -> Receipt + Send>;

#[derive(Clone)]
struct Mailbox {
    requests: mpsc::Sender<Envelope>,
    facts: mpsc::Sender<Fact>,
    /// Tells this driver from a later one of the same session.
    number: u64,
}

/// The receiving ends of a mailbox.
pub(crate) struct Inbox {
    pub(crate) requests: mpsc::Receiver<Envelope>,
    pub(crate) facts: mpsc::Receiver<Fact>,
    /// For the outcomes of the driver's own effects.
    pub(crate) outcomes: mpsc::Sender<Fact>,
}

/// The drivers of an engine.
pub(crate) struct Registry {
    shared: Arc<Shared>,
    drivers: Mutex<Drivers>,
}

#[derive(Default)]
struct Drivers {
    by_session: BTreeMap<SessionId, Mailbox>,
    started: u64,
}

impl Registry {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, drivers: Mutex::default() })
    }

    /// Asks the driver of a session for a decision.
    pub(crate) async fn request(
        self: &Arc<Self>,
        session: SessionId,
        want: Want,
    ) -> Result<Decided, EngineError> {
        let (reply, answer) = oneshot::channel();
        let mut envelope = Envelope { want, reply };
        loop {
            let mailbox = self.mailbox(session, Start::Claim)?;
            match mailbox.requests.try_send(envelope) {
                Ok(()) => break,
                Err(mpsc::error::TrySendError::Full(_)) => return Err(EngineError::Overloaded),
                Err(mpsc::error::TrySendError::Closed(unsent)) => {
                    // That driver is retiring; the next one takes it.
                    envelope = unsent;
                    self.forget(session, mailbox.number);
                }
            }
        }
        answer.await.unwrap_or_else(|_| Err(EngineError::driver_gone()))
    }

    /// Tells the driver of a session what happened. Waits while its mailbox is full.
    pub(crate) async fn tell(
        self: &Arc<Self>,
        session: SessionId,
        mut fact: Fact,
    ) -> Result<(), EngineGone> {
        loop {
            let mailbox = self.mailbox(session, Start::Claim).map_err(|_| EngineGone)?;
            match mailbox.facts.send(fact).await {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(unsent)) => {
                    fact = unsent;
                    self.forget(session, mailbox.number);
                }
            }
        }
    }

    /// Has a session looked after, if nobody does.
    pub(crate) fn wake(self: &Arc<Self>, session: SessionId) {
        // Only an engine that is going refuses, and then the next one wakes it.
        let _refused = self.mailbox(session, Start::Claim);
    }

    /// Starts the driver of a session that was just created and is ours already.
    pub(crate) fn adopt(self: &Arc<Self>, claimed: Claimed, owed: Vec<Effect>) {
        let session = claimed.session.id();
        let _refused = self.mailbox(session, Start::Claimed { claimed: Box::new(claimed), owed });
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

    /// Takes a retired driver out of the map, unless another has taken its place.
    pub(crate) fn forget(&self, session: SessionId, number: u64) {
        let mut drivers = self.drivers();
        if drivers.by_session.get(&session).is_some_and(|mailbox| mailbox.number == number) {
            drivers.by_session.remove(&session);
        }
    }

    fn mailbox(self: &Arc<Self>, session: SessionId, start: Start) -> Result<Mailbox, EngineError> {
        let mut drivers = self.drivers();
        if let Some(mailbox) = drivers.by_session.get(&session) {
            return Ok(mailbox.clone());
        }
        if self.shared.tasks.is_closing() {
            return Err(EngineError::Draining);
        }
        drivers.started += 1;
        let (requests_tx, requests) = mpsc::channel(REQUESTS_CAPACITY);
        let (facts_tx, facts) = mpsc::channel(FACTS_CAPACITY);
        let number = drivers.started;
        let mailbox = Mailbox { requests: requests_tx, facts: facts_tx, number };
        drivers.by_session.insert(session, mailbox.clone());
        drop(drivers);

        let inbox = Inbox { requests, facts, outcomes: mailbox.facts.clone() };
        self.shared.tasks.spawn(Arc::clone(self).drive(session, number, inbox, start));
        Ok(mailbox)
    }

    /// Runs a driver to its end, and cleans up after it.
    async fn drive(self: Arc<Self>, session: SessionId, number: u64, inbox: Inbox, start: Start) {
        let after_panic = matches!(start, Start::AfterPanic);
        let facts = FactSender(Arc::downgrade(&self));
        let driver = Driver::new(Arc::clone(&self.shared), facts, session, inbox);
        let ended = catching(driver.run(start)).await;
        self.forget(session, number);
        match ended {
            Ok(leftover) => self.hand_on(session, leftover).await,
            Err(Panicked(message)) => {
                tracing::error!(session.id = %session, panic = message, "the driver of session {session} panicked");
                // Once: a defect that strikes again would do so for ever.
                if !after_panic {
                    let _refused = self.mailbox(session, Start::AfterPanic);
                }
            }
        }
    }

    /// What came while a driver was retiring is for the next one.
    async fn hand_on(self: &Arc<Self>, session: SessionId, leftover: Leftover) {
        for envelope in leftover.requests {
            self.forward(session, envelope);
        }
        for fact in leftover.facts {
            // An engine that is going loses nothing: the host tells the next one.
            let _gone = self.tell(session, fact).await;
        }
    }

    fn forward(self: &Arc<Self>, session: SessionId, envelope: Envelope) {
        let unsent = match self.mailbox(session, Start::Claim) {
            Ok(mailbox) => match mailbox.requests.try_send(envelope) {
                Ok(()) => return,
                Err(error) => error.into_inner(),
            },
            Err(_) => envelope,
        };
        // Whoever gave up waiting does not need to know.
        let _unheard = unsent.reply.send(Err(EngineError::driver_gone()));
    }

    fn drivers(&self) -> MutexGuard<'_, Drivers> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells drivers what happened, for as long as the engine lives.
#[derive(Clone)]
pub(crate) struct FactSender(Weak<Registry>);

impl FactSender {
    pub(crate) async fn send(&self, session: SessionId, fact: Fact) -> Result<(), EngineGone> {
        let registry = self.0.upgrade().ok_or(EngineGone)?;
        registry.tell(session, fact).await
    }
}

#[cfg(all(test, feature = "testing"))]
mod test {
    use ash_core::id::OwnerId;
    use ash_core::policy::Policy;
    use ash_core::time::Timestamp;
    use ash_store::memory::MemoryStore;

    use super::*;
    use crate::bus::Bus;
    use crate::clock::SystemClock;
    use crate::ids::IdSource;
    use crate::tasks::Tasks;
    use crate::testing::{Dice, FakeHost};

    /// Between its last look into the mailbox and closing it, something may have come.
    #[tokio::test]
    async fn what_came_while_a_driver_retired_reaches_the_next_one() {
        let shared = Shared {
            store: Arc::new(MemoryStore::new()),
            host: Arc::new(FakeHost::new(Arc::new(Dice::new(1)))),
            clock: Arc::new(SystemClock),
            policy: Policy::default(),
            ids: IdSource::seeded(1),
            owner: OwnerId::from_parts(Timestamp::from_millis(1), [1; 10]),
            bus: Arc::new(Bus::default()),
            tasks: Tasks::new(),
        };
        let registry = Registry::new(Arc::new(shared));
        let session = SessionId::from_parts(Timestamp::from_millis(1), [2; 10]);
        let (reply, answer) = oneshot::channel();
        let want = Want::Decide { request: Request::End, receipt: None };
        let requests = vec![Envelope { want, reply }];
        registry.hand_on(session, Leftover { requests, facts: vec![Fact::TimePassed] }).await;
        // The next driver found no such session: that is an answer, not a dropped request.
        let answer = answer.await.expect("somebody answers");
        assert!(matches!(answer, Err(EngineError::NotFound("session"))));
        registry.shared.tasks.abort().await;
    }
}
