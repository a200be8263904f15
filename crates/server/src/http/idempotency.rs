//! Requests that can be sent twice and happen once.

use ash_core::id::TenantId;
use ash_engine::Idempotency;
use ash_store::ReceiptKey;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use axum::http::request::Parts;
use utoipa::IntoParams;

use super::error::ApiError;

/// The longest key.
const MAX_KEY_LEN: usize = 255;

/// What makes a request one that can be repeated.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its shape is wanted")]
pub(super) struct Repeatable {
    /// Makes the request safe to repeat: it is carried out once.
    #[param(
        rename = "Idempotency-Key",
        nullable = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]+$"
    )]
    key: Option<String>,
}

/// The key that the caller chose, if it did, and the route it is for.
pub(super) struct IdempotencyKey {
    route: String,
    key: Option<String>,
}

impl IdempotencyKey {
    /// What makes this request the same as another, if its caller wants that.
    pub(super) fn of(self, tenant: &TenantId, body_digest: [u8; 32]) -> Option<Idempotency> {
        let key = ReceiptKey { tenant: tenant.clone(), route: self.route, key: self.key? };
        Some(Idempotency { key, body_digest })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let route = route(parts, state).await;
        let mut keys = parts.headers.get_all("idempotency-key").iter();
        let Some(key) = keys.next() else { return Ok(Self { route, key: None }) };
        if keys.next().is_some() {
            return Err(ApiError::invalid("There is more than one Idempotency-Key"));
        }
        let visible = |key: &&str| key.bytes().all(|byte| byte.is_ascii_graphic());
        let readable = key.to_str().ok().filter(visible);
        match readable.filter(|key| (1..=MAX_KEY_LEN).contains(&key.len())) {
            Some(key) => Ok(Self { route, key: Some(key.to_owned()) }),
            None => Err(ApiError::invalid(
                "The Idempotency-Key must have 1 to 255 visible ASCII characters",
            )),
        }
    }
}

/// What is asked of what. An id can be spelt in more than one way, and is the same.
async fn route<S: Send + Sync>(parts: &mut Parts, state: &S) -> String {
    let matched = parts.extensions.get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let path = matched.unwrap_or_else(|| parts.uri.path().to_owned());
    let mut route = format!("{} {path}", parts.method);
    if let Ok(values) = RawPathParams::from_request_parts(parts, state).await {
        for (_, value) in &values {
            let id = value.parse::<uuid::Uuid>();
            route.push('\n');
            route.push_str(&id.map_or_else(|_| value.to_owned(), |id| id.to_string()));
        }
    }
    route
}
