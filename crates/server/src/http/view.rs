//! How the log looks from outside: each entry is one frame of a stream and one event of a list.
//!
//! What is shown depends on the entry alone, so a replay shows the same as the first time. The table
//! in `docs/events.md` says the same in words.

use std::borrow::Cow;
use std::fmt::Write as _;

use ash_core::entry::{Entry, Said};
use ash_core::id::{QuestionId, RunId, SessionId};
use ash_core::number::{Cursor, LogEpoch};
use ash_core::permission::{AnsweredHow, Permission};
use ash_core::run::Usage;
use ash_core::session::LogEntry;
use ash_engine::{Gap, GapReason};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api;
use crate::sessions::receipt_of;

/// One frame of an event stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Where in the log it stands; nothing, if it is not logged.
    pub(crate) id: Option<Cursor>,
    pub(crate) event: Cow<'static, str>,
    /// JSON on one line.
    pub(crate) data: String,
}

/// Names of frames and types of events that an agent cannot use for its own.
const OURS: [&str; 38] = [
    "aside",
    "context_lost",
    "done",
    "error",
    "gap",
    "lifecycle",
    "mcp_status",
    "message",
    "output",
    "permission_decided",
    "permission_request",
    "permission_resolved",
    "phase",
    "prompt",
    "reasoning",
    "reconnect",
    "reports_lost",
    "report_too_large",
    "rewound",
    "run_cancelling",
    "run_queued",
    "run_retry",
    "run_started",
    "session_active",
    "session_created",
    "session_ended",
    "session_failed",
    "session_forked",
    "session_imported",
    "session_paused",
    "session_resumed",
    "session_start",
    "session_stopped",
    "session_waking",
    "text",
    "text_delta",
    "thinking_delta",
    "tool_start",
];

/// What an agent has written down for itself: it is in the log for recovery, and nobody reads it.
const MIRROR: &str = "transcript_mirror";

impl Frame {
    /// A frame that is not in the log.
    fn unlogged(event: &'static str, data: &Value) -> Self {
        Self { id: None, event: event.into(), data: data.to_string() }
    }

    /// The first frame of a run that is told as it happens.
    pub(crate) fn session_start(session: SessionId, run: RunId) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let data = json!({ "sessionId": session, "version": version, "runId": run });
        Self::unlogged("session_start", &data)
    }

    /// The run waits; its place in the queue counts from 1.
    pub(crate) fn run_queued(run: RunId, position: usize) -> Self {
        Self::unlogged("run_queued", &json!({ "position": position, "runId": run }))
    }

    /// A piece of an answer, as the model's API tells it.
    pub(crate) fn stream_event(session: SessionId, run: RunId, event: &Value) -> Self {
        let data = json!({
            "type": "stream_event", "event": event, "session_id": session, "runId": run,
        });
        Self::unlogged("message", &data)
    }

    /// The stream ends here and goes on elsewhere: come back with the last id.
    pub(crate) fn reconnect(cursor: Cursor) -> Self {
        let data = json!({ "reason": "draining", "cursor": cursor.to_string() });
        Self::unlogged("reconnect", &data)
    }

    /// What the client asked for is not in the log.
    pub(crate) fn gap(gap: Gap) -> Self {
        let reason = match gap.reason {
            GapReason::OtherEpoch => "other_epoch",
            GapReason::BeyondEnd => "beyond_end",
        };
        let (from, to) = (gap.from.to_string(), gap.to.to_string());
        Self::unlogged("gap", &json!({ "from": from, "to": to, "reason": reason }))
    }

    /// What an entry of a log looks like in a stream.
    pub(crate) fn of(session: SessionId, epoch: LogEpoch, logged: &LogEntry) -> Self {
        let (event, data) = shown(session, &logged.entry);
        Self { id: Some(Cursor { epoch, seq: logged.seq }), event, data }
    }

    /// Adds the frame to what is sent.
    pub(crate) fn write(&self, out: &mut String) {
        let data = for_every_reader(&self.data);
        let written = match self.id {
            Some(id) => write!(out, "id: {id}\nevent: {}\ndata: {data}\n\n", self.event),
            None => write!(out, "event: {}\ndata: {data}\n\n", self.event),
        };
        written.expect("a string takes everything");
    }
}

/// JSON that is one line for everybody: some clients, those of the original among them, end a line at more characters
/// than the protocol does. In JSON these can only be in strings.
fn for_every_reader(json: &str) -> Cow<'_, str> {
    const ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];
    if json.is_ascii() || !json.contains(ENDS) {
        return Cow::Borrowed(json);
    }
    let mut line = String::with_capacity(json.len() + 16);
    for letter in json.chars() {
        if ENDS.contains(&letter) {
            write!(line, "\\u{:04x}", u32::from(letter)).expect("a string takes everything");
        } else {
            line.push(letter);
        }
    }
    Cow::Owned(line)
}

/// The name and the fields of an entry.
fn shown(session: SessionId, entry: &Entry) -> (Cow<'static, str>, String) {
    let (event, data) = match entry {
        Entry::SessionCreated => ("session_created", json!({ "sessionId": session })),
        Entry::SessionActive { incarnation } => {
            ("session_active", json!({ "sessionId": session, "incarnation": incarnation }))
        }
        Entry::SessionPaused { reason } => {
            ("session_paused", json!({ "sessionId": session, "reason": reason }))
        }
        Entry::SessionWaking => ("session_waking", json!({ "sessionId": session })),
        Entry::SessionResumed { path, incarnation, receipt } => {
            let mut data = match receipt {
                Some(receipt) => json!(receipt_of(receipt)),
                None => json!({ "path": path }),
            };
            data["sessionId"] = json!(session);
            data["incarnation"] = json!(incarnation);
            ("session_resumed", data)
        }
        Entry::ContextLost { turns_in_log, reason } => (
            "context_lost",
            json!({ "sessionId": session, "turnsInLog": turns_in_log, "reason": reason }),
        ),
        Entry::RunError { run, failure } => {
            ("error", json!({ "error": failure.message, "code": failure.code, "runId": run }))
        }
        Entry::SessionStopped => ("session_stopped", json!({ "sessionId": session })),
        Entry::SessionFailed { failure } => (
            "session_failed",
            json!({ "sessionId": session, "code": failure.code, "error": failure.message }),
        ),
        Entry::SessionEnded { by } => ("session_ended", json!({ "sessionId": session, "by": by })),
        Entry::SessionForked { parent, turn, snapshot } => (
            "session_forked",
            json!({
                "sessionId": session,
                "parentSessionId": parent,
                "turn": turn,
                "snapshotId": snapshot,
            }),
        ),
        Entry::SessionImported { from, turn, snapshot } => (
            "session_imported",
            json!({ "sessionId": session, "from": from, "turn": turn, "snapshotId": snapshot }),
        ),
        Entry::Rewound { from, to, snapshot, .. } => {
            ("rewound", json!({ "from": from, "to": to, "snapshotId": snapshot }))
        }
        Entry::Prompt { run, content } => {
            let content: Value = said(content.get());
            ("prompt", json!({ "runId": run, "content": content }))
        }
        Entry::RunStarted { run, turn, parent_turn } => {
            ("run_started", json!({ "runId": run, "turn": turn, "parentTurn": parent_turn }))
        }
        Entry::Phase { run, phase, round } => {
            ("phase", json!({ "phase": phase, "round": round, "runId": run }))
        }
        Entry::RunRetry { run, round, discard_after_seq } => (
            "run_retry",
            json!({ "round": round, "discardAfterSeq": discard_after_seq, "runId": run }),
        ),
        Entry::RunCancelling { run } => ("run_cancelling", json!({ "runId": run })),
        Entry::TextDelta { run, delta } => ("text_delta", json!({ "delta": delta, "runId": run })),
        Entry::ThinkingDelta { run, delta } => {
            ("thinking_delta", json!({ "delta": delta, "runId": run }))
        }
        Entry::Message { run, body } => {
            return ("message".into(), message(session, *run, body.get()));
        }
        Entry::Output { run, name, body } if name == MIRROR => {
            let bytes = body.get().len();
            (MIRROR, json!({ "bytes": bytes, "runId": run }))
        }
        Entry::Output { run, name, body } => return output(*run, name, body.get()),
        Entry::Aside { turn, said: Said::Output { name, body } } if name == MIRROR => {
            ("aside", json!({ "turn": turn, "name": name, "bytes": body.get().len() }))
        }
        Entry::Aside { turn, said } => {
            let (name, body) = match said {
                Said::Message { body } => ("message", body),
                Said::Output { name, body } => (name.as_str(), body),
            };
            let body: Value = serde_json::from_str(body.get()).unwrap_or(Value::Null);
            ("aside", json!({ "turn": turn, "name": name, "body": body }))
        }
        Entry::PermissionRequest { run, id, tool, input } => {
            let input: Value = serde_json::from_str(input.get()).unwrap_or(Value::Null);
            ("permission_request", json!({ "id": id, "tool": tool, "input": input, "runId": run }))
        }
        Entry::PermissionDecided { run, id, decision } => {
            ("permission_decided", decided(*run, *id, decision))
        }
        Entry::PermissionAnswered { run, id, how, code } => (
            "permission_resolved",
            json!({
                "id": id,
                "behavior": if *how == AnsweredHow::Allowed { "allow" } else { "deny" },
                "how": how,
                "code": code,
                "runId": run,
            }),
        ),
        Entry::ReportTooLarge { run, bytes } => {
            ("report_too_large", json!({ "runId": run, "bytes": bytes }))
        }
        Entry::RunEnded { run, outcome, usage } => (
            "done",
            json!({
                "sessionId": session,
                "runId": run,
                "stopReason": outcome.stop_reason(),
                "status": outcome.status(),
                "usage": usage_of(usage),
            }),
        ),
        Entry::ReportsLost { missing } => ("reports_lost", json!({ "missing": missing })),
    };
    (event.into(), data.to_string())
}

/// What a person says to a question.
fn decided(run: RunId, id: QuestionId, decision: &Permission) -> Value {
    let mut data = json!({ "id": id, "behavior": decision.behavior(), "runId": run });
    match decision {
        Permission::Allow { input: Some(input) } => {
            data["input"] = serde_json::from_str(input.get()).unwrap_or(Value::Null);
        }
        Permission::Deny { message: Some(message) } => data["message"] = json!(message),
        Permission::Allow { input: None } | Permission::Deny { message: None } => {}
    }
    data
}

/// What an agent calls its own, unless it is a name of ours or no name at all.
fn output(run: RunId, name: &str, body: &str) -> (Cow<'static, str>, String) {
    let is_name = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_name && !OURS.contains(&name) && Head::of(body).is_some_and(|head| head.run.is_none()) {
        let data = with_fields(body, &[("runId", &run.to_string())]);
        return (name.to_owned().into(), data);
    }
    let body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    ("output".into(), json!({ "name": name, "body": body, "runId": run }).to_string())
}

/// What an object of an agent's says of its own accord where we would say something.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, rename = "session_id")]
    session: Option<&'a RawValue>,
    #[serde(borrow, rename = "runId")]
    run: Option<&'a RawValue>,
}

impl<'a> Head<'a> {
    /// Nothing, if it is no object.
    fn of(body: &'a str) -> Option<Self> {
        let is_object = body.trim_start().starts_with('{');
        is_object.then(|| serde_json::from_str(body).ok()).flatten()
    }
}

/// A message as existing clients know it: with the session it belongs to; and with its run.
fn message(session: SessionId, run: RunId, body: &str) -> String {
    let (session, run) = (session.to_string(), run.to_string());
    let Some(head) = Head::of(body) else { return on_one_line(body) };
    let mut fields: Vec<(&str, &str)> = Vec::new();
    if head.session.is_none() {
        fields.push(("session_id", &session));
    }
    if head.run.is_none() {
        fields.push(("runId", &run));
    }
    with_fields(body, &fields)
}

/// An object with further fields of plain text, on one line.
fn with_fields(object: &str, fields: &[(&str, &str)]) -> String {
    let object = on_one_line(object);
    let Some(rest) = object.trim_start().strip_prefix('{') else { return object };
    if fields.is_empty() {
        return object;
    }
    let mut out = String::with_capacity(object.len() + 64);
    out.push('{');
    for (index, (name, value)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}\"{name}\":\"{value}\"").expect("a string takes everything");
    }
    if !rest.trim_start().starts_with('}') {
        out.push(',');
    }
    out.push_str(rest);
    out
}

/// JSON without line breaks. Inside of strings there are none: they are escaped.
fn on_one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

/// What a person said, without the options of the run.
fn said(prompt: &str) -> Value {
    match serde_json::from_str(prompt) {
        Ok(Value::Object(mut options)) => options.remove("content").unwrap_or(Value::Null),
        Ok(content) => content,
        Err(_) => Value::Null,
    }
}

/// One message of the conversation, as existing clients know it.
pub(crate) fn message_content(session: SessionId, entry: &Entry) -> String {
    if let Entry::Prompt { content, .. } = entry {
        return json!({ "type": "user", "content": said(content.get()) }).to_string();
    }
    if let Entry::Aside { said: Said::Message { body }, .. } = entry {
        return on_one_line(body.get());
    }
    shown(session, entry).1
}

/// Whether an entry is something that was said, and not a piece of it or something beside it, which programs of the
/// original send as messages too.
pub(crate) fn is_said(entry: &Entry) -> bool {
    #[derive(Deserialize)]
    struct Typed<'a> {
        #[serde(borrow)]
        r#type: Option<Cow<'a, str>>,
    }
    let (Entry::Message { body, .. } | Entry::Aside { said: Said::Message { body }, .. }) = entry
    else {
        return true;
    };
    let kind = serde_json::from_str::<Typed<'_>>(body.get()).ok().and_then(|typed| typed.r#type);
    !matches!(kind.as_deref(), Some("stream_event" | "system" | "user"))
}

/// What a run consumed.
#[expect(clippy::cast_precision_loss, reason = "no run costs as much as a float cannot hold")]
pub(crate) fn usage_of(usage: &Usage) -> api::Usage {
    api::Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        cache_creation_tokens: usage.cache_creation_tokens,
        cache_read_tokens: usage.cache_read_tokens,
        tool_calls: usage.tool_calls,
        cost_usd: usage.cost_micro_usd as f64 / 1_000_000.0,
    }
}

pub(super) mod timeline;

#[cfg(test)]
mod test;
