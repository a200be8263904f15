//! A tool's call in a line.

use std::time::Duration;

use serde_json::Value;

use super::text::{Break, Color, Look, Row, Span, wrap};
use crate::cli::output::one_line;
use crate::cli::render;

/// How much of an input or a result is shown to those who want to see more.
const MOST_ROWS: usize = 30;

/// How much of a failure is shown to everybody.
const MOST_FAILURE_ROWS: usize = 3;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Well,
    Failed,
    /// The run ended first.
    Unknown,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) id: String,
    name: String,
    input: Value,
    /// Called by an agent that the agent gave a task to.
    is_nested: bool,
}

impl Call {
    pub(super) fn new(data: &Value) -> Self {
        let text = |field: &str| data.get(field).and_then(Value::as_str).unwrap_or_default();
        let parent = ["delegation", "parent_tool_use_id"].iter().find_map(|field| data.get(field));
        Self {
            id: text("id").to_owned(),
            name: text("name").to_owned(),
            input: data.get("input").cloned().unwrap_or_default(),
            is_nested: parent.is_some_and(|parent| !parent.is_null()),
        }
    }

    fn indent(&self) -> &'static str {
        if self.is_nested { "  " } else { "" }
    }

    /// `bash ls -la`, with its name in bold.
    fn essence(&self, most: usize) -> Vec<Span> {
        let name = if self.name.is_empty() { "tool" } else { &self.name };
        let line = render::tool_line(name, Some(&self.input), most.max(8));
        let rest = line.strip_prefix(name).unwrap_or_default().to_owned();
        vec![Span::new(name, Look::BOLD), Span::new(&rest, Look::DIM)]
    }

    /// While it runs.
    pub(super) fn running(&self, frame: &str, width: usize) -> Row {
        let mut spans =
            vec![Span::new(&format!("{}{frame} ", self.indent()), Look::of(Color::Yellow))];
        spans.extend(self.essence(width));
        Row::new(spans).cut(width)
    }

    /// When it is over: one row, and for a failure what it said.
    pub(super) fn over(
        &self,
        outcome: Outcome,
        took: Option<Duration>,
        result: &str,
        width: usize,
    ) -> Vec<Row> {
        let (sign, color) = match outcome {
            Outcome::Well => ("✓", Color::Green),
            Outcome::Failed => ("✗", Color::Red),
            Outcome::Unknown => ("·", Color::Yellow),
        };
        let took = took.map(|took| format!("  {}", seconds(took))).unwrap_or_default();
        let mut first = vec![Span::new(&format!("{}{sign} ", self.indent()), Look::of(color))];
        let room = width.saturating_sub(took.len() + 2 + self.indent().len());
        first.extend(self.essence(room));
        let mut row = Row::new(first).cut(width.saturating_sub(took.len()));
        row.push(Span::new(&took, Look::DIM));
        let mut rows = vec![row];
        if outcome == Outcome::Failed && !result.trim().is_empty() {
            rows.extend(self.told(result, Look::of(Color::Red), MOST_FAILURE_ROWS, width));
        }
        rows
    }

    /// Its whole input, for those who want to see more.
    pub(super) fn input(&self, width: usize) -> Vec<Row> {
        let Some(fields) = self.input.as_object() else { return Vec::new() };
        let mut text = String::new();
        for (name, value) in fields {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.push_str(&format!("{name}: {value}\n"));
        }
        self.told(text.trim_end(), Look::DIM, MOST_ROWS, width)
    }

    /// What it gave, for those who want to see more.
    pub(super) fn result(&self, text: &str, width: usize) -> Vec<Row> {
        self.told(text.trim_end(), Look::DIM, MOST_ROWS, width)
    }

    fn told(&self, text: &str, look: Look, most: usize, width: usize) -> Vec<Row> {
        let before = Row::of(&format!("{}  ", self.indent()), look);
        let mut rows = Vec::new();
        for line in text.lines() {
            rows.extend(wrap(&[Span::new(line, look)], width, (&before, &before), Break::Anywhere));
            if rows.len() > most {
                rows.truncate(most);
                let left_out = Row::of("…", look).after(&before);
                rows.push(left_out);
                break;
            }
        }
        rows
    }
}

/// A short time.
pub(super) fn seconds(took: Duration) -> String {
    match took.as_secs() {
        0..=9 => format!("{:.1}s", took.as_secs_f64()),
        seconds @ 10..=99 => format!("{seconds}s"),
        seconds @ 100..=5_999 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
    }
}

/// What a person said, or what else is one line of a text.
pub(super) fn first_words(text: &str, width: usize) -> String {
    one_line(text, width.max(8))
}
