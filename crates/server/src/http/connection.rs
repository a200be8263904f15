//! Accepting connections, within bounds: so many at a time, heads so large, and none that keeps its
//! place by doing nothing.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::unread::LeftUnread;

/// How much is taken of each kind of thing that a client can make large.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many connections are open at a time.
    pub connections: usize,
    /// How many header lines are read. Fewer are allowed (`layer`): what is not read is refused without
    /// a word. Room for all of them is made for each request, so they are not as many as would fit.
    pub headers: usize,
    /// How many bytes of a connection are held in memory, in each direction: the head of a request
    /// must fit.
    pub buffer_bytes: usize,
    /// How long a client may take for the head of a request, and how long a connection may be idle.
    pub head_patience: Duration,
    /// How long a client may read nothing while something waits for it.
    pub write_patience: Duration,
    /// How long an event stream is silent at the most.
    pub heartbeat: Duration,
    /// How long a client may go on sending what nobody reads, after its answer, before the connection is closed under it.
    pub linger: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 8_192,
            headers: 400,
            buffer_bytes: 64 * 1024,
            head_patience: Duration::from_secs(60),
            write_patience: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
            linger: Duration::from_secs(10),
        }
    }
}

/// How long to wait after a connection could not be accepted, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How much of it is taken meanwhile: twice the largest body.
const MAX_LINGER_BYTES: usize = 256 * 1024 * 1024;

/// How much of it is read at once.
const LINGER_BUFFER: usize = 64 * 1024;

/// What a client is told for whom there is no place.
const NO_PLACE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    retry-after: 1\r\ncontent-length: 115\r\nconnection: close\r\n\r\n\
    {\"error\":\"Too many connections\",\"statusCode\":503,\"code\":\"too_many_connections\",\
    \"retryable\":true,\"requestId\":\"none\"}";

/// Serves connections until told to stop; then waits for those that are open.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) if connections.len() >= bounds.connections => {
                // Best effort: whoever floods us is not waited for.
                let _not_told = stream.try_write(NO_PLACE);
            }
            Ok((stream, peer)) => {
                let _no_matter = stream.set_nodelay(true);
                connections.spawn(connection(stream, peer, router.clone(), bounds, stop.clone()));
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a connection could not be accepted",
                );
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
) {
    let unread = LeftUnread::default();
    let stream = Impatient::new(stream, &bounds, unread.clone());
    let service = router.map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request.extensions_mut().insert(unread.clone());
        request
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_patience)
        .max_headers(bounds.headers)
        .max_buf_size(bounds.buffer_bytes)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut serving = pin!(serving);
    tokio::select! {
        // A client that breaks off has its reasons.
        _ended = serving.as_mut() => return,
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ended = serving.await;
}

/// A stream whose other end has to read from time to time. Without this, a client that never reads
/// would hold a connection and its buffers for ever.
struct Impatient {
    stream: TcpStream,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    linger: Duration,
    unread: LeftUnread,
    leaving: Option<Leaving>,
}

/// A connection that is over for us, and not for the client.
struct Leaving {
    until: Pin<Box<Sleep>>,
    buffer: Box<[u8]>,
    left: usize,
}

impl Impatient {
    fn new(stream: TcpStream, bounds: &Bounds, unread: LeftUnread) -> Self {
        let (patience, linger) = (bounds.write_patience, bounds.linger);
        Self { stream, patience, waiting: None, linger, unread, leaving: None }
    }

    /// Drops what the client still sends, until it has read its answer and closes. Closed otherwise, the kernel would
    /// tell it that the connection is broken, and throw its answer away.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = self.linger;
        let Leaving { until, buffer, left } = self.leaving.get_or_insert_with(|| Leaving {
            until: Box::pin(sleep(linger)),
            buffer: vec![0; LINGER_BUFFER].into_boxed_slice(),
            left: MAX_LINGER_BYTES,
        });
        if until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        loop {
            let mut dropped = ReadBuf::new(buffer);
            if ready!(Pin::new(&mut self.stream).poll_read(cx, &mut dropped)).is_err() {
                return Poll::Ready(());
            }
            *left = left.saturating_sub(dropped.filled().len());
            if dropped.filled().is_empty() || *left == 0 {
                return Poll::Ready(());
            }
        }
    }

    /// Passes a result on; an end to the waiting is one too.
    fn within<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        waiting.as_mut().poll(cx).map(|()| {
            // Closed otherwise, the kernel would go on holding megabytes for who does not want them.
            let _closed_slowly = self.stream.set_zero_linger();
            Err(io::ErrorKind::TimedOut.into())
        })
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.within(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.within(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.leaving.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        }
        if self.unread.is_so() {
            ready!(self.poll_leave(cx));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn whoever_finds_no_place_is_told_so_in_whole() {
        let text = std::str::from_utf8(NO_PLACE).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let problem: crate::api::Problem = serde_json::from_str(body).unwrap();
        assert_eq!(problem.status_code, 503);
        assert_eq!(problem.code, crate::http::code::Code::TOO_MANY_CONNECTIONS.as_str());
    }
}
