//! One server of a workspace: started, asked for its tools, and started again when it has died.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::config::ServerConfig;
use super::connection::Connection;
use super::content;
use crate::builtin::tools::Outcome;
use crate::process::{CommandSpec, Processes, Stream};

/// The protocol that we speak. A server may answer with an older one, and what we use of it is in
/// all of them.
const PROTOCOL: &str = "2025-06-18";
/// How long a server may take until its tools are known.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a server that died is started again.
const MAX_RESTARTS: u32 = 3;
/// How many pages of tools are read.
const MAX_PAGES: usize = 20;
/// How many tools one server may have.
const MAX_TOOLS: usize = 256;

/// A tool, as its server describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServerTool {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    pub(super) input_schema: Option<Value>,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Annotations {
    read_only_hint: bool,
}

impl ServerTool {
    pub(super) fn is_read_only(&self) -> bool {
        self.annotations.read_only_hint
    }
}

/// A server, whether it runs or not.
pub(super) struct Server {
    pub(super) name: String,
    config: ServerConfig,
    env: BTreeMap<String, String>,
    workspace: PathBuf,
    processes: Processes,
    connection: RefCell<Option<Connection>>,
    restarts: Cell<u32>,
    /// Whoever starts the server holds it; a call that finds it dead meanwhile waits.
    turn: Semaphore,
    is_closed: Cell<bool>,
}

impl Server {
    pub(super) fn new(
        name: String,
        config: ServerConfig,
        env: BTreeMap<String, String>,
        workspace: PathBuf,
        processes: Processes,
    ) -> Self {
        Self {
            name,
            config,
            env,
            workspace,
            processes,
            connection: RefCell::default(),
            restarts: Cell::new(0),
            turn: Semaphore::new(1),
            is_closed: Cell::new(false),
        }
    }

    /// Starts the server for the first time, and asks what it offers.
    pub(super) async fn open(&self) -> Result<Vec<ServerTool>, String> {
        let opening = async {
            let connection = self.start().await?;
            let tools = list(&connection).await;
            let tools = tools.map_err(|why| connection.ended().unwrap_or(why))?;
            Ok((connection, tools))
        };
        let opened = timeout(START_TIMEOUT, opening).await;
        let (connection, tools) =
            opened.unwrap_or_else(|_| Err("it was not ready within 30 seconds".to_owned()))?;
        self.connection.replace(Some(connection));
        Ok(tools)
    }

    /// Calls a tool.
    pub(super) async fn call(&self, tool: &str, input: &RawValue) -> Outcome {
        if let Err(why) = self.make_ready().await {
            return Outcome::error(format!("the MCP server {} is not running: {why}", self.name));
        }
        // Outside of strings a line break is only white space, and in strings it is escaped; as a
        // message is one line, they can simply be made spaces.
        let arguments = input.get().replace(['\n', '\r'], " ");
        let params = format!(r#"{{"name":{},"arguments":{arguments}}}"#, json!(tool));
        let Some(request) = self.request("tools/call", &params) else {
            return Outcome::error(format!("the MCP server {} was closed", self.name));
        };
        match timeout(CALL_TIMEOUT, request).await {
            Ok(Ok(result)) => content::translate(result.get()),
            Ok(Err(why)) => {
                let why = self.why_ended().unwrap_or(why);
                Outcome::error(format!("{tool} of the MCP server {}: {why}", self.name))
            }
            Err(_) => Outcome::error(format!(
                "{tool} of the MCP server {} did not answer within 120 seconds",
                self.name
            )),
        }
    }

    /// Ends the server for good.
    pub(super) async fn close(&self) {
        self.is_closed.set(true);
        let connection = self.connection.take();
        if let Some(connection) = connection {
            connection.end().await;
        }
    }

    fn request(
        &self,
        method: &str,
        params: &str,
    ) -> Option<impl Future<Output = Result<Box<RawValue>, String>> + use<>> {
        self.connection.borrow().as_ref().map(|connection| connection.request(method, params))
    }

    fn why_ended(&self) -> Option<String> {
        self.connection.borrow().as_ref().and_then(Connection::ended)
    }

    /// Starts the server again if it has died.
    async fn make_ready(&self) -> Result<(), String> {
        let _turn = self.turn.acquire().await.map_err(|error| error.to_string())?;
        if self.is_closed.get() {
            return Err("it was closed".to_owned());
        }
        let why = match &*self.connection.borrow() {
            Some(connection) => match connection.ended() {
                None => return Ok(()),
                Some(why) => why,
            },
            None => "it could not be started again".to_owned(),
        };
        if self.restarts.get() >= MAX_RESTARTS {
            return Err(format!("it was started again {MAX_RESTARTS} times already: {why}"));
        }
        self.restarts.set(self.restarts.get() + 1);
        self.connection.replace(None);
        let started = timeout(START_TIMEOUT, self.start()).await;
        let connection =
            started.unwrap_or_else(|_| Err("it was not ready within 30 seconds".to_owned()))?;
        if !self.is_closed.get() {
            self.connection.replace(Some(connection));
        }
        Ok(())
    }

    async fn start(&self) -> Result<Connection, String> {
        let spec = CommandSpec {
            program: self.config.command.clone(),
            args: self.config.args.clone(),
            cwd: self.workspace.clone(),
            env: self.env.clone(),
            stdin: Stream::Pipe,
            stdout: Stream::Pipe,
            stderr: Stream::Pipe,
        };
        let running = self.processes.spawn(spec).map_err(|error| error.to_string())?;
        let connection = Connection::new(running);
        let params = json!({
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": { "name": "ash", "version": env!("CARGO_PKG_VERSION") },
        });
        let answer = connection.request("initialize", &params.to_string()).await;
        answer.map_err(|why| connection.ended().unwrap_or(why))?;
        connection.notify("notifications/initialized").await;
        Ok(connection)
    }
}

async fn list(connection: &Connection) -> Result<Vec<ServerTool>, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Page {
        #[serde(default)]
        tools: Vec<Value>,
        next_cursor: Option<String>,
    }
    let mut tools = Vec::new();
    let mut params = json!({});
    for _ in 0..MAX_PAGES {
        let answer = connection.request("tools/list", &params.to_string()).await?;
        let page: Page = serde_json::from_str(answer.get())
            .map_err(|error| format!("its list of tools could not be understood: {error}"))?;
        // One tool that cannot be understood does not take the others away.
        tools.extend(page.tools.into_iter().filter_map(|tool| serde_json::from_value(tool).ok()));
        match page.next_cursor {
            Some(cursor) if tools.len() < MAX_TOOLS => params = json!({ "cursor": cursor }),
            Some(_) | None => break,
        }
    }
    tools.truncate(MAX_TOOLS);
    Ok(tools)
}
