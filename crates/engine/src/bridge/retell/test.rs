//! Records that are made anew from logs.

use ash_core::failure::{Failure, FailureCode};
use ash_core::json::Json;
use ash_core::run::Usage;
use ash_core::time::Timestamp;

use super::*;

fn run(number: u32) -> RunId {
    let mut random = [0; 10];
    random[..4].copy_from_slice(&number.to_be_bytes());
    RunId::from_parts(Timestamp::from_millis(1), random)
}

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

/// A turn: its prompt, what the agent said and its tools answered, and how it ended.
fn turn(number: u32, prompt: &str, said: &[(&str, &str)], end: Option<Outcome>) -> Vec<Entry> {
    let run = run(number);
    let mut entries = vec![
        Entry::Prompt { run, content: json(prompt) },
        Entry::RunStarted { run, turn: Turn::new(number), parent_turn: Turn::new(number - 1) },
    ];
    entries.extend(said.iter().map(|&(name, body)| match name {
        "message" => Entry::Message { run, body: json(body) },
        name => Entry::Output { run, name: name.to_owned(), body: json(body) },
    }));
    entries.extend(end.map(|outcome| Entry::RunEnded { run, outcome, usage: Usage::default() }));
    entries
}

fn told(lineage: Lineage, entries: Vec<Entry>) -> (Vec<Value>, u32) {
    told_as(Lines::Builtin, lineage, entries)
}

fn told_as(style: Lines, lineage: Lineage, entries: Vec<Entry>) -> (Vec<Value>, u32) {
    let mut retelling = Retelling::of(lineage, style);
    for (seq, entry) in (1..).zip(entries) {
        retelling.take(LogEntry { seq: Seq::new(seq), at: Timestamp::from_millis(1), entry });
    }
    let mut lines = retelling.lines();
    let (rest, turns) = retelling.end();
    lines.extend(rest);
    let lines = String::from_utf8(lines).unwrap();
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), turns)
}

fn lineage(turns: u32) -> Lineage {
    let mut lineage = Lineage::default();
    for _ in 0..turns {
        lineage.begin();
    }
    lineage
}

const DONE: Option<Outcome> = Some(Outcome::Completed(Completion::EndTurn));

fn roles(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["message"]["role"].as_str()).collect()
}

#[test]
fn what_was_said_is_told_with_calls_and_their_results() {
    let call = r#"{"type":"assistant","message":{"role":"assistant","content":[
        {"type":"text","text":"I look."},{"type":"tool_use","id":"a","name":"bash","input":{"n":1e300}},
        {"type":"tool_use","id":"b","name":"bash","input":{}}]}}"#;
    let said = [
        ("message", call),
        ("tool_result", r#"{"tool_use_id":"x","is_error":false,"content":[],"delegation":"a"}"#),
        (
            "tool_result",
            r#"{"tool_use_id":"a","is_error":false,"content":[{"type":"text","text":"42"}]}"#,
        ),
        ("working_memory", r#"{"scope":"main","plan":"go on"}"#),
        (
            "message",
            r#"{"message":{"role":"assistant","content":[{"type":"text","text":"Done."}]}}"#,
        ),
    ];
    let (lines, turns) = told(lineage(1), turn(1, r#"{"content":"Hi","model":"m"}"#, &said, DONE));
    assert_eq!((turns, roles(&lines)), (1, vec!["user", "assistant", "user", "assistant"]));
    assert_eq!(lines[0]["message"]["content"][0]["text"], "Hi");
    let results = lines.iter().find(|line| line["message"]["content"][0]["type"] == TOOL_RESULT);
    let results = &results.unwrap()["message"]["content"];
    assert_eq!(results[0]["content"][0]["text"], "42");
    assert_eq!((&results[1]["tool_use_id"], &results[1]["is_error"]), (&json!("b"), &json!(true)));
    assert_eq!(results.as_array().unwrap().len(), 2);
    assert!(lines.iter().any(|line| line["memory"]["plan"] == "go on"));
    assert_eq!(lines.last().unwrap()["how"], "end_turn");
}

#[test]
fn a_turn_that_was_cut_is_told_and_two_prompts_never_run_together() {
    let cut = || Outcome::Interrupted(Failure::new(FailureCode::SandboxDied, "it died"));
    let call = r#"{"message":{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":{}}]}}"#;
    let mut entries = turn(1, r#""one""#, &[], Some(cut()));
    entries.extend(turn(2, r#""two""#, &[("message", call)], Some(cut())));
    entries.extend(turn(3, r#"[{"type":"text","text":"three"}]"#, &[], None));
    let (lines, turns) = told(lineage(3), entries);
    assert_eq!(turns, 3);
    let expected = ["user", "assistant", "user", "assistant", "user", "assistant", "user"];
    assert_eq!(roles(&lines), expected);
    assert!(lines.iter().all(|line| line["turn_end"].is_null()));
}

#[test]
fn turns_that_were_rewound_are_not_told_and_the_others_are_counted_in_order() {
    let mut branched = lineage(3);
    assert!(branched.rewind(Turn::new(1)));
    branched.begin();
    let answer = r#"{"message":{"role":"assistant","content":[{"type":"text","text":"ok"}]}}"#;
    let entries = (1..=4).flat_map(|number| {
        turn(number, &format!(r#""prompt {number}""#), &[("message", answer)], DONE)
    });
    let (lines, turns) = told(branched, entries.collect());
    assert_eq!(turns, 2);
    let prompts: Vec<_> = lines.iter().filter(|line| line["message"]["role"] == "user").collect();
    let said = |line: &Value| line["message"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(prompts.iter().map(|line| said(line)).collect::<Vec<_>>(), ["prompt 1", "prompt 4"]);
    assert_eq!(prompts[1]["turn"], 2);
}

#[test]
fn of_a_turn_that_was_rewound_into_only_the_begin_is_told() {
    let answer = |text: &str| {
        format!(
            r#"{{"message":{{"role":"assistant","content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )
    };
    let (begin, end) = (answer("I begin."), answer("It is done."));
    let said = [("message", begin.as_str()), ("message", end.as_str())];
    let mut entries = turn(1, r#""one""#, &said, DONE);
    let mut cut = lineage(1);
    assert!(cut.rewind_into(Turn::new(1), Some(Seq::new(3))));
    cut.begin();
    entries.extend(turn(2, r#""two""#, &[], DONE));
    let (lines, turns) = told(cut, entries);
    assert_eq!((turns, roles(&lines)), (2, vec!["user", "assistant", "user"]));
    let text = serde_json::to_string(&lines).unwrap();
    assert!(text.contains("I begin.") && !text.contains("It is done."), "{text}");
    assert!(text.contains("The previous turn was cut off"), "{text}");
    let ends = lines.iter().filter(|line| !line["turn_end"].is_null()).count();
    assert_eq!(ends, 1, "the first turn has no end");
}

#[test]
fn what_no_model_takes_is_told_otherwise() {
    for prompt in ["7", r#""  ""#, r#"[{"type":"tool_result","tool_use_id":"x"}]"#, "{}"] {
        let (lines, _) = told(lineage(1), turn(1, prompt, &[], None));
        assert_eq!(lines[0]["message"]["content"][0]["text"], UNREADABLE, "{prompt}");
    }
    let error = ToolResult {
        tool_use_id: "a".to_owned(),
        is_error: true,
        content: vec![json!({ "type": "image" }), json!({ "type": "text", "text": " " })],
        delegation: None,
    };
    assert_eq!(error.block()["content"], json!([{ "type": "text", "text": "(nothing was said)" }]));
    let entries = turn(1, "\"a\"", &[("message", "[]"), ("tool_result", "7")], DONE);
    assert_eq!(roles(&told(lineage(1), entries).0), ["user"]);
}

#[test]
fn of_claude_code_what_it_wrote_down_is_told_and_nothing_else() {
    let mirror =
        |uuid: &str| format!(r#"{{"claude":"c","entries":[{{"uuid":"{uuid}"}},{{"x":"\n"}}]}}"#);
    let said = |uuid: &str| mirror(uuid);
    let (first, second, third) = (said("a"), said("b"), said("c"));
    let message = r#"{"type":"assistant","message":{"role":"assistant","content":[]}}"#;
    let entries = [
        turn(
            1,
            r#"{"content":"hi","model":"m"}"#,
            &[("transcript_mirror", &first), ("message", message)],
            DONE,
        ),
        turn(2, r#"[{"type":"text","text":"more"}]"#, &[("transcript_mirror", &second)], None),
        turn(
            3,
            r#""last""#,
            &[("transcript_cut", r#"{"uuid":"b"}"#), ("transcript_mirror", &third)],
            DONE,
        ),
    ];
    let (lines, turns) = told_as(Lines::Claude, lineage(3), entries.clone().concat());
    assert_eq!(turns, 3);
    let prompts: Vec<&Value> =
        lines.iter().map(|line| &line["prompt"]).filter(|p| !p.is_null()).collect();
    assert_eq!(prompts, [&json!("hi"), &json!([{"type":"text","text":"more"}]), &json!("last")]);
    let uuids: Vec<&str> =
        lines.iter().filter_map(|line| line["mirror"]["uuid"].as_str()).collect();
    assert_eq!(uuids, ["a", "b", "c"]);
    assert!(lines.iter().all(|line| line["message"].is_null()));
    assert_eq!(lines.iter().filter(|line| line["cut"] == "b").count(), 1);
    assert_eq!(lines.iter().filter(|line| line["turn_end"].is_u64()).count(), 2);

    // What it wrote down of its own accord is told where it was said.
    let aside = |turn: u32, uuid: &str| Entry::Aside {
        turn: Turn::new(turn),
        said: Said::Output { name: "transcript_mirror".to_owned(), body: json(&said(uuid)) },
    };
    let [one, two, three] = entries.clone();
    let with_asides =
        [vec![aside(0, "x")], one, vec![aside(1, "y")], two, vec![aside(2, "z")], three].concat();
    let uuids_of = |turns: u32| -> Vec<String> {
        let (lines, _) = told_as(Lines::Claude, lineage(turns), with_asides.clone());
        let uuids = lines.iter().filter_map(|line| line["mirror"]["uuid"].as_str());
        uuids.map(str::to_owned).collect()
    };
    assert_eq!(uuids_of(3), ["x", "a", "y", "b", "z", "c"]);
    assert_eq!(uuids_of(1), ["x", "a", "y"]);

    // Rewound to the first turn.
    let (lines, turns) = told_as(Lines::Claude, lineage(1), entries.clone().concat());
    assert_eq!(turns, 1);
    assert!(lines.iter().all(|line| line["mirror"]["uuid"] != "b"));
    // A prompt that nobody has answered is all that there is to know. One of whose answer it wrote nothing down is not.
    for (said, end, known) in
        [(&[][..], None, 1), (&[], DONE, 0), (&[("message", message)], None, 0)]
    {
        let (_, turns) = told_as(Lines::Claude, lineage(1), turn(1, r#""hi""#, said, end));
        assert_eq!(turns, known);
    }
}

#[test]
fn of_claude_code_a_turn_without_an_end_is_told_as_one() {
    let mirror = |uuid: &str| format!(r#"{{"claude":"c","entries":[{{"uuid":"{uuid}"}}]}}"#);
    let call = r#"{"id":"t1","name":"Bash","input":{"command":"pay"}}"#;
    let result = r#"{"tool_use_id":"t1","is_error":false,"content":[]}"#;
    let said = [("tool_use", call), ("transcript_mirror", "{}")];
    let told = |said: &[(&str, &str)], outcome: Option<Outcome>| {
        told_as(Lines::Claude, lineage(1), turn(1, r#""x""#, said, outcome)).0
    };
    let failed = || Outcome::Failed(Failure::new(FailureCode::AgentFailed, "it died"));
    let ends = |lines: &[Value]| -> Vec<Value> {
        lines.iter().filter(|line| !line["turn_end"].is_null()).cloned().collect()
    };
    // The program died in a call.
    for outcome in [
        Some(failed()),
        Some(Outcome::Interrupted(Failure::new(FailureCode::SandboxDied, "killed"))),
        None,
    ] {
        let lines = told(&said, outcome);
        assert_eq!(ends(&lines), [json!(null); 0]);
        let calls: Vec<_> = lines.iter().filter(|line| !line["call"].is_null()).collect();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0]["call"], json!({ "id": "t1", "what": r#"Bash {"command":"pay"}"# }));
    }
    let lines = told(&[("tool_use", call), ("tool_result", result)], Some(failed()));
    assert_eq!(lines.last().unwrap()["answered"], "t1");
    // A person ended it, before the program had seen it and after.
    let seen = mirror(&run(1).to_string());
    assert_eq!(ends(&told(&[], Some(Outcome::Cancelled))), [json!(null); 0]);
    let ended = ends(&told(&[("transcript_mirror", &*seen)], Some(Outcome::Cancelled)));
    assert_eq!(ended.len(), 1);
    assert_eq!((&ended[0]["how"], &ended[0]["unseen"]), (&json!("interrupted"), &json!(null)));
    // The provider refused it.
    let cut = format!(r#"{{"uuid":"{}"}}"#, run(1));
    let refused = [("transcript_mirror", &*seen), ("transcript_cut", &*cut)];
    assert_eq!(ends(&told(&refused, Some(failed())))[0]["unseen"], true);
}
