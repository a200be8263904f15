//! A world for tests: a host that misbehaves on demand, a store that fails and loses answers, a
//! clock that obeys, and a gate that stops an engine dead at any step it takes.
//!
//! Everything draws its chances from one seeded [`Dice`], so that on a single-threaded runtime
//! with paused time the same seed gives the same history.

mod agent;
mod gated;
mod host;
mod store;
mod world;

use std::future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ash_core::time::{Clock, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use gated::GatedHost;
pub use host::{FakeHost, HostFaults};
pub use store::{FlakyStore, StoreFaults};

/// A repeatable source of chances.
pub struct Dice(Mutex<u64>);

impl Dice {
    /// The same rolls for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// A number below `below`, which is at least 1.
    pub fn roll(&self, below: u64) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // SplitMix64: tiny, well mixed, and every seed is a good one.
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    /// Whether something happens that does so `per_mille` times in a thousand.
    pub fn chance(&self, per_mille: u64) -> bool {
        per_mille > 0 && self.roll(1_000) < per_mille
    }

    /// A while of at most `most`.
    pub fn while_of(&self, most: Duration) -> Duration {
        let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.roll(micros.max(1)))
    }
}

/// The time of tokio's clock, which a test may pause and move.
pub struct TestClock {
    epoch: Instant,
}

impl TestClock {
    /// A clock that starts at a fixed date.
    pub fn new() -> Self {
        Self { epoch: Instant::now() }
    }
}

impl Default for TestClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_750_000_000_000).plus(self.epoch.elapsed())
    }
}

/// Counts every step an engine takes to the outside, and stops it dead at a chosen one: from then
/// on no call of that engine reaches the store or the host, as if its process were gone.
#[derive(Clone, Default)]
pub struct Gate(Arc<GateState>);

#[derive(Default)]
struct GateState {
    passed: AtomicU64,
    /// Zero: never.
    crash_at: AtomicU64,
    shut: AtomicBool,
    crashed: Notify,
}

impl Gate {
    /// A gate that shuts at the given step; zero lets everything pass.
    pub fn crashing_at(step: u64) -> Self {
        let gate = Self::default();
        gate.0.crash_at.store(step, Ordering::Relaxed);
        gate
    }

    /// One step. Never returns once the gate is shut.
    pub(crate) async fn pass(&self) {
        let step = self.0.passed.fetch_add(1, Ordering::Relaxed) + 1;
        if step == self.0.crash_at.load(Ordering::Relaxed) {
            self.0.shut.store(true, Ordering::Relaxed);
            self.0.crashed.notify_one();
        }
        if self.0.shut.load(Ordering::Relaxed) {
            future::pending::<()>().await;
        }
    }

    /// Shuts the gate now.
    pub fn shut(&self) {
        self.0.shut.store(true, Ordering::Relaxed);
    }

    /// How many steps were taken.
    pub fn passed(&self) -> u64 {
        self.0.passed.load(Ordering::Relaxed)
    }

    /// Resolves when the chosen step was reached.
    pub async fn crashed(&self) {
        self.0.crashed.notified().await;
    }
}
