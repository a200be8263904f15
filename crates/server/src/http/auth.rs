//! Who is asking, and whether it may.
//!
//! A key belongs to a tenant; everything a request sees and does is that tenant's. Where the server
//! listens on loopback only, a browser on the same machine is the way in for strangers: pages that
//! make it send requests here. They are told by a foreign `Host` (a name that was made to point
//! here) or a foreign `Origin`, and refused.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ash_core::id::TenantId;
use ash_store::{KeyHash, Store, StoreError};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use tokio::sync::watch;

use super::code::Code;
use super::error::ApiError;
use crate::secret::ApiSecret;

/// Who is asking.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) tenant: TenantId,
    /// The key it came with: what it is told for long, it is told for as long as the key is valid.
    pub(crate) key: KeyHash,
}

/// How long a key that was found counts as good without another look. A key that is revoked here is
/// forgotten at once; one that is revoked by another server, after this.
const REMEMBERED: Duration = Duration::from_secs(5);

/// How many keys are remembered at the most.
const MAX_REMEMBERED: usize = 10_000;

/// Knows keys.
pub(crate) struct Keys {
    /// The key in the server's environment: the default tenant's.
    environment: Option<KeyHash>,
    /// How many requests a key may make in a minute.
    rate: Option<u32>,
    known: Mutex<HashMap<KeyHash, Known>>,
    /// Counts revocations.
    revoked: watch::Sender<u64>,
}

struct Known {
    tenant: TenantId,
    until: Instant,
    bucket: Bucket,
}

/// Requests that a key may make now; refilled as time goes by.
struct Bucket {
    left: f64,
    at: Instant,
}

impl Keys {
    pub(crate) fn new(environment: Option<&ApiSecret>, rate: Option<u32>) -> Self {
        Self {
            environment: environment.map(ApiSecret::hash),
            rate,
            known: Mutex::default(),
            revoked: watch::Sender::new(0),
        }
    }

    /// Finds out who is asking.
    pub(crate) async fn caller(
        &self,
        store: &dyn Store,
        headers: &HeaderMap,
    ) -> Result<Caller, ApiError> {
        let secret = presented(headers)?;
        let key = secret.hash();
        let now = Instant::now();
        let remembered = self
            .known()
            .get(&key)
            .filter(|known| known.until > now)
            .map(|known| known.tenant.clone());
        let tenant = match remembered {
            Some(tenant) => tenant,
            None => {
                let tenant = self.look_up(store, &key).await?;
                self.remember(key, tenant.clone(), now);
                tenant
            }
        };
        self.spend(&key, now)?;
        Ok(Caller { tenant, key })
    }

    /// Forgets what is known of keys: one was revoked.
    pub(crate) fn forget(&self) {
        let now = Instant::now();
        self.known().values_mut().for_each(|known| known.until = now);
        self.revoked.send_modify(|count| *count += 1);
    }

    /// Hears when a key is revoked, whichever it is.
    pub(crate) fn revocations(&self) -> watch::Receiver<u64> {
        self.revoked.subscribe()
    }

    /// Whether a key still lets its tenant in. If that cannot be found out now, it does.
    pub(crate) async fn is_valid(&self, store: &dyn Store, caller: &Caller) -> bool {
        match self.look_up(store, &caller.key).await {
            Ok(tenant) => tenant == caller.tenant,
            Err(error) => error.status != StatusCode::UNAUTHORIZED,
        }
    }

    async fn look_up(&self, store: &dyn Store, key: &KeyHash) -> Result<TenantId, ApiError> {
        if self.environment.as_ref() == Some(key) {
            return Ok(TenantId::default_tenant());
        }
        match store.api_key_by_hash(key).await {
            Ok(found) => Ok(found.tenant),
            Err(StoreError::NotFound(_)) => Err(unauthorized("Invalid API key")),
            Err(error) => Err(error.into()),
        }
    }

    fn remember(&self, key: KeyHash, tenant: TenantId, now: Instant) {
        let mut known = self.known();
        if known.len() >= MAX_REMEMBERED {
            known.retain(|_, known| known.until > now);
        }
        let until = now + REMEMBERED;
        let full = f64::from(self.rate.unwrap_or_default());
        known
            .entry(key)
            .and_modify(|known| (known.until, known.tenant) = (until, tenant.clone()))
            .or_insert(Known { tenant, until, bucket: Bucket { left: full, at: now } });
    }

    /// Takes one of the requests that a key may make.
    fn spend(&self, key: &KeyHash, now: Instant) -> Result<(), ApiError> {
        let Some(rate) = self.rate else { return Ok(()) };
        let mut known = self.known();
        let Some(Known { bucket, .. }) = known.get_mut(key) else { return Ok(()) };
        let per_second = f64::from(rate) / 60.0;
        let refilled = bucket.left + now.duration_since(bucket.at).as_secs_f64() * per_second;
        *bucket = Bucket { left: refilled.min(f64::from(rate)), at: now };
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates, and a minute is all it can be"
        )]
        let seconds = ((1.0 - bucket.left) / per_second).ceil() as u64;
        let message = "Too many requests with this key";
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, Code::RATE_LIMITED, message);
        Err(error.later(seconds.max(1)))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<KeyHash, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key that a request carries.
pub(super) fn presented(headers: &HeaderMap) -> Result<ApiSecret, ApiError> {
    let value = headers
        .get(header::AUTHORIZATION)
        .ok_or_else(|| unauthorized("Missing Authorization header"))?;
    let malformed = || unauthorized("Invalid Authorization header format");
    let value = value.to_str().map_err(|_| malformed())?;
    let (scheme, key) = value.split_once(' ').ok_or_else(malformed)?;
    if !scheme.eq_ignore_ascii_case("bearer") || key.trim().is_empty() {
        return Err(malformed());
    }
    Ok(ApiSecret::from_text(key.trim()))
}

pub(super) fn unauthorized(message: &'static str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, Code::UNAUTHORIZED, message)
}

/// Which pages may make a browser send requests here.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Those that the operator allows.
    pub allowed: Vec<String>,
    /// Whether the server listens on loopback only: then hosts are looked at, and pages of the same
    /// machine are allowed.
    pub loopback: bool,
}

impl Origins {
    /// Whether a request may come from where it says it comes from.
    pub(crate) fn check(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), ApiError> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let ours = |host: &HeaderValue| host.to_str().is_ok_and(is_loopback);
        if self.loopback && !uri.authority().is_none_or(|named| is_loopback(named.as_str())) {
            return Err(foreign(Code::FOREIGN_HOST, "This host name is not the server's"));
        }
        if self.loopback && !(hosts.next().is_some_and(ours) && hosts.next().is_none()) {
            return Err(foreign(Code::FOREIGN_HOST, "This host name is not the server's"));
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let is_allowed = |origin: &str| self.allows(origin) || self.is_own(origin, headers);
        if origin.to_str().is_ok_and(is_allowed) {
            return Ok(());
        }
        Err(foreign(Code::FOREIGN_ORIGIN, "Pages of this origin may not send requests here"))
    }

    /// Whether a page was served under the name that it asks now. On loopback, where any name can be made to lead, that
    /// says nothing; elsewhere a page needs a key, which one of another site does not have.
    fn is_own(&self, origin: &str, headers: &HeaderMap) -> bool {
        let page = origin.split_once("://").map(|(_, host)| host);
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        !self.loopback && page.zip(host).is_some_and(|(page, host)| page.eq_ignore_ascii_case(host))
    }

    /// Whether a page may read what is answered.
    pub(crate) fn allows(&self, origin: &str) -> bool {
        if self.allowed.iter().any(|allowed| allowed == "*" || allowed == origin) {
            return true;
        }
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        self.loopback && is_loopback(host)
    }
}

fn foreign(code: Code, message: &'static str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, code, message)
}

/// Whether a host, with or without a port, can only be this machine. Behind the name nothing but a
/// port may stand: `localhost:1@evil.example` is somebody else's.
fn is_loopback(host: &str) -> bool {
    let (name, rest) = match host.strip_prefix('[') {
        Some(inner) => inner.split_once(']').unwrap_or(("", inner)),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let ours = name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    ours && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

#[cfg(test)]
mod test {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        headers
    }

    #[test]
    fn on_loopback_only_this_machine_may_ask() {
        let origins = Origins { allowed: vec!["https://ours.example".to_owned()], loopback: true };
        for host in ["localhost:4100", "127.0.0.1", "127.9.9.9:1", "[::1]:4100", "LOCALHOST"] {
            assert!(origins.check(&headers(host, None), &Uri::default()).is_ok(), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:4100",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "localhost:4100@evil.example",
            "127.0.0.1:4100@evil.example:80",
            "[::1]@evil.example",
            "[::1].evil.example",
            "[::1",
            "",
        ] {
            assert_eq!(
                origins.check(&headers(host, None), &Uri::default()).unwrap_err().code,
                Code::FOREIGN_HOST
            );
        }
        for (origin, fine) in [
            ("http://localhost:3000", true),
            ("https://ours.example", true),
            ("https://evil.example", false),
            ("null", false),
        ] {
            let checked = origins.check(&headers("localhost", Some(origin)), &Uri::default());
            assert_eq!(checked.is_ok(), fine, "{origin}");
        }
    }

    #[test]
    fn elsewhere_the_operator_decides() {
        let origins = Origins { allowed: vec!["https://ours.example".to_owned()], loopback: false };
        assert!(origins.check(&headers("anything.example", None), &Uri::default()).is_ok());
        assert!(
            origins.check(&headers("a", Some("https://ours.example")), &Uri::default()).is_ok()
        );
        assert!(origins.check(&headers("a", Some("http://localhost")), &Uri::default()).is_err());
        let own = headers("ash.example:4100", Some("http://ASH.example:4100"));
        assert!(origins.check(&own, &Uri::default()).is_ok(), "a page of the server itself");
        let other_port = headers("ash.example:4100", Some("http://ash.example"));
        assert!(origins.check(&other_port, &Uri::default()).is_err());
    }
}
