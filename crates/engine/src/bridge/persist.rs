//! Capturing what a session's agent works on.
//!
//! A sandbox that is alive stands still while its files are looked at and what changed is read, for a quarter of a
//! second at the most. One that is paused stands still anyway. Where there is none, nothing moves; if one is started
//! meanwhile, its start waits as long as a freeze would take.
//!
//! Files that the machine was restarted over are held against the last good snapshot first, and put right (`mend`): what is
//! captured is what everybody is given from then on.
//!
//! What was seen is stored afterwards, one after the other for each session and few at once. Storing can take long, and
//! turns follow each other: so the next look does not wait for it, and is of what its own turn left.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use ash_core::id::{SessionId, TenantId};
use ash_core::resume::IfLost;
use ash_core::snapshot::{Captured, Snapshot};
use ash_snapshot::{Freeze, Took};

use super::captures::{Reading, ToStore};
use super::files::Life;
use super::inner::Inner;
use super::mend::{self, Mended};
use super::still::Still;
use super::word::failed;
use super::workspace::Saved;
use crate::archive::{ArchiveError, Looking};
use crate::host::{HostError, Persist, Persisted, SandboxRef, StandStill};

pub(super) const PERSIST: &str = "capture a workspace";

/// Holds a sandbox for a capture.
struct Holding {
    host: Arc<Inner>,
    sandbox: SandboxRef,
    held: Mutex<Option<Still>>,
    still: Mutex<Option<StandStill>>,
}

impl Freeze for Holding {
    fn freeze(&self) -> io::Result<()> {
        // One that died meanwhile does not move.
        if !matches!(self.host.files.life(self.sandbox)?, Life::Alive(_)) {
            return Ok(());
        }
        let held = Still::hold_all(&self.host, self.sandbox).map_err(io::Error::other);
        match held {
            Ok(held) => {
                *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
                Ok(())
            }
            Err(_) if !matches!(self.host.files.life(self.sandbox)?, Life::Alive(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn thaw(&self) -> io::Result<()> {
        drop(self.held.lock().unwrap_or_else(PoisonError::into_inner).take());
        let still = self.still.lock().unwrap_or_else(PoisonError::into_inner).take();
        still.into_iter().for_each(StandStill::is_over);
        Ok(())
    }
}

impl Inner {
    pub(super) async fn persist(
        self: &Arc<Self>,
        persist: Persist<'_>,
        still: StandStill,
    ) -> Result<Persisted, HostError> {
        let told = |error: io::Error| failed(PERSIST, error);
        let Persist { sandbox, tenant, mut unless_like, only_if_busy, proven } = persist;
        let session = sandbox.session;
        let closed = |error| failed(PERSIST, error);
        let captures = &self.captures;
        // Before others are kept from being looked at: it may take as long as reading everything.
        let as_found = self.put_right_first(session, tenant, proven).await?;
        let (admitted, still) = captures.admit(session, still).await.map_err(closed)?;
        // A later one may have come up while this waited: it is the one that moves.
        let alive = self.alive_of(session).map_err(told)?;
        let (sandbox, is_alive) = (alive.unwrap_or(sandbox), alive.is_some());
        let is_late = is_alive && still.is_none();
        if self.is_gone(session, alive).map_err(told)? {
            return Ok(Persisted::Gone);
        }
        if is_alive && only_if_busy && self.is_alone(sandbox) {
            return Ok(Persisted::Unchanged);
        }
        let is_proven = is_alive
            || mend::is_believed(&self.files, session, &self.options.boot_id).map_err(told)?;
        if as_found.is_some() {
            // What it is now stands behind what was found, also if it is what it was before that.
            unless_like = None;
        }
        // Whoever starts one waits for a look and for a store, and not for what is between them.
        let read = || (!is_alive).then(|| Reading::begin(captures, session));
        let is_read = |reading: Option<Reading>| reading.is_some_and(|it| it.is_overtaken());
        let reading = read();
        let mut is_overtaken = is_late;
        let stored = if is_proven {
            let (mut room, ahead) = (captures.room(), captures.ahead_of(session));
            let holding = Holding {
                host: Arc::clone(self),
                sandbox,
                held: Mutex::default(),
                still: Mutex::new(still),
            };
            let (most, whose) = (room.bytes, tenant.clone());
            let look = self.beside(move |host| {
                let freeze = is_alive.then_some(&holding as &dyn Freeze);
                let looking = Looking { freeze, ahead: ahead.as_ref(), room: most };
                host.archive.look_at((&whose, session), &host.files.places(session), looking)
            });
            let look = look.await?;
            is_overtaken |= is_read(reading);
            if self.is_gone(session, alive).map_err(told)? {
                return Ok(Persisted::Gone);
            }
            room.keep(look.held());
            let seen = look.ahead();
            let _to_store = ToStore::new(captures, session, &look);
            let _turn = captures.store_after(session, admitted).await.map_err(closed)?;
            let reading = read();
            is_overtaken |= !is_alive && self.alive_of(session).map_err(told)?.is_some();
            let whose = tenant.clone();
            let stored = self.beside(move |host| {
                let places = host.files.places(session);
                host.archive.store((&whose, session), &places, unless_like, look)
            });
            let stored = stored.await?;
            is_overtaken |= is_read(reading);
            // Somebody removes what nobody works on: what was seen is a part of it, and no turn is bound to that.
            if self.is_gone(session, alive).map_err(told)? {
                return Ok(Persisted::Gone);
            }
            if !is_alive && !is_overtaken {
                let so = self.beside(move |host| {
                    host.archive.is_still_so(&host.files.places(session), &seen)
                });
                if !so.await? && self.alive_of(session).map_err(told)?.is_none() {
                    return Err(failed(PERSIST, "its files were changed while they were read"));
                }
            }
            stored
        } else {
            let _turn = captures.store_after(session, admitted).await.map_err(closed)?;
            let whose = tenant.clone();
            let stored = self.beside(move |host| {
                let places = host.files.places(session);
                host.archive.capture_unproven((&whose, session), &places, unless_like)
            });
            let stored = stored.await?;
            is_overtaken |= is_read(reading);
            stored
        };
        let Some((captured, took)) = stored else { return Ok(Persisted::Unchanged) };
        count(&took);
        let captured = if is_overtaken { all_unfrozen(captured) } else { captured };
        Ok(match as_found {
            Some(as_found) => Persisted::PutRight { as_found, captured },
            None => Persisted::Captured(captured),
        })
    }

    /// Holds files against the last good snapshot, if they cannot be relied on. Nothing, if they still cannot be. Whoever
    /// asks has the turn of the session.
    async fn put_right(
        self: &Arc<Self>,
        session: SessionId,
        tenant: &TenantId,
        proven: &Snapshot,
    ) -> Result<Option<Mended>, HostError> {
        let (host, tenant, proven) = (Arc::clone(self), tenant.clone(), proven.clone());
        let put_right = move || {
            let (files, boot) = (&host.files, &*host.options.boot_id);
            let _nobody_makes_it = files.making(session);
            // Whoever was started meanwhile has seen to it.
            let is_in_use = host.alive_of(session)?.is_some();
            if is_in_use || !files.has_workspace(session)? {
                return Ok(None);
            }
            files.make_directories(session)?;
            let user = match host.users() {
                Some(users) => users.owner(&files.home(session))?,
                None => None,
            };
            let saved = Saved {
                archive: &host.archive,
                tenant: &tenant,
                snapshot: &proven,
                proven: Some(&proven),
                kept: &[],
                if_lost: IfLost::default(),
            };
            let mended = mend::mend(files, session, saved, (boot, user))?;
            if mended.is_some() {
                mend::note_use(files, session, boot)?;
            }
            Ok(mended)
        };
        let done: Result<io::Result<_>, _> = tokio::task::spawn_blocking(put_right).await;
        let done = done.map_err(|error| failed(PERSIST, error))?;
        done.map_err(|error| failed(PERSIST, error))
    }

    /// The same for whoever has not, and where it may be none of this. Says what was found, if that was not what it is
    /// now. What cannot be put right now is what it is.
    async fn put_right_first(
        self: &Arc<Self>,
        session: SessionId,
        tenant: &TenantId,
        proven: Option<&Snapshot>,
    ) -> Result<Option<Captured>, HostError> {
        let told = |error: io::Error| failed(PERSIST, error);
        let is_believed = || mend::is_believed(&self.files, session, &self.options.boot_id);
        let Some(proven) = proven else { return Ok(None) };
        if is_believed().map_err(told)? || !self.files.has_workspace(session).map_err(told)? {
            return Ok(None);
        }
        let _turn = self.captures.enter(session).await?;
        if is_believed().map_err(told)? {
            return Ok(None);
        }
        match self.put_right(session, tenant, proven).await {
            Ok(mended) => Ok(mended.and_then(|mended| mended.as_found)),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error, session.id = %session,
                    "the files of session {session} could not be held against its last good snapshot",
                );
                Ok(None)
            }
        }
    }

    /// Has files put right that cannot be relied on, for somebody who looks at them. Says whether anything was.
    pub(super) async fn believe(
        self: &Arc<Self>,
        session: SessionId,
        tenant: &TenantId,
        proven: Option<&Snapshot>,
    ) -> Result<bool, HostError> {
        Ok(self.put_right_first(session, tenant, proven).await?.is_some())
    }

    /// Whether the files of a session are not in place. What is in place of those that a sandbox works on is not the
    /// session's.
    fn is_gone(&self, session: SessionId, alive: Option<SandboxRef>) -> io::Result<bool> {
        let is_elsewhere = alive.is_some_and(|sandbox| self.has_lost_its_files(sandbox));
        Ok(is_elsewhere || !self.files.has_workspace(session)?)
    }

    /// Does something with the archive that blocks.
    async fn beside<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<T, ArchiveError> + Send + 'static,
    ) -> Result<T, HostError> {
        let host = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&host)).await;
        done.map_err(|error| failed(PERSIST, error))?.map_err(|error| failed(PERSIST, error))
    }

    /// The sandbox of a session that is alive, if one is.
    fn alive_of(&self, session: SessionId) -> io::Result<Option<SandboxRef>> {
        for sandbox in self.files.of(session)?.into_iter().rev() {
            if let Life::Alive(_) = self.files.life(sandbox)? {
                return Ok(Some(sandbox));
            }
        }
        Ok(None)
    }

    /// Whether nothing but its bridge runs in a sandbox, as far as can be seen.
    fn is_alone(&self, sandbox: SandboxRef) -> bool {
        let cgroup = self.cgroup(sandbox).ok().flatten();
        cgroup.and_then(|cgroup| cgroup.processes().ok()).is_some_and(|all| all.len() < 2)
    }
}

/// What is true of a capture of files that somebody may have worked on meanwhile.
fn all_unfrozen(captured: Captured) -> Captured {
    Captured { unfrozen: captured.unfrozen.max(captured.files), ..captured }
}

/// Says where the time of a capture went.
fn count(took: &Took) {
    let Took { scan, read, frozen, look, store, trees, sync, .. } = *took;
    let steps = [
        ("scan", scan),
        ("read", read),
        ("frozen", frozen),
        ("look", look),
        ("store", store),
        ("trees", trees),
        ("sync", sync),
    ];
    for (step, took) in steps {
        metrics::histogram!("ash_snapshot_seconds", "step" => step).record(took);
    }
}
