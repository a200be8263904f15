//! What the API sends, as far as anything is made of it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// An event of a stream.
#[derive(Deserialize)]
pub(super) struct Wire<'a> {
    #[serde(rename = "type", default, borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(default)]
    pub(super) index: u64,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    pub(super) usage: Option<Counted>,
}

/// Counts that replace what was counted before, where they are there at all.
#[derive(Default, Deserialize)]
pub(super) struct Counted {
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
    pub(super) cache_creation_input_tokens: Option<u64>,
    pub(super) cache_read_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Whole<'a> {
    #[serde(default)]
    pub(super) id: String,
    #[serde(default)]
    pub(super) model: String,
    #[serde(default, borrow)]
    pub(super) content: Vec<&'a RawValue>,
    pub(super) stop_reason: Option<String>,
    #[serde(default)]
    pub(super) usage: Counted,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Start {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) text: String,
    pub(super) thinking: String,
    pub(super) signature: String,
    pub(super) input: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) thinking: String,
    pub(super) signature: String,
    pub(super) partial_json: String,
    pub(super) stop_reason: Option<String>,
}
