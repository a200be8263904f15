//! A program that is killed when it has said its last word, and is not at rest yet.

use std::fs;

use super::strange::with_program;
use super::*;

/// A program that says its answer, repeats it or not, says its result, and is killed; the second time it lives.
fn killed_after_its_result(mirror: &str) -> String {
    let initialized = r#"echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'"#;
    let state = |state: &str| {
        format!(r#"echo '{{"type":"system","subtype":"session_state_changed","state":"{state}"}}'"#)
    };
    let (running, idle) = (state("running"), state("idle"));
    let said = r#"echo '{"type":"assistant","uuid":"a1","message":{"role":"assistant","content":[{"type":"text","text":"fine"}]}}'"#;
    let result = r#"echo '{"type":"result","subtype":"success","is_error":false,"result":"fine","num_turns":1,"usage":{"input_tokens":3,"output_tokens":5}}'"#;
    format!(
        "read line; {initialized}\nread -r line\n{running}\n{said}\n{mirror}\n{result}\n\
         test -e \"$0.again\" || {{ touch \"$0.again\"; kill -9 $$; }}\n{idle}\ncat > /dev/null"
    )
}

const MIRROR: &str = r#"echo '{"type":"transcript_mirror","filePath":"/x/11111111-2222-4333-8444-555555555555.jsonl","entries":[{"type":"assistant","uuid":"a1","parentUuid":null}]}'"#;

#[tokio::test]
async fn a_run_whose_last_word_is_written_down_is_completed_whatever_becomes_of_its_program() {
    let (world, dir) = with_program(&killed_after_its_result(MIRROR)).await;
    let session = world.session().await;
    let run = world.prompt(session, "Hello.").await.run;
    let record = world.ended(session, run).await;
    assert!(dir.path().join("claude.again").exists(), "it was killed");
    assert_eq!(record.status, RunStatus::Completed, "{:?}", record.failure);
    assert_eq!((record.usage.input_tokens, record.usage.output_tokens), (3, 5));
    let run = world.prompt(session, "Again.").await.run;
    assert_eq!(ended(&world, session, run).await, RunStatus::Completed);
    world.end().await;
}

#[tokio::test]
async fn a_run_of_which_something_is_missing_is_not_said_to_be_whole() {
    let tasks =
        r#"echo '{"type":"system","subtype":"background_tasks_changed","tasks":[{"id":"1"}]}'"#;
    let at_work = format!("{MIRROR}\n{tasks}");
    for (mirror, why) in [("", "before its last word"), (at_work.as_str(), "went on")] {
        let (world, _dir) = with_program(&killed_after_its_result(mirror)).await;
        let session = world.session().await;
        let run = world.prompt(session, "Hello.").await.run;
        let record = world.ended(session, run).await;
        assert_eq!(record.status, RunStatus::Failed);
        let told = format!("{:?}", record.failure);
        assert!(told.contains("signal 9") && told.contains(why), "{told}");
        world.end().await;
    }
}

/// The real program, whose output ends, as it does itself, when it has said its result and repeated its last message: before
/// it says that it is at rest.
const CUT: &str = r#"import json, os, subprocess, sys
program = subprocess.Popen([REAL, *sys.argv[1:]], stdout=subprocess.PIPE)
last, mirrored, ended = None, set(), False
for line in program.stdout:
    said = json.loads(line)
    if not os.path.exists(sys.argv[0] + ".cut"):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        continue
    kind = said.get("type")
    if kind == "system" and said.get("subtype") == "session_state_changed" and said.get("state") == "idle":
        continue
    if kind == "assistant":
        last = said["uuid"]
    if kind == "transcript_mirror":
        mirrored.update(entry.get("uuid") for entry in said["entries"])
    ended = ended or kind == "result"
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    if ended and last in mirrored:
        os.unlink(sys.argv[0] + ".cut")
        program.kill()
        os.kill(os.getpid(), 9)
"#;

#[tokio::test]
async fn the_program_can_be_killed_right_after_its_result_and_nothing_is_lost() {
    let Some(program) = crate::claude_program::claude_program() else { return };
    let (world, dir) = with_program("exit 7").await;
    let path = dir.path().join("claude");
    let real = serde_json::json!(program.path);
    fs::write(&path, format!("#!/usr/bin/env python3\nREAL = {real}\n{CUT}")).unwrap();
    let session = planted(&world).await;
    for number in 1..=3 {
        fs::write(dir.path().join("claude.cut"), "").unwrap();
        let turn = world.say(session, &format!("Word {number}.\n/say the last of {number}")).await;
        assert!(!dir.path().join("claude.cut").exists(), "it was killed");
        assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
        assert!(turn.record.usage.output_tokens > 0, "{:?}", turn.record.usage);
        remembers(&world, session, "killed after its result").await;
        let sent = world.requests().last().unwrap().body["messages"].to_string();
        assert!(sent.contains(&format!("the last of {number}")), "{sent}");
        assert!(!sent.contains("was cut off"), "nothing was cut: {sent}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_message_that_was_cut_before_it_was_seen_is_quoted_and_not_done() {
    let Some(program) = crate::claude_program::claude_program() else { return };
    let initialized = r#"echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'"#;
    let real = program.path.display();
    let (world, dir) = with_program(&format!(
        "if test -e \"$0.cut\"; then\n  read line; {initialized}\n  read -r line; kill -9 $$\nfi\n\
         exec '{real}' \"$@\""
    ))
    .await;
    let session = planted(&world).await;
    fs::write(dir.path().join("claude.cut"), "").unwrap();
    // Another setting, for which the program is started again.
    let prompt = serde_json::json!({ "content": "Sing.\n/say tralala", "maxTurns": 5 });
    let run = world.prompt_json(session, ash_core::json::Json::of(&prompt).unwrap()).await.run;
    assert_eq!(ended(&world, session, run).await, RunStatus::Failed);
    fs::remove_file(dir.path().join("claude.cut")).unwrap();
    let turn = remembers(&world, session, "killed before it saw the message").await;
    assert!(!turn.text().contains("tralala"), "{}", turn.text());
    let sent = world.requests().last().unwrap().body["messages"].to_string();
    assert!(sent.contains("> Sing.\\n> /say tralala"), "{sent}");
    world.end().await;
}
