//! The only way out of a sandbox: its requests to the model, with the key added here.
//!
//! A sandbox's listener is accepted on by the server, so a request is known by the socket it came
//! in on and nothing in it has to be believed. What it says of keys, cookies and hosts is dropped;
//! where it goes is not its to say. Answers are passed on as they come, byte for byte.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ash_core::id::SessionId;
use ash_engine::bridge::{Egress, EgressGuard};
use ash_engine::host::SandboxRef;
use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long a connection to the model's provider may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many requests of one sandbox are served at a time, and of all of them: each takes two descriptors.
/// More wait in the backlog.
const MAX_CONNECTIONS: usize = 64;
const MAX_ALL_CONNECTIONS: usize = 2_048;

/// How long to wait after a connection could not be accepted, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a sandbox may take for the head of a request, and for each piece of its body.
const REQUEST_PATIENCE: Duration = Duration::from_secs(20);

/// What a sandbox may ask for.
const ROUTES: [(Method, &str); 3] = [
    (Method::POST, "/v1/messages"),
    (Method::POST, "/v1/messages/count_tokens"),
    (Method::GET, "/v1/models"),
];

/// What a request may carry on: what it is about, and nothing about who sends it.
const PASSED_ON: [&str; 7] = [
    "accept",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "anthropic-version",
    "content-length",
    "content-type",
    "user-agent",
];

/// Belongs to one connection, not to what is sent over it.
const HOP_BY_HOP: [HeaderName; 5] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TRAILER,
    header::UPGRADE,
];

/// Says whose account it is, or is meant for nobody but the proxy.
const OF_THE_ACCOUNT: [&str; 2] = ["anthropic-organization-id", "set-cookie"];

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

/// Where the model's provider is, and what it wants to see.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its address, such as `https://api.anthropic.com`.
    pub base_url: String,
    /// The key; nothing: requests are answered with an error that says so.
    pub key: Option<ModelKey>,
}

/// Knows which sessions have a key of their own.
#[async_trait]
pub trait SessionKeys: Send + Sync + 'static {
    /// The key that a session's requests are made with, if it is not the server's. An error is a
    /// sentence for whoever asked: it has no key then, not another one.
    async fn key(&self, session: SessionId) -> Result<Option<ModelKey>, String>;
}

/// Accepts what sandboxes ask of the model.
#[derive(Clone)]
pub struct ModelProxy {
    client: reqwest::Client,
    upstream: Upstream,
    keys: Option<Arc<dyn SessionKeys>>,
    /// One for each request of whichever sandbox.
    places: Arc<Semaphore>,
}

/// The proxy of one sandbox.
struct Door {
    proxy: ModelProxy,
    sandbox: SandboxRef,
}

impl ModelProxy {
    /// A proxy to one provider.
    pub fn new(upstream: Upstream) -> Result<Self, reqwest::Error> {
        // One crypto provider for the whole process; whoever came first chose the same.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        let places = Arc::new(Semaphore::new(MAX_ALL_CONNECTIONS));
        Ok(Self { client, upstream, keys: None, places })
    }

    /// Lets sessions have keys of their own.
    #[must_use]
    pub fn with_keys(self, keys: Arc<dyn SessionKeys>) -> Self {
        Self { keys: Some(keys), ..self }
    }

    /// The key that a session's requests are made with.
    async fn key(&self, session: SessionId) -> Result<ModelKey, String> {
        let own = match &self.keys {
            Some(keys) => keys.key(session).await?,
            None => None,
        };
        own.or_else(|| self.upstream.key.clone())
            .ok_or_else(|| "the server has no key for the model: set ANTHROPIC_API_KEY".to_owned())
    }
}

impl Egress for ModelProxy {
    fn serve(&self, sandbox: SandboxRef, listener: TcpListener) -> io::Result<EgressGuard> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Door { proxy: self.clone(), sandbox }));
        // Dropped with its guard, a set ends its tasks.
        Ok(Box::new(Mutex::new(tasks)))
    }
}

async fn accept(listener: tokio::net::TcpListener, door: Door) {
    let (sandbox, places) = (door.sandbox, Arc::clone(&door.proxy.places));
    let router = Router::new().fallback(forward).with_state(Arc::new(door));
    // Dropped with this task: when nobody serves the sandbox any more, what was under way is cut,
    // and the agent repeats it.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes it");
        match listener.accept().await {
            Ok((stream, _)) => {
                let service = TowerToHyperService::new(router.clone());
                let _no_matter = stream.set_nodelay(true);
                connections.spawn(async move {
                    let served = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(REQUEST_PATIENCE)
                        .keep_alive(false)
                        .serve_connection(TokioIo::new(stream), service);
                    // A sandbox that breaks its connection off has its reasons.
                    let _broken_off = served.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(
                    session.id = %sandbox.session,
                    error = &error as &dyn std::error::Error,
                    "a request of session {} to the model was not accepted", sandbox.session,
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Passes one request on.
async fn forward(State(door): State<Arc<Door>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    if !ROUTES.iter().any(|(method, route)| *method == parts.method && *route == path) {
        let message = format!("{} {path} is not open to a sandbox", parts.method);
        return refusal(StatusCode::FORBIDDEN, "permission_error", &message);
    }
    let key = match door.proxy.key(door.sandbox.session).await {
        Ok(ModelKey(key)) => key,
        Err(message) => {
            return refusal(StatusCode::UNAUTHORIZED, "authentication_error", &message);
        }
    };
    let Ok(mut key) = HeaderValue::from_str(&key) else {
        let message = "the server's key for the model has characters that no key has";
        return refusal(StatusCode::UNAUTHORIZED, "authentication_error", message);
    };
    key.set_sensitive(true);
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let url = format!("{}{path}{query}", door.proxy.upstream.base_url.trim_end_matches('/'));
    let takes_body = parts.method == Method::POST;
    let mut headers = passed_on(&parts.headers);
    let mut sent = door.proxy.client.request(parts.method, url);
    if takes_body {
        sent = sent.body(reqwest::Body::wrap_stream(impatient(body)));
    } else {
        // A question has none, and whoever answers it may take one for the next question.
        headers.remove(header::CONTENT_LENGTH);
    }
    let sent = sent.headers(headers).header("x-api-key", key).send().await;
    match sent {
        Ok(answer) => pass_back(answer),
        Err(error) => {
            let message = format!("the model's provider cannot be reached: {}", root_of(&error));
            refusal(StatusCode::BAD_GATEWAY, "api_error", &message)
        }
    }
}

/// A body that does not keep its place for ever.
fn impatient(body: Body) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::unfold(body.into_data_stream(), |mut body| async {
        let next = tokio::time::timeout(REQUEST_PATIENCE, body.next()).await;
        let next = next.unwrap_or_else(|_| Some(Err(axum::Error::new(late()))));
        next.map(|chunk| (chunk.map_err(io::Error::other), body))
    })
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the sandbox did not finish its request")
}

fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let wanted = headers.iter().filter(|(name, _)| PASSED_ON.contains(&name.as_str()));
    wanted.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn pass_back(answer: reqwest::Response) -> Response {
    let status = answer.status();
    let headers = answer.headers().clone();
    let stream = answer.bytes_stream().map_err(io::Error::other);
    let mut response = Response::new(Body::from_stream(stream));
    *response.status_mut() = status;
    for (name, value) in &headers {
        if !HOP_BY_HOP.contains(name) && !OF_THE_ACCOUNT.contains(&name.as_str()) {
            response.headers_mut().append(name, value.clone());
        }
    }
    response
}

/// An error in the shape that the model's API has.
fn refusal(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = serde_json::json!({
        "type": "error",
        "error": { "type": kind, "message": message },
    });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// The innermost cause: the outer ones name the address, which is nobody's business inside.
fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}
