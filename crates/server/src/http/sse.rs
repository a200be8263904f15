//! Event streams: what a follower of a log sees, as it becomes durable.
//!
//! A stream reads the log through its follower and holds at most one page of it. A client that does
//! not read stops the follower, and is cut off after a while (`connection`); it comes back with its
//! last event id and misses nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ash_core::entry::Entry;
use ash_core::id::{RunId, SessionId};
use ash_core::number::{LogEpoch, Seq};
use ash_core::session::{LogEntry, Status};
use ash_engine::{EngineError, Followed, Follower};
use ash_store::StoreError;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::app::App;
use super::auth::Caller;
use super::pieces::Pieces;
use super::view::Frame;

/// Long enough for what buffers on the way to let it through.
const HEARTBEAT_PADDING: usize = 512;

/// What of a log is shown, and when a stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Everything, for as long as there is something to come.
    Everything,
    /// Everything, until the session has nothing to do.
    UntilIdle,
    /// What concerns a run, and the session as a whole, until the run is over.
    Run(RunId),
}

/// How an answer is told that comes in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// As it is logged.
    Logged,
    /// Only once it is whole.
    Whole,
    /// And as the model's API tells it, besides.
    StreamEvents,
}

/// A stream that is being told.
struct Telling {
    app: App,
    caller: Caller,
    revocations: watch::Receiver<u64>,
    session: SessionId,
    follower: Follower,
    shown: Shown,
    /// Whether pieces of an answer are left out.
    only_whole: bool,
    /// For those who want to be told as by the model's API, how far that is.
    pieces: Option<Pieces>,
    /// To be sent before anything else.
    waiting: VecDeque<Bytes>,
    /// When the last byte was sent.
    told_at: Instant,
    /// Whether the session may have come to rest since the last look.
    look: bool,
    over: bool,
}

/// Answers with a stream.
pub(super) fn stream(
    app: App,
    caller: Caller,
    follower: Follower,
    session: SessionId,
    (shown, detail): (Shown, Detail),
    prelude: Vec<Frame>,
) -> Response {
    let mut text = String::new();
    prelude.iter().for_each(|frame| frame.write(&mut text));
    let telling = Telling {
        revocations: app.keys().revocations(),
        app,
        caller,
        session,
        follower,
        shown,
        only_whole: detail == Detail::Whole,
        pieces: match detail {
            Detail::Logged | Detail::Whole => None,
            Detail::StreamEvents => Some(Pieces::default()),
        },
        waiting: VecDeque::from([Bytes::from(text)]),
        told_at: Instant::now(),
        look: true,
        over: false,
    };
    let body = Body::from_stream(stream::unfold(telling, |mut telling| async {
        let chunk = telling.next().await?;
        telling.told_at = Instant::now();
        Some((Ok::<_, std::convert::Infallible>(chunk), telling))
    }));
    let mut response = Response::new(body);
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache, no-transform"),
        (header::CONNECTION, "keep-alive"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl Telling {
    /// What is sent next; nothing when the stream is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.waiting.pop_front() {
                if chunk.is_empty() {
                    continue;
                }
                return Some(chunk);
            }
            if self.over {
                return None;
            }
            if std::mem::take(&mut self.look) && self.is_at_its_end().await {
                return None;
            }
            let followed = tokio::select! {
                biased;
                followed = self.follower.next() => followed,
                Ok(()) = self.revocations.changed() => {
                    if !self.app.keys().is_valid(self.app.store(), &self.caller).await {
                        return None;
                    }
                    continue;
                }
                () = sleep_until(self.told_at + self.app.parts().heartbeat) => {
                    return Some(if self.app.engine().cannot_record() { stuck() } else { heartbeat() });
                }
            };
            self.tell(followed);
        }
    }

    fn tell(&mut self, followed: Result<Followed, EngineError>) {
        let mut text = String::new();
        match followed {
            Ok(Followed::Gap(gap)) => Frame::gap(gap).write(&mut text),
            Ok(Followed::Entries(entries)) => {
                let epoch = self.follower.cursor().epoch;
                for entry in &entries {
                    if self.over {
                        break;
                    }
                    self.tell_entry(epoch, entry, &mut text);
                }
            }
            Ok(Followed::Closing) | Err(_) => {
                // Whatever it is, the way on is the same: come back with the last id.
                Frame::reconnect(self.follower.cursor()).write(&mut text);
                self.over = true;
            }
        }
        self.waiting.push_back(text.into());
    }

    fn tell_entry(&mut self, epoch: LogEpoch, logged: &LogEntry, text: &mut String) {
        let run = logged.entry.run();
        let is_aside = matches!(logged.entry, Entry::Aside { .. });
        let wanted = match self.shown {
            Shown::Everything | Shown::UntilIdle => true,
            // What was said before a run, or beside it, would be taken for a part of its answer.
            Shown::Run(wanted) => !is_aside && run.is_none_or(|run| run == wanted),
        };
        let is_piece =
            matches!(logged.entry, Entry::TextDelta { .. } | Entry::ThinkingDelta { .. });
        let wanted = wanted && !(is_piece && self.only_whole);
        let tell = |frames: Vec<Frame>, text: &mut String| {
            frames.iter().for_each(|frame| frame.write(text));
        };
        if wanted {
            if let Some(pieces) = &mut self.pieces {
                tell(pieces.before(self.session, &logged.entry), text);
            }
            match self.app.large_frames().get(self.session, epoch, logged) {
                Some(large) => {
                    self.waiting.push_back(std::mem::take(text).into());
                    self.waiting.push_back(large);
                }
                None => Frame::of(self.session, epoch, logged).write(text),
            }
            if let Some(pieces) = &mut self.pieces {
                tell(pieces.after(self.session, &logged.entry), text);
            }
        }
        // After either, the session may have come to rest or to its end.
        self.look |= run.is_none() && !is_aside;
        if let Entry::RunEnded { run, .. } = logged.entry {
            self.look = true;
            self.over |= self.shown == Shown::Run(run);
        }
    }

    /// Whether nothing more is to be told: everything was, and nothing will follow.
    async fn is_at_its_end(&self) -> bool {
        let stored = match self.app.store().session(&self.caller.tenant, self.session).await {
            Ok(stored) => stored,
            // Its agent was deleted: it does not exist for anybody any more.
            Err(StoreError::NotFound(_)) => return true,
            Err(_later) => return false,
        };
        let session = &stored.session;
        let told = self.follower.cursor().seq >= session.last_seq();
        let idle = session.current_run().is_none() && session.queued_runs().len() == 0;
        let ended = session.status() == Status::Ended;
        told && (ended || (idle && self.shown == Shown::UntilIdle))
    }
}

fn heartbeat() -> Bytes {
    format!(":{:width$}\n\n", "", width = HEARTBEAT_PADDING).into()
}

/// What is sent instead while nothing can be recorded, and so nothing told.
fn stuck() -> Bytes {
    let why = "what happens cannot be recorded at the moment: is the disk of the server full?";
    format!(": {why:HEARTBEAT_PADDING$}\n\n").into()
}

/// From how many bytes on a frame is shared among those who are told it.
const LARGE: usize = 64 * 1024;

/// The large frames that somebody is being told. A thousand clients of one session hold one copy of
/// a large entry, not a thousand.
#[derive(Default)]
pub(super) struct LargeFrames(Mutex<HashMap<(SessionId, LogEpoch, Seq), Weak<String>>>);

/// A frame that several hold.
struct Held(Arc<String>);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl LargeFrames {
    /// The frame of an entry, if it is a large one.
    fn get(&self, session: SessionId, epoch: LogEpoch, logged: &LogEntry) -> Option<Bytes> {
        if logged.entry.content_bytes() < LARGE {
            return None;
        }
        let mut frames = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        frames.retain(|_, frame| frame.strong_count() > 0);
        let place = frames.entry((session, epoch, logged.seq)).or_default();
        let frame = place.upgrade().unwrap_or_else(|| {
            let mut text = String::new();
            Frame::of(session, epoch, logged).write(&mut text);
            Arc::new(text)
        });
        *place = Arc::downgrade(&frame);
        Some(Bytes::from_owner(Held(frame)))
    }
}

#[cfg(test)]
mod test {
    use ash_core::time::Timestamp;

    use super::*;

    const FIRST: LogEpoch = LogEpoch::new(1);

    fn session(number: u8) -> SessionId {
        SessionId::from_parts(Timestamp::from_millis(0), [number; 10])
    }

    /// An entry that says so many letters.
    fn said(seq: u64, letters: usize) -> LogEntry {
        let run = RunId::from_parts(Timestamp::from_millis(0), [7; 10]);
        let entry = Entry::TextDelta { run, delta: "x".repeat(letters) };
        LogEntry { seq: Seq::new(seq), at: Timestamp::from_millis(0), entry }
    }

    #[test]
    fn a_large_frame_is_held_once_and_not_longer_than_somebody_wants_it() {
        let frames = LargeFrames::default();
        let held = || frames.0.lock().unwrap().len();
        assert_eq!(frames.get(session(1), FIRST, &said(1, LARGE - 1)), None);
        let large = said(2, LARGE);
        let all: Vec<Bytes> =
            (0..100).map(|_| frames.get(session(1), FIRST, &large).unwrap()).collect();
        let mut alone = String::new();
        Frame::of(session(1), FIRST, &large).write(&mut alone);
        for one in &all {
            assert_eq!((one.as_ptr(), one.len()), (all[0].as_ptr(), alone.len()));
        }
        assert_eq!(all[0], alone);
        // What differs in anything that the frame tells is another frame.
        let others = [
            frames.get(session(2), FIRST, &large).unwrap(),
            frames.get(session(1), LogEpoch::new(2), &large).unwrap(),
            frames.get(session(1), FIRST, &said(3, LARGE)).unwrap(),
        ];
        assert!(others.iter().all(|other| other.as_ptr() != all[0].as_ptr()));
        assert!(others[1..].iter().all(|other| *other != all[0]), "it names another place");
        assert_eq!(held(), 4);
        let text = Weak::clone(&frames.0.lock().unwrap()[&(session(1), FIRST, Seq::new(2))]);
        drop((all, others));
        assert_eq!(text.upgrade(), None, "nobody is told it any more, and it is still held");
        // The places are cleared when the next one is taken.
        let next = frames.get(session(1), FIRST, &said(4, LARGE));
        assert_eq!(held(), 1);
        drop(next);
    }
}
