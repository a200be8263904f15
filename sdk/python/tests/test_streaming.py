"""Responses that somebody else asked for, read with the functions that the original's client has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from ash_sdk import StreamEvent
from ash_sdk.streaming import (
    DoneEvent,
    ErrorEvent,
    MessageEvent,
    SessionStartEvent,
    TextDeltaEvent,
    ThinkingDeltaEvent,
    ToolResultEvent,
    ToolUseEvent,
    TurnCompleteEvent,
    parse_sse_stream,
    parse_sse_stream_async,
)

TEXT = (
    ": hello\n\n"
    'event: session_start\ndata: {"sessionId":"s","version":"1"}\n\n'
    'id: 1-7\nevent: text_delta\ndata: {"delta":"Grüße,\u2028世界 🦢"}\n\n'
    'event: thinking_delta\r\ndata: {"delta":"Hm."}\r\n\r\n'
    'event: tool_use\ndata: {"id":"t","name":"Read",\ndata: "input":{"path":"a"}}\n\n'
    'event: tool_result\ndata: {"tool_use_id":"t","content":"b","is_error":true}\n\n'
    "event: text_delta\ndata: not JSON\n\n"
    "event: text_delta\ndata: [1]\n\n"
    "event: text_delta\n\n"
    'event: message\ndata: {"type":"assistant","message":{"content":[{"type":"text","text":"Hi."}]}}\n\n'
    'event: turn_complete\ndata: {"numTurns":2,"result":"Hi."}\n\n'
    'event: of_a_later_version\ndata: {"is":"new"}\n\n'
    'event: error\ndata: {"error":"no"}\n\n'
    'event: done\ndata: {"sessionId":"s"}\n\n'
    'event: done\ndata: {"sessionId":"never ended"}\n'
).encode()


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that comes in pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece


def read(kind: str, response: httpx.Response) -> list[StreamEvent]:
    """What either function makes of it."""

    async def awaited() -> list[StreamEvent]:
        return [event async for event in parse_sse_stream_async(response)]

    return list(parse_sse_stream(response)) if kind == "sync" else asyncio.run(awaited())


def parsed(kind: str, *pieces: bytes) -> list[StreamEvent]:
    return read(kind, httpx.Response(200, stream=Pieces(list(pieces))))


def test_events_have_the_attributes_that_the_original_gives_them(kind: str) -> None:
    start, text, thought, use, result, message, turn, later, error, done = parsed(kind, TEXT)
    assert isinstance(start, SessionStartEvent)
    assert (start.session_id, start.version) == ("s", "1")
    assert isinstance(text, TextDeltaEvent)
    assert (text.delta, text.event_id) == ("Grüße,\u2028世界 🦢", "1-7")
    assert isinstance(thought, ThinkingDeltaEvent)
    assert thought.delta == "Hm."
    assert isinstance(use, ToolUseEvent)
    assert (use.id, use.name, use.input) == ("t", "Read", {"path": "a"})
    assert isinstance(result, ToolResultEvent)
    assert (result.tool_use_id, result.content, result.is_error) == ("t", "b", True)
    assert isinstance(message, MessageEvent)
    assert (message.data["type"], message.text) == ("assistant", "Hi.")
    assert isinstance(turn, TurnCompleteEvent)
    assert (turn.num_turns, turn.result) == (2, "Hi.")
    assert type(later) is StreamEvent
    assert (later.event, later.data) == ("of_a_later_version", {"is": "new"})
    assert isinstance(error, ErrorEvent)
    assert error.error == "no"
    assert isinstance(done, DoneEvent)
    assert done.session_id == "s"


def test_one_cut_anywhere_changes_nothing(kind: str) -> None:
    whole = parsed(kind, TEXT)
    for cut in range(len(TEXT) + 1):
        assert parsed(kind, TEXT[:cut], TEXT[cut:]) == whole, cut


def test_byte_by_byte_is_the_same(kind: str) -> None:
    assert parsed(kind, *[bytes([byte]) for byte in TEXT]) == parsed(kind, TEXT)


@pytest.mark.parametrize("seed", range(50))
def test_random_cuts_change_nothing(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    cuts = sorted(chance.randrange(len(TEXT) + 1) for _ in range(chance.randrange(20)))
    pieces = [TEXT[a:b] for a, b in zip([0, *cuts], [*cuts, len(TEXT)], strict=True)]
    assert parsed(kind, *pieces) == parsed(kind, TEXT)


def test_a_response_that_was_read_before_is_read_too(kind: str) -> None:
    assert read(kind, httpx.Response(200, content=TEXT)) == parsed(kind, TEXT)


def test_an_event_is_told_as_soon_as_it_came(kind: str) -> None:
    first, rest = TEXT.split(b"id: 1-7")
    came: list[str] = []

    class Counted(Pieces):
        def __iter__(self) -> Iterator[bytes]:
            for piece in self.pieces:
                yield piece
                came.append("more was wanted")

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for piece in self:
                yield piece

    response = httpx.Response(200, stream=Counted([first, rest]))

    async def awaited() -> StreamEvent:
        return await anext(parse_sse_stream_async(response))

    event = next(parse_sse_stream(response)) if kind == "sync" else asyncio.run(awaited())
    assert isinstance(event, SessionStartEvent)
    assert came == []
