//! The conversation as the log tells it, in the lines of the builtin agent's own record (`docs/builtin-agent.md`).
//!
//! The log holds the prompts, the agent's whole messages, and the results of its tools, cut where they were long. So
//! what is told is what was said; a result that the log does not hold is said to be unknown, because no model takes
//! a call without one. Turns that were rewound are not told.

use std::collections::BTreeMap;

use ash_core::entry::Entry;
use ash_core::id::RunId;
use ash_core::lineage::Lineage;
use ash_core::run::{Completion, Outcome};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What the agent's loop calls the results of tools, and what it keeps in mind.
const TOOL_RESULT: &str = "tool_result";
const WORKING_MEMORY: &str = "working_memory";

const UNKNOWN: &str = "outcome unknown: the record of this tool's result was lost; it may or may not \
                       have taken effect. Check before repeating it.";

const UNREADABLE: &str = "[This prompt cannot be shown any more.]";

/// A conversation that is being told again.
pub(super) struct Retelling {
    lineage: Lineage,
    lines: Vec<u8>,
    /// Prompts that were accepted and have not been begun.
    prompts: BTreeMap<RunId, String>,
    turn: u32,
    telling: Option<Telling>,
    /// What is to be said of the turn before, if it has no proper end.
    previous: Option<&'static str>,
    /// Whether the last message was the user's.
    is_asked: bool,
}

/// A turn that is being told.
struct Telling {
    run: RunId,
    /// Calls of the last message that have no result yet, in order.
    calls: Vec<String>,
    results: BTreeMap<String, Value>,
}

/// A message as it is in the log.
#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    message: &'a RawValue,
}

#[derive(Deserialize)]
struct Message<'a> {
    role: String,
    #[serde(borrow)]
    content: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Block {
    r#type: String,
    id: Option<String>,
}

#[derive(Deserialize)]
struct ToolResult {
    tool_use_id: String,
    #[serde(default)]
    is_error: bool,
    content: Vec<Value>,
    delegation: Option<String>,
}

impl Retelling {
    pub(super) fn of(lineage: Lineage) -> Self {
        Self {
            lineage,
            lines: Vec::new(),
            prompts: BTreeMap::new(),
            turn: 0,
            telling: None,
            previous: None,
            is_asked: false,
        }
    }

    /// The lines so far, once.
    pub(super) fn lines(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.lines)
    }

    /// The rest of the lines, and how many turns there are in all of them.
    pub(super) fn end(mut self) -> (Vec<u8>, u32) {
        self.answer();
        (self.lines, self.turn)
    }

    /// Takes the next entry of the log.
    pub(super) fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Prompt { run, content } => {
                self.prompts.insert(run, content.get().to_owned());
            }
            Entry::RunStarted { run, turn, .. } => {
                self.answer();
                self.telling = None;
                let prompt = self.prompts.remove(&run);
                if self.lineage.contains(turn) {
                    self.begin(run, &prompt.unwrap_or_default());
                }
            }
            Entry::Message { run, body } if self.tells(run) => self.message(body.get()),
            Entry::Output { run, name, body } if self.tells(run) => match name.as_str() {
                TOOL_RESULT => self.result(body.get()),
                WORKING_MEMORY => {
                    let memory = one_line(body.get());
                    self.line(run, &format!(r#""turn":{},"memory":{memory}"#, self.turn));
                }
                _ => {}
            },
            Entry::RunEnded { run, outcome, .. } => {
                self.prompts.remove(&run);
                if self.tells(run) {
                    self.finish(run, &outcome);
                }
            }
            Entry::SessionCreated
            | Entry::SessionActive { .. }
            | Entry::SessionPaused { .. }
            | Entry::SessionWaking
            | Entry::SessionResumed { .. }
            | Entry::ContextLost { .. }
            | Entry::SessionStopped
            | Entry::SessionFailed { .. }
            | Entry::SessionEnded { .. }
            | Entry::Rewound { .. }
            | Entry::SessionForked { .. }
            | Entry::SessionImported { .. }
            | Entry::Phase { .. }
            | Entry::RunRetry { .. }
            | Entry::RunCancelling { .. }
            | Entry::TextDelta { .. }
            | Entry::ThinkingDelta { .. }
            | Entry::Message { .. }
            | Entry::Output { .. }
            | Entry::ReportTooLarge { .. }
            | Entry::RunError { .. }
            | Entry::ReportsLost { .. } => {}
        }
    }

    fn tells(&self, run: RunId) -> bool {
        self.telling.as_ref().is_some_and(|telling| telling.run == run)
    }

    fn begin(&mut self, run: RunId, prompt: &str) {
        let mut blocks = blocks_of(prompt).unwrap_or_else(|| vec![text(UNREADABLE)]);
        match self.previous.take() {
            // Two prompts never run together.
            _ if self.is_asked => {
                let note = text("[This turn was cut off before it finished.]");
                self.say(run, "assistant", &[note]);
            }
            Some(note) => blocks.insert(0, text(note)),
            None => {}
        }
        self.turn += 1;
        self.telling = Some(Telling { run, calls: Vec::new(), results: BTreeMap::new() });
        self.say(run, "user", &blocks);
        self.previous = Some("[The previous turn was cut off before it finished.]");
    }

    fn message(&mut self, body: &str) {
        self.answer();
        let wrapped = serde_json::from_str::<Wrapped<'_>>(body);
        let body = wrapped.as_ref().map_or(body, |wrapped| wrapped.message.get());
        let Ok(Message { role, content }) = serde_json::from_str::<Message<'_>>(body) else {
            return;
        };
        let read = content.iter().map(|raw| serde_json::from_str::<Block>(raw.get()));
        let Ok(read) = read.collect::<Result<Vec<Block>, _>>() else { return };
        if role != "assistant" || read.is_empty() {
            return;
        }
        let calls = read.into_iter().filter(|block| block.r#type == "tool_use");
        let calls = calls.filter_map(|block| block.id).collect();
        let content: Vec<String> = content.iter().map(|raw| one_line(raw.get())).collect();
        let Some(telling) = &mut self.telling else { return };
        telling.calls = calls;
        let run = telling.run;
        self.say(run, "assistant", &content);
    }

    fn result(&mut self, body: &str) {
        let Ok(result) = serde_json::from_str::<ToolResult>(body) else { return };
        // A coder's results are for the coder, whose messages are told by nobody.
        if result.delegation.is_none()
            && let Some(telling) = &mut self.telling
        {
            let id = result.tool_use_id.clone();
            telling.results.insert(id, result.block());
        }
    }

    /// Answers the calls of the last message.
    fn answer(&mut self) {
        let Some(telling) = &mut self.telling else { return };
        let (calls, mut results) =
            (std::mem::take(&mut telling.calls), std::mem::take(&mut telling.results));
        if calls.is_empty() {
            return;
        }
        let run = telling.run;
        let blocks: Vec<String> = calls
            .iter()
            .map(|id| results.remove(id).unwrap_or_else(|| unknown_result(id)).to_string())
            .collect();
        self.say(run, "user", &blocks);
    }

    fn finish(&mut self, run: RunId, outcome: &Outcome) {
        self.answer();
        self.telling = None;
        let interrupted = "[The user interrupted the previous turn.]";
        let (how, previous) = match outcome {
            Outcome::Completed(Completion::EndTurn) => ("end_turn", None),
            Outcome::Completed(Completion::MaxTurns) => ("max_turns", None),
            Outcome::Completed(Completion::Budget) => ("budget", None),
            Outcome::Completed(Completion::Quota) => ("quota", self.previous),
            Outcome::Cancelled => ("interrupted", Some(interrupted)),
            Outcome::Failed(_) => ("failed", self.previous),
            // It has no end of its own.
            Outcome::Interrupted(_) => return,
        };
        self.previous = previous;
        self.line(run, &format!(r#""turn_end":{},"how":"{how}""#, self.turn));
    }

    fn say(&mut self, run: RunId, role: &str, blocks: &[String]) {
        self.is_asked = role == "user";
        let (turn, content) = (self.turn, blocks.join(","));
        let message = format!(r#"{{"role":"{role}","content":[{content}]}}"#);
        self.line(run, &format!(r#""turn":{turn},"message":{message}"#));
    }

    fn line(&mut self, run: RunId, what: &str) {
        self.lines.extend_from_slice(format!("{{\"v\":1,\"run\":\"{run}\",{what}}}\n").as_bytes());
    }
}

impl ToolResult {
    /// As the model takes it: no blank text, no error without a text, and nothing but text in an error.
    fn block(self) -> Value {
        let Self { tool_use_id, is_error, content, .. } = self;
        let is_blank = |block: &Value| block["text"].as_str().is_some_and(|t| t.trim().is_empty());
        let fits = |block: &Value| !is_blank(block) && (!is_error || block["type"] == "text");
        let mut content: Vec<Value> = content.into_iter().filter(fits).collect();
        if content.is_empty() && is_error {
            content.push(json!({ "type": "text", "text": "(nothing was said)" }));
        }
        let mut block =
            json!({ "type": "tool_result", "tool_use_id": tool_use_id, "content": content });
        if is_error {
            block["is_error"] = true.into();
        }
        block
    }
}

fn unknown_result(id: &str) -> Value {
    let content = vec![json!({ "type": "text", "text": UNKNOWN })];
    ToolResult { tool_use_id: id.to_owned(), is_error: true, content, delegation: None }.block()
}

fn text(text: &str) -> String {
    json!({ "type": "text", "text": text }).to_string()
}

/// The blocks of a prompt: a text, a list of blocks, or an object with one of them. Nothing, if it is none of these,
/// or has what only a model says.
fn blocks_of(prompt: &str) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Options<'a> {
        #[serde(borrow)]
        content: &'a RawValue,
    }
    let options = serde_json::from_str::<Options<'_>>(prompt);
    let content = options.as_ref().map_or(prompt, |options| options.content.get());
    if let Ok(said) = serde_json::from_str::<String>(content) {
        return (!said.trim().is_empty()).then(|| vec![text(&said)]);
    }
    let blocks = serde_json::from_str::<Vec<&RawValue>>(content).ok()?;
    let mut told = Vec::new();
    for raw in blocks {
        let block: Value = serde_json::from_str(raw.get()).ok()?;
        let kind = block["type"].as_str()?;
        if kind.ends_with("thinking") || kind.ends_with("tool_use") || kind.ends_with("_result") {
            return None;
        }
        if kind != "text" || block["text"].as_str().is_some_and(|text| !text.trim().is_empty()) {
            told.push(one_line(raw.get()));
        }
    }
    (!told.is_empty()).then_some(told)
}

/// The same value without raw newlines, which JSON only has between its tokens: a message is a line.
fn one_line(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod test {
    use ash_core::failure::{Failure, FailureCode};
    use ash_core::json::Json;
    use ash_core::number::Turn;
    use ash_core::run::Usage;
    use ash_core::time::Timestamp;

    use super::*;

    fn run(number: u32) -> RunId {
        let mut random = [0; 10];
        random[..4].copy_from_slice(&number.to_be_bytes());
        RunId::from_parts(Timestamp::from_millis(1), random)
    }

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned()).unwrap()
    }

    /// A turn: its prompt, what the agent said and its tools answered, and how it ended.
    fn turn(number: u32, prompt: &str, said: &[(&str, &str)], end: Option<Outcome>) -> Vec<Entry> {
        let run = run(number);
        let mut entries = vec![
            Entry::Prompt { run, content: json(prompt) },
            Entry::RunStarted { run, turn: Turn::new(number), parent_turn: Turn::new(number - 1) },
        ];
        entries.extend(said.iter().map(|&(name, body)| match name {
            "message" => Entry::Message { run, body: json(body) },
            name => Entry::Output { run, name: name.to_owned(), body: json(body) },
        }));
        entries.extend(end.map(|outcome| Entry::RunEnded {
            run,
            outcome,
            usage: Usage::default(),
        }));
        entries
    }

    fn told(lineage: Lineage, entries: Vec<Entry>) -> (Vec<Value>, u32) {
        let mut retelling = Retelling::of(lineage);
        entries.into_iter().for_each(|entry| retelling.take(entry));
        let mut lines = retelling.lines();
        let (rest, turns) = retelling.end();
        lines.extend(rest);
        let lines = String::from_utf8(lines).unwrap();
        (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), turns)
    }

    fn lineage(turns: u32) -> Lineage {
        let mut lineage = Lineage::default();
        for _ in 0..turns {
            lineage.begin();
        }
        lineage
    }

    const DONE: Option<Outcome> = Some(Outcome::Completed(Completion::EndTurn));

    fn roles(lines: &[Value]) -> Vec<&str> {
        lines.iter().filter_map(|line| line["message"]["role"].as_str()).collect()
    }

    #[test]
    fn what_was_said_is_told_with_calls_and_their_results() {
        let call = r#"{"type":"assistant","message":{"role":"assistant","content":[
            {"type":"text","text":"I look."},{"type":"tool_use","id":"a","name":"bash","input":{"n":1e300}},
            {"type":"tool_use","id":"b","name":"bash","input":{}}]}}"#;
        let said = [
            ("message", call),
            (
                "tool_result",
                r#"{"tool_use_id":"x","is_error":false,"content":[],"delegation":"a"}"#,
            ),
            (
                "tool_result",
                r#"{"tool_use_id":"a","is_error":false,"content":[{"type":"text","text":"42"}]}"#,
            ),
            ("working_memory", r#"{"scope":"main","plan":"go on"}"#),
            (
                "message",
                r#"{"message":{"role":"assistant","content":[{"type":"text","text":"Done."}]}}"#,
            ),
        ];
        let (lines, turns) =
            told(lineage(1), turn(1, r#"{"content":"Hi","model":"m"}"#, &said, DONE));
        assert_eq!((turns, roles(&lines)), (1, vec!["user", "assistant", "user", "assistant"]));
        assert_eq!(lines[0]["message"]["content"][0]["text"], "Hi");
        let results =
            lines.iter().find(|line| line["message"]["content"][0]["type"] == TOOL_RESULT);
        let results = &results.unwrap()["message"]["content"];
        assert_eq!(results[0]["content"][0]["text"], "42");
        assert_eq!(
            (&results[1]["tool_use_id"], &results[1]["is_error"]),
            (&json!("b"), &json!(true))
        );
        assert_eq!(results.as_array().unwrap().len(), 2);
        assert!(lines.iter().any(|line| line["memory"]["plan"] == "go on"));
        assert_eq!(lines.last().unwrap()["how"], "end_turn");
    }

    #[test]
    fn a_turn_that_was_cut_is_told_and_two_prompts_never_run_together() {
        let cut = || Outcome::Interrupted(Failure::new(FailureCode::SandboxDied, "it died"));
        let call = r#"{"message":{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{}}]}}"#;
        let mut entries = turn(1, r#""one""#, &[], Some(cut()));
        entries.extend(turn(2, r#""two""#, &[("message", call)], Some(cut())));
        entries.extend(turn(3, r#"[{"type":"text","text":"three"}]"#, &[], None));
        let (lines, turns) = told(lineage(3), entries);
        assert_eq!(turns, 3);
        let expected = ["user", "assistant", "user", "assistant", "user", "assistant", "user"];
        assert_eq!(roles(&lines), expected);
        assert!(lines.iter().all(|line| line["turn_end"].is_null()));
    }

    #[test]
    fn turns_that_were_rewound_are_not_told_and_the_others_are_counted_in_order() {
        let mut branched = lineage(3);
        assert!(branched.rewind(Turn::new(1)));
        branched.begin();
        let answer = r#"{"message":{"role":"assistant","content":[{"type":"text","text":"ok"}]}}"#;
        let entries = (1..=4).flat_map(|number| {
            turn(number, &format!(r#""prompt {number}""#), &[("message", answer)], DONE)
        });
        let (lines, turns) = told(branched, entries.collect());
        assert_eq!(turns, 2);
        let prompts: Vec<_> =
            lines.iter().filter(|line| line["message"]["role"] == "user").collect();
        let said =
            |line: &Value| line["message"]["content"][0]["text"].as_str().unwrap().to_owned();
        assert_eq!(
            prompts.iter().map(|line| said(line)).collect::<Vec<_>>(),
            ["prompt 1", "prompt 4"]
        );
        assert_eq!(prompts[1]["turn"], 2);
    }

    #[test]
    fn what_no_model_takes_is_told_otherwise() {
        for prompt in ["7", r#""  ""#, r#"[{"type":"tool_result","tool_use_id":"x"}]"#, "{}"] {
            let (lines, _) = told(lineage(1), turn(1, prompt, &[], None));
            assert_eq!(lines[0]["message"]["content"][0]["text"], UNREADABLE, "{prompt}");
        }
        let error = ToolResult {
            tool_use_id: "a".to_owned(),
            is_error: true,
            content: vec![json!({ "type": "image" }), json!({ "type": "text", "text": " " })],
            delegation: None,
        };
        assert_eq!(
            error.block()["content"],
            json!([{ "type": "text", "text": "(nothing was said)" }])
        );
        let entries = turn(1, "\"a\"", &[("message", "[]"), ("tool_result", "7")], DONE);
        assert_eq!(roles(&told(lineage(1), entries).0), ["user"]);
    }
}
