//! Makes a reply out of an answer, now that the conversation is known.

use std::time::Duration;

use serde_json::{Value, json};

use super::conversation::{Conversation, TOOL_ID_PREFIX, digest};
use super::memory;
use super::script::Answer;
use super::script::step::{Call, Part, StopReason};

/// Everything that is sent when nothing goes wrong.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) blocks: Vec<Rendered>,
    pub(crate) stop: StopReason,
    pub(crate) usage: Usage,
    pub(crate) slow: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) enum Rendered {
    Text(Pieces),
    Thinking(String),
    /// The input is JSON, or what was asked for instead.
    ToolUse {
        id: String,
        name: String,
        input: String,
    },
    Unknown,
}

/// Text, and how it is cut into deltas.
#[derive(Clone, Debug)]
pub(crate) enum Pieces {
    /// A word at a time.
    Words(String),
    /// The same piece again and again; `None` is for ever.
    Same { piece: String, times: Option<u64> },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
}

/// What a scripted thought is signed with. It depends on the thought alone.
pub(crate) fn signature(thought: &str) -> String {
    format!("c2NyaXB0ZWQ{:016x}", digest(&thought))
}

impl Reply {
    pub(crate) fn new(conversation: &Conversation, answer: &Answer) -> Self {
        let stem = conversation.id_stem();
        let mut calls = 0;
        let mut blocks: Vec<Rendered> = Vec::new();
        for part in &answer.parts {
            blocks.push(match part {
                Part::Say(text) => words(text.clone()),
                Part::Think(thought) => Rendered::Thinking(thought.clone()),
                Part::Repeat { times, text } => same(text, Some(*times)),
                Part::Flood(times) => same("x", Some(*times)),
                Part::Endless(text) => same(text, None),
                Part::Recall => words(memory::recall(conversation)),
                Part::Results => words(memory::results(conversation)),
                Part::Unknown => Rendered::Unknown,
                Part::Call(call) => {
                    calls += 1;
                    let id = format!("{TOOL_ID_PREFIX}{stem}_{calls}");
                    let (name, input) = name_and_input(conversation, call);
                    Rendered::ToolUse { id, name, input }
                }
            });
        }
        if blocks.is_empty() && !answer.empty {
            blocks.push(words(memory::unscripted(conversation)));
        }
        let natural = if calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
        let output = blocks.iter().map(Rendered::tokens).fold(0, u64::saturating_add).max(1);
        Self {
            id: format!("msg_script_{stem}"),
            model: conversation.model.clone(),
            stop: answer.stop.unwrap_or(natural),
            usage: Usage {
                input: answer.usage.input.unwrap_or(conversation.input_tokens),
                output: answer.usage.output.unwrap_or(output),
                cache_read: answer.usage.cache_read.unwrap_or(0),
                cache_write: answer.usage.cache_write.unwrap_or(0),
            },
            slow: answer.slow,
            blocks,
        }
    }

    /// The kinds of its blocks, for the log.
    pub(crate) fn kind(&self) -> String {
        let kinds: Vec<&str> = self.blocks.iter().map(Rendered::kind).collect();
        if kinds.is_empty() { "empty".to_owned() } else { kinds.join("+") }
    }

    pub(crate) fn is_endless(&self) -> bool {
        self.blocks.iter().any(Rendered::is_endless)
    }

    /// The message as it is at its beginning, before any content.
    pub(crate) fn head(&self) -> Value {
        let mut usage = self.usage.json();
        usage["output_tokens"] = json!(1);
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage,
        })
    }

    /// The whole message. A text without end is left out: nobody could wait for it.
    pub(crate) fn message(&self) -> Value {
        let mut message = self.head();
        message["content"] = self.blocks.iter().map(Rendered::json).collect();
        message["stop_reason"] = json!(self.stop.word());
        message["usage"] = self.usage.json();
        message
    }
}

impl Usage {
    pub(crate) fn json(self) -> Value {
        json!({
            "input_tokens": self.input,
            "cache_creation_input_tokens": self.cache_write,
            "cache_read_input_tokens": self.cache_read,
            "output_tokens": self.output,
        })
    }
}

impl Rendered {
    fn is_endless(&self) -> bool {
        matches!(self, Self::Text(Pieces::Same { times: None, .. }))
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) if self.is_endless() => "endless",
            Self::Text(_) => "text",
            Self::Thinking(_) => "thinking",
            Self::ToolUse { .. } => "tool_use",
            Self::Unknown => "unknown",
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(Pieces::Words(text)) => json!({ "type": "text", "text": text }),
            Self::Text(Pieces::Same { piece, times }) => {
                let times = usize::try_from(times.unwrap_or(0)).unwrap_or(0);
                json!({ "type": "text", "text": piece.repeat(times) })
            }
            Self::Thinking(thought) => json!({
                "type": "thinking", "thinking": thought, "signature": signature(thought),
            }),
            Self::ToolUse { id, name, input } => {
                // What is no JSON arrives as a string, which is no valid input either.
                let input = serde_json::from_str(input).unwrap_or_else(|_| json!(input));
                json!({ "type": "tool_use", "id": id, "name": name, "input": input })
            }
            Self::Unknown => json!({ "type": UNKNOWN_BLOCK, "payload": "skip me" }),
        }
    }

    fn tokens(&self) -> u64 {
        let bytes = match self {
            Self::Text(Pieces::Words(text)) | Self::Thinking(text) => text.len() as u64,
            Self::Text(Pieces::Same { piece, times }) => {
                (piece.len() as u64).saturating_mul(times.unwrap_or(0))
            }
            Self::ToolUse { name, input, .. } => (name.len() + input.len()) as u64,
            Self::Unknown => 0,
        };
        bytes.div_ceil(4)
    }
}

/// The type of a block that no client knows.
pub(crate) const UNKNOWN_BLOCK: &str = "scripted_unknown";

fn words(text: String) -> Rendered {
    Rendered::Text(Pieces::Words(text))
}

fn same(piece: &str, times: Option<u64>) -> Rendered {
    Rendered::Text(Pieces::Same { piece: piece.to_owned(), times })
}

fn name_and_input(conversation: &Conversation, call: &Call) -> (String, String) {
    match call {
        Call::Tool { name, input } => (name.clone(), json!(input).to_string()),
        Call::BadTool { name, raw } => (name.clone(), raw.clone()),
        Call::Bash(command) => {
            // One agent calls it `bash`, another `Bash`.
            let offered = conversation.tools.iter().find(|tool| tool.eq_ignore_ascii_case("bash"));
            let name = offered.map_or("bash", String::as_str).to_owned();
            (name, json!({ "command": command }).to_string())
        }
    }
}
