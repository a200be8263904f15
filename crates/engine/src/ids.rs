//! Where new ids come from.

use std::sync::{Mutex, PoisonError};

use ash_core::time::Timestamp;

/// The random part of new ids: unguessable in production, repeatable in a simulation.
pub struct IdSource(Source);

enum Source {
    OperatingSystem,
    Seeded(Mutex<u64>),
}

impl IdSource {
    /// Ids that nobody can guess.
    pub fn unguessable() -> Self {
        Self(Source::OperatingSystem)
    }

    /// The same ids for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Mutex::new(seed)))
    }

    /// Makes an id: `ids.make(now, SessionId::from_parts)`.
    pub fn make<T>(&self, now: Timestamp, from_parts: fn(Timestamp, [u8; 10]) -> T) -> T {
        let mut random = [0; 10];
        match &self.0 {
            Source::OperatingSystem => getrandom::fill(&mut random)
                .expect("an operating system without randomness cannot run a server"),
            Source::Seeded(counter) => {
                let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
                *counter = counter.wrapping_add(1);
                random[2..].copy_from_slice(&counter.to_be_bytes());
            }
        }
        from_parts(now, random)
    }
}
