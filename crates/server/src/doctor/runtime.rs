//! The program of somebody else that runs agents: Claude Code.

use std::path::Path;

use ash_engine::runtimes::{NoClaude, RuntimeOptions, Runtimes, Source, View};

use super::Check;
use crate::config::{Config, DefaultRuntime};

/// What to do where it is missing.
const FIX: &str = "ash agent-runtime install claude";

/// Says what is there. Without it everything else works, so it is no problem.
pub(super) fn check(config: &Config, data: &Path) -> Check {
    let name = "claude";
    let view = if config.dangerously_no_sandbox { View::Machine } else { View::Sandboxes };
    let (path, version) = (config.claude_path.clone(), config.claude_version.clone());
    let options = RuntimeOptions { data: data.to_owned(), view, path, version };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Check::warning(name, format!("nobody could look: {error}"), FIX),
    };
    match runtime.block_on(Runtimes::look(options).claude()) {
        Ok(found) => {
            let (version, path) = (found.version, found.host_path.display());
            let source = match found.source {
                Source::Installed => "installed, and what it was then",
                Source::Setting => "which ASH_CLAUDE_PATH names",
                Source::System => "of this machine",
            };
            Check::ok(name, format!("Claude Code {version}, {source}: {path}"))
        }
        Err(NoClaude::Missing) if config.default_runtime != Some(DefaultRuntime::Claude) => {
            let found =
                format!("Claude Code is not installed; agents of the runtime claude need: {FIX}");
            Check::ok(name, found)
        }
        Err(why) => Check::warning(name, why.to_string(), FIX),
    }
}
