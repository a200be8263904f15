//! The places for sandboxes: who holds one, and how another one gets one.
//!
//! A session holds a place for as long as something of it runs, or may. Its driver says so after
//! every commit, and takes a place before it records a decision that starts a sandbox. If none is
//! free, the request is turned down: nothing has changed. Whoever made it then makes room and asks
//! again with a [`Reservation`], so no driver ever waits for another one. While all that hold one work, it
//! waits for a while: after a burst, most have nothing to do within moments.
//!
//! Sandboxes that wait for a session hold places too: see [`WarmPlaces`]. They are the first to go, and
//! while somebody waits for a place there are no new ones.
//!
//! What is held after a restart is counted from the store, once, before anybody gets a place.

mod warm;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash_core::failure::{Failure, FailureCode};
use ash_core::id::SessionId;
use ash_core::pool::{Kind, Occupancy, Place, Plan, plan};
use ash_core::session::{PauseReason, Request, Session};
use ash_core::time::Timestamp;
use ash_store::Store;
use tokio::time::{Instant, timeout_at};

use crate::error::EngineError;
use crate::host::WarmId;
use crate::registry::{Decided, Registry, Want};
use crate::signal::Signal;

pub use warm::WarmPlaces;

/// How many may stand in line for a place. Whoever comes then is refused at once.
const MAX_WAITING: usize = 1_024;

/// While all places are taken, it is looked this often who has one: not everything that ends is told.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Who holds the places of an engine.
pub(crate) struct Places {
    most: usize,
    state: Mutex<State>,
    /// Held by whoever decides who has to go: one at a time.
    deciding: Arc<tokio::sync::Mutex<()>>,
    /// Says that somebody who waits for a place may look again.
    news: Arc<Signal<()>>,
}

struct State {
    held: BTreeMap<SessionId, Held>,
    /// The sandboxes that wait for a session, or will.
    warm: BTreeMap<WarmId, Warm>,
    reservations: BTreeMap<u64, Standing>,
    /// How many reservations were ever made; each has a number.
    made: u64,
    /// The sessions that were heard of before everything was counted. Nothing, once it was.
    heard: Option<BTreeSet<SessionId>>,
}

struct Held {
    place: Place,
    /// Whether the session is being recorded, so that the store may not know of it yet.
    is_new: bool,
}

struct Warm {
    since: Timestamp,
    /// Starting, waiting, or, if an earlier server left it, on its way out.
    kind: Kind,
}

/// Who holds a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Session(SessionId),
    Warm(WarmId),
}

/// How far somebody who wants a place has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Wants,
    /// Gets the place of a sandbox that was told to go.
    WaitsFor(Holder),
    Has,
}

impl State {
    fn taken(&self) -> usize {
        self.held.len() + self.warm.len() + self.reserved()
    }

    fn reserved(&self) -> usize {
        self.reservations.values().filter(|standing| **standing == Standing::Has).count()
    }

    /// Whether somebody stands in line who has no place yet.
    fn is_awaited(&self) -> bool {
        self.reservations.values().any(|standing| *standing != Standing::Has)
    }

    /// How many have stood in line for longer, and are not promised anything yet.
    fn ahead_of(&self, number: u64) -> usize {
        let earlier = self.reservations.range(..number);
        earlier.filter(|(_, standing)| **standing == Standing::Wants).count()
    }

    fn is_promised(&self, holder: Holder) -> bool {
        self.reservations.values().any(|standing| *standing == Standing::WaitsFor(holder))
    }
}

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            state: Mutex::new(State {
                held: BTreeMap::new(),
                warm: BTreeMap::new(),
                reservations: BTreeMap::new(),
                made: 0,
                heard: Some(BTreeSet::new()),
            }),
            deciding: Arc::default(),
            news: Arc::default(),
        })
    }

    /// What is recorded of a session says whether it holds a place. Only its driver says so.
    pub(crate) fn note(&self, session: &Session) {
        self.set(session.id(), Place::of(session));
    }

    /// There is no such session, unless it is being recorded right now.
    pub(crate) fn forget(&self, session: SessionId) {
        if !self.state().held.get(&session).is_some_and(|held| held.is_new) {
            self.set(session, None);
        }
    }

    fn set(&self, session: SessionId, place: Option<Place>) {
        let mut state = self.state();
        if let Some(heard) = &mut state.heard {
            heard.insert(session);
        }
        match place {
            Some(place) => drop(state.held.insert(session, Held { place, is_new: false })),
            None => drop(state.held.remove(&session)),
        }
        let becomes = match place.map(|place| place.kind) {
            Some(Kind::Leaving) => return,
            // Whoever it was promised to has it now, or has to look for another one.
            None if state.taken() < self.most => Standing::Has,
            // There were more than there may be: one that goes makes no room yet.
            None | Some(_) => Standing::Wants,
        };
        let holder = Holder::Session(session);
        let waits = |standing: &&mut Standing| **standing == Standing::WaitsFor(holder);
        if let Some(heir) = state.reservations.values_mut().find(waits) {
            *heir = becomes;
        }
        let is_awaited = state.is_awaited() || becomes == Standing::Has;
        drop(state);
        if is_awaited {
            self.news.change(|()| ());
        }
    }

    /// Takes a place for a session that is about to start a sandbox: the one that was reserved for
    /// it, or a free one. Says whether it got one.
    pub(crate) fn take(
        &self,
        session: SessionId,
        reserved: Option<&Reservation>,
        now: Timestamp,
    ) -> bool {
        self.take_as(session, reserved, Held { place: starting(now), is_new: false })
    }

    fn take_as(&self, session: SessionId, reserved: Option<&Reservation>, held: Held) -> bool {
        let mut state = self.state();
        let is_somebody_s = match reserved {
            Some(reserved) => {
                // It becomes the session's.
                state.reservations.remove(&reserved.number);
                false
            }
            // Whoever comes now stands in line with those who wait.
            None => state.is_awaited(),
        };
        let is_free = state.heard.is_none() && state.taken() < self.most && !is_somebody_s;
        let got = is_free || state.held.contains_key(&session);
        if got {
            state.held.insert(session, held);
        }
        got
    }

    /// How many there are, by what they do.
    pub(crate) fn occupancy(&self) -> Occupancy {
        let state = self.state();
        let warm = state.warm.values().map(|warm| warm.kind);
        state.held.values().map(|held| held.place.kind).chain(warm).collect()
    }

    /// The sessions that hold a place and are recorded.
    pub(crate) fn holders(&self) -> Vec<SessionId> {
        let state = self.state();
        let recorded = state.held.iter().filter(|(_, held)| !held.is_new);
        recorded.map(|(session, _)| *session).collect()
    }

    /// Counts what an earlier engine left, if that was not done yet.
    pub(crate) async fn count(&self, store: &dyn Store) -> Result<(), EngineError> {
        if self.state().heard.is_none() {
            return Ok(());
        }
        let housed = store.housed_sessions().await?;
        let mut state = self.state();
        let Some(heard) = state.heard.take() else { return Ok(()) };
        for session in housed {
            // What a driver said meanwhile is newer.
            if let Some(place) = Place::of(&session)
                && !heard.contains(&session.id())
            {
                state.held.insert(session.id(), Held { place, is_new: false });
            }
        }
        Ok(())
    }

    /// Stands in line for a place; nothing, if too many do.
    fn reserve(self: &Arc<Self>) -> Option<Reservation> {
        let mut state = self.state();
        if state.reservations.len() >= MAX_WAITING {
            return None;
        }
        state.made += 1;
        let number = state.made;
        state.reservations.insert(number, Standing::Wants);
        Some(Reservation { places: Arc::clone(self), number })
    }

    /// Says how a reservation gets a place, and promises it one that is free or about to be.
    /// Whoever is `busy` does not have to go, whatever is known of it here.
    fn plan(&self, reserved: &Reservation, busy: impl Fn(Holder) -> bool) -> Plan<Holder> {
        let mut state = self.state();
        let state = &mut *state;
        let waiting = state.warm.iter().map(|(&id, warm)| {
            (Holder::Warm(id), Place { kind: Kind::Prewarmed, since: warm.since })
        });
        let sessions =
            state.held.iter().map(|(&session, held)| (Holder::Session(session), held.place));
        let places = sessions.chain(waiting).map(|(holder, place)| {
            let kind = match place.kind {
                // Whoever it is promised to is about to start.
                Kind::Leaving if state.is_promised(holder) => Kind::Starting,
                Kind::Prewarmed | Kind::Frozen | Kind::Idle if busy(holder) => Kind::Running,
                kind @ (Kind::Prewarmed
                | Kind::Frozen
                | Kind::Idle
                | Kind::Starting
                | Kind::Running
                | Kind::Leaving
                | Kind::Stuck) => kind,
            };
            (holder, Place { kind, ..place })
        });
        let spoken_for = state.reserved() + state.ahead_of(reserved.number);
        let plan = plan(places, self.most.saturating_sub(spoken_for));
        let standing = match plan {
            Plan::Room => Standing::Has,
            Plan::Await(holder) => Standing::WaitsFor(holder),
            Plan::Evict(_) | Plan::Full => Standing::Wants,
        };
        state.reservations.insert(reserved.number, standing);
        plan
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn starting(now: Timestamp) -> Place {
    Place { kind: Kind::Starting, since: now }
}

/// A place that is kept for somebody, until it is dropped or becomes a session's.
pub(crate) struct Reservation {
    places: Arc<Places>,
    number: u64,
}

impl Reservation {
    fn standing(&self) -> Option<Standing> {
        self.places.state().reservations.get(&self.number).copied()
    }

    /// Waits until the sandbox it waits for is gone, or turns out to stay. Says whether there is a
    /// place now.
    async fn settled(&self) -> bool {
        let mut news = self.places.news.watch();
        loop {
            match self.standing() {
                Some(Standing::WaitsFor(_)) => news.changed().await,
                Some(Standing::Has) => return true,
                Some(Standing::Wants) | None => return false,
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.places.state().reservations.remove(&self.number);
    }
}

/// The place of a session that is being recorded. If it is dropped before that is known to have
/// happened, a driver finds out.
pub(crate) struct NewPlace {
    registry: Arc<Registry>,
    session: SessionId,
    is_recorded: bool,
}

impl NewPlace {
    /// The session is recorded: from now on its driver says what it holds.
    pub(crate) fn recorded(mut self) {
        self.is_recorded = true;
    }
}

impl Drop for NewPlace {
    fn drop(&mut self) {
        let places = &self.registry.shared().places;
        if let Some(held) = places.state().held.get_mut(&self.session) {
            held.is_new = false;
        }
        if !self.is_recorded {
            self.registry.wake(self.session);
        }
    }
}

impl Registry {
    /// Gets a place for a session that is about to be recorded.
    pub(crate) async fn place_for_new(
        self: &Arc<Self>,
        session: SessionId,
    ) -> Result<NewPlace, EngineError> {
        let places = &self.shared().places;
        let held = || Held { place: starting(self.shared().now()), is_new: true };
        if !places.take_as(session, None, held()) {
            let reserved = self.make_room().await?;
            if !places.take_as(session, Some(&reserved), held()) {
                return Err(full());
            }
        }
        Ok(NewPlace { registry: Arc::clone(self), session, is_recorded: false })
    }

    /// Asks the driver of a session for a decision that may start a sandbox. If there is no place
    /// for one, room is made and the driver is asked again.
    pub(crate) async fn request_with_room(
        self: &Arc<Self>,
        session: SessionId,
        want: impl Fn() -> Want,
    ) -> Result<Decided, EngineError> {
        match self.request(session, want()).await {
            Err(error) if error.is_full() => {
                let reserved = self.make_room().await?;
                self.request_in(session, want(), Some(reserved)).await
            }
            answer => answer,
        }
    }

    /// Gets a place, if need be by having another sandbox go.
    async fn make_room(self: &Arc<Self>) -> Result<Reservation, EngineError> {
        // A sandbox that does not go within one timeout is not waited for any longer.
        let patience = self.shared().policy.stop_timeout * 2;
        let mut evicted = Vec::new();
        let found = tokio::time::timeout(patience, self.find_room(&mut evicted)).await;
        let found = found.unwrap_or_else(|_| Err(full()));
        if let Some(cloud) = self.shared().cloud.as_ref().filter(|_| found.is_ok()) {
            cloud.wait_for_all(self.shared(), &evicted, Duration::MAX).await;
        }
        if found.as_ref().is_err_and(EngineError::is_full) {
            self.shared().counts.found_no_place();
        }
        found
    }

    /// Gets a place, and says who went for it.
    async fn find_room(
        self: &Arc<Self>,
        evicted: &mut Vec<SessionId>,
    ) -> Result<Reservation, EngineError> {
        let shared = self.shared();
        let reserved = shared.places.reserve().ok_or_else(full)?;
        let mut asked = BTreeSet::new();
        let give_up = Instant::now() + shared.policy.place_patience;
        loop {
            // Before it is looked who is where: whoever changes that afterwards is noticed.
            let mut news = shared.places.news.watch();
            let deciding = Arc::clone(&shared.places.deciding).lock_owned().await;
            shared.places.count(&*shared.store).await?;
            let busy = |holder| {
                let works = match holder {
                    Holder::Session(session) => shared.commands.goes_on_in(session),
                    Holder::Warm(_) => false,
                };
                works || asked.contains(&holder)
            };
            match shared.places.plan(&reserved, busy) {
                Plan::Room => return Ok(reserved),
                Plan::Await(_) => {
                    drop(deciding);
                    if reserved.settled().await {
                        return Ok(reserved);
                    }
                }
                Plan::Evict(holder) => {
                    asked.insert(holder);
                    match holder {
                        Holder::Session(session) => {
                            evicted.extend(self.have_go(session).await?);
                        }
                        Holder::Warm(warm) => {
                            if self.have_warm_go(warm, &reserved).await {
                                return Ok(reserved);
                            }
                        }
                    }
                }
                Plan::Full => {
                    drop(deciding);
                    if Instant::now() >= give_up {
                        return Err(full());
                    }
                    let look = give_up.min(Instant::now() + LOOK_AGAIN);
                    let _news_or_not = timeout_at(look, news.changed()).await;
                    // Whoever did not go may have nothing to do by now.
                    asked.clear();
                }
            }
        }
    }

    /// Has a session give its place up. If it does not, because it got something to do meanwhile
    /// or cannot be asked, it is for the next one to go.
    async fn have_go(
        self: &Arc<Self>,
        session: SessionId,
    ) -> Result<Option<SessionId>, EngineError> {
        let request = Request::Evict { reason: PauseReason::Evicted };
        match self.request(session, Want::Decide { request, receipt: None }).await {
            Ok(_) => {
                self.shared().counts.evicted();
                Ok(Some(session))
            }
            Err(EngineError::Draining) => Err(EngineError::Draining),
            Err(error) => {
                tracing::debug!(
                    session.id = %session,
                    error = &error as &dyn std::error::Error,
                    "session {session} does not make room",
                );
                Ok(None)
            }
        }
    }
}

pub(crate) fn full() -> EngineError {
    let message = "Sandbox capacity reached and no evictable sandboxes (all running)";
    EngineError::Failed(Failure::new(FailureCode::SandboxCapacity, message))
}

#[cfg(test)]
mod test;
