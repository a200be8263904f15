//! Credentials: secrets for use outside of sandboxes. They go in and never come out.

use ash_core::id::CredentialId;
use ash_core::json::Json;
use ash_store::{Credential, Receipt, StoreError};
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;

use super::app::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{JsonBody, PathId, length};
use super::idempotency::{IdempotencyKey, Repeatable};
use super::messages::uuid_of;
use super::openapi::{Always, Conflict, Invalid, Missing, TooLarge};
use crate::api::{self, CredentialBody, CredentialType, Credentials, Done, NewCredential};
use crate::credentials::{CUSTOM, CustomSecret, check_bedrock, unusable};
use crate::secret::{Sealer, credential_context};

/// The longest secret.
const MAX_SECRET: usize = 16_384;

/// Keep a credential
///
/// One that no session can use is kept too, as clients of the original expect it; it says why in `unusable`.
#[utoipa::path(
    post, path = "/api/credentials", tag = "account", operation_id = "createCredential",
    params(Repeatable),
    request_body = NewCredential,
    responses((status = 201, description = "The credential, without its secret", body = CredentialBody), Always, Invalid, Missing, Conflict, TooLarge),
)]
pub(super) async fn create(
    State(app): State<App>,
    caller: Caller,
    key: IdempotencyKey,
    JsonBody { value: body, digest, .. }: JsonBody<NewCredential>,
) -> Result<(StatusCode, JsonAnswer<CredentialBody>), ApiError> {
    if body.key.is_empty() || !body.key.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(ApiError::invalid(
            "key must have printable ASCII characters, and nothing else",
        ));
    }
    length("key", &body.key, MAX_SECRET)?;
    let label = body.label.clone().unwrap_or_default();
    length("label", &label, 255)?;
    if body.kind == CredentialType::Bedrock {
        check_bedrock(&body.key).map_err(ApiError::invalid)?;
    }
    let secret = secret_of(&body)?;
    let idempotency = key.of(&caller.tenant, digest);
    if let Some(idempotency) = &idempotency
        && let Some(earlier) = app.engine().receipt_of(idempotency).await?
    {
        return stored_before(&app, &caller, &earlier).await;
    }
    let id = app.make(CredentialId::from_parts);
    let receipt = match &idempotency {
        Some(idempotency) => Some(Receipt {
            key: idempotency.key.clone(),
            body_digest: idempotency.body_digest,
            answer: Json::of(&id).map_err(ApiError::internal)?,
            at: app.now(),
        }),
        None => None,
    };
    let credential = Credential {
        id,
        tenant: caller.tenant.clone(),
        kind: name_of(body.kind).to_owned(),
        label,
        sealed: app.sealer().seal(&secret, &credential_context(&caller.tenant, id)),
        created_at: app.now(),
        last_used_at: None,
    };
    match app.store().create_credential(&credential, receipt.as_ref()).await {
        Ok(()) => {}
        Err(StoreError::Exists("receipt")) => {
            let idempotency = idempotency.as_ref().expect("there is a receipt only with a key");
            let earlier = app.engine().receipt_of(idempotency).await?;
            let earlier = earlier.ok_or_else(|| ApiError::internal("a receipt came and went"))?;
            return stored_before(&app, &caller, &earlier).await;
        }
        Err(error) => return Err(error.into()),
    }
    let credential = view(&credential, app.sealer());
    Ok((StatusCode::CREATED, JsonAnswer(CredentialBody { credential })))
}

/// What is sealed: a key, and for a host also where it goes.
fn secret_of(body: &NewCredential) -> Result<Vec<u8>, ApiError> {
    let (header, host) = match (body.kind, &body.header, &body.host) {
        (CredentialType::Custom, Some(header), Some(host)) => (header, host),
        (_, None, None) => return Ok(body.key.clone().into_bytes()),
        (CredentialType::Custom, _, _) => {
            return Err(ApiError::invalid("header and host belong together"));
        }
        (CredentialType::Anthropic | CredentialType::Openai | CredentialType::Bedrock, _, _) => {
            return Err(ApiError::invalid("header and host are for credentials of type custom"));
        }
    };
    length("header", header, 255)?;
    length("host", host, 300)?;
    let secret = CustomSecret::new(body.key.clone(), header.clone(), host.clone());
    secret.map_err(ApiError::invalid)?.plain().map_err(ApiError::internal)
}

/// The answer to a request that was carried out before.
async fn stored_before(
    app: &App,
    caller: &Caller,
    earlier: &Json,
) -> Result<(StatusCode, JsonAnswer<CredentialBody>), ApiError> {
    let id: CredentialId = serde_json::from_str(earlier.get()).map_err(ApiError::internal)?;
    let credential = app.store().credential(&caller.tenant, id).await?;
    let credential = view(&credential, app.sealer());
    Ok((StatusCode::CREATED, JsonAnswer(CredentialBody { credential })))
}

/// List credentials
#[utoipa::path(
    get, path = "/api/credentials", tag = "account", operation_id = "listCredentials",
    responses((status = 200, description = "The credentials, without their secrets", body = Credentials), Always),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
) -> Result<JsonAnswer<Credentials>, ApiError> {
    let stored = app.store().credentials(&caller.tenant).await?;
    let shown = stored.iter().map(|credential| view(credential, app.sealer()));
    Ok(JsonAnswer(Credentials { credentials: shown.collect() }))
}

/// Forget a credential
#[utoipa::path(
    delete, path = "/api/credentials/{id}", tag = "account", operation_id = "deleteCredential",
    params(("id" = uuid::Uuid, Path, description = "The credential")),
    responses((status = 200, description = "It is gone", body = Done), Always, Invalid, Missing),
)]
pub(super) async fn delete(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<CredentialId>,
) -> Result<JsonAnswer<Done>, ApiError> {
    app.store().delete_credential(&caller.tenant, id).await?;
    Ok(JsonAnswer(Done { ok: true }))
}

fn view(credential: &Credential, sealer: &Sealer) -> api::Credential {
    let for_host = (credential.kind == CUSTOM).then(|| CustomSecret::open(credential, sealer));
    let for_host = for_host.flatten();
    let unusable = unusable(&credential.kind, for_host.as_ref()).map(str::to_owned);
    api::Credential {
        id: uuid_of(credential.id),
        kind: kind_of(&credential.kind),
        label: credential.label.clone(),
        header: for_host.as_ref().map(|secret| secret.header.clone()),
        host: for_host.map(|secret| secret.host),
        active: true,
        unusable,
        created_at: api::rfc3339(credential.created_at),
        last_used_at: credential.last_used_at.map(api::rfc3339),
    }
}

const fn name_of(kind: CredentialType) -> &'static str {
    match kind {
        CredentialType::Anthropic => "anthropic",
        CredentialType::Openai => "openai",
        CredentialType::Bedrock => "bedrock",
        CredentialType::Custom => "custom",
    }
}

fn kind_of(name: &str) -> CredentialType {
    match name {
        "anthropic" => CredentialType::Anthropic,
        "openai" => CredentialType::Openai,
        "bedrock" => CredentialType::Bedrock,
        _ => CredentialType::Custom,
    }
}
