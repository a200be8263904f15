//! How a sandbox that is only a process tree is ended, all of it.

use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::files::Life;
use super::plain::{Inner, failed};
use super::tree;
use crate::host::{HostError, SandboxRef};

/// How long everything of it may take to be gone.
const DEATH_TIMEOUT: Duration = Duration::from_secs(8);

/// How long what a killed bridge left behind may take to end by itself.
const GRACE: Duration = Duration::from_millis(300);

/// How long to wait between two looks.
const LOOK: Duration = Duration::from_millis(5);

impl Inner {
    /// Kills everything of a sandbox. Returns when nothing of it runs.
    pub(super) async fn kill(&self, sandbox: SandboxRef) -> Result<(), HostError> {
        let attempted = "stop a sandbox";
        let begin = Instant::now();
        while begin.elapsed() < DEATH_TIMEOUT {
            // At first what is left is only woken: keepers see by themselves that the bridge is
            // gone, and find what has hidden from us.
            let signal = if begin.elapsed() < GRACE { Signal::CONT } else { Signal::KILL };
            match self.files.life(sandbox).map_err(|error| failed(attempted, error))? {
                Life::Alive(Some(pid)) if tree::is_bridge(pid) => {
                    tree::signal_tree(pid, Signal::KILL);
                }
                // It is just coming up, or just going, or it is no bridge at all.
                Life::Alive(_) => {
                    self.strays_are_gone(sandbox, signal)
                        .map_err(|error| failed(attempted, error))?;
                }
                Life::Dead | Life::Unborn => {
                    if self
                        .strays_are_gone(sandbox, signal)
                        .map_err(|error| failed(attempted, error))?
                    {
                        return Ok(());
                    }
                }
            }
            sleep(LOOK).await;
        }
        Err(failed(attempted, "something of it is still there"))
    }

    /// Signals what a dead sandbox left running; says whether there was nothing.
    fn strays_are_gone(&self, sandbox: SandboxRef, signal: Signal) -> io::Result<bool> {
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
            Life::Alive(Some(pid)) if tree::is_bridge(pid) => Ok(pid),
            Life::Alive(_) | Life::Dead | Life::Unborn => Err(failed(attempted, "it is not there")),
        }
    }
}
