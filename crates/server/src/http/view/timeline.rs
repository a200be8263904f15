//! What an entry is in the list of what happened, under the names that clients of the original know.

use std::borrow::Cow;

use ash_core::entry::{EndedBy, Entry};
use ash_core::id::{RunId, SessionId};
use serde_json::{Value, json};

use super::{message, output, receipt_of, shown};

/// What the agent thinks.
pub(crate) const REASONING: &str = "reasoning";

/// What kind of event an entry is in a list, and its fields. Names as existing clients know them,
/// where they know them.
pub(crate) fn event(session: SessionId, entry: &Entry) -> (Cow<'static, str>, String) {
    let lifecycle = |action: &str, more: Value| {
        let mut data = json!({ "action": action });
        if let (Value::Object(data), Value::Object(more)) = (&mut data, more) {
            data.extend(more);
        }
        ("lifecycle".into(), data.to_string())
    };
    match entry {
        Entry::SessionCreated => lifecycle("created", json!({})),
        Entry::SessionActive { incarnation } => {
            lifecycle("started", json!({ "incarnation": incarnation }))
        }
        Entry::SessionPaused { reason } => lifecycle("paused", json!({ "reason": reason })),
        Entry::SessionWaking => lifecycle("waking", json!({})),
        Entry::SessionResumed { path, incarnation, receipt } => {
            let receipt = receipt.as_ref().map(receipt_of);
            let source = receipt.as_ref().and_then(|receipt| receipt.source.clone());
            lifecycle(
                "resumed",
                json!({
                    "path": path,
                    "source": source,
                    "incarnation": incarnation,
                    "receipt": receipt,
                }),
            )
        }
        Entry::SessionStopped => lifecycle("stopped", json!({})),
        Entry::SessionFailed { failure } => {
            lifecycle("failed", json!({ "code": failure.code, "error": failure.message }))
        }
        Entry::SessionEnded { by: EndedBy::Request } => lifecycle("ended", json!({})),
        Entry::SessionEnded { by: EndedBy::Ttl } => lifecycle("ended", json!({ "by": "ttl" })),
        Entry::SessionForked { parent, turn, snapshot } => lifecycle(
            "forked",
            json!({ "parentSessionId": parent, "turn": turn, "snapshotId": snapshot }),
        ),
        Entry::SessionImported { from, turn, snapshot } => {
            lifecycle("imported", json!({ "from": from, "turn": turn, "snapshotId": snapshot }))
        }
        Entry::ThinkingDelta { run, delta } => (REASONING.into(), reasoning(*run, delta)),
        Entry::Message { run, body } => match text_of(body.get()) {
            Some(text) => ("text".into(), json!({ "text": text, "runId": run }).to_string()),
            None => ("message".into(), message(session, *run, body.get())),
        },
        Entry::Output { run, name, body } if name == "tool_use" => {
            ("tool_start".into(), with_names_of_old(output(*run, name, body.get()).1))
        }
        Entry::Output { run, name, body } if name == "tool_result" => {
            ("tool_result".into(), with_names_of_old(output(*run, name, body.get()).1))
        }
        Entry::Output { run, name, body } if name == "system_init" => match servers(body.get()) {
            Some(servers) => {
                ("mcp_status".into(), json!({ "servers": servers, "runId": run }).to_string())
            }
            None => shown(session, entry),
        },
        Entry::Rewound { .. }
        | Entry::Prompt { .. }
        | Entry::RunStarted { .. }
        | Entry::Phase { .. }
        | Entry::RunRetry { .. }
        | Entry::RunCancelling { .. }
        | Entry::TextDelta { .. }
        | Entry::Output { .. }
        | Entry::Aside { .. }
        | Entry::PermissionRequest { .. }
        | Entry::PermissionDecided { .. }
        | Entry::PermissionAnswered { .. }
        | Entry::ReportTooLarge { .. }
        | Entry::ContextLost { .. }
        | Entry::RunError { .. }
        | Entry::RunEnded { .. }
        | Entry::ReportsLost { .. } => shown(session, entry),
    }
}

/// What an agent thought in one go.
pub(crate) fn reasoning(run: RunId, text: &str) -> String {
    json!({ "text": text, "thinking": text, "runId": run }).to_string()
}

/// A call of a tool or its result, also with the names that the original has for what is in it.
fn with_names_of_old(data: String) -> String {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(&data) else { return data };
    let of = |name: &str| fields.get(name).cloned();
    let (id, name) = (of("id").or_else(|| of("tool_use_id")), of("name"));
    let said = of("content").map(|content| Value::String(words(&content)));
    let is_error = of("is_error").and_then(|error| error.as_bool()).unwrap_or_default();
    let mut is_also = |old: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.entry(old).or_insert(value);
        }
    };
    is_also("toolId", id);
    is_also("toolName", name);
    is_also(if is_error { "stderr" } else { "stdout" }, said);
    Value::Object(fields).to_string()
}

/// The words of a result, whose content is a text or a list of blocks.
fn words(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            other.to_string()
        }
    }
}

/// The MCP servers that a program names when it begins a turn, and how they are; nothing, if there are none.
fn servers(init: &str) -> Option<Value> {
    let mut init: Value = serde_json::from_str(init).ok()?;
    let servers = init.get_mut("mcp_servers")?.take();
    servers.as_array().is_some_and(|servers| !servers.is_empty()).then_some(servers)
}

/// The text of a whole answer; nothing, if it has none, or is another kind of message.
fn text_of(body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    if body["type"] != "assistant" {
        return None;
    }
    let blocks = body["message"]["content"].as_array()?;
    let texts = blocks.iter().filter(|block| block["type"] == "text");
    let text = texts.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n");
    (!text.is_empty()).then_some(text)
}
