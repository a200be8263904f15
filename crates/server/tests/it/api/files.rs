//! Files of sessions over HTTP: what is written can be read, whatever the agent does in between.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::client::Answer;
use super::served::{Served, let_go};

fn encoded(content: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(content)
}

fn workspace(served: &Served, session: &str) -> PathBuf {
    served.dir.join("data/sandboxes").join(session).join("workspace")
}

fn paths(answer: &Answer) -> Vec<String> {
    let listed = answer.ok();
    let files = listed["files"].as_array().unwrap();
    files.iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn what_is_written_is_there_for_the_agent_and_stays_when_its_sandbox_is_gone() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let of = |rest: &str| format!("/api/sessions/{session}{rest}");
    let files = json!([
        { "path": "a/one.txt", "content": encoded("one"), "mimeType": "text/plain" },
        { "path": "run.sh", "content": encoded("#!/bin/sh\necho ran\n"), "executable": true },
        { "path": "../evil", "content": encoded("x") },
        { "path": "/evil", "content": encoded("x") },
        { "path": "a", "content": encoded("x") },
        { "path": "bad", "content": "no base64!" },
    ]);
    let written = client.post(&of("/files"), &json!({ "files": files })).await.ok();
    let become_of: Vec<Value> = written["files"].as_array().unwrap().clone();
    assert_eq!(become_of[0], json!({ "path": "a/one.txt", "written": true, "size": 3 }));
    let errors: Vec<&str> = become_of[2..].iter().map(|f| f["error"].as_str().unwrap()).collect();
    let invalid = "Invalid file path";
    assert_eq!(
        errors,
        [
            invalid,
            invalid,
            "Path is not a file",
            "The content is not base64: '!' at place 10 is no digit of it"
        ]
    );
    let ran = client.post(&of("/exec"), &json!({ "command": "cat a/one.txt; ./run.sh" })).await;
    assert_eq!(ran.ok()["stdout"], "oneran\n");
    client.post(&of("/exec"), &json!({ "command": "echo two > a/two.txt" })).await.ok();
    let listed = client.get(&of("/files")).await;
    assert_eq!(paths(&listed), ["CLAUDE.md", "a/one.txt", "a/two.txt", "run.sh"]);
    assert_eq!(listed.ok()["source"], "sandbox");
    assert_eq!(paths(&client.get(&of("/files?path=a")).await), ["a/one.txt", "a/two.txt"]);
    for (act, status) in [("/pause", "paused"), ("/resume", "active"), ("/stop", "stopped")] {
        let session = client.post(&of(act), &json!({})).await.ok();
        assert_eq!(session["session"]["status"], status);
    }
    let answer = client.get(&of("/files/a/two.txt")).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "two\n"));
    assert_eq!(answer.header("x-ash-source"), Some("snapshot"));
    let more = json!({ "files": [{ "path": "later", "content": "" }], "targetPath": "./b/" });
    client.post(&of("/files"), &more).await.ok();
    client.delete(&of("")).await.ok();
    let json = client.get(&of("/files/b/later?format=json")).await.ok();
    let expected = json!({ "path": "b/later", "content": "", "size": 0, "source": "snapshot" });
    assert_eq!(json, expected);
    let gone = client.delete(&of("/files/b/later")).await.ok();
    assert_eq!(gone, json!({ "path": "b/later", "deleted": true }));
    assert_eq!(client.get(&of("/files/b/later")).await.refused(404), "not_found");
    served.end().await;
}

#[tokio::test]
async fn a_file_is_sent_as_what_it_is() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let of = |rest: &str| format!("/api/sessions/{session}/files{rest}");
    let place = workspace(&served, &session);
    let large: Vec<u8> =
        (0..700_000_u32).flat_map(u32::to_le_bytes).map(|b| b'a' + b % 26).collect();
    fs::write(place.join("large.json"), &large).unwrap();
    fs::write(place.join("Zürich \"1\".html"), "<script>").unwrap();
    fs::write(place.join("bytes"), b"\xff\xfe").unwrap();
    let answer = client.get(&of("/large.json")).await;
    assert_eq!(answer.header("content-length"), Some(large.len().to_string().as_str()));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.body.as_bytes(), large);
    assert_eq!(client.get(&of("/large.json?format=json")).await.refused(400), "file_too_large");
    let page = client.get(&of("/Z%C3%BCrich%20%221%22.html")).await;
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let disposition = "attachment; filename*=UTF-8''Z%C3%BCrich%20%221%22.html";
    assert_eq!(page.header("content-disposition"), Some(disposition));
    let lossy = client.get(&of("/bytes?format=json")).await.ok();
    assert_eq!((&lossy["content"], &lossy["lossy"]), (&json!("\u{fffd}\u{fffd}"), &json!(true)));
    assert_eq!(
        client.get(&of("/bytes")).await.header("content-type"),
        Some("application/octet-stream")
    );
    fs::File::create(place.join("huge")).unwrap().set_len((100 << 20) + 1).unwrap();
    assert_eq!(client.get(&of("/huge")).await.refused(400), "file_too_large");
    served.end().await;
}

#[tokio::test]
async fn a_hostile_tree_is_answered_and_leads_nowhere() {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let of = |rest: &str| format!("/api/sessions/{session}/files{rest}");
    let place = workspace(&served, &session);
    symlink("/etc/passwd", place.join("passwd")).unwrap();
    symlink("../../..", place.join("up")).unwrap();
    symlink("CLAUDE.md", place.join("link")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(place.join("fifo")).status().unwrap();
    assert!(made.success());
    fs::write(place.join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
    for link in ["/passwd", "/up", "/link", "/fifo", "/up/ash.db", "/."] {
        let answer = client.get(&of(link)).await;
        assert!(matches!(answer.status, 400), "{link}: {answer:?}");
        answer.refused(400);
    }
    for bad in
        ["/..%2f..%2fash.db", "/%2e%2e/x", "/%2Fetc%2Fpasswd", "/a%00b", "/a/", "/a%2f..%2fb"]
    {
        assert_eq!(client.get(&of(bad)).await.refused(400), "invalid_path", "{bad}");
        assert_eq!(client.delete(&of(bad)).await.refused(400), "invalid_path", "{bad}");
    }
    let long = format!("/{}", "n".repeat(256));
    assert_eq!(client.get(&of(&long)).await.refused(404), "not_found");
    let through = json!({ "files": [{ "path": "up/evil", "content": "eA==" }] });
    let written = client.post(&of(""), &through).await.ok();
    assert_eq!(written["files"][0]["written"], false);
    let listed = client.get(&of("")).await.ok();
    let odd = &listed["files"][1];
    assert_eq!((&odd["path"], &odd["encodedPath"]), (&json!("caf\u{fffd}"), &json!("caf%E9")));
    assert_eq!(listed["files"].as_array().unwrap().len(), 2);
    assert_eq!(client.get(&of("/caf%E9")).await.body, "x");
    assert_eq!(client.delete(&of("/caf%E9")).await.ok()["deleted"], true);
    served.end().await;
}

#[tokio::test]
async fn what_is_full_of_directories_can_be_cleaned_and_what_is_over_stays_as_it_is() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let of = |rest: &str| format!("/api/sessions/{session}{rest}");
    let deep = workspace(&served, &session).join("many words").join("d/".repeat(300));
    fs::create_dir_all(deep).unwrap();
    let shown = client.get(&of("/files?directories=true")).await.ok();
    assert_eq!(shown["directories"], json!(["many%20words"]), "{shown}");
    assert_eq!(client.get(&of("/files")).await.ok().get("directories"), None);
    assert_eq!(client.delete(&of("/files/many%20words")).await.refused(400), "not_a_file");
    let gone = client.delete(&of("/files/many%20words?recursive=true")).await.ok();
    assert_eq!(gone, json!({ "path": "many words", "deleted": true }));
    assert!(!workspace(&served, &session).join("many words").exists());
    client.delete(&of("")).await.ok();
    let file = json!({ "files": [{ "path": "new", "content": encoded("x") }] });
    assert_eq!(client.post(&of("/files"), &file).await.refused(410), "session_ended");
    let bundle = json!({ "bundle": encoded("x") });
    assert_eq!(client.post(&of("/workspace"), &bundle).await.refused(410), "session_ended");
    assert_eq!(paths(&client.get(&of("/files")).await), ["CLAUDE.md"], "it can be read");
    client.delete(&of("/files/CLAUDE.md")).await.ok();
    served.end().await;
}

#[tokio::test]
async fn a_batch_has_bounds() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let path = format!("/api/sessions/{session}/files");
    let file = json!({ "path": "x", "content": "" });
    for count in [0, 501] {
        let body = json!({ "files": vec![file.clone(); count] });
        assert_eq!(client.post(&path, &body).await.refused(400), "invalid_request");
    }
    let body = json!({ "files": [file], "targetPath": "../x" });
    assert_eq!(client.post(&path, &body).await.refused(400), "invalid_path");
    let large = "A".repeat((51 << 20) / 3 * 4);
    let body = json!({ "files": [{ "path": "big", "content": large }, file] });
    let written = client.post(&path, &body).await.ok();
    assert_eq!(written["files"][0]["written"], false);
    assert_eq!(written["files"][1]["written"], true);
    let body =
        json!({ "files": [{ "path": "1", "content": large }, { "path": "2", "content": large }] });
    assert_eq!(client.post(&path, &body).await.refused(413), "too_large");
    served.end().await;
}

#[tokio::test]
async fn a_workspace_goes_from_one_session_to_another_or_not_at_all() {
    let served = Served::start().await;
    let client = &served.client;
    let (from, to) = (served.session().await, served.session().await);
    let at = |session: &str| format!("/api/sessions/{session}/workspace");
    fs::create_dir(workspace(&served, &from).join("sub")).unwrap();
    fs::write(workspace(&served, &from).join("sub/file"), "moved").unwrap();
    let request = client.request("GET", &at(&from), &[], None);
    let (head, bundle) = raw(client.address, &request).await;
    assert!(head.contains(&format!("filename=\"{from}.tar.gz\"")), "{head}");
    let answer = client.post(&at(&to), &json!({ "bundle": encoded(&bundle) })).await.ok();
    assert_eq!(answer["message"], "Workspace restored to live sandbox");
    assert_eq!(fs::read_to_string(workspace(&served, &to).join("sub/file")).unwrap(), "moved");
    client.post(&format!("/api/sessions/{to}/stop"), &json!({})).await.ok();
    let answer = client.post(&at(&to), &json!({ "bundle": encoded(&bundle) })).await.ok();
    assert_eq!(answer["message"], "Workspace saved as snapshot");
    let half = encoded(&bundle[..bundle.len() / 2]);
    for (bad, code) in [("", "invalid_bundle"), ("%%", "invalid_bundle"), (&half, "invalid_bundle")]
    {
        assert_eq!(client.post(&at(&to), &json!({ "bundle": bad })).await.refused(400), code);
    }
    served.end().await;
}

#[tokio::test]
async fn a_run_that_goes_on_does_not_notice() {
    let served = Served::start().await;
    let client = &served.client;
    let (session, watched) = served.busy().await;
    let path = format!("/api/sessions/{session}/files");
    for number in 0..20 {
        let name = format!("f{number}");
        let body = json!({ "files": [{ "path": name, "content": encoded(&name) }] });
        client.post(&path, &body).await.ok();
        assert_eq!(client.get(&format!("{path}/{name}")).await.body, name);
    }
    let_go(client, &session).await;
    let rest = watched.all().await;
    assert_eq!(rest.last().unwrap().data["stopReason"], "end_turn");
    served.end().await;
}

/// The head and the bytes of an answer.
async fn raw(address: std::net::SocketAddr, request: &[u8]) -> (String, Vec<u8>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.write_all(request).await.unwrap();
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).await.unwrap();
    let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8_lossy(&bytes[..at]).into_owned(), bytes[at + 4..].to_vec())
}
