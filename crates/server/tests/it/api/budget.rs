//! What a session may cost is promised to one run at a time.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::{Answer, Client};
use super::served::{Served, agent};

/// A prompt whose run goes on until there is a file.
fn until_there_is(file: &str) -> String {
    format!("Wait\n/bash touch begun-{file}; while [ ! -e {file} ]; do sleep 0.02; done\n/say over")
}

struct Limited<'a> {
    client: &'a Client,
    session: String,
}

impl Limited<'_> {
    async fn send(&self, body: Value) -> Answer {
        let path = format!("/api/sessions/{}/messages", self.session);
        self.client.ask("POST", &path, &["prefer: respond-async"], Some(&body)).await
    }

    /// Makes a file, and waits until the session has nothing to do.
    async fn finish(&self, file: &str) {
        let path = format!("/api/sessions/{}/exec", self.session);
        self.client.post(&path, &json!({ "command": format!("touch {file}") })).await.ok();
        self.client.follow(&self.session, "until=idle").await.all().await;
    }

    async fn runs(&self) -> usize {
        let path = format!("/api/sessions/{}/runs", self.session);
        self.client.get(&path).await.ok()["runs"].as_array().unwrap().len()
    }
}

#[tokio::test]
async fn a_budget_is_promised_to_one_run_at_a_time() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let create = json!({ "agent": "coder", "budgetUsd": 1.0 });
    let made = client.post("/api/sessions", &create).await.ok();
    let session = made["session"]["id"].as_str().unwrap().to_owned();
    let limited = Limited { client, session };

    // The first could spend all of it, so there is nothing for a second, however modest.
    limited.send(json!({ "content": until_there_is("one") })).await.ok();
    for more in [json!({ "content": "x" }), json!({ "content": "x", "maxBudgetUsd": 0.001 })] {
        assert_eq!(limited.send(more).await.refused(402), "budget_spent");
    }
    assert_eq!(limited.runs().await, 1);
    limited.finish("one").await;

    // It spent little: there is room again, for one of those who come at once.
    let mut sending = JoinSet::new();
    for _ in 0..8 {
        let (client, session) = (client.clone(), limited.session.clone());
        sending.spawn(async move {
            let limited = Limited { client: &client, session };
            let answer = limited.send(json!({ "content": until_there_is("two") })).await;
            if answer.status == 402 {
                assert_eq!(answer.refused(402), "budget_spent");
            }
            answer.status
        });
    }
    let mut answers = sending.join_all().await;
    answers.sort_unstable();
    assert_eq!(answers, [202, 402, 402, 402, 402, 402, 402, 402]);
    limited.finish("two").await;

    // What a run is not promised is there for the next, and then there is nothing.
    let modest = json!({ "content": until_there_is("three"), "maxBudgetUsd": 0.4 });
    limited.send(modest).await.ok();
    limited.send(json!({ "content": "rest\n/say rest" })).await.ok();
    assert_eq!(limited.send(json!({ "content": "x" })).await.refused(402), "budget_spent");
    limited.finish("three").await;
    assert_eq!(limited.runs().await, 4);

    // A run that spends what is left stops there, and is the last.
    let costly = "costly\n/usage input=10 output=100000\n/bash true\n/say never";
    let run = client.say(&limited.session, costly).await.all().await;
    assert_eq!(run.last().unwrap().data["stopReason"], "budget");
    assert_eq!(limited.send(json!({ "content": "x" })).await.refused(402), "budget_spent");
    assert_eq!(limited.runs().await, 5);
    served.end().await;
}
