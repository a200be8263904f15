//! Following a session's log: everything after a cursor, then whatever comes.

use std::sync::Arc;

use ash_core::id::SessionId;
use ash_core::number::{Cursor, LogEpoch, Seq};
use ash_core::session::LogEntry;
use ash_store::Store;

use crate::bus::Subscription;
use crate::error::EngineError;

/// The most entries that are read at once; a follower that is far behind catches up in pieces.
const PAGE: u32 = 256;

/// One reader of one log. It sees each entry once, in order, and only entries that are durable.
pub struct Follower {
    store: Arc<dyn Store>,
    session: SessionId,
    epoch: LogEpoch,
    after: Seq,
    gap: Option<Gap>,
    news: Subscription,
}

/// Where a follower begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowFrom {
    /// With the first entry.
    Start,
    /// After this entry of the log as it is.
    After(Seq),
    /// Where an earlier follower stopped, in this history of the log or in another one.
    Cursor(Cursor),
    /// With whatever comes next.
    End,
}

/// What a follower gets next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The log does not hold what comes after the follower's cursor; it goes on from its start.
    Gap(Gap),
    /// The next entries: at least one.
    Entries(Vec<LogEntry>),
    /// The server is about to go; the follower should come back with its cursor.
    Closing,
}

/// A place where a follower's history and the log do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where the follower was.
    pub from: Cursor,
    /// Where it goes on: after this entry.
    pub to: Cursor,
    /// Why.
    pub reason: GapReason,
}

/// Why a follower cannot simply go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// Its cursor is of another history of this log.
    OtherEpoch,
    /// Its cursor is beyond the end of the log.
    BeyondEnd,
}

impl Follower {
    /// `news` must have been subscribed to before `epoch` and `last` were read.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        session: SessionId,
        (epoch, last): (LogEpoch, Seq),
        from: FollowFrom,
        news: Subscription,
    ) -> Self {
        let of_this_log = |seq| Cursor { epoch, seq };
        let start = of_this_log(Seq::ZERO);
        let from = match from {
            FollowFrom::Start => start,
            FollowFrom::After(seq) => of_this_log(seq),
            FollowFrom::Cursor(cursor) => cursor,
            FollowFrom::End => of_this_log(last),
        };
        let reason = if from.epoch != epoch {
            Some(GapReason::OtherEpoch)
        } else if from.seq > last {
            Some(GapReason::BeyondEnd)
        } else {
            None
        };
        let gap = reason.map(|reason| Gap { from, to: start, reason });
        let after = gap.map_or(from, |gap| gap.to).seq;
        Self { store, session, epoch, after, gap, news }
    }

    /// Where the follower is: what it would come back with.
    pub fn cursor(&self) -> Cursor {
        Cursor { epoch: self.epoch, seq: self.after }
    }

    /// Waits for what comes next. After an error the follower is where it was.
    pub async fn next(&mut self) -> Result<Followed, EngineError> {
        if let Some(gap) = self.gap.take() {
            return Ok(Followed::Gap(gap));
        }
        loop {
            // Whatever is published from here on wakes us, even if the read below misses it.
            let head = self.news.head();
            let closing = head.closing;
            let entries = match head.after(self.after) {
                Some(entries) => entries,
                None => self.store.events_after(self.session, self.after, PAGE).await?,
            };
            if let Some(last) = entries.last() {
                self.after = last.seq;
                return Ok(Followed::Entries(entries));
            }
            if closing {
                return Ok(Followed::Closing);
            }
            self.news.changed().await;
        }
    }
}
