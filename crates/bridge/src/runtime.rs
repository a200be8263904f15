//! What runs the agent: one of several, behind one face.

use std::io;
use std::net::SocketAddr;

use ash_protocol::{Config, Ending, NO_RUN, Usage};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::builtin::model::Patience;
use crate::builtin::{self, Builtin};
use crate::claude::{self, Claude};
use crate::exec::Env;
use crate::legacy::{self, Legacy};
use crate::process::Processes;
use crate::questions::Questions;
use crate::reports::Reports;
use crate::settings::Settings;
use crate::spool::Spool;

/// The agent's record of the conversation is not what was written down. Only the log has that: whoever starts the next
/// bridge makes the record anew from it, and what is said to the agent now waits for that.
#[derive(Debug, thiserror::Error)]
#[error("the record of the conversation was removed or damaged")]
pub struct RecordGone;

/// The name of our own loop.
const BUILTIN: &str = "builtin";

/// The name of Claude Code.
const CLAUDE: &str = "claude";

/// The name of programs that speak the original's bridge protocol.
const LEGACY: &str = "legacy";

/// What runs the agent.
pub(crate) enum Runtime {
    Builtin(Box<Builtin>),
    Claude(Box<Claude>),
    Legacy(Box<Legacy>),
}

/// A prompt that is in the conversation and is not worked on yet.
pub(crate) enum Accepted {
    Builtin(Result<builtin::Accepted, Ending>),
    Claude(Result<claude::Accepted, Ending>),
    Legacy(Result<legacy::Accepted, Ending>),
}

/// What a runtime needs of the bridge.
pub(crate) struct Surroundings {
    pub(crate) env: Env,
    pub(crate) refused_variables: Vec<String>,
    pub(crate) endpoint: io::Result<SocketAddr>,
    pub(crate) processes: Processes,
    pub(crate) questions: Questions,
}

/// Whether it takes long to start, so that it is better started before it is needed.
pub(crate) fn is_slow(config: &Config) -> bool {
    matches!(config.runtime.as_str(), CLAUDE | LEGACY)
}

/// Lets a runtime do what it does between prompts. Safe to cancel.
pub(crate) async fn rest(runtime: &mut Option<Runtime>) {
    match runtime {
        Some(runtime) => runtime.rest().await,
        None => std::future::pending().await,
    }
}

/// Writes down what a runtime said between prompts.
pub(crate) async fn tell_asides(spool: &Spool, runtime: &mut Option<Runtime>) -> io::Result<()> {
    match runtime {
        Some(runtime) => runtime.tell_asides(spool).await,
        None => Ok(()),
    }
}

/// Whether a runtime that is opened starts what it needs, before there is anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warmth {
    Warm,
    Cold,
}

impl Runtime {
    /// Opens what the configuration wants. An error is for a person.
    pub(crate) async fn open(
        config: &Config,
        around: Surroundings,
        warmth: Warmth,
    ) -> Result<Self, String> {
        let Surroundings { env, refused_variables, endpoint, processes, questions } = around;
        let endpoint = endpoint.map_err(|error| error.to_string())?;
        let not_started =
            |error: &dyn std::fmt::Display| format!("the agent could not be started: {error}");
        let config = config.clone();
        let settings = Settings {
            workspace: config.workspace,
            home: config.home,
            env,
            refused_variables,
            model: config.model,
            limits: config.limits,
            system_prompt: config.system_prompt,
            remark: config.remark,
            mcp_servers: config.mcp_servers,
            allowed_tools: config.allowed_tools,
            disallowed_tools: config.disallowed_tools,
            permission_mode: config.permission_mode,
            questions,
            endpoint,
            patience: Patience::default(),
        };
        match config.runtime.as_str() {
            BUILTIN => {
                let opened = Builtin::open(settings, processes);
                opened.map(Box::new).map(Self::Builtin).map_err(|error| not_started(&error))
            }
            CLAUDE => {
                let program = config.claude.ok_or(
                    "Claude Code is not installed here: `ash agent-runtime install claude` does it",
                )?;
                let opened = Claude::open(program, config.session.as_deref(), settings, processes);
                let mut claude = opened.map_err(|error| not_started(&error))?;
                if warmth == Warmth::Warm {
                    claude.warm_up().await;
                }
                Ok(Self::Claude(Box::new(claude)))
            }
            LEGACY => {
                let program = config.legacy.ok_or(
                    "there is no bridge program for the runtime legacy: ASH_BRIDGE_ENTRY names one",
                )?;
                let (session, patience) = (config.session.as_deref(), legacy::START_PATIENCE);
                let opened = Legacy::open(program, session, settings, processes, patience);
                let mut legacy = opened.map_err(|error| not_started(&error))?;
                if warmth == Warmth::Warm {
                    legacy.warm_up().await;
                }
                Ok(Self::Legacy(Box::new(legacy)))
            }
            other => Err(format!("this bridge has no runtime {other:?}")),
        }
    }

    /// Takes a prompt into the conversation. Once this has returned, it is remembered.
    pub(crate) fn accept(&mut self, run: &str, prompt: &RawValue) -> Accepted {
        match self {
            Self::Builtin(builtin) => Accepted::Builtin(builtin.accept(run, prompt)),
            Self::Claude(claude) => Accepted::Claude(claude.accept(run, prompt)),
            Self::Legacy(legacy) => Accepted::Legacy(legacy.accept(run, prompt)),
        }
    }

    /// Works on a prompt that this runtime has accepted.
    pub(crate) async fn work(
        &mut self,
        accepted: Accepted,
        reports: &Reports,
        interrupt: CancellationToken,
    ) -> (Ending, Usage) {
        match (self, accepted) {
            (Self::Builtin(builtin), Accepted::Builtin(accepted)) => {
                builtin.work(accepted, reports, interrupt).await
            }
            (Self::Claude(claude), Accepted::Claude(accepted)) => {
                claude.work(accepted, reports, interrupt).await
            }
            (Self::Legacy(legacy), Accepted::Legacy(accepted)) => {
                legacy.work(accepted, reports, interrupt).await
            }
            (Self::Builtin(_), Accepted::Claude(_) | Accepted::Legacy(_))
            | (Self::Claude(_), Accepted::Builtin(_) | Accepted::Legacy(_))
            | (Self::Legacy(_), Accepted::Builtin(_) | Accepted::Claude(_)) => {
                let message = "the prompt was accepted by another runtime".to_owned();
                (Ending::Failed { message }, Usage::default())
            }
        }
    }

    /// Says what was said without a prompt.
    async fn tell_asides(&mut self, spool: &Spool) -> io::Result<()> {
        let events = match self {
            Self::Claude(claude) => claude.take_asides(),
            Self::Builtin(_) | Self::Legacy(_) => Vec::new(),
        };
        for event in events {
            spool.append(NO_RUN, &event).await?;
        }
        Ok(())
    }

    /// Fails if what was written down of the conversation is not there any more, and was needed.
    pub(crate) fn must_have_its_record(&self) -> io::Result<()> {
        match self {
            Self::Claude(claude) if claude.has_lost_its_record() => {
                Err(io::Error::other(RecordGone))
            }
            Self::Claude(_) | Self::Builtin(_) | Self::Legacy(_) => Ok(()),
        }
    }

    /// Does what there is to do while there is no prompt. Returns when there is something to tell; safe to cancel.
    async fn rest(&mut self) {
        match self {
            Self::Builtin(_) => std::future::pending().await,
            Self::Claude(claude) => claude.overhear().await,
            Self::Legacy(legacy) => legacy.overhear().await,
        }
    }
}
