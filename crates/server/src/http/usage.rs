//! What runs consumed.

use std::collections::BTreeMap;

use ash_core::id::{AgentName, SessionId};
use ash_core::session::Status;
use ash_core::time::Timestamp;
use ash_store::{SessionFilter, UsageFilter, UsageRecord, UsageTotals};
use axum::Json as JsonAnswer;
use axum::extract::State;
use serde::Deserialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{
    KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type,
};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::app::App;
use super::auth::Caller;
use super::error::ApiError;
use super::extract::{Query, length, range};
use super::messages::{named_id, uuid_of};
use super::openapi::{Always, Invalid};
use crate::api::{
    self, Analytics, AnalyticsAgents, AnalyticsEvals, AnalyticsSessions, Stats, UsageEvent,
    UsageEvents, UsageStats,
};

/// A time in a query: RFC 3339, a date alone, which is its midnight in UTC, or milliseconds since 1970.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Time(Timestamp);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        api::from_rfc3339(&text)
            .or_else(|| api::from_rfc3339(&format!("{text}T00:00:00Z")))
            .map(Self)
            .ok_or_else(|| {
                "expected a time, such as 2026-01-31 or 2026-01-31T12:00:00Z, or milliseconds since 1970"
                    .to_owned()
            })
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        let of = |kind, format| {
            let format = SchemaFormat::KnownFormat(format);
            ObjectBuilder::new().schema_type(kind).format(Some(format))
        };
        OneOfBuilder::new()
            .item(of(Type::String, KnownFormat::DateTime))
            .item(of(Type::Integer, KnownFormat::Int64))
            .into()
    }
}

impl ToSchema for Time {}

/// Whose usage, and of when.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct UsageQuery {
    /// Only of this session.
    session_id: Option<uuid::Uuid>,
    /// Only of this agent's sessions.
    #[param(min_length = 1, max_length = 255)]
    agent_name: Option<String>,
    /// Only of runs that ended at this time or later: RFC 3339, a date (its midnight in UTC), or milliseconds since 1970.
    #[param(inline)]
    after: Option<Time>,
    /// Only of runs that ended before this time.
    #[param(inline)]
    before: Option<Time>,
    /// How many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

impl UsageQuery {
    /// Nothing, if no run can match.
    fn filter(&self) -> Result<Option<UsageFilter>, ApiError> {
        let (from, until) = (self.after.map(|time| time.0), self.before.map(|time| time.0));
        length("agentName", self.agent_name.as_deref().unwrap_or_default(), 255)?;
        if self.agent_name.as_deref() == Some("") {
            return Err(ApiError::invalid("agentName is empty"));
        }
        let Ok(agent) = self.agent_name.as_deref().map(str::parse::<AgentName>).transpose() else {
            return Ok(None);
        };
        let session = self.session_id.map(|id| id.to_string().parse::<SessionId>());
        let session = session.transpose().map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(Some(UsageFilter { session, agent, from, until }))
    }
}

/// List what runs consumed, newest first
#[utoipa::path(
    get, path = "/api/usage", tag = "account", operation_id = "listUsage", params(UsageQuery),
    responses((status = 200, description = "The figures", body = UsageEvents), Always, Invalid),
)]
pub(super) async fn events(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<UsageQuery>,
) -> Result<JsonAnswer<UsageEvents>, ApiError> {
    let limit = range("limit", query.limit.unwrap_or(100), 1, 1_000)?;
    let runs = match query.filter()? {
        Some(filter) => app.store().usage_records(&caller.tenant, &filter, limit).await?,
        None => Vec::new(),
    };
    let events = runs.iter().flat_map(|run| figures(&caller, run)).take(limit as usize);
    Ok(JsonAnswer(UsageEvents { events: events.collect() }))
}

/// The figures of one run that are not nothing.
fn figures(caller: &Caller, record: &UsageRecord) -> Vec<UsageEvent> {
    let UsageRecord { run, agent_name } = record;
    let usage = run.usage;
    let counted = [
        ("message", 1),
        ("input_tokens", usage.input_tokens),
        ("output_tokens", usage.output_tokens),
        ("cache_creation_tokens", usage.cache_creation_tokens),
        ("cache_read_tokens", usage.cache_read_tokens),
        ("tool_call", usage.tool_calls),
        ("compute_seconds", compute_seconds(record)),
    ];
    let at = run.ended_at.unwrap_or(run.accepted_at);
    let figures = counted.into_iter().filter(|(_, value)| *value > 0);
    figures
        .map(|(kind, value)| UsageEvent {
            id: named_id(&["usage", &run.id.to_string(), kind]),
            session_id: uuid_of(run.session),
            agent_name: agent_name.to_string(),
            tenant_id: caller.tenant.to_string(),
            event_type: kind.to_owned(),
            value,
            created_at: api::rfc3339(at),
        })
        .collect()
}

fn compute_seconds(record: &UsageRecord) -> u64 {
    match (record.run.started_at, record.run.ended_at) {
        (Some(started), Some(ended)) => ended.since(started).as_secs(),
        (Some(_) | None, _) => 0,
    }
}

/// Sum up what runs consumed
#[utoipa::path(
    get, path = "/api/usage/stats", tag = "account", operation_id = "getUsageStats", params(UsageQuery),
    responses((status = 200, description = "The sum", body = UsageStats), Always, Invalid),
)]
pub(super) async fn stats(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<UsageQuery>,
) -> Result<JsonAnswer<UsageStats>, ApiError> {
    query.limit.map(|limit| range("limit", limit, 1, 1_000)).transpose()?;
    let totals = match query.filter()? {
        Some(filter) => app.store().usage(&caller.tenant, &filter).await?,
        None => UsageTotals::default(),
    };
    Ok(JsonAnswer(UsageStats { stats: sum(totals) }))
}

#[expect(clippy::cast_precision_loss, reason = "nothing costs as much as a float cannot hold")]
fn sum(totals: UsageTotals) -> Stats {
    let usage = totals.usage;
    Stats {
        total_input_tokens: usage.input_tokens,
        total_output_tokens: usage.output_tokens,
        total_cache_creation_tokens: usage.cache_creation_tokens,
        total_cache_read_tokens: usage.cache_read_tokens,
        total_tool_calls: usage.tool_calls,
        total_messages: totals.runs,
        total_compute_seconds: totals.compute_millis / 1_000,
        total_cost_usd: usage.cost_micro_usd as f64 / 1_000_000.0,
    }
}

/// Of when the figures are.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct AnalyticsQuery {
    /// Only what runs consumed that ended at this time or later: RFC 3339, a date (its midnight in UTC), or milliseconds since 1970.
    #[param(inline)]
    after: Option<Time>,
    /// Only what runs consumed that ended before this time.
    #[param(inline)]
    before: Option<Time>,
}

/// See the account in figures
///
/// Agents and sessions as they are now; what runs consumed, in the time that is asked for.
#[utoipa::path(
    get, path = "/api/analytics", tag = "account", operation_id = "getAnalytics", params(AnalyticsQuery),
    responses((status = 200, description = "The figures", body = Analytics), Always, Invalid),
)]
pub(super) async fn analytics(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<AnalyticsQuery>,
) -> Result<JsonAnswer<Analytics>, ApiError> {
    let store = app.store();
    let agents = store.agents(&caller.tenant).await?.len() as u64;
    let mut by_status = BTreeMap::new();
    for status in Status::ALL {
        let filter = SessionFilter { status: Some(status), ..SessionFilter::default() };
        let count = store.count_sessions(&caller.tenant, &filter).await?;
        if count > 0 {
            by_status.insert(status.as_str().to_owned(), count);
        }
    }
    let filter = UsageFilter {
        from: query.after.map(|time| time.0),
        until: query.before.map(|time| time.0),
        ..UsageFilter::default()
    };
    let usage = sum(store.usage(&caller.tenant, &filter).await?);
    Ok(JsonAnswer(Analytics {
        agents: AnalyticsAgents { total: agents },
        sessions: AnalyticsSessions { total: by_status.values().sum(), by_status },
        usage,
        evals: AnalyticsEvals::default(),
    }))
}
