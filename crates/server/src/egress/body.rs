//! Bodies on their way out and back: counted, never gathered.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use hyper::body::Incoming;
use tokio::time::Instant;

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

    pub(super) fn why(&self) -> Option<Refusal> {
        match self.0.load(Ordering::Relaxed) {
            Self::TOO_LARGE => Some(Refusal::TooLarge),
            Self::TOO_SLOW => Some(Refusal::BodyTimeout),
            _ => None,
        }
    }
}

/// A body that does not keep its place for ever, and is counted.
pub(super) fn outward(
    body: Incoming,
    exchange: Arc<Exchange>,
    bounds: Bounds,
    given_up: Arc<GivenUp>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let body = Body::new(body).into_data_stream();
    let state = (body, exchange, given_up, Instant::now() + bounds.time, bounds.bytes);
    stream::unfold(Some(state), |state| async {
        let (mut body, exchange, given_up, until, left) = state?;
        let patience = until.min(Instant::now() + REQUEST_PATIENCE);
        let stopped = |why: u8, message: &str| {
            given_up.0.store(why, Ordering::Relaxed);
            Some((Err(io::Error::other(message.to_owned())), None))
        };
        match tokio::time::timeout_at(patience, body.next()).await {
            Err(_) => stopped(GivenUp::TOO_SLOW, "the sandbox did not finish its request"),
            Ok(None) => None,
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Ok(Some(Ok(chunk))) => {
                exchange.add_up(chunk.len());
                let Some(left) = left.checked_sub(chunk.len() as u64) else {
                    return stopped(GivenUp::TOO_LARGE, "the sandbox's request is too large");
                };
                Some((Ok(chunk), Some((body, exchange, given_up, until, left))))
            }
        }
    })
}

/// An answer of somebody else, without what belongs to the connection that it came by or is `hidden`.
pub(super) fn back(
    status: StatusCode,
    headers: &HeaderMap,
    hidden: &[&str],
    body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Response {
    let mut response = Response::new(Body::from_stream(body));
    *response.status_mut() = status;
    *response.headers_mut() = end_to_end(headers);
    for name in hidden {
        response.headers_mut().remove(*name);
    }
    response
}

/// What is meant for whoever is at the other end, and not for who is in between.
pub(super) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    let passes = |name: &HeaderName| {
        !HOP_BY_HOP.contains(name) && !named.iter().any(|named| named == name.as_str())
    };
    let kept = headers.iter().filter(|(name, _)| passes(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
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
pub(super) fn root_of(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}
