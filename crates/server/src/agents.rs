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

use crate::api::{self, PermissionMode};
use crate::runtime::{Programs, RuntimeChoice};
use crate::secret::Sealer;
use crate::sessions::{HIDDEN, Options};

/// What sealed variables are bound to.
const CONTEXT: &str = "agent variables";

/// The model of an agent that names none. A program of the runtime `legacy` has one of its own.
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
pub(crate) fn view(
    agent: &Agent,
    library: &Library,
    choice: &RuntimeChoice,
) -> Result<api::Agent, serde_json::Error> {
    let definition = definition_of(agent)?;
    let runtime = choice.of_new(&definition);
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
        runtime: runtime.as_str().to_owned(),
        problem: choice.problem(runtime, &definition).map(|why| why.to_string()),
        model: definition.manifest.model.clone(),
        files: definition.files,
        bytes: definition.bytes,
        created_at: api::rfc3339(agent.created_at),
        updated_at: api::rfc3339(agent.updated_at),
    })
}

/// Says what a session's agent is run with.
pub(crate) struct Descriptions {
    store: Arc<dyn Store>,
    library: Library,
    sealer: Sealer,
    choice: RuntimeChoice,
    /// Memory of a sandbox whose agent does not say, in megabytes.
    memory_mb: NonZeroU32,
    asks: Asks,
}

/// What agents ask about whose sessions do not say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asks {
    /// As the server was told.
    pub(crate) mode: Option<PermissionMode>,
    /// Whether nothing is around them.
    pub(crate) unconfined: bool,
    /// After how long a question is answered with no.
    pub(crate) timeout_ms: Option<u64>,
}

impl Asks {
    /// What counts: the session, then its agent, then the server. Where nothing holds an agent, somebody is asked.
    fn mode(
        self,
        session: Option<PermissionMode>,
        agent: Option<ash_engine::agent::PermissionMode>,
    ) -> String {
        let agent = agent.map(PermissionMode::from);
        let left_to_the_agent = |mode: &PermissionMode| *mode == PermissionMode::PermissionsByAgent;
        let usual = if self.unconfined {
            PermissionMode::Default
        } else {
            PermissionMode::BypassPermissions
        };
        let said = session.filter(|mode| !left_to_the_agent(mode) || agent.is_none());
        said.or(agent).or(self.mode).unwrap_or(usual).as_str().to_owned()
    }
}

/// How many sandboxes are kept ready for an agent that does not say.
const DEFAULT_PREWARM: u32 = 1;

/// What the files of a sandbox may take unless its agent says otherwise.
const DISK_MB: u32 = 4096;

impl Descriptions {
    /// Over what is stored of agents and sessions.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        library: Library,
        sealer: Sealer,
        choice: RuntimeChoice,
    ) -> Self {
        let asks = Asks::default();
        Self { store, library, sealer, choice, memory_mb: DEFAULT_MEMORY_MB, asks }
    }

    /// With so much memory for sandboxes whose agents do not say.
    pub(crate) fn with_memory(self, memory_mb: NonZeroU32) -> Self {
        Self { memory_mb, ..self }
    }

    /// With this to ask about for agents whose sessions do not say.
    pub(crate) fn with_questions(self, asks: Asks) -> Self {
        Self { asks, ..self }
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

/// The free setting that says how many sandboxes are kept ready.
pub(crate) const PREWARM_COUNT: &str = "preWarmCount";

/// How many sandboxes can be kept ready for an agent.
pub(crate) const MAX_PREWARM: u64 = 100;

/// How many sandboxes are kept ready for an agent: as it is set, then as its version says.
fn prewarm_of(agent: &Agent, definition: &Definition) -> u32 {
    let stored: Result<Stored, _> = serde_json::from_str(agent.settings.get());
    let set = stored.ok().and_then(|stored| stored.config.get(PREWARM_COUNT)?.as_u64());
    let set = set.and_then(|count| u32::try_from(count.min(MAX_PREWARM)).ok());
    set.or(definition.manifest.prewarm).unwrap_or(DEFAULT_PREWARM)
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
        let settings = AgentSettings::open(&agent.settings, &self.sealer)
            .map_err(|error| unreadable(&error))?;
        let options = Options::open(&record.settings.config, &self.sealer)
            .map_err(|error| failed(error.to_string()))?;
        let runtime = RuntimeChoice::of_session(options.runtime, &definition);
        let Programs { claude, legacy } =
            self.choice.programs(runtime, &definition).await.map_err(Failure::from)?;
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
            runtime: runtime.as_str().to_owned(),
            model: model.unwrap_or_else(|| match runtime {
                Runtime::Legacy => String::new(),
                Runtime::Claude | Runtime::Builtin | Runtime::Acp => DEFAULT_MODEL.to_owned(),
            }),
            env,
            limits: Limits::default(),
            resources: self.resources(&definition),
            prewarm: prewarm_of(&agent, &definition),
            seed: Some(directory),
            system_prompt: options.system_prompt,
            mcp_servers,
            allowed_tools: options.allowed_tools.unwrap_or_default(),
            disallowed_tools: options.disallowed_tools.unwrap_or_default(),
            claude,
            legacy,
            permission_mode: Some(
                self.asks.mode(options.permission_mode, definition.manifest.permission_mode),
            ),
            permission_timeout_ms: options.permission_timeout_ms.or(self.asks.timeout_ms),
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
            for agent in &agents {
                let Ok(definition) = definition_of(agent) else { continue };
                if self.choice.problem(self.choice.of_new(&definition), &definition).is_none() {
                    let limits = self.resources(&definition).limits;
                    wanted.push((limits, prewarm_of(agent, &definition)));
                }
            }
        }
        Ok(wanted)
    }
}

impl From<ash_engine::agent::PermissionMode> for PermissionMode {
    fn from(mode: ash_engine::agent::PermissionMode) -> Self {
        use ash_engine::agent::PermissionMode as Said;
        match mode {
            Said::BypassPermissions => Self::BypassPermissions,
            Said::PermissionsByAgent => Self::PermissionsByAgent,
            Said::Default => Self::Default,
            Said::AcceptEdits => Self::AcceptEdits,
            Said::Plan => Self::Plan,
        }
    }
}

#[cfg(test)]
mod test {
    use ash_engine::agent::PermissionMode as OfAgent;

    use super::*;

    #[test]
    fn the_session_counts_for_most_then_its_agent_then_the_server() {
        let asks = |mode, unconfined| Asks { mode, unconfined, timeout_ms: None };
        let server = asks(Some(PermissionMode::AcceptEdits), false);
        let by_agent = Some(PermissionMode::PermissionsByAgent);
        assert_eq!(server.mode(None, None), "acceptEdits");
        assert_eq!(server.mode(None, Some(OfAgent::Default)), "default");
        assert_eq!(server.mode(Some(PermissionMode::Plan), Some(OfAgent::Default)), "plan");
        assert_eq!(server.mode(by_agent, Some(OfAgent::Default)), "default");
        assert_eq!(server.mode(by_agent, None), "permissionsByAgent");
        assert_eq!(asks(None, false).mode(None, None), "bypassPermissions");
        assert_eq!(asks(None, true).mode(None, None), "default", "nothing else holds it");
        assert_eq!(
            asks(None, true).mode(None, Some(OfAgent::BypassPermissions)),
            "bypassPermissions"
        );
    }
}
