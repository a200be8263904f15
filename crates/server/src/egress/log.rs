//! What is written down about each request of a sandbox: who, where, how much and how long. Never a
//! body, a header or a query.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ash_core::time::Timestamp;

use super::account::Account;

/// How much of a path or a host is written down: a sandbox chooses them.
const MAX_TEXT: usize = 200;

/// What a sandbox asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The model.
    Model,
    /// A connection to another host.
    Connect,
    /// A request to another host.
    Http,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Connect => "connect",
            Self::Http => "http",
        }
    }
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        /// Why a sandbox did not get what it asked for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Refusal {
            $($(#[$doc])* $name,)*
        }

        impl Refusal {
            /// The name that is shown; each has a page in `docs/errors`.
            pub(crate) const fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }
        }

        /// Every name of a refusal.
        pub(crate) const REFUSALS: &[&str] = &[$($code),*];
    };
}

refusals! {
    /// Nothing of the kind is open to sandboxes.
    RouteNotOpen = "route_not_open";
    /// It is no destination at all.
    BadDestination = "bad_destination";
    /// The agent's `ash.toml` does not name it.
    HostNotAllowed = "host_not_allowed";
    /// It leads to where sandboxes may not go.
    AddressNotAllowed = "address_not_allowed";
    /// It cannot be found or does not answer.
    Unreachable = "host_unreachable";
    /// The session has no more to spend.
    BudgetSpent = "budget_spent";
    /// The session asks too often.
    RateLimited = "rate_limited";
    /// The session has too many connections.
    TooManyTunnels = "too_many_tunnels";
    /// There is no key, or it cannot be used.
    InvalidCredential = "invalid_credential";
    /// The request does not end.
    TooLarge = "too_large";
    /// The request does not come.
    BodyTimeout = "body_timeout";
    /// What has to be looked up cannot be.
    Unavailable = "unavailable";
}

impl Refusal {
    /// For whoever counts.
    fn outcome(self) -> &'static str {
        match self {
            Self::BudgetSpent => "spent",
            Self::RateLimited | Self::TooManyTunnels => "limited",
            Self::Unreachable | Self::Unavailable => "failed",
            Self::RouteNotOpen
            | Self::BadDestination
            | Self::HostNotAllowed
            | Self::AddressNotAllowed
            | Self::InvalidCredential
            | Self::TooLarge
            | Self::BodyTimeout => "refused",
        }
    }
}

/// One request, as it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) at: Timestamp,
    pub(crate) kind: Kind,
    pub(crate) method: String,
    pub(crate) host: String,
    /// Of requests to the model.
    pub(crate) path: Option<String>,
    /// What was answered, if it came to that.
    pub(crate) status: Option<u16>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    pub(crate) first_byte: Option<Duration>,
    pub(crate) total: Duration,
}

/// A request that goes on. It is written down when the last who has to do with it is done, however that comes about.
pub(super) struct Exchange {
    account: Arc<Account>,
    at: Timestamp,
    begun: Instant,
    asked: Mutex<Asked>,
    first_byte: OnceLock<Duration>,
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
}

struct Asked {
    kind: Kind,
    method: String,
    host: String,
    path: Option<String>,
    status: Option<u16>,
    refusal: Option<Refusal>,
}

impl Exchange {
    pub(super) fn new(account: Arc<Account>, at: Timestamp, kind: Kind, method: &str) -> Self {
        let asked = Asked {
            kind,
            method: shortened(method),
            host: String::new(),
            path: None,
            status: None,
            refusal: None,
        };
        let (first_byte, up, down) = Default::default();
        Self { account, at, begun: Instant::now(), asked: Mutex::new(asked), first_byte, up, down }
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Where it is to go.
    pub(super) fn goes_to(&self, host: &str, path: Option<&str>) {
        let mut asked = self.asked();
        asked.host = shortened(host);
        asked.path = path.map(shortened);
    }

    /// What is asked of somebody else begins to be asked now: the time before was ours.
    pub(super) fn sets_out(&self) {
        metrics::histogram!("ash_egress_added_seconds").record(self.begun.elapsed());
    }

    /// It was answered so.
    pub(super) fn answered(&self, status: u16) {
        self.asked().status = Some(status);
    }

    /// It is not done.
    pub(super) fn refused(&self, refusal: Refusal) {
        self.asked().refusal = Some(refusal);
    }

    /// The first piece of what was asked for is there.
    pub(super) fn begins(&self) {
        self.first_byte.get_or_init(|| self.begun.elapsed());
    }

    pub(super) fn add_up(&self, bytes: usize) {
        self.up.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn add_down(&self, bytes: usize) {
        self.down.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let total = self.begun.elapsed();
        let asked = self.asked.get_mut().unwrap_or_else(PoisonError::into_inner);
        let record = Record {
            at: self.at,
            kind: asked.kind,
            method: std::mem::take(&mut asked.method),
            host: std::mem::take(&mut asked.host),
            path: asked.path.take(),
            status: asked.status,
            refusal: asked.refusal,
            bytes_up: self.up.load(Ordering::Relaxed),
            bytes_down: self.down.load(Ordering::Relaxed),
            first_byte: self.first_byte.get().copied(),
            total,
        };
        let outcome = match (record.refusal, record.status) {
            (Some(refusal), _) => refusal.outcome(),
            (None, Some(_)) => "answered",
            (None, None) => "cut",
        };
        let kind = record.kind.as_str();
        metrics::counter!("ash_egress_requests_total", "kind" => kind, "outcome" => outcome)
            .increment(1);
        record.print(&self.account);
        self.account.remember(record);
    }
}

impl Record {
    fn print(&self, account: &Account) {
        // A sandbox may ask as often as it likes; what it makes us print has a bound.
        let left_out = match self.refusal {
            Some(_) => match account.take_line() {
                Some(left_out) => left_out,
                None => return,
            },
            None => 0,
        };
        let (kind, result) = (self.kind.as_str(), self.result());
        tracing::info!(
            target: "egress",
            {
                session.id = %account.session,
                egress.kind = kind,
                egress.host = %self.host,
                egress.path = self.path.as_deref(),
                egress.result = %result,
                egress.bytes_up = self.bytes_up,
                egress.bytes_down = self.bytes_down,
                egress.first_byte_ms = self.first_byte.map(millis),
                duration_ms = millis(self.total),
                egress.left_out = left_out,
            },
            "session {} asked {} {}{}: {result}",
            account.session, self.method, self.host, self.path.as_deref().unwrap_or_default(),
        );
    }

    fn result(&self) -> String {
        match (self.refusal, self.status) {
            (Some(refusal), _) => refusal.code().to_owned(),
            (None, Some(status)) => status.to_string(),
            (None, None) => "cut".to_owned(),
        }
    }
}

/// A duration as it is shown.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// What of a text is written down.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}
