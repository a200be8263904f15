//! Who may look at the files of a session, and store what was seen, and when.
//!
//! Looks and stores of one session follow each other, and a look does not wait for a store. Few of all sessions go on at
//! once: they share processors, disk and memory with the agents.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash_core::id::SessionId;
use ash_snapshot::{Ahead, Look};
use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::persist::PERSIST;
use super::word::failed;
use crate::host::{HostError, StandStill};
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

/// The captures that go on.
pub(super) struct Captures {
    /// Taken by whoever looks at the files of a session, or works on them.
    looks: [Semaphore; 64],
    looks_at_once: Semaphore,
    /// Taken by the capture of a session that is being stored: there is one at a time. Always after the look.
    turns: [Semaphore; 64],
    places: Semaphore,
    /// Taken by whoever reads all of a snapshot before the files of a session go.
    reader: Semaphore,
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
            reader: Semaphore::new(1),
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
    pub(super) async fn admit(
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

    /// The turn of whoever reads all of a snapshot. It keeps nobody from the files.
    pub(super) async fn reader(&self) -> Result<SemaphorePermit<'_>, HostError> {
        self.reader.acquire().await.map_err(|error| failed(PERSIST, error))
    }

    /// Waits until what was seen may be stored: after everything of the same session that was seen before. Others may
    /// look at it meanwhile.
    pub(super) async fn store_after(
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

    pub(super) fn lock_ahead(&self) -> MutexGuard<'_, BTreeMap<SessionId, (u64, Ahead)>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was last seen of a session, if it is not stored yet.
    pub(super) fn ahead_of(&self, session: SessionId) -> Option<Ahead> {
        self.lock_ahead().get(&session).map(|(_, ahead)| ahead.clone())
    }

    /// Room for what one capture holds.
    pub(super) fn room(&self) -> Room<'_> {
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
pub(super) struct Admitted<'a> {
    _look: SemaphorePermit<'a>,
    _place: SemaphorePermit<'a>,
}

/// Room for bytes that were read, until it is dropped.
pub(super) struct Room<'a> {
    captures: &'a Captures,
    pub(super) bytes: u64,
}

impl Room<'_> {
    /// Gives back what is not needed.
    pub(super) fn keep(&mut self, held: u64) {
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
pub(super) struct ToStore<'a> {
    captures: &'a Captures,
    session: SessionId,
    number: u64,
}

impl<'a> ToStore<'a> {
    pub(super) fn new(captures: &'a Captures, session: SessionId, look: &Look) -> Self {
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
pub(super) enum Overtaken {
    No,
    Yes,
}

/// Says that the files of a session are being read, until it is dropped.
pub(super) struct Reading(Arc<Signal<BTreeMap<SessionId, Overtaken>>>, SessionId);

impl Reading {
    pub(super) fn begin(captures: &Captures, session: SessionId) -> Self {
        captures.reading.change(|reading| {
            reading.insert(session, Overtaken::No);
        });
        Self(Arc::clone(&captures.reading), session)
    }

    /// Whether somebody would not wait.
    pub(super) fn is_overtaken(&self) -> bool {
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
