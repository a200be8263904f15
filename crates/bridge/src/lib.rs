//! The program inside the sandbox.
//!
//! It is pid 1 there: it reaps what is orphaned, runs the agent ([`builtin`], [`claude`], [`legacy`]), keeps what the agent
//! reports until the server has it on disk, and runs commands beside it ([`exec`]). It holds no key
//! and speaks no TLS. Everything here is one thread; [`process`] says how children are kept.

pub mod bridge;
pub mod builtin;
pub mod claude;
mod control;
mod echo;
pub mod exec;
mod hooks;
mod journal;
pub mod legacy;
mod place;
pub mod process;
pub mod questions;
pub mod reports;
mod runtime;
pub mod settings;
pub mod spool;

use std::io::Write as _;

pub use runtime::RecordGone;

/// Says something about the bridge itself, to whoever reads its log. Where nothing can be written,
/// nothing is said: that must not end a turn.
pub fn note(message: std::fmt::Arguments<'_>) {
    let _full = writeln!(std::io::stderr(), "ash-bridge: {message}");
}
