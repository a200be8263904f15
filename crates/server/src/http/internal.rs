//! For whoever runs the server: routes that are opened by `ASH_INTERNAL_SECRET`, and by no API key.

use ash_core::id::TenantId;
use axum::Json as JsonAnswer;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};

use super::app::App;
use super::auth::{presented, unauthorized};
use super::code::Code;
use super::error::ApiError;
use super::extract::{JsonBody, length};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::keys;
use super::openapi::{Always, Conflict, Invalid, TooLarge};
use crate::api::{ApiKeyMade, NewTenantKey, Runners};
use crate::secret::ApiSecret;

/// What the paths of these routes begin with.
pub(super) const PREFIX: &str = "/api/internal/";

/// Whoever runs the server is asking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operator(());

impl Operator {
    /// Looks at what was presented. A server without a secret lets nobody in.
    pub(super) fn check(secret: Option<&ApiSecret>, headers: &HeaderMap) -> Result<Self, ApiError> {
        let Some(secret) = secret else {
            let message = "ASH_INTERNAL_SECRET is not set: nobody is let in here";
            return Err(ApiError::new(StatusCode::FORBIDDEN, Code::NO_INTERNAL_SECRET, message));
        };
        if presented(headers)?.matches(&secret.hash()) {
            return Ok(Self(()));
        }
        Err(unauthorized("Invalid internal secret"))
    }
}

/// The outermost layer let it in.
impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let operator = parts.extensions.get::<Self>().copied();
        operator.ok_or_else(|| ApiError::internal("an internal route was not guarded"))
    }
}

/// Make an API key for a tenant
///
/// Its secret is shown this once. A tenant that is not there yet is made. The key that opens this route is
/// `ASH_INTERNAL_SECRET`.
#[utoipa::path(
    post, path = "/api/internal/api-keys", tag = "operations", operation_id = "createTenantKey",
    params(Repeatable),
    request_body = NewTenantKey,
    responses((status = 200, description = "The key", body = ApiKeyMade), Always, Invalid, Conflict, TooLarge),
)]
pub(super) async fn create_key(
    State(app): State<App>,
    _: Operator,
    key: IdempotencyKey,
    JsonBody { value: body, digest, .. }: JsonBody<NewTenantKey>,
) -> Result<JsonAnswer<ApiKeyMade>, ApiError> {
    length("label", body.label.as_deref().unwrap_or_default(), 255)?;
    let label = body.label.filter(|label| !label.is_empty());
    let label = label.unwrap_or_else(|| format!("platform-{}", body.tenant_id));
    let tenant = keys::parse_tenant(&body.tenant_id)?;
    // What was asked here before is remembered with what is the server's own.
    let idempotency = key.of(&TenantId::default_tenant(), digest);
    if let Some(earlier) = keys::earlier(&app, idempotency.as_ref()).await? {
        return Ok(JsonAnswer(earlier));
    }
    keys::make_tenant(&app, &tenant).await?;
    Ok(JsonAnswer(keys::make(&app, tenant, label, idempotency).await?))
}

/// List the machines that run sandboxes
///
/// There is this one. The key that opens this route is `ASH_INTERNAL_SECRET`.
#[utoipa::path(
    get, path = "/api/internal/runners", tag = "operations", operation_id = "listRunners",
    responses((status = 200, description = "None but this one", body = Runners), Always),
)]
pub(super) async fn runners(_: Operator) -> JsonAnswer<Runners> {
    JsonAnswer(Runners { runners: Vec::new(), count: 0, has_local: true })
}

/// What clients of others ask for and this server does not have. It is not in the documentation of the API: nobody
/// should begin to use it.
pub(super) async fn not_offered() -> ApiError {
    let message = "This server does not offer that";
    ApiError::new(StatusCode::NOT_IMPLEMENTED, Code::NOT_OFFERED, message)
}
