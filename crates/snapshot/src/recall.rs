//! A snapshot that was forgotten too early, put back: for those whose other records say later than it was forgotten
//! that it is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::error::{Result, SnapshotError};
use crate::repository::Repository;
use crate::snapshot::SnapshotId;

impl Repository {
    /// When the record of each snapshot was put, in milliseconds since 1970, as the store says. One that was copied
    /// here is younger than what it says of itself.
    pub fn put_times(&self) -> Result<BTreeMap<SnapshotId, i64>> {
        let listed = self.objects().list("snapshots/");
        let listed = listed.map_err(SnapshotError::store("list", "snapshots/"))?;
        let times = listed.iter().filter_map(|listed| {
            Some((listed.name.rsplit('/').next()?.parse().ok()?, listed.put_at))
        });
        Ok(times.collect())
    }

    /// Snapshots that were forgotten, and could be recalled.
    pub fn recallable(&self) -> Result<BTreeSet<SnapshotId>> {
        Ok(self.forgotten()?.into_iter().map(|forgotten| forgotten.id).collect())
    }

    /// Whether anything was forgotten or marked that a collection could get rid of in time.
    pub fn awaits_collection(&self) -> Result<bool> {
        Ok(!self.forgotten()?.is_empty() || !self.marks()?.is_empty())
    }

    /// Puts a snapshot back that was forgotten, as long as its record is among the forgotten: until then nothing that
    /// it needs is removed. Says whether it is there now.
    pub fn recall(&self, id: SnapshotId) -> Result<bool> {
        match self.snapshot(id) {
            Ok(_) => return Ok(true),
            Err(SnapshotError::Missing(_)) => {}
            Err(error) => return Err(error),
        }
        let of = |forgotten: Vec<crate::snapshot::Forgotten>| {
            forgotten.into_iter().filter(|one| one.id == id).max_by_key(|one| one.at)
        };
        let Some(kept) = of(self.forgotten()?) else { return Ok(false) };
        let snapshot = self.forgotten_snapshot(id, &kept.name)?;
        match self.put_snapshot(&snapshot) {
            Ok(()) => {}
            Err(SnapshotError::Store { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        // A collection that is about to remove what it needs has removed the forgotten record first.
        if of(self.forgotten()?).is_some() {
            return Ok(true);
        }
        self.take_back(id)?;
        Ok(false)
    }
}

#[cfg(test)]
mod test {
    use std::time::Duration;

    use super::*;
    use crate::capture::{Capture, Root};
    use crate::gc::Others;
    use crate::objects::MemoryObjects;
    use crate::state::State;

    fn captured(repository: &Repository) -> SnapshotId {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "one").unwrap();
        let roots = [Root { name: "tree", path: dir.path(), excluded: &[] }];
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
        repository.capture(&capture, &mut State::default()).unwrap().snapshot.id
    }

    #[test]
    fn what_was_forgotten_comes_back_whole_until_it_is_collected() {
        let grace = Duration::from_secs(60 * 60);
        let objects = Box::new(MemoryObjects::default());
        let repository = Repository::with_grace(objects, grace).unwrap();
        let id = captured(&repository);
        assert!(repository.recall(id).unwrap(), "it is there");
        assert!(!repository.awaits_collection().unwrap());
        repository.forget(id).unwrap();
        assert!(repository.put_times().unwrap().is_empty());
        assert_eq!(repository.recallable().unwrap(), BTreeSet::from([id]));
        assert!(repository.awaits_collection().unwrap());
        repository.gc(Others::MayCapture).unwrap();
        assert!(repository.recall(id).unwrap(), "the grace period is not over");
        let back = repository.snapshot(id).unwrap();
        repository.is_present(&back).unwrap();
        repository.forget(id).unwrap();
        repository.gc(Others::AreAway).unwrap();
        assert!(!repository.recall(id).unwrap(), "it was collected");
        assert!(repository.snapshot(id).is_err());
    }
}
