//! Capturing what a session's agent works on.
//!
//! A sandbox that is alive stands still while its files are looked at and what changed is read, for a quarter of a
//! second at the most. One that is paused stands still anyway. Where there is none, nothing moves; if one is started
//! meanwhile, its start waits as long as a freeze would take.
//!
//! What was seen is stored afterwards, one after the other for each session and few at once. Storing can take long, and
//! turns follow each other: so the next look does not wait for it, and is of what its own turn left.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash_core::id::SessionId;
use ash_core::snapshot::Captured;
use ash_snapshot::{Ahead, Freeze, Look, Took};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::files::Life;
use super::inner::Inner;
use super::mend;
use super::still::Still;
use super::word::failed;
use crate::archive::{ArchiveError, Looking};
use crate::host::{HostError, Persist, Persisted, SandboxRef, StandStill};
use crate::signal::Signal;

/// How many captures are stored at once: they share processors and disk with the agents.
const AT_ONCE: usize = 2;

/// How many sessions are looked at at once.
const LOOKS_AT_ONCE: usize = 4;

/// How many bytes may be held that were read and are not stored yet, in all, and by one capture.
const MAX_HELD: u64 = 256 * 1024 * 1024;
const MAX_HELD_BY_ONE: u64 = 64 * 1024 * 1024;

/// How long others wait for a capture, or for one to begin: as long as a freeze takes at the most.
const PATIENCE: Duration = Duration::from_millis(250);

const PERSIST: &str = "capture a workspace";

/// The captures that go on.
pub(super) struct Captures {
    /// Taken by whoever looks at the files of a session, or works on them.
    looks: [Semaphore; 64],
    looks_at_once: Semaphore,
    /// Taken by the capture of a session that is being stored: there is one at a time. Always after the look.
    turns: [Semaphore; 64],
    places: Semaphore,
    /// What was last seen of a session, while it is not stored yet.
    ahead: Mutex<BTreeMap<SessionId, (u64, Ahead)>>,
    /// How many were seen.
    seen: AtomicU64,
    /// How many more bytes may be held.
    room: AtomicU64,
    /// Sessions whose files are being read though nothing runs that could be held, and whether somebody would not wait
    /// for that.
    reading: Arc<Signal<BTreeMap<SessionId, Overtaken>>>,
}

impl Default for Captures {
    fn default() -> Self {
        Self {
            looks: std::array::from_fn(|_| Semaphore::new(1)),
            looks_at_once: Semaphore::new(LOOKS_AT_ONCE),
            turns: std::array::from_fn(|_| Semaphore::new(1)),
            places: Semaphore::new(AT_ONCE),
            ahead: Mutex::default(),
            seen: AtomicU64::new(0),
            room: AtomicU64::new(MAX_HELD),
            reading: Arc::default(),
        }
    }
}

fn of(all: &[Semaphore; 64], session: SessionId) -> &Semaphore {
    let last = session.as_uuid().as_bytes()[15];
    &all[usize::from(last) % all.len()]
}

impl Captures {
    /// The turn of whoever works on the files of a session.
    pub(super) async fn turn_of(
        &self,
        session: SessionId,
    ) -> Result<[SemaphorePermit<'_>; 2], AcquireError> {
        let look = of(&self.looks, session).acquire().await?;
        Ok([look, of(&self.turns, session).acquire().await?])
    }

    /// A place among those that read snapshots.
    pub(super) async fn place(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.places.acquire().await
    }

    /// Waits until a session may be looked at, and says who else waits for that. Others may be at it for long:
    /// whoever waits for this one to stand still is let go when a freeze would be over, and what it does then is
    /// captured with the rest.
    async fn admit(
        &self,
        session: SessionId,
        still: StandStill,
    ) -> Result<(Admitted<'_>, Option<StandStill>), AcquireError> {
        let mut admitted = pin!(async {
            Ok::<_, AcquireError>(Admitted {
                _look: of(&self.looks, session).acquire().await?,
                _place: self.looks_at_once.acquire().await?,
            })
        });
        if let Ok(admitted) = timeout(PATIENCE, &mut admitted).await {
            return Ok((admitted?, Some(still)));
        }
        still.is_over();
        Ok((admitted.await?, None))
    }

    /// Waits until what was seen may be stored: after everything of the same session that was seen before. Others may
    /// look at it meanwhile.
    async fn store_after(
        &self,
        session: SessionId,
        admitted: Admitted<'_>,
    ) -> Result<[SemaphorePermit<'_>; 2], AcquireError> {
        let mut turn = pin!(of(&self.turns, session).acquire());
        // Once it was asked for, nobody who looks later comes before it.
        let at_once = tokio::select! {
            biased;
            turn = &mut turn => Some(turn?),
            () = std::future::ready(()) => None,
        };
        drop(admitted);
        let turn = match at_once {
            Some(turn) => turn,
            None => turn.await?,
        };
        Ok([turn, self.places.acquire().await?])
    }

    /// Waits until nobody else captures or removes the files of a session, and not too many do of others.
    pub(super) async fn enter(
        &self,
        session: SessionId,
    ) -> Result<[SemaphorePermit<'_>; 3], HostError> {
        let closed = |error| failed(PERSIST, error);
        let [look, turn] = self.turn_of(session).await.map_err(closed)?;
        Ok([look, turn, self.places.acquire().await.map_err(closed)?])
    }

    fn lock_ahead(&self) -> MutexGuard<'_, BTreeMap<SessionId, (u64, Ahead)>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was last seen of a session, if it is not stored yet.
    fn ahead_of(&self, session: SessionId) -> Option<Ahead> {
        self.lock_ahead().get(&session).map(|(_, ahead)| ahead.clone())
    }

    /// Room for what one capture holds.
    fn room(&self) -> Room<'_> {
        let mut bytes = 0;
        let taken = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            bytes = left.min(MAX_HELD_BY_ONE);
            Some(left - bytes)
        });
        debug_assert!(taken.is_ok(), "nobody refuses");
        Room { captures: self, bytes }
    }

    /// Waits until the files of a session are not being read; but not for long.
    pub(super) async fn let_read(&self, session: SessionId) {
        let mut watched = self.reading.watch();
        let read = watched.wait_for(|reading| !reading.contains_key(&session));
        if timeout(PATIENCE, read).await.is_err() {
            // From now on they may change while they are read.
            self.reading.change(|reading| {
                reading.entry(session).and_modify(|overtaken| *overtaken = Overtaken::Yes);
            });
        }
    }
}

/// May look at a session, until it is dropped.
struct Admitted<'a> {
    _look: SemaphorePermit<'a>,
    _place: SemaphorePermit<'a>,
}

/// Room for bytes that were read, until it is dropped.
struct Room<'a> {
    captures: &'a Captures,
    bytes: u64,
}

impl Room<'_> {
    /// Gives back what is not needed.
    fn keep(&mut self, held: u64) {
        let rest = self.bytes.saturating_sub(held);
        self.captures.room.fetch_add(rest, Ordering::Relaxed);
        self.bytes -= rest;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.keep(0);
    }
}

/// What was seen of a session is not stored yet, until this is dropped.
struct ToStore<'a> {
    captures: &'a Captures,
    session: SessionId,
    number: u64,
}

impl<'a> ToStore<'a> {
    fn new(captures: &'a Captures, session: SessionId, look: &Look) -> Self {
        let number = captures.seen.fetch_add(1, Ordering::Relaxed);
        captures.lock_ahead().insert(session, (number, look.ahead()));
        Self { captures, session, number }
    }
}

impl Drop for ToStore<'_> {
    fn drop(&mut self) {
        // What was seen later stays.
        let mut ahead = self.captures.lock_ahead();
        if ahead.get(&self.session).is_some_and(|(number, _)| *number == self.number) {
            ahead.remove(&self.session);
        }
    }
}

/// Whether a session was started while its files were being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overtaken {
    No,
    Yes,
}

/// Says that the files of a session are being read, until it is dropped.
struct Reading(Arc<Signal<BTreeMap<SessionId, Overtaken>>>, SessionId);

impl Reading {
    fn begin(captures: &Captures, session: SessionId) -> Self {
        captures.reading.change(|reading| {
            reading.insert(session, Overtaken::No);
        });
        Self(Arc::clone(&captures.reading), session)
    }

    /// Whether somebody would not wait.
    fn is_overtaken(&self) -> bool {
        self.0.get().get(&self.1) == Some(&Overtaken::Yes)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.change(|reading| {
            reading.remove(&self.1);
        });
    }
}

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
        let Persist { sandbox, tenant, unless_like, only_if_busy } = persist;
        let session = sandbox.session;
        let closed = |error| failed(PERSIST, error);
        let captures = &self.captures;
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
        Ok(Persisted::Captured(if is_overtaken { all_unfrozen(captured) } else { captured }))
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

#[cfg(test)]
mod test {
    use ash_core::time::Timestamp;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_capture_that_a_start_would_not_wait_for_says_so() {
        let captures = Captures::default();
        let session = SessionId::from_parts(Timestamp::from_millis(1), [1; 10]);
        let reading = Reading::begin(&captures, session);
        assert!(!reading.is_overtaken());
        captures.let_read(session).await;
        assert!(reading.is_overtaken());
        drop(reading);
        captures.let_read(session).await;
        assert!(!Reading::begin(&captures, session).is_overtaken());
    }

    #[tokio::test(start_paused = true)]
    async fn a_prompt_does_not_wait_for_captures_of_others() {
        let captures = Captures::default();
        let now = Timestamp::from_millis(1);
        let [session, other] = [1, 2].map(|last| SessionId::from_parts(now, [last; 10]));
        let (still, moves) = StandStill::new();
        let busy = captures
            .looks_at_once
            .acquire_many(u32::try_from(LOOKS_AT_ONCE).unwrap())
            .await
            .unwrap();
        let mut admitting = pin!(captures.admit(session, still));
        tokio::select! {
            biased;
            _ = &mut admitting => panic!("there is no place"),
            moved = moves => moved.unwrap(),
        }
        drop(busy);
        let (_admitted, still) = admitting.await.unwrap();
        assert!(still.is_none(), "nobody waits any more");

        let (still, _moves) = StandStill::new();
        let (_admitted, still) = captures.admit(other, still).await.unwrap();
        assert!(still.is_some(), "there is a place, and the sandbox is to stand still");
    }
}
