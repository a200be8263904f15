//! Clients that do not read, and very many that do.

use std::time::Duration;

use ash_server::http::Bounds;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use super::served::{Served, With, let_go};
use super::streams::log;
use crate::world::until;

/// More than the buffers of a connection hold.
const MUCH: usize = 12 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_cut_off_and_misses_nothing_later() {
    let bounds = Bounds { write_patience: Duration::from_secs(2), ..Bounds::default() };
    let served = Served::with(With { bounds, ..With::default() }).await;
    let client = &served.client;
    let session = served.session().await;
    let piece = "0123456789abcdef".repeat(64);
    let prompt = format!("much\n/repeat {} {piece}", MUCH / piece.len());
    client.say(&session, &prompt).await.all().await;
    let whole = log(client, &session).await;
    assert!(whole.iter().map(|frame| frame.raw.len()).sum::<usize>() > MUCH);

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut idler = socket.connect(client.address).await.unwrap();
    let path = format!("/api/sessions/{session}/stream?after=0");
    idler.write_all(&client.request("GET", &path, &[], None)).await.unwrap();
    until("the idler is cut off", || idler.take_error().unwrap().is_some()).await;
    // What had come before is all it gets.
    let mut got = Vec::new();
    let _reset = idler.read_to_end(&mut got).await;
    assert!(got.len() < MUCH, "{}", got.len());

    // The server is well, and the log is whole.
    client.get("/api/sessions").await.ok();
    assert_eq!(log(client, &session).await, whole);
    served.end().await;
}

#[tokio::test]
async fn a_thousand_clients_of_one_stream_see_the_same() {
    let served = Served::start().await;
    let client = &served.client;
    let (session, watched) = served.busy().await;
    let mut following = JoinSet::new();
    for number in 0..1_000 {
        let (client, session) = (client.clone(), session.clone());
        following.spawn(async move {
            let mut stream = client.follow(&session, "after=0&until=idle").await;
            // All of them are there when the run goes on.
            let seen = stream.until("tool_use").await;
            (number, seen, stream)
        });
    }
    let following = following.join_all().await;
    assert_eq!(following.len(), 1_000);
    let_go(client, &session).await;
    watched.all().await;
    let mut ending = JoinSet::new();
    for (number, mut seen, stream) in following {
        ending.spawn(async move {
            seen.extend(stream.all().await);
            (number, seen)
        });
    }
    let whole = log(client, &session).await;
    for (number, seen) in ending.join_all().await {
        assert!(seen == whole, "client {number} saw {} of {}", seen.len(), whole.len());
    }
    served.end().await;
}

#[tokio::test]
async fn whoever_comes_when_all_places_are_taken_is_told_to_come_back() {
    let bounds = Bounds { connections: 3, ..Bounds::default() };
    let served = Served::with(With { bounds, ..With::default() }).await;
    let client = &served.client;
    let session = served.session().await;
    let mut followers = Vec::new();
    for _ in 0..3 {
        // A place that was just given up may not be free yet.
        let mut stream = client.follow(&session, "").await;
        stream.next().await.unwrap();
        followers.push(stream);
    }
    let mut socket = tokio::net::TcpStream::connect(client.address).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("too_many_connections"), "{answer}");
    drop(followers);
    served.end().await;
}

#[tokio::test]
async fn bodies_that_never_come_keep_nobody_waiting() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let path = format!("/api/sessions/{session}/messages");
    let mut opening = JoinSet::new();
    for number in 0..600 {
        let (client, path) = (client.clone(), path.clone());
        opening.spawn(async move {
            let announced = ["content-length: 50000000", "expect: 100-continue"];
            let json = ["content-type: application/json"];
            let headers = [&announced[..], &json].concat();
            let mut socket = tokio::net::TcpStream::connect(client.address).await.unwrap();
            socket.write_all(&client.request("POST", &path, &headers, None)).await.unwrap();
            // It is told to go on when the server waits for the body.
            let mut told = [0; 25];
            socket.read_exact(&mut told).await.unwrap();
            assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
            // Some send nothing, some a little, and some more than is little.
            let sent = [0, 10, 10, 10, 10, 10, 10, 10, 10, 3_000_000][number % 10];
            socket.write_all(&vec![b' '; sent]).await.unwrap();
            socket
        });
    }
    let stalled = opening.join_all().await;
    assert_eq!(stalled.len(), 600);
    // Others are served meanwhile, whether they send nothing, little or much.
    client.get("/api/sessions").await.ok();
    client.post("/api/sessions", &serde_json::json!({ "agent": "coder" })).await.ok();
    let picture = "A".repeat(4_000_000);
    let source =
        serde_json::json!({ "type": "base64", "media_type": "image/png", "data": picture });
    let blocks = serde_json::json!([
        { "type": "text", "text": "much\n/say much" },
        { "type": "image", "source": source },
    ]);
    let body = serde_json::json!({ "content": blocks, "detach": true });
    client.post(&path, &body).await.ok();
    let run = client.follow(&session, "until=idle").await.all().await;
    assert!(run.iter().any(|frame| frame.event == "done"), "{run:#?}");
    drop(stalled);
    served.end().await;
}
