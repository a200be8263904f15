//! The numbers of the domain, each its own type: they all look alike and mean different things.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            /// Before the first.
            pub const ZERO: Self = Self(0);

            /// Takes a number as it was stored or sent.
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The plain number.
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The one after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

counter!(
    /// A position in a session's log. The first entry is 1 and there are no holes.
    Seq(u64)
);
counter!(
    /// Counts the histories a session's log has had. Changes only when history was lost or
    /// imported; never on restart, failover, resume or rewind.
    LogEpoch(u32)
);
counter!(
    /// The lease number of a session's owner. Every claim raises it, every durable write names it.
    Fence(u64)
);
counter!(
    /// Counts the sandbox starts of a session. Zero: none was ever asked for.
    Incarnation(u32)
);
counter!(
    /// A run's ordinal in the log. Zero stands for "before the first turn".
    Turn(u32)
);
counter!(
    /// Numbers what one incarnation of a sandbox has reported, from 1.
    SpoolPosition(u64)
);
counter!(
    /// Numbers the lives of servers over one store. A later one takes sessions from an earlier
    /// one, never the other way round.
    Owner(u64)
);
counter!(
    /// Numbers the immutable versions of an agent, from 1.
    AgentVersion(u32)
);

impl Seq {
    /// The position `entries` after this one.
    #[must_use]
    pub fn plus(self, entries: usize) -> Self {
        Self(self.0 + entries as u64)
    }
}

/// A place in one history of a session's log: what a client hands back to go on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Which history.
    pub epoch: LogEpoch,
    /// The last entry seen.
    pub seq: Seq,
}

/// A text that is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid cursor: expected <logEpoch>-<seq>")]
pub struct ParseCursorError;

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.epoch, self.seq)
    }
}

impl FromStr for Cursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let (epoch, seq) = text.split_once('-').ok_or(ParseCursorError)?;
        Ok(Self { epoch: LogEpoch(plain(epoch)?), seq: Seq(plain(seq)?) })
    }
}

/// Digits only: `u64::from_str` would also take a leading plus sign.
fn plain<T: FromStr>(digits: &str) -> Result<T, ParseCursorError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseCursorError);
    }
    digits.parse().map_err(|_| ParseCursorError)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_cursor_survives_the_trip_to_a_client_and_back() {
        let cursor = Cursor { epoch: LogEpoch::new(2), seq: Seq::new(17) };
        assert_eq!(cursor.to_string(), "2-17");
        assert_eq!("2-17".parse(), Ok(cursor));
    }

    #[test]
    fn anything_else_is_not_a_cursor() {
        for bad in [
            "",
            "17",
            "-17",
            "2-",
            "+2-1",
            "2-+1",
            "2--1",
            "2-1-1",
            "a-1",
            "2-99999999999999999999",
        ] {
            assert_eq!(bad.parse::<Cursor>(), Err(ParseCursorError), "{bad:?}");
        }
    }
}
