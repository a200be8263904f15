//! What the program says in one run, and what that means. No I/O: lines in, events and wishes out.
//!
//! A run is over when the program is done with the message that it was given and at rest, not when it first says
//! `result`: it has things to say of its own accord, also before it begins, and what it left to others goes on and
//! makes it speak again. A version that does not tell when it is at rest, or with what it is done, is believed its
//! `result`.

mod spending;

use std::collections::VecDeque;

use ash_protocol::{Ending, Event, Phase, Usage};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use self::spending::{OfModel, Tokens, Unbooked};
use super::asking::{Question, Why};
use super::process::Heard;
use super::servers;

/// Tools that leave the work to an agent of its own.
const DELEGATING: [&str; 2] = ["Task", "Agent"];

/// What it is called that a tool was called, and that it has a result.
pub(super) const TOOL_USE: &str = "tool_use";
pub(super) const TOOL_RESULT: &str = "tool_result";

/// How our proxy says that a session has spent its budget, and the program that the provider gives no credit.
const BUDGET_SPENT: &str = "the session has spent its budget";
const NO_CREDIT: &str = "Credit balance is too low";

/// How many of the latest mirrored lines are remembered, to see that the last message is among them.
const MAX_MIRRORED: usize = 256;

/// What is to be done about something that the program said.
#[derive(Debug)]
pub(super) enum Wish {
    /// To report it.
    Report(Event),
    /// To write down what it has written down.
    Mirror { file: String, entries: Vec<Box<RawValue>> },
    /// To ask a person.
    Ask(Question),
    /// To take such a question back.
    Withdraw { request: String },
    /// To say that nobody here can do that.
    Refuse { request: String, subtype: String },
    /// To warn of something.
    Notice(String),
}

/// One run, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The number of the message that it was given.
    given: String,
    /// Whether it is done with that.
    is_done: bool,
    /// Whether it tells with what it is done.
    tells_lifecycle: bool,
    round: u32,
    /// Whether any text of this round was reported.
    has_spoken: bool,
    /// Whether it has begun to work on what it was given: said so, said anything, or written it down. Given once more, it
    /// would be done twice, or taken for something that it knows already.
    has_begun: bool,
    /// Whether it tells when it is at rest.
    tells_state: bool,
    is_at_rest: bool,
    background: bool,
    pub(super) usage: Usage,
    unbooked: Unbooked,
    pub(super) result: Option<Outcome>,
    /// The last message that has to be among the mirrored lines.
    last_said: Option<String>,
    mirrored: VecDeque<String>,
    /// Whether what it was given is among them.
    is_given_mirrored: bool,
    /// Whether what was said last is written down nowhere.
    pub(super) is_unwritten: bool,
    /// What the program says that everything has cost so far, if it has said so.
    total_usd: Option<f64>,
}

/// What the program says at the end.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Outcome {
    subtype: String,
    is_error: bool,
    num_turns: u32,
    result: Option<String>,
    errors: Vec<String>,
    api_error_status: Option<u16>,
    usage: Tokens,
    total_cost_usd: f64,
    /// What it is the end of.
    user_message_uuids: Option<Vec<String>>,
    /// What made it speak, if it was not a message.
    origin: Option<serde::de::IgnoredAny>,
    model_usage_since_last_result: Option<std::collections::BTreeMap<String, OfModel>>,
}

impl Turn {
    /// A run that comes after everything has cost that much, of a message with that number.
    pub(super) fn after(total_usd: Option<f64>, given: String) -> Self {
        Self { total_usd, given, ..Self::default() }
    }

    /// What was used, as far as that was heard: a program that is killed says no sum.
    pub(super) fn spent(&self) -> Usage {
        self.unbooked.with(self.usage)
    }

    /// What everything has cost now.
    pub(super) fn total_usd(&self) -> Option<f64> {
        self.total_usd
    }

    /// The last message that it said itself.
    pub(super) fn last_said(&self) -> Option<&str> {
        self.last_said.as_deref()
    }

    /// Whether the program is done with what it was given.
    pub(super) fn is_over(&self) -> bool {
        self.is_done && self.is_at_rest()
    }

    /// Whether it has said the end of what it was given.
    pub(super) fn is_done(&self) -> bool {
        self.is_done && self.result.is_some()
    }

    /// What is missing of it if the program ends after that.
    pub(super) fn lack(&self) -> Option<&'static str> {
        if self.background {
            return Some("while something that it had begun went on");
        }
        let is_written_down = !self.mirrored.is_empty() && self.is_mirrored();
        (!is_written_down).then_some("before its last word was written down")
    }

    /// Whether it is at rest, as far as it tells.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_at_rest || !self.tells_state
    }

    /// Whether what it said last was written down by it.
    pub(super) fn is_mirrored(&self) -> bool {
        self.last_said.as_ref().is_none_or(|said| self.mirrored.contains(said))
    }

    /// Whether it has begun to work on what it was given.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether it has not asked the model, and written down something else than what it was given: a hook of the agent
    /// can refuse a message.
    pub(super) fn has_passed_it_over(&self) -> bool {
        self.has_not_written_it() && !self.mirrored.is_empty()
    }

    /// Whether it has neither asked the model nor written down what it was given.
    pub(super) fn has_not_written_it(&self) -> bool {
        self.round == 0 && !self.is_given_mirrored
    }

    /// How often the model was asked.
    pub(super) fn rounds(&self) -> u32 {
        self.round
    }

    /// Takes what the program says.
    pub(super) fn take(&mut self, heard: Heard) -> Vec<Wish> {
        let Heard { raw, head } = heard;
        let is_main = head.parent_tool_use_id.is_none();
        match (head.r#type.as_str(), head.subtype.as_deref()) {
            ("stream_event", _) => self.stream(&raw, is_main),
            ("assistant", _) => self.assistant(raw, head.uuid, is_main),
            ("user", _) => user(raw, is_main),
            ("result", _) => self.result(raw),
            ("transcript_mirror", _) => self.mirror(&raw),
            ("control_request", _) => question(&raw, head.request_id),
            ("control_cancel_request", _) => {
                head.request_id.map(|request| Wish::Withdraw { request }).into_iter().collect()
            }
            ("system", Some("session_state_changed")) => {
                self.state(&raw);
                Vec::new()
            }
            ("system", Some("init")) => servers::begun(raw),
            ("system", Some("background_tasks_changed")) => {
                self.background = tasks(&raw) > 0;
                passed_on("system_background_tasks_changed", raw)
            }
            ("system", Some("api_retry")) => {
                let mut wishes = passed_on("system_api_retry", raw);
                if std::mem::take(&mut self.has_spoken) {
                    wishes.push(Wish::Report(Event::Retry { round: self.round }));
                }
                wishes
            }
            ("system", Some("session_writes_lost")) => {
                let message = "Claude Code could not write its transcript: the disk is full";
                vec![Wish::Notice(message.to_owned())]
            }
            ("command_lifecycle", _) => {
                self.lifecycle(&raw);
                Vec::new()
            }
            // Said by the log in words of its own, or of no use to anybody else.
            ("control_response" | "keep_alive", _) | ("system", Some("status")) => Vec::new(),
            (kind, Some(subtype)) => passed_on(&format!("{kind}_{subtype}"), raw),
            (kind, None) => passed_on(kind, raw),
        }
    }

    fn state(&mut self, raw: &RawValue) {
        #[derive(Deserialize)]
        struct State {
            state: String,
        }
        let Ok(State { state }) = serde_json::from_str(raw.get()) else { return };
        self.tells_state = true;
        self.is_at_rest = state == "idle";
    }

    fn lifecycle(&mut self, raw: &RawValue) {
        #[derive(Deserialize)]
        struct Lifecycle {
            command_uuid: String,
            state: String,
        }
        let Ok(Lifecycle { command_uuid, state }) = serde_json::from_str(raw.get()) else { return };
        self.tells_lifecycle = true;
        if command_uuid == self.given {
            self.has_begun = true;
            self.is_done |= !matches!(state.as_str(), "queued" | "started");
        }
    }

    fn stream(&mut self, raw: &RawValue, is_main: bool) -> Vec<Wish> {
        #[derive(Deserialize)]
        struct Stream {
            event: Value,
        }
        // What an agent's agent says bit by bit comes as a whole, too.
        let (true, Ok(Stream { event })) = (is_main, serde_json::from_str(raw.get())) else {
            return Vec::new();
        };
        let delta = &event["delta"];
        let text = |field: &str| delta[field].as_str().unwrap_or_default().to_owned();
        match (event["type"].as_str(), delta["type"].as_str()) {
            (Some("message_start"), _) => {
                self.unbooked.begin(&event["message"]["usage"]);
                self.has_begun = true;
                self.round += 1;
                self.has_spoken = false;
                vec![self.phase(Phase::StreamingLlm)]
            }
            // What was said so far stays said, also where the answer was cut: it goes on from there.
            (Some("message_stop"), _) => {
                self.has_spoken = false;
                Vec::new()
            }
            (Some("content_block_delta"), Some("text_delta")) => {
                self.has_spoken = true;
                vec![Wish::Report(Event::TextDelta(text("text")))]
            }
            (Some("content_block_delta"), Some("thinking_delta")) => {
                self.has_spoken = true;
                vec![Wish::Report(Event::ThinkingDelta(text("thinking")))]
            }
            (Some("message_delta"), _) => {
                self.unbooked.go_on(&event["usage"]);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn assistant(&mut self, raw: Box<RawValue>, uuid: Option<String>, is_main: bool) -> Vec<Wish> {
        let mut wishes = Vec::new();
        let mut phase = None;
        for block in blocks(&raw) {
            if block["type"] != "tool_use" {
                continue;
            }
            self.usage.tool_calls += 1;
            let name = block["name"].as_str().unwrap_or_default();
            let delegates = DELEGATING.contains(&name);
            phase = Some(if delegates { Phase::DelegatingCoder } else { Phase::ExecutingTools });
            let body = json!({ "id": block["id"], "name": name, "input": block["input"] });
            wishes.push(output(TOOL_USE, &body));
        }
        if is_main {
            self.has_begun = true;
            self.last_said = uuid.or_else(|| self.last_said.take());
            wishes.push(Wish::Report(Event::Message(raw)));
            wishes.extend(phase.map(|phase| self.phase(phase)));
        } else {
            // As our own agent tells of its coder.
            wishes.extend(passed_on("coder_message", raw));
        }
        wishes
    }

    fn result(&mut self, raw: Box<RawValue>) -> Vec<Wish> {
        let outcome: Outcome = serde_json::from_str(raw.get()).unwrap_or_default();
        self.has_begun = true;
        self.is_done |= match &outcome.user_message_uuids {
            Some(given) => given.contains(&self.given),
            None => outcome.origin.is_none() && !self.tells_lifecycle,
        };
        self.book(&outcome);
        let text = outcome.result.clone().unwrap_or_default();
        let turns = outcome.num_turns;
        self.result = Some(outcome);
        let complete = output("turn_complete", &json!({ "numTurns": turns, "result": text }));
        let mut wishes = vec![complete, Wish::Report(Event::Message(raw))];
        if self.background {
            wishes.push(self.phase(Phase::DelegatingCoder));
        }
        wishes
    }

    /// Counts what was spent since the last time: the sums that the program tells go on over its own end.
    fn book(&mut self, outcome: &Outcome) {
        self.unbooked = Unbooked::default();
        self.usage = match &outcome.model_usage_since_last_result {
            Some(models) => models.values().fold(self.usage, |sum, model| sum.plus(model.usage())),
            None => {
                // What it cost before nobody knows: nothing is booked twice.
                let before = self.total_usd.unwrap_or(outcome.total_cost_usd);
                self.usage.plus(outcome.usage.usage(outcome.total_cost_usd - before))
            }
        };
        self.total_usd = Some(outcome.total_cost_usd);
    }

    fn mirror(&mut self, raw: &RawValue) -> Vec<Wish> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Mirror {
            file_path: String,
            entries: Vec<Box<RawValue>>,
        }
        #[derive(Deserialize)]
        struct Named {
            uuid: Option<String>,
        }
        let Ok(Mirror { file_path, entries }) = serde_json::from_str(raw.get()) else {
            return vec![Wish::Notice("a mirror of the transcript is not understood".to_owned())];
        };
        for entry in &entries {
            if let Ok(Named { uuid: Some(uuid) }) = serde_json::from_str(entry.get()) {
                if self.mirrored.len() >= MAX_MIRRORED {
                    self.mirrored.pop_front();
                }
                self.is_given_mirrored |= uuid == self.given;
                self.mirrored.push_back(uuid);
            }
        }
        self.has_begun |= self.is_given_mirrored;
        vec![Wish::Mirror { file: file_path, entries }]
    }

    fn phase(&self, phase: Phase) -> Wish {
        Wish::Report(Event::Phase { phase, round: self.round })
    }
}

impl Outcome {
    /// How a run ends that ends with this.
    pub(super) fn ending(&self) -> Ending {
        match self.subtype.as_str() {
            "error_max_turns" => Ending::MaxTurns,
            "error_max_budget_usd" => Ending::Budget,
            _ if !self.is_error => Ending::EndTurn,
            // Our own proxy says so.
            _ if self.complaint().contains(BUDGET_SPENT) => Ending::Budget,
            _ if self.complaint().contains(NO_CREDIT) => Ending::Quota,
            // It would be refused the next time as well.
            _ if matches!(self.api_error_status, Some(400 | 413)) => {
                Ending::Refused { message: self.complaint() }
            }
            _ => Ending::Failed { message: self.complaint() },
        }
    }

    /// Whether it is not the end of a whole answer.
    pub(super) fn is_cut(&self) -> bool {
        self.is_error || self.subtype != "success"
    }

    /// What went wrong, in the program's words.
    pub(super) fn complaint(&self) -> String {
        let said = self.result.iter().chain(&self.errors).map(String::as_str);
        let said = said.filter(|said| !said.trim().is_empty()).collect::<Vec<_>>().join("; ");
        if said.is_empty() { format!("Claude Code ended with {}", self.subtype) } else { said }
    }

    /// Whether the model's provider refused the conversation because of calls that have no answer.
    pub(super) fn is_poisoned(&self) -> bool {
        let said = self.complaint();
        // The program has words of its own for it.
        let signs = ["tool_use", "tool_result", "tool use concurrency"];
        let is_about_calls = signs.iter().any(|sign| said.contains(sign));
        self.is_error && self.api_error_status == Some(400) && is_about_calls
    }
}

/// A report of ours.
pub(super) fn output(name: &str, body: &Value) -> Wish {
    let body = to_raw_value(body).expect("a value is JSON");
    Wish::Report(Event::Output { name: name.to_owned(), body })
}

/// Something that we do not know, as it came.
pub(super) fn passed_on(name: &str, body: Box<RawValue>) -> Vec<Wish> {
    vec![Wish::Report(Event::Output { name: name.to_owned(), body })]
}

fn user(raw: Box<RawValue>, is_main: bool) -> Vec<Wish> {
    let results: Vec<Wish> = blocks(&raw)
        .into_iter()
        .filter(|block| block["type"] == "tool_result")
        .map(|block| {
            let is_error = block["is_error"].as_bool().unwrap_or_default();
            let (id, content) = (&block["tool_use_id"], &block["content"]);
            let body = json!({ "tool_use_id": id, "content": content, "is_error": is_error });
            output(TOOL_RESULT, &body)
        })
        .collect();
    match results.is_empty() {
        false => results,
        true if is_main => passed_on("user_message", raw),
        true => passed_on("coder_message", raw),
    }
}

fn question(raw: &RawValue, request: Option<String>) -> Vec<Wish> {
    #[derive(Deserialize)]
    struct Asked {
        request: Request,
    }
    #[derive(Deserialize)]
    struct Request {
        #[serde(default)]
        subtype: String,
        tool_name: Option<String>,
        input: Option<Box<RawValue>>,
        #[serde(flatten)]
        why: Why,
    }
    let (Some(id), Ok(Asked { request })) = (request, serde_json::from_str(raw.get())) else {
        return Vec::new();
    };
    let Request { subtype, tool_name, input, why } = request;
    vec![match (subtype.as_str(), tool_name, input) {
        ("can_use_tool", Some(tool), Some(input)) => {
            Wish::Ask(Question { request: id, tool, input, why })
        }
        _ => Wish::Refuse { request: id, subtype },
    }]
}

fn tasks(raw: &RawValue) -> usize {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Tasks {
        tasks: Vec<serde::de::IgnoredAny>,
    }
    serde_json::from_str::<Tasks>(raw.get()).unwrap_or_default().tasks.len()
}

fn blocks(raw: &RawValue) -> Vec<Value> {
    #[derive(Deserialize)]
    struct Typed {
        message: Said,
    }
    #[derive(Deserialize)]
    struct Said {
        content: Value,
    }
    match serde_json::from_str(raw.get()) {
        Ok(Typed { message: Said { content: Value::Array(blocks) } }) => blocks,
        Ok(_) | Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod test;
