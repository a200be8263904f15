//! What is counted, for Prometheus.
//!
//! The engine and the handlers count through the `metrics` facade; what can be looked up (sessions,
//! sandboxes) is looked up when somebody asks. Never a session id as a label: a label is kept for
//! ever.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use super::app::App;
use super::error::ApiError;
use super::openapi::Always;

/// Bounds of histograms, in seconds: from a fast commit to a slow resume.
const SECONDS: [f64; 16] = [
    0.000_25, 0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0,
    4.0, 16.0, 64.0,
];

/// What is counted in this process.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    handle: PrometheusHandle,
    coordinator: String,
}

impl Metrics {
    /// Begins to count. Where two servers share a process, the first one counts for both.
    pub fn start(coordinator: String) -> Self {
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
            .expect("there are buckets");
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        // They are there from the start, at nothing: whoever watches them need not wait for the first.
        metrics::with_local_recorder(&recorder, || {
            for path in ["warm", "cold", "prewarm"] {
                metrics::counter!("ash_resume_total", "path" => path).increment(0);
            }
            for source in ["local", "cloud", "fresh"] {
                metrics::counter!("ash_resume_cold_total", "source" => source).increment(0);
            }
        });
        let _second = metrics::set_global_recorder(recorder);
        Self(Arc::new(Inner { handle, coordinator }))
    }

    pub(super) fn coordinator(&self) -> &str {
        &self.0.coordinator
    }

    /// Keeps what gathers from growing, a few times a minute.
    pub fn upkeep(&self) {
        self.0.handle.run_upkeep();
    }
}

/// Measure the server
#[utoipa::path(
    get, path = "/metrics", tag = "operations", operation_id = "getMetrics",
    responses((status = 200, description = "In Prometheus' format", body = String, content_type = "text/plain"), Always),
)]
pub(super) async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, ApiError> {
    let census = app.store().census().await?;
    let pool = app.engine().pool().await?;
    let counted = &app.parts().metrics;
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, values: &[(&str, u64)]| {
        write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n").expect("a string takes all");
        for (labels, value) in values {
            writeln!(text, "{name}{labels} {value}").expect("a string takes all");
        }
    };
    let up = format!("{{coordinator=\"{}\"}}", counted.coordinator());
    gauge("ash_up", "Whether the server is up.", &[(&up, 1)]);
    gauge(
        "ash_uptime_seconds",
        "Seconds since the server started.",
        &[("", app.uptime().as_secs())],
    );
    gauge("ash_active_sessions", "Sessions that are active.", &[("", census.active_sessions)]);
    gauge("ash_active_sandboxes", "Sandboxes that are there.", &[("", pool.live())]);
    gauge(
        "ash_pool_sandboxes",
        "Sandboxes by what they do.",
        &[
            ("{state=\"cold\"}", 0),
            ("{state=\"warming\"}", pool.starting),
            ("{state=\"warm\"}", pool.frozen + pool.prewarmed),
            ("{state=\"waiting\"}", pool.idle),
            ("{state=\"running\"}", pool.running),
        ],
    );
    gauge("ash_pool_prewarmed", "Sandboxes that wait for a session.", &[("", pool.prewarmed)]);
    let most = u64::from(app.parts().max_sandboxes);
    gauge("ash_pool_max_capacity", "Sandboxes that there may be.", &[("", most)]);
    if app.engine().cloud().is_some() {
        let lag = app.store().cloud_lag().await?;
        gauge("ash_cloud_lag_snapshots", "Snapshots that are not in the cloud yet.", &[("", lag)]);
    }
    text.push_str(&counted.0.handle.render());
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}
