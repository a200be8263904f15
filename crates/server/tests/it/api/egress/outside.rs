//! Somebody on the internet, which is a port of this machine.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub(super) struct Outside {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

/// How it answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// As a web server: to the head of a request.
    Web,
    /// When there is no more to be heard: with how much it was.
    Count,
    /// Not at all.
    Silent,
}

impl Outside {
    pub(super) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut serving = JoinSet::new();
        let hears = Arc::clone(&heard);
        serving.spawn(async move {
            let mut answering = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                answering.spawn(answer(stream, manner, Arc::clone(&hears)));
            }
        });
        Self { address, heard, _serving: serving }
    }

    /// How it is called inside.
    pub(super) fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// What it heard.
    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

async fn answer(mut stream: TcpStream, manner: Manner, heard: Arc<Mutex<Vec<String>>>) {
    let mut all = Vec::new();
    let mut piece = [0; 16_384];
    loop {
        let count = stream.read(&mut piece).await.unwrap_or_default();
        all.extend_from_slice(&piece[..count]);
        let is_head = all.windows(4).any(|window| window == b"\r\n\r\n");
        if count == 0 || (manner == Manner::Web && is_head) {
            break;
        }
    }
    heard.lock().unwrap().push(String::from_utf8_lossy(&all).into_owned());
    let said = match manner {
        Manner::Web => {
            "HTTP/1.1 200 OK\r\nx-of: outside\r\ncontent-length: 5\r\n\r\nhello".to_owned()
        }
        Manner::Count => format!("{} bytes", all.len()),
        Manner::Silent => return,
    };
    let _gone = stream.write_all(said.as_bytes()).await;
}

/// Somebody who speaks in secret, and whose certificate is known to whoever reads this file.
pub(super) struct Secret {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<(usize, String)>>>,
    _certificate: tempfile::TempDir,
    trusted: String,
    _serving: JoinSet<()>,
}

impl Secret {
    /// Answers every request with a body of JSON, as many over one connection as are asked.
    pub(super) async fn start(body: &'static str) -> Self {
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let trusted = directory.path().join("trusted.pem");
        let encoded = BASE64_STANDARD.encode(made.cert.der());
        let lines: Vec<&str> =
            encoded.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
        let pem = lines.join("\n");
        let pem = format!("-----BEGIN CERTIFICATE-----\n{pem}\n-----END CERTIFICATE-----\n");
        std::fs::write(&trusted, pem).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard: Arc<Mutex<Vec<(usize, String)>>> = Arc::default();
        let hears = Arc::clone(&heard);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut answering = JoinSet::new();
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, hears) = (acceptor.clone(), Arc::clone(&hears));
                answering.spawn(async move {
                    // Who does not trust it hangs up.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        Box::pin(answer_all(stream, connection, body, &hears)).await;
                    }
                });
            }
        });
        let trusted = trusted.display().to_string();
        Self { address, heard, _certificate: directory, trusted, _serving: serving }
    }

    pub(super) fn host(&self) -> String {
        format!("localhost:{}", self.address.port())
    }

    /// The file that makes it trusted.
    pub(super) fn trusted(&self) -> &str {
        &self.trusted
    }

    /// What it heard, and over which connection.
    pub(super) fn heard(&self) -> Vec<(usize, String)> {
        self.heard.lock().unwrap().clone()
    }
}

async fn answer_all(
    mut stream: tokio_rustls::server::TlsStream<TcpStream>,
    connection: usize,
    body: &str,
    heard: &Mutex<Vec<(usize, String)>>,
) {
    let mut all = Vec::new();
    let mut piece = [0; 16_384];
    loop {
        let count = stream.read(&mut piece).await.unwrap_or_default();
        if count == 0 {
            return;
        }
        all.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&all).into_owned();
        let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_lowercase();
        let length = length.split_once("content-length: ").map_or(0, |(_, rest)| {
            rest.split("\r\n").next().and_then(|length| length.parse().ok()).unwrap_or_default()
        });
        if rest.len() < length {
            continue;
        }
        heard.lock().unwrap().push((connection, text.clone()));
        all.clear();
        let said = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(said.as_bytes()).await.is_err() {
            return;
        }
    }
}
