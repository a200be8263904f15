//! Orders that chance seldom finds: each shows one rule of collections, and loses something without it.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::actors::capture;
use super::turnstile::Turns;
use super::{Acknowledged, GRACE, check};
use crate::gc::Others;
use crate::id::Id;
use crate::objects::{Listed, NewObject, Objects, Put};
use crate::repository::{Repository, pack_name};
use crate::snapshot::SnapshotId;
use crate::state::State;

/// What is asked of a store, and with which name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Put,
    List,
    Delete,
}

/// Decides at which call others come in between.
type When = dyn FnMut(Call, &str) -> bool + Send;

/// A store whose user is interrupted: before one of its calls others do what they do.
struct Interrupted {
    below: Box<dyn Objects>,
    when: Mutex<Box<When>>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Whether the call is done first.
    after: bool,
}

impl Interrupted {
    fn call<T>(
        &self,
        call: Call,
        name: &str,
        done: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let is_now = self.when.lock().unwrap()(call, name);
        let then = if is_now { self.then.lock().unwrap().take() } else { None };
        match then {
            Some(then) if self.after => {
                let done = done();
                then();
                done
            }
            Some(then) => {
                then();
                done()
            }
            None => done(),
        }
    }
}

impl Objects for Interrupted {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        self.call(Call::Put, name, || self.below.put(name, bytes))
    }

    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>> {
        self.below.begin()
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        self.below.get(name, most)
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.below.get_range(name, offset, length)
    }

    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)> {
        self.below.get_end(name, length)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>> {
        self.call(Call::List, prefix, || self.below.list(prefix))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.call(Call::Delete, name, || self.below.delete(name))
    }

    fn clear(&self, age: Duration) -> io::Result<()> {
        self.below.clear(age)
    }
}

/// A store, a clock, and what was said to be there.
#[derive(Clone)]
struct Scene {
    turns: Turns,
    acknowledged: Acknowledged,
}

impl Scene {
    fn new() -> Self {
        Self { turns: Turns::new(1), acknowledged: Acknowledged::default() }
    }

    /// Somebody who uses the store.
    fn somebody(&self) -> Repository {
        Repository::within(self.turns.store(), GRACE, self.turns.surroundings(0)).unwrap()
    }

    /// Somebody whom others come in between once, before one of the calls to the store or after it.
    fn interrupted(
        &self,
        when: impl FnMut(Call, &str) -> bool + Send + 'static,
        then: impl FnOnce() + Send + 'static,
        after: bool,
    ) -> Repository {
        let store = Interrupted {
            below: self.turns.store(),
            when: Mutex::new(Box::new(when)),
            then: Mutex::new(Some(Box::new(then))),
            after,
        };
        Repository::within(Box::new(store), GRACE, self.turns.surroundings(0)).unwrap()
    }

    /// Captures the trees that all of this is about.
    fn capture(&self, repository: &Repository, state: &mut State) -> SnapshotId {
        let (id, texts) = capture(repository, [0, 0], state).unwrap();
        self.acknowledged.lock().unwrap().insert(id, texts);
        id
    }

    fn forget(&self, repository: &Repository, id: SnapshotId) {
        self.acknowledged.lock().unwrap().remove(&id);
        repository.forget(id).unwrap();
    }

    fn packs(&self) -> BTreeSet<Id> {
        self.somebody().packs().unwrap().into_iter().map(|(id, _)| id).collect()
    }

    fn pass(&self, time: Duration) {
        self.turns.advance(time);
    }

    /// All that was acknowledged and not forgotten is there.
    fn check(&self) {
        assert_eq!(check(&self.turns, &self.acknowledged), Ok(()));
    }
}

/// A snapshot in packs that were marked long ago, by somebody who did not see that it was being made; and what
/// whoever captured it remembers.
fn marked(scene: &Scene) -> (SnapshotId, State) {
    let somebody = scene.somebody();
    let mut state = State::default();
    let first = scene.capture(&somebody, &mut state);
    for pack in scene.packs() {
        somebody.put_mark(pack).unwrap();
    }
    scene.pass(GRACE * 2);
    (first, state)
}

fn is_record(call: Call, name: &str) -> bool {
    call == Call::Put && name.starts_with("snapshots/")
}

#[test]
fn what_is_remembered_from_a_snapshot_stays_when_it_is_forgotten_and_collected() {
    let scene = Scene::new();
    let (first, mut state) = marked(&scene);
    let others = scene.clone();
    let between = move || {
        let somebody = others.somebody();
        others.forget(&somebody, first);
        for _ in 0..3 {
            somebody.gc(Others::MayCapture).unwrap();
        }
    };
    let who_remembers = scene.interrupted(is_record, between, false);
    scene.capture(&who_remembers, &mut state);
    scene.check();
}

#[test]
fn a_snapshot_that_is_forgotten_between_two_lists_is_in_one_of_them() {
    let scene = Scene::new();
    let (first, mut state) = marked(&scene);
    let others = scene.clone();
    let between = move || {
        let again = others.clone();
        let mut lists = 0;
        let second_list = move |call, name: &str| {
            let looks = matches!(name, "snapshots/" | "forgotten/");
            lists += u32::from(call == Call::List && looks);
            lists == 2
        };
        let forgets = move || again.forget(&again.somebody(), first);
        others.interrupted(second_list, forgets, false).gc(Others::MayCapture).unwrap();
    };
    let who_remembers = scene.interrupted(is_record, between, false);
    scene.capture(&who_remembers, &mut state);
    scene.check();
}

#[test]
fn forgotten_records_stay_for_the_grace_period() {
    let scene = Scene::new();
    let somebody = scene.somebody();
    let first = scene.capture(&somebody, &mut State::default());
    scene.forget(&somebody, first);
    for wait in [0, 1, 1, 1] {
        scene.pass(GRACE / 4 * wait);
        somebody.gc(Others::MayCapture).unwrap();
        assert_eq!(somebody.forgotten().unwrap().len(), 1);
    }
    scene.pass(GRACE / 4);
    somebody.gc(Others::MayCapture).unwrap();
    assert_eq!(somebody.forgotten().unwrap().len(), 0);
}

#[test]
fn a_capture_that_looks_while_a_pack_is_removed_does_not_rely_on_it() {
    // Before each of the removals of a collection in turn.
    for number in 1..=8 {
        let scene = Scene::new();
        let (first, _) = marked(&scene);
        let somebody = scene.somebody();
        scene.acknowledged.lock().unwrap().remove(&first);
        somebody.remove(first).unwrap();
        let mut deletes = 0;
        let this_one = move |call, _: &str| {
            deletes += u32::from(call == Call::Delete);
            deletes == number
        };
        let others = scene.clone();
        let between = move || {
            others.capture(&others.somebody(), &mut State::default());
        };
        let collects = scene.interrupted(this_one, between, false);
        let collected = collects.gc(Others::MayCapture).unwrap();
        assert!(collected.removed > 0, "there is something to remove");
        scene.check();
    }
}

#[test]
fn marks_stay_until_their_packs_are_gone() {
    let scene = Scene::new();
    let (_, _) = marked(&scene);
    let marks = Arc::new(Mutex::new(Vec::new()));
    let (gone, store) = (Arc::clone(&marks), scene.turns.store());
    let collects = scene.interrupted(
        move |call, name| {
            if let (Call::Delete, Some(mark)) = (call, name.strip_prefix("gc/")) {
                let pack: Id = mark.split('.').next().unwrap().parse().unwrap();
                let is_there = store.get(&pack_name(pack), u64::MAX).is_ok();
                gone.lock().unwrap().push((name.to_owned(), is_there));
            }
            false
        },
        || {},
        false,
    );
    for _ in 0..4 {
        collects.gc(Others::MayCapture).unwrap();
        scene.pass(GRACE);
    }
    let marks = marks.lock().unwrap();
    assert!(!marks.is_empty(), "some packs were rewritten and removed");
    assert!(marks.iter().all(|(_, is_there)| !is_there), "{marks:?}");
    scene.check();
}

#[test]
fn nothing_is_removed_in_favor_of_a_pack_with_a_mark() {
    let scene = Scene::new();
    marked(&scene);
    let old = scene.packs();
    let somebody = scene.somebody();
    // Nobody relies on the old ones, so all of it is stored again: and badly.
    scene.capture(&somebody, &mut State::default());
    let store = scene.turns.store();
    let bad: BTreeSet<Id> = scene.packs().difference(&old).copied().collect();
    for pack in &bad {
        let name = pack_name(*pack);
        let mut bytes = store.get(&name, u64::MAX).unwrap();
        bytes[12] ^= 1;
        store.delete(&name).unwrap();
        store.put(&name, &bytes).unwrap();
        somebody.put_mark(*pack).unwrap();
    }
    scene.somebody().gc(Others::MayCapture).unwrap();
    scene.check();
    // And nobody relies on them later, for as long as they are there.
    let marks = somebody.marks().unwrap();
    let mut unmarked = bad.iter().filter(|pack| !marks.contains_key(pack));
    assert_eq!(unmarked.next(), None);
}

#[test]
fn a_collection_lists_in_the_order_that_the_argument_needs() {
    let scene = Scene::new();
    scene.capture(&scene.somebody(), &mut State::default());
    let lists = Arc::new(Mutex::new(Vec::new()));
    let listed = Arc::clone(&lists);
    let watch = move |call, name: &str| {
        if call == Call::List {
            listed.lock().unwrap().push(name.to_owned());
        }
        false
    };
    scene.interrupted(watch, || {}, false).gc(Others::MayCapture).unwrap();
    let mut lists = lists.lock().unwrap();
    lists.dedup();
    assert_eq!(*lists, ["snapshots/", "forgotten/", "gc/", "packs/"]);
}

#[test]
fn a_pack_that_is_put_while_packs_are_listed_stays_known() {
    let scene = Scene::new();
    let shared: Arc<Mutex<Option<Repository>>> = Arc::default();
    let (others, same) = (scene.clone(), Arc::clone(&shared));
    let taken = Arc::new(Mutex::new(None));
    let take = Arc::clone(&taken);
    let between = move || {
        let repository = same.lock().unwrap().clone().unwrap();
        *take.lock().unwrap() = Some(others.capture(&repository, &mut State::default()));
    };
    let is_list = |call, name: &str| call == Call::List && name == "packs/";
    let armed = Arc::new(Mutex::new(false));
    let is_armed = Arc::clone(&armed);
    let when = move |call, name: &str| is_list(call, name) && *is_armed.lock().unwrap();
    // The list is made, and before it is looked at, a capture of the same process puts a pack.
    let repository = scene.interrupted(when, between, true);
    *shared.lock().unwrap() = Some(repository.clone());
    *armed.lock().unwrap() = true;
    repository.refresh().unwrap();
    let id = taken.lock().unwrap().take().expect("somebody came in between");
    let snapshot = repository.snapshot(id).unwrap();
    // Without listing once more.
    repository.entry_at(&snapshot.roots[0], b"a").unwrap();
    shared.lock().unwrap().take();
}
