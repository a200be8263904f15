//! Sessions that were read lately, as they were read.
//!
//! Only where no other process writes to the file. Whatever changes a session forgets it here after
//! its commit has returned and before anybody is told, so that a look begun afterwards finds what was
//! written. A look that was under way meanwhile may have seen the session as it was before: it noted
//! the count of changes first, and keeps nothing if that has moved.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ash_core::id::{SessionId, TenantId};

use crate::StoredSession;

/// Sessions are spread over so many locks, by their id.
const SHARDS: usize = 16;

/// How many sessions are kept under each.
const MAX_KEPT: usize = 64;

/// The largest one that is kept, in bytes as it lies in the file. Together this bounds all of them
/// by 16 MB; usual ones have 2 KB.
pub(super) const MAX_BYTES: usize = 16 * 1024;

/// What a write changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// No session.
    None,
    /// This one.
    Session(SessionId),
    /// Maybe any.
    All,
}

/// Sessions that were read lately.
#[derive(Default)]
pub(super) struct Recent {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    changes: u64,
    kept: HashMap<SessionId, Arc<StoredSession>>,
}

/// What a look found.
pub(super) enum Looked {
    /// The session.
    Kept(Arc<StoredSession>),
    /// Nothing: it has to be read. It may be kept if there are no more changes by then.
    Missing(Changes),
}

/// How many changes there had been.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changes(u64);

impl Recent {
    /// Looks for a tenant's session. Another tenant's is not there.
    pub(super) fn look(&self, tenant: &TenantId, id: SessionId) -> Looked {
        let shard = self.shard(id);
        match shard.kept.get(&id) {
            Some(kept) if kept.record.tenant == *tenant => Looked::Kept(Arc::clone(kept)),
            Some(_) | None => Looked::Missing(Changes(shard.changes)),
        }
    }

    /// Keeps a session that was read after the look that did not find it.
    pub(super) fn keep(&self, read: &Arc<StoredSession>, Changes(before): Changes) {
        let id = read.record.id;
        let mut shard = self.shard(id);
        if shard.changes != before {
            return;
        }
        if shard.kept.len() >= MAX_KEPT
            && let Some(any) = shard.kept.keys().next().copied()
        {
            shard.kept.remove(&any);
        }
        shard.kept.insert(id, Arc::clone(read));
    }

    /// Forgets what a write has changed, or may have.
    pub(super) fn forget(&self, touched: Touched) {
        match touched {
            Touched::None => {}
            Touched::Session(id) => {
                let mut shard = self.shard(id);
                shard.changes += 1;
                shard.kept.remove(&id);
            }
            Touched::All => {
                for shard in &self.shards {
                    let mut shard = lock(shard);
                    shard.changes += 1;
                    shard.kept.clear();
                }
            }
        }
    }

    fn shard(&self, id: SessionId) -> MutexGuard<'_, Shard> {
        // The end of an id is random.
        let [.., last] = *id.as_uuid().as_bytes();
        lock(&self.shards[usize::from(last) % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().expect("nothing panics under this lock")
}

#[cfg(test)]
mod test;
