//! What a client still sends while its request is answered already.
//!
//! Whoever is refused before its body was read goes on sending it. If the connection were closed under it, it would see a
//! broken pipe and never read the answer; and one that is told nothing would send its next request on a connection that is
//! gone. So a little is read and dropped before the answer, and the connection stays; after more than that the answer says
//! that the connection is over, and whatever comes is dropped for a while (`connection`) before it is.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How much of a body that nobody read is dropped before the answer.
const LITTLE: u64 = 1024 * 1024;

/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether a connection is closed with something unread. Known to what holds the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftUnread(Arc<AtomicBool>);

impl LeftUnread {
    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a request, for whoever answers it.
pub(super) struct Watch {
    rest: oneshot::Receiver<Rest>,
    connection: LeftUnread,
    /// The client sends nothing before it is told to.
    waits: bool,
}

/// What nobody read of a body.
struct Rest {
    body: Body,
    is_begun: bool,
}

impl Watch {
    /// Watches what becomes of the body of a request; nothing, if it has none.
    pub(super) fn over(request: Request) -> (Request, Option<Self>) {
        if request.body().is_end_stream() {
            return (request, None);
        }
        let (tell, rest) = oneshot::channel();
        let waits = request.headers().contains_key(header::EXPECT);
        let connection = request.extensions().get::<LeftUnread>().cloned().unwrap_or_default();
        let request = request.map(|body| {
            let rest = Rest { body, is_begun: false };
            Body::new(Watched { rest: Some(rest), tell: Some(tell) })
        });
        (request, Some(Self { rest, connection, waits }))
    }

    /// Sees to it that the client gets the answer, and knows whether it may use the connection again.
    pub(super) async fn settle(mut self, response: &mut Response) {
        let Ok(rest) = self.rest.try_recv() else { return };
        let is_awaited = self.waits && !rest.is_begun;
        if !is_awaited && is_dropped(rest.body).await {
            return;
        }
        self.connection.0.store(true, Ordering::Relaxed);
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Drops the rest of a body, if it is little.
async fn is_dropped(mut body: Body) -> bool {
    if body.size_hint().lower() > LITTLE {
        return false;
    }
    let drop_all = async {
        let mut left = LITTLE;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            let length = frame.data_ref().map_or(0, |data| data.len() as u64);
            match left.checked_sub(length) {
                Some(less) => left = less,
                None => return false,
            }
        }
        true
    };
    timeout(PATIENCE, drop_all).await.unwrap_or(false)
}

/// A body that says what is left of it when nobody wants it any more.
struct Watched {
    rest: Option<Rest>,
    tell: Option<oneshot::Sender<Rest>>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        rest.is_begun = true;
        let polled = Pin::new(&mut rest.body).poll_frame(cx);
        // It is over, or broken: nothing is left.
        if let Poll::Ready(None | Some(Err(_))) = &polled {
            self.rest = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.as_ref().is_none_or(|rest| rest.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), |rest| rest.body.size_hint())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let (Some(rest), Some(tell)) = (self.rest.take(), self.tell.take())
            && !rest.body.is_end_stream()
        {
            // If the request is answered already, nobody asks.
            let _nobody = tell.send(rest);
        }
    }
}
