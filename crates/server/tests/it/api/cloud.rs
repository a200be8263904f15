//! Sessions in a bucket: they get there, whoever dies when, and come back from there.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Client;
use super::gate::Gate;
use super::served::session;
use super::spawned::Spawned;
use crate::moto::{BUCKET, Keys, Moto};
use crate::processes::kill;
use crate::world::can_isolate;

pub(super) const WRITE: &str =
    "My name is Ada.\n/tool write_file {\"path\": \"a.txt\", \"content\": \"one\"}";

/// What opens the bucket. None of it may be seen by an agent.
const CREDENTIALS: [(&str, &str); 3] = [
    ("AWS_ACCESS_KEY_ID", "AKIDOFTHECLOUD"),
    ("AWS_SECRET_ACCESS_KEY", "hush-of-the-cloud-5d1c"),
    ("AWS_SESSION_TOKEN", "hush-of-the-token-0b7e"),
];

async fn served_by(endpoint: &str) -> Spawned {
    let url = format!("s3://{BUCKET}/fleet");
    let mut settings = vec![
        ("ASH_SNAPSHOT_URL", url.as_str()),
        ("ASH_S3_ENDPOINT", endpoint),
        ("ASH_CLOUD_WAIT_MS", "20000"),
    ];
    settings.extend(CREDENTIALS);
    Spawned::with(&settings).await
}

pub(super) async fn say(client: &Client, session: &str, prompt: &str) {
    let frames = client.say(session, prompt).await.all().await;
    assert_eq!(frames.last().unwrap().event, "done", "{frames:#?}");
}

pub(super) async fn look(client: &Client, session: &str) -> Value {
    client.get(&format!("/api/sessions/{session}")).await.ok()["session"].clone()
}

pub(super) async fn post(client: &Client, session: &str, what: &str) -> Value {
    client.post(&format!("/api/sessions/{session}/{what}"), &json!({})).await.ok()
}

pub(super) async fn remembers(client: &Client, session: &str) {
    let frames = client.say(session, "Who am I?\n/recall").await.all().await;
    assert!(frames.iter().any(|frame| frame.raw.contains("My name is Ada.")), "{frames:#?}");
}

/// Waits until something is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came about that {what}");
}

pub(super) async fn in_cloud(client: &Client, session: &str) {
    until("everything is in the cloud", async || {
        let session = look(client, session).await;
        let (last, turns) = (&session["snapshot"], session["turns"].as_u64());
        // The last turn is captured a moment after it is over; after a rewind its number is higher.
        !last.is_null() && last["turn"].as_u64() >= turns && session["cloudSeq"] == last["seq"]
    })
    .await;
}

fn lose(dir: &Path, session: &str) {
    for lost in ["snapshots".to_owned(), format!("sandboxes/{session}")] {
        std::fs::remove_dir_all(dir.join("data").join(lost)).unwrap();
    }
}

#[tokio::test]
async fn a_session_whose_disk_is_lost_comes_back_from_the_cloud() {
    let moto = Moto::start(Keys::AllGood);
    let mut spawned = served_by(&moto.endpoint).await;
    let id = session(&spawned.client).await;
    say(&spawned.client, &id, WRITE).await;
    let stopped = post(&spawned.client, &id, "stop").await["session"].clone();
    assert_eq!(stopped["cloudSeq"], stopped["snapshot"]["seq"], "a stop waits for it");
    let listed = spawned.client.get(&format!("/api/sessions/{id}/snapshots")).await.ok();
    assert_eq!(listed["snapshots"][0]["location"], json!({ "local": true, "cloud": true }));
    spawned.kill_and_restart();
    lose(spawned.dir.path(), &id);
    let back = post(&spawned.client, &id, "resume").await["resume"].clone();
    assert_eq!((&back["path"], &back["source"]), (&json!("cold"), &json!("cloud")), "{back}");
    assert_eq!(back["workspace"], "restored");
    assert_eq!(back["conversation"]["native"], "intact");
    let file = spawned.client.get(&format!("/api/sessions/{id}/files/a.txt")).await;
    assert_eq!(file.body, "one");
    remembers(&spawned.client, &id).await;
    in_cloud(&spawned.client, &id).await;
    let metrics = spawned.client.get("/metrics").await.body;
    assert!(metrics.contains("ash_cloud_lag_snapshots 0"), "{metrics}");
    spawned.end().await;
}

#[tokio::test]
async fn a_bucket_that_is_down_costs_no_turn_and_is_caught_up_with() {
    let moto = Moto::start(Keys::AllGood);
    let gate = Gate::before(&moto.endpoint);
    gate.shut();
    let url = format!("s3://{BUCKET}/fleet");
    let mut settings = vec![
        ("ASH_SNAPSHOT_URL", url.as_str()),
        ("ASH_S3_ENDPOINT", gate.endpoint.as_str()),
        ("ASH_CLOUD_WAIT_MS", "100"),
    ];
    settings.extend(CREDENTIALS);
    let mut spawned = Spawned::with(&settings).await;
    let id = session(&spawned.client).await;
    for turn in 0..3 {
        say(&spawned.client, &id, &format!("{WRITE}\n/bash echo {turn} > turn")).await;
    }
    let stopped = post(&spawned.client, &id, "stop").await["session"].clone();
    assert_eq!((&stopped["status"], &stopped["cloudSeq"]), (&json!("stopped"), &Value::Null));
    let metrics = spawned.client.get("/metrics").await.body;
    assert!(!metrics.contains("ash_cloud_lag_snapshots 0"), "{metrics}");
    assert!(spawned.said().contains("cannot be used"), "{}", spawned.said());
    spawned.kill_and_restart();
    gate.open();
    in_cloud(&spawned.client, &id).await;
    until("older ones are there too", async || {
        spawned.client.get("/metrics").await.body.contains("ash_cloud_lag_snapshots 0")
    })
    .await;

    // What is there alone cannot be had while it is shut, and nothing fresh is put in its place.
    spawned.kill_and_restart();
    lose(spawned.dir.path(), &id);
    gate.shut();
    let path = format!("/api/sessions/{id}/resume");
    let refused = spawned.client.post(&path, &json!({})).await;
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(refused.json()["code"], "cloud_unavailable");
    assert_eq!(refused.json()["retryable"], true);
    assert_eq!(look(&spawned.client, &id).await["status"], "stopped");
    gate.open();
    let back = post(&spawned.client, &id, "resume").await["resume"].clone();
    assert_eq!((&back["source"], &back["workspace"]), (&json!("cloud"), &json!("restored")));
    remembers(&spawned.client, &id).await;

    // What came late is named in the bucket, too.
    post(&spawned.client, &id, "stop").await;
    until("all of it is in the bucket", async || {
        let end = look(&spawned.client, &id).await["lastSeq"].clone();
        let there = spawned.client.get("/api/cloud/sessions").await.ok();
        there["sessions"].as_array().unwrap().iter().any(|it| it["seq"] == end)
    })
    .await;
    let second = served_by(&moto.endpoint).await;
    import(&second.client, &id).await;
    let snapshots = async |client: &Client| {
        let listed = client.get(&format!("/api/sessions/{id}/snapshots")).await.ok();
        listed["snapshots"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["id"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(snapshots(&second.client).await, snapshots(&spawned.client).await);
    second.end().await;
    spawned.end().await;
}

#[tokio::test]
async fn a_server_that_is_killed_at_any_put_leaves_nothing_half_and_the_next_one_finishes() {
    let moto = Moto::start(Keys::AllGood);
    let gate = Gate::before(&moto.endpoint);
    let mut spawned = served_by(&gate.endpoint).await;
    let id = session(&spawned.client).await;
    say(&spawned.client, &id, WRITE).await;
    in_cloud(&spawned.client, &id).await;
    // A pack, the snapshot, a part of the log, the record, the head.
    for puts in 0..5 {
        gate.hold_after(puts);
        let more = format!("Go on.\n/bash echo {puts} > more; head -c 100000 /dev/urandom > noise");
        say(&spawned.client, &id, &more).await;
        until("a put is held", async || gate.is_held()).await;
        let before = look(&spawned.client, &id).await;
        assert_ne!(before["cloudSeq"], before["snapshot"]["seq"], "no half set counts");
        kill(spawned.pid());
        gate.open();
        spawned.restart();
        in_cloud(&spawned.client, &id).await;
    }
    post(&spawned.client, &id, "stop").await;
    in_cloud(&spawned.client, &id).await;
    spawned.kill_and_restart();
    lose(spawned.dir.path(), &id);
    let back = post(&spawned.client, &id, "resume").await["resume"].clone();
    assert_eq!(back["source"], "cloud", "{back}");
    let file = spawned.client.get(&format!("/api/sessions/{id}/files/more")).await;
    assert_eq!(file.body, "4\n");
    remembers(&spawned.client, &id).await;
    spawned.end().await;
}

/// What the bucket has of a session.
async fn in_bucket(moto: &Moto, session: &str) -> String {
    let address = moto.endpoint.strip_prefix("http://").unwrap().parse().unwrap();
    let bucket = Client { address, key: "any".to_owned() };
    let below = format!("fleet/tenants/default/sessions/{session}/");
    let listed = bucket.get(&format!("/{BUCKET}?list-type=2&prefix={below}")).await;
    assert_eq!(listed.status, 200, "{}", listed.body);
    if listed.body.contains("<Contents>") { listed.body } else { String::new() }
}

#[tokio::test]
async fn a_session_that_is_over_goes_from_the_bucket_whoever_is_killed_and_whenever_it_is_down() {
    let moto = Moto::start(Keys::AllGood);
    let gate = Gate::before(&moto.endpoint);
    let url = format!("s3://{BUCKET}/fleet");
    let mut settings = vec![
        ("ASH_SNAPSHOT_URL", url.as_str()),
        ("ASH_S3_ENDPOINT", gate.endpoint.as_str()),
        ("ASH_CLOUD_WAIT_MS", "100"),
        ("ASH_RETENTION_MS", "1"),
    ];
    settings.extend(CREDENTIALS);
    let mut spawned = Spawned::with(&settings).await;
    let (id, kept) = (session(&spawned.client).await, session(&spawned.client).await);
    for session in [&id, &kept] {
        say(&spawned.client, session, WRITE).await;
        post(&spawned.client, session, "stop").await;
        in_cloud(&spawned.client, session).await;
    }
    gate.shut();
    spawned.client.delete(&format!("/api/sessions/{id}")).await.ok();
    // Each server looks at once for whose time is over.
    spawned.kill_and_restart();
    until("it is forgotten here", async || {
        spawned.client.get(&format!("/api/sessions/{id}")).await.status == 404
    })
    .await;
    assert!(in_bucket(&moto, &id).await.contains("heads/"), "the bucket is down");
    // Killed between any two removals.
    let mut kills = 0;
    kill(spawned.pid());
    while !in_bucket(&moto, &id).await.is_empty() {
        gate.open();
        gate.hold_after_deletes(1);
        spawned.restart();
        until("the next removal is held, or all is gone", async || {
            gate.is_held() || in_bucket(&moto, &id).await.is_empty()
        })
        .await;
        kill(spawned.pid());
        kills += 1;
        assert!(kills < 20, "{}", in_bucket(&moto, &id).await);
    }
    assert!(kills > 1, "it was killed in between");
    gate.open();
    spawned.restart();
    assert!(in_bucket(&moto, &kept).await.contains("heads/"), "the other one stays");
    spawned.kill_and_restart();
    lose(spawned.dir.path(), &kept);
    let back = post(&spawned.client, &kept, "resume").await["resume"].clone();
    assert_eq!((&back["source"], &back["workspace"]), (&json!("cloud"), &json!("restored")));
    spawned.end().await;
}

#[tokio::test]
async fn what_opens_the_bucket_is_nowhere_in_a_sandbox() {
    if !can_isolate() {
        return;
    }
    let moto = Moto::start(Keys::AllGood);
    let spawned = served_by(&moto.endpoint).await;
    let id = session(&spawned.client).await;
    let look = "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' ' '; \
                grep -rs -e hush-of-the -e AKIDOF /workspace /home /tmp /etc /run /var; echo looked";
    let frames =
        spawned.client.say(&id, &format!("Look.\n/bash {look}\n/results")).await.all().await;
    let results = frames.iter().filter(|frame| frame.event == "tool_result");
    let seen: String = results.map(|frame| frame.raw.as_str()).collect();
    assert!(seen.contains("looked"), "{frames:#?}");
    let said = spawned.said();
    for (name, secret) in CREDENTIALS {
        assert!(!seen.contains(secret) && !seen.contains(name), "{name} is seen: {seen}");
        assert!(!said.contains(secret), "{name} was printed");
    }
    spawned.end().await;
}

pub(super) async fn import(client: &Client, session: &str) -> Value {
    let path = format!("/api/cloud/sessions/{session}/import");
    let imported = client.post(&path, &json!({})).await;
    assert_eq!(imported.status, 201, "{}", imported.body);
    imported.json()["session"].clone()
}

pub(super) async fn conversation(client: &Client, session: &str) -> Vec<Value> {
    let messages = client.get(&format!("/api/sessions/{session}/messages")).await.ok();
    messages["messages"].as_array().unwrap().iter().map(|it| it["content"].clone()).collect()
}

#[tokio::test]
async fn a_session_goes_on_with_a_second_server_that_shares_only_the_bucket() {
    let moto = Moto::start(Keys::AllGood);
    let first = served_by(&moto.endpoint).await;
    let id = session(&first.client).await;
    say(&first.client, &id, WRITE).await;
    say(&first.client, &id, "/bash printf two > b.txt; mkdir d; ln -s ../a.txt d/link").await;
    let before = post(&first.client, &id, "stop").await["session"].clone();
    assert_eq!(before["cloudSeq"], before["snapshot"]["seq"]);

    let second = served_by(&moto.endpoint).await;
    let there = second.client.get("/api/cloud/sessions").await.ok();
    assert_eq!(there["url"], format!("s3://{BUCKET}/fleet"));
    let listed = &there["sessions"][0];
    assert_eq!((&listed["sessionId"], &listed["turns"]), (&json!(id), &json!(2)), "{there}");
    let imported = import(&second.client, &id).await;
    assert_eq!((&imported["id"], &imported["status"]), (&json!(id), &json!("paused")));
    assert_eq!((&imported["turns"], &imported["agentName"]), (&json!(2), &json!("coder")));
    assert!(imported["logEpoch"].as_u64() > before["logEpoch"].as_u64());
    assert_eq!(imported["snapshot"]["id"], before["snapshot"]["id"]);
    assert_eq!(conversation(&second.client, &id).await, conversation(&first.client, &id).await);
    let runs = second.client.get(&format!("/api/sessions/{id}/runs")).await.ok();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2);
    let back = post(&second.client, &id, "resume").await["resume"].clone();
    assert_eq!((&back["source"], &back["workspace"]), (&json!("cloud"), &json!("restored")));
    assert_eq!((&back["files"], &back["conversation"]["native"]), (&json!(4), &json!("intact")));
    let file = second.client.get(&format!("/api/sessions/{id}/files/b.txt")).await;
    assert_eq!(file.body, "two");
    remembers(&second.client, &id).await;
    in_cloud(&second.client, &id).await;

    // Who goes on all the same is told, and keeps what it has to itself.
    post(&first.client, &id, "resume").await;
    say(&first.client, &id, "/bash echo late > late").await;
    until("the first one says so", async || {
        first.said().contains("another server goes on with the session")
    })
    .await;
    let told = look(&first.client, &id).await["cloudError"]["message"].clone();
    assert_eq!(told, "another server goes on with the session");
    // A second time it gets an id of its own.
    let again = import(&second.client, &id).await;
    assert_ne!(again["id"], json!(id));
    assert_eq!(again["turns"], 3, "and it is the second one's");
    let nobody = "01890a5d-ac96-774b-bcce-b302099a8057";
    let path = format!("/api/cloud/sessions/{nobody}/import");
    assert_eq!(second.client.post(&path, &json!({})).await.status, 404);
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn a_session_comes_back_when_the_whole_data_directory_is_gone() {
    let bucket = tempfile::tempdir().unwrap();
    let url = format!("file://{}/bucket", bucket.path().display());
    let mut spawned = Spawned::with(&[("ASH_SNAPSHOT_URL", url.as_str())]).await;
    let id = session(&spawned.client).await;
    say(&spawned.client, &id, WRITE).await;
    post(&spawned.client, &id, "stop").await;
    in_cloud(&spawned.client, &id).await;
    spawned.kill_and_restart_without("data");
    assert_eq!(spawned.client.get("/api/sessions").await.ok()["sessions"], json!([]));
    let path = format!("/api/cloud/sessions/{id}/import");
    let again = async |key: &str| {
        let key = format!("idempotency-key: {key}");
        let made = spawned.client.ask("POST", &path, &[&key], None).await.ok();
        made["session"]["id"].clone()
    };
    assert_eq!(again("once").await, json!(id));
    assert_eq!(again("once").await, json!(id), "a request that is sent again happens once");
    assert_ne!(again("twice").await, json!(id));
    let back = post(&spawned.client, &id, "resume").await["resume"].clone();
    assert_eq!(back["source"], "cloud", "{back}");
    remembers(&spawned.client, &id).await;
    spawned.end().await;
}

#[tokio::test]
async fn what_is_damaged_or_from_the_future_is_not_imported_and_leaves_nothing() {
    let bucket = tempfile::tempdir().unwrap();
    let url = format!("file://{}/bucket", bucket.path().display());
    let first = Spawned::with(&[("ASH_SNAPSHOT_URL", url.as_str())]).await;
    let id = session(&first.client).await;
    say(&first.client, &id, WRITE).await;
    post(&first.client, &id, "stop").await;
    in_cloud(&first.client, &id).await;
    first.end().await;
    let second = Spawned::with(&[("ASH_SNAPSHOT_URL", url.as_str())]).await;
    let place = bucket.path().join(format!("bucket/tenants/default/sessions/{id}"));
    let all = |kind: &str| {
        let names = std::fs::read_dir(place.join(kind)).unwrap().map(|it| it.unwrap().path());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    let path = format!("/api/cloud/sessions/{id}/import");
    let refused = async |code: &str| {
        let refused = second.client.post(&path, &json!({})).await;
        assert_eq!((refused.status, refused.json()["code"].as_str()), (422, Some(code)));
        for list in ["sessions", "agents"] {
            let left = second.client.get(&format!("/api/{list}")).await.ok();
            assert_eq!(left[list], json!([]), "nothing is left");
        }
    };
    for kind in ["log", "records", "heads"] {
        // Each of them: one set is as good as another.
        let whole: Vec<_> =
            all(kind).into_iter().map(|it| (std::fs::read(&it).unwrap(), it)).collect();
        let put = |change: &dyn Fn(&[u8]) -> Vec<u8>| {
            whole.iter().for_each(|(bytes, object)| std::fs::write(object, change(bytes)).unwrap());
        };
        let flip = |bytes: &[u8]| {
            let mut damaged = bytes.to_vec();
            damaged[bytes.len() / 2] ^= 1;
            damaged
        };
        let cut = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
        let none = |_: &[u8]| Vec::new();
        for wrong in [&flip as &dyn Fn(&[u8]) -> Vec<u8>, &cut, &none] {
            put(wrong);
            refused("import_damaged").await;
        }
        put(&<[u8]>::to_vec);
    }
    let head = all("heads").pop().unwrap();
    let whole = std::fs::read_to_string(&head).unwrap();
    let newer = whole.lines().next().unwrap().replacen("\"version\":2", "\"version\":9", 1);
    let digest = blake3::hash(newer.as_bytes()).to_hex();
    std::fs::write(&head, format!("{newer}\n{digest}\n")).unwrap();
    refused("import_too_new").await;
    std::fs::write(&head, whole).unwrap();
    import(&second.client, &id).await;
    second.end().await;
}
