//! What an agent asks before it does something, and what becomes of the question.
//!
//! ```text
//!   asked ──► open ──► decided by a person ──► allowed, denied
//!               │                │
//!               ├────────────────┼──► timed out, withdrawn     as the agent says
//!               └────────────────┴──► lost                     with its sandbox
//! ```
//!
//! A decision is recorded before it is sent, and is sent until the agent says what became of the question.

use serde::{Deserialize, Serialize};

use crate::json::Json;

/// What a person says to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// It may be done.
    Allow {
        /// With this instead of what the agent wanted to do it with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Json>,
    },
    /// It may not.
    Deny {
        /// Why, for the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

impl Permission {
    /// How many bytes of it are what the person said.
    pub fn size(&self) -> usize {
        match self {
            Self::Allow { input } => input.as_ref().map_or(0, |input| input.get().len()),
            Self::Deny { message } => message.as_ref().map_or(0, String::len),
        }
    }

    /// The stable name of what it says.
    pub const fn behavior(&self) -> &'static str {
        match self {
            Self::Allow { .. } => "allow",
            Self::Deny { .. } => "deny",
        }
    }
}

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredHow {
    /// The agent was told that it may.
    Allowed,
    /// The agent was told that it may not.
    Denied,
    /// Nobody answered in time, which is a no.
    TimedOut,
    /// The agent does not want to know any more, or its run is over.
    Withdrawn,
    /// Whoever asked is gone.
    Lost,
}

impl AnsweredHow {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::TimedOut => "timed_out",
            Self::Withdrawn => "withdrawn",
            Self::Lost => "lost",
        }
    }
}
