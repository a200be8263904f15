//! Sandboxes that are found: whose process one is, how it is isolated, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::Death;
use ash_core::number::SpoolPosition;
use tokio::time::timeout;

use super::enclosure::Enclosure;
use super::files::Life;
use super::footing::Footing;
use super::inner::Inner;
use super::process::{Isolation, Process, Started};
use super::tree;
use super::word::failed;
use crate::host::{HostError, Reporter, SandboxRef};

/// How long the end of a sandbox may take to be noticed.
const DEATH_TIMEOUT: Duration = Duration::from_secs(8);

impl Inner {
    /// Whether a sandbox was started by a server that isolates agents otherwise than this one. What nothing was
    /// written down of is believed to be ours only where nothing is promised.
    pub(super) fn is_isolated_otherwise(&self, sandbox: SandboxRef) -> bool {
        let ours = self.options.enclosure.isolation();
        let children = &self.state().children;
        let found = Started::read(&self.files.process(sandbox)).map(|started| started.isolation);
        !children.contains_key(&sandbox) && found.unwrap_or(Isolation::None) != ours
    }

    /// Whether a sandbox that is alive works on directories that are not in their place any more. What cannot be
    /// looked at now is not believed to be gone.
    pub(super) fn has_lost_its_files(&self, sandbox: SandboxRef) -> bool {
        let started = Started::read(&self.files.process(sandbox));
        let begun_on = started.and_then(|started| started.footing);
        match Footing::of(&self.files, sandbox.session) {
            Ok(Some(there)) => begun_on.is_some_and(|begun_on| !begun_on.is(there)),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Whether a sandbox that is alive is not to be gone on with.
    pub(super) fn is_of_no_use(&self, sandbox: SandboxRef) -> bool {
        self.is_isolated_otherwise(sandbox) || self.has_lost_its_files(sandbox)
    }

    /// Ends a sandbox that is of no use, and remembers why.
    pub(super) async fn end_of_no_use(
        self: &Arc<Self>,
        sandbox: SandboxRef,
    ) -> Result<(), HostError> {
        let session = sandbox.session;
        if self.is_isolated_otherwise(sandbox) {
            tracing::warn!(
                session.id = %session,
                "the sandbox of session {session} is isolated otherwise than this server does it, and is ended",
            );
        } else {
            tracing::warn!(
                session.id = %session,
                "the files of session {session} were removed or replaced under its sandbox, which is ended",
            );
            self.state().reasons.insert(sandbox, Death::FilesGone);
        }
        self.kill(sandbox).await
    }

    /// Notices the end of a sandbox that an earlier server started.
    pub(super) fn adopt(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        told: Option<u32>,
    ) -> Result<(), HostError> {
        let attempted = "adopt a sandbox";
        if self.state().children.contains_key(&sandbox) {
            return Ok(());
        }
        // One that cannot be found can still be talked to: its end is noticed by its connection.
        let Some(process) = self.process_of(sandbox, told) else { return Ok(()) };
        let cgroup = self.cgroup(sandbox).map_err(|error| failed(attempted, error))?;
        if let Some(pidfd) = process.handle() {
            self.watch(sandbox, Some(process), pidfd, cgroup);
        }
        Ok(())
    }

    /// Connects to a sandbox that is alive and not frozen, and listens to it.
    pub(super) async fn listen_to(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        told: Option<u32>,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<(), HostError> {
        self.adopt(sandbox, told)?;
        let connected = self.connect(sandbox, after.get()).await;
        let connection = connected.map_err(|error| failed("attach to a sandbox", error))?;
        self.pump(sandbox, connection, after, reporter)
    }

    /// How a sandbox ended, if that was watched.
    pub(super) async fn death_of(&self, sandbox: SandboxRef) -> Option<Death> {
        if let Some(reason) = self.state().reasons.get(&sandbox) {
            return Some(reason.clone());
        }
        let mut child = self.state().children.get(&sandbox).cloned()?;
        let ended = timeout(DEATH_TIMEOUT, child.death.wait_for(Option::is_some)).await;
        ended.ok()?.ok()?.clone()
    }

    /// The process of a bridge that is alive: our own child, or what its spool says.
    pub(super) fn process_of(&self, sandbox: SandboxRef, told: Option<u32>) -> Option<Process> {
        let child = self.state().children.get(&sandbox).cloned();
        let living = child.filter(|child| child.death.borrow().is_none());
        if let Some(process) = living.and_then(|child| child.process) {
            return Some(process);
        }
        match (Started::read(&self.files.process(sandbox)), &self.options.enclosure) {
            (Some(started), _) => Some(started.process()).filter(|process| process.is_there()),
            // What it says itself is not believed of one in a sandbox.
            (None, Enclosure::Sandbox(_)) => None,
            // Looked at before its name is: whoever has the number later is another.
            (None, Enclosure::Nothing) => {
                told.and_then(Process::of).filter(|process| self.is_bridge(process.pid))
            }
        }
    }

    /// Whether a process number that a spool names still belongs to a bridge.
    fn is_bridge(&self, pid: u32) -> bool {
        let program = self.options.bridge.file_name();
        program.is_some_and(|program| tree::has_name(pid, &program.to_string_lossy()))
    }

    /// Every sandbox that is alive.
    pub(super) async fn list(self: Arc<Self>) -> Result<Vec<SandboxRef>, HostError> {
        let attempted = "list sandboxes";
        // It looks at what every session has left.
        let listed = tokio::task::spawn_blocking(move || self.files.alive()).await;
        let listed = listed.map_err(|error| failed(attempted, error))?;
        listed.map_err(|error| failed(attempted, error))
    }

    /// Whether a sandbox that lived is dead, or about to be. Blocks.
    pub(super) fn is_over(&self, sandbox: SandboxRef) -> bool {
        match self.files.life(sandbox) {
            Ok(Life::Dead) => true,
            Ok(Life::Alive(told)) => self.process_of(sandbox, told).is_some_and(Process::is_ending),
            Ok(Life::Unborn) | Err(_) => false,
        }
    }

    /// How strongly a sandbox is isolated, as whoever started it wrote down.
    pub(super) fn isolation_of(&self, sandbox: SandboxRef) -> Option<Isolation> {
        if let Some(known) = self.state().isolation.get(&sandbox) {
            return Some(*known);
        }
        let found = Started::read(&self.files.process(sandbox))?.isolation;
        self.state().isolation.insert(sandbox, found);
        Some(found)
    }
}
