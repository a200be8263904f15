//! The engine's side of the bridge: starting one, talking to it, and believing little of it.
//!
//! [`PlainHost`] runs bridges as plain child processes, without a sandbox around them: for tests,
//! and for `--dangerously-no-sandbox`. What it is built of does not depend on that: `files` says
//! who is alive, `workspace` what there is to work on, `connection` talks to one bridge, `report`
//! reads what it says, `leftover` reads what a dead one left behind.

mod connection;
mod files;
mod kill;
mod launch;
mod leftover;
mod options;
mod plain;
mod pump;
mod report;
mod transcript;
mod tree;
mod word;
mod workspace;

pub use options::{Agent, Describe, Egress, EgressGuard, PlainOptions};
pub use plain::PlainHost;
