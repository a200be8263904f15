//! Counts how often a request was tried: the one thing that a conversation does not tell.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// How many conversations are counted. The oldest are forgotten first, and begin anew.
const MAX_COUNTED: usize = 10_000;

/// How often each request was tried.
#[derive(Default)]
pub(crate) struct Attempts(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    by_digest: BTreeMap<u64, u64>,
    order: VecDeque<u64>,
}

impl Attempts {
    /// Counts an attempt, and gives the number of those before it.
    pub(crate) fn next(&self, digest: u64) -> u64 {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.by_digest.get_mut(&digest) {
            *count += 1;
            return *count;
        }
        if counts.order.len() >= MAX_COUNTED
            && let Some(oldest) = counts.order.pop_front()
        {
            counts.by_digest.remove(&oldest);
        }
        counts.by_digest.insert(digest, 0);
        counts.order.push_back(digest);
        0
    }
}
