//! Which protocol versions a side speaks, and which one two sides agree on.

use serde::{Deserialize, Serialize};

/// A range of protocol versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// The oldest that is spoken.
    pub oldest: u16,
    /// The newest that is spoken.
    pub newest: u16,
}

/// What this build speaks: the current version and, once there is one, the one before it, so that
/// a server can be replaced while bridges of the former release finish their turns.
pub const OURS: Versions = Versions::current_and_former(1);

impl Versions {
    /// Version `current` and the one before it.
    pub const fn current_and_former(current: u16) -> Self {
        // The first version is 1: nothing came before it.
        Self { oldest: if current > 1 { current - 1 } else { 1 }, newest: current }
    }

    /// The newest version that both sides speak.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest && newest >= other.oldest).then_some(newest)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn neighbors_understand_each_other_and_strangers_do_not() {
        let of = Versions::current_and_former;
        assert_eq!(of(5).common(of(5)), Some(5));
        assert_eq!(of(5).common(of(4)), Some(4));
        assert_eq!(of(4).common(of(5)), Some(4));
        assert_eq!(of(5).common(of(3)), None);
        assert_eq!(of(1).common(of(2)), Some(1));
        assert_eq!(of(1), Versions { oldest: 1, newest: 1 });
    }

    #[test]
    fn a_range_that_is_upside_down_agrees_with_nobody() {
        let lie = Versions { oldest: 9, newest: 1 };
        assert_eq!(lie.common(Versions { oldest: 0, newest: u16::MAX }), None);
    }
}
