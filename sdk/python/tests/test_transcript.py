from __future__ import annotations

from typing import Any

import pytest

from ash_sdk import AshRunError, StreamEvent, Transcript
from ash_sdk.events import DoneEvent, GapEvent, TextDeltaEvent, made


def told(*events: tuple[str, dict[str, Any]], run: str = "r1") -> list[StreamEvent]:
    return [made(name, {"runId": run, **data}, f"1-{seq}") for seq, (name, data) in enumerate(events, 1)]


def answer(*content: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "message", {"type": "assistant", "message": {"content": list(content)}}


def test_pieces_make_a_text() -> None:
    events = told(
        ("prompt", {"content": "hello"}),
        ("run_started", {"turn": 1, "parentTurn": 0}),
        ("thinking_delta", {"delta": "hm"}),
        ("text_delta", {"delta": "Hel"}),
        ("text_delta", {"delta": "lo"}),
    )
    turn = Transcript(events).turns[0]
    assert (turn.prompt, turn.turn, turn.text, turn.thinking) == ("hello", 1, "Hello", "hm")


def test_what_was_taken_back_does_not_count() -> None:
    events = told(
        ("text_delta", {"delta": "Once "}),
        ("text_delta", {"delta": "upon"}),
        ("tool_use", {"id": "t", "name": "bash", "input": {}}),
        ("run_retry", {"round": 2, "discardAfterSeq": 1}),
        ("text_delta", {"delta": "more"}),
    )
    turn = Transcript(events).turns[0]
    assert (turn.text, turn.tools) == ("Once more", [])


def test_a_retry_takes_nothing_back_of_another_run() -> None:
    transcript = Transcript(told(("text_delta", {"delta": "kept"}), run="other"))
    for event in told(("text_delta", {"delta": "x"}), ("run_retry", {"round": 2, "discardAfterSeq": 0})):
        transcript.apply(event)
    assert [turn.text for turn in transcript.turns] == ["kept", ""]


def test_a_whole_answer_stands_for_its_pieces_also_without_any() -> None:
    events = told(
        ("text_delta", {"delta": "Let me se"}),
        answer({"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Let me see."}),
        ("tool_use", {"id": "t", "name": "bash", "input": {"command": "ls"}}),
        ("tool_result", {"tool_use_id": "t", "content": "a", "is_error": False}),
        answer({"type": "text", "text": "Seen."}),
        ("message", {"type": "result", "result": "Seen."}),
    )
    turn = Transcript(events).turns[0]
    assert (turn.text, turn.thinking) == ("Let me see.\n\nSeen.", "hm")
    assert [(call.name, call.result, call.finished) for call in turn.tools] == [("bash", "a", True)]


def test_an_answer_that_is_retried_after_it_was_whole_is_taken_back_whole() -> None:
    events = told(
        ("text_delta", {"delta": "No"}),
        answer({"type": "text", "text": "No."}),
        ("run_retry", {"round": 2, "discardAfterSeq": 0}),
        answer({"type": "text", "text": "Yes."}),
    )
    assert Transcript(events).text == "Yes."


def test_the_current_turns_are_those_that_a_rewind_left() -> None:
    transcript = Transcript()
    for turn, parent in ((1, 0), (2, 1), (3, 2)):
        transcript.apply(made("run_started", {"runId": f"r{turn}", "turn": turn, "parentTurn": parent}, None))
    transcript.apply(made("rewound", {"from": 3, "to": 1}, None))
    assert [turn.turn for turn in transcript.current] == [1]
    transcript.apply(made("run_started", {"runId": "r4", "turn": 4, "parentTurn": 1}, None))
    assert [turn.turn for turn in transcript.current] == [1, 4]
    assert [turn.turn for turn in transcript.turns] == [1, 2, 3, 4]


def test_a_reply_says_how_it_ended_and_a_failure_is_raised_with_what_was_said() -> None:
    events = told(("text_delta", {"delta": "So"}), ("error", {"error": "it died", "code": "sandbox_died"}))
    done = made("done", {"runId": "r1", "sessionId": "s", "stopReason": "error"}, "1-9")
    assert isinstance(done, DoneEvent)
    with pytest.raises(AshRunError) as failed:
        Transcript([*events, done]).reply()
    assert (failed.value.code, failed.value.reply.text) == ("sandbox_died", "So")


def test_gaps_are_kept() -> None:
    gap = made("gap", {"from": "1-4", "to": "2-9", "reason": "other_epoch"}, None)
    assert Transcript([gap]).gaps == [gap]
    assert isinstance(gap, GapEvent)
    assert gap.to_id == "2-9"


def test_what_is_not_known_or_not_as_expected_is_a_plain_event() -> None:
    assert type(made("new_thing", {"a": 1}, None)) is StreamEvent
    assert type(made("text_delta", {"text": "other"}, None)) is StreamEvent
    known = made("text_delta", {"delta": "a", "runId": "r"}, "3-12")
    assert isinstance(known, TextDeltaEvent)
    assert (known.seq, known.run_id, known.delta) == (12, "r", "a")
