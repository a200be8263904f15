//! What every request goes through: a name, a look at who sends it, a log line, and one shape for
//! everything that goes wrong.

use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::App;
use super::code::Code;
use super::error::ApiError;
use super::internal::{self, Operator};
use super::unread::Watch;
use crate::api::Problem;

/// Names a request, in answers and in logs.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The outermost layer: nothing gets past it unanswered or in another shape.
pub(super) async fn finish(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = app.request_id();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let origin = request.headers().get(header::ORIGIN).cloned();
    let (request, body) = Watch::over(request);
    let mut response = admit(&app, request, next).await;
    // Answers of the framework itself: no such method, a body that was not taken.
    if response.extensions().get::<ApiError>().is_none() && is_bare_error(&response) {
        let allow = response.headers().get(header::ALLOW).cloned();
        response = of_status(response.status()).into_response();
        if let Some(allow) = allow {
            response.headers_mut().insert(header::ALLOW, allow);
        }
    }
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        log(&error, &method, &path, &id);
        response = render(&error, &id, response);
    }
    if let Some(origin) =
        origin.filter(|origin| origin.to_str().is_ok_and(|o| app.origins().allows(o)))
    {
        allow(&mut response, origin);
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    if let Some(body) = body {
        body.settle(&mut response).await;
    }
    tracing::debug!(
        request.id = id,
        http.method = %method,
        http.status = response.status().as_u16(),
        duration_ms = started.elapsed().as_millis(),
        "{method} {path} answered {}", response.status().as_u16(),
    );
    response
}

/// How long the head of a request may be: its target and its header lines.
const MAX_HEAD: usize = 64 * 1024;

/// How many header lines a request may have.
const MAX_HEADERS: usize = 100;

/// Lets a request in if it may come in.
async fn admit(app: &App, mut request: Request, next: Next) -> Response {
    if request.headers().len() > MAX_HEADERS || head_len(&request) > MAX_HEAD {
        let message = format!(
            "The head of the request has more than {MAX_HEADERS} lines or {MAX_HEAD} bytes"
        );
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return ApiError::new(status, Code::HEAD_TOO_LARGE, message).into_response();
    }
    let path = request.uri().path();
    let public = is_public(path);
    // Whoever watches over the server may call it by any name.
    if !is_health(path)
        && let Err(error) = app.origins().check(request.headers(), request.uri())
    {
        return error.into_response();
    }
    if request.method() == Method::OPTIONS {
        return preflight(&request);
    }
    if path.starts_with(internal::PREFIX) {
        let secret = app.parts().internal_secret.as_ref();
        match Operator::check(secret, request.headers()) {
            Ok(operator) => {
                request.extensions_mut().insert(operator);
            }
            Err(error) => return error.into_response(),
        }
    } else if !public {
        match app.keys().caller(app.store(), request.headers()).await {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
            }
            Err(error) => return error.into_response(),
        }
    }
    next.run(request).await
}

/// The bytes of a request's head, but for a few. What reads connections looks at this only while a
/// head is not whole: one that comes at once may be longer than its buffer.
fn head_len(request: &Request) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let lines = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    target + lines.sum::<usize>()
}

fn is_health(path: &str) -> bool {
    path == "/health" || path.starts_with("/health/")
}

/// What is shown to everybody: it says nothing of anybody.
fn is_public(path: &str) -> bool {
    is_health(path) || path == "/docs" || path.starts_with("/docs/") || path == "/favicon.ico"
}

/// What a browser asks before it asks.
fn preflight(request: &Request) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
        let headers = response.headers_mut();
        let methods = HeaderValue::from_static("GET, POST, PATCH, DELETE");
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        let taken = "authorization, content-type, idempotency-key, last-event-id, prefer";
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(taken));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
    response
}

fn allow(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let shown =
        HeaderValue::from_static("x-request-id, retry-after, x-ash-source, content-disposition");
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, shown);
}

/// An error without a body of ours.
fn is_bare_error(response: &Response) -> bool {
    let status = response.status();
    let is_json =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    (status.is_client_error() || status.is_server_error()) && !is_json
}

fn of_status(status: StatusCode) -> ApiError {
    match status {
        StatusCode::NOT_FOUND => {
            ApiError::new(status, Code::NO_SUCH_ROUTE, "There is nothing here")
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            ApiError::new(status, Code::METHOD_NOT_ALLOWED, "This method is not taken here")
        }
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::new(status, Code::TOO_LARGE, "The body is too large")
        }
        _ if status.is_client_error() => ApiError::new(
            status,
            Code::INVALID_REQUEST,
            status.canonical_reason().unwrap_or("Bad request"),
        ),
        _ => ApiError::internal(format!("a bare {status}")),
    }
}

fn render(error: &ApiError, id: &str, response: Response) -> Response {
    let problem = Problem {
        error: error.message.clone().into_owned(),
        status_code: error.status.as_u16(),
        code: error.code.as_str().to_owned(),
        retryable: error.is_retryable(),
        request_id: id.to_owned(),
    };
    let body = serde_json::to_string(&problem).expect("texts and numbers become JSON");
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = error.retry_after {
        parts.headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if error.status == StatusCode::UNAUTHORIZED {
        parts.headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    Response::from_parts(parts, Body::from(body))
}

fn log(error: &ApiError, method: &Method, path: &str, id: &str) {
    if error.status.is_server_error() && error.code != Code::DRAINING {
        tracing::warn!(
            request.id = id,
            http.status = error.status.as_u16(),
            error.code = error.code.as_str(),
            error = error.cause.as_deref().map(|cause| cause as &dyn std::error::Error),
            "{method} {path} could not be answered: {}",
            error.message,
        );
    }
}
