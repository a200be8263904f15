//! Sessions that are imported from a bucket in which something is damaged: what is whole comes, what does not is said, and
//! there is always a way on.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::client::Client;
use super::cloud::{WRITE, in_cloud, look, post, remembers, say, until};
use super::served::{agent, session};
use super::spawned::Spawned;

/// What is done to an object.
type Damage = fn(&Path);

const DAMAGES: [Damage; 2] = [|object| fs::remove_file(object).unwrap(), cut];

fn cut(object: &Path) {
    let whole = fs::read(object).unwrap();
    fs::remove_file(object).unwrap();
    fs::write(object, &whole[..whole.len() / 2]).unwrap();
}

struct Bucket(tempfile::TempDir);

impl Bucket {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    async fn served(&self) -> Spawned {
        let url = format!("file://{}/bucket", self.0.path().display());
        let settings = [("ASH_SNAPSHOT_URL", url.as_str()), ("ASH_CLOUD_WAIT_MS", "20000")];
        Spawned::with(&settings).await
    }

    fn object(&self, name: &str) -> PathBuf {
        self.0.path().join("bucket/tenants/default").join(name)
    }

    /// The objects below a name, in order.
    fn objects(&self, below: &str) -> Vec<PathBuf> {
        let found = fs::read_dir(self.object(below)).unwrap().map(|found| found.unwrap().path());
        let mut found: Vec<PathBuf> = found.collect();
        found.sort();
        found
    }

    /// The record of a snapshot.
    fn record(&self, snapshot: &Value) -> PathBuf {
        self.object(&format!("repository/snapshots/{}", snapshot.as_str().unwrap()))
    }

    /// What says what the one agent is.
    fn agent(&self) -> PathBuf {
        let [agent] = &self.objects("agents")[..] else { panic!("there is one agent") };
        agent.clone()
    }
}

/// What is at the beginning of a file.
fn read(object: &Path) -> Value {
    let text = fs::read_to_string(object).unwrap();
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

/// Waits until all of a session is in the bucket, as it stands.
async fn brought(client: &Client, session: &str) {
    in_cloud(client, session).await;
    until("the bucket has all of it", async || {
        let there = client.get("/api/cloud/sessions").await.ok();
        let turns = look(client, session).await["turns"].clone();
        let mut listed = there["sessions"].as_array().unwrap().iter();
        listed.any(|listed| listed["sessionId"] == session && listed["turns"] == turns)
    })
    .await;
}

/// What an import answers that is not refused.
async fn import(client: &Client, session: &str) -> Value {
    let path = format!("/api/cloud/sessions/{session}/import");
    let key = "idempotency-key: once";
    let imported = client.ask("POST", &path, &[key], None).await.ok();
    let again = client.ask("POST", &path, &[key], None).await.ok();
    assert_eq!(again["warnings"], imported["warnings"], "who asks again is told again");
    imported
}

async fn losses(client: &Client, session: &str) -> Vec<String> {
    let path = format!("/api/sessions/{session}/events?type=context_lost");
    let events = client.get(&path).await.ok()["events"].clone();
    events.as_array().unwrap().iter().map(|event| event["data"].to_string()).collect()
}

/// What the agent was told of itself by the last request to the model.
fn told(spawned: &Spawned) -> String {
    spawned.model.requests().pop().unwrap().body["system"].to_string()
}

#[tokio::test]
async fn a_session_comes_with_every_turn_if_the_record_of_its_latest_snapshot_is_damaged() {
    for damage in DAMAGES {
        let bucket = Bucket::new();
        let first = bucket.served().await;
        let id = session(&first.client).await;
        say(&first.client, &id, WRITE).await;
        in_cloud(&first.client, &id).await;
        for file in ["b", "c"] {
            say(&first.client, &id, &format!("/bash printf {file} > {file}.txt")).await;
            in_cloud(&first.client, &id).await;
        }
        post(&first.client, &id, "stop").await;
        brought(&first.client, &id).await;
        let last = look(&first.client, &id).await["snapshot"]["id"].clone();
        first.end().await;
        damage(&bucket.record(&last));

        let second = bucket.served().await;
        let imported = import(&second.client, &id).await;
        assert_eq!((&imported["session"]["turns"], &imported["warnings"]), (&json!(3), &json!([])));
        let back = post(&second.client, &id, "resume").await["resume"].clone();
        assert_eq!((&back["workspace"], &back["outdated"]), (&json!("restored"), &json!(true)));
        assert_ne!(back["snapshotId"], last, "{back}");
        let known = &back["conversation"];
        assert_eq!((&known["turns"], &known["turnsInLog"]), (&json!(3), &json!(3)), "{back}");
        assert_eq!(losses(&second.client, &id).await.len(), 1);
        remembers(&second.client, &id).await;
        assert!(told(&second).contains("an earlier state of them"), "{}", told(&second));
        in_cloud(&second.client, &id).await;
        second.end().await;
    }
}

#[tokio::test]
async fn turns_that_cannot_be_read_are_named_by_the_import_in_the_log_and_to_the_agent() {
    let after = "what came after entry";
    for (what, said) in [("log", "turn 3 could not be read in the bucket"), ("head", after)] {
        let bucket = Bucket::new();
        let first = bucket.served().await;
        let id = session(&first.client).await;
        let place = format!("sessions/{id}");
        let of = |kind: &str| bucket.objects(&format!("{place}/{kind}"));
        say(&first.client, &id, WRITE).await;
        say(&first.client, &id, "/bash printf two > b.txt").await;
        brought(&first.client, &id).await;
        let kept: Vec<(PathBuf, Vec<u8>)> = ["log", "records", "heads"]
            .iter()
            .flat_map(|kind| of(kind))
            .map(|object| (object.clone(), fs::read(object).unwrap()))
            .collect();
        say(&first.client, &id, "/bash printf three > c.txt").await;
        brought(&first.client, &id).await;
        first.end().await;
        // However many sets the last turn was brought there with.
        for (object, bytes) in kept.iter().filter(|(object, _)| !object.exists()) {
            fs::write(object, bytes).unwrap();
        }
        let latest: Vec<PathBuf> =
            of("heads").into_iter().filter(|head| read(head)["turns"] == 3).collect();
        assert!(!latest.is_empty());
        for head in latest {
            let part = read(&head)["log"].as_array().unwrap().last().unwrap().clone();
            let part = bucket.object(part["part"]["name"].as_str().unwrap());
            match what {
                "log" if !part.exists() => {}
                "log" => fs::remove_file(part).unwrap(),
                _ => cut(&head),
            }
        }

        let second = bucket.served().await;
        let imported = import(&second.client, &id).await;
        assert_eq!(imported["session"]["turns"], 2, "{what}: {imported}");
        let [warning] = &imported["warnings"].as_array().unwrap()[..] else { panic!("{imported}") };
        assert!(warning.as_str().unwrap().starts_with(said), "{what}: {imported}");
        let lost = losses(&second.client, &id).await;
        assert!(lost.len() == 1 && lost[0].contains(said), "{what}: {lost:?}");
        let back = post(&second.client, &id, "resume").await["resume"].clone();
        let known = &back["conversation"];
        assert_eq!((&known["turns"], &known["turnsInLog"]), (&json!(2), &json!(2)), "{back}");
        remembers(&second.client, &id).await;
        assert!(told(&second).contains("its end was lost"), "{}", told(&second));
        // Once it knows, it is told no more.
        say(&second.client, &id, "/say so").await;
        post(&second.client, &id, "stop").await;
        post(&second.client, &id, "resume").await;
        remembers(&second.client, &id).await;
        assert!(!told(&second).contains("its end was lost"), "{}", told(&second));
        in_cloud(&second.client, &id).await;
        second.end().await;
    }
}

/// A session that is in a bucket, and whose server is gone.
async fn left_in(bucket: &Bucket) -> String {
    let first = bucket.served().await;
    let id = session(&first.client).await;
    say(&first.client, &id, WRITE).await;
    post(&first.client, &id, "stop").await;
    brought(&first.client, &id).await;
    first.end().await;
    id
}

async fn comes_back(spawned: &Spawned, session: &str) {
    let back = post(&spawned.client, session, "resume").await["resume"].clone();
    assert_eq!((&back["source"], &back["workspace"]), (&json!("cloud"), &json!("restored")));
    remembers(&spawned.client, session).await;
    in_cloud(&spawned.client, session).await;
}

#[tokio::test]
async fn an_agent_that_cannot_be_read_is_stood_in_for_by_one_of_its_name() {
    for damage in DAMAGES {
        for is_directory in [false, true] {
            let bucket = Bucket::new();
            let id = left_in(&bucket).await;
            let agent = bucket.agent();
            match is_directory {
                true => damage(&bucket.record(&read(&agent)["snapshot"])),
                false => damage(&agent),
            }
            let second = bucket.served().await;
            let path = format!("/api/cloud/sessions/{id}/import");
            let refused = second.client.post(&path, &json!({})).await;
            let way_out = "deploy an agent called coder, then import again";
            assert!(refused.body.contains(way_out), "{}", refused.body);
            assert_eq!(refused.refused(422), "import_damaged");
            let left = second.client.get("/api/sessions").await.ok();
            assert_eq!(left["sessions"], json!([]), "nothing is left");

            let other = json!({ "name": "coder", "systemPrompt": "You are another one." });
            second.client.post("/api/agents", &other).await.ok();
            let imported = import(&second.client, &id).await;
            let session = &imported["session"];
            assert_eq!((&session["agentName"], &session["turns"]), (&json!("coder"), &json!(1)));
            let [warning] = &imported["warnings"].as_array().unwrap()[..] else {
                panic!("{imported}")
            };
            assert!(warning.as_str().unwrap().starts_with("agent coder could not be read"));
            comes_back(&second, &id).await;
            assert_eq!(losses(&second.client, &id).await, Vec::<String>::new());
            second.end().await;
        }
    }
}

#[tokio::test]
async fn an_agent_that_is_known_here_need_not_be_read() {
    for damage in DAMAGES {
        let bucket = Bucket::new();
        let id = left_in(&bucket).await;
        damage(&bucket.agent());
        let second = bucket.served().await;
        agent(&second.client, "coder").await;
        let imported = import(&second.client, &id).await;
        assert_eq!(imported["warnings"], json!([]));
        let agents = second.client.get("/api/agents").await.ok();
        assert_eq!(agents["agents"].as_array().unwrap().len(), 1, "{agents}");
        comes_back(&second, &id).await;
        second.end().await;
    }
}
