//! Refuses the messages that the real API refuses, in its words.

use std::collections::BTreeSet;

use serde_json::Value;

use super::conversation::{Block, Message, Role};
use super::error::ApiError;
use super::render::signature;

/// Reads the `messages` of a request.
pub(crate) fn messages(value: &Value) -> Result<Vec<Message>, ApiError> {
    let list = match value {
        Value::Array(list) => list,
        Value::Null => return Err(ApiError::invalid("messages: Field required")),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            return Err(ApiError::invalid("messages: Input should be a valid list"));
        }
    };
    if list.is_empty() {
        return Err(ApiError::invalid("messages: at least one message is required"));
    }
    let mut messages = Vec::new();
    for (index, value) in list.iter().enumerate() {
        // Agents remind newer models of something in between; it is no part of what was said.
        if index > 0 && value["role"] == "system" {
            continue;
        }
        messages.push(message(index, value, index + 1 == list.len())?);
    }
    if messages[0].role != Role::User {
        return Err(ApiError::invalid("messages: first message must use the \"user\" role"));
    }
    tools_are_paired(&messages)?;
    thoughts_are_genuine(&messages)?;
    Ok(messages)
}

fn message(index: usize, value: &Value, is_last: bool) -> Result<Message, ApiError> {
    let role = match value["role"].as_str() {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(other) => {
            return Err(ApiError::invalid(format!(
                "messages: Unexpected role \"{other}\". Allowed roles are \"user\" or \"assistant\""
            )));
        }
        None => return Err(ApiError::invalid(format!("messages.{index}.role: Field required"))),
    };
    let blocks = match &value["content"] {
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => {
            has_words(text)?;
            vec![Block::Text(text.clone())]
        }
        Value::Array(blocks) => blocks
            .iter()
            .enumerate()
            .map(|(at, block)| read_block(index, at, block))
            .collect::<Result<_, _>>()?,
        Value::Null => {
            return Err(ApiError::invalid(format!("messages.{index}.content: Field required")));
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err(ApiError::invalid(format!(
                "messages.{index}.content: Input should be a valid string or list"
            )));
        }
    };
    if blocks.is_empty() && !(is_last && role == Role::Assistant) {
        return Err(ApiError::invalid(format!(
            "messages.{index}: all messages must have non-empty content except for the optional \
             final assistant message"
        )));
    }
    Ok(Message { role, blocks })
}

fn read_block(index: usize, at: usize, value: &Value) -> Result<Block, ApiError> {
    let place = format!("messages.{index}.content.{at}");
    let missing = |field| Err(ApiError::invalid(format!("{place}.{field}: Field required")));
    if !value["type"].is_string() {
        return missing("type");
    }
    let block = Block::read(value);
    match &block {
        Block::Text(text) => has_words(text).map(|()| block),
        Block::ToolUse { id, .. } if id.is_empty() => missing("tool_use.id"),
        Block::ToolUse { name, .. } if name.is_empty() => missing("tool_use.name"),
        Block::ToolUse { .. } if !value["input"].is_object() => Err(ApiError::invalid(format!(
            "{place}.tool_use.input: Input should be a valid dictionary"
        ))),
        Block::ToolResult { id, .. } if id.is_empty() => missing("tool_result.tool_use_id"),
        Block::ToolUse { .. }
        | Block::ToolResult { .. }
        | Block::Thinking { .. }
        | Block::Other { .. } => Ok(block),
    }
}

fn has_words(text: &str) -> Result<(), ApiError> {
    if text.is_empty() {
        return Err(ApiError::invalid("messages: text content blocks must be non-empty"));
    }
    if text.trim().is_empty() {
        return Err(ApiError::invalid(
            "messages: text content blocks must contain non-whitespace text",
        ));
    }
    Ok(())
}

/// Messages of one role that follow each other count as one, as they do for the real API.
struct Merged<'a> {
    first: usize,
    role: Role,
    blocks: Vec<&'a Block>,
}

fn merged(messages: &[Message]) -> Vec<Merged<'_>> {
    let mut all: Vec<Merged<'_>> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        match all.last_mut() {
            Some(last) if last.role == message.role => last.blocks.extend(&message.blocks),
            _ => all.push(Merged {
                first: index,
                role: message.role,
                blocks: message.blocks.iter().collect(),
            }),
        }
    }
    all
}

fn tools_are_paired(messages: &[Message]) -> Result<(), ApiError> {
    let merged = merged(messages);
    let mut seen = BTreeSet::new();
    for (index, message) in merged.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| calls(&merged[before])).unwrap_or_default();
        for (at, block) in message.blocks.iter().enumerate() {
            let Block::ToolResult { id, .. } = block else { continue };
            if message.role != Role::User || !before.contains(&id.as_str()) {
                return Err(ApiError::invalid(format!(
                    "messages.{}.content.{at}: unexpected `tool_use_id` found in `tool_result` \
                     blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` \
                     block in the previous message.",
                    message.first
                )));
            }
        }
        let after = merged.get(index + 1).map(leading_results).unwrap_or_default();
        let calls = calls(message);
        let orphans: Vec<&str> = calls.iter().copied().filter(|id| !after.contains(id)).collect();
        if !orphans.is_empty() {
            return Err(ApiError::invalid(format!(
                "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately \
                 after: {}. Each `tool_use` block must have a corresponding `tool_result` block in \
                 the next message.",
                message.first,
                orphans.join(", ")
            )));
        }
        if !calls.into_iter().all(|id| seen.insert(id)) {
            return Err(ApiError::invalid("messages: `tool_use` ids must be unique"));
        }
        let mut answered = BTreeSet::new();
        if !after.iter().all(|id| answered.insert(id)) {
            return Err(ApiError::invalid(format!(
                "messages.{}: each tool_use must have a single result. Found multiple `tool_result` \
                 blocks with the same id",
                message.first + 1
            )));
        }
    }
    Ok(())
}

fn calls<'a>(message: &Merged<'a>) -> Vec<&'a str> {
    let ids = message.blocks.iter().filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some(id.as_str()),
        Block::Text(_)
        | Block::ToolResult { .. }
        | Block::Thinking { .. }
        | Block::Other { .. } => None,
    });
    ids.collect()
}

/// The results at the beginning of a message: the API takes none that come after text.
fn leading_results<'a>(message: &Merged<'a>) -> Vec<&'a str> {
    let ids = message.blocks.iter().map_while(|block| match block {
        Block::ToolResult { id, .. } => Some(id.as_str()),
        Block::Text(_) | Block::ToolUse { .. } | Block::Thinking { .. } | Block::Other { .. } => {
            None
        }
    });
    ids.collect()
}

/// A client must give thoughts back as it got them, with their signature.
fn thoughts_are_genuine(messages: &[Message]) -> Result<(), ApiError> {
    for (index, message) in messages.iter().enumerate() {
        for (at, block) in message.blocks.iter().enumerate() {
            let Block::Thinking { text, signature: given } = block else { continue };
            if *given != signature(text) {
                return Err(ApiError::invalid(format!(
                    "messages.{index}.content.{at}: Invalid `signature` in `thinking` block"
                )));
            }
        }
    }
    Ok(())
}
