//! Servers that are good, slow, dying or talking nonsense.

use std::time::Duration;

use ash_bridge::builtin::tools::Waits;
use serde_json::{Value, json};

use crate::bench::{Bench, local, raw, text};
use crate::trees::{Mark, until};

const SERVER: &str = include_str!("mcp_server.py");

/// A workspace with servers of these names and behaviors.
async fn bench(servers: &[(&str, &str)]) -> Bench {
    marked(Mark::new(), servers).await
}

async fn marked(mark: Mark, servers: &[(&str, &str)]) -> Bench {
    waiting(mark, servers, Waits::default()).await
}

async fn waiting(mark: Mark, servers: &[(&str, &str)], waits: Waits) -> Bench {
    let servers: serde_json::Map<String, Value> = servers
        .iter()
        .map(|(name, behavior)| {
            let env = json!({ "MINE": "1", "AWS_KEY": "2" });
            let entry =
                json!({ "command": "python3", "args": ["server.py", behavior], "env": env });
            ((*name).to_owned(), entry)
        })
        .collect();
    let config = json!({ "mcpServers": servers }).to_string();
    Bench::waiting(mark, &[(".mcp.json", &config), ("server.py", SERVER)], waits).await
}

#[test]
fn tools_of_servers_are_offered_and_called() {
    local(async {
        let bench = bench(&[("my server", "good"), ("other", "garbage")]).await;
        let refused = |name| format!("MCP server {name}: the variable AWS_KEY is refused");
        assert_eq!(bench.problems, [refused("my server"), refused("other")]);
        let names: Vec<String> =
            bench.tools.definitions().into_iter().map(|tool| tool.name).skip(6).collect();
        assert_eq!(
            names[..3],
            ["mcp__my_server__echo", "mcp__my_server__do_it", "mcp__my_server__wait"]
        );
        assert_eq!(names.len(), 18);
        assert!(bench.tools.is_read_only("mcp__my_server__echo"));
        assert!(!bench.tools.is_read_only("mcp__my_server__wait"));
        // A line break between the fields must not become one between messages.
        let outcome = bench
            .tools
            .call("mcp__other__echo", &raw("{\"a\":\r\n 1.50,\n \"b\": \"é\\n\"}"))
            .await;
        assert_eq!(text(&outcome), r#"{"a": 1.5, "b": "é\n"}"#);
        assert_eq!(bench.ok("mcp__my_server__do_it", json!({})).await, "did do.it");
        let said = bench.wrong("mcp__my_server__fail", json!({})).await;
        assert_eq!(said, "fail of the MCP server my server: it failed (error -32000)");
        assert!(bench.tools.call("mcp__other__echo", &raw("7")).await.is_error);
        let names = bench.ok("mcp__other__env", json!({})).await;
        for expected in ["HOME", "LANG", "MARK", "MINE", "PATH", "TERM"] {
            assert!(
                names.split(' ').any(|name| name == expected),
                "{expected} is missing: {names}"
            );
        }
        assert!(!names.contains("AWS_KEY") && !names.contains("CARGO"), "{names}");
        // It asked for a ping and for something that we do not have.
        assert_eq!(bench.ok("mcp__other__log", json!({})).await, "result; -32601");
    });
}

#[test]
fn answers_come_in_any_order_and_calls_can_be_given_up() {
    local(async {
        let bench = bench(&[("s", "good")]).await;
        let begun = bench.path("begun");
        let slow = bench.call("mcp__s__wait", json!({ "forever": true, "file": begun }));
        tokio::select! {
            outcome = slow => panic!("{}", text(&outcome)),
            () = async {
                until("the call has begun", || begun.exists()).await;
                let (later, sooner) = tokio::join!(
                    bench.ok("mcp__s__wait", json!({ "seconds": 0.2 })),
                    bench.ok("mcp__s__echo", json!({ "quick": true })),
                );
                assert_eq!((later.as_str(), sooner.as_str()), ("waited", r#"{"quick": true}"#));
            } => {}
        }
        assert_eq!(bench.ok("mcp__s__log", json!({})).await, "result; -32601; cancelled");
    });
}

#[test]
fn a_server_that_dies_is_started_again_three_times() {
    local(async {
        let bench = bench(&[("s", "good")]).await;
        for _ in 0..4 {
            let (died, waited) = tokio::join!(
                bench.wrong("mcp__s__die", json!({})),
                bench.wrong("mcp__s__wait", json!({ "forever": true })),
            );
            assert!(died.contains("the server ended"), "{died}");
            assert!(waited.contains("the server ended"), "{waited}");
        }
        let said = bench.wrong("mcp__s__echo", json!({})).await;
        assert!(said.contains("is not running: it was started again 3 times already"), "{said}");
        bench.mark.until_gone().await;
    });
}

#[test]
fn a_server_that_says_too_much_is_ended() {
    local(async {
        let bench = bench(&[("s", "good")]).await;
        let said = bench.wrong("mcp__s__huge", json!({})).await;
        assert!(said.contains("a line of more than 8 MB"), "{said}");
        bench.mark.until_gone().await;
        assert_eq!(bench.ok("mcp__s__echo", json!({})).await, "{}");
    });
}

#[test]
fn a_server_that_does_not_start_costs_only_its_own_tools() {
    local(async {
        let bench = bench(&[("dead", "dead"), ("good", "good")]).await;
        let problem = bench.problems.iter().find(|line| line.contains("the server ended"));
        assert!(problem.is_some(), "{:?}", bench.problems);
        assert_eq!(bench.tools.definitions().len(), 6 + 9);
        let files = [(".mcp.json", r#"{"mcpServers": {"x": {"command": "/no/such"}}}"#)];
        let bench = Bench::with(&files).await;
        assert_eq!(bench.problems.len(), 1);
        let bench = Bench::with(&[(".mcp.json", "nonsense")]).await;
        assert!(bench.problems[0].starts_with(".mcp.json could not be understood"));
        assert_eq!(bench.ok("bash", json!({ "command": "echo still" })).await, "still");
    });
}

#[test]
fn a_slow_start_can_be_given_up() {
    local(async {
        let mark = Mark::new();
        tokio::select! {
            bench = marked(Mark::given(mark.name().to_owned()), &[("s", "slow")]) => {
                panic!("{:?}", bench.problems);
            }
            () = mark.until_alive(1) => {}
        }
        mark.until_gone().await;
    });
}

#[test]
fn a_toolbox_takes_its_servers_with_it() {
    local(async {
        let mut closed = bench(&[("s", "good"), ("t", "good")]).await;
        closed.mark.until_alive(2).await;
        closed.tools.close().await;
        assert_eq!(closed.mark.alive(), Vec::<i32>::new());
        closed.wrong("mcp__s__echo", json!({})).await;

        let Bench { tools, mark, around, .. } = bench(&[("s", "good")]).await;
        mark.until_alive(1).await;
        drop(tools);
        mark.until_gone().await;
        drop(around);
    });
}

#[test]
fn tools_that_are_described_badly_are_offered_such_that_a_model_can_be_asked() {
    local(async {
        let bench = bench(&[("s", "sloppy")]).await;
        let offered = bench.tools.definitions();
        let named = |name: &str| {
            let name = format!("mcp__s__{name}");
            offered.iter().find(|tool| tool.name == name).unwrap()
        };
        assert_eq!(offered.len(), 6 + 4);
        let open = json!({ "type": "object", "properties": {} });
        for name in ["bare", "nulls", "either"] {
            assert_eq!(named(name).input_schema, open, "{name}");
        }
        let properties = json!({ "a": { "type": "string" } });
        let mended = json!({ "type": "object", "properties": properties });
        assert_eq!(named("untyped").input_schema, mended);
        let told = &named("either").description;
        assert!(told.starts_with("does either\n") && told.contains(r#"{"anyOf":[{"#), "{told}");
        assert!(bench.problems.iter().any(|line| line.contains("schema of either cannot be used")));
        assert!(bench.problems.iter().any(|line| line.contains("tool number 5 was left out")));
        assert_eq!(bench.ok("mcp__s__bare", json!({})).await, "did bare");
    });
}

#[test]
fn a_server_that_takes_too_long_is_not_waited_for() {
    local(async {
        let short = Duration::from_millis(300);
        let waits = Waits { start: short, ..Waits::default() };
        let bench = waiting(Mark::new(), &[("s", "slow")], waits).await;
        let said = "MCP server s: it was not ready within 0.3 seconds".to_owned();
        assert!(bench.problems.contains(&said), "{:?}", bench.problems);
        bench.mark.until_gone().await;

        let waits = Waits { call: short, ..Waits::default() };
        let bench = waiting(Mark::new(), &[("s", "good")], waits).await;
        let said = bench.wrong("mcp__s__wait", json!({ "forever": true })).await;
        assert_eq!(said, "wait of the MCP server s did not answer within 0.3 seconds");
        // It is told, and otherwise as good as before.
        assert_eq!(bench.ok("mcp__s__log", json!({})).await, "result; -32601; cancelled");
    });
}

#[test]
fn a_picture_is_shown_whatever_its_size_or_is_said_to_be_too_large() {
    local(async {
        let bench = bench(&[("s", "good")]).await;
        let picture = crate::files::PNG;
        let outcome = bench.call("mcp__s__picture", json!({ "data": picture })).await;
        assert_eq!(outcome.content[0]["source"]["data"], picture);
        let outcome = bench.call("mcp__s__picture", json!({ "data": "iVBORw0KGgo=" })).await;
        assert!(text(&outcome).contains("a damaged PNG"), "{}", text(&outcome));
        let input = json!({ "data": "A".repeat(1024), "times": 6 * 1024 + 1 });
        let outcome = bench.call("mcp__s__picture", input).await;
        assert!(text(&outcome).contains("5 MB"), "{}", text(&outcome));
    });
}
