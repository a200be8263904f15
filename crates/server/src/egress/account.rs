//! What is known of each session that has asked for something: what it has spent, how fast it asks,
//! and what it asked for last.
//!
//! Nothing here comes from a sandbox: it is counted from what passes the proxy. What was spent is
//! booked at once, in memory, and written to the store by a task of the server ([`Accounts::keep`]).
//! A server that is killed loses what was booked in the milliseconds before, and nothing else.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ash_core::id::{CredentialId, SessionId, TenantId};
use ash_core::time::Timestamp;
use ash_store::{Spend, Store, StoreError};
use tokio::sync::{Notify, OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;

use super::log::Record;

/// How many sessions are remembered that ask for nothing now.
const MAX_REMEMBERED: usize = 1_000;

/// How many requests of a session are remembered.
pub(crate) const MAX_RECORDS: usize = 200;

/// How many answers of the model one session with a budget may be given at a time: what those cost is how far a
/// budget can be overdrawn.
const MAX_BUDGETED: usize = 8;

/// How many connections to other hosts one session may have.
const MAX_TUNNELS: usize = 32;

/// How many lines about refused requests of one session are printed in a minute.
const LINES_PER_MINUTE: u32 = 60;

/// How long what was booked is gathered before it is written, at the most: a write costs more than an answer.
const SAVE_PAUSE: Duration = Duration::from_millis(20);

/// How long to wait before what could not be written is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What a session may spend.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Budget {
    /// In US dollars.
    pub(crate) usd: Option<f64>,
    /// In tokens of every kind.
    pub(crate) tokens: Option<u64>,
}

impl Budget {
    pub(crate) fn is_limited(self) -> bool {
        self.usd.is_some() || self.tokens.is_some()
    }

    /// Why there is nothing left of it, if there is nothing.
    pub(crate) fn exhausted_by(self, spent: Spend) -> Option<String> {
        if let Some(usd) = self.usd
            && dollars(spent.cost) >= usd
        {
            return Some(format!("the session has spent its budget of {usd} US dollars"));
        }
        let tokens = self.tokens.filter(|tokens| spent.tokens >= *tokens)?;
        Some(format!("the session has spent its budget of {tokens} tokens"))
    }
}

/// A cost as people write it.
#[expect(clippy::cast_precision_loss, reason = "no session costs as much as a float cannot hold")]
pub(crate) fn dollars(cost: u64) -> f64 {
    cost as f64 / 1e8
}

/// So many a minute, and as many at once.
#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: u32) -> Self {
        Self { left: f64::from(rate), at: Instant::now() }
    }

    /// Takes one, or says after how many seconds there is one.
    fn take(&mut self, rate: u32, now: Instant) -> Result<(), u64> {
        let per_second = f64::from(rate) / 60.0;
        let refilled = self.left + now.duration_since(self.at).as_secs_f64() * per_second;
        *self = Self { left: refilled.min(f64::from(rate)), at: now };
        if self.left >= 1.0 {
            self.left -= 1.0;
            return Ok(());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates, and a minute is all it can be"
        )]
        let seconds = ((1.0 - self.left) / per_second).ceil() as u64;
        Err(seconds.max(1))
    }
}

/// What is known of one session.
pub(crate) struct Account {
    pub(super) session: SessionId,
    /// What was in the store when it was first asked for; nothing was booked before.
    stored: OnceCell<Spend>,
    sums: Mutex<Sums>,
    requests: Mutex<Option<Bucket>>,
    lines: Mutex<(Bucket, u64)>,
    records: Mutex<VecDeque<Record>>,
    last_used: Mutex<Instant>,
    /// One for each answer of the model, if there is a budget.
    pub(super) budgeted: Arc<Semaphore>,
    /// One for each connection to another host.
    pub(super) tunnels: Arc<Semaphore>,
}

/// What was booked since the account was opened, and how much of it is in the store.
#[derive(Default)]
struct Sums {
    booked: Spend,
    saved: Spend,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Account {
    fn new(session: SessionId) -> Self {
        Self {
            session,
            stored: OnceCell::new(),
            sums: Mutex::default(),
            requests: Mutex::default(),
            lines: Mutex::new((Bucket::full(LINES_PER_MINUTE), 0)),
            records: Mutex::default(),
            last_used: Mutex::new(Instant::now()),
            budgeted: Arc::new(Semaphore::new(MAX_BUDGETED)),
            tunnels: Arc::new(Semaphore::new(MAX_TUNNELS)),
        }
    }

    /// Takes one of the requests that may be made in a minute, or says when to come back.
    pub(super) fn take_request(&self, rate: u32) -> Result<(), u64> {
        let mut bucket = lock(&self.requests);
        bucket.get_or_insert_with(|| Bucket::full(rate)).take(rate, Instant::now())
    }

    /// Whether there may be another line about a refusal, and how many were left out before it.
    pub(super) fn take_line(&self) -> Option<u64> {
        let (bucket, left_out) = &mut *lock(&self.lines);
        if bucket.take(LINES_PER_MINUTE, Instant::now()).is_err() {
            *left_out += 1;
            return None;
        }
        Some(std::mem::take(left_out))
    }

    pub(super) fn remember(&self, record: Record) {
        let mut records = lock(&self.records);
        if records.len() >= MAX_RECORDS {
            records.pop_back();
        }
        records.push_front(record);
    }

    fn unsaved(&self) -> Spend {
        let sums = lock(&self.sums);
        sums.booked.minus(sums.saved)
    }
}

/// Every account, and where they are kept.
pub(crate) struct Accounts {
    store: Option<Arc<dyn Store>>,
    open: Mutex<HashMap<SessionId, Arc<Account>>>,
    /// Those with something that is not in the store yet.
    unsaved: Mutex<BTreeMap<SessionId, Arc<Account>>>,
    /// Credentials that were used, and when they were last.
    used: Mutex<BTreeMap<(TenantId, CredentialId), Timestamp>>,
    wake: Notify,
}

impl Accounts {
    /// Over a store, if what is spent is to outlive the server.
    pub(super) fn new(store: Option<Arc<dyn Store>>) -> Self {
        let (open, unsaved, used) = Default::default();
        Self { store, open, unsaved, used, wake: Notify::new() }
    }

    /// The account of a session.
    pub(super) fn of(&self, session: SessionId) -> Arc<Account> {
        let mut open = lock(&self.open);
        if let Some(account) = open.get(&session) {
            *lock(&account.last_used) = Instant::now();
            return Arc::clone(account);
        }
        if open.len() >= MAX_REMEMBERED {
            // Whoever is in use, or has something to be written, is held by somebody else too.
            let idle = open.iter().filter(|(_, account)| Arc::strong_count(account) == 1);
            let oldest = idle.min_by_key(|(_, account)| *lock(&account.last_used));
            if let Some(id) = oldest.map(|(id, _)| *id) {
                open.remove(&id);
            }
        }
        let account = Arc::new(Account::new(session));
        open.insert(session, Arc::clone(&account));
        account
    }

    /// What a session has spent. It is asked before anything is booked, so nothing counts twice.
    pub(crate) async fn spent(&self, account: &Account) -> Result<Spend, StoreError> {
        let read = async || match &self.store {
            Some(store) => store.spend(account.session).await,
            None => Ok(Spend::default()),
        };
        let stored = *account.stored.get_or_try_init(read).await?;
        Ok(stored.plus(lock(&account.sums).booked))
    }

    /// Counts that a session has spent more.
    pub(super) fn book(&self, account: &Arc<Account>, more: Spend) {
        if more == Spend::default() {
            return;
        }
        let mut sums = lock(&account.sums);
        sums.booked = sums.booked.plus(more);
        drop(sums);
        if self.store.is_some() {
            lock(&self.unsaved).insert(account.session, Arc::clone(account));
            self.wake.notify_one();
        }
    }

    /// Notes that a credential is used. It is a note for people: no request waits for it.
    pub(super) fn note_use(&self, credential: (TenantId, CredentialId), at: Timestamp) {
        lock(&self.used).insert(credential, at);
        self.wake.notify_one();
    }

    /// The latest requests of a session, newest first.
    pub(super) fn records(&self, session: SessionId) -> Vec<Record> {
        let account = lock(&self.open).get(&session).cloned();
        account.map(|account| lock(&account.records).iter().cloned().collect()).unwrap_or_default()
    }

    /// Writes what is booked to the store as it comes, until told to stop.
    pub(super) async fn keep(&self, stop: CancellationToken) {
        while stop.run_until_cancelled(self.wake.notified()).await.is_some() {
            let pause = if self.save().await {
                SAVE_PAUSE
            } else {
                self.wake.notify_one();
                RETRY_PAUSE
            };
            let _stopped = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
    }

    /// Writes what is booked to the store; false, if something could not be written.
    pub(super) async fn save(&self) -> bool {
        let Some(store) = &self.store else { return true };
        let used = std::mem::take(&mut *lock(&self.used));
        for ((tenant, id), at) in used {
            let _not_noted = store.touch_credential(&tenant, id, at).await;
        }
        let accounts: Vec<_> = lock(&self.unsaved).values().cloned().collect();
        let mut is_all = true;
        for account in accounts {
            let more = account.unsaved();
            match store.add_spend(account.session, more).await {
                Ok(()) => {
                    let mut sums = lock(&account.sums);
                    sums.saved = sums.saved.plus(more);
                }
                // Whoever removed the session has no use for it either.
                Err(StoreError::NotFound(_)) => {
                    let mut sums = lock(&account.sums);
                    sums.saved = sums.booked;
                }
                Err(error) => {
                    tracing::warn!(
                        session.id = %account.session,
                        error = &error as &dyn std::error::Error,
                        "what session {} has spent could not be written yet", account.session,
                    );
                    is_all = false;
                }
            }
            let mut unsaved = lock(&self.unsaved);
            if account.unsaved() == Spend::default() {
                unsaved.remove(&account.session);
            }
        }
        is_all
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn session(number: u8) -> SessionId {
        SessionId::from_parts(Timestamp::from_millis(1), [number; 10])
    }

    #[test]
    fn a_budget_is_spent_when_it_is_reached() {
        let spent = Spend { cost: 150_000_000, tokens: 1_000 };
        for (usd, tokens, said) in [
            (None, None, None),
            (Some(1.6), Some(1_001), None),
            (Some(1.5), None, Some("1.5 US dollars")),
            (Some(0.0), None, Some("0 US dollars")),
            (Some(2.0), Some(1_000), Some("1000 tokens")),
        ] {
            let why = Budget { usd, tokens }.exhausted_by(spent);
            assert_eq!(why.is_some(), said.is_some(), "{usd:?} {tokens:?}: {why:?}");
            assert!(why.unwrap_or_default().contains(said.unwrap_or_default()));
        }
    }

    #[test]
    fn requests_come_back_with_time() {
        let now = Instant::now();
        let mut bucket = Bucket { left: 2.0, at: now };
        assert_eq!((bucket.take(2, now), bucket.take(2, now)), (Ok(()), Ok(())));
        assert_eq!(bucket.take(2, now), Err(30));
        assert_eq!(bucket.take(2, now + Duration::from_secs(29)), Err(1));
        assert_eq!(bucket.take(2, now + Duration::from_secs(31)), Ok(()));
        assert_eq!(bucket.take(2, now + Duration::from_secs(600)), Ok(()));
    }

    #[tokio::test]
    async fn idle_accounts_are_forgotten_and_those_in_use_are_not() {
        let accounts = Accounts::new(None);
        let kept = accounts.of(session(255));
        accounts.book(&kept, Spend { cost: 5, tokens: 1 });
        let id = |number: usize| {
            let [.., a, b] = number.to_be_bytes();
            SessionId::from_parts(Timestamp::from_millis(2), [a, b, 0, 0, 0, 0, 0, 0, 0, 0])
        };
        for number in 0..MAX_REMEMBERED * 2 {
            drop(accounts.of(id(number)));
        }
        assert!(lock(&accounts.open).len() <= MAX_REMEMBERED);
        let spent = accounts.spent(&accounts.of(session(255))).await.unwrap();
        assert_eq!(spent, Spend { cost: 5, tokens: 1 });
    }
}
