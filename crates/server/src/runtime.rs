//! What runs a session: decided when it is made, written down with its options, and never decided again. A
//! conversation of one runtime is of no use to another.

use std::collections::BTreeMap;
use std::path::Path;

use ash_core::failure::{Failure, FailureCode};
use ash_engine::agent::{Definition, Runtime};
use ash_engine::runtimes::{
    Glimpse, Legacy, LegacyOptions, NoClaude, NoLegacy, RuntimeOptions, Runtimes, View,
};
use ash_protocol::{LegacyProgram, Program};

use crate::config::{Config, DefaultRuntime};

/// Says what runs sessions. Cheap to clone.
#[derive(Clone)]
pub struct RuntimeChoice {
    runtimes: Runtimes,
    legacy: Legacy,
    default: Option<DefaultRuntime>,
}

/// The programs of others that a session is run by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    /// Claude Code.
    pub(crate) claude: Option<Program>,
    /// A bridge program of the original.
    pub(crate) legacy: Option<LegacyProgram>,
}

/// Why a session cannot be run here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotRun {
    /// This release cannot do it.
    #[error(
        "this release does not run agents of the runtime {0}: set `runtime` in ash.toml to claude, \
         builtin or legacy, or leave it out"
    )]
    Unavailable(&'static str),
    /// It could, if the program was there.
    #[error(transparent)]
    Missing(#[from] NoClaude),
    /// Likewise.
    #[error(transparent)]
    NoBridge(#[from] NoLegacy),
}

impl From<CannotRun> for Failure {
    fn from(why: CannotRun) -> Self {
        let code = match &why {
            CannotRun::Unavailable(_) => FailureCode::SandboxStartFailed,
            CannotRun::Missing(_) | CannotRun::NoBridge(_) => FailureCode::RuntimeMissing,
        };
        Self::new(code, why.to_string())
    }
}

impl RuntimeChoice {
    /// With these programs; `default` is what somebody said for agents that do not say.
    pub fn new(runtimes: Runtimes, legacy: Legacy, default: Option<DefaultRuntime>) -> Self {
        Self { runtimes, legacy, default }
    }

    /// What runs a session of an agent that is made now.
    pub(crate) fn of_new(&self, definition: &Definition) -> Runtime {
        definition.manifest.runtime.unwrap_or_else(|| self.default())
    }

    /// What runs new sessions of agents that do not say.
    pub(crate) fn default(&self) -> Runtime {
        match self.default {
            Some(DefaultRuntime::Claude) => Runtime::Claude,
            Some(DefaultRuntime::Builtin) => Runtime::Builtin,
            Some(DefaultRuntime::Legacy) => Runtime::Legacy,
            None if self.legacy.is_set() => Runtime::Legacy,
            None if self.runtimes.is_wanted() => Runtime::Claude,
            None => Runtime::Builtin,
        }
    }

    /// What runs a session that is there. One that was made before it was written down was run by what
    /// its agent said, or else by our own loop.
    pub(crate) fn of_session(recorded: Option<Runtime>, definition: &Definition) -> Runtime {
        recorded.or(definition.manifest.runtime).unwrap_or(Runtime::Builtin)
    }

    /// The programs that a runtime needs for an agent. All of what was installed is looked at, once.
    pub(crate) async fn programs(
        &self,
        runtime: Runtime,
        definition: &Definition,
    ) -> Result<Programs, CannotRun> {
        match runtime {
            Runtime::Builtin => Ok(Programs::default()),
            Runtime::Claude => {
                let claude = Some(self.runtimes.claude().await?.program());
                Ok(Programs { claude, ..Programs::default() })
            }
            Runtime::Legacy => {
                let legacy = Some(self.legacy.program(definition.manifest.command.as_deref())?);
                Ok(Programs { legacy, ..Programs::default() })
            }
            Runtime::Acp => Err(CannotRun::Unavailable(runtime.as_str())),
        }
    }

    /// Why a session of a runtime cannot be started now, as far as it can be said at once.
    pub(crate) fn problem(&self, runtime: Runtime, definition: &Definition) -> Option<CannotRun> {
        match runtime {
            Runtime::Builtin => None,
            Runtime::Claude => self.runtimes.glimpse().err().map(CannotRun::Missing),
            Runtime::Legacy => {
                let command = definition.manifest.command.as_deref();
                self.legacy.program(command).err().map(CannotRun::NoBridge)
            }
            Runtime::Acp => Some(CannotRun::Unavailable(runtime.as_str())),
        }
    }

    /// Whether the bridge program of the original can be run, if there is to be one.
    pub(crate) fn legacy(&self) -> Option<bool> {
        self.legacy.is_set().then(|| self.legacy.find().is_ok())
    }

    /// What can be said at once of Claude Code, if there is one.
    pub(crate) fn claude(&self) -> Option<Glimpse> {
        self.runtimes.glimpse().ok()
    }
}

/// Where Claude Code is looked for.
pub(crate) fn claude_options(config: &Config, data: &Path, view: View) -> RuntimeOptions {
    let (path, version) = (config.claude_path.clone(), config.claude_version.clone());
    RuntimeOptions { data: data.to_owned(), view, path, version }
}

/// Where the bridge program of the original is looked for.
pub(crate) fn legacy_of(config: &Config, data: &Path, view: View) -> Legacy {
    let executable = config.claude_code_executable.as_ref();
    let passed_on = [
        ("ASH_REAL_SDK", config.real_sdk.clone()),
        ("ASH_DEBUG_TIMING", config.debug_timing.clone()),
        ("CLAUDE_CODE_EXECUTABLE", executable.map(|path| path.display().to_string())),
    ];
    let passed_on =
        passed_on.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Legacy::new(LegacyOptions {
        entry: config.bridge_entry.clone(),
        data: data.to_owned(),
        path: config.search_path.clone(),
        env: passed_on.collect::<BTreeMap<_, _>>(),
        view,
    })
}
