//! The `ash` executable and what it serves, from outside.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of tests are tests")]

mod cli;
mod client;
mod docs;
mod faults;
mod protocol;
mod record;
mod refusals;
mod steering;
mod talk;
