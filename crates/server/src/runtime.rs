//! What runs a session: decided when it is made, written down with its options, and never decided again. A
//! conversation of one runtime is of no use to another.

use ash_core::failure::{Failure, FailureCode};
use ash_engine::agent::{Definition, Runtime};
use ash_engine::runtimes::{Glimpse, NoClaude, Runtimes};
use ash_protocol::Program;

use crate::config::DefaultRuntime;

/// Says what runs sessions. Cheap to clone.
#[derive(Clone)]
pub struct RuntimeChoice {
    runtimes: Runtimes,
    default: Option<DefaultRuntime>,
}

/// Why a session cannot be run here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotRun {
    /// This release cannot do it.
    #[error(
        "this release does not run agents of the runtime {0}: set `runtime` in ash.toml to claude or \
         builtin, or leave it out"
    )]
    Unavailable(&'static str),
    /// It could, if the program was there.
    #[error(transparent)]
    Missing(#[from] NoClaude),
}

impl From<CannotRun> for Failure {
    fn from(why: CannotRun) -> Self {
        let code = match &why {
            CannotRun::Unavailable(_) => FailureCode::SandboxStartFailed,
            CannotRun::Missing(_) => FailureCode::RuntimeMissing,
        };
        Self::new(code, why.to_string())
    }
}

impl RuntimeChoice {
    /// With these programs; `default` is what somebody said for agents that do not say.
    pub fn new(runtimes: Runtimes, default: Option<DefaultRuntime>) -> Self {
        Self { runtimes, default }
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
            None if self.runtimes.is_wanted() => Runtime::Claude,
            None => Runtime::Builtin,
        }
    }

    /// What runs a session that is there. One that was made before it was written down was run by what
    /// its agent said, or else by our own loop.
    pub(crate) fn of_session(recorded: Option<Runtime>, definition: &Definition) -> Runtime {
        recorded.or(definition.manifest.runtime).unwrap_or(Runtime::Builtin)
    }

    /// The program that a runtime needs, if it needs one. All of it is looked at, once.
    pub(crate) async fn program(&self, runtime: Runtime) -> Result<Option<Program>, CannotRun> {
        match runtime {
            Runtime::Builtin => Ok(None),
            Runtime::Claude => Ok(Some(self.runtimes.claude().await?.program())),
            Runtime::Acp | Runtime::Legacy => Err(CannotRun::Unavailable(runtime.as_str())),
        }
    }

    /// Why a session of a runtime cannot be started now, as far as it can be said at once.
    pub(crate) fn problem(&self, runtime: Runtime) -> Option<CannotRun> {
        match runtime {
            Runtime::Builtin => None,
            Runtime::Claude => self.runtimes.glimpse().err().map(CannotRun::Missing),
            Runtime::Acp | Runtime::Legacy => Some(CannotRun::Unavailable(runtime.as_str())),
        }
    }

    /// What can be said at once of Claude Code, if there is one.
    pub(crate) fn claude(&self) -> Option<Glimpse> {
        self.runtimes.glimpse().ok()
    }
}
