//! How a sandbox that is only a process tree is ended, all of it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::files::Life;
use super::plain::Inner;
use super::tree;
use super::word::failed;
use crate::host::{HostError, SandboxRef};

/// How long everything of it may take to be gone.
const DEATH_TIMEOUT: Duration = Duration::from_secs(8);

/// How long what a killed bridge left behind may take to end by itself.
const GRACE: Duration = Duration::from_millis(300);

/// How long to wait between two looks.
const LOOK: Duration = Duration::from_millis(5);

impl Inner {
    /// Kills everything of a sandbox. Returns when nothing of it runs.
    pub(super) async fn kill(self: &Arc<Self>, sandbox: SandboxRef) -> Result<(), HostError> {
        let attempted = "stop a sandbox";
        let begin = Instant::now();
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

    /// Signals whatever is there of a sandbox; says whether there was nothing.
    fn kill_round(&self, sandbox: SandboxRef, signal: Signal) -> io::Result<bool> {
        if let Life::Alive(told) = self.files.life(sandbox)? {
            match self.process_of(sandbox, told) {
                Some(pid) => tree::signal_tree(pid, Signal::KILL),
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
        for &stray in &strays {
            tree::send(stray, signal);
        }
        Ok(strays.is_empty())
    }

    pub(super) fn live_bridge(
        &self,
        sandbox: SandboxRef,
        attempted: &'static str,
    ) -> Result<u32, HostError> {
        match self.files.life(sandbox).map_err(|error| failed(attempted, error))? {
            Life::Alive(told) => {
                self.process_of(sandbox, told).ok_or_else(|| failed(attempted, "it is not found"))
            }
            Life::Dead | Life::Unborn => Err(failed(attempted, "it is not there")),
        }
    }
}
