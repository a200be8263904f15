//! A request as the model sees it: who said what, and where in the conversation it stands.
//!
//! Everything that steers an answer is computed from here and not from what the process remembers,
//! so that a request which is repeated, by a client or to a model that was restarted, has the same
//! answer.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use serde_json::Value;

use super::check;
use super::error::ApiError;
use super::parameters;

/// A request that the real API would take.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) model: String,
    pub(crate) system: String,
    pub(crate) stream: bool,
    pub(crate) tools: Vec<String>,
    pub(crate) messages: Vec<Message>,
    /// An estimate of what went in, in tokens.
    pub(crate) input_tokens: u64,
}

/// One message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) role: Role,
    pub(crate) blocks: Vec<Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    User,
    Assistant,
}

/// A content block, as far as the model looks at it.
#[derive(Debug, Hash)]
pub(crate) enum Block {
    Text(String),
    ToolUse { id: String, name: String, input: String },
    ToolResult { id: String, text: String },
    Thinking { text: String, signature: String },
    Other { kind: String },
}

impl Conversation {
    /// Reads the body of `POST /v1/messages`, and refuses what the real API refuses.
    pub(crate) fn read(body: &Value) -> Result<Self, ApiError> {
        if !body.is_object() {
            return Err(ApiError::invalid("the request body must be a JSON object"));
        }
        if body["max_tokens"].is_null() {
            return Err(ApiError::invalid("max_tokens: Field required"));
        }
        if body["max_tokens"].as_u64().is_none_or(|tokens| tokens == 0) {
            return Err(ApiError::invalid(
                "max_tokens: Input should be an integer greater than or equal to 1",
            ));
        }
        Self::read_for_counting(body)
    }

    /// Like [`read`](Self::read), for `count_tokens`, which produces nothing and needs no limit.
    pub(crate) fn read_for_counting(body: &Value) -> Result<Self, ApiError> {
        if body["model"].is_null() {
            return Err(ApiError::invalid("model: Field required"));
        }
        let Some(model) = body["model"].as_str().filter(|model| !model.is_empty()) else {
            return Err(ApiError::invalid("model: Input should be a valid string"));
        };
        let messages = check::messages(&body["messages"])?;
        parameters::check(body)?;
        let tools = body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Self {
            model: model.to_owned(),
            system: text_of(&body["system"]),
            stream: body["stream"].as_bool().unwrap_or(false),
            tools: tools
                .iter()
                .filter_map(|tool| tool["name"].as_str())
                .map(str::to_owned)
                .collect(),
            messages,
            input_tokens: ["system", "messages", "tools"]
                .map(|part| estimate(&body[part]))
                .into_iter()
                .sum(),
        })
    }

    /// Where each prompt is: a user message that says something besides what tools have given.
    pub(crate) fn prompts(&self) -> Vec<usize> {
        let is_prompt = |message: &Message| {
            message.role == Role::User && (!message.said().is_empty() || message.has_media())
        };
        let messages = self.messages.iter().enumerate();
        messages.filter(|(_, message)| is_prompt(message)).map(|(index, _)| index).collect()
    }

    /// The text of the last prompt.
    pub(crate) fn prompt(&self) -> String {
        self.prompts().last().map(|index| self.messages[*index].said()).unwrap_or_default()
    }

    /// The number of the last prompt, from one.
    pub(crate) fn turn(&self) -> u64 {
        self.prompts().len().max(1) as u64
    }

    /// How many answers the model has given since the last prompt, plus one.
    pub(crate) fn round(&self) -> u64 {
        let since = self.prompts().last().map_or(0, |index| index + 1);
        let answers = self.messages[since..].iter().filter(|of| of.role == Role::Assistant).count();
        answers as u64 + 1
    }

    /// Tells conversations apart, as far as a request shows it: two that begin alike, with the same
    /// model and system prompt, are one until they differ.
    pub(crate) fn digest(&self) -> u64 {
        let essence = self.messages.iter().map(|message| {
            let others = message.blocks.iter().filter(|block| !matches!(block, Block::Text(_)));
            (message.role, message.said(), others.collect::<Vec<_>>())
        });
        digest(&(&self.model, &self.system, essence.collect::<Vec<_>>()))
    }

    /// What the ids of this answer are made of: the beginning of the conversation, and a number that
    /// grows with it.
    ///
    /// The first part keeps a conversation and one that it delegates to apart. The number is the
    /// count of messages, or more if a client has dropped some and kept the ids of later ones.
    pub(crate) fn id_stem(&self) -> String {
        let origin = digest(&self.messages.first().map(Message::said)) & 0xff_ffff;
        let ids: Vec<&str> = self.messages.iter().flat_map(Message::tool_uses).collect();
        let mut number = self.messages.len();
        loop {
            let stem = format!("{origin:06x}_{number}");
            let taken = format!("{TOOL_ID_PREFIX}{stem}_");
            if !ids.iter().any(|id| id.starts_with(&taken)) {
                return stem;
            }
            number += 1;
        }
    }
}

/// How ids of tool calls begin.
pub(crate) const TOOL_ID_PREFIX: &str = "toolu_script_";

impl Message {
    /// What was said in it, without what harnesses put in for the model's eyes.
    pub(crate) fn said(&self) -> String {
        let mut said = String::new();
        for block in &self.blocks {
            let Block::Text(text) = block else { continue };
            let text = without_reminders(text);
            if !text.trim().is_empty() {
                said.push_str(if said.is_empty() { "" } else { "\n" });
                said.push_str(text.trim());
            }
        }
        said
    }

    fn has_media(&self) -> bool {
        self.blocks.iter().any(
            |block| matches!(block, Block::Other { kind } if kind == "image" || kind == "document"),
        )
    }

    fn tool_uses(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolUse { id, .. } => Some(id.as_str()),
            Block::Text(_)
            | Block::ToolResult { .. }
            | Block::Thinking { .. }
            | Block::Other { .. } => None,
        })
    }
}

impl Block {
    pub(crate) fn read(block: &Value) -> Self {
        let text = |field: &str| block[field].as_str().unwrap_or_default().to_owned();
        match block["type"].as_str().unwrap_or_default() {
            "text" => Self::Text(text("text")),
            "tool_use" => Self::ToolUse {
                id: text("id"),
                name: text("name"),
                input: block["input"].to_string(),
            },
            "tool_result" => {
                Self::ToolResult { id: text("tool_use_id"), text: text_of(&block["content"]) }
            }
            "thinking" => Self::Thinking { text: text("thinking"), signature: text("signature") },
            kind => Self::Other { kind: kind.to_owned() },
        }
    }
}

/// The text of content that is a string or a list of blocks.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts: Vec<&str> = blocks.iter().filter_map(|of| of["text"].as_str()).collect();
            texts.join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

/// Agents such as Claude Code wrap what they add to a person's message in this element. It changes
/// from request to request and steers nothing.
fn without_reminders(text: &str) -> String {
    const OPEN: &str = "<system-reminder>";
    const CLOSE: &str = "</system-reminder>";
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        kept.push_str(before);
        rest = after.split_once(CLOSE).map_or("", |(_, rest)| rest);
    }
    kept + rest
}

/// Four bytes of JSON make a token, more or less.
fn estimate(value: &Value) -> u64 {
    if value.is_null() { 0 } else { (value.to_string().len() as u64).div_ceil(4) }
}

/// The same in every process: `DefaultHasher::new` has no seed.
pub(crate) fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
