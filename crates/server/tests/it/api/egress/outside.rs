//! Somebody on the internet, which is a port of this machine.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

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
