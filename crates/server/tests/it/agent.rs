//! Whole turns: from a prompt through engine, bridge, tools and model, and back into the log.

use ash_core::entry::Entry;
use ash_core::json::Json;
use ash_core::refusal::Refusal;
use ash_core::run::RunStatus;
use ash_engine::{EngineError, SandboxHost as _};
use ash_protocol::{ExecEnd, ExecRequest, Limits};

use crate::world::{KEY, World, processes_of, tenant, until};
use ash_engine::bridge::Enclosure;

#[tokio::test]
async fn a_prompt_is_answered_and_the_conversation_goes_on() {
    let world = World::start().await;
    let session = world.session().await;
    let first = world.say(session, "My name is Ada.").await;
    assert_eq!(first.status, RunStatus::Completed);
    assert!(first.text().contains("My name is Ada."), "{}", first.text());
    let second = world.say(session, "Who am I?\n/recall").await;
    assert!(second.text().contains("My name is Ada."), "{}", second.text());
    let transcripts = second.outputs("transcript");
    assert_eq!(transcripts[0]["turns"], 2);
    let file = std::fs::read(world.host.home(session).join(".ash/conversation.jsonl")).unwrap();
    assert_eq!(transcripts[0]["bytes"], file.len());
    assert_eq!(transcripts[0]["blake3"], blake3::hash(&file).to_hex().as_str());
    world.end().await;
}

#[tokio::test]
async fn tools_work_in_the_workspace_and_everything_is_an_event() {
    let world = World::start().await;
    let session = world.session().await;
    let turn = world
        .say(
            session,
            "/think I will write a file.\n/say Writing.\n/tool write_file {\"path\": \"notes/a.txt\", \"content\": \"one\"}\n/bash cat notes/a.txt && pwd\n/say Done.",
        )
        .await;
    assert_eq!(turn.status, RunStatus::Completed);
    let workspace = world.host.workspace(session);
    assert_eq!(std::fs::read_to_string(workspace.join("notes/a.txt")).unwrap(), "one");
    let results = turn.outputs("tool_result");
    assert_eq!(results.len(), 2);
    let seen = match world.enclosure {
        Enclosure::Nothing => workspace.to_str().unwrap(),
        Enclosure::Sandbox(_) => "/workspace",
    };
    assert!(results[1].to_string().contains(seen), "{}", results[1]);
    let phases: Vec<_> = turn
        .entries
        .iter()
        .filter_map(|entry| match &entry.entry {
            Entry::Phase { phase, round, .. } => Some((phase.as_str(), *round)),
            _ => None,
        })
        .collect();
    assert_eq!(
        phases,
        [
            ("streaming_llm", 1),
            ("executing_tools", 1),
            ("streaming_llm", 2),
            ("executing_tools", 2),
            ("streaming_llm", 3)
        ]
    );
    let kinds = turn.kinds();
    // Three answers, the results of two of them, and the result of the run.
    assert_eq!(kinds.iter().filter(|kind| **kind == "message").count(), 6, "{kinds:?}");
    assert_eq!(turn.outputs("turn_complete")[0]["numTurns"], 3);
    assert!(kinds.contains(&"thinking_delta"), "{kinds:?}");
    assert_eq!(turn.record.usage.tool_calls, 2);
    assert!(turn.record.usage.output_tokens > 0);
    world.end().await;
}

#[tokio::test]
async fn a_coder_works_in_a_loop_of_its_own_and_reports_its_memory() {
    let world = World::start().await;
    let session = world.session().await;
    let task = "Write it.\\n/tool update_memory {\\\"plan\\\": \\\"write, then check\\\", \\\"openTasks\\\": [\\\"check\\\"]}\\n/tool write_file {\\\"path\\\": \\\"b.txt\\\", \\\"content\\\": \\\"two\\\"}\\n/say The coder is done.";
    let prompt = format!("/tool delegate_coder {{\"task\": \"{task}\"}}\n/results");
    let turn = world.say(session, &prompt).await;
    assert_eq!(turn.status, RunStatus::Completed, "{turn:#?}");
    assert!(turn.text().contains("The coder is done."), "{}", turn.text());
    assert_eq!(
        std::fs::read_to_string(world.host.workspace(session).join("b.txt")).unwrap(),
        "two"
    );
    let memories = turn.outputs("working_memory");
    let coder: Vec<_> = memories.iter().filter(|memory| memory["scope"] == "coder").collect();
    assert!(coder.iter().any(|memory| memory["plan"] == "write, then check"), "{memories:#?}");
    assert!(coder.iter().any(|memory| memory["filesTouched"][0] == "b.txt"), "{memories:#?}");
    let delegating = |entry: &Entry| matches!(entry, Entry::Phase { phase, .. } if phase.as_str() == "delegating_coder");
    assert!(turn.entries.iter().any(|entry| delegating(&entry.entry)));
    world.end().await;
}

#[tokio::test]
async fn the_key_is_added_outside_and_nothing_of_the_servers_environment_is_inside() {
    let world = World::start().await;
    let session = world.session().await;
    let turn = world.say(session, "/bash env\n/results").await;
    let requests = world.requests();
    assert!(!requests.is_empty());
    for request in &requests {
        let key = request.key.as_ref().map(ash_server::model::Key::reveal);
        assert_eq!(key, Some(KEY), "the model was asked without the key");
    }
    let printed = turn.outputs("tool_result")[0].to_string();
    assert!(printed.contains("GREETING=hello"), "{printed}");
    assert!(!printed.contains(KEY), "{printed}");
    let names: Vec<&str> = turn_env(&printed);
    for name in &names {
        let allowed =
            ["PATH", "HOME", "LANG", "TERM", "GREETING", "PWD", "SHLVL", "_", "OLDPWD", "USER"];
        assert!(allowed.contains(name), "{name} is in the environment: {printed}");
    }
    // Not in the bridge either, nor anywhere it left something.
    let pid = world.host.bridge_of(world.sandbox(session).await).unwrap();
    let environ = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    for line in environ.split('\0').filter(|line| !line.is_empty()) {
        let name = line.split('=').next().unwrap();
        assert!(["PATH", "HOME", "LANG", "TERM"].contains(&name), "the bridge has {line}");
    }
    for file in files_below(&world.dir.join("data")) {
        let content = std::fs::read(&file).unwrap();
        let found = content.windows(KEY.len()).any(|window| window == KEY.as_bytes());
        assert!(!found, "{} has the key", file.display());
    }
    world.end().await;
}

/// The names in the output of `env`, as it stands in a JSON string.
fn turn_env(printed: &str) -> Vec<&str> {
    printed
        .split(['"', '\\'])
        .map(|line| line.strip_prefix('n').unwrap_or(line))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name))
        .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .collect()
}

fn files_below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_below(&entry.path()));
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    found
}

#[tokio::test]
async fn a_cut_answer_is_retracted_and_repeated() {
    let world = World::start().await;
    let session = world.session().await;
    let turn = world.say(session, "/cut after 2 times 1\n/say one two three four five").await;
    assert_eq!(turn.status, RunStatus::Completed);
    assert!(turn.kinds().contains(&"run_retry"), "{:?}", turn.kinds());
    assert_eq!(turn.text(), "one two three four five");
    world.end().await;
}

#[tokio::test]
async fn every_way_a_model_can_fail_ends_the_run_with_a_reason() {
    let world = World::start().await;
    let session = world.session().await;
    let cases = [
        ("/error 400 message \"no such thing\"", "no such thing"),
        ("/error 401", "401"),
        ("/html 200", "<"),
        ("/html 404", "404"),
    ];
    for (script, reason) in cases {
        let turn = world.say(session, script).await;
        assert_eq!(turn.status, RunStatus::Failed, "{script}");
        let failure = turn.record.failure.clone().expect("a failure has a reason");
        assert!(failure.message.contains(reason), "{script}: {}", failure.message);
    }
    let after = world.say(session, "/say still here").await;
    assert_eq!((after.status, after.text().as_str()), (RunStatus::Completed, "still here"));
    world.end().await;
}

#[tokio::test]
async fn an_interrupt_ends_a_run_wherever_it_is() {
    let world = World::start().await;
    let session = world.session().await;
    let streaming = "/slow 20ms\n/endless words ";
    let tool = "/bash echo started > started; exec 3< /dev/zero; while :; do :; done";
    let hanging = "/hang";
    let coder = "/tool delegate_coder {\"task\": \"/endless code \"}";
    for (script, wanted) in
        [(streaming, "text_delta"), (tool, "output"), (hanging, "phase"), (coder, "output")]
    {
        let accepted = world.prompt(session, script).await;
        world
            .log_until(session, |entry| entry.run() == Some(accepted.run) && entry.kind() == wanted)
            .await;
        world.engine.interrupt(&tenant(), session, None).await.unwrap();
        let turn = world.turn(session, accepted).await;
        assert_eq!(turn.status, RunStatus::Cancelled, "{script}");
        assert_eq!(turn.record.stop_reason.as_deref(), Some("interrupted"));
    }
    let after = world.say(session, "/recall").await;
    assert_eq!(after.status, RunStatus::Completed);
    world.end().await;
}

#[tokio::test]
async fn a_run_that_waits_is_interrupted_without_the_one_before_it() {
    let world = World::start().await;
    let session = world.session().await;
    let hold = "/bash while [ ! -e go ]; do sleep 0.02; done\n/say first";
    let first = world.prompt(session, hold).await;
    let runs = |entry: &Entry| matches!(entry, Entry::Output { run, .. } if *run == first.run);
    world.log_until(session, runs).await;
    let second = world.prompt(session, "/say second").await;
    let third = world.prompt(session, "/say third").await;
    let record = world.engine.interrupt(&tenant(), session, Some(second.run)).await.unwrap();
    assert_eq!((record.id, record.status), (second.run, RunStatus::Cancelled));
    assert_eq!(record.stop_reason.as_deref(), Some("interrupted"));
    let again = world.engine.interrupt(&tenant(), session, Some(second.run)).await.unwrap_err();
    assert!(matches!(again, EngineError::Refused(Refusal::NoSuchRun)), "{again:?}");
    // The others do not notice.
    std::fs::write(world.host.workspace(session).join("go"), "").unwrap();
    for (accepted, said) in [(first, "first"), (third, "third")] {
        let turn = world.turn(session, accepted).await;
        assert_eq!((turn.status, turn.text().as_str()), (RunStatus::Completed, said));
    }
    let turn = world.turn(session, second).await;
    assert!(!turn.kinds().contains(&"run_started"), "{:?}", turn.kinds());
    let recalled = world.say(session, "/recall").await.text();
    assert!(!recalled.contains("/say second"), "{recalled}");
    world.end().await;
}

#[tokio::test]
async fn an_interrupt_is_heard_while_the_agent_is_still_being_opened() {
    let world = World::start().await;
    let session = world.session().await;
    let servers = r#"{"mcpServers": {"slow": {"command": "sleep", "args": ["1000"]}}}"#;
    std::fs::write(world.host.workspace(session).join(".mcp.json"), servers).unwrap();
    let sandbox = world.sandbox(session).await;
    let accepted = world.prompt(session, "hello").await;
    let home = world.host.home(session);
    until("the server is being started", || {
        processes_of(&home).iter().any(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|l| l.contains("1000"))
        })
    })
    .await;
    world.engine.interrupt(&tenant(), session, None).await.unwrap();
    assert_eq!(world.turn(session, accepted).await.status, RunStatus::Cancelled);
    assert_eq!(world.sandbox(session).await, sandbox, "it had to be killed to obey");
    world.end().await;
}

#[tokio::test]
async fn a_run_stops_at_its_limits() {
    let limits = Limits { max_rounds: Some(2), ..Limits::default() };
    let world = World::with_limits(limits).await;
    let session = world.session().await;
    let turn = world.say(session, "/bash true\n/bash true\n/bash true\n/say never").await;
    assert_eq!(turn.record.stop_reason.as_deref(), Some("max_turns"));
    world.end().await;

    let limits = Limits { budget_micro_usd: Some(1_000), ..Limits::default() };
    let world = World::with_limits(limits).await;
    let session = world.session().await;
    let turn = world.say(session, "/usage input=1000000 output=10\n/bash true\n/say never").await;
    assert_eq!(turn.record.stop_reason.as_deref(), Some("budget"));
    let after = world.say(session, "/say fresh").await;
    assert_eq!(after.text(), "fresh");
    world.end().await;
}

#[tokio::test]
async fn pictures_and_documents_reach_the_model_as_they_came() {
    let world = World::start().await;
    let session = world.session().await;
    let content = r#"[{"type":"text","text":"/say I see."},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"hello"}}]"#;
    let accepted = world.prompt_json(session, Json::parse(content.to_owned()).unwrap()).await;
    let turn = world.turn(session, accepted).await;
    assert_eq!(turn.text(), "I see.", "{turn:#?}");
    let sent = world.requests().pop().unwrap().body.to_string();
    assert!(sent.contains("iVBORw0KGgo=") && sent.contains("\"document\""), "{sent}");
    world.end().await;
}

#[tokio::test]
async fn a_command_beside_the_agent_is_bounded_and_its_tree_is_killed() {
    let world = World::start().await;
    let session = world.session().await;
    let sandbox = world.sandbox(session).await;
    let exec = |command: &str, timeout_ms| ExecRequest {
        command: command.to_owned(),
        cwd: None,
        timeout_ms,
        max_output_bytes: 1000,
    };
    let result = world.host.exec(sandbox, exec("echo out; echo err >&2; exit 3", 10_000)).await;
    let result = result.unwrap();
    assert_eq!(
        (result.end, result.stdout.as_str(), result.stderr.as_str()),
        (ExecEnd::Exited(3), "out\n", "err\n")
    );
    let flood = world.host.exec(sandbox, exec("yes | head -c 50000000", 60_000)).await.unwrap();
    assert!(flood.stdout.len() <= 1100 && flood.omitted_bytes > 49_000_000, "{flood:?}");
    let stubborn =
        "trap '' TERM; (setsid sh -c \"trap '' TERM; echo x > here; sleep 1000\" &) ; sleep 1000";
    let result = world.host.exec(sandbox, exec(stubborn, 700)).await.unwrap();
    assert_eq!(result.end, ExecEnd::TimedOut);
    let home = world.host.home(session);
    until("the command's tree is gone", || {
        processes_of(&home).iter().all(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            !line.contains("sleep")
        })
    })
    .await;
    world.end().await;
}

/// JSON that one reader takes and the next refuses must not get into the conversation: it would be
/// in every request from then on.
#[tokio::test]
async fn no_input_of_a_tool_spoils_the_turns_after_it() {
    let deep = format!("{{\"x\":{}1{}}}", "[".repeat(130), "]".repeat(130));
    let odd = [
        r#"{"command":"echo \ud83d"}"#,
        r#"{"command":"echo", "\udc00": 1}"#,
        r#"{"command":"echo", "x": 1e400}"#,
        r#"{"command":"echo", "command": "true"}"#,
        r#"{"command": "ec"#,
        "[1]",
        &deep,
    ];
    let world = World::start().await;
    let session = world.session().await;
    for input in odd {
        let turn = world.say(session, &format!("/bad-tool bash {input}\n/say well")).await;
        assert_eq!(turn.status, RunStatus::Completed, "{input}: {:?}", turn.record.failure);
        assert_eq!(turn.text(), "well", "{input}");
    }
    let after = world.say(session, "/say still here").await;
    assert_eq!(after.text(), "still here");
    world.end().await;
}

#[tokio::test]
async fn a_prompt_cannot_be_made_of_what_only_a_model_says() {
    let world = World::start().await;
    let session = world.session().await;
    let big = "x".repeat(2_000_000);
    for block in [
        r#"{"type":"thinking","thinking":"hm","signature":"s"}"#.to_owned(),
        r#"{"type":"tool_use","id":"a","name":"bash","input":{}}"#.to_owned(),
        r#"{"type":"server_tool_use","id":"a","name":"web_search","input":{}}"#.to_owned(),
        format!(r#"{{"type":"tool_result","tool_use_id":"x","content":{{"a":"{big}"}}}}"#),
    ] {
        let content = Json::parse(format!(r#"[{block},{{"type":"text","text":"hi"}}]"#)).unwrap();
        let accepted = world.prompt_json(session, content).await;
        let turn = world.turn(session, accepted).await;
        assert_eq!(turn.status, RunStatus::Failed);
        let why = turn.record.failure.clone().unwrap().message;
        assert!(why.contains("cannot have a block of type"), "{why}");
    }
    assert_eq!(world.say(session, "/say fine").await.text(), "fine");
    world.end().await;
}
