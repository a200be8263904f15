//! How the program is started: its arguments and its environment.
//!
//! Everything is said again at every start, a resume included: the program forgets its flags. What can be changed
//! while it runs (`model`, `mode`) is; for anything else it is started anew.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ash_protocol::Program as Executable;
use rustix::fs::OFlags;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::prompt::Options;
use crate::process::{CommandSpec, Stream};
use crate::settings::Settings;

/// It does everything without asking anybody. So it does unless the session says otherwise: it is in a sandbox.
pub(super) const BYPASS: &str = "bypassPermissions";

/// Stands where the program wants to see a key. The real one is added outside.
const NO_KEY: &str = "the-key-is-added-outside-of-the-sandbox";

/// It would keep no transcript, and forget the conversation whenever it is started.
const SKIPS_HISTORY: &str = "CLAUDE_CODE_SKIP_PROMPT_HISTORY";

/// Where it keeps what is its own.
const CONFIG: &str = "CLAUDE_CONFIG_DIR";

/// Where the model is.
const MODEL: &str = "ANTHROPIC_BASE_URL";

/// What would have it ask another provider, or the same one by another way.
const ELSEWHERE: [&str; 8] = [
    "ANTHROPIC_UNIX_SOCKET",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_GATEWAY",
    "CLAUDE_CODE_USE_MANTLE",
    "CLAUDE_CODE_USE_VERTEX",
];

/// What is not asked for through a proxy, as some programs call it and as others do.
const DIRECT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// How long the agent's own list of servers may be.
const MAX_SERVERS_BYTES: u64 = 1024 * 1024;

/// What a run wants of the program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setup {
    pub(super) model: String,
    pub(super) mode: String,
    /// Whatever else it is told at its start.
    fixed: Vec<String>,
    /// What the session adds to its instructions. It may be longer than an argument.
    instructions: Option<String>,
    /// Whether it counts something from its start on, so that every run needs a new one.
    pub(super) is_for_one_run: bool,
}

/// Which conversation it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// A new one, of this name.
    New(String),
    /// One that it knows.
    Known(String),
}

impl Which {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::New(name) | Self::Known(name) => name,
        }
    }
}

impl Setup {
    /// What the session and the prompt want, together.
    pub(super) fn of(settings: &Settings, options: &Options) -> Self {
        let model = options.model.clone().unwrap_or_else(|| settings.model.clone());
        let mode = options.permission_mode.as_deref().or(settings.permission_mode.as_deref());
        let mut fixed = Vec::new();
        let mut flag = |name: &str, value: Option<String>| {
            fixed.extend(value.map(|value| format!("--{name}={value}")));
        };
        let max_turns = options.max_turns.or(settings.limits.max_rounds);
        flag("max-turns", max_turns.map(|turns| turns.to_string()));
        let budget = options.max_budget_usd.or(settings.limits.budget_micro_usd.map(usd));
        flag("max-budget-usd", budget.map(|budget| budget.to_string()));
        flag("effort", options.effort.clone());
        let shape = options.output_format.as_ref();
        flag("json-schema", shape.and_then(|shape| serde_json::to_string(&shape.schema).ok()));
        let tokens = options.max_thinking_tokens.or(settings.limits.thinking_tokens);
        match &options.thinking {
            Some(thinking) => match (thinking.r#type.as_str(), thinking.budget_tokens.or(tokens)) {
                ("enabled", Some(tokens)) => flag("max-thinking-tokens", Some(tokens.to_string())),
                (kind, _) => flag("thinking", Some(kind.to_owned())),
            },
            None => flag("max-thinking-tokens", tokens.map(|tokens| tokens.to_string())),
        }
        let list = |tools: &Option<Vec<String>>, usual: &[String]| {
            let tools = tools.as_deref().unwrap_or(usual);
            (!tools.is_empty()).then(|| tools.join(","))
        };
        flag("allowed-tools", list(&options.allowed_tools, &settings.allowed_tools));
        flag("disallowed-tools", list(&options.disallowed_tools, &settings.disallowed_tools));
        for (name, value) in of_session(options) {
            flag(name, value);
        }
        flag("settings", Some(of_environment(settings)));
        flag("mcp-config", settings.mcp_servers.as_deref().map(of_servers));
        let of_agent = servers_of_agent(&settings.workspace).ok().flatten();
        flag("mcp-config", of_agent.map(|of_agent| of_agent.display().to_string()));
        let instructions = settings.system_prompt.clone();
        Self { model, mode: mode_of(mode), fixed, instructions, is_for_one_run: budget.is_some() }
    }

    /// Whether a program that was started so can do this, once it was told the rest.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let is_same = (&self.fixed, &self.instructions) == (&other.fixed, &other.instructions);
        is_same && !self.is_for_one_run && !other.is_for_one_run
    }

    /// What it is told first.
    pub(super) fn greeting(&self) -> Value {
        let mut greeting = json!({ "subtype": "initialize", "hooks": null });
        if let Some(instructions) = &self.instructions {
            greeting["appendSystemPrompt"] = instructions.as_str().into();
        }
        greeting
    }

    /// How it is started.
    pub(super) fn command(
        &self,
        executable: &Executable,
        settings: &Settings,
        which: &Which,
        found_at: Option<&Path>,
    ) -> CommandSpec {
        let mut args: Vec<String> = [
            "--output-format=stream-json",
            "--input-format=stream-json",
            "--verbose",
            "--include-partial-messages",
            "--permission-prompt-tool=stdio",
            "--session-mirror",
            "--allow-dangerously-skip-permissions",
        ]
        .map(str::to_owned)
        .into();
        args.push(match (which, found_at) {
            (Which::New(name), _) => format!("--session-id={name}"),
            (Which::Known(name), None) => format!("--resume={name}"),
            (Which::Known(_), Some(path)) => format!("--resume={}", path.display()),
        });
        args.push(format!("--model={}", self.model));
        args.push(format!("--permission-mode={}", self.mode));
        args.extend(self.fixed.iter().cloned());
        CommandSpec {
            program: executable.path.to_string_lossy().into_owned(),
            args,
            cwd: settings.workspace.clone(),
            env: environment(settings),
            stdin: Stream::Pipe,
            stdout: Stream::Pipe,
            stderr: Stream::Pipe,
        }
    }
}

/// The agents that the agent has of its own, and beta features.
fn of_session(options: &Options) -> [(&'static str, Option<String>); 3] {
    let betas = options.betas.as_ref().filter(|betas| !betas.is_empty());
    let subagents = options.subagents.as_ref().filter(|agents| !agents.is_empty());
    [
        ("betas", betas.map(|betas| betas.join(","))),
        ("agents", subagents.and_then(|agents| serde_json::to_string(agents).ok())),
        ("agent", options.initial_agent.clone().filter(|agent| !agent.is_empty())),
    ]
}

/// The servers of a session as the program wants them. One that is somewhere else is passed over by it unless it is
/// said how it is spoken to, which nobody had to say so far: it is told as the address has it.
fn of_servers(servers: &RawValue) -> String {
    let typed = |servers: &str| {
        let mut servers: BTreeMap<String, serde_json::Map<String, Value>> =
            serde_json::from_str(servers).ok()?;
        for server in servers.values_mut() {
            let url = server.get("url").and_then(Value::as_str);
            if let Some(url) = url.filter(|_| !server.contains_key("type")) {
                let path = url.split(['?', '#']).next().unwrap_or_default();
                let is_sse = path.trim_end_matches('/').ends_with("/sse");
                let kind = if is_sse { "sse" } else { "http" };
                server.insert("type".to_owned(), kind.into());
            }
        }
        serde_json::to_string(&servers).ok()
    };
    // What is no list of servers is for the program to complain about.
    let servers = typed(servers.get()).unwrap_or_else(|| servers.get().to_owned());
    format!(r#"{{"mcpServers":{servers}}}"#)
}

/// Where the program keeps what is its own: in what is captured.
pub(super) fn config_directory(home: &Path) -> PathBuf {
    home.join(".claude")
}

/// The list of servers that the agent has among its files, if it has one; or what is wrong with it. The program does not
/// start over one that is no JSON, and then nobody could put it right.
pub(super) fn servers_of_agent(workspace: &Path) -> Result<Option<PathBuf>, String> {
    let path = workspace.join(".mcp.json");
    let file = match File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(&path)
    {
        Ok(file) if file.metadata().is_ok_and(|found| found.is_file()) => file,
        Ok(_) | Err(_) => return Ok(None),
    };
    let mut text = Vec::new();
    let read = file.take(MAX_SERVERS_BYTES + 1).read_to_end(&mut text);
    let is_too_long = text.len() as u64 > MAX_SERVERS_BYTES;
    let is_object = serde_json::from_slice::<Value>(&text).is_ok_and(|value| value.is_object());
    match (read, is_too_long, is_object) {
        (Ok(_), false, true) => Ok(Some(path)),
        (Ok(_), true, _) => Err("it is longer than 1 MB".to_owned()),
        (Ok(_), false, false) => Err("it is no JSON object".to_owned()),
        (Err(error), _, _) => Err(error.to_string()),
    }
}

fn environment(settings: &Settings) -> BTreeMap<String, String> {
    let mut env = settings.env.variables().clone();
    let ours = [
        (CONFIG, config_directory(&settings.home).display().to_string()),
        (MODEL, model_of(settings)),
        ("ANTHROPIC_API_KEY", NO_KEY.to_owned()),
        ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1".to_owned()),
        ("CLAUDE_CODE_ENTRYPOINT", "sdk-cli".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ("DISABLE_TELEMETRY", "1".to_owned()),
        ("DISABLE_ERROR_REPORTING", "1".to_owned()),
        ("IS_SANDBOX", "1".to_owned()),
    ];
    for (name, value) in ours {
        env.insert(name.to_owned(), value);
    }
    for name in ELSEWHERE.into_iter().chain([SKIPS_HISTORY]) {
        env.remove(name);
    }
    let direct = direct(settings);
    env.extend(DIRECT.map(|name| (name.to_owned(), direct.clone())));
    env
}

/// The model is asked through the door that is there, not through a proxy to elsewhere.
fn direct(settings: &Settings) -> String {
    let given = DIRECT.iter().filter_map(|name| settings.env.variables().get(*name)).next();
    let given = given.map(|given| format!("{given},")).unwrap_or_default();
    format!("{given}127.0.0.1,localhost")
}

fn model_of(settings: &Settings) -> String {
    format!("http://{}", settings.endpoint)
}

/// What settings of the agent may not change of the environment, as settings that come before them: where the model is, and
/// that the conversation is written down where it is looked for.
fn of_environment(settings: &Settings) -> String {
    let config = config_directory(&settings.home).display().to_string();
    let mut env = BTreeMap::from([(CONFIG, config), (MODEL, model_of(settings))]);
    let unset = ELSEWHERE.into_iter().chain([SKIPS_HISTORY]);
    env.extend(unset.map(|name| (name, String::new())));
    env.extend(DIRECT.map(|name| (name, direct(settings))));
    json!({ "env": env }).to_string()
}

/// What the program calls it.
fn mode_of(mode: Option<&str>) -> String {
    match mode {
        None => BYPASS,
        // The agent's own settings decide, and somebody is asked about the rest.
        Some("permissionsByAgent") => "default",
        Some(mode) => mode,
    }
    .to_owned()
}

#[expect(clippy::cast_precision_loss, reason = "nobody spends enough to lose a millionth")]
fn usd(micro: u64) -> f64 {
    micro as f64 / 1_000_000.0
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_server_that_is_elsewhere_is_said_to_be_spoken_to_as_its_address_says() {
        let told =
            |servers: &str| of_servers(&serde_json::from_str::<Box<RawValue>>(servers).unwrap());
        assert_eq!(
            told(
                r#"{"a":{"url":"https://x.example/mcp"},"b":{"url":"https://x.example/sse/?k=/v"},
                    "c":{"command":"node"},"d":{"url":"https://x.example/sse","type":"http"}}"#
            ),
            r#"{"mcpServers":{"a":{"type":"http","url":"https://x.example/mcp"},"#.to_owned()
                + r#""b":{"type":"sse","url":"https://x.example/sse/?k=/v"},"#
                + r#""c":{"command":"node"},"d":{"type":"http","url":"https://x.example/sse"}}}"#,
        );
        assert_eq!(told("[1]"), r#"{"mcpServers":[1]}"#);
    }

    #[test]
    fn a_list_of_servers_that_the_program_would_not_start_over_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".mcp.json");
        let found = || servers_of_agent(dir.path());
        assert_eq!(found(), Ok(None));
        for (text, is_taken) in [("{", false), ("[]", false), ("", false), ("{\"a\":1}", true)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(found().is_ok_and(|found| found.is_some()), is_taken, "{text}");
        }
        let long = format!("{{\"a\":\"{}\"}}", "a".repeat(1 << 20));
        std::fs::write(&path, long).unwrap();
        assert_eq!(found(), Err("it is longer than 1 MB".to_owned()));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(found(), Ok(None));
    }

    #[test]
    fn the_program_is_told_of_betas_and_agents_if_there_are_any() {
        assert_eq!(of_session(&Options::default()).map(|(_, value)| value), [None, None, None]);
        let none = r#"{"betas":[],"subagents":{},"initialAgent":""}"#;
        let none: Options = serde_json::from_str(none).unwrap();
        assert_eq!(of_session(&none).map(|(_, value)| value), [None, None, None]);
        let some = r#"{"betas":["a","b"],"subagents":{"r":{"prompt":"p"}},"initialAgent":"r"}"#;
        let some: Options = serde_json::from_str(some).unwrap();
        let expected = [
            ("betas", Some("a,b".to_owned())),
            ("agents", Some(r#"{"r":{"prompt":"p"}}"#.to_owned())),
            ("agent", Some("r".to_owned())),
        ];
        assert_eq!(of_session(&some), expected);
    }
}
