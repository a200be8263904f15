use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::step::{Broken, Call, Fault, Part, Step, StopReason, UsageFigures};
use super::{Condition, Due, Pattern, Rule, Script, Situation, answers, due, parse_step};

fn steps(text: &str) -> Vec<Step> {
    text.lines().filter_map(parse_step).collect::<Result<_, _>>().unwrap()
}

fn reason(line: &str) -> String {
    parse_step(line).unwrap().unwrap_err()
}

/// The parts of each answer, as they would be written.
fn rounds(text: &str) -> Vec<String> {
    let written = |parts: &[Part]| {
        let lines: Vec<String> = parts.iter().map(ToString::to_string).collect();
        lines.join(" ")
    };
    answers(&steps(text)).unwrap().iter().map(|answer| written(&answer.parts)).collect()
}

fn line_of(script: &str) -> String {
    Script::parse(script).unwrap_err().to_string()
}

#[test]
fn text_is_the_rest_of_the_line_or_a_json_string() {
    let said = |line: &str| match parse_step(line) {
        Some(Ok(Step::Part(Part::Say(text)))) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(said("/say  hello  there "), "hello  there");
    assert_eq!(said(r#"/say "two\nlines ""#), "two\nlines ");
    assert_eq!(said(r#"/say "yes" she said"#), r#""yes" she said"#);
    assert_eq!(said("/say"), "");
}

#[test]
fn a_line_that_only_looks_like_a_step_is_text() {
    for line in ["/usr/bin/env is missing", "/sya hello", "say hello", "/", "// say x", "/Say x"] {
        assert_eq!(parse_step(line), None, "{line}");
    }
}

#[test]
fn a_step_that_is_wrong_says_why() {
    assert_eq!(reason("/slow 50"), "/slow: `50` is not a duration such as 50ms or 2s");
    assert_eq!(reason("/error"), "/error: the status is missing");
    assert_eq!(reason("/hang retry-after 3"), "/hang: takes no `retry-after`");
    assert_eq!(reason("/cut after 3 after 4"), "/cut: `after` is said twice");
    assert_eq!(reason("/cut later"), "/cut: does not know `later`");
    assert_eq!(reason("/stop now"), "/stop: `now` is no stop reason");
    assert_eq!(reason("/recall all"), "/recall: takes nothing, but has `all`");
    assert_eq!(reason("/tool x [1]"), "/tool: the input must be a JSON object");
    assert!(reason("/tool x {").starts_with("/tool: the input is not JSON"));
    assert!(reason("/repeat 99999999999 ab").contains("more than"));
    assert!(reason("/and think x").contains("cannot be joined"));
}

#[test]
fn newlines_in_json_strings_survive_a_delegation() {
    let outer = r#"/tool delegate_coder {"task": "/bash ls\n/tool delegate_coder {\"task\": \"/say a\\n/say b\"}"}"#;
    let task = |step: &Step| {
        let Step::Part(Part::Call(Call::Tool { input, .. })) = step else { panic!("{step:?}") };
        input["task"].as_str().unwrap().to_owned()
    };
    let inner = task(&steps(outer)[0]);
    assert_eq!(steps(&inner)[0], Step::Part(Part::Call(Call::Bash("ls".to_owned()))));
    assert_eq!(task(&steps(&inner)[1]), "/say a\n/say b");
}

#[test]
fn a_tool_call_ends_an_answer_and_and_joins_it() {
    assert_eq!(
        rounds("/think t\n/say a\n/bash b\n/bash c\n/and bash d\n/say e\n/say f"),
        ["/think t /say a /bash b", "/bash c /bash d", "/say e /say f"]
    );
    assert_eq!(
        rounds("/bash a\n/and say b\n/and bash c\n/say d"),
        ["/bash a /say b /bash c", "/say d"]
    );
    assert_eq!(rounds("/say a\n/stop pause_turn\n/say b"), ["/say a", "/say b"]);
    assert_eq!(rounds("/bash a\n/stop max_tokens\n/say b"), ["/bash a", "/say b"]);
    assert_eq!(answers(&steps("/say a\n/and bash b")).unwrap_err().0, 1);
}

#[test]
fn slowness_and_usage_last_and_all_else_is_for_one_answer() {
    let planned =
        answers(&steps("/slow 5ms\n/usage input=7\n/error 500\n/bash a\n/say b")).unwrap();
    assert_eq!(planned.len(), 2);
    for answer in &planned {
        assert_eq!(answer.slow, Some(Duration::from_millis(5)));
        assert_eq!(answer.usage.input, Some(7));
    }
    assert_eq!((planned[0].faults.len(), planned[1].faults.len()), (1, 0));
}

#[test]
fn a_wait_is_for_one_answer_and_is_one() {
    let planned = answers(&steps("/wait 5ms\n/bash a\n/say b\n/stop end_turn\n/wait 2s")).unwrap();
    let waits: Vec<_> = planned.iter().map(|answer| answer.wait).collect();
    assert_eq!(waits, [Some(Duration::from_millis(5)), None, Some(Duration::from_secs(2))]);
}

#[test]
fn faults_happen_in_order_and_as_often_as_they_say() {
    let planned = answers(&steps("/error 529 times 2\n/cut after 1 times 1\n/say ok")).unwrap();
    let names: Vec<_> = (0..4).map(|attempt| planned[0].fault(attempt).map(Fault::name)).collect();
    assert_eq!(names, [Some("error"), Some("error"), Some("cut"), None]);
    let always = answers(&steps("/error 529")).unwrap();
    assert!(always[0].fault(u64::MAX - 1).is_some());
}

#[test]
fn a_script_says_in_which_line_it_is_wrong() {
    assert_eq!(line_of("/say a"), "line 1: a step needs a `when` or `defaults` above it");
    assert_eq!(
        line_of("# a\n\nwhen any\n/slow x"),
        "line 4: /slow: `x` is not a duration such as 50ms or 2s"
    );
    assert_eq!(line_of("when any\n/sya a"), "line 2: /sya is not a step");
    assert_eq!(line_of("when"), "line 1: `when` needs a condition; `when any` always applies");
    assert_eq!(
        line_of("when turn 0\n/say a"),
        "line 1: `turn` must be a number from 1 on, not `0`"
    );
    assert_eq!(line_of("when prompt\n/say a"), "line 1: `prompt` needs a value");
    assert_eq!(line_of("when any\n/say a\nwhen any"), "line 3: it has no steps below it");
    assert_eq!(
        line_of("when round 2\n/bash a\n/say b"),
        "line 1: a rule for one round has 2 answers below it"
    );
    assert_eq!(line_of("defaults\n/say a"), "line 2: /say a cannot be a default");
    assert_eq!(
        line_of("when any\n/say a\n/and bash b"),
        "line 3: /and: there is no tool call before it to join"
    );
    assert!(line_of("when prompt \"a\n/say a").starts_with("line 1: a string is not well formed"));
    assert_eq!(line_of("whenever\n"), "line 1: expected `when …`, `defaults`, a step or a comment");
}

#[test]
fn the_first_rule_that_applies_answers() {
    let script = Script::parse(
        "when prompt \"deploy*prod\" turn 2\n/say second\nwhen prompt deploy\n/bash ls\n/say done\n\
         when model haiku system title\n/say a title\nwhen round 3\n/say third round",
    )
    .unwrap();
    let answer = |prompt: &str, model: &str, turn, round| {
        let system = "write a title";
        let due = script.answer(&Situation { prompt, model, system, turn, round })?;
        Some(match due {
            Due::Answer(answer) => answer.parts[0].to_string(),
            Due::Over => "over".to_owned(),
        })
    };
    assert_eq!(answer("please deploy to prod", "m", 2, 1).unwrap(), "/say second");
    assert_eq!(answer("please deploy to prod", "m", 1, 1).unwrap(), "/bash ls");
    assert_eq!(answer("deploy", "m", 1, 2).unwrap(), "/say done");
    assert_eq!(answer("deploy", "m", 1, 3).unwrap(), "over");
    assert_eq!(answer("x", "claude-haiku-9", 1, 1).unwrap(), "/say a title");
    assert_eq!(answer("x", "m", 1, 3).unwrap(), "/say third round");
    assert_eq!(answer("prod deploy", "m", 2, 1).unwrap(), "/bash ls");
    assert_eq!(answer("x", "m", 1, 1), None);
}

#[test]
fn steps_that_only_set_something_still_answer() {
    let Due::Answer(answer) = due(&steps("/slow 1ms"), 0) else { panic!("it is over") };
    assert_eq!(answer.slow, Some(Duration::from_millis(1)));
}

fn any_name() -> impl Strategy<Value = String> {
    "[a-zA-Z_][a-zA-Z0-9_.-]{0,12}"
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof!["\\PC{0,12}", any::<String>(), Just(String::new()), Just("\"a\" b".to_owned())]
}

fn any_call() -> impl Strategy<Value = Call> {
    let input = prop::collection::btree_map(any::<String>(), any::<String>(), 0..3);
    prop_oneof![
        (any_name(), input).prop_map(|(name, input)| Call::Tool {
            name,
            input: input.into_iter().map(|(key, value)| (key, json!(value))).collect(),
        }),
        any_text().prop_map(Call::Bash),
        (any_name(), any_text()).prop_map(|(name, raw)| Call::BadTool { name, raw }),
    ]
}

/// Not a word that has a meaning in a fault.
fn any_kind() -> impl Strategy<Value = String> {
    "[a-z]{1,8}_error"
}

fn any_fault() -> impl Strategy<Value = Fault> {
    let after = || prop::option::of(any::<u64>());
    let broken = prop::sample::select(Broken::ALL.to_vec());
    prop_oneof![
        (200_u16..600, prop::option::of(any_kind()), after(), prop::option::of(any_text()))
            .prop_map(|(status, kind, retry_after_secs, message)| Fault::Error {
                status,
                kind,
                retry_after_secs,
                message
            }),
        (200_u16..600).prop_map(|status| Fault::Html { status }),
        after().prop_map(|after| Fault::Hang { after }),
        after().prop_map(|after| Fault::Cut { after }),
        (any_kind(), any::<u64>()).prop_map(|(kind, after)| Fault::ErrorEvent { kind, after }),
        (broken, any::<u64>()).prop_map(|(how, after)| Fault::Broken { how, after }),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let figure = || prop::option::of(any::<u64>());
    let part = prop_oneof![
        any_text().prop_map(Part::Say),
        any_text().prop_map(Part::Think),
        (0_u64..1000, any_text()).prop_map(|(times, text)| Part::Repeat { times, text }),
        (0_u64..1_000_000).prop_map(Part::Flood),
        any_text().prop_map(Part::Endless),
        Just(Part::Recall),
        Just(Part::Results),
        Just(Part::Unknown),
        any_call().prop_map(Part::Call),
    ];
    prop_oneof![
        5 => part.prop_map(Step::Part),
        1 => any_call().prop_map(|call| Step::Together(Part::Call(call))),
        1 => any_text().prop_map(|text| Step::Together(Part::Say(text))),
        3 => (any_fault(), prop::option::of(1_u64..))
            .prop_map(|(fault, times)| Step::Fault { fault, times }),
        1 => prop::sample::select(StopReason::ALL.to_vec()).prop_map(Step::Stop),
        1 => (any::<u64>(), figure(), figure(), figure()).prop_map(
            |(input, output, cache_read, cache_write)| Step::Usage(UsageFigures {
                input: Some(input), output, cache_read, cache_write
            })
        ),
        1 => (0_u64..1_000_000).prop_map(|ms| Step::Slow(Duration::from_millis(ms))),
        1 => (0_u64..1_000_000).prop_map(|ms| Step::Wait(Duration::from_millis(ms))),
        1 => Just(Step::Empty),
    ]
}

fn any_condition() -> impl Strategy<Value = Condition> {
    prop_oneof![
        Just(Condition::Any),
        any::<String>().prop_map(|text| Condition::Prompt(Pattern(text))),
        any::<String>().prop_map(|text| Condition::Model(Pattern(text))),
        any::<String>().prop_map(|text| Condition::System(Pattern(text))),
    ]
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let turn = prop::option::of((1_u64..).prop_map(Condition::Turn));
    let conditions = prop::collection::vec(any_condition(), 1..3);
    let steps = prop::collection::vec(any_step(), 1..6);
    (conditions, turn, steps)
        .prop_map(|(mut conditions, turn, steps)| {
            conditions.extend(turn);
            Rule { conditions, steps }
        })
        .prop_filter("calls are joined to calls", |rule| answers(&rule.steps).is_ok())
}

#[test]
fn the_manual_has_every_verb_and_no_other() {
    let page = include_str!("../../../../../docs/scripted-model.md");
    let mut runner = TestRunner::deterministic();
    for _ in 0..500 {
        let step = any_step().new_tree(&mut runner).unwrap().current().to_string();
        let verb = step.split(' ').next().unwrap();
        let is_told = [' ', '`'].iter().any(|end| page.contains(&format!("`{verb}{end}")));
        assert!(is_told, "{verb} is not in the manual");
    }
    for span in page.split('`').filter(|span| span.starts_with('/') && span.len() > 1) {
        assert!(parse_step(span).is_some(), "{span} is no step");
    }
}

proptest! {
    #[test]
    fn what_is_written_reads_as_it_was(rules in prop::collection::vec(any_rule(), 0..4)) {
        let script = Script { defaults: Vec::new(), rules };
        prop_assert_eq!(&Script::parse(&script.to_string()).unwrap(), &script, "{}", script);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        drop(Script::parse(&text));
        text.lines().for_each(|line| drop(parse_step(line)));
    }

    #[test]
    fn no_line_that_begins_well_makes_the_parser_panic(
        verb in "(/(say|think|repeat|flood|endless|tool|bash|bad-tool|and|error|html|hang|cut|error-event|broken|stop|usage|slow|wait|empty|recall)|when)",
        rest in "( (after|times|retry-after|message|tool|bash|prompt|turn|\"|\\{|[0-9]{1,22}|\\PC{0,6})){0,5}",
    ) {
        let line = format!("{verb}{rest}");
        drop(parse_step(&line));
        drop(Script::parse(&format!("when any\n/bash x\n{line}\n/say x")));
    }
}
