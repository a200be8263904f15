//! The vocabulary: one [`Step`] is one line of a script.

use std::time::Duration;

use serde_json::{Map, Value};

/// One line of a prompt or of a script file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Something that the answer contains.
    Part(Part),
    /// Something more in the answer that the call before it is in: a call, or text.
    Together(Part),
    /// Something that goes wrong instead of the answer or in the middle of it.
    Fault { fault: Fault, times: Option<u64> },
    /// Ends the answer, with this reason.
    Stop(StopReason),
    /// What the answers from here on claim to have consumed.
    Usage(UsageFigures),
    /// How long the model waits before each delta, from here on.
    Slow(Duration),
    /// How long the model waits before it answers at all, this once.
    Wait(Duration),
    /// The answer has no content at all.
    Empty,
}

/// A content block of an answer, or what becomes one once the conversation is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Say(String),
    Think(String),
    Repeat {
        times: u64,
        text: String,
    },
    Flood(u64),
    Endless(String),
    /// Everything that the model can see of the past.
    Recall,
    /// What the tools that were called last have given.
    Results,
    /// Events and blocks of a kind that no client knows.
    Unknown,
    Call(Call),
}

/// A tool call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Tool {
        name: String,
        input: Map<String, Value>,
    },
    /// A call of the shell tool, whatever its case is in the request.
    Bash(String),
    /// A call whose input is this text, which is not a JSON object.
    BadTool {
        name: String,
        raw: String,
    },
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Error {
        status: u16,
        kind: Option<String>,
        retry_after_secs: Option<u64>,
        message: Option<String>,
    },
    Html {
        status: u16,
    },
    /// Nothing more comes: without `after` not even headers, else after so many deltas.
    Hang {
        after: Option<u64>,
    },
    /// The connection is closed: without `after` before headers, else after so many deltas.
    Cut {
        after: Option<u64>,
    },
    /// An `error` event in the stream, which then ends.
    ErrorEvent {
        kind: String,
        after: u64,
    },
    /// The stream is not what it should be, and goes on.
    Broken {
        how: Broken,
        after: u64,
    },
}

/// In which way a stream is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A line that is no field of an event.
    Line,
    /// An event whose data is the first half of a JSON object.
    Json,
    /// Everything is right but the content type.
    ContentType,
}

impl Broken {
    pub(crate) const ALL: [Self; 3] = [Self::Line, Self::Json, Self::ContentType];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Line => "line",
            Self::Json => "json",
            Self::ContentType => "content-type",
        }
    }
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    EndTurn,
    ToolUse,
    MaxTokens,
    StopSequence,
    Refusal,
    PauseTurn,
}

impl StopReason {
    pub(crate) const ALL: [Self; 6] = [
        Self::EndTurn,
        Self::ToolUse,
        Self::MaxTokens,
        Self::StopSequence,
        Self::Refusal,
        Self::PauseTurn,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::ToolUse => "tool_use",
            Self::MaxTokens => "max_tokens",
            Self::StopSequence => "stop_sequence",
            Self::Refusal => "refusal",
            Self::PauseTurn => "pause_turn",
        }
    }
}

/// What an answer claims to have consumed; what is not said is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageFigures {
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) cache_read: Option<u64>,
    pub(crate) cache_write: Option<u64>,
}
