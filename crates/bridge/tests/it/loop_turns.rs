//! Turns that go well.

use std::slice::from_ref;

use ash_protocol::Ending;
use serde_json::json;

use crate::fake::{Bench, Reply, blocks, events, http, local, run, stream, text, tools};

#[test]
fn a_text_is_streamed_recorded_and_reported() {
    local(async {
        let bench = Bench::new(vec![text("Hello")]).await;
        let told = bench.turn(json!("Say hello")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        assert_eq!(
            told.in_words(),
            [
                "phase streaming 1",
                "text He",
                "text llo",
                "message \"end_turn\"",
                "output turn_complete",
                "result success",
                "output transcript"
            ]
        );
        assert_eq!((told.usage.input_tokens, told.usage.output_tokens), (100, 10));
        assert_eq!(told.usage.cost_micro_usd, 450);
        let content = std::fs::read(bench.file("conversation.jsonl")).unwrap();
        let transcript = &told.outputs("transcript")[0];
        assert_eq!(transcript["bytes"], content.len());
        assert_eq!(transcript["blake3"], blake3::hash(&content).to_hex().as_str());
        assert_eq!(transcript["turns"], 1);
        let request = &bench.model.requests()[0];
        assert_eq!(request["stream"], true);
        assert_eq!(request["system"][0]["cache_control"]["type"], "ephemeral");
        let prompt = &request["messages"][0]["content"][0];
        assert_eq!(prompt["text"], "Say hello");
        assert_eq!(prompt["cache_control"]["type"], "ephemeral");
        assert!(request.get("thinking").is_none());
    });
}

#[test]
fn a_second_turn_knows_the_first_also_in_another_process() {
    local(async {
        let bench = Bench::new(vec![text("one"), text("two"), text("three")]).await;
        let mut builtin = bench.open().await;
        run(&mut builtin, json!("a")).await;
        run(&mut builtin, json!("b")).await;
        builtin.close().await;
        let told = bench.turn(json!("c")).await;
        let sent = bench.sent(2);
        let texts: Vec<_> = sent.iter().map(|m| m["content"][0]["text"].clone()).collect();
        assert_eq!(texts, ["a", "one", "b", "two", "c"]);
        assert_eq!(told.outputs("transcript")[0]["turns"], 3);
    });
}

#[test]
fn tools_run_and_their_results_go_back() {
    local(async {
        let write = json!({ "path": "a.txt", "content": "hi" });
        let bench =
            Bench::new(vec![tools(&[("t1", "write_file", write.clone())]), text("done")]).await;
        let told = bench.turn(json!("write it")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        assert_eq!(
            told.in_words(),
            [
                "phase streaming 1",
                "message \"tool_use\"",
                "phase tools 1",
                "output tool_use",
                "output tool_result",
                "output working_memory",
                "results 1",
                "phase streaming 2",
                "text do",
                "text ne",
                "message \"end_turn\"",
                "output turn_complete",
                "result success",
                "output transcript"
            ]
        );
        assert_eq!(
            told.outputs("tool_use"),
            [json!({ "id": "t1", "name": "write_file", "input": write })]
        );
        let result = &told.outputs("tool_result")[0];
        assert_eq!((&result["tool_use_id"], &result["is_error"]), (&json!("t1"), &json!(false)));
        // And as one message, which is what clients of the original show.
        let mut block = result.clone();
        block["type"] = json!("tool_result");
        let message = json!({ "role": "user", "content": [block] });
        assert_eq!(told.messages()[1], json!({ "type": "user", "message": message }));
        let memory = &told.outputs("working_memory")[0];
        assert_eq!(memory["filesTouched"], json!(["a.txt"]));
        assert_eq!((&memory["scope"], &memory["delegation"]), (&json!("main"), &json!(null)));
        assert_eq!(told.usage.tool_calls, 1);
        assert_eq!(bench.sent(1)[2]["content"][0]["tool_use_id"], "t1");
        let content = std::fs::read_to_string(bench.settings.workspace.join("a.txt")).unwrap();
        assert_eq!(content, "hi");
    });
}

#[test]
fn reads_run_side_by_side_and_answer_in_order() {
    local(async {
        let calls: Vec<_> = ["a", "b", "missing"]
            .map(|name| (name, "read_file", json!({ "path": name })))
            .into_iter()
            .chain([("w", "write_file", json!({ "path": "c", "content": "" }))])
            .collect();
        let bench = Bench::new(vec![tools(&calls), text("done")]).await;
        bench.write("a", "alpha");
        bench.write("b", "beta");
        let told = bench.turn(json!("read them")).await;
        let words = told.in_words();
        let first = words.iter().position(|word| word == "output tool_use").unwrap();
        assert_eq!(words[first..first + 3], ["output tool_use"; 3], "all begin before one ends");
        let results = bench.sent(1)[2]["content"].as_array().unwrap().clone();
        let ids: Vec<_> = results.iter().map(|r| r["tool_use_id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["a", "b", "missing", "w"]);
        assert!(results[0].to_string().contains("alpha"));
        assert_eq!(results[2]["is_error"], true);
        let errors = told.outputs("working_memory")[0]["errors"].as_array().unwrap().clone();
        assert!(errors[0].as_str().unwrap().starts_with("read_file: "), "{errors:?}");
    });
}

#[test]
fn memory_stands_in_the_next_turns_prompt() {
    local(async {
        let update = json!({ "plan": "think, then do", "openTasks": ["doing"] });
        let bench =
            Bench::new(vec![tools(&[("t1", "update_memory", update)]), text("ok"), text("ok")])
                .await;
        let told = bench.turn(json!("plan")).await;
        assert_eq!(told.outputs("working_memory")[0]["openTasks"], json!(["doing"]));
        bench.turn(json!("go on")).await;
        let system = bench.model.requests()[2]["system"][1]["text"].clone();
        assert!(system.as_str().unwrap().contains("Plan:\nthink, then do\nOpen tasks:\n- doing"));
    });
}

#[test]
fn a_coder_works_in_a_conversation_of_its_own() {
    local(async {
        let bench = Bench::new(vec![
            tools(&[("d1", "delegate_coder", json!({ "task": "write x", "context": "in y" }))]),
            tools(&[("c1", "write_file", json!({ "path": "y", "content": "x" }))]),
            text("written"),
            text("all done"),
        ])
        .await;
        let told = bench.turn(json!("have it written")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        assert_eq!(
            told.in_words(),
            [
                "phase streaming 1",
                "message \"tool_use\"",
                "phase coder 1",
                "output tool_use",
                "output coder_round",
                "output coder_message",
                "output tool_use",
                "output tool_result",
                "output working_memory",
                "output coder_round",
                "output coder_message",
                "output tool_result",
                "results 1",
                "phase streaming 2",
                "text all ",
                "text done",
                "message \"end_turn\"",
                "output turn_complete",
                "result success",
                "output transcript"
            ]
        );
        assert_eq!(told.outputs("tool_use")[1]["delegation"], "d1");
        let rounds =
            [json!({ "delegation": "d1", "round": 1 }), json!({ "delegation": "d1", "round": 2 })];
        assert_eq!(told.outputs("coder_round"), rounds);
        let memory = &told.outputs("working_memory")[0];
        assert_eq!((&memory["scope"], &memory["delegation"]), (&json!("coder"), &json!("d1")));
        let message = &told.outputs("coder_message")[1];
        assert_eq!(message["message"]["content"][0]["text"], "written");
        let coder = bench.sent(1);
        assert_eq!(coder[0]["content"][0]["text"], "write x");
        assert_eq!(coder[0]["content"][1]["text"], "in y");
        let offered = bench.model.requests()[1]["tools"].to_string();
        assert!(!offered.contains("delegate_coder") && offered.contains("update_memory"));
        assert_eq!(bench.sent(3)[2]["content"][0]["content"][0]["text"], "written");
        assert!(bench.file("coder-1.jsonl").exists());
        assert_eq!(told.usage.tool_calls, 2);
        assert_eq!(told.usage.input_tokens, 400);
    });
}

#[test]
fn blocks_and_options_of_a_prompt_are_passed_on() {
    local(async {
        let image = json!({ "type": "image", "source": { "type": "base64",
            "media_type": "image/png", "data": "AAAA" } });
        let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "sig" });
        let said = json!({ "type": "text", "text": "ok" });
        let bench = Bench::new(vec![blocks(&[thought, said], "end_turn"), text("ok")]).await;
        let told = bench
            .turn(json!({ "content": [image, { "type": "text", "text": "what is it?" }],
                "model": "claude-opus-4-1", "thinking": { "type": "enabled", "budgetTokens": 2048 } }))
            .await;
        assert!(told.in_words().contains(&"thinking hm".to_owned()));
        assert_eq!(told.usage.cost_micro_usd, 2250);
        let request = &bench.model.requests()[0];
        assert_eq!(request["messages"][0]["content"][0], image);
        assert_eq!(request["model"], "claude-opus-4-1");
        assert_eq!(request["thinking"], json!({ "type": "enabled", "budget_tokens": 2048 }));
        assert!(request["max_tokens"].as_u64().unwrap() > 2048);
        bench.turn(json!("and now?")).await;
        assert_eq!(bench.sent(1)[0]["content"][0], image);
        let thought = &bench.sent(1)[1]["content"][0];
        assert_eq!((&thought["thinking"], &thought["signature"]), (&json!("hm"), &json!("sig")));
    });
}

#[test]
fn a_prompt_that_is_none_fails_and_leaves_nothing_behind() {
    local(async {
        let bench = Bench::new(vec![text("ok")]).await;
        let told = bench.turn(json!([1, 2])).await;
        assert!(matches!(told.ending, Ending::Failed { .. }));
        assert_eq!(told.in_words(), ["output transcript"]);
        bench.turn(json!("hi")).await;
        assert_eq!(bench.sent(0)[0]["content"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn input_that_is_no_object_is_an_error_for_the_model() {
    local(async {
        let call = json!({ "type": "tool_use", "id": "t", "name": "read_file", "input": ["a"] });
        let bench = Bench::new(vec![blocks(&[call], "max_tokens"), text("sorry")]).await;
        let told = bench.turn(json!("go")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        assert_eq!(told.outputs("tool_result")[0]["is_error"], true);
        let sent = bench.sent(1);
        assert_eq!(sent[1]["content"][0]["input"], json!({}));
        assert!(sent[2].to_string().contains("not a JSON object"));
    });
}

#[test]
fn ids_that_come_again_are_told_apart() {
    local(async {
        let write = |path: &str| ("t", "write_file", json!({ "path": path, "content": path }));
        let bench = Bench::new(vec![
            tools(&[write("a"), write("b")]),
            tools(&[write("c")]),
            text("ok"),
            tools(&[write("d")]),
            text("ok"),
        ])
        .await;
        let told = bench.turn(json!("one")).await;
        assert_eq!(told.outputs("tool_result").len(), 3);
        bench.turn(json!("two")).await;
        let sent = json!(bench.sent(4)).to_string();
        for id in ["t", "t_2", "t_3", "t_4"] {
            assert_eq!(sent.matches(&format!("\"id\":\"{id}\"")).count(), 1, "{id}: {sent}");
        }
        for file in ["a", "b", "c", "d"] {
            assert!(bench.settings.workspace.join(file).exists(), "{file}");
        }
    });
}

#[test]
fn only_our_own_marks_for_the_cache_are_sent() {
    local(async {
        let marked = |text: &str| {
            json!({ "type": "text", "text": text,
            "cache_control": { "type": "ephemeral" } })
        };
        let document = json!({ "type": "document", "cache_control": { "type": "ephemeral" },
            "source": { "type": "content", "content": [marked("inside")] } });
        let bench = Bench::new((0..3).map(|_| text("ok")).collect()).await;
        for _ in 0..3 {
            bench.turn(json!([document, marked("a \"cache_control\": b"), marked("c")])).await;
        }
        let request = bench.model.requests()[2].to_string();
        assert_eq!(request.matches("\"cache_control\":{").count(), 2, "{request}");
        let sent = bench.sent(2);
        assert_eq!(sent[4]["content"][2]["cache_control"]["type"], "ephemeral");
        assert_eq!(sent[0]["content"][1]["text"], "a \"cache_control\": b");
    });
}

#[test]
fn whole_calls_are_run_whatever_the_reason_to_stop() {
    local(async {
        let write = |id: &str| {
            json!({ "type": "tool_use", "id": id, "name": "write_file",
            "input": { "path": id, "content": "" } })
        };
        let mut silent = events(&[write("b")], "");
        silent.retain(|event| event["type"] != "message_delta");
        let bench = Bench::new(vec![
            blocks(&[write("a")], "model_context_window_exceeded"),
            Reply::Say(stream(&silent)),
            blocks(&[json!({ "type": "text", "text": "and th" })], "max_tokens"),
        ])
        .await;
        let told = bench.turn(json!("go")).await;
        assert_eq!(told.ending, Ending::EndTurn);
        assert!(["a", "b"].iter().all(|file| bench.settings.workspace.join(file).exists()));
        let notices = told.outputs("notice");
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(notices[0].to_string().contains("model_context_window_exceeded"), "{notices:?}");
        assert!(notices[1].to_string().contains("max_tokens"), "{notices:?}");
    });
}

#[test]
fn reasons_to_stop_are_understood() {
    local(async {
        let said = json!({ "type": "text", "text": "no" });
        let search = json!({ "type": "server_tool_use", "id": "s", "name": "web", "input": {} });
        let bench = Bench::new(vec![
            blocks(from_ref(&said), "refusal"),
            blocks(from_ref(&said), "something_new"),
            blocks(from_ref(&said), "max_tokens"),
            blocks(from_ref(&search), "pause_turn"),
            text("found"),
        ])
        .await;
        let mut builtin = bench.open().await;
        let told = run(&mut builtin, json!("a")).await;
        assert_eq!((told.ending.clone(), told.outputs("refusal").len()), (Ending::EndTurn, 1));
        assert_eq!(run(&mut builtin, json!("b")).await.ending, Ending::EndTurn);
        assert_eq!(run(&mut builtin, json!("c")).await.ending, Ending::EndTurn);
        assert_eq!(run(&mut builtin, json!("d")).await.ending, Ending::EndTurn);
        assert_eq!(bench.sent(4).last().unwrap()["content"][0], search);
        builtin.close().await;
    });
}

#[test]
fn a_message_that_comes_all_at_once_is_taken() {
    local(async {
        let whole = json!({ "type": "message", "id": "m", "model": "x", "role": "assistant",
            "content": [{ "type": "text", "text": "whole" }], "stop_reason": "end_turn",
            "usage": { "input_tokens": 7, "output_tokens": 2 } });
        let bench = Bench::new(vec![http(200, "application/json", &whole.to_string())]).await;
        let told = bench.turn(json!("hi")).await;
        assert_eq!(told.in_words()[1..3], ["text whole", "message \"end_turn\""]);
        assert_eq!(told.usage.input_tokens, 7);
    });
}
