//! A model that says when it said what: each delta carries the moment at which it was written.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How a model answers.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) deltas: usize,
    pub(crate) apart: Duration,
}

/// A model that answers everybody, at the same time and at the same pace.
pub(crate) struct Model {
    address: SocketAddr,
    pace: Arc<Mutex<Pace>>,
    epoch: Instant,
    _serving: JoinSet<()>,
}

impl Model {
    pub(crate) async fn start(pace: Pace) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let (pace, epoch) = (Arc::new(Mutex::new(pace)), Instant::now());
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&pace), epoch));
        Self { address, pace, epoch, _serving: serving }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How it answers from now on.
    pub(crate) fn answer_with(&self, pace: Pace) {
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner) = pace;
    }

    /// When the deltas in a text were written.
    pub(crate) fn departures(&self, text: &str) -> Vec<Instant> {
        let stamps = text.split('#').skip(1).map(|rest| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            digits.parse().expect("a stamp is a number")
        });
        stamps.map(|nanos| self.epoch + Duration::from_nanos(nanos)).collect()
    }
}

async fn serve(listener: TcpListener, pace: Arc<Mutex<Pace>>, epoch: Instant) {
    let mut answering = JoinSet::new();
    loop {
        while answering.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else { return };
        let pace = *pace.lock().unwrap_or_else(PoisonError::into_inner);
        answering.spawn(async move {
            // Whoever does not wait for the answer is none of our business.
            let _gone = answer(stream, pace, epoch).await;
        });
    }
}

async fn answer(mut stream: TcpStream, pace: Pace, epoch: Instant) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    read_request(&mut stream).await?;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"bench\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(start.as_bytes()).await?;
    for _ in 0..pace.deltas {
        if !pace.apart.is_zero() {
            tokio::time::sleep(pace.apart).await;
        }
        let nanos = epoch.elapsed().as_nanos();
        let delta = format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"#{nanos} \"}}}}\n\n"
        );
        stream.write_all(delta.as_bytes()).await?;
    }
    let end = "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    stream.write_all(end.as_bytes()).await?;
    stream.shutdown().await
}

async fn read_request(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut bytes = [0; 8192];
    loop {
        let count = stream.read(&mut bytes).await?;
        request.extend_from_slice(&bytes[..count]);
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let is_whole = match length.and_then(|length| length.trim().parse::<usize>().ok()) {
                Some(length) => body.len() >= length,
                None => body.ends_with("0\r\n\r\n"),
            };
            if is_whole || count == 0 {
                return Ok(());
            }
        }
    }
}
