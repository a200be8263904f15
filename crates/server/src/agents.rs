//! What is known of an agent beside its files, and what its sessions are run with.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use ash_core::failure::{Failure, FailureCode};
use ash_core::json::Json;
pub(crate) use ash_engine::agent::Definition;
use ash_engine::agent::{Library, Runtime, Source};
use ash_engine::bridge::{self, Describe, Resources, SandboxLimits};
use ash_protocol::Limits;
use ash_store::{Agent, SessionRecord, Store};
use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api;
use crate::secret::Sealer;
use crate::sessions::{HIDDEN, Options};

/// What sealed variables are bound to.
const CONTEXT: &str = "agent variables";

/// The model of an agent that names none.
const DEFAULT_MODEL: &str = "claude-sonnet-4-5";

/// Memory of a sandbox whose agent does not say, in megabytes.
const DEFAULT_MEMORY_MB: NonZeroU32 = NonZeroU32::new(2048).expect("it is more than nothing");

/// What can be changed about an agent without another version.
#[derive(Default)]
pub(crate) struct AgentSettings {
    /// Variables for the tools of its sessions.
    pub(crate) env: BTreeMap<String, String>,
    /// Free settings.
    pub(crate) config: BTreeMap<String, Value>,
}

/// As it is stored: values of variables are sealed.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Stored {
    names: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
    config: BTreeMap<String, Value>,
}

impl AgentSettings {
    pub(crate) fn open(settings: &Json, sealer: &Sealer) -> anyhow::Result<Self> {
        let Stored { sealed, config, .. } = serde_json::from_str(settings.get())?;
        let env = match sealed {
            Some(sealed) => {
                let plain = sealer.open(&BASE64_STANDARD.decode(sealed)?, CONTEXT)?;
                serde_json::from_slice(&plain)?
            }
            None => BTreeMap::new(),
        };
        Ok(Self { env, config })
    }

    pub(crate) fn seal(&self, sealer: &Sealer) -> anyhow::Result<Json> {
        let plain = serde_json::to_vec(&self.env)?;
        let sealed = BASE64_STANDARD.encode(sealer.seal(&plain, CONTEXT));
        let stored = Stored {
            names: self.env.keys().cloned().collect(),
            sealed: (!self.env.is_empty()).then_some(sealed),
            config: self.config.clone(),
        };
        Ok(Json::of(&stored)?)
    }
}

/// What a version of an agent consists of.
pub(crate) fn definition_of(agent: &Agent) -> Result<Definition, serde_json::Error> {
    serde_json::from_str(agent.definition.get())
}

/// The instructions of a version; empty, if they cannot be read.
pub(crate) fn prompt_of(library: &Library, definition: &Definition) -> String {
    let read = library.read(definition, "CLAUDE.md").unwrap_or_default();
    String::from_utf8_lossy(&read).into_owned()
}

/// An agent as the wire has it.
pub(crate) fn view(agent: &Agent, library: &Library) -> Result<api::Agent, serde_json::Error> {
    let definition = definition_of(agent)?;
    let Stored { names, .. } = serde_json::from_str(agent.settings.get())?;
    Ok(api::Agent {
        id: agent.id.to_string().parse().expect("every id of ours is a UUID"),
        name: agent.name.to_string(),
        tenant_id: agent.tenant.to_string(),
        version: agent.version.get(),
        path: match &definition.source {
            Source::Path(path) => path.clone(),
            Source::Files => library.directory(&definition).display().to_string(),
        },
        env: names.into_iter().map(|name| (name, HIDDEN.to_owned())).collect(),
        runtime: runtime_of(&definition).to_owned(),
        model: definition.manifest.model.clone(),
        files: definition.files,
        bytes: definition.bytes,
        created_at: api::rfc3339(agent.created_at),
        updated_at: api::rfc3339(agent.updated_at),
    })
}

/// What runs an agent that does not say.
fn runtime_of(definition: &Definition) -> &'static str {
    match definition.manifest.runtime {
        Some(Runtime::Claude) => "claude",
        Some(Runtime::Acp) => "acp",
        Some(Runtime::Legacy) => "legacy",
        Some(Runtime::Builtin) | None => "builtin",
    }
}

/// Why an agent cannot be run here, if it cannot.
pub(crate) fn cannot_run(definition: &Definition) -> Option<String> {
    let runtime = runtime_of(definition);
    (runtime != "builtin").then(|| {
        format!(
            "this release runs agents of the runtime builtin only, not {runtime}: leave `runtime` out \
             of ash.toml, or set it to builtin"
        )
    })
}

/// Says what a session's agent is run with.
pub(crate) struct Descriptions {
    store: Arc<dyn Store>,
    library: Library,
    sealer: Sealer,
    /// Memory of a sandbox whose agent does not say, in megabytes.
    memory_mb: NonZeroU32,
}

/// How many sandboxes are kept ready for an agent that does not say.
const DEFAULT_PREWARM: u32 = 1;

/// What the files of a sandbox may take unless its agent says otherwise.
const DISK_MB: u32 = 4096;

impl Descriptions {
    /// Over what is stored of agents and sessions.
    pub(crate) fn new(store: Arc<dyn Store>, library: Library, sealer: Sealer) -> Self {
        Self { store, library, sealer, memory_mb: DEFAULT_MEMORY_MB }
    }

    /// With so much memory for sandboxes whose agents do not say.
    pub(crate) fn with_memory(self, memory_mb: NonZeroU32) -> Self {
        Self { memory_mb, ..self }
    }

    /// What an agent's sandbox may use of the machine.
    fn resources(&self, definition: &Definition) -> Resources {
        let asked = &definition.manifest.limits;
        let bytes = |megabytes: u32| u64::from(megabytes) << 20;
        let default = SandboxLimits::default();
        let limits = SandboxLimits {
            memory_bytes: Some(bytes(asked.memory_mb.unwrap_or(self.memory_mb.get()))),
            cpu_percent: asked.cpu_percent.or(default.cpu_percent),
            pids: asked.pids.or(default.pids),
            tmp_bytes: asked.tmp_mb.map_or(default.tmp_bytes, bytes),
            open_files: asked.open_files.map_or(default.open_files, u64::from),
            shm_bytes: default.shm_bytes,
        };
        Resources { limits, disk_bytes: Some(bytes(asked.disk_mb.unwrap_or(DISK_MB))) }
    }
}

/// How many sandboxes are kept ready for an agent.
fn prewarm_of(definition: &Definition) -> u32 {
    definition.manifest.prewarm.unwrap_or(DEFAULT_PREWARM)
}

#[async_trait]
impl Describe for Descriptions {
    async fn describe(&self, record: &SessionRecord) -> Result<bridge::Agent, Failure> {
        let failed = |what: String| Failure::new(FailureCode::SandboxStartFailed, what);
        let unreadable =
            |error: &dyn std::fmt::Display| failed(format!("the agent cannot be read: {error}"));
        let agent = self
            .store
            .agent_version(&record.tenant, &record.agent_name, record.agent_version)
            .await
            .map_err(|error| unreadable(&error))?;
        let definition = definition_of(&agent).map_err(|error| unreadable(&error))?;
        let runtime = runtime_of(&definition);
        if let Some(why) = cannot_run(&definition) {
            return Err(failed(why));
        }
        let settings = AgentSettings::open(&agent.settings, &self.sealer)
            .map_err(|error| unreadable(&error))?;
        let options = Options::open(&record.settings.config, &self.sealer)
            .map_err(|error| failed(error.to_string()))?;
        let mut env = settings.env;
        env.extend(options.secrets.extra_env.clone());
        let mcp_servers = match &options.secrets.mcp_servers {
            servers if servers.is_empty() => None,
            servers => Some(Json::of(servers).map_err(|error| unreadable(&error))?),
        };
        let model = record.settings.model.clone().or(definition.manifest.model.clone());
        let directory = self.library.directory(&definition);
        if !directory.is_dir() {
            return Err(failed(format!(
                "the files of agent {:?} are gone: deploy it again",
                record.agent_name.as_str()
            )));
        }
        Ok(bridge::Agent {
            runtime: runtime.to_owned(),
            model: model.unwrap_or_else(|| DEFAULT_MODEL.to_owned()),
            env,
            limits: Limits::default(),
            resources: self.resources(&definition),
            prewarm: prewarm_of(&definition),
            seed: Some(directory),
            system_prompt: options.system_prompt,
            mcp_servers,
            allowed_tools: options.allowed_tools.unwrap_or_default(),
            disallowed_tools: options.disallowed_tools.unwrap_or_default(),
            reaches_hosts: !definition.manifest.egress.is_empty()
                || !options.credential_ids.is_empty(),
        })
    }

    async fn to_prewarm(&self) -> Result<Vec<(SandboxLimits, u32)>, Failure> {
        let unreadable = |error: &dyn std::fmt::Display| {
            let what = format!("the agents cannot be read: {error}");
            Failure::new(FailureCode::SandboxStartFailed, what)
        };
        let mut wanted = Vec::new();
        for tenant in self.store.tenants().await.map_err(|error| unreadable(&error))? {
            let agents = self.store.agents(&tenant.id).await.map_err(|error| unreadable(&error))?;
            // One that cannot be read cannot be run either.
            for definition in agents.iter().filter_map(|agent| definition_of(agent).ok()) {
                if cannot_run(&definition).is_none() {
                    let limits = self.resources(&definition).limits;
                    wanted.push((limits, prewarm_of(&definition)));
                }
            }
        }
        Ok(wanted)
    }
}
