//! What a session may cost, over all its runs: counted when it is asked for, and no reason to refuse who waits.

use serde_json::{Value, json};

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
async fn messages_wait_within_a_budget_and_the_last_of_it_is_the_last() {
    let served = Served::start().await;
    let client = &served.client;
    agent(client, "coder").await;
    let create = json!({ "agent": "coder", "budgetUsd": 1.0 });
    let made = client.post("/api/sessions", &create).await.ok();
    let session = made["session"]["id"].as_str().unwrap().to_owned();
    let limited = Limited { client, session };

    // One goes on, and could spend all of it. Others wait all the same, and have their turn.
    limited.send(json!({ "content": until_there_is("one") })).await.ok();
    limited.send(json!({ "content": "second\n/say second" })).await.ok();
    let costly = "costly\n/usage input=10 output=100000\n/bash true\n/say never";
    limited.send(json!({ "content": costly })).await.ok();
    limited.send(json!({ "content": "too late\n/say never" })).await.ok();
    limited.finish("one").await;

    // The third spent what there was, in the middle of its run; the fourth was asked for nothing.
    let path = format!("/api/sessions/{}/runs", limited.session);
    let runs = client.get(&path).await.ok();
    let mut reasons: Vec<_> = runs["runs"].as_array().unwrap().iter().collect();
    reasons.sort_by_key(|run| run["turn"].as_u64());
    let reasons: Vec<_> = reasons.iter().map(|run| run["stopReason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["end_turn", "end_turn", "budget", "budget"]);
    let asked = served.model.requests();
    assert!(!asked.iter().any(|asked| asked.body.to_string().contains("too late")), "it was asked");

    for more in [json!({ "content": "x" }), json!({ "content": "x", "maxBudgetUsd": 0.001 })] {
        assert_eq!(limited.send(more).await.refused(402), "budget_spent");
    }
    assert_eq!(limited.runs().await, 4);
    served.end().await;
}
