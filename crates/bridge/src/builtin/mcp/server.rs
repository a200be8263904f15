//! One server of a workspace: started, asked for its tools, and started again when it has died.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

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
/// How often a server that died is started again.
const MAX_RESTARTS: u32 = 3;
/// How many pages of tools are read.
const MAX_PAGES: usize = 20;
/// How many tools one server may have.
const MAX_TOOLS: usize = 256;

/// How much of a tool's name is shown in a notice.
const MAX_NAME_SHOWN: usize = 100;
/// How many tools that were left out are named one by one.
const MAX_DROPPED_NAMED: usize = 20;

/// How long servers are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// Until a server's tools are known.
    pub start: Duration,
    /// Until a call is answered.
    pub call: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { start: Duration::from_secs(30), call: Duration::from_secs(120) }
    }
}

/// What a server offers.
#[derive(Debug, Default)]
pub(super) struct Offer {
    pub(super) tools: Vec<ServerTool>,
    /// What of it cannot be used, and why.
    pub(super) dropped: Vec<String>,
}

/// A tool, as its server describes it.
#[derive(Debug)]
pub(super) struct ServerTool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) input_schema: Option<Value>,
    pub(super) is_read_only: bool,
}

impl ServerTool {
    /// A tool is its name. Everything else may be missing, null or nonsense: many servers are
    /// sloppy, and it is better to have the tool without a description than not to have it.
    fn read(mut tool: Value) -> Option<Self> {
        let name = tool.get("name")?.as_str().filter(|name| !name.is_empty())?.to_owned();
        let description = tool.get("description").and_then(Value::as_str).unwrap_or_default();
        let hint = tool.pointer("/annotations/readOnlyHint").and_then(Value::as_bool);
        Some(Self {
            name,
            description: description.to_owned(),
            input_schema: tool.get_mut("inputSchema").map(Value::take),
            is_read_only: hint.unwrap_or(false),
        })
    }
}

/// A name that a server gave, as far as it is shown.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(MAX_NAME_SHOWN).collect()
}

/// A server, whether it runs or not.
pub(super) struct Server {
    pub(super) name: String,
    config: ServerConfig,
    env: BTreeMap<String, String>,
    workspace: PathBuf,
    processes: Processes,
    waits: Waits,
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
        waits: Waits,
    ) -> Self {
        Self {
            name,
            config,
            env,
            workspace,
            processes,
            waits,
            connection: RefCell::default(),
            restarts: Cell::new(0),
            turn: Semaphore::new(1),
            is_closed: Cell::new(false),
        }
    }

    /// Starts the server for the first time, and asks what it offers.
    pub(super) async fn open(&self) -> Result<Offer, String> {
        let opening = async {
            let connection = self.start().await?;
            let offer = list(&connection).await;
            let offer = offer.map_err(|why| connection.ended().unwrap_or(why))?;
            Ok((connection, offer))
        };
        let opened = timeout(self.waits.start, opening).await;
        let (connection, offer) = opened.unwrap_or_else(|_| Err(self.not_ready()))?;
        self.connection.replace(Some(connection));
        Ok(offer)
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
        match timeout(self.waits.call, request).await {
            Ok(Ok(result)) => content::translate(result.get()),
            Ok(Err(why)) => {
                let why = self.why_ended().unwrap_or(why);
                Outcome::error(format!("{tool} of the MCP server {}: {why}", self.name))
            }
            Err(_) => Outcome::error(format!(
                "{tool} of the MCP server {} did not answer within {} seconds",
                self.name,
                self.waits.call.as_secs_f32()
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
        let started = timeout(self.waits.start, self.start()).await;
        let connection = started.unwrap_or_else(|_| Err(self.not_ready()))?;
        if !self.is_closed.get() {
            self.connection.replace(Some(connection));
        }
        Ok(())
    }

    fn not_ready(&self) -> String {
        format!("it was not ready within {} seconds", self.waits.start.as_secs_f32())
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

async fn list(connection: &Connection) -> Result<Offer, String> {
    let mut offer = Offer::default();
    let mut surplus = 0;
    let mut params = json!({});
    for _ in 0..MAX_PAGES {
        let answer = connection.request("tools/list", &params.to_string()).await?;
        let mut page: Value = serde_json::from_str(answer.get())
            .map_err(|error| format!("its list of tools could not be understood: {error}"))?;
        let Some(Value::Array(tools)) = page.get_mut("tools").map(Value::take) else {
            return Err("its list of tools could not be understood: it is no list".to_owned());
        };
        for tool in tools {
            // One tool that cannot be understood does not take the others away.
            match ServerTool::read(tool) {
                Some(tool) if offer.tools.len() < MAX_TOOLS => offer.tools.push(tool),
                Some(tool) => {
                    surplus += 1;
                    if surplus <= MAX_DROPPED_NAMED {
                        let name = shown(&tool.name);
                        offer.dropped.push(format!(
                            "{name} was left out: it has more than {MAX_TOOLS} tools"
                        ));
                    }
                }
                None if offer.dropped.len() < MAX_DROPPED_NAMED => {
                    let number = offer.tools.len() + offer.dropped.len() + 1;
                    offer.dropped.push(format!("its tool number {number} was left out: no name"));
                }
                None => {}
            }
        }
        match page.get("nextCursor").and_then(Value::as_str) {
            Some(cursor) if offer.tools.len() < MAX_TOOLS => params = json!({ "cursor": cursor }),
            Some(_) if surplus == 0 => {
                offer
                    .dropped
                    .push(format!("it has more than {MAX_TOOLS} tools: the rest is left out"));
                break;
            }
            Some(_) | None => break,
        }
    }
    if surplus > MAX_DROPPED_NAMED {
        offer.dropped.push(format!("{} more tools were left out", surplus - MAX_DROPPED_NAMED));
    }
    Ok(offer)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_tool_needs_nothing_but_a_name() {
        for tool in [
            json!({ "name": "t" }),
            json!({ "name": "t", "description": null, "annotations": null, "inputSchema": null }),
            json!({ "name": "t", "description": 7, "annotations": [], "inputSchema": false }),
            json!({ "name": "t", "annotations": { "readOnlyHint": "yes" } }),
        ] {
            let read = ServerTool::read(tool.clone());
            let read = read.unwrap_or_else(|| panic!("{tool} is no tool"));
            assert_eq!((read.name.as_str(), read.is_read_only), ("t", false));
            assert_eq!(read.description, "");
        }
        let hinted = json!({ "name": "t", "annotations": { "readOnlyHint": true, "title": 1 } });
        assert!(ServerTool::read(hinted).unwrap().is_read_only);
        for none in [json!({}), json!({ "name": "" }), json!({ "name": 7 }), json!("t")] {
            assert!(ServerTool::read(none.clone()).is_none(), "{none}");
        }
    }
}
