//! Whole exchanges, as the program has them, and what is made of them.

use super::*;

const GIVEN: &str = "11111111-1111-4111-8111-111111111111";

fn heard(line: &Value) -> Heard {
    let raw = RawValue::from_string(line.to_string()).unwrap();
    let head = serde_json::from_str(raw.get()).unwrap();
    Heard { raw, head }
}

fn state(state: &str) -> Value {
    json!({ "type": "system", "subtype": "session_state_changed", "state": state })
}

fn command(uuid: &str, state: &str) -> Value {
    json!({ "type": "command_lifecycle", "command_uuid": uuid, "state": state })
}

fn assistant(uuid: &str, content: &Value) -> Value {
    json!({ "type": "assistant", "uuid": uuid, "message": { "content": content } })
}

fn result(given: Option<&str>) -> Value {
    let mut result = json!({
        "type": "result", "subtype": "success", "is_error": false, "num_turns": 1, "result": "done",
        "total_cost_usd": 0.5,
        "model_usage_since_last_result": { "m": { "inputTokens": 10, "outputTokens": 5, "costUSD": 0.25 } },
    });
    match given {
        Some(given) => result["user_message_uuids"] = json!([given]),
        None => result["origin"] = json!({ "kind": "task-notification" }),
    }
    result
}

fn stream(event: &Value) -> Value {
    json!({ "type": "stream_event", "event": event })
}

/// Says it all, and at which line it was over.
fn play(turn: &mut Turn, lines: &[Value]) -> (Vec<Wish>, Option<usize>) {
    let (mut wishes, mut over) = (Vec::new(), None);
    for (at, line) in lines.iter().enumerate() {
        wishes.extend(turn.take(heard(line)));
        if turn.is_over() && over.is_none() {
            over = Some(at);
        }
    }
    (wishes, over)
}

fn new_turn() -> Turn {
    Turn::after(None, GIVEN.to_owned())
}

#[test]
fn a_run_is_over_when_its_message_is_done_and_the_program_at_rest() {
    let lines = [
        // What it has to say of its own accord comes first, and is another's.
        state("running"),
        result(None),
        state("idle"),
        command(GIVEN, "queued"),
        state("running"),
        command(GIVEN, "started"),
        assistant("a", &json!([{ "type": "text", "text": "hi" }])),
        result(Some(GIVEN)),
        command(GIVEN, "completed"),
        // An agent of its own goes on, and makes it speak again.
        result(None),
        state("idle"),
    ];
    let mut turn = new_turn();
    assert_eq!(play(&mut turn, &lines).1, Some(10));
    assert_eq!((turn.usage.input_tokens, turn.usage.cost_micro_usd), (30, 750_000));
    // Interrupted or withdrawn, it is done as well.
    let lines =
        [command(GIVEN, "queued"), state("running"), command(GIVEN, "cancelled"), state("idle")];
    assert_eq!(play(&mut new_turn(), &lines).1, Some(3));
    // Another's message is another's.
    let other = [
        command("other", "queued"),
        state("running"),
        command("other", "completed"),
        state("idle"),
    ];
    assert_eq!(play(&mut new_turn(), &other).1, None);
    // A version that tells nothing of this is believed its result.
    let mut plain = result(None);
    plain.as_object_mut().unwrap().remove("origin");
    assert_eq!(play(&mut new_turn(), &[plain]).1, Some(0));
}

#[test]
fn what_was_used_until_the_program_was_killed_is_counted_and_is_not_counted_twice() {
    let begin = |input: u64| {
        stream(&json!({ "type": "message_start", "message": { "usage": {
            "input_tokens": input, "cache_read_input_tokens": 5, "output_tokens": 1 } } }))
    };
    let more = |output: u64| {
        stream(&json!({ "type": "message_delta", "usage": { "output_tokens": output } }))
    };
    let mut turn = new_turn();
    play(&mut turn, &[begin(100), more(7), more(9), begin(40), more(2)]);
    let spent = turn.spent();
    assert_eq!((spent.input_tokens, spent.output_tokens, spent.cache_read_tokens), (140, 11, 10));
    let sum = json!({ "type": "result", "subtype": "success", "usage": { "input_tokens": 140, "output_tokens": 11 } });
    play(&mut turn, &[sum, begin(3)]);
    let spent = turn.spent();
    assert_eq!((spent.input_tokens, spent.output_tokens), (143, 12));
}

#[test]
fn what_an_older_version_says_it_has_cost_is_counted_once() {
    let with_total = |total: f64| json!({ "type": "result", "subtype": "success", "total_cost_usd": total, "usage": { "input_tokens": 7 } });
    // Nobody knows what it had cost before.
    let mut turn = new_turn();
    play(&mut turn, &[with_total(3.0)]);
    assert_eq!((turn.usage.cost_micro_usd, turn.usage.input_tokens), (0, 7));
    let mut next = Turn::after(turn.total_usd(), GIVEN.to_owned());
    play(&mut next, &[with_total(3.5)]);
    assert_eq!(next.usage.cost_micro_usd, 500_000);
}

#[test]
fn figures_that_cannot_be_are_as_much_as_can_be() {
    let most = json!({
        "inputTokens": u64::MAX, "outputTokens": u64::MAX, "cacheReadInputTokens": u64::MAX,
        "cacheCreationInputTokens": u64::MAX, "costUSD": 1e300,
    });
    let mut said = result(Some("m"));
    said["model_usage_since_last_result"] = json!({ "a": most, "b": most });
    let mut turn = new_turn();
    let begun =
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": u64::MAX } } });
    play(&mut turn, &[said.clone(), stream(&begun), stream(&begun), said]);
    let usage = turn.spent();
    assert_eq!((usage.input_tokens, usage.cost_micro_usd), (u64::MAX, u64::MAX));
}

#[test]
fn phases_and_retractions_follow_what_it_says() {
    let text = stream(
        &json!({ "type": "content_block_delta", "delta": { "type": "text_delta", "text": "a" } }),
    );
    let start = stream(&json!({ "type": "message_start" }));
    let stop = stream(&json!({ "type": "message_stop" }));
    let retry = json!({ "type": "system", "subtype": "api_retry" });
    let retractions = |lines: &[Value]| {
        let (wishes, _) = play(&mut new_turn(), lines);
        wishes.iter().filter(|wish| matches!(wish, Wish::Report(Event::Retry { .. }))).count()
    };
    assert_eq!(retractions(&[start.clone(), text.clone(), retry.clone()]), 1);
    assert_eq!(retractions(&[start.clone(), retry.clone()]), 0, "nothing was said");
    assert_eq!(retractions(&[start.clone(), text, stop, retry]), 0, "it goes on from there");

    let call = |name: &str| {
        assistant("a", &json!([{ "type": "tool_use", "id": "t", "name": name, "input": {} }]))
    };
    for (name, expected) in [("Bash", Phase::ExecutingTools), ("Task", Phase::DelegatingCoder)] {
        let (wishes, _) = play(&mut new_turn(), &[start.clone(), call(name)]);
        let phase = |wish: &Wish| {
            if let Wish::Report(Event::Phase { phase, .. }) = wish { Some(*phase) } else { None }
        };
        let phases: Vec<Phase> = wishes.iter().filter_map(phase).collect();
        assert_eq!(phases, [Phase::StreamingLlm, expected]);
    }
}

#[test]
fn what_is_not_known_is_passed_on_as_it_came() {
    for (line, name) in [
        (json!({ "type": "dream", "of": [1, 2] }), "dream"),
        (json!({ "type": "system", "subtype": "moon", "x": 1 }), "system_moon"),
    ] {
        let (wishes, _) = play(&mut new_turn(), std::slice::from_ref(&line));
        let [Wish::Report(Event::Output { name: called, body })] = &wishes[..] else {
            panic!("{wishes:?}")
        };
        assert_eq!((called.as_str(), body.get()), (name, line.to_string().as_str()));
    }
}

#[test]
fn a_question_is_asked_and_anything_else_is_refused() {
    let ask = |request: Value| json!({ "type": "control_request", "request_id": "q", "request": request });
    let tool =
        json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": "ls" } });
    let (wishes, _) = play(&mut new_turn(), &[ask(tool)]);
    assert!(
        matches!(&wishes[..], [Wish::Ask(Question { request, tool, .. })] if request == "q" && tool == "Bash")
    );
    let (wishes, _) = play(&mut new_turn(), &[ask(json!({ "subtype": "hook_callback" }))]);
    assert!(matches!(&wishes[..], [Wish::Refuse { .. }]));
    let cancel = json!({ "type": "control_cancel_request", "request_id": "q" });
    let (wishes, _) = play(&mut new_turn(), &[cancel]);
    assert!(matches!(&wishes[..], [Wish::Withdraw { request }] if request == "q"));
}

#[test]
fn what_was_said_last_has_to_be_mirrored() {
    let mirror = |uuid: &str| json!({ "type": "transcript_mirror", "filePath": "/x/c.jsonl", "entries": [{ "uuid": uuid }] });
    let mut turn = new_turn();
    assert!(turn.is_mirrored(), "nothing was said");
    play(&mut turn, &[assistant("a", &json!([])), mirror("b")]);
    assert!(!turn.is_mirrored());
    play(&mut turn, &[mirror("a")]);
    assert!(turn.is_mirrored());
}

#[test]
fn endings_are_told_apart() {
    let ending = |more: Value| {
        let mut result = json!({ "subtype": "success", "is_error": true });
        result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value::<Outcome>(result).unwrap()
    };
    assert_eq!(ending(json!({ "is_error": false })).ending(), Ending::EndTurn);
    assert_eq!(ending(json!({ "subtype": "error_max_turns" })).ending(), Ending::MaxTurns);
    assert_eq!(ending(json!({ "subtype": "error_max_budget_usd" })).ending(), Ending::Budget);
    let failed = ending(json!({ "result": "API Error: 400 nope", "api_error_status": 400 }));
    assert_eq!(failed.ending(), Ending::Refused { message: "API Error: 400 nope".to_owned() });
    assert!(!failed.is_poisoned());
    let spent = "API Error: 402 the session has spent its budget of 1 US dollars";
    assert_eq!(
        ending(json!({ "result": spent, "api_error_status": 402 })).ending(),
        Ending::Budget
    );
    assert_eq!(ending(json!({ "result": "Credit balance is too low" })).ending(), Ending::Quota);
    let poisoned = ending(
        json!({ "result": "API Error: 400 due to tool use concurrency issues.", "api_error_status": 400 }),
    );
    assert!(poisoned.is_poisoned());
    let errors = ending(json!({ "subtype": "error_during_execution", "errors": ["a", "b"] }));
    assert_eq!(errors.complaint(), "a; b");
}
