//! From a request to a response: decide, record, answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::LengthLimitError;
use serde_json::Value;
use tokio::sync::Notify;

use super::attempts::Attempts;
use super::body;
use super::error::ApiError;
use super::outcome::{Asked, Decision, Outcome, Replied, Rules, about, decide};
use super::record::{Entry, Recorder};
use super::script::Script;

/// What the real API takes at most.
const MAX_BODY_BYTES: usize = 32 << 20;

const HTML: &str = "<!doctype html>\n<html><head><title>Bad gateway</title></head>\
    <body><h1>This is not the API</h1><p>The scripted model was told to answer so.</p></body></html>\n";

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) script: Option<Script>,
    pub(crate) require_key: bool,
    pub(crate) attempts: Attempts,
    pub(crate) recorder: Recorder,
    pub(crate) requests: AtomicU64,
}

/// Lets a handler close the connection that it answers on.
#[derive(Clone, Default)]
pub(crate) struct Connection(pub(crate) Arc<Notify>);

/// Answers every request.
pub(crate) async fn serve(
    State(shared): State<Arc<Shared>>,
    Extension(connection): Extension<Connection>,
    request: Request,
) -> Response {
    let request_id = format!("req_script_{}", shared.requests.fetch_add(1, Ordering::Relaxed) + 1);
    let (parts, body) = request.into_parts();
    let (decision, value, size) = match read(&parts.headers, body).await {
        Ok(bytes) => {
            let value: Option<Value> = serde_json::from_slice(&bytes).ok();
            let rules = Rules {
                script: shared.script.as_ref(),
                require_key: shared.require_key,
                attempts: &shared.attempts,
            };
            let asked = Asked {
                method: &parts.method,
                path: parts.uri.path(),
                headers: &parts.headers,
                body: value.as_ref(),
            };
            (decide(&rules, &asked), value.unwrap_or_default(), bytes.len())
        }
        Err(error) => (Decision::refused(error), Value::Null, 0),
    };
    let Decision { outcome, conversation, wait } = decision;
    let answer = outcome.kind();
    tracing::debug!(
        request.id = request_id,
        path = parts.uri.path(),
        answer,
        "{request_id} to {} is answered with {answer}",
        parts.uri.path()
    );
    shared.recorder.record(Entry {
        path: parts.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        headers: &parts.headers,
        body: value,
        size,
        conversation: conversation.as_ref(),
        answer,
    });
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    let mut response = respond(outcome, &request_id, &connection).await;
    let headers = response.headers_mut();
    headers.insert("x-ash-scripted-model", HeaderValue::from_static("true"));
    headers.insert(
        "request-id",
        HeaderValue::try_from(request_id).expect("the id is made of letters and digits"),
    );
    response
}

async fn read(headers: &HeaderMap, body: Body) -> Result<bytes::Bytes, ApiError> {
    let too_large =
        || ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "Request exceeds the maximum size");
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if announced
        .and_then(|value| value.parse().ok())
        .is_some_and(|size: usize| size > MAX_BODY_BYTES)
    {
        return Err(too_large());
    }
    to_bytes(body, MAX_BODY_BYTES).await.map_err(|error| {
        let is_limit =
            std::error::Error::source(&error).is_some_and(|of| of.is::<LengthLimitError>());
        if is_limit { too_large() } else { ApiError::invalid("the request body did not arrive") }
    })
}

async fn respond(outcome: Outcome, request_id: &str, connection: &Connection) -> Response {
    match outcome {
        Outcome::About => text(StatusCode::OK, "text/plain; charset=utf-8", Body::from(about())),
        Outcome::Json { answer: _, body } => json(StatusCode::OK, &body),
        Outcome::Error(error) => {
            let mut response = json(status(error.status), &error.body(request_id));
            if let Some(seconds) = error.retry_after_secs {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            response
        }
        Outcome::Html { status: of } => {
            text(status(of), "text/html; charset=utf-8", Body::from(HTML))
        }
        Outcome::Hang => std::future::pending().await,
        Outcome::Cut => {
            connection.0.notify_one();
            std::future::pending().await
        }
        Outcome::Reply(replied) => {
            let Replied { reply, stream, trouble, is_mislabeled, .. } = *replied;
            let (content_type, body) = if stream {
                ("text/event-stream; charset=utf-8", body::streamed(reply, trouble))
            } else {
                ("application/json", body::whole(&reply, trouble))
            };
            let content_type = if is_mislabeled { "text/plain" } else { content_type };
            let mut response = text(StatusCode::OK, content_type, body);
            response
                .headers_mut()
                .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            response
        }
    }
}

fn status(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("the parser takes statuses from 200 to 599 only")
}

fn json(status: StatusCode, body: &Value) -> Response {
    text(status, "application/json", Body::from(body.to_string()))
}

fn text(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod test {
    use super::*;

    #[tokio::test]
    async fn a_body_that_does_not_say_its_size_is_limited_as_well() {
        let largest = read(&HeaderMap::new(), Body::from(vec![b' '; MAX_BODY_BYTES])).await;
        assert_eq!(largest.unwrap().len(), MAX_BODY_BYTES);
        let larger = read(&HeaderMap::new(), Body::from(vec![b' '; MAX_BODY_BYTES + 1])).await;
        assert_eq!(larger.unwrap_err().kind, "request_too_large");
    }
}
