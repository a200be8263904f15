//! A machine whose clock is set while sessions are there, by days and in both directions.
//!
//! The server's own clock follows such a jump slowly (`crates/engine/src/clock.rs`). Here it follows at once, which is
//! what a server finds that was started after the clock was set: whatever its deadlines make of that, nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ash_core::number::Turn;
use ash_core::resume::Native;
use ash_core::session::IfRunning;
use ash_core::time::{Clock, Timestamp};
use ash_engine::{Point, RequireState, SystemClock};

use crate::world::{World, tenant};

const DAY: i64 = 24 * 60 * 60 * 1000;

/// The time of the machine, and what somebody has set it forward by, in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetClock(Arc<AtomicI64>);

impl SetClock {
    fn set_by(&self, milliseconds: i64) {
        self.0.fetch_add(milliseconds, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(SystemClock.now().as_millis() + self.0.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn a_session_outlives_a_clock_that_is_set_by_days() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, "My name is Ada.").await;
    world.captured(session).await;
    let mut turn = 1;
    for (days, is_restarted) in [(2, false), (-4, false), (3, true), (-5, true), (30, true)] {
        world.clock.set_by(days * DAY);
        if is_restarted {
            world.kill_engine().await;
        }
        turn += 1;
        let told = world.say(session, &format!("/bash echo {turn} > n.txt")).await;
        assert!(told.kinds().contains(&"run_ended"), "{:?}", told.kinds());
        assert_eq!(world.captured(session).await.turn, Turn::new(turn), "set by {days} days");
        world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
        // While it is paused, too.
        world.clock.set_by(-DAY);
        let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
        let receipt = back.receipt.unwrap();
        assert_eq!(receipt.conversation.native, Native::Intact, "set by {days} days");
        turn += 1;
        let answer = world.say(session, "Who am I?\n/recall").await.text();
        assert!(answer.contains("My name is Ada."), "set by {days} days: {answer}");
        let n = world.host.workspace(session).join("n.txt");
        assert_eq!(std::fs::read_to_string(n).unwrap(), format!("{}\n", turn - 1));
        // One whose time is over before it was stored is given up, and its turn has none.
        world.captured(session).await;
    }
    // Every turn can be gone back to, whatever the time was said to be.
    for turn in 1..=turn {
        let point = Point::Turn(Turn::new(turn));
        let fork = world.engine.fork(&tenant(), session, point, None).await;
        let fork = fork.unwrap_or_else(|error| panic!("turn {turn}: {error}"));
        assert_eq!(fork.session.lineage().turns(), turn);
    }
    world.end().await;
}
