//! A scripted stand-in for the Anthropic Messages API, for tests and demonstrations.
//!
//! It speaks the protocol as the real one does and refuses what the real one refuses, but what it
//! says is told to it: by lines in the prompt, or by a [`Script`]. It also misbehaves on demand.
//! `docs/scripted-model.md` is the manual.
//!
//! ```text
//!            ┌ check ┐                ┌ script or prompt ┐
//! request ─▶ conversation ─▶ outcome ─▶ answer ─▶ reply ─▶ frames ─▶ body
//!                               └────▶ record
//! ```
//!
//! What is due is computed from the conversation alone, so a request that is repeated has the same
//! answer, also from another process. The exception is a fault that happens `times N`, which counts.

mod attempts;
mod body;
mod check;
mod conversation;
mod error;
mod frames;
mod http;
mod memory;
mod outcome;
mod parameters;
mod record;
mod render;
mod script;
#[cfg(test)]
mod test;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use self::attempts::Attempts;
use self::http::{Connection, Shared};
use self::record::Recorder;
pub use self::record::{Key, Recorded};
pub use self::script::{Script, ScriptError};

/// How many connections are served at a time. More wait to be accepted.
const MAX_CONNECTIONS: usize = 1_024;

/// How long to wait after a connection could not be accepted, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a model behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rules that are tried before the prompt is looked at.
    pub script: Option<Script>,
    /// The file that each request is appended to, as a line of JSON.
    pub log: Option<PathBuf>,
    /// Whether a request without any key is refused. Which key it is does not matter.
    pub require_key: bool,
}

/// No script, no log, and a key is required.
impl Default for Options {
    fn default() -> Self {
        Self { script: None, log: None, require_key: true }
    }
}

/// A scripted model that is being served. It ends when it is dropped.
pub struct Model {
    addr: SocketAddr,
    shared: Arc<Shared>,
    closing: Arc<Notify>,
    tasks: JoinSet<()>,
}

impl Model {
    /// Serves a model on a listener.
    ///
    /// # Errors
    /// The log file cannot be opened, or the listener has no address.
    pub fn start(listener: TcpListener, options: Options) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            recorder: Recorder::new(options.log.as_deref())?,
            script: options.script,
            require_key: options.require_key,
            attempts: Attempts::default(),
            requests: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        let closing = Arc::new(Notify::new());
        tasks.spawn(accept(listener, Arc::clone(&shared), Arc::clone(&closing)));
        Ok(Self { addr, shared, closing, tasks })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens, as a base URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it was sent so far, the earliest first: the last thousand requests, or fewer if they are
    /// large.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.recorder.requests()
    }

    /// Resolves once it was sent so many requests. A request counts before it is answered.
    pub async fn received(&self, n: u64) {
        self.shared.recorder.received(n).await;
    }

    /// Stops serving. Connections are closed wherever they are, and are so when this returns.
    pub async fn shutdown(mut self) {
        self.closing.notify_one();
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, closing: Arc<Notify>) {
    let router = Router::new().fallback(http::serve).with_state(shared);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let next = async { (Arc::clone(&slots).acquire_owned().await, listener.accept().await) };
        let (slot, accepted) = tokio::select! {
            biased;
            () = closing.notified() => break,
            next = next => next,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let router = router.clone();
                connections.spawn(async move {
                    serve(stream, router).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the scripted model could not accept a connection"
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, router: Router) {
    // Small events should leave at once, or slow streams arrive in lumps.
    stream.set_nodelay(true).ok();
    let connection = Connection::default();
    let service = TowerToHyperService::new(router.layer(Extension(connection.clone())));
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        () = connection.0.notified() => {}
        // That a client has gone, or was sent away by the script, is no event.
        result = served => drop(result),
    }
}
