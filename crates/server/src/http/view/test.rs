//! The table in `docs/events.md` says what the code does; and agents cannot say what is ours to say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ash_core::entry::{EndedBy, ResumePath};
use ash_core::failure::{Failure, FailureCode};
use ash_core::json::Json;
use ash_core::number::{Incarnation, Seq, Turn};
use ash_core::resume::{Conversation, Native, Receipt, Source, Workspace};
use ash_core::run::{Completion, Outcome, Phase};
use ash_core::session::PauseReason;
use ash_core::time::Timestamp;
use proptest::prelude::*;

use super::*;

fn session() -> SessionId {
    SessionId::from_parts(Timestamp::from_millis(1), [1; 10])
}

fn run() -> RunId {
    RunId::from_parts(Timestamp::from_millis(2), [2; 10])
}

fn json_of(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn out(name: &str, body: &str) -> Entry {
    Entry::Output { run: run(), name: name.to_owned(), body: json_of(body) }
}

fn aside(said: Said) -> Entry {
    Entry::Aside { turn: Turn::new(3), said }
}

fn receipt() -> Receipt {
    Receipt {
        path: ResumePath::Cold,
        source: Some(Source::Local),
        workspace: Workspace::Kept,
        snapshot: None,
        unverified: 0,
        last_seq: Seq::new(7),
        files: 1,
        bytes: 2,
        conversation: Conversation { native: Native::Intact, turns: 1, turns_in_log: 1 },
        interrupted_run: Some(run()),
        duration_micros: 3,
    }
}

/// Every row of the table, and entries that it speaks of.
fn samples() -> Vec<(&'static str, Vec<Entry>)> {
    let (run, incarnation) = (run(), Incarnation::new(1));
    let failure = || Failure::new(FailureCode::AgentFailed, "it broke");
    let resumed = |receipt| Entry::SessionResumed { path: ResumePath::Cold, incarnation, receipt };
    let message = |body: &str| Entry::Message { run, body: json_of(body) };
    vec![
        ("`session_created`", vec![Entry::SessionCreated]),
        ("`session_active`", vec![Entry::SessionActive { incarnation }]),
        ("`session_paused`", vec![Entry::SessionPaused { reason: PauseReason::Idle }]),
        ("`session_waking`", vec![Entry::SessionWaking]),
        ("`session_resumed`", vec![resumed(None), resumed(Some(receipt()))]),
        ("`context_lost`", vec![Entry::ContextLost { turns_in_log: 1, reason: "gone".to_owned() }]),
        ("`session_stopped`", vec![Entry::SessionStopped]),
        ("`session_failed`", vec![Entry::SessionFailed { failure: failure() }]),
        (
            "`session_ended`",
            [EndedBy::Request, EndedBy::Ttl].map(|by| Entry::SessionEnded { by }).to_vec(),
        ),
        (
            "`session_forked`",
            vec![Entry::SessionForked { parent: session(), turn: Turn::new(1), snapshot: None }],
        ),
        (
            "`session_imported`",
            vec![Entry::SessionImported { from: session(), turn: Turn::new(1), snapshot: None }],
        ),
        (
            "`rewound`",
            vec![Entry::Rewound {
                from: Turn::new(2),
                to: Turn::new(1),
                snapshot: None,
                through: None,
            }],
        ),
        ("`prompt`", vec![Entry::Prompt { run, content: json_of("\"hi\"") }]),
        (
            "`run_started`",
            vec![Entry::RunStarted { run, turn: Turn::new(1), parent_turn: Turn::new(0) }],
        ),
        ("`phase`", vec![Entry::Phase { run, phase: Phase::StreamingLlm, round: 1 }]),
        ("`run_retry`", vec![Entry::RunRetry { run, round: 1, discard_after_seq: Seq::new(3) }]),
        ("`run_cancelling`", vec![Entry::RunCancelling { run }]),
        ("`text_delta`", vec![Entry::TextDelta { run, delta: "a".to_owned() }]),
        ("`thinking_delta`", vec![Entry::ThinkingDelta { run, delta: "b".to_owned() }]),
        (
            "`message` of the assistant",
            vec![message(
                r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a"}]}}"#,
            )],
        ),
        ("`message` of another type", vec![message(r#"{"type":"result"}"#)]),
        (
            "`output` called `tool_use`",
            vec![out("tool_use", r#"{"id":"1","name":"bash","input":{}}"#)],
        ),
        (
            "`output` called `tool_result`",
            vec![
                out("tool_result", r#"{"tool_use_id":"1","content":"a","is_error":false}"#),
                out(
                    "tool_result",
                    r#"{"tool_use_id":"1","content":[{"text":"a"}],"is_error":true}"#,
                ),
            ],
        ),
        (
            "`output` called `system_init`, with servers",
            vec![out("system_init", r#"{"mcp_servers":[{"name":"a","status":"failed"}]}"#)],
        ),
        (
            "`output` called `transcript_mirror`",
            vec![out("transcript_mirror", r#"{"claude":"c","entries":[{"secret":1}]}"#)],
        ),
        ("`output` under a name of the agent's", vec![out("notice", r#"{"message":"a"}"#)]),
        (
            "`output` under a name that it cannot have",
            vec![out("done", "{}"), out("plan", "1"), out("plan", r#"{"runId":"x"}"#)],
        ),
        (
            "`permission_request`",
            vec![Entry::PermissionRequest {
                run,
                id: question(),
                tool: "bash".to_owned(),
                input: json_of("{}"),
            }],
        ),
        (
            "`permission_decided`",
            [
                Permission::Allow { input: None },
                Permission::Allow { input: Some(json_of("{}")) },
                Permission::Deny { message: None },
                Permission::Deny { message: Some("no".to_owned()) },
            ]
            .map(|decision| Entry::PermissionDecided { run, id: question(), decision })
            .to_vec(),
        ),
        (
            "`permission_answered`",
            [(AnsweredHow::Allowed, None), (AnsweredHow::Lost, Some(FailureCode::SandboxDied))]
                .map(|(how, code)| Entry::PermissionAnswered { run, id: question(), how, code })
                .to_vec(),
        ),
        (
            "`report_too_large`",
            [Some(run), None].map(|run| Entry::ReportTooLarge { run, bytes: 1 }).to_vec(),
        ),
        (
            "`aside`",
            vec![
                aside(Said::Message { body: json_of(r#"{"type":"assistant"}"#) }),
                aside(Said::Output { name: "done".to_owned(), body: json_of("{}") }),
            ],
        ),
        (
            "`aside` called `transcript_mirror`",
            vec![aside(Said::Output {
                name: "transcript_mirror".to_owned(),
                body: json_of(r#"{"claude":"c","entries":[{"secret":1}]}"#),
            })],
        ),
        ("`run_error`", vec![Entry::RunError { run, failure: failure() }]),
        (
            "`run_ended`",
            vec![Entry::RunEnded {
                run,
                outcome: Outcome::Completed(Completion::EndTurn),
                usage: Usage::default(),
            }],
        ),
        ("`reports_lost`", vec![Entry::ReportsLost { missing: 1 }]),
    ]
}

/// A number for every kind of entry. A kind that is added does not compile here: give it a sample.
const KINDS: usize = 29;
fn number_of(entry: &Entry) -> usize {
    match entry {
        Entry::SessionCreated => 0,
        Entry::SessionActive { .. } => 1,
        Entry::SessionPaused { .. } => 2,
        Entry::SessionWaking => 3,
        Entry::SessionResumed { .. } => 4,
        Entry::ContextLost { .. } => 5,
        Entry::SessionStopped => 6,
        Entry::SessionFailed { .. } => 7,
        Entry::SessionEnded { .. } => 8,
        Entry::Rewound { .. } => 9,
        Entry::Prompt { .. } => 10,
        Entry::RunStarted { .. } => 11,
        Entry::Phase { .. } => 12,
        Entry::RunRetry { .. } => 13,
        Entry::RunCancelling { .. } => 14,
        Entry::TextDelta { .. } => 15,
        Entry::ThinkingDelta { .. } => 16,
        Entry::Message { .. } => 17,
        Entry::Output { .. } => 18,
        Entry::ReportTooLarge { .. } => 19,
        Entry::RunError { .. } => 20,
        Entry::RunEnded { .. } => 21,
        Entry::ReportsLost { .. } => 22,
        Entry::SessionForked { .. } => 23,
        Entry::SessionImported { .. } => 24,
        Entry::PermissionRequest { .. } => 25,
        Entry::PermissionDecided { .. } => 26,
        Entry::PermissionAnswered { .. } => 27,
        Entry::Aside { .. } => 28,
    }
}

fn question() -> QuestionId {
    QuestionId::from_parts(ash_core::time::Timestamp::from_millis(3), [3; 10])
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of the table under a heading, by their first cell.
fn table(heading: &str) -> BTreeMap<String, Vec<String>> {
    let page = std::fs::read_to_string(root().join("docs/events.md")).unwrap();
    let (_, rest) = page.split_once(&format!("## {heading}\n")).expect("there is the heading");
    let rows = rest.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let cells = row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
            let cells: Vec<String> = cells.collect();
            (cells[0].clone(), cells)
        })
        .collect()
}

/// Holds an object against a cell of field names. Those with a question mark may be missing; those
/// with a value have it.
fn check(fields: &str, data: &str, place: &str) {
    let data: serde_json::Map<String, Value> = serde_json::from_str(data).unwrap();
    let mut told = BTreeSet::new();
    for (index, part) in fields.split('`').enumerate().filter(|(index, _)| index % 2 == 1) {
        let (name, value) = part.split_once(": ").map_or((part, None), |(n, v)| (n, Some(v)));
        told.insert(name);
        let optional = fields.split('`').nth(index + 1).is_some_and(|after| after.starts_with('?'));
        assert!(optional || data.contains_key(name), "{place}: there is no {name} in {data:?}");
        assert!(value.is_none_or(|value| data[name] == value), "{place}: {name} in {data:?}");
    }
    let untold: Vec<_> = data.keys().filter(|name| !told.contains(name.as_str())).collect();
    assert!(untold.is_empty(), "{place} does not tell of {untold:?}");
}

#[test]
fn an_answer_without_words_is_no_text_in_a_list() {
    let run = run();
    let kind = |content: &str| {
        let body = format!(r#"{{"type":"assistant","message":{{"content":{content}}}}}"#);
        timeline::event(session(), &Entry::Message { run, body: json_of(&body) })
    };
    let (name, data) =
        kind(r#"[{"type":"thinking","thinking":"so"},{"type":"tool_use","id":"1"}]"#);
    assert_eq!(name, "message");
    assert!(data.contains("thinking"), "all of it is there: {data}");
    assert_eq!(kind("[]").0, "message");
    assert_eq!(kind(r#"[{"type":"text","text":""}]"#).0, "message");
    assert_eq!(kind(r#"[{"type":"tool_use"},{"type":"text","text":"a"}]"#).0, "text");
}

#[test]
fn the_table_of_events_says_what_every_entry_looks_like() {
    let table = table("Entries of the log");
    let samples = samples();
    let rows: BTreeSet<&str> = samples.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, table.keys().map(String::as_str).collect());
    let kinds: BTreeSet<usize> =
        samples.iter().flat_map(|(_, entries)| entries).map(number_of).collect();
    assert_eq!(kinds, (0..KINDS).collect(), "a kind of entry has no sample");
    for (row, entries) in &samples {
        let [_, name, fields, kind, list_fields, _] = table[*row].as_slice() else {
            panic!("{row} has not six cells");
        };
        for entry in entries {
            assert!(row.starts_with(&format!("`{}`", entry.kind())), "{row}: {entry:?}");
            let (event, data) = shown(session(), entry);
            let (list_event, list_data) = timeline::event(session(), entry);
            if kind == "the same" {
                assert_eq!((&event, &data), (&list_event, &list_data), "{row}");
            } else {
                assert_eq!(kind, &format!("`{list_event}`"), "{row}");
                check(list_fields, &list_data, row);
            }
            if name.starts_with('`') {
                assert_eq!(name, &format!("`{event}`"), "{row}");
                check(fields, &data, row);
            }
        }
    }
}

#[test]
fn the_table_of_frames_that_are_not_logged_is_right_too() {
    let cursor = Cursor { epoch: LogEpoch::new(0), seq: Seq::new(1) };
    let gap = Gap { from: cursor, to: cursor, reason: GapReason::BeyondEnd };
    let frames = [
        Frame::session_start(session(), run()),
        Frame::run_queued(run(), 1),
        Frame::reconnect(cursor),
        Frame::gap(gap),
    ];
    let table = table("Frames that are not in the log");
    assert_eq!(table.len(), frames.len());
    for frame in frames {
        let row = format!("`{}`", frame.event);
        assert_eq!(frame.id, None);
        check(&table[&row][1], &frame.data, &row);
        assert!(OURS.contains(&&*frame.event), "an agent could say {row}");
    }
}

#[test]
fn the_builtin_agent_uses_the_names_that_the_table_says() {
    let mut used = BTreeSet::new();
    for file in std::fs::read_dir(root().join("crates/bridge/src/builtin")).unwrap() {
        let path = file.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap_or_default();
        for call in source.split("output(").skip(1) {
            let line = call.lines().next().unwrap_or_default();
            if let Some((_, rest)) = line.split_once('"') {
                used.insert(format!("`{}`", rest.split('"').next().unwrap()));
            }
        }
    }
    let table = table("What the builtin agent reports under names of its own");
    assert_eq!(used, table.into_keys().collect());
}

#[test]
fn an_agent_cannot_use_a_name_of_ours() {
    for (row, entries) in samples() {
        for entry in entries.iter().filter(|entry| !matches!(entry, Entry::Output { .. })) {
            let names = [shown(session(), entry).0, timeline::event(session(), entry).0];
            for name in names {
                assert!(OURS.contains(&&*name), "{row}: {name}");
            }
        }
    }
    for name in OURS {
        let (event, data) = shown(session(), &out(name, r#"{"a":1}"#));
        assert_eq!(event, "output");
        let data: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(data, json!({ "name": name, "body": { "a": 1 }, "runId": run() }));
    }
}

#[test]
fn odd_names_are_told_in_the_data_and_not_in_the_frame() {
    let long = "a".repeat(65);
    for name in ["", "two words", "line\nbreak", "ünï", "a:b", &long] {
        let (event, data) = shown(session(), &out(name, "{}"));
        assert_eq!(event, "output", "{name:?}");
        let data: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(data["name"], name);
    }
}

#[test]
fn a_message_has_its_session_and_its_run_once() {
    for (body, wanted) in [
        ("{}", json!({ "session_id": session(), "runId": run() })),
        (r#" { "a" : 1 }"#, json!({ "a": 1, "session_id": session(), "runId": run() })),
        (r#"{"session_id":"its own"}"#, json!({ "session_id": "its own", "runId": run() })),
        (r#"{"runId":"x","session_id":"y"}"#, json!({ "session_id": "y", "runId": "x" })),
        ("[1,\n2]", json!([1, 2])),
        ("null", Value::Null),
    ] {
        let shown = message(session(), run(), body);
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), wanted, "{body}");
        assert!(shown.matches("runId").count() <= 1, "{shown}");
    }
}

#[test]
fn a_prompt_is_shown_without_the_options_of_its_run() {
    let blocks = r#"[{"type":"text","text":"hi"}]"#;
    for (content, wanted) in [
        ("\"hi\"".to_owned(), json!("hi")),
        (blocks.to_owned(), json!([{ "type": "text", "text": "hi" }])),
        (r#"{"content":"hi","model":"m","maxTurns":3}"#.to_owned(), json!("hi")),
        (r#"{"model":"m"}"#.to_owned(), Value::Null),
    ] {
        let entry = Entry::Prompt { run: run(), content: json_of(&content) };
        let (_, data) = shown(session(), &entry);
        let data: Value = serde_json::from_str(&data).unwrap();
        assert_eq!(data, json!({ "runId": run(), "content": wanted }), "{content}");
        let listed: Value = serde_json::from_str(&message_content(session(), &entry)).unwrap();
        assert_eq!(listed, json!({ "type": "user", "content": wanted }));
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        // Ends of lines, to some.
        "[a\u{85}\u{2028}\u{2029}]*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z_]{0,9}", inner, 0..4).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_an_agent_says_is_one_frame_with_json_on_one_line(
        name in ".{0,70}", body in any_json(), pretty: bool, whole: bool,
    ) {
        let said = body.clone();
        let text = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) };
        let body = json_of(&text.unwrap());
        let entry = match whole {
            true => Entry::Message { run: run(), body },
            false => Entry::Output { run: run(), name, body },
        };
        let logged = LogEntry { seq: Seq::new(1), at: Timestamp::from_millis(0), entry };
        let frame = Frame::of(session(), LogEpoch::new(0), &logged);
        let mut text = String::new();
        frame.write(&mut text);
        let lines: Vec<&str> = text.split('\n').collect();
        prop_assert_eq!(lines.len(), 5, "{:?}", text);
        prop_assert!(lines[0].starts_with("id: ") && lines[1].starts_with("event: "));
        prop_assert!(!text.contains(['\r', '\u{85}', '\u{2028}', '\u{2029}']), "{:?}", text);
        let data = lines[2].strip_prefix("data: ").unwrap();
        prop_assert!(serde_json::from_str::<Value>(data).is_ok(), "{}", data);
        if let (true, Ok(Value::Object(mut read))) = (whole, serde_json::from_str(data)) {
            read.retain(|field, _| said.get(field).is_some());
            prop_assert!(!said.is_object() || Value::Object(read) == said);
        }
        prop_assert!(serde_json::from_str::<Value>(&timeline::event(session(), &logged.entry).1).is_ok());
    }
}
