//! The `ash` executable and what it serves, from outside.

#![expect(clippy::unwrap_used, reason = "clippy does not see that helpers of tests are tests")]
#![expect(clippy::wildcard_enum_match_arm, reason = "a test names what it wants to see")]

mod agent;
mod api;
mod branches;
mod claude;
mod claude_program;
mod cli;
mod client;
mod clocks;
mod coming_back;
mod commands;
mod comparing;
mod copies;
mod crashes;
mod cycles;
mod daily;
mod docs;
mod documents;
mod exports;
mod fake;
mod faults;
mod frozen;
mod half;
mod history;
mod image;
mod installing;
mod keeping;
mod kills;
mod machine;
mod manners;
mod mending;
#[path = "../../../snapshot/tests/it/moto.rs"]
mod moto;
mod persisting;
mod prewarmed;
mod processes;
mod programs;
mod protocol;
mod quickly;
mod rebooted;
mod record;
mod reference;
mod refusals;
mod remembering;
mod remote_snapshots;
mod replaced;
mod sandboxed;
mod schemathesis;
mod settings;
mod snapshot_care;
mod snapshot_edges;
mod snapshot_sources;
mod snapshots;
mod space;
mod steering;
mod streams;
mod talk;
mod terminal;
mod tested;
mod world;
