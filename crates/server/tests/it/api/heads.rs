//! What a set in the bucket is worth: it follows everything that changes, and survives what becomes of the bucket.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::client::Client;
use super::cloud::{WRITE, conversation, import, in_cloud, look, post, say, until};
use super::served::{agent, session};
use super::spawned::Spawned;
use crate::processes::kill;

struct Bucket(tempfile::TempDir);

impl Bucket {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn url(&self) -> String {
        format!("file://{}/bucket", self.0.path().display())
    }

    async fn served(&self) -> Spawned {
        let url = self.url();
        let settings = [("ASH_SNAPSHOT_URL", url.as_str()), ("ASH_CLOUD_WAIT_MS", "20000")];
        Spawned::with(&settings).await
    }

    /// The objects of a session, oldest first.
    fn objects(&self, session: &str, kind: &str) -> Vec<PathBuf> {
        let place = self.0.path().join(format!("bucket/tenants/default/sessions/{session}/{kind}"));
        let found = std::fs::read_dir(place).unwrap().map(|found| found.unwrap().path());
        let mut found: Vec<PathBuf> = found.collect();
        found.sort();
        found
    }
}

fn damage(object: &Path) {
    let whole = std::fs::read(object).unwrap();
    std::fs::remove_file(object).unwrap();
    std::fs::write(object, &whole[..whole.len() / 2]).unwrap();
}

/// What the bucket says of a session.
async fn listed(client: &Client, session: &str) -> Option<Value> {
    let there = client.get("/api/cloud/sessions").await.ok();
    let sessions = there["sessions"].as_array().unwrap();
    sessions.iter().find(|listed| listed["sessionId"] == session).cloned()
}

/// Waits until the bucket says so of a session.
async fn there(client: &Client, session: &str, field: &str, value: Value) {
    until(&format!("{field} is {value} in the cloud"), async || {
        listed(client, session).await.is_some_and(|listed| listed[field] == value)
    })
    .await;
}

#[tokio::test]
async fn forks_rewinds_names_and_ends_get_there_too() {
    let bucket = Bucket::new();
    let first = bucket.served().await;
    agent(&first.client, "coder").await;
    let limits = json!({ "agent": "coder", "ttlMs": 86_400_000, "idleTimeoutMs": 90_000 });
    let made = first.client.post("/api/sessions", &limits).await.ok();
    let id = made["session"]["id"].as_str().unwrap().to_owned();
    say(&first.client, &id, WRITE).await;
    say(&first.client, &id, "/bash printf two > b.txt").await;
    in_cloud(&first.client, &id).await;

    let of = |what: &str| format!("/api/sessions/{id}/{what}");
    let fork = first.client.post(&of("fork"), &json!({ "turn": 1 })).await;
    let fork = fork.json()["session"]["id"].as_str().unwrap().to_owned();
    there(&first.client, &fork, "turns", json!(1)).await;
    in_cloud(&first.client, &fork).await;

    first.client.post(&of("rewind"), &json!({ "turn": 1 })).await.ok();
    there(&first.client, &id, "turns", json!(1)).await;
    in_cloud(&first.client, &id).await;

    let title = json!({ "title": "Ada's" });
    first.client.ask("PATCH", &of("config"), &[], Some(&title)).await.ok();
    there(&first.client, &id, "title", json!("Ada's")).await;

    first.client.delete(&format!("/api/sessions/{fork}")).await.ok();
    there(&first.client, &fork, "status", json!("ended")).await;
    let stopped = post(&first.client, &id, "stop").await["session"].clone();
    assert_eq!(listed(&first.client, &id).await.unwrap()["status"], "stopped");
    let end = look(&first.client, &id).await["lastSeq"].clone();
    assert_eq!(listed(&first.client, &id).await.unwrap()["seq"], end);

    let second = bucket.served().await;
    for session in [&id, &fork] {
        let imported = import(&second.client, session).await;
        assert_eq!((&imported["turns"], &imported["status"]), (&json!(1), &json!("paused")));
        let here = conversation(&second.client, session).await;
        assert_eq!(here, conversation(&first.client, session).await);
        assert!(!imported["expiresAt"].is_null(), "its time runs out there too: {imported}");
        let back = post(&second.client, session, "resume").await["resume"].clone();
        // Both have the same snapshot: it is fetched once.
        let source = if session == &id { "cloud" } else { "local" };
        assert_eq!(
            (&back["source"], &back["files"]),
            (&json!(source), &stopped["snapshot"]["files"])
        );
        if session == &id {
            let fork = second.client.post(&of("fork"), &json!({})).await.json();
            let [made, ends] = ["createdAt", "expiresAt"]
                .map(|at| fork["session"][at].as_str().unwrap().split_once('T').unwrap().1);
            assert_eq!(made, ends, "it lives for a day, whatever the age of what it is a fork of");
        }
    }
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn a_restored_backup_and_what_was_after_it_are_two_histories() {
    let bucket = Bucket::new();
    let mut first = bucket.served().await;
    let id = session(&first.client).await;
    say(&first.client, &id, WRITE).await;
    post(&first.client, &id, "stop").await;
    let copy = |from: &str, to: &str| {
        let (from, to) = (first.dir.path().join(from), first.dir.path().join(to));
        let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(copied.success());
    };
    copy("data", "backup");
    post(&first.client, &id, "resume").await;
    for turn in 0..4 {
        say(&first.client, &id, &format!("/say lost {turn}")).await;
    }
    post(&first.client, &id, "stop").await;
    in_cloud(&first.client, &id).await;
    // Read with the log that it is written to: the database is whole in the copy, with its journal.
    kill(first.pid());
    let data = first.dir.path().join("data");
    std::fs::rename(&data, first.dir.path().join("lost")).unwrap();
    std::fs::rename(first.dir.path().join("backup"), &data).unwrap();
    first.restart();

    post(&first.client, &id, "resume").await;
    say(&first.client, &id, "/say new").await;
    in_cloud(&first.client, &id).await;
    for turn in 0..8 {
        say(&first.client, &id, &format!("/say newer {turn}")).await;
    }
    post(&first.client, &id, "stop").await;
    in_cloud(&first.client, &id).await;
    let second = bucket.served().await;
    import(&second.client, &id).await;
    let there = conversation(&second.client, &id).await;
    assert_eq!(there, conversation(&first.client, &id).await);
    assert!(!json!(there).to_string().contains("lost"), "{there:?}");
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn what_is_damaged_or_missing_in_the_bucket_is_put_again_with_the_next_set() {
    let bucket = Bucket::new();
    let first = bucket.served().await;
    let id = session(&first.client).await;
    say(&first.client, &id, WRITE).await;
    in_cloud(&first.client, &id).await;
    damage(bucket.objects(&id, "heads").last().unwrap());
    bucket.objects(&id, "log").iter().for_each(|part| std::fs::remove_file(part).unwrap());
    let agents = bucket.0.path().join("bucket/tenants/default/agents");
    std::fs::read_dir(agents).unwrap().for_each(|agent| damage(&agent.unwrap().path()));
    let second = bucket.served().await;
    let refused = second.client.post(&format!("/api/cloud/sessions/{id}/import"), &json!({})).await;
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("import_damaged")));

    say(&first.client, &id, "/bash printf two > b.txt").await;
    in_cloud(&first.client, &id).await;
    say(&first.client, &id, "/bash printf three > c.txt").await;
    in_cloud(&first.client, &id).await;
    first.end().await;
    // The latest set is damaged now: the one before it is there.
    damage(bucket.objects(&id, "heads").last().unwrap());
    let imported = import(&second.client, &id).await;
    assert!(imported["turns"].as_u64().unwrap() >= 2, "{imported}");
    assert!(second.said().contains("it is imported as it was at entry"), "{}", second.said());
    in_cloud(&second.client, &id).await;
    let back = post(&second.client, &id, "resume").await["resume"].clone();
    assert_eq!((&back["source"], &back["workspace"]), (&json!("cloud"), &json!("restored")));
    second.end().await;
}

#[tokio::test]
async fn sessions_of_one_agent_are_imported_at_once_and_into_another_bucket() {
    let bucket = Bucket::new();
    let mut first = bucket.served().await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let id = session(&first.client).await;
        say(&first.client, &id, WRITE).await;
        post(&first.client, &id, "stop").await;
        sessions.push(id);
    }
    let second = bucket.served().await;
    let [one, two, three] = &sessions[..] else { panic!("there are three") };
    tokio::join!(
        import(&second.client, one),
        import(&second.client, two),
        import(&second.client, three),
    );
    let agents = second.client.get("/api/agents").await.ok();
    assert_eq!(agents["agents"].as_array().unwrap().len(), 1, "{agents}");
    second.end().await;

    // The first one gets another bucket, in which there is nothing.
    let other = Bucket::new();
    kill(first.pid());
    first.set("ASH_SNAPSHOT_URL", &other.url());
    first.restart();
    for id in &sessions {
        until("it is in the other bucket", async || listed(&first.client, id).await.is_some())
            .await;
        in_cloud(&first.client, id).await;
    }
    until("everything is", async || {
        first.client.get("/metrics").await.body.contains("ash_cloud_lag_snapshots 0")
    })
    .await;
    first.end().await;
}

#[tokio::test]
async fn one_session_that_cannot_be_copied_keeps_no_other_from_it() {
    let bucket = Bucket::new();
    let first = bucket.served().await;
    let bad = session(&first.client).await;
    say(&first.client, &bad, WRITE).await;
    in_cloud(&first.client, &bad).await;
    let place = bucket.0.path().join(format!("bucket/tenants/default/sessions/{bad}"));
    std::fs::rename(&place, place.with_extension("away")).unwrap();
    std::fs::write(&place, "in the way").unwrap();
    say(&first.client, &bad, "/bash printf two > b.txt").await;
    until("it is said why", async || {
        let shown = look(&first.client, &bad).await;
        shown["cloudError"]["message"].is_string() && shown["cloudSeq"] != shown["snapshot"]["seq"]
    })
    .await;
    let good = session(&first.client).await;
    say(&first.client, &good, WRITE).await;
    in_cloud(&first.client, &good).await;
    assert_eq!(look(&first.client, &good).await["cloudError"], Value::Null);
    std::fs::remove_file(&place).unwrap();
    std::fs::rename(place.with_extension("away"), &place).unwrap();
    in_cloud(&first.client, &bad).await;
    until("nothing is wrong with it", async || {
        look(&first.client, &bad).await["cloudError"].is_null()
    })
    .await;
    first.end().await;
}
