//! A client that costs as little as possible: it shares the machine with what it measures.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::child::KEY;

/// A connection that is kept.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    line: String,
    body: Vec<u8>,
}

/// One event of a stream.
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) data: String,
    pub(crate) is_logged: bool,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("it is a connection");
        Self { stream: BufReader::new(stream), line: String::new(), body: Vec::new() }
    }

    /// Asks, and reads the whole answer. Returns its size.
    pub(crate) async fn ask(&mut self, request: &str) -> usize {
        let length = self.begin(request).await.expect("the answer has a length");
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).await.expect("the answer comes");
        length
    }

    /// Asks, and reads the answer as JSON.
    pub(crate) async fn json(&mut self, request: &str) -> Value {
        self.ask(request).await;
        serde_json::from_slice(&self.body).expect("the answer is JSON")
    }

    /// Asks, and reads the answer as text.
    pub(crate) async fn text(&mut self, request: &str) -> String {
        self.ask(request).await;
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Asks, and reads the whole answer. Says whether it was a good one.
    pub(crate) async fn is_granted(&mut self, request: &str) -> bool {
        self.send(request).await;
        let is_granted = self.line.starts_with("HTTP/1.1 2");
        let length = self.head().await.expect("the answer has a length");
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body).await.expect("the answer comes");
        is_granted
    }

    /// Asks for a stream. Its head has arrived; no event has.
    pub(crate) async fn open(&mut self, request: &str) {
        assert!(self.begin(request).await.is_none(), "a stream has no length");
    }

    /// The next event of a stream; nothing at its end. The server never splits a frame into two
    /// chunks, so what is neither a field nor the end of a frame is the head of a chunk.
    pub(crate) async fn event(&mut self) -> Option<Event> {
        let mut event = Event { name: String::new(), data: String::new(), is_logged: false };
        loop {
            self.next_line().await;
            let line = self.line.trim_end();
            if let Some(name) = line.strip_prefix("event: ") {
                name.clone_into(&mut event.name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                data.clone_into(&mut event.data);
            } else if line.starts_with("id: ") {
                event.is_logged = true;
            } else if line.is_empty() && !event.name.is_empty() {
                return Some(event);
            } else if line == "0" {
                self.next_line().await;
                return None;
            }
        }
    }

    /// Reads a stream to its end.
    pub(crate) async fn finish(&mut self) {
        while self.event().await.is_some() {}
    }

    /// Sends a request and reads the head of its answer: how long the body is, if it says so.
    async fn begin(&mut self, request: &str) -> Option<usize> {
        self.send(request).await;
        assert!(self.line.starts_with("HTTP/1.1 2"), "{request}: {}", self.line);
        self.head().await
    }

    /// Sends a request, and reads the first line of its answer.
    async fn send(&mut self, request: &str) {
        let stream = self.stream.get_mut();
        stream.write_all(request.as_bytes()).await.expect("the request is taken");
        self.next_line().await;
    }

    /// Reads the rest of a head: how long the body is, if it says so.
    async fn head(&mut self) -> Option<usize> {
        let mut length = None;
        while self.line != "\r\n" {
            self.next_line().await;
            if let Some(value) = self.line.strip_prefix("content-length: ") {
                length = Some(value.trim_end().parse().expect("a length is a number"));
            }
        }
        length
    }

    async fn next_line(&mut self) {
        self.line.clear();
        let count = self.stream.read_line(&mut self.line).await.expect("the answer is text");
        assert!(count > 0, "the server went away");
    }
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\r\n")
}

pub(crate) fn delete(path: &str) -> String {
    format!("DELETE {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\r\n")
}

pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) fn send(session: &str) -> String {
    post(&format!("/api/sessions/{session}/messages"), r#"{"content":"go"}"#)
}
