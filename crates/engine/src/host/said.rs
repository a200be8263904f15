//! What there is to read about the sandboxes of a session, in numbered lines.

use ash_core::number::{Incarnation, Seq};
use ash_core::time::Timestamp;

/// Something that happened to a session, and that whoever reads about its sandboxes wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Which entry of the log tells of it.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// Who says so: `system`, or the stream of a program.
    pub level: &'static str,
    /// A line.
    pub text: String,
    /// The sandbox that comes up with it, if one does.
    pub begins: Option<Incarnation>,
}

/// A line of what there is to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Its number. No line of the session has a lower one that was not there before it.
    pub index: u64,
    /// `system`, `stdout` or `stderr`.
    pub level: String,
    /// The line.
    pub text: String,
    /// When it was there.
    pub at: Timestamp,
}
