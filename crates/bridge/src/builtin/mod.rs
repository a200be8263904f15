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
mod journal;
pub mod mcp;
mod memory;
mod message;
pub mod model;
mod price;
mod prompt;
mod request;
mod shorten;
mod system;
pub mod tools;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use ash_protocol::{Ending, Limits, Usage};
use serde_json::json;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use self::agent::{Agent, Bounds, output};
use self::context::{MAX_REQUEST_BYTES, Room};
use self::conversation::Conversation;
use self::memory::Scope;
use self::model::{Client, Patience};
use self::price::Ledger;
use self::prompt::{Prompt, Thinking};
use self::request::Setup;
use self::tools::Toolbox;
use crate::exec::Env;
use crate::process::Processes;
use crate::reports::Reports;

const DEFAULT_MAX_ROUNDS: u32 = 200;
const DEFAULT_CONTEXT_TOKENS: u64 = 200_000;
const DEFAULT_ANSWER_TOKENS: u32 = 16_384;

/// What the runtime is given.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the agent works.
    pub workspace: PathBuf,
    /// Where it keeps what is its own.
    pub home: PathBuf,
    /// What tools find in their environment.
    pub env: Env,
    /// What they were to find there and do not.
    pub refused_variables: Vec<String>,
    /// Which model to ask.
    pub model: String,
    /// What must not be exceeded.
    pub limits: Limits,
    /// Where the model's requests go: plain HTTP to the server's proxy, which adds the key.
    pub endpoint: SocketAddr,
    /// How long to wait for the model, and how often to try.
    pub patience: Patience,
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
    toolbox: Toolbox,
    conversation: Conversation,
    /// What an estimated token really costs, as of the last answer.
    tokens_per_estimate: f64,
    /// What is to be said about the tools, once there is a run to say it in.
    notices: Vec<String>,
}

impl Builtin {
    /// Reads the conversation back, repairs it, and starts the tools.
    pub async fn open(settings: Settings, processes: Processes) -> Result<Self, OpenError> {
        let path = settings.home.join(".ash/conversation.jsonl");
        let context = settings.limits.context_tokens.unwrap_or(DEFAULT_CONTEXT_TOKENS);
        let room = Room { tokens: context, bytes: MAX_REQUEST_BYTES };
        let conversation =
            Conversation::open(&path, room).map_err(|source| OpenError { path, source })?;
        let (toolbox, problems) =
            Toolbox::open(settings.workspace.clone(), settings.env.clone(), processes).await;
        let refused = settings.refused_variables.iter();
        let refused = refused.map(|name| format!("the variable {name} is not passed on"));
        let notices = refused.chain(problems).collect();
        let client = Client::new(settings.endpoint, &settings.patience);
        Ok(Self { settings, client, toolbox, conversation, tokens_per_estimate: 1.0, notices })
    }

    /// Works on one prompt to its end. Every event goes to `reports` except the first and the last,
    /// which are the caller's: that the run has begun, and that it has ended.
    pub async fn run(
        &mut self,
        run: &str,
        prompt: &RawValue,
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
        for message in std::mem::take(&mut self.notices) {
            output(reports, "notice", &json!({ "message": message })).await;
        }
        let (ending, usage) = match Prompt::read(prompt) {
            Err(message) => (Ending::Failed { message }, Usage::default()),
            Ok(prompt) => {
                // Boxed: the nested loops make it large, and it is made once a turn.
                Box::pin(self.turn(run, prompt, reports, &interrupt)).await
            }
        };
        let (bytes, blake3, turns) = self.conversation.fingerprint();
        let body = json!({ "bytes": bytes, "blake3": blake3, "turns": turns });
        output(reports, "transcript", &body).await;
        (ending, usage)
    }

    /// Ends the tools.
    pub async fn close(mut self) {
        self.toolbox.close().await;
    }

    async fn turn(
        &mut self,
        run: &str,
        prompt: Prompt,
        reports: &Reports,
        interrupt: &CancellationToken,
    ) -> (Ending, Usage) {
        let Settings { workspace, home, model, limits, patience, .. } = &self.settings;
        if let Err(error) = self.conversation.begin(run, prompt.blocks) {
            return (agent::not_written(&error), Usage::default());
        }
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
            system: system::of(&Scope::Main, workspace),
            memory: system::of_memory(&memory),
            tools: calls::offered(&self.toolbox, &Scope::Main),
        };
        let bounds = Bounds {
            max_rounds: least(limits.max_rounds, prompt.max_rounds).unwrap_or(DEFAULT_MAX_ROUNDS),
            context_tokens: limits.context_tokens.unwrap_or(DEFAULT_CONTEXT_TOKENS),
        };
        let mut ledger =
            Ledger::with_budget(least(limits.budget_micro_usd, prompt.budget_micro_usd));
        let mut agent = Agent {
            scope: Scope::Main,
            run,
            workspace,
            home,
            client: &self.client,
            patience,
            toolbox: &self.toolbox,
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
        if let Err(error) = self.conversation.end(&ending) {
            ending = agent::not_written(&error);
        }
        (ending, ledger.usage())
    }
}

/// The lesser of two limits: a prompt may ask for less than its agent is allowed, not for more.
fn least<T: Ord>(agent: Option<T>, prompt: Option<T>) -> Option<T> {
    match (agent, prompt) {
        (Some(agent), Some(prompt)) => Some(agent.min(prompt)),
        (agent, prompt) => agent.or(prompt),
    }
}
