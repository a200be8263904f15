//! The `ash` executable and what it serves, from outside.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of tests are tests")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test names what it wants to see")]

mod agent;
mod cli;
mod client;
mod docs;
mod faults;
mod kills;
mod protocol;
mod record;
mod refusals;
mod steering;
mod talk;
mod world;
