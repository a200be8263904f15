//! What a session asks of its agent: instructions, servers, and which tools it may use.

use serde_json::{Value, json};

use crate::fake::{Bench, Reply, local, raw, run, text, tools};

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|&name| name.to_owned()).collect()
}

/// The names of the tools that the `at`-th request offers.
fn offered(bench: &Bench, at: usize) -> Vec<String> {
    let tools = bench.model.requests()[at]["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn system(bench: &Bench, at: usize) -> String {
    bench.model.requests()[at]["system"][0]["text"].as_str().unwrap().to_owned()
}

fn notices(told: &crate::fake::Told) -> Vec<String> {
    let notices = told.outputs("notice").into_iter();
    notices.map(|notice| notice["message"].as_str().unwrap().to_owned()).collect()
}

async fn bench(replies: Vec<Reply>, allowed: &[&str], disallowed: &[&str]) -> Bench {
    let mut bench = Bench::new(replies).await;
    bench.settings.allowed_tools = names(allowed);
    bench.settings.disallowed_tools = names(disallowed);
    bench
}

#[test]
fn the_sessions_instructions_follow_the_projects_for_the_agent_and_its_coders() {
    local(async {
        let delegate = tools(&[("d", "delegate_coder", json!({ "task": "look" }))]);
        let mut bench = Bench::new(vec![delegate, text("seen"), text("ok"), text("ok")]).await;
        bench.write("CLAUDE.md", "Use tabs.");
        bench.settings.system_prompt = Some("Answer in French.\n".to_owned());
        bench.turn(json!("go")).await;
        for at in 0..3 {
            let system = system(&bench, at);
            let (project, session) =
                (system.find("\nUse tabs.\n\n").unwrap(), system.find(":\nAnswer in French."));
            assert!(session.unwrap() > project, "{system}");
            assert!(system.contains("The workspace is "), "{system}");
        }
        bench.settings.system_prompt = Some("  ".to_owned());
        bench.turn(json!("go on")).await;
        assert!(!system(&bench, 3).contains("this session"), "{}", system(&bench, 3));
    });
}

#[test]
fn only_what_is_allowed_and_not_disallowed_is_offered() {
    local(async {
        let bench = bench(vec![text("ok")], &["Read", "bash", "Task"], &["Bash"]).await;
        let told = bench.turn(json!("go")).await;
        assert_eq!(offered(&bench, 0), ["read_file", "delegate_coder"]);
        assert_eq!(notices(&told), Vec::<String>::new());
        let system = system(&bench, 0);
        assert!(system.contains("delegate_coder"), "{system}");
        assert!(!system.contains("update_memory"), "it is told of what it has not: {system}");
    });
}

#[test]
fn a_tool_that_is_not_offered_is_not_run() {
    local(async {
        let calls = tools(&[
            ("a", "bash", json!({ "command": "touch made" })),
            ("b", "write_file", json!({ "path": "made", "content": "" })),
            ("c", "update_memory", json!({ "plan": "none" })),
            ("d", "delegate_coder", json!({ "task": "write it" })),
            ("e", "list_files", json!({})),
        ]);
        let bench = bench(vec![calls, text("well")], &["LS"], &[]).await;
        let told = bench.turn(json!("go")).await;
        let results = told.outputs("tool_result");
        let errors: Vec<&Value> = results.iter().map(|result| &result["is_error"]).collect();
        assert_eq!(errors, [true, true, true, true, false], "{results:#?}");
        let said = results[0].to_string();
        assert!(
            said.contains("there is no tool") && said.contains("there are: list_files"),
            "{said}"
        );
        assert!(!bench.settings.workspace.join("made").exists());
        assert_eq!(bench.model.requests().len(), 2, "no coder was asked");
        assert_eq!(told.outputs("tool_use").len(), 5);
        let memory = told.outputs("working_memory");
        assert!(memory.iter().all(|memory| memory["plan"] != "none"), "{memory:#?}");
    });
}

#[test]
fn a_coder_has_no_more_tools_than_who_sent_it() {
    local(async {
        let delegate = tools(&[("d", "delegate_coder", json!({ "task": "write" }))]);
        let write = tools(&[("w", "write_file", json!({ "path": "made", "content": "" }))]);
        let bench =
            bench(vec![delegate, write, text("could not"), text("ok")], &[], &["Write"]).await;
        bench.turn(json!("go")).await;
        assert_eq!(
            offered(&bench, 1),
            ["bash", "read_file", "edit_file", "list_files", "update_memory"]
        );
        assert!(bench.sent(2)[2].to_string().contains("there is no tool"), "{:?}", bench.sent(2));
        assert!(!bench.settings.workspace.join("made").exists());
    });
}

#[test]
fn a_name_that_fits_no_tool_is_told_once() {
    local(async {
        let bench = bench(vec![text("ok"), text("ok")], &["Read", "WebFetch"], &["mcp__x"]).await;
        let mut builtin = bench.open().await;
        let told = notices(&run(&mut builtin, json!("a")).await);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("\"WebFetch\"") && told[1].contains("\"mcp__x\""), "{told:?}");
        assert_eq!(notices(&run(&mut builtin, json!("b")).await), Vec::<String>::new());
        builtin.close().await;
    });
}

#[test]
fn a_prompt_says_which_tools_there_are_from_now_on() {
    local(async {
        let ok = || text("ok");
        let bench = bench(vec![ok(), ok(), ok(), ok()], &["Read", "Bash"], &[]).await;
        let mut builtin = bench.open().await;
        run(&mut builtin, json!("as it was set up")).await;
        let fewer = json!({ "content": "a", "disallowedTools": ["Bash", "Nothing"] });
        let told = notices(&run(&mut builtin, fewer.clone()).await);
        assert!(told.len() == 1 && told[0].contains("\"Nothing\""), "{told:?}");
        assert!(notices(&run(&mut builtin, fewer).await).is_empty(), "it is told once");
        let other = json!({ "content": "b", "allowedTools": ["LS"], "disallowedTools": [] });
        run(&mut builtin, other).await;
        let offered: Vec<_> = (0..4).map(|at| offered(&bench, at)).collect();
        let expected: [&[&str]; 4] =
            [&["bash", "read_file"], &["read_file"], &["read_file"], &["list_files"]];
        assert_eq!(offered, expected);
        builtin.close().await;
    });
}

#[test]
fn the_sessions_servers_stand_beside_those_of_the_workspace() {
    local(async {
        let call = tools(&[("e", "mcp__mine__echo", json!({ "a": 1 }))]);
        let mut bench = bench(vec![call, text("ok")], &["mcp__mine", "mcp__its__echo"], &[]).await;
        bench.write("server.py", include_str!("mcp_server.py"));
        let server = json!({ "command": "python3", "args": ["server.py", "good"] });
        let broken = json!({ "command": "/no/such/program" });
        let of_file = json!({ "mcpServers": { "its": server, "mine": broken } });
        bench.write(".mcp.json", &of_file.to_string());
        let web = json!({ "type": "http", "url": "https://example.com" });
        bench.settings.mcp_servers = Some(raw(&json!({ "mine": server, "web": web })));
        let told = bench.turn(json!("go")).await;
        let told_of = notices(&told);
        assert_eq!(told_of.len(), 1, "{told_of:?}");
        assert!(told_of[0].starts_with("MCP server web: only servers over stdio"), "{told_of:?}");
        let offered = offered(&bench, 0);
        assert_eq!(offered[0], "mcp__its__echo");
        assert_eq!(offered.len(), 1 + 9, "{offered:?}");
        assert_eq!(told.outputs("tool_result")[0]["is_error"], false);
    });
}

#[test]
fn an_effort_is_passed_on_as_thinking() {
    local(async {
        let mut bench = Bench::new(vec![text("ok"), text("ok"), text("ok")]).await;
        bench.settings.limits.thinking_tokens = Some(2_000);
        for effort in [json!(null), json!("high"), json!("low")] {
            bench.turn(json!({ "content": "go", "effort": effort })).await;
        }
        let requests = bench.model.requests();
        let budget = |at: usize| requests[at]["thinking"]["budget_tokens"].as_u64();
        assert_eq!((budget(0), budget(1), budget(2)), (Some(2_000), Some(16_384), None));
    });
}
