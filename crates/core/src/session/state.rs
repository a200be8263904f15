//! Where a session can stand, and what can run for it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::number::Seq;
use crate::time::Timestamp;

/// Where a session stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A sandbox is on its way.
    Starting {
        /// For a new session or for one that comes back.
        why: StartWhy,
        /// When it was asked for. Sessions of the first version do not know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// Prompts are worked on.
    Active,
    /// At rest; comes back warm or cold.
    Paused {
        /// Why.
        reason: PauseReason,
        /// Since when; deadlines of a frozen run stand still from here.
        since: Timestamp,
    },
    /// Put to rest by a person, without a sandbox.
    Stopped,
    /// Something broke; a resume brings it back.
    Error {
        /// What.
        failure: Failure,
        /// When.
        at: Timestamp,
    },
    /// Over, for ever.
    Ended,
}

/// Why a sandbox is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartWhy {
    /// The session is new.
    Created,
    /// The session comes back.
    Resumed,
}

/// Why a session was paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    /// A person asked for it.
    Requested,
    /// Nothing happened for a while.
    Idle,
    /// Its place was needed.
    Evicted,
    /// The server came back and its sandbox was gone, or the server was told to go.
    ServerRestart,
    /// The machine it ran on is gone.
    RunnerLost,
}

impl PauseReason {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Idle => "idle",
            Self::Evicted => "evicted",
            Self::ServerRestart => "server_restart",
            Self::RunnerLost => "runner_lost",
        }
    }

    /// Whether the system paused the session by itself: then the next prompt wakes it.
    pub const fn is_system(self) -> bool {
        match self {
            Self::Requested => false,
            Self::Idle | Self::Evicted | Self::ServerRestart | Self::RunnerLost => true,
        }
    }
}

/// What is, or may be, running for a session. Always of the session's current incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sandbox {
    /// Nothing of this session runs anywhere.
    None,
    /// Asked for; the host has not answered.
    Starting {
        /// When it is given up.
        deadline: Timestamp,
    },
    /// Up and running.
    Live,
    /// Being frozen where it is.
    Freezing {
        /// The entry of the pause: tells its outcome from that of an earlier one.
        asked: Seq,
        /// When it is given up.
        deadline: Timestamp,
    },
    /// Frozen: no CPU, nothing lost.
    Frozen {
        /// Since when; evicted some time after.
        since: Timestamp,
    },
    /// Being thawed.
    Thawing {
        /// Where the log ended when the resume was asked for: tells its outcome from that of an
        /// earlier one.
        asked: Seq,
        /// When it is given up.
        deadline: Timestamp,
        /// When it was asked for. Sessions of the first version do not know, and have said already
        /// that they are back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
    /// To be destroyed; its end has not been observed.
    Stopping {
        /// How often the stop was asked for.
        attempt: u32,
        /// When it is asked for again.
        deadline: Timestamp,
    },
}

/// A state's name, as the wire and the database know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// See [`State::Starting`].
    Starting,
    /// See [`State::Active`].
    Active,
    /// See [`State::Paused`].
    Paused,
    /// See [`State::Stopped`].
    Stopped,
    /// See [`State::Error`].
    Error,
    /// See [`State::Ended`].
    Ended,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Starting, Self::Active, Self::Paused, Self::Stopped, Self::Error, Self::Ended];

    /// The stable name of this status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Error => "error",
            Self::Ended => "ended",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
