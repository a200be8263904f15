//! The line that says what goes on.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::text::{Color, Look, Row, Span};
use super::tools::seconds;
use crate::api::{Activity, Session, SessionStatus, Usage};
use crate::cli::format;
use crate::cli::output::one_line;
use crate::client::ServerEvent;

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// How long a frame is shown.
const FRAME: Duration = Duration::from_millis(100);

/// What a session is doing, as far as its events tell.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Status {
    began: Instant,
    /// A run goes on.
    runs: bool,
    doing: String,
    since: Instant,
    /// Since when the run goes on.
    runs_since: Instant,
    /// Messages that wait behind it.
    queued: u64,
    rest: String,
    is_reconnecting: bool,
    is_cutting: bool,
    questions: usize,
    total: Usage,
    turns: u64,
}

impl Status {
    pub(in crate::cli) fn new(now: Instant) -> Self {
        Self {
            began: now,
            runs: false,
            doing: "starting".to_owned(),
            since: now,
            runs_since: now,
            queued: 0,
            rest: "idle".to_owned(),
            is_reconnecting: false,
            is_cutting: false,
            questions: 0,
            total: Usage::default(),
            turns: 0,
        }
    }

    /// As a session stands.
    pub(in crate::cli) fn of(session: &Session, now: Instant) -> Self {
        let mut status = Self::new(now);
        status.turns = u64::from(session.turns);
        status.runs = session.activity == Some(Activity::Running);
        status.queued = u64::from(session.queued);
        status.doing = "working".to_owned();
        status.rest = match session.status {
            SessionStatus::Paused => {
                let reason = session.pause_reason.as_deref().unwrap_or("requested");
                format!("paused ({reason}); a message wakes it")
            }
            SessionStatus::Stopped => "stopped; a message wakes it".to_owned(),
            SessionStatus::Error => "broken; a message wakes it".to_owned(),
            SessionStatus::Ended => "ended".to_owned(),
            SessionStatus::Starting => "starting".to_owned(),
            SessionStatus::Active => "idle".to_owned(),
        };
        status
    }

    /// With what its runs have used so far.
    pub(in crate::cli) fn used(mut self, usage: &Usage) -> Self {
        self.add(usage);
        self
    }

    pub(in crate::cli) fn runs(&self) -> bool {
        self.runs
    }

    /// Whether a run stands still.
    pub(in crate::cli) fn is_frozen(&self) -> bool {
        self.runs && self.rest.starts_with("paused")
    }

    /// Whether the line changes by itself.
    pub(in crate::cli) fn moves(&self) -> bool {
        self.runs || self.is_reconnecting || self.is_cutting
    }

    pub(in crate::cli) fn set_reconnecting(&mut self, is_reconnecting: bool) {
        self.is_reconnecting = is_reconnecting;
    }

    pub(in crate::cli) fn set_cutting(&mut self, is_cutting: bool) {
        self.is_cutting = is_cutting;
    }

    pub(in crate::cli) fn set_questions(&mut self, questions: usize) {
        self.questions = questions;
    }

    /// A message is on its way.
    pub(in crate::cli) fn sending(&mut self, now: Instant) {
        if !self.runs {
            self.say("sending", now);
            (self.runs, self.runs_since) = (true, now);
        }
    }

    /// It did not arrive.
    pub(in crate::cli) fn not_sent(&mut self) {
        if self.doing == "sending" {
            self.runs = false;
        }
    }

    fn say(&mut self, doing: &str, now: Instant) {
        if self.doing != doing {
            doing.clone_into(&mut self.doing);
            self.since = now;
        }
    }

    fn add(&mut self, usage: &Usage) {
        let total = &mut self.total;
        total.input_tokens +=
            usage.input_tokens + usage.cache_creation_tokens + usage.cache_read_tokens;
        total.output_tokens += usage.output_tokens;
        total.cost_usd += usage.cost_usd;
    }

    /// Takes in an event; `is_past` if it is told again, and its figures are known already.
    pub(in crate::cli) fn hear(&mut self, event: &ServerEvent, now: Instant, is_past: bool) {
        self.is_reconnecting = false;
        let number = |field: &str| event.data.get(field).and_then(Value::as_u64);
        match event.name.as_str() {
            "session_start" | "prompt" => {
                if self.runs && self.doing != "sending" {
                    self.queued += u64::from(event.name == "prompt" && !is_past);
                } else {
                    (self.runs, self.runs_since) = (true, now);
                    self.say("starting", now);
                }
            }
            "run_queued" => self.say("waiting for another run", now),
            "run_started" => {
                if self.doing != "sending" && self.doing != "starting" {
                    self.runs_since = now;
                    self.queued = self.queued.saturating_sub(1);
                }
                self.runs = true;
                self.is_cutting = false;
                self.turns = number("turn").unwrap_or(self.turns + 1).max(self.turns);
                self.say("starting", now);
            }
            "phase" => {
                let doing = match (event.text("phase"), number("round")) {
                    (Some("streaming_llm"), Some(round)) if round > 1 => {
                        format!("thinking · round {round}")
                    }
                    (Some("streaming_llm"), _) => "thinking".to_owned(),
                    (Some("executing_tools"), _) => "running tools".to_owned(),
                    (Some("delegating_coder"), _) => "delegating".to_owned(),
                    (Some(_) | None, _) => "working".to_owned(),
                };
                self.say(&doing, now);
            }
            "text_delta" => self.say("answering", now),
            "thinking_delta" => self.say("thinking", now),
            "tool_use" => {
                let name = one_line(event.text("name").unwrap_or("a tool"), 30);
                self.say(&format!("running {name}"), now);
            }
            "tool_result" => self.say("thinking", now),
            "run_retry" => self.say("asking again", now),
            "run_cancelling" => self.is_cutting = true,
            "done" => {
                self.runs = self.queued > 0;
                self.is_cutting = false;
                "idle".clone_into(&mut self.rest);
                if !is_past {
                    let usage = event.data.get("usage").cloned().unwrap_or_default();
                    self.add(&serde_json::from_value::<Usage>(usage).unwrap_or_default());
                }
            }
            "session_waking" => self.say("waking the session", now),
            "session_resumed" | "session_active" => "idle".clone_into(&mut self.rest),
            "session_paused" => {
                let reason = one_line(event.text("reason").unwrap_or_default(), 40);
                self.rest = format!("paused ({reason}); a message wakes it");
                if reason != "requested" {
                    self.runs = false;
                }
            }
            "session_stopped" => {
                "stopped; a message wakes it".clone_into(&mut self.rest);
                self.runs = false;
            }
            "session_failed" => {
                "broken; a message wakes it".clone_into(&mut self.rest);
                self.runs = false;
            }
            "session_ended" => {
                "ended".clone_into(&mut self.rest);
                self.runs = false;
            }
            _ => {}
        }
    }

    /// What moves while something goes on.
    pub(in crate::cli) fn frame(&self, now: Instant) -> &'static str {
        let frames = now.duration_since(self.began).as_millis() / FRAME.as_millis();
        FRAMES[usize::try_from(frames % FRAMES.len() as u128).unwrap_or(0)]
    }

    /// The line.
    pub(in crate::cli) fn row(&self, now: Instant, width: usize) -> Row {
        let is_frozen = self.is_frozen();
        let (sign, doing, look) = if self.is_reconnecting {
            (self.frame(now), "reconnecting".to_owned(), Look::of(Color::Yellow))
        } else if self.questions > 0 {
            ("?", "waiting for permission: y or n".to_owned(), Look::of(Color::Yellow))
        } else if self.is_cutting {
            (
                self.frame(now),
                "interrupting; Ctrl-C again leaves".to_owned(),
                Look::of(Color::Yellow),
            )
        } else if is_frozen {
            ("‖", "paused in the middle of a run".to_owned(), Look::of(Color::Yellow))
        } else if self.runs {
            (self.frame(now), self.doing.clone(), Look::of(Color::Cyan))
        } else {
            ("·", self.rest.clone(), Look::DIM)
        };
        let mut words = vec![doing];
        let waits = self.is_reconnecting || self.questions > 0;
        if self.runs && !waits && !is_frozen {
            words.push(seconds(now.duration_since(self.runs_since)));
        }
        if self.queued > 0 {
            words.push(format!("{} queued", self.queued));
        }
        if self.turns > 0 {
            words.push(format!("turn {}", self.turns));
        }
        let tokens = self.total.input_tokens + self.total.output_tokens;
        if tokens > 0 {
            words.push(format!("{} tokens", format::short_count(tokens)));
        }
        if self.total.cost_usd > 0.0 {
            words.push(format!("${:.4}", self.total.cost_usd));
        }
        let first = words.remove(0);
        let mut row = Row::new(vec![Span::new(&format!("{sign} {first}"), look)]);
        for word in words {
            row.push(Span::new(&format!(" · {word}"), Look::DIM));
        }
        row.cut(width)
    }
}
