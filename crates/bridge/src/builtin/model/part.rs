//! A block of an answer while it grows.

use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::answer::Input;
use crate::builtin::message::Block;
use crate::builtin::strict;

#[derive(Debug)]
pub(super) enum Part {
    Text(String),
    Thinking { thinking: String, signature: String },
    ToolUse { id: String, name: String, input: Box<RawValue>, json: String },
    Opaque { start: Box<RawValue>, json: String },
}

impl Part {
    /// The block, as it is sent back; nothing, if it makes none.
    pub(super) fn block(&self) -> Option<Block> {
        Some(match self {
            Self::Text(text) => Block::text(text),
            Self::Thinking { thinking, signature } => Block::of(
                &json!({ "type": "thinking", "thinking": thinking, "signature": signature }),
            ),
            Self::ToolUse { id, name, .. } => {
                #[derive(Serialize)]
                struct ToolUse<'a> {
                    r#type: &'a str,
                    id: &'a str,
                    name: &'a str,
                    input: Box<RawValue>,
                }
                let input = match self.input() {
                    Input::Whole(input) => input,
                    Input::Broken(_) => empty(),
                };
                Block::of(&ToolUse { r#type: "tool_use", id, name, input })
            }
            Self::Opaque { start, json } => {
                let mut start = strict::value(start.get()).ok()?;
                if json.is_empty() {
                    return Block::read(&to_raw_value(&start).ok()?);
                }
                let input = serde_json::from_str(json).ok()?;
                start.as_object_mut()?.insert("input".to_owned(), input);
                Block::read(&to_raw_value(&start).ok()?)?
            }
        })
    }

    /// What a tool is given.
    pub(super) fn input(&self) -> Input {
        let Self::ToolUse { input, json, .. } = self else { return Input::Broken(String::new()) };
        let text = strict::mended(if json.is_empty() { input.get() } else { json });
        // Kept as it came, but only if whoever is sent it again will take it.
        let is_object = strict::value(&text).is_ok_and(|value| value.is_object());
        match serde_json::from_str(&text) {
            Ok(raw) if is_object => Input::Whole(raw),
            Ok(_) | Err(_) => Input::Broken(text.into_owned()),
        }
    }
}

pub(super) fn empty() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("an empty object is JSON")
}
