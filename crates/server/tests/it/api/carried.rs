//! What is attached to a session goes along with it: to forks, in bundles, through a bucket.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::client::Client;
use super::cloud::{import as import_from_cloud, in_cloud, post, say, until};
use super::served::{Served, session};
use super::spawned::Spawned;

const WRITE: &str = "/tool write_file {\"path\": \"a.txt\", \"content\": \"one\"}";

async fn attach(client: &Client, session: &str, name: &str, content: &str) -> Value {
    let messages = client.get(&format!("/api/sessions/{session}/messages")).await.ok();
    let mut body = json!({
        "filename": name, "mimeType": "text/x-test", "content": BASE64_STANDARD.encode(content),
    });
    if let Some(last) = messages["messages"].as_array().unwrap().last() {
        body["messageId"] = last["id"].clone();
    }
    let path = format!("/api/sessions/{session}/attachments");
    client.post(&path, &body).await.ok()["attachment"].clone()
}

async fn listed(client: &Client, session: &str) -> Vec<Value> {
    let listed = client.get(&format!("/api/sessions/{session}/attachments")).await.ok();
    listed["attachments"].as_array().unwrap().clone()
}

async fn read(client: &Client, attachment: &Value) -> String {
    let path = format!("/api/attachments/{}", attachment["id"].as_str().unwrap());
    let answer = client.get(&path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("text/x-test"));
    answer.body
}

/// What is known of attachments wherever they are.
fn known(attachments: &[Value]) -> Vec<Value> {
    let fields = ["filename", "mimeType", "size", "path", "createdAt", "tenantId"];
    let of = |one: &Value| fields.iter().map(|field| one[*field].clone()).collect();
    attachments.iter().map(of).collect()
}

/// Whether each is for a message that the session has here.
async fn are_linked(client: &Client, session: &str) -> bool {
    let messages = client.get(&format!("/api/sessions/{session}/messages")).await.ok();
    let messages = messages["messages"].as_array().unwrap().clone();
    let has = |id: &Value| messages.iter().any(|message| message["id"] == *id);
    listed(client, session).await.iter().all(|one| has(&one["messageId"]))
}

#[tokio::test]
async fn a_fork_has_what_was_attached_at_its_point() {
    let served = Served::start().await;
    let client = &served.client;
    let parent = session(client).await;
    say(client, &parent, WRITE).await;
    let first = attach(client, &parent, "first.txt", "one").await;
    say(client, &parent, "/bash cat attachments/first.txt").await;
    let second = attach(client, &parent, "second.txt", "two").await;
    post(client, &parent, "stop").await;
    let fork = async |body: Value| {
        let made = client.post(&format!("/api/sessions/{parent}/fork"), &body).await.ok();
        made["session"]["id"].as_str().unwrap().to_owned()
    };
    let latest = fork(json!({})).await;
    let there = listed(client, &latest).await;
    assert_eq!(known(&there), known(&[first.clone(), second.clone()]));
    assert_eq!(
        (read(client, &there[0]).await, read(client, &there[1]).await),
        ("one".into(), "two".into())
    );
    assert!(there.iter().all(|one| one["sessionId"] == json!(latest)), "{there:?}");
    assert!(are_linked(client, &latest).await, "{there:?}");
    let earlier = fork(json!({ "turn": 1 })).await;
    assert_eq!(known(&listed(client, &earlier).await), known(std::slice::from_ref(&first)));
    // Each is deleted by itself.
    client.delete(&format!("/api/attachments/{}", there[0]["id"].as_str().unwrap())).await.ok();
    client.delete(&format!("/api/sessions/{parent}")).await.ok();
    assert_eq!(read(client, &first).await, "one");
    assert_eq!(read(client, &there[1]).await, "two");
    post(client, &latest, "resume").await;
    let path = format!("/api/sessions/{latest}/files/attachments/second.txt");
    assert_eq!(client.get(&path).await.body, "two", "and so has the agent");
    served.end().await;
}

#[tokio::test]
async fn a_bundle_has_what_is_attached_and_says_what_was_lost() {
    let first = Served::start().await;
    let id = session(&first.client).await;
    say(&first.client, &id, WRITE).await;
    let one = attach(&first.client, &id, "one.txt", "one").await;
    let lost = attach(&first.client, &id, "lost.txt", "lost").await;
    post(&first.client, &id, "stop").await;
    let kept = first.dir.join("data/attachments").join(&id);
    std::fs::remove_file(kept.join(lost["id"].as_str().unwrap())).unwrap();
    let bundle = first.client.download(&format!("/api/sessions/{id}/export")).await;
    first.end().await;

    let second = Served::start().await;
    let client = &second.client;
    let import = async || {
        let headers = ["content-type: application/x-tar"];
        let path = "/api/sessions/import";
        let made = client.ask_bytes("POST", path, &headers, Some(&bundle)).await.ok();
        made["session"]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(import().await, id);
    let there = listed(client, &id).await;
    assert_eq!(known(&there), known(&[one.clone(), lost.clone()]));
    assert_eq!(there[0]["id"], one["id"], "a session that keeps its id keeps theirs");
    assert_eq!(read(client, &there[0]).await, "one");
    assert!(are_linked(client, &id).await, "{there:?}");
    let gone = client.get(&format!("/api/attachments/{}", lost["id"].as_str().unwrap())).await;
    assert_eq!(gone.refused(410), "attachment_lost");
    // A second time all ids are others.
    let again = import().await;
    let others = listed(client, &again).await;
    assert!(again != id && others[0]["id"] != one["id"]);
    assert_eq!(read(client, &others[0]).await, "one");
    second.end().await;
}

/// The files below a directory whose path has a word in it.
fn below(directory: &Path, word: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = vec![directory.to_owned()];
    while let Some(next) = rest.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                rest.push(path);
            } else if path.to_string_lossy().contains(word) {
                found.push(path);
            }
        }
    }
    found
}

#[tokio::test]
async fn what_is_attached_comes_back_from_a_bucket_when_the_data_directory_is_gone() {
    let bucket = tempfile::tempdir().unwrap();
    let url = format!("file://{}/bucket", bucket.path().display());
    let mut spawned = Spawned::with(&[("ASH_SNAPSHOT_URL", url.as_str())]).await;
    let id = session(&spawned.client).await;
    say(&spawned.client, &id, WRITE).await;
    let one = attach(&spawned.client, &id, "one.txt", "one").await;
    post(&spawned.client, &id, "stop").await;
    in_cloud(&spawned.client, &id).await;
    // What comes while nothing else happens is brought there, too, and what has gone there is put again.
    for part in below(bucket.path(), "/attachments/") {
        std::fs::remove_file(part).unwrap();
    }
    let two = attach(&spawned.client, &id, "two.txt", "two").await;
    until("both are there", async || below(bucket.path(), "/attachments/").len() == 2).await;
    let heads = || below(bucket.path(), "/heads/").len();
    let client = spawned.client.clone();
    until("a head names them", async || {
        let heads = heads();
        heads >= 2
            && client.get("/api/cloud/sessions").await.ok()["sessions"][0]["sessionId"] == json!(id)
    })
    .await;
    spawned.kill_and_restart_without("data");
    let client = &spawned.client;
    import_from_cloud(client, &id).await;
    let there = listed(client, &id).await;
    assert_eq!(known(&there), known(&[one, two]));
    assert_eq!(
        (read(client, &there[0]).await, read(client, &there[1]).await),
        ("one".into(), "two".into())
    );
    // The agent has both before it is told anything.
    post(client, &id, "resume").await;
    say(client, &id, "/bash cat attachments/*.txt > both").await;
    assert_eq!(client.get(&format!("/api/sessions/{id}/files/both")).await.body, "onetwo");
    spawned.end().await;
}
