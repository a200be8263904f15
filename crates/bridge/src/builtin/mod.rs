//! Our own agent loop on the Messages API.
//!
//! One prompt is one *turn*; in a turn the model is asked in *rounds*, and between two rounds the
//! tools it called are run. The rule that makes it durable: a message is on disk (`conversation`)
//! before the step that follows from it is taken, so that whatever is killed at whatever point, the
//! next [`Builtin::open`] finds a conversation that a model can go on with.
//!
//! ```text
//!   prompt ──► append ──► ask the model ──► append ──► run tools ──► append ──┐
//!                              ▲                │                             │
//!                              └────────────────┼─────────────────────────────┘
//!                                               └──► no tools: the turn ends
//! ```

mod agent;
mod calls;
mod context;
mod conversation;
mod delegate;
pub mod mcp;
mod memory;
mod message;
pub mod model;
mod permission;
mod price;
mod prompt;
mod request;
mod result;
mod selection;
mod shorten;
mod strict;
mod system;
pub mod tools;

use std::io;
use std::path::PathBuf;

use ash_protocol::{Ending, Usage};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::agent::{Agent, Bounds, output};
use self::calls::Offered;
use self::context::{MAX_REQUEST_BYTES, Room};
use self::conversation::Conversation;
use self::memory::Scope;
use self::model::Client;
use self::permission::Mode;
use self::price::Ledger;
use self::prompt::{Prompt, Thinking};
use self::request::Setup;
use self::result::Last;
use self::selection::Selection;
use self::tools::Toolbox;
use crate::process::Processes;
use crate::reports::Reports;
pub use crate::settings::Settings;

const DEFAULT_MAX_ROUNDS: u32 = 200;
const DEFAULT_CONTEXT_TOKENS: u64 = 200_000;
const DEFAULT_ANSWER_TOKENS: u32 = 16_384;

/// A prompt that is in the conversation and is not worked on yet.
#[derive(Debug)]
pub struct Accepted {
    run: String,
    prompt: Prompt,
}

/// Why a conversation could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("could not open the conversation {path}", path = path.display())]
pub struct OpenError {
    path: PathBuf,
    source: io::Error,
}

/// The runtime: a conversation, and what is needed to go on with it.
pub struct Builtin {
    settings: Settings,
    client: Client,
    /// Opened with the first turn: it may take long.
    toolbox: Option<Toolbox>,
    /// What the session lets the agent use of them.
    selection: Selection,
    processes: Processes,
    conversation: Conversation,
    /// What an estimated token really costs, as of the last answer.
    tokens_per_estimate: f64,
    /// What is to be said about the tools, once there is a run to say it in.
    notices: Vec<String>,
}

impl Builtin {
    /// Reads the conversation back and repairs it.
    pub fn open(settings: Settings, processes: Processes) -> Result<Self, OpenError> {
        let path = settings.home.join(".ash/conversation.jsonl");
        let context = settings.limits.context_tokens.unwrap_or(DEFAULT_CONTEXT_TOKENS);
        let room = Room { tokens: context, bytes: MAX_REQUEST_BYTES };
        let conversation =
            Conversation::open(&path, room).map_err(|source| OpenError { path, source })?;
        let refused = settings.refused_variables.iter();
        let refused = refused.map(|name| format!("the variable {name} is not passed on"));
        let unknown = settings.permission_mode.as_deref().and_then(permission::problem);
        let notices = refused.chain(unknown).collect();
        let selection = Selection::new(&settings.allowed_tools, &settings.disallowed_tools);
        let client = Client::new(settings.endpoint, &settings.patience);
        Ok(Self {
            settings,
            client,
            toolbox: None,
            selection,
            processes,
            conversation,
            tokens_per_estimate: 1.0,
            notices,
        })
    }

    /// Takes a prompt into the conversation. Once this has returned, it is remembered.
    pub fn accept(&mut self, run: &str, prompt: &RawValue) -> Result<Accepted, Ending> {
        let mut prompt = Prompt::read(prompt).map_err(|message| Ending::Failed { message })?;
        let begun = self.conversation.begin(run, std::mem::take(&mut prompt.blocks));
        begun.map_err(|error| agent::not_written(&error))?;
        Ok(Accepted { run: run.to_owned(), prompt })
    }

    /// Works on one prompt to its end: [`accept`](Self::accept), and then [`work`](Self::work).
    pub async fn run(
        &mut self,
        run: &str,
        prompt: &RawValue,
        reports: &Reports,
        interrupt: CancellationToken,
    ) -> (Ending, Usage) {
        let accepted = self.accept(run, prompt);
        self.work(accepted, reports, interrupt).await
    }

    /// Works on a prompt that was accepted, or says why it was not. Every event goes to `reports`
    /// except the first and the last, which are the caller's: that the run has begun, and that it
    /// has ended.
    pub async fn work(
        &mut self,
        accepted: Result<Accepted, Ending>,
        reports: &Reports,
        interrupt: CancellationToken,
    ) -> (Ending, Usage) {
        if let Some(repair) = self.conversation.take_repair() {
            let body = json!({
                "droppedBytes": repair.dropped_bytes,
                "skippedLines": repair.skipped_lines,
            });
            output(reports, "conversation_repaired", &body).await;
        }
        let begun = Instant::now();
        let (ending, usage) = match accepted {
            Err(ending) => (ending, Usage::default()),
            Ok(accepted) => {
                // Boxed: the nested loops make it large, and it is made once a turn.
                let (ending, last) = Box::pin(self.turn(accepted, reports, &interrupt)).await;
                result::report(reports, &ending, &last, begun.elapsed()).await;
                (ending, last.usage)
            }
        };
        let (bytes, blake3, turns) = self.conversation.fingerprint();
        let body = json!({ "bytes": bytes, "blake3": blake3, "turns": turns });
        output(reports, "transcript", &body).await;
        (ending, usage)
    }

    /// Ends the tools.
    pub async fn close(mut self) {
        if let Some(toolbox) = &mut self.toolbox {
            toolbox.close().await;
        }
    }

    /// Starts the tools, if they are not there yet. Nothing, if the wait was interrupted.
    async fn tools(&mut self, interrupt: &CancellationToken) -> Option<Toolbox> {
        if let Some(toolbox) = self.toolbox.take() {
            return Some(toolbox);
        }
        let (workspace, env) = (self.settings.workspace.clone(), self.settings.env.clone());
        let of_session = self.settings.mcp_servers.as_deref();
        let opening = Toolbox::open(workspace, of_session, env, self.processes.clone());
        let (toolbox, problems) = interrupt.run_until_cancelled(opening).await?;
        self.notices.extend(problems);
        self.notices.extend(self.selection.problems(&names_in(&toolbox)));
        Some(toolbox)
    }

    /// Lets the agent use what the session says by now: its prompts carry that.
    fn select(&mut self, prompt: &Prompt) {
        let Settings { allowed_tools, disallowed_tools, .. } = &mut self.settings;
        let said =
            [(&prompt.allowed_tools, allowed_tools), (&prompt.disallowed_tools, disallowed_tools)];
        let mut has_changed = false;
        for (said, known) in said {
            if let Some(said) = said.as_ref().filter(|said| *said != known) {
                known.clone_from(said);
                has_changed = true;
            }
        }
        if has_changed {
            let Settings { allowed_tools, disallowed_tools, .. } = &self.settings;
            self.selection = Selection::new(allowed_tools, disallowed_tools);
            // A toolbox that is not open yet is spoken of when it is.
            let names = self.toolbox.as_ref().map(names_in);
            self.notices
                .extend(names.into_iter().flat_map(|names| self.selection.problems(&names)));
        }
    }

    async fn turn(
        &mut self,
        accepted: Accepted,
        reports: &Reports,
        interrupt: &CancellationToken,
    ) -> (Ending, Last) {
        let Accepted { run, prompt } = accepted;
        self.select(&prompt);
        let tools = self.tools(interrupt).await;
        for message in std::mem::take(&mut self.notices) {
            output(reports, "notice", &json!({ "message": message })).await;
        }
        let Some(tools) = tools else {
            let ended = self.conversation.end(&Ending::Interrupted);
            let ending =
                ended.err().map_or(Ending::Interrupted, |error| agent::not_written(&error));
            return (ending, Last::default());
        };
        // Kept at once: if this is dropped in mid-turn, the next one has them still.
        let toolbox = &*self.toolbox.insert(tools);
        let Settings { workspace, home, model, limits, patience, system_prompt, .. } =
            &self.settings;
        let (selection, of_session) = (&self.selection, system_prompt.as_deref());
        let offered = Offered::new(toolbox, &Scope::Main, selection);
        let memory = self.conversation.memory().clone();
        let model = prompt.model.unwrap_or_else(|| model.clone());
        let setup = Setup {
            output_limit: price::output_limit(&model),
            model,
            answer_tokens: limits.answer_tokens.unwrap_or(DEFAULT_ANSWER_TOKENS),
            thinking: prompt
                .thinking
                .or(limits.thinking_tokens.map(Thinking::of))
                .unwrap_or(Thinking::Off),
            system: system::of(&Scope::Main, workspace, selection, of_session),
            memory: system::of_memory(&memory),
            tools: offered.in_json(),
            output_schema: prompt.output_schema,
        };
        let said = prompt.permission_mode.as_deref().or(self.settings.permission_mode.as_deref());
        let bounds = Bounds {
            max_rounds: least(limits.max_rounds, prompt.max_rounds).unwrap_or(DEFAULT_MAX_ROUNDS),
            context_tokens: limits.context_tokens.unwrap_or(DEFAULT_CONTEXT_TOKENS),
        };
        let mut ledger =
            Ledger::with_budget(least(limits.budget_micro_usd, prompt.budget_micro_usd));
        let mut agent = Agent {
            scope: Scope::Main,
            run: &run,
            workspace,
            home,
            client: &self.client,
            patience,
            toolbox,
            selection,
            offered,
            mode: Mode::read(said),
            questions: &self.settings.questions,
            of_session,
            conversation: &mut self.conversation,
            parent: None,
            memory,
            setup,
            bounds,
            ledger: &mut ledger,
            reports,
            interrupt,
            round: 0,
            tokens_per_estimate: self.tokens_per_estimate,
            last_text: String::new(),
        };
        let mut ending = agent.run().await;
        self.tokens_per_estimate = agent.tokens_per_estimate;
        let (rounds, text) = (agent.round, std::mem::take(&mut agent.last_text));
        let has_shape = agent.setup.output_schema.is_some();
        if let Err(error) = self.conversation.end(&ending) {
            ending = agent::not_written(&error);
        }
        (ending, Last { rounds, text, has_shape, usage: ledger.usage() })
    }
}

fn names_in(toolbox: &Toolbox) -> Vec<String> {
    calls::there_are(toolbox, &Scope::Main).into_iter().map(|tool| tool.name).collect()
}

/// The lesser of two limits: a prompt may ask for less than its agent is allowed, not for more.
fn least<T: Ord>(agent: Option<T>, prompt: Option<T>) -> Option<T> {
    match (agent, prompt) {
        (Some(agent), Some(prompt)) => Some(agent.min(prompt)),
        (agent, prompt) => agent.or(prompt),
    }
}
