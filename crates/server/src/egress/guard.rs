//! Who may be reached, and where that is. A name is looked up once, here; every address that is found
//! has to be one that a sandbox may be connected to, and the connection goes to one of these, so that
//! a name that means something else a moment later gains nothing.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ash_engine::agent::{Host, split_port};
use axum::http::StatusCode;
use axum::response::Response;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::TcpStream;

use super::CONNECT_TIMEOUT;
use super::address::PrivateHosts;
use super::body::refuse;
use super::door::Door;
use super::log::{Exchange, Refusal};

/// How many addresses of a host are tried.
const MAX_TRIED: usize = 4;

/// How long nothing may pass before a connection is given up.
pub(super) const IDLE: Duration = Duration::from_secs(300);

/// Where a request is to go.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) host: Host,
    /// As it was written.
    pub(super) port: Option<u16>,
}

/// Why nobody is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoWay {
    #[error("it leads to an address that sandboxes may not reach")]
    Forbidden,
    #[error("it cannot be found")]
    Unknown,
    #[error("it does not answer")]
    Silent,
}

impl NoWay {
    /// What a sandbox is told. Not where a name leads to: that may be a secret of the network.
    pub(super) fn refuse(self, exchange: &Exchange, host: &Host) -> Response {
        let message = format!("{host} cannot be reached: {self}");
        let (status, refusal) = match self {
            Self::Forbidden => (StatusCode::FORBIDDEN, Refusal::AddressNotAllowed),
            Self::Unknown | Self::Silent => (StatusCode::BAD_GATEWAY, Refusal::Unreachable),
        };
        refuse(exchange, status, refusal, &message)
    }

    /// What is at the root of an error of a client that asks a [`Guard`] for addresses.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(no_way) = error.downcast_ref::<Self>() {
                return *no_way;
            }
            cause = error.source();
        }
        Self::Silent
    }
}

impl Target {
    /// Reads `host` or `host:port`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (host, port) =
            split_port(text).ok_or_else(|| format!("{text:?} has no port that is one"))?;
        let host = Host::parse(host).map_err(|error| format!("{host:?} is no host: {error}"))?;
        Ok(Self { host, port })
    }
}

/// Finds addresses, and lets nobody have one that is not allowed.
pub(super) struct Guard {
    private: Arc<PrivateHosts>,
    /// A client that reaches nothing else.
    pub(super) client: reqwest::Client,
}

struct Resolver(Arc<PrivateHosts>);

impl Guard {
    pub(super) fn new(private: PrivateHosts) -> Result<Self, reqwest::Error> {
        let private = Arc::new(private);
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(IDLE)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(Resolver(Arc::clone(&private))))
            .build()?;
        Ok(Self { private, client })
    }

    /// Refuses a host that is written as an address which is not allowed: a client does not ask for its address.
    pub(super) fn check_written(&self, host: &Host) -> Result<(), NoWay> {
        match host {
            Host::Address(address) if !self.private.permit(host, *address) => Err(NoWay::Forbidden),
            Host::Address(_) | Host::Name(_) => Ok(()),
        }
    }

    /// Whether the operator has named every address of a host.
    pub(super) async fn is_private(&self, host: &Host) -> bool {
        let found = resolve(&self.private, host).await.unwrap_or_default();
        !found.is_empty() && found.iter().all(|address| self.private.has(host, address.ip()))
    }

    /// Connects to a host that a sandbox may reach.
    pub(super) async fn connect(&self, host: &Host, port: u16) -> Result<TcpStream, NoWay> {
        let connecting = async {
            let addresses = resolve(&self.private, host).await?;
            for address in addresses.iter().take(MAX_TRIED) {
                if let Ok(stream) = TcpStream::connect((address.ip(), port)).await {
                    let _no_matter = stream.set_nodelay(true);
                    return Ok(stream);
                }
            }
            Err(NoWay::Silent)
        };
        tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or(Err(NoWay::Silent))
    }
}

/// The addresses of a host, if a sandbox may be connected to every one of them.
async fn resolve(private: &PrivateHosts, host: &Host) -> Result<Vec<SocketAddr>, NoWay> {
    let found: Vec<SocketAddr> = match host {
        Host::Address(address) => vec![(*address, 0).into()],
        Host::Name(name) => {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await;
            found.map_err(|_| NoWay::Unknown)?.collect()
        }
    };
    match () {
        () if found.is_empty() => Err(NoWay::Unknown),
        () if found.iter().all(|address| private.permit(host, address.ip())) => Ok(found),
        () => Err(NoWay::Forbidden),
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let private = Arc::clone(&self.0);
        Box::pin(async move {
            let host = Host::parse(name.as_str()).map_err(|_| NoWay::Unknown)?;
            let found = resolve(&private, &host).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

impl Door {
    /// Refuses a destination that the session's agent does not name.
    pub(super) async fn check_allowed(
        &self,
        exchange: &Exchange,
        host: &Host,
        port: u16,
    ) -> Result<(), Response> {
        let allowed = match &self.proxy.0.sessions {
            Some(sessions) => sessions.destinations(self.sandbox.session).await,
            None => Ok(Vec::new()),
        };
        let allowed = allowed.map_err(|message| {
            refuse(exchange, StatusCode::SERVICE_UNAVAILABLE, Refusal::Unavailable, &message)
        })?;
        if allowed.iter().any(|destination| destination.allows(host, port)) {
            return Ok(());
        }
        let message = format!(
            "{host} on port {port} is not open to this agent: its ash.toml does not name it in `egress`"
        );
        Err(refuse(exchange, StatusCode::FORBIDDEN, Refusal::HostNotAllowed, &message))
    }
}
