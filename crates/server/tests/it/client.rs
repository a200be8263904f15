//! A client that sees the bytes: it notices what a well-behaved one would hide.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A response, as far as it came.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Whether the body had its end, and not only the connection.
    pub(crate) is_complete: bool,
}

/// The headers that the API wants.
pub(crate) const USUAL: [&str; 2] = ["x-api-key: test-key", "anthropic-version: 2023-06-01"];

/// Sends a request and does not wait for the answer.
pub(crate) async fn send(
    addr: SocketAddr,
    request: &str,
    headers: &[&str],
    body: &str,
) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let mut text = format!("{request} HTTP/1.1\r\nhost: model\r\nconnection: close\r\n");
    for header in headers {
        text += &format!("{header}\r\n");
    }
    if !headers.iter().any(|header| header.starts_with("content-length")) {
        text += &format!("content-length: {}\r\n", body.len());
    }
    text += &format!("\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Everything that comes until the connection is closed; `None` if that is nothing.
pub(crate) async fn receive(mut stream: TcpStream) -> Option<Response> {
    let mut bytes = Vec::new();
    // A connection that is reset has given what it has given.
    stream.read_to_end(&mut bytes).await.ok();
    parse(&String::from_utf8(bytes).unwrap())
}

/// Sends a request and waits for the answer.
pub(crate) async fn ask(addr: SocketAddr, request: &str, headers: &[&str], body: &str) -> Response {
    receive(send(addr, request, headers, body).await).await.expect("there is an answer")
}

/// Sends a request for a message, and waits for what comes of it.
pub(crate) async fn post(addr: SocketAddr, body: &Value) -> Option<Response> {
    receive(send(addr, "POST /v1/messages?beta=true", &USUAL, &body.to_string()).await).await
}

/// Reads until what has come contains a text.
pub(crate) async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains(text) {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "the connection was closed after {seen}");
        seen += &String::from_utf8_lossy(&buffer[..count]);
    }
    seen
}

fn parse(text: &str) -> Option<Response> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let is_chunked = headers.iter().any(|(name, _)| name == "transfer-encoding");
    let (body, is_complete) = if is_chunked { dechunked(body) } else { (body.to_owned(), true) };
    Some(Response { status, headers, body, is_complete })
}

fn dechunked(mut text: &str) -> (String, bool) {
    let mut body = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        let Some(chunk) = rest.get(..size) else { return (body + rest, false) };
        body += chunk;
        text = rest[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    (body, false)
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The type and the message of an error.
    pub(crate) fn error(&self) -> (String, String) {
        let json = self.json();
        assert_eq!(json["type"], "error", "{json}");
        let field = |name: &str| json["error"][name].as_str().unwrap().to_owned();
        (field("type"), field("message"))
    }

    /// The events of a stream, by name and data. What does not parse is left out.
    pub(crate) fn events(&self) -> Vec<(String, Value)> {
        let events = self.body.split("\n\n").filter_map(|event| {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            let data = serde_json::from_str(field("data: ")?).ok()?;
            Some((field("event: ")?.to_owned(), data))
        });
        events.collect()
    }

    /// The content blocks that the events of a stream make.
    pub(crate) fn content(&self) -> Vec<Value> {
        let mut blocks: Vec<Value> = Vec::new();
        let mut inputs: Vec<String> = Vec::new();
        for (name, data) in self.events() {
            let index = usize::try_from(data["index"].as_u64().unwrap_or(0)).unwrap();
            let delta = &data["delta"];
            match name.as_str() {
                "content_block_start" => {
                    blocks.push(data["content_block"].clone());
                    inputs.push(String::new());
                }
                "content_block_delta" => match delta["type"].as_str().unwrap() {
                    "text_delta" => append(&mut blocks[index]["text"], &delta["text"]),
                    "thinking_delta" => append(&mut blocks[index]["thinking"], &delta["thinking"]),
                    "signature_delta" => {
                        append(&mut blocks[index]["signature"], &delta["signature"]);
                    }
                    "input_json_delta" => inputs[index] += delta["partial_json"].as_str().unwrap(),
                    _ => {}
                },
                "content_block_stop" if blocks[index]["type"] == "tool_use" => {
                    let input = &inputs[index];
                    blocks[index]["input"] =
                        serde_json::from_str(input).unwrap_or_else(|_| input.clone().into());
                }
                _ => {}
            }
        }
        blocks
    }
}

fn append(to: &mut Value, text: &Value) {
    *to = format!("{}{}", to.as_str().unwrap(), text.as_str().unwrap()).into();
}
