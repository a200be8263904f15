//! What the agent asks before it does something, and what it does with the answer.

use std::time::Duration;

use ash_protocol::{Decision, Ending, Event};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::fake::{Bench, Reply, Told, local, raw, run_with, text, tools};

fn touch(name: &str) -> Value {
    json!({ "command": format!("touch {name}") })
}

async fn bench(mode: &str, replies: Vec<Reply>) -> Bench {
    let mut bench = Bench::new(replies).await;
    bench.settings.permission_mode = Some(mode.to_owned());
    bench
}

/// Runs, and answers each question as somebody says.
async fn answered(bench: &Bench, prompt: Value, decide: impl Fn(&str) -> Option<Decision>) -> Told {
    let mut builtin = bench.open().await;
    let questions = bench.settings.questions.clone();
    let told = run_with(&mut builtin, prompt, CancellationToken::new(), |event| {
        if let Event::Question { id, tool, .. } = event
            && let Some(decision) = decide(tool)
        {
            questions.decide(id, decision).unwrap();
        }
    })
    .await;
    builtin.close().await;
    told
}

fn allow(_: &str) -> Option<Decision> {
    Some(Decision::Allow { input: None })
}

fn has(bench: &Bench, name: &str) -> bool {
    bench.settings.workspace.join(name).exists()
}

fn asked(told: &Told) -> Vec<String> {
    let words = told.in_words().into_iter();
    words.filter_map(|word| word.strip_prefix("question ").map(str::to_owned)).collect()
}

/// The text of the result of the only call in the `at`-th request.
fn result(bench: &Bench, at: usize) -> (bool, String) {
    let messages = bench.sent(at);
    let block = &messages.last().unwrap()["content"][0];
    let texts = block["content"].as_array().unwrap().iter();
    let texts: Vec<&str> = texts.map(|block| block["text"].as_str().unwrap()).collect();
    (block["is_error"] == true, texts.join("\n"))
}

fn every_tool() -> Reply {
    tools(&[
        ("a", "bash", touch("by-bash")),
        ("b", "write_file", json!({ "path": "w", "content": "1" })),
        ("c", "edit_file", json!({ "path": "w", "old": "1", "new": "2" })),
        ("d", "apply_patchset", json!({ "edits": [{ "path": "p", "content": "3" }] })),
        ("e", "read_file", json!({ "path": "w" })),
        ("f", "list_files", json!({})),
        ("g", "update_memory", json!({ "plan": "none" })),
    ])
}

#[test]
fn the_mode_says_what_is_asked_about() {
    local(async {
        let all = ["bash", "write_file", "edit_file", "apply_patchset"];
        for (mode, expected) in [
            ("default", &all[..]),
            ("acceptEdits", &all[..1]),
            ("bypassPermissions", &[]),
            ("plan", &[]),
        ] {
            let bench = bench(mode, vec![every_tool(), text("done")]).await;
            let told = answered(&bench, json!("go"), allow).await;
            assert_eq!(asked(&told), expected, "{mode}");
            assert_eq!(has(&bench, "by-bash"), mode != "plan", "{mode}");
            assert_eq!(has(&bench, "w"), mode != "plan", "{mode}");
            assert_eq!(told.ending, Ending::EndTurn);
        }
    });
}

#[test]
fn a_prompt_says_which_mode_its_run_has() {
    local(async {
        let call = || tools(&[("a", "bash", touch("made"))]);
        let bench = bench("bypassPermissions", vec![call(), text("a"), call(), text("b")]).await;
        let prompt = json!({ "content": "go", "permissionMode": "default" });
        assert_eq!(asked(&answered(&bench, prompt, allow).await), ["bash"]);
        assert_eq!(asked(&answered(&bench, json!("go"), allow).await), Vec::<String>::new());
    });
}

#[test]
fn a_coder_asks_for_itself() {
    local(async {
        let delegate = tools(&[("d", "delegate_coder", json!({ "task": "touch it" }))]);
        let coder = tools(&[("a", "bash", touch("made"))]);
        let replies = vec![delegate, coder, text("touched"), text("done")];
        let bench = bench("default", replies).await;
        let told = answered(&bench, json!("go"), allow).await;
        assert_eq!(asked(&told), ["bash"]);
        assert!(has(&bench, "made"));
    });
}

#[test]
fn a_no_is_told_to_the_model_and_nothing_is_done() {
    local(async {
        let bench =
            bench("default", vec![tools(&[("a", "bash", touch("made"))]), text("ok")]).await;
        let told = answered(&bench, json!("go"), |_| {
            Some(Decision::Deny { message: Some("use make".to_owned()) })
        })
        .await;
        assert_eq!(told.ending, Ending::EndTurn);
        assert!(!has(&bench, "made"));
        assert_eq!(result(&bench, 1), (true, "not run: use make".to_owned()));
        let words = told.in_words();
        let at = |word: &str| words.iter().position(|other| other == word).unwrap();
        assert!(at("question bash") < at("answered Denied"), "{words:?}");
        assert!(at("answered Denied") < at("output tool_result"), "{words:?}");
    });
}

#[test]
fn a_yes_with_another_input_does_that_and_the_model_is_told() {
    local(async {
        let bench =
            bench("default", vec![tools(&[("a", "bash", touch("made"))]), text("ok")]).await;
        answered(&bench, json!("go"), |_| {
            Some(Decision::Allow { input: Some(raw(&touch("other"))) })
        })
        .await;
        assert!(!has(&bench, "made") && has(&bench, "other"));
        let (is_error, text) = result(&bench, 1);
        assert!(!is_error && text.contains("touch other"), "{text}");
    });
}

#[test]
fn nobody_answers_and_the_model_is_told_so() {
    local(async {
        let bench =
            bench("default", vec![tools(&[("a", "bash", touch("made"))]), text("ok")]).await;
        bench.settings.questions.set_timeout(Duration::from_millis(20));
        let told = answered(&bench, json!("go"), |_| None).await;
        assert!(told.in_words().contains(&"answered TimedOut".to_owned()));
        assert!(!has(&bench, "made"));
        let (is_error, text) = result(&bench, 1);
        assert!(is_error && text.contains("nobody allowed it"), "{text}");
    });
}

#[test]
fn an_interrupt_takes_the_question_back_and_nothing_was_done() {
    local(async {
        let bench =
            bench("default", vec![tools(&[("a", "bash", touch("made"))]), text("well")]).await;
        let mut builtin = bench.open().await;
        let interrupt = CancellationToken::new();
        let cancel = interrupt.clone();
        let told = run_with(&mut builtin, json!("go"), interrupt, |event| {
            if matches!(event, Event::Question { .. }) {
                cancel.cancel();
            }
        })
        .await;
        assert_eq!(told.ending, Ending::Interrupted);
        assert!(told.in_words().contains(&"answered Withdrawn".to_owned()));
        builtin.close().await;
        assert!(!has(&bench, "made"));
        let told = answered(&bench, json!("go on"), allow).await;
        assert_eq!(told.ending, Ending::EndTurn);
        let sent = bench.sent(1)[2]["content"][0]["content"][0]["text"].clone();
        assert_eq!(sent, "not run: interrupted by the user");
    });
}
