//! The bridge's parts as they work together, in one binary.

mod fake;
mod loop_context;
mod loop_failures;
mod loop_interrupts;
mod loop_recovery;
mod loop_turns;
mod model;
