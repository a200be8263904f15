//! Lists that are longer than an answer may be.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::served::Served;

/// How many prompts are sent, and how many characters of four bytes each has. Together they are more
/// than one answer holds.
const PROMPTS: usize = 20;
const CHARACTERS: usize = 499_000;

#[tokio::test]
async fn a_list_that_is_cut_for_its_length_goes_on_after_its_last_entry() {
    let served = Served::start().await;
    let client = &served.client;
    let (session, _watched) = served.busy().await;
    // They wait behind the first, so that no model has to read them.
    let path = format!("/api/sessions/{session}/messages");
    let long = "🦀".repeat(CHARACTERS);
    for number in 0..PROMPTS {
        let body = json!({ "content": format!("prompt {number} {long}"), "detach": true });
        client.post(&path, &body).await.ok();
    }
    for (list, kinds) in [("messages", ""), ("events", "&type=all")] {
        let mut pages = 0;
        let mut after = 0;
        let mut sequences = Vec::new();
        let mut found = BTreeSet::new();
        loop {
            let path = format!("/api/sessions/{session}/{list}?limit=1000&after={after}{kinds}");
            let page = client.get(&path).await.ok();
            let entries = page[list].as_array().unwrap();
            for entry in entries {
                sequences.push(entry["sequence"].as_u64().unwrap());
                found.extend(number_of(entry));
            }
            pages += 1;
            after = sequences.last().copied().unwrap();
            if page["hasMore"] == json!(false) {
                break;
            }
            assert!(!entries.is_empty() && pages < PROMPTS, "{list} never ends");
        }
        assert!(pages > 1, "all {list} are in one answer");
        assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "{list}: {sequences:?}");
        assert_eq!(found, (0..PROMPTS).collect(), "{list}");
    }
    // A list says whether there are more, also if it is cut because no more were asked for.
    for (list, kinds) in [("messages", ""), ("events", "&type=prompt")] {
        let path = format!("/api/sessions/{session}/{list}?{}", kinds.trim_start_matches('&'));
        let (mut after, mut count) = (0, 0);
        loop {
            let page = client.get(&format!("{path}&after={after}&limit=1")).await.ok();
            let entries = page[list].as_array().unwrap();
            assert_eq!(entries.len(), 1, "{list}: one is promised after {after}");
            after = entries[0]["sequence"].as_u64().unwrap();
            count += usize::from(number_of(&entries[0]).is_some());
            if page["hasMore"] == json!(false) {
                break;
            }
        }
        assert_eq!(count, PROMPTS, "{list}");
        let none = client.get(&format!("{path}&after={after}")).await.ok();
        assert_eq!((&none[list], &none["hasMore"]), (&json!([]), &json!(false)), "{list}");
    }
    client.delete(&format!("/api/sessions/{session}")).await.ok();
    served.end().await;
}

/// Which of the prompts an entry tells of.
fn number_of(entry: &Value) -> Option<usize> {
    let told = entry.get("content").or(entry.get("data"))?.as_str()?;
    let number = told.split_once("prompt ")?.1.split(' ').next()?;
    number.parse().ok()
}
