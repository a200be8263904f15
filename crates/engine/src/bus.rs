//! Wakes those who follow a log when it has grown.
//!
//! The bus says how far a log reaches, and carries the entries of its last few commits, so that a
//! thousand followers who are up to date need not all read the same rows. Only what is durable is
//! published; whoever is further behind reads the store, so a slow follower costs no memory. Logs
//! that nobody follows are not in the map.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash_core::id::SessionId;
use ash_core::number::Seq;
use ash_core::session::LogEntry;

use crate::signal::{Signal, Watcher};

/// How many commits are carried, and how much of each.
const MAX_RECENT: usize = 8;
const MAX_RECENT_BYTES: usize = 64 * 1024;

/// How far a log reaches, as far as this process knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) seq: Seq,
    /// The server is about to go; followers should come back to the next one.
    pub(crate) closing: bool,
    /// The last commits: entries that follow each other up to `seq`. Shared by all who look.
    recent: Arc<VecDeque<Arc<[LogEntry]>>>,
}

impl Head {
    /// The entries right after `after`, if they are carried here.
    pub(crate) fn after(&self, after: Seq) -> Option<Vec<LogEntry>> {
        let first = self.recent.iter().flat_map(|commit| commit.iter()).next()?;
        if first.seq > after.next() || self.seq <= after {
            return None;
        }
        let entries = self.recent.iter().flat_map(|commit| commit.iter());
        Some(entries.filter(|entry| entry.seq > after).cloned().collect())
    }

    fn grow(&mut self, seq: Seq, entries: &[LogEntry]) {
        let follows = entries.first().is_some_and(|first| first.seq == self.seq.next());
        let recent = Arc::make_mut(&mut self.recent);
        if !follows {
            recent.clear();
        }
        self.seq = self.seq.max(seq);
        let small = entries.iter().map(|entry| entry.entry.content_bytes()).sum::<usize>()
            <= MAX_RECENT_BYTES;
        let ends_here = entries.last().is_some_and(|last| last.seq == self.seq);
        if !(small && ends_here) {
            recent.clear();
            return;
        }
        if recent.len() == MAX_RECENT {
            recent.pop_front();
        }
        recent.push_back(entries.into());
    }
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
    /// Says that a session's log now reaches `seq`, and what was added last, as far as it is known.
    /// Only after the commit that made it so.
    pub(crate) fn publish(&self, session: SessionId, seq: Seq, entries: &[LogEntry]) {
        if let Some(signal) = self.heads().followed.get(&session) {
            signal.change(|head| head.grow(seq, entries));
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
    use ash_core::entry::Entry;
    use ash_core::time::Timestamp;

    #[test]
    fn a_log_is_forgotten_when_its_last_reader_goes() {
        let bus = Arc::new(Bus::default());
        let session = SessionId::from_parts(Timestamp::from_millis(1), [1; 10]);
        let (mut one, two) = (bus.subscribe(session), bus.subscribe(session));
        bus.publish(session, Seq::new(3), &[]);
        assert_eq!(one.head().seq, Seq::new(3));
        drop(two);
        assert_eq!(bus.heads().followed.len(), 1);
        drop(one);
        assert_eq!(bus.heads().followed.len(), 0);
    }

    fn entries(from: u64, to: u64, delta: &str) -> Vec<LogEntry> {
        let at = Timestamp::from_millis(1);
        let run = ash_core::id::RunId::from_parts(at, [2; 10]);
        let text = |seq| Entry::TextDelta { run, delta: format!("{delta}{seq}") };
        (from..=to).map(|seq| LogEntry { seq: Seq::new(seq), at, entry: text(seq) }).collect()
    }

    fn seqs(head: &Head, after: u64) -> Option<Vec<u64>> {
        let entries = head.after(Seq::new(after))?;
        Some(entries.iter().map(|entry| entry.seq.get()).collect())
    }

    #[test]
    fn whoever_is_up_to_date_is_given_what_follows_without_a_hole() {
        let mut head = Head::default();
        head.grow(Seq::new(5), &[]);
        assert_eq!(seqs(&head, 4), None, "what was added is not known");
        head.grow(Seq::new(7), &entries(6, 7, ""));
        head.grow(Seq::new(8), &entries(8, 8, ""));
        assert_eq!(seqs(&head, 5), Some(vec![6, 7, 8]));
        assert_eq!(seqs(&head, 6), Some(vec![7, 8]));
        assert_eq!(seqs(&head, 8), None, "there is nothing after it");
        assert_eq!(seqs(&head, 4), None, "what comes first is not carried");
        head.grow(Seq::new(12), &entries(12, 12, ""));
        assert_eq!(seqs(&head, 8), None, "something was missed");
        assert_eq!(seqs(&head, 11), Some(vec![12]));
    }

    #[test]
    fn what_is_carried_has_a_bound() {
        let mut head = Head::default();
        for seq in 1..=100 {
            head.grow(Seq::new(seq), &entries(seq, seq, ""));
        }
        assert_eq!(seqs(&head, 92).unwrap().len(), MAX_RECENT);
        assert_eq!(seqs(&head, 91), None);
        head.grow(Seq::new(101), &entries(101, 101, &"x".repeat(MAX_RECENT_BYTES)));
        assert_eq!(seqs(&head, 100), None);
        assert!(head.recent.is_empty());
    }

    #[test]
    fn whoever_comes_after_the_end_is_sent_away_too() {
        let bus = Arc::new(Bus::default());
        bus.close();
        let session = SessionId::from_parts(Timestamp::from_millis(1), [1; 10]);
        assert!(bus.subscribe(session).head().closing);
    }
}
