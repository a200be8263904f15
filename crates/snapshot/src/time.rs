//! What a repository takes from its surroundings: the time, by two clocks, and numbers that nobody else has.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Where time and new numbers are from.
pub(crate) struct Surroundings {
    pub(crate) time: Box<dyn Fn() -> Time + Send + Sync>,
    /// Later ones sort after earlier ones, more or less.
    pub(crate) unique: Box<dyn Fn() -> [u8; 16] + Send + Sync>,
}

impl Surroundings {
    /// Those of this machine.
    pub(crate) fn real() -> Self {
        let unique = || uuid::Uuid::now_v7().into_bytes();
        Self { time: Box::new(Time::now), unique: Box::new(unique) }
    }
}

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time {
    /// As others have it too, more or less: milliseconds since 1970.
    pub(crate) wall: i64,
    /// Since some moment of this machine. It never goes back, and goes on while the machine sleeps.
    pub(crate) steady: Duration,
}

impl Time {
    pub(crate) fn now() -> Self {
        let steady = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(steady.tv_sec).unwrap_or(0);
        let nanoseconds = u32::try_from(steady.tv_nsec).unwrap_or(0);
        Self { wall: wall(), steady: Duration::new(seconds, nanoseconds) }
    }

    /// How long it is since an earlier one.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        self.steady.saturating_sub(earlier.steady)
    }
}

/// Milliseconds since 1970.
pub(crate) fn wall() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}
