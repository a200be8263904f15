//! Bodies of responses, and how they go wrong.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};

use super::frames::{Frame, Place, error_event, frames};
use super::render::Reply;
use super::script::step::{Broken, Fault};

/// The text that a broken stream contains.
const GARBAGE_LINE: &str = "%% this line is no field of an event %%\n";

/// The event whose data ends too early.
const HALF_JSON: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_de\n\n";

/// What happens in the middle of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    after_deltas: u64,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Hang,
    Cut,
    ErrorEvent(String),
    /// Something is in the way, and the stream goes on.
    Insert(&'static str),
}

impl Trouble {
    /// The trouble that a fault means for a response whose headers are sent.
    pub(crate) fn of(fault: &Fault) -> Option<Self> {
        let (after, what) = match fault {
            Fault::Hang { after: Some(after) } => (*after, What::Hang),
            Fault::Cut { after: Some(after) } => (*after, What::Cut),
            Fault::ErrorEvent { kind, after } => (*after, What::ErrorEvent(kind.clone())),
            Fault::Broken { how: Broken::Line, after } => (*after, What::Insert(GARBAGE_LINE)),
            Fault::Broken { how: Broken::Json, after } => (*after, What::Insert(HALF_JSON)),
            Fault::Broken { how: Broken::ContentType, .. }
            | Fault::Error { .. }
            | Fault::Html { .. }
            | Fault::Hang { after: None }
            | Fault::Cut { after: None } => return None,
        };
        Some(Self { after_deltas: after, what })
    }
}

/// The body of a streamed reply.
pub(crate) fn streamed(reply: Reply, trouble: Option<Trouble>) -> Body {
    let slow = reply.slow;
    let state = Streamed { frames: frames(reply), waiting: None, deltas: 0, trouble, slow };
    Body::from_stream(stream::unfold(Some(state), |state| async move { state?.next().await }))
}

struct Streamed {
    frames: Box<dyn Iterator<Item = Frame> + Send>,
    /// An event that something was put before.
    waiting: Option<Frame>,
    deltas: u64,
    trouble: Option<Trouble>,
    slow: Option<Duration>,
}

impl Streamed {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Option<Self>)> {
        let frame = self.waiting.take().or_else(|| self.frames.next())?;
        if let Some(what) = self.due(frame.place) {
            match what {
                What::Hang => std::future::pending().await,
                What::Cut => return Some((cut().await, None)),
                What::ErrorEvent(kind) => return Some((Ok(error_event(&kind)), None)),
                What::Insert(text) => {
                    self.waiting = Some(frame);
                    return Some((Ok(Bytes::from_static(text.as_bytes())), Some(self)));
                }
            }
        }
        if frame.place == Place::Delta {
            self.deltas += 1;
            if let Some(slow) = self.slow {
                tokio::time::sleep(slow).await;
            }
        }
        Some((Ok(frame.bytes), Some(self)))
    }

    /// Trouble comes before the delta that would be one too many, or when there are no more.
    fn due(&mut self, place: Place) -> Option<What> {
        let is_due = |trouble: &mut Trouble| match place {
            Place::Delta => self.deltas >= trouble.after_deltas,
            Place::End => true,
            Place::Other => false,
        };
        self.trouble.take_if(is_due).map(|trouble| trouble.what)
    }
}

/// The body of a reply that is one JSON document.
pub(crate) fn whole(reply: &Reply, trouble: Option<Trouble>) -> Body {
    let json = reply.message().to_string();
    let Some(trouble) = trouble else {
        return if reply.is_endless() { endless(&json) } else { Body::from(json) };
    };
    let half = Bytes::from(json[..half_of(&json)].to_owned());
    match trouble.what {
        What::Insert(_) | What::ErrorEvent(_) => Body::from(half),
        What::Hang => {
            let first = stream::iter([Ok::<_, Infallible>(half)]);
            Body::from_stream(first.chain(stream::pending()))
        }
        What::Cut => {
            let first = stream::iter([Ok::<_, io::Error>(half)]);
            Body::from_stream(first.chain(stream::once(cut())))
        }
    }
}

/// A document of which the second half never comes, but something always does.
fn endless(json: &str) -> Body {
    let half = Bytes::from(json[..half_of(json)].to_owned());
    let spaces = stream::repeat(Bytes::from_static(b"                "));
    Body::from_stream(stream::iter([half]).chain(spaces).map(Ok::<_, Infallible>))
}

fn half_of(json: &str) -> usize {
    let mut half = json.len() / 2;
    while !json.is_char_boundary(half) {
        half -= 1;
    }
    half
}

/// An error in a body makes the server close the connection in the middle of it.
async fn cut() -> io::Result<Bytes> {
    // What was sent before is only flushed when the body has nothing to give for a moment.
    tokio::task::yield_now().await;
    Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the script cuts the connection here"))
}
