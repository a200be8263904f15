//! What every store must do, and what the one in a file must survive.

#![expect(clippy::unwrap_used, reason = "all of this is tests, also what is no test function")]

mod contract;
mod differential;
mod fixtures;
mod kill;
mod opening;
mod support;
mod writing;
