//! What an agent reports about a run. The same line stands in the spool and crosses the wire.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value as raw};

/// The kind of frame that carries a [`Reported`].
pub const REPORT: &str = "report";

/// The kind of frame that a bridge sends last, to a server that another one has replaced.
pub const REPLACED: &str = "replaced";

/// What stands for the run in a report of what an agent says of its own accord. A reader that does not know it passes
/// such a report over, as any that names no run.
pub const NO_RUN: &str = "";

/// What such a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// Which life of a server is listened to now.
    pub owner: u64,
}

/// A report with its number, as it is spooled and sent. Its kind is a word, not a type: one that
/// the reader does not know still has a number that counts.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reported {
    /// Counts reports of a sandbox from 1, without holes.
    pub position: u64,
    /// The run it is about, or [`NO_RUN`].
    pub run: String,
    /// What kind of event it is.
    pub kind: String,
    /// Its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Box<RawValue>>,
}

/// What happened in a run.
#[derive(Debug)]
pub enum Event {
    /// The agent has the prompt.
    Begun,
    /// The agent does something else now.
    Phase {
        /// What it does.
        phase: Phase,
        /// How often the model was asked in this run, this time included.
        round: u32,
    },
    /// The model request of this round was cut and is repeated: what it said does not count.
    Retry {
        /// The round.
        round: u32,
    },
    /// Text of the answer.
    TextDelta(String),
    /// Text of the thinking.
    ThinkingDelta(String),
    /// A whole message, as it came.
    Message(Box<RawValue>),
    /// Anything else.
    Output {
        /// What it is called.
        name: String,
        /// Its fields.
        body: Box<RawValue>,
    },
    /// The agent wants to do something that it has to ask about, and waits.
    Question {
        /// Tells it from every other question of the session.
        id: String,
        /// What it wants to use.
        tool: String,
        /// What for.
        input: Box<RawValue>,
    },
    /// It waits no longer.
    Answered {
        /// Which question.
        id: String,
        /// What became of it.
        how: AnsweredHow,
    },
    /// The agent is done with the run.
    Ended {
        /// How.
        how: Ending,
        /// What the run consumed.
        usage: Usage,
    },
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The model is answering.
    StreamingLlm,
    /// Tools are running.
    ExecutingTools,
    /// A coder works in a loop of its own.
    DelegatingCoder,
}

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredHow {
    /// Somebody said yes.
    Allowed,
    /// Somebody said no.
    Denied,
    /// Nobody said anything in time, which is a no.
    TimedOut,
    /// The agent does not want to know any more.
    Withdrawn,
}

/// How an agent says that it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It finished.
    EndTurn,
    /// It asked the model as often as it may.
    MaxTurns,
    /// It spent as much as it may.
    Budget,
    /// The provider lets it spend no more.
    Quota,
    /// It obeyed an interrupt.
    Interrupted,
    /// It could not go on.
    Failed {
        /// Why, for a person.
        message: String,
    },
    /// The model's provider does not take what it was sent, and would not the next time.
    Refused {
        /// Why, for a person.
        message: String,
    },
}

/// What a run consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens sent to the model.
    pub input_tokens: u64,
    /// Tokens the model wrote.
    pub output_tokens: u64,
    /// Tokens written to the prompt cache.
    pub cache_creation_tokens: u64,
    /// Tokens read from the prompt cache.
    pub cache_read_tokens: u64,
    /// Tools called.
    pub tool_calls: u64,
    /// Cost in millionths of a US dollar.
    pub cost_micro_usd: u64,
}

impl Usage {
    /// Both together. What an agent's program says may be anything: more than can be counted is as much as can be.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cache_creation_tokens: self
                .cache_creation_tokens
                .saturating_add(other.cache_creation_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(other.cache_read_tokens),
            tool_calls: self.tool_calls.saturating_add(other.tool_calls),
            cost_micro_usd: self.cost_micro_usd.saturating_add(other.cost_micro_usd),
        }
    }
}

/// Why a report says nothing to this reader.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// A kind that this side does not know: a newer bridge.
    #[error("an event of kind {0:?} is not known here")]
    Unknown(String),
    /// A kind that is known, with fields that are not.
    #[error("an event of kind {kind:?} is malformed: {source}")]
    Malformed {
        /// The kind.
        kind: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct PhaseBody {
    phase: Phase,
    round: u32,
}

#[derive(Serialize, Deserialize)]
struct RetryBody {
    round: u32,
}

#[derive(Serialize, Deserialize)]
struct OutputBody {
    name: String,
    body: Box<RawValue>,
}

#[derive(Serialize, Deserialize)]
struct QuestionBody {
    id: String,
    tool: String,
    input: Box<RawValue>,
}

#[derive(Serialize, Deserialize)]
struct AnsweredBody {
    id: String,
    how: AnsweredHow,
}

#[derive(Serialize, Deserialize)]
struct EndedBody {
    how: Ending,
    #[serde(default)]
    usage: Usage,
}

impl Event {
    /// Puts a number and a run to it, ready for the spool.
    pub fn numbered(&self, position: u64, run: &str) -> Result<Reported, serde_json::Error> {
        let (kind, body) = match self {
            Self::Begun => ("begun", None),
            &Self::Phase { phase, round } => ("phase", Some(raw(&PhaseBody { phase, round })?)),
            &Self::Retry { round } => ("retry", Some(raw(&RetryBody { round })?)),
            Self::TextDelta(text) => ("text_delta", Some(raw(text)?)),
            Self::ThinkingDelta(text) => ("thinking_delta", Some(raw(text)?)),
            Self::Message(body) => ("message", Some(body.clone())),
            Self::Output { name, body } => {
                let body = OutputBody { name: name.clone(), body: body.clone() };
                ("output", Some(raw(&body)?))
            }
            Self::Question { id, tool, input } => {
                let (id, tool) = (id.clone(), tool.clone());
                ("question", Some(raw(&QuestionBody { id, tool, input: input.clone() })?))
            }
            Self::Answered { id, how } => {
                ("answered", Some(raw(&AnsweredBody { id: id.clone(), how: *how })?))
            }
            Self::Ended { how, usage } => {
                ("ended", Some(raw(&EndedBody { how: how.clone(), usage: *usage })?))
            }
        };
        Ok(Reported { position, run: run.to_owned(), kind: kind.to_owned(), body })
    }
}

impl Reported {
    /// What happened, if this side knows such a thing.
    pub fn event(self) -> Result<Event, EventError> {
        fn read<T: for<'de> Deserialize<'de>>(
            kind: &str,
            body: Option<&RawValue>,
        ) -> Result<T, EventError> {
            serde_json::from_str(body.map_or("null", RawValue::get))
                .map_err(|source| EventError::Malformed { kind: kind.to_owned(), source })
        }
        let Self { kind, body, .. } = self;
        match kind.as_str() {
            "begun" => Ok(Event::Begun),
            "phase" => {
                let PhaseBody { phase, round } = read(&kind, body.as_deref())?;
                Ok(Event::Phase { phase, round })
            }
            "retry" => {
                let RetryBody { round } = read(&kind, body.as_deref())?;
                Ok(Event::Retry { round })
            }
            "text_delta" => Ok(Event::TextDelta(read(&kind, body.as_deref())?)),
            "thinking_delta" => Ok(Event::ThinkingDelta(read(&kind, body.as_deref())?)),
            "message" => Ok(Event::Message(body.unwrap_or_else(null))),
            "output" => {
                let OutputBody { name, body } = read(&kind, body.as_deref())?;
                Ok(Event::Output { name, body })
            }
            "question" => {
                let QuestionBody { id, tool, input } = read(&kind, body.as_deref())?;
                Ok(Event::Question { id, tool, input })
            }
            "answered" => {
                let AnsweredBody { id, how } = read(&kind, body.as_deref())?;
                Ok(Event::Answered { id, how })
            }
            "ended" => {
                let EndedBody { how, usage } = read(&kind, body.as_deref())?;
                Ok(Event::Ended { how, usage })
            }
            _ => Err(EventError::Unknown(kind)),
        }
    }
}

fn null() -> Box<RawValue> {
    RawValue::from_string("null".to_owned()).expect("null is JSON")
}
