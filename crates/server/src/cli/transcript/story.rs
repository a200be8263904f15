//! From events to rows.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::markdown::Markdown;
use super::text::{Break, Color, Look, Row, Span, wrap};
use super::tools::{Call, Outcome, first_words, seconds};
use crate::api::{ResumeReceipt, Usage};
use crate::cli::output::{one_line, plain};
use crate::cli::{format, render, watch};
use crate::client::ServerEvent;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Detail {
    /// Tools and thoughts as one line each.
    Folded,
    /// With what tools were given and gave, and whole thoughts.
    Everything,
}

/// When and where an event is shown.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Now {
    pub(in crate::cli) at: Instant,
    /// How wide a row may be.
    pub(in crate::cli) width: usize,
    /// How many rows that stay can be taken back.
    pub(in crate::cli) reach: usize,
    /// It happened long ago, and how long it took is not known.
    pub(in crate::cli) is_past: bool,
}

/// What rows are of: blank lines stand between some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Start,
    Prompt,
    Text,
    Tool,
    Aside,
    Ending,
}

/// What is told of one session.
#[derive(Debug)]
pub(in crate::cli) struct Story {
    detail: Detail,
    color: bool,
    /// Rows that stay, and were not taken yet.
    rows: Vec<Row>,
    /// How many of those that were taken do not count any more.
    back: usize,
    /// How many rows there were in all, those that were taken included.
    count: usize,
    last: Part,
    text: Markdown,
    /// Text came in pieces since the last whole message.
    has_pieces: bool,
    thought: String,
    thinks_since: Option<Instant>,
    tools: Vec<(Call, Option<Instant>)>,
    began: Option<Instant>,
    /// Where the parts of the answer began: by their place in the log, with how many rows were before them, and of what.
    marks: Vec<(u64, usize, Part)>,
    /// Prompts that are shown, though others than those of this run are not.
    shows_prompts: bool,
    /// A run goes on, as far as was told.
    runs: bool,
    /// Prompts that wait behind it: shown when their turns begin, or when it is over if they never do.
    waiting: Vec<Waiting>,
}

/// A prompt that waits behind a run.
#[derive(Debug)]
struct Waiting {
    run: String,
    content: Value,
    /// Why it is not waited for any more.
    withdrawn: Option<String>,
}

impl Story {
    pub(in crate::cli) fn new(detail: Detail, color: bool, shows_prompts: bool) -> Self {
        Self {
            detail,
            color,
            rows: Vec::new(),
            back: 0,
            count: 0,
            last: Part::Start,
            text: Markdown::new(color),
            has_pieces: false,
            thought: String::new(),
            thinks_since: None,
            tools: Vec::new(),
            began: None,
            marks: Vec::new(),
            shows_prompts,
            runs: false,
            waiting: Vec::new(),
        }
    }

    /// The rows that stay from now on, and how many of the earlier ones do not.
    pub(in crate::cli) fn take(&mut self) -> (usize, Vec<Row>) {
        (std::mem::take(&mut self.back), std::mem::take(&mut self.rows))
    }

    /// The rows of what is not over yet. `frame` is that of what moves.
    pub(in crate::cli) fn live(&self, frame: &str, width: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        if !self.text.is_new() {
            let text = self.text.live(width);
            if !text.is_empty() && self.wants_gap(Part::Text) {
                rows.push(Row::default());
            }
            rows.extend(text);
        }
        let tools = self.tools.iter().map(|(call, _)| call.running(frame, width));
        if rows.is_empty() && !self.tools.is_empty() && self.wants_gap(Part::Tool) {
            rows.push(Row::default());
        }
        rows.extend(tools);
        rows
    }

    /// Shows an event.
    pub(in crate::cli) fn show(&mut self, event: &ServerEvent, now: Now) {
        let seq = event.cursor.map_or(u64::MAX, |cursor| cursor.seq);
        let data = &event.data;
        match event.name.as_str() {
            "prompt" if self.shows_prompts && self.runs => {
                let run = event.text("runId").unwrap_or_default().to_owned();
                let content = data.get("content").cloned().unwrap_or_default();
                self.waiting.push(Waiting { run, content, withdrawn: None });
            }
            "prompt" if self.shows_prompts => self.prompt(data.get("content"), now),
            "run_started" => {
                self.runs = true;
                self.show_waiting(event, now);
                self.began = (!now.is_past).then_some(now.at);
                self.marks.clear();
            }
            "text_delta" => {
                (self.runs, self.has_pieces) = (true, true);
                self.say(seq, event.text("delta").unwrap_or_default(), now);
            }
            "thinking_delta" => {
                self.thinks_since = self.thinks_since.or((!now.is_past).then_some(now.at));
                self.thought.push_str(event.text("delta").unwrap_or_default());
            }
            "message" => self.whole_message(seq, data, now),
            // Said without a run; in the middle of one it would be taken for a part of its answer.
            "aside" if !self.runs && event.text("name") == Some("message") => {
                self.whole_message(seq, data.get("body").unwrap_or(&Value::Null), now);
            }
            "tool_use" => {
                self.runs = true;
                self.settle(now);
                self.mark(seq);
                self.tools.push((Call::new(data), (!now.is_past).then_some(now.at)));
            }
            "tool_result" => self.result(data, now),
            "run_retry" => self.take_back(data, now),
            "done" => {
                let run = event.text("runId").unwrap_or_default();
                if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.run == run) {
                    // It never began; the one that goes on is not over.
                    let reason = event.text("stopReason").unwrap_or("done");
                    waiting.withdrawn = Some(one_line(reason, 40));
                } else {
                    self.runs = false;
                    self.done(event, now);
                    self.show_withdrawn(now);
                }
            }
            "error" => self.aside(Color::Red, &format!("error: {}", watch::said(event)), now),
            _ => self.beside(event, now),
        }
    }

    /// A line beside the answer.
    pub(in crate::cli) fn aside(&mut self, color: Color, line: &str, now: Now) {
        self.line(Look::of(color), line, now);
    }

    /// A dim line beside the answer.
    pub(in crate::cli) fn remark(&mut self, line: &str, now: Now) {
        self.line(Look::DIM, line, now);
    }

    fn line(&mut self, look: Look, line: &str, now: Now) {
        self.settle(now);
        let (none, indent) = (Row::default(), Row::of("  ", Look::PLAIN));
        let rows = wrap(&[Span::new(line, look)], now.width, (&none, &indent), Break::Words);
        self.put(Part::Aside, rows);
    }

    /// What happens to the session, and whatever else is worth a line.
    fn beside(&mut self, event: &ServerEvent, now: Now) {
        let said = |field: &str| one_line(event.text(field).unwrap_or_default(), 300);
        match event.name.as_str() {
            "permission_resolved" => {
                self.remark(&format!("  {}", said("how").replace('_', " ")), now);
            }
            "session_resumed" => {
                let receipt = serde_json::from_value::<ResumeReceipt>(event.data.clone());
                if let Ok(receipt) = receipt {
                    self.remark(&format!("({})", format::receipt(&receipt)), now);
                }
            }
            "session_paused" => self.remark(&format!("(paused: {})", said("reason")), now),
            "session_stopped" => self.remark("(stopped)", now),
            "session_ended" => self.remark("(the session has ended)", now),
            "session_failed" => {
                let line = format!("the session broke: {} ({})", said("error"), said("code"));
                self.aside(Color::Red, &line, now);
            }
            "rewound" => {
                let turn = event.data.get("to").map(ToString::to_string).unwrap_or_default();
                self.remark(
                    &format!("(rewound to turn {turn}: what was said after it does not count)"),
                    now,
                );
            }
            "context_lost" => self.aside(
                Color::Yellow,
                "CONTEXT LOST: the agent does not remember the conversation, or its files are gone",
                now,
            ),
            "gap" => {
                let line = format!("(something is missing here: {})", said("reason"));
                self.aside(Color::Yellow, &line, now);
            }
            "notice" | "refusal" | "quota" => {
                let text = event.text("text").or_else(|| event.text("message"));
                if let Some(text) = text {
                    self.aside(Color::Yellow, &one_line(text, 500), now);
                }
            }
            "turn_complete" => self.settle(now),
            // What else there is, is for programs.
            _ => {}
        }
    }

    /// Shows the prompt of a run that waited until now.
    fn show_waiting(&mut self, event: &ServerEvent, now: Now) {
        let run = event.text("runId").unwrap_or_default();
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.run == run) {
            let waiting = self.waiting.remove(at);
            self.prompt(Some(&waiting.content), now);
        }
    }

    /// Shows the prompts that do not wait any more, and never began.
    fn show_withdrawn(&mut self, now: Now) {
        let waiting = std::mem::take(&mut self.waiting);
        for Waiting { run, content, withdrawn } in waiting {
            match withdrawn {
                Some(reason) => {
                    self.prompt(Some(&content), now);
                    self.remark(&format!("(it was not begun: {reason})"), now);
                }
                None => self.waiting.push(Waiting { run, content, withdrawn }),
            }
        }
    }

    fn prompt(&mut self, content: Option<&Value>, now: Now) {
        self.settle(now);
        let text = content.map(render::text_of).unwrap_or_default();
        let more = content
            .and_then(Value::as_array)
            .map(|blocks| blocks.iter().filter(|block| block.get("text").is_none()).count());
        let attached = match more {
            Some(count) if count > 0 => {
                format!(" (and {} attached)", format::things(count as u64, "file"))
            }
            Some(_) | None => String::new(),
        };
        let (first, rest) = (Row::of("> ", Look::BOLD), Row::of("  ", Look::PLAIN));
        let mut rows = Vec::new();
        for (index, line) in format!("{}{attached}", text.trim_end()).lines().enumerate() {
            let before = if index == 0 { &first } else { &rest };
            rows.extend(wrap(
                &[Span::new(line, Look::BOLD)],
                now.width,
                (before, &rest),
                Break::Words,
            ));
        }
        self.put(Part::Prompt, rows);
    }

    /// A whole message repeats what came in pieces, if something did.
    fn whole_message(&mut self, seq: u64, message: &Value, now: Now) {
        if message.get("type").and_then(Value::as_str) != Some("assistant") {
            return;
        }
        if !std::mem::take(&mut self.has_pieces)
            && let Some(content) = message.pointer("/message/content")
        {
            self.say(seq, &render::text_of(content), now);
        }
        self.settle(now);
    }

    fn say(&mut self, seq: u64, text: &str, now: Now) {
        self.end_thought(now);
        if text.is_empty() {
            return;
        }
        if self.text.is_new() {
            self.mark(seq);
        }
        let rows = self.text.push(text, now.width);
        if !rows.is_empty() {
            self.put(Part::Text, rows);
        }
    }

    /// What was said and thought stays.
    fn settle(&mut self, now: Now) {
        self.end_thought(now);
        let rows = self.text.finish(now.width);
        if !rows.is_empty() {
            self.put(Part::Text, rows);
        }
    }

    fn end_thought(&mut self, now: Now) {
        let thought = std::mem::take(&mut self.thought);
        let since = self.thinks_since.take();
        if thought.trim().is_empty() {
            return;
        }
        let took = since
            .map(|since| now.at.duration_since(since))
            .filter(|took| *took >= Duration::from_secs(1));
        let took = took.map(|took| format!(" for {}", seconds(took))).unwrap_or_default();
        let look = Look { italic: true, ..Look::DIM };
        let rows = match self.detail {
            Detail::Folded => {
                let words = first_words(&thought, now.width);
                vec![Row::of(&format!("∴ thought{took}: {words}"), look).cut(now.width)]
            }
            Detail::Everything => {
                let bar = Row::of("┊ ", Look::DIM);
                let mut rows = vec![Row::of(&format!("∴ thought{took}:"), look)];
                for line in thought.trim().lines() {
                    rows.extend(wrap(
                        &[Span::new(line, look)],
                        now.width,
                        (&bar, &bar),
                        Break::Words,
                    ));
                }
                rows
            }
        };
        self.put(Part::Tool, rows);
    }

    fn result(&mut self, data: &Value, now: Now) {
        self.settle(now);
        let id = data.get("tool_use_id").and_then(Value::as_str).unwrap_or_default();
        let Some(at) = self.tools.iter().position(|(call, _)| call.id == id) else { return };
        let (call, since) = self.tools.remove(at);
        let is_error = data.get("is_error").and_then(Value::as_bool) == Some(true);
        let outcome = if is_error { Outcome::Failed } else { Outcome::Well };
        let result = data.get("content").map(render::text_of).unwrap_or_default();
        self.tool_over(&call, outcome, since, &result, now);
    }

    fn tool_over(
        &mut self,
        call: &Call,
        outcome: Outcome,
        since: Option<Instant>,
        result: &str,
        now: Now,
    ) {
        let took = since.map(|since| now.at.duration_since(since)).filter(|_| !now.is_past);
        let mut rows = match self.detail {
            Detail::Folded => call.over(outcome, took, result, now.width),
            Detail::Everything => call.over(outcome, took, "", now.width),
        };
        if self.detail == Detail::Everything {
            rows.extend(call.input(now.width));
            rows.extend(call.result(result, now.width));
        }
        self.put(Part::Tool, rows);
    }

    /// The answer was cut, and begins again: what was said after an entry does not count.
    fn take_back(&mut self, data: &Value, now: Now) {
        let kept = data.get("discardAfterSeq").and_then(Value::as_u64).unwrap_or(0);
        let had_text = !self.text.is_new() || !self.thought.is_empty();
        self.text = Markdown::new(self.color);
        self.has_pieces = false;
        self.thought.clear();
        self.thinks_since = None;
        self.tools.clear();
        let from = self.marks.iter().position(|(seq, ..)| *seq > kept);
        let lost = from.map_or(0, |at| self.count - self.marks[at].1);
        let before = from.map_or(self.last, |at| self.marks[at].2);
        self.marks.truncate(from.unwrap_or(self.marks.len()));
        if lost == 0 && !had_text {
            return;
        }
        let taken = self.rows.len();
        let (unseen, seen) = (lost.min(taken), lost.saturating_sub(taken));
        self.rows.truncate(taken - unseen);
        let is_reached = seen <= now.reach;
        if is_reached {
            self.back += seen;
            self.last = before;
        }
        self.count -= if is_reached { lost } else { unseen };
        let line = match (is_reached, seen) {
            (true, _) => "(the answer was cut, and begins again)".to_owned(),
            (false, 1) => "(the answer was cut: the line above does not count; again:)".to_owned(),
            (false, seen) => {
                format!("(cut: the last {seen} lines do not count)")
            }
        };
        let rows = vec![Row::of(&line, Look::DIM).cut(now.width)];
        self.put(Part::Aside, rows);
    }

    fn done(&mut self, event: &ServerEvent, now: Now) {
        self.settle(now);
        for (call, since) in std::mem::take(&mut self.tools) {
            self.tool_over(&call, Outcome::Unknown, since, "", now);
        }
        let usage = event.data.get("usage").cloned().unwrap_or_default();
        let usage = serde_json::from_value::<Usage>(usage).unwrap_or_default();
        let reason = event.text("stopReason").unwrap_or("done");
        let took =
            self.began.take().map(|began| now.at.duration_since(began)).filter(|_| !now.is_past);
        let line = format::run_line(&plain(reason), &usage, took);
        let look = match reason {
            "end_turn" | "done" => Look::DIM,
            _ => Look::of(Color::Yellow),
        };
        self.put(Part::Ending, vec![Row::of(&line, look).cut(now.width)]);
        self.marks.clear();
    }

    fn mark(&mut self, seq: u64) {
        self.marks.push((seq, self.count, self.last));
    }

    fn wants_gap(&self, part: Part) -> bool {
        match (self.last, part) {
            (Part::Start, _) => false,
            (Part::Prompt, _) | (_, Part::Prompt) => true,
            (Part::Tool | Part::Ending, Part::Text) | (Part::Ending, Part::Tool) => true,
            (Part::Text | Part::Aside, Part::Text)
            | (Part::Text | Part::Tool | Part::Aside, Part::Tool)
            | (_, Part::Aside | Part::Ending | Part::Start) => false,
        }
    }

    fn put(&mut self, part: Part, rows: Vec<Row>) {
        if self.wants_gap(part) {
            self.rows.push(Row::default());
            self.count += 1;
        }
        self.last = part;
        self.count += rows.len();
        self.rows.extend(rows);
    }
}
