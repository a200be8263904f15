//! Files that are attached to sessions.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::client::Client;
use super::served::{Served, With};
use super::spawned::Spawned;

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn workspace(served: &Served, session: &str) -> PathBuf {
    served.dir.join("data/sandboxes").join(session).join("workspace")
}

async fn attach(client: &Client, session: &str, name: &str, content: &str) -> Value {
    let body = json!({ "filename": name, "mimeType": "text/plain", "content": encoded(content) });
    let path = format!("/api/sessions/{session}/attachments");
    let answer = client.post(&path, &body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["attachment"].clone()
}

#[tokio::test]
async fn a_file_is_attached_given_to_the_agent_read_and_deleted() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let made = attach(client, &session, "../notes ü.txt", "hello").await;
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!((&made["filename"], &made["size"]), (&json!("notes ü.txt"), &json!(5)));
    assert_eq!((&made["messageId"], &made["sessionId"]), (&json!("unlinked"), &json!(session)));
    assert_eq!((&made["tenantId"], &made["mimeType"]), (&json!("default"), &json!("text/plain")));
    assert_eq!(made["path"], "attachments/notes ü.txt");
    let second = attach(client, &session, "notes ü.txt", "other").await;
    assert_eq!(second["path"], "attachments/notes ü-2.txt", "nothing is replaced");
    let cat = json!({ "command": "cat 'attachments/notes ü.txt' 'attachments/notes ü-2.txt'" });
    let read = client.post(&format!("/api/sessions/{session}/exec"), &cat).await.ok();
    assert_eq!(read["stdout"], "helloother");
    let listed = client.get(&format!("/api/sessions/{session}/attachments")).await.ok();
    assert_eq!(listed["attachments"], json!([made, second]));
    let bytes = client.get(&format!("/api/attachments/{id}")).await;
    assert_eq!((bytes.status, bytes.body.as_str()), (200, "hello"));
    assert_eq!(bytes.header("content-type"), Some("text/plain"));
    assert_eq!(bytes.header("x-content-type-options"), Some("nosniff"));
    let disposition = "attachment; filename*=UTF-8''notes%20%C3%BC.txt";
    assert_eq!(bytes.header("content-disposition"), Some(disposition));
    // It is there without a sandbox, and goes into the next snapshot.
    client.post(&format!("/api/sessions/{session}/stop"), &json!({})).await.ok();
    let later = attach(client, &session, "later.txt", "later").await;
    let path = format!("/api/sessions/{session}/files/attachments/later.txt");
    assert_eq!(client.get(&path).await.body, "later");
    assert_eq!(client.delete(&format!("/api/attachments/{id}")).await.ok(), json!({ "ok": true }));
    assert_eq!(client.get(&format!("/api/attachments/{id}")).await.refused(404), "not_found");
    assert_eq!(client.delete(&format!("/api/attachments/{id}")).await.refused(404), "not_found");
    let listed = client.get(&format!("/api/sessions/{session}/attachments")).await.ok();
    assert_eq!(listed["attachments"], json!([second, later]));
    assert!(!workspace(&served, &session).join("attachments/notes ü.txt").exists());
    let kept = served.dir.join("data/attachments").join(&session);
    assert_eq!(fs::read_dir(kept).unwrap().count(), 2);
    client.delete(&format!("/api/sessions/{session}")).await.ok();
    let path = format!("/api/sessions/{session}/attachments");
    let body = json!({ "filename": "x", "content": "eA==" });
    assert_eq!(client.post(&path, &body).await.refused(410), "session_ended");
    assert_eq!(client.get(&path).await.ok()["attachments"].as_array().unwrap().len(), 2);
    served.end().await;
}

#[tokio::test]
async fn what_is_attached_has_bounds_and_leads_nowhere() {
    let variables = vec![("ASH_MAX_ATTACHMENT_SIZE", "3000000".to_owned())];
    let served = Served::with(With { variables, ..With::default() }).await;
    let client = &served.client;
    let session = served.session().await;
    let path = format!("/api/sessions/{session}/attachments");
    let of = |filename: &str, content: &str| json!({ "filename": filename, "content": content });
    let most = encoded(vec![7; 3_000_000]);
    assert_eq!(client.post(&path, &of("most", &most)).await.ok()["attachment"]["size"], 3_000_000);
    for larger in [3_000_001, 3_200_000] {
        let larger = of("larger", &encoded(vec![7; larger]));
        assert_eq!(client.post(&path, &larger).await.refused(413), "too_large");
    }
    for (bad, error) in [
        (of("x", ""), "Empty attachment content"),
        (of("", "eA=="), "filename is empty"),
        (of("x", "no base64!"), "content is not base64"),
        (of(&"n".repeat(256), "eA=="), "filename has more than 255 bytes"),
        (
            json!({ "filename": "x", "content": "eA==", "mimeType": "text/html\r\nx: y" }),
            "mimeType",
        ),
        (json!({ "filename": "x", "content": "eA==", "messageId": "a/b" }), "messageId"),
    ] {
        let answer = client.post(&path, &bad).await;
        assert_eq!(answer.refused(400), "invalid_request", "{bad}");
        assert!(answer.json()["error"].as_str().unwrap().contains(error), "{answer:?}");
    }
    for (name, safe) in [("/etc/passwd", "passwd"), ("..", "unnamed"), ("a\u{0}\nb", "ab")] {
        assert_eq!(
            client.post(&path, &of(name, "eA==")).await.ok()["attachment"]["filename"],
            safe
        );
    }
    // A link that the agent has planted is not followed, and nothing is left of the attempt.
    let place = workspace(&served, &session);
    let outside = served.dir.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::remove_dir_all(place.join("attachments")).unwrap();
    std::os::unix::fs::symlink(&outside, place.join("attachments")).unwrap();
    let before = client.get(&path).await.ok();
    let body = of("evil", "eA==");
    let key = ["idempotency-key: evil"];
    assert_eq!(client.ask("POST", &path, &key, Some(&body)).await.status, 400);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(client.get(&path).await.ok(), before);
    fs::remove_file(place.join("attachments")).unwrap();
    assert_eq!(client.ask("POST", &path, &key, Some(&body)).await.status, 201, "the way is free");
    // Nor is a link in place of the file.
    fs::write(outside.join("target"), "untouched").unwrap();
    std::os::unix::fs::symlink(outside.join("target"), place.join("attachments/linked")).unwrap();
    let beside = client.post(&path, &of("linked", "eA==")).await.ok();
    assert_eq!(beside["attachment"]["path"], "attachments/linked-2");
    assert_eq!(fs::read_to_string(outside.join("target")).unwrap(), "untouched");
    served.end().await;
}

#[tokio::test]
async fn an_attachment_is_added_once_and_is_nobody_elses() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let path = format!("/api/sessions/{session}/attachments");
    client.say(&session, "/say hi").await.all().await;
    let messages = client.get(&format!("/api/sessions/{session}/messages")).await.ok();
    let message = &messages["messages"][0];
    let body = json!({ "filename": "a", "content": "eA==", "messageId": message["cursor"] });
    let key = ["idempotency-key: attached"];
    let first = client.ask("POST", &path, &key, Some(&body)).await.ok();
    assert_eq!(first["attachment"]["messageId"], message["cursor"]);
    for unknown in ["1-999", "00000000-0000-4000-8000-000000000000"] {
        let wrong = json!({ "filename": "a", "content": "eA==", "messageId": unknown });
        let answer = client.post(&path, &wrong).await;
        assert_eq!(answer.refused(400), "invalid_request");
        assert_eq!(answer.json()["error"], "messageId names no message of this session");
    }
    assert_eq!(client.ask("POST", &path, &key, Some(&body)).await.ok(), first);
    let other = json!({ "filename": "b", "content": "eA==" });
    let refused = client.ask("POST", &path, &key, Some(&other)).await;
    assert_eq!(refused.refused(409), "idempotency_mismatch");
    assert_eq!(client.get(&path).await.ok()["attachments"], json!([first["attachment"]]));
    let stranger = served.stranger().await;
    let one = format!("/api/attachments/{}", first["attachment"]["id"].as_str().unwrap());
    for (method, path, body) in [
        ("GET", &one, None),
        ("DELETE", &one, None),
        ("GET", &path, None),
        ("POST", &path, Some(&other)),
    ] {
        let answer = stranger.ask(method, path, &[], body).await;
        assert_eq!(answer.refused(404), "not_found", "{method} {path}");
    }
    assert_eq!(client.get(&one).await.body, "x");
    served.end().await;
}

#[tokio::test]
async fn a_killed_server_leaves_an_attachment_whole_or_nothing() {
    use tokio::io::AsyncWriteExt as _;
    let mut spawned = Spawned::start().await;
    let session = super::served::session(&spawned.client).await;
    let path = format!("/api/sessions/{session}/attachments");
    let content = "x".repeat(200_000);
    for wait in [0, 1, 2, 4, 8, 12, 16, 24] {
        let name = format!("after-{wait}");
        let body = json!({ "filename": name, "content": encoded(&content) }).to_string();
        let key = format!("idempotency-key: {name}");
        let request = spawned.client.request("POST", &path, &[&key], Some(body.as_bytes()));
        let mut socket = tokio::net::TcpStream::connect(spawned.client.address).await.unwrap();
        socket.write_all(&request).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
        spawned.kill_and_restart();
        // Sent again with its key, it is there once.
        let body = serde_json::from_str(&body).unwrap();
        spawned.client.ask("POST", &path, &[&key], Some(&body)).await.ok();
    }
    let client = spawned.client.clone();
    let listed = client.get(&path).await.ok();
    let listed = listed["attachments"].as_array().unwrap();
    assert_eq!(listed.len(), 8, "{listed:#?}");
    for attachment in listed {
        let one = format!("/api/attachments/{}", attachment["id"].as_str().unwrap());
        assert_eq!(client.get(&one).await.body, content);
    }
    // The agent has them before it is told anything.
    client.say(&session, "/bash ls attachments | sort > list").await.all().await;
    for attachment in listed {
        let file = attachment["path"].as_str().unwrap();
        assert_eq!(
            client.get(&format!("/api/sessions/{session}/files/{file}")).await.body,
            content
        );
    }
    let kept = spawned.dir.path().join("data/attachments").join(&session);
    assert_eq!(fs::read_dir(kept).unwrap().count(), 8, "nothing else is left");
    spawned.end().await;
}

#[tokio::test]
async fn a_copy_goes_with_its_attachment_unless_it_was_changed() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let path = format!("/api/sessions/{session}/attachments");
    client.say(&session, "/say hi").await.all().await;
    let messages = client.get(&format!("/api/sessions/{session}/messages")).await.ok();
    let workspace = served.dir.join("data/sandboxes").join(&session).join("workspace");
    for (name, change, stays) in [
        ("same", None, false),
        ("other", Some("other bytes"), true),
        ("longer", Some("hello world, and more"), true),
        ("gone", None, false),
    ] {
        let message = &messages["messages"][0]["id"];
        let body =
            json!({ "filename": name, "content": encoded("hello world"), "messageId": message });
        let made = client.post(&path, &body).await.ok();
        let copy = workspace.join("attachments").join(name);
        if let Some(change) = change {
            let content = encoded(change);
            let files =
                json!({ "files": [{ "path": format!("attachments/{name}"), "content": content }] });
            client.post(&format!("/api/sessions/{session}/files"), &files).await.ok();
        }
        if name == "gone" {
            fs::remove_file(&copy).unwrap();
        }
        let id = made["attachment"]["id"].as_str().unwrap();
        client.delete(&format!("/api/attachments/{id}")).await.ok();
        assert_eq!(copy.exists(), stays, "{name}");
    }
    assert_eq!(client.get(&path).await.ok()["attachments"], json!([]));
    served.end().await;
}
