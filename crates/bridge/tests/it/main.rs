//! What the bridge does, seen from outside.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of tests are tests")]

mod bench;
mod control;
mod exec;
mod fake;
mod files;
mod guard;
mod hooks;
mod legacy;
mod loop_context;
mod loop_failures;
mod loop_interrupts;
mod loop_limits;
mod loop_options;
mod loop_permissions;
mod loop_recovery;
mod loop_rejections;
mod loop_results;
mod loop_turns;
mod mcp;
mod model;
mod patchset;
mod process;
mod sandboxed;
mod trees;
