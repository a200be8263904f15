//! A whole server with the scripted model behind it.

use std::collections::BTreeMap;
use std::path::Path;

use ash_server::config::{Config, ServeFlags};
use ash_server::model::{self, Model};
use ash_server::serve::Server;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::world::bridge_program;

pub(crate) const KEY: &str = "ash_for-tests-only";
pub(crate) const AGENT: &str = "prepared";

/// A server with the scripted model behind it.
pub(crate) struct Tested {
    pub(crate) server: Server,
    model: Model,
    client: reqwest::Client,
    _dir: tempfile::TempDir,
}

impl Tested {
    pub(crate) async fn start() -> Self {
        bridge_program();
        let dir = tempfile::tempdir().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = Model::start(listener, model::Options::default()).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let path = std::env::var_os("PATH").unwrap_or_default().into_string().unwrap();
        let environment = BTreeMap::from([
            ("PATH".to_owned(), path),
            ("HOME".to_owned(), text(dir.path())),
            ("ASH_PORT".to_owned(), "0".to_owned()),
            ("ASH_DATA_DIR".to_owned(), text(&dir.path().join("data"))),
            ("ASH_API_KEY".to_owned(), KEY.to_owned()),
            // The same, so that one header opens everything.
            ("ASH_INTERNAL_SECRET".to_owned(), KEY.to_owned()),
            ("ANTHROPIC_BASE_URL".to_owned(), model.url()),
            ("ANTHROPIC_API_KEY".to_owned(), "scripted".to_owned()),
        ]);
        let config = Config::load(&ServeFlags::default(), &environment, None).unwrap();
        let server = Server::start(&config, environment).await.unwrap();
        Self { server, model, client: reqwest::Client::new(), _dir: dir }
    }

    /// An agent, and three sessions with something in their logs.
    pub(crate) async fn prepare(&self) -> Vec<String> {
        let agent = json!({ "name": AGENT, "systemPrompt": "Be brief." });
        self.post("/api/agents", &agent).await;
        let mut sessions = Vec::new();
        for _ in 0..3 {
            let made = self.post("/api/sessions", &json!({ "agent": AGENT })).await;
            let made: Value = serde_json::from_str(&made).unwrap();
            let id = made["session"]["id"].as_str().unwrap().to_owned();
            let stream = self
                .post(&format!("/api/sessions/{id}/messages"), &json!({ "content": "Hello" }))
                .await;
            assert!(stream.contains("event: done"), "{stream}");
            sessions.push(id);
        }
        sessions
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> String {
        let url = format!("http://{}{path}", self.server.address());
        let request = self.client.post(url).bearer_auth(KEY).body(body.to_string());
        let response = request.header("content-type", "application/json").send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        text
    }

    /// Asks without a body; returns the status, the headers and the body.
    pub(crate) async fn ask(&self, method: &str, path: &str) -> (u16, HeaderMap, String) {
        let url = format!("http://{}{path}", self.server.address());
        let method = method.to_uppercase().parse().unwrap();
        let response = self.client.request(method, url).bearer_auth(KEY).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // Whoever follows a session that is not there is told so, and does not wait.
        (status, headers, response.text().await.unwrap())
    }

    pub(crate) async fn end(mut self) {
        self.server.end_everything().await;
        self.server.drain(std::time::Duration::from_secs(2)).await;
        self.model.shutdown().await;
    }
}
