//! What a host of bridges needs to be told.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::Failure;
use ash_core::json::Json;
use ash_core::number::Owner;
use ash_protocol::{LegacyProgram, Limits, Program};
use ash_store::SessionRecord;
use async_trait::async_trait;

use super::enclosure::Enclosure;
use crate::cloud::Cloud;
use crate::host::SandboxRef;

/// What an agent is run with.
#[derive(Clone)]
pub struct Agent {
    /// The adapter: `builtin`, `claude` or `legacy`.
    pub runtime: String,
    /// Which model it asks.
    pub model: String,
    /// What it and its session add to the environment of tools.
    pub env: BTreeMap<String, String>,
    /// What it must not exceed.
    pub limits: Limits,
    /// What its sandbox may use of the machine.
    pub resources: Resources,
    /// How many sandboxes are kept ready for sessions to come; with none, its sessions take none that was
    /// kept ready for another agent.
    pub prewarm: u32,
    /// A directory whose content a fresh workspace begins with; never changed afterwards.
    pub seed: Option<PathBuf>,
    /// What it is told about itself beside what stands in its workspace.
    pub system_prompt: Option<String>,
    /// MCP servers beside those of its workspace: an object by name.
    pub mcp_servers: Option<Json>,
    /// The only tools that it may use; none: all.
    pub allowed_tools: Vec<String>,
    /// Tools that it may not use.
    pub disallowed_tools: Vec<String>,
    /// What it asks about before it does it; nothing: it never asks.
    pub permission_mode: Option<String>,
    /// After how long a question of it that nobody answers is answered with no.
    pub permission_timeout_ms: Option<u64>,
    /// Claude Code, for the adapter `claude`.
    pub claude: Option<Program>,
    /// A bridge program of the original, for the adapter `legacy`.
    pub legacy: Option<LegacyProgram>,
    /// Whether its tools can reach anything but the model.
    pub reaches_hosts: bool,
}

/// What a sandbox may use of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Memory, processes, processor time and the like.
    pub limits: ash_sandbox::Limits,
    /// What the workspace and the home may take on the disk.
    pub disk_bytes: Option<u64>,
}

impl Agent {
    /// An agent with nothing of its own.
    pub fn new(runtime: &str, model: &str) -> Self {
        Self {
            runtime: runtime.to_owned(),
            model: model.to_owned(),
            env: BTreeMap::new(),
            limits: Limits::default(),
            resources: Resources::default(),
            prewarm: 0,
            seed: None,
            system_prompt: None,
            mcp_servers: None,
            allowed_tools: Vec::new(),
            disallowed_tools: Vec::new(),
            permission_mode: None,
            permission_timeout_ms: None,
            claude: None,
            legacy: None,
            reaches_hosts: false,
        }
    }
}

impl fmt::Debug for Agent {
    /// Only what is no secret: keys stand in the environment, and in that of MCP servers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("runtime", &self.runtime)
            .field("model", &self.model)
            .field("limits", &self.limits)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Says what agents are run with.
#[async_trait]
pub trait Describe: Send + Sync + 'static {
    /// What a session's agent is run with. A failure is told to whoever waits for the start.
    async fn describe(&self, record: &SessionRecord) -> Result<Agent, Failure>;

    /// Which sandboxes are to be kept ready: with which limits, and how many.
    async fn to_prewarm(&self) -> Result<Vec<(ash_sandbox::Limits, u32)>, Failure> {
        Ok(Vec::new())
    }
}

/// The same for every session.
#[async_trait]
impl Describe for Agent {
    async fn describe(&self, _record: &SessionRecord) -> Result<Self, Failure> {
        Ok(self.clone())
    }

    async fn to_prewarm(&self) -> Result<Vec<(ash_sandbox::Limits, u32)>, Failure> {
        Ok(vec![(self.resources.limits.clone(), self.prewarm)])
    }
}

/// Serves what sandboxes ask of the model.
pub trait Egress: Send + Sync + 'static {
    /// Accepts on a sandbox's listener, until the guard is dropped.
    fn serve(&self, sandbox: SandboxRef, listener: TcpListener) -> io::Result<EgressGuard>;
}

/// Dropped when a listener is not to be served any more.
pub type EgressGuard = Box<dyn Send + Sync>;

/// What a [`BridgeHost`](super::BridgeHost) needs.
#[derive(Clone)]
pub struct HostOptions {
    /// Where sandboxes and their files are.
    pub data: PathBuf,
    /// The bridge's program.
    pub bridge: PathBuf,
    /// Which life of a server this is: bridges listen to the latest.
    pub owner: Owner,
    /// How long a bridge waits for a server after its turn.
    pub orphan_ttl: Duration,
    /// How long each script of an agent may take that is run before its first turn in a sandbox.
    pub hook_timeout: Duration,
    /// What agents are run with.
    pub describe: Arc<dyn Describe>,
    /// The environment of the server, of which a bridge is given `PATH`, `LANG` and `TERM`.
    pub environment: BTreeMap<String, String>,
    /// Who answers for the model.
    pub egress: Arc<dyn Egress>,
    /// What is around the bridges.
    pub enclosure: Enclosure,
    /// Where snapshots lie beside this machine.
    pub cloud: Option<Cloud>,
    /// Which boot of the machine this is: files that were in use under another one may be torn. See
    /// [`boot_id`](super::boot_id).
    pub boot_id: String,
}
