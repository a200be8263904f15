//! An answer, put together from the events of its stream.
//!
//! Blocks, deltas and events that are not known here are passed over; a block that is not known is
//! kept as it came, because the provider may want it back.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::failure::Failure;
use super::part::{Part, empty};
use super::sse::SseEvent;
use super::wire::{Counted, Delta, Start, Typed, Whole, Wire};
use crate::builtin::message::{Block, Content, Kind, unique};
use crate::builtin::strict;

/// How many blocks one answer may have. Each may be a tool to run.
const MAX_BLOCKS: usize = 512;

/// All that something is made of. Pings, the ends of blocks, and what a newer API says besides
/// are passed over.
const KNOWN_EVENTS: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "message_stop",
    "error",
];

/// What a model said.
#[derive(Debug, Default)]
pub struct Answer {
    id: String,
    model: String,
    /// Why it stopped, in its own word.
    pub stop_reason: Option<String>,
    /// What it has consumed so far.
    pub tokens: Tokens,
    parts: Vec<(u64, Part)>,
}

/// Tokens, as the API counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Sent, and neither written to the cache nor read from it.
    #[serde(default, rename = "input_tokens")]
    pub input: u64,
    /// Written by the model.
    #[serde(default, rename = "output_tokens")]
    pub output: u64,
    /// Sent, and written to the cache.
    #[serde(default, rename = "cache_creation_input_tokens")]
    pub cache_creation: u64,
    /// Read from the cache.
    #[serde(default, rename = "cache_read_input_tokens")]
    pub cache_read: u64,
}

/// A call of a tool.
#[derive(Debug)]
pub struct Call {
    /// What its result must name.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What it is given.
    pub input: Input,
}

/// What a tool is given.
#[derive(Debug)]
pub enum Input {
    /// A JSON object.
    Whole(Box<RawValue>),
    /// Something else, or the beginning of something.
    Broken(String),
}

/// What one event added.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Text(String),
    Thinking(String),
    Nothing,
    Done,
}

impl Answer {
    /// Takes one event of the stream.
    pub(super) fn take(&mut self, event: &SseEvent) -> Result<Step, Failure> {
        let garbled = |_| Failure::Cut("the model's answer is garbled".to_owned());
        let is_known = |kind: &str| KNOWN_EVENTS.contains(&kind);
        // One that is not known is not even read: it may be no JSON at all.
        let may_be_skipped = !event.name.is_empty() && !is_known(&event.name);
        let text = match std::str::from_utf8(&event.data) {
            Ok(text) => strict::mended(text.trim()),
            Err(_) if may_be_skipped => return Ok(Step::Nothing),
            Err(_) => return Err(Failure::Cut("the model's answer is not text".to_owned())),
        };
        let text = &*text;
        let typed: Typed<'_> = match serde_json::from_str(text) {
            Ok(typed) => typed,
            Err(_) if text.is_empty() || may_be_skipped => Typed::default(),
            Err(error) => return Err(garbled(error)),
        };
        let kind = if typed.kind.is_empty() { event.name.as_str() } else { &typed.kind };
        if !is_known(kind) {
            return Ok(Step::Nothing);
        }
        let wire: Wire<'_> = match text {
            "" => Wire::default(),
            text => serde_json::from_str(text).map_err(garbled)?,
        };
        match kind {
            "message_start" => {
                if let Some(message) = wire.message {
                    self.begin(serde_json::from_str(message.get()).map_err(garbled)?);
                }
            }
            "content_block_start" => {
                if let Some(start) = wire.content_block {
                    if self.parts.len() >= MAX_BLOCKS {
                        let message = format!("an answer has more than {MAX_BLOCKS} blocks");
                        return Err(Failure::Refused(message));
                    }
                    return self.start(wire.index, start).map_err(garbled);
                }
            }
            "content_block_delta" => {
                if let Some(delta) = wire.delta {
                    let delta = serde_json::from_str(delta.get()).map_err(garbled)?;
                    return Ok(self.add(wire.index, delta));
                }
            }
            "message_delta" => {
                if let Some(delta) = wire.delta {
                    let delta: Delta = serde_json::from_str(delta.get()).map_err(garbled)?;
                    self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
                }
                self.count(wire.usage.unwrap_or_default());
            }
            "message_stop" => return Ok(Step::Done),
            "error" => {
                let error = wire.error.map_or("null", RawValue::get);
                return Err(Failure::of_error(error.as_bytes()));
            }
            _ => {}
        }
        Ok(Step::Nothing)
    }

    /// Takes a whole message that came without a stream, and says which texts are in it.
    pub(super) fn take_whole(&mut self, body: &str) -> Option<Vec<Step>> {
        let body = strict::mended(body);
        let whole: Whole<'_> = serde_json::from_str(&body).ok()?;
        let mut content = whole.content.clone();
        content.truncate(MAX_BLOCKS);
        self.begin(whole);
        let steps = content.into_iter().zip(0..).map(|(block, index)| self.start(index, block));
        steps.collect::<Result<_, _>>().ok()
    }

    fn begin(&mut self, whole: Whole<'_>) {
        (self.id, self.model, self.stop_reason) = (whole.id, whole.model, whole.stop_reason);
        self.count(whole.usage);
    }

    fn count(&mut self, counted: Counted) {
        let tokens = &mut self.tokens;
        tokens.input = counted.input_tokens.unwrap_or(tokens.input);
        tokens.output = counted.output_tokens.unwrap_or(tokens.output);
        tokens.cache_creation =
            counted.cache_creation_input_tokens.unwrap_or(tokens.cache_creation);
        tokens.cache_read = counted.cache_read_input_tokens.unwrap_or(tokens.cache_read);
    }

    fn start(&mut self, index: u64, raw: &RawValue) -> Result<Step, serde_json::Error> {
        let Typed { kind } = serde_json::from_str(raw.get())?;
        let opaque = || Part::Opaque { start: raw.to_owned(), json: String::new() };
        let (part, step) = match &*kind {
            "text" | "thinking" | "tool_use" => {
                let start: Start = serde_json::from_str(raw.get())?;
                match start.kind.as_str() {
                    "text" => {
                        let step = Step::Text(start.text.clone());
                        (Part::Text(start.text), step)
                    }
                    "thinking" => {
                        let step = Step::Thinking(start.thinking.clone());
                        let Start { thinking, signature, .. } = start;
                        (Part::Thinking { thinking, signature }, step)
                    }
                    _ => {
                        let Start { id, name, input, .. } = start;
                        let input = input.unwrap_or_else(empty);
                        (Part::ToolUse { id, name, input, json: String::new() }, Step::Nothing)
                    }
                }
            }
            _ => (opaque(), Step::Nothing),
        };
        self.parts.push((index, part));
        Ok(match step {
            Step::Text(text) | Step::Thinking(text) if text.is_empty() => Step::Nothing,
            Step::Text(_) | Step::Thinking(_) | Step::Nothing | Step::Done => step,
        })
    }

    fn add(&mut self, index: u64, delta: Delta) -> Step {
        let part = self.parts.iter_mut().rev().find(|(at, _)| *at == index).map(|(_, part)| part);
        match (part, delta.kind.as_str()) {
            (Some(Part::Text(text)), "text_delta") => {
                text.push_str(&delta.text);
                Step::Text(delta.text)
            }
            (Some(Part::Thinking { thinking, .. }), "thinking_delta") => {
                thinking.push_str(&delta.thinking);
                Step::Thinking(delta.thinking)
            }
            (Some(Part::Thinking { signature, .. }), "signature_delta") => {
                signature.push_str(&delta.signature);
                Step::Nothing
            }
            (Some(Part::ToolUse { json, .. } | Part::Opaque { json, .. }), "input_json_delta") => {
                json.push_str(&delta.partial_json);
                Step::Nothing
            }
            _ => Step::Nothing,
        }
    }

    /// Gives calls a new id whose own is no id or is taken, be it by another call of this answer: a
    /// result could not name which of them it answers.
    pub(in crate::builtin) fn rename_calls(&mut self, is_taken: impl Fn(&str) -> bool) {
        let mut seen = HashSet::new();
        for (_, part) in &mut self.parts {
            if let Part::ToolUse { id, .. } = part {
                *id = unique(id, |id| is_taken(id) || seen.contains(id));
                seen.insert(id.clone());
            }
        }
    }

    /// All blocks of an answer that is whole. A tool call whose input cannot be read is kept with
    /// an empty one: the model gets its error as the call's result.
    pub(in crate::builtin) fn blocks(&self) -> Vec<Block> {
        self.parts.iter().filter_map(|(_, part)| part.block()).collect()
    }

    /// The blocks that make sense if the answer ends here: what was said, and thinking that is
    /// signed. Tools were not run yet, and what the provider ran has no result.
    pub(in crate::builtin) fn blocks_so_far(&self) -> Vec<Block> {
        let said = |part: &Part| match part {
            Part::Text(text) => !text.trim().is_empty(),
            Part::Thinking { signature, .. } => !signature.is_empty(),
            Part::ToolUse { .. } => false,
            Part::Opaque { .. } => {
                matches!(part.block(), Some(Block { kind: Kind::Thinking, .. }))
            }
        };
        let parts = self.parts.iter().map(|(_, part)| part).filter(|part| said(part));
        parts.filter_map(Part::block).collect()
    }

    /// The tools it wants called.
    pub fn calls(&self) -> Vec<Call> {
        let stop_reason = self.stop_reason.as_deref();
        let cut = matches!(stop_reason, Some("max_tokens" | "model_context_window_exceeded"));
        let last = self.parts.len().saturating_sub(1);
        let call = |(at, (_, part)): (usize, &(u64, Part))| match part {
            Part::ToolUse { id, name, json, .. } => {
                // No input at all is an empty one, unless the answer ended before it began.
                let input = if cut && at == last && json.is_empty() {
                    Input::Broken(String::new())
                } else {
                    part.input()
                };
                Some(Call { id: id.clone(), name: name.clone(), input })
            }
            Part::Text(_) | Part::Thinking { .. } | Part::Opaque { .. } => None,
        };
        self.parts.iter().enumerate().filter_map(call).collect()
    }

    /// Whether anything of it has been heard.
    pub(in crate::builtin) fn has_begun(&self) -> bool {
        !self.parts.is_empty()
    }

    /// What it said, without what it thought.
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|(_, part)| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Thinking { .. } | Part::ToolUse { .. } | Part::Opaque { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// The message as it is reported.
    pub(in crate::builtin) fn message<'a>(&'a self, blocks: &'a [Block]) -> impl Serialize + 'a {
        let Self { id, model, stop_reason, tokens, .. } = self;
        #[derive(Serialize)]
        struct Message<'a> {
            id: &'a str,
            r#type: &'static str,
            model: &'a str,
            role: &'a str,
            content: Content<'a>,
            stop_reason: Option<&'a str>,
            usage: Tokens,
        }
        Message {
            id,
            r#type: "message",
            model,
            role: "assistant",
            content: Content(blocks),
            stop_reason: stop_reason.as_deref(),
            usage: *tokens,
        }
    }
}

impl Tokens {
    /// All that was sent.
    pub fn sent(&self) -> u64 {
        self.input.saturating_add(self.cache_creation).saturating_add(self.cache_read)
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::super::sse::SseDecoder;
    use super::*;

    const STREAM: &str = r#"
data: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":9}}}

data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}

data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":"a"}}

data: {"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"x"}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{}"}}

data: {"type":"content_block_start","index":3,"content_block":{"type":"redacted_thinking","data":"?"}}

data: {"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"t","name":"n"}}

data: {"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}

data: {"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":":1}"}}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}

data: {"type":"message_stop"}

"#;

    fn taken(bytes: &[u8]) -> (Answer, Result<Step, Failure>) {
        let mut answer = Answer::default();
        let mut decoder = SseDecoder::default();
        decoder.push(bytes);
        while let Ok(Some(event)) = decoder.next_event() {
            match answer.take(&event) {
                Ok(Step::Text(_) | Step::Thinking(_) | Step::Nothing) => {}
                end => return (answer, end),
            }
        }
        (answer, Ok(Step::Nothing))
    }

    #[test]
    fn every_kind_of_block_comes_through() {
        let (answer, end) = taken(STREAM.as_bytes());
        assert_eq!(end, Ok(Step::Done));
        let kinds = |blocks: Vec<Block>| {
            let kind = |block: &Block| {
                serde_json::from_str::<serde_json::Value>(block.raw()).unwrap()["type"].to_string()
            };
            blocks.iter().map(kind).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            kinds(answer.blocks()),
            r#""thinking" "text" "server_tool_use" "redacted_thinking" "tool_use""#
        );
        assert_eq!(kinds(answer.blocks_so_far()), r#""thinking" "text" "redacted_thinking""#);
        assert!(
            matches!(&answer.calls()[0].input, Input::Whole(input) if input.get() == "{\"a\":1}")
        );
        assert_eq!((answer.tokens.sent(), answer.tokens.output), (9, 5));
    }

    proptest! {
        #[test]
        fn no_stream_is_so_broken_that_it_hurts(
            changes in prop::collection::vec((0..STREAM.len(), any::<u8>()), 0..6),
            swaps in prop::collection::vec((0usize..13, 0usize..13), 0..3),
        ) {
            let mut events: Vec<&str> = STREAM.split("\n\n").collect();
            swaps.iter().for_each(|&(a, b)| events.swap(a, b));
            let mut bytes = events.join("\n\n").into_bytes();
            changes.iter().for_each(|&(at, byte)| bytes[at] = byte);
            let (answer, _) = taken(&bytes);
            let parts = answer.parts.len();
            prop_assert!(answer.blocks().len() <= parts);
            prop_assert!(answer.blocks_so_far().len() <= parts);
            prop_assert!(answer.calls().len() <= parts);
            prop_assert!(serde_json::to_string(&answer.message(&answer.blocks())).is_ok());
        }
    }
}
