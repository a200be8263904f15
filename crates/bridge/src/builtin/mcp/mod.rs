//! MCP servers: programs that a workspace names in `.mcp.json`, or a session in its options, and that
//! offer tools over their standard streams.
//!
//! Servers are strangers. Whatever one does, say nothing, say too much, die, costs its own tools
//! and nothing else: every wait and every size has a bound, and its tree dies with the toolbox.

mod config;
mod connection;
mod content;
mod lines;
mod names;
mod schema;
mod server;

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use serde_json::value::RawValue;
use tokio::task::JoinSet;

pub(super) use self::names::clean;
pub use self::server::Waits;
use self::server::{Offer, Server};
use super::tools::{Definition, Outcome};
use crate::exec::Env;
use crate::process::Processes;

/// How much of a tool's description a model is shown.
const MAX_DESCRIPTION_CHARS: usize = 8_000;

/// The servers of a workspace, and their tools.
pub(super) struct Servers {
    servers: Vec<Rc<Server>>,
    tools: Vec<Tool>,
}

struct Tool {
    definition: Definition,
    server: Rc<Server>,
    /// What its server calls it.
    name: String,
    is_read_only: bool,
}

impl Servers {
    /// Starts every server, all at the same time: those of the workspace and those of the session.
    /// The strings say what went wrong.
    pub(super) async fn start(
        workspace: &Path,
        of_session: Option<&RawValue>,
        env: &Env,
        processes: &Processes,
        waits: Waits,
    ) -> (Self, Vec<String>) {
        let (configs, mut problems) = config::read(workspace, of_session);
        let mut starting = JoinSet::new();
        for (index, (name, config)) in configs.into_iter().enumerate() {
            let (env, refused) = env.with(&config.env);
            for variable in refused {
                problems.push(format!("MCP server {name}: the variable {variable} is refused"));
            }
            let (env, workspace) = (env.variables().clone(), workspace.to_owned());
            let server = Server::new(name, config, env, workspace, processes.clone(), waits);
            starting.spawn_local(async move {
                let opened = server.open().await;
                (index, Rc::new(server), opened)
            });
        }
        let mut started = starting.join_all().await;
        // Who was ready first is chance, and the model should see the same list every time.
        started.sort_by_key(|(index, ..)| *index);

        let mut all = Self { servers: Vec::new(), tools: Vec::new() };
        let mut taken = BTreeSet::new();
        for (_, server, opened) in started {
            match opened {
                Ok(offer) => all.add(server, offer, &mut taken, &mut problems),
                Err(why) => problems.push(format!("MCP server {}: {why}", server.name)),
            }
        }
        (all, problems)
    }

    fn add(
        &mut self,
        server: Rc<Server>,
        offer: Offer,
        taken: &mut BTreeSet<String>,
        problems: &mut Vec<String>,
    ) {
        let dropped = offer.dropped.into_iter();
        problems.extend(dropped.map(|what| format!("MCP server {}: {what}", server.name)));
        for tool in offer.tools {
            let mut description: String =
                tool.description.chars().take(MAX_DESCRIPTION_CHARS).collect();
            let fitted = schema::fit(tool.input_schema);
            if let Some((why, original)) = fitted.replaced {
                problems.push(format!(
                    "MCP server {}: the input schema of {} cannot be used, and is open: {why}",
                    server.name,
                    server::shown(&tool.name)
                ));
                description.push_str("\n\nThe input must fit this JSON schema: ");
                description.push_str(&original);
            }
            let definition = Definition {
                name: names::unique(&server.name, &tool.name, taken),
                description,
                input_schema: fitted.schema,
            };
            let (server, name, is_read_only) = (server.clone(), tool.name, tool.is_read_only);
            self.tools.push(Tool { definition, server, name, is_read_only });
        }
        self.servers.push(server);
    }

    pub(super) fn definitions(&self) -> impl Iterator<Item = Definition> {
        self.tools.iter().map(|tool| tool.definition.clone())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Whether a server says of a tool that it changes nothing.
    pub(super) fn is_read_only(&self, name: &str) -> bool {
        self.find(name).is_some_and(|tool| tool.is_read_only)
    }

    pub(super) async fn call(&self, name: &str, input: &RawValue) -> Outcome {
        let Some(tool) = self.find(name) else {
            return Outcome::error(format!("there is no tool {name}"));
        };
        if !input.get().trim_start().starts_with('{') {
            return Outcome::error("the input must be a JSON object with the tool's fields");
        }
        tool.server.call(&tool.name, input).await
    }

    /// Ends every server.
    pub(super) async fn close(&mut self) {
        let mut closing = JoinSet::new();
        for server in self.servers.drain(..) {
            closing.spawn_local(async move { server.close().await });
        }
        closing.join_all().await;
    }

    fn find(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.definition.name == name)
    }
}
