//! Errors in the shape of the API.

use axum::http::StatusCode;
use serde_json::{Value, json};

/// A response that is an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) retry_after_secs: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let status = status.as_u16();
        let kind = kind_of(status).to_owned();
        Self { status, kind, message: message.into(), retry_after_secs: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn body(&self, request_id: &str) -> Value {
        json!({
            "type": "error",
            "error": { "type": self.kind, "message": self.message },
            "request_id": request_id,
        })
    }
}

/// The type of error that the API gives with a status.
pub(crate) fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// The status that the API gives with a type of error.
pub(crate) fn status_of(kind: &str) -> u16 {
    [400, 401, 402, 403, 404, 413, 429, 504, 529]
        .into_iter()
        .find(|status| kind_of(*status) == kind)
        .unwrap_or(500)
}
