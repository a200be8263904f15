//! Messages as the model knows them, held as the text they came as.
//!
//! A block is classified once, when it enters: after that nothing looks into it again, and nothing
//! that the classification does not know is lost on the way back to the model.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Deserialize;
use serde::ser::{Serialize, SerializeSeq as _, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// What an image costs, whatever its size: about what the largest one does.
const IMAGE_TOKENS: u64 = 1_600;

/// Bytes of an encoded document per token. A page has some 100 kB and costs some 3,000 tokens.
const DOCUMENT_BYTES_PER_TOKEN: u64 = 30;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    User,
    Assistant,
}

/// A message: who speaks, and what is said.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) role: Role,
    pub(super) blocks: Vec<Block>,
}

/// One piece of a message. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Block {
    raw: Rc<RawValue>,
    pub(super) kind: Kind,
    tokens: u64,
}

/// What the loop has to know about a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text { blank: bool },
    Thinking,
    ToolUse { id: Rc<str> },
    ToolResult { id: Rc<str> },
    Other,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use_id: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageHead<'a> {
    role: Role,
    #[serde(borrow)]
    content: &'a RawValue,
}

impl Message {
    /// A message of one text.
    #[cfg(test)]
    pub(super) fn text(role: Role, text: &str) -> Self {
        Self { role, blocks: vec![Block::text(text)] }
    }

    /// Reads `{role, content}`; nothing, if it is none. Content that is a string becomes a block.
    pub(super) fn read(raw: &RawValue) -> Option<Self> {
        let MessageHead { role, content } = serde_json::from_str(raw.get()).ok()?;
        Some(Self { role, blocks: Block::read_all(content)? })
    }

    /// About how many tokens it costs.
    pub(super) fn tokens(&self) -> u64 {
        4 + self.blocks.iter().map(|block| block.tokens).sum::<u64>()
    }

    /// How many bytes of JSON it has.
    pub(super) fn bytes(&self) -> usize {
        32 + self.blocks.iter().map(|block| block.raw().len() + 1).sum::<usize>()
    }

    /// The tools it calls.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Rc<str>> {
        self.blocks.iter().filter_map(|block| match &block.kind {
            Kind::ToolUse { id } => Some(id),
            Kind::Text { .. } | Kind::Thinking | Kind::ToolResult { .. } | Kind::Other => None,
        })
    }

    /// Whether it is a prompt: what the user says, and does not answer.
    pub(super) fn is_prompt(&self) -> bool {
        self.role == Role::User && !self.has_results()
    }

    /// Whether it is nothing but text and calls.
    pub(super) fn is_plain(&self) -> bool {
        self.blocks.iter().all(Block::is_plain)
    }

    /// Whether it answers tools.
    pub(super) fn has_results(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.kind, Kind::ToolResult { .. }))
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Whole<'a> {
            role: Role,
            content: Content<'a>,
        }
        Whole { role: self.role, content: Content(&self.blocks) }.serialize(serializer)
    }
}

/// Blocks, as a list.
pub(super) struct Content<'a>(pub(super) &'a [Block]);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for block in self.0 {
            list.serialize_element(&*block.raw)?;
        }
        list.end()
    }
}

impl Block {
    pub(super) fn text(text: &str) -> Self {
        Self::of(&json!({ "type": "text", "text": text }))
    }

    /// The answer to a tool call. The API takes no blank text, no error without a text, and
    /// nothing but text in an error.
    pub(super) fn result(id: &str, content: &[Value], is_error: bool) -> Self {
        let is_blank = |block: &Value| block["text"].as_str().is_some_and(|t| t.trim().is_empty());
        let fitting = |block: &Value| match block["type"].as_str() {
            Some("text") => block.clone(),
            kind if is_error => {
                let text = format!("[{}: not shown with an error]", kind.unwrap_or("something"));
                json!({ "type": "text", "text": text })
            }
            _ => block.clone(),
        };
        let said = content.iter().filter(|block| !is_blank(block));
        let mut content: Vec<Value> = said.map(fitting).collect();
        if content.is_empty() && is_error {
            content.push(json!({ "type": "text", "text": "(nothing was said)" }));
        }
        let mut block = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
        if is_error {
            block["is_error"] = true.into();
        }
        Self::of(&block)
    }

    /// The answer to a tool call that has none.
    pub(super) fn error_result(id: &str, text: &str) -> Self {
        Self::result(id, &[json!({ "type": "text", "text": text })], true)
    }

    /// A block of our own making.
    pub(super) fn of<T: Serialize>(value: &T) -> Self {
        let raw = to_raw_value(value).expect("strings and maps of strings become JSON");
        Self::read(&raw).expect("it has a type")
    }

    /// Reads a block; nothing, if it is not an object with a type.
    pub(super) fn read(raw: &RawValue) -> Option<Self> {
        let head: Head<'_> = serde_json::from_str(raw.get()).ok()?;
        let string = |raw: Option<&RawValue>| {
            raw.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok()).unwrap_or_default()
        };
        let bytes = raw.get().len() as u64;
        let (kind, tokens) = match &*head.kind {
            "text" => {
                (Kind::Text { blank: string(head.text).trim().is_empty() }, text_tokens(bytes))
            }
            "thinking" | "redacted_thinking" => (Kind::Thinking, text_tokens(bytes)),
            "tool_use" => (Kind::ToolUse { id: string(head.id).into() }, text_tokens(bytes)),
            "tool_result" => {
                let inner = head.content.and_then(Self::read_all);
                let tokens = inner.map_or_else(
                    || text_tokens(bytes),
                    |inner| 20 + inner.iter().map(|block| block.tokens).sum::<u64>(),
                );
                (Kind::ToolResult { id: string(head.tool_use_id).into() }, tokens)
            }
            "image" => (Kind::Other, IMAGE_TOKENS),
            "document" => (Kind::Other, IMAGE_TOKENS.max(bytes / DOCUMENT_BYTES_PER_TOKEN)),
            _ => (Kind::Other, text_tokens(bytes)),
        };
        Some(Self { raw: one_line(raw).into(), kind, tokens })
    }

    /// Reads content: a string, or a list of blocks. Nothing, if it is neither.
    pub(super) fn read_all(content: &RawValue) -> Option<Vec<Self>> {
        if content.get().starts_with('"') {
            let text: String = serde_json::from_str(content.get()).ok()?;
            return Some(vec![Self::text(&text)]);
        }
        let list: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
        list.into_iter().map(Self::read).collect()
    }

    /// Whether it is text, or the result of a tool that is nothing but text.
    pub(super) fn is_plain(&self) -> bool {
        match self.kind {
            Kind::Text { .. } | Kind::ToolUse { .. } => true,
            Kind::Thinking | Kind::Other => false,
            Kind::ToolResult { .. } => {
                let head: Option<Head<'_>> = serde_json::from_str(self.raw()).ok();
                let content = head.and_then(|head| head.content).and_then(Self::read_all);
                content.is_some_and(|all| {
                    all.iter().all(|block| matches!(block.kind, Kind::Text { .. }))
                })
            }
        }
    }

    /// The same call, or the same result, under another id.
    pub(super) fn with_id(&self, new: &str) -> Self {
        let field = match self.kind {
            Kind::ToolUse { .. } => "id",
            Kind::ToolResult { .. } => "tool_use_id",
            Kind::Text { .. } | Kind::Thinking | Kind::Other => return self.clone(),
        };
        // Values are passed on as they came: an input may have numbers that no value of ours holds.
        let fields = serde_json::from_str::<BTreeMap<String, &RawValue>>(self.raw());
        let (Ok(mut fields), Ok(id)) = (fields, to_raw_value(new)) else { return self.clone() };
        fields.insert(field.to_owned(), &id);
        Self::of(&fields)
    }

    /// The type that it says it has.
    pub(super) fn type_name(&self) -> String {
        let head = serde_json::from_str::<BTreeMap<String, &RawValue>>(self.raw());
        let kind = head.ok().and_then(|head| head.get("type").map(|kind| kind.get().to_owned()));
        kind.map(|kind| kind.trim_matches('"').to_owned()).unwrap_or_default()
    }

    pub(super) fn raw(&self) -> &str {
        self.raw.get()
    }

    pub(super) fn raw_value(&self) -> &RawValue {
        &self.raw
    }
}

/// The id, or one made of it that is not taken.
pub(super) fn unique(id: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let stem = if id.is_empty() { "call" } else { id };
    let further = (2u32..).map(|number| format!("{stem}_{number}"));
    let mut all = std::iter::once(stem.to_owned()).chain(further);
    all.find(|id| !is_taken(id)).expect("there are more numbers than calls")
}

/// About how many tokens a text has.
pub(super) fn text_tokens(bytes: u64) -> u64 {
    bytes * 2 / 7 + 1
}

/// The same value without raw newlines, which JSON only has between its tokens: a message is one
/// line of a file.
fn one_line(raw: &RawValue) -> Box<RawValue> {
    if !raw.get().contains(['\n', '\r']) {
        return raw.to_owned();
    }
    let text = raw.get().replace(['\n', '\r'], " ");
    RawValue::from_string(text).expect("JSON with other spaces is the same JSON")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_error_has_nothing_but_text() {
        let image = json!({ "type": "image", "source": {} });
        let text = json!({ "type": "text", "text": "oh" });
        let error = Block::result("a", &[image.clone(), text.clone()], true);
        assert!(error.is_plain() && error.raw().contains("oh"), "{}", error.raw());
        assert!(!Block::result("a", &[image, text], false).is_plain());
    }

    #[test]
    fn another_id_changes_nothing_else() {
        let call = r#"{"type":"tool_use","id":"a","name":"n","input":{"z":1e400,"id":"a"}}"#;
        let call = Block::read(&RawValue::from_string(call.to_owned()).unwrap()).unwrap();
        let renamed = call.with_id("b");
        assert_eq!(renamed.kind, Kind::ToolUse { id: "b".into() });
        assert!(renamed.raw().contains(r#""input":{"z":1e400,"id":"a"}"#), "{}", renamed.raw());
        assert_eq!(
            Block::result("a", &[], false).with_id("b").kind,
            Kind::ToolResult { id: "b".into() }
        );
    }

    #[test]
    fn an_id_is_made_unique() {
        assert_eq!(unique("a", |_| false), "a");
        assert_eq!(unique("a", |id| ["a", "a_2"].contains(&id)), "a_3");
        assert_eq!(unique("", |_| false), "call");
    }
}
