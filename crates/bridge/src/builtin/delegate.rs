//! A piece of work for a coder: the same loop, with a conversation and a memory of its own.
//!
//! It shares the run's budget and its interrupt, and it cannot delegate. What it did is in a file
//! beside the main conversation, for people; the agent only gets its last words.

use std::path::PathBuf;

use ash_protocol::Ending;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::agent::{Agent, Bounds};
use super::calls::Offered;
use super::context::{MAX_REQUEST_BYTES, Room};
use super::conversation::Conversation;
use super::memory::{Memory, Scope};
use super::message::Block;
use super::request::Setup;
use super::system;
use super::tools::{Definition, Outcome};

pub(super) const DELEGATE_CODER: &str = "delegate_coder";

/// How often a coder may ask the model.
const MAX_CODER_ROUNDS: u32 = 50;

#[derive(Deserialize)]
struct Task {
    task: String,
    #[serde(default)]
    context: Option<String>,
}

pub(super) fn definition() -> Definition {
    Definition {
        name: DELEGATE_CODER.to_owned(),
        description:
            "Hands a separate piece of programming to a coder, who has the same tools and \
                      workspace but knows nothing of this conversation. Returns its closing \
                      account."
                .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "task": {
                    "type": "string",
                    "description": "What to do, and how to know that it is done.",
                },
                "context": {
                    "type": "string",
                    "description": "What the coder has to know: files, decisions, conventions.",
                },
            },
            "required": ["task"],
        }),
    }
}

impl Agent<'_> {
    /// Has a coder do it. An ending is one of the whole run.
    pub(super) async fn delegate(
        &mut self,
        id: &str,
        input: &RawValue,
    ) -> (Outcome, Option<Ending>) {
        let task: Task = match serde_json::from_str(input.get()) {
            Ok(task) => task,
            Err(error) => {
                return (Outcome::error(format!("the task is not understood: {error}")), None);
            }
        };
        let room = Room { tokens: self.bounds.context_tokens, bytes: MAX_REQUEST_BYTES };
        let texts = [Some(task.task.as_str()), task.context.as_deref()];
        let prompt = texts.into_iter().flatten().map(Block::text).collect();
        let opened = self.coder_file().and_then(|path| {
            let mut conversation = Conversation::open(&path, room)?;
            conversation.begin(self.run, prompt)?;
            Ok(conversation)
        });
        let mut conversation = match opened {
            Ok(conversation) => conversation,
            Err(error) => {
                return (Outcome::error(format!("the coder could not be started: {error}")), None);
            }
        };
        let scope = Scope::Coder { delegation: id.to_owned() };
        let offered = Offered::new(self.toolbox, &scope, self.selection);
        let mut coder = Agent {
            setup: Setup {
                model: self.setup.model.clone(),
                system: system::of(&scope, self.workspace, self.selection, self.of_session),
                memory: String::new(),
                tools: offered.in_json(),
                // A coder answers the agent, which needs no shape.
                output_schema: None,
                ..self.setup
            },
            scope,
            run: self.run,
            workspace: self.workspace,
            home: self.home,
            client: self.client,
            patience: self.patience,
            toolbox: self.toolbox,
            selection: self.selection,
            offered,
            mode: self.mode,
            questions: self.questions,
            of_session: self.of_session,
            conversation: &mut conversation,
            parent: Some(&mut *self.conversation),
            memory: Memory::default(),
            bounds: Bounds { max_rounds: MAX_CODER_ROUNDS, ..self.bounds },
            ledger: &mut *self.ledger,
            reports: self.reports,
            interrupt: self.interrupt,
            round: 0,
            tokens_per_estimate: self.tokens_per_estimate,
            last_text: String::new(),
        };
        let ending = coder.run().await;
        let (said, memory) = (std::mem::take(&mut coder.last_text), coder.memory.in_words());
        let unfinished = |why: &str| {
            Outcome::error(format!("{why}\nIts last words: {said}\nIts working memory:\n{memory}"))
        };
        if let Err(error) = conversation.end(&ending) {
            return (
                Outcome::error(format!("the coder's work could not be recorded: {error}")),
                None,
            );
        }
        match ending {
            Ending::EndTurn if said.trim().is_empty() => {
                (Outcome::text("The coder finished without a word."), None)
            }
            Ending::EndTurn => (Outcome::text(said), None),
            Ending::MaxTurns => {
                (unfinished("the coder did not finish within the rounds it has"), None)
            }
            Ending::Failed { message } | Ending::Refused { message } => {
                (unfinished(&format!("the coder could not go on: {message}")), None)
            }
            Ending::Budget | Ending::Quota => {
                (unfinished("the coder was stopped: the run's limit was reached"), Some(ending))
            }
            Ending::Interrupted => {
                let why = "interrupted by the user; it may have partly taken effect";
                (unfinished(why), Some(ending))
            }
        }
    }

    /// A file that is not there yet.
    fn coder_file(&self) -> std::io::Result<PathBuf> {
        let mut number = 1;
        loop {
            let path = self.home.join(format!(".ash/coder-{number}.jsonl"));
            if !path.try_exists()? {
                return Ok(path);
            }
            number += 1;
        }
    }
}
