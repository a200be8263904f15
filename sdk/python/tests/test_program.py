"""What the clients do, without a network: programs are told by hand what came of their steps."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ash_sdk import (
    AshClient,
    AshConnectionError,
    AshStreamError,
    AsyncAshClient,
    InvalidRequestError,
    NotFoundError,
    RateLimitError,
    Retry,
    ServerError,
    Session,
    StreamEvent,
    UnavailableError,
)
from ash_sdk._program import (
    Ended,
    Fetch,
    Following,
    Lost,
    Open,
    Program,
    Read,
    Sleep,
    Step,
    Tell,
    carried_out,
    covers,
    proceed,
)
from ash_sdk._wire import Answer, Call, Repeat, Request, at, call, file_at, nothing, one

RETRY = Retry(attempts=3, reconnects=3)


def told(last_seq: int, status: str = "active") -> Answer:
    """The session, whose log has so much."""
    return Answer(200, {}, json.dumps({"session": {"lastSeq": last_seq, "status": status}}).encode())


OPENED = Answer(200, {"content-type": "text/event-stream"}, b"")


def refused(status: int, code: str, *, retryable: bool = True, after: str | None = None) -> Answer:
    body = {"error": "no", "statusCode": status, "code": code, "retryable": retryable, "requestId": "q"}
    return Answer(status, {"retry-after": after} if after else {}, json.dumps(body).encode())


def frame(event: str, seq: int | None = None, epoch: int = 1, **data: Any) -> bytes:
    place = f"id: {epoch}-{seq}\n" if seq is not None else ""
    return f"{place}event: {event}\ndata: {json.dumps(data)}\n\n".encode()


def gap(start: str, end: str) -> bytes:
    data = {"from": start, "to": end, "reason": "other_epoch"}
    return f"event: gap\ndata: {json.dumps(data)}\n\n".encode()


class Played:
    """Plays a program with what comes of its steps, one after the other."""

    def __init__(self, program: Program[Any], *came: Any) -> None:
        self.requests: list[Request] = []
        self.sleeps: list[float] = []
        self.events: list[StreamEvent] = []
        left = list(came)
        step: Step | Ended[Any] = proceed(program)
        while not isinstance(step, Ended):
            if isinstance(step, Tell):
                self.events.append(step.event)
                step = proceed(program)
            elif isinstance(step, Sleep):
                self.sleeps.append(step.seconds)
                step = proceed(program)
            else:
                if isinstance(step, Fetch | Open):
                    self.requests.append(step.request)
                if not left:
                    break
                one = left.pop(0)
                step = proceed(program, lost=one) if isinstance(one, Lost) else proceed(program, one)
        self.left = left
        self.over = isinstance(step, Ended)
        self.result = step.value if isinstance(step, Ended) else None

    @property
    def names(self) -> list[str]:
        return [event.event for event in self.events]


def asked(method: str, repeat: Repeat | None = None) -> Call[None]:
    return call(method, "/x", nothing, repeat=repeat)


CUT = Lost("cut", sent=True)
UNREACHED = Lost("refused", sent=False)


def test_a_request_that_may_be_repeated_is_with_the_same_key() -> None:
    played = Played(carried_out(asked("POST", Repeat.KEYED), RETRY), CUT, CUT, Answer(200, {}, b"{}"))
    assert played.over
    keys = [request.headers["Idempotency-Key"] for request in played.requests]
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_a_request_that_must_not_be_repeated_is_only_if_it_surely_did_not_arrive() -> None:
    assert Played(carried_out(asked("POST"), RETRY), UNREACHED, Answer(200, {}, b"{}")).over
    with pytest.raises(AshConnectionError):
        Played(carried_out(asked("POST"), RETRY), CUT)
    with pytest.raises(UnavailableError):
        Played(carried_out(asked("POST"), RETRY), refused(503, "unavailable"))
    assert Played(carried_out(asked("POST"), RETRY), refused(503, "draining"), Answer(200, {}, b"{}")).over


def test_attempts_are_bounded() -> None:
    with pytest.raises(AshConnectionError, match="GET /x"):
        Played(carried_out(asked("GET"), RETRY), CUT, CUT, CUT)
    with pytest.raises(RateLimitError) as limited:
        Played(carried_out(asked("GET"), RETRY), *[refused(429, "rate_limited", after="2")] * 3)
    assert (limited.value.code, limited.value.retry_after, limited.value.request_id) == ("rate_limited", 2.0, "q")


def test_the_server_says_how_long_to_wait() -> None:
    played = Played(carried_out(asked("GET"), RETRY), refused(429, "rate_limited", after="3"), Answer(200, {}, b""))
    assert played.sleeps[0] >= 3


def test_what_a_lost_delete_has_deleted_is_deleted() -> None:
    gone = refused(404, "not_found", retryable=False)
    assert Played(carried_out(asked("DELETE"), RETRY), CUT, gone).over
    with pytest.raises(NotFoundError):
        Played(carried_out(call("DELETE", "/x", one(Session, "session")), RETRY), CUT, gone)
    with pytest.raises(NotFoundError):
        Played(carried_out(asked("DELETE"), RETRY), gone)


def test_a_proxy_that_answers_for_a_server_that_starts_again_is_asked_again() -> None:
    page = Answer(502, {"content-type": "text/html"}, b"<html>")
    assert Played(carried_out(asked("GET"), RETRY), page, Answer(200, {}, b"{}")).over
    with pytest.raises(ServerError):
        Played(carried_out(asked("POST"), RETRY), page)
    assert Played(Following("s", RETRY, until_idle=True).events(), page, page, OPENED, b"", told(0)).over


def test_pauses_grow_to_a_bound_and_are_random() -> None:
    retry = Retry(first_pause=1, longest_pause=8)
    assert [retry.pause(n, 1.0) for n in (1, 2, 3, 4, 5, 500)] == [1, 2, 4, 8, 8, 8]
    assert retry.pause(4, 0.25) == 2
    assert retry.pause(1, 0.0, wanted=5) == 5
    assert retry.pause(1, 0.0, wanted=10_000) == 60


def message() -> Following:
    request = call("POST", "/api/sessions/s/messages", nothing, body={}, repeat=Repeat.KEYED).request
    return Following("s", RETRY, message=request)


START = frame("session_start", sessionId="s", runId="r")


def test_a_run_is_taken_up_where_it_broke_and_nothing_comes_twice() -> None:
    played = Played(
        message().events(),
        OPENED,
        START + frame("run_started", 4, runId="r", turn=1) + frame("text_delta", 5, runId="r", delta="a")[:-9],
        CUT,
        OPENED,
        frame("text_delta", 5, runId="r", delta="a"),
        b": heartbeat\n\n" + frame("text_delta", 5, runId="r", delta="a") + frame("done", 6, runId="r", sessionId="s"),
    )
    assert played.over
    assert played.names == ["session_start", "run_started", "text_delta", "done"]
    assert [request.method for request in played.requests] == ["POST", "GET"]
    assert played.requests[1].path == "/api/sessions/s/stream?until=idle"
    assert played.requests[1].headers["Last-Event-ID"] == "1-4"


def test_a_message_whose_run_is_not_known_is_sent_again_with_its_key() -> None:
    end = frame("done", 5, runId="r", sessionId="s")
    played = Played(message().events(), CUT, UNREACHED, OPENED, START, CUT, OPENED, START + end)
    assert [request.method for request in played.requests] == ["POST"] * 4
    assert len({request.headers["Idempotency-Key"] for request in played.requests}) == 1
    assert played.names == ["session_start", "done"]


def test_events_of_other_runs_are_not_told_and_those_of_the_session_are() -> None:
    played = Played(
        message().events(),
        OPENED,
        START + frame("run_queued", position=1, runId="r"),
        CUT,
        OPENED,
        START + frame("run_queued", position=1, runId="r") + frame("text_delta", 3, runId="x", delta="!"),
        frame("done", 4, runId="x", sessionId="s") + frame("session_paused", 5, sessionId="s", reason="idle"),
        frame("done", 6, runId="r", sessionId="s"),
    )
    assert played.names == ["session_start", "run_queued", "session_paused", "done"]


def test_a_server_that_goes_is_followed_to_the_next() -> None:
    played = Played(
        message().events(),
        OPENED,
        START + frame("run_started", 2, runId="r", turn=1) + frame("reconnect", reason="draining", cursor="1-2"),
        refused(503, "draining", after="1"),
        UNREACHED,
        OPENED,
        frame("done", 3, runId="r", sessionId="s"),
    )
    assert played.names == ["session_start", "run_started", "done"]
    assert len(played.requests) == 4


def test_a_gap_is_told_and_what_comes_after_it_is_new() -> None:
    played = Played(
        Following("s", RETRY, after="1-90", until_idle=True).events(),
        OPENED,
        gap("1-90", "2-3") + frame("text_delta", 4, 2, delta="a"),
        CUT,
        OPENED,
        b"",
        told(4),
    )
    assert played.over
    assert played.names == ["gap", "text_delta"]
    assert [request.headers.get("Last-Event-ID") for request in played.requests] == ["1-90", "2-4", None]


def test_the_end_of_a_run_that_was_in_a_gap_is_asked_for() -> None:
    run = {"id": "r", "status": "completed", "stopReason": "end_turn", "endedAt": "2026-01-01T00:00:00Z"}
    played = Played(
        message().events(),
        OPENED,
        START + frame("run_started", 4, runId="r", turn=1),
        CUT,
        OPENED,
        gap("1-4", "2-9"),
        b"",
        Answer(200, {}, json.dumps({"run": run}).encode()),
        told(9),
    )
    assert played.over
    assert played.names == ["session_start", "run_started", "gap", "done"]


def test_what_a_run_said_while_its_stream_was_closed_is_told_before_its_end() -> None:
    run = {"id": "r", "status": "completed", "stopReason": "end_turn", "endedAt": "2026-01-01T00:00:00Z"}
    played = Played(
        message().events(),
        OPENED,
        START + frame("run_started", 4, runId="r", turn=1),
        b"",
        Answer(200, {}, json.dumps({"run": run}).encode()),
        told(6),
        OPENED,
        frame("text_delta", 5, runId="r", delta="a") + frame("done", 6, runId="r", sessionId="s"),
    )
    assert played.over
    assert played.names == ["session_start", "run_started", "text_delta", "done"]


def test_a_log_that_was_closed_before_its_end_is_followed_on() -> None:
    played = Played(
        Following("s", RETRY, until_idle=True).events(),
        OPENED,
        frame("text_delta", 1, delta="a"),
        b"",
        told(2),
        OPENED,
        frame("text_delta", 2, delta="b"),
        b"",
        told(2),
    )
    assert played.over
    assert [event.event_id for event in played.events] == ["1-1", "1-2"]


@pytest.mark.parametrize("last", [told(2, "ended"), refused(404, "not_found", retryable=False)], ids=["ended", "gone"])
def test_a_log_that_is_followed_ends_with_its_session(last: Answer) -> None:
    said = frame("text_delta", 1, delta="a") + frame("session_ended", 2)
    played = Played(Following("s", RETRY).events(), OPENED, said, b"", last)
    assert played.over
    assert played.names == ["text_delta", "session_ended"]
    assert played.sleeps == []
    nothing_new = Following("s", RETRY, after="1-2")
    assert Played(nothing_new.events(), OPENED, b"", last).over
    assert nothing_new.finished


def test_a_log_is_followed_until_all_was_told_and_the_session_has_ended() -> None:
    played = Played(
        Following("s", RETRY).events(),
        OPENED,
        frame("text_delta", 1, delta="a"),
        b"",
        told(1),
        OPENED,
        b"",
        told(2, "ended"),
        OPENED,
        frame("session_ended", 2),
        b"",
        told(2, "ended"),
    )
    assert played.over
    assert [event.event_id for event in played.events] == ["1-1", "1-2"]
    assert len(played.sleeps) == 2


def test_a_server_that_was_never_there_is_not_waited_for_as_one_that_comes_back() -> None:
    with pytest.raises(AshConnectionError, match="messages: refused") as nobody:
        Played(message().events(), *[UNREACHED] * RETRY.attempts)
    assert not isinstance(nobody.value, AshStreamError)
    patient = Retry(attempts=2, reconnects=9)
    for first in (CUT, OPENED):
        again = Following("s", patient, message=Request("POST", "/m"))
        end = START + frame("done", 2, runId="r")
        assert Played(again.events(), first, CUT, *[UNREACHED] * 5, OPENED, end).over


def test_reconnects_are_bounded_and_counted_anew_when_something_comes() -> None:
    start = frame("run_started", 4, runId="r", turn=1)
    with pytest.raises(AshStreamError) as broke:
        Played(message().events(), CUT, CUT, OPENED, START + start, *[CUT] * 9)
    assert broke.value.last_event_id == "1-4"
    following = Following("s", RETRY)
    came: list[Any] = []
    for seq in range(20):
        came += [OPENED, frame("text_delta", seq, delta="a"), CUT, UNREACHED]
    assert len(Played(following.events(), *came).events) == 20


def test_a_refusal_is_raised_at_once() -> None:
    with pytest.raises(NotFoundError):
        Played(message().events(), refused(404, "not_found", retryable=False))


def test_a_server_without_runs_is_not_sent_the_message_twice() -> None:
    with pytest.raises(AshStreamError, match="cannot"):
        Played(message().events(), OPENED, frame("session_start", sessionId="s"), CUT)


def test_a_run_is_interrupted_by_its_name_and_only_until_its_end_was_told() -> None:
    following = message()
    start = START + frame("run_queued", position=1, runId="r")
    Played(following.events(), OPENED, start)
    (asked,) = Played(following.interrupted(1), refused(404, "no_such_run", retryable=False)).requests
    assert (asked.method, asked.path, asked.body) == ("POST", "/api/sessions/s/interrupt", b'{"runId": "r"}')
    over = message()
    assert Played(over.events(), OPENED, START + frame("done", 2, runId="r", sessionId="s")).over
    assert Played(over.interrupted(1)).requests == []


def in_a_pause(*came: Any) -> Following:
    """A message that was sent as often as something came of it, and rests before it is sent again."""
    following = message()
    program = following.events()
    for outcome in came:
        assert isinstance(proceed(program), Open)
        step = proceed(program, lost=outcome) if isinstance(outcome, Lost) else proceed(program, outcome)
        assert isinstance(step, Sleep)
    return following


def without_an_answer(*came: Any) -> Following:
    """A message that was sent, and whose answer had not come, or had only begun."""
    following = message()
    Played(following.events(), *came)
    return following


@pytest.mark.parametrize(
    "following",
    [
        without_an_answer(),
        without_an_answer(OPENED),
        without_an_answer(UNREACHED),
        in_a_pause(CUT),
        in_a_pause(CUT, UNREACHED),
        in_a_pause(CUT, refused(503, "sandbox_capacity")),
        in_a_pause(refused(503, "unavailable")),
    ],
)
def test_a_message_that_may_have_been_taken_is_asked_for_its_run_and_that_is_interrupted(following: Following) -> None:
    sent = following.message
    assert sent is not None
    taken = Answer(202, {}, b'{"runId": "r", "seq": 1}')
    again, interrupt = Played(following.interrupted(1), taken, Answer(200, {}, b"{}")).requests
    assert (again.method, again.path, again.body) == ("POST", sent.path, sent.body)
    assert again.headers == {**sent.headers, "Prefer": "respond-async"}
    assert (interrupt.path, interrupt.body) == ("/api/sessions/s/interrupt", b'{"runId": "r"}')
    assert following.run_id == "r"


@pytest.mark.parametrize(
    "following",
    [
        message(),
        in_a_pause(UNREACHED),
        in_a_pause(refused(503, "sandbox_capacity")),
        in_a_pause(UNREACHED, refused(429, "rate_limited")),
    ],
)
def test_a_message_that_was_surely_not_taken_is_not_sent_for_its_end(following: Following) -> None:
    assert Played(following.interrupted(1)).requests == []


@pytest.mark.parametrize("came", [CUT, refused(404, "not_found"), Answer(200, {}, b"data: x"), Answer(200, {}, b"[]")])
def test_nobody_is_told_that_a_run_could_not_be_found_for_its_end(came: Any) -> None:
    following = message()
    Played(following.events(), OPENED)
    played = Played(following.interrupted(1), came)
    assert played.over
    assert len(played.requests) == 1


def test_a_server_without_runs_is_not_sent_the_message_for_its_end() -> None:
    following = message()
    Played(following.events(), OPENED, frame("session_start", sessionId="s"))
    assert Played(following.interrupted(1)).requests == []


def test_what_was_seen_is_known_in_the_same_history_only() -> None:
    assert covers("1-7", "1-7")
    assert covers("1-7", "1-6")
    assert not covers("1-7", "1-8")
    assert not covers("1-7", "2-3")
    assert covers("7", "1-7")
    assert not covers("7", "1-8")
    assert not covers(None, "1-1")


def test_parts_of_paths_stay_parts() -> None:
    assert at("agents", "a/../b?c") == "/api/agents/a%2F..%2Fb%3Fc"
    assert file_at("sessions", "s", "files", file="a b/ü#?.md") == "/api/sessions/s/files/a%20b/%C3%BC%23%3F.md"


@pytest.mark.parametrize("part", ["", ".", ".."])
def test_parts_that_lead_elsewhere_are_refused(part: str) -> None:
    sentence = f'"{part}" can be neither a name, nor an id, nor a part of a path'
    with pytest.raises(InvalidRequestError, match=re.escape(sentence)) as refused:
        at("agents", "a", "versions", part)
    error = refused.value
    assert (error.message, error.status_code, error.code, error.retryable) == (sentence, 400, "invalid_path", False)
    for file in (part, f"{part}/a", f"a/{part}", f"a/{part}/b"):
        with pytest.raises(InvalidRequestError, match="a part of a path"):
            file_at("agents", "a", "files", file=file)
    with pytest.raises(InvalidRequestError, match="a part of a path"):
        file_at("agents", part, "files", file="a")


def test_parts_that_only_look_as_if_they_led_elsewhere_are_taken() -> None:
    assert at("agents", "...", ".a", "%2e%2e", "..\\") == "/api/agents/.../.a/%252e%252e/..%5C"
    assert file_at("agents", "a", "files", file=".env/a..b") == "/api/agents/a/files/.env/a..b"


@pytest.mark.parametrize("kind", [AshClient, AsyncAshClient])
def test_what_leads_elsewhere_is_refused_when_the_call_is_made(kind: type[AshClient | AsyncAshClient]) -> None:
    client = kind("http://127.0.0.1:1", retry=Retry(attempts=1, reconnects=0))
    for method, *parts in [
        ("end_session", ".."),
        ("delete_session_file", "s", ".."),
        ("delete_agent_version", "a", ".."),
        ("send_message", "..", "Hello."),
        ("send_message_stream", "..", "Hello."),
        ("asend_message_stream", "..", "Hello."),
        ("stream", ".."),
    ]:
        with pytest.raises(InvalidRequestError, match="a part of a path"):
            getattr(client, method)(*parts)


def test_reading_goes_on_after_what_is_no_event() -> None:
    played = Played(Following("s", RETRY, until_idle=True).events(), OPENED, b"data: nonsense\n\n", b"", told(0))
    assert [event.data for event in played.events] == [{"value": "nonsense"}]
    assert Read() == Read()
