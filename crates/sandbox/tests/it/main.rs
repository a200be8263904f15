//! Sandboxes that are really started, and what is tried in them.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of tests are tests")]
#![expect(clippy::print_stdout, reason = "a test says which tiers it tried")]

mod attempts;
mod bombs;
mod cgroups;
mod launch;
mod probe;
mod support;
