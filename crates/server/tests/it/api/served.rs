//! A whole server in this process, on a port and a directory of its own, with the scripted model.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ash_core::id::{ApiKeyId, TenantId};
use ash_core::time::Clock as _;
use ash_engine::SystemClock;
use ash_server::config::{Config, ServeFlags};
use ash_server::http::Bounds;
use ash_server::model::{self, Model};
use ash_server::secret::ApiSecret;
use ash_server::serve::Server;
use ash_store::sqlite::SqliteStore;
use ash_store::{ApiKey, Store as _, Tenant};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::client::{Client, Stream};
use super::spawned::Dir;
use crate::world::{bridge_program, bridges_of, can_isolate, processes_mentioning, until};

pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) model: Model,
    pub(crate) client: Client,
    pub(crate) dir: PathBuf,
    _dir: Dir,
}

/// What a server is started with.
#[derive(Default)]
pub(crate) struct With {
    pub(crate) variables: Vec<(&'static str, String)>,
    pub(crate) bounds: Bounds,
}

impl Served {
    pub(crate) async fn start() -> Self {
        Self::with(With::default()).await
    }

    pub(crate) async fn with(with: With) -> Self {
        bridge_program();
        let guard = Dir::new();
        let dir = guard.path().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = Model::start(listener, model::Options::default()).unwrap();
        let mut env = variables(&dir, &model.url());
        env.extend(with.variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let flags = ServeFlags { dangerously_no_sandbox: !can_isolate(), ..ServeFlags::default() };
        let config = Config::load(&flags, &env, None).unwrap();
        let server = Server::start_within(&config, env.clone(), with.bounds).await.unwrap();
        let key = match server.key_file() {
            Some(path) => std::fs::read_to_string(path).unwrap().trim().to_owned(),
            None => env["ASH_API_KEY"].clone(),
        };
        let client = Client { address: server.address(), key };
        Self { server, model, client, dir, _dir: guard }
    }

    /// Another tenant, and somebody with a key of it.
    pub(crate) async fn stranger(&self) -> Client {
        let store = SqliteStore::open(&self.dir.join("data/ash.db")).unwrap();
        let id: TenantId = "stranger".parse().unwrap();
        let at = SystemClock.now();
        let tenant = Tenant { id: id.clone(), created_at: at };
        store.create_tenant(&tenant).await.unwrap();
        let secret = ApiSecret::make();
        let key = ApiKey {
            id: ApiKeyId::from_parts(at, [7; 10]),
            tenant: id,
            hash: secret.hash(),
            prefix: secret.prefix(),
            label: "stranger".to_owned(),
            created_at: at,
        };
        store.create_api_key(&key, None).await.unwrap();
        self.client.with_key(secret.expose())
    }

    /// Deploys an agent and opens a session with it.
    pub(crate) async fn session(&self) -> String {
        session(&self.client).await
    }

    /// A session that is in the middle of a run until that is let go, and the stream of the run up to there.
    pub(crate) async fn busy(&self) -> (String, Stream) {
        let session = self.session().await;
        let mut watched = self.client.say(&session, &held("Wait")).await;
        watched.until("tool_use").await;
        (session, watched)
    }

    /// Ends everything, and sees that nothing is left.
    pub(crate) async fn end(mut self) {
        self.server.end_everything().await;
        self.server.drain(Duration::from_secs(5)).await;
        self.model.shutdown().await;
        let marker = self.dir.as_os_str().to_owned();
        until("nothing is left", || {
            processes_mentioning(&marker).is_empty()
                && bridges_of(&self.dir.join("data")).is_empty()
        })
        .await;
    }
}

/// The environment of a server that bothers nobody else on the machine.
pub(crate) fn variables(dir: &std::path::Path, model: &str) -> BTreeMap<String, String> {
    let path = std::env::vars().find(|(name, _)| name == "PATH").map(|(_, path)| path);
    let own = [
        ("PATH", path.unwrap_or_default()),
        ("HOME", dir.join("home").display().to_string()),
        ("ASH_PORT", "0".to_owned()),
        ("ASH_DATA_DIR", dir.join("data").display().to_string()),
        ("ASH_ORPHAN_TTL_MS", "20000".to_owned()),
        // Whoever counts sandboxes counts those of sessions, unless it is about these.
        ("ASH_MAX_PREWARMED", "0".to_owned()),
        // Where nothing is around agents, they would ask.
        ("ASH_PERMISSION_MODE", "bypassPermissions".to_owned()),
        // Tests do not care how much room there is.
        ("ASH_MIN_FREE_MB", "0".to_owned()),
        ("ANTHROPIC_BASE_URL", model.to_owned()),
        ("ANTHROPIC_API_KEY", crate::world::KEY.to_owned()),
    ];
    own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Deploys an agent.
pub(crate) async fn agent(client: &Client, name: &str) -> Value {
    let body = json!({ "name": name, "systemPrompt": "You are tested." });
    client.post("/api/agents", &body).await.ok()
}

/// Deploys an agent and opens a session with it.
pub(crate) async fn session(client: &Client) -> String {
    agent(client, "coder").await;
    let made = client.post("/api/sessions", &json!({ "agent": "coder" })).await.ok();
    made["session"]["id"].as_str().unwrap().to_owned()
}

/// A prompt whose run goes on until it is let go, beginning with a word.
pub(crate) fn held(word: &str) -> String {
    format!("{word}\n/bash touch begun; while [ ! -e go ]; do sleep 0.02; done\n/say over")
}

/// Lets a held run go.
pub(crate) async fn let_go(client: &Client, session: &str) {
    let path = format!("/api/sessions/{session}/exec");
    client.post(&path, &json!({ "command": "touch go" })).await.ok();
}
