//! The only way out of a sandbox: the model, with the key added here, and the hosts that its agent names.
//!
//! A sandbox's listener is accepted on by the server, so a request is known by the socket it came
//! in on and nothing in it has to be believed. `docs/egress.md` is the manual.
//!
//! ```text
//!   sandbox ──► door ──┬─ POST /v1/messages ──► model ───► the provider, with the key; read by a meter
//!                      ├─ CONNECT host:port ──► tunnel ─┐
//!                      └─ GET http://host/ ───► plain ──┴► guard: allowed? public? then that address itself
//! ```
//!
//! | part | job |
//! |---|---|
//! | `door` | accepts, within bounds, and says what a request is |
//! | `model` | passes requests to the model, within the session's budget |
//! | `provider` | connections to the model's provider |
//! | `meter` | reads what an answer consumed, while it passes |
//! | `tunnel`, `plain` | other hosts, as a connection and as a request |
//! | `guard`, `address` | who may be reached, and where that is |
//! | `account` | what each session has spent, and how fast it asks |
//! | `log` | what is written down of each request |

mod account;
mod address;
mod body;
mod door;
mod guard;
mod log;
mod meter;
mod model;
mod plain;
mod provider;
mod tunnel;

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ash_core::id::SessionId;
use ash_core::time::Clock;
use ash_engine::SystemClock;
use ash_engine::bridge::{Egress, EgressGuard};
use ash_engine::host::SandboxRef;
use ash_store::{Spend, Store, StoreError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use account::{Budget, dollars};
pub use address::PrivateHosts;
pub(crate) use log::{REFUSALS, Record, millis};

use self::account::Accounts;
use self::door::{Door, MAX_ALL_CONNECTIONS, MAX_ALL_TUNNELS};
use self::guard::Guard;
use self::provider::Provider;
use crate::credentials::SessionCredentials;

/// How long a connection to somebody else may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the end of the server waits for what was just cut, so that it is counted.
const CUT_PATIENCE: Duration = Duration::from_millis(500);

/// A model key. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ModelKey(String);

impl ModelKey {
    /// Takes a key for its own.
    pub fn new(key: String) -> Self {
        Self(key)
    }
}

impl fmt::Debug for ModelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelKey(..)")
    }
}

/// Nobody can be spoken to in secret.
#[derive(Debug, thiserror::Error)]
#[error("the system has no certificates that can be used")]
pub struct NoCertificates(#[source] Box<dyn std::error::Error + Send + Sync>);

impl From<reqwest::Error> for NoCertificates {
    fn from(error: reqwest::Error) -> Self {
        Self(error.into())
    }
}

impl From<rustls::Error> for NoCertificates {
    fn from(error: rustls::Error) -> Self {
        Self(error.into())
    }
}

/// Where the model's provider is, and what it wants to see.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its address, such as `https://api.anthropic.com`.
    pub base_url: String,
    /// The key; nothing: requests are answered with an error that says so.
    pub key: Option<ModelKey>,
}

/// What a server has beside the provider.
pub(crate) struct Surroundings {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sessions: SessionCredentials,
    pub(crate) clock: Arc<dyn Clock>,
    /// How many requests to the model a session may make in a minute.
    pub(crate) rate_limit: Option<NonZeroU32>,
    /// What sandboxes may reach though it is not on the internet.
    pub(crate) private: PrivateHosts,
}

/// Accepts what sandboxes ask of others. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct ModelProxy(Arc<Inner>);

struct Inner {
    provider: Provider,
    /// The server's own.
    key: Option<ModelKey>,
    /// Nothing: every session has the server's key, no budget, and no other host.
    sessions: Option<SessionCredentials>,
    clock: Arc<dyn Clock>,
    rate_limit: Option<NonZeroU32>,
    accounts: Accounts,
    guard: Guard,
    /// One for each request of whichever sandbox.
    places: Arc<Semaphore>,
    /// One for each connection of whichever sandbox to another host.
    tunnels: Arc<Semaphore>,
}

impl ModelProxy {
    /// A proxy to one provider, and to nobody else.
    ///
    /// # Errors
    /// The system has no certificates.
    pub fn new(upstream: Upstream) -> Result<Self, NoCertificates> {
        Self::put_together(upstream, None)
    }

    /// The proxy of a server.
    pub(crate) fn within(upstream: Upstream, around: Surroundings) -> Result<Self, NoCertificates> {
        Self::put_together(upstream, Some(around))
    }

    fn put_together(
        upstream: Upstream,
        around: Option<Surroundings>,
    ) -> Result<Self, NoCertificates> {
        // One crypto provider for the whole process; whoever came first chose the same.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let places = Arc::new(Semaphore::new(MAX_ALL_CONNECTIONS));
        let tunnels = Arc::new(Semaphore::new(MAX_ALL_TUNNELS));
        let (store, sessions, clock, rate_limit, private): (_, _, Arc<dyn Clock>, _, _) =
            match around {
                Some(Surroundings { store, sessions, clock, rate_limit, private }) => {
                    (Some(store), Some(sessions), clock, rate_limit, private)
                }
                None => (None, None, Arc::new(SystemClock), None, PrivateHosts::default()),
            };
        let guard = Guard::new(private)?;
        let provider = Provider::new(&guard.client, &upstream.base_url)?;
        let accounts = Accounts::new(store);
        Ok(Self(Arc::new(Inner {
            provider,
            key: upstream.key,
            sessions,
            clock,
            rate_limit,
            accounts,
            guard,
            places,
            tunnels,
        })))
    }

    /// What a session has spent, as far as it was counted.
    pub(crate) async fn spent(&self, session: SessionId) -> Result<Spend, StoreError> {
        self.0.accounts.spent(&self.0.accounts.of(session)).await
    }

    /// The latest requests of a session, newest first.
    pub(crate) fn records(&self, session: SessionId) -> Vec<Record> {
        self.0.accounts.records(session)
    }

    /// Writes down what sessions spend, until told to stop.
    pub(crate) async fn keep_accounts(self, stop: CancellationToken) {
        self.0.accounts.keep(stop).await;
    }

    /// Writes down what is left to be written. Nobody is served any more.
    pub(crate) async fn close_accounts(&self) {
        // What was cut is counted when it is dropped, and its place with it.
        let all = u32::try_from(MAX_ALL_CONNECTIONS).unwrap_or(u32::MAX);
        let _late = tokio::time::timeout(CUT_PATIENCE, self.0.places.acquire_many(all)).await;
        self.0.accounts.save().await;
    }
}

impl Egress for ModelProxy {
    fn serve(&self, sandbox: SandboxRef, listener: TcpListener) -> io::Result<EgressGuard> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut tasks = JoinSet::new();
        let account = self.0.accounts.of(sandbox.session);
        tasks.spawn(door::accept(listener, Door { proxy: self.clone(), sandbox, account }));
        // Dropped with its guard, a set ends its tasks.
        Ok(Box::new(Mutex::new(tasks)))
    }
}
