"""Carries programs out by awaiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Any, TypeVar

import httpx

from ._config import Saving, Settings
from ._program import Ended, Fetch, Open, Program, Read, Sleep, Step, Tell, carried_out, proceed
from ._streams import PATIENCE_AT_CANCEL, StreamState, Wanted
from ._wire import Answer, Call, Request
from .events import StreamEvent
from .transcript import Reply

T = TypeVar("T")

# Tasks that outlive whoever started them: the loop itself holds them only weakly.
_LAST_WORDS: set[asyncio.Task[None]] = set()


class AsyncShell:
    """A connection to a server, and what its methods do with it."""

    def __init__(self, settings: Settings, http: httpx.AsyncClient | None) -> None:
        self._settings = settings
        self._owned = http is None
        self._http = http or httpx.AsyncClient(**settings.client_options())

    async def _carry_out(self, call: Call[T]) -> T:
        hands = AsyncHands(self._http, self._settings)
        program = carried_out(call, self._settings.retry)
        step = proceed(program)
        while not isinstance(step, Ended):
            step = await hands.advance(program, step)
        return step.value

    def _follow(self, wanted: Wanted) -> AsyncEventStream:
        return AsyncEventStream(wanted, AsyncHands(self._http, self._settings))

    def _afollow(self, wanted: Wanted) -> AsyncEventStream:
        return self._follow(wanted)

    async def _reply(self, wanted: Wanted) -> Reply:
        return await self._follow(wanted).reply()

    async def aclose(self) -> None:
        """Closes the connections. An httpx client that was handed in stays open."""
        if self._owned:
            await self._http.aclose()


class AsyncHands:
    """Does what a program says, one step after the other."""

    def __init__(self, http: httpx.AsyncClient, settings: Settings) -> None:
        self._http = http
        self._settings = settings
        self._open: httpx.Response | None = None
        self._pieces: AsyncIterator[bytes] | None = None

    async def advance(self, program: Program[T], step: Step) -> Step | Ended[T]:
        """Does one step, and returns the next one."""
        try:
            came = await self._do(step)
        except httpx.HTTPError as error:
            return self._settings.proceed(program, error=error)
        return self._settings.proceed(program, came)

    async def run(self, program: Program[None]) -> AsyncGenerator[StreamEvent, None]:
        """Carries a program out to its end, and passes on what it tells."""
        step = proceed(program)
        while not isinstance(step, Ended):
            if isinstance(step, Tell):
                yield step.event
            step = await self.advance(program, step)

    async def _do(self, step: Step) -> Any:
        if isinstance(step, Fetch):
            return await self._fetch(step.request)
        if isinstance(step, Open):
            await self.close()
            request = self._settings.build(self._http, step.request, step.silence)
            opened = self._open = await self._http.send(request, stream=True)
            body = b"" if opened.status_code == 200 else await opened.aread()
            self._pieces = None if body else opened.aiter_raw()
            return Answer(opened.status_code, opened.headers, body)
        if isinstance(step, Read):
            return await anext(self._pieces, b"") if self._pieces is not None else b""
        if isinstance(step, Sleep):
            await self.close()
            await asyncio.sleep(step.seconds)
        return None

    async def _fetch(self, request: Request) -> Answer:
        answer = await self._http.send(self._settings.build(self._http, request), stream=True)
        try:
            if request.save_to is not None and answer.is_success:
                with Saving(request.save_to) as file:
                    async for piece in answer.aiter_bytes():
                        file.write(piece)
                return Answer(answer.status_code, answer.headers, b"")
            return Answer(answer.status_code, answer.headers, await answer.aread())
        finally:
            await answer.aclose()

    async def close(self) -> None:
        """Closes what is open."""
        opened, self._open = self._open, None
        if opened is not None:
            await opened.aclose()


class AsyncEventStream(StreamState):
    """The events of a run or of a log, in order, each once.

    The request is made when the first event is asked for. Whoever stops listening before the end, by `aclose()`, by the
    end of an `async with` block or by dropping it, lets the run go on. A task that is cancelled ends it on the server,
    too, unless `on_cancel` is `detach`: while an event is waited for, and anywhere in an `async with` block.
    """

    def __init__(self, wanted: Wanted, hands: AsyncHands, *, owned: httpx.AsyncClient | None = None) -> None:
        super().__init__(wanted)
        self._events = _listen(wanted, hands, owned)

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> StreamEvent:
        return self._heard(await anext(self._events))

    async def __aenter__(self) -> AsyncEventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cancels = (asyncio.CancelledError, KeyboardInterrupt)
        self._wanted.is_cancelled = kind is not None and issubclass(kind, cancels)
        await self.aclose()

    async def aclose(self) -> None:
        """Stops listening. The run goes on."""
        await self._events.aclose()

    async def reply(self) -> Reply:
        """Listens to the end, and returns what was said. A run that failed is an `AshRunError`."""
        async for _ in self:
            pass
        return self.transcript.reply(self.run_id)


# It knows nothing of the stream that it is in, so that it is closed as soon as that is dropped.
async def _listen(
    wanted: Wanted, hands: AsyncHands, owned: httpx.AsyncClient | None
) -> AsyncGenerator[StreamEvent, None]:
    heard = hands.run(wanted.following.events())
    try:
        async for event in heard:
            yield event
    except (GeneratorExit, asyncio.CancelledError) as left:
        wanted.is_cancelled |= isinstance(left, asyncio.CancelledError)
        await heard.aclose()
        await _whatever_happens(_leave(wanted, hands, owned))
        raise
    finally:
        await hands.close()
        if owned is not None:
            await owned.aclose()


async def _leave(wanted: Wanted, hands: AsyncHands, owned: httpx.AsyncClient | None) -> None:
    await hands.close()
    if wanted.is_cancelled and wanted.on_cancel == "interrupt":
        async for _ in hands.run(wanted.following.interrupted(PATIENCE_AT_CANCEL)):
            pass
    if owned is not None:
        await owned.aclose()


async def _whatever_happens(work: Any) -> None:
    """Waits for something that goes on even if whoever waits is cancelled once more."""
    task: asyncio.Task[None] = asyncio.ensure_future(work)
    _LAST_WORDS.add(task)
    task.add_done_callback(_LAST_WORDS.discard)
    await asyncio.shield(task)
