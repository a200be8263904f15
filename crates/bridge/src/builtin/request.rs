//! What is sent: the conversation, made valid whatever happened to it.
//!
//! [`sanitized`] is the last thing before the wire and relies on nothing before it. It guarantees
//! what the API insists on: the user speaks first, roles alternate, no content is empty, a tool
//! call is answered in the very next message, nothing is answered that was not called, and no two
//! calls have the same id.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::message::{Block, Kind, Message, Role, unique};
use super::prompt::{MIN_THINKING_TOKENS, Thinking};

const NOT_RECORDED: &str = "the result of this tool was not recorded; check before repeating it";

/// A request, but for the conversation.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) model: String,
    pub(super) answer_tokens: u32,
    /// The most that the model writes, its thinking included.
    pub(super) output_limit: u32,
    pub(super) thinking: Thinking,
    /// What the agent is told about itself.
    pub(super) system: String,
    /// What it has in mind.
    pub(super) memory: String,
    pub(super) tools: Box<RawValue>,
    /// The shape of the answer, if it is to have one.
    pub(super) output_schema: Option<Box<RawValue>>,
}

impl Setup {
    /// The body of a request. `left_out` messages are missing from the conversation.
    pub(super) fn body(&self, messages: &[Message], left_out: u64) -> Vec<u8> {
        #[derive(Serialize)]
        struct Body<'a> {
            model: &'a str,
            max_tokens: u32,
            stream: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            thinking: Option<Value>,
            system: Vec<Value>,
            tools: &'a RawValue,
            #[serde(skip_serializing_if = "Option::is_none")]
            output_config: Option<Value>,
            messages: &'a [Message],
        }
        let mut messages = sanitized(messages, left_out);
        for block in messages.iter_mut().flat_map(|message| &mut message.blocks) {
            if let Some(unmarked) = unmarked(block) {
                *block = unmarked;
            }
        }
        let last_user = messages.iter_mut().rfind(|message| message.role == Role::User);
        if let Some(block) = last_user.and_then(|message| message.blocks.last_mut()) {
            *block = cached(block);
        }
        let mut system = vec![json!({
            "type": "text",
            "text": self.system,
            "cache_control": { "type": "ephemeral" },
        })];
        if !self.memory.is_empty() {
            system.push(json!({ "type": "text", "text": self.memory }));
        }
        let body = Body {
            model: &self.model,
            max_tokens: self.max_tokens(),
            stream: true,
            thinking: match self.shares().1 {
                _ if !may_think(&messages) => None,
                Thinking::Off => None,
                Thinking::Budget(tokens) => {
                    Some(json!({ "type": "enabled", "budget_tokens": tokens }))
                }
                Thinking::Adaptive => Some(json!({ "type": "adaptive" })),
            },
            system,
            tools: &self.tools,
            output_config: self
                .output_schema
                .as_ref()
                .map(|schema| json!({ "format": { "type": "json_schema", "schema": schema } })),
            messages: &messages,
        };
        serde_json::to_vec(&body).expect("text and raw JSON become JSON")
    }

    /// How many tokens an answer may have, its thinking included.
    pub(super) fn max_tokens(&self) -> u32 {
        self.shares().0
    }

    /// How many tokens an answer may have and how much of that is thinking, within what the model
    /// writes at all. If it is too much, the answer gives way first and then the thinking: it was
    /// asked for by name.
    fn shares(&self) -> (u32, Thinking) {
        let most = self.output_limit.max(1);
        let answer = self.answer_tokens.clamp(1, most);
        match self.thinking {
            Thinking::Budget(budget) => {
                let left = most.saturating_sub(budget).max(answer.min(MIN_THINKING_TOKENS));
                let answer = answer.min(left);
                let budget = budget.min(most.saturating_sub(answer));
                if budget < MIN_THINKING_TOKENS {
                    // There is no room for any: the API takes no less.
                    return (most.min(self.answer_tokens.max(1)), Thinking::Off);
                }
                (answer + budget, Thinking::Budget(budget))
            }
            thinking @ (Thinking::Off | Thinking::Adaptive) => (answer, thinking),
        }
    }

    /// How many bytes there are besides the conversation.
    pub(super) fn bytes(&self) -> usize {
        let schema = self.output_schema.as_ref().map_or(0, |schema| schema.get().len());
        self.system.len() + self.memory.len() + self.tools.get().len() + schema
    }
}

/// Whether the model may think: not in the middle of tool calls that began without a thought, as
/// those of a turn that was set up otherwise and cut off. The API refuses that.
fn may_think(messages: &[Message]) -> bool {
    let mut first = None;
    let mut rest = messages;
    while let [before @ .., call, results] = rest
        && call.role == Role::Assistant
        && results.has_results()
    {
        first = call.blocks.first();
        rest = before;
    }
    first.is_none_or(|block| block.kind == Kind::Thinking)
}

/// The conversation as the API takes it.
pub(super) fn sanitized(messages: &[Message], left_out: u64) -> Vec<Message> {
    let mut merged: Vec<Message> = Vec::new();
    for message in messages {
        let blocks = message.blocks.iter().filter(|block| may_be_said(message.role, block));
        match merged.last_mut().filter(|last| last.role == message.role) {
            Some(last) => last.blocks.extend(blocks.cloned()),
            None => {
                merged.push(Message { role: message.role, blocks: blocks.cloned().collect() });
            }
        }
    }
    let mut valid: Vec<Message> = Vec::new();
    for message in merged {
        match message.role {
            Role::Assistant => push_assistant(&mut valid, message),
            Role::User => push_user(&mut valid, message),
        }
    }
    if valid.last().is_some_and(|last| last.calls().next().is_some()) {
        push_user(&mut valid, Message { role: Role::User, blocks: Vec::new() });
    }
    tell_apart(&mut valid);
    if let Some(first) = valid.first_mut().filter(|_| left_out > 0) {
        let note = format!("[{left_out} later messages were left out here to save room.]");
        first.blocks.push(Block::text(&note));
    }
    valid
}

/// Gives calls another id whose own was used before, and their results with them. New answers are
/// recorded with ids that are unique; files that were written before they were are not.
fn tell_apart(messages: &mut [Message]) {
    let mut seen: HashSet<Rc<str>> = HashSet::new();
    let mut renamed: HashMap<Rc<str>, String> = HashMap::new();
    for message in messages {
        for block in &mut message.blocks {
            match &block.kind {
                Kind::ToolUse { id } => {
                    let new = unique(id, |id| seen.contains(id));
                    seen.insert(new.as_str().into());
                    if new != **id {
                        let old = Rc::clone(id);
                        *block = block.with_id(&new);
                        renamed.insert(old, new);
                    }
                }
                Kind::ToolResult { id } => {
                    if let Some(new) = renamed.get(id) {
                        *block = block.with_id(new);
                    }
                }
                Kind::Text { .. } | Kind::Thinking | Kind::Other => {}
            }
        }
        // Calls are answered in the next message, and nowhere else.
        if message.role == Role::User {
            renamed.clear();
        }
    }
}

fn may_be_said(role: Role, block: &Block) -> bool {
    match (&block.kind, role) {
        (Kind::Text { blank }, _) => !blank,
        (Kind::Thinking | Kind::ToolUse { .. }, _) => role == Role::Assistant,
        (Kind::ToolResult { .. }, _) => role == Role::User,
        (Kind::Other, _) => true,
    }
}

fn push_assistant(valid: &mut Vec<Message>, mut message: Message) {
    // What opens a conversation is an answer to something that is gone.
    if valid.is_empty() {
        return;
    }
    let mut called = HashSet::new();
    message.blocks.retain(|block| match &block.kind {
        Kind::ToolUse { id } => called.insert(Rc::clone(id)),
        Kind::Text { .. } | Kind::Thinking | Kind::ToolResult { .. } | Kind::Other => true,
    });
    // A thought that leads to nothing is refused by the API.
    while message.blocks.last().is_some_and(|block| block.kind == Kind::Thinking) {
        message.blocks.pop();
    }
    push_merged(valid, message);
}

fn push_user(valid: &mut Vec<Message>, message: Message) {
    let before = valid.last().filter(|last| last.role == Role::Assistant);
    let calls: Vec<Rc<str>> =
        before.map(|last| last.calls().cloned().collect()).unwrap_or_default();
    let mut blocks = Vec::new();
    for call in &calls {
        let result = message.blocks.iter().find(|block| match &block.kind {
            Kind::ToolResult { id } => id == call,
            Kind::Text { .. } | Kind::Thinking | Kind::ToolUse { .. } | Kind::Other => false,
        });
        blocks.push(result.cloned().unwrap_or_else(|| Block::error_result(call, NOT_RECORDED)));
    }
    // Results come first: the API wants them there.
    let said = message.blocks.into_iter();
    blocks.extend(said.filter(|block| !matches!(block.kind, Kind::ToolResult { .. })));
    push_merged(valid, Message { role: Role::User, blocks });
}

/// A message that lost all it had to say is none, and then its neighbors become one.
fn push_merged(valid: &mut Vec<Message>, message: Message) {
    if message.blocks.is_empty() {
        return;
    }
    match valid.last_mut().filter(|last| last.role == message.role) {
        Some(last) => last.blocks.extend(message.blocks),
        None => valid.push(message),
    }
}

/// The block, marked as the end of what the provider should keep in its cache.
fn cached(block: &Block) -> Block {
    let marked = block
        .raw()
        .strip_prefix('{')
        .map(|rest| format!(r#"{{"cache_control":{{"type":"ephemeral"}},{rest}"#))
        .and_then(|text| RawValue::from_string(text).ok())
        .and_then(|raw| Block::read(&raw));
    marked.unwrap_or_else(|| block.clone())
}

/// The block without marks that came with it; nothing, if it has none. The API takes four in all,
/// and those of every prompt would add up.
fn unmarked(block: &Block) -> Option<Block> {
    // What a tool is given is not looked into: a mark is not called that there.
    if !block.raw().contains(r#""cache_control""#) || matches!(block.kind, Kind::ToolUse { .. }) {
        return None;
    }
    let mut value: Value = serde_json::from_str(block.raw()).ok()?;
    unmark(&mut value);
    Some(Block::of(&value))
}

fn unmark(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            for field in ["content", "source"] {
                fields.get_mut(field).into_iter().for_each(unmark);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(unmark),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
pub(super) mod test {
    use proptest::prelude::*;

    use super::*;

    /// What the API insists on.
    pub(in crate::builtin) fn check(messages: &[Message]) -> Result<(), String> {
        let mut seen = HashSet::new();
        if let Some(id) = messages.iter().flat_map(Message::calls).find(|&id| !seen.insert(id)) {
            return Err(format!("{id} is called twice"));
        }
        for (at, message) in messages.iter().enumerate() {
            let role = if at % 2 == 0 { Role::User } else { Role::Assistant };
            if message.role != role {
                return Err(format!("message {at} is of the wrong role"));
            }
            if message.blocks.is_empty() {
                return Err(format!("message {at} is empty"));
            }
            if message.blocks.iter().any(|block| block.kind == Kind::Text { blank: true }) {
                return Err(format!("message {at} has blank text"));
            }
            if message.blocks.last().is_some_and(|block| block.kind == Kind::Thinking) {
                return Err(format!("message {at} ends with thinking"));
            }
            let calls: Vec<_> = message.calls().cloned().collect();
            let answered = messages.get(at + 1).map(results).unwrap_or_default();
            if role == Role::Assistant && calls != answered {
                return Err(format!("message {at} calls {calls:?}, answered are {answered:?}"));
            }
            if at == 0 && !results(message).is_empty() {
                return Err("the first message answers".to_owned());
            }
        }
        Ok(())
    }

    fn results(message: &Message) -> Vec<Rc<str>> {
        let id = |block: &Block| match &block.kind {
            Kind::ToolResult { id } => Some(Rc::clone(id)),
            Kind::Text { .. } | Kind::Thinking | Kind::ToolUse { .. } | Kind::Other => None,
        };
        message.blocks.iter().filter_map(id).collect()
    }

    fn any_block() -> impl Strategy<Value = Block> {
        let id = prop_oneof![Just("a"), Just("b"), Just("c")];
        let size = prop_oneof![Just(0usize), Just(3), Just(300)];
        (0..7, id, size).prop_map(|(kind, id, size)| {
            let text = "x ".repeat(size);
            match kind {
                0 => Block::text(&text),
                1 => Block::of(&json!({ "type": "thinking", "thinking": text, "signature": "s" })),
                2 | 3 => {
                    Block::of(&json!({ "type": "tool_use", "id": id, "name": "n", "input": {} }))
                }
                4 | 5 => Block::result(id, &[json!({ "type": "text", "text": text })], false),
                _ => Block::of(&json!({ "type": "image", "source": {} })),
            }
        })
    }

    pub(in crate::builtin) fn any_message() -> impl Strategy<Value = Message> {
        let role = prop_oneof![Just(Role::User), Just(Role::Assistant)];
        (role, prop::collection::vec(any_block(), 0..4))
            .prop_map(|(role, blocks)| Message { role, blocks })
    }

    proptest! {
        #[test]
        fn whatever_was_recorded_what_is_sent_is_valid(
            messages in prop::collection::vec(any_message(), 0..12),
            left_out in 0u64..2,
        ) {
            check(&sanitized(&messages, left_out)).unwrap();
        }
    }

    #[test]
    fn a_conversation_without_fault_is_sent_as_it_is() {
        let call = json!({ "type": "tool_use", "id": "a", "name": "n", "input": {} });
        let messages = [
            Message::text(Role::User, "hi"),
            Message { role: Role::Assistant, blocks: vec![Block::text("ok"), Block::of(&call)] },
            Message { role: Role::User, blocks: vec![Block::result("a", &[], false)] },
            Message::text(Role::Assistant, "done"),
            Message::text(Role::User, "more"),
        ];
        let sent = serde_json::to_string(&sanitized(&messages, 0)).unwrap();
        assert_eq!(sent, serde_json::to_string(&messages[..]).unwrap());
    }

    #[test]
    fn thinking_does_not_begin_in_the_middle_of_tool_calls() {
        let call = json!({ "type": "tool_use", "id": "a", "name": "n", "input": {} });
        let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let prompt = Message::text(Role::User, "hi");
        let result = Message { role: Role::User, blocks: vec![Block::result("a", &[], false)] };
        let calls = Message { role: Role::Assistant, blocks: vec![Block::of(&call)] };
        let blocks = vec![Block::of(&thought), Block::of(&call)];
        let thinks = Message { role: Role::Assistant, blocks };
        let may = |messages: &[&Message]| {
            may_think(&messages.iter().map(|message| (*message).clone()).collect::<Vec<_>>())
        };
        assert!(may(&[&prompt]));
        assert!(!may(&[&prompt, &calls, &result]));
        assert!(may(&[&prompt, &thinks, &result]));
        assert!(may(&[&prompt, &thinks, &result, &calls, &result]));
        assert!(may(&[&prompt, &calls, &result, &Message::text(Role::Assistant, "ok"), &prompt]));
    }

    #[test]
    fn the_mark_for_the_cache_is_set_and_taken_away() {
        let block = cached(&Block::text("a"));
        let value: Value = serde_json::from_str(block.raw()).unwrap();
        assert_eq!(value["cache_control"]["type"], "ephemeral");
        assert_eq!(value["text"], "a");
        assert_eq!(unmarked(&block).unwrap().raw(), Block::text("a").raw());
        assert!(unmarked(&Block::text("\"cache_control\"")).is_none());
    }

    #[test]
    fn thinking_and_answer_share_what_the_model_writes() {
        let shares = |answer_tokens, thinking, output_limit| {
            let setup = Setup {
                model: String::new(),
                answer_tokens,
                output_limit,
                thinking,
                system: String::new(),
                memory: String::new(),
                tools: RawValue::from_string("[]".to_owned()).unwrap(),
                output_schema: None,
            };
            setup.shares()
        };
        let budget = Thinking::Budget;
        assert_eq!(shares(16_384, Thinking::Off, 8_192), (8_192, Thinking::Off));
        assert_eq!(shares(16_384, budget(2_000), 64_000), (18_384, budget(2_000)));
        assert_eq!(shares(16_384, budget(30_000), 32_000), (32_000, budget(30_000)));
        assert_eq!(shares(16_384, budget(50_000), 32_000), (32_000, budget(30_976)));
        assert_eq!(shares(500, budget(50_000), 4_096), (4_096, budget(3_596)));
        assert_eq!(shares(16_384, budget(2_000), 2_000), (2_000, Thinking::Off));
        assert_eq!(shares(0, Thinking::Adaptive, 0), (1, Thinking::Adaptive));
    }
}
