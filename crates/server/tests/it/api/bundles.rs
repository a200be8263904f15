//! Sessions as bundles: they go on where they are imported, and nothing that is wrong leaves a trace.

mod wrong;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::cloud::{
    conversation, import as import_from_cloud, in_cloud, look, post, remembers, say,
};
use super::served::{Served, With, session};
use super::spawned::Spawned;
use crate::world::until;

const WRITE: &str = "My name is Ada.\n/tool write_file {\"path\": \"a.txt\", \"content\": \"one\"}";

/// Files of every kind, one of them with bytes that are no text.
const MORE: &str = "/bash printf two > b.txt; mkdir -p d/e; ln -s ../a.txt d/link; chmod 700 b.txt; \
                    head -c 300000 /dev/urandom > noise; touch d/e/empty; printf x > 'a name'";

async fn export(client: &Client, session: &str) -> Vec<u8> {
    client.download(&format!("/api/sessions/{session}/export")).await
}

async fn send(client: &Client, bundle: &[u8], headers: &[&str]) -> Answer {
    let mut all = vec!["content-type: application/x-tar"];
    all.extend(headers);
    client.ask_bytes("POST", "/api/sessions/import", &all, Some(bundle)).await
}

async fn import(client: &Client, bundle: &[u8]) -> Value {
    let imported = send(client, bundle, &[]).await;
    assert_eq!(imported.status, 201, "{}", imported.body);
    imported.json()["session"].clone()
}

fn id(session: &Value) -> String {
    session["id"].as_str().unwrap().to_owned()
}

/// A session whose files and conversation are captured.
async fn stopped(client: &Client, prompts: &[&str]) -> String {
    let id = session(client).await;
    for prompt in prompts {
        say(client, &id, prompt).await;
    }
    post(client, &id, "stop").await;
    id
}

/// Everything below a directory: what it is, who may do what with it, and its bytes.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut rest = vec![root.to_owned()];
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let about = std::fs::symlink_metadata(&path).unwrap();
            let bytes = if about.is_dir() {
                rest.push(path.clone());
                Vec::new()
            } else if about.is_symlink() {
                std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                std::fs::read(&path).unwrap()
            };
            let below = path.strip_prefix(root).unwrap().to_owned();
            found.insert(below, (about.permissions().mode(), bytes));
        }
    }
    found
}

fn workspace(dir: &Path, session: &str) -> PathBuf {
    dir.join("data/sandboxes").join(session).join("workspace")
}

fn left(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("data/bundles")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn a_session_goes_on_with_a_second_server_that_shares_nothing() {
    let first = Served::start().await;
    let session = stopped(&first.client, &[WRITE, MORE]).await;
    let path = format!("/api/sessions/{session}/export");
    let head = first.client.get(&path).await;
    assert_eq!(head.header("content-type"), Some("application/x-tar"));
    let name = format!("attachment; filename*=UTF-8''coder-{session}.tar");
    assert_eq!(head.header("content-disposition"), Some(name.as_str()));
    let bundle = export(&first.client, &session).await;
    assert_eq!(head.header("content-length").unwrap().parse::<usize>().unwrap() % 512, 0);
    // What was to be captured was waited for.
    let before = look(&first.client, &session).await;
    assert_eq!(before["status"], "stopped", "it is not touched");
    assert_eq!(before["snapshot"]["turn"], 2);

    let second = Served::start().await;
    let imported = import(&second.client, &bundle).await;
    assert_eq!((&imported["id"], &imported["status"]), (&json!(session), &json!("paused")));
    assert_eq!((&imported["turns"], &imported["agentName"]), (&json!(2), &json!("coder")));
    assert!(imported["logEpoch"].as_u64() > before["logEpoch"].as_u64());
    assert_eq!(imported["snapshot"], before["snapshot"]);
    let listed = second.client.get(&format!("/api/sessions/{session}/snapshots")).await.ok();
    assert_eq!(listed["snapshots"].as_array().unwrap().len(), 1);
    assert_eq!(listed["snapshots"][0]["location"], json!({ "local": true, "cloud": false }));
    let both = [&first.client, &second.client];
    assert_eq!(conversation(both[0], &session).await, conversation(both[1], &session).await);
    let runs = second.client.get(&format!("/api/sessions/{session}/runs")).await.ok();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2);
    // Who followed it elsewhere is told.
    let cursor = format!("after={}-{}&until=idle", before["logEpoch"], before["lastSeq"]);
    let frames = second.client.follow(&session, &cursor).await.all().await;
    assert_eq!(frames[0].event, "gap", "{frames:#?}");

    let back = post(&second.client, &session, "resume").await["resume"].clone();
    assert_eq!((&back["path"], &back["source"]), (&json!("cold"), &json!("local")), "{back}");
    assert_eq!((&back["workspace"], &back["files"]), (&json!("restored"), &json!(7)));
    assert_eq!(back["snapshotId"], before["snapshot"]["id"]);
    assert_eq!(back["conversation"], json!({ "native": "intact", "turns": 2, "turnsInLog": 2 }));
    let files = tree(&workspace(&second.dir, &session));
    assert_eq!(files, tree(&workspace(&first.dir, &session)));
    assert_eq!(files[Path::new("noise")].1.len(), 300_000);
    remembers(&second.client, &session).await;
    for served in [first, second] {
        assert_eq!(left(&served.dir), Vec::<PathBuf>::new(), "nothing lies about");
        served.end().await;
    }
}

#[tokio::test]
async fn what_is_exported_in_the_middle_of_a_run_is_interrupted_elsewhere() {
    let first = Served::start().await;
    let session = stopped(&first.client, &[WRITE]).await;
    post(&first.client, &session, "resume").await;
    let held = super::served::held("Go on");
    let mut watched = first.client.say(&session, &held).await;
    watched.until("tool_use").await;
    let bundle = export(&first.client, &session).await;
    let second = Served::start().await;
    import(&second.client, &bundle).await;
    let runs = second.client.get(&format!("/api/sessions/{session}/runs")).await.ok();
    let status = |index: usize| runs["runs"][index]["status"].clone();
    assert_eq!((status(0), status(1)), (json!("interrupted"), json!("completed")), "{runs}");
    post(&second.client, &session, "resume").await;
    remembers(&second.client, &session).await;
    super::served::let_go(&first.client, &session).await;
    watched.until("done").await;
    first.end().await;
    second.end().await;
}

#[tokio::test]
async fn all_of_a_history_comes_along_if_it_is_asked_for() {
    let first = Served::start().await;
    let words = |word: &str| format!("The word is {word}.\n/bash printf {word} > word");
    let parent = stopped(&first.client, &[&words("alpha"), &words("bravo")]).await;
    let at = |session: &str, what: &str| format!("/api/sessions/{session}/{what}");
    first.client.post(&at(&parent, "rewind"), &json!({ "turn": 1 })).await.ok();
    post(&first.client, &parent, "resume").await;
    say(&first.client, &parent, &words("charlie")).await;
    post(&first.client, &parent, "stop").await;
    let forked = first.client.post(&at(&parent, "fork"), &json!({})).await.ok();
    let fork = id(&forked["session"]);
    let whole = first.client.download(&at(&fork, "export?history=true")).await;
    let latest = export(&first.client, &fork).await;
    first.end().await;

    let second = Served::start().await;
    let client = &second.client;
    let imported = import(client, &whole).await;
    assert_eq!((&imported["id"], &imported["turns"]), (&json!(fork), &json!(2)));
    post(client, &fork, "resume").await;
    let said = async |session: &str, word: &str| {
        let frames = client.say(session, "What is the word?\n/recall").await.all().await;
        let recalled = frames.iter().any(|it| it.raw.contains(&format!("The word is {word}.")));
        let file = client.get(&at(session, "files/word")).await.body;
        (recalled, file == word)
    };
    assert_eq!(said(&fork, "charlie").await, (true, true));
    assert_eq!(said(&fork, "bravo").await, (false, false));
    // The branch that was left is there, too.
    let other = client.post(&at(&fork, "fork"), &json!({ "turn": 2 })).await.ok();
    let other = id(&other["session"]);
    post(client, &other, "resume").await;
    assert_eq!(said(&other, "bravo").await, (true, true));
    client.post(&at(&fork, "rewind"), &json!({ "turn": 1 })).await.ok();
    assert_eq!(client.get(&at(&fork, "files/word")).await.body, "alpha");

    let again = id(&import(client, &latest).await);
    let gone = client.post(&at(&again, "fork"), &json!({ "turn": 1 })).await;
    assert_eq!(gone.refused(410), "snapshot_expired");
    post(client, &again, "resume").await;
    assert_eq!(said(&again, "charlie").await, (true, true));
    second.end().await;
}

#[tokio::test]
async fn where_it_comes_from_it_is_another_session() {
    let served = Served::start().await;
    let client = &served.client;
    let first = stopped(client, &[WRITE]).await;
    let bundle = export(client, &first).await;
    let second = id(&import(client, &bundle).await);
    let third = id(&import(client, &bundle).await);
    assert!(first != second && second != third && first != third);
    for session in [&first, &second, &third] {
        post(client, session, "resume").await;
        remembers(client, session).await;
    }
    say(client, &second, "/bash printf changed > a.txt").await;
    let file = async |session: &str| {
        client.get(&format!("/api/sessions/{session}/files/a.txt")).await.body
    };
    assert_eq!((file(&first).await, file(&second).await), ("one".into(), "changed".into()));
    let agents = client.get("/api/agents").await.ok();
    assert_eq!(agents["agents"].as_array().unwrap().len(), 1, "the agent is there already");
    served.end().await;
}

#[tokio::test]
async fn an_import_that_is_sent_again_happens_once() {
    let served = Served::start().await;
    let client = &served.client;
    let first = stopped(client, &[WRITE]).await;
    let bundle = export(client, &first).await;
    let key = ["idempotency-key: once"];
    let (one, two, three) = tokio::join!(
        send(client, &bundle, &key),
        send(client, &bundle, &key),
        send(client, &bundle, &key),
    );
    let made = [one, two, three].map(|answer| id(&answer.ok()["session"]));
    assert!(made.iter().all(|other| *other == made[0]), "{made:?}");
    assert_eq!(id(&send(client, &bundle, &key).await.ok()["session"]), made[0]);
    let sessions = client.get("/api/sessions").await.ok();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 2, "{sessions}");
    post(client, &first, "resume").await;
    say(client, &first, "/bash echo more > more").await;
    let other = export(client, &first).await;
    assert_eq!(send(client, &other, &key).await.refused(409), "idempotency_mismatch");
    // What was refused is not remembered.
    let key = ["idempotency-key: later"];
    assert_eq!(send(client, &bundle[..1_000], &key).await.refused(422), "import_damaged");
    assert_ne!(id(&send(client, &bundle, &key).await.ok()["session"]), made[0]);
    served.end().await;
}

#[tokio::test]
async fn whoever_imports_it_has_it() {
    let served = Served::start().await;
    let stranger = served.stranger().await;
    let mine = stopped(&served.client, &[WRITE]).await;
    let path = format!("/api/sessions/{mine}/export");
    assert_eq!(stranger.get(&path).await.refused(404), "not_found");
    let bundle = export(&served.client, &mine).await;
    let theirs = import(&stranger, &bundle).await;
    assert_eq!(theirs["tenantId"], "stranger");
    let theirs = id(&theirs);
    assert_ne!(theirs, mine);
    post(&stranger, &theirs, "resume").await;
    remembers(&stranger, &theirs).await;
    let path = format!("/api/sessions/{theirs}");
    assert_eq!(served.client.get(&path).await.refused(404), "not_found");
    let agents = stranger.get("/api/agents").await.ok();
    assert_eq!(agents["agents"][0]["tenantId"], "stranger");
    // A bundle says nothing of whose it was.
    let theirs = export(&stranger, &theirs).await;
    assert!(!theirs.windows(8).any(|bytes| bytes == b"stranger"));
    served.end().await;
}

#[tokio::test]
async fn what_was_never_captured_cannot_be_exported() {
    let served = Served::start().await;
    let (session, _watched) = served.busy().await;
    let refused = served.client.get(&format!("/api/sessions/{session}/export")).await;
    assert_eq!(refused.refused(409), "no_saved_state");
    assert!(refused.json()["error"].as_str().unwrap().contains("captured"), "{refused:?}");
    let nobody = "01890a5d-ac96-774b-bcce-b302099a8057";
    let missing = served.client.get(&format!("/api/sessions/{nobody}/export")).await;
    assert_eq!(missing.refused(404), "not_found");
    let wrong = served.client.get(&format!("/api/sessions/{session}/export?history=2")).await;
    assert_eq!(wrong.refused(400), "invalid_request");
    served.end().await;
}

#[tokio::test]
async fn no_secret_is_in_a_bundle() {
    let served = Served::start().await;
    let client = &served.client;
    let agent = json!({ "name": "coder", "systemPrompt": "x", "env": { "A": "hush-of-agent" } });
    client.post("/api/agents", &agent).await.ok();
    let key = json!({ "type": "anthropic", "key": "hush-of-credential" });
    let credential = client.post("/api/credentials", &key).await.ok()["credential"]["id"].clone();
    let create = json!({
        "agent": "coder",
        "credentialId": credential,
        "systemPrompt": "said-aloud",
        "extraEnv": { "S": "hush-of-session" },
        "mcpServers": { "m": { "command": "x", "env": { "T": "hush-of-tools" } } },
    });
    let made = client.post("/api/sessions", &create).await.ok();
    let session = id(&made["session"]);
    say(client, &session, "hello\n/bash test -n \"$A$S\" && echo set").await;
    post(client, &session, "stop").await;
    let bundle = export(client, &session).await;
    let mut all = bundle.clone();
    for (name, bytes) in wrong::objects(&bundle) {
        if Path::new(&name).extension().is_some_and(|is| is == "zst") {
            all.extend(zstd::decode_all(bytes.as_slice()).unwrap());
        }
    }
    let has = |text: &str| all.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(has("said-aloud"), "what is no secret is in it");
    let credential = credential.as_str().unwrap();
    for secret in ["hush-of", "\"sealed\"", credential] {
        assert!(!has(secret), "{secret} is in it");
    }
    // Where it is imported, it does without.
    let second = Served::start().await;
    import(&second.client, &bundle).await;
    post(&second.client, &session, "resume").await;
    let question = "/bash echo \"has-$A$S-nothing\"\n/results";
    let frames = second.client.say(&session, question).await.all().await;
    assert!(frames.iter().any(|frame| frame.raw.contains("has--nothing")), "{frames:#?}");
    served.end().await;
    second.end().await;
}

#[tokio::test]
async fn an_imported_session_is_brought_to_the_cloud_and_takes_nobodys_place_there() {
    let bucket = tempfile::tempdir().unwrap();
    let url = format!("file://{}/bucket", bucket.path().display());
    let with = || With { variables: vec![("ASH_SNAPSHOT_URL", url.clone())], ..With::default() };
    let first = Served::with(with()).await;
    let session = stopped(&first.client, &[WRITE, MORE]).await;
    in_cloud(&first.client, &session).await;
    let path = format!("/api/sessions/{session}/export?history=true");
    let bundle = first.client.download(&path).await;

    let second = Served::with(with()).await;
    let copy = id(&import(&second.client, &bundle).await);
    assert_ne!(copy, session, "the first one goes on with it there");
    in_cloud(&second.client, &copy).await;
    let lag = async || second.client.get("/metrics").await.body;
    while !lag().await.contains("ash_cloud_lag_snapshots 0") {
        tokio::task::yield_now().await;
    }
    post(&first.client, &session, "resume").await;
    say(&first.client, &session, "/bash echo on > on").await;
    in_cloud(&first.client, &session).await;

    let third = Served::with(with()).await;
    import_from_cloud(&third.client, &copy).await;
    let back = post(&third.client, &copy, "resume").await["resume"].clone();
    assert_eq!(back["source"], "cloud", "{back}");
    remembers(&third.client, &copy).await;
    // What is in the cloud alone can be exported, too.
    post(&third.client, &copy, "stop").await;
    import_from_cloud(&third.client, &session).await;
    let bundle = export(&third.client, &session).await;
    let alone = Served::start().await;
    import(&alone.client, &bundle).await;
    post(&alone.client, &session, "resume").await;
    remembers(&alone.client, &session).await;
    for served in [first, second, third, alone] {
        served.end().await;
    }
}

#[tokio::test]
async fn nothing_is_left_of_bundles_that_were_never_whole() {
    let mut spawned = Spawned::start().await;
    let session = stopped(&spawned.client, &[WRITE, MORE]).await;
    let bundle = export(&spawned.client, &session).await;
    let request =
        spawned.client.request("POST", "/api/sessions/import", &[], Some(bundle.as_slice()));
    // Somebody goes in the middle.
    let dir = spawned.dir.path().to_owned();
    let socket = tokio::net::TcpStream::connect(spawned.client.address).await.unwrap();
    let half = &request[..request.len() / 2];
    let mut socket = socket;
    tokio::io::AsyncWriteExt::write_all(&mut socket, half).await.unwrap();
    until("it is being taken in", || !left(&dir).is_empty()).await;
    drop(socket);
    until("nothing is left of it", || left(&dir).is_empty()).await;
    // A server dies in the middle.
    let mut socket = tokio::net::TcpStream::connect(spawned.client.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, half).await.unwrap();
    until("it is being taken in", || !left(&dir).is_empty()).await;
    spawned.kill_and_restart();
    assert_eq!(left(&dir), Vec::<PathBuf>::new(), "the next one removes it");
    let sessions = spawned.client.get("/api/sessions").await.ok();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
    import(&spawned.client, &bundle).await;
    spawned.end().await;
}
