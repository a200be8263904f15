//! What every part of an engine needs.

use std::sync::Arc;

use ash_core::id::OwnerId;
use ash_core::policy::{Context, Policy};
use ash_core::time::{Clock, Timestamp};
use ash_store::Store;

use crate::bus::Bus;
use crate::host::SandboxHost;
use crate::ids::IdSource;
use crate::tasks::Tasks;

pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) host: Arc<dyn SandboxHost>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) policy: Policy,
    pub(crate) ids: IdSource,
    /// This life of this process.
    pub(crate) owner: OwnerId,
    pub(crate) bus: Arc<Bus>,
    pub(crate) tasks: Tasks,
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context { now: self.now(), policy: &self.policy }
    }
}
