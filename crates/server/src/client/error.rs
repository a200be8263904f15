//! What can go wrong between a client and its server.

use std::fmt;

use crate::api::Problem;

use super::sse::TooLong;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address of the server is none.
    #[error("`{url}` is not the address of a server")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        #[source]
        source: Cause,
    },
    /// The key cannot be sent.
    #[error("the API key has characters that no key has")]
    Key,
    /// Nobody answers there, or no longer.
    #[error("no Ash server answers at {url}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// Somebody is there, and says nothing for too long.
    #[error("the server at {url} does not answer in time")]
    Silent {
        /// Where.
        url: String,
        /// For how long.
        #[source]
        source: Cause,
    },
    /// The server was reached, and the connection broke before the answer was complete.
    #[error("the connection to {url} broke before the answer came")]
    Broken {
        /// Where.
        url: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// The server says no.
    #[error("{}", .0.error)]
    Problem(Problem),
    /// Something answered that does not speak as an Ash server does.
    #[error("the server answered {status} with something that is not understood: {text}")]
    Unexpected {
        /// The HTTP status.
        status: u16,
        /// The beginning of what it said.
        text: String,
    },
    /// An event of a stream is longer than any should be.
    #[error("the server sent an event that is too long")]
    Stream(#[from] TooLong),
}

impl ClientError {
    /// Whether the connection is at fault, not what was asked.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Broken { .. } => true,
            Self::Problem(problem) => matches!(problem.status_code, 502..=504),
            Self::Unexpected { status, .. } => matches!(status, 502..=504),
            Self::Address { .. } | Self::Key | Self::Stream(_) => false,
        }
    }
}

/// The innermost reason of a failed connection. The outer ones only repeat that it failed.
#[derive(Debug)]
pub struct Cause(String);

impl Cause {
    /// A reason in words.
    pub fn new(text: impl fmt::Display) -> Self {
        Self(text.to_string())
    }

    pub(super) fn of(error: &dyn std::error::Error) -> Self {
        let mut root = error;
        while let Some(source) = root.source() {
            root = source;
        }
        Self(root.to_string())
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cause {}
