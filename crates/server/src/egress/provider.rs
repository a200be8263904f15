//! Connections to the model's provider.
//!
//! A connection is driven by whoever has an answer come over it, in the task that passes the answer on: no piece is handed
//! from one task to another. One that is done with its answer waits to be asked again; nobody drives it then, so it
//! is looked at before it is.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Uri, header, response};
use bytes::Bytes;
use http_body_util::{Either, Empty};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio::net::TcpStream;
use tower::ServiceExt as _;

use super::CONNECT_TIMEOUT;
use super::body::Outward;

/// How long a connection waits to be asked again, and how many do.
const MAX_IDLE_TIME: Duration = Duration::from_secs(90);
const MAX_IDLE: usize = 128;

/// What is asked: a question may have a body.
type Question = Either<Outward, Empty<Bytes>>;

/// Why nothing was answered.
pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// The model's provider.
pub(super) struct Provider {
    /// Where it is; or why it is nowhere.
    base: Result<Base, String>,
    connector: HttpsConnector<HttpConnector>,
    idle: Arc<Idle>,
}

/// Where it is.
struct Base {
    origin: Uri,
    /// What stands before every path.
    path: String,
    host: HeaderValue,
    /// If there is a name and a password in its address.
    authorization: Option<HeaderValue>,
}

/// A connection, and who may ask over it.
struct Link {
    sender: SendRequest<Question>,
    /// Nothing, when it has ended.
    driver: Option<Box<Connection<MaybeHttpsStream<TokioIo<TcpStream>>, Question>>>,
}

/// Connections that are not asked anything.
#[derive(Default)]
struct Idle(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    links: Vec<(Instant, Link)>,
    /// Somebody sees to it that they do not wait for ever.
    is_watched: bool,
}

/// An answer on its way. Its connection is driven by being asked for the next piece.
pub(super) struct Answer {
    body: Incoming,
    is_over: bool,
    link: Option<Link>,
    idle: Arc<Idle>,
}

impl Provider {
    /// # Errors
    /// The system has no certificates.
    pub(super) fn new(client: &reqwest::Client, base_url: &str) -> Result<Self, rustls::Error> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(ClientConfig::with_platform_verifier()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(Self { base: Base::parse(client, base_url), connector, idle: Arc::default() })
    }

    /// Asks something, with a body or without one.
    pub(super) async fn ask(
        &self,
        method: Method,
        asked: &PathAndQuery,
        mut headers: HeaderMap,
        body: Option<Outward>,
    ) -> Result<(response::Parts, Answer), Failure> {
        let base = self.base.as_ref().map_err(Clone::clone)?;
        headers.insert(header::HOST, base.host.clone());
        headers.extend(base.authorization.iter().map(|it| (header::AUTHORIZATION, it.clone())));
        let mut request = Request::new(body.map_or(Either::Right(Empty::new()), Either::Left));
        *request.method_mut() = method;
        *request.uri_mut() = match base.path.as_str() {
            "" => Uri::from(asked.clone()),
            path => format!("{path}{asked}").parse()?,
        };
        *request.headers_mut() = headers;
        // A connection that turns out to have ended gives back what it was to be asked.
        while let Some(mut link) = self.idle.take().await {
            match link.ask(request).await {
                Ok(answer) => return Ok(self.answered(link, answer)),
                Err(mut error) => match error.take_message() {
                    Some(given_back) => request = given_back,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut link = self.connect(base).await?;
        match link.ask(request).await {
            Ok(answer) => Ok(self.answered(link, answer)),
            Err(error) => Err(error.into_error().into()),
        }
    }

    async fn connect(&self, base: &Base) -> Result<Link, Failure> {
        let connecting = self.connector.clone().oneshot(base.origin.clone());
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await??;
        let (sender, driver) = http1::handshake(stream).await?;
        Ok(Link { sender, driver: Some(Box::new(driver)) })
    }

    fn answered(
        &self,
        link: Link,
        answer: axum::http::Response<Incoming>,
    ) -> (response::Parts, Answer) {
        let (parts, body) = answer.into_parts();
        let idle = Arc::clone(&self.idle);
        (parts, Answer { body, is_over: false, link: Some(link), idle })
    }
}

impl Base {
    fn parse(client: &reqwest::Client, text: &str) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("ANTHROPIC_BASE_URL: {error}");
        // It knows what a name and a password in an address become.
        let request = client.get(text).build().map_err(|error| wrong(&error))?;
        let url = request.url();
        let authorization = request.headers().get(header::AUTHORIZATION).cloned();
        let host = url.host_str().ok_or_else(|| wrong(&"it has no host"))?;
        let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let scheme = if url.scheme() == "http" { Scheme::HTTP } else { Scheme::HTTPS };
        let origin = Uri::builder()
            .scheme(scheme)
            .authority(authority.parse::<Authority>().map_err(|error| wrong(&error))?)
            .path_and_query("/")
            .build()
            .map_err(|error| wrong(&error))?;
        let host = HeaderValue::from_str(&authority).map_err(|error| wrong(&error))?;
        Ok(Self { origin, path: url.path().trim_end_matches('/').to_owned(), host, authorization })
    }
}

impl Link {
    async fn ask(
        &mut self,
        request: Request<Question>,
    ) -> Result<axum::http::Response<Incoming>, hyper::client::conn::TrySendError<Request<Question>>>
    {
        let mut answering = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            drive(&mut self.driver, cx);
            answering.as_mut().poll(cx)
        })
        .await
    }

    /// Whether it can be asked something now.
    fn is_free(&mut self, cx: &mut Context<'_>) -> bool {
        drive(&mut self.driver, cx);
        self.driver.is_some() && matches!(self.sender.poll_ready(cx), Poll::Ready(Ok(())))
    }
}

/// Does what there is to do on a connection. What is wrong with it is told to whoever waits for an answer.
fn drive<F: Future + Unpin>(driver: &mut Option<F>, cx: &mut Context<'_>) {
    if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
        *driver = None;
    }
}

impl Idle {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that can be asked, the latest first.
    async fn take(&self) -> Option<Link> {
        loop {
            let (since, mut link) = self.waiting().links.pop()?;
            let is_fresh = since.elapsed() < MAX_IDLE_TIME;
            if is_fresh && poll_fn(|cx| Poll::Ready(link.is_free(cx))).await {
                return Some(link);
            }
        }
    }

    fn put(self: &Arc<Self>, link: Link) {
        let mut waiting = self.waiting();
        if waiting.links.len() < MAX_IDLE {
            waiting.links.push((Instant::now(), link));
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !std::mem::replace(&mut waiting.is_watched, true)
        {
            runtime.spawn(watch(Arc::clone(self)));
        }
    }
}

/// Ends connections that have waited for too long, as long as there are any.
async fn watch(idle: Arc<Idle>) {
    loop {
        tokio::time::sleep(MAX_IDLE_TIME).await;
        let mut waiting = idle.waiting();
        waiting.links.retain(|(since, _)| since.elapsed() < MAX_IDLE_TIME);
        if waiting.links.is_empty() {
            waiting.is_watched = false;
            return;
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        this.link.iter_mut().for_each(|link| drive(&mut link.driver, cx));
        let next = ready!(Pin::new(&mut this.body).poll_frame(cx));
        this.is_over |= next.is_none();
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        // Whoever knows the length of an answer does not ask for its end.
        let is_over = self.is_over || self.body.is_end_stream();
        if is_over && link.is_free(&mut Context::from_waker(Waker::noop())) {
            self.idle.put(link);
        }
    }
}
