//! What `make demo` shows: a session that survives the death of its sandbox and of its server.
//!
//! Everything is real but the model, which is the scripted one, so no account is needed. There is
//! no sandbox yet: the agent runs as a plain child, in a temporary directory, and does what this
//! file tells it to.

#![expect(clippy::print_stdout, reason = "a demonstration is a program that prints")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ash_core::entry::Entry;
use ash_core::id::{AgentId, RunId, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::policy::Policy;
use ash_core::session::{IfBusy, Wake};
use ash_core::time::Clock as _;
use ash_engine::bridge::{Agent, PlainHost, PlainOptions};
use ash_engine::{
    CreateSession, Engine, Followed, IdSource, Options, SandboxHost as _, SendPrompt, SystemClock,
};
use ash_protocol::Limits;
use ash_server::egress::{ModelKey, ModelProxy, Upstream};
use ash_server::model::{self, Model};
use ash_store::sqlite::SqliteStore;
use ash_store::{NewAgentVersion, Settings, Store};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    println!("Ash, a demonstration. No account is used: the model is scripted, and says so.\n");
    let directory = tempfile::tempdir()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let model = Model::start(listener, model::Options::default())?;
    println!("The scripted model listens on {}.", model.url());

    let mut server = Server::start(directory.path(), &model.url()).await?;
    let session = server.session().await?;
    println!("Session {session} has an agent, in a process of its own.\n");

    println!("1. A turn: the agent writes a file and answers.");
    let run = server
        .prompt(
            session,
            "Please remember the heron.\n/bash echo heron > birds.txt && cat birds.txt\n/say I wrote it down.",
        )
        .await?;
    server.tell_until_end(session, run).await?;

    println!("\n2. A long turn, and its bridge is killed with -9 while a tool runs.");
    let slow = "Count for me.\n/say I am counting.\n/bash touch counting; while [ ! -e go ]; do sleep 0.1; done; echo counted\n/say The count is done.";
    let run = server.prompt(session, slow).await?;
    wait_for(&server.host.workspace(session).join("counting")).await?;
    let alive = server.host.list().await?;
    let pid = alive.first().and_then(|sandbox| server.host.bridge_of(*sandbox));
    let pid = pid.context("the bridge is alive")?;
    println!("   kill -9 {pid}");
    kill(pid)?;
    server.tell_until_end(session, run).await?;

    println!("\n3. The next prompt brings the session back. What does it remember?");
    let run = server.prompt(session, "What do you remember?\n/recall").await?;
    server.tell_until_end(session, run).await?;

    println!("\n4. The same long turn, and this time the server dies.");
    std::fs::remove_file(server.host.workspace(session).join("counting"))?;
    let run = server.prompt(session, slow).await?;
    wait_for(&server.host.workspace(session).join("counting")).await?;
    server.die().await;
    println!("   the server is gone; the agent goes on, and keeps what it has to tell");
    let workspace = directory.path().join("data/sandboxes").join(session.to_string());
    std::fs::write(workspace.join("workspace/go"), "")?;
    server = Server::start(directory.path(), &model.url()).await?;
    println!("   another server is there, and finds the running turn:");
    server.tell_until_end(session, run).await?;

    println!(
        "\nNothing was lost. The log has it all, and every line was on disk before it was shown."
    );
    for sandbox in server.host.list().await? {
        server.host.stop(sandbox).await?;
    }
    server.die().await;
    model.shutdown().await;
    Ok(())
}

struct Server {
    engine: Engine,
    host: PlainHost,
}

impl Server {
    async fn start(directory: &Path, model: &str) -> anyhow::Result<Self> {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&directory.join("ash.db"))?);
        let owner = store.next_owner().await?;
        let key = Some(ModelKey::new("only-the-proxy-knows".to_owned()));
        let proxy = ModelProxy::new(Upstream { base_url: model.to_owned(), key })?;
        let agent = Agent {
            runtime: "builtin".to_owned(),
            model: "scripted".to_owned(),
            env: BTreeMap::new(),
            limits: Limits::default(),
        };
        let host = PlainHost::open(PlainOptions {
            data: directory.join("data"),
            bridge: ash_server::beside::bridge()?,
            owner,
            orphan_ttl: Duration::from_secs(60),
            describe: Arc::new(move |_| agent.clone()),
            environment: std::env::vars().collect(),
            egress: Arc::new(proxy),
        })?;
        let name = "demo".parse()?;
        if store.agent(&tenant(), &name).await.is_err() {
            let at = SystemClock.now();
            let id = IdSource::unguessable().make(at, AgentId::from_parts);
            let definition = Json::of("the builtin agent")?;
            let agent = NewAgentVersion { id, tenant: tenant(), name, definition, at };
            store.deploy_agent(&agent).await?;
        }
        let engine = Engine::start(Options {
            store,
            host: Arc::new(host.clone()),
            clock: Arc::new(SystemClock),
            policy: Policy::default(),
            ids: IdSource::unguessable(),
            owner,
        });
        Ok(Self { engine, host })
    }

    async fn session(&self) -> anyhow::Result<SessionId> {
        let settings = Settings {
            title: None,
            model: None,
            metadata: BTreeMap::new(),
            config: Json::of("none")?,
        };
        let agent = "demo".parse()?;
        let create = CreateSession { tenant: tenant(), agent, settings, time_to_live: None };
        let id = self.engine.create_session(create, None).await?.record.id;
        self.engine.settled(&tenant(), id).await?;
        Ok(id)
    }

    async fn prompt(&self, session: SessionId, text: &str) -> anyhow::Result<RunId> {
        let prompt = SendPrompt {
            content: Json::of(text)?,
            if_busy: IfBusy::Queue,
            wake: Wake::Any,
            timeout: None,
        };
        Ok(self.engine.prompt(&tenant(), session, prompt, None).await?.run)
    }

    /// Prints what the log says about a run, from its beginning to its end.
    async fn tell_until_end(&self, session: SessionId, run: RunId) -> anyhow::Result<()> {
        let mut follower = self.engine.follow(&tenant(), session, None).await?;
        let mut said = String::new();
        loop {
            let Followed::Entries(entries) = follower.next().await? else {
                bail!("the log has a gap");
            };
            for entry in entries.iter().filter(|entry| entry.entry.run() == Some(run)) {
                if let Entry::TextDelta { delta, .. } = &entry.entry {
                    said.push_str(delta);
                    continue;
                }
                if !said.is_empty() {
                    println!("        says: {}", said.trim_end().replace('\n', "\n              "));
                    said.clear();
                }
                if let Some(line) = describe(&entry.entry) {
                    println!("   {:>3}  {line}", entry.seq);
                }
                if let Entry::RunEnded { .. } = &entry.entry {
                    return Ok(());
                }
            }
        }
    }

    /// Lets go of everything, as the death of the process would.
    async fn die(&self) {
        self.engine.abort().await;
        self.host.abandon().await;
    }
}

fn describe(entry: &Entry) -> Option<String> {
    if let Entry::Phase { phase, round, .. } = entry {
        return Some(format!("phase: {} (round {round})", phase.as_str()));
    }
    if let Entry::Output { name, body, .. } = entry
        && matches!(name.as_str(), "tool_use" | "tool_result")
    {
        return Some(format!("{name}: {}", body.get().chars().take(110).collect::<String>()));
    }
    if let Entry::RunEnded { outcome, .. } = entry {
        let why = outcome.failure().map(|failure| format!(": {}", failure.message));
        let status = outcome.status().as_str();
        return Some(format!("the run is {status}{}", why.unwrap_or_default()));
    }
    None
}

fn tenant() -> TenantId {
    TenantId::default_tenant()
}

async fn wait_for(file: &Path) -> anyhow::Result<()> {
    for _ in 0..600 {
        if file.exists() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("{} did not appear", file.display())
}

fn kill(pid: u32) -> anyhow::Result<()> {
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status()?;
    if !killed.success() {
        bail!("kill did not work");
    }
    Ok(())
}
