//! What a host of plain children needs to be told.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ash_core::number::Owner;
use ash_protocol::Limits;
use ash_store::SessionRecord;

use crate::host::SandboxRef;

/// What an agent is run with.
#[derive(Clone, Debug)]
pub struct Agent {
    /// The adapter: `builtin`.
    pub runtime: String,
    /// Which model it asks.
    pub model: String,
    /// What it and its session add to the environment of tools.
    pub env: BTreeMap<String, String>,
    /// What it must not exceed.
    pub limits: Limits,
}

/// Says what a session's agent is run with.
pub type Describe = Arc<dyn Fn(&SessionRecord) -> Agent + Send + Sync>;

/// Serves what sandboxes ask of the model.
pub trait Egress: Send + Sync + 'static {
    /// Accepts on a sandbox's listener, until the guard is dropped.
    fn serve(&self, sandbox: SandboxRef, listener: TcpListener) -> io::Result<EgressGuard>;
}

/// Dropped when a listener is not to be served any more.
pub type EgressGuard = Box<dyn Send + Sync>;

/// What a [`PlainHost`](super::PlainHost) needs.
#[derive(Clone)]
pub struct PlainOptions {
    /// Where sandboxes and their files are.
    pub data: PathBuf,
    /// The bridge's program.
    pub bridge: PathBuf,
    /// Which life of a server this is: bridges listen to the latest.
    pub owner: Owner,
    /// How long a bridge waits for a server after its turn.
    pub orphan_ttl: Duration,
    /// What agents are run with.
    pub describe: Describe,
    /// The environment of the server, of which a bridge is given `PATH`, `LANG` and `TERM`.
    pub environment: BTreeMap<String, String>,
    /// Who answers for the model.
    pub egress: Arc<dyn Egress>,
}
