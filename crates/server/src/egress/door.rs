//! Accepts on a sandbox's listener, and says what a request is.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ash_engine::host::SandboxRef;
use axum::http::{Method, Request, StatusCode};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinSet;

use super::account::Account;
use super::body::{REQUEST_PATIENCE, refuse};
use super::log::{Exchange, Kind, Refusal};
use super::tunnel::Tunnel;
use super::{ModelProxy, model, plain, tunnel};

/// How many requests of one sandbox are served at a time, and of all of them: each takes two descriptors.
/// More wait in the backlog.
const MAX_CONNECTIONS: usize = 64;
pub(super) const MAX_ALL_CONNECTIONS: usize = 2_048;

/// How many of all may be to other hosts: the rest is for the model.
pub(super) const MAX_ALL_TUNNELS: usize = 1_024;

/// How long to wait after a connection could not be accepted, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How large the head of a request may be.
const MAX_HEAD: usize = 64 * 1024;

/// The proxy of one sandbox.
pub(super) struct Door {
    pub(super) proxy: ModelProxy,
    pub(super) sandbox: SandboxRef,
    pub(super) account: Arc<Account>,
}

pub(super) async fn accept(listener: tokio::net::TcpListener, door: Door) {
    let door = Arc::new(door);
    let (sandbox, places) = (door.sandbox, Arc::clone(&door.proxy.0.places));
    // Dropped with this task: when nobody serves the sandbox any more, what was under way is cut,
    // and the agent repeats it.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let _no_matter = stream.set_nodelay(true);
                // Not before there is somebody to serve: sandboxes that ask for nothing would take all of them.
                let place = Arc::clone(&places).acquire_owned().await.expect("nobody closes it");
                let door = Arc::clone(&door);
                connections.spawn(async move {
                    serve(stream, &door).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(
                    session.id = %sandbox.session,
                    error = &error as &dyn std::error::Error,
                    "a request of session {} was not accepted", sandbox.session,
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection, which is one request; and what it becomes, if that is a tunnel.
async fn serve(stream: tokio::net::TcpStream, door: &Door) {
    let tunnel: Mutex<Option<Tunnel>> = Mutex::new(None);
    let dug = &tunnel;
    let answered = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_PATIENCE)
        .max_header_size(MAX_HEAD)
        .keep_alive(false)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |request| async move {
                Ok::<_, Infallible>(answer(door, request, dug).await)
            }),
        )
        .with_upgrades();
    // A sandbox that breaks its connection off has its reasons.
    let _broken_off = answered.await;
    if let Some(tunnel) = tunnel.into_inner().unwrap_or_else(PoisonError::into_inner) {
        tunnel.run().await;
    }
}

/// What is answered to a request; a tunnel is left to be run afterwards.
async fn answer(door: &Door, request: Request<Incoming>, dug: &Mutex<Option<Tunnel>>) -> Response {
    let kind = match () {
        () if request.method() == Method::CONNECT => Kind::Connect,
        () if request.uri().scheme().is_some() => Kind::Http,
        () => Kind::Model,
    };
    let (account, now) = (Arc::clone(&door.account), door.proxy.0.clock.now());
    let exchange = Arc::new(Exchange::new(account, now, kind, request.method().as_str()));
    let answered = match kind {
        Kind::Model => model::forward(door, &exchange, request).await,
        Kind::Http => plain::forward(door, &exchange, request).await,
        Kind::Connect => tunnel::dig(door, exchange, request).await.map(|tunnel| {
            *dug.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
            Response::default()
        }),
    };
    match answered {
        Ok(response) | Err(response) => response,
    }
}

impl Door {
    /// What is needed to reach another host: one of the places that the session and the server have for that.
    pub(super) fn tunnel_place(&self, exchange: &Exchange) -> Result<tunnel::Place, Box<Response>> {
        let own = Arc::clone(&self.account.tunnels).try_acquire_owned();
        let all = Arc::clone(&self.proxy.0.tunnels).try_acquire_owned();
        match (own, all) {
            (Ok(own), Ok(all)) => Ok(tunnel::Place { _own: own, _all: all }),
            (Err(_), _) | (_, Err(_)) => {
                let message = "there are too many connections to other hosts already";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Err(refuse(exchange, status, Refusal::TooManyTunnels, message).into())
            }
        }
    }
}

#[cfg(test)]
mod test {
    use ash_core::id::SessionId;
    use ash_core::number::Incarnation;
    use ash_core::time::Timestamp;
    use ash_engine::bridge::Egress as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::Upstream;
    use super::*;

    #[tokio::test]
    async fn sandboxes_that_ask_for_nothing_take_no_place_from_those_that_do() {
        let base_url = "http://127.0.0.1:9".to_owned();
        let proxy = ModelProxy::new(Upstream { base_url, key: None }).unwrap();
        let all_but_one = u32::try_from(MAX_ALL_CONNECTIONS - 1).unwrap();
        let _taken = proxy.0.places.acquire_many(all_but_one).await.unwrap();
        let mut served = Vec::new();
        for number in 1..=3 {
            let session = SessionId::from_parts(Timestamp::from_millis(0), [number; 10]);
            let sandbox = SandboxRef { session, incarnation: Incarnation::new(1) };
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            served.push((proxy.serve(sandbox, listener).unwrap(), address));
        }
        tokio::task::yield_now().await;
        for (_, address) in &served {
            let mut asked = tokio::net::TcpStream::connect(address).await.unwrap();
            asked.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            let read = asked.read_to_string(&mut answer);
            tokio::time::timeout(Duration::from_secs(60), read).await.expect("a place").unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
}
