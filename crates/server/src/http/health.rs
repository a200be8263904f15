//! Whether the server is there, and whether it takes work.

use ash_engine::agent::Runtime;
use axum::Json as JsonAnswer;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::app::App;
use super::code::Code;
use super::error::ApiError;
use super::openapi::Unready;
use crate::runtime::RuntimeChoice;

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Health {
    /// Always `ok`: whoever cannot say so does not answer.
    status: &'static str,
    /// The release.
    version: &'static str,
    /// For how many seconds it has been up.
    uptime: u64,
    /// What keeps agents from the rest of the machine.
    isolation: &'static str,
    /// What keeps the files of sandboxes within their limit: `project quotas`, or that they are counted, and why.
    disk: String,
    /// Whether there is less room on the disk than `ASH_MIN_FREE_MB` says there should be.
    disk_pressure: bool,
    /// Whether what happens in sessions can be recorded. It cannot while the disk is full.
    can_record: bool,
    /// How many sessions are active.
    active_sessions: u64,
    /// How many sandboxes there are.
    active_sandboxes: u64,
    /// The sandboxes by what they do.
    pool: Pool,
    /// What can run agents here, the one first that runs those that do not say.
    runtimes: Vec<RuntimeHealth>,
    /// Names this process.
    coordinator_id: String,
    /// How many other machines run sandboxes for this one.
    remote_runners: u64,
}

/// Something that can run agents.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RuntimeHealth {
    /// What agents call it: `builtin`, `claude` or `legacy`.
    name: &'static str,
    /// Which release it is, as far as that is known.
    version: Option<String>,
    /// Who put it there: `server`, `installed`, `setting` or `system`.
    source: &'static str,
    /// Whether it is what it should be; null: nobody has looked since it changed.
    verified: Option<bool>,
}

fn runtimes(choice: &RuntimeChoice) -> Vec<RuntimeHealth> {
    let mut all = vec![RuntimeHealth {
        name: Runtime::Builtin.as_str(),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        source: "server",
        verified: Some(true),
    }];
    all.extend(choice.claude().map(|claude| RuntimeHealth {
        name: Runtime::Claude.as_str(),
        version: claude.version.map(|version| version.to_string()),
        source: claude.source.as_str(),
        verified: claude.is_fit,
    }));
    all.extend(choice.legacy().map(|is_fit| RuntimeHealth {
        name: Runtime::Legacy.as_str(),
        version: None,
        source: "setting",
        verified: Some(is_fit),
    }));
    let first = choice.default().as_str();
    all.sort_by_key(|runtime| runtime.name != first);
    all
}

/// The sandboxes by what they do.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Pool {
    /// All of them.
    total: u64,
    /// Always 0: a session at rest has no sandbox, and costs nothing.
    cold: u64,
    /// Those that are starting.
    warming: u64,
    /// Those that are frozen, and those that wait for a session.
    warm: u64,
    /// Of those, the ones that wait for a session.
    pre_warmed: u64,
    /// Those that wait for a prompt.
    waiting: u64,
    /// Those that work on one.
    running: u64,
    /// How many there may be.
    max_capacity: u32,
    /// How often a session came back in the same sandbox.
    resume_warm_hits: u64,
    /// How often a session came back in a new one.
    resume_cold_hits: u64,
    /// How often a session was created in a sandbox that waited for it.
    pre_warm_hits: u64,
}

/// See whether the server is there
#[utoipa::path(
    get, path = "/health", tag = "operations", operation_id = "getHealth", security(()),
    responses(
        (status = 200, description = "It is", body = Health),
        Unready,
    ),
)]
pub(super) async fn health(State(app): State<App>) -> Result<JsonAnswer<Health>, ApiError> {
    let census = app.store().census().await?;
    let counts = app.engine().resumes();
    let pool = app.engine().pool().await?;
    Ok(JsonAnswer(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
        uptime: app.uptime().as_secs(),
        isolation: app.parts().isolation,
        disk: app.disk().to_owned(),
        disk_pressure: app.engine().has_room() == Some(false),
        can_record: !app.engine().cannot_record(),
        active_sessions: census.active_sessions,
        active_sandboxes: pool.live(),
        pool: Pool {
            total: pool.live(),
            cold: 0,
            warming: pool.starting,
            warm: pool.frozen + pool.prewarmed,
            pre_warmed: pool.prewarmed,
            waiting: pool.idle,
            running: pool.running,
            max_capacity: app.parts().max_sandboxes,
            resume_warm_hits: counts.warm,
            resume_cold_hits: counts.cold,
            pre_warm_hits: counts.prewarmed,
        },
        runtimes: runtimes(&app.parts().runtimes),
        coordinator_id: app.parts().metrics.coordinator().to_owned(),
        remote_runners: 0,
    }))
}

/// Whether the server takes work.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ready {
    /// Always `ready`.
    status: &'static str,
}

/// See whether the server takes work
#[utoipa::path(
    get, path = "/health/ready", tag = "operations", operation_id = "getReadiness", security(()),
    responses(
        (status = 200, description = "It does", body = Ready),
        Unready,
    ),
)]
pub(super) async fn ready(State(app): State<App>) -> Result<JsonAnswer<Ready>, ApiError> {
    if app.is_draining() {
        let message = "The server is shutting down";
        return Err(
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, Code::DRAINING, message).later(1)
        );
    }
    can_record(&app)?;
    app.store().census().await?;
    Ok(JsonAnswer(Ready { status: "ready" }))
}

/// Whether what happens in sessions can be recorded: a database may be read and not be written to.
fn can_record(app: &App) -> Result<(), ApiError> {
    if app.engine().cannot_record() {
        let message =
            "What happens in sessions cannot be recorded: is the disk of the server full?";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(ApiError::new(status, Code::UNAVAILABLE, message).later(1));
    }
    Ok(())
}
