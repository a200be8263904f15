//! A session as one file that can be taken anywhere.

use std::fs::File;
use std::sync::Arc;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::number::Seq;
use ash_core::snapshot::Snapshot;

use super::error::BundleError;
use super::manifest::Manifest;
use super::{Aside, Bundles, Room, nobody, pack};
use crate::cloud::{MAX_SNAPSHOTS, NewSet, Shelf, described, recorded};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::fork::Point;

/// Who has put the set in a bundle.
const WRITER: &str = "bundle";

/// How much of a session's history is in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The files as they are now.
    Latest,
    /// Everything that was captured of them and is kept.
    History,
}

/// A bundle, ready to be read.
#[derive(Debug)]
pub struct Bundle {
    /// From its beginning. It has no name: when it is closed, it is gone.
    pub file: File,
    /// How long it is.
    pub size: u64,
    /// What it may be called.
    pub name: String,
}

impl Engine {
    /// Makes a bundle of a session as it is now. What is to be captured is waited for, a while; a run that goes on is
    /// not, and is `interrupted` where the bundle is imported.
    pub async fn export(
        &self,
        tenant: &TenantId,
        session: SessionId,
        extent: Extent,
    ) -> Result<Bundle, EngineError> {
        self.accepts_work()?;
        self.shared.store.session(tenant, session).await?;
        let bundles = self.bundles()?.clone();
        let _place = bundles.0.exports.acquire().await.map_err(|_| EngineError::Draining)?;
        let last = self.snapshot_at(tenant, session, Point::Latest).await?;
        // Read after the snapshot was found: the log has everything that it belongs to.
        let stored = self.shared.store.session(tenant, session).await?;
        let snapshots = match extent {
            Extent::Latest => vec![last.clone()],
            Extent::History => self.kept(tenant, session, &last, stored.session.last_seq()).await?,
        };
        let aside = bundles.aside().map_err(BundleError::disk)?;
        let room = self.room();
        let (shelf, snapshots) = {
            let (bundles, aside, room) = (bundles.clone(), Arc::clone(&aside), room.clone());
            let (tenant, needed) = (tenant.clone(), last.captured.id);
            // Nobody copies for whoever has gone.
            let asked = Arc::new(());
            let is_asked = Arc::downgrade(&asked);
            let copy = move || {
                let go_on = || is_asked.strong_count() > 0 && room.has(0);
                bundles.copy_out(&tenant, snapshots, needed, aside, &go_on)
            };
            let copied = blocking(copy).await;
            drop(asked);
            copied?
        };
        let captured = u32::try_from(snapshots.len()).unwrap_or(u32::MAX);
        let attachments = recorded(self.shared.store.attachments(tenant, session).await?);
        let described = described(&stored, snapshots, attachments.clone());
        let set = NewSet {
            store: self.shared.store.as_ref(),
            library: &bundles.0.library,
            shelf: &shelf,
            tenant: &nobody(),
            writer: WRITER,
            stored: &stored,
            last: &last,
            described: described.map_err(BundleError::of_making_set)?,
            attachments,
            attached_in: self.shared.host.attachments(session),
            number: 1,
            at: self.shared.now(),
        };
        set.put(None).await.map_err(BundleError::of_making_set)?;
        drop(shelf);
        let record = &stored.record;
        let name = format!("{}-{session}.tar", record.agent_name);
        let mut manifest = Manifest {
            version: Manifest::VERSION,
            session,
            agent_name: record.agent_name.clone(),
            title: record.settings.title.clone(),
            turns: stored.session.lineage().turns(),
            seq: stored.session.last_seq(),
            snapshots: captured,
            at: self.shared.now(),
            objects: Vec::new(),
        };
        let (file, size) = blocking(move || {
            manifest.objects = pack::objects(&aside.0)?;
            pack::pack(&aside.0, &manifest, &room)
        })
        .await?;
        Ok(Bundle { file, size, name })
    }

    pub(super) fn bundles(&self) -> Result<&Bundles, EngineError> {
        let bundles = self.shared.bundles.as_ref();
        bundles.ok_or_else(|| EngineError::Damaged("there is no place for bundles".into()))
    }

    pub(super) fn room(&self) -> Room {
        let host = Arc::clone(&self.shared.host);
        let free = Arc::new(move || host.free_bytes());
        Room { free, least: self.shared.policy.min_free_bytes }
    }

    /// Everything that was captured of a session and can be brought back, oldest first.
    async fn kept(
        &self,
        tenant: &TenantId,
        session: SessionId,
        last: &Snapshot,
        through: Seq,
    ) -> Result<Vec<Snapshot>, EngineError> {
        let rows = self.shared.store.snapshots(session, MAX_SNAPSHOTS).await?;
        let mut kept = Vec::new();
        for row in rows.into_iter().rev() {
            let id = row.snapshot.captured.id;
            let found = self.shared.host.has_snapshot(tenant, id).await;
            if found.map_err(|error| EngineError::Unavailable(error.into()))? {
                kept.push(row.snapshot);
            }
        }
        // Later ones belong to a log that is not read yet. After a rewind the last one is not the latest.
        kept.retain(|snapshot| snapshot.seq <= through);
        if !kept.iter().any(|snapshot| snapshot.captured.id == last.captured.id) {
            kept.push(last.clone());
        }
        Ok(kept)
    }
}

impl Bundles {
    /// Copies snapshots to where a bundle is made of them, and says which: those that were forgotten meanwhile are not
    /// among them, but one must be. Blocks.
    fn copy_out(
        &self,
        tenant: &TenantId,
        mut snapshots: Vec<Snapshot>,
        needed: SnapshotId,
        aside: Arc<Aside>,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Arc<Shelf>, Vec<Snapshot>), BundleError> {
        let place = aside.0.clone();
        let shelf = Shelf::beneath(&place, &nobody(), aside).map_err(BundleError::of_making_set)?;
        let mut lost = Vec::new();
        for Snapshot { captured, .. } in &snapshots {
            let id = captured.id;
            match self.0.archive.copy_out(tenant, id, &shelf.repository, go_on) {
                Ok(()) => {}
                Err(error) if error.is_lost() && id == needed => return Err(BundleError::Gone),
                Err(error) if error.is_lost() => lost.push(id),
                Err(error) => return Err(BundleError::of_making(error)),
            }
        }
        snapshots.retain(|kept| !lost.contains(&kept.captured.id));
        Ok((Arc::new(shelf), snapshots))
    }
}

/// Does something that waits for the disk, where that is allowed.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BundleError> + Send + 'static,
) -> Result<T, BundleError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(BundleError::here(error)),
    }
}
