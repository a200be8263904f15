//! Files that are gone, and snapshots that are damaged: what comes back instead, and that nobody pretends.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::cloud::until;
use super::served::session;
use super::spawned::Spawned;
use crate::world::bridge_program;

const WRITE: &str = "My name is Ada.\n/tool write_file {\"path\": \"a.txt\", \"content\": \"one\"}";

/// Something that is in a pack of its own.
const MORE: &str = "/bash head -c 300000 /dev/urandom > noise; printf two > b.txt";

/// A server with a bucket, and where that is.
async fn with_bucket() -> (Spawned, tempfile::TempDir) {
    let bucket = tempfile::tempdir().unwrap();
    let url = format!("file://{}/bucket", bucket.path().display());
    let settings = [("ASH_SNAPSHOT_URL", url.as_str()), ("ASH_CLOUD_WAIT_MS", "20000")];
    (Spawned::with(&settings).await, bucket)
}

async fn say(client: &Client, session: &str, prompt: &str) -> String {
    let frames = client.say(session, prompt).await.all().await;
    assert_eq!(frames.last().unwrap().event, "done", "{frames:#?}");
    frames.iter().map(|frame| frame.raw.as_str()).collect()
}

async fn look(client: &Client, session: &str) -> Value {
    client.get(&format!("/api/sessions/{session}")).await.ok()["session"].clone()
}

/// How many captures came to an end.
async fn captures(client: &Client) -> u64 {
    let metrics = client.get("/metrics").await.body;
    let counted = metrics.lines().filter(|line| line.starts_with("ash_persist_total{"));
    counted.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Stops a session whose last turn is captured, and waits until what its sandbox left is captured as well.
pub(super) async fn stop(client: &Client, session: &str) -> Value {
    until("the last turn is captured", async || {
        let now = look(client, session).await;
        now["snapshot"]["turn"] == now["turns"]
    })
    .await;
    let before = captures(client).await;
    client.post(&format!("/api/sessions/{session}/stop"), &json!({})).await.ok();
    until("the rest is captured", async || captures(client).await > before).await;
    look(client, session).await
}

async fn resume(client: &Client, session: &str, how: &Value) -> Answer {
    client.post(&format!("/api/sessions/{session}/resume"), how).await
}

async fn places(client: &Client, session: &str) -> Vec<Value> {
    let listed = client.get(&format!("/api/sessions/{session}/snapshots")).await.ok();
    listed["snapshots"].as_array().unwrap().iter().map(|it| it["location"].clone()).collect()
}

async fn losses(client: &Client, session: &str) -> usize {
    let path = format!("/api/sessions/{session}/events?type=context_lost");
    client.get(&path).await.ok()["events"].as_array().unwrap().len()
}

async fn read(client: &Client, session: &str, file: &str) -> Answer {
    client.get(&format!("/api/sessions/{session}/files/{file}")).await
}

pub(super) fn packs(repository: &Path) -> BTreeSet<PathBuf> {
    let shards = fs::read_dir(repository.join("packs")).into_iter().flatten();
    let packs = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    packs.map(|pack| pack.unwrap().path()).collect()
}

/// What is called so is done to a pack.
type Damage = (&'static str, fn(&Path));

/// What is done to packs.
const DAMAGES: [Damage; 3] = [
    ("removed", |pack| fs::remove_file(pack).unwrap()),
    ("torn", |pack| {
        let mut bytes = fs::read(pack).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 16].fill(0x5a);
        fs::remove_file(pack).unwrap();
        fs::write(pack, bytes).unwrap();
    }),
    ("cut", |pack| {
        let bytes = fs::read(pack).unwrap();
        fs::remove_file(pack).unwrap();
        fs::write(pack, &bytes[..bytes.len() / 2]).unwrap();
    }),
];

fn lose_files(spawned: &Spawned, session: &str) {
    fs::remove_dir_all(spawned.dir.path().join("data/sandboxes").join(session)).unwrap();
}

#[tokio::test]
async fn what_is_damaged_here_is_mended_from_the_cloud() {
    let (mut spawned, _bucket) = with_bucket().await;
    for (damage, make) in DAMAGES {
        let id = session(&spawned.client).await;
        say(&spawned.client, &id, WRITE).await;
        say(&spawned.client, &id, MORE).await;
        let stopped = stop(&spawned.client, &id).await;
        assert_eq!(stopped["cloudSeq"], stopped["snapshot"]["seq"], "{damage}");
        let local = spawned.dir.path().join("data/snapshots/default");
        // Also a server that has not read anything of it yet.
        for life in 0..2 {
            packs(&local).iter().for_each(|pack| make(pack));
            lose_files(&spawned, &id);
            if life == 1 {
                spawned.kill_and_restart();
            }
            let back = resume(&spawned.client, &id, &json!({ "requireState": true })).await;
            let back = back.ok()["resume"].clone();
            assert_eq!(
                (&back["workspace"], &back["source"], &back["conversation"]["native"]),
                (&json!("restored"), &json!("cloud"), &json!("intact")),
                "{damage}: {back}"
            );
            assert_eq!(back["snapshotId"], stopped["snapshot"]["id"], "{damage}: {back}");
            assert_eq!(read(&spawned.client, &id, "b.txt").await.body, "two");
            stop(&spawned.client, &id).await;
        }
        spawned.client.delete(&format!("/api/sessions/{id}")).await.ok();
    }
    spawned.end().await;
}

#[tokio::test]
async fn where_the_last_snapshot_is_lost_an_earlier_one_comes_back_and_that_is_told() {
    let spawned = Spawned::start().await;
    let client = &spawned.client;
    let local = spawned.dir.path().join("data/snapshots/default");
    let id = session(client).await;
    say(client, &id, WRITE).await;
    let first = stop(client, &id).await["snapshot"].clone();
    let before = packs(&local);
    resume(client, &id, &json!({})).await.ok();
    say(client, &id, MORE).await;
    stop(client, &id).await;
    packs(&local).difference(&before).for_each(|pack| fs::remove_file(pack).unwrap());
    lose_files(&spawned, &id);
    let back = resume(client, &id, &json!({ "requireState": true })).await.ok()["resume"].clone();
    assert_eq!((&back["workspace"], &back["source"]), (&json!("restored"), &json!("local")));
    assert_eq!((&back["snapshotId"], &back["outdated"]), (&first["id"], &json!(true)), "{back}");
    assert_eq!((&back["snapshotSeq"], &back["files"]), (&first["seq"], &json!(2)), "{back}");
    let known = json!({ "native": "rebuilt", "turns": 2, "turnsInLog": 2 });
    assert_eq!(back["conversation"], known, "{back}");
    assert_eq!(losses(client, &id).await, 1);
    assert_eq!(read(client, &id, "a.txt").await.body, "one");
    assert_eq!(read(client, &id, "b.txt").await.status, 404);
    let nowhere = json!({ "local": false, "cloud": false });
    assert!(places(client, &id).await.contains(&nowhere), "{:?}", places(client, &id).await);
    // The agent knows both: what was said, and that its files are not what it left.
    say(client, &id, "Who am I?\n/recall").await;
    let system = spawned.model.requests().pop().unwrap().body["system"].to_string();
    assert!(system.contains("an earlier state of them"), "{system}");
    // From now on that is what there is.
    let stopped = stop(client, &id).await;
    lose_files(&spawned, &id);
    let back = resume(client, &id, &json!({})).await.ok()["resume"].clone();
    assert_eq!((&back["workspace"], &back["outdated"]), (&json!("restored"), &Value::Null));
    assert_eq!(back["snapshotId"], stopped["snapshot"]["id"], "{back}");
    spawned.end().await;
}

#[tokio::test]
async fn as_much_as_can_be_read_is_better_than_nothing() {
    let spawned = Spawned::start().await;
    let client = &spawned.client;
    let local = spawned.dir.path().join("data/snapshots/default");
    let id = session(client).await;
    say(client, &id, MORE).await;
    let only = stop(client, &id).await["snapshot"].clone();
    // Others of before it have no files at all.
    for record in fs::read_dir(local.join("snapshots")).unwrap().map(|it| it.unwrap().path()) {
        if !record.ends_with(only["id"].as_str().unwrap()) {
            fs::remove_file(record).unwrap();
        }
    }
    // What is random is stored as it is: the middle of the largest pack is of that file.
    let largest = packs(&local).into_iter().max_by_key(|pack| fs::metadata(pack).unwrap().len());
    DAMAGES[1].1(&largest.unwrap());
    lose_files(&spawned, &id);
    let back = resume(client, &id, &json!({ "requireState": true })).await.ok()["resume"].clone();
    assert_eq!((&back["workspace"], &back["leftOut"]), (&json!("restored"), &json!(1)), "{back}");
    assert_eq!(back["snapshotId"], only["id"], "{back}");
    assert_eq!(losses(client, &id).await, 1);
    assert_eq!(read(client, &id, "b.txt").await.body, "two");
    assert_eq!(read(client, &id, "noise").await.status, 404);
    spawned.end().await;
}

#[tokio::test]
async fn what_is_in_the_cloud_alone_and_damaged_there_is_not_made_anew_unless_somebody_wants_it() {
    let (mut spawned, bucket) = with_bucket().await;
    let id = session(&spawned.client).await;
    say(&spawned.client, &id, WRITE).await;
    let stopped = stop(&spawned.client, &id).await;
    assert_eq!(stopped["cloudSeq"], stopped["snapshot"]["seq"]);
    kill_and_lose(&mut spawned, &id);
    for pack in packs(&bucket.path().join("bucket/tenants/default/repository")) {
        DAMAGES[2].1(&pack);
    }
    // As often as it is asked for.
    for how in [json!({}), json!({}), json!({ "requireState": true }), json!({})] {
        let refused = resume(&spawned.client, &id, &how).await;
        assert_eq!(refused.refused(409), "snapshot_damaged");
        assert_eq!(look(&spawned.client, &id).await["status"], "stopped");
    }
    let both = json!({ "requireState": true, "allowFresh": true });
    let refused = resume(&spawned.client, &id, &both).await;
    assert_eq!(refused.refused(400), "invalid_request");
    let back = resume(&spawned.client, &id, &json!({ "allowFresh": true })).await.ok();
    assert_eq!(back["resume"]["workspace"], "fresh", "{back}");
    assert_eq!(back["resume"]["conversation"]["native"], "rebuilt", "{back}");
    assert_eq!(losses(&spawned.client, &id).await, 1);
    // The agent is told what became of its files, though it remembers.
    say(&spawned.client, &id, "Who am I?\n/recall").await;
    let system = spawned.model.requests().pop().unwrap().body["system"].to_string();
    assert!(system.contains("a fresh copy of what the session began with"), "{system}");
    spawned.end().await;
}

#[tokio::test]
async fn an_imported_session_whose_files_cannot_be_read_waits_until_they_can_be() {
    let (mut spawned, bucket) = with_bucket().await;
    let id = session(&spawned.client).await;
    say(&spawned.client, &id, WRITE).await;
    let stopped = stop(&spawned.client, &id).await;
    super::cloud::in_cloud(&spawned.client, &id).await;
    spawned.kill_and_restart_without("data");
    super::cloud::import(&spawned.client, &id).await;
    let there = packs(&bucket.path().join("bucket/tenants/default/repository"));
    let whole: Vec<(PathBuf, Vec<u8>)> =
        there.into_iter().map(|pack| (pack.clone(), fs::read(&pack).unwrap())).collect();
    whole.iter().for_each(|(pack, _)| DAMAGES[2].1(pack));
    spawned.kill_and_restart();
    for _ in 0..3 {
        let refused = resume(&spawned.client, &id, &json!({})).await;
        assert_eq!(refused.refused(409), "snapshot_damaged");
        assert_eq!(look(&spawned.client, &id).await["status"], "paused");
    }
    for (pack, bytes) in whole {
        fs::remove_file(&pack).unwrap();
        fs::write(&pack, bytes).unwrap();
    }
    spawned.kill_and_restart();
    let back = resume(&spawned.client, &id, &json!({})).await.ok()["resume"].clone();
    assert_eq!((&back["workspace"], &back["source"]), (&json!("restored"), &json!("cloud")));
    assert_eq!(back["snapshotId"], stopped["snapshot"]["id"], "{back}");
    assert_eq!(read(&spawned.client, &id, "a.txt").await.body, "one");
    assert_eq!(losses(&spawned.client, &id).await, 0);
    spawned.end().await;
}

/// Kills the server, and everything of a session but what is in the bucket and in the database is gone.
fn kill_and_lose(spawned: &mut Spawned, session: &str) {
    lose_files(spawned, session);
    spawned.kill_and_restart_without("data/snapshots");
}

#[tokio::test]
async fn without_the_cloud_that_has_its_files_a_session_stays_where_it_is() {
    let (mut spawned, _bucket) = with_bucket().await;
    let id = session(&spawned.client).await;
    say(&spawned.client, &id, WRITE).await;
    let stopped = stop(&spawned.client, &id).await;
    assert_eq!(stopped["cloudSeq"], stopped["snapshot"]["seq"]);
    let url = spawned.forget("ASH_SNAPSHOT_URL");
    kill_and_lose(&mut spawned, &id);
    let refused = resume(&spawned.client, &id, &json!({})).await;
    assert_eq!(refused.refused(503), "cloud_unavailable");
    // A message takes the same road.
    let path = format!("/api/sessions/{id}/messages");
    let message = json!({ "content": "Who am I?", "wake": true });
    let refused = spawned.client.post(&path, &message).await;
    assert_eq!(refused.refused(503), "cloud_unavailable");
    let after = look(&spawned.client, &id).await;
    assert_eq!((&after["status"], &after["turns"]), (&json!("stopped"), &json!(1)), "{after}");
    spawned.remember("ASH_SNAPSHOT_URL", url);
    spawned.kill_and_restart();
    let frames = spawned.client.post(&path, &message).await;
    assert_eq!(frames.status, 200, "{frames:?}");
    let path = format!("/api/sessions/{id}/events?type=lifecycle");
    let logged = spawned.client.get(&path).await.ok();
    let mut events = logged["events"].as_array().unwrap().iter();
    let is_from_cloud = |event: &Value| event["data"].to_string().contains("cloud");
    assert!(events.any(is_from_cloud), "{logged}");
    assert_eq!(read(&spawned.client, &id, "a.txt").await.body, "one");
    spawned.end().await;
}

#[tokio::test]
async fn what_was_made_anew_by_a_start_that_failed_is_told_by_the_next_one() {
    let spawned = Spawned::of_copies().await;
    let client = &spawned.client;
    let bridge = spawned.dir.path().join("bin/ash-bridge");
    let data = spawned.dir.path().join("data");
    let id = session(client).await;
    for is_lost in [false, true] {
        say(client, &id, WRITE).await;
        let stopped = stop(client, &id).await;
        fs::remove_file(&bridge).unwrap();
        fs::remove_dir_all(data.join("sandboxes").join(&id).join("workspace")).unwrap();
        if is_lost {
            fs::remove_dir_all(data.join("snapshots")).unwrap();
        }
        for _ in 0..2 {
            let failed = resume(client, &id, &json!({})).await;
            assert_eq!(failed.refused(500), "sandbox_start_failed");
        }
        fs::copy(bridge_program(), &bridge).unwrap();
        let back = resume(client, &id, &json!({})).await.ok()["resume"].clone();
        let wanted = if is_lost { "fresh" } else { "restored" };
        assert_eq!(back["workspace"], wanted, "{back}");
        if !is_lost {
            assert_eq!(back["snapshotId"], stopped["snapshot"]["id"], "{back}");
        }
        assert_eq!(losses(client, &id).await, usize::from(is_lost));
        stop(client, &id).await;
        let back = resume(client, &id, &json!({})).await.ok()["resume"].clone();
        assert_eq!(back["workspace"], "kept", "once is enough: {back}");
    }
    spawned.end().await;
}

#[tokio::test]
async fn files_that_are_in_the_cloud_alone_can_be_read() {
    let (mut spawned, _bucket) = with_bucket().await;
    let id = session(&spawned.client).await;
    say(&spawned.client, &id, WRITE).await;
    stop(&spawned.client, &id).await;
    kill_and_lose(&mut spawned, &id);
    let listed = spawned.client.get(&format!("/api/sessions/{id}/files")).await.ok();
    assert_eq!(listed["source"], "snapshot", "{listed}");
    let mut files = listed["files"].as_array().unwrap().iter();
    assert!(files.any(|file| file["path"] == "a.txt"), "{listed}");
    assert_eq!(read(&spawned.client, &id, "a.txt").await.body, "one");
    spawned.end().await;
}
