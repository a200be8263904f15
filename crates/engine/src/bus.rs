//! Wakes those who follow a log when it has grown.
//!
//! The bus carries no entries, only how far a log reaches: what a follower is shown is always
//! read from the store, so it is durable, and a slow follower costs no memory. Logs that nobody
//! follows are not in the map.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash_core::id::SessionId;
use ash_core::number::Seq;

use crate::signal::{Signal, Watcher};

/// How far a log reaches, as far as this process knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) seq: Seq,
    /// The server is about to go; followers should come back to the next one.
    pub(crate) closing: bool,
}

/// One reader's ear on the bus. The log is forgotten here when its last reader goes.
pub(crate) struct Subscription {
    bus: Arc<Bus>,
    session: SessionId,
    head: Watcher<Head>,
}

impl Subscription {
    /// The latest news. What is published after this call resolves [`changed`](Self::changed).
    pub(crate) fn head(&mut self) -> Head {
        self.head.look()
    }

    /// Waits for news.
    pub(crate) async fn changed(&mut self) {
        self.head.changed().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut heads = self.bus.heads();
        // The map and this reader.
        if self.head.holders() == 2 {
            heads.followed.remove(&self.session);
        }
    }
}

#[derive(Default)]
pub(crate) struct Bus {
    heads: Mutex<Heads>,
}

#[derive(Default)]
struct Heads {
    followed: BTreeMap<SessionId, Arc<Signal<Head>>>,
    closing: bool,
}

impl Bus {
    /// Says that a session's log now reaches `seq`. Only after the commit that made it so.
    pub(crate) fn publish(&self, session: SessionId, seq: Seq) {
        if let Some(signal) = self.heads().followed.get(&session) {
            signal.change(|head| head.seq = head.seq.max(seq));
        }
    }

    /// Hears from now on how far a session's log reaches. Subscribe first, read after: then an
    /// entry is either in the read or in the news.
    pub(crate) fn subscribe(self: &Arc<Self>, session: SessionId) -> Subscription {
        let mut heads = self.heads();
        let closing = heads.closing;
        let signal = heads.followed.entry(session).or_default();
        if closing {
            signal.change(|head| head.closing = true);
        }
        Subscription { bus: Arc::clone(self), session, head: signal.watch() }
    }

    /// Sends every follower away.
    pub(crate) fn close(&self) {
        let mut heads = self.heads();
        heads.closing = true;
        for signal in heads.followed.values() {
            signal.change(|head| head.closing = true);
        }
    }

    fn heads(&self) -> MutexGuard<'_, Heads> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use ash_core::time::Timestamp;

    #[test]
    fn a_log_is_forgotten_when_its_last_reader_goes() {
        let bus = Arc::new(Bus::default());
        let session = SessionId::from_parts(Timestamp::from_millis(1), [1; 10]);
        let (mut one, two) = (bus.subscribe(session), bus.subscribe(session));
        bus.publish(session, Seq::new(3));
        assert_eq!(one.head().seq, Seq::new(3));
        drop(two);
        assert_eq!(bus.heads().followed.len(), 1);
        drop(one);
        assert_eq!(bus.heads().followed.len(), 0);
    }

    #[test]
    fn whoever_comes_after_the_end_is_sent_away_too() {
        let bus = Arc::new(Bus::default());
        bus.close();
        let session = SessionId::from_parts(Timestamp::from_millis(1), [1; 10]);
        assert!(bus.subscribe(session).head().closing);
    }
}
