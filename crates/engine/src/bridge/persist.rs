//! Capturing what a session's agent works on.
//!
//! A sandbox that is alive stands still while its files are looked at and what changed is read, for a quarter of a
//! second at the most. One that is paused stands still anyway. Where there is none, nothing moves; if one is started
//! meanwhile, its start waits as long as a freeze would take.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ash_core::id::SessionId;
use ash_core::snapshot::Captured;
use ash_snapshot::{Freeze, Took};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::files::Life;
use super::inner::Inner;
use super::mend;
use super::still::Still;
use super::word::failed;
use crate::host::{HostError, Persist, Persisted, SandboxRef, StandStill};
use crate::signal::Signal;

/// How many captures go on at once: they share processors and disk with the agents.
const AT_ONCE: usize = 2;

/// How long others wait for a capture, or for one to begin: as long as a freeze takes at the most.
const PATIENCE: Duration = Duration::from_millis(250);

const PERSIST: &str = "capture a workspace";

/// The captures that go on.
pub(super) struct Captures {
    places: Semaphore,
    /// Taken by the capture of a session: there is one at a time.
    turns: [Semaphore; 64],
    /// Sessions whose files are being read though nothing runs that could be held, and whether somebody would not wait
    /// for that.
    reading: Arc<Signal<BTreeMap<SessionId, Overtaken>>>,
}

impl Default for Captures {
    fn default() -> Self {
        Self {
            places: Semaphore::new(AT_ONCE),
            turns: std::array::from_fn(|_| Semaphore::new(1)),
            reading: Arc::default(),
        }
    }
}

impl Captures {
    fn turn(&self, session: SessionId) -> &Semaphore {
        let last = session.as_uuid().as_bytes()[15];
        &self.turns[usize::from(last) % self.turns.len()]
    }

    /// The turn of whoever works on the files of a session.
    pub(super) async fn turn_of(
        &self,
        session: SessionId,
    ) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.turn(session).acquire().await
    }

    /// A place among those that read snapshots.
    pub(super) async fn place(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.places.acquire().await
    }

    /// Waits until a session may be captured, and says who else waits for that. Others may be at it for long:
    /// whoever waits for this one to stand still is let go when a freeze would be over, and what it does then is
    /// captured with the rest.
    async fn admit(
        &self,
        session: SessionId,
        still: StandStill,
    ) -> Result<(Admitted<'_>, Option<StandStill>), AcquireError> {
        let mut admitted = pin!(async {
            Ok::<_, AcquireError>(Admitted {
                _turn: self.turn(session).acquire().await?,
                _place: self.places.acquire().await?,
            })
        });
        if let Ok(admitted) = timeout(PATIENCE, &mut admitted).await {
            return Ok((admitted?, Some(still)));
        }
        still.is_over();
        Ok((admitted.await?, None))
    }

    /// Waits until nobody else captures or removes the files of a session, and not too many do of others.
    pub(super) async fn enter(
        &self,
        session: SessionId,
    ) -> Result<[SemaphorePermit<'_>; 2], HostError> {
        let closed = |error| failed(PERSIST, error);
        let turn = self.turn(session).acquire().await.map_err(closed)?;
        Ok([turn, self.places.acquire().await.map_err(closed)?])
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

/// May capture a session, until it is dropped.
struct Admitted<'a> {
    _turn: SemaphorePermit<'a>,
    _place: SemaphorePermit<'a>,
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

    /// What is true of a capture that may have been overtaken.
    fn admit(&self, captured: Captured) -> Captured {
        match self.0.get().get(&self.1) {
            Some(Overtaken::Yes) => {
                Captured { unfrozen: captured.unfrozen.max(captured.files), ..captured }
            }
            Some(Overtaken::No) | None => captured,
        }
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
        let (_admitted, still) = self.captures.admit(session, still).await.map_err(closed)?;
        // A later one may have come up while this waited: it is the one that moves.
        let alive = self.alive_of(session).map_err(told)?;
        let (sandbox, is_alive) = (alive.unwrap_or(sandbox), alive.is_some());
        let places = self.files.places(session);
        // What is in place of the files that a sandbox works on is not the session's.
        let is_elsewhere = is_alive && self.has_lost_its_files(sandbox);
        if is_elsewhere || !self.files.has_workspace(session).map_err(told)? {
            return Ok(Persisted::Gone);
        }
        if is_alive && only_if_busy && self.is_alone(sandbox) {
            return Ok(Persisted::Unchanged);
        }
        let is_proven = is_alive
            || mend::is_believed(&self.files, session, &self.options.boot_id).map_err(told)?;
        let (host, tenant) = (Arc::clone(self), tenant.clone());
        let captured = tokio::task::spawn_blocking(move || {
            let reading = (!is_alive).then(|| Reading::begin(&host.captures, session));
            let holding = is_alive.then(|| Holding {
                host: Arc::clone(&host),
                sandbox,
                held: Mutex::default(),
                still: Mutex::new(still),
            });
            let freeze = holding.as_ref().map(|holding| holding as &dyn Freeze);
            let whose = (&tenant, session);
            let captured = if is_proven {
                host.archive.capture(whose, &places, unless_like, freeze)
            } else {
                host.archive.capture_unproven(whose, &places, unless_like)
            };
            let admit = |(captured, took)| match &reading {
                Some(reading) => (reading.admit(captured), took),
                None => (captured, took),
            };
            captured.map(|captured| captured.map(admit))
        });
        let captured = captured.await.map_err(|error| failed(PERSIST, error))?;
        let captured = captured.map_err(|error| failed(PERSIST, error))?;
        let Some((captured, took)) = captured else { return Ok(Persisted::Unchanged) };
        count(&took);
        Ok(Persisted::Captured(captured))
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
        let id = "01890a5d-ac96-774b-bcce-b302099a8058".parse().unwrap();
        let (files, bytes, new_bytes, unfrozen, unstable) = (7, 70, 7, 2, 0);
        let captured =
            Captured { id, files, bytes, new_bytes, unfrozen, unstable, unproven: false };
        let reading = Reading::begin(&captures, session);
        assert_eq!(reading.admit(captured), captured);
        captures.let_read(session).await;
        assert_eq!(reading.admit(captured), Captured { unfrozen: 7, ..captured });
        drop(reading);
        captures.let_read(session).await;
        assert_eq!(Reading::begin(&captures, session).admit(captured), captured);
    }

    #[tokio::test(start_paused = true)]
    async fn a_prompt_does_not_wait_for_captures_of_others() {
        let captures = Captures::default();
        let now = Timestamp::from_millis(1);
        let [session, other] = [1, 2].map(|last| SessionId::from_parts(now, [last; 10]));
        let (still, moves) = StandStill::new();
        let busy = captures.places.acquire_many(u32::try_from(AT_ONCE).unwrap()).await.unwrap();
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
