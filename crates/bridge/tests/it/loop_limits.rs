//! Turns that end at a limit, and stay valid.

use ash_protocol::Ending;
use serde_json::json;

use crate::fake::{Bench, Reply, local, text, tools};

#[test]
fn a_turn_ends_at_its_rounds_and_stays_valid() {
    local(async {
        let list = || tools(&[("t", "list_files", json!({}))]);
        let bench = Bench::new(vec![list(), list(), text("ok")]).await;
        let told = bench.turn(json!({ "content": "go", "maxTurns": 2 })).await;
        assert_eq!(told.ending, Ending::MaxTurns);
        assert_eq!(bench.model.requests().len(), 2);
        assert_eq!(told.usage.tool_calls, 1);
        bench.turn(json!("go on")).await;
        let sent = bench.sent(2);
        assert!(sent[4].to_string().contains("not run: the run's limit was reached"), "{sent:#?}");
    });
}

#[test]
fn a_turn_ends_at_its_budget_and_stays_valid() {
    local(async {
        let list = || tools(&[("t", "list_files", json!({}))]);
        let bench = Bench::new(vec![list(), list(), text("ok")]).await;
        let told = bench.turn(json!({ "content": "go", "maxBudgetUsd": 0.0005 })).await;
        assert_eq!(told.ending, Ending::Budget);
        assert_eq!(told.usage.cost_micro_usd, 900);
        bench.turn(json!("go on")).await;
        bench.sent(2);
    });
}

#[test]
fn a_coder_shares_the_budget() {
    local(async {
        let list = || tools(&[("c", "list_files", json!({}))]);
        let delegate = |id| (id, "delegate_coder", json!({ "task": "look" }));
        let replies = vec![tools(&[delegate("d1"), delegate("d2")]), list(), list(), text("ok")];
        let bench = Bench::new(replies).await;
        let told = bench.turn(json!({ "content": "go", "maxBudgetUsd": 0.001 })).await;
        assert_eq!(told.ending, Ending::Budget);
        assert_eq!(bench.model.requests().len(), 3);
        bench.turn(json!("go on")).await;
        let results = bench.sent(3)[2]["content"].as_array().unwrap().clone();
        assert!(results[0].to_string().contains("the coder was stopped"), "{results:#?}");
        assert!(results[1].to_string().contains("not run: the run's limit"), "{results:#?}");
    });
}

#[test]
fn a_coder_has_rounds_of_its_own() {
    local(async {
        let mut replies: Vec<Reply> =
            vec![tools(&[("d1", "delegate_coder", json!({ "task": "look" }))])];
        replies.extend((0..50).map(|_| tools(&[("c", "list_files", json!({}))])));
        replies.push(text("it never ended"));
        let bench = Bench::new(replies).await;
        let told = bench.turn(json!({ "content": "go", "maxTurns": 2 })).await;
        assert_eq!(told.ending, Ending::EndTurn);
        assert_eq!(told.outputs("coder_round").len(), 50);
        let result = bench.sent(51)[2]["content"][0].to_string();
        assert!(result.contains("did not finish within the rounds"), "{result}");
    });
}
