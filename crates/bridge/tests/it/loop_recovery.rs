//! What a killed process leaves behind, and how the next one goes on.

use ash_protocol::{Ending, Event};
use serde_json::{Value, json};

use crate::fake::{Bench, Reply, begun, kill_when, local, output, run, run_until, text, tools};

const CUT: &str = "[This turn was cut off before it finished.]";

#[test]
fn a_tool_that_was_running_has_an_unknown_outcome() {
    local(async {
        let write = ("t0", "write_file", json!({ "path": "a", "content": "a" }));
        let hang = ("t1", "bash", json!({ "command": "sleep 1000" }));
        let never = ("t2", "write_file", json!({ "path": "b", "content": "b" }));
        let bench = Bench::new(vec![tools(&[write, hang, never]), text("ok")]).await;
        let mut builtin = bench.open().await;
        kill_when(&mut builtin, json!("hi"), |event| {
            output(event, "tool_use").is_some_and(|body| body["id"] == "t1")
        })
        .await;
        let told = bench.turn(json!("go on")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        let sent = bench.sent(1);
        let blocks = sent[2]["content"].as_array().unwrap();
        assert!(blocks[0].get("is_error").is_none(), "it had finished: {blocks:#?}");
        assert!(blocks[1].to_string().contains("outcome unknown"), "{blocks:#?}");
        assert_eq!(blocks[1]["is_error"], true);
        assert!(blocks[2].to_string().contains("outcome unknown"), "{blocks:#?}");
        let text = |at: usize| sent[at]["content"][0]["text"].clone();
        assert_eq!((text(3), text(4)), (json!(CUT), json!("go on")));
    });
}

#[test]
fn a_coder_that_was_working_leaves_its_memory() {
    local(async {
        let bench = Bench::new(vec![
            tools(&[("d1", "delegate_coder", json!({ "task": "write" }))]),
            tools(&[("c1", "write_file", json!({ "path": "done.txt", "content": "x" }))]),
            text("ok"),
        ])
        .await;
        let mut builtin = bench.open().await;
        kill_when(&mut builtin, json!("hi"), |event| {
            output(event, "coder_round").is_some_and(|body| body["round"] == 2)
        })
        .await;
        bench.turn(json!("go on")).await;
        // It was killed before its coder had asked again.
        let result = bench.sent(2)[2]["content"][0].to_string();
        assert!(result.contains("outcome unknown") && result.contains("done.txt"), "{result}");
    });
}

#[test]
fn what_was_noted_is_known_though_a_later_tool_was_killed() {
    local(async {
        let bench = Bench::new(vec![
            tools(&[
                ("t1", "update_memory", json!({ "plan": "the plan" })),
                ("t2", "write_file", json!({ "path": "a.txt", "content": "a" })),
                ("t3", "bash", json!({ "command": "sleep 1000" })),
            ]),
            text("ok"),
        ])
        .await;
        let mut builtin = bench.open().await;
        let mut remembered = Vec::new();
        kill_when(&mut builtin, json!("hi"), |event| {
            remembered.extend(output(event, "working_memory"));
            output(event, "tool_use").is_some_and(|body| body["id"] == "t3")
        })
        .await;
        assert_eq!(remembered[0]["plan"], "the plan", "reported as it changes");
        assert_eq!(remembered[1]["filesTouched"], json!(["a.txt"]));
        bench.turn(json!("go on")).await;
        let system = bench.model.requests()[1]["system"].to_string();
        assert!(system.contains("the plan") && system.contains("a.txt"), "{system}");
    });
}

#[test]
fn words_of_a_killed_turn_are_gone_and_its_prompt_is_not() {
    local(async {
        let bench = Bench::new(vec![Reply::Hang(begun("hm")), text("ok"), text("fine")]).await;
        let mut builtin = bench.open().await;
        kill_when(&mut builtin, json!("hi"), |event| matches!(event, Event::TextDelta(_))).await;
        bench.turn(json!("go on")).await;
        let texts = |at: usize| -> Vec<Value> {
            let sent = bench.sent(at);
            let blocks = sent.iter().flat_map(|m| m["content"].as_array().unwrap().clone());
            blocks.map(|block| block["text"].clone()).collect()
        };
        assert_eq!(texts(1), ["hi", CUT, "go on"]);
        bench.turn(json!("more")).await;
        assert_eq!(texts(2), ["hi", CUT, "go on", "ok", "more"]);
    });
}

/// Something of everything: tools side by side and alone, memory, a coder, two rounds.
fn busy() -> Vec<Reply> {
    vec![
        tools(&[
            ("t1", "read_file", json!({ "path": "a" })),
            ("t2", "list_files", json!({})),
            ("t3", "write_file", json!({ "path": "b", "content": "b" })),
            ("t4", "update_memory", json!({ "plan": "p" })),
            ("t5", "delegate_coder", json!({ "task": "t" })),
            ("t6", "write_file", json!({ "path": "c", "content": "c" })),
        ]),
        tools(&[("c1", "write_file", json!({ "path": "d", "content": "d" }))]),
        Reply::Say(begun("cut")),
        text("coded"),
        tools(&[("t7", "list_files", json!({}))]),
        text("done"),
    ]
}

#[test]
fn killed_or_interrupted_after_any_report_it_can_be_gone_on_with() {
    local(async {
        let bench = Bench::new(busy()).await;
        let all = bench.turn(json!("go")).await;
        assert_eq!(all.ending, Ending::EndTurn);
        for stop in 1..=all.events.len() {
            let mut seen = 0;
            let mut right = |_: &Event| {
                seen += 1;
                seen == stop
            };
            let mut bench = Bench::new(busy()).await;
            let mut builtin = bench.open().await;
            if stop % 2 == 0 {
                kill_when(&mut builtin, json!("go"), &mut right).await;
            } else {
                run_until(&mut builtin, json!("go"), &mut right).await;
            }
            // One that was killed is gone; one that was only dropped is still there.
            if stop % 3 == 0 {
                let told = run(&mut builtin, json!("go on")).await;
                assert!(!matches!(told.ending, Ending::Interrupted), "after {stop}");
            }
            drop(builtin);
            bench.ask_another(vec![text("ok")]).await;
            assert_eq!(bench.turn(json!("once more")).await.ending, Ending::EndTurn);
            assert_eq!(bench.sent(0)[0]["content"][0]["text"], "go", "after {stop}");
        }
    });
}

#[test]
fn a_tail_that_was_cut_anywhere_is_repaired() {
    local(async {
        let write = json!({ "path": "a", "content": "a" });
        let bench = Bench::new(vec![tools(&[("t1", "write_file", write)]), text("done")]).await;
        bench.turn(json!("hi")).await;
        let path = bench.file("conversation.jsonl");
        let whole = std::fs::read(&path).unwrap();
        let newlines: Vec<usize> =
            (0..whole.len()).filter(|&at| whole[at] == b'\n').rev().collect();
        let garbage = [&b""[..], b"\0\0\0\0", b"{\"v\":1,\"tu"];
        for (cut, garbage) in (newlines[2] + 1..=whole.len()).zip(garbage.into_iter().cycle()) {
            let bench = Bench::new(vec![text("ok")]).await;
            std::fs::create_dir_all(bench.file("")).unwrap();
            let path = bench.file("conversation.jsonl");
            let damaged = [&whole[..cut], garbage].concat();
            std::fs::write(&path, &damaged).unwrap();
            let told = bench.turn(json!("go on")).await;
            assert_eq!(told.ending, Ending::EndTurn, "cut at {cut}");
            let sent = bench.sent(0);
            assert_eq!(sent[0]["content"][0]["text"], "hi", "cut at {cut}");
            let aside = bench.file("conversation.jsonl.damaged-1");
            let dropped = std::fs::metadata(aside).map_or(0, |file| file.len());
            let reported = told.outputs("conversation_repaired");
            let reported = reported.first().map_or(0, |b| b["droppedBytes"].as_u64().unwrap());
            assert_eq!(dropped, reported, "cut at {cut}");
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                serde_json::from_str::<Value>(line).unwrap();
            }
        }
    });
}

#[test]
fn garbage_in_the_middle_is_passed_over() {
    local(async {
        let bench = Bench::new(vec![text("one"), text("two"), text("three")]).await;
        bench.turn(json!("a")).await;
        let path = bench.file("conversation.jsonl");
        let mut content = std::fs::read(&path).unwrap();
        content.extend_from_slice(b"\0\0 not a line \xff\n{\"other\": true}\n");
        std::fs::write(&path, &content).unwrap();
        // The rest is set aside, so put it back between two turns.
        bench.turn(json!("b")).await;
        let content = [b"garbage\n".to_vec(), std::fs::read(&path).unwrap()].concat();
        std::fs::write(&path, &content).unwrap();
        let told = bench.turn(json!("c")).await;
        let repaired = told.outputs("conversation_repaired");
        assert_eq!(repaired, [json!({ "droppedBytes": 0, "skippedLines": 1 })]);
        assert_eq!(bench.sent(2).len(), 5);
    });
}
