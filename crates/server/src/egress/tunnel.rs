//! Connections to other hosts: what a sandbox says is passed on, and what is answered is passed back, byte for byte.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::http::{Request, StatusCode};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::body::refuse;
use super::door::Door;
use super::guard::{IDLE, Target};
use super::log::{Exchange, Refusal};

/// How much is read at once.
const PIECE: usize = 16 * 1024;

/// The right to be connected to another host.
pub(super) struct Place {
    pub(super) _own: OwnedSemaphorePermit,
    pub(super) _all: OwnedSemaphorePermit,
}

/// A connection that waits for the sandbox to hear of it.
pub(super) struct Tunnel {
    inside: OnUpgrade,
    outside: TcpStream,
    exchange: Arc<Exchange>,
    _place: Place,
}

/// Connects to the host that a sandbox names.
pub(super) async fn dig(
    door: &Door,
    exchange: Arc<Exchange>,
    request: Request<Incoming>,
) -> Result<Tunnel, Response> {
    let written = request.uri().authority().map(|named| named.as_str()).unwrap_or_default();
    exchange.goes_to(written, None);
    let bad = |message: &str| {
        refuse(&exchange, StatusCode::BAD_REQUEST, Refusal::BadDestination, message)
    };
    let Target { host, port } = Target::parse(written).map_err(|message| bad(&message))?;
    let Some(port) = port else { return Err(bad("a connection needs a port")) };
    door.check_allowed(&exchange, &host, port).await?;
    let place = door.tunnel_place(&exchange).map_err(|refused| *refused)?;
    exchange.sets_out();
    let connected = door.proxy.0.guard.connect(&host, port).await;
    let outside = connected.map_err(|no_way| no_way.refuse(&exchange, &host))?;
    exchange.answered(200);
    exchange.begins();
    let inside = hyper::upgrade::on(request);
    Ok(Tunnel { inside, outside, exchange, _place: place })
}

impl Tunnel {
    /// Passes on what is said, until both sides are done or nobody has said anything for a while.
    pub(super) async fn run(self) {
        let Ok(inside) = self.inside.await else { return };
        let (from_inside, to_inside) = tokio::io::split(TokioIo::new(inside));
        let (from_outside, to_outside) = self.outside.into_split();
        let (exchange, heard) = (&self.exchange, Mutex::new(Instant::now()));
        let up = pass(from_inside, to_outside, &heard, |bytes| exchange.add_up(bytes));
        let down = pass(from_outside, to_inside, &heard, |bytes| exchange.add_down(bytes));
        tokio::select! {
            _ = async { tokio::join!(up, down) } => {}
            () = silence(&heard) => {}
        }
    }
}

/// Passes on what one side says. When it has no more to say, the other is told, and may go on itself.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    heard: &Mutex<Instant>,
    count: impl Fn(usize),
) -> std::io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let bytes = from.read(&mut piece).await?;
        if bytes == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..bytes]).await?;
        count(bytes);
        *heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// Returns when nothing was heard for a while.
async fn silence(heard: &Mutex<Instant>) {
    loop {
        let last = *heard.lock().unwrap_or_else(PoisonError::into_inner);
        let left = IDLE.saturating_sub(last.elapsed());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}
