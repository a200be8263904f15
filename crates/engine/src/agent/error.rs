//! Why a directory is not taken as an agent, and why a file of one is not read.

use std::io;
use std::path::PathBuf;

use super::manifest::ManifestError;

/// Why a directory is not taken as an agent. Nothing was kept of it.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// It has no instructions.
    #[error("Agent directory must contain CLAUDE.md")]
    NoInstructions,
    /// What was named is no directory.
    #[error("{} is not a directory", .path.display())]
    NotADirectory {
        /// What was named.
        path: PathBuf,
    },
    /// It, or something in it, cannot be read.
    #[error("{} cannot be read", .path.display())]
    Unreadable {
        /// What was being read.
        path: PathBuf,
        /// Why it cannot.
        #[source]
        source: io::Error,
    },
    /// A file has a path that cannot be used.
    #[error("the file path {path:?} cannot be used: {reason}")]
    BadPath {
        /// The path, as far as it can be shown.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Something is neither a file, nor a directory, nor a link.
    #[error("{path:?} is neither a file nor a directory")]
    SpecialFile {
        /// Where it is in the directory.
        path: String,
    },
    /// A link does not stay inside.
    #[error("the link {path:?} to {target:?} {reason}")]
    BadLink {
        /// Where it is in the directory.
        path: String,
        /// Where it points.
        target: String,
        /// What is wrong with that.
        reason: &'static str,
    },
    /// There are too many files, or directories.
    #[error("an agent has at most {limit} files and as many directories")]
    TooManyFiles {
        /// How many there may be.
        limit: u64,
    },
    /// The files are too large together.
    #[error("the files of an agent have at most {limit} bytes together")]
    TooLarge {
        /// How large they may be.
        limit: u64,
    },
    /// `ash.toml` says something that it cannot say.
    #[error("ash.toml, line {line}: {reason}")]
    Manifest {
        /// In which line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The server cannot keep it now: its disk is full, say.
    #[error("the agent's directory could not be kept")]
    Unavailable(#[source] io::Error),
}

impl DeployError {
    /// Every code.
    pub const CODES: [&'static str; 7] = [
        "missing_claude_md",
        "agent_directory_unreadable",
        "invalid_agent_file",
        "agent_link_outside",
        "agent_too_large",
        "invalid_ash_toml",
        "agent_storage_unavailable",
    ];

    /// The stable name of what a caller does about it.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoInstructions => "missing_claude_md",
            Self::NotADirectory { .. } | Self::Unreadable { .. } => "agent_directory_unreadable",
            Self::BadPath { .. } | Self::SpecialFile { .. } => "invalid_agent_file",
            Self::BadLink { .. } => "agent_link_outside",
            Self::TooManyFiles { .. } | Self::TooLarge { .. } => "agent_too_large",
            Self::Manifest { .. } => "invalid_ash_toml",
            Self::Unavailable(_) => "agent_storage_unavailable",
        }
    }

    /// Whether the same directory may be taken later.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::NoInstructions
            | Self::NotADirectory { .. }
            | Self::Unreadable { .. }
            | Self::BadPath { .. }
            | Self::SpecialFile { .. }
            | Self::BadLink { .. }
            | Self::TooManyFiles { .. }
            | Self::TooLarge { .. }
            | Self::Manifest { .. } => false,
        }
    }
}

impl From<ManifestError> for DeployError {
    fn from(error: ManifestError) -> Self {
        Self::Manifest { line: error.line, reason: error.reason }
    }
}

/// Why a file of an agent is not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No file has such a path.
    #[error("the file path {path:?} cannot be used: {reason}")]
    BadPath {
        /// The path.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// There is no such file.
    #[error("the agent has no file {path:?}")]
    NotFound {
        /// Where it would be.
        path: String,
    },
    /// It is a directory.
    #[error("{path:?} is not a file")]
    NotAFile {
        /// Where it is.
        path: String,
    },
    /// The agent's directory cannot be read.
    #[error("the file {path:?} of the agent cannot be read")]
    Unavailable {
        /// Which file.
        path: String,
        /// Why it cannot.
        #[source]
        source: io::Error,
    },
}
