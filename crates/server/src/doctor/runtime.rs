//! The programs of others that run agents: Claude Code, and a bridge of the original.

use std::path::Path;

use ash_engine::runtimes::{NoClaude, NoLegacy, Runtimes, Source, View};

use super::Check;
use crate::config::{Config, DefaultRuntime};
use crate::runtime::{claude_options, legacy_of};

/// What to do where it is missing.
const FIX: &str = "ash agent-runtime install claude";

/// Says what is there. Without it everything else works, so it is no problem.
pub(super) fn check(config: &Config, data: &Path) -> Check {
    let name = "claude";
    let view = if config.dangerously_no_sandbox { View::Machine } else { View::Sandboxes };
    let options = claude_options(config, data, view);
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

/// Says whether the bridge program of the original can be run, if there is to be one.
pub(super) fn check_legacy(config: &Config, data: &Path) -> Option<Check> {
    let name = "legacy";
    let view = if config.dangerously_no_sandbox { View::Machine } else { View::Sandboxes };
    match legacy_of(config, data, view).find() {
        Ok(found) => {
            let (entry, node) = (found.entry.display(), found.node.display());
            let mut told = format!("{entry}, run by {node}");
            for shared in &found.shared {
                told = format!("{told}; sandboxes see {}", shared.origin.display());
            }
            Some(Check::ok(name, told))
        }
        Err(NoLegacy::NotSet) if config.default_runtime != Some(DefaultRuntime::Legacy) => None,
        Err(why @ NoLegacy::NoNode) => Some(Check::warning(
            name,
            why.to_string(),
            "install Node where the PATH of the server leads",
        )),
        Err(why @ (NoLegacy::NotSet | NoLegacy::Unusable { .. })) => Some(Check::warning(
            name,
            why.to_string(),
            "set ASH_BRIDGE_ENTRY to the program, or to nothing",
        )),
    }
}
