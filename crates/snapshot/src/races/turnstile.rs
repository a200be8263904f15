//! Who may call the store next.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::{GRACE, Numbers};
use crate::objects::{Listed, NewObject, Objects, Put};
use crate::time::{Surroundings, Time};

/// What everybody has in common: the objects, the clock, and whose turn it is.
#[derive(Clone)]
pub(super) struct Turns(Arc<Inner>);

struct Inner {
    shared: Mutex<Shared>,
    /// Somebody came to the turnstile, or has ended.
    changed: Condvar,
    /// It is the turn of this one.
    turns: [Condvar; ACTORS],
}

/// How many there are at the most.
const ACTORS: usize = 8;

struct Shared {
    numbers: Numbers,
    objects: BTreeMap<String, (Vec<u8>, i64)>,
    /// Milliseconds.
    now: i64,
    /// One call of so many, the clock moves.
    seldom: usize,
    /// By how much the clock of each is wrong.
    skews: Vec<i64>,
    /// Since when each of them stands at the turnstile, and what for.
    waiting: BTreeMap<usize, (i64, String)>,
    there: BTreeSet<usize>,
    dead: BTreeSet<usize>,
    /// Those that must not be kept waiting for long.
    hurried: BTreeSet<usize>,
    next: Option<usize>,
    /// Who goes before whom.
    order: Vec<usize>,
    /// How many numbers were given away.
    uniques: u64,
    /// Who did what.
    calls: Vec<(usize, String)>,
}

impl Shared {
    /// Who is next. Mostly the first in an order that seldom changes: so one is left standing in the middle of
    /// what it does while others do much.
    fn pick(&mut self) -> usize {
        for who in self.waiting.keys() {
            if !self.order.contains(who) {
                self.order.push(*who);
            }
        }
        if self.numbers.below(16) == 0 {
            let from = self.numbers.below(self.order.len());
            let moved = self.order.remove(from);
            let to = self.numbers.below(self.order.len() + 1);
            self.order.insert(to, moved);
        }
        let first = self.order.iter().find(|who| self.waiting.contains_key(who));
        *first.expect("somebody waits")
    }
}

fn grace() -> i64 {
    i64::try_from(GRACE.as_millis()).unwrap()
}

impl Turns {
    pub(super) fn new(seed: u64) -> Self {
        let mut numbers = Numbers::of(seed);
        let shared = Shared {
            // Much happens in little time, or little in much.
            seldom: numbers.one(&[6, 15, 60, 60]),
            numbers,
            objects: BTreeMap::new(),
            now: 1_000_000_000_000,
            skews: Vec::new(),
            waiting: BTreeMap::new(),
            there: BTreeSet::new(),
            dead: BTreeSet::new(),
            hurried: BTreeSet::new(),
            next: None,
            order: Vec::new(),
            uniques: 0,
            calls: Vec::new(),
        };
        Self(Arc::new(Inner {
            shared: Mutex::new(shared),
            changed: Condvar::new(),
            turns: std::array::from_fn(|_| Condvar::new()),
        }))
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.shared.lock().unwrap()
    }

    /// Lets one after the other go until all have ended.
    pub(super) fn play(&self) {
        let mut shared = self.shared();
        loop {
            while shared.next.is_some() || shared.waiting.len() < shared.there.len() {
                shared = self.0.changed.wait(shared).unwrap();
            }
            if shared.there.is_empty() {
                return;
            }
            let mut next = shared.pick();
            let seldom = shared.seldom;
            if shared.numbers.below(seldom) == 0 {
                let g = grace();
                let far = shared.numbers.one(&[g / 20, g / 8, g / 5, g / 3, g / 2, g + g / 3]);
                // A call of who is hurried is done before too long, however it is.
                let is_late = |(at, _): &(i64, String)| shared.now + far - at > g / 8;
                let late = shared
                    .hurried
                    .iter()
                    .filter(|hurried| shared.waiting.get(hurried).is_some_and(is_late));
                match late.copied().next() {
                    Some(late) => next = late,
                    None => shared.now += far,
                }
            }
            if shared.numbers.below(400) == 0 {
                shared.dead.insert(next);
            }
            let (_, call) = shared.waiting.remove(&next).unwrap();
            shared.calls.push((next, call));
            shared.next = Some(next);
            self.0.turns[next].notify_one();
        }
    }

    /// What was called, in order.
    pub(super) fn calls(&self) -> Vec<(usize, String)> {
        self.shared().calls.clone()
    }

    /// Moves the clock.
    pub(super) fn advance(&self, by: Duration) {
        self.shared().now += i64::try_from(by.as_millis()).unwrap();
    }

    /// What somebody whose clock is wrong by so much takes from the surroundings.
    pub(super) fn surroundings(&self, skew: i64) -> Surroundings {
        let turns = self.clone();
        let time = move || {
            let now = turns.shared().now;
            let steady = Duration::from_millis(u64::try_from(now).unwrap());
            Time { wall: now + skew, steady }
        };
        let turns = self.clone();
        let unique = move || {
            let mut shared = turns.shared();
            shared.uniques += 1;
            uuid::Uuid::from_u128(u128::from(shared.uniques)).into_bytes()
        };
        Surroundings { time: Box::new(time), unique: Box::new(unique) }
    }

    /// The store as it is, for who is alone with it.
    pub(super) fn store(&self) -> Box<dyn Objects> {
        Box::new(Store { turns: self.clone(), turnstile: None })
    }
}

/// The way of one of them to the store.
#[derive(Clone)]
pub(super) struct Turnstile {
    turns: Turns,
    who: usize,
}

impl Turnstile {
    pub(super) fn of(turns: &Turns, who: usize) -> Self {
        let mut shared = turns.shared();
        shared.there.insert(who);
        // Clocks differ by less than a quarter of the grace period.
        let eighth = usize::try_from(grace() / 8).unwrap();
        let skew = i64::try_from(shared.numbers.below(2 * eighth)).unwrap() - grace() / 8;
        shared.skews.push(skew);
        Self { turns: turns.clone(), who }
    }

    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// From now on none of its calls waits for long.
    pub(super) fn hurry(&self) {
        self.turns.shared().hurried.insert(self.who);
    }

    pub(super) fn store(&self) -> Box<dyn Objects> {
        Box::new(Store { turns: self.turns.clone(), turnstile: Some(self.clone()) })
    }

    pub(super) fn surroundings(&self) -> Surroundings {
        let skew = self.turns.shared().skews[self.who];
        self.turns.surroundings(skew)
    }

    /// Waits for its turn. The dead do not get through.
    pub(super) fn pass(&self, call: &str) -> io::Result<()> {
        let mut shared = self.turns.shared();
        let now = shared.now;
        shared.waiting.insert(self.who, (now, call.to_owned()));
        self.turns.0.changed.notify_all();
        while shared.next != Some(self.who) {
            shared = self.turns.0.turns[self.who].wait(shared).unwrap();
        }
        // The scheduler waits for the next call of this one, which is after this one was done.
        shared.next = None;
        if shared.dead.contains(&self.who) { Err(io::Error::other("dead")) } else { Ok(()) }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.turns.shared().dead.contains(&self.who)
    }
}

impl Turnstile {
    /// It has ended.
    pub(super) fn leave(&self) {
        self.turns.shared().there.remove(&self.who);
        self.turns.0.changed.notify_all();
    }
}

/// Objects in memory, behind a turnstile.
struct Store {
    turns: Turns,
    turnstile: Option<Turnstile>,
}

impl Store {
    fn pass(&self, call: &str, name: &str) -> io::Result<MutexGuard<'_, Shared>> {
        if let Some(turnstile) = &self.turnstile {
            turnstile.pass(&format!("{call} {name}"))?;
        }
        Ok(self.turns.shared())
    }

    /// Packs are read without waiting: they never change, and there would be too many turns.
    fn read<T>(&self, name: &str, read: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        let is_pack = name.starts_with("packs/");
        let shared = if is_pack { self.turns.shared() } else { self.pass("read", name)? };
        let found = shared.objects.get(name);
        found.map(|(bytes, _)| read(bytes)).ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Objects for Store {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        let mut shared = self.pass("put", name)?;
        let now = shared.now;
        if shared.objects.contains_key(name) {
            return Ok(Put::Existed);
        }
        shared.objects.insert(name.to_owned(), (bytes.to_owned(), now));
        Ok(Put::Created)
    }

    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>> {
        Ok(Box::new(New { store: self, bytes: Vec::new() }))
    }

    fn get(&self, name: &str, _most: u64) -> io::Result<Vec<u8>> {
        self.read(name, <[u8]>::to_vec)
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.read(name, |bytes| {
            let within = |at: u64| usize::try_from(at).unwrap().min(bytes.len());
            bytes[within(offset)..within(offset + length)].to_vec()
        })
    }

    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)> {
        self.read(name, |bytes| {
            let length = usize::try_from(length).unwrap().min(bytes.len());
            (bytes[bytes.len() - length..].to_vec(), bytes.len() as u64)
        })
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>> {
        let shared = self.pass("list", prefix)?;
        let listed = shared.objects.iter().filter(|(name, _)| name.starts_with(prefix));
        let listed = listed.map(|(name, (bytes, put_at))| Listed {
            name: name.clone(),
            size: bytes.len() as u64,
            put_at: *put_at,
        });
        Ok(listed.collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.pass("delete", name)?.objects.remove(name);
        Ok(())
    }

    fn clear(&self, _age: Duration) -> io::Result<()> {
        Ok(())
    }
}

struct New<'a> {
    store: &'a Store,
    bytes: Vec<u8>,
}

impl NewObject for New<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, name: &str) -> io::Result<Put> {
        self.store.put(name, &self.bytes)
    }
}
