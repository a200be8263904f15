//! Whether agents can be kept from the rest of the machine: found out by starting a sandbox.

use std::path::Path;

use ash_core::id::SessionId;
use ash_core::time::Timestamp;
use ash_engine::IdSource;
use ash_engine::bridge::{NoSandbox, Sandboxing, Tier, Users};

use super::Check;
use crate::config::{Config, MinIsolation};

/// What a sandbox that was tried turned out to be.
#[derive(Clone, Copy, Debug)]
pub struct Sandboxes {
    /// How strong.
    pub tier: Tier,
    /// How many attempts to get out of it failed.
    pub attempts: usize,
    /// Whether memory and processes of all of it can be bounded together.
    pub bounded: bool,
    /// Whether all of it can be frozen at once.
    pub freezable: bool,
}

/// Tries one out, and leaves nothing behind.
pub(super) fn try_one(config: &Config, bridge: &Path) -> Result<Sandboxes, NoSandbox> {
    // A name that nobody can have taken before.
    let name = IdSource::unguessable().make(Timestamp::from_millis(0), SessionId::from_parts);
    let place = std::env::temp_dir().join(format!("ash-doctor-{name}"));
    let users = Users::new(config.sandbox_uid_base, config.sandbox_uid_count.get());
    let probed = Sandboxing::probe(&place, bridge, users, &[]);
    let found = probed.map(|(sandboxing, checks)| {
        let abilities = sandboxing.cgroups.abilities();
        let found = Sandboxes {
            tier: sandboxing.tier(),
            attempts: checks.len(),
            bounded: abilities.memory && abilities.pids,
            freezable: abilities.freeze,
        };
        let _only_empty_directories = sandboxing.cgroups.remove();
        found
    });
    let _nothing_of_value = std::fs::remove_dir_all(&place);
    found
}

/// What it means for a server with this configuration.
pub(super) fn check(config: &Config, tried: Result<Sandboxes, NoSandbox>) -> Check {
    let name = "isolation";
    let found = match tried {
        Ok(found) => found,
        Err(NoSandbox { why, hint }) => {
            let hint = hint.map(|hint| format!("{hint}; ")).unwrap_or_default();
            let fix =
                format!("{hint}for agents that you trust: ash serve --dangerously-no-sandbox");
            return Check::problem(name, format!("agents cannot be isolated: {why}"), fix);
        }
    };
    let Sandboxes { tier, attempts, bounded, freezable } = found;
    let tier_name = tier.as_str();
    if config.min_isolation == MinIsolation::Full && tier < Tier::Full {
        let fix = "run the server as root, or set ASH_MIN_ISOLATION=rootless";
        return Check::problem(name, format!("{tier_name}, and ASH_MIN_ISOLATION is full"), fix);
    }
    let held = format!("{tier_name}: {attempts} attempts to get out of a sandbox failed");
    if !(bounded && freezable) {
        let lacks = "limits hold for each process alone, and pausing stops processes one by one";
        let fix = "run the server as root, or delegate a cgroup of version 2 to it (systemd: Delegate=yes)";
        return Check::warning(name, format!("{held}; without control groups {lacks}"), fix);
    }
    Check::ok(name, held)
}
