//! The engine against a world that misbehaves.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of tests are tests")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test names what it wants to see")]

mod adversity;
mod agents;
mod behaviour;
mod bridges;
mod coming_back;
mod frozen;
mod keeping;
mod pool;
mod queue;
mod simulation;
mod support;
mod workspace;
