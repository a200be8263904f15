//! The clocks of production.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ash_core::time::{Clock, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// A steady clock comes closer to the one it follows by no more than this part of the time that passes.
const SHARE: u32 = 10;

/// Two clocks that differ by more than this are apart because one of them was set.
const APART: Duration = Duration::from_secs(5);

/// The time as the operating system tells it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        timestamp(wall())
    }
}

/// The time as the operating system tells it, without its jumps: whatever waits for a deadline is not late because
/// somebody has set the clock of the machine. It begins with the time of the machine, never goes back, and follows
/// a clock that was set slowly. Time during which the machine slept has passed.
#[derive(Debug)]
pub struct SteadyClock(Mutex<Steady>);

impl SteadyClock {
    /// A clock that shows the time of the machine.
    pub fn new() -> Self {
        Self(Mutex::new(Steady { shown: wall(), at: since_boot(), is_apart: false }))
    }
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        let mut steady = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        timestamp(steady.follow(wall(), since_boot()))
    }
}

/// What a steady clock showed last.
#[derive(Debug)]
struct Steady {
    shown: Duration,
    /// When that was, by a clock that nobody sets.
    at: Duration,
    is_apart: bool,
}

impl Steady {
    /// What it shows when the clock that it follows shows `wall`, and the one that nobody sets `now`.
    fn follow(&mut self, wall: Duration, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        let ours = self.shown.saturating_add(passed);
        let difference = wall.abs_diff(ours);
        let step = difference.min(passed / SHARE);
        self.shown = if wall >= ours { ours.saturating_add(step) } else { ours - step };
        if (difference > APART) != self.is_apart {
            self.is_apart = !self.is_apart;
            if self.is_apart {
                let seconds = difference.as_secs();
                tracing::warn!(
                    seconds,
                    "the clock of this machine was set; the server follows it slowly, or when it is started again"
                );
            }
        }
        self.shown
    }
}

/// Since 1970.
fn wall() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "this is the one place the time comes from")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Since the machine was started, also while it slept.
fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

fn timestamp(since_epoch: Duration) -> Timestamp {
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod test {
    use super::*;

    const BEGIN: Duration = Duration::from_secs(1_750_000_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn steady() -> Steady {
        Steady { shown: BEGIN, at: Duration::ZERO, is_apart: false }
    }

    #[test]
    fn a_jump_ends_nothing_whichever_way_it_goes() {
        for ahead in [true, false] {
            let mut steady = steady();
            let mut shown = BEGIN;
            for second in 1..=100 {
                let passed = Duration::from_secs(second);
                let set = if ahead { BEGIN + 24 * HOUR } else { BEGIN - 24 * HOUR };
                let now = steady.follow(set + passed, passed);
                let tick = now.checked_sub(shown).expect("it never goes back");
                let most = Duration::from_millis(if ahead { 1_100 } else { 900 });
                assert_eq!(tick, most, "no deadline comes much sooner, or later");
                shown = now;
            }
            assert!(steady.is_apart);
        }
    }

    #[test]
    fn it_shows_the_true_time_and_comes_back_to_it() {
        let mut steady = steady();
        let second = Duration::from_secs(1);
        assert_eq!(steady.follow(BEGIN + second, second), BEGIN + second);
        // A machine that slept for a night.
        let night = 8 * HOUR + second;
        assert_eq!(steady.follow(BEGIN + night, night), BEGIN + night);
        // Set by a minute, and followed within ten.
        let minute = Duration::from_secs(60);
        let mut now = night;
        for _ in 0..600 {
            now += second;
            steady.follow(BEGIN + minute + now, now);
        }
        assert_eq!(steady.follow(BEGIN + minute + now, now), BEGIN + minute + now);
        assert!(!steady.is_apart);
        // Asked twice at once, or by somebody who looked a moment earlier.
        assert_eq!(steady.follow(BEGIN + minute + now, now - second), BEGIN + minute + now);
    }

    #[test]
    fn the_clocks_of_this_machine_agree() {
        let steady = SteadyClock::new();
        let (before, now, after) = (SystemClock.now(), steady.now(), SystemClock.now());
        assert!(before <= now.plus(APART) && now <= after.plus(APART), "{before:?} {now:?}");
    }
}
