//! What an agent says of its own accord, as clients see it.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::served::Served;
use crate::claude_program::claude_program;
use crate::world::can_isolate;

#[tokio::test]
async fn followers_see_what_is_said_without_a_run_and_streams_of_runs_do_not_have_it() {
    let (Some(claude), true) = (claude_program(), can_isolate()) else { return };
    let served = Served::start().await;
    claude.install_into(&served.dir.join("data"));
    let client = &served.client;
    let file = |(path, content): (&str, &str)| json!({ "path": path, "content": BASE64_STANDARD.encode(content) });
    let files = [("CLAUDE.md", "You are tested."), ("ash.toml", "runtime = \"claude\"\n")];
    let deploy = json!({ "name": "coder", "files": files.map(file) });
    client.post("/api/agents", &deploy).await.ok();
    let made = client.post("/api/sessions", &json!({ "agent": "coder" })).await.ok();
    let session = made["session"]["id"].as_str().unwrap().to_owned();
    let at = |rest: &str| format!("/api/sessions/{session}{rest}");

    let call = json!({
        "command": "until test -e go; do sleep 0.1; done; echo boiled",
        "description": "Wait for the kettle", "run_in_background": true,
    });
    let told = client.say(&session, &format!("Start.\n/tool Bash {call}\n/say it runs")).await;
    assert_eq!(told.all().await.last().unwrap().event, "done");
    client.post(&at("/exec"), &json!({ "command": "touch go" })).await.ok();

    // Nobody has sent a message.
    let mut followed = client.follow(&session, "after=0").await;
    let aside = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let frame = followed.until("aside").await.pop().unwrap();
            if frame.data["name"] == "message" && frame.data["body"]["type"] == "assistant" {
                return frame;
            }
        }
    });
    let aside = aside.await.expect("it is told without a message");
    assert!(aside.id.is_some(), "{aside:?}");
    assert_eq!((&aside.data["turn"], aside.data.get("runId")), (&json!(1), None), "{aside:?}");

    let listed = client.get(&at("/events?type=aside")).await.ok();
    let listed = listed["events"].as_array().unwrap().clone();
    let is_it = |event: &Value| event["cursor"].as_str() == aside.id.as_deref();
    assert!(listed.iter().any(is_it), "{listed:?}");
    assert!(!Value::from(listed).to_string().contains("parentUuid"), "the transcript is not shown");
    // Clients of the original see the types that they know.
    let known = client.get(&at("/events")).await.ok().to_string();
    assert!(!known.contains("\"aside\""), "{known}");
    let messages = client.get(&at("/messages")).await.ok();
    let said = messages["messages"].as_array().unwrap().clone();
    let said = said.iter().find(|message| is_it(message)).expect("it is one of the conversation");
    assert_eq!(said["role"], "assistant");

    let next = client.say(&session, "And now?\n/say the next").await.all().await;
    assert!(next.iter().all(|frame| frame.event != "aside"), "{next:?}");
    served.end().await;
}
