//! A session's answer, as a person reads it.
//!
//! On a terminal text is shown as it comes, tools as one dim line each. Elsewhere only the text is
//! written, and not before it is certain: the model's answer can be cut, and is then taken back.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::Value;

use super::format;
use super::output::{Style, one_line, paint, plain};
use crate::api::{ResumeReceipt, Usage};
use crate::client::ServerEvent;

/// How much of a tool's input is shown.
const MAX_TOOL_CHARS: usize = 100;

/// The fields of a tool's input that tell most.
const TELLING: [&str; 7] = ["command", "path", "file_path", "pattern", "task", "url", "query"];

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It was completed.
    Completed,
    /// It failed, or was cut by a limit or by somebody.
    Failed,
}

/// Writes an answer.
#[derive(Debug)]
pub(super) struct Renderer<W> {
    out: W,
    is_terminal: bool,
    color: bool,
    /// Nothing stands on the line yet.
    is_at_start: bool,
    /// Text that can still be taken back, with its place in the log. Empty on a terminal.
    uncertain: Vec<(u64, String)>,
    /// Text came in pieces since the last whole message.
    has_pieces: bool,
    /// A message with text is over: what comes next is another paragraph.
    is_between: bool,
}

impl<W: Write> Renderer<W> {
    pub(super) fn new(out: W, is_terminal: bool, color: bool) -> Self {
        let (uncertain, has_pieces, is_between) = (Vec::new(), false, false);
        Self { out, is_terminal, color, is_at_start: true, uncertain, has_pieces, is_between }
    }

    /// Whether a line can be shown below without disturbing one that is not complete.
    pub(super) fn is_at_start(&self) -> bool {
        self.is_at_start || !self.is_terminal
    }

    /// Shows an event. `took` is how long the answer has taken so far.
    pub(super) fn show(&mut self, event: &ServerEvent, took: Duration) -> io::Result<()> {
        match event.name.as_str() {
            "text_delta" => {
                self.has_pieces = true;
                let seq = event.cursor.map_or(u64::MAX, |cursor| cursor.seq);
                self.say(seq, event.text("delta").unwrap_or_default())?;
            }
            "message" => self.whole_message(&event.data)?,
            "tool_use" => {
                let name = event.text("name").unwrap_or("tool");
                self.aside(Style::Dim, &format!("· {}", tool(name, event.data.get("input"))))?;
            }
            "tool_result" => {
                self.settle()?;
                if event.data.get("is_error").and_then(Value::as_bool) == Some(true) {
                    let content = event.data.get("content").map(text_of).unwrap_or_default();
                    let failure = one_line(&content, MAX_TOOL_CHARS);
                    self.aside(Style::Red, &format!("  failed: {failure}"))?;
                }
            }
            "permission_resolved" => {
                let how = one_line(event.text("how").unwrap_or("over"), 40);
                self.aside(Style::Dim, &format!("  {}", how.replace('_', " ")))?;
            }
            "run_retry" => self.take_back(&event.data)?,
            "session_resumed" => {
                let receipt = serde_json::from_value::<ResumeReceipt>(event.data.clone());
                if let Ok(receipt) = receipt {
                    self.aside(Style::Dim, &format!("({})", format::receipt(&receipt)))?;
                }
            }
            "session_paused" => self.aside(Style::Dim, "(the session was paused)")?,
            "context_lost" => self.aside(
                Style::Yellow,
                "CONTEXT LOST: the agent does not remember the conversation, or its files are gone",
            )?,
            "gap" => {
                let reason = event.text("reason").unwrap_or("the log does not hold it");
                let line = format!("(something is missing here: {})", one_line(reason, 200));
                self.aside(Style::Yellow, &line)?;
            }
            "turn_complete" => self.settle()?,
            "done" => {
                self.settle()?;
                let usage = event.data.get("usage").cloned().unwrap_or_default();
                let usage = serde_json::from_value::<Usage>(usage).unwrap_or_default();
                let reason = event.text("stopReason").unwrap_or("done");
                self.aside(Style::Dim, &format::run_line(reason, &usage, Some(took)))?;
                self.end_line()?;
            }
            // Errors are told when all is over. What else there is, is for programs.
            _ => {}
        }
        self.out.flush()
    }

    /// What somebody asked. Only persons see it.
    pub(super) fn prompt(&mut self, text: &str) -> io::Result<()> {
        self.settle()?;
        self.aside(Style::Bold, &format!("> {}", text.trim_end()))
    }

    /// What went wrong. Only persons see it here.
    pub(super) fn failure(&mut self, text: &str) -> io::Result<()> {
        self.settle()?;
        self.aside(Style::Red, &format!("error: {text}"))
    }

    /// A whole message repeats what came in pieces, if something did.
    fn whole_message(&mut self, message: &Value) -> io::Result<()> {
        if message.get("type").and_then(Value::as_str) != Some("assistant") {
            return Ok(());
        }
        if !std::mem::take(&mut self.has_pieces)
            && let Some(content) = message.pointer("/message/content")
        {
            self.say(0, &text_of(content))?;
        }
        let has_text = self.uncertain.iter().any(|(_, text)| !text.is_empty());
        self.settle()?;
        self.is_between |= has_text;
        Ok(())
    }

    fn say(&mut self, seq: u64, text: &str) -> io::Result<()> {
        if !self.is_terminal {
            self.uncertain.push((seq, text.to_owned()));
            return Ok(());
        }
        self.write(&plain(text))
    }

    /// What was said stays said.
    fn settle(&mut self) -> io::Result<()> {
        for (_, text) in std::mem::take(&mut self.uncertain) {
            if !text.is_empty() && std::mem::take(&mut self.is_between) {
                self.end_line()?;
                self.write("\n")?;
            }
            self.write(&text)?;
        }
        Ok(())
    }

    /// The answer was cut, and begins again.
    fn take_back(&mut self, data: &Value) -> io::Result<()> {
        let kept = data.get("discardAfterSeq").and_then(Value::as_u64).unwrap_or(0);
        let had_pieces = std::mem::take(&mut self.has_pieces);
        self.uncertain.retain(|(seq, _)| *seq <= kept);
        if had_pieces {
            self.aside(Style::Dim, "(the answer was cut, again:)")?;
        }
        Ok(())
    }

    /// A line beside the answer, for persons only.
    fn aside(&mut self, style: Style, line: &str) -> io::Result<()> {
        if !self.is_terminal {
            return Ok(());
        }
        self.end_line()?;
        let line = paint(self.color, style, &plain(line));
        self.write(&format!("{line}\n"))
    }

    fn end_line(&mut self) -> io::Result<()> {
        if self.is_at_start { Ok(()) } else { self.write("\n") }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if let Some(last) = text.chars().last() {
            self.is_at_start = last == '\n';
            self.out.write_all(text.as_bytes())?;
        }
        Ok(())
    }
}

/// How a run ended, by its last event.
pub(super) fn ending(done: &ServerEvent) -> Ending {
    let is_completed = matches!(done.text("status"), Some("completed") | None);
    // A run that reached a limit is completed as far as the server goes, and its answer is not.
    let is_whole = matches!(done.text("stopReason"), Some("end_turn") | None);
    if is_completed && is_whole { Ending::Completed } else { Ending::Failed }
}

/// What cut a run, in words; nothing, if it ended by itself.
pub(super) fn cut_by(done: &ServerEvent, cuts: u32) -> Option<String> {
    let reason = match done.text("stopReason")? {
        "end_turn" => return None,
        "max_turns" => "the model was asked as often as the run allows (max_turns)",
        "budget" => "its budget is used up (budget)",
        "quota" => "the account has no quota left (quota)",
        "timeout" => "it took longer than it may (timeout)",
        "interrupted" if cuts > 0 => "by Ctrl-C (interrupted)",
        "interrupted" => "somebody interrupted it (interrupted)",
        other => return Some(format!("the run ended early: {}", one_line(other, 100))),
    };
    Some(format!("the run was cut: {reason}"))
}

/// What goes on after an event, for the live line; nothing, if the event does not say.
pub(super) fn activity(event: &ServerEvent) -> Option<String> {
    let round = event.data.get("round").and_then(Value::as_u64);
    match event.name.as_str() {
        "session_start" | "run_started" => Some("starting…".to_owned()),
        "run_queued" => Some("waiting for another run…".to_owned()),
        "phase" => Some(match (event.text("phase"), round) {
            (Some("streaming_llm"), Some(round)) => format!("thinking… round {round}"),
            (Some("executing_tools"), _) => "running tools…".to_owned(),
            (Some("delegating_coder"), _) => "delegating…".to_owned(),
            (Some(_) | None, _) => "working…".to_owned(),
        }),
        "tool_use" => {
            Some(format!("running {}…", one_line(event.text("name").unwrap_or("a tool"), 40)))
        }
        "tool_result" => Some("thinking…".to_owned()),
        "permission_request" => Some("waiting for an answer…".to_owned()),
        "run_retry" => Some("asking again…".to_owned()),
        _ => None,
    }
}

/// A call in one line: `bash ls -la`.
pub(super) fn tool(name: &str, input: Option<&Value>) -> String {
    tool_line(name, input, MAX_TOOL_CHARS)
}

/// The same, at most so many characters.
pub(super) fn tool_line(name: &str, input: Option<&Value>, max_chars: usize) -> String {
    let telling = |input: &Value| {
        let named = TELLING.iter().find_map(|field| input.get(field)?.as_str());
        named.map_or_else(|| input.to_string(), str::to_owned)
    };
    let input = input.filter(|input| input.as_object().is_some_and(|fields| !fields.is_empty()));
    one_line(&format!("{name} {}", input.map(telling).unwrap_or_default()), max_chars)
}

/// The text of a message's content, which is text or a list of blocks.
pub(super) fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
    blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect()
}

#[cfg(test)]
mod test {
    use serde_json::json;

    use super::*;
    use crate::client::Cursor;

    fn event(seq: u64, name: &str, data: Value) -> ServerEvent {
        let cursor = Some(Cursor { epoch: Some(1), seq });
        ServerEvent { cursor, name: name.to_owned(), data }
    }

    fn shown(is_terminal: bool, events: &[ServerEvent]) -> String {
        let mut out = Vec::new();
        let mut renderer = Renderer::new(&mut out, is_terminal, false);
        for event in events {
            renderer.show(event, Duration::from_millis(3_200)).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    fn turn() -> Vec<ServerEvent> {
        let usage = json!({
            "inputTokens": 1200, "outputTokens": 56, "cacheCreationTokens": 0,
            "cacheReadTokens": 4, "toolCalls": 1, "costUsd": 0.0123,
        });
        let said = |text: &str| json!({"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}});
        vec![
            event(1, "text_delta", json!({"delta": "I loo"})),
            event(2, "run_retry", json!({"round": 1, "discardAfterSeq": 0})),
            event(3, "text_delta", json!({"delta": "I lo"})),
            event(4, "text_delta", json!({"delta": "ok.\x1b[2J"})),
            event(5, "message", said("I look.")),
            event(
                6,
                "tool_use",
                json!({"id": "t", "name": "bash", "input": {"command": "ls\n-la"}}),
            ),
            event(
                7,
                "tool_result",
                json!({"tool_use_id": "t", "content": "no\nls", "is_error": true}),
            ),
            event(8, "message", said("Nothing.")),
            event(
                9,
                "done",
                json!({"stopReason": "end_turn", "status": "completed", "usage": usage}),
            ),
        ]
    }

    #[test]
    fn a_terminal_shows_all_as_it_comes() {
        assert_eq!(
            shown(true, &turn()),
            "I loo\n(the answer was cut, again:)\nI look.[2J\n· bash ls -la\n  failed: no ls\n\
             Nothing.\nend_turn · 1,204 tokens in, 56 out · $0.0123 · 3.2 s\n"
        );
    }

    #[test]
    fn a_pipe_gets_the_text_that_counts_and_nothing_else() {
        assert_eq!(shown(false, &turn()), "I look.\x1b[2J\n\nNothing.\n");
    }

    #[test]
    fn losses_and_gaps_are_said_aloud() {
        let events = [
            event(1, "context_lost", json!({})),
            event(2, "gap", json!({"from": 1, "to": 5, "reason": "other_epoch"})),
        ];
        let text = shown(true, &events);
        assert!(text.starts_with("CONTEXT LOST"), "{text}");
        assert!(text.ends_with("(something is missing here: other_epoch)\n"), "{text}");
    }

    #[test]
    fn a_run_ended_well_if_it_says_so() {
        for (data, expected) in [
            (json!({"stopReason": "end_turn"}), Ending::Completed),
            (json!({}), Ending::Completed),
            (json!({"stopReason": "interrupted", "status": "cancelled"}), Ending::Failed),
            (json!({"stopReason": "error"}), Ending::Failed),
            (json!({"stopReason": "max_turns", "status": "completed"}), Ending::Failed),
            (json!({"stopReason": "budget", "status": "completed"}), Ending::Failed),
            (json!({"stopReason": null, "status": "completed"}), Ending::Completed),
        ] {
            let done = event(1, "done", data.clone());
            assert_eq!(ending(&done), expected, "{data}");
            assert_eq!(cut_by(&done, 0).is_some(), expected == Ending::Failed, "{data}");
        }
    }

    #[test]
    fn the_live_line_says_what_goes_on() {
        let phase = event(1, "phase", json!({"phase": "streaming_llm", "round": 2}));
        assert_eq!(activity(&phase).unwrap(), "thinking… round 2");
        let call = event(1, "tool_use", json!({"name": "bash", "input": {}}));
        assert_eq!(activity(&call).unwrap(), "running bash…");
        assert_eq!(tool("bash", Some(&json!({}))), "bash");
        assert_eq!(tool("odd", Some(&json!({"n": 1}))), "odd {\"n\":1}");
    }
}
