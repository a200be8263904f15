//! Snapshots that were found to be damaged: what is remembered of them is not relied on.
//!
//! Who remembers that a file was stored does not read it again, and would take for stored what is lost. What
//! is remembered lies wherever somebody captures, so the store says whom not to believe: `distrusted/<snapshot>`
//! is there from when damage was found until the snapshot is forgotten.

use std::collections::HashSet;
use std::io;

use crate::error::{Result, SnapshotError};
use crate::repository::Repository;
use crate::snapshot::SnapshotId;
use crate::verify::Verified;

/// Where they are named.
const DISTRUSTED: &str = "distrusted/";

fn name_of(id: SnapshotId) -> String {
    format!("{DISTRUSTED}{id}")
}

impl Repository {
    /// From now on what is remembered of snapshots that were found to be damaged is not relied on. Marks of
    /// packs are put before this: who reads everything again must not find it in them.
    pub(crate) fn distrust_snapshots(&self, verified: &Verified) -> Result<()> {
        let damaged: Vec<SnapshotId> = verified.damaged.iter().map(|damaged| damaged.id).collect();
        if damaged.is_empty() {
            return Ok(());
        }
        damaged.iter().try_for_each(|id| self.put_distrust(*id))?;
        // Those that were put since may rely on a damaged one. Who puts one from now on looks afterwards, and
        // finds what was just put.
        let seen: HashSet<&SnapshotId> = verified.seen.iter().collect();
        let later = self.snapshots()?.into_iter().filter(|id| !seen.contains(id));
        later.into_iter().try_for_each(|id| self.put_distrust(id))
    }

    /// From now on what is remembered of a snapshot that was found to be damaged is not relied on, and a copy of it
    /// from elsewhere mends it.
    pub fn distrust_snapshot(&self, id: SnapshotId) -> Result<()> {
        self.put_distrust(id)
    }

    fn put_distrust(&self, id: SnapshotId) -> Result<()> {
        let name = name_of(id);
        self.objects().put(&name, b"").map_err(SnapshotError::store("put", name))?;
        Ok(())
    }

    /// Whether a snapshot was found to be damaged.
    pub(crate) fn is_distrusted(&self, id: SnapshotId) -> Result<bool> {
        let name = name_of(id);
        match self.objects().get(&name, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            // Whatever is in it.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(true),
            Ok(_) => Ok(true),
            Err(error) => Err(SnapshotError::store("read", name)(error)),
        }
    }

    /// A snapshot is gone: nobody relies on it, whatever was found.
    pub(crate) fn end_distrust(&self, id: SnapshotId) -> Result<()> {
        let name = name_of(id);
        self.objects().delete(&name).map_err(SnapshotError::store("remove", name))
    }
}
