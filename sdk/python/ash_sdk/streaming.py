"""The events under the name of the original's module, and how to read them from a response."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator

import httpx

from ._sse import Parser
from .events import *  # noqa: F403
from .events import StreamEvent, made

AshEvent = StreamEvent


def parse_sse_stream(response: httpx.Response) -> Generator[AshEvent, None, None]:
    """The events of a response, as they come. What is no event is skipped."""
    parser = Parser()
    for piece in response.iter_bytes():
        yield from _events(parser, piece)


async def parse_sse_stream_async(response: httpx.Response) -> AsyncGenerator[AshEvent, None]:
    """The same for a response of an `httpx.AsyncClient`."""
    parser = Parser()
    async for piece in response.aiter_bytes():
        for event in _events(parser, piece):
            yield event


def _events(parser: Parser, piece: bytes) -> Generator[AshEvent, None, None]:
    for frame in parser.push(piece):
        try:
            data = json.loads(frame.data)
        except ValueError:
            continue
        if isinstance(data, dict):
            yield made(frame.event, data, frame.id or None)
