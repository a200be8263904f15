//! Captures, forgetting and collections at the same time, in an order that a number decides.
//!
//! Everybody is a thread of its own with a repository of its own, and passes a turnstile before each call
//! to the store. One goes at a time: when all stand at the turnstile, or have ended, the number says who is
//! next, whether the clock moves and how far, and who dies. So whatever is found is found again.

mod actors;
mod directed;
mod turnstile;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::chunks::{Chunks, Part};
use crate::error::Result;
use crate::id::ChunkKind;
use crate::repository::Repository;
use crate::snapshot::{Snapshot, SnapshotId};
use crate::tree::Kind;

use actors::{Actor, Role};
use turnstile::{Turns, Turnstile};

/// The grace period.
const GRACE: Duration = Duration::from_secs(1000);

/// What a tree was: the text of each file.
type Texts = BTreeMap<Vec<u8>, Vec<u8>>;

/// What was said to be there.
type Acknowledged = Arc<Mutex<BTreeMap<SnapshotId, [Texts; 2]>>>;

/// Numbers that look as if they were random, and are the same for the same seed.
#[derive(Clone)]
struct Numbers(u64);

impl Numbers {
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Reads a snapshot back.
fn read(repository: &Repository, snapshot: &Snapshot) -> Result<[Texts; 2]> {
    let mut all = [Texts::new(), Texts::new()];
    for (root, texts) in snapshot.roots.iter().zip(&mut all) {
        repository.walk(root, 1000, &mut |path, entry| {
            if let Kind::File(content) = &entry.kind {
                let mut text = Vec::new();
                Chunks::of(repository).each(ChunkKind::Data, *content, &mut |part| {
                    match part {
                        Part::Bytes(bytes) => text.extend_from_slice(&bytes),
                        Part::Zeros(size) => text.resize(text.len() + size as usize, 0),
                    }
                    Ok(())
                })?;
                texts.insert(path.to_owned(), text);
            }
            Ok(())
        })?;
    }
    Ok(all)
}

/// What happened in a schedule.
#[derive(Default)]
struct Happened {
    acknowledged: usize,
    removed: u64,
    rewritten: u64,
}

impl Happened {
    fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.removed += other.removed;
        self.rewritten += other.rewritten;
    }
}

/// Plays one schedule, and looks whether everything is there that should be.
fn play(seed: u64) -> std::result::Result<Happened, String> {
    let turns = Turns::new(seed);
    let acknowledged = Acknowledged::default();
    actors::past(&turns, &mut Numbers::of(seed + 7), &acknowledged);
    let wrong = Arc::default();
    let roles = [Role::Captures, Role::Captures, Role::Forgets, Role::Collects, Role::Collects];
    let actors: Vec<Actor> = roles
        .into_iter()
        .enumerate()
        .map(|(number, role)| {
            let turnstile = Turnstile::of(&turns, number);
            Actor::new(
                role,
                turnstile,
                Numbers::of(seed * 31 + number as u64),
                &acknowledged,
                &wrong,
            )
        })
        .collect();
    let happened = std::thread::scope(|scope| {
        let actors = actors.into_iter().map(|actor| scope.spawn(move || actor.act()));
        let actors: Vec<_> = actors.collect();
        turns.play();
        let mut happened = Happened::default();
        actors.into_iter().for_each(|actor| happened.add(&actor.join().unwrap()));
        happened
    });
    if let Err(what) = check(&turns, &acknowledged) {
        wrong.lock().unwrap().push(what);
    }
    match wrong.lock().unwrap().first() {
        Some(what) => Err(format!("schedule {seed}: {what}")),
        None => {
            let acknowledged = acknowledged.lock().unwrap().len();
            Ok(Happened { acknowledged, ..happened })
        }
    }
}

/// Whether everything can be read back that was acknowledged and not forgotten.
fn check(turns: &Turns, acknowledged: &Acknowledged) -> std::result::Result<(), String> {
    let repository = Repository::open(turns.store()).unwrap();
    for (id, texts) in &*acknowledged.lock().unwrap() {
        let found = repository.snapshot(*id).and_then(|snapshot| read(&repository, &snapshot));
        match found {
            Ok(found) if found == *texts => {}
            Ok(_) => return Err(format!("{id} is not what it was")),
            Err(error) => return Err(format!("{id}: {error}")),
        }
    }
    Ok(())
}

/// How many schedules are played.
const SCHEDULES: u64 = 600;

#[test]
fn whoever_goes_when_what_was_acknowledged_is_there() {
    let next = AtomicU64::new(1);
    let play = || {
        let (mut all, mut wrong) = (Happened::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > SCHEDULES {
                return (all, wrong);
            }
            match play(seed) {
                Ok(happened) => all.add(&happened),
                Err(what) => wrong.push(what),
            }
        }
    };
    // Most of it is waiting for each other.
    let (mut all, mut wrong) = (Happened::default(), Vec::new());
    std::thread::scope(|scope| {
        let players: Vec<_> = (0..4).map(|_| scope.spawn(play)).collect();
        for player in players {
            let (happened, found) = player.join().unwrap();
            all.add(&happened);
            wrong.extend(found);
        }
    });
    let Happened { acknowledged, removed, rewritten } = all;
    assert!(wrong.is_empty(), "{} schedules: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    // A test in which nothing happens notices nothing.
    let all = usize::try_from(SCHEDULES).unwrap();
    assert!(acknowledged > 2 * all, "{acknowledged} snapshots");
    assert!(removed > SCHEDULES && rewritten > SCHEDULES / 10, "{removed} and {rewritten} packs");
}

#[test]
fn a_schedule_is_played_again_by_its_number() {
    for seed in 1..=5 {
        let calls = |seed| {
            let turns = Turns::new(seed);
            let (acknowledged, wrong) = (Acknowledged::default(), Arc::default());
            let actors = [Role::Captures, Role::Collects, Role::Captures].into_iter().enumerate();
            let actors: Vec<Actor> = actors
                .map(|(number, role)| {
                    let turnstile = Turnstile::of(&turns, number);
                    Actor::new(
                        role,
                        turnstile,
                        Numbers::of(seed + number as u64),
                        &acknowledged,
                        &wrong,
                    )
                })
                .collect();
            std::thread::scope(|scope| {
                for actor in actors {
                    scope.spawn(move || actor.act());
                }
                turns.play();
            });
            turns.calls()
        };
        assert!(calls(seed) == calls(seed), "schedule {seed}");
    }
}
