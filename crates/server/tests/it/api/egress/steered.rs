//! What the files of an agent and the instructions of a session may be, and what they may not change.

use serde_json::{Value, json};

use super::super::cloud::until;
use super::{deploy_files, served};
use crate::claude_program::claude_program;
use crate::world::can_isolate;

/// Settings of an agent that want its model elsewhere, and nothing written down; and something that they may want.
const SETTINGS: &str = r#"{"env": { "MARK": "seen",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "CLAUDE_CODE_SKIP_PROMPT_HISTORY": "1" }}"#;

#[tokio::test]
async fn settings_of_an_agent_lead_its_model_nowhere_and_long_instructions_reach_it() {
    let (Some(claude), true) = (claude_program(), can_isolate()) else { return };
    let served = served(&[("ASH_MAX_PREWARMED", "2")]).await;
    claude.install_into(&served.dir.join("data"));
    let files = [
        ("CLAUDE.md", "You are tested."),
        ("ash.toml", "runtime = \"claude\"\negress = [\"example.org\"]\n"),
        (".claude/settings.json", SETTINGS),
    ];
    deploy_files(&served.client, "coder", &files).await;
    until("one waits", async || served.client.get("/health").await.ok()["pool"]["preWarmed"] == 1)
        .await;
    // Longer than an argument of a program can be.
    let instructions = format!("{} and at last: speak of shelf 4711", "word ".repeat(30_000));
    let env = json!({ "NO_PROXY": "internal.example" });
    let create = json!({ "agent": "coder", "systemPrompt": instructions, "extraEnv": env });
    let made = served.client.post("/api/sessions", &create).await.ok();
    let session = made["session"]["id"].as_str().unwrap().to_owned();

    let say = async |prompt: &str| -> String {
        let told = served.client.say(&session, prompt).await.all().await;
        let done = told.iter().find(|frame| frame.event == "done").map(|frame| &frame.data);
        assert_eq!(done.unwrap()["stopReason"], "end_turn", "{told:?}");
        let deltas = told.iter().filter(|frame| frame.event == "text_delta");
        deltas.filter_map(|frame| frame.data["delta"].as_str()).collect()
    };
    say("The codeword is PLUM.\n/say I keep it in mind.").await;
    let system: Value = served.model.requests().last().unwrap().body["system"].clone();
    assert!(system.to_string().contains("speak of shelf 4711"));
    // Also one that waited before it had the agent's files reads them.
    let messages = served.model.requests().last().unwrap().body["messages"].to_string();
    assert!(messages.contains("You are tested."), "{messages}");
    let told = say("What is it?\n/bash echo \"it is $MARK\"\n/results").await;
    assert!(told.contains("it is seen"), "{told}");

    // It was written down, or another sandbox would not know of it.
    served.client.post(&format!("/api/sessions/{session}/stop"), &json!({})).await.ok();
    let back =
        served.client.post(&format!("/api/sessions/{session}/resume"), &json!({})).await.ok();
    assert_eq!(back["resume"]["conversation"]["native"], "intact", "{back}");
    let answer = say("Which codeword?\n/recall").await;
    assert!(answer.contains("The codeword is PLUM."), "{answer}");
    served.end().await;
}
