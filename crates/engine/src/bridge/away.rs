//! Files that go: those of sessions that nobody uses, once a snapshot has them, and all that is left of those that
//! are over.
//!
//! A session's directories leave their place in one rename, whole: a start finds all of them or none. What was
//! renamed is removed afterwards; what a crash leaves of it lies in `data/tmp`, which the next start empties.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::time::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

use super::files::Life;
use super::inner::Inner;
use super::reserve;
use super::word::{archive_failed, failed};
use crate::agent;
use crate::files::{FileError, FilePath, Stored, Tree};
use crate::host::{Away, Collected, HostError, PutAway, SandboxRef};
use crate::leave::Leave;

/// What is attempted when the files of a session go.
const PUT_AWAY: &str = "put files away";

/// How often a removal that takes long is gone on with.
const MAX_ROUNDS: usize = 1_000;

impl Inner {
    /// First what is stored is read, for as long as that takes: after this there is no other copy to find out with that
    /// it is damaged. Then nobody works with the files, they are held against it once more, and go.
    pub(super) async fn put_away(
        self: &Arc<Self>,
        away: PutAway<'_>,
        leave: Leave,
    ) -> Result<Away, HostError> {
        let PutAway { sandbox, tenant, snapshot } = away;
        let reading = self.captures.reader().await?;
        let (host, of, wanted) = (Arc::clone(self), tenant.clone(), leave.clone());
        let read = move || host.check_stored(&of, snapshot, sandbox.session, &wanted);
        match blocking(PUT_AWAY, read).await? {
            Away::Gone => {}
            other @ (Away::Wanted | Away::Changed | Away::Unsaved) => return Ok(other),
        }
        drop(reading);
        let _one_at_a_time = self.captures.enter(sandbox.session).await?;
        let (host, tenant) = (Arc::clone(self), tenant.clone());
        blocking(PUT_AWAY, move || host.put_away_now((&tenant, snapshot), sandbox, &leave)).await
    }

    /// Whether the files could go, as far as the snapshot is concerned. Blocks.
    fn check_stored(
        &self,
        tenant: &TenantId,
        snapshot: SnapshotId,
        session: SessionId,
        leave: &Leave,
    ) -> Result<Away, HostError> {
        let told = |error: io::Error| failed(PUT_AWAY, error);
        let go_on = || !leave.is_revoked() && !self.tasks.is_closing();
        if !go_on() || !self.files.has_workspace(session).map_err(told)? {
            return Ok(if go_on() { Away::Gone } else { Away::Wanted });
        }
        match self.archive.is_whole(tenant, snapshot, &go_on) {
            Ok(true) => Ok(Away::Gone),
            Ok(false) => {
                tracing::warn!(
                    session.id = %session, snapshot.id = %snapshot,
                    "snapshot {snapshot} of session {session} is damaged; its files stay, and are stored again",
                );
                Ok(Away::Unsaved)
            }
            Err(_) if !go_on() => Ok(Away::Wanted),
            Err(error) => Err(failed(PUT_AWAY, error)),
        }
    }

    /// Has the files go if they are as they are stored. Blocks.
    fn put_away_now(
        &self,
        (tenant, snapshot): (&TenantId, SnapshotId),
        sandbox: SandboxRef,
        leave: &Leave,
    ) -> Result<Away, HostError> {
        let told = |error: io::Error| failed(PUT_AWAY, error);
        let session = sandbox.session;
        let places = self.files.places(session);
        if !self.files.has_workspace(session).map_err(told)? {
            return Ok(Away::Gone);
        }
        // It lies in the same directory, and no snapshot has it.
        if leave.is_revoked() || self.files.has_something_aside(session).map_err(told)? {
            return Ok(Away::Wanted);
        }
        let is_as_stored = self.archive.is_as_stored((tenant, session), &places, snapshot);
        if !is_as_stored.map_err(|error| failed(PUT_AWAY, error))? {
            return Ok(Away::Changed);
        }
        let Some(moved) = leave.take(|| self.take_out(sandbox)) else { return Ok(Away::Wanted) };
        match moved.map_err(told)? {
            Taken::InUse => return Ok(Away::Wanted),
            Taken::Nothing => {}
            // It is out of the way, and what is left of it is removed when a server starts.
            Taken::To(place) => self.remove_later(&place),
        }
        Ok(Away::Gone)
    }

    /// Takes the directories of a session out of their place, unless something runs or may have begun to.
    fn take_out(&self, sandbox: SandboxRef) -> io::Result<Taken> {
        let _nobody_makes_them = self.files.making(sandbox.session);
        for other in self.files.of(sandbox.session)? {
            if other > sandbox || matches!(self.files.life(other)?, Life::Alive(_)) {
                return Ok(Taken::InUse);
            }
        }
        Ok(self.files.take_out(sandbox.session)?.map_or(Taken::Nothing, Taken::To))
    }

    /// Removes all that is left of a session for which nothing runs. Blocks.
    fn purge_now(&self, session: SessionId) -> io::Result<()> {
        let making = self.files.making(session);
        for sandbox in self.files.of(session)? {
            if matches!(self.files.life(sandbox)?, Life::Alive(_)) {
                return Err(io::Error::other("something of it is alive"));
            }
        }
        let moved = self.files.take_out(session)?;
        self.files.remove_traces(session)?;
        if let Err(error) = std::fs::remove_dir_all(self.files.attachments(session))
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        drop(making);
        self.state().stopped_through.remove(&session);
        if let Some(place) = moved {
            self.remove_later(&place);
        }
        Ok(())
    }

    pub(super) async fn purge(self: &Arc<Self>, session: SessionId) -> Result<(), HostError> {
        let attempted = "remove a session";
        let host = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            host.notes.forget(session);
            host.purge_now(session)
        });
        let done = done.await;
        done.map_err(|error| failed(attempted, error))?.map_err(|error| failed(attempted, error))
    }

    pub(super) async fn stored(
        self: &Arc<Self>,
        tenant: &TenantId,
        snapshot: SnapshotId,
    ) -> Result<Option<Stored>, HostError> {
        let (host, tenant) = (Arc::clone(self), tenant.clone());
        let look = move || host.archive.stored(&tenant, snapshot, &host.files.scratch());
        let looked = self.archive.unless_silent(look).await;
        let attempted = "look into a snapshot";
        let looked = looked.map_err(|error| failed(attempted, error))?;
        looked.map_err(|error| archive_failed(attempted, &error))
    }

    pub(super) async fn snapshots(
        self: &Arc<Self>,
        tenant: &TenantId,
    ) -> Result<Vec<SnapshotId>, HostError> {
        let (host, tenant) = (Arc::clone(self), tenant.clone());
        blocking("list snapshots", move || host.archive.snapshots(&tenant)).await
    }

    pub(super) async fn collect(
        self: &Arc<Self>,
        tenant: &TenantId,
        unneeded: Vec<SnapshotId>,
        before: Timestamp,
    ) -> Result<Collected, HostError> {
        let (host, tenant) = (Arc::clone(self), tenant.clone());
        let collect = move || {
            let go_on = || !host.tasks.is_closing();
            host.archive.collect(&tenant, &unneeded, before, &go_on)
        };
        blocking("collect what no snapshot needs", collect).await
    }

    /// Removes directories of agents that nobody needs.
    pub(super) async fn collect_agents(
        self: &Arc<Self>,
        used: BTreeSet<String>,
        before: Timestamp,
    ) -> Result<u64, HostError> {
        let host = Arc::clone(self);
        let collect = move || {
            let go_on = || !host.tasks.is_closing();
            agent::discard(&host.options.data.join("agents"), &used, before, &go_on)
        };
        blocking("remove agents that nobody needs", collect).await
    }

    /// How much room there is on the disk.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        reserve::Disk::of(&self.options.data).map(|disk| disk.free)
    }

    /// Removes what was taken out of its place. What is left of it is removed when a server starts.
    fn remove_later(&self, place: &std::path::Path) {
        if let Err(error) = remove_tree(place, &|| self.tasks.is_closing()) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "what was taken out of its place could not all be removed");
        }
    }

    /// Removes what restores left that were cut in the middle. One that goes on holds a lock. Blocks.
    pub(super) fn remove_cut_restores(&self) {
        for session in self.files.names().into_iter().flatten() {
            let directory = self.files.beside(session, "");
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let is_one = entry.file_name().as_encoded_bytes().starts_with(HALF_RESTORED);
                if is_one && is_left(&entry.path()) {
                    self.remove_later(&entry.path());
                }
            }
        }
    }

    /// Removes what an earlier server had no time for. Blocks.
    pub(super) fn empty_scratch(&self) {
        for left in self.files.left_in_scratch() {
            self.remove_later(&left);
        }
    }
}

/// How directories are called in which a restore goes on.
const HALF_RESTORED: &[u8] = b".ash-restore-";

/// Whether nobody holds a directory any more.
fn is_left(path: &std::path::Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::empty());
    opened.is_ok_and(|opened| flock(opened, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// What became of the directories of a session.
enum Taken {
    /// They are here now.
    To(PathBuf),
    /// There were none.
    Nothing,
    /// Something works with them.
    InUse,
}

async fn blocking<T: Send + 'static, E: std::fmt::Display + Send + 'static>(
    attempted: &'static str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, HostError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| failed(attempted, error))?.map_err(|error| failed(attempted, error))
}

/// Removes a directory with everything in it, however deep and however large.
fn remove_tree(place: &std::path::Path, is_called_off: &dyn Fn() -> bool) -> Result<(), FileError> {
    let (Some(above), Some(name)) = (place.parent(), place.file_name()) else { return Ok(()) };
    let tree = Tree::open(above)?;
    let name = FilePath::file(name.as_encoded_bytes())?;
    for _ in 0..MAX_ROUNDS {
        match tree.remove_all_unless(&name, is_called_off) {
            Err(FileError::Busy) if !is_called_off() => {}
            Err(FileError::NotFound) => return Ok(()),
            removed => return removed,
        }
    }
    Err(FileError::Busy)
}
