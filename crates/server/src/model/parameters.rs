//! Refuses what the real API refuses besides messages: settings that contradict each other, tools
//! that are none, marks and pictures that are too many or too large.

use std::collections::BTreeSet;

use serde_json::Value;

use super::error::ApiError;

/// How little a model may be told to think.
const MIN_THINKING: u64 = 1_024;
/// How many blocks may be marked for the cache.
const MAX_CACHE_MARKS: usize = 4;
/// How long the name of a tool may be.
const MAX_TOOL_NAME: usize = 128;
/// How long the name of a property may be.
const MAX_PROPERTY_NAME: usize = 64;
/// How long an encoded picture may be.
const MAX_IMAGE_BASE64: usize = 5 * 1024 * 1024;

/// Looks at everything that both counting and answering take.
pub(crate) fn check(body: &Value) -> Result<(), ApiError> {
    system(&body["system"])?;
    tools(&body["tools"])?;
    if !body["tool_choice"].is_null() && body["tools"].as_array().is_none_or(Vec::is_empty) {
        return refuse("tool_choice: may only be specified while providing tools.");
    }
    thinking(body)?;
    for (index, message) in list(&body["messages"]).iter().enumerate() {
        for (at, block) in list(&message["content"]).iter().enumerate() {
            content_block(&format!("messages.{index}.content.{at}"), block)?;
        }
    }
    let marks = cache_marks(body);
    if marks > MAX_CACHE_MARKS {
        return refuse(format!(
            "A maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided. Found {marks}."
        ));
    }
    Ok(())
}

fn refuse<T>(message: impl Into<String>) -> Result<T, ApiError> {
    Err(ApiError::invalid(message))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn system(system: &Value) -> Result<(), ApiError> {
    let blocks = match system {
        Value::Null | Value::String(_) => return Ok(()),
        Value::Array(blocks) => blocks,
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return refuse("system: Input should be a valid string or list");
        }
    };
    for (at, block) in blocks.iter().enumerate() {
        if block["type"] != "text" {
            return refuse(format!("system.{at}.type: Input should be 'text'"));
        }
        match block["text"].as_str() {
            None => return refuse(format!("system.{at}.text: Field required")),
            Some("") => return refuse("system: text content blocks must be non-empty"),
            Some(_) => {}
        }
    }
    Ok(())
}

fn thinking(body: &Value) -> Result<(), ApiError> {
    let thinking = &body["thinking"];
    if thinking.is_null() {
        return Ok(());
    }
    match thinking["type"].as_str() {
        Some("disabled" | "adaptive") => return Ok(()),
        Some("enabled") => {}
        other => {
            return refuse(format!(
                "thinking: Input tag '{}' found using 'type' does not match any of the expected \
                 tags: 'adaptive', 'disabled', 'enabled'",
                other.unwrap_or_default()
            ));
        }
    }
    let Some(budget) = thinking["budget_tokens"].as_u64() else {
        return refuse("thinking.enabled.budget_tokens: Field required");
    };
    if budget < MIN_THINKING {
        return refuse(format!(
            "thinking.enabled.budget_tokens: Input should be greater than or equal to {MIN_THINKING}"
        ));
    }
    if body["max_tokens"].as_u64().is_some_and(|max| max <= budget) {
        return refuse("`max_tokens` must be greater than `thinking.budget_tokens`.");
    }
    if body["temperature"].as_f64().is_some_and(|temperature| (temperature - 1.0).abs() > 1e-9) {
        return refuse("`temperature` may only be set to 1 when thinking is enabled.");
    }
    Ok(())
}

fn tools(tools: &Value) -> Result<(), ApiError> {
    if !tools.is_null() && !tools.is_array() {
        return refuse("tools: Input should be a valid list");
    }
    let mut names = BTreeSet::new();
    for (index, tool) in list(tools).iter().enumerate() {
        // What Anthropic runs itself has a type of its own, and no schema.
        let is_custom = tool["type"].is_null() || tool["type"] == "custom";
        let place = format!("tools.{index}.custom");
        let Some(name) = tool["name"].as_str() else {
            return refuse(format!("{place}.name: Field required"));
        };
        if is_custom {
            if !is_name(name, MAX_TOOL_NAME, "") {
                return refuse(format!(
                    "{place}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
                ));
            }
            schema(&format!("{place}.input_schema"), &tool["input_schema"])?;
        }
        if !names.insert(name) {
            return refuse("tools: Tool names must be unique.");
        }
    }
    Ok(())
}

fn schema(place: &str, schema: &Value) -> Result<(), ApiError> {
    if schema.is_null() {
        return refuse(format!("{place}: Field required"));
    }
    if !schema.is_object() {
        return refuse(format!("{place}: Input should be an object"));
    }
    if schema["type"].is_null() {
        return refuse(format!("{place}.type: Field required"));
    }
    if schema["type"] != "object" {
        return refuse(format!("{place}.type: Input should be 'object'"));
    }
    if ["oneOf", "allOf", "anyOf"].iter().any(|word| !schema[*word].is_null()) {
        return refuse(format!(
            "{place}: input_schema does not support oneOf, allOf, or anyOf at the top level"
        ));
    }
    let properties = schema["properties"].as_object();
    let mut names = properties.into_iter().flat_map(|properties| properties.keys());
    if names.any(|name| !is_name(name, MAX_PROPERTY_NAME, ".")) {
        return refuse(format!(
            "{place}.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'"
        ));
    }
    Ok(())
}

fn is_name(name: &str, max: usize, more: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c) || more.contains(c);
    (1..=max).contains(&name.len()) && name.chars().all(is_fine)
}

fn content_block(place: &str, block: &Value) -> Result<(), ApiError> {
    match block["type"].as_str() {
        Some("image") => {
            let size = block["source"]["data"].as_str().map_or(0, str::len);
            if size > MAX_IMAGE_BASE64 {
                return refuse(format!(
                    "{place}.image.source.base64: image exceeds 5 MB maximum: {size} bytes > \
                     {MAX_IMAGE_BASE64} bytes"
                ));
            }
        }
        Some("thinking" | "redacted_thinking") if !block["cache_control"].is_null() => {
            return refuse(format!(
                "{place}.thinking.cache_control: Extra inputs are not permitted"
            ));
        }
        Some("tool_result") => {
            let content = list(&block["content"]);
            if block["is_error"] == true && content.iter().any(|inner| inner["type"] != "text") {
                return refuse(format!(
                    "{place}.tool_result: all content must be type \"text\" if `is_error` is true"
                ));
            }
            for (at, inner) in content.iter().enumerate() {
                content_block(&format!("{place}.tool_result.content.{at}"), inner)?;
            }
        }
        Some(_) | None => {}
    }
    Ok(())
}

/// How many blocks are marked for the cache, in results of tools as well.
fn cache_marks(body: &Value) -> usize {
    let is_marked = |block: &&Value| !block["cache_control"].is_null();
    let blocks = list(&body["messages"]).iter().flat_map(|message| list(&message["content"]));
    let within = blocks.clone().flat_map(|block| list(&block["content"]));
    let others = list(&body["tools"]).iter().chain(list(&body["system"]));
    others.chain(blocks).chain(within).filter(is_marked).count()
}
