//! What an agent is made of: a directory, captured once and never changed again.
//!
//! ```text
//!   a path on this machine ──┐                    ┌── CLAUDE.md is there, ash.toml says what it may
//!                            ├──► staging ──► checked ──► data/agents/<digest>/
//!   files of a request ──────┘    written, counted        synced, renamed, never written again
//! ```
//!
//! A [`Library`] keeps directories by the digest of what is in them, so the same content is kept
//! once, and a name never means two things. What becomes of a capture is a [`Definition`]: the JSON
//! of an agent's version. `docs/agents.md` is the manual.
//!
//! **Nothing leads out.** A captured path is walked with one open directory per level, one name at a
//! time, and no link is followed; so whoever changes the directory meanwhile can spoil a capture,
//! and not widen it. Links are kept as links, if they stay inside when they are followed.
//!
//! Everything here waits for the disk: call it where that is allowed.

mod capture;
mod destination;
mod discard;
mod error;
mod library;
mod links;
mod manifest;
mod outline;
mod paths;
mod staging;

use ash_core::time::Timestamp;
use serde::{Deserialize, Serialize};

pub use capture::LEFT_OUT;
pub use destination::{Destination, Host, HostError, split_port};
pub(crate) use discard::discard;
pub use error::{DeployError, ReadError};
pub use library::{Library, SentFile};
pub use manifest::{AshToml, Limits, ManifestError, PermissionMode, Runtime};
pub use outline::{MAX_BYTES, MAX_FILES};
pub use paths::{MAX_DEPTH, MAX_PATH_BYTES, MAX_SEGMENT_BYTES};

/// What a version of an agent consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// The digest of all that is in its directory: names, modes and contents.
    pub digest: String,
    /// How many files and links it has.
    pub files: u64,
    /// How large its files are together.
    pub bytes: u64,
    /// What its `ash.toml` says; nothing, if it has none.
    pub manifest: AshToml,
    /// Where it came from.
    pub source: Source,
}

/// Where an agent's directory came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// From this path on the server's machine.
    Path(String),
    /// File by file, from a request.
    Files,
}

/// One file of a captured directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Where it is, from the top of the directory.
    pub path: String,
    /// How large it is.
    pub size: u64,
    /// When it was captured.
    pub modified: Timestamp,
}
