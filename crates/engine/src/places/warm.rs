//! The places of sandboxes that wait for a session.

use std::sync::{Arc, Weak};

use ash_core::pool::Kind;

use super::{Places, Reservation, Standing, Warm};
use crate::host::WarmId;
use crate::registry::Registry;
use crate::shared::Shared;

/// Lends places to a host for sandboxes that wait for a session.
#[derive(Clone)]
pub struct WarmPlaces {
    // Not to keep an engine alive that keeps its host alive.
    engine: Weak<Shared>,
    most: usize,
}

impl WarmPlaces {
    pub(crate) fn of(engine: &Arc<Shared>) -> Self {
        let most = usize::try_from(engine.policy.max_prewarmed).unwrap_or(usize::MAX);
        Self { engine: Arc::downgrade(engine), most }
    }

    /// How many there may be at most.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Takes a place, if one is free that nobody waits for.
    pub(crate) async fn take(&self, warm: WarmId) -> bool {
        let Some(engine) = self.engine.upgrade() else { return false };
        if engine.tasks.is_closing() || engine.places.count(&*engine.store).await.is_err() {
            return false;
        }
        let mut state = engine.places.state();
        let is_free = state.taken() < engine.places.most && !state.is_awaited();
        if is_free {
            state.warm.insert(warm, Warm { since: engine.now(), kind: Kind::Starting });
        }
        is_free
    }

    /// Takes a place for a sandbox that an earlier server left, whether or not one is free: it is there.
    pub(crate) fn hold(&self, warm: WarmId) {
        if let Some(engine) = self.engine.upgrade() {
            let left = Warm { since: engine.now(), kind: Kind::Leaving };
            engine.places.state().warm.insert(warm, left);
        }
    }

    /// The sandbox is up, and waits.
    pub(crate) fn arrived(&self, warm: WarmId) {
        if let Some(engine) = self.engine.upgrade()
            && let Some(warm) = engine.places.state().warm.get_mut(&warm)
        {
            warm.kind = Kind::Prewarmed;
        }
    }

    /// Gives a place back: nothing of the sandbox runs.
    pub(crate) fn give_back(&self, warm: WarmId) {
        if let Some(engine) = self.engine.upgrade() {
            engine.places.state().warm.remove(&warm);
        }
    }

    /// The sandbox has become a session's, which has a place of its own.
    pub(crate) fn claimed(&self, warm: WarmId) {
        if let Some(engine) = self.engine.upgrade() {
            engine.places.state().warm.remove(&warm);
            engine.counts.prewarmed();
        }
    }
}

impl Places {
    /// Makes the place of a sandbox that is gone somebody's who wants one, unless there were more than there may
    /// be. Says whether it still had one, and whether there is room now.
    fn inherit(&self, warm: WarmId, reserved: &Reservation) -> (bool, bool) {
        let mut state = self.state();
        let had_one = state.warm.remove(&warm).is_some();
        let makes_room = had_one && state.taken() < self.most;
        if makes_room {
            state.reservations.insert(reserved.number, Standing::Has);
        }
        (had_one, makes_room)
    }
}

impl Registry {
    /// Has a sandbox that waits for a session make room. Says whether there is a place now.
    pub(super) async fn have_warm_go(&self, warm: WarmId, reserved: &Reservation) -> bool {
        let shared = self.shared();
        match shared.host.end_warm(warm).await {
            Ok(()) => {
                let (had_one, makes_room) = shared.places.inherit(warm, reserved);
                if had_one {
                    shared.counts.evicted();
                }
                makes_room
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a sandbox that waits for a session does not make room",
                );
                false
            }
        }
    }
}
