//! What comes before a request is understood: heads that are too large, hosts that are not ours,
//! methods and routes that there are not, bodies that are too long or missing.

use serde_json::json;

use super::client::exchange;
use super::served::{Served, agent};

#[tokio::test]
async fn a_flood_of_headers_is_refused() {
    let served = Served::start().await;
    let client = &served.client;
    let lines = |count: usize| (0..count).map(|number| format!("x-{number}: y")).collect();
    let long = |length: usize| vec![format!("x-long: {}", "y".repeat(length))];
    for (headers, shaped) in [
        (lines(101), true),
        (lines(300), true),
        (long(66_000), false),
        // What is refused before it is read whole is refused without a body.
        (lines(20_000), false),
        (long(100_000), false),
        (long(5_000_000), false),
    ] {
        let headers: Vec<String> = headers;
        let lines: Vec<&str> = headers.iter().map(String::as_str).collect();
        for path in ["/health", "/api/sessions"] {
            let answer = client.ask("GET", path, &lines, None).await;
            assert_eq!(answer.status, 431, "{} lines: {answer:?}", lines.len());
            if shaped || !answer.body.is_empty() {
                assert_eq!(answer.refused(431), "head_too_large");
            }
        }
    }
    let path = format!("/api/sessions?agent={}", "y".repeat(100_000));
    let answer = client.get(&path).await;
    assert!(matches!(answer.status, 414 | 431), "{answer:?}");
    // As many as are usual are fine.
    let some: Vec<String> = (0..80).map(|number| format!("x-{number}: y")).collect();
    let lines: Vec<&str> = some.iter().map(String::as_str).collect();
    client.ask("GET", "/api/sessions", &lines, None).await.ok();
    served.end().await;
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let served = Served::start().await;
    for bad in [
        "NONSENSE\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET /health HTTP/1.1\r\nhost: localhost\r\nbroken header\r\n\r\n",
        "POST /api/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        "POST /api/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ] {
        let answer = exchange(served.client.address, bad.as_bytes()).await;
        assert!((400..500).contains(&answer.status), "{bad:?}: {answer:?}");
    }
    served.client.get("/api/sessions").await.ok();
    served.end().await;
}

#[tokio::test]
async fn a_foreign_host_or_page_is_kept_out() {
    let served = Served::start().await;
    let client = &served.client;
    let port = client.address.port();
    for (header, code) in [
        ("host: evil.example", "foreign_host"),
        ("host: localhost.evil.example", "foreign_host"),
        ("host: 10.0.0.1", "foreign_host"),
        ("origin: https://evil.example", "foreign_origin"),
        ("origin: null", "foreign_origin"),
    ] {
        for (method, path) in super::operations() {
            let answer = client.ask(&method, &path, &[header], None).await;
            if path.starts_with("/health") {
                assert_eq!(answer.status, 200, "{path} {header}");
                continue;
            }
            assert_eq!(answer.refused(403), code, "{method} {path} {header}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
        for path in ["/docs", "/docs/json", "/nothing"] {
            assert_eq!(client.ask("GET", path, &[header], None).await.refused(403), code);
        }
        let preflight = client.ask("OPTIONS", "/api/sessions", &[header], None).await;
        assert_eq!(preflight.refused(403), code);
    }
    for host in ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"] {
        let header = format!("host: {host}:{port}");
        client.ask("GET", "/api/sessions", &[&header], None).await.ok();
    }
    let page = "origin: http://localhost:3000";
    let answer = client.ask("GET", "/api/sessions", &[page], None).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("http://localhost:3000"));
    served.end().await;
}

#[tokio::test]
async fn a_route_or_method_that_there_is_not_is_told_in_our_shape() {
    let served = Served::start().await;
    let client = &served.client;
    for path in [
        "/",
        "/nope",
        "/api",
        "/api/",
        "/api/nope",
        "/api/sessions/",
        "/api//sessions",
        "/health/x",
    ] {
        let answer = client.get(path).await;
        assert_eq!(answer.refused(404), "no_such_route", "{path}");
    }
    let is_ours = |path: &str| !path.starts_with("/api/internal/");
    for (method, path) in super::operations().into_iter().filter(|(_, path)| is_ours(path)) {
        for other in ["PUT", "DELETE", "PATCH", "POST", "TRACE", "BREW"] {
            let taken = super::operations().contains(&(other.to_owned(), path.clone()));
            if taken || (method != "GET" && other == "POST") {
                continue;
            }
            let answer = client.ask(other, &path, &[], None).await;
            assert_eq!(answer.refused(405), "method_not_allowed", "{other} {path}");
            assert!(answer.header("allow").is_some_and(|allow| allow.contains(method.as_str())));
        }
    }
    served.end().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_the_refusal_is_heard() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let small = format!("{{\"agent\": \"{}\"}}", "x".repeat(3 * 1024 * 1024)).into_bytes();
    let large = format!("{{\"content\": \"{}\"}}", "x".repeat(51 * 1024 * 1024)).into_bytes();
    let huge = vec![b' '; 145 * 1024 * 1024];
    let of = |rest: &str| format!("/api/sessions/{session}/{rest}");
    for (method, path, body) in [
        ("POST", "/api/sessions", &small),
        ("POST", &of("exec"), &small),
        ("POST", &of("pause"), &small),
        ("POST", &of("resume"), &small),
        ("PATCH", &of("config"), &small),
        ("PATCH", "/api/agents/coder", &small),
        ("POST", "/api/api-keys", &small),
        ("POST", "/api/credentials", &small),
        ("POST", &of("messages"), &large),
        ("POST", &of("files"), &huge),
        ("POST", &of("workspace"), &huge),
    ] {
        let answer = client.ask_bytes(method, path, &[], Some(body)).await;
        assert_eq!(answer.refused(413), "too_large", "{method} {path}");
    }
    // Without a length that could be looked at.
    let mut request =
        client.request("POST", "/api/sessions", &["transfer-encoding: chunked"], None);
    for _ in 0..50 {
        request.extend_from_slice(b"10000\r\n");
        request.extend_from_slice(&vec![b' '; 0x10000]);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(exchange(client.address, &request).await.refused(413), "too_large");
    served.end().await;
}

#[tokio::test]
async fn an_empty_body_that_says_it_is_json_is_no_body() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    for (rest, status) in
        [("pause", 200), ("resume", 200), ("stop", 200), ("resume", 200), ("interrupt", 404)]
    {
        let path = format!("/api/sessions/{session}/{rest}");
        let answer = client.ask_bytes("POST", &path, &[], Some(b"")).await;
        assert_eq!(answer.status, status, "{rest}: {answer:?}");
    }
    for (path, method) in
        [("/api/sessions", "POST"), ("/api/agents", "POST"), ("/api/credentials", "POST")]
    {
        let answer = client.ask_bytes(method, path, &[], Some(b"")).await;
        assert_eq!(answer.refused(400), "invalid_request", "{path}");
    }
    served.end().await;
}

#[tokio::test]
async fn fields_that_nobody_knows_are_ignored() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let body = json!({ "agent": "coder", "whatIsThis": { "a": [1] }, "title": "known" });
    let made = client.post("/api/sessions", &body).await.ok();
    assert_eq!(made["session"]["title"], "known");
    assert!(!made.to_string().contains("whatIsThis"));
    served.end().await;
}

#[tokio::test]
async fn too_many_requests_with_a_key_are_told_when_to_come_back() {
    let variables = vec![("ASH_RATE_LIMIT", "5".to_owned())];
    let served = Served::with(super::served::With { variables, ..Default::default() }).await;
    let client = &served.client;
    for _ in 0..5 {
        client.get("/api/sessions").await.ok();
    }
    let answer = client.get("/api/sessions").await;
    assert_eq!(answer.refused(429), "rate_limited");
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(client.get("/health").await.status, 200);
    served.end().await;
}

#[tokio::test]
async fn a_host_is_foreign_wherever_it_is_named() {
    let served = Served::start().await;
    let client = &served.client;
    let address = client.address;
    for target in [
        "http://evil.example/api/sessions",
        "http://localhost.evil.example/api/sessions",
        "http://localhost@evil.example/api/sessions",
        "http://localhost:80@evil.example/api/sessions",
        "http://[::1]@evil.example/api/sessions",
        "http://10.0.0.1:4100/api/sessions",
    ] {
        let answer = client.ask("GET", target, &[], None).await;
        assert_eq!(answer.refused(403), "foreign_host", "{target}");
    }
    // What is named twice is not ours even if both are, and what is not named is nobody's.
    let ours = format!("host: {address}");
    for hosts in [&[&*ours, &*ours][..], &[&*ours, "host: evil.example"], &["host: -"]] {
        let answer = client.ask("GET", "/api/sessions", hosts, None).await;
        assert_eq!(answer.refused(403), "foreign_host", "{hosts:?}");
    }
    client.ask("GET", &format!("http://{address}/api/sessions"), &[], None).await.ok();
    client.ask("GET", "http://localhost/api/sessions", &[], None).await.ok();
    served.end().await;
}
