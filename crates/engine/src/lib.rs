//! Durability: drives the domain against the world, and survives being killed at any instruction.
//!
//! [`Engine`] is the front. Behind it, one `driver` task per session that is owed something
//! decides, commits, publishes and performs, in that order; the `registry` knows which
//! sessions have one; the reconciler (`reconcile`) finds whatever was missed. The world is behind
//! [`SandboxHost`], what is remembered behind [`Store`](ash_store::Store). The engine knows nothing
//! of HTTP.

pub mod agent;
mod archive;
mod at_once;
mod attached;
mod beside;
mod branch;
pub mod bridge;
mod bundle;
mod bus;
mod clock;
pub mod cloud;
mod counts;
mod diff;
mod drain;
mod driver;
mod engine;
mod error;
pub mod files;
mod follow;
mod fork;
mod happening;
pub mod host;
mod housekeeping;
mod ids;
mod import;
mod leave;
mod lighten;
mod pause;
mod permission;
mod places;
mod queue;
mod reconcile;
mod reconciling;
mod registry;
mod resume;
mod rewind;
pub mod runtimes;
mod shared;
pub mod signal;
mod tasks;
#[cfg(feature = "testing")]
pub mod testing;
mod workspace;

pub use beside::Logs;
pub use branch::Branch;
pub use bundle::{Bundle, BundleError, Bundles, Extent, MAX_BUNDLE, Received};
pub use clock::{SteadyClock, SystemClock};
pub use cloud::{Cloud, CloudError, CloudFailure, CloudOptions, CloudSession};
pub use counts::Resumes;
pub use engine::{Accepted, CreateSession, Engine, Idempotency, Options, SendPrompt};
pub use error::EngineError;
pub use follow::{FollowFrom, Followed, Follower, Gap, GapReason};
pub use fork::Point;
pub use host::{ChangedFile, Comparison, HowChanged, LogLine, SandboxHost, TextDiff};
pub use ids::IdSource;
pub use import::{Imported, Understand, Understood};
pub use leave::Leave;
pub use permission::Question;
pub use places::WarmPlaces;
pub use queue::{Desk, Undone};
pub use resume::{RequireState, Resumed};
pub use rewind::{Against, Compared, Effective, Rewound};
pub use workspace::{FileSource, Workspace, WorkspaceError};
