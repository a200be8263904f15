//! Directory trees in an object store: capture costs what changed, and whatever was captured can be
//! restored anywhere.
//!
//! `FORMAT.md` beside this crate says how things are stored. [`Repository`] is where to begin:
//!
//! | part | job |
//! |---|---|
//! | [`objects`] | a flat set of objects that never change: a directory, a server, memory |
//! | `repository`, `pack`, `writer` | chunks in packs, found by their hash |
//! | `cut`, `content`, `tree` | from files and directories to chunks |
//! | `scan`, `state` | what is there, and what of it is as it was |
//! | [`capture`](Capture) | from directories to a snapshot |
//! | [`caches()`] | what of a home is not worth capturing |
//! | [`restore`](Restore) | and back |
//! | [`replicate`](Replicate) | a snapshot in another repository |
//! | [`verify`](Verify), `distrust` | whether everything can be read back, and whom not to believe if not |
//! | [`gc`](Repository::gc), `keep`, `rewrite`, `recall` | removes what no snapshot needs, and takes back what was forgotten too early |
//! | `show` | what is in a tree, and how two of them differ |

mod caches;
mod capture;
mod chunks;
mod codec;
mod content;
mod cut;
#[cfg(any(test, feature = "fuzzing"))]
pub mod decoders;
mod distrust;
mod error;
mod file;
mod gc;
#[cfg(test)]
mod hostile;
mod id;
mod keep;
pub mod objects;
mod pack;
#[cfg(test)]
mod races;
mod recall;
mod replicate;
mod repository;
mod restore;
mod rewrite;
mod scan;
mod show;
mod snapshot;
mod state;
mod text;
mod time;
mod tree;
mod verify;
mod writer;

pub use caches::caches;
pub use capture::{Ahead, Capture, Captured, Freeze, Look, Progress, Root, Took};
pub use content::Content;
pub use error::{Malformed, Result, SnapshotError};
pub use gc::{Collect, CollectTook, Collected, Others};
pub use id::{ChunkKind, Id};
pub use replicate::{Replicate, Replicated};
pub use repository::Repository;
pub use restore::{
    Damaged, Effect, InPlace, MendTook, Mended, Mending, Newer, Restore, RestoreTook, Restored,
    Trust,
};
pub use scan::Skipped;
pub use show::{Change, Difference};
pub use snapshot::{MAX_EXCLUDED, MAX_SOURCE, Snapshot, SnapshotId, Tree};
pub use state::State;
pub use text::source_of;
pub use tree::{Entry, Kind, Modified};
pub use verify::{DamagedSnapshot, Verified, Verify, VerifyTook};
