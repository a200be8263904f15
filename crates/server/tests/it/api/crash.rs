//! `kill -9` of the real server in mid-stream, again and again, under a client that comes back with
//! its last id.

use serde_json::{Value, json};

use super::client::{Client, Frame};
use super::spawned::Spawned;

/// After how many events the server is killed, each time.
const KILLED_AFTER: [usize; 12] = [1, 4, 2, 9, 0, 3, 17, 1, 6, 0, 12, 5];

/// What one client saw, over all lives of the server.
#[derive(Default)]
struct Seen(Vec<Frame>);

impl Seen {
    fn last(&self) -> String {
        self.0.last().map_or("0".to_owned(), |frame| frame.id.clone().unwrap())
    }

    /// Follows until something, or until the stream breaks off; tells which.
    async fn follow(
        &mut self,
        client: &Client,
        session: &str,
        enough: impl Fn(&[Frame]) -> bool,
    ) -> bool {
        let path = format!("/api/sessions/{session}/stream");
        let id = format!("last-event-id: {}", self.last());
        let Some(mut stream) = client.try_open("GET", &path, &[&id], None).await else {
            return false;
        };
        let before = self.0.len();
        while !enough(&self.0[before..]) {
            let Some(frame) = stream.next().await else { return false };
            assert_ne!(frame.event, "gap", "after {}: {frame:?}", self.last());
            if frame.id.is_some() {
                self.0.push(frame);
            }
        }
        true
    }
}

fn has_ended(run: &str, frames: &[Frame]) -> bool {
    frames.iter().any(|frame| frame.event == "done" && frame.data["runId"] == run)
}

#[tokio::test]
async fn a_client_that_comes_back_after_every_kill_has_seen_the_log() {
    let mut spawned = Spawned::start().await;
    let session = super::served::session(&spawned.client).await;
    let mut seen = Seen::default();
    let mut kills = 0;
    let mut turns = 0;
    while kills < KILLED_AFTER.len() {
        turns += 1;
        let prompt = match turns {
            1 => "The codeword is heron.\n/say I will remember it.".to_owned(),
            _ => format!(
                "Turn {turns}.\n/slow 4ms\n/think Let me see.\n/bash for i in 1 2 3; do echo $i; sleep 0.05; done\n\
                 /repeat 100 word{turns} \n/bash echo {turns} >> turns.txt\n/say Turn {turns} is over."
            ),
        };
        let key = format!("idempotency-key: turn-{turns}");
        let body = json!({ "content": prompt, "detach": true });
        let messages = format!("/api/sessions/{session}/messages");
        if turns % 3 == 0 {
            // The server dies while the message is on its way; it is sent again with its key.
            let request = spawned.client.request(
                "POST",
                &messages,
                &[&key],
                Some(body.to_string().as_bytes()),
            );
            let mut socket = tokio::net::TcpStream::connect(spawned.client.address).await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut socket, &request).await.unwrap();
            spawned.kill_and_restart();
            kills += 1;
        }
        let sent = spawned.client.ask("POST", &messages, &[&key], Some(&body)).await.ok();
        let run = sent["runId"].as_str().unwrap().to_owned();
        while !has_ended(&run, &seen.0) {
            let after = KILLED_AFTER.get(kills).copied().unwrap_or(usize::MAX);
            let client = spawned.client.clone();
            let enough = |new: &[Frame]| new.len() >= after || has_ended(&run, new);
            let whole = seen.follow(&client, &session, enough).await;
            assert!(whole, "the server ended by itself: {}", spawned.said());
            if turns > 1 && !has_ended(&run, &seen.0) {
                spawned.kill_and_restart();
                kills += 1;
            }
        }
        assert_eq!(seen.0.last().unwrap().data["stopReason"], "end_turn", "{:#?}", seen.0.last());
    }
    let client = spawned.client.clone();
    let sent = json!({ "content": "What is the codeword?\n/recall", "detach": true });
    let sent = client.post(&format!("/api/sessions/{session}/messages"), &sent).await.ok();
    let run = sent["runId"].as_str().unwrap().to_owned();
    seen.follow(&client, &session, |new| has_ended(&run, new)).await;

    // No hole, nothing twice, and the same as the log says now.
    let ids: Vec<u64> = seen.0.iter().map(|frame| frame.seq().unwrap()).collect();
    let expected: Vec<u64> = (1..=ids.len() as u64).collect();
    assert_eq!(ids, expected);
    let whole = super::streams::log(&client, &session).await;
    assert_eq!(seen.0, whole);
    let mut listed = Vec::new();
    loop {
        let after = listed.len();
        let path = format!("/api/sessions/{session}/events?limit=1000&type=all&after={after}");
        let page = client.get(&path).await.ok();
        let page = page["events"].as_array().unwrap().clone();
        if page.is_empty() {
            break;
        }
        listed.extend(page.into_iter().map(|event| event["cursor"].clone()));
    }
    let ids: Vec<Value> = whole.iter().map(|frame| json!(frame.id)).collect();
    assert_eq!(listed, ids);

    // Each turn once, and the agent remembers the first.
    let prompts = whole.iter().filter(|frame| frame.event == "prompt").count();
    assert_eq!(prompts, turns + 1);
    assert_eq!(whole.iter().filter(|frame| frame.event == "done").count(), turns + 1);
    let of_run = |frame: &&Frame| frame.data["runId"] == *run && frame.event == "text_delta";
    let said = whole.iter().filter(of_run).map(|frame| frame.data["delta"].as_str().unwrap());
    let said: String = said.collect();
    assert!(said.contains("The codeword is heron."), "{said}");
    for turn in 2..=turns {
        assert!(said.contains(&format!("Turn {turn} is over.")), "{turn}: {said}");
    }
    assert!(kills >= KILLED_AFTER.len(), "{kills}");
    spawned.end().await;
}
