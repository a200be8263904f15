//! What every part of an engine needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ash_core::number::Owner;
use ash_core::policy::{Context, Policy};
use ash_core::session::Session;
use ash_core::time::{Clock, Timestamp};
use ash_store::{Commit, Store};
use tokio::sync::Semaphore;

use crate::at_once::AtOnce;
use crate::bundle::Bundles;
use crate::bus::Bus;
use crate::cloud::Cloud;
use crate::counts::Counts;
use crate::host::SandboxHost;
use crate::housekeeping::Housekeeping;
use crate::ids::IdSource;
use crate::places::Places;
use crate::signal::Signal;
use crate::tasks::Tasks;
use crate::workspace::FileWork;

/// Numbers the connections to sandboxes. What comes over an earlier one than the driver's own is
/// not listened to: it is sent again over the later one, in order and without a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link(u64);

impl Link {
    /// Nobody's connection: something was seen from outside.
    pub(crate) const OUTSIDE: Self = Self(0);
}

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) host: Arc<dyn SandboxHost>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) policy: Policy,
    pub(crate) ids: IdSource,
    /// Which life of a server this is.
    pub(crate) owner: Owner,
    /// How many connections to sandboxes were made; each has a number.
    pub(crate) links: AtomicU64,
    pub(crate) bus: Arc<Bus>,
    pub(crate) tasks: Tasks,
    pub(crate) counts: Counts,
    /// For commands beside the agents.
    pub(crate) commands: AtOnce,
    pub(crate) file_work: FileWork,
    pub(crate) places: Arc<Places>,
    pub(crate) cloud: Option<Cloud>,
    pub(crate) housekeeping: Housekeeping,
    /// A session has come to rest, or is used again.
    pub(crate) rests: Arc<Signal<u64>>,
    /// Something was added to the queue, or is ready there.
    pub(crate) queue: Arc<Signal<u64>>,
    /// What bundles are made of, and where.
    pub(crate) bundles: Option<Bundles>,
    /// Taken while a session from elsewhere gets its name and is recorded: one at a time.
    pub(crate) imports: Semaphore,
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whoever waits for a session looks again, if it may have to do with what has changed; and the cloud looks at what
    /// was committed, if there is something for it.
    pub(crate) fn tell_of(&self, before: &Session, commit: &Commit) {
        let after = &commit.session;
        if before.is_at_rest() != after.is_at_rest() || before.status() != after.status() {
            self.rests.change(|count| *count += 1);
        }
        let Some(cloud) = &self.cloud else { return };
        if !commit.outbox.is_empty() {
            cloud.want(after.id());
        } else if before.persistence() != after.persistence() || before.sandbox() != after.sandbox()
        {
            cloud.tell();
        }
    }

    pub(crate) fn next_link(&self) -> Link {
        Link(self.links.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context { now: self.now(), policy: &self.policy }
    }
}
