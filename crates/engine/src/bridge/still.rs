//! A sandbox that stands still for a moment, because its files are counted or captured.
//!
//! Several may want that at once, and somebody may want it frozen for longer. It goes on when the last of them
//! has had enough; but not if it stood still before the first of them came. One that is paused stays so, also if a
//! server paused it that is gone. If the server dies meanwhile, a process beside it thaws the sandbox ([`Guard`](super::guard::Guard)); where
//! there are no cgroups, whoever attaches to it next.

use std::sync::Arc;

use ash_sandbox::Cgroup;

use super::inner::Inner;
use super::process::Process;
use super::state::Held;
use super::tree;
use super::word::failed;
use crate::host::{HostError, SandboxRef};

/// A sandbox that stands still until this is dropped; and longer, if somebody else wants it to.
pub(super) struct Still {
    host: Arc<Inner>,
    sandbox: SandboxRef,
    freezer: Freezer,
}

/// What keeps a sandbox from moving.
enum Freezer {
    Cgroup(Cgroup),
    /// Each of its processes is stopped.
    Signals(Process),
}

impl Freezer {
    /// Whether somebody had it stand still already.
    fn stands_still(&self) -> bool {
        match self {
            Self::Cgroup(cgroup) => cgroup.is_to_be_frozen().unwrap_or(false),
            Self::Signals(bridge) => tree::is_stopped(*bridge),
        }
    }

    fn freeze(&self) -> std::io::Result<()> {
        match self {
            Self::Cgroup(cgroup) => cgroup.freeze(),
            Self::Signals(bridge) if tree::stop_tree(*bridge) => Ok(()),
            Self::Signals(_) => Err(std::io::Error::other("something in it does not stand still")),
        }
    }

    fn thaw(&self) -> std::io::Result<()> {
        match self {
            Self::Cgroup(cgroup) => cgroup.thaw(),
            Self::Signals(bridge) => {
                tree::wake_tree(*bridge);
                Ok(())
            }
        }
    }
}

impl Still {
    /// Holds a sandbox with its cgroup, if it has one that can. Nothing, if only its bridge runs, which moves nothing.
    pub(super) fn hold(host: &Arc<Inner>, sandbox: SandboxRef) -> Result<Option<Self>, HostError> {
        let attempted = "hold a sandbox";
        let cgroup = host.cgroup(sandbox).map_err(|error| failed(attempted, error))?;
        let Some(cgroup) = cgroup.filter(|cgroup| cgroup.abilities().freeze) else {
            return Ok(None);
        };
        let processes = cgroup.processes().map_err(|error| failed(attempted, error))?;
        if processes.len() < 2 {
            return Ok(None);
        }
        Self::with(host, sandbox, Freezer::Cgroup(cgroup)).map(Some)
    }

    /// Holds a sandbox that is alive, bridge and all, in whatever way it can be held.
    pub(super) fn hold_all(host: &Arc<Inner>, sandbox: SandboxRef) -> Result<Self, HostError> {
        let attempted = "hold a sandbox";
        let cgroup = host.cgroup(sandbox).map_err(|error| failed(attempted, error))?;
        let freezer = match cgroup.filter(|cgroup| cgroup.abilities().freeze) {
            Some(cgroup) => Freezer::Cgroup(cgroup),
            None => Freezer::Signals(host.live_bridge(sandbox, attempted)?),
        };
        Self::with(host, sandbox, freezer)
    }

    fn with(host: &Arc<Inner>, sandbox: SandboxRef, freezer: Freezer) -> Result<Self, HostError> {
        let mut state = host.state();
        let is_paused = state.frozen.contains(&sandbox);
        let held = state
            .held
            .entry(sandbox)
            .or_insert_with(|| Held { by: 0, stays: is_paused || freezer.stands_still() });
        held.by += 1;
        // One that is paused stays so, whoever dies.
        if let Freezer::Cgroup(cgroup) = &freezer
            && !held.stays
        {
            host.guard.hold(cgroup);
        }
        drop(state);
        let held = Self { host: Arc::clone(host), sandbox, freezer };
        // If it fails it is let go, by the drop of it.
        held.freezer.freeze().map_err(|error| failed("hold a sandbox", error))?;
        Ok(held)
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        let mut state = self.host.state();
        if let Some(held) = state.held.get_mut(&self.sandbox)
            && held.by > 1
        {
            held.by -= 1;
            return;
        }
        let stays = state.held.remove(&self.sandbox).is_some_and(|held| held.stays);
        // The lock is held, so that nobody begins to freeze it in between.
        let is_paused = stays || state.frozen.contains(&self.sandbox);
        let thawed = if is_paused { Ok(()) } else { self.freezer.thaw() };
        if let Freezer::Cgroup(cgroup) = &self.freezer {
            self.host.guard.free(cgroup);
        }
        if let Err(error) = thawed {
            // It is thawed again within seconds, unless it is gone.
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, session.id = %self.sandbox.session, "a sandbox that was held may be frozen still");
        }
    }
}
