//! What goes out encrypted: to hosts that a credential is for, and to the model's provider.

use serde_json::json;

use super::super::spawned::Spawned;
use super::outside::{Manner, Outside, Secret};
use super::{ALLOW_LOOPBACK, Inside, deploy, read};

const KEY: &str = "Bearer of-the-host-77e1";

/// Servers in processes of their own: which certificates are trusted is a matter of the process.
async fn trusting(secret: &Secret, more: &[(&str, &str)]) -> Spawned {
    let trusted = ("SSL_CERT_FILE", secret.trusted());
    let settings: Vec<_> =
        [ALLOW_LOOPBACK, trusted].into_iter().chain(more.iter().copied()).collect();
    Spawned::with(&settings).await
}

#[tokio::test]
async fn a_credential_goes_out_encrypted_to_its_host_and_to_no_other() {
    let (secret, web) = (Secret::start("\"hello\"").await, Outside::start(Manner::Web).await);
    let other = Secret::start("\"hello\"").await;
    let spawned = trusting(&secret, &[]).await;
    let client = &spawned.client;
    deploy(client, "coder", &[web.host()]).await;
    let create = |host: String| json!({ "type": "custom", "key": KEY, "header": "authorization", "host": host });
    let mut ids = Vec::new();
    for host in [secret.host(), other.host()] {
        let made = client.post("/api/credentials", &create(host)).await.ok();
        ids.push(made["credential"]["id"].as_str().unwrap().to_owned());
    }
    let inside = Inside::of(client, "coder", json!({ "credentialIds": ids })).await;

    let mine = "authorization: mine\nauthorization: and mine\nx-mine: yes";
    let said = [
        format!("GET http://{}/issues?q=1 HTTP/1.1\nhost: x", secret.host()),
        format!("GET http://{}/issues?q=2 HTTP/1.1\nhost: {}\n{mine}", secret.host(), web.host()),
        format!("GET http://{}/page HTTP/1.1\nhost: {}\n{mine}", web.host(), secret.host()),
    ];
    let answers = inside.ask(&said).await;
    for (answer, body) in answers.iter().zip(["\"hello\"", "\"hello\"", "hello"]) {
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(body), "{answer}");
    }
    let heard = secret.heard();
    assert_eq!(heard.len(), 2);
    for (_, request) in &heard {
        assert!(request.contains(&format!("authorization: {KEY}\r\n")), "{request}");
        assert_eq!(request.matches("authorization").count(), 1, "{request}");
        assert!(request.contains(&format!("host: {}\r\n", secret.host())), "{request}");
    }
    assert!(heard[0].1.starts_with("GET /issues?q=1 HTTP/1.1\r\n"), "{}", heard[0].1);
    assert!(heard[1].1.contains("x-mine: yes\r\n"), "{}", heard[1].1);
    // Somebody else is told what the sandbox says, and no more.
    let [page] = &web.heard()[..] else { panic!("{:?}", web.heard()) };
    assert!(page.contains("authorization: mine\r\n") && !page.contains(KEY), "{page}");

    // Whose certificate nobody knows is told nothing.
    let said = [format!("GET http://{}/ HTTP/1.1\nhost: x", other.host())];
    let answer = inside.ask(&said).await.remove(0);
    assert_eq!(read(&answer), (502, "host_unreachable".to_owned()), "{answer}");
    assert_eq!(other.heard(), []);
    spawned.end().await;
}

#[tokio::test]
async fn the_provider_is_asked_encrypted_and_its_connections_are_used_again() {
    let answer = r#"{"type":"message","model":"claude-sonnet-4-5","content":[],"usage":{"input_tokens":70,"output_tokens":7}}"#;
    let secret = Secret::start(answer).await;
    let base = format!("https://{}/behind", secret.host());
    let spawned = trusting(&secret, &[("ANTHROPIC_BASE_URL", base.as_str())]).await;
    deploy(&spawned.client, "coder", &["nobody.example".to_owned()]).await;
    let inside = Inside::of(&spawned.client, "coder", json!({})).await;
    let body = r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[]}"#;
    let ask = format!(
        "POST /v1/messages?beta=true HTTP/1.1\nhost: x\nx-api-key: mine\ncontent-type: application/json\n\
         content-length: {}\nconnection: close\n\n{body}",
        body.len()
    );
    // The same without saying how long it is.
    let chunked = format!(
        "POST /v1/messages HTTP/1.1\nhost: x\ntransfer-encoding: chunked\nconnection: close\n\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let models = "GET /v1/models HTTP/1.1\nhost: x\nconnection: close".to_owned();
    for said in [&ask, &models, &ask] {
        let answered = inside.ask(std::slice::from_ref(said)).await.remove(0);
        assert!(answered.starts_with("HTTP/1.1 200") && answered.ends_with(answer), "{answered}");
    }
    let heard = secret.heard();
    let paths: Vec<_> = heard.iter().map(|(_, of)| of.split(" HTTP").next().unwrap()).collect();
    let messages = "POST /behind/v1/messages?beta=true";
    assert_eq!(paths, [messages, "GET /behind/v1/models", messages]);
    for (connection, request) in &heard {
        assert_eq!(*connection, 0, "one is enough");
        assert!(request.contains(&format!("host: {}\r\n", secret.host())), "{request}");
        assert!(!request.contains("mine") && !request.contains("connection:"), "{request}");
        assert!(request.contains(&format!("x-api-key: {}\r\n", crate::world::KEY)), "{request}");
    }
    assert!(heard[2].1.ends_with(body));
    let spent = inside.egress().await["spent"]["tokens"].clone();
    assert_eq!(spent, 154);
    let answered = inside.ask(&[chunked]).await.remove(0);
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
    spawned.end().await;
}
