//! Whole stories, as a terminal shows them in the end.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::emulator::Emulator;
use super::painter::{Painter, Picture, Size};
use super::{Detail, Now, Story};
use crate::client::{Cursor, ServerEvent};

fn event(seq: u64, name: &str, data: Value) -> ServerEvent {
    ServerEvent { cursor: Some(Cursor { epoch: Some(1), seq }), name: name.to_owned(), data }
}

/// Plays events on a terminal, painting after each, and returns what stands there in the end.
fn played(events: &[ServerEvent], columns: usize, lines: usize, detail: Detail) -> Vec<String> {
    let size = Size { columns, lines };
    let mut story = Story::new(detail, false, true);
    let mut painter = Painter::new(Vec::new(), false);
    let began = Instant::now();
    for (index, event) in events.iter().enumerate() {
        let at = began + Duration::from_millis(100 * index as u64);
        let now = Now { at, width: size.room(), reach: painter.reach(size), is_past: false };
        story.show(event, now);
        let (back, rows) = story.take();
        let bottom = story.live("*", size.room());
        painter.paint(Picture { back, rows, bottom, cursor: None }, size).unwrap();
    }
    let mut terminal = Emulator::new(columns, lines);
    terminal.write(&painter.into_written());
    terminal.lines()
}

const ANSWER: &str = "# Findings\n\nThe **build** fails in `src/main.rs`, because the *borrow* of \
the [map](https://example.org/map) lives too long:\n\n```rust\nlet x = map.get(&key); // 日本語 and 👍 are wide\n```\n\n\
- first, clone the key\n- second, drop the guard before the call of the function\n\n> It compiled yesterday.\n\n\
| step | state |\n|---|---|\n| build | fails |\n| 試験 | not run |\n";

fn turn() -> Vec<ServerEvent> {
    let usage = json!({
        "inputTokens": 1200, "outputTokens": 56, "cacheCreationTokens": 0,
        "cacheReadTokens": 4, "toolCalls": 2, "costUsd": 0.0123,
    });
    let mut events = vec![
        event(1, "prompt", json!({"content": "Why does it fail?"})),
        event(2, "run_started", json!({"turn": 1})),
        event(
            3,
            "thinking_delta",
            json!({"delta": "I should build it first, and then look at what the compiler says."}),
        ),
        event(
            4,
            "tool_use",
            json!({"id": "a", "name": "bash", "input": {"command": "cargo build --workspace --all-targets\n2>&1"}}),
        ),
        event(
            5,
            "tool_use",
            json!({"id": "b", "name": "read_file", "input": {"path": "src/main.rs"}}),
        ),
        event(
            6,
            "tool_result",
            json!({"tool_use_id": "b", "content": "fn main() {}", "is_error": false}),
        ),
        event(
            7,
            "tool_result",
            json!({"tool_use_id": "a", "content": "error[E0502]: cannot borrow\n  --> src/main.rs", "is_error": true}),
        ),
    ];
    events.push(event(8, "text_delta", json!({"delta": ANSWER})));
    let said =
        json!({"type": "assistant", "message": {"content": [{"type": "text", "text": ANSWER}]}});
    events.push(event(9, "message", said));
    events.push(event(
        10,
        "done",
        json!({"stopReason": "end_turn", "status": "completed", "usage": usage}),
    ));
    events
}

#[test]
fn a_prompt_that_waits_is_shown_when_its_turn_begins() {
    let events = [
        event(1, "prompt", json!({"runId": "a", "content": "First?"})),
        event(2, "run_started", json!({"runId": "a", "turn": 1})),
        event(3, "text_delta", json!({"runId": "a", "delta": "One answer, "})),
        event(4, "prompt", json!({"runId": "b", "content": "Second?"})),
        event(5, "prompt", json!({"runId": "c", "content": "Third?"})),
        event(6, "done", json!({"runId": "c", "stopReason": "interrupted"})),
        event(7, "text_delta", json!({"runId": "a", "delta": "in one piece."})),
        event(8, "done", json!({"runId": "a", "stopReason": "end_turn"})),
        event(9, "run_started", json!({"runId": "b", "turn": 2})),
        event(10, "text_delta", json!({"runId": "b", "delta": "Another."})),
        event(11, "done", json!({"runId": "b", "stopReason": "end_turn"})),
        event(12, "prompt", json!({"runId": "d", "content": "Fourth?"})),
    ];
    let shown = played(&events, 60, 30, Detail::Folded);
    let lines: Vec<&str> = shown.iter().map(|line| line.trim_end()).collect();
    let at = |text: &str| lines.iter().position(|line| line.contains(text)).unwrap();
    assert!(at("> First?") < at("One answer, in one piece."), "{lines:#?}");
    assert!(at("One answer, in one piece.") < at("> Second?"), "{lines:#?}");
    assert!(at("> Second?") < at("Another.") && at("Another.") < at("> Fourth?"), "{lines:#?}");
    assert!(at("> Third?") < at("(it was not begun: interrupted)"), "{lines:#?}");
}

#[test]
fn a_turn_on_a_terminal_of_the_usual_width() {
    let expected = "\
> Why does it fail?

∴ thought: I should build it first, and then look at what the compiler says.
✓ read_file src/main.rs  0.1s
✗ bash cargo build --workspace --all-targets 2>&1  0.3s
  error[E0502]: cannot borrow
    --> src/main.rs

# Findings

The build fails in `src/main.rs`, because the borrow of the map
(https://example.org/map) lives too long:

  ──── rust
  let x = map.get(&key); // 日本語 and 👍 are wide
  ────

• first, clone the key
• second, drop the guard before the call of the function

│ It compiled yesterday.

step  │ state
──────┼────────
build │ fails
試験  │ not run
end_turn · 1,204 tokens in, 56 out · $0.0123 · 0.8 s";
    assert_eq!(played(&turn(), 80, 50, Detail::Folded).join("\n"), expected);
}

#[test]
fn a_turn_on_a_narrow_terminal() {
    let expected = "\
> Why does it fail?

∴ thought: I should build it first, an…
✓ read_file src/main.rs  0.1s
✗ bash cargo build --workspace -…  0.3s
  error[E0502]: cannot borrow
    --> src/main.rs

# Findings

The build fails in `src/main.rs`,
because the borrow of the map
(https://example.org/map) lives too
long:

  ──── rust
  let x = map.get(&key); // 日本語 and 
  👍 are wide
  ────

• first, clone the key
• second, drop the guard before the
  call of the function

│ It compiled yesterday.

step  │ state
──────┼────────
build │ fails
試験  │ not run
end_turn · 1,204 tokens in, 56 out · $…";
    let expected: Vec<&str> = expected.lines().map(str::trim_end).collect();
    assert_eq!(played(&turn(), 40, 60, Detail::Folded), expected);
}

#[test]
fn a_turn_on_a_wide_terminal_with_everything() {
    let shown = played(&turn(), 160, 60, Detail::Everything);
    let expected = "\
> Why does it fail?

∴ thought:
┊ I should build it first, and then look at what the compiler says.
✓ read_file src/main.rs  0.1s
  path: src/main.rs
  fn main() {}
✗ bash cargo build --workspace --all-targets 2>&1  0.3s
  command: cargo build --workspace --all-targets
  2>&1
  error[E0502]: cannot borrow
    --> src/main.rs

# Findings

The build fails in `src/main.rs`, because the borrow of the map (https://example.org/map) lives too long:";
    let expected: Vec<&str> = expected.lines().collect();
    assert_eq!(shown[..expected.len()], expected);
    assert!(shown.iter().all(|line| super::text::width(line) < 160));
}

#[test]
fn an_answer_that_is_cut_is_taken_back_where_it_can_be() {
    let events = |text: &str| {
        vec![
            event(1, "prompt", json!({"content": "go"})),
            event(2, "run_started", json!({})),
            event(3, "text_delta", json!({"delta": text})),
            event(4, "run_retry", json!({"round": 1, "discardAfterSeq": 2})),
            event(5, "text_delta", json!({"delta": "whole"})),
            event(6, "done", json!({"stopReason": "end_turn"})),
        ]
    };
    let short = played(&events("one\ntwo\nthr"), 40, 20, Detail::Folded);
    let again = "(the answer was cut, and begins again)";
    assert_eq!(short, ["> go", "", again, "whole", "end_turn · 0.4 s"]);
    let long = played(&events(&"line\n".repeat(30)), 40, 10, Detail::Folded);
    assert_eq!(long.iter().filter(|line| *line == "line").count(), 30);
    assert!(long.contains(&"(cut: the last 31 lines do not count)".to_owned()), "{long:?}");
}

#[test]
fn what_happens_beside_the_answer_is_told() {
    let events = [
        event(
            1,
            "tool_use",
            json!({"id": "a", "name": "bash", "input": {"command": "sleep\x1b[2J 9"}}),
        ),
        event(2, "session_paused", json!({"reason": "requested"})),
        event(3, "context_lost", json!({})),
        event(4, "gap", json!({"reason": "other_epoch"})),
        event(5, "error", json!({"error": "the sandbox died", "code": "sandbox_died"})),
        event(6, "done", json!({"stopReason": "error"})),
        event(7, "session_ended", json!({})),
    ];
    let expected = [
        "(paused: requested)",
        "CONTEXT LOST: the agent does not remember the conversation, or its files are",
        "  gone",
        "(something is missing here: other_epoch)",
        "error: the sandbox died (sandbox_died)",
        "· bash sleep[2J 9  0.5s",
        "error",
        "(the session has ended)",
    ];
    assert_eq!(played(&events, 80, 24, Detail::Folded), expected);
}

/// Cuts a text at characters.
fn pieces(text: &str, cuts: &[prop::sample::Index]) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
    at.extend([0, chars.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| chars[pair[0]..pair[1]].iter().collect()).collect()
}

fn streamed(pieces: &[String]) -> Vec<ServerEvent> {
    let mut events = vec![event(1, "run_started", json!({}))];
    for (index, piece) in pieces.iter().enumerate() {
        events.push(event(2 + index as u64, "text_delta", json!({ "delta": piece })));
    }
    events.push(event(1_000, "message", json!({"type": "assistant", "message": {"content": []}})));
    events
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn the_pieces_that_text_comes_in_make_no_difference(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..25),
        columns in prop::sample::select(vec![20_usize, 40, 80, 160]),
    ) {
        let whole = played(&streamed(&[ANSWER.to_owned()]), columns, 100, Detail::Folded);
        let cut = played(&streamed(&pieces(ANSWER, &cuts)), columns, 100, Detail::Folded);
        prop_assert_eq!(cut, whole);
    }

    #[test]
    fn whatever_is_said_fits_and_the_pieces_make_no_difference(
        text in "[-a-z*_`#>|~\\[\\]()\\\\ \n\t日👍é\u{1b}\r]{0,120}",
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        columns in 8_usize..60,
    ) {
        let whole = played(&streamed(std::slice::from_ref(&text)), columns, 200, Detail::Folded);
        for line in &whole {
            prop_assert!(super::text::width(line) < columns, "{line:?}");
        }
        let cut = played(&streamed(&pieces(&text, &cuts)), columns, 200, Detail::Folded);
        prop_assert_eq!(cut, whole);
    }
}
