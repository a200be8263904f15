//! How many sandboxes there may be, and which of them makes room for another.
//!
//! A session holds a *place* from the decision to start a sandbox until nothing of it runs any
//! more: see [`Place::of`]. There are so many places, and no more. When all are taken, [`plan`]
//! says who has to give one up: a sandbox that waits for its first session, then the one that has
//! been frozen the longest, then the one that has been idle the longest. One that works, or is
//! about to, never has to.

use crate::session::{Rewinding, Sandbox, Session, State};
use crate::time::Timestamp;

/// What the sandbox in a place does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Waits for the session that it will belong to.
    Prewarmed,
    /// Is frozen, or about to be.
    Frozen,
    /// Waits for a prompt.
    Idle,
    /// Is on its way, or being thawed.
    Starting,
    /// Works on a prompt.
    Running,
    /// Was told to go, and has not gone yet.
    Leaving,
    /// Was told to go, and does not.
    Stuck,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Prewarmed,
        Self::Frozen,
        Self::Idle,
        Self::Starting,
        Self::Running,
        Self::Leaving,
        Self::Stuck,
    ];

    /// Who goes first, if it may be told to go at all.
    const fn eviction_rank(self) -> Option<u8> {
        match self {
            Self::Prewarmed => Some(0),
            Self::Frozen => Some(1),
            Self::Idle => Some(2),
            Self::Starting | Self::Running | Self::Leaving | Self::Stuck => None,
        }
    }
}

/// A place that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the sandbox in it does.
    pub kind: Kind,
    /// Since when, for those whose age matters.
    pub since: Timestamp,
}

impl Place {
    /// The place that a session holds: none, if nothing of it runs.
    pub fn of(session: &Session) -> Option<Self> {
        let at_rest_since = match *session.state() {
            State::Paused { since, .. } => since,
            State::Starting { .. }
            | State::Active
            | State::Stopped
            | State::Error { .. }
            | State::Ended => session.last_active(),
        };
        let after_a_rewind = session.rewinding().is_some_and(Rewinding::comes_back);
        let comes_back = after_a_rewind || matches!(session.state(), State::Starting { .. });
        let (kind, since) = match session.sandbox() {
            Sandbox::None if after_a_rewind => (Kind::Starting, session.last_active()),
            Sandbox::None => return None,
            Sandbox::Starting { .. } | Sandbox::Thawing { .. } => {
                (Kind::Starting, session.last_active())
            }
            Sandbox::Live if session.is_idle() => (Kind::Idle, session.last_active()),
            Sandbox::Live => (Kind::Running, session.last_active()),
            Sandbox::Freezing { .. } => (Kind::Frozen, at_rest_since),
            Sandbox::Frozen { since } => (Kind::Frozen, since),
            // The next sandbox takes the place of this one.
            Sandbox::Stopping { .. } if comes_back => (Kind::Starting, session.last_active()),
            Sandbox::Stopping { attempt: 0 | 1, .. } => (Kind::Leaving, at_rest_since),
            Sandbox::Stopping { .. } => (Kind::Stuck, at_rest_since),
        };
        Some(Self { kind, since })
    }
}

/// How another sandbox gets a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan<Id> {
    /// One is free.
    Room,
    /// This one is about to be free.
    Await(Id),
    /// This one has to go first.
    Evict(Id),
    /// All are taken by those that work.
    Full,
}

/// Says how another sandbox gets one of `most` places. The same places give the same plan, in
/// whatever order they come.
pub fn plan<Id: Copy + Ord>(
    places: impl IntoIterator<Item = (Id, Place)>,
    most: usize,
) -> Plan<Id> {
    let mut taken = 0_usize;
    let mut leaving: Option<(Timestamp, Id)> = None;
    let mut first: Option<(u8, Timestamp, Id)> = None;
    for (id, Place { kind, since }) in places {
        taken += 1;
        if kind == Kind::Leaving {
            leaving = earliest(leaving, (since, id));
        }
        if let Some(rank) = kind.eviction_rank() {
            first = earliest(first, (rank, since, id));
        }
    }
    if taken < most {
        return Plan::Room;
    }
    match (leaving, first) {
        (Some((_, id)), _) => Plan::Await(id),
        (None, Some((_, _, id))) => Plan::Evict(id),
        (None, None) => Plan::Full,
    }
}

fn earliest<T: Ord>(known: Option<T>, another: T) -> Option<T> {
    match known {
        Some(known) => Some(known.min(another)),
        None => Some(another),
    }
}

/// How many sandboxes there are, by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// See [`Kind::Prewarmed`].
    pub prewarmed: u64,
    /// See [`Kind::Frozen`].
    pub frozen: u64,
    /// See [`Kind::Idle`].
    pub idle: u64,
    /// See [`Kind::Starting`].
    pub starting: u64,
    /// See [`Kind::Running`].
    pub running: u64,
    /// Those that were told to go: see [`Kind::Leaving`] and [`Kind::Stuck`].
    pub leaving: u64,
}

impl Occupancy {
    /// Those that live, and will go on to.
    pub const fn live(&self) -> u64 {
        self.prewarmed + self.frozen + self.idle + self.starting + self.running
    }
}

impl FromIterator<Kind> for Occupancy {
    fn from_iter<T: IntoIterator<Item = Kind>>(kinds: T) -> Self {
        let mut counted = Self::default();
        for kind in kinds {
            let counter = match kind {
                Kind::Prewarmed => &mut counted.prewarmed,
                Kind::Frozen => &mut counted.frozen,
                Kind::Idle => &mut counted.idle,
                Kind::Starting => &mut counted.starting,
                Kind::Running => &mut counted.running,
                Kind::Leaving | Kind::Stuck => &mut counted.leaving,
            };
            *counter += 1;
        }
        counted
    }
}

#[cfg(test)]
mod test {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::failure::Death;
    use crate::id::SessionId;
    use crate::policy::{Context, Policy};
    use crate::resume::{Found, IfLost};
    use crate::session::{Fact, IfRunning, PauseReason, Request};

    #[test]
    fn a_session_holds_its_place_until_nothing_of_it_runs() {
        let policy = Policy::default();
        let at = |now| Context { now: Timestamp::from_millis(now), policy: &policy };
        let seen = |session: &Session| {
            Place::of(session).map(|place| (place.kind, place.since.as_millis()))
        };
        let id = SessionId::from_parts(Timestamp::from_millis(1), [0; 10]);
        let (mut session, _) = Session::create(&at(1), id, None);
        let incarnation = session.incarnation();
        assert_eq!(seen(&session), Some((Kind::Starting, 1)));
        let _attached =
            session.observe(&at(2), Fact::SandboxStarted { incarnation, found: Found::NOTHING });
        assert_eq!(seen(&session), Some((Kind::Idle, 2)));
        let freeze = Request::Pause { if_running: IfRunning::Freeze };
        let evict = Request::Evict { reason: PauseReason::Evicted };
        for (now, request, expected) in [
            (3, freeze, (Kind::Frozen, 3)),
            (4, evict, (Kind::Leaving, 3)),
            // The next sandbox takes the place of this one.
            (5, Request::Resume(IfLost::default().into()), (Kind::Starting, 5)),
            (6, Request::Stop, (Kind::Leaving, 5)),
        ] {
            let _performed = session.request(&at(now), request).unwrap();
            assert_eq!(seen(&session), Some(expected));
        }
        let _asked_again = session.observe(&at(1_000_000), Fact::TimePassed);
        assert_eq!(seen(&session).unwrap().0, Kind::Stuck);
        let gone = Fact::SandboxGone { incarnation, death: Death::Stopped };
        let _nothing = session.observe(&at(1_000_001), gone);
        assert_eq!(seen(&session), None);
    }

    fn place() -> impl Strategy<Value = Place> {
        let kind = prop::sample::select(Kind::ALL.to_vec());
        // Few different times, so that there are ties.
        (kind, 0_i64..4).prop_map(|(kind, at)| Place { kind, since: Timestamp::from_millis(at) })
    }

    fn places() -> impl Strategy<Value = BTreeMap<u32, Place>> {
        prop::collection::btree_map(0_u32..100, place(), 0..12)
    }

    fn planned(places: &BTreeMap<u32, Place>, most: usize) -> Plan<u32> {
        plan(places.iter().map(|(id, place)| (*id, *place)), most)
    }

    proptest! {
        #[test]
        fn only_those_that_do_nothing_are_evicted(places in places(), most in 1_usize..12) {
            if let Plan::Evict(id) = planned(&places, most) {
                prop_assert!(matches!(
                    places[&id].kind,
                    Kind::Prewarmed | Kind::Frozen | Kind::Idle
                ));
            }
        }

        #[test]
        fn nobody_goes_before_an_older_one_of_its_kind(places in places(), most in 1_usize..12) {
            if let Plan::Evict(id) = planned(&places, most) {
                let order = |id: u32, place: Place| (place.kind, place.since, id);
                let evicted = order(id, places[&id]);
                for (&other, &place) in &places {
                    let may_go = matches!(place.kind, Kind::Prewarmed | Kind::Frozen | Kind::Idle);
                    prop_assert!(!may_go || evicted <= order(other, place));
                }
            }
        }

        #[test]
        fn nobody_is_evicted_while_one_is_free_or_about_to_be(
            places in places(),
            most in 1_usize..12,
        ) {
            let leaves = places.values().any(|place| place.kind == Kind::Leaving);
            match planned(&places, most) {
                Plan::Room => prop_assert!(places.len() < most),
                Plan::Await(id) => prop_assert_eq!(places[&id].kind, Kind::Leaving),
                Plan::Evict(_) | Plan::Full => prop_assert!(places.len() >= most && !leaves),
            }
        }

        #[test]
        fn only_those_that_work_fill_the_pool(places in places(), most in 1_usize..12) {
            let all_work = places
                .values()
                .all(|place| matches!(place.kind, Kind::Starting | Kind::Running | Kind::Stuck));
            let full = planned(&places, most) == Plan::Full;
            prop_assert_eq!(full, places.len() >= most && all_work);
        }

        /// Whoever follows the plan never has more sandboxes than there may be, and gets a place
        /// for every start unless all the others work.
        #[test]
        fn who_follows_the_plan_stays_within_the_bound(
            starts in prop::collection::vec(place(), 1..40),
            most in 1_usize..6,
        ) {
            let mut places = BTreeMap::new();
            for (id, start) in starts.into_iter().enumerate() {
                let id = u32::try_from(id).unwrap();
                loop {
                    match planned(&places, most) {
                        Plan::Room => {
                            places.insert(id, start);
                            break;
                        }
                        Plan::Await(id) | Plan::Evict(id) => drop(places.remove(&id).unwrap()),
                        Plan::Full => break,
                    }
                }
                prop_assert!(places.len() <= most);
            }
        }

        #[test]
        fn the_order_in_which_places_come_does_not_matter(
            places in places(),
            most in 1_usize..12,
        ) {
            let backwards = places.iter().rev().map(|(id, place)| (*id, *place));
            prop_assert_eq!(plan(backwards, most), planned(&places, most));
        }

        #[test]
        fn every_place_is_counted_once(places in places()) {
            let counted: Occupancy = places.values().map(|place| place.kind).collect();
            prop_assert_eq!(counted.live() + counted.leaving, places.len() as u64);
        }
    }
}
