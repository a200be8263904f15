//! Which files go first when room gets short.

use std::cmp::Reverse;

use crate::time::Timestamp;

/// Files that could be removed because a snapshot has them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<T> {
    /// Whose they are.
    pub whose: T,
    /// How large they are together.
    pub bytes: u64,
    /// When somebody last used them.
    pub last_used: Timestamp,
}

/// Whose files go first: those that have taken the most room for the longest time. Each megabyte begun counts, so
/// that many small ones go too, the oldest first.
pub fn order<T: Ord + Copy>(mut candidates: Vec<Candidate<T>>, now: Timestamp) -> Vec<T> {
    let weight = |candidate: &Candidate<T>| {
        let megabytes = u128::from(candidate.bytes >> 20) + 1;
        megabytes * (now.since(candidate.last_used).as_millis() + 1)
    };
    candidates.sort_by_key(|candidate| (Reverse(weight(candidate)), candidate.whose));
    candidates.into_iter().map(|candidate| candidate.whose).collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_large_and_old_goes_first() {
        let now = Timestamp::from_millis(10_000_000);
        let of = |whose, megabytes: u64, age: i64| Candidate {
            whose,
            bytes: megabytes << 20,
            last_used: Timestamp::from_millis(10_000_000 - age),
        };
        let all = vec![
            of("small and new", 1, 1_000),
            of("large and new", 1_000, 1_000),
            of("small and old", 1, 1_000_000),
            of("large and old", 1_000, 1_000_000),
            of("nothing at all", 0, 10),
        ];
        let ordered = order(all, now);
        assert_eq!(
            ordered,
            ["large and old", "small and old", "large and new", "small and new", "nothing at all"]
        );
    }

    #[test]
    fn a_clock_that_went_back_makes_nobody_old() {
        let now = Timestamp::from_millis(0);
        let later = Candidate { whose: 1, bytes: 5, last_used: Timestamp::from_millis(9_000) };
        let earlier = Candidate { whose: 2, bytes: 5, last_used: Timestamp::from_millis(-9_000) };
        assert_eq!(order(vec![later, earlier], now), [2, 1]);
    }
}
