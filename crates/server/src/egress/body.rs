//! Bodies on their way out and back: counted, never gathered.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::log::{Exchange, Refusal};

/// How long a sandbox may take for each piece of a body.
pub(super) const REQUEST_PATIENCE: Duration = Duration::from_secs(20);

/// Belongs to one connection, not to what is sent over it.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// What a body may be at the most.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bytes: u64,
    pub(super) time: Duration,
}

/// Why a body was given up, if it was.
#[derive(Default)]
pub(super) struct GivenUp(AtomicU8);

impl GivenUp {
    const TOO_LARGE: u8 = 1;
    const TOO_SLOW: u8 = 2;

    /// What is answered then.
    pub(super) fn refuse(&self, exchange: &Exchange) -> Option<Response> {
        let (status, refusal, message) = match self.0.load(Ordering::Relaxed) {
            Self::TOO_LARGE => (
                StatusCode::PAYLOAD_TOO_LARGE,
                Refusal::TooLarge,
                "the request is larger than any that is passed on",
            ),
            Self::TOO_SLOW => (
                StatusCode::REQUEST_TIMEOUT,
                Refusal::BodyTimeout,
                "the request did not arrive in time",
            ),
            _ => return None,
        };
        Some(refuse(exchange, status, refusal, message))
    }
}

/// A body on its way out. It is counted, and does not keep its place for ever.
pub(super) struct Outward {
    body: Incoming,
    exchange: Arc<Exchange>,
    given_up: Arc<GivenUp>,
    until: Instant,
    left: u64,
    /// Until when the next piece has to be there, once it was waited for.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Outward {
    pub(super) fn new(
        body: Incoming,
        exchange: Arc<Exchange>,
        bounds: Bounds,
        given_up: Arc<GivenUp>,
    ) -> Self {
        let (until, left) = (Instant::now() + bounds.time, bounds.bytes);
        Self { body, exchange, given_up, until, left, patience: None }
    }

    fn give_up(&self, why: u8, message: &str) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.given_up.0.store(why, Ordering::Relaxed);
        Poll::Ready(Some(Err(io::Error::other(message.to_owned()))))
    }
}

impl hyper::body::Body for Outward {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        loop {
            let Poll::Ready(next) = Pin::new(&mut this.body).poll_frame(cx) else {
                let until = this.until;
                let patience = this.patience.get_or_insert_with(|| {
                    Box::pin(sleep_until(until.min(Instant::now() + REQUEST_PATIENCE)))
                });
                ready!(patience.as_mut().poll(cx));
                return this.give_up(GivenUp::TOO_SLOW, "the sandbox did not finish its request");
            };
            this.patience = None;
            let Some(frame) = next else { return Poll::Ready(None) };
            // What comes behind a body belongs to the connection that it came by.
            let Ok(chunk) = frame.map_err(io::Error::other)?.into_data() else { continue };
            this.exchange.add_up(chunk.len());
            let Some(left) = this.left.checked_sub(chunk.len() as u64) else {
                return this.give_up(GivenUp::TOO_LARGE, "the sandbox's request is too large");
            };
            this.left = left;
            if Instant::now() >= this.until {
                return this.give_up(GivenUp::TOO_SLOW, "the sandbox did not finish its request");
            }
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer of somebody else, without what belongs to the connection that it came by or is `hidden`.
pub(super) fn back<B>(status: StatusCode, headers: HeaderMap, hidden: &[&str], body: B) -> Response
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = end_to_end(headers);
    for name in hidden {
        response.headers_mut().remove(*name);
    }
    response
}

/// What is meant for whoever is at the other end, and not for who is in between.
pub(super) fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    for name in named {
        headers.remove(name.as_str());
    }
    headers
}

/// An error in the shape that the model's API has, and with our own name for it.
pub(super) fn refuse(
    exchange: &Exchange,
    status: StatusCode,
    refusal: Refusal,
    message: &str,
) -> Response {
    exchange.refused(refusal);
    exchange.begins();
    let kind = match status.as_u16() {
        400 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        _ => "api_error",
    };
    let body = serde_json::json!({
        "type": "error",
        "error": { "type": kind, "message": message, "code": refusal.code() },
    });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// The innermost cause: the outer ones name the address, which is nobody's business inside.
pub(super) fn root_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

#[cfg(test)]
mod test {
    use ash_core::id::SessionId;
    use ash_core::time::Timestamp;

    use super::super::account::Accounts;
    use super::super::log::Kind;
    use super::*;

    #[test]
    fn a_body_that_does_not_come_is_told_apart_from_one_that_does_not_end() {
        let now = Timestamp::from_millis(1);
        let account = Accounts::new(None).of(SessionId::from_parts(now, [1; 10]));
        let exchange = Exchange::new(account, now, Kind::Http, "POST");
        let status = |why: u8| {
            let refused = GivenUp(AtomicU8::new(why)).refuse(&exchange);
            refused.map(|response| response.status().as_u16())
        };
        assert_eq!(status(0), None);
        assert_eq!(status(GivenUp::TOO_LARGE), Some(413));
        assert_eq!(status(GivenUp::TOO_SLOW), Some(408));
    }
}
