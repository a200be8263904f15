//! Landlock: which files may be touched how, once more, by other means than mounts.
//!
//! Best effort: an old kernel enforces what it knows, one without Landlock nothing. The mounts alone
//! must hold, and the tests do not depend on this.

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, Scope,
};

use super::{At as _, Failure};
use crate::error::Step;

/// The newest that this was tried with.
const KNOWN: ABI = ABI::V7;

/// Where a sandbox may do everything.
const WRITABLE: [&str; 4] = ["/workspace", "/home/agent", "/tmp", "/dev/shm"];

/// Where it may only write to what is there: its devices, and settings of its own processes.
const EXISTING: [&str; 2] = ["/dev", "/proc"];

pub(super) fn restrict() -> Result<(), Failure> {
    rules().map_err(std::io::Error::other).at(Step::Landlock)
}

fn rules() -> Result<(), landlock::RulesetError> {
    let everything = AccessFs::from_all(KNOWN);
    // Signals and abstract sockets end at the sandbox, whose processes are all in one domain.
    let mut rules =
        Ruleset::default().handle_access(everything)?.scope(Scope::from_all(KNOWN))?.create()?;
    rules = allow(rules, "/", AccessFs::from_read(KNOWN))?;
    for place in EXISTING {
        let write = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
        rules = allow(rules, place, write)?;
    }
    for place in WRITABLE {
        let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
        rules = allow(rules, place, everything & !devices)?;
    }
    rules.restrict_self()?;
    Ok(())
}

fn allow(
    rules: RulesetCreated,
    place: &str,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    // Each is made by the launcher. If one could not be opened, less would be allowed, not more.
    match PathFd::new(place) {
        Ok(place) => rules.add_rule(PathBeneath::new(place, access)),
        Err(_) => Ok(rules),
    }
}
