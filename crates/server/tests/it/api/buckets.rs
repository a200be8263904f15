//! A bucket that is away, another one, or damaged: nothing is lost for it, nothing is made in its place, and it is said.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::client::Client;
use super::cloud::{WRITE, import, in_cloud, look, post, remembers, say, until};
use super::gate::Gate;
use super::served::session;
use super::spawned::Spawned;
use crate::moto::{BUCKET, Keys, Moto};
use crate::processes::kill;

/// Less than the requests take that are made to a bucket which hangs.
const PATIENCE: Duration = Duration::from_secs(35);

/// A directory that is a bucket, and can be taken away.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn bucket(&self) -> PathBuf {
        self.0.path().join("bucket")
    }

    fn repository(&self) -> PathBuf {
        self.bucket().join("tenants/default/repository")
    }

    async fn served(&self) -> Spawned {
        let url = format!("file://{}", self.bucket().display());
        let settings = [("ASH_SNAPSHOT_URL", url.as_str()), ("ASH_CLOUD_WAIT_MS", "20000")];
        Spawned::with(&settings).await
    }

    /// Takes it away, and leaves an empty directory, as one that is not mounted is.
    fn unmount(&self) {
        fs::rename(self.bucket(), self.0.path().join("away")).unwrap();
        fs::create_dir(self.bucket()).unwrap();
    }

    fn mount(&self) {
        assert_eq!(fs::read_dir(self.bucket()).unwrap().count(), 0, "something was put meanwhile");
        fs::remove_dir(self.bucket()).unwrap();
        fs::rename(self.0.path().join("away"), self.bucket()).unwrap();
    }
}

fn cut(object: &Path) {
    let whole = fs::read(object).unwrap();
    fs::remove_file(object).unwrap();
    fs::write(object, &whole[..whole.len() / 2]).unwrap();
}

/// Loses what a server has of a session but for what is in its database. It may run.
fn lose(spawned: &Spawned, session: &str) {
    for lost in ["snapshots".to_owned(), format!("sandboxes/{session}")] {
        fs::remove_dir_all(spawned.dir.path().join("data").join(lost)).unwrap();
    }
}

async fn resume(client: &Client, session: &str) -> super::client::Answer {
    client.post(&format!("/api/sessions/{session}/resume"), &json!({})).await
}

async fn stopped(spawned: &Spawned) -> String {
    let id = session(&spawned.client).await;
    say(&spawned.client, &id, WRITE).await;
    post(&spawned.client, &id, "stop").await;
    in_cloud(&spawned.client, &id).await;
    id
}

async fn comes_back(spawned: &Spawned, session: &str) {
    let back = post(&spawned.client, session, "resume").await["resume"].clone();
    assert_eq!((&back["source"], &back["workspace"]), (&json!("cloud"), &json!("restored")));
    remembers(&spawned.client, session).await;
}

#[tokio::test]
async fn a_bucket_that_goes_away_under_a_server_is_out_of_reach_and_not_damaged() {
    for leaves_nothing in [false, true] {
        let disk = Disk::new();
        let spawned = disk.served().await;
        let id = stopped(&spawned).await;
        lose(&spawned, &id);
        disk.unmount();
        if leaves_nothing {
            fs::remove_dir(disk.bucket()).unwrap();
        }
        assert_eq!(resume(&spawned.client, &id).await.refused(503), "cloud_unavailable");
        let list = spawned.client.get("/api/cloud/sessions").await;
        assert_eq!(list.refused(503), "cloud_unavailable");
        let path = format!("/api/cloud/sessions/{id}/import");
        let imported = spawned.client.post(&path, &json!({})).await;
        assert_eq!(imported.refused(503), "cloud_unavailable");
        // What is new waits for it, and nothing is put in its place.
        let other = session(&spawned.client).await;
        say(&spawned.client, &other, WRITE).await;
        until("it is said why", async || {
            let told = look(&spawned.client, &other).await["cloudError"]["message"].clone();
            told.as_str().is_some_and(|told| told.contains("is it mounted?"))
        })
        .await;
        if leaves_nothing {
            assert!(!disk.bucket().exists());
            fs::create_dir(disk.bucket()).unwrap();
        }
        disk.mount();
        in_cloud(&spawned.client, &other).await;
        until("nothing is wrong with it", async || {
            look(&spawned.client, &other).await["cloudError"].is_null()
        })
        .await;
        comes_back(&spawned, &id).await;
        spawned.end().await;
    }
}

#[tokio::test]
async fn where_a_bucket_is_not_mounted_a_server_makes_no_other_and_serves() {
    for leaves_nothing in [false, true] {
        let disk = Disk::new();
        let mut spawned = disk.served().await;
        let id = stopped(&spawned).await;
        kill(spawned.pid());
        lose(&spawned, &id);
        disk.unmount();
        if leaves_nothing {
            fs::remove_dir(disk.bucket()).unwrap();
        }
        spawned.restart();
        let other = session(&spawned.client).await;
        say(&spawned.client, &other, WRITE).await;
        assert_eq!(resume(&spawned.client, &id).await.refused(503), "cloud_unavailable");
        let paused = post(&spawned.client, &other, "pause").await["session"].clone();
        let told = paused["cloudError"]["message"].as_str().unwrap_or_default();
        assert!(told.contains("is it mounted?"), "{paused}");
        assert!(spawned.said().contains("is it mounted?"), "{}", spawned.said());
        if leaves_nothing {
            assert!(!disk.bucket().exists());
            fs::create_dir(disk.bucket()).unwrap();
        }
        disk.mount();
        in_cloud(&spawned.client, &other).await;
        comes_back(&spawned, &id).await;
        spawned.end().await;
    }
}

#[tokio::test]
async fn another_bucket_in_its_place_is_not_used_before_the_server_starts_again() {
    let (disk, other) = (Disk::new(), Disk::new());
    let mut spawned = disk.served().await;
    let id = stopped(&spawned).await;
    let stranger = other.served().await;
    stopped(&stranger).await;
    stranger.end().await;
    disk.unmount();
    fs::remove_dir(disk.bucket()).unwrap();
    fs::rename(other.bucket(), disk.bucket()).unwrap();
    post(&spawned.client, &id, "resume").await;
    say(&spawned.client, &id, "/bash printf two > b.txt").await;
    until("it is said why", async || {
        let told = look(&spawned.client, &id).await["cloudError"]["message"].clone();
        told.as_str().is_some_and(|told| told.contains("another bucket is at"))
    })
    .await;
    let place = disk.bucket().join(format!("tenants/default/sessions/{id}"));
    assert!(!place.exists(), "nothing is put there");
    spawned.kill_and_restart();
    until("everything is copied to it", async || place.exists()).await;
    in_cloud(&spawned.client, &id).await;
    spawned.end().await;
}

#[tokio::test]
async fn a_bucket_that_is_down_from_the_start_is_told_and_not_waited_for() {
    let moto = Moto::start(Keys::AllGood);
    let gate = Gate::before(&moto.endpoint);
    gate.shut();
    let url = format!("s3://{BUCKET}/fleet");
    // Nobody has the patience that a pause would have.
    let settings = [
        ("ASH_SNAPSHOT_URL", url.as_str()),
        ("ASH_S3_ENDPOINT", gate.endpoint.as_str()),
        ("ASH_CLOUD_WAIT_MS", "3600000"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ];
    let spawned = Spawned::with(&settings).await;
    let id = session(&spawned.client).await;
    assert_eq!(look(&spawned.client, &id).await["cloudError"], Value::Null, "nothing is owed");
    say(&spawned.client, &id, WRITE).await;
    for rest in ["pause", "resume", "stop"] {
        let rests = post(&spawned.client, &id, rest).await["session"].clone();
        assert_eq!(rests["cloudSeq"], Value::Null);
        let told = rests["cloudError"]["message"].as_str().unwrap_or_default();
        assert!(told.contains("cannot be reached"), "{rests}");
    }
    gate.open();
    in_cloud(&spawned.client, &id).await;
    until("nothing is wrong with it", async || {
        look(&spawned.client, &id).await["cloudError"].is_null()
    })
    .await;
    spawned.end().await;
}

#[tokio::test]
async fn nobody_waits_long_for_a_bucket_that_hangs_and_the_session_stays_what_it_is() {
    let moto = Moto::start(Keys::AllGood);
    let gate = Gate::before(&moto.endpoint);
    let url = format!("s3://{BUCKET}/fleet");
    let settings = [
        ("ASH_SNAPSHOT_URL", url.as_str()),
        ("ASH_S3_ENDPOINT", gate.endpoint.as_str()),
        ("ASH_CLOUD_WAIT_MS", "20000"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ];
    let spawned = Spawned::with(&settings).await;
    let id = stopped(&spawned).await;
    lose(&spawned, &id);
    let before = look(&spawned.client, &id).await;
    gate.hold_reads();
    // One request to it may take 45 seconds: the second is made while the first is still on its way.
    for _ in 0..2 {
        let refused = timeout(PATIENCE, resume(&spawned.client, &id)).await;
        let refused = refused.expect("it is waited for no longer than it says something");
        assert_eq!(refused.refused(503), "cloud_unavailable");
        assert_eq!(look(&spawned.client, &id).await["status"], before["status"]);
    }
    // Whoever can do without it need not wait for it.
    let path = format!("/api/sessions/{id}/resume");
    let anew = json!({ "allowFresh": true });
    let fresh = timeout(PATIENCE, spawned.client.post(&path, &anew)).await.unwrap().ok();
    assert_eq!(fresh["resume"]["workspace"], "fresh");
    gate.open();
    spawned.end().await;
}

#[tokio::test]
async fn a_server_starts_over_a_repository_that_is_none_of_ours_and_leaves_it_as_it_is() {
    let disk = Disk::new();
    let mut spawned = disk.served().await;
    let id = stopped(&spawned).await;
    let format = disk.repository().join("format");
    let whole = fs::read(&format).unwrap();
    for wrong in [&whole[..4], b"", b"somebody-else 7\n"] {
        fs::remove_file(&format).unwrap();
        fs::write(&format, wrong).unwrap();
        kill(spawned.pid());
        spawned.restart();
        assert!(spawned.said().contains("until what is there is mended"), "{}", spawned.said());
        post(&spawned.client, &id, "resume").await;
        say(&spawned.client, &id, "/bash date >> dates").await;
        let rests = post(&spawned.client, &id, "stop").await["session"].clone();
        let told = rests["cloudError"]["message"].as_str().unwrap_or_default();
        assert!(told.contains("repository/format"), "{rests}");
        assert_eq!(fs::read(&format).unwrap(), wrong, "it is left as it is");
    }
    // Whoever knows that it is theirs removes what is damaged.
    fs::remove_file(&format).unwrap();
    in_cloud(&spawned.client, &id).await;
    assert_eq!(fs::read(&format).unwrap(), whole);
    // Whose bucket it is cannot be told either, if that is torn: it is no other one.
    let name = disk.bucket().join("bucket-id");
    let bucket = fs::read(&name).unwrap();
    fs::write(&name, &bucket[..7]).unwrap();
    kill(spawned.pid());
    spawned.restart();
    post(&spawned.client, &id, "resume").await;
    say(&spawned.client, &id, "/bash date >> dates").await;
    let rests = post(&spawned.client, &id, "stop").await["session"].clone();
    let told = rests["cloudError"]["message"].as_str().unwrap_or_default();
    let was = String::from_utf8(bucket.clone()).unwrap();
    assert!(told.contains(&format!("bucket-id is damaged: it was {was}")), "{rests}");
    fs::write(&name, &bucket).unwrap();
    in_cloud(&spawned.client, &id).await;
    spawned.end().await;
}

#[tokio::test]
async fn records_of_snapshots_that_are_torn_in_the_bucket_are_put_again() {
    let disk = Disk::new();
    let first = disk.served().await;
    let id = stopped(&first).await;
    // Of its files, and of the directory of its agent.
    let records = disk.repository().join("snapshots");
    let mut torn = Vec::new();
    for record in fs::read_dir(&records).unwrap().map(|it| it.unwrap().path()) {
        cut(&record);
        torn.push(record);
    }
    assert!(torn.len() >= 2, "{torn:?}");
    post(&first.client, &id, "resume").await;
    let title = json!({ "title": "Ada's" });
    first.client.ask("PATCH", &format!("/api/sessions/{id}/config"), &[], Some(&title)).await.ok();
    say(&first.client, &id, "/bash printf two > b.txt").await;
    post(&first.client, &id, "stop").await;
    in_cloud(&first.client, &id).await;
    assert_eq!(look(&first.client, &id).await["cloudError"], Value::Null);
    first.end().await;
    let second = disk.served().await;
    import(&second.client, &id).await;
    comes_back(&second, &id).await;
    second.end().await;
}

#[tokio::test]
async fn after_a_rewind_the_bucket_says_where_the_session_stands() {
    let disk = Disk::new();
    let spawned = disk.served().await;
    let id = session(&spawned.client).await;
    say(&spawned.client, &id, WRITE).await;
    say(&spawned.client, &id, "/bash printf two > b.txt").await;
    in_cloud(&spawned.client, &id).await;
    let to = json!({ "turn": 1 });
    spawned.client.post(&format!("/api/sessions/{id}/rewind"), &to).await.ok();
    until("it is active there, with one turn", async || {
        let there = spawned.client.get("/api/cloud/sessions").await.ok();
        let listed = &there["sessions"][0];
        listed["turns"] == 1 && listed["status"] == "active"
    })
    .await;
    spawned.end().await;
}

#[tokio::test]
async fn an_import_that_fails_is_in_the_log() {
    let disk = Disk::new();
    let first = disk.served().await;
    let id = stopped(&first).await;
    let path = format!("/api/sessions/{id}/export");
    let bundle = first.client.download(&path).await;
    first.end().await;
    let heads = disk.bucket().join(format!("tenants/default/sessions/{id}/heads"));
    fs::read_dir(heads).unwrap().for_each(|head| cut(&head.unwrap().path()));
    let second = disk.served().await;
    let path = format!("/api/cloud/sessions/{id}/import");
    let refused = second.client.post(&path, &json!({})).await;
    assert_eq!(refused.refused(422), "import_damaged");
    let warned =
        |what: &str| second.said().lines().any(|line| line.contains("WARN") && line.contains(what));
    let told = format!("session {id} of the cloud was not imported");
    until(&told, async || warned(&told)).await;
    let tar = ["content-type: application/x-tar"];
    let half = &bundle[..bundle.len() / 2];
    let refused = second.client.ask_bytes("POST", "/api/sessions/import", &tar, Some(half)).await;
    assert_eq!(refused.refused(422), "import_damaged");
    let told = "a bundle was not imported: The bundle is damaged";
    until(told, async || warned(told)).await;
    second.end().await;
}

#[tokio::test]
async fn who_takes_the_place_of_a_sandbox_waits_until_the_cloud_has_what_it_left() {
    let moto = Moto::start(Keys::AllGood);
    let gate = Gate::before(&moto.endpoint);
    let url = format!("s3://{BUCKET}/fleet");
    let settings = [
        ("ASH_SNAPSHOT_URL", url.as_str()),
        ("ASH_S3_ENDPOINT", gate.endpoint.as_str()),
        ("ASH_CLOUD_WAIT_MS", "60000"),
        ("ASH_MAX_SANDBOXES", "1"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
    ];
    let spawned = Spawned::with(&settings).await;
    let first = session(&spawned.client).await;
    say(&spawned.client, &first, WRITE).await;
    in_cloud(&spawned.client, &first).await;
    gate.hold_after(0);
    let client = spawned.client.clone();
    let mut made = tokio::task::JoinSet::new();
    made.spawn(async move { session(&client).await });
    until("what it left is being copied", async || gate.is_held()).await;
    until("it is evicted", async || {
        look(&spawned.client, &first).await["pauseReason"] == "evicted"
    })
    .await;
    for _ in 0..20 {
        look(&spawned.client, &first).await;
    }
    assert!(made.try_join_next().is_none(), "nobody waits for what the sandbox left");
    gate.open();
    let second = made.join_next().await.unwrap().unwrap();
    let there = spawned.client.get("/api/cloud/sessions").await.ok();
    let evicted = look(&spawned.client, &first).await;
    let listed = there["sessions"].as_array().unwrap();
    let listed = listed.iter().find(|it| it["sessionId"] == first).unwrap();
    assert_eq!((&listed["status"], &listed["seq"]), (&json!("paused"), &evicted["lastSeq"]));
    assert_eq!(look(&spawned.client, &second).await["status"], "active");
    spawned.end().await;
}
