//! What the bridge does, seen from outside.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of tests are tests")]

mod bench;
mod exec;
mod files;
mod mcp;
mod patchset;
mod process;
mod trees;
