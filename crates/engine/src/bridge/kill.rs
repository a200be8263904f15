//! How a sandbox is ended, all of it; and how it is frozen.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use ash_sandbox::Cgroup;

use super::files::Life;
use super::inner::Inner;
use super::process::Process;
use super::tree;
use super::word::failed;
use crate::host::{HostError, SandboxRef};

/// How long everything of it may take to be gone.
const DEATH_TIMEOUT: Duration = Duration::from_secs(8);

const FREEZE: &str = "freeze a sandbox";
const THAW: &str = "thaw a sandbox";

/// How long what a killed bridge left behind may take to end by itself.
const GRACE: Duration = Duration::from_millis(300);

/// How long to wait between two looks.
const LOOK: Duration = Duration::from_millis(5);

impl Inner {
    /// Kills everything of a sandbox. Returns when nothing of it runs.
    pub(super) async fn kill(self: &Arc<Self>, sandbox: SandboxRef) -> Result<(), HostError> {
        let attempted = "stop a sandbox";
        let begin = Instant::now();
        if self.options.enclosure.sandboxing().is_some() {
            while begin.elapsed() < DEATH_TIMEOUT {
                let host = Arc::clone(self);
                let round = move || host.kill_enclosed(sandbox);
                let round = tokio::task::spawn_blocking(round).await;
                let round = round.map_err(|error| failed(attempted, error))?;
                if round.map_err(|error| failed(attempted, error))? {
                    return Ok(());
                }
                sleep(LOOK).await;
            }
            return Err(failed(attempted, "something of it is still there"));
        }
        while begin.elapsed() < DEATH_TIMEOUT {
            // At first what is left is only woken: keepers see by themselves that the bridge is
            // gone, and find what has hidden from us.
            let signal = if begin.elapsed() < GRACE { Signal::CONT } else { Signal::KILL };
            let host = Arc::clone(self);
            // It looks at every process of the machine.
            let round = tokio::task::spawn_blocking(move || host.kill_round(sandbox, signal)).await;
            let round = round.map_err(|error| failed(attempted, error))?;
            if round.map_err(|error| failed(attempted, error))? {
                return Ok(());
            }
            sleep(LOOK).await;
        }
        Err(failed(attempted, "something of it is still there"))
    }

    /// Kills whatever is there in a sandbox; says whether there was nothing. When its pid 1 is gone, so is
    /// everything in it: the kernel sees to that.
    fn kill_enclosed(&self, sandbox: SandboxRef) -> io::Result<bool> {
        let cgroup = self.cgroup(sandbox)?;
        // Also before it has become what it is to be.
        if let Some(cgroup) = &cgroup {
            cgroup.kill()?;
        }
        if let Life::Alive(told) = self.files.life(sandbox)? {
            if let Some(process) = self.process_of(sandbox, told) {
                self.guard.go(process);
                // With nothing around it, also what is below.
                tree::signal_tree(process, Signal::KILL);
            }
            return Ok(false);
        }
        cgroup.map_or(Ok(()), |cgroup| cgroup.remove())?;
        Ok(true)
    }

    /// Stops every process of a sandbox where it is.
    pub(super) async fn freeze(self: &Arc<Self>, sandbox: SandboxRef) -> Result<(), HostError> {
        let bridge = self.live_bridge(sandbox, FREEZE)?;
        // Before it is: what is found frozen and is not in here is so by accident.
        self.state().frozen.insert(sandbox);
        let frozen = match self.freezer(sandbox, FREEZE) {
            Ok(Some(cgroup)) => {
                self.guard.free(&cgroup);
                blocking(FREEZE, move || cgroup.freeze()).await
            }
            Ok(None) => {
                let stop = move || {
                    if tree::stop_tree(bridge) {
                        return Ok(());
                    }
                    tree::wake_tree(bridge);
                    Err(io::Error::other("something in it does not stand still"))
                };
                blocking(FREEZE, stop).await
            }
            Err(error) => Err(error),
        };
        match frozen {
            Ok(()) => self.guard.pause(bridge, self.freezer(sandbox, FREEZE)?.as_ref()),
            Err(_) => drop(self.state().frozen.remove(&sandbox)),
        }
        frozen
    }

    /// Lets every process of a sandbox go on. One that was not frozen does so anyway; one that stands still for a
    /// moment goes on when whoever holds it has had enough, who would otherwise read what moves.
    pub(super) async fn thaw(self: &Arc<Self>, sandbox: SandboxRef) -> Result<(), HostError> {
        let is_held = {
            let mut state = self.state();
            // Whatever becomes of this, nobody wants it frozen from here on.
            state.frozen.remove(&sandbox);
            match state.held.get_mut(&sandbox) {
                Some(held) => {
                    held.stays = false;
                    true
                }
                None => false,
            }
        };
        let bridge = self.live_bridge(sandbox, THAW)?;
        self.guard.go(bridge);
        if is_held {
            return Ok(());
        }
        match self.freezer(sandbox, THAW)? {
            // A word is written, and nothing waited for: another thread would take longer to be asked.
            Some(cgroup) => cgroup.thaw().map_err(|error| failed(THAW, error)),
            None => {
                tree::wake_tree(bridge);
                Ok(())
            }
        }
    }

    /// Tells the guard of what was paused before. Blocks.
    pub(super) fn watch_paused(&self) {
        let of_all = self.files.names().into_iter().flatten();
        let all = of_all.flat_map(|session| self.files.of(session).unwrap_or_default());
        for sandbox in all {
            let Ok(bridge) = self.live_bridge(sandbox, FREEZE) else { continue };
            let Ok(freezer) = self.freezer(sandbox, FREEZE) else { continue };
            let is_frozen = match &freezer {
                Some(cgroup) => cgroup.is_to_be_frozen().unwrap_or(false),
                None => tree::is_stopped(bridge),
            };
            if is_frozen {
                self.guard.pause(bridge, freezer.as_ref());
            }
        }
    }

    /// Lets a sandbox go on that is frozen though nobody wants it: a freeze that was overtaken by a thaw,
    /// or a thaw that was cut short. Says whether it had to. Blocks.
    pub(super) fn thaw_if_forgotten(&self, sandbox: SandboxRef) -> Result<bool, HostError> {
        let told = |error: io::Error| failed(THAW, error);
        let freezer = self.freezer(sandbox, THAW)?;
        let bridge = match freezer {
            Some(_) => None,
            None => Some(self.live_bridge(sandbox, THAW)?),
        };
        let is_frozen = match (&freezer, bridge) {
            (Some(cgroup), _) => cgroup.is_to_be_frozen().map_err(told)?,
            (None, bridge) => bridge.is_some_and(tree::is_stopped),
        };
        if !is_frozen {
            return Ok(false);
        }
        // Held, so that nobody begins to freeze it in between.
        let state = self.state();
        let is_meant = state.frozen.contains(&sandbox) || state.held.contains_key(&sandbox);
        if is_meant || !state.is_connected(sandbox) {
            return Ok(false);
        }
        match (freezer, bridge) {
            (Some(cgroup), _) => cgroup.thaw().map_err(told)?,
            (None, bridge) => bridge.into_iter().for_each(tree::wake_tree),
        }
        drop(state);
        Ok(true)
    }

    fn freezer(
        &self,
        sandbox: SandboxRef,
        attempted: &'static str,
    ) -> Result<Option<Cgroup>, HostError> {
        let cgroup = self.cgroup(sandbox).map_err(|error| failed(attempted, error))?;
        Ok(cgroup.filter(|cgroup| cgroup.abilities().freeze))
    }

    /// Signals whatever is there of a sandbox; says whether there was nothing.
    fn kill_round(&self, sandbox: SandboxRef, signal: Signal) -> io::Result<bool> {
        if let Life::Alive(told) = self.files.life(sandbox)? {
            match self.process_of(sandbox, told) {
                Some(process) => {
                    self.guard.go(process);
                    tree::signal_tree(process, Signal::KILL);
                }
                // It is just coming up, or just going, or it is no bridge at all.
                None => drop(self.signal_strays(sandbox, signal)?),
            }
            return Ok(false);
        }
        self.signal_strays(sandbox, signal)
    }

    /// Signals what a dead sandbox left running; says whether there was nothing.
    fn signal_strays(&self, sandbox: SandboxRef, signal: Signal) -> io::Result<bool> {
        let strays = tree::at_home(&self.files.home(sandbox.session));
        // Looked at after the strays were found: what belongs to a later sandbox was locked before
        // it was started, so it is seen here, and spared.
        for other in self.files.of(sandbox.session)? {
            if other > sandbox && matches!(self.files.life(other)?, Life::Alive(_)) {
                return Ok(true);
            }
        }
        for stray in &strays {
            stray.send(signal);
        }
        Ok(strays.is_empty())
    }

    pub(super) fn live_bridge(
        &self,
        sandbox: SandboxRef,
        attempted: &'static str,
    ) -> Result<Process, HostError> {
        match self.files.life(sandbox).map_err(|error| failed(attempted, error))? {
            Life::Alive(told) => {
                self.process_of(sandbox, told).ok_or_else(|| failed(attempted, "it is not found"))
            }
            Life::Dead | Life::Unborn => Err(failed(attempted, "it is not there")),
        }
    }
}

/// Does something short that blocks.
async fn blocking(
    attempted: &'static str,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<(), HostError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| failed(attempted, error))?;
    done.map_err(|error| failed(attempted, error))
}
