//! What crosses the boundary of a sandbox.
//!
//! Server and bridge talk over one stream of lines, each a JSON object: a [`Frame`]. The server
//! asks ([`Ask`]), the bridge answers under the same number ([`Answer`]), and in between the bridge
//! sends what its agent reports ([`Reported`]).
//!
//! ```text
//!   server                                             bridge
//!     │  {"kind":"hello","id":1,"body":{…,"after":17}}    │
//!     ├──────────────────────────────────────────────────►│   which reports are known already
//!     │  {"kind":"welcome","re":1,"body":{"version":1}}   │
//!     │◄──────────────────────────────────────────────────┤   + the listener, as a descriptor
//!     │  {"kind":"report","body":{"position":18,…}}       │
//!     │◄──────────────────────────────────────────────────┤   numbered, repeated until …
//!     │  {"kind":"acknowledge","body":{"through":18}}     │
//!     ├──────────────────────────────────────────────────►│   … the server has them on disk
//! ```
//!
//! Neither side trusts the other: a line has a bound ([`MAX_FRAME_BYTES`]), a kind that is not known
//! is skipped and counted, and what is only passed through (prompts, messages, tool input) is kept
//! as the text it came as.

mod ask;
mod frame;
mod price;
mod report;
mod spool;
mod version;

pub use ask::{
    Answer, Ask, Config, Decision, ExecEnd, ExecRequest, ExecResult, Hello, Hook, HookFailure,
    HooksRequest, HooksResult, LegacyProgram, Limits, PERMISSION_TIMEOUT_MS, Program, Welcome,
};
pub use frame::{Frame, FrameDecoder, FrameError, MAX_FRAME_BYTES};
pub use price::{DEAREST, cost};
pub use report::{
    AnsweredHow, Ending, Event, EventError, NO_RUN, Phase, REPLACED, REPORT, Replaced, Reported,
    Usage,
};
pub use spool::{EXIT_NO_ROOM, EXIT_RECORD_GONE, HEADING_BYTES, Heading};
pub use version::{OURS, Versions};
