//! Who gets a place, by how long they have waited for one.

use super::*;

fn session(number: u8) -> SessionId {
    SessionId::from_parts(Timestamp::from_millis(0), [number; 10])
}

fn counted(most: usize) -> Arc<Places> {
    let places = Places::new(most);
    places.state().heard = None;
    places
}

#[test]
fn whoever_comes_later_does_not_take_a_place_that_somebody_waits_for() {
    let (places, now) = (counted(1), Timestamp::from_millis(0));
    let (first, second) = (places.reserve().unwrap(), places.reserve().unwrap());
    assert!(!places.take(session(9), None, now), "two stand in line");
    assert_eq!(places.plan(&second, |_| false), Plan::Full, "it is the first one's");
    assert_eq!(places.plan(&first, |_| false), Plan::Room);
    assert!(places.take(session(1), Some(&first), now));
    drop(second);
    assert!(!places.take(session(9), None, now), "it is taken");
    places.set(session(1), None);
    assert!(places.take(session(9), None, now), "nobody waits any more");
}

#[test]
fn one_that_goes_makes_no_room_while_there_are_more_than_there_may_be() {
    let (places, now) = (counted(1), Timestamp::from_millis(0));
    let leaving = Place { kind: Kind::Leaving, since: now };
    for number in [1, 2] {
        places.set(session(number), Some(leaving));
    }
    let reserved = places.reserve().unwrap();
    for (number, becomes) in [(1, Standing::Wants), (2, Standing::Has)] {
        let awaited = places.plan(&reserved, |_| false);
        assert_eq!(awaited, Plan::Await(Holder::Session(session(number))));
        places.set(session(number), None);
        assert_eq!(reserved.standing(), Some(becomes));
    }
    assert!(places.take(session(3), Some(&reserved), now));
}
