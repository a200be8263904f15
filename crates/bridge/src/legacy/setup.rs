//! How the program is started: its environment is what the original gives it, but for the key.

use std::collections::BTreeMap;
use std::path::Path;

use ash_protocol::LegacyProgram;

use crate::process::{CommandSpec, Stream};
use crate::settings::Settings;

/// What it does without asking anybody, unless the session says otherwise: it is in a sandbox.
const DEFAULT_MODE: &str = "bypassPermissions";

/// Stands where the program wants to see a key. The real one is added outside.
const NO_KEY: &str = "the-key-is-added-outside-of-the-sandbox";

/// How tool calls are allowed by a program that is started now.
pub(super) fn mode_of(settings: &Settings) -> &str {
    settings.permission_mode.as_deref().unwrap_or(DEFAULT_MODE)
}

/// How it is started. An error is for a person.
pub(super) fn command(
    program: &LegacyProgram,
    settings: &Settings,
    session: &str,
    socket: &Path,
) -> Result<CommandSpec, String> {
    let [executable, args @ ..] = &program.command[..] else {
        return Err("the bridge program has no command".to_owned());
    };
    Ok(CommandSpec {
        program: executable.clone(),
        args: args.to_vec(),
        cwd: settings.workspace.clone(),
        env: environment(program, settings, session, socket),
        stdin: Stream::Null,
        stdout: Stream::Pipe,
        stderr: Stream::Pipe,
    })
}

fn environment(
    program: &LegacyProgram,
    settings: &Settings,
    session: &str,
    socket: &Path,
) -> BTreeMap<String, String> {
    let mut env = settings.env.variables().clone();
    env.extend(program.env.clone());
    let workspace = settings.workspace.display().to_string();
    let ours = [
        ("ASH_BRIDGE_SOCKET", socket.display().to_string()),
        // A session begins with a copy of its agent in the workspace, and sees no other.
        ("ASH_AGENT_DIR", workspace.clone()),
        ("ASH_WORKSPACE_DIR", workspace),
        ("ASH_SANDBOX_ID", session.to_owned()),
        ("ASH_SESSION_ID", session.to_owned()),
        ("ASH_PERMISSION_MODE", mode_of(settings).to_owned()),
        ("ANTHROPIC_BASE_URL", format!("http://{}", settings.endpoint)),
        ("ANTHROPIC_API_KEY", NO_KEY.to_owned()),
        ("CLAUDE_CONFIG_DIR", settings.home.join(".claude").display().to_string()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ("DISABLE_TELEMETRY", "1".to_owned()),
        ("IS_SANDBOX", "1".to_owned()),
    ];
    for (name, value) in ours {
        env.insert(name.to_owned(), value);
    }
    // The model is asked through the door that is there, not through a proxy to elsewhere.
    env.entry("NO_PROXY".to_owned()).or_insert_with(|| "127.0.0.1,localhost".to_owned());
    // What it starts in turn finds the same Node.
    let path = env.entry("PATH".to_owned()).or_default();
    let executable = program.command.first().map(Path::new).filter(|path| path.is_absolute());
    if let Some(directory) = executable.and_then(Path::parent).and_then(Path::to_str)
        && !path.split(':').any(|known| known == directory)
    {
        *path = format!("{path}:{directory}");
    }
    env
}
