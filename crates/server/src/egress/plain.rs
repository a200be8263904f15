//! Requests to other hosts that the proxy itself makes: those in plain HTTP, and those to which it adds a credential,
//! which go out encrypted.

use std::sync::Arc;
use std::time::Duration;

use ash_engine::agent::Host;
use axum::http::{HeaderMap, Request, StatusCode, header, response};
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::body::{Bounds, GivenUp, Outward, back, end_to_end, refuse};
use super::door::Door;
use super::guard::{NoWay, Target};
use super::log::{Exchange, Refusal};
use crate::credentials::{Custom, Scheme};

/// What the body of a request may be at the most.
const BOUNDS: Bounds = Bounds { bytes: 1 << 30, time: Duration::from_secs(3_600) };

/// The port of a request that names none.
const USUAL_PORT: u16 = 80;

/// Passes one request on. Either is an answer; an error is one of our own.
pub(super) async fn forward(
    door: &Door,
    exchange: &Arc<Exchange>,
    request: Request<Incoming>,
) -> Result<Response, Response> {
    let (parts, body) = request.into_parts();
    let written = parts.uri.authority().map(|named| named.as_str()).unwrap_or_default();
    exchange.goes_to(written, None);
    let bad =
        |message: &str| refuse(exchange, StatusCode::BAD_REQUEST, Refusal::BadDestination, message);
    if parts.uri.scheme_str() != Some("http") {
        return Err(bad("only http:// can be asked for; a connection can be made with CONNECT"));
    }
    let Target { host, port } = Target::parse(written).map_err(|message| bad(&message))?;
    let port = port.unwrap_or(USUAL_PORT);
    let mut headers = end_to_end(parts.headers);
    headers.remove(header::HOST);
    let custom = credential(door, exchange, &host, port).await?;
    let origin = match custom {
        Some(custom) => attach(door, exchange, &host, custom, &mut headers).await?,
        None => {
            door.check_allowed(exchange, &host, port).await?;
            format!("http://{host}:{port}")
        }
    };
    let guard = &door.proxy.0.guard;
    guard.check_written(&host).map_err(|no_way| no_way.refuse(exchange, &host))?;
    let place = door.tunnel_place(exchange).map_err(|refused| *refused)?;
    let rest = parts.uri.path_and_query().map_or("/", |rest| rest.as_str());
    let given_up = Arc::new(GivenUp::default());
    let mut sent = guard.client.request(parts.method, format!("{origin}{rest}")).headers(headers);
    if !hyper::body::Body::is_end_stream(&body) {
        let body = Outward::new(body, Arc::clone(exchange), BOUNDS, Arc::clone(&given_up));
        sent = sent.body(reqwest::Body::wrap(body));
    }
    exchange.sets_out();
    let answer = sent.send().await.map_err(|error| match given_up.refuse(exchange) {
        Some(refused) => refused,
        None => NoWay::of(&error).refuse(exchange, &host),
    })?;
    exchange.answered(answer.status().as_u16());
    let answer = axum::http::Response::from(answer);
    let (response::Parts { status, headers, .. }, body) = answer.into_parts();
    let counted = Arc::clone(exchange);
    let body = body.map_frame(move |frame| {
        let _held_until_it_ends = &place;
        if let Some(chunk) = frame.data_ref() {
            counted.begins();
            counted.add_down(chunk.len());
        }
        frame
    });
    Ok(back(status, headers, &[], body))
}

/// The session's credential for a host, if it has one.
async fn credential(
    door: &Door,
    exchange: &Exchange,
    host: &Host,
    port: u16,
) -> Result<Option<Custom>, Response> {
    let Some(sessions) = &door.proxy.0.sessions else { return Ok(None) };
    let found = sessions.custom(door.sandbox.session, host, port).await;
    found.map_err(|message| {
        refuse(exchange, StatusCode::UNAUTHORIZED, Refusal::InvalidCredential, &message)
    })
}

/// Adds a credential, instead of what the sandbox says in its place. Returns where the request goes.
async fn attach(
    door: &Door,
    exchange: &Exchange,
    host: &Host,
    custom: Custom,
    headers: &mut HeaderMap,
) -> Result<String, Response> {
    let Custom { scheme, port, header, value, used } = custom;
    // A secret in plain text goes no further than where the operator says it may.
    if scheme == Scheme::Http && !door.proxy.0.guard.is_private(host).await {
        let message = "a credential goes over plain http only to hosts in ASH_EGRESS_ALLOW_PRIVATE";
        return Err(refuse(exchange, StatusCode::FORBIDDEN, Refusal::AddressNotAllowed, message));
    }
    door.proxy.0.accounts.note_use(used, door.proxy.0.clock.now());
    headers.insert(header, value);
    Ok(format!("{}://{host}:{port}", scheme.as_str()))
}
