//! A session's directories, made what a snapshot says.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ash_core::id::{SnapshotId, TenantId};
use ash_snapshot::{Effect, InPlace, Newer, Root, State, Trust, caches};

use super::{Archive, ArchiveError, HOME, MAX_ENTRIES, Places, WORKSPACE, threads};

impl Archive {
    /// Makes both directories of a session what a snapshot says: those that are there become it in place, and only
    /// what differs is written. Whatever is lost of the snapshot is found before anything is touched. Blocks.
    pub(crate) fn put_back(
        &self,
        tenant: &TenantId,
        id: SnapshotId,
        places: &Places,
        trust: Trust,
    ) -> Result<(), ArchiveError> {
        let home_is_there = places.home.try_exists().map_err(ArchiveError::Home)?;
        let workspace_is_there = places.workspace.try_exists().map_err(ArchiveError::Home)?;
        let left_out = if home_is_there {
            caches(&places.home).map_err(ArchiveError::Home)?
        } else {
            Vec::new()
        };
        let owner = owner(&places.home).or_else(|| owner(&places.workspace));
        let remembered = match trust {
            Trust::Looks => State::load(&places.captured),
            Trust::Bytes => State::default(),
        };
        let mended = self.with_snapshot(tenant, id, |repository, snapshot| {
            let of = |root| InPlace {
                snapshot,
                root,
                trust,
                newer: Newer::Replace,
                effect: Effect::Write,
                owner,
                max_entries: MAX_ENTRIES,
                max_bytes: u64::MAX,
                threads: threads(),
                progress: &|_| true,
            };
            let mut there = Vec::new();
            if home_is_there {
                there.push(of(Root { name: HOME, path: &places.home, excluded: &left_out }));
            }
            if workspace_is_there {
                there.push(of(Root { name: WORKSPACE, path: &places.workspace, excluded: &[] }));
            }
            Ok(repository.restore_all_in_place(&there, &remembered)?)
        })?;
        let states = mended.into_iter().map(|mended| mended.state);
        let state = states.reduce(State::and).unwrap_or_default();
        if let Err(error) = state.save(&places.captured) {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "the next capture has to read everything");
        }
        // What is not there at all.
        self.bring_back(tenant, id, places)
    }
}

/// Whose the files are, if not ours.
fn owner(path: &Path) -> Option<(u32, u32)> {
    let found = fs::symlink_metadata(path).ok()?;
    let us = rustix::process::geteuid().as_raw();
    (found.uid() != us).then(|| (found.uid(), found.gid()))
}
