//! The tools of our own agent: a shell, files of the workspace, and whatever MCP servers offer.
//!
//! A call never fails the run. Whatever goes wrong becomes an [`Outcome`] that tells the model what
//! to do instead. File tools work on other threads, so that calls which only read really run at the
//! same time; one that was begun is finished even if nobody waits for it any longer, which keeps a
//! patch set whole. Commands and servers die with the call or the toolbox that started them.

mod base64;
mod bash;
mod change;
mod commit;
mod define;
mod fault;
mod glob;
mod input;
mod list;
pub(crate) mod media;
mod read;
mod record;
mod root;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use self::change::Edit;
use self::fault::Fault;
use self::input::Input;
use self::read::Lines;
use self::record::Journal;
use self::root::Root;
use crate::builtin::mcp::Servers;
pub use crate::builtin::mcp::Waits;
use crate::exec::Env;
use crate::process::Processes;

/// A tool, as it is offered to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// What the model calls it.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON schema of its input.
    pub input_schema: Value,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The content blocks of a `tool_result`: text, images, documents.
    pub content: Vec<Value>,
    /// Whether the call was wrong or failed.
    pub is_error: bool,
    /// The files that it changed, relative to the workspace.
    pub touched: Vec<String>,
}

impl Outcome {
    /// A text for the model.
    pub fn text(text: impl Into<String>) -> Self {
        let block = json!({ "type": "text", "text": text.into() });
        Self { content: vec![block], is_error: false, touched: Vec::new() }
    }

    /// A sentence that tells the model what was wrong.
    pub fn error(sentence: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(sentence) }
    }
}

/// Every tool that a run has.
pub struct Toolbox {
    workspace: PathBuf,
    root: Result<Arc<Root>, String>,
    journal: Arc<Journal>,
    env: Env,
    processes: Processes,
    servers: Servers,
}

impl Toolbox {
    /// Opens the workspace, takes back what a bridge that was killed left half done in it, and
    /// starts its MCP servers and those of the session. The strings say what was amiss, for the
    /// log; tools that could not be had are missing, and the others work.
    pub async fn open(
        workspace: PathBuf,
        of_session: Option<&RawValue>,
        env: Env,
        processes: Processes,
    ) -> (Self, Vec<String>) {
        Self::open_with(workspace, of_session, env, processes, Waits::default()).await
    }

    /// The same, with other waits for MCP servers.
    pub async fn open_with(
        workspace: PathBuf,
        of_session: Option<&RawValue>,
        env: Env,
        processes: Processes,
        waits: Waits,
    ) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let root = Root::open(&workspace).map(Arc::new).map_err(|error| {
            format!("the workspace {} could not be opened: {error}", workspace.display())
        });
        let home = env.variables().get("HOME").map(String::as_str);
        let journal = Arc::new(Journal::new(home));
        match &root {
            // Before the servers start, for they may look at the files.
            Ok(root) => problems.extend(commit::recover(root, &journal)),
            Err(problem) => problems.push(problem.clone()),
        }
        let (servers, more) = Servers::start(&workspace, of_session, &env, &processes, waits).await;
        problems.extend(more);
        (Self { workspace, root, journal, env, processes, servers }, problems)
    }

    /// What is offered to the model, in a stable order.
    pub fn definitions(&self) -> Vec<Definition> {
        let mut all = define::own();
        all.extend(self.servers.definitions());
        all
    }

    /// Whether a tool changes nothing, so that several calls may run at the same time.
    pub fn is_read_only(&self, name: &str) -> bool {
        matches!(name, "read_file" | "list_files") || self.servers.is_read_only(name)
    }

    /// Calls a tool. May be dropped at any point, which kills what it started.
    pub async fn call(&self, name: &str, input: &RawValue) -> Outcome {
        if self.servers.has(name) {
            return self.servers.call(name, input).await;
        }
        match self.call_own(name, input).await {
            Ok(outcome) => outcome,
            Err(fault) => Outcome::error(fault.to_string()),
        }
    }

    /// Ends the MCP servers. Their tools answer with errors from now on.
    pub async fn close(&mut self) {
        self.servers.close().await;
    }

    async fn call_own(&self, name: &str, raw: &RawValue) -> Result<Outcome, Fault> {
        let input = Input::parse(raw);
        match name {
            "bash" => {
                let command = bash::Command::parse(input?)?;
                Ok(bash::run(&self.processes, &self.env, &self.workspace, command).await)
            }
            "read_file" => {
                let mut input = input?;
                let path = input.text("path")?;
                let (first, count) =
                    (input.optional_number("offset")?, input.optional_number("limit")?);
                let lines = Lines::new(first, count);
                let content = self.blocking(move |root| read::read(root, &path, lines)).await?;
                Ok(Outcome { content, is_error: false, touched: Vec::new() })
            }
            "list_files" => {
                let mut input = input?;
                let path = input.optional_text("path")?.unwrap_or_default();
                let pattern = input.optional_text("pattern")?;
                let list =
                    self.blocking(move |root| list::list(root, &path, pattern.as_deref())).await?;
                Ok(Outcome::text(list))
            }
            "write_file" => {
                let mut input = input?;
                let (path, content) = (input.text("path")?, input.text("content")?);
                self.change(vec![Edit::Write { path, content }]).await.map_err(|(_, fault)| fault)
            }
            "edit_file" => {
                let mut input = input?;
                let path = input.text("path")?;
                let (old, new) = (input.text("old")?, input.text("new")?);
                self.change(vec![Edit::Replace { path, old, new }])
                    .await
                    .map_err(|(_, fault)| fault)
            }
            "apply_patchset" => {
                let edits = define::edits(input?)?;
                self.change(edits).await.map_err(|(index, fault)| match index {
                    Some(index) => {
                        Fault::new(format!("nothing was changed: edits[{index}]: {fault}"))
                    }
                    None => Fault::new(format!("nothing was changed: {fault}")),
                })
            }
            unknown => Err(self.unknown(unknown)),
        }
    }

    fn unknown(&self, name: &str) -> Fault {
        let names: Vec<String> =
            self.definitions().into_iter().map(|definition| definition.name).collect();
        Fault::new(format!("there is no tool {name:?}; there are: {}", names.join(", ")))
    }

    async fn change(&self, edits: Vec<Edit>) -> Result<Outcome, change::Refusal> {
        let journal = self.journal.clone();
        let changed = self
            .blocking(move |root| Ok(change::apply(root, &journal, edits)))
            .await
            .map_err(|fault| (None, fault))??;
        let text = format!("changed: {}", changed.files.join(", "));
        let lines: Vec<String> = std::iter::once(text).chain(changed.notes).collect();
        Ok(Outcome { touched: changed.files, ..Outcome::text(lines.join("\n")) })
    }

    /// Does file work on another thread: a slow disk must not stop the agent from being heard.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Root) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let root = self.root.clone().map_err(Fault::new)?;
        match tokio::task::spawn_blocking(move || work(&root)).await {
            Ok(result) => result,
            Err(_) => Err(Fault::new("the tool broke down; the call can be tried again")),
        }
    }
}
