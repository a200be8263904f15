//! Requests that are answered before their bodies were read: the answer arrives, and the connection is what it says.

use std::time::Duration;

use ash_server::http::Bounds;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::Client;
use super::served::{Served, With};

/// More than any route takes, and than the buffers of a connection hold.
const LARGE: usize = 60 * 1024 * 1024;

async fn connect(client: &Client) -> TcpStream {
    TcpStream::connect(client.address).await.unwrap()
}

/// The head of a request on a connection that is to be used again.
fn head(client: &Client, method: &str, path: &str, more: &str) -> Vec<u8> {
    let Client { address, key } = client;
    let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n");
    format!("{head}authorization: Bearer {key}\r\n{more}\r\n").into_bytes()
}

/// One answer: its head, and as much as that says.
async fn answer(socket: &mut TcpStream) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        let mut piece = [0; 4096];
        let length = socket.read(&mut piece).await.unwrap();
        assert_ne!(length, 0, "it ends with: {text}");
        read.extend_from_slice(&piece[..length]);
    }
}

/// Sends all of a body before it looks at the answer, as many clients do.
async fn send_all(socket: &mut TcpStream, head: &[u8], length: usize) {
    socket.write_all(head).await.unwrap();
    let piece = vec![b' '; 1024 * 1024];
    for _ in 0..length / piece.len() {
        socket.write_all(&piece).await.expect("the connection is not closed under the client");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_the_client_hears_it() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let length = format!("content-type: application/json\r\ncontent-length: {LARGE}\r\n");
    for (path, status) in [
        (format!("/api/sessions/{session}/messages"), "413"),
        ("/api/queue".to_owned(), "413"),
        (format!("/api/sessions/{session}/attachments"), "413"),
        ("/api/nothing".to_owned(), "404"),
        ("/health".to_owned(), "405"),
    ] {
        let mut socket = connect(client).await;
        send_all(&mut socket, &head(client, "POST", &path, &length), LARGE).await;
        let told = answer(&mut socket).await;
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {told}");
        assert!(told.contains("connection: close\r\n"), "{path}: {told}");
        assert_eq!(socket.read(&mut [0; 9]).await.unwrap(), 0, "{path}: it is over");
    }
    // Nobody knows who sends it.
    let mut socket = connect(client).await;
    let foreign = client.with_key("ash_nobody");
    send_all(&mut socket, &head(&foreign, "POST", "/api/queue", &length), LARGE).await;
    assert!(answer(&mut socket).await.starts_with("HTTP/1.1 401 "));
    served.end().await;
}

#[tokio::test]
async fn a_connection_can_be_used_again_after_a_body_that_nobody_read() {
    let served = Served::start().await;
    let client = &served.client;
    let half = vec![b' '; 200 * 1024];
    let length = format!("content-length: {}\r\n", 2 * half.len());
    let mut socket = connect(client).await;
    for path in ["/api/nothing", "/health", "/api/nothing"] {
        socket.write_all(&head(client, "POST", path, &length)).await.unwrap();
        socket.write_all(&half).await.unwrap();
        tokio::task::yield_now().await;
        socket.write_all(&half).await.unwrap();
        let told = answer(&mut socket).await;
        assert!(told.starts_with("HTTP/1.1 40"), "{told}");
        assert!(!told.contains("connection: close"), "{told}");
        socket.write_all(&head(client, "GET", "/api/queue", "")).await.unwrap();
        let told = answer(&mut socket).await;
        assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    }
    served.end().await;
}

#[tokio::test]
async fn whoever_stops_in_the_middle_or_waits_for_a_word_is_answered_too() {
    let bounds = Bounds { head_patience: Duration::from_secs(60), ..Bounds::default() };
    let served = Served::with(With { bounds, ..With::default() }).await;
    let client = &served.client;
    for more in ["content-length: 5000\r\n", "content-length: 5000\r\nexpect: 100-continue\r\n"] {
        let mut socket = connect(client).await;
        socket.write_all(&head(client, "POST", "/api/nothing", more)).await.unwrap();
        let told = answer(&mut socket).await;
        assert!(told.starts_with("HTTP/1.1 404 "), "nothing else was said before: {told}");
        assert!(told.contains("connection: close\r\n"), "{told}");
        assert_eq!(socket.read(&mut [0; 9]).await.unwrap(), 0, "it is over");
    }
    // Whoever never stops is not listened to for ever.
    let mut socket = connect(client).await;
    let endless = head(client, "POST", "/api/nothing", "transfer-encoding: chunked\r\n");
    socket.write_all(&endless).await.unwrap();
    let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 0x10000], b"\r\n"].concat();
    while socket.write_all(&chunk).await.is_ok() {}
    served.end().await;
}
