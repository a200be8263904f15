//! Prompts and commands on the wire.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Ref, Schema, Type};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use super::object::{self, Object};
use super::session::PermissionMode;

/// What a person says to an agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Text, pictures and documents.
    Blocks(Vec<Block>),
}

/// By hand: what serde derives tries one after the other, and cannot say which block is wrong.
impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrBlocks;

        impl<'de> Visitor<'de> for TextOrBlocks {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of blocks")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Content, E> {
                Ok(Content::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
                let mut blocks = Vec::new();
                while let Some(block) = seq.next_element::<Object<Block>>()? {
                    blocks.push(block.0);
                }
                Ok(Content::Blocks(blocks))
            }
        }

        deserializer.deserialize_any(TextOrBlocks)
    }
}

/// The longest text of a prompt, in characters.
pub const MAX_TEXT_CHARS: usize = 500_000;

/// The most blocks of a prompt.
pub const MAX_BLOCKS: usize = 20;

impl PartialSchema for Content {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .min_length(Some(1))
            .max_length(Some(MAX_TEXT_CHARS))
            .pattern(Some("\\S"));
        let blocks = ArrayBuilder::new()
            .items(Ref::from_schema_name(Block::name()))
            .min_items(Some(1))
            .max_items(Some(MAX_BLOCKS));
        OneOfBuilder::new()
            .description(Some("Text, or text, pictures and documents."))
            .item(text)
            .item(blocks)
            .into()
    }
}

impl ToSchema for Content {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((Block::name().into_owned(), Block::schema()));
    }
}

/// A part of a prompt. What else it says is passed to the model as it is.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Where it comes from: `{"type": "base64", "media_type": …, "data": …}`.
        source: Map<String, Value>,
    },
    /// A document.
    Document {
        /// Where it comes from.
        source: Map<String, Value>,
    },
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        Ok(match object::kind(&fields, &["text", "image", "document"])? {
            "text" => Self::Text { text: object::field(&mut fields, "text")? },
            "image" => Self::Image { source: object::field(&mut fields, "source")? },
            _ => Self::Document { source: object::field(&mut fields, "source")? },
        })
    }
}

/// How hard the model tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// More than that.
    XHigh,
    /// As much as it can.
    Max,
}

/// Whether the model thinks before it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Thinking {
    /// It does, for this many tokens.
    Enabled {
        /// How many.
        #[serde(default, rename = "budgetTokens", skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1024, maximum = 1_000_000)]
        budget_tokens: Option<u32>,
    },
    /// It does, as it finds right.
    Adaptive,
    /// It does not.
    Disabled,
}

impl<'de> Deserialize<'de> for Thinking {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        Ok(match object::kind(&fields, &["enabled", "adaptive", "disabled"])? {
            "enabled" => {
                let name = "budgetTokens";
                let is_there = fields.get(name).is_some_and(|tokens| !tokens.is_null());
                let tokens = is_there.then(|| object::field(&mut fields, name)).transpose()?;
                Self::Enabled { budget_tokens: tokens }
            }
            "adaptive" => Self::Adaptive,
            _ => Self::Disabled,
        })
    }
}

/// The shape of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self")]
pub struct OutputFormat {
    /// What kind of shape.
    #[serde(rename = "type")]
    pub kind: OutputKind,
    /// The shape, as a JSON Schema.
    #[schema(value_type = Object)]
    pub schema: serde_json::Map<String, Value>,
}

super::schema::only_objects!(OutputFormat);

/// What says what shape an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputKind {
    /// A JSON Schema.
    JsonSchema,
}

/// What to do when a run goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum IfBusy {
    /// Wait.
    #[default]
    Queue,
    /// Be refused.
    Reject,
}

/// A message to a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SendMessage {
    /// What is said.
    pub content: Content,
    /// Tell the answer also as the model's API does: `message` events of the type `stream_event`, which are not logged
    /// and have no id. Without it text comes in pieces (`text_delta`, `thinking_delta`) alone; with `false` not even in
    /// those, but only as whole messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_partial_messages: Option<bool>,
    /// Another model for this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 100)]
    pub model: Option<String>,
    /// How often the model may be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max_turns: Option<u32>,
    /// What the run may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000)]
    pub max_budget_usd: Option<f64>,
    /// How hard the model tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Whether the model thinks before it answers.
    #[serde(default, deserialize_with = "object::one", skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// The shape of the answer. The last message of the run, of the type `result`, has what was answered as
    /// `structured_output`.
    #[serde(default, deserialize_with = "object::one", skip_serializing_if = "Option::is_none")]
    pub output_format: Option<OutputFormat>,
    /// How tool calls of this run are allowed; nothing: as the session says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// After how long a question of this run that nobody answers is answered with no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 604_800_000)]
    pub permission_timeout_ms: Option<u64>,
    /// Tools that may be used in this run; nothing: as the session says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Tools that may not be used in this run; nothing: as the session says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disallowed_tools: Option<Vec<String>>,
    /// Answer at once with the run's id, and do not stream.
    #[serde(default)]
    pub detach: bool,
    /// What to do when a run goes on.
    #[serde(default)]
    pub if_busy: IfBusy,
    /// Bring the session back even if a person put it to rest, or it is broken.
    #[serde(default)]
    pub wake: bool,
    /// How long the run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1000, maximum = 604_800_000)]
    pub timeout_ms: Option<u64>,
}

/// A message that was accepted, and is worked on without anybody watching.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// Its run.
    pub run_id: Uuid,
    /// The entry of the log that holds it.
    pub seq: u64,
}

/// A command to be run beside the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecCommand {
    /// For a shell.
    #[schema(min_length = 1, max_length = 100_000, pattern = r"^[^\u0000]+$")]
    pub command: String,
    /// After how many milliseconds it is killed.
    #[serde(default, deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 300_000)]
    pub timeout: Option<u64>,
}

/// A whole number, also if it is written with a fraction of nothing: JSON does not tell `30000` from `30000.0`, and a client of the
/// original sends the latter.
fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, not negative, and small enough to be exact"
    )]
    let number = |float: f64| float as u64;
    let Some(given) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    let exact = given.as_u64();
    let float = given.as_f64().filter(|float| float.fract() == 0.0 && (0.0..9e15).contains(float));
    let whole = exact.or_else(|| float.map(number));
    whole.map(Some).ok_or_else(|| D::Error::custom(format!("{given} is not a whole number from 0")))
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecOutcome {
    /// Its exit code; 128 and the signal's number if one killed it; 1 if it took too long.
    pub exit_code: i32,
    /// What it printed: the beginning and the end, if it was much.
    pub stdout: String,
    /// What it complained of. A last line of ours says if a process was killed meanwhile because the sandbox
    /// ran out of memory.
    pub stderr: String,
    /// Whether it was killed because it took too long.
    pub timed_out: bool,
    /// How many bytes of output were left out.
    pub omitted_bytes: u64,
}
