//! Servers that are good, slow, dying or talking nonsense.

use serde_json::{Value, json};

use crate::bench::{Bench, local, raw, text};
use crate::trees::{Mark, until};

const SERVER: &str = include_str!("mcp_server.py");

/// A workspace with servers of these names and behaviors.
async fn bench(servers: &[(&str, &str)]) -> Bench {
    marked(Mark::new(), servers).await
}

async fn marked(mark: Mark, servers: &[(&str, &str)]) -> Bench {
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
    Bench::marked(mark, &[(".mcp.json", &config), ("server.py", SERVER)]).await
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
        assert_eq!(names.len(), 16);
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
        assert!(said.contains("a line of more than 4 MB"), "{said}");
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
        assert_eq!(bench.tools.definitions().len(), 6 + 8);
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
