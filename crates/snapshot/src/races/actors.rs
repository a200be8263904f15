//! Those who use a repository at the same time.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::turnstile::{Turns, Turnstile};
use super::{Acknowledged, GRACE, Happened, Numbers, Texts, check};
use crate::capture::{Capture, Root};
use crate::error::Result;
use crate::gc::Others;
use crate::repository::Repository;
use crate::snapshot::SnapshotId;
use crate::state::State;

/// What somebody does.
#[derive(Clone, Copy)]
pub(super) enum Role {
    Captures,
    Forgets,
    Collects,
}

/// Somebody who uses the repository.
pub(super) struct Actor {
    role: Role,
    turnstile: Turnstile,
    numbers: Numbers,
    acknowledged: Acknowledged,
    wrong: Arc<Mutex<Vec<String>>>,
}

/// Captures two of the trees.
pub(super) fn capture(
    repository: &Repository,
    picked: [usize; 2],
    state: &mut State,
) -> Result<(SnapshotId, [Texts; 2])> {
    let trees = trees();
    let roots = ["one", "other"].into_iter().zip(picked);
    let roots: Vec<Root<'_>> = roots
        .map(|(name, picked)| Root { name, path: trees[picked].0.path(), excluded: &[] })
        .collect();
    let capture = Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: None,
        threads: 1,
        progress: &|_| true,
    };
    let captured = repository.capture(&capture, state)?;
    Ok((captured.snapshot.id, picked.map(|picked| trees[picked].1.clone())))
}

/// What happened before: snapshots that are there or were forgotten, packs that nobody needs any more, and
/// some of them with marks, old and new.
pub(super) fn past(turns: &Turns, numbers: &mut Numbers, acknowledged: &Acknowledged) {
    let repository = Repository::within(turns.store(), GRACE, turns.surroundings(0)).unwrap();
    for _ in 0..1 + numbers.below(4) {
        let picked = [numbers.below(TREES), numbers.below(TREES)];
        let (id, texts) = capture(&repository, picked, &mut State::default()).unwrap();
        if numbers.below(4) == 0 {
            acknowledged.lock().unwrap().insert(id, texts);
        } else {
            repository.forget(id).unwrap();
        }
    }
    for _ in 0..numbers.below(3) {
        turns.advance(numbers.one(&[GRACE / 4, GRACE + GRACE / 8, GRACE * 2]));
        repository.gc(Others::MayCapture).unwrap();
    }
    turns.advance(numbers.one(&[GRACE / 4, GRACE, GRACE * 2]));
}

/// How often each does what it does.
const TURNS: usize = 10;

/// How many trees there are: few, so that the same is captured by several, and comes again.
const TREES: usize = 12;

/// Trees that do not change any more, and what is in them. Those next to each other share some of it.
fn trees() -> &'static [(tempfile::TempDir, Texts)] {
    static TREES_MADE: OnceLock<Vec<(tempfile::TempDir, Texts)>> = OnceLock::new();
    TREES_MADE.get_or_init(|| {
        let trees = (0..TREES).map(|number| {
            let tree = tempfile::tempdir().unwrap();
            let mut texts = Texts::new();
            for (file, text) in [("a", number), ("b", number + 1), ("c", number / 2)] {
                let text = format!("text {}\n", text % TREES).repeat(20);
                std::fs::write(tree.path().join(file), &text).unwrap();
                texts.insert(file.into(), text.into());
            }
            (tree, texts)
        });
        let trees = trees.collect();
        // What is younger than a tick of the clock is not relied on.
        let probe = tempfile::tempdir().unwrap();
        let stamped = |name: &str| {
            std::fs::write(probe.path().join(name), "").unwrap();
            std::fs::metadata(probe.path().join(name)).unwrap().modified().unwrap()
        };
        let first = stamped("first");
        while stamped("later") < first + Duration::from_millis(50) {
            std::thread::yield_now();
        }
        trees
    })
}

impl Actor {
    pub(super) fn new(
        role: Role,
        turnstile: Turnstile,
        numbers: Numbers,
        acknowledged: &Acknowledged,
        wrong: &Arc<Mutex<Vec<String>>>,
    ) -> Self {
        let (acknowledged, wrong) = (acknowledged.clone(), Arc::clone(wrong));
        Self { role, turnstile, numbers, acknowledged, wrong }
    }

    pub(super) fn act(mut self) -> Happened {
        let mut happened = Happened::default();
        let (store, surroundings) = (self.turnstile.store(), self.turnstile.surroundings());
        // Who dies while it opens does nothing.
        if let Ok(repository) = Repository::within(store, GRACE, surroundings) {
            match self.role {
                Role::Captures => self.capture(&repository),
                Role::Forgets => self.forget(&repository),
                Role::Collects => self.collect(&repository, &mut happened),
            }
        }
        self.turnstile.leave();
        happened
    }

    fn capture(&mut self, repository: &Repository) {
        let mut state = State::default();
        let mut picked = [0, 1];
        for _ in 0..TURNS {
            // Both stay, or one of them, or none; and some remember, and some find what is there.
            for picked in &mut picked {
                if self.numbers.below(2) == 0 {
                    *picked = self.numbers.below(TREES);
                }
            }
            if self.numbers.below(3) == 0 {
                state = State::default();
            }
            if let Ok((id, texts)) = capture(repository, picked, &mut state) {
                self.acknowledged.lock().unwrap().insert(id, texts);
                self.look();
            }
            if self.turnstile.is_dead() {
                return;
            }
        }
    }

    fn forget(&mut self, repository: &Repository) {
        self.turnstile.hurry();
        for _ in 0..TURNS * 2 {
            // Whoever has nothing to forget waits for a turn.
            if self.turnstile.pass("wait").is_err() {
                return;
            }
            let id = {
                let mut acknowledged = self.acknowledged.lock().unwrap();
                let ids: Vec<_> = acknowledged.keys().copied().collect();
                if ids.is_empty() {
                    continue;
                }
                let id = self.numbers.one(&ids);
                acknowledged.remove(&id);
                id
            };
            let _forgotten_or_dead = repository.forget(id);
        }
    }

    fn collect(&mut self, repository: &Repository, happened: &mut Happened) {
        for _ in 0..TURNS {
            if self.turnstile.pass("wait").is_err() {
                return;
            }
            // A snapshot that is about to be taken back may not be readable: nothing is removed then.
            if let Ok(collected) = repository.gc(Others::MayCapture) {
                happened.removed += collected.removed;
                happened.rewritten += collected.rewritten;
            }
            self.look();
        }
    }

    /// Looks whether everything is there, while all others stand still.
    fn look(&self) {
        if let Err(wrong) = check(self.turnstile.turns(), &self.acknowledged) {
            self.wrong.lock().unwrap().push(wrong);
        }
    }
}
