//! Turns and rewinds: which turn continues which.
//!
//! A turn is a run's ordinal in the log and is never reused. After a rewind from 7 to 3 the next
//! turn is 8 and continues 3:
//!
//! ```text
//! 1 ── 2 ── 3 ── 4 ── 5 ── 6 ── 7        rewound: kept, no longer on the branch
//!           └─── 8 ── 9                  the branch: 1 2 3 8 9, five turns, head 9
//! ```
//!
//! Nearly every turn continues the one before it, so only the exceptions are kept. A rewind can also go into the middle
//! of a turn: then only the begin of it is part of the conversation, and of what continues it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::number::{Seq, Turn};

/// The turns of a session and the branch that the conversation is on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The highest turn ever begun.
    last: Turn,
    /// The turn that the next one continues.
    head: Turn,
    /// Turns that do not continue their predecessor, with the turn they do continue.
    jumps: BTreeMap<Turn, Turn>,
    /// The last entry of the head that is part of the conversation, if not all of it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head_through: Option<Seq>,
    /// Turns that continue only the begin of another one, with the last entry of that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    cuts: BTreeMap<Turn, Seq>,
}

impl Lineage {
    /// The turn that the next one continues; zero before the first.
    pub fn head(&self) -> Turn {
        self.head
    }

    /// The highest turn ever begun; zero before the first.
    pub fn last(&self) -> Turn {
        self.last
    }

    /// How many turns the current branch has.
    pub fn turns(&self) -> u32 {
        self.branch_segments().map(|(first, last)| last.get() - first.get() + 1).sum()
    }

    /// Begins the next turn; returns it and the turn it continues.
    pub fn begin(&mut self) -> (Turn, Turn) {
        let (turn, parent) = (self.last.next(), self.head);
        if parent != self.last {
            self.jumps.insert(turn, parent);
        }
        if let Some(through) = self.head_through.take() {
            self.cuts.insert(turn, through);
        }
        self.last = turn;
        self.head = turn;
        (turn, parent)
    }

    /// Makes `turn` the one that the next continues. It may lie on an abandoned branch, so that a
    /// rewind can itself be rewound; zero goes back to before the first turn. Returns whether
    /// there is such a turn.
    #[must_use]
    pub fn rewind(&mut self, turn: Turn) -> bool {
        self.rewind_into(turn, None)
    }

    /// The same, and of that turn only what is in the log through an entry is part of the conversation.
    #[must_use]
    pub fn rewind_into(&mut self, turn: Turn, through: Option<Seq>) -> bool {
        if turn > self.last {
            return false;
        }
        (self.head, self.head_through) = (turn, through);
        true
    }

    /// The last entry of a turn of the branch that is part of the conversation, if not all of it is.
    pub fn through(&self, turn: Turn) -> Option<Seq> {
        if turn == self.head {
            return self.head_through;
        }
        let continues = |child: Turn| self.parent(child) == turn && self.contains(child);
        self.cuts.iter().find(|(child, _)| continues(**child)).map(|(_, through)| *through)
    }

    /// The turn that another one continues, and through which entry if not all of it.
    pub fn continued_by(&self, turn: Turn) -> (Turn, Option<Seq>) {
        (self.parent(turn), self.cuts.get(&turn).copied())
    }

    fn parent(&self, turn: Turn) -> Turn {
        let before = Turn::new(turn.get().saturating_sub(1));
        self.jumps.get(&turn).copied().unwrap_or(before)
    }

    /// Whether `turn` is on the branch that the conversation is on.
    pub fn contains(&self, turn: Turn) -> bool {
        self.branch_segments().any(|(first, last)| first <= turn && turn <= last)
    }

    /// The branch from its head backwards, as runs of consecutive turns.
    fn branch_segments(&self) -> impl Iterator<Item = (Turn, Turn)> {
        let mut end = self.head;
        std::iter::from_fn(move || {
            if end == Turn::ZERO {
                return None;
            }
            let segment_end = end;
            let (first, parent) = match self.jumps.range(..=end).next_back() {
                Some((&first, &parent)) => (first, parent),
                None => (Turn::new(1), Turn::ZERO),
            };
            end = parent;
            Some((first, segment_end))
        })
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_rewound_turn_is_never_used_again() {
        let mut lineage = Lineage::default();
        for _ in 0..7 {
            lineage.begin();
        }
        assert!(lineage.rewind(Turn::new(3)));
        assert_eq!(lineage.turns(), 3);
        assert_eq!(lineage.begin(), (Turn::new(8), Turn::new(3)));
        assert_eq!(lineage.begin(), (Turn::new(9), Turn::new(8)));
        assert_eq!(lineage.turns(), 5);
        assert!(lineage.contains(Turn::new(2)) && !lineage.contains(Turn::new(5)));
    }

    #[test]
    fn a_rewind_can_be_rewound() {
        let mut lineage = Lineage::default();
        for _ in 0..4 {
            lineage.begin();
        }
        assert!(lineage.rewind(Turn::new(1)));
        lineage.begin();
        assert!(lineage.rewind(Turn::new(4)));
        assert_eq!((lineage.turns(), lineage.begin()), (4, (Turn::new(6), Turn::new(4))));
        assert!(!lineage.rewind(Turn::new(7)));
    }

    #[test]
    fn of_a_turn_that_was_rewound_into_only_the_begin_is_on_the_branch() {
        let mut lineage = Lineage::default();
        for _ in 0..3 {
            lineage.begin();
        }
        assert!(lineage.rewind_into(Turn::new(2), Some(Seq::new(7))));
        assert_eq!(lineage.through(Turn::new(2)), Some(Seq::new(7)));
        lineage.begin();
        lineage.begin();
        assert_eq!(
            lineage.through(Turn::new(2)),
            Some(Seq::new(7)),
            "what continues it knows no more"
        );
        assert_eq!((lineage.through(Turn::new(1)), lineage.through(Turn::new(5))), (None, None));
        assert_eq!(lineage.continued_by(Turn::new(4)), (Turn::new(2), Some(Seq::new(7))));
        assert!(lineage.rewind(Turn::new(3)));
        assert_eq!(lineage.through(Turn::new(2)), None, "turn 3 continues all of it");
        assert!(lineage.rewind(Turn::new(4)));
        assert_eq!(lineage.through(Turn::new(2)), Some(Seq::new(7)));
    }

    proptest! {
        /// The compact form says the same as a plain list of parents.
        #[test]
        fn agrees_with_a_list_of_parents(steps in prop::collection::vec(prop::option::of(0u32..40), 0..60)) {
            let mut lineage = Lineage::default();
            let mut parents: Vec<u32> = vec![0];
            let mut head = 0u32;
            for step in steps {
                match step {
                    None => {
                        parents.push(head);
                        let begun = lineage.begin();
                        prop_assert_eq!(begun.1.get(), head);
                        head = u32::try_from(parents.len()).unwrap() - 1;
                        prop_assert_eq!(begun.0.get(), head);
                    }
                    Some(turn) => {
                        let known = (turn as usize) < parents.len();
                        prop_assert_eq!(lineage.rewind(Turn::new(turn)), known);
                        if known {
                            head = turn;
                        }
                    }
                }
                let mut branch = Vec::new();
                let mut at = head;
                while at != 0 {
                    branch.push(at);
                    at = parents[at as usize];
                }
                prop_assert_eq!(lineage.turns() as usize, branch.len());
                for turn in 1..u32::try_from(parents.len()).unwrap() {
                    prop_assert_eq!(lineage.contains(Turn::new(turn)), branch.contains(&turn));
                }
            }
        }
    }
}
