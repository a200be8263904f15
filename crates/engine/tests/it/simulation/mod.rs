//! A seeded simulation: clients, followers, a store that fails and loses answers, a host that is
//! slow, late, double or dead, and an engine that is killed at any step it takes and started anew.
//!
//! Everything runs on one thread with paused time, so a seed is a history: `make sim SEED=n`
//! plays it again, `make sim SEEDS=100000` looks for new ones.

mod alarm;
mod check;
mod people;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use ash_core::entry::Entry;
use ash_engine::testing::{HostFaults, StoreFaults};
use world::{Plan, World};

/// How many seeds an ordinary test run plays.
const SEEDS: u64 = 200;

#[test]
fn every_seed_keeps_every_promise() {
    let (first, count) = match (number("ASH_SIM_SEED"), number("ASH_SIM_SEEDS")) {
        (Some(seed), _) => (seed, 1),
        (None, count) => (1, count.unwrap_or(SEEDS)),
    };
    let mut told = Told::default();
    for seed in first..first + count {
        told.add(&play(seed, &Plan::random(seed)));
    }
    if count >= SEEDS {
        told.must_be_worth_telling();
    }
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in [3, 17, 99] {
        let plan = Plan::random(seed);
        assert_eq!(play(seed, &plan), play(seed, &plan), "seed {seed} is not repeatable");
    }
}

/// A short story, with the engine killed at its first step, at its second, and so on, until it
/// gets through without reaching the step at which it should die.
#[test]
fn an_engine_can_be_killed_at_every_step() {
    kill_at_every_step(7, 2, StoreFaults::default(), HostFaults::default());
}

/// The same with one place for two sessions: each start has to make room.
#[test]
fn an_engine_can_be_killed_at_every_step_of_making_room() {
    kill_at_every_step(7, 1, StoreFaults::default(), HostFaults::default());
}

/// The same in a world in which answers are lost and calls fail.
#[test]
fn an_engine_can_be_killed_at_every_step_of_a_bad_day() {
    let slowness = Duration::from_millis(3);
    let store = StoreFaults { fails: 30, loses_answer: 30, slowness, ..StoreFaults::default() };
    let host =
        HostFaults { call_fails: 50, loses_answer: 50, doubles: 200, ..HostFaults::default() };
    kill_at_every_step(8, 1, store, host);
}

/// The same with agents that ask before each thing they do.
#[test]
fn an_engine_can_be_killed_at_every_step_of_answering_questions() {
    let host = HostFaults { asks: 1_000, ..HostFaults::default() };
    kill_at_every_step(9, 2, StoreFaults::default(), host);
}

fn kill_at_every_step(seed: u64, places: u32, store: StoreFaults, host: HostFaults) {
    let host = HostFaults { slowness: Duration::from_millis(5), ..host };
    let mut step = 1;
    loop {
        let plan = Plan { clients: 2, wishes: 4, crash_steps: vec![step], store, host, places };
        let history = play(seed, &plan);
        if history.crashes == 0 {
            break;
        }
        step += 1;
    }
    assert!(step > 100, "the story has only {step} steps: it tells too little");
}

/// What happened in all the histories together: a simulation in which nothing goes wrong any more
/// proves nothing.
#[derive(Default)]
struct Told {
    crashes: u64,
    kinds: BTreeMap<&'static str, u64>,
    outcomes: BTreeMap<&'static str, u64>,
    pauses: BTreeMap<String, u64>,
}

impl Told {
    fn add(&mut self, history: &world::History) {
        self.crashes += history.crashes;
        for entry in history.logs.values().flatten() {
            *self.kinds.entry(entry.entry.kind()).or_default() += 1;
            if let Entry::RunEnded { outcome, .. } = &entry.entry {
                *self.outcomes.entry(outcome.status().as_str()).or_default() += 1;
            }
            if let Entry::SessionPaused { reason } = &entry.entry {
                *self.pauses.entry(format!("{reason:?}")).or_default() += 1;
            }
        }
    }

    fn must_be_worth_telling(&self) {
        eprintln!(
            "{} crashes, {:?}, {:?}, {:?}",
            self.crashes, self.outcomes, self.pauses, self.kinds
        );
        assert!(self.crashes > 50, "{} crashes", self.crashes);
        for outcome in ["completed", "cancelled", "interrupted", "failed"] {
            assert!(self.outcomes.contains_key(outcome), "no run was {outcome}");
        }
        for reason in ["Requested", "Idle", "Evicted", "ServerRestart"] {
            assert!(self.pauses.contains_key(reason), "no session was paused: {reason}");
        }
        for kind in [
            "session_resumed",
            "session_failed",
            "session_stopped",
            "run_cancelling",
            "permission_request",
            "permission_decided",
            "permission_answered",
        ] {
            assert!(self.kinds.contains_key(kind), "there was no {kind}");
        }
    }
}

fn play(seed: u64, plan: &Plan) -> world::History {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can always be built");
    let alarm = alarm::Alarm::default();
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let history = tracing::subscriber::with_default(alarm.clone(), || {
            runtime.block_on(World::play(seed, plan))
        });
        assert_eq!(alarm.rung(), Vec::<String>::new(), "the engine reported a defect");
        history
    }));
    played.unwrap_or_else(|panic| {
        eprintln!("seed {seed} failed with {plan:?}; replay it with: make sim SEED={seed}");
        std::panic::resume_unwind(panic)
    })
}

fn number(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "how `make sim` says which seeds to play")]
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a seed is a number"))
}
