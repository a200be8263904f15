//! Which snapshots are kept.

use std::collections::HashMap;

use crate::error::{Result, SnapshotError};
use crate::gc::{Others, unreadable};
use crate::repository::Repository;
use crate::snapshot::SnapshotId;

impl Repository {
    /// Forgets all snapshots of each source but the last ones; returns which. Who is alone removes them. One
    /// whose record is damaged is no snapshot to keep, and none to forget unasked: it is named, and nothing is
    /// forgotten.
    pub fn keep_last(&self, count: usize, others: Others) -> Result<Vec<SnapshotId>> {
        self.forget_all_but(count, others, &|_| true)
    }

    /// The same for one source alone: snapshots of others stay.
    pub fn keep_last_of(
        &self,
        source: &str,
        count: usize,
        others: Others,
    ) -> Result<Vec<SnapshotId>> {
        self.forget_all_but(count, others, &|whose| whose == Some(source))
    }

    fn forget_all_but(
        &self,
        count: usize,
        others: Others,
        is_meant: &dyn Fn(Option<&str>) -> bool,
    ) -> Result<Vec<SnapshotId>> {
        let mut kept: HashMap<Option<String>, usize> = HashMap::new();
        let mut ids = Vec::new();
        for (id, read) in self.history()? {
            let snapshot = read.map_err(|error| unreadable(id, error))?;
            if !is_meant(snapshot.source.as_deref()) {
                continue;
            }
            let kept = kept.entry(snapshot.source).or_default();
            if *kept < count {
                *kept += 1;
            } else {
                ids.push(id);
            }
        }
        // Oldest first: whoever is stopped has kept the later ones.
        ids.reverse();
        let mut forgotten = Vec::new();
        for id in ids {
            let gone = match others {
                Others::MayCapture => self.forget(id),
                Others::AreAway => self.remove(id),
            };
            match gone {
                Ok(()) => forgotten.push(id),
                // By somebody else.
                Err(SnapshotError::Missing(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(forgotten)
    }

    /// Removes a snapshot, also one whose record is damaged, for who is alone with the repository: nothing is
    /// kept for captures that rely on it. It needs no space.
    pub fn remove(&self, id: SnapshotId) -> Result<()> {
        match self.snapshot(id) {
            Err(error @ SnapshotError::Missing(_)) => Err(error),
            Err(error) if error.is_transient() => Err(error),
            Ok(_) | Err(_) => self.take_back(id),
        }
    }
}
