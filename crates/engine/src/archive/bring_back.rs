//! Files that are gone, brought back from the best that is left of them.
//!
//! 1. The last snapshot. What is lost of it here is fetched from the cloud.
//! 2. The last good one, and then earlier ones of the same branch, latest first, likewise.
//! 3. As much as can be read of one of them, in the same order: files that are damaged are left out.
//!
//! If the cloud cannot be asked about one that is looked for, nobody goes on to an earlier one: it may be there. Unless
//! somebody said to make do with what there is.

use std::fs;

use ash_core::id::{SnapshotId, TenantId};
use ash_core::resume::{FromSnapshot, IfLost, Source};
use ash_core::snapshot::Snapshot;
use ash_snapshot::{Damaged, Repository, Restore, SnapshotError};
use ash_store::{Place, StoredSnapshot};

use super::{Archive, ArchiveError, HOME, MAX_ENTRIES, Places, WORKSPACE, threads};

/// Snapshots that are not where they were said to be.
pub(crate) type Lost = Vec<(SnapshotId, Place)>;

/// What can be said of snapshots that were looked for.
#[derive(Debug)]
pub(crate) struct Looked<T> {
    /// The one that will do, and what came of it.
    pub(crate) found: Option<(Snapshot, T)>,
    /// Those that are not whole, and where.
    pub(crate) lost: Lost,
    /// Whether one of those is said to be in the cloud.
    pub(crate) is_in_cloud: bool,
}

/// What was brought back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BroughtBack {
    pub(crate) from: FromSnapshot,
    pub(crate) source: Source,
}

/// How much of a snapshot will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Enough {
    Whole,
    Some,
}

impl Archive {
    /// Sees to it that a snapshot to bring files back from is here, and says which of those that is. Blocks.
    pub(crate) fn find(
        &self,
        tenant: &TenantId,
        kept: &[StoredSnapshot],
        if_lost: IfLost,
    ) -> Result<Looked<()>, ArchiveError> {
        let mut looked = self.look(kept, if_lost, |id, _| {
            self.with_snapshot(tenant, id, |here, snapshot| Ok(here.is_present(snapshot)?))
        })?;
        for kept in kept.iter().filter(|_| looked.found.is_none()) {
            // Whether there is anything in it: one name is enough.
            let read =
                self.holder(tenant, kept.snapshot.captured.id).and_then(|(of, snapshot, _)| {
                    let root = snapshot.root(WORKSPACE)?;
                    Ok(of.walk(root, MAX_ENTRIES, &mut |_, _| Err(SnapshotError::Cancelled))?)
                });
            if let Ok(()) | Err(ArchiveError::Snapshot(SnapshotError::Cancelled)) = read {
                looked.found = Some((kept.snapshot.clone(), ()));
                break;
            }
        }
        Ok(looked)
    }

    /// Brings back those of a session's directories that are not there, from the first of these snapshots that will
    /// do. What is about to appear is told to `note` before. Blocks.
    pub(crate) fn bring_back_first(
        &self,
        tenant: &TenantId,
        kept: &[StoredSnapshot],
        places: &Places,
        if_lost: IfLost,
        note: &dyn Fn(BroughtBack) -> Result<(), ArchiveError>,
    ) -> Result<Looked<BroughtBack>, ArchiveError> {
        let last = kept.first().map(|kept| kept.snapshot.captured.id);
        let all_of = |snapshot: &Snapshot, source| {
            let outdated = Some(snapshot.captured.id) != last;
            BroughtBack { from: FromSnapshot { outdated, ..FromSnapshot::of(snapshot) }, source }
        };
        let mut looked = self.look(kept, if_lost, |id, snapshot| {
            let brought_back = self.with_snapshot(tenant, id, |here, found| {
                let brought_back = all_of(snapshot, self.came_from(id));
                note(brought_back)?;
                restore(here, found, places, Enough::Whole)?;
                Ok(brought_back)
            })?;
            self.is_used(id);
            Ok(brought_back)
        })?;
        for kept in kept.iter().filter(|_| looked.found.is_none()) {
            let Ok((of, snapshot, source)) = self.holder(tenant, kept.snapshot.captured.id) else {
                continue;
            };
            let mut brought_back = all_of(&kept.snapshot, source);
            // How many is not known yet, but that there are some.
            brought_back.from.left_out = 1;
            note(brought_back)?;
            match restore(&of, &snapshot, places, Enough::Some) {
                Ok(left_out) => {
                    brought_back.from.left_out = left_out;
                    note(brought_back)?;
                    looked.found = Some((kept.snapshot.clone(), brought_back));
                    break;
                }
                Err(error) if error.is_lost() || error.is_out_of_reach() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(looked)
    }

    /// Brings back those of a session's directories that are not there, from one snapshot. Blocks.
    pub(super) fn bring_back(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        places: &Places,
    ) -> Result<(), ArchiveError> {
        self.with_snapshot(tenant, id, |here, snapshot| {
            restore(here, snapshot, places, Enough::Whole).map(drop)
        })
    }

    /// Tries snapshots in order until one will do.
    fn look<T>(
        &self,
        kept: &[StoredSnapshot],
        if_lost: IfLost,
        mut try_one: impl FnMut(SnapshotId, &Snapshot) -> Result<T, ArchiveError>,
    ) -> Result<Looked<T>, ArchiveError> {
        let mut looked = Looked { found: None, lost: Vec::new(), is_in_cloud: false };
        for StoredSnapshot { snapshot, places } in kept {
            let id = snapshot.captured.id;
            match try_one(id, snapshot) {
                Ok(done) => {
                    looked.found = Some((snapshot.clone(), done));
                    break;
                }
                Err(error) if error.is_lost() => {
                    looked.lost.push((id, Place::Local));
                    if matches!(error, ArchiveError::Nowhere(_)) {
                        looked.lost.push((id, Place::Cloud));
                    }
                    looked.is_in_cloud |= places.cloud;
                    if places.cloud && self.remote.is_none() && if_lost != IfLost::GiveUp {
                        return Err(ArchiveError::NoCloud);
                    }
                }
                Err(error) if error.is_out_of_reach() && if_lost == IfLost::GiveUp => {
                    looked.is_in_cloud |= places.cloud;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(looked)
    }
}

/// Brings back those of two directories that are not there; says how many paths of the workspace were left out.
fn restore(
    of: &Repository,
    snapshot: &ash_snapshot::Snapshot,
    places: &Places,
    enough: Enough,
) -> Result<u64, ArchiveError> {
    let mut left_out = 0;
    for (name, place) in [(HOME, &places.home), (WORKSPACE, &places.workspace)] {
        // The workspace last: who finds it finds the home too.
        if fs::symlink_metadata(place).is_ok() {
            continue;
        }
        let damaged = match enough {
            Enough::Whole => Damaged::Refuse,
            Enough::Some => Damaged::LeaveOut,
        };
        let restored = of.restore(&Restore {
            tree: snapshot.root(name)?,
            path: b"",
            damaged,
            target: place,
            owner: None,
            max_entries: MAX_ENTRIES,
            max_bytes: u64::MAX,
            threads: threads(),
            progress: &|_| true,
        })?;
        if name == HOME {
            continue;
        }
        left_out = restored.left_out.len() as u64;
        if left_out > 0 && restored.files == 0 {
            // Nothing of it came back: that is no workspace that anybody had.
            fs::remove_dir_all(place).map_err(ArchiveError::Place)?;
            let all = SnapshotError::Missing(format!("all of the snapshot {}", snapshot.id));
            return Err(all.into());
        }
    }
    Ok(left_out)
}
