//! What a host remembers of its sandboxes while it lives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ash_core::failure::Death;
use ash_core::id::SessionId;
use ash_core::number::Incarnation;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection::Question;
use super::options::EgressGuard;
use super::process::{Isolation, Process};
use crate::host::SandboxRef;

#[derive(Default)]
pub(super) struct State {
    pub(super) links: BTreeMap<SandboxRef, Link>,
    pub(super) children: BTreeMap<SandboxRef, ChildOfOurs>,
    pub(super) egress: BTreeMap<SandboxRef, EgressGuard>,
    /// How strongly those are isolated that somebody asked about.
    pub(super) isolation: BTreeMap<SandboxRef, Isolation>,
    /// Those that are frozen, or about to be, because somebody wants it.
    pub(super) frozen: BTreeSet<SandboxRef>,
    /// Those that stand still for a moment while their files are counted or captured.
    pub(super) held: BTreeMap<SandboxRef, Held>,
    /// Why those were ended that we ended.
    pub(super) reasons: BTreeMap<SandboxRef, Death>,
    /// Of each session, the incarnations that must not be started any more.
    pub(super) stopped_through: BTreeMap<SessionId, Incarnation>,
    /// Since when the disk is known to be full.
    pub(super) full_since: Option<Instant>,
    /// Whether a sandbox is being ended for that.
    pub(super) makes_room: bool,
}

impl State {
    /// Whether somebody listens to a sandbox.
    pub(super) fn is_connected(&self, sandbox: SandboxRef) -> bool {
        self.links.contains_key(&sandbox)
    }
}

/// A sandbox that stands still for a moment.
pub(super) struct Held {
    /// For how many.
    pub(super) by: u32,
    /// It stood still before, and nobody has wanted it to go on since: an earlier server has paused it.
    pub(super) stays: bool,
}

/// A bridge that this process started.
#[derive(Clone)]
pub(super) struct ChildOfOurs {
    pub(super) process: Option<Process>,
    /// How it ended, once it has.
    pub(super) death: watch::Receiver<Option<Death>>,
    /// How many of its processes had been killed for their memory when it was last seen alive.
    pub(super) ooms: Arc<AtomicU64>,
}

/// The way to a sandbox that is connected.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) questions: mpsc::Sender<Question>,
    pub(super) pump: AbortHandle,
    /// Tells the pump to connect again.
    pub(super) lost: Arc<Notify>,
}
