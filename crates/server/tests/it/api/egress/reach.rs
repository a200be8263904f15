//! Where a sandbox gets to, and where it does not.

use serde_json::json;

use super::outside::{Manner, Outside};
use super::{ALLOW_LOOPBACK, Inside, deploy, deploy_files, read, served};

/// A request to the model that costs nothing.
const COUNT: &str = "POST /v1/messages/count_tokens HTTP/1.1\nhost: x\nanthropic-version: 2023-06-01\n\
                     content-type: application/json\ncontent-length: 72\nconnection: close\n\n\
                     {\"model\":\"some-model\",\"messages\":[{\"role\":\"user\",\"content\":\"hi there\"}]}";

#[tokio::test]
async fn a_sandbox_reaches_the_hosts_that_its_agent_names_and_no_others() {
    let served = served(&[ALLOW_LOOPBACK]).await;
    let (web, count) = (Outside::start(Manner::Web).await, Outside::start(Manner::Count).await);
    deploy(&served.client, "coder", &[web.host(), count.host()]).await;
    let inside = Inside::of(&served.client, "coder", json!({})).await;

    // As programs do it: by the variables that they find.
    let url = format!("http://{}/a/path?with=query", web.host());
    let curl = "curl -s --noproxy '' -w ' %{http_code}'";
    assert_eq!(inside.run(&format!("{curl} {url}")).await, "hello 200");
    assert_eq!(inside.run(&format!("{curl} -p {url}")).await, "hello 200");
    assert!(web.heard()[0].starts_with("GET /a/path?with=query HTTP/1.1\r\n"), "{:?}", web.heard());
    assert!(!web.heard()[0].to_lowercase().contains("proxy"), "{:?}", web.heard());

    // A connection whose one side is done goes on in the other direction.
    let said = [format!("CONNECT {} HTTP/1.1\n\n{}", count.host(), "x".repeat(60_000))];
    let answer = inside.ask(&said).await.remove(0);
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:.200}");
    assert!(answer.ends_with("60000 bytes"), "{answer:.200}");

    let api = served.client.address.port();
    let (web, port) = (web.port(), count.port());
    let refused = [
        ("example.com:443", 403, "host_not_allowed"),
        ("localhost:1", 403, "host_not_allowed"),
        (&format!("localhost:{api}"), 403, "host_not_allowed"),
        (&format!("localhost.evil.example:{port}"), 403, "host_not_allowed"),
        (&format!("127.0.0.1:{port}"), 403, "host_not_allowed"),
        (&format!("[::1]:{port}"), 403, "host_not_allowed"),
        (&format!("[::ffff:127.0.0.1]:{port}"), 403, "host_not_allowed"),
        ("169.254.169.254:80", 403, "host_not_allowed"),
        (&format!("2130706433:{port}"), 400, "bad_destination"),
        (&format!("0x7f000001:{port}"), 400, "bad_destination"),
        (&format!("0177.0.0.1:{port}"), 400, "bad_destination"),
        (&format!("127.1:{port}"), 400, "bad_destination"),
        (&format!("localhost%00.example:{port}"), 400, "bad_destination"),
        ("localhost", 400, "bad_destination"),
        ("localhost:0", 400, "bad_destination"),
        ("localhost:99999", 400, "bad_destination"),
        (&format!("user@localhost:{port}"), 400, "bad_destination"),
    ];
    let targets: Vec<&str> = refused.iter().map(|(target, ..)| *target).collect();
    for ((target, status, code), answer) in refused.iter().zip(inside.connect(&targets).await) {
        // What is no request at all is refused before anybody looks at it, and has no code.
        assert_eq!(answer.0, *status, "{target}");
        assert!(answer.1 == *code || answer.1.is_empty(), "{target}: {}", answer.1);
    }
    let absolute = [
        format!("GET https://localhost:{web}/ HTTP/1.1\nhost: x"),
        format!("GET ftp://localhost:{web}/ HTTP/1.1\nhost: x"),
        format!("GET http://user:password@localhost:{web}/ HTTP/1.1\nhost: x"),
        "GET http://example.com/ HTTP/1.1\nhost: x".to_owned(),
        format!("GET http://127.0.0.1:{api}/health HTTP/1.1\nhost: x"),
        // What the host line says is nobody's business.
        format!("GET http://example.com/ HTTP/1.1\nhost: localhost:{web}"),
    ];
    let codes: Vec<u16> = inside.ask(&absolute).await.iter().map(|said| read(said).0).collect();
    assert_eq!(codes, [400, 400, 400, 403, 403, 403]);
    assert_eq!(count.heard().len(), 1);

    // All of it was written down, without what was in it.
    let egress = inside.egress().await;
    let text = egress.to_string();
    assert!(!text.contains("with=query") && !text.contains("/a/path"), "{text}");
    let requests = egress["requests"].as_array().unwrap();
    let tunnel = requests.iter().find(|of| of["bytesUp"] == 60_000).unwrap();
    assert_eq!(tunnel["kind"], "connect");
    assert_eq!((&tunnel["bytesDown"], &tunnel["status"]), (&json!(11), &json!(200)));
    assert_eq!(requests[0]["refusal"], "host_not_allowed", "the newest is the first");
    assert_eq!(inside.get("/egress?limit=2").await.ok()["requests"].as_array().unwrap().len(), 2);
    inside.get("/egress?limit=0").await.refused(400);
    served
        .stranger()
        .await
        .get(&format!("/api/sessions/{}/egress", inside.session))
        .await
        .refused(404);
    let metrics = served.client.get("/metrics").await.body;
    let counted = "ash_egress_requests_total{kind=\"connect\",outcome=\"refused\"}";
    assert!(metrics.contains(counted), "{metrics}");
    assert!(metrics.contains("ash_egress_added_seconds_count"), "{metrics}");
    served.end().await;
}

#[tokio::test]
async fn a_name_that_leads_to_a_private_address_leads_nowhere() {
    let served = served(&[]).await;
    let web = Outside::start(Manner::Web).await;
    // The agent may name it; it is the server that knows where it leads to.
    let hosts = [web.host(), format!("127.0.0.1:{}", web.port()), "169.254.169.254".to_owned()];
    deploy(&served.client, "coder", &hosts).await;
    let inside = Inside::of(&served.client, "coder", json!({})).await;
    let targets = [&web.host(), &hosts[1], "169.254.169.254:80"];
    for answer in inside.connect(&targets).await {
        assert_eq!(answer, (403, "address_not_allowed".to_owned()));
    }
    let said = hosts.map(|host| format!("GET http://{host}/ HTTP/1.1\nhost: x"));
    for answer in inside.ask(&said).await {
        assert_eq!(read(&answer), (403, "address_not_allowed".to_owned()), "{answer}");
    }
    assert!(web.heard().is_empty());
    served.end().await;
}

#[tokio::test]
async fn the_proxy_has_no_paths_but_the_models() {
    let served = served(&[ALLOW_LOOPBACK]).await;
    deploy(&served.client, "coder", &["nobody.example".to_owned()]).await;
    let inside = Inside::of(&served.client, "coder", json!({})).await;
    let said = [
        "GET / HTTP/1.1\nhost: x",
        "HEAD /api/hello HTTP/1.1\nhost: x",
        "GET /api/sessions HTTP/1.1\nhost: x",
        "GET /metrics HTTP/1.1\nhost: x",
        "POST /v1/organizations HTTP/1.1\nhost: x",
        "GET /v1/messages HTTP/1.1\nhost: x",
        "POST /v1/messages/../../api HTTP/1.1\nhost: x",
        "POST //v1/messages HTTP/1.1\nhost: x",
        "OPTIONS * HTTP/1.1\nhost: x",
        COUNT,
    ];
    let answers = inside.ask(&said.map(str::to_owned)).await;
    let status: Vec<u16> = answers.iter().map(|answer| read(answer).0).collect();
    assert_eq!(status, [200, 200, 403, 403, 403, 403, 403, 403, 403, 200], "{answers:#?}");
    let asked: Vec<String> = served.model.requests().iter().map(|of| of.path.clone()).collect();
    assert_eq!(asked, ["/v1/messages/count_tokens"], "nothing else was passed on");
    // A head without an end has one.
    let endless = r#"python3 -c '
import os, socket
host, port = os.environ["http_proxy"].removeprefix("http://").split(":")
s = socket.create_connection((host, int(port)), 25)
s.sendall(b"GET / HTTP/1.1\r\n")
sent = 0
try:
    while sent < 200: s.sendall(b"x-more: " + b"x" * 100000 + b"\r\n"); sent += 1
except OSError: pass
print("ended" if sent < 200 else "never ended")
'"#;
    assert_eq!(inside.run(endless).await, "ended\n");
    served.end().await;
}

#[tokio::test]
async fn what_a_request_says_about_itself_is_passed_on_and_who_sends_it_is_not() {
    let served = served(&[]).await;
    deploy(&served.client, "coder", &["nobody.example".to_owned()]).await;
    let inside = Inside::of(&served.client, "coder", json!({})).await;
    let lines = "x-stainless-lang: js\nx-app: cli\nanthropic-beta: one\nuser-agent: claude-cli/2\n\
                 authorization: Bearer mine\nx-api-key: mine\ncookie: a=b\nx-forwarded-for: 1.2.3.4\n\
                 accept-encoding: gzip, br\nx-secret: no\nconnection: close";
    let said = COUNT.replace("count_tokens HTTP", "count_tokens?beta=true HTTP");
    let said = said.replace("connection: close", lines);
    let answer = inside.ask(&[said]).await.remove(0);
    assert_eq!(read(&answer).0, 200, "{answer}");
    let asked = served.model.requests().remove(0);
    assert_eq!(asked.path, "/v1/messages/count_tokens?beta=true");
    let mut names = asked.header_names.clone();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "accept",
            "accept-encoding",
            "anthropic-beta",
            "anthropic-version",
            "content-length",
            "content-type",
            "host",
            "user-agent",
            "x-api-key",
            "x-app",
            "x-stainless-lang",
        ]
    );
    assert!(
        asked.key.is_some_and(|key| key.reveal() == crate::world::KEY),
        "the key is the server's"
    );
    served.end().await;
}

#[tokio::test]
async fn a_flood_of_connections_leaves_room_for_the_model() {
    let served = served(&[ALLOW_LOOPBACK]).await;
    let silent = Outside::start(Manner::Silent).await;
    deploy(&served.client, "coder", &[silent.host()]).await;
    let inside = Inside::of(&served.client, "coder", json!({})).await;
    let flood = format!(
        r#"python3 -c '
import os, socket
host, port = os.environ["http_proxy"].removeprefix("http://").split(":")
held, said = [], []
for _ in range(40):
    s = socket.create_connection((host, int(port)), 25)
    s.sendall(b"CONNECT {0} HTTP/1.1\r\n\r\n")
    said.append(s.recv(100)[9:12].decode())
    held.append(s)
print(said.count("200"), said.count("503"))
import subprocess
print(subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{{http_code}}", f"http://{{host}}:{{port}}/"],
    capture_output=True).stdout.decode())
'"#,
        silent.host()
    );
    assert_eq!(inside.run(&flood).await, "32 8\n200\n");
    // Whoever flooded is gone, and so is what was held.
    let said = [format!("CONNECT {} HTTP/1.1\n\nx", silent.host())];
    assert_eq!(read(&inside.ask(&said).await[0]).0, 200);
    // The model is asked all the while.
    let run = served.client.say(&inside.session, "hello\n/say fine").await.all().await;
    assert_eq!(run.last().unwrap().data["stopReason"], "end_turn");
    served.end().await;
}

#[tokio::test]
async fn a_script_that_is_run_first_reaches_what_the_agent_may_and_nothing_else() {
    let served = served(&[ALLOW_LOOPBACK]).await;
    let web = Outside::start(Manner::Web).await;
    let url = format!("http://{}/", web.host());
    let curl = "curl -s --noproxy '' -o /dev/null -w '%{http_code} '";
    let install =
        format!("#!/bin/sh\n{curl} {url} > reached\n{curl} http://example.com/ >> reached\n");
    let manifest = format!("egress = [{:?}]\n", web.host());
    let files = [("CLAUDE.md", "x"), ("ash.toml", &manifest), ("install.sh", &install)];
    deploy_files(&served.client, "coder", &files).await;
    let inside = Inside::of(&served.client, "coder", json!({})).await;
    assert_eq!(inside.run("cat reached").await, "200 403 ");
    assert_eq!(web.heard().len(), 1);
    served.end().await;
}
