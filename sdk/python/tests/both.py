"""Both clients behind one face, so that one suite tests both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any, cast

from ash_sdk import AshClient, AsyncAshClient, StreamEvent
from ash_sdk._async import AsyncEventStream


class Waited:
    """An `AsyncAshClient` that is waited for, as if it were the other one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.runner = asyncio.Runner()
        self.client = AsyncAshClient(*args, **options)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if not inspect.ismethod(found) and not inspect.isfunction(found):
            return found

        def method(*args: Any, **options: Any) -> Any:
            made = found(*args, **options)
            if inspect.iscoroutine(made):
                return self.runner.run(made)
            return WaitedStream(made, self.runner) if isinstance(made, AsyncEventStream) else made

        return method

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()


class WaitedStream:
    """An `AsyncEventStream` that is waited for."""

    def __init__(self, stream: AsyncEventStream, runner: asyncio.Runner) -> None:
        self.stream = stream
        self.runner = runner

    def __iter__(self) -> Iterator[StreamEvent]:
        return self

    def __next__(self) -> StreamEvent:
        async def one() -> StreamEvent | None:
            return await anext(self.stream, None)

        event = self.runner.run(one())
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> WaitedStream:
        return self

    def __exit__(self, *left: Any) -> None:
        self.runner.run(self.stream.__aexit__(*left))

    def close(self) -> None:
        self.runner.run(self.stream.aclose())

    def reply(self) -> Any:
        return self.runner.run(self.stream.reply())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def client_of(kind: str, *args: Any, **options: Any) -> AshClient:
    """A client of that kind, `sync` or `async`."""
    return AshClient(*args, **options) if kind == "sync" else cast(AshClient, Waited(*args, **options))
