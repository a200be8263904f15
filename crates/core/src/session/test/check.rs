//! What stands beside what in a log.

use super::super::LogEntry;
use super::world::World;
use crate::entry::{Entry, ResumePath};

impl World {
    /// What is told of a failure or a loss is told in an entry of its own, right beside.
    pub(super) fn check_neighbours(&self, next: &LogEntry) {
        let last = self.log.last();
        if let Entry::RunEnded { run, outcome, .. } = &next.entry {
            let failure = outcome.failure().cloned();
            let told = failure.map(|failure| Entry::RunError { run: *run, failure });
            let before = last.filter(|entry| matches!(entry, Entry::RunError { .. }));
            assert_eq!(before, told.as_ref(), "{run} ended as {outcome:?}");
        } else {
            assert!(!matches!(last, Some(Entry::RunError { .. })), "{next:?} after a run's error");
        }
        if let Entry::SessionResumed { receipt, path, .. } = &next.entry {
            let receipt = receipt.expect("every resume has a receipt");
            assert_eq!((receipt.last_seq.next(), receipt.path), (next.seq, *path));
            assert_eq!(receipt.source.is_none(), *path == ResumePath::Warm);
        }
        let lost = match last {
            // Once: a sandbox that is thawed has lost nothing more.
            Some(Entry::SessionResumed { receipt, path: ResumePath::Cold, .. }) => {
                receipt.is_some_and(|receipt| receipt.context_lost().is_some())
            }
            Some(_) | None => false,
        };
        assert_eq!(matches!(next.entry, Entry::ContextLost { .. }), lost, "{next:?}");
    }
}
