//! What a turn looks like.

use std::os::unix::fs::FileExt as _;

use ash_core::json::Json;
use ash_core::permission::Permission;
use ash_core::run::Phase;
use serde_json::Value;

use super::*;
use crate::world::{KEY, until};

fn phases(turn: &Turn) -> Vec<Phase> {
    let phases = turn.entries.iter().filter_map(|entry| match entry.entry {
        Entry::Phase { phase, .. } => Some(phase),
        _ => None,
    });
    phases.collect()
}

fn messages(turn: &Turn) -> Vec<Value> {
    let bodies = turn.entries.iter().filter_map(|entry| match &entry.entry {
        Entry::Message { body, .. } => Some(serde_json::from_str(body.get()).unwrap()),
        _ => None,
    });
    bodies.collect()
}

#[tokio::test]
async fn a_turn_with_tools_is_told_as_it_happens() {
    let Some(world) = start().await else { return };
    let session = world.session().await;
    let prompt = "Look around.\n/think I should look first.\n/say Let me see.\n/bash echo $HOME > where.txt; pwd\n/say I have seen it.";
    let turn = world.say(session, prompt).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    assert_eq!(turn.text(), "Let me see.I have seen it.");
    assert_eq!(phases(&turn), [Phase::StreamingLlm, Phase::ExecutingTools, Phase::StreamingLlm]);
    let calls = turn.outputs("tool_use");
    assert_eq!((calls.len(), calls[0]["name"].as_str()), (1, Some("Bash")));
    let results = turn.outputs("tool_result");
    assert_eq!(results[0]["tool_use_id"], calls[0]["id"]);
    let place =
        if world.claude.as_ref().unwrap().path.starts_with("/run/ash") { "/workspace" } else { "" };
    assert!(results[0]["content"].as_str().unwrap().contains(place), "{results:?}");
    let messages = messages(&turn);
    let kinds: Vec<&str> =
        messages.iter().map(|message| message["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["assistant", "assistant", "assistant", "assistant", "result"]);
    assert!(messages.iter().all(|message| message["session_id"] == session.to_string()));
    let usage = turn.record.usage;
    assert!(usage.input_tokens > 0 && usage.output_tokens > 0 && usage.cost_micro_usd > 0);
    assert_eq!(usage.tool_calls, 1);
    // What is spent is counted once, though the program tells sums.
    let second = world.say(session, "More.\n/say more").await.record.usage;
    assert!(second.cost_micro_usd < usage.cost_micro_usd, "{second:?} after {usage:?}");
    // The key is outside, and nowhere else.
    let where_to =
        std::fs::read_to_string(world.host.workspace(session).join("where.txt")).unwrap();
    assert!(!where_to.is_empty());
    assert!(searched(&world, session) > 20);
    let sandbox = world.sandbox(session).await;
    stop(&world, session).await;
    // The search lets nobody else work meanwhile.
    until("nothing is left of the sandbox", || world.cgroup(sandbox).is_none()).await;
    assert!(searched(&world, session) > 20);
    world.end().await;
}

/// Searches for the key in every process of a session and in every file that is kept, packed or not. Says in how many.
fn searched(world: &World, session: SessionId) -> usize {
    let mut looked = 0;
    let mut look = |content: &[u8], place: &str| {
        looked += 1;
        assert!(memchr::memmem::find(content, KEY.as_bytes()).is_none(), "{place}");
    };
    for pid in crate::processes::processes_of(&world.host.home(session)) {
        for name in ["environ", "cmdline"] {
            let place = format!("/proc/{pid}/{name}");
            look(&std::fs::read(&place).unwrap_or_default(), &place);
        }
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let Ok(memory) = std::fs::File::open(format!("/proc/{pid}/mem")) else { continue };
        for line in maps.lines().filter(|line| line.contains(" rw")) {
            let (from, to) =
                line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
            let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
            // A piece that is not there cannot be read, and those around it can.
            let mut piece = vec![0; 1 << 20];
            for at in (from..to.min(from + (256 << 20))).step_by(piece.len()) {
                let most = usize::try_from(to - at).unwrap().min(piece.len());
                let read = memory.read_at(&mut piece[..most], at).unwrap_or_default();
                if read > 0 {
                    look(&piece[..read], line);
                }
            }
        }
    }
    let mut directories = vec![world.dir.clone()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            // The program itself is what it was before anybody had a key.
            if kind.is_dir() && !path.ends_with("runtimes") {
                directories.push(path);
            } else if kind.is_file() {
                let (content, place) =
                    (std::fs::read(&path).unwrap_or_default(), path.display().to_string());
                look(&content, &place);
                look(&zstd::stream::decode_all(&content[..]).unwrap_or_default(), &place);
            }
        }
    }
    looked
}

#[tokio::test]
async fn an_agent_s_agent_is_part_of_the_turn() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let task = serde_json::json!({
        "description": "d", "subagent_type": "general-purpose",
        "prompt": "Do this.\n/bash echo sub > sub.txt\n/say it is done",
    });
    let turn = world.say(session, &format!("Have it done.\n/tool Task {task}\n/say I wait.")).await;
    assert_eq!(turn.status, RunStatus::Completed, "{}", said(&turn));
    assert!(phases(&turn).contains(&Phase::DelegatingCoder), "{:?}", phases(&turn));
    let sub = world.host.workspace(session).join("sub.txt");
    assert_eq!(std::fs::read_to_string(sub).unwrap(), "sub\n", "the turn is not over before");
    assert!(
        turn.outputs("coder_message")
            .iter()
            .any(|message| message.to_string().contains("it is done"))
    );
    remembers(&world, session, "after an agent's agent").await;
    world.end().await;
}

#[tokio::test]
async fn an_interrupt_ends_a_turn_and_a_second_message_waits_for_the_first() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let slow =
        world.prompt(session, "Go on.\n/say begin\n/slow 100ms\n/repeat 600 word ").await.run;
    let next = world.prompt(session, "And then?\n/say the second").await;
    until_logged(
        &world,
        session,
        |entry| matches!(entry, Entry::TextDelta { run, .. } if *run == slow),
    )
    .await;
    let record = world.engine.interrupt(&tenant(), session, Some(slow)).await.unwrap();
    assert_eq!(record.status, RunStatus::Cancelled);
    let turn = world.turn(session, next).await;
    assert_eq!((turn.status, turn.text().as_str()), (RunStatus::Completed, "the second"));
    // In a tool as well, and what it ran is gone.
    let tool =
        world.prompt(session, "Work.\n/bash python3 -c 'import time; time.sleep(987)'").await.run;
    until_logged(&world, session, |entry| {
        matches!(entry, Entry::Phase { run, phase: Phase::ExecutingTools, .. } if *run == tool)
    })
    .await;
    let record = world.engine.interrupt(&tenant(), session, None).await.unwrap();
    assert_eq!(record.status, RunStatus::Cancelled);
    remembers(&world, session, "after an interrupt").await;
    assert_eq!(programs(&world, session).len(), 1, "it is the same program");
    world.end().await;
}

#[tokio::test]
async fn options_of_a_message_hold_for_its_run() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let say = async |options: Value| {
        let accepted = world.prompt_json(session, Json::of(&options).unwrap()).await;
        world.turn(session, accepted).await
    };
    let calls = "Work.\n/bash true\n/bash true\n/bash true\n/say x";
    let turn = say(serde_json::json!({ "content": calls, "maxTurns": 2 })).await;
    assert_eq!(turn.record.stop_reason.as_deref(), Some("max_turns"));
    let turn = say(serde_json::json!({ "content": calls, "maxBudgetUsd": 0.000_001 })).await;
    assert_eq!(turn.record.stop_reason.as_deref(), Some("budget"));
    let asked = world.requests().len();
    let turn = say(serde_json::json!({ "content": calls, "maxBudgetUsd": 0 })).await;
    assert_eq!(turn.record.stop_reason.as_deref(), Some("budget"));
    assert_eq!(world.requests().len(), asked, "the model was not asked");
    say(serde_json::json!({ "content": "Hi.\n/say hi", "maxThinkingTokens": 2000 })).await;
    let sent = world.requests().last().unwrap().body.clone();
    assert_eq!(sent["thinking"]["budget_tokens"], 2000, "{}", sent["thinking"]);
    say(serde_json::json!({ "content": "Hi.\n/say hi", "model": "claude-haiku-4-5" })).await;
    let sent = world.requests().last().unwrap().body.clone();
    assert!(sent["model"].as_str().unwrap().contains("haiku"), "{}", sent["model"]);
    // What it calls so by itself, and talks to in other words.
    for model in ["opus", "sonnet", "haiku"] {
        let turn = say(serde_json::json!({ "content": "Hi.\n/say hi", "model": model })).await;
        assert_eq!((turn.status, turn.text().as_str()), (RunStatus::Completed, "hi"), "{model}");
    }
    let blocks = serde_json::json!([
        { "type": "text", "text": "What is this?\n/say a dot" },
        { "type": "image", "source": { "type": "base64", "media_type": "image/png",
          "data": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==" } },
    ]);
    let turn = say(serde_json::json!({ "content": blocks })).await;
    assert_eq!(turn.text(), "a dot", "{}", said(&turn));
    assert!(world.requests().last().unwrap().body.to_string().contains("image/png"));
    remembers(&world, session, "after all of that").await;
    world.end().await;
}

#[tokio::test]
async fn a_question_is_put_to_a_person_who_decides() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    let ask = async |command: &str| {
        let content = format!("Work.\n/bash {command}\n/results");
        let prompt = serde_json::json!({ "content": content, "permissionMode": "default" });
        let accepted = world.prompt_json(session, Json::of(&prompt).unwrap()).await;
        let deadline = deadline();
        loop {
            let questions = world.engine.questions(&tenant(), session).await.unwrap();
            if let [question] = &questions[..] {
                assert_eq!(question.tool, "Bash");
                return (accepted, question.open.id);
            }
            assert!(Instant::now() < deadline, "nobody is asked");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (accepted, question) = ask("touch first; python3 -c pass").await;
    let decision = Permission::Allow { input: None };
    world.engine.answer(&tenant(), session, question, decision).await.unwrap();
    assert_eq!(world.turn(session, accepted).await.status, RunStatus::Completed);
    assert!(world.host.workspace(session).join("first").exists());

    let (accepted, question) = ask("touch second; python3 -c pass").await;
    let decision = Permission::Deny { message: Some("not on a Sunday".to_owned()) };
    world.engine.answer(&tenant(), session, question, decision).await.unwrap();
    let turn = world.turn(session, accepted).await;
    assert!(turn.text().contains("not on a Sunday"), "{}", turn.text());
    assert!(!world.host.workspace(session).join("second").exists());

    // Interrupted, it is taken back.
    let (accepted, _) = ask("touch third; python3 -c pass").await;
    world.engine.interrupt(&tenant(), session, None).await.unwrap();
    assert_eq!(world.turn(session, accepted).await.status, RunStatus::Cancelled);
    assert!(world.engine.questions(&tenant(), session).await.unwrap().is_empty());
    remembers(&world, session, "after questions").await;
    world.end().await;
}

#[tokio::test]
async fn thirty_turns_and_it_knows_the_first() {
    let Some(world) = start().await else { return };
    let session = planted(&world).await;
    for number in 2..=30 {
        let turn = world.say(session, &format!("Turn {number}.\n/say this is {number}")).await;
        assert_eq!(turn.text(), format!("this is {number}"));
        if number % 10 == 0 {
            stop(&world, session).await;
            assert_eq!(told(&resume(&world, session).await), (Native::Intact, number, number));
        }
    }
    remembers(&world, session, "after thirty turns").await;
    world.end().await;
}
