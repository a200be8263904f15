//! The model's side of the loop: one request, one streamed answer.
//!
//! [`Client`] makes one attempt and says how it went; [`Failure`] says whether another may help.
//! The rule that makes a cut answer harmless: an [`Answer`] is only whole once `message_stop` was
//! read. Until then everything in it is provisional, and whoever repeats the request starts with a
//! fresh one.

mod answer;
mod client;
mod failure;
mod part;
mod sse;
mod wire;

pub use answer::{Answer, Call, Input, Tokens};
pub use client::Client;
pub use failure::{Failure, Overflow, Patience, Rejection, Verdict};
