//! What the program's messages mean for existing clients. No I/O: messages in, events out.
//!
//! Each message is told as the original tells it: first what it consists of, then the message itself, as it came.

use ash_protocol::{Ending, Event, Phase, Usage};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::record::words;

/// Tools that leave the work to an agent of its own.
const DELEGATING: [&str; 2] = ["Task", "Agent"];

/// How our proxy says that a session has spent its budget.
const BUDGET_SPENT: &str = "the session has spent its budget";

/// One run, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Turn {
    has_begun: bool,
    round: u32,
    /// Whether a new round was told of that nothing was said in yet.
    is_streaming: bool,
    pub(super) usage: Usage,
    result: Option<Outcome>,
}

/// What a message says of itself.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Message {
    r#type: String,
    message: Value,
    event: Value,
    tool_use_result: Value,
    parent_tool_use_id: Option<String>,
}

/// What the agent says at the end.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Outcome {
    subtype: String,
    is_error: bool,
    num_turns: Option<u64>,
    result: Option<Value>,
    errors: Vec<Value>,
    usage: Tokens,
    /// The older name is the second one.
    total_cost_usd: Option<f64>,
    cost_usd: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input_tokens: u64,
    output_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
}

impl Turn {
    /// Whether the agent has said anything.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// How the run ends if nothing else is known of it.
    pub(super) fn ending(&self) -> Ending {
        self.result.as_ref().map_or(Ending::EndTurn, Outcome::ending)
    }

    /// Takes a message. The text of it is what the agent said in words.
    pub(super) fn take(&mut self, raw: Box<RawValue>) -> (Vec<Event>, Option<String>) {
        self.has_begun = true;
        let message: Message = serde_json::from_str(raw.get()).unwrap_or_default();
        let mut events = Vec::new();
        let mut text = None;
        let mut phase = None;
        match message.r#type.as_str() {
            "stream_event" => self.stream(&message, &mut events),
            "assistant" => {
                self.speak(&mut events);
                phase = self.assistant(&message, &mut events);
                text = text_of(&message);
            }
            "user" => user(&message, &mut events),
            "result" => self.result(&raw, &mut events),
            _ => {}
        }
        events.push(Event::Message(raw));
        events.extend(phase.map(|phase| Event::Phase { phase, round: self.round }));
        (events, text)
    }

    /// The model answers, if that was not said yet.
    fn speak(&mut self, events: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.is_streaming, true) {
            self.round += 1;
            events.push(Event::Phase { phase: Phase::StreamingLlm, round: self.round });
        }
    }

    fn stream(&mut self, message: &Message, events: &mut Vec<Event>) {
        let (event, delta) = (&message.event, &message.event["delta"]);
        match (event["type"].as_str(), delta["type"].as_str()) {
            (Some("message_start"), _) if message.parent_tool_use_id.is_none() => {
                self.speak(events);
            }
            (Some("content_block_delta"), Some("text_delta")) => {
                let text = delta["text"].as_str().unwrap_or_default();
                events.push(Event::TextDelta(text.to_owned()));
            }
            (Some("content_block_delta"), Some("thinking_delta")) => {
                let text = delta["thinking"].as_str().unwrap_or_default();
                events.push(Event::ThinkingDelta(text.to_owned()));
            }
            (Some("content_block_delta"), Some(other)) => events.push(output(other, delta)),
            _ => {}
        }
    }

    fn assistant(&mut self, message: &Message, events: &mut Vec<Event>) -> Option<Phase> {
        let mut phase = None;
        for block in message.message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                // Told bit by bit, if anybody asked for that; the message has it in any case.
                Some("text" | "thinking") | None => {}
                Some("tool_use") => {
                    self.usage.tool_calls += 1;
                    let name = block["name"].as_str().unwrap_or_default();
                    let delegates = DELEGATING.contains(&name);
                    phase = Some(if delegates {
                        Phase::DelegatingCoder
                    } else {
                        Phase::ExecutingTools
                    });
                    let body = json!({ "id": block["id"], "name": name, "input": block["input"] });
                    events.push(output("tool_use", &body));
                    self.is_streaming = false;
                }
                Some(other) => events.push(output(other, block)),
            }
        }
        phase
    }

    fn result(&mut self, raw: &RawValue, events: &mut Vec<Event>) {
        let outcome: Outcome = serde_json::from_str(raw.get()).unwrap_or_default();
        self.usage = self.usage.plus(Usage {
            input_tokens: outcome.usage.input_tokens,
            output_tokens: outcome.usage.output_tokens,
            cache_creation_tokens: outcome.usage.cache_creation_input_tokens,
            cache_read_tokens: outcome.usage.cache_read_input_tokens,
            ..Usage::default()
        });
        if let Some(total) = outcome.total_cost_usd.or(outcome.cost_usd) {
            // Results of one query tell a sum, and the next query begins with nothing: the original runs a program
            // of its own for each.
            self.usage.cost_micro_usd = self.usage.cost_micro_usd.max(micro(total));
        }
        let mut body = json!({ "numTurns": outcome.num_turns, "result": outcome.result });
        if let Value::Object(fields) = &mut body {
            fields.retain(|_, value| !value.is_null());
        }
        events.push(output("turn_complete", &body));
        self.result = Some(outcome);
    }
}

impl Outcome {
    fn ending(&self) -> Ending {
        match self.subtype.as_str() {
            "error_max_turns" => Ending::MaxTurns,
            "error_max_budget_usd" => Ending::Budget,
            _ if !self.is_error => Ending::EndTurn,
            _ if self.complaint().contains(BUDGET_SPENT) => Ending::Budget,
            _ => Ending::Failed { message: self.complaint() },
        }
    }

    /// What went wrong, in the agent's words.
    fn complaint(&self) -> String {
        let said = self.result.iter().chain(&self.errors);
        let said = said.map(|said| said.as_str().map_or_else(|| said.to_string(), str::to_owned));
        let said = said.filter(|said| !said.trim().is_empty()).collect::<Vec<_>>().join("; ");
        if said.is_empty() { format!("the agent ended with {}", self.subtype) } else { said }
    }
}

/// What came of tools: the program's own word, or else the blocks of the message.
fn user(message: &Message, events: &mut Vec<Event>) {
    let blocks = message.message["content"].as_array().into_iter().flatten();
    let results = blocks.filter(|block| block["type"] == "tool_result");
    let one = &message.tool_use_result;
    let named = &one["tool_use_id"];
    if named.is_string() {
        let content = if one["stdout"].is_null() { &one["content"] } else { &one["stdout"] };
        events.push(tool_result(named, content, &one["is_error"]));
        return;
    }
    for block in results {
        events.push(tool_result(&block["tool_use_id"], &block["content"], &block["is_error"]));
    }
}

fn tool_result(id: &Value, content: &Value, is_error: &Value) -> Event {
    let is_error = is_error.as_bool().unwrap_or_default();
    let body = json!({ "tool_use_id": id, "content": content, "is_error": is_error });
    output("tool_result", &body)
}

/// What the agent said in words, if it is the agent itself.
fn text_of(message: &Message) -> Option<String> {
    if message.parent_tool_use_id.is_some() {
        return None;
    }
    let text = words(&message.message["content"]);
    (!text.is_empty()).then_some(text)
}

fn output(name: &str, body: &Value) -> Event {
    let body = to_raw_value(body).expect("a value is JSON");
    Event::Output { name: name.to_owned(), body }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, and nothing costs less than nothing"
)]
fn micro(usd: f64) -> u64 {
    (usd * 1_000_000.0).round() as u64
}

#[cfg(test)]
mod test;
