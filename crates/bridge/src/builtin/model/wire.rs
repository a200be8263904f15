//! What the API sends, as far as anything is made of it. What is null is as good as not there.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// What kind of thing it is, whatever else is in it.
#[derive(Default, Deserialize)]
pub(super) struct Typed<'a> {
    #[serde(rename = "type", default, borrow, deserialize_with = "null_is_default")]
    pub(super) kind: Cow<'a, str>,
}

/// An event of a stream.
#[derive(Default, Deserialize)]
pub(super) struct Wire<'a> {
    #[serde(default, deserialize_with = "null_is_default")]
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
    #[serde(default, deserialize_with = "a_count")]
    pub(super) input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "a_count")]
    pub(super) output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "a_count")]
    pub(super) cache_creation_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "a_count")]
    pub(super) cache_read_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Whole<'a> {
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) model: String,
    #[serde(default, borrow, deserialize_with = "null_is_default")]
    pub(super) content: Vec<&'a RawValue>,
    pub(super) stop_reason: Option<String>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(super) usage: Counted,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Start {
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub(super) kind: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) id: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) name: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) text: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) thinking: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) signature: String,
    pub(super) input: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Delta {
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub(super) kind: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) text: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) thinking: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) signature: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) partial_json: String,
    pub(super) stop_reason: Option<String>,
}

pub(super) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A count, if it is one: what cannot be counted is no reason to throw an answer away.
fn a_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(serde_json::Value::deserialize(deserializer)?.as_u64())
}
