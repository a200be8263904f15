//! A real server with real sandboxes, and a model that answers at once.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::LOOK;
use crate::model::{Model, Pace};
use crate::sandbox::{Server, create};
use crate::server::client::{self, Client};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct Served {
    server: Server,
    model: Model,
}

/// What came of a message, each from when it was sent.
pub(super) struct Told {
    /// The first event was there: it is on disk.
    pub(super) accepted: Duration,
    /// The agent had asked the model, and that answered.
    pub(super) started: Duration,
    pub(super) done: Duration,
}

impl Served {
    pub(super) async fn start(directory: &Path) -> Self {
        let model = Model::start(Pace { deltas: 1, apart: Duration::ZERO }).await;
        let server = Server::with_model(directory, &model.base_url()).await;
        Self { server, model }
    }

    pub(super) async fn client(&self) -> Client {
        self.server.client().await
    }

    /// A session that is active.
    pub(super) async fn session(&self) -> String {
        create(&mut self.client().await, "bench").await
    }

    pub(super) fn data(&self) -> &Path {
        &self.server.remains.data
    }

    pub(super) fn workspace(&self, session: &str) -> PathBuf {
        self.data().join("sandboxes").join(session).join("workspace")
    }

    /// Sends a message, and returns when its run is over. What is left of the stream is not read yet.
    pub(super) async fn send(&self, client: &mut Client, session: &str) -> Told {
        let request = client::send(session);
        let begin = Instant::now();
        client.open(&request).await;
        let (mut accepted, mut started) = (None, None);
        while let Some(event) = client.event().await {
            let now = begin.elapsed();
            let accepted = *accepted.get_or_insert(now);
            if event.name == "text_delta" {
                let departure = self.model.departures(&event.data).into_iter().next();
                started = started.or(departure.map(|at| at.saturating_duration_since(begin)));
            }
            if event.name == "done" {
                let started = started.expect("the model was asked");
                return Told { accepted, started, done: now };
            }
        }
        panic!("the stream ended before the run");
    }

    /// Waits until the last turn of a session is captured.
    pub(super) async fn captured(&self, client: &mut Client, session: &str) {
        let request = client::get(&format!("/api/sessions/{session}"));
        let begin = Instant::now();
        loop {
            let answer = client.json(&request).await;
            let seen = &answer["session"];
            assert!(seen["snapshotError"].is_null(), "{}", seen["snapshotError"]);
            if seen["snapshot"]["turn"] == seen["turns"] {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{session} is never captured");
            tokio::time::sleep(10 * LOOK).await;
        }
    }

    /// How long sandboxes have stood still for captures so far, all together.
    pub(super) async fn stood_still(&self, client: &mut Client) -> Duration {
        let text = client.text(&client::get("/metrics")).await;
        let line = text.lines().find_map(|line| {
            line.strip_prefix("ash_snapshot_seconds_sum{step=\"frozen\"} ")?.parse().ok()
        });
        Duration::from_secs_f64(line.unwrap_or(0.0))
    }
}
