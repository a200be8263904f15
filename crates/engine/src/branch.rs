//! The branch that a conversation is on: which part of the log belongs to it, and which snapshot came before another.

use std::collections::{BTreeMap, BTreeSet};

use ash_core::entry::Entry;
use ash_core::id::RunId;
use ash_core::lineage::Lineage;
use ash_core::number::{Seq, Turn};
use ash_core::session::{LogEntry, Session};
use ash_core::snapshot::Snapshot;
use ash_store::RunRecord;

/// Which entries of a session's log are part of its conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// Runs of which nothing is: those of turns that were left, and those of which no turn had come before the last
    /// rewind or fork.
    left: BTreeSet<RunId>,
    /// Runs of which only the begin is, with its last entry.
    through: BTreeMap<RunId, Seq>,
    /// For what was said without a run: the turns, and when the conversation last went back. Nothing, if it never did.
    turns: Option<(Lineage, Seq)>,
}

impl Branch {
    /// Whether a session's whole log is its conversation: it was never forked nor rewound.
    pub(crate) fn is_everything(session: &Session) -> bool {
        let lineage = session.lineage();
        // Sessions of the first versions do not know when they were.
        session.branched_at() == Seq::ZERO && lineage.turns() == lineage.last().get()
    }

    /// What the runs of a session say about it.
    pub(crate) fn of(session: &Session, runs: &[RunRecord]) -> Self {
        let lineage = session.lineage();
        let turns = Some((lineage.clone(), session.branched_at()));
        let mut branch = Self { turns, ..Self::default() };
        for run in runs {
            match run.turn {
                None if run.prompt_seq >= session.branched_at() => {}
                Some(turn) if lineage.contains(turn) => {
                    let through = lineage.through(turn).map(|through| (run.id, through));
                    branch.through.extend(through);
                }
                None | Some(_) => drop(branch.left.insert(run.id)),
            }
        }
        branch
    }

    /// Whether an entry is part of the conversation.
    pub fn has(&self, logged: &LogEntry) -> bool {
        if let (Entry::Aside { turn, .. }, Some((lineage, branched_at))) =
            (&logged.entry, &self.turns)
        {
            // Said after it went back, it is on the branch, wherever in a turn that begins.
            let is_told = |through: Seq| logged.seq <= through || logged.seq > *branched_at;
            let is_on_it = *turn == Turn::ZERO || lineage.contains(*turn);
            return is_on_it && lineage.through(*turn).is_none_or(is_told);
        }
        logged.entry.run().is_none_or(|run| {
            let is_told = self.through.get(&run).is_none_or(|through| logged.seq <= *through);
            is_told && !self.left.contains(&run)
        })
    }
}

/// The snapshot that another one followed, among those that are older, newest first: of the same turn, or else of the
/// nearest turn before it on its branch.
pub(crate) fn previous(
    lineage: &Lineage,
    of: &Snapshot,
    older: impl IntoIterator<Item = Snapshot>,
) -> Option<Snapshot> {
    let older: Vec<Snapshot> = older.into_iter().collect();
    let (mut turn, mut through) = (of.turn, of.through);
    loop {
        let found = older.iter().find(|kept| kept.turn == turn && leads_to(kept, through));
        if found.is_some() || turn == Turn::ZERO {
            return found.cloned();
        }
        (turn, through) = lineage.continued_by(turn);
    }
}

/// Whether a turn that is known through an entry, or to its end, was what this snapshot of it says: it is of just that
/// part, or was made in the middle of it.
fn leads_to(snapshot: &Snapshot, through: Option<Seq>) -> bool {
    let in_the_middle = snapshot.through == Some(snapshot.seq);
    snapshot.through == through
        || (in_the_middle && through.is_none_or(|through| snapshot.seq <= through))
}

#[cfg(test)]
mod test {
    use ash_core::id::SnapshotId;
    use ash_core::snapshot::Captured;
    use ash_core::time::Timestamp;

    use super::*;

    fn snapshot(turn: u32, seq: u64, through: Option<u64>) -> Snapshot {
        let id =
            SnapshotId::from_parts(Timestamp::from_millis(1), [u8::try_from(seq).unwrap(); 10]);
        Snapshot {
            captured: Captured {
                id,
                files: 0,
                bytes: 0,
                new_bytes: 0,
                unfrozen: 0,
                unstable: 0,
                unproven: false,
            },
            seq: Seq::new(seq),
            turn: Turn::new(turn),
            through: through.map(Seq::new),
            at: Timestamp::from_millis(1),
            transcript: None,
            completed_runs: 0,
            lost: None,
        }
    }

    #[test]
    fn what_came_before_a_snapshot_is_found_along_its_branch() {
        let mut lineage = Lineage::default();
        for _ in 0..3 {
            lineage.begin();
        }
        let first = snapshot(1, 10, None);
        let (middle, second) = (snapshot(2, 15, Some(15)), snapshot(2, 20, None));
        let third = snapshot(3, 30, None);
        // Rewound into the middle of 2, changed from outside, and gone on from there; then from 1.
        assert!(lineage.rewind_into(Turn::new(2), Some(Seq::new(15))));
        let changed = snapshot(2, 40, Some(15));
        lineage.begin();
        let fourth = snapshot(4, 50, None);
        assert!(lineage.rewind(Turn::new(1)));
        lineage.begin();
        let fifth = snapshot(5, 60, None);
        let all = [&fifth, &fourth, &changed, &third, &second, &middle, &first];
        let before = |of: &Snapshot| {
            let older = all.into_iter().skip_while(|kept| *kept != of).skip(1).cloned();
            previous(&lineage, of, older).map(|found| found.seq.get())
        };
        assert_eq!(
            all.map(before),
            [10, 40, 15, 20, 15, 10, 0].map(|seq| (seq > 0).then_some(seq))
        );
    }
}
