//! What the bridge does, seen from outside.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of tests are tests")]

mod exec;
mod process;
mod tools;
mod trees;
