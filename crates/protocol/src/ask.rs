//! What a server asks of a bridge, and what it is answered.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::frame::{Frame, FrameError};
use crate::version::Versions;

/// What a server asks of a bridge.
#[derive(Debug)]
pub enum Ask {
    /// The first frame of a connection. From its answer on, reports are sent.
    Hello(Hello),
    /// Says what to run. Once is enough; again changes nothing.
    Configure(Box<Config>),
    /// Hands over a prompt. One that the bridge has is ignored.
    Deliver {
        /// Its run.
        run: String,
        /// The prompt, as it came.
        prompt: Box<RawValue>,
    },
    /// Ends a run, or keeps it from beginning.
    Interrupt {
        /// Which run.
        run: String,
    },
    /// Answers a question that is open ([`Event::Question`](crate::Event::Question)). Refused, if there is no such
    /// question or it was answered otherwise; the same answer again changes nothing.
    Decide {
        /// Which question.
        id: String,
        /// What was decided.
        decision: Decision,
    },
    /// Lets the bridge forget its reports through a number. Not answered.
    Acknowledge {
        /// The number.
        through: u64,
    },
    /// Runs a command beside the agent.
    Exec(ExecRequest),
    /// Runs scripts of the agent, one after the other, to the first that fails. What is asked first counts: asked again,
    /// it is answered what came of that.
    Hooks(HooksRequest),
    /// Ends the bridge and everything in the sandbox.
    Shutdown,
}

/// What somebody answers to an agent that asks before it does something.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may.
    Allow {
        /// What to do it with, if not with what the agent asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Box<RawValue>>,
    },
    /// It may not.
    Deny {
        /// Why, for the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

/// How long a question stays open, unless somebody says otherwise.
pub const PERMISSION_TIMEOUT_MS: u64 = 10 * 60 * 1000;

/// How a server introduces itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// What it speaks.
    pub versions: Versions,
    /// Which life of a server this is. A later one is listened to instead of an earlier one, never
    /// the other way round.
    pub owner: u64,
    /// The last report that it has.
    pub after: u64,
}

/// How a bridge answers a [`Hello`]. The listener for the model's requests comes with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// What both will speak.
    pub version: u16,
    /// The bridge's own release.
    pub release: String,
    /// The last report that there is.
    pub last: u64,
    /// Whether it was told what to run.
    pub configured: bool,
}

/// What a bridge is to run, and within which limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The adapter: `builtin`, `claude` or `legacy`.
    pub runtime: String,
    /// The session, which a conversation is named after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Where the agent works, as seen inside.
    pub workspace: PathBuf,
    /// Where it keeps what is its own, as seen inside.
    pub home: PathBuf,
    /// What the agent and its session add to the environment of tools.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Which model to ask.
    pub model: String,
    /// What the agent must not exceed.
    #[serde(default)]
    pub limits: Limits,
    /// How long to wait for a server after a turn, before giving up on it.
    pub orphan_ttl_ms: u64,
    /// What the session adds to what its agent is told about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// What a program of the original is told once in this sandbox, and in no file: what it has lost. Other adapters are
    /// told with `system_prompt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// The session's own MCP servers: an object by name, as `mcpServers` in `.mcp.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Box<RawValue>>,
    /// The only tools that the agent may use; none: all that there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<String>,
    /// Tools that it may not use in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disallowed_tools: Vec<String>,
    /// What the agent asks about before it does it: `bypassPermissions`, `permissionsByAgent`, `default`,
    /// `acceptEdits` or `plan`. Nothing: it never asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<String>,
    /// After how long a question that nobody answers is answered with no; nothing:
    /// [`PERMISSION_TIMEOUT_MS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_timeout_ms: Option<u64>,
    /// Claude Code, for the adapter `claude`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claude: Option<Program>,
    /// A program that speaks the original's bridge protocol, for the adapter `legacy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legacy: Option<LegacyProgram>,
    /// Whether tools are told that the listener is a proxy to other hosts than the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proxied: bool,
    /// Whether nothing of the agent is started before [`Ask::Hooks`] was done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hooked: bool,
}

/// A program of somebody else, which an adapter runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Where it is, as seen inside.
    pub path: PathBuf,
    /// Which release it is.
    pub version: String,
}

/// A bridge program of the original.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyProgram {
    /// How it is started: a program, as seen inside, and its arguments.
    pub command: Vec<String>,
    /// What the server says in its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// What an agent must not exceed. Nothing: the runtime's own bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// How often the model may be asked in one run.
    pub max_rounds: Option<u32>,
    /// What one run may cost, in millionths of a US dollar.
    pub budget_micro_usd: Option<u64>,
    /// How many tokens of thinking the model may spend on one answer; none: no thinking.
    pub thinking_tokens: Option<u32>,
    /// How many tokens of context the model has.
    pub context_tokens: Option<u64>,
    /// How many tokens one answer may have.
    pub answer_tokens: Option<u32>,
}

/// A command to run beside the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// The command, for a shell.
    pub command: String,
    /// Where, beneath the workspace; nothing: the workspace itself.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
    /// After how long it and everything it started is killed.
    pub timeout_ms: u64,
    /// How much of what it prints is kept, of each stream.
    pub max_output_bytes: usize,
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecResult {
    /// How it ended.
    pub end: ExecEnd,
    /// What it printed: the beginning and the end, if it was too much.
    pub stdout: String,
    /// What it complained of; a last line of the bridge says if memory ran out meanwhile.
    pub stderr: String,
    /// How many bytes of the two were left out.
    pub omitted_bytes: u64,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecEnd {
    /// By itself.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// It took too long, and was killed with everything it had started.
    TimedOut,
    /// It could not be started.
    NotStarted(String),
}

/// A script of the agent that is run before its first turn in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// It makes files, which are the session's from then on: once for its workspace.
    Install,
    /// It prepares a sandbox: once for each.
    Startup,
}

impl Hook {
    /// The name of the script in the workspace.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Install => "install.sh",
            Self::Startup => "startup.sh",
        }
    }
}

/// Scripts to run before anything of the agent is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HooksRequest {
    /// Which, in order.
    pub hooks: Vec<Hook>,
    /// After how long each, and everything it started, is killed.
    pub timeout_ms: u64,
}

/// What became of the scripts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HooksResult {
    /// Those that did what they should.
    pub done: Vec<Hook>,
    /// The one that did not, after which there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<HookFailure>,
}

/// A script that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookFailure {
    /// Which.
    pub hook: Hook,
    /// How it ended.
    pub end: ExecEnd,
    /// The last line that it printed, cut if it was long; all of it is in the bridge's log.
    pub last_line: String,
}

/// What a bridge answers.
#[derive(Debug)]
pub enum Answer {
    /// To a hello that it understands.
    Welcome(Welcome),
    /// It was done, or will be.
    Done,
    /// To a command that was run.
    Executed(ExecResult),
    /// To scripts that were run.
    Hooked(HooksResult),
    /// It will not be done.
    Refused {
        /// Why.
        message: String,
    },
}

#[derive(Serialize, Deserialize)]
struct DeliverBody {
    run: String,
    prompt: Box<RawValue>,
}

#[derive(Serialize, Deserialize)]
struct InterruptBody {
    run: String,
}

#[derive(Serialize, Deserialize)]
struct DecideBody {
    id: String,
    decision: Decision,
}

#[derive(Serialize, Deserialize)]
struct AcknowledgeBody {
    through: u64,
}

#[derive(Serialize, Deserialize)]
struct RefusedBody {
    message: String,
}

impl Ask {
    /// The frame that asks this.
    pub fn frame(&self) -> Result<Frame, FrameError> {
        match self {
            Self::Hello(hello) => Frame::new("hello", hello),
            Self::Configure(config) => Frame::new("configure", config),
            Self::Deliver { run, prompt } => {
                Frame::new("deliver", &DeliverBody { run: run.clone(), prompt: prompt.clone() })
            }
            Self::Interrupt { run } => Frame::new("interrupt", &InterruptBody { run: run.clone() }),
            Self::Decide { id, decision } => {
                Frame::new("decide", &DecideBody { id: id.clone(), decision: decision.clone() })
            }
            &Self::Acknowledge { through } => {
                Frame::new("acknowledge", &AcknowledgeBody { through })
            }
            Self::Exec(request) => Frame::new("exec", request),
            Self::Hooks(request) => Frame::new("hooks", request),
            Self::Shutdown => Frame::new("shutdown", &()),
        }
    }

    /// What a frame asks; nothing, if it is of a kind that is not known here.
    pub fn of(frame: &Frame) -> Result<Option<Self>, FrameError> {
        Ok(Some(match frame.kind.as_str() {
            "hello" => Self::Hello(frame.read()?),
            "configure" => Self::Configure(frame.read()?),
            "deliver" => {
                let DeliverBody { run, prompt } = frame.read()?;
                Self::Deliver { run, prompt }
            }
            "interrupt" => {
                let InterruptBody { run } = frame.read()?;
                Self::Interrupt { run }
            }
            "decide" => {
                let DecideBody { id, decision } = frame.read()?;
                Self::Decide { id, decision }
            }
            "acknowledge" => {
                let AcknowledgeBody { through } = frame.read()?;
                Self::Acknowledge { through }
            }
            "exec" => Self::Exec(frame.read()?),
            "hooks" => Self::Hooks(frame.read()?),
            "shutdown" => Self::Shutdown,
            _ => return Ok(None),
        }))
    }
}

impl Answer {
    /// The frame that answers this.
    pub fn frame(&self) -> Result<Frame, FrameError> {
        match self {
            Self::Welcome(welcome) => Frame::new("welcome", welcome),
            Self::Done => Frame::new("done", &()),
            Self::Executed(result) => Frame::new("executed", result),
            Self::Hooked(result) => Frame::new("hooked", result),
            Self::Refused { message } => {
                Frame::new("refused", &RefusedBody { message: message.clone() })
            }
        }
    }

    /// What a frame answers; nothing, if it is of a kind that is not known here.
    pub fn of(frame: &Frame) -> Result<Option<Self>, FrameError> {
        Ok(Some(match frame.kind.as_str() {
            "welcome" => Self::Welcome(frame.read()?),
            "done" => Self::Done,
            "executed" => Self::Executed(frame.read()?),
            "hooked" => Self::Hooked(frame.read()?),
            "refused" => {
                let RefusedBody { message } = frame.read()?;
                Self::Refused { message }
            }
            _ => return Ok(None),
        }))
    }
}
