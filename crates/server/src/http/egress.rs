//! What a session's sandbox asks of others: with which credentials, within which budget, and what became of it.

use ash_core::id::{CredentialId, SessionId, TenantId};
use ash_store::{StoreError, StoredSession, UsageFilter};
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::app::App;
use super::auth::Caller;
use super::code::Code;
use super::error::ApiError;
use super::extract::{PathId, Query, range};
use super::openapi::{Always, Invalid, Missing};
use crate::api;
use crate::credentials::{ANTHROPIC, CUSTOM, CustomSecret, unusable};
use crate::egress::{Budget, Record, dollars, millis};
use crate::sessions::Attached;

/// How many credentials a session may have beside the one for the model.
const MAX_CREDENTIALS: usize = 20;

/// How many requests are shown at the most.
const MAX_SHOWN: u32 = 200;

/// Which requests.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EgressQuery {
    /// How many.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// List what a session's sandbox asked of others
///
/// The latest requests to the model and to other hosts, newest first, since the server started. Without bodies, headers
/// and queries.
#[utoipa::path(
    get, path = "/api/sessions/{id}/egress", tag = "sessions", operation_id = "listEgress",
    params(("id" = uuid::Uuid, Path, description = "The session"), EgressQuery),
    responses((status = 200, description = "The requests, and what the session has spent", body = api::Egress), Always, Invalid, Missing),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    PathId(id): PathId<SessionId>,
    Query(query): Query<EgressQuery>,
) -> Result<JsonAnswer<api::Egress>, ApiError> {
    let limit = range("limit", query.limit.unwrap_or(MAX_SHOWN), 1, MAX_SHOWN)? as usize;
    app.session(&caller, id).await?;
    let spent = app.egress().spent(id).await?;
    let requests = app.egress().records(id).iter().take(limit).map(view).collect();
    let spent = api::Spent { cost_usd: dollars(spent.cost), tokens: spent.tokens };
    Ok(JsonAnswer(api::Egress { requests, spent }))
}

fn view(record: &Record) -> api::EgressRequest {
    api::EgressRequest {
        at: api::rfc3339(record.at),
        kind: record.kind.as_str().to_owned(),
        method: record.method.clone(),
        host: record.host.clone(),
        path: record.path.clone(),
        status: record.status,
        refusal: record.refusal.map(|refusal| refusal.code().to_owned()),
        bytes_up: record.bytes_up,
        bytes_down: record.bytes_down,
        first_byte_ms: record.first_byte.map(millis),
        total_ms: millis(record.total),
    }
}

fn refused(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, Code::INVALID_CREDENTIAL, message.into())
}

impl App {
    /// The credentials that a session is to use: those that the caller has and names.
    pub(super) async fn credentials(
        &self,
        tenant: &TenantId,
        body: &api::CreateSession,
    ) -> Result<Attached, ApiError> {
        range("the number of credentialIds", body.credential_ids.len(), 0, MAX_CREDENTIALS)?;
        let mut attached = Attached::default();
        let mut for_hosts: Vec<CustomSecret> = Vec::new();
        for text in body.credential_id.iter().chain(&body.credential_ids) {
            let unknown = || refused("Invalid or inaccessible credential");
            let id: CredentialId = text.parse().map_err(|_| unknown())?;
            let credential = match self.store().credential(tenant, id).await {
                Ok(credential) => credential,
                Err(StoreError::NotFound(_)) => return Err(unknown()),
                Err(error) => return Err(error.into()),
            };
            match credential.kind.as_str() {
                _ if attached.model == Some(id) || attached.hosts.contains(&id) => {}
                ANTHROPIC if attached.model.is_none() => attached.model = Some(id),
                ANTHROPIC => return Err(refused("There are two credentials for the model")),
                kind => {
                    let secret =
                        (kind == CUSTOM).then(|| CustomSecret::open(&credential, self.sealer()));
                    let secret = secret.flatten();
                    if let Some(why) = unusable(kind, secret.as_ref()) {
                        return Err(refused(format!("The credential cannot be used. {why}")));
                    }
                    let Some(secret) = secret else { continue };
                    if for_hosts.iter().any(|other| other.meets(&secret)) {
                        return Err(refused("There are two credentials for the same host"));
                    }
                    for_hosts.push(secret);
                    attached.hosts.push(id);
                }
            }
        }
        Ok(attached)
    }

    /// What the runs of a session may still cost; nothing, if the session has no budget. A message that waits behind
    /// others is taken: what they leave of it is counted when it is asked for, by the proxy.
    #[expect(
        clippy::cast_precision_loss,
        reason = "no session costs as much as a float cannot hold"
    )]
    pub(super) async fn budget_left(
        &self,
        caller: &Caller,
        stored: &StoredSession,
    ) -> Result<Option<f64>, ApiError> {
        let options = self.open_options(&stored.record.settings.config)?;
        let budget = Budget { usd: options.budget_usd, tokens: options.budget_tokens };
        if !budget.is_limited() {
            return Ok(None);
        }
        let id = stored.record.id;
        let spent = self.egress().spent(id).await?;
        let over = |message: String| {
            ApiError::new(StatusCode::PAYMENT_REQUIRED, Code::BUDGET_SPENT, message)
        };
        if let Some(why) = budget.exhausted_by(spent) {
            return Err(over(capitalised(&why)));
        }
        let Some(usd) = budget.usd else { return Ok(None) };
        let filter = UsageFilter { session: Some(id), ..UsageFilter::default() };
        // What the sandbox says can only make it less: what counts was counted outside.
        let told = self.store().usage(&caller.tenant, &filter).await?.usage.cost_micro_usd;
        let left = usd - dollars(spent.cost).max(told as f64 / 1_000_000.0);
        if left > 0.0 {
            return Ok(Some(left));
        }
        Err(over(format!("The session has spent its budget of {usd} US dollars")))
    }
}

/// A sentence that begins as sentences do.
fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
