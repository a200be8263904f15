//! A client of the API that sees every byte, and holds no connection longer than it needs it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Somebody with a key.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of an answer that went well.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.json()
    }

    /// Checks that it is an error of our shape, and returns its code.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let problem = self.json();
        let fields: Vec<&str> = problem.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["code", "error", "requestId", "retryable", "statusCode"], "{self:?}");
        assert_eq!(problem["statusCode"], status, "{self:?}");
        assert_eq!(problem["retryable"], matches!(status, 429 | 503), "{self:?}");
        assert_eq!(problem["requestId"].as_str(), self.header("x-request-id"), "{self:?}");
        assert!(!problem["error"].as_str().unwrap().is_empty(), "{self:?}");
        if matches!(status, 429 | 503) {
            assert!(self.header("retry-after").is_some(), "{self:?}");
        }
        let code = problem["code"].as_str().unwrap();
        let is_snake = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        assert!(!code.is_empty() && code.bytes().all(is_snake), "{self:?}");
        code.to_owned()
    }
}

impl Client {
    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { address: self.address, key: key.to_owned() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[], Some(body)).await
    }

    /// Asks with further header lines.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: Option<&Value>,
    ) -> Answer {
        let text = body.map(Value::to_string);
        self.ask_bytes(method, path, headers, text.as_deref().map(str::as_bytes)).await
    }

    /// Asks with a body that need not be JSON.
    pub(crate) async fn ask_bytes(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: Option<&[u8]>,
    ) -> Answer {
        exchange(self.address, &self.request(method, path, headers, body)).await
    }

    /// What an answer that went well has in it, byte for byte.
    pub(crate) async fn download(&self, path: &str) -> Vec<u8> {
        let bytes = answer_to(self.address, &self.request("GET", path, &[], None)).await;
        let (status, _, body) = parts(&bytes).expect("there is an answer");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        body
    }

    /// A request as it goes over the wire.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: Option<&[u8]>,
    ) -> Vec<u8> {
        let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        let has = |name: &str| headers.iter().any(|line| line.starts_with(name));
        if !has("host:") {
            text += &format!("host: {}\r\n", self.address);
        }
        if !has("authorization:") && !self.key.is_empty() {
            text += &format!("authorization: Bearer {}\r\n", self.key);
        }
        if body.is_some() && !has("content-type:") {
            text += "content-type: application/json\r\n";
        }
        for header in headers.iter().filter(|line| !line.ends_with(": -")) {
            text += &format!("{header}\r\n");
        }
        if let Some(body) = body {
            text += &format!("content-length: {}\r\n", body.len());
        }
        let mut bytes = (text + "\r\n").into_bytes();
        bytes.extend_from_slice(body.unwrap_or_default());
        bytes
    }

    /// Opens an event stream.
    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: Option<&Value>,
    ) -> Stream {
        self.try_open(method, path, headers, body).await.expect("the stream opens")
    }

    /// Opens an event stream of a server that may die at any moment.
    pub(crate) async fn try_open(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: Option<&Value>,
    ) -> Option<Stream> {
        let body = body.map(Value::to_string);
        let request = self.request(method, path, headers, body.as_deref().map(str::as_bytes));
        let mut socket = TcpStream::connect(self.address).await.ok()?;
        socket.write_all(&request).await.ok()?;
        Stream::begin(socket).await
    }

    /// Sends a prompt and watches the run.
    pub(crate) async fn say(&self, session: &str, prompt: &str) -> Stream {
        let body = serde_json::json!({ "content": prompt });
        self.open("POST", &format!("/api/sessions/{session}/messages"), &[], Some(&body)).await
    }

    /// Follows a session from a place in its log.
    pub(crate) async fn follow(&self, session: &str, query: &str) -> Stream {
        self.open("GET", &format!("/api/sessions/{session}/stream?{query}"), &[], None).await
    }
}

/// Sends bytes, and reads whatever comes back at the same time.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> Answer {
    let bytes = answer_to(address, request).await;
    answer(&bytes).unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&bytes)))
}

async fn answer_to(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let socket = TcpStream::connect(address).await.unwrap();
    let (mut reader, mut writer) = socket.into_split();
    let mut bytes = Vec::new();
    // A server that has heard enough may stop listening; what it said counts.
    let write = async {
        let _heard_enough = writer.write_all(request).await;
        writer
    };
    let read = async {
        let _cut = reader.read_to_end(&mut bytes).await;
    };
    tokio::join!(write, read);
    bytes
}

fn answer(bytes: &[u8]) -> Option<Answer> {
    let (status, headers, body) = parts(bytes)?;
    Some(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
}

/// The lines of a head, and what they say.
type Headers = Vec<(String, String)>;

fn parts(bytes: &[u8]) -> Option<(u16, Headers, Vec<u8>)> {
    let at = find(bytes, b"\r\n\r\n")?;
    let (status, headers) = head(&bytes[..at])?;
    let rest = &bytes[at + 4..];
    let chunked = headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value.eq_ignore_ascii_case("chunked"));
    let body = if chunked {
        let mut chunks = Chunks::default();
        chunks.take(rest);
        chunks.decoded
    } else {
        rest.to_vec()
    };
    Some((status, headers, body))
}

fn head(bytes: &[u8]) -> Option<(u16, Headers)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines.filter_map(|line| line.split_once(": "));
    Some((status, headers.map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned())).collect()))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// A body in chunks, as far as it came.
#[derive(Default)]
struct Chunks {
    raw: Vec<u8>,
    decoded: Vec<u8>,
    /// How much of what is decoded was looked at.
    used: usize,
    over: bool,
}

impl Chunks {
    fn take(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        let mut rest = self.raw.as_slice();
        while let Some(at) = find(rest, b"\r\n") {
            let size = std::str::from_utf8(&rest[..at]).unwrap();
            let size = usize::from_str_radix(size, 16).expect("a chunk has a size");
            let Some(chunk) = rest.get(at + 2..at + 2 + size) else { break };
            let Some(next) = rest.get(at + 2 + size + 2..) else { break };
            self.decoded.extend_from_slice(chunk);
            rest = next;
            self.over |= size == 0;
        }
        let taken = self.raw.len() - rest.len();
        self.raw.drain(..taken);
    }

    /// What comes before the next empty line, with it.
    fn next_frame(&mut self) -> Option<String> {
        let length = find(&self.decoded[self.used..], b"\n\n")? + 2;
        let frame = self.decoded[self.used..self.used + length].to_vec();
        self.used += length;
        if self.used == self.decoded.len() {
            self.decoded.clear();
            self.used = 0;
        }
        Some(String::from_utf8(frame).unwrap())
    }
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// As it came, with the empty line.
    pub(crate) raw: String,
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl Frame {
    /// Reads a frame, and insists on its form: `id` if it is logged, `event`, one `data`.
    #[track_caller]
    fn parse(raw: &str) -> Self {
        let mut lines: VecDeque<&str> = raw.strip_suffix("\n\n").unwrap().split('\n').collect();
        let id = lines.front().and_then(|line| line.strip_prefix("id: ")).map(str::to_owned);
        if id.is_some() {
            lines.pop_front();
        }
        assert_eq!(lines.len(), 2, "{raw:?}");
        let event = lines[0].strip_prefix("event: ").unwrap_or_else(|| panic!("{raw:?}"));
        let data = lines[1].strip_prefix("data: ").unwrap_or_else(|| panic!("{raw:?}"));
        let value = serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {raw:?}"));
        Self { raw: raw.to_owned(), id, event: event.to_owned(), data: value }
    }

    /// Its place in the log.
    pub(crate) fn seq(&self) -> Option<u64> {
        Some(self.id.as_ref()?.split_once('-')?.1.parse().unwrap())
    }
}

/// An event stream that is open.
pub(crate) struct Stream {
    socket: TcpStream,
    pub(crate) headers: Vec<(String, String)>,
    chunks: Chunks,
}

impl Stream {
    async fn begin(mut socket: TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        let at = loop {
            if let Some(at) = find(&bytes, b"\r\n\r\n") {
                break at;
            }
            if socket.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let (status, headers) = head(&bytes[..at])?;
        let mut stream = Self { socket, headers, chunks: Chunks::default() };
        if status != 200 {
            let mut rest = bytes.split_off(at + 4);
            let _cut = stream.socket.read_to_end(&mut rest).await;
            panic!("{status}: {}", String::from_utf8_lossy(&rest));
        }
        stream.chunks.take(&bytes[at + 4..]);
        Some(stream)
    }

    /// The next event; nothing when the stream is over, or broke off.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let raw = self.next_raw().await?;
            if !raw.starts_with(':') {
                return Some(Frame::parse(&raw));
            }
        }
    }

    /// Reads until a comment, which is a sign of life, and returns the events before it.
    pub(crate) async fn until_comment(&mut self) -> Vec<Frame> {
        let mut seen = Vec::new();
        loop {
            let Some(raw) = self.next_raw().await else {
                panic!("the stream ended before a comment: {seen:#?}");
            };
            if raw.starts_with(':') {
                return seen;
            }
            seen.push(Frame::parse(&raw));
        }
    }

    /// The next event or comment, as it came.
    async fn next_raw(&mut self) -> Option<String> {
        loop {
            if let Some(raw) = self.chunks.next_frame() {
                return Some(raw);
            }
            if self.chunks.over {
                return None;
            }
            let mut bytes = Vec::with_capacity(64 * 1024);
            match self.socket.read_buf(&mut bytes).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => self.chunks.take(&bytes),
            }
        }
    }

    /// Reads until an event with this name.
    pub(crate) async fn until(&mut self, event: &str) -> Vec<Frame> {
        let mut seen = Vec::new();
        loop {
            let Some(frame) = self.next().await else {
                panic!("the stream ended before {event}: {seen:#?}");
            };
            seen.push(frame);
            if seen.last().is_some_and(|frame| frame.event == event) {
                return seen;
            }
        }
    }

    /// Everything until the end of the stream, which must be a proper one.
    pub(crate) async fn all(mut self) -> Vec<Frame> {
        let mut seen = Vec::new();
        while let Some(frame) = self.next().await {
            seen.push(frame);
        }
        assert!(self.chunks.over, "the stream broke off after {seen:#?}");
        seen
    }
}
