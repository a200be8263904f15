//! Which sandboxes are kept ready, and what has to be done about it: decided here, done elsewhere.
//!
//! ```text
//!             arrived           take          claimed
//!   Coming ───────────► Ready ────────► Taken ────────► (a session's)
//!     │                   │               │ given up
//!     └────── dismissed ──┴───────────────┴──────────► Unwanted ──► Ending ──► (gone)
//! ```

use std::collections::BTreeMap;

/// What waits for a session, and what should.
#[derive(Debug)]
pub(super) struct Stock<Key, Id> {
    wanted: Vec<(Key, usize)>,
    /// How many may be kept at all.
    most: usize,
    kept: BTreeMap<Id, Item<Key>>,
    closed: bool,
}

#[derive(Debug)]
struct Item<Key> {
    key: Key,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Is being started; and whether it is still wanted then.
    Coming {
        wanted: bool,
    },
    Ready,
    /// A session is about to have it.
    Taken,
    /// Has to be ended.
    Unwanted,
    Ending,
    /// Could not be ended.
    Stuck,
}

impl Stage {
    /// Whether it waits for a session, or will.
    fn waits(self) -> bool {
        match self {
            Self::Coming { wanted } => wanted,
            Self::Ready => true,
            Self::Taken | Self::Unwanted | Self::Ending | Self::Stuck => false,
        }
    }
}

/// What has to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<Key, Id> {
    /// Start one; [`Stock::begin`] says that it is being done.
    Start(Key),
    /// End this one.
    End(Id),
}

/// What became of one that was to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is not waiting any more: a session has it, or nothing of it runs.
    Gone,
    /// It is on its way out, or in.
    There,
    /// It cannot be ended.
    Stuck,
}

impl<Key: Clone + PartialEq, Id: Copy + Ord> Stock<Key, Id> {
    /// With nothing in it, and nothing wanted.
    pub(super) fn new() -> Self {
        Self { wanted: Vec::new(), most: 0, kept: BTreeMap::new(), closed: false }
    }

    /// Says what is wanted. Those who want the same share it: as many as the one that wants the most.
    pub(super) fn want(&mut self, wanted: impl IntoIterator<Item = (Key, usize)>, most: usize) {
        self.wanted.clear();
        self.most = most;
        for (key, count) in wanted {
            match self.wanted.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => *known = count.max(*known),
                None => self.wanted.push((key, count)),
            }
        }
    }

    /// What has to be done next, if anything. One is started at a time, those of which there are the
    /// fewest first; the oldest are ended first.
    pub(super) fn next(&mut self) -> Option<Step<Key, Id>> {
        let unwanted = self.kept.iter().find(|(_, item)| item.stage == Stage::Unwanted);
        if let Some(id) = unwanted.map(|(&id, _)| id).or_else(|| self.surplus()) {
            self.set(id, Stage::Ending);
            return Some(Step::End(id));
        }
        let starts = self.kept.values().any(|item| matches!(item.stage, Stage::Coming { .. }));
        if self.closed || starts || self.waiting() >= self.most {
            return None;
        }
        let lacking = self.wanted.iter().filter(|(key, count)| self.waiting_with(key) < *count);
        let fewest = lacking.min_by_key(|(key, _)| self.waiting_with(key));
        fewest.map(|(key, _)| Step::Start(key.clone()))
    }

    /// One is being started, if it still may be.
    pub(super) fn begin(&mut self, id: Id, key: Key) -> bool {
        if !self.closed {
            self.kept.insert(id, Item { key, stage: Stage::Coming { wanted: true } });
        }
        !self.closed
    }

    /// One has come up.
    pub(super) fn arrived(&mut self, id: Id) {
        match self.stage(id) {
            Some(Stage::Coming { wanted: true }) => self.set(id, Stage::Ready),
            Some(Stage::Coming { wanted: false }) => self.set(id, Stage::Unwanted),
            Some(Stage::Ready | Stage::Taken | Stage::Unwanted | Stage::Ending | Stage::Stuck)
            | None => {}
        }
    }

    /// Takes the oldest that fits.
    pub(super) fn take(&mut self, key: &Key) -> Option<Id> {
        let fits = |item: &Item<Key>| item.stage == Stage::Ready && item.key == *key;
        let id = self.kept.iter().find(|(_, item)| fits(item)).map(|(&id, _)| id)?;
        self.set(id, Stage::Taken);
        Some(id)
    }

    /// It is a session's now, or nothing of it is left.
    pub(super) fn gone(&mut self, id: Id) {
        self.kept.remove(&id);
    }

    /// It is of no use: it did not come up, has died, or could not be made a session's.
    pub(super) fn give_up(&mut self, id: Id) {
        if !matches!(self.stage(id), Some(Stage::Ending | Stage::Stuck)) {
            self.set(id, Stage::Unwanted);
        }
    }

    /// It has to go, unless somebody takes it just now.
    pub(super) fn dismiss(&mut self, id: Id) -> Presence {
        match self.stage(id) {
            None => return Presence::Gone,
            Some(Stage::Stuck) => return Presence::Stuck,
            Some(Stage::Coming { .. }) => self.set(id, Stage::Coming { wanted: false }),
            Some(Stage::Ready) => self.set(id, Stage::Unwanted),
            Some(Stage::Taken | Stage::Unwanted | Stage::Ending) => {}
        }
        Presence::There
    }

    /// It could not be ended.
    pub(super) fn stuck(&mut self, id: Id) {
        self.set(id, Stage::Stuck);
    }

    /// Tries again to end those that could not be.
    pub(super) fn try_again(&mut self) {
        for item in self.kept.values_mut().filter(|item| item.stage == Stage::Stuck) {
            item.stage = Stage::Unwanted;
        }
    }

    /// All have to go, and none comes any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
        let all: Vec<Id> = self.kept.keys().copied().collect();
        for id in all {
            self.dismiss(id);
        }
    }

    /// Whether nothing is left that can be ended.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.values().all(|item| item.stage == Stage::Stuck)
    }

    /// The oldest of which there are too many, if there are.
    fn surplus(&self) -> Option<Id> {
        let too_many = self.waiting() > self.most;
        let ready = self.kept.iter().filter(|(_, item)| item.stage == Stage::Ready);
        let mut surplus = ready
            .filter(|(_, item)| too_many || self.waiting_with(&item.key) > self.wanted(&item.key));
        surplus.next().map(|(&id, _)| id)
    }

    fn wanted(&self, key: &Key) -> usize {
        self.wanted.iter().find(|(known, _)| known == key).map_or(0, |(_, count)| *count)
    }

    fn waiting(&self) -> usize {
        self.kept.values().filter(|item| item.stage.waits()).count()
    }

    fn waiting_with(&self, key: &Key) -> usize {
        self.kept.values().filter(|item| item.stage.waits() && item.key == *key).count()
    }

    fn stage(&self, id: Id) -> Option<Stage> {
        self.kept.get(&id).map(|item| item.stage)
    }

    fn set(&mut self, id: Id, stage: Stage) {
        if let Some(item) = self.kept.get_mut(&id) {
            item.stage = stage;
        }
    }
}

#[cfg(test)]
mod test {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// What may happen to a stock.
    #[derive(Clone, Debug)]
    enum Happens {
        Want(Vec<(u8, usize)>, usize),
        Arrive,
        Fail,
        Take(u8),
        Claim,
        GiveUp,
        Dismiss(u32),
        End,
        Stick,
        TryAgain,
    }

    fn happens() -> impl Strategy<Value = Happens> {
        let wanted = prop::collection::vec((0_u8..3, 0_usize..4), 0..4);
        prop_oneof![
            1 => (wanted, 0_usize..6).prop_map(|(wanted, most)| Happens::Want(wanted, most)),
            6 => Just(Happens::Arrive),
            1 => Just(Happens::Fail),
            3 => (0_u8..3).prop_map(Happens::Take),
            2 => Just(Happens::Claim),
            1 => Just(Happens::GiveUp),
            2 => (0_u32..20).prop_map(Happens::Dismiss),
            4 => Just(Happens::End),
            1 => Just(Happens::Stick),
            1 => Just(Happens::TryAgain),
        ]
    }

    /// A stock, and what runs because of it.
    struct Kept {
        stock: Stock<u8, u32>,
        made: u32,
        coming: Option<u32>,
        taken: BTreeSet<u32>,
        ending: BTreeSet<u32>,
        running: BTreeSet<u32>,
    }

    impl Kept {
        fn new() -> Self {
            Self {
                stock: Stock::new(),
                made: 0,
                coming: None,
                taken: BTreeSet::new(),
                ending: BTreeSet::new(),
                running: BTreeSet::new(),
            }
        }

        /// Does what there is to do.
        fn work(&mut self) {
            while let Some(step) = self.stock.next() {
                match step {
                    Step::Start(key) => {
                        assert_eq!(self.coming, None, "one at a time");
                        self.made += 1;
                        assert!(self.stock.begin(self.made, key));
                        self.coming = Some(self.made);
                        self.running.insert(self.made);
                    }
                    Step::End(id) => assert!(self.ending.insert(id), "{id} is ended once"),
                }
            }
        }

        fn see(&mut self, happens: Happens) {
            match happens {
                Happens::Want(wanted, most) => self.stock.want(wanted, most),
                Happens::Arrive => {
                    if let Some(id) = self.coming.take() {
                        self.stock.arrived(id);
                    }
                }
                Happens::Fail => {
                    if let Some(id) = self.coming.take() {
                        self.stock.give_up(id);
                    }
                }
                Happens::Take(key) => {
                    if let Some(id) = self.stock.take(&key) {
                        assert!(self.taken.insert(id), "{id} is taken once");
                        assert!(!self.ending.contains(&id) && self.coming != Some(id));
                    }
                }
                Happens::Claim => {
                    if let Some(id) = self.taken.pop_first() {
                        self.stock.gone(id);
                        self.running.remove(&id);
                    }
                }
                Happens::GiveUp => {
                    if let Some(id) = self.taken.pop_first() {
                        self.stock.give_up(id);
                    }
                }
                Happens::Dismiss(id) => {
                    let there = self.running.contains(&id);
                    assert_eq!(self.stock.dismiss(id) != Presence::Gone, there);
                }
                Happens::End => {
                    if let Some(id) = self.ending.pop_first() {
                        self.stock.gone(id);
                        self.running.remove(&id);
                    }
                }
                Happens::Stick => {
                    if let Some(id) = self.ending.pop_first() {
                        self.stock.stuck(id);
                    }
                }
                Happens::TryAgain => self.stock.try_again(),
            }
            self.work();
        }

        /// Lets everything that goes on come to its end.
        fn settle(&mut self) {
            self.stock.try_again();
            self.work();
            while self.coming.is_some() || !self.ending.is_empty() || !self.taken.is_empty() {
                for happens in [Happens::Arrive, Happens::GiveUp, Happens::End] {
                    self.see(happens);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn none_is_taken_twice_or_while_it_comes_or_goes_and_one_starts_at_a_time(
            history in prop::collection::vec(happens(), 0..60),
        ) {
            let mut kept = Kept::new();
            for happens in history {
                kept.see(happens);
            }
        }

        #[test]
        fn there_are_as_many_as_wanted_once_it_comes_to_rest(
            history in prop::collection::vec(happens(), 0..60),
            wanted in prop::collection::vec((0_u8..3, 0_usize..4), 0..5),
            most in 0_usize..8,
        ) {
            let mut kept = Kept::new();
            for happens in history {
                kept.see(happens);
            }
            kept.see(Happens::Want(wanted.clone(), most));
            kept.settle();
            let mut total = 0;
            let mut counts = Vec::new();
            for key in 0_u8..3 {
                let largest = wanted.iter().filter(|(of, _)| *of == key).map(|(_, count)| *count);
                let largest = largest.max().unwrap_or_default();
                let mut found = 0;
                while kept.stock.take(&key).is_some() {
                    found += 1;
                }
                prop_assert!(found <= largest);
                total += largest;
                counts.push(found);
            }
            prop_assert_eq!(counts.iter().sum::<usize>(), total.min(most));
            prop_assert_eq!(kept.running.len(), total.min(most), "nothing else runs");
        }

        #[test]
        fn nothing_is_left_when_it_is_closed(history in prop::collection::vec(happens(), 0..60)) {
            let mut kept = Kept::new();
            for happens in history {
                kept.see(happens);
            }
            kept.stock.close();
            kept.settle();
            prop_assert!(kept.stock.is_empty() && kept.running.is_empty());
        }
    }
}
