//! A server that answers as it is told, and breaks off where it is told.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// `GET /api/sessions?limit=1`.
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// What to answer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A document.
    Json(u16, serde_json::Value),
    /// A stream that ends in good order.
    Stream(String),
    /// A stream that breaks off.
    Cut(String),
    /// A stream that stays open and says no more.
    Open(String),
    /// The connection breaks before the answer.
    Nothing,
}

/// An answer of the API that says no.
pub(crate) fn problem(status: u16, code: &str, error: &str) -> Answer {
    let body = serde_json::json!({
        "error": error, "statusCode": status, "code": code, "retryable": false, "requestId": "r-1",
    });
    Answer::Json(status, body)
}

/// A frame of a stream.
pub(crate) fn frame(id: &str, event: &str, data: &serde_json::Value) -> String {
    let id = if id.is_empty() { String::new() } else { format!("id: {id}\n") };
    format!("{id}event: {event}\ndata: {data}\n\n")
}

pub(crate) struct Fake {
    pub(crate) addr: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    _tasks: JoinSet<()>,
}

impl Fake {
    /// Answers each request as `answer` says, given the request and how many came before.
    pub(crate) async fn start(
        answer: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let seen = Arc::clone(&asked);
        let answer = Arc::new(answer);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                connections.spawn(async move { serve(stream, &*answer, &seen).await });
            }
        });
        Self { addr, asked, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }
}

async fn serve(
    stream: TcpStream,
    answer: &(impl Fn(&Asked, usize) -> Answer + Send + Sync),
    seen: &Mutex<Vec<Asked>>,
) {
    let mut stream = BufReader::new(stream);
    let Some(asked) = read(&mut stream).await else { return };
    let before = {
        let mut seen = seen.lock().unwrap();
        seen.push(asked.clone());
        seen.len() - 1
    };
    let head = |status: u16, kind: &str| {
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: {kind}\r\n")
    };
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let streamed = head(200, "text/event-stream") + "transfer-encoding: chunked\r\n\r\n";
    let answer = answer(&asked, before);
    let stays_open = matches!(answer, Answer::Open(_));
    let text = match answer {
        Answer::Json(status, body) => {
            let body = body.to_string();
            let length = body.len();
            format!("{}content-length: {length}\r\n\r\n{body}", head(status, "application/json"))
        }
        Answer::Stream(frames) => format!("{streamed}{}0\r\n\r\n", chunk(&frames)),
        Answer::Cut(frames) | Answer::Open(frames) => format!("{streamed}{}", chunk(&frames)),
        Answer::Nothing => String::new(),
    };
    // A client that left does not mind.
    let _left = stream.write_all(text.as_bytes()).await;
    if stays_open {
        let _left = stream.read(&mut [0]).await;
    }
    let _left = stream.shutdown().await;
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut first = String::new();
    stream.read_line(&mut first).await.ok()?;
    let line = first.trim_end().strip_suffix(" HTTP/1.1")?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
            None => break,
        }
    }
    let mut asked = Asked { line, headers, body: String::new() };
    let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    asked.body = String::from_utf8(body).unwrap();
    Some(asked)
}
