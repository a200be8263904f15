//! What an agent can do to its own home that would keep its program from writing, or from starting.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

type Obstacle = fn(&Path);

const PROJECT: &str = ".claude/projects/-workspace";

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

const OBSTACLES: [(&str, Obstacle); 8] = [
    ("settings that lead elsewhere", |home| {
        let env = serde_json::json!({
            "CLAUDE_CONFIG_DIR": "/tmp/elsewhere", "CLAUDE_CODE_USE_BEDROCK": "1",
            "CLAUDE_CODE_USE_FOUNDRY": "1", "CLAUDE_CODE_USE_MANTLE": "1", "CLAUDE_CODE_USE_GATEWAY": "1",
            "CLAUDE_CODE_USE_ANTHROPIC_AWS": "1", "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD": "1",
            "ANTHROPIC_UNIX_SOCKET": "/tmp/elsewhere.sock", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "x",
        });
        let settings = serde_json::json!({ "env": env }).to_string();
        fs::write(home.join(".claude/settings.json"), settings).unwrap();
    }),
    ("a list of servers that is none", |home| {
        fs::write(home.with_file_name("workspace").join(".mcp.json"), "{").unwrap();
    }),
    ("settings that are damaged", |home| {
        fs::write(home.join(".claude/.claude.json"), "{{{").unwrap();
    }),
    ("a project without rights", |home| allow(&home.join(PROJECT), 0o000)),
    ("a link in the place of the project", |home| {
        fs::remove_dir_all(home.join(PROJECT)).unwrap();
        symlink("/", home.join(PROJECT)).unwrap();
    }),
    ("a file in the place of all of it", |home| {
        fs::remove_dir_all(home.join(".claude")).unwrap();
        fs::write(home.join(".claude"), "").unwrap();
    }),
    ("a record that cannot be read", |home| allow(&home.join(".ash/conversation.jsonl"), 0o000)),
    ("a record that cannot be written", |home| {
        allow(&home.join(".ash/conversation.jsonl"), 0o400);
    }),
];

#[tokio::test]
async fn what_is_in_the_way_of_the_program_is_put_aside_and_nothing_is_forgotten() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    for (turns, (obstacle, put)) in (1..).zip(OBSTACLES) {
        stop(&world, session).await;
        put(&world.host.home(session));
        let receipt = resume(&world, session).await;
        assert_eq!(told(&receipt), (Native::Intact, turns, turns), "{obstacle}");
        remembers(&world, session, obstacle).await;
    }
    world.end().await;
}

#[tokio::test]
async fn a_turn_that_could_not_be_written_down_is_told_to_the_agent_with_the_next_one() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let second = "The second is FIG.\n/bash chmod 400 ~/.claude/projects/-workspace/*.jsonl\n/say I keep that.";
    let turn = world.say(session, second).await;
    let notices = turn.outputs("notice");
    let is_told =
        notices.iter().any(|notice| notice.to_string().contains("is not in the transcript"));
    assert!(is_told, "{notices:?}");
    // With the program that is started for the next message, and with one of another sandbox.
    for context in ["at once", "after a stop"] {
        remembers(&world, session, context).await;
        // In the history, or quoted before the question: as much of it as was written down in time.
        let sent = world.requests().last().unwrap().body["messages"].to_string();
        assert!(sent.contains("The second is FIG."), "{context}: {sent}");
        stop(&world, session).await;
        resume(&world, session).await;
    }
    world.end().await;
}
