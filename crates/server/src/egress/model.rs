//! Requests to the model: within the session's budget, with the key added, and counted on their way back.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ash_protocol::{DEAREST, cost};
use ash_store::Spend;
use axum::http::uri::PathAndQuery;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header, response,
};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::body::{Bounds, GivenUp, Outward, back, refuse, root_of};
use super::door::Door;
use super::log::{Exchange, Refusal};
use super::meter::Meter;
use super::provider::Answer;
use super::{ModelKey, ModelProxy};
use crate::credentials::Terms;

/// What the body of a request may be at the most: as much as the provider takes.
const BOUNDS: Bounds = Bounds { bytes: 32 << 20, time: Duration::from_secs(300) };

/// The route that costs something.
const MESSAGES: &str = "/v1/messages";

/// What a sandbox may ask for.
const ROUTES: [(Method, &str); 3] = [
    (Method::POST, MESSAGES),
    (Method::POST, "/v1/messages/count_tokens"),
    (Method::GET, "/v1/models"),
];

/// What agents ask to find out whether there is anybody. It is answered here.
const PROBES: [&str; 2] = ["/", "/api/hello"];

/// What a request may carry on: what it is about, and nothing about who sends it.
const PASSED_ON: [&str; 8] = [
    "accept",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "anthropic-version",
    "content-length",
    "content-type",
    "user-agent",
    "x-app",
];

/// What the clients of the model's API say about themselves.
const PASSED_ON_PREFIX: &str = "x-stainless-";

/// Says whose account it is, or is meant for nobody but the proxy.
const OF_THE_ACCOUNT: [&str; 2] = ["anthropic-organization-id", "set-cookie"];

/// Tells clients of the model's API not to try again.
const FINAL: (HeaderName, &str) = (HeaderName::from_static("x-should-retry"), "false");

/// Passes one request on. Either is an answer; an error is one of our own.
pub(super) async fn forward(
    door: &Door,
    exchange: &Arc<Exchange>,
    request: Request<Incoming>,
) -> Result<Response, Response> {
    let (parts, body) = request.into_parts();
    let proxy = &door.proxy.0;
    let path = parts.uri.path();
    exchange.goes_to("model", Some(path));
    if matches!(parts.method, Method::GET | Method::HEAD) && PROBES.contains(&path) {
        exchange.answered(200);
        return Ok((StatusCode::OK, "ash\n").into_response());
    }
    if !ROUTES.iter().any(|(method, route)| *method == parts.method && *route == path) {
        let message = format!("{} {path} is not open to a sandbox", parts.method);
        return Err(refuse(exchange, StatusCode::FORBIDDEN, Refusal::RouteNotOpen, &message));
    }
    check_rate(door, exchange).map_err(|refused| *refused)?;
    let terms = door.proxy.terms(door, exchange).await?;
    let place = if path == MESSAGES { within_budget(door, exchange, &terms).await? } else { None };
    let (is_counted, takes_body) = (path == MESSAGES, parts.method == Method::POST);
    let mut headers = passed_on(&parts.headers);
    headers.insert("x-api-key", terms.key);
    // What is packed could not be counted.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    let given_up = Arc::new(GivenUp::default());
    let body = if takes_body {
        Some(Outward::new(body, Arc::clone(exchange), BOUNDS, Arc::clone(&given_up)))
    } else {
        // A question has none, and whoever answers it may take one for the next question.
        headers.remove(header::CONTENT_LENGTH);
        None
    };
    let root = PathAndQuery::from_static("/");
    let asked = parts.uri.path_and_query().unwrap_or(&root);
    exchange.sets_out();
    let passing = is_counted.then(|| Booked::new(&door.proxy, exchange, place));
    let answer = proxy.provider.ask(parts.method, asked, headers, body).await;
    let answer = answer.map_err(|error| match given_up.refuse(exchange) {
        Some(refused) => refused,
        None => {
            let message = format!("the model's provider cannot be reached: {}", root_of(&*error));
            refuse(exchange, StatusCode::BAD_GATEWAY, Refusal::Unreachable, &message)
        }
    });
    match answer {
        Ok((head, answer)) => Ok(pass_back(head, answer, passing, exchange)),
        Err(refused) => {
            passing.into_iter().for_each(Booked::cancel);
            Err(refused)
        }
    }
}

fn pass_back(
    head: response::Parts,
    answer: Answer,
    mut booked: Option<Booked>,
    exchange: &Arc<Exchange>,
) -> Response {
    let response::Parts { status, headers, .. } = head;
    exchange.answered(status.as_u16());
    match &mut booked {
        Some(passing) if status.is_success() => passing.meets(&headers),
        // What is refused costs nothing.
        Some(_) => booked.take().into_iter().for_each(Booked::cancel),
        None => {}
    }
    let body = Passing { inner: answer, booked, exchange: Arc::clone(exchange) };
    back(status, headers, &OF_THE_ACCOUNT, body)
}

fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let wanted = headers.iter().filter(|(name, _)| {
        PASSED_ON.contains(&name.as_str()) || name.as_str().starts_with(PASSED_ON_PREFIX)
    });
    wanted.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Takes one of the requests that the session may make.
fn check_rate(door: &Door, exchange: &Exchange) -> Result<(), Box<Response>> {
    let Some(rate) = door.proxy.0.rate_limit else { return Ok(()) };
    door.account.take_request(rate.get()).map_err(|seconds| {
        let message = format!("the session may ask the model {rate} times a minute");
        let status = StatusCode::TOO_MANY_REQUESTS;
        let mut refused = refuse(exchange, status, Refusal::RateLimited, &message);
        refused.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        refused.into()
    })
}

/// Refuses a session that has nothing left to spend. One that has is given a place, if it has a budget: what goes on at
/// the same time is how far that can be overdrawn.
async fn within_budget(
    door: &Door,
    exchange: &Exchange,
    terms: &KeyedTerms,
) -> Result<Option<OwnedSemaphorePermit>, Response> {
    let place = if terms.budget.is_limited() {
        let places = Arc::clone(&door.account.budgeted);
        Some(places.acquire_owned().await.expect("nobody closes it"))
    } else {
        None
    };
    let spent = door.proxy.0.accounts.spent(&door.account).await.map_err(|error| {
        let message = format!("what the session has spent cannot be read: {error}");
        refuse(exchange, StatusCode::INTERNAL_SERVER_ERROR, Refusal::Unavailable, &message)
    })?;
    let Some(why) = terms.budget.exhausted_by(spent) else { return Ok(place) };
    Err(is_final(refuse(exchange, StatusCode::PAYMENT_REQUIRED, Refusal::BudgetSpent, &why)))
}

/// Tells whoever asked not to try again: it would be refused again.
fn is_final(mut refused: Response) -> Response {
    let (name, value) = FINAL;
    refused.headers_mut().insert(name, HeaderValue::from_static(value));
    refused
}

/// What a session's requests are made with.
struct KeyedTerms {
    key: HeaderValue,
    budget: super::Budget,
}

impl ModelProxy {
    async fn terms(&self, door: &Door, exchange: &Exchange) -> Result<KeyedTerms, Response> {
        let refused = |message: &str| {
            let status = StatusCode::UNAUTHORIZED;
            is_final(refuse(exchange, status, Refusal::InvalidCredential, message))
        };
        let Terms { key, budget, used } = match &self.0.sessions {
            Some(sessions) => {
                let terms = sessions.terms(door.sandbox.session).await;
                terms.map_err(|message| refused(&message))?
            }
            None => Terms::default(),
        };
        used.into_iter().for_each(|used| self.0.accounts.note_use(used, self.0.clock.now()));
        let Some(ModelKey(key)) = key.or_else(|| self.0.key.clone()) else {
            return Err(refused("the server has no key for the model: set ANTHROPIC_API_KEY"));
        };
        let Ok(mut key) = HeaderValue::from_str(&key) else {
            return Err(refused("the server's key for the model has characters that no key has"));
        };
        key.set_sensitive(true);
        Ok(KeyedTerms { key, budget })
    }
}

/// An answer that costs something. It is booked as it comes; and what of it was not told when it ends, however it
/// ends, is estimated.
struct Booked {
    proxy: ModelProxy,
    exchange: Arc<Exchange>,
    meter: Option<Meter>,
    /// What of it is booked already.
    spent: Spend,
    is_cancelled: bool,
    _place: Option<OwnedSemaphorePermit>,
}

impl Booked {
    fn new(
        proxy: &ModelProxy,
        exchange: &Arc<Exchange>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let (proxy, exchange) = (proxy.clone(), Arc::clone(exchange));
        let (spent, is_cancelled) = Default::default();
        Self { proxy, exchange, meter: None, spent, is_cancelled, _place: place }
    }

    /// The answer begins.
    fn meets(&mut self, headers: &HeaderMap) {
        self.meter = Some(Meter::new(headers, self.exchange.up.load(Ordering::Relaxed)));
    }

    fn sees(&mut self, chunk: &Bytes) {
        let Some(meter) = &mut self.meter else { return };
        let before = meter.told();
        meter.see(chunk);
        // Most pieces say nothing about it.
        if meter.told() != before {
            self.book(false);
        }
    }

    /// Nobody was asked, or it was refused.
    fn cancel(mut self) {
        self.is_cancelled = true;
    }

    fn book(&mut self, is_over: bool) {
        let asked = self.exchange.up.load(Ordering::Relaxed);
        let unheard = Meter::new(&HeaderMap::new(), asked);
        let (model, usage) = self.meter.as_ref().unwrap_or(&unheard).usage(is_over);
        let tokens = [
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_creation_tokens,
            usage.cache_read_tokens,
        ];
        let tokens = tokens.iter().fold(0, |sum: u64, more| sum.saturating_add(*more));
        let spent = Spend { cost: cost(model.unwrap_or(DEAREST), &usage), tokens };
        self.proxy.0.accounts.book(self.exchange.account(), spent.minus(self.spent));
        self.spent = spent;
    }
}

impl Drop for Booked {
    fn drop(&mut self) {
        if !self.is_cancelled {
            // Whether all of it has come, nobody says: who knows its length does not ask for its end.
            self.meter.iter_mut().for_each(Meter::finish);
            self.book(true);
        }
    }
}

/// An answer on its way: every piece is handed on as it is, when it is there.
struct Passing {
    inner: Answer,
    booked: Option<Booked>,
    exchange: Arc<Exchange>,
}

impl Body for Passing {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let next = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &next
            && let Some(chunk) = frame.data_ref()
        {
            this.exchange.begins();
            this.exchange.add_down(chunk.len());
            this.booked.iter_mut().for_each(|booked| booked.sees(chunk));
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
