//! The conversation as the log tells it, in the lines of the builtin agent's own record (`docs/builtin-agent.md`).
//!
//! The log holds the prompts, the agent's whole messages, and the results of its tools, cut where they were long. So
//! what is told is what was said; a result that the log does not hold is said to be unknown, because no model takes
//! a call without one. Turns that were rewound are not told; nor is the rest of one that was rewound into.
//!
//! Of Claude Code the log holds what it mirrored of its own transcript: that is told, word for word, and nothing else
//! (`docs/claude-code.md`).

mod claude;

use std::collections::BTreeMap;
use std::fmt::Display;

use ash_core::entry::{Entry, Said};
use ash_core::id::RunId;
use ash_core::lineage::Lineage;
use ash_core::number::{Seq, Turn};
use ash_core::run::{Completion, Outcome};
use ash_core::session::LogEntry;
use ash_protocol::NO_RUN;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What agents call tools that are called, and their results, and what the loop keeps in mind.
const TOOL_USE: &str = "tool_use";
const TOOL_RESULT: &str = "tool_result";
const WORKING_MEMORY: &str = "working_memory";

/// What the adapter of Claude Code calls what that has written down, and that some of it does not count any more.
const MIRROR: &str = "transcript_mirror";
const CUT: &str = "transcript_cut";

const UNKNOWN: &str = "outcome unknown: the record of this tool's result was lost; it may or may not \
                       have taken effect. Check before repeating it.";

const UNREADABLE: &str = "[This prompt cannot be shown any more.]";

/// In whose lines a conversation is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lines {
    /// Those of our own agent.
    Builtin,
    /// Those of the adapter of Claude Code.
    Claude,
}

impl Lines {
    /// Those of a runtime, if its conversation can be told again.
    pub(super) fn of(runtime: &str) -> Option<Self> {
        match runtime {
            // What is told to a program of the original is made from the same lines.
            "builtin" | "legacy" => Some(Self::Builtin),
            "claude" => Some(Self::Claude),
            _ => None,
        }
    }
}

/// A conversation that is being told again.
pub(super) struct Retelling {
    style: Lines,
    /// Whether there was anything to tell.
    has_told: bool,
    /// Whether the agent has ever said anything.
    has_answered: bool,
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
    /// Where the conversation went back to before what is told now.
    rewound: Option<(Turn, Option<Seq>)>,
}

/// A turn that is being told.
struct Telling {
    run: RunId,
    /// The last entry that is told.
    through: Option<Seq>,
    /// Calls of the last message that have no result yet, in order.
    calls: Vec<String>,
    results: BTreeMap<String, Value>,
    /// Whether the program has written the prompt down.
    is_seen: bool,
    /// Whether it was forgotten again, because the model's provider refused it.
    is_refused: bool,
}

impl Telling {
    fn of(run: RunId, through: Option<Seq>) -> Self {
        let (calls, results) = (Vec::new(), BTreeMap::new());
        Self { run, through, calls, results, is_seen: false, is_refused: false }
    }
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
    pub(super) fn of(lineage: Lineage, style: Lines) -> Self {
        Self {
            style,
            has_told: false,
            has_answered: false,
            lineage,
            lines: Vec::new(),
            prompts: BTreeMap::new(),
            turn: 0,
            telling: None,
            previous: None,
            is_asked: false,
            rewound: None,
        }
    }

    /// The lines so far, once.
    pub(super) fn lines(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.lines)
    }

    /// The rest of the lines, and how many turns there are in all of them.
    pub(super) fn end(mut self) -> (Vec<u8>, u32) {
        self.answer();
        // Where nobody has said anything yet, there is nothing that is missing but the prompts.
        let is_all = self.has_told || !self.has_answered;
        (self.lines, if is_all { self.turn } else { 0 })
    }

    /// Takes the next entry of the log.
    pub(super) fn take(&mut self, logged: LogEntry) {
        let LogEntry { seq, entry, .. } = logged;
        match entry {
            Entry::Prompt { run, content } => {
                self.prompts.insert(run, content.get().to_owned());
            }
            Entry::RunStarted { run, turn, .. } => {
                self.answer();
                self.telling = None;
                let prompt = self.prompts.remove(&run);
                if self.lineage.contains(turn) {
                    let through = self.lineage.through(turn);
                    self.begin(run, through, &prompt.unwrap_or_default());
                }
            }
            Entry::Message { run, body } if self.tells(run, seq) => self.message(body.get()),
            Entry::Output { run, name, body } if self.tells(run, seq) => match name.as_str() {
                MIRROR if self.style == Lines::Claude => self.mirror(&run, body.get()),
                CUT if self.style == Lines::Claude => self.cut(&run, body.get()),
                TOOL_USE if self.style == Lines::Claude => self.call(&run, body.get()),
                TOOL_RESULT if self.style == Lines::Claude => self.answered(&run, body.get()),
                TOOL_RESULT => self.result(body.get()),
                WORKING_MEMORY if self.style == Lines::Builtin => {
                    let memory = one_line(body.get());
                    self.line(&run, &format!(r#""turn":{},"memory":{memory}"#, self.turn));
                }
                _ => {}
            },
            Entry::Aside { turn, said: Said::Output { name, body } }
                if self.style == Lines::Claude && self.tells_aside(turn, seq) =>
            {
                match name.as_str() {
                    MIRROR => self.mirror(&NO_RUN, body.get()),
                    CUT => self.cut(&NO_RUN, body.get()),
                    _ => {}
                }
            }
            Entry::Rewound { to, through, .. } => self.rewound = Some((to, through)),
            Entry::RunEnded { run, outcome, .. } => {
                self.prompts.remove(&run);
                if self.tells(run, seq) {
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
            | Entry::SessionForked { .. }
            | Entry::SessionImported { .. }
            | Entry::Phase { .. }
            | Entry::RunRetry { .. }
            | Entry::RunCancelling { .. }
            | Entry::TextDelta { .. }
            | Entry::ThinkingDelta { .. }
            | Entry::Message { .. }
            | Entry::Output { .. }
            | Entry::Aside { .. }
            | Entry::PermissionRequest { .. }
            | Entry::PermissionDecided { .. }
            | Entry::PermissionAnswered { .. }
            | Entry::ReportTooLarge { .. }
            | Entry::RunError { .. }
            | Entry::ReportsLost { .. } => {}
        }
    }

    fn tells(&self, run: RunId, seq: Seq) -> bool {
        let is_told = |telling: &Telling| telling.through.is_none_or(|through| seq <= through);
        self.telling.as_ref().is_some_and(|telling| telling.run == run && is_told(telling))
    }

    /// Whether what was said without a run, at a turn, is told: not if the conversation went back behind it since.
    fn tells_aside(&self, turn: Turn, seq: Seq) -> bool {
        let through = self.lineage.through(turn);
        let is_told =
            through.is_none_or(|through| seq <= through) || self.rewound == Some((turn, through));
        (turn == Turn::ZERO || self.lineage.contains(turn)) && is_told
    }

    fn begin(&mut self, run: RunId, through: Option<Seq>, prompt: &str) {
        if self.style == Lines::Claude {
            self.turn += 1;
            self.telling = Some(Telling::of(run, through));
            let prompt = content_of(prompt).map_or_else(|| text(UNREADABLE), one_line);
            return self.line(&run, &format!(r#""turn":{},"prompt":{prompt}"#, self.turn));
        }
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
        self.telling = Some(Telling::of(run, through));
        self.say(run, "user", &blocks);
        self.previous = Some("[The previous turn was cut off before it finished.]");
    }

    fn message(&mut self, body: &str) {
        self.has_answered = true;
        if self.style == Lines::Claude {
            return;
        }
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
        let telling = self.telling.take();
        self.has_answered |= matches!(outcome, Outcome::Completed(_));
        if let (Some(telling), Lines::Claude) = (telling, self.style) {
            return self.finish_of_claude(&telling, outcome);
        }
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
        self.line(&run, &format!(r#""turn_end":{},"how":"{how}""#, self.turn));
    }

    fn say(&mut self, run: RunId, role: &str, blocks: &[String]) {
        self.has_told = true;
        self.is_asked = role == "user";
        let (turn, content) = (self.turn, blocks.join(","));
        let message = format!(r#"{{"role":"{role}","content":[{content}]}}"#);
        self.line(&run, &format!(r#""turn":{turn},"message":{message}"#));
    }

    fn line(&mut self, run: &dyn Display, what: &str) {
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

/// What a prompt says, without its options; nothing, if it is no prompt.
fn content_of(prompt: &str) -> Option<&str> {
    #[derive(Deserialize)]
    struct Options<'a> {
        #[serde(borrow)]
        content: &'a RawValue,
    }
    if prompt.trim_start().starts_with('{') {
        return serde_json::from_str::<Options<'_>>(prompt).ok().map(|o| o.content.get());
    }
    (!prompt.is_empty()).then_some(prompt)
}

/// The blocks of a prompt: a text, a list of blocks, or an object with one of them. Nothing, if it is none of these,
/// or has what only a model says.
fn blocks_of(prompt: &str) -> Option<Vec<String>> {
    let content = content_of(prompt).unwrap_or(prompt);
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
mod test;
