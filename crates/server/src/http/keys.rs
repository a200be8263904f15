//! API keys.

use ash_core::id::{ApiKeyId, TenantId};
use ash_engine::{EngineError, Idempotency};
use ash_store::{ApiKey, Receipt, StoreError, Tenant};
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::app::App;
use super::auth::Caller;
use super::code::Code;
use super::error::ApiError;
use super::extract::{JsonBody, PathId, length};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::messages::uuid_of;
use super::openapi::{Always, Conflict, Invalid, Missing, TooLarge};
use crate::api::{self, ApiKeyMade, ApiKeys, Done, NewApiKey};
use crate::secret::ApiSecret;

/// What the sealed answer of an earlier request is bound to.
const CONTEXT: &str = "new API key";

/// Make an API key
///
/// Its secret is shown this once. The server's own tenant makes keys for other tenants, too.
#[utoipa::path(
    post, path = "/api/api-keys", tag = "account", operation_id = "createApiKey",
    params(Repeatable),
    request_body = NewApiKey,
    responses((status = 201, description = "The key", body = ApiKeyMade), Always, Invalid, Conflict, TooLarge),
)]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    key: IdempotencyKey,
    JsonBody { value: body, digest, .. }: JsonBody<NewApiKey>,
) -> Result<(StatusCode, JsonAnswer<ApiKeyMade>), ApiError> {
    length("label", &body.label, 255)?;
    let idempotency = key.of(&caller.tenant, digest);
    if let Some(earlier) = earlier(&app, idempotency.as_ref()).await? {
        return Ok((StatusCode::CREATED, JsonAnswer(earlier)));
    }
    let tenant = owner_of(&app, &caller, body.tenant_id.as_deref()).await?;
    let made = make(&app, tenant, body.label, idempotency).await?;
    Ok((StatusCode::CREATED, JsonAnswer(made)))
}

/// Makes a key, or finds the one that the same request has made meanwhile.
pub(super) async fn make(
    app: &App,
    tenant: TenantId,
    label: String,
    idempotency: Option<Idempotency>,
) -> Result<ApiKeyMade, ApiError> {
    let secret = ApiSecret::make();
    let id = app.make(ApiKeyId::from_parts);
    let made = ApiKeyMade {
        id: uuid_of(id),
        key: secret.expose().to_owned(),
        tenant_id: tenant.to_string(),
    };
    let receipt = match idempotency.clone() {
        Some(idempotency) => {
            let plain = serde_json::to_vec(&made).map_err(ApiError::internal)?;
            let sealed = BASE64_STANDARD.encode(app.sealer().seal(&plain, CONTEXT));
            Some(Receipt {
                key: idempotency.key,
                body_digest: idempotency.body_digest,
                answer: ash_core::json::Json::of(&sealed).map_err(ApiError::internal)?,
                at: app.now(),
            })
        }
        None => None,
    };
    let row = ApiKey {
        id,
        tenant,
        hash: secret.hash(),
        prefix: secret.prefix(),
        label,
        created_at: app.now(),
    };
    match app.store().create_api_key(&row, receipt.as_ref()).await {
        Ok(()) => Ok(made),
        // The same request was carried out between our look and our write.
        Err(StoreError::Exists("receipt")) => match earlier(app, idempotency.as_ref()).await? {
            Some(earlier) => Ok(earlier),
            None => Err(EngineError::Exists("receipt").into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Whose key it becomes. A tenant that is not there yet is made.
async fn owner_of(app: &App, caller: &Caller, tenant: Option<&str>) -> Result<TenantId, ApiError> {
    let Some(tenant) = tenant else { return Ok(caller.tenant.clone()) };
    let id = parse_tenant(tenant)?;
    if id == caller.tenant {
        return Ok(id);
    }
    if caller.tenant != TenantId::default_tenant() {
        let message = "Only the server's own tenant may make keys for others";
        return Err(ApiError::new(StatusCode::FORBIDDEN, Code::TENANT_NOT_ALLOWED, message));
    }
    make_tenant(app, &id).await?;
    Ok(id)
}

pub(super) fn parse_tenant(text: &str) -> Result<TenantId, ApiError> {
    text.parse().map_err(|_| {
        ApiError::invalid("tenantId must have 1 to 255 letters, digits, hyphens and underscores")
    })
}

/// Makes a tenant, unless it is there.
pub(super) async fn make_tenant(app: &App, id: &TenantId) -> Result<(), ApiError> {
    let made = Tenant { id: id.clone(), created_at: app.now() };
    match app.store().create_tenant(&made).await {
        Ok(()) | Err(StoreError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What an earlier request with the same key was told.
pub(super) async fn earlier(
    app: &App,
    idempotency: Option<&Idempotency>,
) -> Result<Option<ApiKeyMade>, ApiError> {
    let Some(idempotency) = idempotency else { return Ok(None) };
    let Some(receipt) = app.engine().receipt_of(idempotency).await? else { return Ok(None) };
    let sealed: String = serde_json::from_str(receipt.get()).map_err(ApiError::internal)?;
    let sealed = BASE64_STANDARD.decode(sealed).map_err(ApiError::internal)?;
    let plain = app.sealer().open(&sealed, CONTEXT).map_err(ApiError::internal)?;
    serde_json::from_slice(&plain).map(Some).map_err(ApiError::internal)
}

/// List API keys
#[utoipa::path(
    get, path = "/api/api-keys", tag = "account", operation_id = "listApiKeys",
    responses((status = 200, description = "The keys, without their secrets", body = ApiKeys), Always),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<JsonAnswer<ApiKeys>, ApiError> {
    let stored = app.store().api_keys(&caller.tenant).await?;
    let mut keys: Vec<api::ApiKey> = stored
        .into_iter()
        .map(|key| api::ApiKey {
            id: key.id.to_string(),
            label: key.label,
            key_prefix: key.prefix,
            created_at: api::rfc3339(key.created_at),
        })
        .collect();
    let default = TenantId::default_tenant();
    if let Some(secret) = app.parts().environment_key.as_ref().filter(|_| caller.tenant == default)
    {
        keys.push(api::ApiKey {
            id: "env".to_owned(),
            label: "ASH_API_KEY (environment variable)".to_owned(),
            key_prefix: secret.prefix(),
            created_at: String::new(),
        });
    }
    Ok(JsonAnswer(ApiKeys { keys }))
}

/// Revoke an API key
#[utoipa::path(
    delete, path = "/api/api-keys/{id}", tag = "account", operation_id = "revokeApiKey",
    params(("id" = uuid::Uuid, Path, description = "The key")),
    responses((status = 200, description = "It is gone", body = Done), Always, Invalid, Missing),
)]
pub(super) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<ApiKeyId>,
) -> Result<JsonAnswer<Done>, ApiError> {
    app.store().revoke_api_key(&caller.tenant, id).await?;
    app.keys().forget();
    Ok(JsonAnswer(Done { ok: true }))
}
