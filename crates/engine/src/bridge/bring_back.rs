//! Files that are not in place: fetched before a start, and brought back by it.

use std::io;
use std::sync::Arc;

use ash_core::id::{SessionId, TenantId};
use ash_core::resume::IfLost;
use ash_core::snapshot::Snapshot;

use super::came::{self, How};
use super::files::Files;
use super::inner::Inner;
use super::word::{failed, not_prepared};
use super::workspace::Saved;
use crate::archive::{ArchiveError, BroughtBack, Looked, Lost};
use crate::host::{NotReady, Past, Ready, SandboxRef};

const LOOK: &str = "look for files";

impl Inner {
    /// Sees to it that what a start would bring back is here.
    pub(super) async fn fetch_files(
        self: &Arc<Self>,
        session: SessionId,
        tenant: &TenantId,
        past: &dyn Past,
        if_lost: IfLost,
    ) -> Result<Ready, NotReady> {
        let told = |error: io::Error| failed(LOOK, error);
        if self.files.are_in_place(session).map_err(told)? {
            return Ok(Ready::InPlace);
        }
        let kept = past.snapshots().await?;
        // What is here alone need not be fetched, and whether it is whole a start finds out by using it: to look before
        // that would be to read all of it twice.
        let is_here_alone =
            self.archive.remote().is_none() && kept.iter().all(|kept| !kept.places.cloud);
        if if_lost == IfLost::BeginAnew && is_here_alone && !kept.is_empty() {
            return Ok(Ready::Stored);
        }
        let (archive, tenant) = (Arc::clone(&self.archive), tenant.clone());
        let find = move || archive.find(&tenant, &kept, if_lost);
        let mut found = self.archive.unless_silent(find.clone()).await;
        if if_lost == IfLost::GiveUp && matches!(found, Ok(Err(ArchiveError::Cloud(_)))) {
            // Whatever can be had without it will do.
            found = self.archive.unless_silent(find).await;
        }
        let found = found.map_err(|error| failed(LOOK, error))?;
        let unfit = |error| NotReady::Failed(not_prepared(error));
        let Looked { found, lost, is_in_cloud } = found.map_err(unfit)?;
        for (id, place) in lost {
            past.lost(id, place).await;
        }
        match found {
            Some(_) => Ok(Ready::Stored),
            // What is gone is the agent's own.
            None if self.files.has_workspace(session).map_err(told)? => Ok(Ready::InPlace),
            None if is_in_cloud && if_lost != IfLost::GiveUp => {
                Err(unfit(ArchiveError::DamagedInCloud))
            }
            None => Ok(Ready::Nothing),
        }
    }
}

impl Saved<'_> {
    /// Brings back what is not in place. Says which snapshot the workspace is of, if it was brought back, and which
    /// are lost. If nothing is left of it, it is for whoever resumed the session to say whether it begins anew.
    pub(super) fn bring_back(
        &self,
        files: &Files,
        sandbox: SandboxRef,
    ) -> Result<(Option<Snapshot>, Lost), ArchiveError> {
        let session = sandbox.session;
        // They were in place when that was looked at.
        if self.kept.is_empty() {
            let gone = io::Error::other("its files went while it was started");
            return Err(ArchiveError::Place(gone));
        }
        let places = files.places(session);
        let is_there = files.has_workspace(session).map_err(ArchiveError::Place)?;
        files.make_room(session).map_err(ArchiveError::Place)?;
        let note = |BroughtBack { from, source }| {
            // An agent's own things alone are no workspace.
            if is_there {
                return Ok(());
            }
            came::note(files, session, How::Restored { from, source }).map_err(ArchiveError::Place)
        };
        let (kept, if_lost) = (self.kept, self.if_lost);
        let looked = self.archive.bring_back_first(self.tenant, kept, &places, if_lost, &note)?;
        let Looked { found, lost, is_in_cloud } = looked;
        match found {
            _ if is_there => Ok((None, lost)),
            Some((snapshot, _)) => Ok((Some(snapshot), lost)),
            None if if_lost == IfLost::Refuse => Err(ArchiveError::NothingLeft),
            None if is_in_cloud && if_lost == IfLost::BeginAnew => {
                Err(ArchiveError::DamagedInCloud)
            }
            None => {
                tracing::error!(session.id = %session, "every snapshot of session {session} is lost");
                Ok((None, lost))
            }
        }
    }
}
