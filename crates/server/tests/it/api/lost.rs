//! An agent's own record of the conversation that is not what it was: nobody pretends that it is.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::client::Client;
use super::served::{Served, agent};

/// What is done to a record, and its name.
type Damage = (&'static str, fn(&Path));

const DAMAGES: [Damage; 5] = [
    ("changed", |record| {
        let content = fs::read_to_string(record).unwrap();
        assert!(content.contains("Ada"));
        fs::write(record, content.replace("Ada", "Bob")).unwrap();
    }),
    ("cut", |record| {
        let content = fs::read(record).unwrap();
        fs::write(record, &content[..content.len() / 2]).unwrap();
    }),
    ("overwritten", |record| fs::write(record, [0xff; 100_000]).unwrap()),
    ("a directory", |record| {
        fs::remove_file(record).unwrap();
        fs::create_dir(record).unwrap();
    }),
    ("removed", |record| fs::remove_file(record).unwrap()),
];

/// What the agent is told of it.
const TOLD: &str = "The record of your earlier conversation in this session was lost";

async fn resume(client: &Client, session: &str) -> Value {
    let path = format!("/api/sessions/{session}/resume");
    client.ask("POST", &path, &[], None).await.ok()["resume"].clone()
}

async fn stop(client: &Client, session: &str) {
    client.ask("POST", &format!("/api/sessions/{session}/stop"), &[], None).await.ok();
}

#[tokio::test]
async fn a_damaged_record_is_set_aside_and_made_anew() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    for (damage, make) in DAMAGES {
        let made = client.post("/api/sessions", &json!({ "agent": "coder" })).await.ok();
        let session = made["session"]["id"].as_str().unwrap().to_owned();
        let system = || served.model.requests().pop().unwrap().body["system"].to_string();
        client.say(&session, "My name is Ada.\n/say Hello.").await.all().await;
        assert!(!system().contains(TOLD), "{damage}: {}", system());
        stop(client, &session).await;
        let home = served.dir.join("data/sandboxes").join(&session).join("home/.ash");
        let record = home.join("conversation.jsonl");
        make(&record);
        let left = fs::read(&record).ok();

        let back = resume(client, &session).await;
        assert_eq!(back["path"], "cold", "{damage}: {back}");
        let conversation = json!({ "native": "rebuilt", "turns": 1, "turnsInLog": 1 });
        assert_eq!((&back["workspace"], &back["conversation"]), (&json!("kept"), &conversation));
        let path = format!("/api/sessions/{session}/events?type=context_lost");
        let events = client.get(&path).await.ok();
        assert_eq!(events["events"].as_array().unwrap().len(), 0, "{damage}: {events}");
        // It is kept for people, as it was found.
        let aside: Vec<_> = fs::read_dir(&home)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.display().to_string().contains("conversation.lost-"))
            .collect();
        match damage {
            "removed" => assert_eq!(aside, Vec::<std::path::PathBuf>::new()),
            _ => {
                assert_eq!(aside, [home.join("conversation.lost-2.jsonl")], "{damage}");
                assert_eq!(fs::read(&aside[0]).ok(), left, "{damage}");
            }
        }
        // The agent knows what was said, and not what somebody wrote there.
        let run = client.say(&session, "Who am I?\n/recall").await.all().await;
        let said: String = run.iter().filter_map(|frame| frame.data["delta"].as_str()).collect();
        assert!(said.contains("Ada") && !said.contains("Bob"), "{damage}: {said}");
        assert!(!system().contains(TOLD), "{damage}: {}", system());
        client.delete(&format!("/api/sessions/{session}")).await.ok();
    }
    served.end().await;
}

#[tokio::test]
async fn a_loss_is_told_by_every_resume_until_the_record_is_whole_again() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let told = async || {
        let back = resume(client, &session).await;
        let [path, native] = [&back["path"], &back["conversation"]["native"]];
        (path.as_str().unwrap().to_owned(), native.as_str().unwrap().to_owned())
    };
    let of = |path: &str, native: &str| (path.to_owned(), native.to_owned());
    assert_eq!(told().await, of("noop", "none"));
    client.say(&session, "My name is Ada.\n/say Hello.").await.all().await;
    assert_eq!(told().await, of("noop", "intact"));
    stop(client, &session).await;
    // The agent has put something where another record would be made.
    let home = served.dir.join("data/sandboxes").join(&session).join("home");
    fs::remove_file(home.join(".ash/conversation.jsonl")).unwrap();
    let in_the_way = home.join(".ash/conversation.new");
    fs::create_dir(&in_the_way).unwrap();
    assert_eq!(told().await, of("cold", "lost"));
    assert_eq!(told().await, of("noop", "lost"));
    let pause = format!("/api/sessions/{session}/pause");
    client.ask("POST", &pause, &[], None).await.ok();
    assert_eq!(told().await, of("warm", "lost"));
    assert_eq!(told().await, of("noop", "lost"));
    // The agent knows that it does not know.
    let run = client.say(&session, "Who am I?\n/recall").await.all().await;
    let said: String = run.iter().filter_map(|frame| frame.data["delta"].as_str()).collect();
    assert!(!said.contains("Ada"), "{said}");
    let system = served.model.requests().pop().unwrap().body["system"].to_string();
    assert!(system.contains(TOLD), "{system}");
    stop(client, &session).await;
    // What it has begun since is there.
    let back = resume(client, &session).await;
    let conversation = json!({ "native": "intact", "turns": 1, "turnsInLog": 2 });
    assert_eq!(back["conversation"], conversation, "{back}");
    // Where there is a place for it, it is what the log says.
    stop(client, &session).await;
    fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(told().await, of("cold", "rebuilt"));
    let run = client.say(&session, "Who am I?\n/recall").await.all().await;
    let said: String = run.iter().filter_map(|frame| frame.data["delta"].as_str()).collect();
    assert!(said.contains("Ada"), "{said}");
    stop(client, &session).await;
    assert_eq!(told().await, of("cold", "intact"));
    assert_eq!(told().await, of("noop", "intact"));
    served.end().await;
}

#[tokio::test]
async fn a_link_in_the_place_of_the_record_is_set_aside_and_it_is_made_anew() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    client.say(&session, "My name is Ada.\n/say Hello.").await.all().await;
    stop(client, &session).await;
    let home = served.dir.join("data/sandboxes").join(&session).join("home");
    fs::rename(home.join(".ash"), home.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", home.join(".ash")).unwrap();
    let back = resume(client, &session).await;
    let conversation = json!({ "native": "rebuilt", "turns": 1, "turnsInLog": 1 });
    assert_eq!(back["conversation"], conversation, "{back}");
    assert!(home.join(".ash.lost-2").is_symlink());
    let run = client.say(&session, "Who am I?\n/recall").await.all().await;
    let said: String = run.iter().filter_map(|frame| frame.data["delta"].as_str()).collect();
    assert!(said.contains("Ada"), "{said}");
    served.end().await;
}
