//! Accepting connections, within bounds: so many at a time, heads so large, and none that keeps its
//! place by doing nothing.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
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
        }
    }
}

/// How long to wait after a connection could not be accepted, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    let service = router.map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    let stream = Impatient::new(stream, bounds.write_patience);
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
}

impl Impatient {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
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
        Pin::new(&mut self.stream).poll_shutdown(cx)
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
