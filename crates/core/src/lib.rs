//! The domain of Ash as pure values: no I/O, no clock of its own, no randomness.
//!
//! Everything here can be tested by calling a function. What the world does is fed in as a
//! [`Fact`](session::Fact), what a caller wants as a [`Request`](session::Request); what has to be
//! recorded and done comes out as a [`Decision`](session::Decision).
//!
//! # Glossary
//!
//! | noun | where | meaning |
//! |---|---|---|
//! | session | [`session`] | one conversation with its workspace and its log; a state machine |
//! | run | [`run`] | the execution of one prompt, from accepted to exactly one outcome |
//! | entry | [`entry`] | one line of a session's log |
//! | sandbox | [`session::Sandbox`] | the isolated process tree of a session; at most one at a time |
//! | lineage | [`lineage`] | turns and rewinds: which turn continues which |
//! | place | [`pool`] | what a sandbox takes up; there are only so many |
//! | failure | [`failure`] | why something was cut, with a code that never changes |
//! | receipt | [`resume`] | what a session came back to, and what it did not |
//! | snapshot | [`snapshot`] | what the agent works on at one moment, captured |
//! | queue item | [`queue`] | a prompt that is worked on when there is room, and tried again when it fails |
//! | refusal | [`refusal`] | why a request was turned down; nothing has changed |
//!
//! # Numbers that must not be confused
//!
//! [`Seq`](number::Seq) is a position in a session's log and has no holes.
//! [`LogEpoch`](number::LogEpoch) stands before it in a cursor and changes only when history was
//! lost or imported. [`Fence`](number::Fence) is the lease number of the session's owner and guards
//! every durable write. [`Incarnation`](number::Incarnation) counts sandbox starts and tells a
//! fresh fact from a stale one. [`Turn`](number::Turn) is a run's ordinal in the log and is never
//! reused. [`SpoolPosition`](number::SpoolPosition) numbers what one sandbox has reported.

pub mod entry;
pub mod failure;
pub mod id;
pub mod json;
pub mod lineage;
pub mod number;
pub mod permission;
pub mod policy;
pub mod pool;
pub mod pressure;
pub mod queue;
pub mod refusal;
pub mod resume;
pub mod rfc3339;
pub mod run;
pub mod session;
pub mod snapshot;
pub mod time;
