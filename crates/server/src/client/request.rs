//! One request and its answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::Problem;

use super::error::{Cause, ClientError};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer that needs no sandbox may take.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an answer may take that starts or stops something, or waits for a command, which may take
/// five minutes.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(330);

/// The longest answer that is read whole.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// How much of an answer that is not understood is shown.
const MAX_SHOWN_CHARS: usize = 80;

/// An API key. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerKey(String);

impl BearerKey {
    /// Takes a key for its own. White space around it belongs to the file it was read from.
    pub fn new(key: &str) -> Self {
        Self(key.trim().to_owned())
    }
}

impl fmt::Debug for BearerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerKey(..)")
    }
}

/// How often and how soon a broken connection is tried again.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The pause before the second attempt. Each further one is twice as long.
    pub first_pause: Duration,
    /// No pause is longer.
    pub longest_pause: Duration,
    /// After how many attempts without an answer a stream is given up.
    pub attempts: u32,
    /// After how many attempts a single request is given up.
    pub request_attempts: u32,
    /// After how long without a byte a stream counts as broken. The server sends a heartbeat every
    /// 15 seconds.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(5),
            attempts: 30,
            request_attempts: 4,
            silence: Duration::from_secs(60),
        }
    }
}

impl Patience {
    /// The pause after that many attempts in a row came to nothing. Half of it is left to chance:
    /// after an outage all clients come back, and should not come together.
    pub(super) fn pause(&self, attempts: u32) -> Duration {
        let doubled = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.first_pause.saturating_mul(doubled).min(self.longest_pause);
        let chance = f64::from(u32::from(random::<1>()[0])) / 255.0;
        whole.mul_f64(0.5 + chance / 2.0)
    }
}

/// Random bytes.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("an operating system without randomness runs no client");
    bytes
}

/// A new idempotency key.
pub(super) fn idempotency_key() -> String {
    uuid::Builder::from_random_bytes(random()).into_uuid().to_string()
}

/// Whether a request may be sent again when it is not known what became of it.
#[derive(Clone, Debug)]
pub(super) enum Repeat {
    /// It changes nothing the second time.
    Safe,
    /// The server knows it again by this key.
    Keyed(String),
    /// It might be done twice.
    Never,
}

/// How much of a body is handed over at a time, if somebody counts.
const PIECE: usize = 64 * 1024;

/// How far a body is on its way to the server, or from there. Whoever has a clone can look.
#[derive(Clone, Debug, Default)]
pub struct Transfer(Arc<(AtomicU64, AtomicU64)>);

impl Transfer {
    /// How many bytes were handed over or came, and of how many; 0, if that is not known.
    pub fn so_far(&self) -> (u64, u64) {
        (self.0.0.load(Ordering::Relaxed), self.0.1.load(Ordering::Relaxed))
    }

    /// It begins, maybe once more.
    pub(crate) fn begin(&self, all: u64) {
        self.0.0.store(0, Ordering::Relaxed);
        self.0.1.store(all, Ordering::Relaxed);
    }

    /// So much more was handed over.
    pub(crate) fn add(&self, bytes: usize) {
        self.0.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A request, ready to be sent any number of times.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: String,
    pub(super) body: Option<Vec<u8>>,
    pub(super) repeat: Repeat,
    /// Where a stream was cut.
    pub(super) last_event_id: Option<String>,
    /// Who counts what is sent.
    pub(super) transfer: Option<Transfer>,
}

impl Ask {
    pub(super) fn get(path: String) -> Self {
        Self::without_body(Method::GET, path)
    }

    fn without_body(method: Method, path: String) -> Self {
        let repeat = Repeat::Safe;
        Self { method, path, body: None, repeat, last_event_id: None, transfer: None }
    }

    pub(super) fn delete(path: String) -> Self {
        Self::without_body(Method::DELETE, path)
    }

    pub(super) fn send(
        method: Method,
        path: String,
        body: &impl Serialize,
        repeat: Repeat,
    ) -> Self {
        let body = serde_json::to_vec(body).expect("bodies of ours are JSON");
        Self { method, path, body: Some(body), repeat, last_event_id: None, transfer: None }
    }

    pub(super) fn post(path: String, body: &impl Serialize, repeat: Repeat) -> Self {
        Self::send(Method::POST, path, body, repeat)
    }
}

/// Speaks to one server with one key. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    /// The same, as it can be shown.
    shown: String,
    key: Option<HeaderValue>,
    patience: Patience,
}

impl Client {
    /// A client of the server at `url`, such as `http://127.0.0.1:4100`.
    ///
    /// # Errors
    /// The address or the key cannot be used. Nothing is sent yet.
    pub fn new(url: &str, key: Option<&BearerKey>) -> Result<Self, ClientError> {
        let wrong = |source| ClientError::Address { url: without_password(url), source };
        let parsed = Url::parse(url).map_err(|error| wrong(Cause::of(&error)))?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(wrong(Cause::new("it has to begin with http:// or https://")));
        }
        let key = key.map(|BearerKey(key)| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))?;
            value.set_sensitive(true);
            Ok::<_, reqwest::header::InvalidHeaderValue>(value)
        });
        let key = key.transpose().map_err(|_| ClientError::Key)?;
        // One crypto provider for the whole process; whoever came first chose the same.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("ash/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&parsed) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| wrong(Cause::of(&error)))?;
        let base = url.trim_end_matches('/').to_owned();
        let shown = without_password(&base);
        Ok(Self { http, base, shown, key, patience: Patience::default() })
    }

    /// The same client with another patience.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Where the server is, without a password.
    pub fn url(&self) -> &str {
        &self.shown
    }

    pub(super) fn patience(&self) -> &Patience {
        &self.patience
    }

    /// Asks, and reads the whole answer.
    pub(super) async fn ask<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, ClientError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let error = match self.ask_once(&ask).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // Nobody there at the first attempt: there is no server. Later it may be starting again.
            let lost = matches!(error, ClientError::Broken { .. })
                || (attempts > 1 && matches!(error, ClientError::Unreachable { .. }));
            let may_repeat = match ask.repeat {
                Repeat::Safe | Repeat::Keyed(_) => true,
                Repeat::Never => false,
            };
            if !lost || !may_repeat || attempts >= self.patience.request_attempts {
                return Err(error);
            }
            tokio::time::sleep(self.patience.pause(attempts)).await;
        }
    }

    async fn ask_once<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, ClientError> {
        let timeout = if ask.method == Method::GET { READ_TIMEOUT } else { CHANGE_TIMEOUT };
        let whole = async {
            let answer = self.open(ask, "application/json").await?;
            self.read(answer).await
        };
        tokio::time::timeout(timeout, whole).await.unwrap_or_else(|_| {
            let source = Cause::new(format!("no answer within {} seconds", timeout.as_secs()));
            Err(ClientError::Silent { url: self.shown.clone(), source })
        })
    }

    /// Asks, and returns once the head of a good answer is there.
    pub(super) async fn open(&self, ask: &Ask, accept: &str) -> Result<Response, ClientError> {
        let url = format!("{}{}", self.base, ask.path);
        let mut request = self.http.request(ask.method.clone(), url).header(ACCEPT, accept);
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        if let Some(body) = &ask.body {
            request = request.header(CONTENT_TYPE, "application/json");
            request = match &ask.transfer {
                None => request.body(body.clone()),
                Some(transfer) => {
                    let length = body.len() as u64;
                    request.header(CONTENT_LENGTH, length).body(counted(body, transfer))
                }
            };
        }
        if let Repeat::Keyed(key) = &ask.repeat {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(id) = &ask.last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        self.answered(request).await
    }

    /// A request that takes a body which is not JSON, with the key.
    pub(super) fn sending(&self, path: &str, repeat: &Repeat) -> reqwest::RequestBuilder {
        let mut request = self.http.post(format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        if let Repeat::Keyed(key) = repeat {
            request = request.header("Idempotency-Key", key);
        }
        request
    }

    /// Sends a request, and returns once the head of a good answer is there.
    pub(super) async fn answered(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<Response, ClientError> {
        let answer = request.send().await.map_err(|error| self.failed(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = self.whole(answer).await?;
        let problem = serde_json::from_slice::<Problem>(&body);
        Err(problem.map_or_else(|_| unexpected(status, &body), ClientError::Problem))
    }

    /// A failed connection as an error.
    pub(super) fn failed(&self, error: &reqwest::Error) -> ClientError {
        let (url, source) = (self.shown.clone(), Cause::of(error));
        if error.is_connect() {
            ClientError::Unreachable { url, source }
        } else if error.is_timeout() {
            ClientError::Silent { url, source }
        } else {
            ClientError::Broken { url, source }
        }
    }

    /// The whole answer to a request, as JSON.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        answer: Response,
    ) -> Result<T, ClientError> {
        let status = answer.status();
        let body = self.whole(answer).await?;
        serde_json::from_slice(&body).map_err(|_| unexpected(status, &body))
    }

    async fn whole(&self, mut answer: Response) -> Result<Vec<u8>, ClientError> {
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.failed(&error))? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(unexpected(answer.status(), b"(an answer without end)"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// A body that tells how much of it was taken.
fn counted(body: &[u8], transfer: &Transfer) -> reqwest::Body {
    transfer.begin(body.len() as u64);
    let pieces: Vec<Bytes> = body.chunks(PIECE).map(Bytes::copy_from_slice).collect();
    let transfer = transfer.clone();
    reqwest::Body::wrap_stream(futures_util::stream::iter(pieces.into_iter().map(move |piece| {
        transfer.add(piece.len());
        Ok::<_, std::convert::Infallible>(piece)
    })))
}

fn unexpected(status: StatusCode, body: &[u8]) -> ClientError {
    // On one line: it may be a page.
    let text = String::from_utf8_lossy(body);
    let text: Vec<&str> = text.split_whitespace().collect();
    let text: String = text.join(" ").chars().take(MAX_SHOWN_CHARS).collect();
    ClientError::Unexpected { status: status.as_u16(), text }
}

/// An address as it can be shown: who it is for and with which password is left out. It may be none.
fn without_password(url: &str) -> String {
    let start = url.find("//").map_or(0, |at| at + 2);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    match url[start..end].rfind('@') {
        Some(at) => format!("{}***{}", &url[..start], &url[start + at..]),
        None => url.to_owned(),
    }
}

/// Whether an address is one of this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A name as one segment of a path.
pub(super) fn segment(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// A path of a file, as an address has it.
pub(super) fn file_path(path: &str) -> String {
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_segment() {
        assert_eq!(segment("my-agent_2"), "my-agent_2");
        assert_eq!(segment("../a b?#ä"), "%2E%2E%2Fa%20b%3F%23%C3%A4");
    }

    #[test]
    fn an_address_that_is_none_is_refused_before_anything_is_sent() {
        for url in ["", "localhost:4100", "ftp://x", "http://"] {
            assert!(matches!(Client::new(url, None), Err(ClientError::Address { .. })), "{url}");
        }
        let key = BearerKey::new("a\nb");
        assert!(matches!(Client::new("http://x", Some(&key)), Err(ClientError::Key)));
        assert_eq!(format!("{key:?}"), "BearerKey(..)");
    }

    #[test]
    fn a_password_is_not_shown() {
        let url = "http://me:hush@127.0.0.1:4100/a@b";
        let client = Client::new(url, None).unwrap();
        assert_eq!(client.url(), "http://***@127.0.0.1:4100/a@b");
        let error = Client::new("ftp://me:hu@sh@x", None).unwrap_err();
        assert_eq!(error.to_string(), "`ftp://***@x` is not the address of a server");
        assert_eq!(without_password("me:hush@x"), "***@x");
        assert_eq!(without_password("http://x:1/a@b"), "http://x:1/a@b");
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let patience = Patience::default();
        for (attempts, whole) in [(1, 100), (2, 200), (4, 800), (7, 5_000), (1_000, 5_000)] {
            let pause = patience.pause(attempts).as_millis();
            assert!((whole / 2..=whole).contains(&pause), "{attempts}: {pause}");
        }
    }
}
